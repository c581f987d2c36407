"""Training on arrays in memory, without a run directory: what the scikit-learn estimator does."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht.answer.asking import ask_all
from torchlht.answer.calibration import fit_calibration
from torchlht.answer.model import History, Model, Run
from torchlht.data.batches import FeatureSet, load
from torchlht.data.distinct import Floats, distinct
from torchlht.data.samples import Ints, Samples, choose_share, lasting_name, with_split
from torchlht.data.sources.embeddings import write_embeddings
from torchlht.errors import DataError
from torchlht.files import claimed, write_json
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.alone import Alone, has_bfloat16
from torchlht.learn.building import build, make_semi, taught_samples
from torchlht.learn.fitting import Progress, Sets, ask_for_opinion, fit, set_up, shorten, take_step, with_guesses
from torchlht.learn.options import Recipe, TrainArgs

SAMPLES = "samples.npz"  # the test samples, in a run directory


class Given(NamedTuple):
    """Distinct samples, and how often each counts; None if each counts once."""

    samples: Samples
    weights: Floats | None

    def part(self, index: Ints) -> FeatureSet:
        """Some of them, as the training loop takes them."""
        x, labels = self.samples.features, self.samples.labels
        assert x is not None
        if len(index) != len(x) or (index != np.arange(len(x))).any():  # else a copy would only take time
            x, labels = x[index], labels[index]
        weights = None if self.weights is None else self.weights[index]
        return FeatureSet(torch.from_numpy(x), torch.from_numpy(labels), weights)

    def shown(self) -> int:
        """How many samples an epoch shows."""
        index = self.samples.index("train")
        return len(index) if self.weights is None else max(round(self.weights[index].sum().item()), 1)


def given_samples(x: NDArray[np.float32], labels: Ints, tree: Hierarchy, weights: Floats | None = None) -> Given:
    """(N, d) features with (N, K) labels, in an order that depends on their content alone."""
    found = distinct(x, labels, weights)
    keys, split = tuple(map(str, found.keys.tolist())), np.full(len(found.rows), "train")
    return Given(Samples("y", tree, keys, labels[found.rows], split, features=x[found.rows]), found.weights)


def learn(args: TrainArgs, given: Given, machine: Alone, *, quick: bool = False) -> tuple[Model, History, Recipe]:
    """Build a model and train it; with `val`, set samples aside and calibrate it. The caller seeds torch.

    Args:
        args: the options.
        given: the samples.
        machine: where to compute.
        quick: whether to train by `schedule=step` where that is quick and the options leave it open.
    """
    if args.val:
        held = choose_share(given.samples, given.samples.index("train"), args.val, seed=args.seed, purpose="val")
        if not len(held):
            raise DataError("y: too few samples to set any aside for validation; pass a larger `val`, or 0")
        given = given._replace(samples=with_split(given.samples, held, "val"))
    samples = given.samples
    model = build(args, samples)
    model.method.heed(torch.from_numpy(samples.labels[samples.index("train")]))
    seen = given.shown(), model.method.in_features
    if quick and (quicker := args.quickened(*seen)) is not args:
        machine = Alone(machine.device, mixed=machine.device.type == "cpu" and has_bfloat16())
        args = dataclasses.replace(quicker, precision="bf16-mixed" if machine.mixed else quicker.precision)
    recipe = args.recipe(features=True, samples=seen[0], width=seen[1], classes=samples.hierarchy.sizes[0])
    taught = taught_samples(args, samples, model)
    semi, train = make_semi(args, recipe, samples, model, taught), given.part(taught)
    opinion = ask_for_opinion(recipe, model, train)
    sets = with_guesses(recipe, Sets(model, train, None, train, 0), opinion)
    history = fit(machine, recipe, None, model, sets, semi)
    shorten(recipe, model, train, opinion)
    if args.val:
        held_out = given._replace(weights=None).part(samples.index("val"))
        model.calibration = fit_calibration(*ask_all(model, held_out), samples.hierarchy, source="val part of its own data")
    return model.eval(), history, recipe


def untrained(args: TrainArgs, width: int, tree: Hierarchy) -> Model:
    """A model before its first step. The caller seeds torch."""
    nothing = given_samples(np.empty((0, width), np.float32), np.empty((0, len(tree)), np.int64), tree)
    return build(args, nothing.samples)


def go_over(
    model: Model, recipe: Recipe, given: Given, machine: Alone, state: dict[str, Any] | None
) -> tuple[float, dict[str, Any] | None]:
    """Take steps over samples once, at a constant learning rate; returns the mean loss and the optimizer's state.

    Args:
        model: the model, trained in place.
        recipe: how it is trained.
        given: the samples; those that its method cannot learn from are left out.
        machine: where to compute.
        state: what the call before returned; None at first.
    """
    learns = np.flatnonzero(model.method.learns_from(torch.from_numpy(given.samples.labels)).numpy())
    if not len(learns):
        return float("nan"), state
    train = given.part(learns)
    now = set_up(machine, recipe, None, model, Sets(model, train, None, train, 0), None)
    if state is not None:
        now.optimizer.load_state_dict(state)
    progress = Progress(torch.zeros((), device=machine.device), torch.zeros(len(model.hierarchy), 2, device=machine.device))
    batches = now.batches(0)
    stream = load(train, batches)
    now.step.train()
    for rows in batches:
        take_step(now, progress, [rows], stream)
    model.eval()
    return (progress.loss / len(batches)).item(), now.optimizer.state_dict()


def keep(
    path: Path,
    model: Model,
    args: TrainArgs,
    recipe: Recipe,
    history: History,
    test: tuple[NDArray[np.float32], Ints] | None,
    extra: dict[str, Any],
) -> Path:
    """Write a run directory as `lht train` does, without the training samples; returns its path.

    Args:
        path: the directory.
        model: the model.
        args: the options it was trained with.
        recipe: what they became.
        history: a row per epoch.
        test: features and labels of test samples to keep with it, or None.
        extra: more for config.yaml.
    """
    run = Run(path)
    with claimed(path):
        run.claim()
        count = 0 if test is None else len(test[0])
        write_json(run.split, {"kept": [], "train": [], "val": [], "test": list(range(count))}, indent=None)
        if test is not None:
            write_embeddings(path / SAMPLES, *test, model.hierarchy)
            args = dataclasses.replace(args, data=lasting_name(str(path / SAMPLES)))
        run.write_history(history)
        model.save(path, extra={"train": args.settled(recipe), **extra})
        selection = {"rule": "last", "epoch": len(history), "epochs": len(history)}
        seconds = sum(row.get("seconds", 0.0) for row in history)
        run.write_metrics({"selection": selection, "train_seconds": seconds, "parameters": model.method.parameter_count()})
    return path
