"""Strategies that look at how samples lie, not at an opinion: `typical` (TypiClust) and `coverage` (ProbCover)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints
from torchlht.learn.questions.strategy import Asked, Situation, strategy

NEAREST = 20  # neighbours that typicality is the mean over; both papers' value
SMALL = 5  # smaller clusters hold outliers: Hacohen et al. leave them out
MOST = 500  # clusters at most, as theirs
PURITY = 0.95  # Yehuda et al.: the largest radius at which this share of balls holds one cluster only
PART = 2048  # rows of similarities at a time
Array = NDArray[np.float32]


def typicality(space: Array, nearest: int = NEAREST) -> NDArray[np.float64]:
    """(N,) one over the mean distance to the nearest other samples."""
    found = np.empty(len(space))
    k = min(nearest, len(space) - 1)
    for start in range(0, len(space), PART):
        cosines = space[start : start + PART] @ space.T
        cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))] = -2
        best = np.partition(cosines, -k, axis=1)[:, -k:] if k else cosines[:, :0]
        found[start : start + PART] = np.sqrt((2 - 2 * best).clip(min=0)).mean(axis=1) if k else 1.0
    return 1 / found.clip(min=1e-9)


def clusters(space: Array, count: int, seed: int, rounds: int = 15) -> Ints:
    """(N,) k-means on the sphere, from samples that are far from each other."""
    rng = np.random.default_rng(seed)
    middle = space[_apart(space, count, rng)].copy()
    for _ in range(rounds):
        nearest = np.concatenate([(space[i : i + PART] @ middle.T).argmax(axis=1) for i in range(0, len(space), PART)])
        sums = np.zeros_like(middle)
        np.add.at(sums, nearest, space)
        length = np.linalg.norm(sums, axis=1, keepdims=True)
        middle = np.where(length > 0, sums / length.clip(min=1e-12), middle)
    return nearest.astype(np.int64)


def _apart(space: Array, count: int, rng: np.random.Generator) -> Ints:
    """k-means++: each next one with a probability that grows with the distance to those before."""
    chosen = [int(rng.integers(len(space)))]
    far = 1 - space @ space[chosen[0]]
    while len(chosen) < count:
        weight = far.clip(min=1e-12).astype(np.float64)
        chosen.append(int(rng.choice(len(space), p=weight / weight.sum())))
        far = np.minimum(far, 1 - space @ space[chosen[-1]])
    return np.array(chosen)


@strategy("typical", "the most typical sample of the largest cluster without labels, at the finest level (TypiClust)")
def typical(now: Situation) -> Iterator[Asked]:
    """Hacohen et al., ICML 2022: as many clusters as labels there will be; the emptiest and then largest cluster is next."""
    level, free = now.prices.finest, now.open[:, now.prices.finest].copy()
    labelled = now.labels[:, level] >= 0
    wanted = int(now.budget / now.prices.cost[level] + 1e-9)
    count = min(int(labelled.sum()) + wanted, MOST, len(now))
    if not free.any():
        return
    group, score = clusters(now.space, max(count, 1), now.seed), typicality(now.space)
    size, known = np.bincount(group, minlength=count), np.bincount(group[labelled], minlength=count)
    while free.any():
        left = np.bincount(group[free], minlength=count)
        usable = (left > 0) & (size > SMALL) if ((left > 0) & (size > SMALL)).any() else left > 0
        cluster = min(np.flatnonzero(usable).tolist(), key=lambda c: (known[c], -size[c]))
        inside = np.flatnonzero(free & (group == cluster))
        i = int(inside[score[inside].argmax()])
        free[i], known[cluster] = False, known[cluster] + 1
        yield Asked(i, level, f"typical of {size[cluster]} samples, {known[cluster] - 1} of them labelled")


def pure_radius(space: Array, classes: int, seed: int) -> float:
    """The largest cosine distance within which 95 % of samples have neighbours of their own cluster only."""
    group = clusters(space, min(classes, len(space)), seed)
    nearest_other = np.empty(len(space))
    for start in range(0, len(space), PART):
        cosines = space[start : start + PART] @ space.T
        cosines[group[start : start + PART, None] == group[None]] = -1
        nearest_other[start : start + PART] = 1 - cosines.max(axis=1)
    return float(np.quantile(nearest_other, 1 - PURITY))


@strategy("coverage", "the sample with most uncovered ones within a radius, at the finest level (ProbCover)")
def coverage(now: Situation) -> Iterator[Asked]:
    """Yehuda et al., NeurIPS 2022: greedily cover as many samples as possible by balls around labelled ones."""
    level, free = now.prices.finest, now.open[:, now.prices.finest].copy()
    radius = pure_radius(now.space, now.hierarchy.sizes[level], now.seed)
    near = [
        np.flatnonzero(1 - row <= radius + 1e-6)
        for i in range(0, len(now), PART)
        for row in now.space[i : i + PART] @ now.space.T
    ]
    counts, covered = np.array([len(rows) for rows in near]), np.zeros(len(now), dtype=bool)

    def cover(i: int) -> None:
        """Mark what lies around a sample; balls that hold it count fewer from then on."""
        for j in near[i][~covered[near[i]]].tolist():
            covered[j] = True
            counts[near[j]] -= 1

    for i in np.flatnonzero(now.labels[:, level] >= 0).tolist():
        cover(i)
    luck = now.ticket("ask")
    while free.any():
        among = np.flatnonzero(free)
        i = int(among[np.lexsort((luck[among], -counts[among]))[0]])
        yield Asked(i, level, f"{counts[i]} samples near it have no label near them")
        free[i] = False
        cover(i)
