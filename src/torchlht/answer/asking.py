"""The loop over samples, batch by batch. All inference goes through here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from torchlht.data.batches import FeatureSet, ImageSet, SampleSet, load
from torchlht.errors import ConfigError, DataError, DivergedError
from torchlht.heads.prediction import Prediction

BATCH, PICTURES = 256, 32  # samples at a time; pictures on a CPU, where larger batches are slower and take gigabytes
T = TypeVar("T")


def over(
    network: nn.Module | None,
    data: SampleSet | Tensor,
    question: Callable[[Tensor], T],
    *,
    samples: Sequence[int] | None = None,
    batches: Sequence[Sequence[int]] | None = None,
    batch_size: int | None = None,
    workers: int = 0,
) -> Iterator[tuple[Sequence[int], T, Tensor]]:
    """Run a function on samples, batch by batch; yields their positions, the results, and their labels.

    The network runs in evaluation mode, without gradients and on its own device. Afterwards its mode is restored.

    Args:
        network: the network to run; None if it is not a torch module.
        data: pictures or features, or a tensor of inputs with all labels unknown.
        question: maps a batch of inputs to the results.
        samples: positions of the samples; all by default.
        batches: the positions as batches, instead; may be empty.
        batch_size: samples per batch; see `usual_batch`.
        workers: how many processes decode pictures.

    Raises:
        DataError: when there are no samples.
        DivergedError: when a probability is not a number.
    """
    data = as_set(data)
    if batches is None:
        batches = in_batches(range(len(data)) if samples is None else samples, batch_size or usual_batch(network, data))
        if not batches:
            raise DataError("no samples to look at")
    device = device_of(network)
    with evaluating(network):
        for rows, (x, labels) in zip(batches, load(data, batches, workers), strict=True):
            if not len(x):
                continue  # none of them could be read
            with torch.no_grad():  # not around the loop: it would also affect the caller
                said = question(x.to(device))
            if isinstance(said, Prediction):
                check_numbers(said)
            yield rows, said, labels.to(device)


def ask(network: nn.Module, data: SampleSet | Tensor, **how: Any) -> Iterator[tuple[Prediction, Tensor]]:
    """Predictions for samples, batch by batch, and their labels; `how` as in `over`.

    A model takes pictures, or features of its backbone, which go directly to its method.
    """
    features = isinstance(data, FeatureSet | Tensor)
    part = network.part_for(features=features) if isinstance(network, Divided) else network
    for _, said, labels in over(network, data, part, **how):
        yield said, labels


@runtime_checkable
class Divided(Protocol):
    """A network whose parts take different kinds of samples."""

    def part_for(self, *, features: bool) -> nn.Module:
        """The part that takes features, or pictures."""
        ...


def check_numbers(prediction: Prediction) -> None:
    """Raise DivergedError if a probability is NaN: it would spoil counts, figures and files further on."""
    if any(bool(log_p.isnan().any()) for log_p in prediction.log_probs):
        raise DivergedError(
            "the model gives probabilities that are not numbers: its weights, or the features it gets, are damaged or too "
            "large; train it again with a lower `lr`, or check the features"
        )


def as_set(data: SampleSet | Tensor) -> SampleSet:
    """A batch of inputs as a set of samples with all labels unknown; a set is returned as it is."""
    return FeatureSet(data, torch.full((len(data), 1), -1)) if isinstance(data, Tensor) else data


def usual_batch(network: nn.Module | None, data: SampleSet) -> int:
    """How many samples to run a network on at a time."""
    return PICTURES if isinstance(data, ImageSet) and device_of(network).type == "cpu" else BATCH


def in_batches(samples: Sequence[int], batch_size: int) -> list[list[int]]:
    """Samples in batches, in order."""
    return [list(samples[i : i + batch_size]) for i in range(0, len(samples), batch_size)]


@contextmanager
def evaluating(network: nn.Module | None) -> Iterator[None]:
    """Context: a network is in evaluation mode."""
    was_training = network is not None and network.training
    try:
        if network is not None:
            network.eval()
        yield
    finally:
        if network is not None:
            network.train(was_training)


def device_of(network: nn.Module | None) -> torch.device:
    """The device of a network's parameters; the CPU if it has none."""
    numbers = () if network is None else (*network.parameters(), *network.buffers())
    return next((number.device for number in numbers), torch.device("cpu"))


def find_device(name: str | torch.device) -> torch.device:
    """A device by name: cpu, cuda, cuda:1, mps; or auto, which takes a GPU if there is one.

    Raises:
        ConfigError: when the name is unknown or the device is not available.
    """
    if isinstance(name, torch.device):
        return name
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(kind for kind, here in found.items() if here) if name in ("auto", "gpu") else name
    if not found.get(kind.partition(":")[0], False):
        here = ", ".join(kind for kind, there in found.items() if there)
        raise ConfigError(f"`accelerator` is {name!r}, which is not available here; pass auto, {here}")
    return torch.device(kind)


def ask_all(network: nn.Module, data: SampleSet, *, workers: int = 0) -> tuple[Prediction, Tensor]:
    """Predictions for all samples at once, and their labels; on the CPU, without transitions."""
    parts = [(said, labels.cpu()) for said, labels in ask(network, data, workers=workers)]
    return join([said for said, _ in parts]), torch.cat([labels for _, labels in parts])


def join(parts: Sequence[Prediction]) -> Prediction:
    """Join the predictions of several batches, without transitions and scores."""
    levels = tuple(torch.cat([p.log_probs[k].cpu() for p in parts]) for k in range(len(parts[0].log_probs)))
    choices = [p.choice.cpu() for p in parts if p.choice is not None]
    return Prediction(levels, choice=torch.cat(choices) if choices else None, sigmoid=parts[0].sigmoid)
