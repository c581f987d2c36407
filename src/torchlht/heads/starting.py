"""A classifier without steps: the linear discriminant of the training features, in one pass. A start.

From random weights, steps of 128 samples need many epochs to reach each of ten thousand classes once. Class means reach all
of them at once. A class with few samples has a poor mean, so every mean is drawn towards that of its parent:

    μ_j = μ_parent + τ² / (τ² + σ² / n_j) · (x̄_j - μ_parent)

with n_j samples at or below the class, σ² the variance inside classes of its level and τ² that of the classes around their
parents, both estimated. A class without samples is at its parent's mean. With Σ the covariance of samples around the mean of
their deepest known class, weights are w_j = Σ⁻¹ μ_j and biases -½ μ_j·w_j, the classifier of equal normal distributions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlht.hierarchy.tree import Hierarchy

RIDGE = 1.0  # times the mean variance, added to Σ: features of an untrained neck are many, and their covariance is noisy
SCALE = 0.5  # of the weights: means of few samples look more certain than they are


Batch = tuple[Tensor, Tensor, Tensor | None]


@dataclass
class Sums:
    """Sums over samples, each at its deepest known class; in float64.

    Attributes:
        counts: per level, (C_k,) samples.
        totals: per level, (C_k, w) their features.
        squares: per level, () their squared norms.
        products: (w, w) Σ u uᵀ over all of them.
    """

    counts: list[Tensor]
    totals: list[Tensor]
    squares: list[Tensor]
    products: Tensor

    @classmethod
    def of(cls, batches: Iterable[Batch], hierarchy: Hierarchy, width: int, products: Tensor | None = None) -> Sums:
        """From batches of features (B, w), labels (B, K), and how often each sample counts, (B,), or None: once.

        `products` are those of all samples, if they are known.
        """
        sizes = hierarchy.sizes
        counts, totals = ([torch.zeros(size, *more, dtype=torch.float64) for size in sizes] for more in ((), (width,)))
        given = torch.zeros(width, width) if products is None else products
        found = cls(counts, totals, [torch.zeros((), dtype=torch.float64) for _ in sizes], given.double())
        for batch in batches:
            found.add(*batch, multiply=products is None)
        return found

    def add(self, features: Tensor, labels: Tensor, weights: Tensor | None, *, multiply: bool = True) -> None:
        """Add a batch. Ancestors of a known label are known."""
        known = (labels >= 0).any(dim=1)
        often = known.to(features) if weights is None else (known * weights).to(features)
        counted = features * often.unsqueeze(1)
        if multiply:
            self.products += (counted.mT @ features).double()
        norms = (counted * features).sum(dim=1).double()
        below = torch.zeros_like(known)
        for k, y in enumerate(labels.unbind(1)):
            here = ((y >= 0) & ~below).nonzero().squeeze(1)
            self.counts[k].index_add_(0, y[here], often[here].double())
            self.totals[k] += torch.zeros_like(self.totals[k], dtype=features.dtype).index_add_(0, y[here], counted[here])
            self.squares[k] += norms[here].sum()
            below |= y >= 0

    def covariance(self) -> Tensor:
        """(w, w) around the mean of each sample's deepest known class, without bias; around that of all if no class has two."""
        within, free = self.products.clone(), 0.0
        for count, total in zip(self.counts, self.totals, strict=True):
            within -= total.mT @ (total / or_one(count).unsqueeze(1))
            free += float((count - 1).clamp(min=0).sum())
        if free:
            return within / free
        count = torch.cat(self.counts).sum()
        mean = torch.cat(self.totals).sum(dim=0) / count
        return self.products / count - torch.outer(mean, mean)

    def cumulated(self, hierarchy: Hierarchy) -> Sums:
        """The same with each sample also at all ancestors of its class."""
        counts, totals, squares = self.counts[:1], self.totals[:1], self.squares[:1]
        for k in range(1, len(hierarchy)):
            parents = torch.from_numpy(hierarchy.parents[k - 1].copy())
            counts.append(self.counts[k].index_add(0, parents, counts[-1]))
            totals.append(self.totals[k].index_add(0, parents, totals[-1]))
            squares.append(self.squares[k] + squares[-1])
        return Sums(counts, totals, squares, self.products)

    def discriminant(self, hierarchy: Hierarchy, ridge: float) -> tuple[Tensor, Tensor]:
        """Weights (C_1, w) and biases (C_1,); `ridge` times the mean variance is added to the covariance."""
        spread, means = self.covariance(), shrunk_means(self.cumulated(hierarchy), hierarchy)
        spread.diagonal().add_(ridge * spread.diagonal().mean().clamp(min=1e-6))
        weights = torch.cholesky_solve(means.mT, torch.linalg.cholesky(spread)).mT
        return weights, -(weights * means).sum(dim=1) / 2


def shrunk_means(sums: Sums, hierarchy: Hierarchy) -> Tensor:
    """(C_1, w) means of the finest classes, each level drawn towards the one above. `sums` are cumulated."""
    count, total = sums.counts[-1].sum(), sums.totals[-1].sum(dim=0)
    above = (total / count.clamp(min=1)).expand_as(sums.totals[-1])
    for k in reversed(range(len(hierarchy))):
        found = drawn(sums.counts[k], sums.totals[k], sums.squares[k], above)
        above = found[torch.from_numpy(hierarchy.parents[k - 1].copy())] if k else found
    return above


def drawn(counts: Tensor, totals: Tensor, squares: Tensor, above: Tensor) -> Tensor:
    """(C, w) means of one level's classes, drawn towards `above`, (C, w), by how many samples they rest on.

    Variances are those of an average feature. Where no class has two samples, σ² is unknown and taken as 0.
    """
    some = counts > 0
    n, width, means = counts.clamp(min=1), totals.shape[1], totals / or_one(counts).unsqueeze(1)
    off = torch.where(some.unsqueeze(1), means - above, 0.0)
    free = (counts - 1).clamp(min=0).sum()
    inside = (squares - (totals * means).sum()).clamp(min=0) / (free.clamp(min=1) * width) * (free > 0)
    between = (off.square().sum(dim=1) / width - inside / n)[some].sum() / some.sum().clamp(min=1)
    between = between.clamp(min=1e-12)
    return above + (between / (between + inside / n)).unsqueeze(1) * off


def or_one(counts: Tensor) -> Tensor:
    """Counts to divide by: 1 where there is nothing. Samples that are shared out can count less than 1."""
    return torch.where(counts > 0, counts, 1.0)


def discriminant(
    batches: Iterable[Batch],
    hierarchy: Hierarchy,
    width: int,
    *,
    ridge: float = RIDGE,
    scale: float = SCALE,
) -> tuple[Tensor, Tensor]:
    """Weights (C_1, w) and biases (C_1,) of the linear discriminant, in float64.

    Args:
        batches: features (B, w), labels (B, K), -1 where unknown, and how often each counts, over all training samples.
        hierarchy: the tree.
        width: w.
        ridge: times the mean variance, added to the covariance.
        scale: of the weights and biases.
    """
    weights, biases = Sums.of(batches, hierarchy, width).discriminant(hierarchy, ridge)
    return scale * weights, scale * biases
