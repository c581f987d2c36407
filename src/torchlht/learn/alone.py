"""One process on one device: the part of Lightning Fabric that training uses, without what Fabric imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")


def has_bfloat16() -> bool:
    """Whether the processor itself multiplies in bfloat16; otherwise it is slower than float32."""
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


class Alone:
    """What Fabric does for several processes, other precisions or sharded weights, where there is nothing to do.

    Args:
        device: where to compute.
        mixed: whether steps multiply matrices in bfloat16, as Fabric's `bf16-mixed`.
    """

    world_size, global_rank, is_global_zero = 1, 0, True

    def __init__(self, device: torch.device | str = "cpu", *, mixed: bool = False) -> None:
        self.device, self.mixed = torch.device(device), mixed

    def setup(self, module: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
        """Both, with the module on the device."""
        if self.mixed:
            module.forward = torch.autocast(self.device.type, torch.bfloat16)(module.forward)
        return module.to(self.device), optimizer

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_gradients(
        self, module: nn.Module, optimizer: Optimizer, *, max_norm: float, error_if_nonfinite: bool = True
    ) -> Tensor:
        """Scale all gradients so that their norm is at most `max_norm`; returns the norm before."""
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]  # in Fabric's order, to the bit
        return nn.utils.clip_grad_norm_(weights, max_norm, error_if_nonfinite=error_if_nonfinite)

    @contextmanager
    def no_backward_sync(self, module: nn.Module, enabled: bool = True) -> Iterator[None]:
        """Context: gradients stay here. They always do."""
        yield

    @contextmanager
    def rank_zero_first(self) -> Iterator[None]:
        """Context: this process goes first."""
        yield

    def all_reduce(self, values: T, reduce_op: str = "mean") -> T:
        """The values of all processes together."""
        return values

    def broadcast(self, value: T) -> T:
        """The value of the first process."""
        return value

    def barrier(self) -> None:
        """Wait for all processes."""


Machine: TypeAlias = "Fabric | Alone"
