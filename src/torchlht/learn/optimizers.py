"""SGD and AdamW of torch that leave torch's compiler alone.

Theirs import the compiler at the first call, only to tell it that it need not look at them. That takes two seconds, as long as
training on a few thousand features. Here their methods are called as they are written, without that decorator.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

import torch
from torch.optim import Optimizer

O = TypeVar("O", bound=Optimizer)  # noqa: E741
DECORATED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def bare(kind: type[O]) -> type[O]:
    """An optimizer with the same steps, bit for bit."""
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in DECORATED}
    return type(kind.__name__, (kind,), methods | {"step": torch.no_grad()(inspect.unwrap(kind.step))})


SGD, AdamW = bare(torch.optim.SGD), bare(torch.optim.AdamW)
