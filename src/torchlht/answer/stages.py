"""Networks in stages: one after the other they do what the network does, so that it can be entered after the first ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from torchlht.errors import BackboneError

UNROLLED = ("blocks", "stages", "layers")  # what timm calls a list of stages


Run = Callable[[Tensor], Tensor]


class Stage(NamedTuple):
    """Modules, and what they do together."""

    modules: Sequence[nn.Module]
    run: Run


@runtime_checkable
class Staged(Protocol):
    """A network that knows its stages."""

    def in_stages(self) -> list[Stage]:
        """Its stages; the last one ends with what the network gives."""
        ...


@runtime_checkable
class Unpoolable(Protocol):
    """A network of ours that can leave out its last step, the mean over space."""

    def unpool(self) -> None:
        """Give maps from now on."""
        ...


def stages_of(network: nn.Module) -> list[Stage]:
    """The stages of a network, the last of which gives features. `check_stages` says whether that is right."""
    if isinstance(network, Staged):
        return network.in_stages()
    stages: list[Stage] = []
    ahead: list[nn.Module] = []
    for module in _unrolled(network):
        ahead.append(module)
        if any(True for inner in module.children() for _ in inner.parameters()):  # it is made of layers
            stages.append(Stage(ahead, one_after_the_other(ahead)))
            ahead = []
    return [*stages, Stage(ahead, one_after_the_other(ahead))]


def _unrolled(network: nn.Module) -> list[nn.Module]:
    lists = {name: list(child.children()) for name, child in network.named_children() if name in UNROLLED}
    return [one for name, child in network.named_children() for one in lists.get(name, [child])]


def one_after_the_other(layers: Sequence[Run]) -> Run:
    """Layers as one: each takes what the one before gives."""

    def run(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    return run


def run_stages(stages: Sequence[Stage], x: Tensor) -> Tensor:
    """What some stages make of pictures, or of the maps of those before."""
    return one_after_the_other([stage.run for stage in stages])(x)


@torch.no_grad()
def check_stages(network: nn.Module, name: str, size: int, first: int) -> None:
    """Check that a network can be entered after its first stages.

    Args:
        network: the network, in evaluation mode.
        name: its name.
        size: side of its pictures.
        first: how many stages come before.

    Raises:
        BackboneError: if it has too few stages, or is no chain of stages.
    """
    stages, x = stages_of(network), torch.linspace(-1, 1, 3 * size * size).view(1, 3, size, size)
    if first >= len(stages):
        raise BackboneError(f"`freeze_stages` is {first}, but {name} has {len(stages)}, of which the last must train")
    try:
        same = torch.equal(run_stages(stages, x), network(x))
    except (RuntimeError, TypeError, ValueError, IndexError):  # what layers say of an input that they do not take
        same = False
    if not same:
        raise BackboneError(f"`freeze_stages`: {name} is no chain of stages; use `freeze`, or another `backbone`")
