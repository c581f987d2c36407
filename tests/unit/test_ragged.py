"""Branches that end early or skip a level: what stands in for them is no class, in trees, labels, metrics and answers."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from torchlht import DataError, Hierarchy, HierarchyError, HierarchyMetrics
from torchlht.answer.named import Named, Wanted, name_all
from torchlht.answer.plain import as_dict
from torchlht.answer.table import Answers
from torchlht.data.columns import read_columns, tree_of_columns
from torchlht.data.samples import Mask, Samples, read_data
from torchlht.data.sources.embeddings import write_embeddings
from torchlht.heads.prediction import Prediction, answer_by
from torchlht.hierarchy.comparing import differences, graft
from torchlht.learn.questions.strategy import answerable
from torchlht.measure.operating import Decisions, operating_point
from torchlht.measure.outcomes import Outcomes
from torchlht.show.terminal import draw_tree, samples_summary

LEVELS = ("order", "family", "species")
PATHS: list[tuple[str | None, ...]] = [
    ("Gulls", "Laridae", "Ivory Gull"),
    ("Gulls", "Laridae", "Herring Gull"),
    ("Gulls", None, "Skua"),
    ("Loons", "Gaviidae", None),
    ("Grebes", None, None),
]
TREE = Hierarchy.from_paths(PATHS, LEVELS)
STAND_IN = re.compile(r"\(no ")


def label(*path: str | None) -> list[int]:
    """The numbers of a path in the tree, fine first, as reading data gives them."""
    row = [-1 if name is None else TREE.index(2 - i, name) for i, name in enumerate(path)]
    filled: list[int] = TREE.fill(np.array([row[::-1]]))[0].tolist()
    return filled


# ---- the tree --------------------------------------------------------------------------------------------------------


def test_what_stands_in_is_a_fact_of_the_tree() -> None:
    assert TREE.sizes == (5, 4, 3)
    assert TREE.real_sizes == (3, 2, 3)
    assert [set(names) - {None} for names in TREE.names] == [
        {"Ivory Gull", "Herring Gull", "Skua"}, {"Laridae", "Gaviidae"}, {"Gulls", "Loons", "Grebes"},
    ]  # fmt: skip
    assert TREE.describe() == "order 3 › family 2 › species 3 (2 branches end early, 1 class skips a level)"
    texts = {TREE.text(k, i) for k in range(3) for i in range(TREE.sizes[k])}
    assert {"Gaviidae (family)", "Grebes (order)", "Gulls (order)", "Skua"} <= texts
    assert not any(map(STAND_IN.search, texts))


def test_a_complete_tree_is_written_as_before() -> None:
    tree = Hierarchy.from_paths([("A", "a"), ("B", "b")], ("family", "species"))
    assert not tree.ragged
    assert tree.to_dict()["format"] == "torchlht-hierarchy-1"
    assert tree.describe() == "family 2 › species 2"


def test_a_file_keeps_which_classes_stand_in_and_no_name_for_them(tmp_path: Path) -> None:
    TREE.write(tmp_path / "hierarchy.json")
    assert not STAND_IN.search((tmp_path / "hierarchy.json").read_text(encoding="utf-8"))
    again = Hierarchy.read(tmp_path / "hierarchy.json")
    assert again == TREE
    assert again.classes == TREE.classes
    assert [flags.tolist() for flags in again.stand_ins] == [flags.tolist() for flags in TREE.stand_ins]


def test_an_older_file_is_understood_by_its_names() -> None:
    old = {"format": "torchlht-hierarchy-1", "levels": TREE.to_dict()["levels"]}
    for level, names in zip(old["levels"], TREE.classes, strict=True):
        level["classes"] = list(names)
    assert Hierarchy.from_dict(old) == TREE


def test_a_class_that_is_called_like_a_stand_in_is_a_class() -> None:
    tree = Hierarchy.from_paths([("Laridae", "Laridae (no species)"), ("Auks", None)], ("family", "species"))
    again = Hierarchy.from_dict(json.loads(json.dumps(tree.to_dict())))
    for one in (tree, again):
        assert one.names == (("Laridae (no species)", None), ("Laridae", "Auks"))
    whole = Hierarchy.from_paths([("Laridae", "Laridae (no species)"), ("Auks", "Puffin")], ("family", "species"))
    assert not Hierarchy.from_dict(whole.to_dict()).ragged


def test_older_names_below_a_class_that_has_others_are_classes() -> None:
    tree = Hierarchy(
        levels=("species", "family"), classes=(("Puffin", "Auks (no species)"), ("Auks",)), parents=[[0, 0]]
    )  # fmt: skip
    assert not tree.ragged


@pytest.mark.parametrize(
    ("classes", "parents", "message"),
    [
        pytest.param([["a", None], ["A"]], [[0, 0]], "a class without a name under 'A', which has others", id="both"),
        pytest.param([["a", "b"], ["A", None]], [[0, 1]], "at the coarsest level there is none to stand in for", id="top"),
    ],
)
def test_a_stand_in_that_cannot_be_is_refused(classes: Any, parents: Any, message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        Hierarchy.from_parents(parents, classes=classes)


a_row = st.tuples(st.sampled_from("AB"), st.sampled_from(["", "p", "q"]), st.sampled_from(["", "x", "y", "z"]))


@settings(max_examples=80, deadline=None)
@given(st.lists(a_row, min_size=1, max_size=8))
def test_any_ragged_tree_is_read_again_as_it_was(rows: list[tuple[str, str, str]]) -> None:
    named = [(a, f"{a}{b}" if b else None, f"{a}{b}{c}" if c else None) for a, b, c in rows]
    tree = Hierarchy.from_paths(named, LEVELS)
    again = Hierarchy.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert again == tree
    for k in range(3):
        assert set(tree.names[k]) - {None} == {row[2 - k] for row in named} - {None}
        for name, ends in zip(tree.names[k], tree.ends[k].tolist(), strict=True):
            below = [row[3 - k :] for row in named if row[2 - k] == name]
            assert name is None or k == 0 or ends == (not any(map(any, below)))
    assert Hierarchy(levels=tree.levels, classes=tree.classes, parents=tree.parents) == tree  # by names, as in older files


@settings(max_examples=40, deadline=None)
@given(st.lists(a_row, min_size=1, max_size=8))
def test_any_ragged_tree_is_a_table_that_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    tree = Hierarchy.from_paths([(a, f"{a}{b}" if b else None, f"{a}{b}{c}" if c else None) for a, b, c in rows], LEVELS)
    table = tmp_path_factory.mktemp("trees") / "tree.CSV"
    tree.write(table)
    assert sorted(Hierarchy.read(table).rows()) == sorted(tree.rows())
    if not tree.ragged:
        assert Hierarchy.read(table).classes[0] == tree.classes[0]  # numbered as before


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_a_label_at_the_end_of_its_branch_is_whole() -> None:
    assert -1 not in label("Loons", "Gaviidae", None)
    assert -1 not in label("Grebes", None, None)
    assert label("Gulls", "Laridae", None)[0] == -1
    assert label("Gulls", None, None)[:2] == [-1, -1]
    assert label("Loons", None, None)[:2] == [-1, -1]  # the family is not known, although there is one alone
    assert TREE.cells(label("Loons", "Gaviidae", None)) == ["Loons", "Gaviidae", ""]
    assert TREE.path_names(label("Gulls", None, "Skua")) == ["Gulls", "Skua"]


def samples_of(rows: list[list[int]]) -> Samples:
    keys = tuple(f"{i}" for i in range(len(rows)))
    return Samples("x", TREE, keys, np.array(rows), np.full(len(rows), "train"), features=np.eye(len(rows), dtype=np.float32))


def test_a_mask_cannot_hide_what_a_branch_does_not_have() -> None:
    rows = [label("Loons", "Gaviidae", None)] * 10 + [label("Gulls", "Laridae", "Ivory Gull")] * 10
    masked, kept = Mask(0.9).apply(samples_of(rows))
    assert (masked.labels[:10] == rows[0]).all()
    assert (masked.labels[10:, 0] < 0).sum() == 9
    assert set(range(10)) <= set(kept.tolist())
    deeper, _ = Mask(0.9, levels=2).apply(samples_of(rows))
    assert (deeper.labels[:10, 1] < 0).sum() == 9


def test_the_summary_says_where_branches_end() -> None:
    rows = [label("Loons", "Gaviidae", None), label("Gulls", "Laridae", "Ivory Gull"), label("Gulls", "Laridae", None)]
    assert "labelled down to species 1 · family 1 · where the branch ends 1 " in samples_summary(samples_of(rows))


def test_what_cannot_be_answered_is_not_asked() -> None:
    tree = Hierarchy.from_paths([("A", "a", None), ("A", "b", None), ("B", "c", "x")], LEVELS)
    asked = answerable(np.array([[-1, -1, tree.index(2, "A")], [-1, -1, tree.index(2, "B")], [-1, -1, -1]]), tree)
    assert asked.tolist() == [[False, True, True], [True, True, True], [True, True, True]]


def test_features_may_have_a_ragged_tree(tmp_path: Path) -> None:
    y = np.array([[0, 0, 0], [1, 0, 0], [-1, 1, 1], [-1, -1, 2], [-1, 0, 0]])
    names: dict[str, Any] = {
        "classes_species": ["Ivory", "Herring"],
        "classes_family": ["Laridae", "Gaviidae"],
        "classes_order": ["C", "G", "Z"],
    }
    np.savez(tmp_path / "x.npz", x=np.eye(5, dtype=np.float32), y=y, levels=["species", "family", "order"], **names)
    read = read_data(tmp_path / "x.npz")
    assert read.hierarchy.describe() == "order 3 › family 2 › species 2 (2 branches end early)"
    assert read.labels[:, 0].tolist()[:2] == [0, 1]
    assert (read.labels >= 0).sum(axis=1).tolist() == [3, 3, 3, 3, 2]
    write_embeddings(tmp_path / "again.npz", np.eye(5, dtype=np.float32), read.labels, read.hierarchy)
    with np.load(tmp_path / "again.npz") as arrays:
        assert arrays["classes_species"].tolist() == ["Ivory", "Herring", "", ""]
    again = read_data(tmp_path / "again.npz")
    assert again.hierarchy == read.hierarchy
    assert again.labels.tolist() == read.labels.tolist()


def test_a_column_of_blanks_ends_a_branch() -> None:
    tree = tree_of_columns(read_columns([["G", "a"], ["L", ""]]), ["family", "species"])
    assert tree.describe() == "family 2 › species 1 (1 branch ends early)"


# ---- metrics ---------------------------------------------------------------------------------------------------------


def random_answers(n: int, seed: int) -> tuple[Prediction, torch.Tensor]:
    """Log-probabilities, and labels known to different depths; answers of levels need not agree."""
    random = np.random.default_rng(seed)
    leaves = random.integers(0, TREE.sizes[0], n)
    labels = np.stack([TREE.ancestors(k)[leaves] for k in range(3)], axis=1)
    labels[random.random(n) < 0.2, 0] = -1
    labels[random.random(n) < 0.1] = -1
    levels = [torch.from_numpy(random.normal(size=(n, size))).float().log_softmax(1) for size in TREE.sizes]
    return Prediction(tuple(levels)), torch.from_numpy(TREE.fill(labels))


@pytest.mark.parametrize("seed", range(3))
def test_figures_of_a_level_are_about_the_samples_and_classes_that_it_has(seed: int) -> None:
    prediction, labels = random_answers(60, seed)
    metrics = HierarchyMetrics(TREE)
    metrics.update(prediction, labels)
    found, said = metrics.compute(), prediction.chosen()
    for k, level in zip(TREE.top_down, found["levels"], strict=True):
        both = labels[:, k].tolist(), said[:, k].tolist()
        names = [(TREE.names[k][y], TREE.names[k][c]) for y, c in zip(*both, strict=True) if y >= 0]
        pairs = [(true, one) for true, one in names if true is not None]
        classes = {true for true, _ in pairs} | {one for _, one in pairs if one is not None}
        f1 = [
            2 * pairs.count((c, c)) / (sum(t == c for t, _ in pairs) + sum(o == c for _, o in pairs)) for c in classes
        ]  # fmt: skip
        assert level["classes"] == TREE.real_sizes[k]
        assert level["samples"] == len(pairs)
        assert level["accuracy"] == pytest.approx(sum(t == o for t, o in pairs) / len(pairs))
        assert level["macro_f1"] == pytest.approx(sum(f1) / len(f1))
    whole = [i for i in range(60) if (labels[i] >= 0).all()]
    assert found["full_path_accuracy"] == pytest.approx(np.mean([(said[i] == labels[i]).all() for i in whole]))
    assert found["mean_accuracy"] == pytest.approx(np.mean([level["accuracy"] for level in found["levels"]]))


@pytest.mark.parametrize("seed", range(3))
def test_the_answered_and_the_true_path_are_sets_of_classes(seed: int) -> None:
    prediction, labels = random_answers(40, seed)
    metrics = HierarchyMetrics(TREE)
    metrics.update(prediction, labels)
    found, said = metrics.compute(), prediction.chosen()
    right = total = true = 0
    for row, own in zip(labels.tolist(), said.tolist(), strict=True):
        for k in range(3):
            if row[k] < 0:
                continue
            answered = {int(TREE.ancestors(k, of=j)[own[j]]) for j in range(k + 1)}
            answered = {i for i in answered if TREE.names[k][i] is not None}
            truth = {row[k]} if TREE.names[k][row[k]] is not None else set()
            right, total, true = right + len(answered & truth), total + len(answered), true + len(truth)
    assert found["hierarchical_precision"] == pytest.approx(right / total)
    assert found["hierarchical_recall"] == pytest.approx(right / true)


def test_kept_answers_give_the_same_figures() -> None:
    prediction, labels = random_answers(80, 7)
    metrics = HierarchyMetrics(TREE)
    metrics.update(prediction, labels)
    levels = metrics.compute()["levels"][::-1]
    kept = Outcomes(TREE.only_real(labels.numpy()), TREE.only_real(prediction.chosen().numpy()))
    for spec in metrics.specs:
        for k in range(3):
            values = kept.values(spec, k) if spec.per == "level" and "siblings" not in spec.name else None
            if values is not None:
                assert values.mean() == pytest.approx(levels[k][spec.name])


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7, 0.95])
def test_operating_points_agree_with_answers_by_name(threshold: float) -> None:
    prediction, labels = random_answers(60, 3)
    decided = answer_by(prediction, TREE, "path")
    keep = labels[:, 0] >= 0
    found = operating_point(Decisions.of(decided, labels), TREE, threshold)
    named = name_all(decided, TREE, [str(i) for i in range(60)], top=1, rule="path")
    answers = [one.answer(confidence=threshold) for one, known in zip(named, keep.tolist(), strict=True) if known]
    truths = [TREE.path_names(row) for row in labels[keep].tolist()]
    wrong = [a.label is not None and a.label not in t for a, t in zip(answers, truths, strict=True)]
    assert found["wrong"] == pytest.approx(np.mean(wrong))
    for level in found["levels"]:
        assert level["answered"] == pytest.approx(np.mean([a.level == level["name"] for a in answers]))
    whole = {"species": 3, "family": 2, "order": 1, None: 0}
    depths = [1.0 if a.ends else whole[a.level] / 3 for a in answers]
    assert found["depth"] == pytest.approx(np.mean(depths))
    said = [set(a.path) for a in answers]
    hits = sum(len(s & set(t)) for s, t in zip(said, truths, strict=True))
    assert found["hierarchical_precision"] in (None, pytest.approx(hits / max(sum(map(len, said)), 1)))
    assert found["hierarchical_recall"] == pytest.approx(hits / sum(map(len, truths)))


# ---- answers ---------------------------------------------------------------------------------------------------------


def named_at(path: tuple[str | None, ...], sure: tuple[float, float, float]) -> Named:
    """A prediction that gives the classes of a path these probabilities, coarse → fine; the rest is even."""
    own, levels = label(*path), []
    for k, p in zip(range(3), sure[::-1], strict=True):
        row = torch.full((1, TREE.sizes[k]), (1 - p) / (TREE.sizes[k] - 1))
        row[0, own[k]] = p
        levels.append(row.log())
    return name_all(Prediction(tuple(levels)), TREE, ["a.jpg"], top=5)[0]


def test_an_answer_at_the_end_of_its_branch_is_whole() -> None:
    named = named_at(("Loons", "Gaviidae", None), (0.97, 0.95, 0.93))
    for confidence in (0.9, 0.94):  # where the finest level is sure enough, and where only the family is
        answer = named.answer(confidence=confidence)
        assert (answer.label, answer.level, answer.ends, answer.undecided) == ("Gaviidae", "family", True, None)
        assert answer.probability == pytest.approx(0.95)
        assert answer.path == ("Loons", "Gaviidae")
    above = named.answer(confidence=0.96)
    assert (above.label, above.ends, above.undecided) == ("Loons", False, "family")
    assert named.names == {"order": "Loons", "family": "Gaviidae", "species": None}
    assert [level.ends for level in named.levels] == [False, True, True]
    assert named.ends_at == "family"
    assert str(named) == "Loons 97% › Gaviidae 95%"


def test_a_skipped_level_is_told_from_an_end() -> None:
    named = named_at(("Gulls", None, "Skua"), (0.9, 0.9, 0.6))
    assert named["family"].label is None
    assert not named["family"].ends
    answer = named.answer(confidence=0.8)
    assert (answer.label, answer.level, answer.ends, answer.undecided) == ("Gulls", "order", False, "species")
    assert answer.runners_up[0].label == "Skua"
    assert named.answer(confidence=0.5).path == ("Gulls", "Skua")
    assert named.ends_at is None


def test_plain_values_speak_of_classes_alone() -> None:
    named = named_at(("Loons", "Gaviidae", None), (0.97, 0.95, 0.93))
    plain = as_dict(named, Wanted(0.9, "confidence 0.9"))
    species = plain["levels"][-1]
    assert (species["label"], species["ends"]) == (None, True)
    assert species["candidates"][0] == {"label": "Gaviidae", "level": "family", "probability": pytest.approx(0.93)}
    assert plain["answer"]["label"] == "Gaviidae"
    assert plain["answer"]["ends"] is True
    row = Answers([named]).rows(confidence=0.9)[0]
    assert (row["species"], row["ends_at"], row["answer"]) == (None, "family", "Gaviidae")
    for text in (
        json.dumps(plain),
        repr(row),
        repr(named),
        named._repr_html_(),
        Answers([named])._repr_html_(),
        TREE._repr_html_(),
    ):
        assert not STAND_IN.search(text)


def test_pictures_of_the_tree_have_no_stand_ins() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(draw_tree(TREE, "birds"))
    text = console.export_text()
    assert text.count("ends here") == 2
    assert not STAND_IN.search(text)
    assert [name for name in ("Skua", "Laridae", "Gaviidae", "Grebes") if name not in text] == []


# ---- trees compared --------------------------------------------------------------------------------------------------


def test_trees_are_compared_and_grafted_by_their_classes() -> None:
    other = Hierarchy.from_paths(
        [("Gulls", "Laridae", "Mew Gull"), ("Loons", "Gaviidae", "Loon"), ("Rails", None, None)], LEVELS
    )
    grown, moved = graft(TREE, other)
    assert not moved
    assert set(grown.names[0]) - {None} == {"Ivory Gull", "Herring Gull", "Skua", "Mew Gull", "Loon"}
    assert grown.describe() == "order 4 › family 2 › species 5 (2 branches end early, 1 class skips a level)"
    assert not differences(graft(TREE, TREE)[0], TREE)
    assert {str(one) for one in differences(TREE, other)} == {
        "order Grebes: removed", "order Rails: added", "species Ivory Gull: removed under Laridae",
        "species Herring Gull: removed under Laridae", "species Skua: removed under Gulls",
        "species Mew Gull: added under Laridae", "species Loon: added under Gaviidae",
    }  # fmt: skip


def test_a_name_in_code_is_no_name_for_people() -> None:
    with pytest.raises(DataError) as error:
        TREE.index(0, "Gaviidae (no spec)")
    assert "Gaviidae (no species)" not in str(error.value)
