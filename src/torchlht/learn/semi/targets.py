"""`Targets`: for each sample a distribution over a few finest classes, and how they are made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from torchlht.data.samples import Ints, deepest_known
from torchlht.hierarchy.tree import Hierarchy

MOST = 64  # finest classes kept per sample
Floats = NDArray[np.float32]
NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Targets:
    """A distribution over finest classes per sample, as its most probable classes.

    Attributes:
        index: (N, m) finest classes.
        value: (N, m) float32, their probabilities; a row of zeros is a sample without a target.
        weight: (N,) float32 in [0, 1], how far a sample's target is trusted.
    """

    index: Tensor
    value: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def best(self) -> Tensor:
        """(N,) the most probable finest class, -1 if there is no target."""
        best = self.index.gather(1, self.value.argmax(dim=1, keepdim=True)).squeeze(1)
        return torch.where(self.value.sum(dim=1) > 0, best, -1)

    def at(self, rows: Tensor) -> Targets:
        """The targets of these samples."""
        return Targets(self.index[rows], self.value[rows], self.weight[rows])

    def to(self, device: torch.device) -> Targets:
        """The same targets on another device."""
        return Targets(self.index.to(device), self.value.to(device), self.weight.to(device))

    def matrix(self, classes: int) -> Any:
        """The targets as a sparse (N, classes) matrix."""
        rows = np.repeat(np.arange(len(self)), self.index.shape[1])
        entries = (self.value.numpy().ravel(), (rows, self.index.numpy().ravel()))
        found = csr_array(entries, shape=(len(self), classes), dtype=np.float32)
        found.eliminate_zeros()
        return found

    @classmethod
    def from_matrix(cls, matrix: Any) -> Targets:
        """From an (N, classes) sparse matrix with rows that sum to one or are empty. The weight is the highest probability."""
        matrix = csr_array(matrix)
        counts = np.diff(matrix.indptr)
        width = max(int(counts.max(initial=1)), 1)
        column = np.arange(matrix.nnz) - np.repeat(matrix.indptr[:-1], counts)
        rows = np.repeat(np.arange(matrix.shape[0]), counts)
        index, value = np.zeros((matrix.shape[0], width), np.int64), np.zeros((matrix.shape[0], width), np.float32)
        index[rows, column], value[rows, column] = matrix.indices, matrix.data
        return cls.from_candidates(torch.from_numpy(index), torch.from_numpy(value))

    @classmethod
    def from_candidates(cls, index: Tensor, value: Tensor) -> Targets:
        """The `MOST` most probable of the candidates, normalised to sum to one."""
        if index.shape[1] > MOST:
            value, order = value.topk(MOST, dim=1)
            index = index.gather(1, order)
        total = value.sum(dim=1, keepdim=True)
        value = torch.where(total > 0, value / total.clamp(min=1e-30), torch.zeros_like(value))
        return cls(index, value, value.amax(dim=1))


# ---- what is possible ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Samples whose deepest known label is the same class, above the finest level.

    Attributes:
        level: level of that class; K, one above the coarsest level, if no label is known.
        rows: positions of these samples.
            leaves: the possible finest classes: those under it in the tree and, in case the tree is wrong, those that samples
                labelled with it have.
            deeper: positions of the samples under it with a deeper known label, finest labels included.
    """

    level: int
    rows: Ints
    leaves: Ints
    deeper: Ints


def find_blocks(labels: Ints, hierarchy: Hierarchy) -> list[Block]:
    """All blocks of (N, K) labels, those of finer levels first."""
    return list(_blocks(labels, hierarchy))


def _blocks(labels: Ints, hierarchy: Hierarchy) -> Iterator[Block]:
    depth, deepest = len(hierarchy), deepest_known(labels)
    for level in range(1, depth):
        up = hierarchy.ancestors(level)
        for label in np.unique(labels[deepest == level, level]).tolist():
            inside = labels[:, level] == label
            rows, deeper = np.flatnonzero(inside & (deepest == level)), np.flatnonzero(inside & (deepest < level))
            seen = labels[deeper, 0]
            yield Block(level, rows, np.union1d(np.flatnonzero(up == label), seen[seen >= 0]), deeper)
    if (deepest == depth).any():
        everything = np.arange(hierarchy.sizes[0])
        yield Block(depth, np.flatnonzero(deepest == depth), everything, np.flatnonzero(deepest < depth))


def without(blocks: list[Block], left_out: Ints) -> list[Block]:
    """The blocks without some samples."""
    if not len(left_out):
        return blocks
    fewer = [Block(b.level, np.setdiff1d(b.rows, left_out), b.leaves, np.setdiff1d(b.deeper, left_out)) for b in blocks]
    return [block for block in fewer if len(block.rows)]


def known_shares(labels: Ints, block: Block) -> Floats:
    """How frequent each leaf of a block is among the finest labels known in it; 0 where none is.

    One is added to the count of every class that has a label, so that a few labels do not count for too much.
    """
    fine = labels[block.deeper, 0]
    counts = np.bincount(fine[fine >= 0], minlength=int(block.leaves.max()) + 1)[block.leaves].astype(np.float32)
    counts[counts > 0] += 1
    shares: Floats = counts / max(counts.sum(), 1e-30)
    return shares


def balance(index: Tensor, value: Tensor, shares: Tensor, rounds: int = 5) -> Tensor:
    """Scale rows to sum to one and columns to given shares, in turns (Sinkhorn), so that classes are as frequent as known.

    Args:
        index: (n, m) columns of the entries.
        value: (n, m) entries, not negative.
        shares: (c,) the share of each column; a column with share 0 stays empty.
        rounds: number of turns.
    """
    for _ in range(rounds):
        mass = value.new_zeros(len(shares)).index_add_(0, index.ravel(), value.ravel())
        value = value * (shares * len(value) / mass.clamp(min=1e-20))[index]
        value = value / value.sum(dim=1, keepdim=True).clamp(min=1e-30)
    return value


# ---- where they come from ------------------------------------------------------------------------------------------


def possible(
    log_p: Tensor, allowed: Tensor, *, other: Tensor | None = None, sharpness: float = 2.0
) -> tuple[Tensor, Tensor, Tensor]:
    """What a model believes about the finest class, given what is possible: p(Y¹ | Yᵏ = yᵏ, x), sharpened.

    Args:
        log_p: (B, C_1) log-probabilities of the finest level.
        allowed: (B, C_1) bool, the classes under the deepest known label.
        other: the same as `log_p` from another augmentation; the belief is then the geometric mean of the two.
        sharpness: exponent of the probabilities.

    Returns:
        index (B, m) and value (B, m) of the likeliest classes, and (B,) how far the two augmentations agree: their
        Bhattacharyya coefficient, Σ √(p q), 1 when there is only one.
    """
    belief, agreement = torch.log_softmax(log_p.float().masked_fill(~allowed, -torch.inf), dim=1), torch.ones(len(log_p))
    if other is not None:
        belief = (belief + torch.log_softmax(other.float().masked_fill(~allowed, -torch.inf), dim=1)) / 2
        agreement = belief.exp().sum(dim=1)
    value, index = torch.softmax(sharpness * belief, dim=1).topk(min(MOST, log_p.shape[1]), dim=1)
    return index, value, agreement


def posterior(index: Tensor, value: Tensor, agreement: Tensor, labels: Ints, blocks: list[Block], classes: int) -> Targets:
    """Targets from the output of `possible` for all samples: class-balanced in every block, trusted as far as views agree."""
    value = value.clone()
    for block in blocks:
        shares = torch.zeros(classes)
        shares[torch.from_numpy(block.leaves)] = torch.from_numpy(known_shares(labels, block))
        rows = torch.from_numpy(block.rows)
        value[rows] = balance(index[rows], value[rows], shares)
    found = Targets.from_candidates(index, value)
    return Targets(found.index, found.value, found.weight * agreement)


def combine(first: Targets, second: Targets, classes: int) -> Targets:
    """The mean of two targets per sample, weighted by confidence."""
    a, b = first.matrix(classes), second.matrix(classes)
    weights = torch.stack([first.weight, second.weight]).numpy()
    total = weights.sum(axis=0).clip(min=1e-12)
    return Targets.from_matrix(a.multiply((weights[0] / total)[:, None]) + b.multiply((weights[1] / total)[:, None]))
