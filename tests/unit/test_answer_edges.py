"""Answers at their edges: thresholds that are just reached, ways of counting risk, few labels, points of a curve."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.answer.calibration import FEW, GRID, TAKEN, WIDEST, RiskCurve, answer_levels, fit_calibration, scaled, temperature
from torchlht.answer.named import Restriction
from torchlht.errors import ConfigError, DataError
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.operating import Decisions, operating_curve, operating_point
from trees import normal, paths, random_hierarchy

TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))


def random_prediction(rng: np.random.Generator, n: int, scale: float = 2.0) -> Prediction:
    return Prediction(tuple(torch.log_softmax(normal(rng, n, size, scale=scale), dim=1) for size in TREE.sizes))


def some_decisions(n: int = 40) -> Decisions:
    rng = np.random.default_rng(1)
    return Decisions.of(random_prediction(rng, n), paths(TREE, rng, n))


# ---- thresholds ----------------------------------------------------------------------------------------------------


def test_a_probability_that_just_reaches_the_threshold_is_enough() -> None:
    confidence = torch.tensor([[0.5, 0.75], [0.25, 0.5], [0.25, 0.25]])
    assert answer_levels(confidence, 0.5).tolist() == [0, 1, -1]


def curve_of(samples: int, weighted: float, strict: float, most: float) -> RiskCurve:
    """A curve on which nothing is wrong from the middle of the grid on; before it, this share by each way of counting."""
    half = np.arange(len(GRID)) < len(GRID) // 2
    answered = np.full(len(GRID), float(samples))
    return RiskCurve(samples, half * weighted * samples, most, half * strict * samples, answered)


def test_answers_that_cannot_be_checked_are_wrong_where_that_is_asked_for() -> None:
    curve = curve_of(999, weighted=0.0, strict=0.9, most=1.0)
    assert curve.threshold(0.4) == GRID[0]
    assert curve.threshold(0.4, strict=True) == GRID[len(GRID) // 2]


def test_answers_that_cannot_be_checked_are_wrong_where_one_sample_could_add_too_much() -> None:
    """That is where B is more than a share of α (n + 1)."""
    most = TAKEN * 0.4 * 1000
    assert curve_of(999, weighted=0.0, strict=0.9, most=most - 0.05).threshold(0.4) == GRID[0]
    assert curve_of(999, weighted=0.0, strict=0.9, most=most + 0.05).threshold(0.4) == GRID[len(GRID) // 2]


def test_where_the_weighted_count_promises_nothing_the_strict_one_may() -> None:
    curve = RiskCurve(999, np.full(len(GRID), 999.0), 1.0, np.zeros(len(GRID)), np.full(len(GRID), 999.0))
    assert curve.threshold(0.4) == GRID[0]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("weighted", "most"), [(0.02, 1.25), (0.02, 100.0), (0.3, 1.25), (0.02, np.inf)])
def test_the_least_risk_is_promised_and_nothing_below_it(weighted: float, most: float, strict: bool) -> None:
    curve = RiskCurve(999, np.full(len(GRID), weighted * 999), most, np.full(len(GRID), 200.0), np.full(len(GRID), 999.0))
    least = curve.lowest_risk(strict=strict)
    assert least is not None
    assert curve.threshold(least + 1e-9, strict=strict) == GRID[0]
    with pytest.raises(ConfigError, match="cannot be promised"):
        curve.threshold(least - 1e-9, strict=strict)


@pytest.mark.parametrize("samples", [7, 59, 105, 999, 20_000])
def test_the_risk_that_a_refusal_names_can_be_promised(samples: int) -> None:
    none, all_ = np.zeros(len(GRID)), np.full(len(GRID), float(samples))
    curve = RiskCurve(samples, none, 1.0, none, all_)
    with pytest.raises(ConfigError) as refused:
        curve.threshold(1e-9)
    said = re.search(r"only (\S+) or more can", str(refused.value))
    assert said is not None
    assert curve.threshold(float(said[1])) == GRID[0]
    assert float(said[1]) <= 1.1 / (samples + 1)
    assert RiskCurve(samples, 0.996 * all_, 1.0, all_, all_).least_said() is None  # 1.0 with two digits


@pytest.mark.parametrize("most", [1.25, np.inf])
def test_a_risk_curve_comes_back_from_what_is_kept_of_it(most: float) -> None:
    curve = curve_of(999, weighted=0.25, strict=0.5, most=most)
    again = RiskCurve.from_dict(json.loads(json.dumps(curve.to_dict())))
    assert (again.samples, again.most) == (curve.samples, curve.most)
    for name in ("weighted", "strict", "answered"):
        np.testing.assert_array_equal(getattr(again, name), getattr(curve, name))


# ---- temperatures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [FEW - 1, FEW])
def test_a_level_with_too_few_labels_keeps_its_probabilities(known: int) -> None:
    """The finest level has so many labels; others have all."""
    rng = np.random.default_rng(2)
    prediction, labels = random_prediction(rng, 60, scale=9.0), paths(TREE, rng, 60)
    labels[known:, 0] = -1
    found = fit_calibration(prediction, labels, TREE)
    assert found.samples == (known, 60, 60)
    assert (found.temperatures[0] == 1.0) == (known < FEW)
    assert all(t > 2 for t in found.temperatures[1:])  # far too sure, as it is random
    same = torch.allclose(found.apply(prediction).log_probs[0], prediction.log_probs[0])
    assert same == (known < FEW)


def test_a_class_that_is_certain_can_be_made_less_so() -> None:
    """A probability of exactly 1 counts as almost 1, or no temperature could be too low for a wrong answer."""
    certain = torch.zeros(20, 2, dtype=torch.float64)
    assert (scaled(certain, 2.0, "sigmoid") < 0).all()
    assert temperature(certain, torch.arange(20) % 2, "sigmoid") == pytest.approx(WIDEST, rel=1e-2)


# ---- operating points ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, 0.6, 2.0])
def test_precision_recall_and_f1_are_those_of_sets_of_classes(threshold: float) -> None:
    decisions = some_decisions()
    found = operating_point(decisions, TREE, threshold)
    hits = said = true = 0
    for chosen, confidence, labels in zip(decisions.chosen, decisions.confidence, decisions.labels, strict=True):
        level = next((k for k in range(3) if confidence[k] >= threshold), None)
        answer = set() if level is None else {(j, int(TREE.ancestors(j, of=level)[chosen[level]])) for j in range(level, 3)}
        truth = set(enumerate(labels.tolist()))
        hits, said, true = hits + len(answer & truth), said + len(answer), true + len(truth)
    assert found["hierarchical_precision"] == (pytest.approx(hits / said) if said else None)
    assert found["hierarchical_recall"] == pytest.approx(hits / true)
    precision, recall = hits / said if said else 0.0, hits / true
    assert found["hierarchical_f1"] == pytest.approx(2 * precision * recall / (precision + recall) if hits else 0.0)


@pytest.mark.parametrize("points", [7, 200])
def test_every_point_of_a_curve_is_the_operating_point_at_its_threshold(points: int) -> None:
    """There are as many as there are confidences, or about as many as are asked for, from the lowest to the highest."""
    decisions = some_decisions()
    seen = torch.unique(decisions.confidence).tolist()
    curve = operating_curve(decisions, TREE, points)
    assert len(curve.threshold) == min(points, len(seen)) + 2
    assert curve.threshold[[0, 1, -2, -1]].tolist() == [0.0, seen[0], seen[-1], math.inf]
    for i, threshold in enumerate(curve.threshold.tolist()):
        point = operating_point(decisions, TREE, threshold)
        assert curve.error[i] == (pytest.approx(math.nan, nan_ok=True) if point["error"] is None else point["error"])
        for name in ("wrong", "answered", "depth", "information"):
            assert getattr(curve, name)[i] == point[name]
        assert curve.levels[i].tolist() == [level["answered"] for level in reversed(point["levels"])]


# ---- names ---------------------------------------------------------------------------------------------------------


def allowed(tree: Hierarchy, *only: str) -> list[bool]:
    restriction = Restriction.parse(tree, only=only)
    assert restriction is not None
    return restriction.allowed.tolist()


def test_a_name_may_have_a_slash_in_it_also_after_its_level() -> None:
    classes = [["black/white", "white", "grey"], ["birds", "stones"]]
    tree = Hierarchy.from_parents([[0, 0, 1]], levels=("colour", "kind"), classes=classes)
    assert allowed(tree, "black/white") == allowed(tree, "colour/black/white") == [True, False, False]
    assert allowed(tree, "kind/birds", "grey") == [True, True, True]


@pytest.mark.parametrize("flag", ["only", "exclude"])
def test_messages_name_the_option_that_is_wrong(flag: str, tmp_path: Path) -> None:
    wrong: dict[str, list[str]] = {flag: ["nobody"]}
    with pytest.raises(ConfigError, match=f"^{flag} 'nobody': no class has that name"):
        Restriction.parse(TREE, **wrong)
    missing: dict[str, list[str]] = {flag: [f"@{tmp_path / 'missing'}"]}
    with pytest.raises(DataError, match=f"^{flag} @.*missing: "):
        Restriction.parse(TREE, **missing)


def test_classes_that_remain_share_what_there_is_even_where_all_had_probability_zero() -> None:
    log_p = tuple(torch.full((1, size), -math.inf) for size in TREE.sizes)
    for level in log_p:
        level[0, -1] = 0.0
    restriction = Restriction(TREE, np.arange(9) == 0)
    found: tuple[Tensor, ...] = restriction.apply(Prediction(log_p)).log_probs
    for k, level in enumerate(found):
        expected = torch.zeros(TREE.sizes[k])
        expected[int(TREE.ancestors(k)[0])] = 1
        torch.testing.assert_close(level[0].exp(), expected)
