"""T = column softmax of Q Lᵀ + γ S, all entries at once: the fastest form for small trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchlht.transition.core import TILE, Transition, propagate, without_autocast

FEW = 4  # tiles up to which all samples are done at once and what was made is kept


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
        if torch.compiler.is_exporting():  # torch.export cannot follow a step that looks at its numbers
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

    All terms are positive, so nothing cancels. Where a sum underflows, which takes a gap of some 70 between logits, it is done
    in log space instead. A few samples are done at a time; if not all of them fit into one turn, E is made again in the
    backward pass, which is faster than to fetch and fill that much memory.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor, log_p: Tensor) -> Tensor:
        """(B, rows) from (B, columns); `flat` as in `logits`."""
        ctx.parts = _turns(left, right)
        ctx.careful = []
        results, kept = [], []
        for part in ctx.parts:
            one = _Entries.of(left[part], right[part], gamma, _places(flat, part), log_p[part])
            ctx.careful.append(bool((one.sums < torch.finfo(one.sums.dtype).tiny ** 0.8).any()))
            if ctx.careful[-1]:
                results.append(propagate(log_p[part], _log_t(left[part], right[part], gamma, _places(flat, part))))
            else:
                results.append(one.sums.log() + one.scale)
                kept = list(one) if len(ctx.parts) == 1 else []
        result = torch.cat(results)
        ctx.save_for_backward(left, right, gamma, flat, log_p, result, *kept)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both factors, γ and log p."""
        left, right, gamma, flat, log_p, result, *kept = ctx.saved_tensors
        found = []
        with without_autocast(gradient):
            for part, careful in zip(ctx.parts, ctx.careful, strict=True):
                some = left[part], right[part], _places(flat, part), gradient[part]
                if careful:
                    found.append(_in_log_space(*some, gamma, log_p[part], result[part]))
                else:
                    again = _Entries(*kept) if kept else _Entries.of(*some[:2], gamma, some[2], log_p[part])
                    found.append(_from_entries(*some, again))
        of_left, of_right, of_gamma, of_log_p = zip(*found, strict=True)
        return torch.cat(of_left), torch.cat(of_right), torch.stack(of_gamma).sum(), None, torch.cat(of_log_p)


class _Entries(NamedTuple):
    """E and what follows from it, see `LowRankStep`."""

    entries: Tensor  # (B, rows, columns)
    column_sums: Tensor  # Z, (B, columns)
    q: Tensor  # (B, columns)
    scale: Tensor  # (B, 1)
    sums: Tensor  # (B, rows)

    @classmethod
    def of(cls, left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor, log_p: Tensor) -> _Entries:
        entries = torch.bmm(right, left.mT)
        places = flat.expand(entries.shape[0], -1)
        entries.flatten(1).scatter_add_(1, places, gamma.expand(places.shape))
        entries.sub_(entries.amax(dim=1, keepdim=True)).exp_()
        column_sums = entries.sum(dim=1)
        log_q = log_p - column_sums.log()
        scale = log_q.amax(dim=1, keepdim=True)
        q = torch.exp(log_q - scale)
        return cls(entries, column_sums, q, scale, torch.bmm(q.unsqueeze(1), entries.mT).squeeze(1))


def _turns(left: Tensor, right: Tensor) -> list[slice]:
    """All samples where their entries are few, else runs of samples whose entries come to about `TILE`."""
    each = max(1, left.shape[1] * right.shape[1])
    most = max(1, TILE // each if len(left) * each > FEW * TILE else len(left))
    return [slice(a, a + most) for a in range(0, max(1, len(left)), most)]


def _places(flat: Tensor, part: slice) -> Tensor:
    return flat if flat.dim() == 1 else flat[part]


def _log_t(left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor) -> Tensor:
    return torch.log_softmax(logits(left, right, gamma, flat), dim=1)


def _in_log_space(
    left: Tensor, right: Tensor, flat: Tensor, gradient: Tensor, gamma: Tensor, log_p: Tensor, result: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients where E would lose something."""
    log_t = _log_t(left, right, gamma, flat)
    inner = gradient.unsqueeze(2) * torch.exp(log_t + log_p.unsqueeze(1) - result.unsqueeze(2))  # by the share of j in i
    of_log_p = inner.sum(dim=1)
    inner -= log_t.exp_() * of_log_p.unsqueeze(1)
    of_left = torch.bmm(right.mT, inner).mT
    of_right = torch.bmm(left.mT.contiguous(), inner.mT).mT  # without the copy, many times slower
    return of_left, of_right, _at(inner, flat).sum(), of_log_p


def _from_entries(
    left: Tensor, right: Tensor, flat: Tensor, gradient: Tensor, made: _Entries
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients as products of E with narrow matrices; dA itself is never formed."""
    entries, column_sums, q, _, sums = made
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
    return of_left.mT, of_right.mT, of_gamma, of_log_p


def _at(matrices: Tensor, flat: Tensor) -> Tensor:
    """(B, E) the entries at these places, (E,) or (B, E)."""
    return _pick(matrices.flatten(1), flat)


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """(B, E) of (B, n), at (E,) or (B, E)."""
    return x.index_select(1, index) if index.dim() == 1 else x.gather(1, index)
