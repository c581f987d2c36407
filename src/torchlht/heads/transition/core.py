"""The base class of transitions, shared numerics, and the simple ones: dense, the tree itself, and low rank.

Low rank: T = column softmax of Q Lᵀ + γ S, whole matrices, a few samples at a time. The fastest form for small trees.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchlht.processes import shared_mean
from torchlht.vocabulary import Confusion

TILE = 2**20  # entries computed at a time: 4 MB, about a core's cache
SMALL = 2**16  # up to this many entries in a batch, autograd is faster than `LowRankStep`
FEW = 4  # up to this many tiles, all samples are computed at once and kept

# ---- numerics ------------------------------------------------------------------------------------------------------


def widened(x: Tensor) -> Tensor:
    """Half-precision numbers as float32; float32 and float64 unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Context: autocast is off."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def propagate(log_p: Tensor, log_t: Tensor) -> Tensor:
    """log(T p) from log T and log p, entirely in log space.

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


# ---- confusion: a term that keeps columns from collapsing -----------------------------------------------------------------


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
    """The matrices of one batch between two adjacent levels. They are computed only by `log_matrix`."""

    @abstractmethod
    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k), from log p at this one, (B, C_{k-1})."""

    @abstractmethod
    def log_matrix(self) -> Tensor:
        """log T: (B, C_k, C_{k-1}), or (1, C_k, C_{k-1}) when all samples share it."""

    def confusion(self, kind: Confusion) -> Tensor:
        """The mean over samples and columns of the negative entropy, or of the KL divergence from uniform."""
        return CONFUSION[kind](self.log_matrix())

    def drift(self, gamma: float) -> Tensor:
        """The mean over samples and columns of KL(softmax(γ S) ‖ T): how far T is from the tree."""
        raise TypeError(f"{type(self).__name__} does not know the tree; low-rank transitions do")


@dataclass(frozen=True)
class DenseTransition(Transition):
    """A transition held as its log matrix."""

    log_t: Tensor

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k)."""
        return propagate(log_p, self.log_t)

    def log_matrix(self) -> Tensor:
        """log T: (B, C_k, C_{k-1}), or (1, C_k, C_{k-1})."""
        return self.log_t


@dataclass(frozen=True)
class TreeTransition(Transition):
    """T = S: every class goes to its parent with certainty. Held as indices."""

    parents: Tensor  # (C_{k-1},)
    size: int

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k): sums over children."""
        return sum_children(log_p, self.parents, self.size)

    def log_matrix(self) -> Tensor:
        """log S: (1, C_k, C_{k-1}), -inf where a class is not the parent."""
        matrix = torch.full((1, self.size, len(self.parents)), -torch.inf, device=self.parents.device)
        matrix[0, self.parents, torch.arange(len(self.parents), device=self.parents.device)] = 0
        return matrix


@dataclass(frozen=True)
class SoftenedTransition(Transition):
    """T = column softmax of γ S, the same for every sample: what a low-rank transition starts near. Linear in the classes."""

    parents: Tensor  # (C_{k-1},)
    size: int
    gamma: Tensor

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, C_k): log e + log(1 + (exp γ - 1) Σ p) over children, with e off the tree."""
        with without_autocast(log_p):
            sums = log_p.new_zeros(len(log_p), self.size).index_add(1, self.parents, log_p.exp())  # may be 0: then it is e
            return self._off() + torch.log1p(torch.expm1(self.gamma) * sums)

    def _off(self) -> Tensor:
        """log e, of an entry off the tree."""
        return -torch.log(self.size - 1 + self.gamma.exp())

    def log_matrix(self) -> Tensor:
        """log T: (1, C_k, C_{k-1})."""
        matrix = self._off().expand(1, self.size, len(self.parents)).clone()
        matrix[0, self.parents, torch.arange(len(self.parents), device=self.parents.device)] += self.gamma
        return matrix

    def drift(self, gamma: float) -> Tensor:
        """See `Transition.drift`: here it is the same for every sample and column."""
        t = 1 / (1 + (self.size - 1) * math.exp(-gamma))
        return math.log(t) - (1 - t) * gamma - self._off() - t * self.gamma


# ---- low rank ------------------------------------------------------------------------------------------------------


class Prior(NamedTuple):
    """Where S is 1, as (row, column) pairs in the order of columns; S itself is never built.

    Attributes:
        rows: (E,)
        columns: (E,) ascending.
        flat: (E,) positions in the flattened matrix, row by row.
        starts: for each column the index of its first pair; then E.
        one_each: whether every column has one pair, as from children to parents.
    """

    rows: Tensor
    columns: Tensor
    flat: Tensor
    starts: tuple[int, ...]
    one_each: bool

    @classmethod
    def of(cls, rows: Tensor, columns: Tensor, count: int) -> Prior:
        """From pairs in any order; `count` is the number of columns."""
        order = torch.argsort(columns, stable=True)
        rows, columns = rows[order], columns[order].contiguous()
        starts = torch.searchsorted(columns, torch.arange(count + 1, device=columns.device))
        one_each = starts.tolist() == list(range(count + 1))
        return cls(rows, columns, rows * count + columns, tuple(starts.tolist()), one_each)

    def to(self, device: torch.device) -> Prior:
        """The same prior on a device."""
        return self._replace(rows=self.rows.to(device), columns=self.columns.to(device), flat=self.flat.to(device))


class Places(NamedTuple):
    """Where γ is added: (E,) each, or (B, E) if samples differ.

    Attributes:
        flat: positions in the flattened matrix, row by row.
        rows: their rows.
        columns: (E,) their columns; None if every column has one place, in order.
    """

    flat: Tensor
    rows: Tensor
    columns: Tensor | None = None

    def of(self, part: slice | None) -> Places:
        """The places of some samples, or of all."""
        return self if part is None or self.flat.dim() == 1 else Places(self.flat[part], self.rows[part], self.columns)


@dataclass
class LowRankTransition(Transition):
    """A low-rank transition, held as its factors."""

    left: Tensor  # L, (B, columns, s)
    right: Tensor  # Q, (B, rows, s)
    gamma: Tensor
    prior: Prior
    log_sums: Tensor | None = field(default=None, kw_only=True)  # mean over columns of ℓ_j, (B,), once `propagate` has it

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, rows)."""
        with without_autocast(log_p):
            if torch.compiler.is_exporting():  # exporters cannot trace a step that depends on values
                return propagate(log_p, self.log_matrix())
            if self.left.shape[1] * self.right[:, :, 0].numel() <= SMALL:
                return self._small_step(log_p)
            places = Places(self.prior.flat, self.prior.rows, None if self.prior.one_each else self.prior.columns)
            found: Tensor
            found, self.log_sums = LowRankStep.apply(self.left, self.right, self.gamma.to(self.left.dtype), log_p, places)
            return found

    def drift(self, gamma: float) -> Tensor:
        """See `Transition.drift`. T⁰ is the column softmax of γ₀ S.

        With t at the parent and e elsewhere in T⁰, and ℓ_j = logsumexp_i A_ij, a column has
        Σ_i T⁰_ij log T_ij = (t - e) q_π(j)·l_j + e Σ_i q_i·l_j + t γ - ℓ_j. For one parent per column.
        """
        rows = self.right.shape[1]
        t = 1 / (1 + (rows - 1) * math.exp(-gamma))
        e = t * math.exp(-gamma)
        with without_autocast(self.left):
            expected = (t - e) * self.right.index_select(1, self.prior.rows) + e * self.right.sum(dim=1, keepdim=True)
            said = (expected * self.left).sum(dim=2) + t * self.gamma - math.log(t) + (rows - 1) * e * gamma
            return self.normaliser() - shared_mean(said)

    def normaliser(self) -> Tensor:
        """Mean over samples and columns of ℓ_j = logsumexp_i A_ij."""
        if self.log_sums is not None:
            return shared_mean(self.log_sums)
        return shared_mean(torch.logsumexp(logits(self.left, self.right, self.gamma, self.prior.flat), dim=1))

    def _small_step(self, log_p: Tensor) -> Tensor:
        """The plain formula, or log space if a sum underflows."""
        t = torch.softmax(logits(self.left, self.right, self.gamma, self.prior.flat), dim=1)
        sums = torch.bmm(log_p.exp().unsqueeze(1), t.mT).squeeze(1)
        return propagate(log_p, self.log_matrix()) if underflown(sums) else sums.log()

    def log_matrix(self) -> Tensor:
        """log T: (B, rows, columns)."""
        with without_autocast(self.left):
            return torch.log_softmax(logits(self.left, self.right, self.gamma, self.prior.flat), dim=1)


def logits(left: Tensor, right: Tensor, gamma: Tensor, flat: Tensor) -> Tensor:
    """(B, rows, columns) Q Lᵀ with γ added at these places: (E,), or (B, E) if samples differ."""
    found = torch.bmm(right, left.mT)
    places = flat.expand(found.shape[0], -1)
    found.flatten(1).scatter_add_(1, places, gamma.to(found.dtype).expand(places.shape))
    return found


def underflown(sums: Tensor) -> bool:
    """Whether any sum is so small that its logarithm or inverse may be wrong."""
    return sums.numel() > 0 and sums.min().item() < torch.finfo(sums.dtype).tiny ** 0.8


class LowRankStep(torch.autograd.Function):
    """log(T p) of a low-rank transition in one pass, with one exponential per entry of T instead of four in plain log space.

    With E_ij = exp(A_ij - max_i A_ij), Z_j = Σ_i E_ij and q_j = p_j / Z_j:

        log pᵏ_i = log Σ_j E_ij q_j,    ℓ_j = max_i A_ij + log Z_j
        h_i = g_i / Σ_j E_ij q_j,    dlog p_j = q_j Σ_i h_i E_ij,    dA_ij = E_ij (h_i q_j + (f_j - dlog p_j) / Z_j)

    with f the gradient of ℓ, whose mean over columns is the second result: what holds T near the tree costs nothing more. E is
    computed as a power of two, which is three times as fast here as `exp`.

    All sums are of positive terms, so nothing cancels. If a sum underflows, which takes a gap of about 70 between logits, log
    space is used instead. A few samples are computed at a time. If they do not all fit, the backward pass computes E again,
    which is faster than storing and reading that much memory.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, gamma: Tensor, log_p: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """(B, rows) from (B, columns), and the mean over columns of ℓ, (B,)."""
        ctx.parts, ctx.careful, ctx.places = _turns(left, right), [], places
        results, log_sums, kept = [], [], []
        for part in ctx.parts:
            some = _taken(part, left, right, log_p), places.of(part).flat
            one = _Entries.of(*some, gamma)
            ctx.careful.append(underflown(one.sums))
            results.append(_careful(*some, gamma) if ctx.careful[-1] else one.sums.log())
            log_sums.append((one.peak + one.column_sums.log()).mean(dim=1))
            kept = list(one) if part is None else []
        result = _joined(results)
        ctx.save_for_backward(left, right, gamma, log_p, result, *kept)
        return result, _joined(log_sums)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, of_log_sums: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of both factors, γ and log p."""
        left, right, gamma, log_p, result, *kept = ctx.saved_tensors
        found, f = [], of_log_sums.unsqueeze(1) / left.shape[1]  # (B, 1) per column
        with without_autocast(gradient):
            for part, careful in zip(ctx.parts, ctx.careful, strict=True):
                some, places = _taken(part, left, right, log_p), ctx.places.of(part)
                given = _taken(part, gradient, f, result)
                if careful:
                    found.append(_carefully_back(some, places.flat, gamma, *given))
                else:
                    entries = _Entries(*kept) if kept else _Entries.of(some, places.flat, gamma)
                    found.append(_back(some, places, entries, *given[:2]))
        of_left, of_right, of_gamma, of_log_p = zip(*found, strict=True)
        return _joined(of_left), _joined(of_right), sum(of_gamma), _joined(of_log_p), None


class _Entries(NamedTuple):
    """E and its sums, see `LowRankStep`."""

    entries: Tensor  # (B, rows, columns)
    peak: Tensor  # max_i A_ij, (B, columns)
    column_sums: Tensor  # Z, (B, columns)
    q: Tensor  # (B, columns)
    sums: Tensor  # (B, rows)

    @classmethod
    def of(cls, some: Sequence[Tensor], flat: Tensor, gamma: Tensor) -> _Entries:
        left, right, log_p = some
        entries = logits(left, right / math.log(2), gamma / math.log(2), flat)
        peak = entries.amax(dim=1, keepdim=True)
        entries.sub_(peak).exp2_()
        column_sums = entries.sum(dim=1)
        q = torch.exp(log_p) / column_sums
        return cls(entries, peak.squeeze(1) * math.log(2), column_sums, q, torch.bmm(q.unsqueeze(1), entries.mT).squeeze(1))


def _turns(left: Tensor, right: Tensor) -> list[slice | None]:
    """[None], for all samples, if their entries are few; else runs of samples with about `TILE` entries each."""
    each = left.shape[1] * right.shape[1]
    if len(left) * each <= FEW * TILE:
        return [None]
    most = max(1, TILE // each)
    return [slice(a, a + most) for a in range(0, len(left), most)]


def _taken(part: slice | None, *tensors: Tensor) -> Sequence[Tensor]:
    return tensors if part is None else [one[part] for one in tensors]


def _joined(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _careful(some: Sequence[Tensor], flat: Tensor, gamma: Tensor) -> Tensor:
    """log(T p) in log space, when E would underflow."""
    left, right, log_p = some
    return propagate(log_p, torch.log_softmax(logits(left, right, gamma, flat), dim=1))


def _carefully_back(
    some: Sequence[Tensor], flat: Tensor, gamma: Tensor, gradient: Tensor, f: Tensor, result: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of `_careful`."""
    left, right, log_p = some
    log_t = torch.log_softmax(logits(left, right, gamma, flat), dim=1)
    inner = gradient.unsqueeze(2) * torch.exp(log_t + log_p.unsqueeze(1) - result.unsqueeze(2))  # by the share of j in i
    of_log_p = inner.sum(dim=1)
    inner -= log_t.exp_() * (of_log_p - f).unsqueeze(1)
    of_left = torch.bmm(right.mT, inner).mT
    of_right = torch.bmm(left.mT.contiguous(), inner.mT).mT  # without the copy it is many times slower
    return of_left, of_right, _at(inner, flat).sum(), of_log_p


def _back(
    some: Sequence[Tensor], places: Places, made: _Entries, gradient: Tensor, f: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients as products of E with narrow matrices; dA itself is never built."""
    left, right, _ = some
    entries, _, column_sums, q, sums = made
    rank, left, right = left.shape[2], left.mT, right.mT
    gradient = gradient / sums
    h = gradient.unsqueeze(1)
    by_column = torch.bmm(torch.cat([h, h * right, right], dim=1), entries)  # (B, 1 + 2s, columns)
    of_log_p = q * by_column[:, 0]
    sunk = (of_log_p - f) / column_sums
    edges = _pick(gradient, places.rows)
    edges = edges * q - sunk if places.columns is None else edges * _pick(q, places.columns) - _pick(sunk, places.columns)
    of_gamma = (_at(entries, places.flat) * edges).sum()
    c, q = sunk.unsqueeze(1), q.unsqueeze(1)
    of_left = torch.addcmul(q * by_column[:, 1 : 1 + rank], c, by_column[:, 1 + rank :], value=-1)
    by_row = torch.bmm(torch.cat([q * left, c * left], dim=1), entries.mT)  # (B, 2s, rows)
    of_right = torch.addcmul(-by_row[:, rank:], h, by_row[:, :rank])
    return of_left.mT, of_right.mT, of_gamma, of_log_p


def _at(matrices: Tensor, flat: Tensor) -> Tensor:
    """(B, E) the entries at these places, (E,) or (B, E)."""
    return _pick(matrices.flatten(1), flat)


def _pick(x: Tensor, index: Tensor) -> Tensor:
    """(B, E) of (B, n), at (E,) or (B, E)."""
    return x.index_select(1, index) if index.dim() == 1 else x.gather(1, index)
