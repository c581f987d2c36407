"""Roll-up, restriction, operating points and names: each against a naive loop, and by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.answer.calibration import UNDECIDED, answer_levels, confidences, rolled_up
from torchlht.answer.named import Answer, Named, Restriction, name_all
from torchlht.errors import ConfigError, DataError
from torchlht.heads.prediction import Prediction, decide
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.operating import Decisions, information, operating_curve, operating_point
from trees import hierarchies, normal, quick, seeds

# Two orders; the second family is alone in its order.
BIRDS = Hierarchy(
    levels=("species", "family", "order"),
    classes=(("Ivory Gull", "Herring Gull", "Puffin", "Kestrel"), ("Gulls", "Auks", "Falcons"), ("Shorebirds", "Raptors")),
    parents=([0, 0, 1, 2], [0, 0, 1]),
)
shares = st.floats(0, 1)


def levels_by_themselves(rng: np.random.Generator, tree: Hierarchy, batch: int) -> tuple[Tensor, ...]:
    return tuple(torch.log_softmax(normal(rng, batch, n, scale=2.0), dim=1) for n in tree.sizes)


def prediction_of(*rows: list[float]) -> Prediction:
    """One sample, fine first."""
    return Prediction(tuple(torch.tensor([row]).log() for row in rows))


def random_decisions(rng: np.random.Generator, tree: Hierarchy, n: int) -> tuple[Prediction, Tensor]:
    prediction = Prediction(levels_by_themselves(rng, tree, n))
    leaves = rng.integers(tree.sizes[0], size=n)
    return prediction, torch.tensor([tree.path(int(leaf)) for leaf in leaves])


# ---- rolling up ----------------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), seed=seeds, threshold=shares, rule=st.sampled_from(["argmax", "path", "top_down"]))
def test_the_answer_is_the_finest_class_that_passes_and_its_ancestors(
    tree: Hierarchy, seed: int, threshold: float, rule: str
) -> None:
    prediction = decide(Prediction(levels_by_themselves(np.random.default_rng(seed), tree, 5)), tree, rule)
    confidence, chosen = confidences(prediction), prediction.chosen()
    levels = answer_levels(confidence, threshold)
    answers = rolled_up(chosen, levels, tree)
    for i in range(5):
        passing = [k for k in range(len(tree)) if prediction.probs(k)[i, chosen[i, k]] >= threshold]
        assert levels[i] == (min(passing) if passing else UNDECIDED)
        expected = [UNDECIDED] * len(tree)
        if passing:
            node = int(chosen[i, passing[0]])
            for k in range(passing[0], len(tree)):
                expected[k] = node
                node = int(tree.parents[k][node]) if k + 1 < len(tree) else node
        assert answers[i].tolist() == expected


@quick
@given(tree=hierarchies(), seed=seeds, low=shares, more=shares)
def test_a_higher_threshold_never_answers_deeper(tree: Hierarchy, seed: int, low: float, more: float) -> None:
    confidence = confidences(Prediction(levels_by_themselves(np.random.default_rng(seed), tree, 8)))
    before, after = answer_levels(confidence, low), answer_levels(confidence, low + more)
    depth = [torch.where(levels == UNDECIDED, len(tree), levels) for levels in (before, after)]
    assert (depth[1] >= depth[0]).all()


# ---- restriction ---------------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), seed=seeds)
def test_where_levels_are_sums_a_restriction_is_the_conditional_distribution(tree: Hierarchy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fine = torch.log_softmax(normal(rng, 3, tree.sizes[0], scale=2.0).double(), dim=1)
    log_probs = [fine]
    for k, parents in enumerate(tree.parents):
        log_probs.append(sum_children(log_probs[-1], torch.as_tensor(parents.copy()), tree.sizes[k + 1]))
    allowed = rng.random(tree.sizes[0]) < 0.5
    allowed[rng.integers(tree.sizes[0])] = True
    found = Restriction(tree, allowed).apply(Prediction(tuple(log_probs)))
    joint = fine.exp().numpy() * allowed
    for k in range(len(tree)):
        inside = tree.ancestors(k)[None, :] == np.arange(tree.sizes[k])[:, None]
        expected = (joint[:, None, :] * inside).sum(axis=2) / joint.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found.probs(k).numpy(), expected, atol=1e-12)


@quick
@given(tree=hierarchies(), seed=seeds)
def test_restricted_levels_are_distributions_over_what_remains(tree: Hierarchy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_probs = tuple(60 * p.float() for p in levels_by_themselves(rng, tree, 4))  # some probabilities are 0 in float32
    allowed = np.zeros(tree.sizes[0], dtype=bool)
    allowed[rng.integers(tree.sizes[0], size=2)] = True
    found = Restriction(tree, allowed).apply(Prediction(tuple(torch.log_softmax(p, dim=1) for p in log_probs)))
    for k in range(len(tree)):
        probability = found.probs(k)
        possible = np.zeros(tree.sizes[k], dtype=bool)
        possible[tree.ancestors(k)[allowed]] = True
        assert torch.isfinite(probability).all()
        torch.testing.assert_close(probability.sum(dim=1), torch.ones(4))
        assert (probability[:, torch.as_tensor(~possible)] == 0).all()


def test_nothing_changes_where_every_class_is_allowed() -> None:
    prediction = Prediction(levels_by_themselves(np.random.default_rng(0), BIRDS, 3))
    restriction = Restriction.parse(BIRDS, only=["Shorebirds", "Raptors"])
    assert restriction is not None
    for before, after in zip(prediction.log_probs, restriction.apply(prediction).log_probs, strict=True):
        torch.testing.assert_close(before, after)


@pytest.mark.parametrize(
    ("only", "exclude", "left"),
    [
        (["Gulls"], [], [0, 1]),
        (["Gulls", "Kestrel"], [], [0, 1, 3]),
        (["Shorebirds"], ["Gulls"], [2]),
        ([], ["species/Puffin"], [0, 1, 3]),
        (["family/Auks"], [], [2]),
    ],
)
def test_names_of_any_level_restrict(only: list[str], exclude: list[str], left: list[int]) -> None:
    restriction = Restriction.parse(BIRDS, only, exclude)
    assert restriction is not None
    assert np.flatnonzero(restriction.allowed).tolist() == left


def test_names_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "region.txt"
    file.write_text("Ivory Gull\n\n  Kestrel\n")
    restriction = Restriction.parse(BIRDS, [f"@{file}"])
    assert restriction is not None
    assert np.flatnonzero(restriction.allowed).tolist() == [0, 3]
    with pytest.raises(DataError, match="nowhere"):
        Restriction.parse(BIRDS, ["@nowhere.txt"])


def test_wrong_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean Kestrel"):
        Restriction.parse(BIRDS, ["Kestrl"])
    with pytest.raises(ConfigError, match="leave no possible class"):
        Restriction.parse(BIRDS, ["Gulls"], ["Shorebirds"])
    twice = Hierarchy(levels=("species", "family"), classes=(("Gull", "Tern"), ("Gull",)), parents=([0, 0],))
    with pytest.raises(ConfigError, match="family/Gull or species/Gull"):
        Restriction.parse(twice, ["Gull"])
    alone = Hierarchy(levels=("species", "family"), classes=(("Gull", "Tern"), ("Gull", "Terns")), parents=([0, 1],))
    restriction = Restriction.parse(alone, ["Gull"])  # the same branch either way
    assert restriction is not None
    assert restriction.allowed.tolist() == [True, False]
    assert Restriction.parse(BIRDS) is None


# ---- operating points ----------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), seed=seeds, threshold=shares)
def test_an_operating_point_against_a_loop(tree: Hierarchy, seed: int, threshold: float) -> None:
    n = 12
    prediction, labels = random_decisions(np.random.default_rng(seed), tree, n)
    found = operating_point(Decisions.of(prediction, labels), tree, threshold)
    answered = wrong = depth = hits = said = 0
    told, excess, at = 0.0, [], [0] * len(tree)
    for i in range(n):
        passing = [k for k in range(len(tree)) if prediction.probs(k)[i].max() >= threshold]
        if not passing:
            continue
        k = min(passing)
        node, path = int(prediction.probs(k)[i].argmax()), []
        for j in range(k, len(tree)):
            path.append((j, int(tree.ancestors(j, of=k)[node])))
        answered, depth, at[k] = answered + 1, depth + len(path), at[k] + 1
        right = [labels[i, j] == c for j, c in path]
        hits, said = hits + sum(map(int, right)), said + len(path)
        leaves = int((tree.ancestors(k) == node).sum())
        if right[0]:
            told += 1 - math.log(leaves) / (math.log(tree.sizes[0]) or 1)
        else:
            wrong += 1
            excess.append(len(right) - sum(map(int, right)))
    assert found["answered"] == pytest.approx(answered / n)
    assert found["wrong"] == pytest.approx(wrong / n)
    assert found["error"] == (pytest.approx(wrong / answered) if answered else None)
    assert found["depth"] == pytest.approx(depth / n / len(tree))
    assert found["information"] == pytest.approx(told / n, abs=1e-9)
    assert found["hierarchical_precision"] == (pytest.approx(hits / said) if said else None)
    assert found["hierarchical_recall"] == pytest.approx(hits / n / len(tree))
    assert found["severity"] == (pytest.approx(sum(excess) / len(excess)) if excess else None)
    assert [level["answered"] for level in found["levels"]] == pytest.approx([at[k] / n for k in tree.top_down])


def test_information_of_an_answer() -> None:
    answers = torch.tensor([[0, 0, 0], [-1, 0, 0], [-1, -1, 0], [-1, -1, -1], [-1, 2, 1], [1, 0, 0]])
    expected = [1, 1 - math.log(2) / math.log(4), 1 - math.log(3) / math.log(4), 0, 1, 0]
    wrong = torch.tensor([False] * 5 + [True])
    torch.testing.assert_close(information(answers, wrong, BIRDS), torch.tensor(expected, dtype=torch.float64))


@quick
@given(tree=hierarchies(), seed=seeds)
def test_the_curve_goes_from_everything_to_nothing(tree: Hierarchy, seed: int) -> None:
    prediction, labels = random_decisions(np.random.default_rng(seed), tree, 9)
    decisions = Decisions.of(prediction, labels)
    curve = operating_curve(decisions, tree)
    assert curve.depth[0] == curve.answered[0] == 1
    assert curve.information[0] == pytest.approx(1 - curve.wrong[0])  # all are finest classes: a right one tells everything
    assert curve.depth[-1] == curve.answered[-1] == curve.information[-1] == curve.wrong[-1] == 0
    assert math.isnan(curve.error[-1])
    assert (np.diff(curve.depth) <= 0).all()
    assert (np.diff(curve.threshold) > 0).all()
    middle = len(curve.threshold) // 2
    point = operating_point(decisions, tree, float(curve.threshold[middle]))
    assert curve.wrong[middle] == pytest.approx(point["wrong"])
    assert curve.information[middle] == pytest.approx(point["information"])


def test_samples_that_cannot_be_judged_do_not_count() -> None:
    prediction, labels = random_decisions(np.random.default_rng(0), BIRDS, 6)
    labels[:3, 0] = -1
    assert operating_point(Decisions.of(prediction, labels), BIRDS, 0.5)["samples"] == 3
    labels[:, 0] = -1
    with pytest.raises(DataError, match="finest level"):
        operating_point(Decisions.of(prediction, labels), BIRDS, 0.5)


# ---- names ---------------------------------------------------------------------------------------------------------

GULL = prediction_of([0.51, 0.43, 0.05, 0.01], [0.94, 0.05, 0.01], [0.99, 0.01])


def named(prediction: Prediction = GULL) -> Named:
    return name_all(prediction, BIRDS, ["beach.jpg"], top=2)[0]


def test_the_answer_says_where_it_came_from() -> None:
    answer = named().answer(confidence=0.9)
    assert repr(answer) == "Answer('Gulls', level='family', probability=0.94)"
    assert (answer.label, answer.level, answer.path) == ("Gulls", "family", ("Shorebirds", "Gulls"))
    assert (answer.rule, answer.threshold, answer.promise) == ("own", 0.9, "confidence 0.9")
    assert answer.undecided == "species"
    assert [c.label for c in answer.runners_up] == ["Ivory Gull", "Herring Gull"]  # the puffin is no gull
    assert answer.runners_up[1].probability == pytest.approx(0.43)


def test_without_a_threshold_the_finest_class_is_answered() -> None:
    answer = named().answer()
    assert (answer.label, answer.promise, answer.undecided) == ("Ivory Gull", None, None)
    assert [c.label for c in answer.runners_up] == ["Herring Gull", "Puffin", "Kestrel"]


def test_where_nothing_passes_there_is_no_answer() -> None:
    answer = named().answer(confidence=1.0)
    assert (answer.label, answer.level, answer.probability, answer.path) == (None, None, None, ())
    assert answer.undecided == "order"
    assert [c.label for c in answer.runners_up] == ["Shorebirds", "Raptors"]
    assert repr(answer) == "Answer(None, threshold=1)"


def test_levels_that_disagree_give_the_ancestors_of_the_answer() -> None:
    odd = prediction_of([0.1, 0.1, 0.7, 0.1], [0.6, 0.3, 0.1], [0.2, 0.8])  # puffin, but gulls, but raptors
    assert not named(odd).consistent
    assert named(odd).answer(confidence=0.65).path == ("Shorebirds", "Auks", "Puffin")
    assert named(odd).answer(confidence=0.75).path == ("Raptors",)


@quick
@given(tree=hierarchies(), seed=seeds, threshold=shares)
def test_names_and_tensors_answer_alike(tree: Hierarchy, seed: int, threshold: float) -> None:
    prediction = Prediction(levels_by_themselves(np.random.default_rng(seed), tree, 3))
    levels = answer_levels(confidences(prediction), threshold)
    for i, one in enumerate(name_all(prediction, tree, ["a", "b", "c"], top=1)):
        answer: Answer = one.answer(confidence=threshold)
        assert answer.level == (None if levels[i] == UNDECIDED else tree.levels[int(levels[i])])


def test_thresholds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="pass one of them"):
        named().answer(confidence=0.9, risk=0.1)
    with pytest.raises(ConfigError, match="from 0 to 1"):
        named().answer(confidence=1.5)
    with pytest.raises(ConfigError, match="calibrated"):
        named().answer(risk=0.1)
    with pytest.raises(ConfigError, match="cannot be promised with only"):
        name_all(GULL, BIRDS, ["a"], top=1, restricted=True)[0].answer(risk=0.1)
