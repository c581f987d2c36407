"""Trees that are found in data, repaired, compared and grafted."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from torchlht import Hierarchy
from torchlht.cli import main
from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError, DataError, HierarchyError
from torchlht.hierarchy.comparing import differences, graft
from torchlht.learn.audit.discriminant import components
from torchlht.learn.audit.placing import Remark, spellings
from torchlht.learn.growing import find_tree, names_help, rand_index, same_word, silhouette
from torchlht.learn.mending import moved, propose
from torchlht.learn.splitting import APART, heaps, nearer, two_means

FAMILIES = {"Gulls": 4, "Auks": 3, "Owls": 4}
TREE = Hierarchy.from_paths(
    [(family, f"{letter} {family[:-1]}") for family, count in FAMILIES.items() for letter in "ABCD"[:count]],
    ("family", "species"),
)


def birds(tree: Hierarchy = TREE, *, each: int = 8, plain: bool = False) -> Samples:
    """Features around a mean for each species, which lies around one for each family of `TREE`."""
    generator = np.random.default_rng(0)
    family = generator.normal(size=(TREE.sizes[1], 12)) * 2
    species = family[TREE.parents[0]] + generator.normal(size=(TREE.sizes[0], 12)) * 0.5
    fine = np.repeat(np.arange(TREE.sizes[0]), each)
    if plain:  # names that say nothing
        tree = Hierarchy(levels=TREE.levels, classes=[[f"{i}" for i in range(11)], TREE.classes[1]], parents=TREE.parents)
    labels = np.stack([fine, tree.parents[0][fine]], 1)
    x = (species[fine] + generator.normal(size=(len(fine), 12)) * 0.4).astype(np.float32)
    return Samples("birds", tree, tuple(map(str, range(len(x)))), labels, np.full(len(x), "train"), features=x)


def write(samples: Samples, path: Path) -> Path:
    names = {f"classes_{level}": np.array(samples.hierarchy.classes[k]) for k, level in enumerate(samples.hierarchy.levels)}
    train = np.ones(len(samples), dtype=bool)
    np.savez(path, x=samples.features, y=samples.labels, train=train, levels=np.array(samples.hierarchy.levels), **names)
    return path


@pytest.mark.parametrize("plain", [False, True])
def test_families_are_found_from_looks_with_and_without_names(plain: bool) -> None:
    found = find_tree(birds(plain=plain), groups=[3])
    assert rand_index(found.tree.parents[0], TREE.parents[0]) == 1
    assert found.named is not plain
    assert found.tree.levels == ("species", "group")
    assert found.stable[0] > 0.8
    assert found.chance[0] == pytest.approx(0.273, abs=1e-3)
    assert found.right[0] >= found.right[1] > 0.5
    assert found.right[0] == pytest.approx(1 - (1 - found.right[1]) * (1 - found.inside[0]))
    if not plain:
        assert set(found.tree.classes[1]) == {"Gull group", "Auk group", "Owl group"}


def test_the_number_of_groups_and_more_levels_are_chosen() -> None:
    found = find_tree(birds(plain=True), levels=3)
    assert len(found.tree) == 3
    assert found.tree.sizes[0] > found.tree.sizes[1] >= found.tree.sizes[2] >= 2
    with pytest.raises(ConfigError, match="pass 1 numbers from 1 to 11"):
        find_tree(birds(), groups=[3, 2])
    with pytest.raises(DataError, match="too few"):
        find_tree(birds().select(np.arange(10)), groups=[2])


def test_names_count_only_where_they_agree_with_looks() -> None:
    alike = same_word(["Sea Lion", "Mountain Lion", "Seal", "Cat"])
    assert alike.sum() == 2
    near = np.array([[0, 1.0, 0.1, 1], [1.0, 0, 1, 0.1], [0.1, 1, 0, 1], [1, 0.1, 1, 0]])
    assert not names_help(near, alike)
    assert names_help(1 - near, alike)


def others(samples: Samples, names: list[str]) -> Samples:
    """The same with other names of the finest classes, which are all there is."""
    tree = Hierarchy(levels=["species"], classes=[names], parents=[])
    return dataclasses.replace(samples, hierarchy=tree, labels=samples.labels[:, :1])


@settings(max_examples=8, deadline=None)
@given(st.randoms(use_true_random=False), st.booleans(), st.integers(2, 6))
def test_what_is_found_does_not_depend_on_the_order_of_samples_and_classes(mix: random.Random, names: bool, count: int) -> None:
    whole = others(birds(each=4), list(TREE.classes[0]))
    found = find_tree(whole, groups=[count], names=names)
    rows, classes = list(range(len(whole))), list(range(11))
    mix.shuffle(rows)
    mix.shuffle(classes)  # the class at each new place
    shuffled = others(whole, [TREE.classes[0][c] for c in classes]).select(np.array(rows))
    again = find_tree(dataclasses.replace(shuffled, labels=np.argsort(classes)[shuffled.labels]), groups=[count], names=names)
    assert rand_index(again.tree.parents[0], found.tree.parents[0][classes]) == 1
    for a, b in ((again.stable, found.stable), (again.inside, found.inside), (again.right, found.right)):
        assert a == pytest.approx(b)
    if not names:
        renamed = find_tree(others(whole, [f"{c:02}" for c in classes]), groups=[count])
        assert rand_index(renamed.tree.parents[0], found.tree.parents[0]) == 1


@pytest.mark.parametrize("names", [["Larus", "Alca", "Strix"], ["Goéland", "Pingouin", "Chouette"]])
def test_the_first_word_counts_where_names_begin_alike(names: list[str]) -> None:
    called = [f"{c:03}.{names[f]}_{'abcd'[c % 4] * 3}" for c, f in enumerate(TREE.parents[0].tolist())]
    found = find_tree(others(birds(), called), groups=[3])
    assert found.named
    assert set(found.tree.classes[1]) == {f"{name} group" for name in names}
    assert rand_index(found.tree.parents[0], TREE.parents[0]) == 1


def test_classes_without_samples_are_told_and_change_nothing() -> None:
    more = [*TREE.classes[0], "E Gull", "Puffin"]
    found = find_tree(others(birds(), more), groups=[3])
    plain = find_tree(others(birds(), list(TREE.classes[0])), groups=[3])
    assert found.unseen == ("E Gull", "Puffin")
    assert (found.stable, found.inside, found.chance, found.right) == (plain.stable, plain.inside, plain.chance, plain.right)
    groups = dict(zip(more, (found.tree.classes[1][g] for g in found.tree.parents[0]), strict=True))
    assert groups["E Gull"] == groups["A Gull"] == "Gull group"
    assert groups["Puffin"] == "without samples"
    assert find_tree(others(birds(), more), groups=[3, 2], levels=3, names=False).tree.sizes == (13, 4, 3)


def test_agreement_and_silhouette_are_scikit_learns() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(0, 4, 30), generator.integers(0, 3, 30)
    assert rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b))
    assert rand_index(a, a) == 1
    points = generator.normal(size=(30, 2))
    far = np.linalg.norm(points[:, None] - points, axis=2)
    assert silhouette(far, a) == pytest.approx(silhouette_score(far, a, metric="precomputed"))


def stale() -> Hierarchy:
    """`TREE` with B Gull among owls and C Owl among auks."""
    wrong = {"B Gull": "Owls", "C Owl": "Auks"}
    rows = [(wrong.get(name, TREE.classes[1][p]), name) for name, p in zip(TREE.classes[0], TREE.parents[0], strict=True)]
    return Hierarchy.from_paths(rows, ("family", "species"))


def test_moved_species_are_proposed_first_and_put_back() -> None:
    remarks = propose(birds(), stale())
    assert {(r.label, r.now, r.better) for r in remarks[:2]} == {("B Gull", "Owls", "Gulls"), ("C Owl", "Auks", "Owls")}
    new, made = moved(stale(), remarks)
    assert differences(new, TREE) == []
    assert len(made) == 2
    assert moved(stale(), remarks, sure=1e9) == (stale(), [])
    respelt = Hierarchy.from_paths([("f", name.replace("A G", "a_g")) for name in TREE.classes[0]], ("family", "species"))
    with pytest.raises(DataError, match=r"'A Gull' is not in the tree \(1 of 11 missing\): did you mean a_gull\?"):
        propose(birds(), respelt)
    with pytest.raises(DataError, match="'A Auk' is not in the tree"):
        propose(birds(), Hierarchy.from_paths([("x", "y"), ("x", "z")], ("family", "species")))


def test_what_is_proposed_does_not_depend_on_the_order_of_samples_and_classes() -> None:
    whole, generator = birds(each=25), np.random.default_rng(0)
    both = np.where(whole.labels[:, 0] == TREE.index(0, "C Gull"), TREE.index(0, "A Auk"), whole.labels[:, 0])
    heaps_of = dataclasses.replace(whole, labels=np.stack([both, TREE.parents[0][both]], 1))
    rows = [row[::-1] for row in stale().rows()[1:]]

    def told(samples: Samples, tree: Hierarchy) -> list[tuple[str, str, float]]:
        return sorted((r.kind, r.label, round(r.score, 3)) for r in propose(samples, tree))

    expected = told(heaps_of, stale())
    assert {kind for kind, *_ in expected} == {"misplaced", "split"}
    for _ in range(3):
        generator.shuffle(rows)
        other = Hierarchy.from_paths([row[::-1] for row in rows], TREE.levels[::-1])
        assert told(heaps_of.select(generator.permutation(len(whole))), other) == expected


def remarks_of(kind: str, samples: Samples, tree: Hierarchy) -> list[tuple[str, str]]:
    return [(r.level, r.label) for r in propose(samples, tree) if r.kind == kind]


def test_a_class_of_two_kinds_is_proposed_and_no_other() -> None:
    whole = birds(each=30)
    both = np.where(whole.labels[:, 0] == TREE.index(0, "C Gull"), TREE.index(0, "A Auk"), whole.labels[:, 0])
    mixed = dataclasses.replace(whole, labels=np.stack([both, TREE.parents[0][both]], 1))
    assert remarks_of("split", mixed, TREE) == [("species", "A Auk")]
    reason = next(r.reason for r in propose(mixed, TREE) if r.kind == "split")
    assert "30 and 30 of its samples lie in two heaps" in reason
    assert remarks_of("split", whole, TREE) == []
    assert remarks_of("split", birds(), TREE) == []  # too few samples to tell


def test_parents_of_two_kinds_are_proposed_and_no_other() -> None:
    many = Hierarchy.from_paths([(f"F{i}", f"s{i}{j}") for i in range(6) for j in range(4)], ("family", "species"))
    lumped = Hierarchy.from_paths([(f"F{max(i, 1)}", f"s{i}{j}") for i in range(6) for j in range(4)], ("family", "species"))
    generator = np.random.default_rng(1)
    means = (generator.normal(size=(6, 16)) * 2)[many.parents[0]] + generator.normal(size=(24, 16)) * 0.5
    fine = np.repeat(np.arange(24), 10)
    x = (means[fine] + generator.normal(size=(240, 16)) * 0.4).astype(np.float32)
    labels = np.stack([fine, many.parents[0][fine]], 1)
    samples = Samples("made", many, tuple(map(str, range(240))), labels, np.full(240, "train"), features=x)
    assert remarks_of("split", samples, many) == []
    assert remarks_of("split", samples, lumped) == [("family", "F1")]
    reason = next(r.reason for r in propose(samples, lumped) if r.kind == "split")
    assert reason.endswith("s00, s01, s02, s03 | s10, s11, s12, s13")
    blank = dataclasses.replace(samples, features=generator.normal(size=(240, 16)).astype(np.float32))
    assert remarks_of("split", blank, lumped) == []  # a tree that has nothing to do with looks


@pytest.mark.parametrize("shape", ["normal", "even", "long", "heavy tails"])
@pytest.mark.parametrize("n", [20, 60])
def test_one_heap_is_not_taken_for_two(shape: str, n: int) -> None:
    generator = np.random.default_rng(2)
    for _ in range(20):
        z = {
            "normal": generator.normal(size=(n, 40)),
            "even": generator.random((n, 40)),
            "long": generator.normal(size=(n, 40)) * np.r_[3, np.ones(39)],
            "heavy tails": generator.standard_t(3, size=(n, 40)),
        }[shape]
        assert heaps(z)[0] < APART


def test_two_heaps_are_told_apart() -> None:
    generator = np.random.default_rng(2)
    for n in (20, 60):
        truth = generator.permutation(n) < n // 3
        apart, side = heaps(generator.normal(size=(n, 40)) + 12 * np.outer(truth, np.eye(40)[0]))
        assert apart > 2 * APART
        assert (side == truth).all() or (side != truth).all()


def test_how_far_heaps_are_apart_hardly_depends_on_what_is_left_out() -> None:
    generator = np.random.default_rng(0)
    spread = []
    for _ in range(4):
        z = generator.normal(size=(40, 40)) + 5 * np.outer(np.arange(40) % 2, np.eye(40)[0])
        spread.append(np.std([heaps(z[generator.permutation(40)])[0] for _ in range(6)]))
    assert np.mean(spread) < 0.1  # 0.16 if it is judged once


def test_two_means_are_those_of_scikit_learn() -> None:
    generator = np.random.default_rng(3)
    z = generator.normal(size=(40, 3)) + np.outer(np.arange(40) % 2, [6, 0, 0])
    reference = KMeans(2, n_init=5, random_state=0).fit(z).cluster_centers_
    means = two_means(z)
    assert np.allclose(means[np.argsort(means[:, 0])], reference[np.argsort(reference[:, 0])])
    assert (nearer(z, means) == nearer(z, means)[1]).sum() == 20
    same = two_means(np.ones((5, 2)))
    assert np.allclose(same, 1)


def test_classes_that_skip_a_level_are_moved_into_and_out_of_families() -> None:
    def tree(*without: str) -> Hierarchy:
        """All birds in an order, and some of them in no family."""
        families = [TREE.classes[1][parent] for parent in TREE.parents[0]]
        paths = [("Birds", None if own in without else up, own) for up, own in zip(families, TREE.classes[0], strict=True)]
        return Hierarchy.from_paths(paths, ("order", "family", "species"))

    mixed = tree("A Gull", "A Owl", "B Owl", "C Owl")
    found, (made,) = moved(mixed, propose(birds(), mixed))
    assert (made.label, made.now, made.better) == ("A Gull", "Birds (order)", "Gulls")
    assert differences(found, tree("A Owl", "B Owl", "C Owl")) == []
    out = Remark("misplaced", "species", "D Owl", "Owls", "Birds (order)", 9.0, "")
    assert [str(one) for one in differences(mixed, moved(mixed, [out])[0])] == [
        "family Owls: removed under Birds",
        "species D Owl: moved from Owls to Birds",
    ]


def test_spellings_are_told_by_the_names_themselves() -> None:
    case, order = "differ only by case, accents, blanks or hyphens", "are the same words in another order"
    slips = [
        ("Herring-Gull", "herring gull", case),
        ("mesange", "Mésange", case),
        ("Oriole, Northern", "Northern Oriole", order),
        ("Tufted_Pufin", "Tufted Puffin", "differ by one letter"),
        ("Laugihng Gull", "Laughing Gull", "differ by two letters that have changed places"),
    ]
    others = ["Parus major", "Parus minor", "Type 1.1", "Type 11", "कक", "कि", "की", "カモ", "ガモ", "?", "!"]
    paths = [*(("f", name) for slip in slips for name in slip[1::-1]), *(("g", name) for name in others)]
    told = {remark.label: remark.reason for remark in spellings(Hierarchy.from_paths(paths, ("family", "species")))}
    assert told == {wrong: f"{right!r} and {wrong!r} {how}" for wrong, right, how in slips}


def test_what_cannot_be_compared_is_refused() -> None:
    same = dataclasses.replace(birds(), features=np.full((88, 12), 0.1, dtype=np.float32))
    for act in (find_tree, lambda samples: propose(samples, TREE)):
        with pytest.raises(DataError, match="have the same features"):
            act(same)
    with pytest.raises(DataError, match="holds pictures"):
        find_tree(dataclasses.replace(birds(), features=None))
    with pytest.raises(ConfigError, match="at least 2"):
        find_tree(birds(), levels=1)
    with pytest.raises(ConfigError, match="none above the one before"):
        find_tree(birds(), levels=3, groups=[2, 3])
    with pytest.raises(ConfigError, match="levels at most, each with fewer groups"):
        find_tree(birds(), levels=8)
    assert silhouette(np.zeros((3, 3)), np.zeros(3, dtype=np.int64)) == 0


def test_fewer_samples_than_features_have_principal_components() -> None:
    x = torch.from_numpy(np.repeat(birds().features, 40, axis=1))
    x = torch.cat([x, x.relu()], dim=1)
    found = components(x, 384)
    torch.testing.assert_close(found @ found.T, x @ x.T, rtol=1e-4, atol=1e-2)


def test_a_tree_is_found_in_data_that_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, fine, out = birds().features, birds().labels[:, 0], tmp_path / "found.json"
    names = np.array(TREE.classes[0])
    for i, arrays in enumerate(({"y": names[fine]}, {"y": fine}, {"y": fine, "levels": ["kind"], "classes_kind": names})):
        np.savez(tmp_path / f"{i}.npz", x=x, **arrays)
        main(["hierarchy", "find", str(tmp_path / f"{i}.npz"), "--groups", "3", "--out", str(out)])
        tree = Hierarchy.read(out)
        assert tree.sizes == (11, 3)
        assert list(tree.classes[0]) == (sorted(TREE.classes[0]), [str(n) for n in range(11)], list(TREE.classes[0]))[i]
        assert tree.levels[0] == ("kind" if i == 2 else "class")
        assert "names helped" in capsys.readouterr().out or i == 1
    data = write(birds(), tmp_path / "named.npz")
    main(
        [
            "hierarchy",
            "find",
            str(data),
            "--finest",
            "family",
            "--names",
            "--groups",
            "2",
            "--out",
            str(tmp_path / "three.json"),
        ]
    )
    assert Hierarchy.read(tmp_path / "three.json").classes[0] == TREE.classes[1]
    main(["hierarchy", "repair", str(out), str(tmp_path / "0.npz")])
    assert (tmp_path / "found-repaired.json").is_file()
    stale().write(tmp_path / "stale.json")  # whose classes the numbers of the second file count
    with pytest.raises(SystemExit):
        main(["hierarchy", "repair", str(tmp_path / "stale.json"), str(tmp_path / "1.npz")])
    main(
        [
            "hierarchy",
            "repair",
            str(tmp_path / "stale.json"),
            str(tmp_path / "1.npz"),
            "--hierarchy",
            str(tmp_path / "stale.json"),
        ]
    )
    assert "2 of them made" in capsys.readouterr().out


def test_a_tree_that_is_read_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = write(birds(), tmp_path / "birds.npz"), tmp_path / "run.1"
    run.mkdir()
    stale().write(run / "hierarchy.json")
    stale().write(tmp_path / "tree.json")
    monkeypatch.chdir(tmp_path)
    for words in (
        ["repair", "tree.json", str(data), "--out", f"../{tmp_path.name}/tree.json"],
        ["repair", "run.1", str(data), "--out", "run.1/hierarchy.json"],
        ["graft", "tree.json", "run.1"],
        ["graft", "run.1", "tree.json"],
    ):
        with pytest.raises(SystemExit) as stop:
            main(["hierarchy", *words])
        assert stop.value.code == 2
        assert "is a tree that is read" in capsys.readouterr().err
    assert Hierarchy.read("tree.json") == Hierarchy.read("run.1") == stale()
    monkeypatch.chdir(run)
    main(["hierarchy", "repair", ".", str(data)])
    assert "2 of them made" in capsys.readouterr().out
    assert Hierarchy.read(tmp_path / "run.1-repaired.json") == TREE


def test_differences_and_grafting() -> None:
    other = Hierarchy.from_paths(
        [("Gulls", "A Gull"), ("Owls", "B Gull"), ("Terns", "Sandwich Tern"), ("Owls", "E Owl")], ("family", "species")
    )
    said = {str(one) for one in differences(TREE, other)}
    assert {"family Terns: added", "species B Gull: moved from Gulls to Owls", "species A Auk: removed under Auks"} <= said
    both, disagree = graft(TREE, other)
    assert [one.name for one in disagree] == ["B Gull"]
    assert both.sizes == (13, 4)
    assert {d.kind for d in differences(TREE, both)} == {"added"}
    with pytest.raises(HierarchyError, match="their levels are"):
        differences(TREE, Hierarchy.from_paths([("a", "b")], ("genus", "species")))


CHECKLIST = [
    ("Birds", "Gulls", "Herring Gull"), ("Birds", "Gulls", "Ivory Gull"), ("Birds", "Gulls", "Little Gull"),
    ("Birds", "Auks", "Puffin"), ("Birds", "Auks", "Razorbill"), ("Mammals", "Bats", "Noctule"),
]  # fmt: skip
RANKS = ("order", "family", "species")


def checklist(**other: str) -> Hierarchy:
    """`CHECKLIST` with some names replaced; `Little_Gull="Auks"` would put that species into the family of auks."""
    rows = [[other.get(name, name) for name in row] for row in CHECKLIST]
    return Hierarchy.from_paths([(o, other.get(s.replace(" ", "_"), f), s) for o, f, s in rows], RANKS)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"Gulls": "Laridae"}, ["family Gulls: renamed Laridae"]),
        ({"Gulls": "Laridae", "Birds": "Aves"}, ["order Birds: renamed Aves", "family Gulls: renamed Laridae"]),
        ({"Gulls": "Laridae", "Bats": "Chiroptera", "Puffin": "puffin"},
         ["family Gulls: renamed Laridae", "family Bats: renamed Chiroptera", "species Puffin: renamed puffin"]),
        ({"Gulls": "Laridae", "Little_Gull": "Auks"},
         ["family Gulls: renamed Laridae", "species Little Gull: moved from Gulls to Auks"]),
        ({"Gulls": "X", "Little_Gull": "Y", "Ivory_Gull": "Z"},  # no part of the family is most of it
         ["family Gulls: removed under Birds", *(f"family {new}: added under Birds" for new in "XZY"),
          "species Herring Gull: moved from Gulls to X", "species Ivory Gull: moved from Gulls to Z",
          "species Little Gull: moved from Gulls to Y"]),
        ({"Puffin": "Atlantic Puffin"}, ["species Puffin: removed under Auks", "species Atlantic Puffin: added under Auks"]),
        ({"Auks": "Bats", "Bats": "Auks", "Birds": "Mammals", "Mammals": "Birds"},  # names that both have are no new names
         ["family Gulls: moved from Birds to Mammals", "species Puffin: moved from Auks to Bats",
          "species Razorbill: moved from Auks to Bats", "species Noctule: moved from Bats to Auks"]),
    ],
)  # fmt: skip
def test_a_class_with_another_name_is_known_by_its_spelling_or_its_children(other: dict[str, str], told: list[str]) -> None:
    assert [str(one) for one in differences(checklist(), checklist(**other))] == told


def test_a_tree_is_grafted_through_other_names() -> None:
    new = [("Aves", "Laridae", "Mew Gull"), ("Aves", "Laridae", "herring gull"), ("Aves", "Laridae", "Ivory Gull"),
           ("Aves", "Skuas", "Great Skua"), ("Aves", "Auks", "Puffin")]  # fmt: skip
    both, disagree = graft(checklist(), Hierarchy.from_paths(new, RANKS))
    assert [str(one) for one in differences(checklist(), both)] == [
        "family Skuas: added under Birds",
        "species Mew Gull: added under Gulls",
        "species Great Skua: added under Skuas",
    ]
    assert [(one.kind, one.name, one.now) for one in disagree] == [
        ("renamed", "Birds", "Aves"),
        ("renamed", "Gulls", "Laridae"),
        ("renamed", "Herring Gull", "herring gull"),
    ]


def test_one_child_in_common_is_no_proof_of_another_name() -> None:
    lumped = Hierarchy.from_paths([("Terns", "Sooty Tern"), ("Terns", "Fairy Tern")], ("family", "species"))
    gulls = Hierarchy.from_paths([("Gulls", "Sooty Tern"), ("Gulls", "Herring Gull")], ("family", "species"))
    assert [one.kind for one in differences(lumped, gulls)] == ["removed", "added", "removed", "added", "moved"]


def test_differences_are_told_to_machines_and_graphs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checklist().write(tmp_path / "a.json")
    checklist(Gulls="Laridae").write(tmp_path / "b.csv")
    main(["hierarchy", "diff", str(tmp_path / "a.json"), str(tmp_path / "b.csv"), "--json"])
    assert json.loads(capsys.readouterr().out) == [
        {"kind": "renamed", "level": "family", "name": "Gulls", "was": "Gulls", "now": "Laridae"}
    ]
    main(["hierarchy", "graft", str(tmp_path / "a.json"), str(tmp_path / "b.csv"), "--out", str(tmp_path / "c.json")])
    assert "family Gulls: keeps its name; B calls it Laridae" in capsys.readouterr().out
    graph = tmp_path / "graph.csv"
    graph.write_text("name,parent\nBat,Mammal\nBat,Flyer\nWhale,Mammal\nBee,Flyer\n")
    for words in (["diff", str(graph), str(graph)], ["repair", str(graph), str(write(birds(), tmp_path / "birds.npz"))]):
        with pytest.raises(SystemExit):
            main(["hierarchy", *words])
        told = capsys.readouterr().err
        assert "'Bat' has two parents" in told
        assert "this takes trees" in told


def test_what_does_not_fit_is_refused_before_features_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torchlht.show.audited.picture_features", lambda *args, **options: pytest.fail("features were made"))
    for name in ("a_gull", "b_gull"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "birds" / name / "1.png")
    TREE.write(tmp_path / "tree.json")
    (tmp_path / "birds.csv").write_text("path,species,observer\nbirds/a_gull/1.png,a,me\nbirds/b_gull/1.png,b,me\n")
    for words, told in (
        (["find", str(tmp_path / "birds.csv")], "--finest names the one with the finest classes"),
        (["repair", str(tmp_path / "tree.json"), str(tmp_path / "birds")], "'a_gull' is not in the tree (2 of 2 missing)"),
        (["find", str(tmp_path / "birds"), "--groups", "3,2"], "--groups is 3,2: pass 1 number, fine first, or other --levels"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["hierarchy", *words])
        assert stop.value.code == 2
        assert told in capsys.readouterr().err


def test_the_four_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, tree = write(birds(), tmp_path / "birds.npz"), tmp_path / "stale.json"
    assert read_data(data).hierarchy.classes[0] == TREE.classes[0]
    stale().write(tree)
    main(["hierarchy", "find", str(data), "--groups", "3", "--out", str(tmp_path / "found.json")])
    said = capsys.readouterr().out
    assert "names helped" in said
    assert "would by chance" in said
    assert "species: " in said
    assert Hierarchy.read(tmp_path / "found.json").sizes == (11, 3)
    main(["hierarchy", "repair", str(tree), str(data)])
    assert "misplaced · B Gull" in capsys.readouterr().out
    main(["hierarchy", "diff", str(tree), str(tmp_path / "stale-repaired.json")])
    assert "2 differences" in capsys.readouterr().out
    main(["hierarchy", "graft", str(tree), str(tmp_path / "stale-repaired.json"), "--out", str(tmp_path / "both.json")])
    assert "stays under Owls, where A has it; B has it under Gulls" in capsys.readouterr().out
    table = tmp_path / "found.csv"
    main(["hierarchy", "find", str(data), "--groups", "3", "--out", str(table)])
    assert sorted(Hierarchy.read(table).rows()) == sorted(Hierarchy.read(tmp_path / "found.json").rows())
    capsys.readouterr()
    (tmp_path / "mine.txt").write_text("mine")
    for words, told in (
        (["find", str(data), "--out", str(tmp_path / "tree.txt")], "a tree is written as .json, .yaml, .yml or .csv"),
        (["find", str(data), "--out", str(table)], "is not a tree that we wrote, so it is not replaced"),  # edited, perhaps
        (["find", str(data), "--out", str(tmp_path / "mine.txt")], "not replaced"),
        (["find", str(data), "--levels", "1"], "from 2 to 8"),
        (["find", str(data), "--groups", "many"], "whole numbers"),
        (["diff", str(tree), str(tmp_path / "nosuch.json")], "no such file"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["hierarchy", *words])
        assert stop.value.code == 2
        assert told in capsys.readouterr().err
