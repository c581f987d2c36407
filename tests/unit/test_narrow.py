"""Training on principal components, transitions that learn late, and the recipe that asks for both."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from torchlht import Hierarchy, create_method, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.data.batches import FeatureSet
from torchlht.heads.transition.core import SoftenedTransition, propagate
from torchlht.learn import fitting
from torchlht.learn.alone import Alone
from torchlht.learn.fitting import Sets, fit
from torchlht.learn.narrow import Narrow, leading, narrow_for
from torchlht.learn.options import TrainArgs

TREE = Hierarchy.from_parents([[0, 0, 1, 1, 2, 2], [0, 0, 1]])


def samples(count: int = 200, width: int = 24) -> FeatureSet:
    """Features with a few strong directions, and labels that depend on them."""
    rng = np.random.default_rng(0)
    inner = rng.normal(size=(count, 6))
    x = inner @ rng.normal(size=(6, width)) + 0.1 * rng.normal(size=(count, width)) + 3
    fine = torch.from_numpy(inner.argmax(axis=1))
    labels = torch.stack([fine, torch.from_numpy(TREE.ancestors(1))[fine], torch.from_numpy(TREE.ancestors(2))[fine]], dim=1)
    return FeatureSet(torch.from_numpy(x).float(), labels)


def test_a_layer_on_components_is_written_back_as_the_same_layer_on_features() -> None:
    data, method = samples(), create_method("lht", 24, TREE, width=12).eval()
    names = {name: value.shape for name, value in method.state_dict().items()}
    narrow = narrow_for(method, data, 6)
    assert narrow is not None
    narrow.enter(method)
    coordinates = narrow.coordinates(data)
    inside = method(coordinates.x).log_probs
    outside = narrow.left(method)(data.x).log_probs
    narrow.leave(method)
    for a, b, c in zip(inside, outside, method(data.x).log_probs, strict=True):
        torch.testing.assert_close(b, a, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(c, b)
    assert {name: value.shape for name, value in method.state_dict().items()} == names


def test_directions_are_the_leading_ones_and_coordinates_vary_around_one() -> None:
    data = samples()
    coordinates = Narrow.of(data.moments, 6).coordinates(data).x
    torch.testing.assert_close(coordinates.mean(dim=0), torch.zeros(6), atol=1e-4, rtol=0)
    torch.testing.assert_close(coordinates.square().mean(), torch.ones(()), atol=1e-3, rtol=0)
    standard = (data.x - data.x.mean(dim=0)) / data.x.std(dim=0, correction=0)
    best = torch.linalg.svd(standard.double())[2][:6].T
    span = torch.linalg.qr(Narrow.of(data.moments, 6).directions.double()).Q
    torch.testing.assert_close(span @ span.T, best @ best.T, atol=1e-3, rtol=0)


@pytest.mark.parametrize(("count", "options"), [(0, {}), (24, {}), (6, {"input_dropout": 0.5})])
def test_features_that_are_not_wider_or_are_dropped_are_trained_as_they_are(count: int, options: dict[str, float]) -> None:
    assert narrow_for(create_method("marginal", 24, TREE, width=12, **options), samples(), count) is None


def test_training_on_components_learns_and_leaves_a_model_of_features() -> None:
    data = samples()
    torch.manual_seed(0)
    model = Model(
        create_backbone("none", in_features=24), create_method("lht", 24, TREE, width=12), options={}, preprocess=None
    )
    args = TrainArgs("x", quiet=True, track=False, schedule="step", components=6, epochs=30, batch_size=50, lr=0.1)
    fit(Alone(), args.recipe(features=True, samples=200), None, model, Sets(model, data, None, data, 0), None)
    assert model.method.in_features == 24
    assert not any(step.held for step in model.method.steps)
    right = (model.eval()(data.x).chosen() == data.labels).double().mean(dim=0)
    assert right.min() > 0.85


def test_the_softened_tree_against_its_matrix_in_float64() -> None:
    parents, gamma = torch.tensor([0, 0, 1, 2, 2]), torch.tensor(2.5, dtype=torch.float64, requires_grad=True)
    log_p = torch.log_softmax(torch.randn(4, 5, dtype=torch.float64), dim=1)
    matrix = torch.zeros(3, 5, dtype=torch.float64)
    matrix[parents, torch.arange(5)] = 1
    log_t = torch.log_softmax(gamma * matrix, dim=0)
    start = torch.log_softmax(6.0 * matrix, dim=0)
    found = SoftenedTransition(parents, 3, gamma)
    torch.testing.assert_close(found.log_matrix()[0], log_t)
    torch.testing.assert_close(found.propagate(log_p), propagate(log_p, log_t.unsqueeze(0)))
    torch.testing.assert_close(found.drift(6.0), (start.exp() * (start - log_t)).sum(dim=0).mean())


def test_transitions_learn_late_and_their_weights_rest_before() -> None:
    method, data = create_method("lht", 24, TREE, width=12), samples()
    method.reached(0.0)
    method.loss(method(data.x), data.labels).backward()
    for step in method.steps:
        assert isinstance(step(torch.zeros(2, 12)), SoftenedTransition)
        assert step.left.weight.grad is None
        assert step.gamma.grad != 0
    resting = {id(p) for step in method.steps for name, p in step.named_parameters() if name != "gamma"}
    assert {id(p) for p in method.idle()} == resting
    twin = copy.deepcopy(method)
    twin.reached(1.0)
    assert not isinstance(twin.steps[0](torch.zeros(2, 12)), SoftenedTransition)
    free = create_method("lht", 24, TREE, width=12, gamma=1.0)  # a weak prior is meant to be left
    free.reached(0.0)
    assert not free.steps[0].held
    assert not twin.idle()


def test_the_quick_recipe_is_for_wide_features_of_many_samples() -> None:
    wide, few, semi, usual = (
        args.recipe(features=True, samples=count, width=1280)
        for args, count in (
            (TrainArgs("x", schedule="step"), 5994),
            (TrainArgs("x", schedule="step"), 2000),
            (TrainArgs("x", schedule="step", semi="both"), 5994),
            (TrainArgs("x"), 5994),
        )
    )
    assert (wide.components, wide.batch_size, wide.lr, wide.epochs) == (384, 384, 0.3, 6)
    for recipe in (few, semi, usual):
        assert (recipe.components, recipe.shortcut, recipe.batch_size, recipe.lr) == (0, 0.0, 128, 0.05)
    many = (TrainArgs("x", semi=how).recipe(features=True, samples=10**4, classes=1000) for how in ("none", "both"))
    assert [wide.shortcut, *(recipe.shortcut for recipe in many)] == [0.1, 0.1, 0.0]
    assert (wide.schedule, usual.schedule, wide.guess, usual.guess) == ("step", "epoch", True, False)


def test_what_was_asked_for_is_not_made_quicker() -> None:
    assert TrainArgs("x").quickened(5994, 1280).schedule == "step"
    for asked, samples_, width in (
        (TrainArgs("x", epochs=5), 5994, 1280),
        (TrainArgs("x", lr=0.1), 5994, 1280),
        (TrainArgs("x", semi="both"), 5994, 1280),
        (TrainArgs("x"), 2000, 1280),
        (TrainArgs("x"), 5994, 256),
    ):
        assert asked.quickened(samples_, width) is asked


@pytest.mark.parametrize(("where", "every"), [("keep_epoch", None), ("keep_step", 2)])
def test_a_killed_run_on_components_ends_with_the_same_weights(
    where: str, every: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = samples()
    np.savez(tmp_path / "x.npz", x=data.x.numpy(), y=data.labels.numpy(), train=np.arange(len(data)) % 5 > 0)
    how = {"schedule": "step", "components": 6, "epochs": 3, "batch_size": 32, "quiet": True, "track": False, "select": "best"}
    whole = train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / "whole", **how))
    keep, kept = getattr(fitting, where), []

    def killed(*now: Any) -> None:
        keep(*now)
        kept.append(1)
        if len(kept) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(fitting, where, killed)
        with pytest.raises(KeyboardInterrupt):
            train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / "cut", checkpoint_every=every, **how))
    again = train(TrainArgs(resume=tmp_path / "cut", quiet=True))
    a, b = (load_file(run / "model.safetensors") for run in (whole, again))
    assert a["method.neck.layers.1.weight"].shape[1] == 24
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_leading_directions_hold_nearly_as_much_as_the_best() -> None:
    spread = 1 / torch.arange(1, 401)
    basis = torch.linalg.qr(torch.randn(400, 400, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q.float()
    products = basis @ torch.diag(spread) @ basis.T
    found, directions = leading(products, 80)
    torch.testing.assert_close(directions.T @ directions, torch.eye(80), atol=1e-4, rtol=0)
    torch.testing.assert_close((directions.T @ products @ directions).diagonal(), found, atol=1e-4, rtol=0)
    assert 0.98 * spread[:80].sum() < found.sum() <= 1.0001 * spread[:80].sum()
    exact, _ = leading(products, 300)
    torch.testing.assert_close(exact.flip(0), spread[:300], atol=1e-4, rtol=0)
