"""Strategies that look at one sample at a time: `random`, `random-levels`, `margin`, `entropy`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchlht.data.samples import hashed
from torchlht.learn.questions.strategy import CENT, Asked, Situation, lead, strategy


@strategy("random", "any sample, at the finest level")
def random(now: Situation) -> Iterator[Asked]:
    """Samples in random order."""
    level, luck = now.prices.finest, now.ticket("ask")
    for i in sorted(now.candidates().tolist(), key=lambda i: luck[i]):
        yield Asked(i, level, "by chance")


@strategy("random-levels", "any sample, at any level that has a price")
def random_levels(now: Situation) -> Iterator[Asked]:
    """Pairs of a sample and a level in random order. A level is left out once a finer one of the sample was asked."""
    levels = np.flatnonzero(np.isfinite(now.prices.cost)).tolist()
    pairs = [(hashed(now.seed, f"ask {k}", now.keys[i]), i, k) for k in levels for i in np.flatnonzero(now.open[:, k]).tolist()]
    deepest, left = np.full(len(now), len(now.hierarchy)), now.budget + CENT
    for _, i, k in sorted(pairs):
        if k < deepest[i] and now.prices.cost[k] <= left:
            deepest[i], left = k, left - now.prices.cost[k]
            yield Asked(i, k, "by chance")


@strategy("margin", "the smallest lead of the first class over the second, at the finest level", needs_labels=True)
def margin(now: Situation) -> Iterator[Asked]:
    """Samples by the difference of their two largest probabilities."""
    yield from _ranked(now, lead(now.believed[now.prices.finest]), "first class {0:.0%} ahead of the second")


@strategy("entropy", "the most uncertain class, at the finest level", needs_labels=True)
def entropy(now: Situation) -> Iterator[Asked]:
    """Samples by the entropy of their probabilities."""
    probs = now.believed[now.prices.finest].astype(np.float64)
    bits = -(probs * np.log2(probs.clip(min=1e-30))).sum(axis=1)
    yield from _ranked(now, -bits, "{1:.1f} bits unknown")


def _ranked(now: Situation, score: np.ndarray[tuple[int], np.dtype[np.floating]], why: str) -> Iterator[Asked]:
    """Open samples by ascending score; equal ones in random order."""
    among, luck = now.candidates(), now.ticket("ask")
    for i in among[np.lexsort((luck[among], score[among]))].tolist():
        yield Asked(i, now.prices.finest, why.format(score[i], -score[i]))
