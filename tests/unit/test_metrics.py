"""Every metric against naive loops, by hand, in batches, across processes and on nothing at all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from trees import hierarchies, normal, quick, random_hierarchy, random_labels, seeds

from torchlht.hierarchy import Hierarchy
from torchlht.metrics import FullPathAccuracy, HierarchyMetrics, Inconsistency, MacroAUC, MistakeSeverity
from torchlht.prediction import Prediction

# Finest 0, 1 under A; 2 under B; 3 under C. A and B under X; C under Y.
BY_HAND = Hierarchy.from_parents([[0, 0, 1, 2], [0, 0, 1]], levels=("species", "family", "order"))


def random_prediction(rng: np.random.Generator, tree: Hierarchy, batch: int) -> Prediction:
    return Prediction(tuple(torch.log_softmax(normal(rng, batch, n, dtype=torch.float32), dim=1) for n in tree.sizes))


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


def naive_level(tree: Hierarchy, k: int, log_p: Tensor, labels: Tensor) -> dict[str, Any]:
    known = [n for n in range(len(labels)) if labels[n, k] >= 0]
    answers = {n: int(np.argmax(log_p[n].numpy())) for n in known}
    truth = {n: int(labels[n, k]) for n in known}
    recalls, precisions, f1s = [], [], []
    for c in range(tree.sizes[k]):
        tp = sum(answers[n] == c and truth[n] == c for n in known)
        fp = sum(answers[n] == c and truth[n] != c for n in known)
        fn = sum(answers[n] != c and truth[n] == c for n in known)
        if tp + fn:
            recalls.append(tp / (tp + fn))
            precisions.append(tp / (tp + fp) if tp + fp else 0.0)
            f1s.append(2 * tp / (2 * tp + fp + fn))
    return {
        "name": tree.levels[k],
        "classes": tree.sizes[k],
        "samples": len(known),
        "accuracy": mean([float(answers[n] == truth[n]) for n in known]),
        "mean_class_recall": mean(recalls),
        "macro_precision": mean(precisions),
        "macro_f1": mean(f1s),
        "macro_auc": naive_auc(log_p.numpy(), labels[:, k].numpy()),
    }


def naive_metrics(tree: Hierarchy, prediction: Prediction, labels: Tensor) -> dict[str, Any]:
    depth = len(tree)
    levels = [naive_level(tree, k, prediction.log_probs[k], labels) for k in reversed(range(depth))]
    full, broken, heights = [], [], []
    for n in range(len(labels)):
        answer = [int(np.argmax(log_p[n].numpy())) for log_p in prediction.log_probs]
        truth = labels[n].tolist()
        if min(truth) >= 0:
            full.append(float(answer == truth))
        broken.append(float(any(tree.parents[k][answer[k]] != answer[k + 1] for k in range(depth - 1))))
        if truth[0] >= 0 and truth[0] != answer[0]:
            shared = [a == b for a, b in zip(tree.path(answer[0]), tree.path(truth[0]), strict=True)]
            heights.append(float(shared.index(True) if True in shared else depth))
    return {
        "levels": levels,
        "mean_accuracy": mean([level["accuracy"] for level in levels if level["accuracy"] is not None]),
        "full_path_accuracy": mean(full),
        "inconsistency": mean(broken),
        "mistake_severity": mean(heights),
    }


def assert_equal(found: Any, expected: Any) -> None:
    """The same structure, numbers equal up to rounding."""
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
        assert found == (pytest.approx(expected, abs=1e-9) if isinstance(expected, float) else expected)


# ---- against loops -------------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.3, 0.8, 1.0]), batch=st.integers(1, 25), seed=seeds)
def test_every_metric_equals_a_naive_loop(tree, missing, batch, seed):
    rng = np.random.default_rng(seed)
    prediction, labels = random_prediction(rng, tree, batch), random_labels(tree, rng, batch, missing)
    assert_equal(measured(tree, prediction, labels), naive_metrics(tree, prediction, labels))


@quick
@given(classes=st.integers(1, 5), batch=st.integers(1, 30), grades=st.integers(1, 4), seed=seeds)
def test_auc_equals_a_loop_over_pairs_with_ties_counted_half(classes, batch, grades, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, grades, (batch, classes)) / 4
    labels = rng.integers(-1, classes, batch)
    metric = MacroAUC()
    metric.update(torch.from_numpy(scores), torch.from_numpy(labels))
    expected = naive_auc(scores, labels)
    found = metric.compute().item()
    assert np.isnan(found) if expected is None else found == pytest.approx(expected)


def test_auc_is_one_for_a_perfect_ranking_half_for_none_and_zero_for_the_reverse():
    labels = torch.tensor([0, 0, 1, 1])
    right = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.4, 0.6], [0.1, 0.9]])
    for scores, expected in ((right, 1.0), (torch.full((4, 2), 0.5), 0.5), (-right, 0.0)):
        metric = MacroAUC()
        metric.update(scores, labels)
        assert metric.compute().item() == expected


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
    ("metric", "expected"), [(FullPathAccuracy, 1 / 2), (Inconsistency, 1 / 3), (MistakeSeverity, 2.0)], ids=lambda v: str(v)
)
def test_the_path_metrics_alone(metric, expected):
    measure = metric(BY_HAND)
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
        metrics.update(Prediction(tuple(log_p[rows] for log_p in prediction.log_probs)), labels[rows])
    return metrics


@pytest.mark.parametrize("sizes", [[30], [1] * 30, [7, 23], [16, 13, 1]], ids=str)
def test_the_way_samples_are_batched_does_not_matter(sizes):
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (8, 4, 2))
    prediction, labels = random_prediction(rng, tree, 30), random_labels(tree, rng, 30)
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
    """States are summed or concatenated, as the reduction each was declared with says."""
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (8, 4, 2))
    prediction, labels = random_prediction(rng, tree, 30), random_labels(tree, rng, 30)
    shards = [slice(0, first), slice(first, 30)]
    one, two = (
        in_batches(tree, Prediction(tuple(log_p[s] for log_p in prediction.log_probs)), labels[s], [s.stop - s.start])
        for s in shards
    )
    for mine, other in zip(one._all, two._all, strict=True):
        assert mine._defaults
        for state in mine._defaults:
            setattr(mine, state, getattr(mine, state) + getattr(other, state))  # + of lists is concatenation
            assert mine._reductions[state] is not None, state  # torchmetrics would not reduce it across processes
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
    for level in result["levels"]:
        assert level["samples"] == 0
        assert {key for key, value in level.items() if value is None} == {
            "accuracy",
            "mean_class_recall",
            "macro_precision",
            "macro_f1",
            "macro_auc",
        }


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.5, 1.0]), batch=st.integers(1, 6), seed=seeds)
def test_the_result_is_plain_json_without_nan(tree, missing, batch, seed):
    rng = np.random.default_rng(seed)
    result = measured(tree, random_prediction(rng, tree, batch), random_labels(tree, rng, batch, missing))
    assert json.loads(json.dumps(result, allow_nan=False)) == result
