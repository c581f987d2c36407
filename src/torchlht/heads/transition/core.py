"""What a transition is, numerics that all of them share, and the two simplest ones."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlht.processes import shared_mean
from torchlht.vocabulary import Confusion

TILE = 2**20  # entries that are worked on at a time: 4 MB, which a core's cache nearly holds

# ---- numerics ------------------------------------------------------------------------------------------------------


def widened(x: Tensor) -> Tensor:
    """Half-precision numbers as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A block in which autocast leaves precision alone."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def propagate(log_p: Tensor, log_t: Tensor) -> Tensor:
    """log(T p) from log T and log p, without ever leaving log space.

    Args:
        log_p: (B, C_{k-1})
        log_t: (B, C_k, C_{k-1}), or (1, C_k, C_{k-1}) when all samples share it
    """
    return torch.logsumexp(log_t + log_p.unsqueeze(1), dim=2)  # (B, C_k)


def sum_children(log_p: Tensor, parents: Tensor, size: int) -> Tensor:
    """log(S p): the log of the sum of the children's probabilities, for each of `size` parents. Linear in the classes.

    Args:
        log_p: (B, C_{k-1})
        parents: (C_{k-1},) parent of each child
    """
    index = parents.expand_as(log_p)
    shape = (log_p.shape[0], size)
    floor = torch.finfo(log_p.dtype).min
    peak = log_p.new_full(shape, floor).scatter_reduce(1, index, log_p.detach(), "amax")
    total = log_p.new_zeros(shape).scatter_add(1, index, torch.exp(log_p - peak.gather(1, index)))
    return peak + torch.log(total)  # (B, C_k)


# ---- confusion: what keeps columns from collapsing -----------------------------------------------------------------


def negative_entropy(log_t: Tensor) -> Tensor:
    """Mean over samples and columns of Σ_i T_ij log T_ij, in [-log C_k, 0]: low when columns are spread out."""
    return shared_mean((log_t.exp() * log_t).sum(dim=1))


def kl_from_uniform(log_t: Tensor) -> Tensor:
    """Mean over samples and columns of KL(uniform ‖ T_·j): label smoothing on the transition; unbounded above."""
    rows = log_t.shape[1]
    return -shared_mean(log_t.mean(dim=1)) - torch.log(torch.tensor(rows, dtype=log_t.dtype, device=log_t.device))


CONFUSION = {"entropy": negative_entropy, "kl": kl_from_uniform}


# ---- one batch's transition ----------------------------------------------------------------------------------------


class Transition(ABC):
    """The matrices of one batch between two adjacent levels. They are materialised only when asked for."""

    @abstractmethod
    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k), from log p at this one, (B, C_{k-1})."""

    @abstractmethod
    def log_matrix(self) -> Tensor:
        """log T: (B, C_k, C_{k-1}), or (1, C_k, C_{k-1}) when all samples share it."""

    def confusion(self, kind: Confusion) -> Tensor:
        """The mean over samples and columns of the negative entropy, or of the divergence from uniform."""
        return CONFUSION[kind](self.log_matrix())


@dataclass(frozen=True)
class DenseTransition(Transition):
    """A transition held as its log matrix."""

    log_t: Tensor

    def propagate(self, log_p: Tensor) -> Tensor:
        """See `Transition.propagate`."""
        return propagate(log_p, self.log_t)

    def log_matrix(self) -> Tensor:
        """See `Transition.log_matrix`."""
        return self.log_t


@dataclass(frozen=True)
class TreeTransition(Transition):
    """T = S: every class goes to its parent, with certainty. Held as indices."""

    parents: Tensor  # (C_{k-1},)
    size: int

    def propagate(self, log_p: Tensor) -> Tensor:
        """See `Transition.propagate`."""
        return sum_children(log_p, self.parents, self.size)

    def log_matrix(self) -> Tensor:
        """See `Transition.log_matrix`; -inf where a class is not the parent."""
        matrix = torch.full((1, self.size, len(self.parents)), -torch.inf, device=self.parents.device)
        matrix[0, self.parents, torch.arange(len(self.parents), device=self.parents.device)] = 0
        return matrix
