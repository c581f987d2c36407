"""The low-rank transition for the M most probable columns of each sample; the rest follows the tree.

    pᵏ_i = Σ_{j in top} T_ij p_j + Σ_{j not in top, i parent of j} p_j

A column that is left out moves its mass p_j from T_·j to the parent. So no entry of pᵏ is off by more than the mass τ of the
columns left out, and half the absolute differences sum to at most τ. T is column-stochastic, so errors of the level below do
not grow: after several levels the bounds add up. τ is measured for every sample.

The confusion terms are means over columns; a few columns drawn at random estimate them without bias. In a large layer,
only the rows of chosen columns are computed. Time and memory are M · C_k + C_{k-1} per sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from torchlht.heads.transition.core import (
    TILE,
    LowRankStep,
    LowRankTransition,
    Places,
    Prior,
    Transition,
    logits,
    widened,
    without_autocast,
)
from torchlht.heads.transition.tiled import TiledTransition
from torchlht.vocabulary import Confusion

DRAWN = 32  # columns to estimate the confusion terms from, fewer if they are long:
ENTRIES, FEWEST = 2**13, 4  # of each sample; the mean is over all samples of a batch, so few columns will do
MANY = 32  # up to this many times the chosen columns, computing all rows of the layer is faster
WHOLE = 0.25  # from this share of the columns on, all are computed, in tiles


class Columns(NamedTuple):
    """How many columns to compute: a number, or enough to leave out at most a mass of `tail` in every sample of a batch."""

    most: int = 64
    tail: float | None = None

    def count(self, log_p: Tensor) -> int:
        """The number of columns for a batch (B, C_{k-1})."""
        return min(self.most if self.tail is None else int(self.needed(log_p, self.tail)), log_p.shape[1])

    @staticmethod
    def needed(log_p: Tensor, tail: float) -> Tensor:
        """The number () of columns that leaves out at most `tail`; one too many if none does."""
        kept = log_p.detach().exp().sort(dim=1, descending=True).values.cumsum(dim=1)
        return (kept < 1 - tail).sum(dim=1).max() + 1


USUAL = Columns()


@dataclass
class TruncatedTransition(Transition):
    """A low-rank transition that computes only the most probable columns.

    Attributes:
        features: (B, d)
        layer: the layer of L, s rows for each column.
        right: Q, (B, rows, s)
        gamma: weight of the tree.
        prior: where each column's parent is.
        columns: how many columns to compute.
        note: called with the mass (B,) left out.
        tail: that mass, after `propagate`.
    """

    features: Tensor
    layer: nn.Linear
    right: Tensor
    gamma: Tensor
    prior: Prior
    columns: Columns = USUAL
    note: Callable[[Tensor], None] | None = None
    tail: Tensor | None = None

    def propagate(self, log_p: Tensor) -> Tensor:
        """log p at the next coarser level, (B, rows)."""
        with without_autocast(log_p):
            if self.columns.tail is not None and torch.compiler.is_exporting():
                return self._sorted(log_p, self.columns.tail)
            count = self.columns.count(log_p)
            if count > WHOLE * log_p.shape[1]:
                self._left_out(log_p.new_zeros(log_p.shape[0]))
                return self.whole().propagate(log_p)
            best = log_p.topk(count, dim=1)
            rest = log_p.exp().scatter(1, best.indices, 0.0)  # (B, C_{k-1})
            self._left_out(rest.detach().sum(dim=1))
            return torch.logaddexp(self._learned(best.indices, best.values), self._by_tree(rest))

    def _sorted(self, log_p: Tensor, tail: float) -> Tensor:
        """The same over all columns, most of them masked. For exporters: their shapes cannot depend on the data."""
        best, count = log_p.sort(dim=1, descending=True), self.columns.needed(log_p, tail)
        done = (torch.arange(log_p.shape[1], device=log_p.device) < count) | (count > WHOLE * log_p.shape[1])
        rest = torch.zeros_like(log_p).scatter(1, best.indices, best.values.exp().masked_fill(done, 0.0))
        learned = self._learned(best.indices, best.values.masked_fill(~done, -torch.inf))
        return torch.logaddexp(learned, self._by_tree(rest))

    def _by_tree(self, rest: Tensor) -> Tensor:
        """log of the mass that parents (B, rows) get from the columns left out (B, C_{k-1})."""
        sums = torch.zeros_like(self.right[:, :, 0]).index_add(1, self.prior.rows, rest)
        return sums.clamp(min=torch.finfo(rest.dtype).tiny).log()  # without children left out: nothing, and no gradient

    def _left_out(self, tail: Tensor) -> None:
        self.tail = tail
        if self.note is not None and not torch.compiler.is_exporting():
            self.note(tail)

    def _learned(self, chosen: Tensor, log_p: Tensor) -> Tensor:
        """log Σ_j T_ij p_j over chosen columns: (B, rows) from (B, M)."""
        left = self._left(chosen)
        rows = self.prior.rows[chosen]
        flat = rows * chosen.shape[1] + torch.arange(chosen.shape[1], device=chosen.device)
        gamma = self.gamma.to(left.dtype)
        if torch.compiler.is_exporting():
            log_t = torch.log_softmax(logits(left, self.right, gamma, flat), dim=1)
            return torch.logsumexp(log_t + log_p.unsqueeze(1), dim=2)
        found: Tensor = LowRankStep.apply(left, self.right, gamma, log_p, Places(flat, rows))[0]
        return found

    def _left(self, chosen: Tensor) -> Tensor:
        """The rows of L for columns (B, M): (B, M, s)."""
        rank, all_of_them = self.right.shape[2], len(self.prior.rows)
        if all_of_them <= MANY * chosen.shape[1]:
            left = widened(self.layer(self.features)).view(-1, all_of_them, rank)
            return left.gather(1, chosen.unsqueeze(2).expand(-1, -1, rank))
        weight = self.layer.weight.view(all_of_them, -1)  # (C_{k-1}, s·d)
        features = self.features.to(weight.dtype)
        if torch.compiler.is_exporting():
            weights = F.embedding(chosen, weight).view(*chosen.shape, rank, -1)
            found = torch.einsum("bmsd,bd->bms", weights, features)
        else:
            found = ChosenRows.apply(features, weight, chosen)
        if self.layer.bias is not None:
            found = found + F.embedding(chosen, self.layer.bias.view(-1, rank))
        return widened(found)

    def confusion(self, kind: Confusion) -> Tensor:
        """The confusion term, estimated from columns drawn at random."""
        return self.drawn().confusion(kind)

    def drift(self, gamma: float) -> Tensor:
        """See `LowRankTransition.drift`; estimated from columns drawn at random."""
        return self.drawn().drift(gamma)

    def drawn(self) -> LowRankTransition:
        """A few columns drawn at random, the same for all samples of the batch."""
        rank, parents = self.right.shape[2], self.prior.rows
        count = min(DRAWN, max(FEWEST, ENTRIES // self.right.shape[1]))
        drawn = torch.randperm(len(parents), device=parents.device)[:count]
        rows = (drawn.unsqueeze(1) * rank + torch.arange(rank, device=drawn.device)).flatten()  # of the layer
        bias = None if self.layer.bias is None else self.layer.bias[rows]
        with without_autocast(self.right):
            left = F.linear(self.features.to(self.layer.weight.dtype), F.embedding(rows, self.layer.weight), bias)
            prior = Prior.of(parents[drawn], torch.arange(len(drawn), device=drawn.device), len(drawn))
            return LowRankTransition(widened(left).view(-1, len(drawn), rank), self.right, self.gamma, prior)

    def whole(self) -> LowRankTransition:
        """The same transition with all its columns, in tiles."""
        left = widened(self.layer(self.features)).view(self.right.shape[0], len(self.prior.rows), self.right.shape[2])
        return TiledTransition(left, self.right, self.gamma, self.prior)

    def log_matrix(self) -> Tensor:
        """log T of the learned transition with all its columns: (B, rows, C_{k-1})."""
        return self.whole().log_matrix()


class ChosenRows(torch.autograd.Function):
    """Products of each sample's features with its own choice of rows of a weight: (B, M, s).

    A few samples at a time, so that the (B, M, s·d) rows never exist at once; this is two to three times as fast.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        """From (B, d), (C, s·d) and (B, M)."""
        ctx.save_for_backward(features, weight, chosen)
        found = [torch.bmm(rows, x.unsqueeze(2)) for _, x, _, rows in _picked(features, weight, chosen)]
        return torch.cat(found).view(*chosen.shape, weight.shape[1] // features.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of features and weight."""
        features, weight, chosen = ctx.saved_tensors
        of_features, of_weight = torch.empty_like(features), torch.zeros_like(weight)
        for part, x, places, rows in _picked(features, weight, chosen):
            g = gradient[part].flatten(1).unsqueeze(1)  # (b, 1, M·s)
            of_features[part] = torch.bmm(g, rows).squeeze(1)
            of_weight.index_add_(0, places, (g.mT * x.unsqueeze(1)).view(len(places), weight.shape[1]))
        return of_features, of_weight, None


def _picked(features: Tensor, weight: Tensor, chosen: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """Runs of samples: their slice, features, indices (b·M,) of their rows, and these rows, (b, M·s, d)."""
    (batch, count), width = chosen.shape, features.shape[1]
    most = max(1, TILE // (8 * count * weight.shape[1]))
    for start in range(0, max(1, batch), most):
        part = slice(start, start + most)
        places = chosen[part].flatten()
        rows = weight.index_select(0, places)
        yield part, features[part], places, rows.view(len(chosen[part]), count * weight.shape[1] // width, width)
