"""What figures are drawn from: a trained network, and samples that go through it batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchlht.answer.model import Model, read_config
from torchlht.data.batches import FeatureSet, SampleSet, load, sample_set
from torchlht.data.samples import Samples, check_images
from torchlht.errors import DataError
from torchlht.heads.method import Method
from torchlht.heads.prediction import Prediction
from torchlht.learn.options import TrainArgs
from torchlht.measure.evaluation import kept_features, run_samples, with_own_validation

Network = Model | Method


def run_inputs(run: str | Path, split: str = "test", *, pictures: bool = False) -> tuple[Model, SampleSet]:
    """The model of a run and its own samples of a split, with all their labels.

    Where the backbone was frozen and its features are still kept, these are given instead of pictures; every function of this
    package then asks the model's method alone, which is much faster.

    Args:
        run: a finished run directory.
        split: "train", "val", "test" or "all", as in `lht evaluate`.
        pictures: give pictures even so, as Grad-CAM needs them.
    """
    model, samples, args = read_run(run, split)
    features = None if pictures or not args.freeze else kept_features(samples, model)
    keep = part_of(samples, split)
    chosen = samples.select(keep)
    x = chosen.features if features is None else features[keep]
    return model, sample_set(x, chosen.images, chosen.labels, model.preprocess)


def read_run(run: str | Path, split: str) -> tuple[Model, Samples, TrainArgs]:
    """The model of a run, all its samples with a split marked, and its options."""
    model = Model.from_pretrained(run)
    args = TrainArgs.from_dict(read_config(Path(run))["train"])
    samples, _ = check_images(run_samples(Path(run), model, None), args.on_error)
    return model, with_own_validation(samples, Path(run)) if split == "val" else samples, args


def part_of(samples: Samples, split: str) -> NDArray[np.int64]:
    """Positions of the samples of a split, or all of them."""
    keep = np.arange(len(samples)) if split == "all" else samples.index(split)
    if not len(keep):
        raise DataError(f"{samples.name}: no samples in its {split} part; pass split train, val, test or all")
    return keep


def as_set(data: SampleSet | Tensor) -> SampleSet:
    """A batch of inputs without labels as a set of samples whose labels are all unknown; a set as it is."""
    return FeatureSet(data, torch.full((len(data), 1), -1)) if isinstance(data, Tensor) else data


def members(data: SampleSet, level: int, label: int) -> list[int]:
    """Positions of the samples of a class."""
    return torch.nonzero(data.labels[:, level] == label).flatten().tolist()


def predictions(
    network: Network,
    data: SampleSet | Tensor,
    *,
    samples: Sequence[int] | None = None,
    batch_size: int = 256,
    workers: int = 0,
) -> Iterator[tuple[Prediction, Tensor]]:
    """What a network says of samples, batch by batch, with their labels.

    Args:
        network: a model, or a method for features.
        data: pictures or features. Features that come from a model's backbone go to its method.
        samples: positions of those to ask about; all of them by default.
        batch_size: how many at a time.
        workers: processes that decode pictures.
    """
    data = as_set(data)
    asked = part_for(network, data)
    chosen = list(range(len(data))) if samples is None else list(samples)
    if not chosen:
        raise DataError("no samples to look at")
    batches = [chosen[i : i + batch_size] for i in range(0, len(chosen), batch_size)]
    device = device_of(network)
    was_training = asked.training
    asked.eval()
    try:
        for x, labels in load(data, batches, workers):
            with torch.no_grad():
                prediction: Prediction = asked(x.to(device))
            yield prediction, labels.to(device)
    finally:
        asked.train(was_training)


def part_for(network: Network, data: SampleSet) -> nn.Module:
    """The part of a network that these samples go into: the method alone where they are features of a backbone for pictures."""
    features = isinstance(data, FeatureSet) and data.x.dim() == 2
    return network.method if isinstance(network, Model) and features and network.preprocess is not None else network


def device_of(network: nn.Module) -> torch.device:
    """Where a network's numbers are."""
    return next((p.device for p in network.parameters()), torch.device("cpu"))
