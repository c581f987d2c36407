"""Each level is calibrated as what it is, a distribution or a sigmoid per class: every method, against float64 formulas."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.answer.asking import join
from torchlht.answer.calibration import Calibration, fit_calibration, kinds_of, scaled
from torchlht.heads.method import list_methods, method_options
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy, random_method

TREE = random_hierarchy(np.random.default_rng(0), (9, 4, 2))
CASES: list[tuple[str, dict[str, Any]]] = [*((name, {}) for name in list_methods()), ("hmcn", {"activation": "softmax"})]
ALL_SIGMOID = ("sigmoid",) * len(TREE)


def said(name: str, n: int = 60, **options: Any) -> Prediction:
    """What a method with random float64 weights says of random samples."""
    rng = np.random.default_rng(1)
    narrow = {option: 4 for option in ("hidden", "embedding") if option in method_options(name)}  # so that no sum is large
    with torch.no_grad():
        found: Prediction = random_method(name, TREE, rng, **narrow, **options)(normal(rng, n, 5))
    return found


def naive(p: Tensor, temperature: float, distribution: bool) -> Tensor:
    """From probabilities: the power of each, made to sum to one; or the power of each class's odds."""
    if distribution:
        power = p ** (1 / temperature)
        return power / power.sum(dim=1, keepdim=True)
    odds = (p / (1 - p)) ** (1 / temperature)
    return odds / (1 + odds)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_every_level_of_every_method_stays_what_it_is(name: str, options: dict[str, Any]):
    prediction = said(name, **options)
    labels = paths(TREE, np.random.default_rng(2), 60)
    found = fit_calibration(prediction, labels, TREE)
    assert all(t != 1 for t in found.temperatures)
    for k, after in enumerate(p.exp() for p in found.apply(prediction).log_probs):
        before = prediction.probs(k)
        distribution = bool(((before.sum(dim=1) - 1).abs() < 1e-9).all())
        torch.testing.assert_close(after, naive(before, found.temperatures[k], distribution), rtol=1e-6, atol=1e-12)
        if distribution:
            torch.testing.assert_close(after.sum(dim=1), torch.ones(60, dtype=torch.float64), rtol=0, atol=1e-9)
        else:
            assert ((after > 0) & (after < 1)).all()
            assert (after.flatten()[before.flatten().argsort()].diff() >= 0).all()


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_temperature_of_one_changes_nothing(name: str, options: dict[str, Any]):
    prediction = said(name, **options)
    nothing = Calibration((1.0,) * len(TREE), (0,) * len(TREE), kinds_of(prediction))
    for before, after in zip(prediction.log_probs, nothing.apply(prediction).log_probs, strict=True):
        assert torch.equal(before, after)
    for before, kind in zip(prediction.log_probs, nothing.kinds, strict=True):  # nor does one beside it change much
        torch.testing.assert_close(scaled(before, 1 + 1e-9, kind), before, rtol=1e-6, atol=1e-6)


def test_a_method_may_have_levels_of_both_kinds():
    assert kinds_of(said("hrn")) == ("softmax", "sigmoid", "sigmoid")
    assert kinds_of(said("c-hmcnn")) == kinds_of(said("hmcn")) == ALL_SIGMOID
    assert kinds_of(said("hmcn", activation="softmax")) == kinds_of(said("lht")) == ("softmax",) * 3


def test_a_saturated_sigmoid_is_one_still():
    """Its rows sum to one on easy samples, which says nothing of others."""
    rows = torch.tensor([[20.0, -20.0], [-20.0, 20.0]] * 10)
    sure = torch.nn.functional.logsigmoid(rows)
    declared = Prediction((torch.log_softmax(rows, dim=1), sure), sigmoid=(1,))
    assert kinds_of(declared) == kinds_of(join([declared, declared])) == ("softmax", "sigmoid")
    tree, labels = Hierarchy.from_parents([[0, 1]]), torch.tensor([[0, 0], [1, 1]] * 10)
    doubtful = Prediction((torch.log_softmax(rows, dim=1), torch.full((20, 2), 0.3).log()), sigmoid=(1,))
    after = fit_calibration(declared, labels, tree).apply(doubtful).probs(1)
    assert (after < 0.5).all()  # neither class is likely, and this is not made to sum to one


def test_rows_that_do_not_sum_to_one_need_not_be_declared():
    prediction = dataclasses.replace(said("hrn"), sigmoid=())
    assert kinds_of(prediction) == ("softmax", "sigmoid", "sigmoid")


def test_a_calibration_with_one_kind_for_all_levels_answers_as_it_did():
    """Its thresholds were measured with these probabilities, so they stay, also where they do not sum to one."""
    prediction, temperatures = said("hrn"), (1.5, 0.7, 2.0)
    levels = [{"name": name, "temperature": t, "samples": 60} for name, t in zip(TREE.levels, temperatures, strict=True)][::-1]
    found = Calibration.from_dict({"source": "", "kind": "sigmoid", "levels": levels, "risk": {}})
    assert found.kinds == ALL_SIGMOID
    assert found == Calibration.from_dict(found.to_dict(TREE))
    for k, after in enumerate(found.apply(prediction).log_probs):
        torch.testing.assert_close(after.exp(), naive(prediction.probs(k), temperatures[k], False), rtol=1e-6, atol=1e-12)
