"""Metrics against what their sources compute: the code released with CRM, Deng et al., scikit-learn."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.prediction import RULES, Prediction, decide, top_down
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import HierarchyMetrics
from torchlht.measure.operating import Decisions, operating_curve, operating_point
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, seeds


def predicted(rng: np.random.Generator, tree: Hierarchy, n: int) -> Prediction:
    return Prediction(tuple(torch.log_softmax(2 * normal(rng, n, size), dim=1) for size in tree.sizes))


def measured(tree: Hierarchy, prediction: Prediction, labels: Tensor) -> dict[str, float]:
    metrics = HierarchyMetrics(tree)
    metrics.update(prediction, labels)
    return metrics.compute()


def heights(tree: Hierarchy) -> np.ndarray:
    """(C_1, C_1) steps up from two finest classes until they meet."""
    paths = [tree.path(c) for c in range(tree.sizes[0])]
    found = [[[a == b for a, b in zip(one, other, strict=True)] for other in paths] for one in paths]
    return np.array([[row.index(True) if any(row) else len(tree) for row in rows] for rows in found])


# ---- distance@k ----------------------------------------------------------------------------------------------------


def released(tree: Hierarchy, scores: np.ndarray, truth: list[int], k: int) -> float:
    """As the code released with CRM: the k classes of the largest scores, which are probabilities or minus expected costs."""
    cost = heights(tree)
    found = []
    for row, true in zip(scores, truth, strict=True):
        best = sorted(range(len(row)), key=lambda c: -row[c])[:k]
        found.append(np.mean([cost[c, true] for c in best]))
    return float(np.mean(found))


@pytest.mark.parametrize("rule", ["own", "crm", "path"])
def test_the_distance_under_a_rule_that_ranks_is_that_of_its_own_ranking(rule):
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (40, 11, 4, 2))
    prediction, labels = predicted(rng, tree, 60), paths(tree, rng, 60)
    p = prediction.probs(0).double().numpy()
    along = sum(prediction.log_probs[k].double().numpy()[:, tree.ancestors(k)] for k in range(len(tree)))
    scores = {"own": p, "crm": -p @ heights(tree), "path": along}[rule]
    found = measured(tree, decide(prediction, tree, rule), labels)["hierarchical_distance"]
    for k in (1, 5, 20):
        assert found[str(k)] == pytest.approx(released(tree, scores, labels[:, 0].tolist(), k))
        assert (found[str(k)] == pytest.approx(released(tree, p, labels[:, 0].tolist(), k))) == (rule == "own")


def test_answers_from_the_top_down_come_first_and_then_the_most_probable():
    rng = np.random.default_rng(4)
    tree = random_hierarchy(rng, (30, 9, 3))
    prediction, labels = predicted(rng, tree, 50), paths(tree, rng, 50)
    choice = top_down(prediction.log_probs, tree)
    assert (choice[:, 0] != prediction.chosen()[:, 0]).any()
    scores = prediction.probs(0).double().numpy()
    scores[np.arange(50), choice[:, 0]] += 1
    for chosen in (dataclasses.replace(prediction, choice=choice), decide(prediction, tree, "top_down")):
        found = measured(tree, chosen, labels)["hierarchical_distance"]
        for k in (1, 5, 20):
            assert found[str(k)] == pytest.approx(released(tree, scores, labels[:, 0].tolist(), k))


def test_a_rule_forgets_the_ranking_of_the_one_before():
    rng = np.random.default_rng(5)
    tree = random_hierarchy(rng, (12, 4, 2))
    prediction = predicted(rng, tree, 20)
    assert decide(prediction, tree, "crm").scores is not None
    twice = decide(decide(prediction, tree, "crm"), tree, "backtrack")
    assert torch.equal(twice.ranked(5), prediction.log_probs[0].topk(5).indices)


@quick
@given(tree=hierarchies(), seed=seeds, rule=st.sampled_from(list(RULES)))
def test_the_ranking_begins_with_the_answer_and_names_no_class_twice(tree, seed, rule):
    prediction = decide(predicted(np.random.default_rng(seed), tree, 7), tree, rule)
    ranked = prediction.ranked(tree.sizes[0] + 3)
    assert torch.equal(ranked[:, 0], prediction.chosen()[:, 0])
    assert torch.equal(ranked.sort(dim=1).values, torch.arange(tree.sizes[0]).expand(7, -1))


# ---- information ---------------------------------------------------------------------------------------------------


def reward(tree: Hierarchy, prediction: Prediction, labels: Tensor, threshold: float) -> float:
    """Deng et al.: log₂|Y| - log₂|leaves under the answer| if the truth is among the leaves, else 0; mean over all samples.

    Divided by log₂|Y|, the most there is.
    """
    total, paths = 0.0, [tree.path(c) for c in range(tree.sizes[0])]
    for n, true in enumerate(labels[:, 0].tolist()):
        for k in range(len(tree)):
            p = prediction.probs(k)[n]
            if p.max() >= threshold:
                leaves = [c for c in range(tree.sizes[0]) if paths[c][k] == int(p.argmax())]
                total += (math.log2(tree.sizes[0]) - math.log2(len(leaves))) if true in leaves else 0.0
                break
    return total / len(labels) / math.log2(tree.sizes[0])


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 0.7, 0.9])
def test_information_is_the_reward_of_right_answers(threshold):
    rng = np.random.default_rng(6)
    tree = random_hierarchy(rng, (20, 7, 3))
    prediction, labels = predicted(rng, tree, 50), paths(tree, rng, 50)
    found = operating_point(Decisions.of(prediction, labels), tree, threshold)
    assert found["wrong"] > 0
    assert found["information"] == pytest.approx(reward(tree, prediction, labels, threshold))


def test_the_curve_has_the_same_information():
    rng = np.random.default_rng(8)
    tree = random_hierarchy(rng, (20, 7, 3))
    prediction, labels = predicted(rng, tree, 30), paths(tree, rng, 30)
    curve = operating_curve(Decisions.of(prediction, labels), tree, points=6)
    for at, information in zip(curve.threshold, curve.information, strict=True):
        assert information == pytest.approx(reward(tree, prediction, labels, at))


# ---- scikit-learn --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")  # what balanced accuracy leaves out
@pytest.mark.parametrize("absent", [False, True], ids=["every class is true", "some are answered, never true"])
def test_macro_figures_are_those_of_scikit_learn(absent):
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(7)
    tree = random_hierarchy(rng, (12, 5, 2))
    prediction = predicted(rng, tree, 90)
    labels = random_labels(tree, rng, 90, 0.2)
    if absent:
        labels[labels[:, 0] < 4] = -1
    for level, k in zip(measured(tree, prediction, labels)["levels"], tree.top_down, strict=True):
        known = labels[:, k] >= 0
        true, said = labels[known, k].numpy(), prediction.chosen()[known, k].numpy()
        if k == 0:
            assert absent == bool(set(said) - set(true))
        assert level["macro_f1"] == pytest.approx(sklearn.f1_score(true, said, average="macro"))
        assert level["macro_precision"] == pytest.approx(sklearn.precision_score(true, said, average="macro", zero_division=0))
        assert level["mean_class_recall"] == pytest.approx(sklearn.balanced_accuracy_score(true, said))
