"""A second opinion without steps, that also learns from samples whose finest label is unknown: one round of EM.

The linear discriminant of `starting.py` says how probable each finest class under a sample's deepest known label is. Shared out
among them that way, samples without a finest label count in the means and the covariance, too, and the discriminant is fitted
once more. What it then finds more probable than all other possible classes together is a guess that a method can learn from as
from a label. A class that no sample is labelled with is not guessed, unless it is an only child. Nor is anything guessed for a
sample that looks as if its known label were wrong: all classes under it together must be more probable than the others. If many
do, what is known cannot be relied on, and there are no guesses at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchlht.data.moments import EPS, PART, Moments
from torchlht.heads.starting import Sums
from torchlht.hierarchy.tree import Hierarchy

if TYPE_CHECKING:
    from torchlht.data.batches import FeatureSet

RIDGE = 0.3  # times the mean variance, added to the covariance of standardised features; chosen in benchmarks/peers.md
SURE = 0.5  # a guess is more probable than this
FITS = 0.5  # and so is the known label, without which there is no guess
MANY = 0.1  # share of samples whose known label does not fit, above which nothing is guessed; benchmarks/peers.md

Look = Callable[[Tensor], Tensor]  # positions of samples to their features
Groups = list[tuple[Tensor, Tensor]]


def same_deepest(labels: Tensor, hierarchy: Hierarchy) -> Iterator[tuple[Tensor, Tensor]]:
    """Per class above the finest level that is the deepest known one of some samples: these, and the finest classes under it.

    Many samples come in parts.
    """
    for k in range(1, len(hierarchy)):
        rows = ((labels[:, :k] < 0).all(dim=1) & (labels[:, k] >= 0)).nonzero().squeeze(1)
        own, size = labels[rows, k], hierarchy.sizes[k]
        above = torch.from_numpy(hierarchy.ancestors(k).copy())
        for mine, leaves in zip(by_class(own, size), by_class(above, size), strict=True):
            yield from ((rows[part], leaves) for part in torch.split(mine, PART) if len(part) and len(leaves))


def by_class(classes: Tensor, size: int) -> Sequence[Tensor]:
    """Per class, the positions at which it stands."""
    return torch.split(classes.argsort(stable=True), torch.bincount(classes, minlength=size).tolist())


def shared_out(sums: Sums, look: Look, often: Tensor | None, groups: Groups, weight: Tensor, bias: Tensor) -> Sums:
    """The sums with every sample at the finest classes it may be, in shares that are as large as these are probable."""
    counts, totals, squares = ([torch.zeros_like(one) for one in of] for of in (sums.counts, sums.totals, sums.squares))
    counts[0], totals[0], squares[0] = sums.counts[0].clone(), sums.totals[0].clone(), torch.stack(sums.squares).sum()
    for rows, leaves in groups:
        x = look(rows)
        share = probable(x, leaves, weight, bias)
        share = share if often is None else share * often[rows].to(x).unsqueeze(1)
        counts[0][leaves] += share.sum(dim=0).double()
        totals[0][leaves] += (share.mT @ x).double()
    return Sums(counts, totals, squares, sums.products)


def probable(x: Tensor, leaves: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(B, leaves) how probable each of these finest classes is, if it is one of them."""
    return torch.softmax(x @ weight[leaves].to(x).mT + bias[leaves].to(x), dim=1)


def guessed(labels: Tensor, look: Look, groups: Groups, can_be: Tensor, hierarchy: Hierarchy, *fitted: Tensor) -> Tensor:
    """(N, K) labels with guesses where they are unknown. `can_be` says which finest classes are labelled, `fitted` as above."""
    found = labels.clone()
    paths = torch.stack([torch.from_numpy(hierarchy.ancestors(k).copy()) for k in range(len(hierarchy))], dim=1)
    everything, misfits = torch.arange(hierarchy.sizes[0]), 0
    for rows, leaves in groups:
        x = look(rows)
        sure, best = probable(x, leaves, *fitted).max(dim=1)
        fits = probable(x, everything, *fitted)[:, leaves].sum(dim=1) > FITS
        misfits += int((~fits).sum())
        taken = (sure > SURE) & fits & can_be[leaves[best]] | (len(leaves) == 1)
        rows, path = rows[taken], paths[leaves[best[taken]]]
        found[rows] = torch.where(labels[rows] >= 0, labels[rows], path)
    return labels if misfits > MANY * sum(len(rows) for rows, _ in groups) else found


@dataclass(frozen=True)
class Opinion:
    """The linear discriminant of standardised features, and what it makes of unknown labels.

    Attributes:
        moments: those of the features.
        weight: (C_1, d) on standardised features.
        bias: (C_1,)
        labels: (N, K) of the training samples, with guesses.
    """

    moments: Moments
    weight: Tensor
    bias: Tensor
    labels: Tensor

    @classmethod
    def of(cls, data: FeatureSet, hierarchy: Hierarchy) -> Opinion:
        """From all training samples."""
        moments, labels = data.moments, data.labels
        often = None if data.weights is None else torch.from_numpy(data.weights)
        parts = zip(torch.split(data.x, PART), torch.split(labels, PART), strict=True)
        weights = itertools.repeat(None) if often is None else torch.split(often, PART)
        batches = ((moments.standardised(x), y, w) for (x, y), w in zip(parts, weights, strict=False))
        products = moments.products * moments.count if (labels >= 0).any(dim=1).all() else None
        sums = Sums.of(batches, hierarchy, data.x.shape[1], products)
        fitted, groups = sums.discriminant(hierarchy, RIDGE), list(same_deepest(labels, hierarchy))
        if not groups:
            return cls(moments, *fitted, labels)

        def look(rows: Tensor) -> Tensor:
            return moments.standardised(data.x[rows])

        fitted = shared_out(sums, look, often, groups, *fitted).discriminant(hierarchy, RIDGE)
        return cls(moments, *fitted, guessed(labels, look, groups, sums.counts[0] > 0, hierarchy, *fitted))

    def layer(self, share: float) -> nn.Linear:
        """`share` times the discriminant, as a layer on the features."""
        weight = share * self.weight * torch.rsqrt(self.moments.variance + EPS)
        found = nn.Linear(*weight.shape[::-1]).requires_grad_(False)
        found.weight.copy_(weight)
        found.bias.copy_(share * self.bias - weight @ self.moments.mean.double())
        return found
