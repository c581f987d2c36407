"""T = column softmax of Q Lᵀ + γ S, all entries at once: the fastest form for small trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchlht.transition.core import Transition, propagate, without_autocast


class Prior(NamedTuple):
    """Where S is 1, as pairs of a row and a column in the order of columns; S itself is never made.

    Attributes:
        rows: (E,)
        columns: (E,) ascending.
        starts: for each column the place of its first pair, and E.
    """

    rows: Tensor
    columns: Tensor
    starts: tuple[int, ...]

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, count: int) -> Prior:
        """From pairs in any order; `count` is the number of columns."""
        order = torch.argsort(columns, stable=True)
        starts = torch.searchsorted(columns[order].contiguous(), torch.arange(count + 1, device=columns.device))
        return cls(rows[order], columns[order], tuple(starts.tolist()))

    def flat(self, width: int) -> Tensor:
        """(E,) places in a matrix of so many columns, laid out row by row."""
        return self.rows * width + self.columns


@dataclass
class LowRankTransition(Transition):
    """Held as its factors."""

    left: Tensor  # L, (B, columns, s)
    right: Tensor  # Q, (B, rows, s)
    gamma: Tensor
    prior: Prior

    def propagate(self, log_p: Tensor) -> Tensor:
        """See `Transition.propagate`."""
        if torch.compiler.is_compiling():  # torch.export cannot follow a step that looks at its numbers
            return propagate(log_p, self.log_matrix())
        with without_autocast(log_p):
            flat = self.prior.flat(self.left.shape[1])
            found: Tensor = LowRankStep.apply(self.left, self.right, self.gamma.to(self.left.dtype), flat, log_p)
            return found

    def log_matrix(self) -> Tensor:
        """See `Transition.log_matrix`."""
        with without_autocast(self.left):
            return torch.log_softmax(logits(self.left, self.right, self.gamma, self.prior.flat(self.left.shape[1])), dim=1)


def logits(left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor) -> Tensor:
    """(B, rows, columns) Q Lᵀ with γ added at these places: (E,), or (B, E) where samples differ."""
    found = right @ left.mT
    places = flat.expand(len(found), -1)
    added = gamma.to(found.dtype).expand(places.shape)
    return found.flatten(1).scatter_add(1, places, added).view_as(found)


class LowRankStep(torch.autograd.Function):
    """log(T p) of a low-rank transition in one pass, with one exponential per entry of T where plain log space has four.

    With E_ij = exp(A_ij - max_i A_ij), Z_j = Σ_i E_ij and q_j = p_j / Z_j, scaled so that its largest is 1:

        log pᵏ_i = log Σ_j E_ij q_j + scale
        h_i = g_i / Σ_j E_ij q_j,    dlog p_j = q_j Σ_i h_i E_ij,    dA_ij = E_ij (h_i q_j - dlog p_j / Z_j)

    All terms are positive, so nothing cancels. Where a sum underflows, which takes a gap of some 70 between logits, the batch
    is done in log space instead.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor, log_p: Tensor) -> Tensor:
        """(B, rows) from (B, columns); `flat` as in `logits`."""
        entries = torch.bmm(right, left.mT)  # (B, rows, columns)
        places = flat.expand(len(entries), -1)
        entries.view(len(entries), -1).scatter_add_(1, places, gamma.expand(places.shape))
        entries.sub_(entries.amax(dim=1, keepdim=True)).exp_()
        column_sums = entries.sum(dim=1)  # (B, columns)
        log_q = log_p - column_sums.log()
        scale = log_q.amax(dim=1, keepdim=True)
        q = torch.exp(log_q - scale)
        sums = torch.bmm(q.unsqueeze(1), entries.mT).squeeze(1)  # (B, rows)
        ctx.log_space = bool((sums < torch.finfo(sums.dtype).tiny ** 0.8).any())
        if ctx.log_space:
            log_t = torch.log_softmax(logits(left, right, gamma, flat), dim=1)
            result = propagate(log_p, log_t)
            shares = torch.exp(log_t + log_p.unsqueeze(1) - result.unsqueeze(2))  # of column j in row i
            ctx.save_for_backward(left, right, flat, shares, log_t.exp())
            return result
        ctx.save_for_backward(left, right, flat, entries, q, sums, column_sums)
        return sums.log() + scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both factors, γ and log p."""
        left, right, flat, *kept = ctx.saved_tensors
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
            of_gamma = inner.flatten(1).gather(1, flat.expand(len(inner), -1)).sum()
            return of_left, of_right, of_gamma, None, of_log_p
