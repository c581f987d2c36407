"""A model's predictions for samples, in one pass: the material of all sections of a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht import console
from torchlht.answer.asking import ask, device_of, find_device
from torchlht.answer.calibration import confidences
from torchlht.answer.finding import check_folder
from torchlht.answer.model import Model
from torchlht.answer.novelty import ALARMS
from torchlht.answer.records import read_metrics, read_options
from torchlht.data.batches import FeatureSet, SampleSet
from torchlht.data.samples import Samples
from torchlht.errors import ConfigError
from torchlht.heads.prediction import Prediction, monotone
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.options import TrainArgs
from torchlht.measure.evaluation import features_of, run_inputs
from torchlht.measure.metrics import HierarchyMetrics
from torchlht.measure.operating import Decisions
from torchlht.show.look import Floats, Ints

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Seen:
    """A run, the samples of one split, and its predictions for them. Arrays are (n, K), fine first.

    Attributes:
        name: the run's name in tables and figures.
        run: its directory.
        model: its model.
        args: the options it was trained with.
        record: its metrics.json.
        samples: the samples.
        split: which part of its data they are.
        data: their features, also if they are pictures.
        labels: true classes, -1 where unknown.
        chosen: the answers.
        raw: their uncalibrated probabilities, which fall from coarse to fine as the calibrated ones do.
        confidence: their calibrated probabilities; equal to `raw` without a calibration.
        truth: (n,) calibrated probability of the true finest class; NaN where it is unknown.
        metrics: metrics of the method's own answers, in the layout of metrics.json; under "consistent", of those above.
        transitions: whether the method has transitions from fine to coarse.
        unlike: whether a sample is unlike any class of a level; None if the run cannot tell.
    """

    name: str
    run: Path
    model: Model
    args: TrainArgs
    record: dict[str, Any]
    samples: Samples
    split: str
    data: FeatureSet
    labels: Ints
    chosen: Ints
    raw: Floats
    confidence: Floats
    truth: Floats
    metrics: dict[str, Any]
    transitions: bool
    unlike: Bools | None = None

    @property
    def tree(self) -> Hierarchy:
        """The tree of classes."""
        return self.model.hierarchy

    @property
    def calibrated(self) -> bool:
        """Whether the run has a calibration."""
        return self.model.calibration is not None

    @property
    def real(self) -> Ints:
        """(n, K) true classes, -1 where unknown, and where the branch of the tree has no class."""
        return self.tree.only_real(self.labels)

    @property
    def known(self) -> Bools:
        """(n, K) whether a sample has a class there that is known."""
        return np.asarray(self.real >= 0)

    @property
    def right(self) -> Bools:
        """(n, K) whether the answer is the label; False where it is unknown."""
        return np.asarray(self.chosen == self.labels)

    @property
    def decisions(self) -> Decisions:
        """Answers and their calibrated probabilities."""
        return Decisions(*map(torch.from_numpy, (self.chosen, self.confidence, self.labels)))


def see(
    run: str | Path,
    *,
    split: str = "test",
    name: str = "",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Seen:
    """Run a model over its samples of a split, once.

    Args:
        run: a finished run directory.
        split: which part of its data.
        name: its name; that of the directory by default.
        workers: how many processes decode pictures.
        device: where to compute: cpu, cuda, mps, or auto.

    Raises:
        RunError: when there is no such run, or it has not finished.
        DataError: when there are no samples.
    """
    check_folder(run)
    record = read_metrics(Path(run))
    args, found = read_options(Path(run), TrainArgs), run_inputs(run, split)
    model, data = found.model.to(find_device(device)), as_features(found.model, found.data, workers)
    return Seen(name or Path(run).name, Path(run), model, args, record, found.samples, split, data, **_pass(model, data))


def as_features(model: Model, data: SampleSet, workers: int = 0) -> FeatureSet:
    """The backbone's features of pictures, so that it runs only once; features are returned as they are."""
    if isinstance(data, FeatureSet):
        return data
    with console.counting("pictures", len(data), quiet=not console.notes.is_terminal) as count:
        features = features_of(model.backbone, data, workers=workers, progress=count)
    return FeatureSet(torch.from_numpy(features), data.labels)


def _pass(model: Model, data: FeatureSet) -> dict[str, Any]:
    """The fields of `Seen` that come from running the model."""
    (own, shown), transitions = (HierarchyMetrics(model.hierarchy).to(device_of(model)) for _ in range(2)), False
    found: dict[str, list[Tensor]] = {name: [] for name in ("chosen", "raw", "confidence", "truth")}
    unlike: list[Tensor] = []
    for prediction, labels in ask(model, data):
        sure = model.decided(prediction)
        own.update(prediction, labels)
        shown.update(sure, labels)
        raw = monotone(dataclasses.replace(prediction, choice=sure.chosen()), model.hierarchy)
        values = (sure.chosen(), confidences(raw), confidences(sure), _of(sure, labels))
        for name, value in zip(found, values, strict=True):
            found[name].append(value.cpu())
        transitions = bool(prediction.transitions)
        if model.novelty is not None:
            x = data.x[sum(map(len, unlike)) :][: len(labels)].to(labels.device)
            features = x if model.preprocess is not None else model.backbone(x).detach()
            unlike.append(model.novelty.as_far(model.novelty.seen(prediction, model.method.pool(features))) < ALARMS)
    arrays = {name: torch.cat(parts) for name, parts in found.items()}
    return {
        "labels": data.labels.numpy(),
        "chosen": arrays.pop("chosen").numpy(),
        **{name: value.double().numpy() for name, value in arrays.items()},
        "metrics": {**own.compute(), "consistent": {"rule": model.rule, **shown.compute()}},
        "transitions": transitions,
        "unlike": torch.cat(unlike).numpy() if unlike else None,
    }


def _of(prediction: Prediction, labels: Tensor) -> Tensor:
    """(B,) the probability of the true finest class; NaN where it is unknown."""
    truth = labels[:, 0]
    picked = prediction.log_probs[0].gather(1, truth.clamp(min=0).unsqueeze(1)).squeeze(1).exp()
    return torch.where(truth >= 0, picked, torch.nan)


def see_all(
    run: str | Path,
    compare: Sequence[str | Path],
    *,
    split: str,
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> list[Seen]:
    """A run and those to compare it with, which must have its tree.

    Raises:
        ConfigError: when a run has another tree, or is named twice.
    """
    runs = [Path(run), *map(Path, compare)]
    if len({one.resolve() for one in runs}) < len(runs):
        raise ConfigError("`compare` names a run twice: pass each run once, without the one the page is about")
    found: list[Seen] = []
    for path, name in zip(runs, distinct_names(runs), strict=True):
        one = see(path, split=split, name=name, workers=workers, device=device)
        if found and one.tree != found[0].tree:
            raise ConfigError(
                f"{path}: its tree ({one.tree.describe()}) differs from that of {runs[0]} ({found[0].tree.describe()}): "
                "`compare` takes runs with the same levels, classes and parents"
            )
        found.append(one)
    return found


def distinct_names(runs: Sequence[Path]) -> list[str]:
    """The names of directories, with enough of the path to tell them apart."""
    paths = [path.resolve().parts[1:] for path in runs]
    for length in range(1, max(map(len, paths)) + 1):
        names = ["/".join(parts[-length:]) for parts in paths]
        if len(set(names)) == len(names):
            break
    return names
