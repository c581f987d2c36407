"""Every metric against naive loops, by hand, in batches, across processes and on nothing at all."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.errors import ConfigError
from torchlht.heads.prediction import RULES, Prediction, decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import (
    REGISTER,
    CalibrationError,
    FullPathAccuracy,
    HierarchicalDistance,
    HierarchicalOverlap,
    HierarchyMetrics,
    Inconsistency,
    MacroAUC,
    MistakeSeverity,
    metric,
    specs,
)
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, seeds

# Finest 0, 1 under A; 2 under B; 3 under C. A and B under X; C under Y.
BY_HAND = Hierarchy.from_parents([[0, 0, 1, 2], [0, 0, 1]], levels=("species", "family", "order"))


def random_prediction(rng: np.random.Generator, tree: Hierarchy, batch: int) -> Prediction:
    return Prediction(tuple(torch.log_softmax(normal(rng, batch, n, dtype=torch.float32), dim=1) for n in tree.sizes))


def random_choice(rng: np.random.Generator, tree: Hierarchy, batch: int) -> Tensor:
    """(B, K) answers that have nothing to do with any probability."""
    return torch.from_numpy(np.stack([rng.integers(0, n, batch) for n in tree.sizes], axis=1))


def prediction_of(tree: Hierarchy, chosen: list[list[int]]) -> Prediction:
    """A prediction whose most probable classes are these, (B, K) fine first."""
    columns = torch.tensor(chosen).unbind(dim=1)
    one_hot = (torch.nn.functional.one_hot(c, n).float() for c, n in zip(columns, tree.sizes, strict=True))
    return Prediction(tuple(torch.log_softmax(5 * x, dim=1) for x in one_hot))


def measured(tree: Hierarchy, prediction: Prediction, labels: Tensor) -> dict[str, Any]:
    metrics = HierarchyMetrics(tree)
    metrics.update(prediction, labels)
    return metrics.compute()


# ---- naive versions ------------------------------------------------------------------------------------------------


def mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def naive_auc(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Over all pairs of a positive and a negative, for every class that has both."""
    areas = []
    for c in range(scores.shape[1]):
        positives = [scores[n, c] for n in range(len(labels)) if labels[n] == c]
        negatives = [scores[n, c] for n in range(len(labels)) if labels[n] not in (c, -1)]
        pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in positives for b in negatives]
        if pairs:
            areas.append(sum(pairs) / len(pairs))
    return mean(areas)


def naive_answers(prediction: Prediction) -> list[list[int]]:
    if prediction.choice is not None:
        return prediction.choice.tolist()
    return [[int(np.argmax(log_p[n].numpy())) for log_p in prediction.log_probs] for n in range(len(prediction.log_probs[0]))]


def naive_height(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Steps up from two finest classes, given as their paths, until they meet."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=True)) if a == b), len(one))


def naive_distance(tree: Hierarchy, prediction: Prediction, labels: Tensor, k: int) -> float | None:
    found = []
    answers, log_p = naive_answers(prediction), prediction.log_probs[0]
    path_of = [tree.path(c) for c in range(tree.sizes[0])]
    for n in range(len(labels)):
        if labels[n, 0] >= 0:
            row, answer = log_p[n].tolist(), answers[n][0]
            others = [c for c in sorted(range(len(row)), key=lambda c: -row[c]) if c != answer]
            best = [answer, *others][:k]  # fewer when there are no k classes
            found.append(sum(naive_height(path_of[c], path_of[labels[n, 0]]) for c in best) / len(best))
    return mean(found)


def naive_overlap(tree: Hierarchy, answers: list[list[int]], labels: Tensor) -> dict[str, float | None]:
    """With sets of nodes (level, class): the answers and all above them, on the levels with a label, and the labels."""
    right = said = true = 0
    for answer, truth in zip(answers, labels.tolist(), strict=True):
        nodes = set()
        for k, c in enumerate(answer):
            node = c
            for level in range(k, len(tree)):
                nodes.add((level, node))
                if level + 1 < len(tree):
                    node = int(tree.parents[level][node])
        labelled = {(k, c) for k, c in enumerate(truth) if c >= 0}
        counted = {(k, c) for k, c in nodes if truth[k] >= 0}
        right, said, true = right + len(counted & labelled), said + len(counted), true + len(labelled)
    return {
        "hierarchical_precision": right / said if said else None,
        "hierarchical_recall": right / true if true else None,
        "hierarchical_f1": 2 * right / (said + true) if said else None,
    }


def naive_ece(probabilities: list[float], right: list[bool], bins: int = 15) -> float | None:
    if not probabilities:
        return None
    error = 0.0
    for i in range(bins):
        low, high = i / bins, (i + 1) / bins
        inside = [n for n, p in enumerate(probabilities) if low < p <= high or (i == 0 and p == 0)]
        if inside:
            accuracy = sum(right[n] for n in inside) / len(inside)
            confidence = sum(probabilities[n] for n in inside) / len(inside)
            error += len(inside) / len(probabilities) * abs(accuracy - confidence)
    return error


class Level(NamedTuple):
    """What a naive metric of a level is made from; answers and truth by sample, where the label is known."""

    tree: Hierarchy
    k: int
    log_probs: Tensor
    labels: Tensor
    answers: dict[int, int]
    truth: dict[int, int]

    def rates(self) -> list[tuple[int, int, int]]:
        """True positives, false positives and false negatives of each class."""
        pairs = [(self.answers[n], self.truth[n]) for n in self.truth]
        return [
            (
                sum(a == c and b == c for a, b in pairs),
                sum(a == c and b != c for a, b in pairs),
                sum(a != c and b == c for a, b in pairs),
            )
            for c in range(self.tree.sizes[self.k])
        ]


class Whole(NamedTuple):
    """What a naive metric of a run is made from."""

    tree: Hierarchy
    prediction: Prediction
    labels: Tensor
    answers: list[list[int]]
    levels: list[dict[str, Any]]


ABSENT = "no such figure at this level"


def naive_by_siblings(at: Level, *, alone: bool) -> Any:
    if at.k == len(at.tree) - 1:
        return ABSENT
    parents = at.tree.parents[at.k].tolist()
    return mean([float(at.answers[n] == c) for n, c in at.truth.items() if (parents.count(parents[c]) == 1) == alone])


def naive_calibration(at: Level) -> float | None:
    probabilities = [at.log_probs[n, at.answers[n]].exp().item() for n in at.truth]
    return naive_ece(probabilities, [at.answers[n] == at.truth[n] for n in at.truth])


def naive_broken(whole: Whole) -> float | None:
    tree = whole.tree
    return mean([float(any(tree.parents[k][a[k]] != a[k + 1] for k in range(len(tree) - 1))) for a in whole.answers])


def naive_severity(whole: Whole) -> float | None:
    pairs = [(a[0], truth) for a, truth in zip(whole.answers, whole.labels[:, 0].tolist(), strict=True)]
    return mean([float(naive_height(whole.tree.path(a), whole.tree.path(b))) for a, b in pairs if b not in (-1, a)])


REFERENCES: dict[str, Callable[[Any], Any]] = {  # by the name of the metric, in the order of the register
    "accuracy": lambda at: mean([float(at.answers[n] == at.truth[n]) for n in at.truth]),
    "accuracy_with_siblings": lambda at: naive_by_siblings(at, alone=False),
    "accuracy_without_siblings": lambda at: naive_by_siblings(at, alone=True),
    "mean_class_recall": lambda at: mean([tp / (tp + fn) for tp, _, fn in at.rates() if tp + fn]),
    "macro_precision": lambda at: mean([tp / (tp + fp) if tp + fp else 0.0 for tp, fp, fn in at.rates() if tp + fp + fn]),
    "macro_f1": lambda at: mean([2 * tp / (2 * tp + fp + fn) for tp, fp, fn in at.rates() if tp + fp + fn]),
    "macro_auc": lambda at: naive_auc(at.log_probs.numpy(), at.labels.numpy()),
    "ece": naive_calibration,
    "mean_accuracy": lambda whole: mean([level["accuracy"] for level in whole.levels if level["accuracy"] is not None]),
    "full_path_accuracy": lambda whole: mean(
        [float(a == b) for a, b in zip(whole.answers, whole.labels.tolist(), strict=True) if min(b) >= 0]
    ),
    "inconsistency": naive_broken,
    "mistake_severity": naive_severity,
    "hierarchical_precision": lambda whole: naive_overlap(whole.tree, whole.answers, whole.labels)["hierarchical_precision"],
    "hierarchical_recall": lambda whole: naive_overlap(whole.tree, whole.answers, whole.labels)["hierarchical_recall"],
    "hierarchical_f1": lambda whole: naive_overlap(whole.tree, whole.answers, whole.labels)["hierarchical_f1"],
    "hierarchical_distance_1": lambda whole: naive_distance(whole.tree, whole.prediction, whole.labels, 1),
    "hierarchical_distance_5": lambda whole: naive_distance(whole.tree, whole.prediction, whole.labels, 5),
    "hierarchical_distance_20": lambda whole: naive_distance(whole.tree, whole.prediction, whole.labels, 20),
}


def naive_figures(per: str, basis: Any) -> dict[str, Any]:
    """What the references say; figures of a distance stand together, as in metrics.json."""
    found: dict[str, Any] = {}
    for name, reference in REFERENCES.items():
        if name in REGISTER and REGISTER[name].per == per and (value := reference(basis)) is not ABSENT:
            group, _, k = name.rpartition("_")
            if group == "hierarchical_distance":
                found.setdefault(group, {})[k] = value
            else:
                found[name] = value
    return found


def naive_level(tree: Hierarchy, k: int, log_p: Tensor, chosen: list[list[int]], labels: Tensor) -> dict[str, Any]:
    known = [n for n in range(len(labels)) if labels[n, k] >= 0]
    answers, truth = {n: chosen[n][k] for n in known}, {n: int(labels[n, k]) for n in known}
    figures = naive_figures("level", Level(tree, k, log_p, labels[:, k], answers, truth))
    return {"name": tree.levels[k], "classes": tree.sizes[k], "samples": len(known), **figures}


def naive_metrics(tree: Hierarchy, prediction: Prediction, labels: Tensor) -> dict[str, Any]:
    answers = naive_answers(prediction)
    levels = [naive_level(tree, k, prediction.log_probs[k], answers, labels) for k in reversed(range(len(tree)))]
    return {"levels": levels, **naive_figures("run", Whole(tree, prediction, labels, answers, levels))}


def assert_equal(found: Any, expected: Any) -> None:
    """The same structure, numbers equal up to the rounding of float32 probabilities."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_equal(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            assert_equal(a, b)
    else:
        assert type(found) is type(expected)
        assert found == (pytest.approx(expected, abs=1e-6) if isinstance(expected, float) else expected)


# ---- the register --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", specs(), ids=lambda spec: spec.name)
def test_a_metric_says_what_it_is_and_has_a_naive_version(spec):
    assert spec.heading, f"{spec.name} has no heading: what do people call it?"
    assert spec.per in ("level", "run"), f"{spec.name} is per {spec.per}: write per='level' or per='run'"
    assert spec.unit, f"{spec.name} has no unit: write '%', 'height', 'count' or another"
    assert spec.better in ("higher", "lower"), f"{spec.name}: write better='higher' or better='lower'"
    assert spec.meaning.endswith("."), f"{spec.name}: say in its docstring, or as meaning=, what it means; one sentence"
    told = f"{spec.name} has no naive version: add one to REFERENCES in tests/unit/test_metrics.py"
    assert spec.by is None or spec.name in REFERENCES, told


def test_every_naive_version_is_of_a_metric():
    assert list(REFERENCES) == [spec.name for spec in specs() if spec.by], (
        "names, or their order, are not those of the register"
    )


def test_two_metrics_cannot_have_one_name():
    with pytest.raises(ConfigError, match="there is a metric ece already"):
        metric("ece", "another", per="level", better="lower")


def test_a_figure_is_shown_in_its_unit_and_ranked_by_its_direction():
    ece, severity, steps = (REGISTER[name] for name in ("ece", "mistake_severity", "seconds_per_step"))
    assert [spec.text(0.5) for spec in (ece, severity, REGISTER["parameters"])] == ["50.0", "0.50", "0"]
    assert [spec.text(None) for spec in (ece, severity, steps)] == ["–"] * 3
    assert (ece.axis(), severity.axis()) == ("calibration error (ECE), %", "mistake severity, height")
    assert dataclasses.replace(steps, table=None).headed("table") == "seconds per step, s"
    assert max([0.1, 0.2], key=ece.goodness) == 0.1
    assert max([0.1, 0.2], key=REGISTER["accuracy"].goodness) == 0.2


def test_a_metric_that_is_too_large_for_a_level_is_not_measured_there(monkeypatch):
    monkeypatch.setitem(REGISTER, "macro_auc", dataclasses.replace(REGISTER["macro_auc"], most=3))
    rng = np.random.default_rng(0)
    levels = measured(BY_HAND, random_prediction(rng, BY_HAND, 40), paths(BY_HAND, rng, 40))["levels"]
    assert [level["macro_auc"] is None for level in levels] == [False, False, True]


# ---- against loops -------------------------------------------------------------------------------------------------


@quick
@given(
    tree=hierarchies(),
    missing=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    batch=st.integers(1, 25),
    ruled=st.booleans(),
    seed=seeds,
)
def test_every_metric_equals_a_naive_loop(tree, missing, batch, ruled, seed):
    rng = np.random.default_rng(seed)
    prediction, labels = random_prediction(rng, tree, batch), random_labels(tree, rng, batch, missing)
    if ruled:
        prediction = dataclasses.replace(prediction, choice=random_choice(rng, tree, batch))
    assert_equal(measured(tree, prediction, labels), naive_metrics(tree, prediction, labels))


@quick
@given(classes=st.integers(1, 5), batch=st.integers(1, 30), grades=st.integers(1, 4), seed=seeds)
def test_auc_equals_a_loop_over_pairs_with_ties_counted_half(classes, batch, grades, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, grades, (batch, classes)) / 4
    labels = rng.integers(-1, classes, batch)
    one = MacroAUC()
    one.update(torch.from_numpy(scores), torch.from_numpy(labels))
    expected = naive_auc(scores, labels)
    found = one.compute().item()
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_auc_is_one_for_a_perfect_ranking_half_for_none_and_zero_for_the_reverse():
    labels = torch.tensor([0, 0, 1, 1])
    right = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]])
    for scores, expected in ((right, 1.0), (torch.full((4, 2), 0.5), 0.5), (-right, 0.0)):
        one = MacroAUC()
        one.update(scores, labels)
        assert one.compute().item() == expected


# ---- distance, overlap, calibration, siblings: against loops ---------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5, 20])
@pytest.mark.parametrize("sizes", [(30, 9, 4, 2), (6, 3)], ids=str)
@pytest.mark.parametrize("chosen", [False, True], ids=["argmax", "chosen otherwise"])
def test_hierarchical_distance_equals_a_loop_over_the_answer_and_the_most_probable_classes(sizes, k, chosen):
    """Of 6 classes there are no 20: then all of them count."""
    rng = np.random.default_rng(k)
    tree = random_hierarchy(rng, sizes)
    prediction, labels = random_prediction(rng, tree, 40), random_labels(tree, rng, 40)
    if chosen:
        prediction = dataclasses.replace(prediction, choice=random_choice(rng, tree, 40))
    one = HierarchicalDistance(tree, k)
    one.update(prediction.ranked(k), labels)
    assert one.count == (labels[:, 0] >= 0).sum() < 40  # the others are not counted
    assert one.compute().item() == pytest.approx(naive_distance(tree, prediction, labels, k))


def test_the_distance_to_all_classes_does_not_depend_on_their_order():
    rng = np.random.default_rng(5)
    tree = random_hierarchy(rng, (7, 3, 2))
    labels = random_labels(tree, rng, 20)
    one, other = (measured(tree, random_prediction(rng, tree, 20), labels)["hierarchical_distance"] for _ in range(2))
    assert one["20"] == pytest.approx(other["20"])
    assert one["1"] != other["1"]


@quick
@given(tree=hierarchies(), batch=st.integers(1, 25), seed=seeds, rule=st.sampled_from(list(RULES)))
def test_the_distance_of_the_first_answer_is_severity_times_error_rate(tree, batch, seed, rule):
    rng = np.random.default_rng(seed)
    prediction = decide(random_prediction(rng, tree, batch), tree, rule)
    result = measured(tree, prediction, random_labels(tree, rng, batch, 0.2))
    accuracy, severity = result["levels"][-1]["accuracy"], result["mistake_severity"]
    if accuracy is None:
        assert result["hierarchical_distance"]["1"] is None
    else:
        assert result["hierarchical_distance"]["1"] == pytest.approx((severity or 0) * (1 - accuracy))


@pytest.mark.parametrize("known_from", [0, 1, 2], ids=["all known", "fine unknown", "only the coarsest known"])
@pytest.mark.parametrize("consistent", [True, False], ids=["paths", "no paths"])
def test_hierarchical_precision_and_recall_equal_those_of_sets_of_nodes(consistent, known_from):
    rng = np.random.default_rng(6)
    tree = random_hierarchy(rng, (12, 6, 3))
    chosen = random_choice(rng, tree, 40)
    if consistent:
        chosen = torch.tensor([tree.path(c) for c in chosen[:, 0].tolist()])
    labels = paths(tree, rng, 40)
    labels[:20, :known_from] = -1
    one = HierarchicalOverlap(tree)
    one.update(chosen, labels)
    expected = list(naive_overlap(tree, chosen.tolist(), labels).values())
    assert one.compute().tolist() == pytest.approx(expected)
    precision, recall, f1 = expected
    assert (precision == recall == f1) == consistent  # an answer that is no path names too many nodes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_calibration_error_equals_a_loop_over_15_bins(dtype):
    rng = np.random.default_rng(7)
    edges = torch.arange(16, dtype=dtype) / 15  # 0 and 1 among them
    probability = torch.cat([torch.from_numpy(rng.random(60)).to(dtype), edges])
    right = torch.from_numpy(rng.random(76) < 0.5)
    one = CalibrationError()
    for rows in torch.arange(76).split([50, 1, 25]):
        one.update(probability[rows], right[rows])
    assert one.compute().item() == pytest.approx(naive_ece(probability.tolist(), right.tolist()))


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.5]), batch=st.integers(1, 25), seed=seeds)
def test_accuracies_with_and_without_siblings_put_together_are_the_accuracy(tree, missing, batch, seed):
    rng = np.random.default_rng(seed)
    labels = random_labels(tree, rng, batch, missing)
    result = measured(tree, random_prediction(rng, tree, batch), labels)
    for k, level in zip(tree.top_down, result["levels"], strict=True):
        if k == len(tree) - 1:
            assert not {key for key in level if "siblings" in key}
            continue
        siblings = np.bincount(tree.parents[k])[tree.parents[k]]
        alone = [bool(siblings[c] == 1) for c in labels[:, k].tolist() if c >= 0]
        without, within = level["accuracy_without_siblings"], level["accuracy_with_siblings"]
        right = (without or 0) * alone.count(True) + (within or 0) * alone.count(False)
        assert right == pytest.approx((level["accuracy"] or 0) * len(alone))
        assert (without is None) == (True not in alone)
        assert (within is None) == (False not in alone)


# ---- by hand -------------------------------------------------------------------------------------------------------


def test_severity_inconsistency_and_full_path_by_hand():
    labels = torch.tensor(
        [
            [0, 0, 0],  # all right
            [1, 0, 0],  # a sibling: height 1
            [2, 1, 0],  # another family of the same order: height 2
            [3, 2, 1],  # nothing in common: height 3
            [0, 0, 0],  # fine right, family wrong: no mistake of the finest level, but broken
            [-1, 0, 0],  # fine unknown: counts in neither severity nor full path
        ]
    )
    chosen = [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0], [3, 0, 0]]
    result = measured(BY_HAND, prediction_of(BY_HAND, chosen), labels)
    assert result["mistake_severity"] == pytest.approx((1 + 2 + 3) / 3)
    assert result["full_path_accuracy"] == pytest.approx(1 / 5)
    assert result["inconsistency"] == pytest.approx(2 / 6)
    assert [level["name"] for level in result["levels"]] == ["order", "family", "species"]
    assert [level["samples"] for level in result["levels"]] == [6, 6, 5]
    assert [level["accuracy"] for level in result["levels"]] == pytest.approx([5 / 6, 3 / 6, 2 / 5])
    assert result["mean_accuracy"] == pytest.approx((5 / 6 + 3 / 6 + 2 / 5) / 3)


@pytest.mark.parametrize(
    ("kind", "expected"), [(FullPathAccuracy, 1 / 2), (Inconsistency, 1 / 3), (MistakeSeverity, 2.0)], ids=lambda v: str(v)
)
def test_the_path_metrics_alone(kind, expected):
    measure = kind(BY_HAND)
    measure.update(torch.tensor([[0, 0, 0], [2, 1, 1], [0, 0, 0]]), torch.tensor([[0, 0, 0], [2, -1, 0], [2, 1, 0]]))
    assert measure.compute().item() == pytest.approx(expected)


def test_a_path_can_be_consistent_and_wrong():
    result = measured(BY_HAND, prediction_of(BY_HAND, [[3, 2, 1], [3, 2, 1]]), torch.tensor([[0, 0, 0], [1, 0, 0]]))
    assert (result["inconsistency"], result["full_path_accuracy"], result["mistake_severity"]) == (0.0, 0.0, 3.0)


def test_severity_is_not_measured_when_nothing_is_wrong():
    labels = torch.tensor([[0, 0, 0], [3, 2, 1]])
    result = measured(BY_HAND, prediction_of(BY_HAND, labels.tolist()), labels)
    assert result["mistake_severity"] is None
    assert (result["full_path_accuracy"], result["inconsistency"], result["mean_accuracy"]) == (1.0, 0.0, 1.0)


def test_classes_absent_from_the_test_do_not_count_in_the_mean_class_recall():
    """Classes 0 and 1 occur: recalls 1/2 and 1. Class 2 is answered but never true, class 3 neither."""
    labels = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0]])
    result = measured(BY_HAND, prediction_of(BY_HAND, [[0, 0, 0], [2, 1, 0], [1, 0, 0]]), labels)
    assert result["levels"][-1]["mean_class_recall"] == pytest.approx((1 / 2 + 1) / 2)
    assert result["levels"][-1]["accuracy"] == pytest.approx(2 / 3)


def test_a_class_that_is_never_answered_has_precision_zero_and_counts():
    labels = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 0, 0]])
    result = measured(BY_HAND, prediction_of(BY_HAND, [[0, 0, 0]] * 3), labels)
    assert result["levels"][-1]["macro_precision"] == pytest.approx((2 / 3 + 0) / 2)
    assert result["levels"][-1]["macro_f1"] == pytest.approx((4 / 5 + 0) / 2)


def test_the_mean_accuracy_leaves_out_a_level_without_labels():
    labels = torch.tensor([[-1, 0, 0], [-1, 1, 0]])
    result = measured(BY_HAND, prediction_of(BY_HAND, [[0, 0, 0], [0, 0, 0]]), labels)
    assert [level["accuracy"] for level in result["levels"]] == [1.0, 0.5, None]
    assert result["mean_accuracy"] == 0.75


def test_hierarchical_distance_by_hand():
    """Truth 0. In order of probability: 2 (height 2), 1 (1), 3 (3), 0 (0)."""
    said = Prediction((torch.tensor([[0.1, 0.3, 0.4, 0.2]]).log(), torch.zeros(1, 3), torch.zeros(1, 2)))
    for k, expected in ((1, 2.0), (2, 3 / 2), (3, 6 / 3), (4, 6 / 4), (5, 6 / 4)):
        one = HierarchicalDistance(BY_HAND, k)
        one.update(said.ranked(k), torch.tensor([[0, 0, 0]]))
        assert one.compute().item() == pytest.approx(expected)


def test_hierarchical_precision_recall_and_f1_by_hand():
    """Answer 3, A, X for truth 0, A, X: with the ancestors B… of 3 that is five nodes, two of three right."""
    result = measured(BY_HAND, prediction_of(BY_HAND, [[3, 0, 0]]), torch.tensor([[0, 0, 0]]))
    assert result["hierarchical_precision"] == pytest.approx(2 / 5)
    assert result["hierarchical_recall"] == pytest.approx(2 / 3)
    assert result["hierarchical_f1"] == pytest.approx(4 / 8)


def test_an_ancestor_of_a_finer_answer_counts_as_answered():
    """The family answered is wrong, but the species answered is in the right one."""
    result = measured(BY_HAND, prediction_of(BY_HAND, [[0, 1, 0]]), torch.tensor([[0, 0, 0]]))
    assert result["hierarchical_recall"] == 1.0
    assert result["hierarchical_precision"] == pytest.approx(3 / 4)


def test_samples_are_added_up_before_precision_and_recall_are_divided():
    """2 of 5 nodes right for one sample, 1 of 1 for another of which only the order is known: 3 of 6, not the mean."""
    labels = torch.tensor([[0, 0, 0], [-1, -1, 1]])
    result = measured(BY_HAND, prediction_of(BY_HAND, [[3, 0, 0], [3, 2, 1]]), labels)
    assert result["hierarchical_precision"] == pytest.approx(3 / 6)
    assert result["hierarchical_recall"] == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("probability", "right", "bins", "expected"),
    [
        ([0.5, 0.4], [True, False], 4, 0.05),  # one bin (0.25, 0.5]; were it [0.5, 0.75), 0.45
        ([0.5, 0.6], [True, False], 4, 0.55),  # two bins
        ([1.0, 0.95], [False, True], 15, 0.475),  # 1 lies in the last bin
        ([0.0, 0.05], [True, False], 15, 0.475),  # 0 in the first
        ([1.0] * 3, [False] * 3, 15, 1.0),
        ([1.0] * 3, [True] * 3, 15, 0.0),
        ([0.7] * 10 + [0.25] * 4, [True] * 7 + [False] * 3 + [True] + [False] * 3, 15, 0.0),  # as often right as it says
    ],
    ids=["edge below", "edge above", "one", "zero", "sure and wrong", "sure and right", "calibrated"],
)
def test_the_calibration_error_by_hand(probability, right, bins, expected):
    one = CalibrationError(bins)
    one.update(torch.tensor(probability, dtype=torch.float64), torch.tensor(right))
    assert one.compute().item() == pytest.approx(expected, abs=1e-12)


def test_accuracy_with_and_without_siblings_by_hand():
    """Species 0, 1 and families A, B have siblings; 2, 3 and C have none."""
    labels = torch.tensor([[0, 0, 0], [1, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1], [-1, 2, 1]])
    chosen = [[0, 0, 0], [0, 0, 0], [0, 1, 0], [2, 1, 0], [0, 2, 1], [3, 2, 1]]
    order, family, species = measured(BY_HAND, prediction_of(BY_HAND, chosen), labels)["levels"]
    assert "accuracy_with_siblings" not in order
    assert "accuracy_without_siblings" not in order
    assert (family["accuracy_with_siblings"], family["accuracy_without_siblings"]) == (3 / 4, 2 / 2)
    assert (species["accuracy_with_siblings"], species["accuracy_without_siblings"]) == pytest.approx((1 / 3, 1 / 2))


@pytest.mark.parametrize(
    ("label", "absent"), [([0, 0, 0], "accuracy_without_siblings"), ([3, 2, 1], "accuracy_with_siblings")], ids=str
)
def test_an_accuracy_over_classes_that_do_not_occur_is_none(label, absent):
    levels = measured(BY_HAND, prediction_of(BY_HAND, [label]), torch.tensor([label]))["levels"]
    for level in levels[1:]:
        assert [level["accuracy_with_siblings"], level["accuracy_without_siblings"]].count(1.0) == 1
        assert level[absent] is None


def of_probabilities(per: str) -> set[str]:
    """Metrics that ask for probabilities and not for answers."""
    asked = {s.name: set(inspect.signature(s.by.update).parameters) for s in specs(per) if isinstance(s.by, type)}
    return {name for name, names in asked.items() if names & {"log_probs", "prediction"}}


def test_answers_that_a_rule_chose_count_and_probabilities_stay_as_they_are():
    rng = np.random.default_rng(8)
    tree = random_hierarchy(rng, (8, 4, 2))
    own, labels, choice = random_prediction(rng, tree, 30), random_labels(tree, rng, 30, 0.2), random_choice(rng, tree, 30)
    without, ruled = measured(tree, own, labels), measured(tree, dataclasses.replace(own, choice=choice), labels)
    other = measured(tree, prediction_of(tree, choice.tolist()), labels)  # the same answers, other probabilities
    for key in set(ruled) - {"levels", "hierarchical_distance"} - of_probabilities("run"):
        assert_equal(ruled[key], other[key])
        assert ruled[key] != without[key], key
    assert_equal(ruled["hierarchical_distance"]["1"], other["hierarchical_distance"]["1"])  # the answer comes first
    assert len({found["hierarchical_distance"]["5"] for found in (ruled, without, other)}) == 3  # then the most probable
    for mine, by_probability, by_answer in zip(ruled["levels"], without["levels"], other["levels"], strict=True):
        for key in set(mine) - {"ece"}:
            assert_equal(mine[key], (by_probability if key in of_probabilities("level") else by_answer)[key])
        assert mine["accuracy"] != by_probability["accuracy"]
    assert_equal(ruled, naive_metrics(tree, dataclasses.replace(own, choice=choice), labels))


def test_the_calibration_is_of_the_class_that_is_answered():
    """Answered is the class with probability 0.1, and rightly so: the error is 0.9."""
    prediction = Prediction(
        (torch.tensor([[0.1, 0.3, 0.4, 0.2]]).log(), torch.tensor([[0.1, 0.7, 0.2]]).log(), torch.tensor([[0.6, 0.4]]).log()),
        choice=torch.tensor([[0, 0, 0]]),
    )
    levels = measured(BY_HAND, prediction, torch.tensor([[0, 0, -1]]))["levels"]
    assert [level["ece"] for level in levels] == [None, pytest.approx(0.9), pytest.approx(0.9)]


@pytest.mark.parametrize(
    "tree",
    [Hierarchy.from_parents([[0, 0, 0]]), Hierarchy.from_parents([], classes=[["a", "b", "c"]])],
    ids=["one coarse class", "one level"],
)
def test_a_level_of_one_class_and_a_tree_of_one_level_are_measured(tree):
    rng = np.random.default_rng(0)
    prediction, labels = random_prediction(rng, tree, 12), random_labels(tree, rng, 12, 0.2)
    assert_equal(measured(tree, prediction, labels), naive_metrics(tree, prediction, labels))


# ---- batches and processes -----------------------------------------------------------------------------------------


def in_batches(tree: Hierarchy, prediction: Prediction, labels: Tensor, sizes: list[int]) -> HierarchyMetrics:
    metrics = HierarchyMetrics(tree)
    for rows in torch.arange(len(labels)).split(sizes):
        choice = None if prediction.choice is None else prediction.choice[rows]
        metrics.update(Prediction(tuple(log_p[rows] for log_p in prediction.log_probs), choice=choice), labels[rows])
    return metrics


@pytest.mark.parametrize("ruled", [False, True], ids=["own", "ruled"])
@pytest.mark.parametrize("sizes", [[30], [1] * 30, [7, 23], [16, 13, 1]], ids=["one", "thirty", "two", "three"])
def test_the_way_samples_are_batched_does_not_matter(sizes, ruled):
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (8, 4, 2))
    prediction, labels = random_prediction(rng, tree, 30), random_labels(tree, rng, 30)
    if ruled:
        prediction = dataclasses.replace(prediction, choice=random_choice(rng, tree, 30))
    assert_equal(in_batches(tree, prediction, labels, sizes).compute(), naive_metrics(tree, prediction, labels))


def test_asking_in_between_does_not_disturb_the_count():
    rng = np.random.default_rng(2)
    tree = random_hierarchy(rng, (8, 4, 2))
    prediction, labels = random_prediction(rng, tree, 10), random_labels(tree, rng, 10)
    metrics = HierarchyMetrics(tree)
    for rows in torch.arange(10).split(5):
        metrics.update(Prediction(tuple(log_p[rows] for log_p in prediction.log_probs)), labels[rows])
        metrics.compute()
    assert_equal(metrics.compute(), naive_metrics(tree, prediction, labels))


@pytest.mark.parametrize("first", [1, 11, 29])
def test_adding_the_states_of_two_processes_equals_one_process(first):
    """States are summed, or put after each other."""
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (8, 4, 2))
    prediction, labels = random_prediction(rng, tree, 30), random_labels(tree, rng, 30)
    shards = [slice(0, first), slice(first, 30)]
    one, two = (
        in_batches(tree, Prediction(tuple(log_p[s] for log_p in prediction.log_probs)), labels[s], [s.stop - s.start])
        for s in shards
    )
    for mine, other in zip(one._all, two._all, strict=True):
        assert mine.states
        for state in mine.states:
            setattr(mine, state, getattr(mine, state) + getattr(other, state))  # + of lists is concatenation
    assert_equal(one.compute(), naive_metrics(tree, prediction, labels))


# ---- nothing to measure --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("updates", [0, 1], ids=["never updated", "only unknown labels"])
def test_nothing_to_measure_gives_none_and_no_exception(updates):
    metrics = HierarchyMetrics(BY_HAND)
    for _ in range(updates):
        metrics.update(random_prediction(np.random.default_rng(4), BY_HAND, 5), torch.full((5, 3), -1))
    result = metrics.compute()
    assert result["mean_accuracy"] is None
    assert result["full_path_accuracy"] is None
    assert result["mistake_severity"] is None
    assert (result["inconsistency"] is None) == (updates == 0)  # it needs no labels
    assert result["hierarchical_distance"] == {"1": None, "5": None, "20": None}
    assert [result[f"hierarchical_{name}"] for name in ("precision", "recall", "f1")] == [None] * 3
    for k, level in zip(BY_HAND.top_down, result["levels"], strict=True):
        assert level["samples"] == 0
        absent = {"samples"} | ({"accuracy_with_siblings", "accuracy_without_siblings"} if k == 2 else set())
        assert {key for key, value in level.items() if value is None} == {spec.name for spec in specs("level")} - absent - {
            "samples"
        }


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.5, 1.0]), batch=st.integers(1, 6), seed=seeds)
def test_the_result_is_plain_json_without_nan(tree, missing, batch, seed):
    rng = np.random.default_rng(seed)
    result = measured(tree, random_prediction(rng, tree, batch), random_labels(tree, rng, batch, missing))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
