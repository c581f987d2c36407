"""Splits for `repair`: a class whose samples are of two kinds, and a parent whose children are of two kinds.

Samples of a class are divided in two by 2-means, and those that took no part are put on the line between the two means. Only if
they lie in two heaps there, `APART` of their own widths from each other, the class is proposed: a Gaussian that is cut in two
has at most 2.7, an even spread 3.5.

Children of a parent are joined by average linkage until two groups are left. Medians over the tree say how much children of one
parent are alike, and how much those of different parents. The parent is proposed if its groups are about as far from each other
as different parents, while each hangs together, and if they are found again when samples are drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from torchlht.data.samples import Ints
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import Judge
from torchlht.learn.audit.placing import Remark
from torchlht.learn.audit.wrong import Floats
from torchlht.learn.growing import HELPFUL, cut, judge_of, redrawn_rows

APART = 4.0  # widths between two heaps of samples; chosen on other draws (benchmarks/trees.md)
FEWEST = 20  # samples that a class needs
SMALLEST = 0.2  # share of the smaller heap
FOLDS = 5
WAYS = 5  # to divide samples into folds
STEPS = 20  # of 2-means
TWO = 2  # children in the smaller group, at least
FAR, NEAR = 0.125, 0.5  # on the way from different parents (0) to the same (1): at most between groups, at least inside them
SURELY = 0.8  # share of draws in which the same two groups of children are found
DRAWS = 10


def split_classes(x: torch.Tensor, fine: Ints, judge: Judge, tree: Hierarchy, keys: Sequence[str]) -> list[Remark]:
    """Finest classes whose samples lie in two heaps, the farthest apart first.

    Args:
        x: (N, d) features as the judge takes them.
        fine: (N,) the finest classes.
        judge: knows the scatter within classes.
        tree: the classes.
        keys: (N,) names of the samples.
    """
    z = torch.linalg.solve_triangular(judge.root, x.T, upper=False).T.double().numpy()
    found = []
    for c in range(tree.sizes[0]):
        rows = np.flatnonzero(fine == c)
        if len(rows) >= FEWEST:
            apart, side = heaps(z[rows])
            if apart >= APART:
                found.append(_two_kinds(tree, c, [keys[i] for i in rows.tolist()], side, apart))
    return sorted(found, key=lambda one: -one.score)


def heaps(z: Floats) -> tuple[float, Ints]:
    """How many widths lie between two heaps of (n, d) points, 0 if one has next to none; and (n,) the heap of each.

    Every point is placed by two means that were found without it. Widths are the mean over several ways to leave points out,
    since a single one may be lucky.
    """
    means = two_means(z)
    side = nearer(z, means)
    if min(np.bincount(side, minlength=2)) < max(SMALLEST * len(z), 2):
        return 0.0, side
    generator = np.random.default_rng(0)
    return float(np.mean([_widths(z, means, side, generator.permutation(len(z)) % FOLDS) for _ in range(WAYS)])), side


def _widths(z: Floats, means: Floats, side: Ints, fold: Ints) -> float:
    place = np.zeros(len(z))
    for part in range(FOLDS):
        other = two_means(z[fold != part])
        line = other[1] - other[0]
        line *= np.sign(line @ (means[1] - means[0])) / max(float(np.linalg.norm(line)), 1e-12)
        place[fold == part] = (z[fold == part] - other.mean(0)) @ line
    low, high = place[side == 0], place[side == 1]
    width = np.sqrt((low.var(ddof=1) + high.var(ddof=1)) / 2)
    return float((high.mean() - low.mean()) / max(width, 1e-12))


def two_means(z: Floats) -> Floats:
    """(2, d) means of two clusters of (n, d) points, begun on both sides of the widest direction."""
    away = z - z.mean(0)
    side = (away @ np.linalg.svd(away, full_matrices=False)[2][0] > 0).astype(np.int64)
    means = np.stack([z.mean(0)] * 2)
    for _ in range(STEPS):
        if len(np.unique(side)) < 2:
            break
        means = np.stack([z[side == 0].mean(0), z[side == 1].mean(0)])
        side = nearer(z, means)
    return means


def nearer(z: Floats, means: Floats) -> Ints:
    """(n,) which of two means is nearer to each point."""
    found: Ints = (((z - means[1]) ** 2).sum(1) < ((z - means[0]) ** 2).sum(1)).astype(np.int64)
    return found


def _two_kinds(tree: Hierarchy, c: int, keys: list[str], side: Ints, apart: float) -> Remark:
    one, other = (np.flatnonzero(side == s) for s in np.argsort(-np.bincount(side, minlength=2)))
    reason = (
        f"{len(one)} and {len(other)} of its samples lie in two heaps, {apart:.1f} widths apart (an even spread: 3.5), "
        f"such as {keys[int(one[0])]} and {keys[int(other[0])]}: two classes, or two looks of one"
    )
    return Remark("split", tree.levels[0], tree.classes[0][c], "", "", apart, reason)


# ---- parents ---------------------------------------------------------------------------------------------------------


def split_parents(x: torch.Tensor, fine: Ints, judge: Judge, tree: Hierarchy, seed: int = 0) -> list[Remark]:
    """Parents whose children look like those of two parents, the least alike first."""
    generator, found, again = np.random.default_rng(seed), [], []
    for _ in range(DRAWS if len(tree) > 1 else 0):
        rows = redrawn_rows(fine, generator)
        again.append(judge_of(x[torch.from_numpy(rows)], fine[rows], tree.sizes[0]))
    for k in range(1, len(tree)):
        means, others = _child_means(judge, tree, k), [_child_means(one, tree, k) for one in again]
        for p, groups, score in two_groups(means @ means.T, tree.parents[k - 1]):
            inside = np.flatnonzero(tree.parents[k - 1] == p)
            same = [(_halves(1 - other[inside] @ other[inside].T) == groups).all() for other in others]
            if np.mean(same) >= SURELY:
                found.append(_two_families(tree, k, p, inside, groups, score, float(np.mean(same))))
    return sorted(found, key=lambda one: -one.score)


def _child_means(judge: Judge, tree: Hierarchy, k: int) -> Floats:
    """(C_{k-1}, d) unit means of the classes below level k, nan without samples."""
    has = judge.mass > 0
    sums = torch.zeros(tree.sizes[k - 1], judge.means.shape[1])
    sums.index_add_(0, torch.from_numpy(tree.ancestors(k - 1).copy())[has], judge.means[has])
    found: Floats = F.normalize(sums, dim=1).double().numpy()
    found[(found == 0).all(axis=1)] = np.nan
    return found


def two_groups(alike: Floats, parents: Ints) -> list[tuple[int, Ints, float]]:
    """Parents whose children are of two kinds: the parent, (n,) the group of each child, and how much less alike they are."""
    pairs, same = ~np.eye(len(alike), dtype=bool) & ~np.isnan(alike), parents[:, None] == parents[None, :]
    if not (pairs & same).any() or not (pairs & ~same).any():
        return []
    within, across = float(np.median(alike[pairs & same])), float(np.median(alike[pairs & ~same]))
    found = []

    def level(share: float) -> float:
        return across + share * (within - across)

    for p in range(parents.max() + 1) if within - across > HELPFUL else ():
        inside = np.flatnonzero(parents == p)
        own = alike[np.ix_(inside, inside)]
        if len(inside) < 2 * TWO or np.isnan(own).any():
            continue
        groups = _halves(1 - own)
        apart = groups[:, None] != groups[None, :]
        near = own[~apart & ~np.eye(len(own), dtype=bool)]
        if np.bincount(groups).min() >= TWO and near.mean() >= level(NEAR) and own[apart].mean() <= level(FAR):
            found.append((p, groups, float(near.mean() - own[apart].mean())))
    return found


def _halves(far: Floats) -> Ints:
    """The group of each child, 0 for that of the first."""
    groups = cut(far.clip(min=0), [2])[0]
    found: Ints = (groups != groups[0]).astype(np.int64)
    return found


def _two_families(tree: Hierarchy, k: int, p: int, inside: Ints, groups: Ints, score: float, sure: float) -> Remark:
    names = [[tree.classes[k - 1][c] for c in inside[groups == g]] for g in (0, 1)]
    said = " | ".join(", ".join(group[:4]) + (" …" if len(group) > 4 else "") for group in names)
    reason = (
        f"its children are of two kinds, hardly more alike than those of two classes of {tree.levels[k]} "
        f"(the same in {sure:.0%} of draws of samples): {said}"
    )
    return Remark("split", tree.levels[k], tree.classes[k][p], "", "", score, reason)
