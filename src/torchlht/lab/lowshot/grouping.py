"""A tree of classes from their names: k-means on vectors of the names, then on the means of the groups, and so on upwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot.vectors import Floats, words

Ints = NDArray[np.int64]
RESTARTS, ROUNDS = 8, 100


def group(
    names: Sequence[str], vectors: Floats, sizes: Sequence[int] = (100, 10), *, seed: int = 0, level: str = "class"
) -> Hierarchy:
    """A tree over the names, which are sorted first: their order does not matter.

    Directions of vectors are clustered: the length of a word's says how common it is, and a mean of many is short.

    Args:
        names: the finest classes.
        vectors: (names, d), in the same order.
        sizes: numbers of groups of the levels above, fine first, decreasing.
        seed: of k-means.
        level: what the finest level is called; those above are group1, group2, …

    Raises:
        ConfigError: when there are more groups than classes, or more groups above than below.
    """
    check_sizes(sizes, len(names))
    order = np.argsort(np.array(names), kind="stable")
    members, x = [names[i] for i in order], vectors[order]
    above = np.arange(len(members))  # the group of each class at the level reached
    classes, parents = [list(members)], []
    for i, size in enumerate(sizes):
        parent = numbered(kmeans(directions(_means(x, above)), size, seed=seed + i))
        above = parent[above]
        parents.append(parent)
        inside = [[members[j] for j in np.flatnonzero(above == g)] for g in range(size)]
        classes.append([f"{commonest(some)} {g + 1}" for g, some in enumerate(inside)])
    levels = [level, *(f"group{i + 1}" for i in range(len(sizes)))]
    return Hierarchy(levels=levels, classes=classes, parents=parents, source="groups of names")


def check_sizes(sizes: Sequence[int], classes: int) -> None:
    """Raise ConfigError unless there are fewer groups at every level, and no more than classes."""
    listed = ",".join(map(str, sizes))
    if any(size < 2 for size in sizes):
        raise ConfigError(f"`groups={listed}`: at least 2 groups at each level")
    if any(above >= below for below, above in pairwise(sizes)):
        raise ConfigError(f"`groups={listed}`: numbers of groups, fine first, each smaller than the one before")
    if sizes and sizes[0] > classes:
        raise ConfigError(f"`groups={listed}`: more groups than the {classes} classes there are; choose fewer")


def _means(x: Floats, groups: Ints) -> Floats:
    """(groups, d) the mean of the rows of each group."""
    members = (groups == np.arange(groups.max() + 1)[:, None]).astype(np.float64)  # (groups, n)
    means: Floats = members @ x / members.sum(axis=1, keepdims=True)
    return means


def directions(x: Floats) -> Floats:
    """Rows of unit length; one of zeros stays."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit: Floats = x / np.where(length > 0, length, 1.0)
    return unit


def numbered(groups: Ints) -> Ints:
    """The same groups, numbered in the order of their first members."""
    first: dict[int, int] = {}
    return np.array([first.setdefault(g, len(first)) for g in groups.tolist()])


def commonest(names: Sequence[str]) -> str:
    """The word that is in most of the names; of several, the last of the first name that has one: nouns come last."""
    count = Counter(word for name in names for word in set(words(name)))
    most = max(count.values(), default=0)
    return next((word for name in names for word in reversed(words(name)) if count[word] == most), "group")


def restrict(tree: Hierarchy, names: Collection[str]) -> Hierarchy:
    """The tree of these finest classes alone; what has none of them left is gone."""
    keep = np.array([i for i, name in enumerate(tree.classes[0]) if name in names])
    classes, parents = [[tree.classes[0][i] for i in keep]], []
    for k, up in enumerate(tree.parents):
        above, index = np.unique(up[keep], return_inverse=True)
        classes.append([tree.classes[k + 1][i] for i in above])
        parents.append(index)
        keep = above
    return Hierarchy(levels=tree.levels, classes=classes, parents=parents, source="the classes to learn from")


# ---- k-means -------------------------------------------------------------------------------------------------------


def kmeans(x: Floats, k: int, *, seed: int = 0, restarts: int = RESTARTS) -> Ints:
    """(n,) the group of each row, none of the k empty: the best of several starts, by squared distances to centres."""
    x = compact(x)
    best, least = np.zeros(len(x), dtype=np.int64), np.inf
    for restart in range(restarts):
        groups = improve(x, start(x, k, np.random.default_rng([seed, restart])))
        inertia = float(((x - _means(x, groups)[groups]) ** 2).sum())
        if inertia < least:
            best, least = groups, inertia
    return best


def compact(x: Floats) -> Floats:
    """Rows with the same distances in no more dimensions than there are rows."""
    if x.shape[1] <= len(x):
        return x
    triangle: Floats = np.asarray(np.linalg.qr(x.T, mode="r"))
    return triangle.T


def start(x: Floats, k: int, rng: np.random.Generator) -> Floats:
    """(k, d) different rows as centres: each drawn with the square of its distance to the nearest before it (k-means++)."""
    chosen = [int(rng.integers(len(x)))]
    nearest = squared_distances(x, x[chosen])[:, 0]
    while len(chosen) < k:
        nearest[chosen] = 0
        left = np.setdiff1d(np.arange(len(x)), chosen)
        weights = nearest[left] if nearest[left].sum() > 0 else np.ones(len(left))  # all others lie on centres
        chosen.append(int(rng.choice(left, p=weights / weights.sum())))
        nearest = np.minimum(nearest, squared_distances(x, x[chosen[-1:]])[:, 0])
    return x[chosen]


def improve(x: Floats, centres: Floats) -> Ints:
    """Rows to their nearest centres and centres to the means of their rows, in turns, until nothing moves."""
    before = np.full(len(x), -1)
    for _ in range(ROUNDS):
        groups = assign(x, centres)
        if (groups == before).all():
            break
        before, centres = groups, _means(x, groups)
    return groups


def assign(x: Floats, centres: Floats) -> Ints:
    """(n,) the nearest centre of each row; one that no row is nearest to takes the row that is farthest from its own.

    Of groups of a single row none is taken, or they would be empty in turn.
    """
    distances = squared_distances(x, centres)
    groups: Ints = distances.argmin(axis=1)
    own = distances[np.arange(len(x)), groups]
    for empty in np.setdiff1d(np.arange(len(centres)), groups):
        spare = np.bincount(groups, minlength=len(centres))[groups] > 1
        farthest = int(np.where(spare, own, -1.0).argmax())
        groups[farthest], own[farthest] = empty, 0.0
    return groups


def squared_distances(x: Floats, centres: Floats) -> Floats:
    """(n, k) squared distances of rows to centres."""
    distances: Floats = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
    return distances.clip(min=0)
