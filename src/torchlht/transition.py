"""Transitions between adjacent levels: networks that make them, and what can be done with one.

    features u (B, d) ──► TransitionNetwork ──► Transition ──► log p at the next coarser level (B, C_k)
                                                   ▲
                             log p at this level (B, C_{k-1})

Tᵏ is column-stochastic: column j says where class j of level k-1 goes at level k. Everything is in log space and at least
float32, also under autocast: p underflows at a logit gap of 104, log p does not.

Reference: Label Hierarchy Transition, arXiv 2112.02353, section 3.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from torchlht.errors import ConfigError, suggestion
from torchlht.hierarchy import Hierarchy

# ---- numerics ------------------------------------------------------------------------------------------------------


def widened(x: Tensor) -> Tensor:
    """Half-precision numbers as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A block in which autocast leaves precision alone."""
    return torch.autocast(x.device.type, enabled=False)


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


# ---- one batch's transition ----------------------------------------------------------------------------------------


class Transition(ABC):
    """The matrices of one batch between two adjacent levels. They are materialised only when asked for."""

    @abstractmethod
    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k), from log p at this one, (B, C_{k-1})."""

    @abstractmethod
    def log_matrix(self) -> Tensor:
        """log T: (B, C_k, C_{k-1}), or (1, C_k, C_{k-1}) when all samples share it."""


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
class LowRankTransition(Transition):
    """T = column softmax of Q Lᵀ + γ S, held as its factors."""

    left: Tensor  # L, (B, columns, s)
    right: Tensor  # Q, (B, rows, s)
    gamma: Tensor
    tree: Tensor  # S, (rows, columns)

    def propagate(self, log_p: Tensor) -> Tensor:
        """See `Transition.propagate`."""
        if torch.compiler.is_compiling():  # torch.export cannot follow a step that looks at its numbers
            return propagate(log_p, self.log_matrix())
        with without_autocast(log_p):
            gamma, tree = self.gamma.to(self.left.dtype), self.tree.to(self.left.dtype)
            found: Tensor = LowRankStep.apply(self.left, self.right, gamma, tree, log_p)
            return found

    def log_matrix(self) -> Tensor:
        """See `Transition.log_matrix`."""
        with without_autocast(self.left):
            return torch.log_softmax(self.right @ self.left.mT + self.gamma * self.tree, dim=1)


class LowRankStep(torch.autograd.Function):
    """log(T p) of a low-rank transition in one pass, with one exponential per entry of T where plain log space has four.

    With E_ij = exp(A_ij - max_i A_ij), Z_j = Σ_i E_ij and q_j = p_j / Z_j, scaled so that its largest is 1:

        log pᵏ_i = log Σ_j E_ij q_j + scale
        h_i = g_i / Σ_j E_ij q_j,    dlog p_j = q_j Σ_i h_i E_ij,    dA_ij = E_ij (h_i q_j - dlog p_j / Z_j)

    All terms are positive, so nothing cancels. Where a sum underflows, which takes a gap of some 70 between logits, the batch
    is done in log space instead.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, gamma: Tensor, tree: Tensor, log_p: Tensor) -> Tensor:
        """(B, rows) from (B, columns)."""
        entries = torch.baddbmm(gamma * tree, right, left.mT)  # (B, rows, columns)
        entries.sub_(entries.amax(dim=1, keepdim=True)).exp_()
        column_sums = entries.sum(dim=1)  # (B, columns)
        log_q = log_p - column_sums.log()
        scale = log_q.amax(dim=1, keepdim=True)
        q = torch.exp(log_q - scale)
        sums = torch.bmm(q.unsqueeze(1), entries.mT).squeeze(1)  # (B, rows)
        ctx.log_space = bool((sums < torch.finfo(sums.dtype).tiny ** 0.8).any())
        if ctx.log_space:
            log_t = torch.log_softmax(torch.baddbmm(gamma * tree, right, left.mT), dim=1)
            result = propagate(log_p, log_t)
            shares = torch.exp(log_t + log_p.unsqueeze(1) - result.unsqueeze(2))  # of column j in row i
            ctx.save_for_backward(left, right, tree, shares, log_t.exp())
            return result
        ctx.save_for_backward(left, right, tree, entries, q, sums, column_sums)
        return sums.log() + scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both factors, γ and log p."""
        left, right, tree, *kept = ctx.saved_tensors
        with without_autocast(gradient):
            if ctx.log_space:
                shares, t = kept
                inner = gradient.unsqueeze(2) * shares
                of_log_p = inner.sum(dim=1)
                inner -= t * of_log_p.unsqueeze(1)
            else:
                entries, q, sums, column_sums = kept
                h = gradient / sums
                of_log_p = q * torch.bmm(h.unsqueeze(1), entries).squeeze(1)
                inner = torch.bmm(h.unsqueeze(2), q.unsqueeze(1))
                inner -= (of_log_p / column_sums).unsqueeze(1)
                inner *= entries
            of_left = torch.bmm(right.mT, inner).mT
            of_right = torch.bmm(left.mT.contiguous(), inner.mT).mT  # without the copy, many times slower
            of_gamma = (inner.sum(dim=0) * tree).sum()
            return of_left, of_right, of_gamma, None, of_log_p


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


# ---- the networks --------------------------------------------------------------------------------------------------


class TransitionNetwork(nn.Module):
    """Turns features into a `Transition` between two adjacent levels. The base class knows the tree.

    Args:
        in_features: width of the features.
        hierarchy: the tree.
        level: the finer of the two levels, 0 = finest.
        rank: rank s of `low_rank`; the others ignore it.
        gamma: initial weight γ of the prior S; see each network.
        bias: whether the linear layers have a bias.
        down: from coarse to fine instead: columns are coarse classes, rows finer ones, the prior is Sᵀ.
    """

    parents: Tensor

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        level: int,
        *,
        rank: int = 2,
        gamma: float = 6.0,
        bias: bool = True,
        down: bool = False,
    ) -> None:
        super().__init__()
        fine, coarse = hierarchy.sizes[level], hierarchy.sizes[level + 1]
        self.rows, self.columns, self.down = (fine, coarse, True) if down else (coarse, fine, False)
        self.register_buffer("parents", torch.from_numpy(hierarchy.parents[level].copy()), persistent=False)
        self.make(in_features, rank, gamma, bias)

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """Create the parameters, if there are any."""

    def prior(self, gamma: Tensor) -> Tensor:
        """γ S (or γ Sᵀ) as a dense matrix (rows, columns)."""
        children = torch.arange(len(self.parents), device=self.parents.device)
        places = (children, self.parents) if self.down else (self.parents, children)
        empty = torch.zeros(self.rows, self.columns, dtype=gamma.dtype, device=gamma.device)
        return empty.index_put(places, gamma.expand(len(children)))

    def scalars(self) -> dict[str, float]:
        """What is worth a curve in the training history."""
        return {}


class LowRank(TransitionNetwork):
    """A = Q Lᵀ + γ S, T = column softmax of A; Q (rows, s) and L (columns, s) are linear in the features.

    The paper adds a scalar β to all of A; a constant in every row of a column cancels in the softmax, its gradient is
    exactly zero, and it is left out here. With γ = 1 a column starts with only e/(e + C_k - 1) on the true parent (0.07
    for 38 families); the default 6 starts it at 0.92.
    """

    tree: Tensor

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """See `TransitionNetwork.make`."""
        if rank < 1:
            raise ConfigError(f"rank is {rank}: the low-rank transition needs at least 1")
        self.rank = rank
        self.left = nn.Linear(in_features, rank * self.columns, bias=bias)
        self.right = nn.Linear(in_features, rank * self.rows, bias=bias)
        self.gamma = nn.Parameter(torch.tensor(float(gamma)))
        self.register_buffer("tree", self.prior(torch.tensor(1.0)), persistent=False)

    def forward(self, features: Tensor) -> Transition:
        """(B, d) features to one matrix per sample."""
        left = widened(self.left(features)).view(-1, self.columns, self.rank)
        right = widened(self.right(features)).view(-1, self.rows, self.rank)
        return LowRankTransition(left, right, self.gamma, self.tree)

    def scalars(self) -> dict[str, float]:
        """γ, which grows when the data agree with the tree."""
        return {"gamma": self.gamma.item()}


class Full(TransitionNetwork):
    """A = reshape(W u + b): every entry free, no prior. Large: C_k · C_{k-1} outputs."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """See `TransitionNetwork.make`."""
        self.logits = nn.Linear(in_features, self.rows * self.columns, bias=bias)

    def forward(self, features: Tensor) -> Transition:
        """(B, d) features to one matrix per sample."""
        logits = widened(self.logits(features)).view(-1, self.rows, self.columns)
        return DenseTransition(torch.log_softmax(logits, dim=1))


class Static(TransitionNetwork):
    """T = column softmax of a free matrix that is the same for every sample; it starts at γ S."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """See `TransitionNetwork.make`."""
        self.logits = nn.Parameter(self.prior(torch.tensor(float(gamma))))

    def forward(self, features: Tensor) -> Transition:
        """One matrix for all samples; the features are not looked at."""
        return DenseTransition(torch.log_softmax(widened(self.logits), dim=0).unsqueeze(0))


class Fixed(TransitionNetwork):
    """T = S, nothing to learn: coarse probabilities are sums over children."""

    def make(self, in_features: int, rank: int, gamma: float, bias: bool) -> None:
        """See `TransitionNetwork.make`."""
        if self.down:
            raise ConfigError("the tree alone does not say how a coarse class divides; fixed goes from fine to coarse only")

    def forward(self, features: Tensor) -> Transition:
        """The tree; the features are not looked at."""
        return TreeTransition(self.parents, self.rows)


NETWORKS: dict[str, type[TransitionNetwork]] = {"low_rank": LowRank, "full": Full, "static": Static, "fixed": Fixed}


def create_transition(
    name: str,
    in_features: int,
    hierarchy: Hierarchy,
    level: int,
    *,
    rank: int = 2,
    gamma: float = 6.0,
    bias: bool = True,
    down: bool = False,
) -> TransitionNetwork:
    """A transition network by name: low_rank, full, static or fixed."""
    if name not in NETWORKS:
        raise ConfigError(f"unknown transition {name!r}: {suggestion(name, NETWORKS)}")
    return NETWORKS[name](in_features, hierarchy, level, rank=rank, gamma=gamma, bias=bias, down=down)
