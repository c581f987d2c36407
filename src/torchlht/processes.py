"""Several processes that train as one: counts and statistics over the samples of all of them.

DDP averages gradients over processes. A loss that is a sum over samples divided by a count is therefore divided, in each
process, by the count of all processes over their number: the average of these losses is what one process with all samples has.

    process 0:  S₀ / (N / 2)  ┐
                              ├─ mean ─►  (S₀ + S₁) / N,   N = N₀ + N₁
    process 1:  S₁ / (N / 2)  ┘

It holds inside of `together` only, where every process takes part; anywhere else a process counts for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor


class Tally:
    """Counts that the losses of a step divide by, when the step is made of several parts (`--accumulate`).

    A part has to know the counts of all parts, so they are added up before the first one. Losses ask for their counts in the
    same order every time.
    """

    def __init__(self) -> None:
        self._counts: list[Tensor] = []
        self._at, self._open = 0, True

    def begin(self) -> None:
        """The next part, or the first."""
        self._at = 0

    def close(self) -> None:
        """All parts are counted; from now on `ask` gives their sums, over all processes."""
        self._counts = [everywhere(count) for count in self._counts]
        self._open = False

    def ask(self, count: Tensor) -> Tensor:
        """The count over all parts; before `close`, this part's."""
        if self._open and self._at == len(self._counts):
            self._counts.append(torch.zeros_like(count))
        place = self._at % len(self._counts)  # a mixture of samples asks twice
        self._at += 1
        if self._open:
            self._counts[place] = self._counts[place] + count
            return count
        return self._counts[place]


T = TypeVar("T")
_sharing = False
_tally: Tally | None = None


@contextmanager
def together(tally: Tally | None = None) -> Iterator[None]:
    """Inside, losses and BatchNorm are those of the samples of all processes, each of which has to come here.

    Args:
        tally: what counts are added up in or taken from, when a step has several parts.
    """
    global _sharing, _tally
    before = _sharing, _tally
    _sharing, _tally = True, tally
    try:
        yield
    finally:
        _sharing, _tally = before


def world() -> int:
    """How many processes share what is computed here: 1 outside of `together`."""
    return dist.get_world_size() if _sharing and dist.is_available() and dist.is_initialized() else 1


def shared_count(count: Tensor, least: float = 1.0) -> Tensor:
    """What a sum over this process's samples is divided by, where one process alone would divide by `count`.

    Args:
        count: a number of samples, or the sum of their weights; without gradient.
        least: a lower bound on the count over all processes, so that nothing is divided by zero.
    """
    total = (_tally.ask(count) if _tally is not None else everywhere(count)).clamp(min=least)
    return total / world() if world() > 1 else total


def shared_mean(values: Tensor) -> Tensor:
    """Mean over (B, …) values, where B is the number of samples here; or one row that is the same in all processes."""
    if world() == 1 and _tally is None:
        return values.mean()
    each = values.flatten(1).mean(dim=1) if values.dim() > 1 else values
    return each.sum() / shared_count(torch.ones_like(each, dtype=torch.int64).sum())


def everywhere(value: Tensor) -> Tensor:
    """Sum over all processes, without gradient."""
    if world() == 1:
        return value
    total = value.detach().clone()
    dist.all_reduce(total)
    return total


def summed(value: Tensor) -> Tensor:
    """Sum over all processes, with gradient: what one process does to the sum concerns all."""
    found: Tensor = _Sum.apply(value)
    return found


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


def of_all(value: Tensor, device: torch.device) -> list[Tensor]:
    """The values of all processes, in their order; of this one alone when there is no other."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    found = [torch.empty_like(value, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(found, value.to(device))
    return [one.to(value.device) for one in found]


def objects_of_all(value: T) -> list[T]:
    """The same for anything that can be pickled: processes of one run trust each other."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found
