"""Several processes that train as one: counts and statistics over the samples of all of them.

DDP averages gradients over processes. So a loss that is a sum over samples divided by a count is divided, in each
process, by the count of all processes over their number: the average of these losses equals that of a single process.

    process 0:  S₀ / (N / 2)  ┐
                              ├─ mean ─►  (S₀ + S₁) / N,   N = N₀ + N₁
    process 1:  S₁ / (N / 2)  ┘

This holds only inside `together`, where every process takes part; elsewhere each process counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor


class Tally:
    """Divisors of the losses of a step that has several parts (`--accumulate`).

    A part needs the counts of all parts, so they are added up before the first one. Losses ask for their counts in the
    same order every time.
    """

    def __init__(self) -> None:
        self._counts: list[Tensor] = []
        self._at, self._open = 0, True

    def begin(self) -> None:
        """Start the first or next part."""
        self._at = 0

    def close(self) -> None:
        """All parts are counted: from now on `ask` returns their sums over all processes."""
        self._counts = [everywhere(count) for count in self._counts]
        self._open = False

    def ask(self, count: Tensor) -> Tensor:
        """The count over all parts; before `close`, this part's."""
        if self._open and self._at == len(self._counts):
            self._counts.append(torch.zeros_like(count))
        place = self._at % len(self._counts)  # mixup asks twice
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
    """Context: losses and BatchNorm use the samples of all processes, each of which must enter.

    Args:
        tally: collects or returns the counts, if a step has several parts.
    """
    global _sharing, _tally
    before = _sharing, _tally
    _sharing, _tally = True, tally
    try:
        yield
    finally:
        _sharing, _tally = before


def is_first() -> bool:
    """Whether this is the first of several processes, or the only one."""
    return not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0


def world() -> int:
    """The number of processes that compute together: 1 outside `together`."""
    return dist.get_world_size() if _sharing and dist.is_available() and dist.is_initialized() else 1


def shared_count(count: Tensor, least: float = 1.0) -> Tensor:
    """The divisor for a sum over this process's samples, where a single process would divide by `count`.

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
    """Sum over all processes, with gradient, which all processes share."""
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
    """The values of all processes, in order; only this one's if there are no others."""
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
