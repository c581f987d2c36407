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
    places = flat.expand(found.shape[0], -1)
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
        places = flat.expand(entries.shape[0], -1)
        entries.flatten(1).scatter_add_(1, places, gamma.expand(places.shape))
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
            if not ctx.log_space:
                return _from_entries(left, right, flat, gradient, *kept)
            shares, t = kept
            inner = gradient.unsqueeze(2) * shares
            of_log_p = inner.sum(dim=1)
            inner -= t * of_log_p.unsqueeze(1)
            of_left = torch.bmm(right.mT, inner).mT
            of_right = torch.bmm(left.mT.contiguous(), inner.mT).mT  # without the copy, many times slower
            return of_left, of_right, _at(inner, flat).sum(), None, of_log_p


def _from_entries(
    left: Tensor, right: Tensor, flat: Tensor, gradient: Tensor, entries: Tensor, q: Tensor, sums: Tensor, column_sums: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients as products of E with narrow matrices; dA itself is never formed."""
    rank, columns = left.shape[2], left.shape[1]
    h = gradient / sums
    above = torch.cat([h.unsqueeze(1), (h.unsqueeze(2) * right).mT, right.mT], dim=1)  # (B, 1 + 2s, rows)
    by_column = torch.bmm(above, entries)
    of_log_p = q * by_column[:, 0]
    c = of_log_p / column_sums
    of_left = q.unsqueeze(1) * by_column[:, 1 : 1 + rank] - c.unsqueeze(1) * by_column[:, 1 + rank :]
    beside = torch.cat([q.unsqueeze(1) * left.mT, c.unsqueeze(1) * left.mT], dim=1)  # (B, 2s, columns)
    by_row = torch.bmm(beside, entries.mT)
    of_right = h.unsqueeze(1) * by_row[:, :rank] - by_row[:, rank:]
    rows, places = flat // columns, flat % columns
    of_gamma = (_at(entries, flat) * (_pick(h, rows) * _pick(q, places) - _pick(c, places))).sum()
    return of_left.mT, of_right.mT, of_gamma, None, of_log_p


def _at(matrices: Tensor, flat: Tensor) -> Tensor:
    """(B, E) the entries at these places, (E,) or (B, E)."""
    return _pick(matrices.flatten(1), flat)


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """(B, E) of (B, n), at (E,) or (B, E)."""
    return x.index_select(1, index) if index.dim() == 1 else x.gather(1, index)
