"""`Metric`: counts batch by batch, over all processes.

It has the methods of torchmetrics.Metric that are used here, and one of those works in its place. torchmetrics takes three
seconds to import, as it brings torchvision and torch's compiler with it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchlht.processes import objects_of_all, of_all

T = TypeVar("T")


class Metric(nn.Module):
    """Base of metrics: `update` adds a batch to their states, `compute` makes figures of the states of all processes.

    Attributes:
        update_called: whether anything was added.
        states: the names of its states.
    """

    def __init__(self) -> None:
        super().__init__()
        self.update_called = False
        self.states: list[str] = []

    def __init_subclass__(cls, **how: Any) -> None:
        """`update` notes that it was called; `compute` sees the states of all processes."""
        super().__init_subclass__(**how)
        if "update" in vars(cls):
            cls.update = _noted(cls.update)  # type: ignore[method-assign]
        if "compute" in vars(cls):
            cls.compute = _of_all(cls.compute)  # type: ignore[assignment, method-assign]

    def add_state(self, name: str, start: Tensor | list[Tensor]) -> None:
        """Declare a state: a tensor that is summed over processes, or a list of tensors that are put after each other."""
        self.states.append(name)
        if isinstance(start, Tensor):
            self.register_buffer(name, start, persistent=False)
        else:
            setattr(self, name, start)

    def update(self, *batch: Any) -> None:
        """Add a batch."""
        raise TypeError(f"{type(self).__name__} must define update(…)")

    def compute(self) -> Tensor:
        """The figures so far; every process has to ask."""
        raise TypeError(f"{type(self).__name__} must define compute()")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context: states are those of all processes."""
        mine = {name: getattr(self, name) for name in self.states}
        for name, state in mine.items():
            setattr(self, name, _merged(state))
        try:
            yield
        finally:
            for name, state in mine.items():
                setattr(self, name, state)


def _merged(state: Tensor | list[Tensor]) -> Any:
    if isinstance(state, Tensor):
        return sum(of_all(state, state.device))
    return [one for some in objects_of_all(state) for one in some]


def _noted(update: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(update)
    def call(self: Metric, *batch: Any, **named: Any) -> None:
        self.update_called = True
        with torch.no_grad():
            update(self, *batch, **named)

    return call


def _of_all(compute: Callable[[Any], T]) -> Callable[[Any], T]:
    @functools.wraps(compute)
    def call(self: Metric) -> T:
        with self.together():
            return compute(self)

    return call
