"""Temperatures and risk: against naive references, and the guarantee of conformal risk control by simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.calibration import (
    FEW,
    FILE,
    GRID,
    Calibration,
    RiskCurve,
    fit_calibration,
    losses,
    risk_curve,
    scaled,
    temperature,
)
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, random_labels, seeds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def filled(tree: Hierarchy, rng: np.random.Generator, n: int) -> Tensor:
    """Labels of which the ancestors are known wherever a class is."""
    return torch.from_numpy(tree.fill(np.where((labels := random_labels(tree, rng, n).numpy()) >= 0, labels, -1)))


# ---- temperatures --------------------------------------------------------------------------------------------------


def test_the_temperature_that_was_taken_out_is_found() -> None:
    rng = np.random.default_rng(0)
    logits = normal(rng, 4000, 5, scale=2.0)
    labels = torch.distributions.Categorical(logits=logits).sample()
    for t in (0.5, 1.0, 3.0):
        assert temperature(torch.log_softmax(logits * t, dim=1), labels, "softmax") == pytest.approx(t, rel=0.07)


def test_sigmoids_are_scaled_class_by_class() -> None:
    torch.manual_seed(0)
    logits = normal(np.random.default_rng(0), 6000, 3, scale=2.0)
    labels = torch.distributions.Categorical(probs=torch.sigmoid(logits)).sample()
    log_p = torch.nn.functional.logsigmoid(logits * 4)
    found = temperature(log_p, labels, "sigmoid")
    assert 2 < found < 16  # overconfident, and known to be; one label among three is not three coins
    expected = torch.sigmoid(torch.special.logit(log_p.exp(), eps=1e-12) / found)
    inside = logits.abs() < 5
    torch.testing.assert_close(scaled(log_p, found, "sigmoid").exp()[inside], expected[inside], atol=1e-6, rtol=1e-5)
    certain = scaled(torch.zeros(1, 2), 2.0, "sigmoid")  # p = 1 exactly
    assert torch.isfinite(certain).all()


@quick
@given(tree=hierarchies(), seed=seeds)
def test_calibration_keeps_the_order_of_classes_and_minimises_the_likelihood(tree: Hierarchy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log_probs = tuple(torch.log_softmax(normal(rng, 30, n, scale=3.0), dim=1) for n in tree.sizes)
    labels = filled(tree, rng, 30)
    found = fit_calibration(Prediction(log_probs), labels, tree)
    assert found.kinds == ("softmax",) * len(tree)
    for k, (before, after) in enumerate(zip(log_probs, found.apply(Prediction(log_probs)).log_probs, strict=True)):
        assert torch.equal(before.argmax(dim=1), after.argmax(dim=1))
        torch.testing.assert_close(after.exp().sum(dim=1), torch.ones(30, dtype=after.dtype))
        known = labels[:, k] >= 0
        assert found.samples[k] == known.sum()
        if known.sum() < FEW:
            assert found.temperatures[k] == 1
            continue
        cost = [-p[known].gather(1, labels[known, k : k + 1]).mean().item() for p in (before, after)]
        assert cost[1] <= cost[0] + 1e-6
        for other in (0.7, 1.4) if found.temperatures[k] < 15 else ():  # else no end of it: the labels here are random
            worse = torch.log_softmax(before / (found.temperatures[k] * other), dim=1)[known]
            assert -worse.gather(1, labels[known, k : k + 1]).mean().item() >= cost[1] - 1e-6


def test_calibration_in_float32_survives_what_models_give() -> None:
    log_p = torch.log_softmax(torch.tensor([[0.0, 200.0, -300.0]] * 20), dim=1)  # probabilities 0 and 1
    found = fit_calibration(Prediction((log_p, torch.zeros(20, 1))), torch.tensor([[1, 0]] * 19 + [[0, 0]]), SMALL)
    assert all(np.isfinite(found.temperatures))
    assert torch.isfinite(found.apply(Prediction((log_p, torch.zeros(20, 1)))).log_probs[0].exp()).all()


SMALL = Hierarchy.from_parents([[0, 0, 0]])


def test_nothing_to_calibrate_on_is_said() -> None:
    with pytest.raises(DataError, match="label"):
        fit_calibration(Prediction((torch.zeros(2, 3), torch.zeros(2, 1))), torch.full((2, 2), -1), SMALL)


# ---- counting ------------------------------------------------------------------------------------------------------


def naive_counts(confidence: Floats, loss: Floats, g: int) -> tuple[float, int]:
    """W and N at a point of the grid, by loops."""
    wrong, answered = 0.0, 0
    for row, costs in zip(confidence, loss, strict=True):
        worst = 0.0
        for i in range(g, len(GRID)):
            passing = [k for k in range(len(row)) if row[k] >= GRID[i]]
            if passing:
                worst = max(worst, costs[passing[0]])
                answered += i == g
        wrong += worst
    return wrong, answered


@quick
@given(tree=hierarchies(), seed=seeds)
def test_the_curve_against_loops(tree: Hierarchy, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = filled(tree, rng, 6).numpy()
    labels = labels[(labels >= 0).any(axis=1)]
    if not len(labels):
        return
    chosen = np.stack([rng.integers(n, size=len(labels)) for n in tree.sizes], axis=1)
    confidence = rng.random(chosen.shape)
    curve = risk_curve(confidence, chosen, labels, tree)
    shares = (labels >= 0).mean(axis=0)
    weighted, strict = losses(chosen, labels, tree, shares)
    for i in range(len(labels)):
        for k in range(len(tree)):
            path = [(j, int(tree.ancestors(j, of=k)[chosen[i, k]])) for j in range(k, len(tree))]
            wrong = [j for j, c in path if labels[i, j] >= 0 and labels[i, j] != c]
            assert strict[i, k] == (bool(wrong) or labels[i, k] < 0)
            assert weighted[i, k] == pytest.approx(1 / shares[max(wrong)] if wrong else 0)
    for g in (0, 1, 150, 220, len(GRID) - 1):
        assert curve.weighted[g] == pytest.approx(naive_counts(confidence, weighted, g)[0])
        assert (curve.strict[g], curve.answered[g]) == naive_counts(confidence, strict, g)
    assert (np.diff(curve.weighted) <= 1e-9).all()
    assert (np.diff(curve.strict) <= 0).all()
    assert curve.answered[0] == len(labels)
    assert curve.answered[-1] == curve.strict[-1] == 0


def test_with_every_label_both_ways_of_counting_are_one() -> None:
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (8, 4, 2))
    labels = np.stack([tree.ancestors(k)[rng.integers(8, size=50)] for k in range(3)], axis=1)
    labels = np.array([tree.path(int(leaf)) for leaf in labels[:, 0]])
    chosen = np.array([tree.path(int(leaf)) for leaf in rng.integers(8, size=50)])
    curve = risk_curve(rng.random((50, 3)), chosen, labels, tree)
    np.testing.assert_allclose(curve.weighted, curve.strict)
    assert curve.most == 1


def test_the_smallest_threshold_that_holds_is_taken() -> None:
    confidence = np.array([[0.9], [0.8], [0.7], [0.6]] + [[0.95]] * 36)
    tree = Hierarchy.from_parents([], classes=[["a", "b"]])
    labels = np.zeros((40, 1), dtype=np.int64)
    chosen = labels.copy()
    chosen[2:4] = 1  # wrong at 0.7 and at 0.6
    curve = risk_curve(confidence, chosen, labels, tree)
    assert curve.threshold(0.2) == 0.0  # (2 + 1) / 41
    by_hand = [(1.5 / 41 < 0.05, 0.06, 0.6), (True, 0.03, 0.7)]  # one wrong of 39 answers: 2/40; none of 38: 1/39
    for _, risk, above in by_hand:
        found = curve.threshold(risk)
        assert above < found
        assert found <= GRID[int(np.searchsorted(GRID, above, side="right"))]
    with pytest.raises(ConfigError, match=r"only 0\.026 or more"):
        curve.threshold(0.02)
    with pytest.raises(ConfigError, match="above 0"):
        curve.threshold(0)


def test_without_any_finest_label_only_coarse_answers_can_be_promised() -> None:
    tree = Hierarchy.from_parents([[0, 0, 1]])
    labels = np.array([[-1, 0]] * 200)
    chosen = np.zeros((200, 2), dtype=np.int64)
    curve = risk_curve(np.tile([0.5, 0.99], (200, 1)), chosen, labels, tree)
    assert curve.most == np.inf
    assert 0.5 < curve.threshold(0.05) <= 0.99
    assert RiskCurve.from_dict(json.loads(json.dumps(curve.to_dict()))).threshold(0.05) == curve.threshold(0.05)


# ---- the guarantee -------------------------------------------------------------------------------------------------


def population(rng: np.random.Generator, n: int, tree: Hierarchy) -> tuple[Prediction, Tensor]:
    """Samples of a model that is overconfident at the finest level, and their labels."""
    fine = normal(rng, n, tree.sizes[0], scale=2.0)
    for k in range(1, len(tree)):
        fine += normal(rng, n, tree.sizes[k], scale=4.0)[:, tree.ancestors(k).copy()]
    leaves = torch.distributions.Categorical(logits=fine).sample().numpy()
    levels = [torch.log_softmax(2.5 * fine + normal(rng, n, tree.sizes[0]), dim=1)]
    for k in range(1, len(tree)):
        inside = torch.zeros(n, tree.sizes[k], dtype=torch.float64)
        inside.index_add_(1, torch.as_tensor(tree.ancestors(k).copy()), torch.softmax(fine, dim=1))
        levels.append((inside + 1e-3).log() - (inside + 1e-3).sum(dim=1, keepdim=True).log())
    return Prediction(tuple(levels)), torch.from_numpy(np.array([tree.path(int(leaf)) for leaf in leaves]))


@pytest.mark.parametrize(("missing", "strict"), [(0.0, False), (0.8, False), (0.8, True)])
def test_wrong_answers_stay_under_the_promised_share_on_average(missing: float, strict: bool) -> None:
    """Over many draws of validation samples; temperatures are fitted to the same ones, as in real use."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (12, 5, 2))
    draws, n, risk = 40, 300, 0.1
    found = []
    test, truth = population(rng, 2000, tree)
    for _ in range(draws):
        seen, labels = population(rng, n, tree)
        labels[torch.from_numpy(rng.random(n) < missing), 0] = -1
        calibration = fit_calibration(seen, labels, tree)
        confidence = torch.stack([p.max(dim=1).values for p in calibration.apply(test).log_probs], dim=1).exp()
        chosen = torch.stack([p.argmax(dim=1) for p in test.log_probs], dim=1)
        curve = calibration.risks["own"]
        lowest = curve.lowest_risk(strict=strict)
        can = lowest is not None and lowest <= risk
        passes = confidence >= (calibration.threshold(risk, strict=strict) if can or not strict else 2.0)
        level = passes.int().argmax(dim=1, keepdim=True)
        wrong = (chosen != truth).gather(1, level).squeeze(1) & passes.any(dim=1)
        found.append(wrong.double().mean().item())
    mean, error = float(np.mean(found)), float(np.std(found) / np.sqrt(draws))
    assert mean <= risk + 3 * error
    assert mean >= (0.003 if strict else 0.06)  # and it is no empty promise


# ---- keeping -------------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (6, 3))
    prediction = Prediction(tuple(torch.log_softmax(normal(rng, 40, n), dim=1) for n in tree.sizes))
    found = fit_calibration(prediction, filled(tree, rng, 40), tree, source="here")
    assert Calibration.read(tmp_path) is None
    found.write(tmp_path, tree)
    again = Calibration.read(tmp_path)
    assert again is not None
    assert (again.temperatures, again.samples, again.source) == (found.temperatures, found.samples, "here")
    assert again.kinds == found.kinds
    assert again.threshold(0.9, "path") == found.threshold(0.9, "path")
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(RunError, match="write it again with lht calibrate"):
        Calibration.read(tmp_path)
