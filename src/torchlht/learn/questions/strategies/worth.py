"""`ours`: what an answer at each level would teach, over its price.

With u_jh the doubt about sample j at level h (one less the lead of its first class over the second), w_h how much the level
counts, H_jh the entropy of its class, and A_ij^m how much sample i says about j at level m, the worth of the answer at level k
of sample i is

    worth(i, k) = Σ_j Σ_h  w_h · u_jh · A_ij^max(k, h) · s_jkh          s_jkh = 1 for h ≥ k, else ½ · min(1, H_jk / H_jh)

An answer settles its own level and all coarser ones. Of a finer level it settles half of the share of the entropy that the
coarser class makes up: the rest is which child it is, and part of it the opinion would have found out by itself. It helps those
near i as far as they are believed to be of the same class as i. The next question is that of the largest worth over its price;
then what its answer is expected to settle is taken off every u, so that a batch does not ask the same thing twice. An annotator
who cannot tell answers at a coarser level with some probability, and the worth is the mean over what may be answered.

If the finest level is all that counts, coarse answers pay late: they narrow a sample down to classes that the opinion cannot
tell apart before it has a few labels of each, and its doubts are no good guide until then. So the first questions are those of
`typical`, up to `FEW` labels per class, and the worth decides from there on.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints
from torchlht.learn.questions.prices import Floats
from torchlht.learn.questions.strategies.spread import typical
from torchlht.learn.questions.strategy import CENT, Asked, Situation, lead, strategy

NEAREST = 30  # neighbours that an answer helps
POWER = 2.0  # of the cosine
FINER = 0.5  # how much of what a coarse answer rules out at finer levels counts; 1 asked for too many orders and families
FEW = 4  # labels per finest class, before coarse answers are weighed against finest ones; 3 was less in the end
PART = 2048


@dataclass(frozen=True, eq=False)
class Ties:
    """Who learns from whom: for each sample its neighbours, itself first.

    Attributes:
        near: (N, n) positions.
        weight: (K, N, n) how much the sample's class at a level says about that of each neighbour, from 0 to 1.
    """

    near: Ints
    weight: Floats


def tied(now: Situation, nearest: int = NEAREST, power: float = POWER) -> Ties:
    """Ties between neighbours: the cosine to a power times the probability that both are of one class, if that is known."""
    near, cosines = neighbours(now.space, nearest)
    close = cosines.clip(min=0) ** power
    alike = [1.0] * len(now.hierarchy) if now.plainly else [agreement(probs, near) for probs in now.believed]
    weight = np.stack([close * same for same in alike])
    weight[:, :, 0] = 1  # a sample says everything about itself
    return Ties(near, weight)


def agreement(probs: NDArray[np.float32], near: Ints) -> Floats:
    """(N, n) the probability that a sample and its neighbour are of the same class."""
    parts = range(0, len(probs), PART)
    found = np.concatenate([np.einsum("nc,nmc->nm", probs[i : i + PART], probs[near[i : i + PART]]) for i in parts])
    return found.astype(np.float64)


def neighbours(space: NDArray[np.float32], nearest: int) -> tuple[Ints, Floats]:
    """(N, n) the samples most similar to each, itself first, and their cosines."""
    n = min(nearest + 1, len(space))
    found, cosines = np.empty((len(space), n), np.int64), np.empty((len(space), n))
    for start in range(0, len(space), PART):
        similar = space[start : start + PART] @ space.T
        rows = np.arange(len(similar))
        similar[rows, start + rows] = 2
        part = np.argpartition(-similar, n - 1, axis=1)[:, :n]
        order = np.take_along_axis(part, np.argsort(-np.take_along_axis(similar, part, 1), axis=1, kind="stable"), 1)
        found[start : start + PART], cosines[start : start + PART] = order, np.take_along_axis(similar, order, 1)
    cosines[:, 0] = 1
    return found, cosines


def doubts(now: Situation) -> Floats:
    """(N, K) one less the lead of each sample's first class over the second, times how much the level counts."""
    if now.target is None:
        return (now.labels < 0) / len(now.hierarchy)
    leads = [lead(probs) for probs in now.believed]
    return np.asarray((1 - np.stack(leads, axis=1)) * now.target)


def entropies(now: Situation) -> Floats:
    """(N, K) the entropy of each sample's class at each level."""
    logs = (probs.astype(np.float64) for probs in now.believed)
    return np.stack([-(p * np.log(p.clip(min=1e-30))).sum(axis=1) for p in logs], axis=1)


def settled(now: Situation) -> Floats:
    """(K, K, N) the share of level h's uncertainty that an answer at level k settles; levels are the first two axes."""
    bits = entropies(now)
    levels = range(len(now.hierarchy))
    shares = [
        [np.ones(len(now)) if k <= h else (bits[:, k] / bits[:, h].clip(min=1e-9)).clip(max=1) * FINER for h in levels]
        for k in levels
    ]
    return np.array(shares)


class Worth:
    """What answers would teach, given those that are expected already."""

    def __init__(self, now: Situation, ties: Ties) -> None:
        self.now, self.ties, self.left, self.share = now, ties, doubts(now), settled(now)
        self.chance = np.array([now.prices.answers(k) for k in range(len(now.hierarchy))])
        if now.plainly:  # an opinion would know already what is near a label
            for i, k in np.argwhere(now.labels >= 0).tolist():
                self.left[ties.near[i], k] *= 1 - ties.weight[k, i]

    def reach(self, i: int, k: int) -> Floats:
        """(n, K) the share of each neighbour's uncertainty at each level that a question about i at level k settles."""
        near, levels = self.ties.near[i], range(len(self.now.hierarchy))
        found = np.zeros((len(near), len(levels)))
        for m in levels[k:]:
            if chance := self.chance[k, m]:
                for h in levels:
                    found[:, h] += chance * self.ties.weight[max(m, h), i] * self.share[m, h, near]
        return found

    def of(self, i: int, k: int) -> float:
        """The worth of a question."""
        return float((self.left[self.ties.near[i]] * self.reach(i, k)).sum())

    def of_all(self) -> Floats:
        """(N, K) the worth of every question: what `of` gives, at once."""
        near, levels = self.ties.near, range(len(self.now.hierarchy))
        parts = np.zeros((len(levels), len(near)))  # of an answer at each level
        for m in levels:
            for h in levels:
                parts[m] += (self.ties.weight[max(m, h)] * (self.left[:, h] * self.share[m, h])[near]).sum(axis=1)
        return np.asarray((self.chance[:, :-1] @ parts).T)

    def expect(self, i: int, k: int) -> None:
        """Take off what the answer settles."""
        self.left[self.ties.near[i]] *= 1 - self.reach(i, k)


@strategy("ours", "the sample and level whose answer teaches most for its price")
def ours(now: Situation) -> Iterator[Asked]:
    """Greedy and lazy: worth only falls as answers come in, so most of it need not be computed again."""
    worth, levels = Worth(now, tied(now)), np.flatnonzero(np.isfinite(now.prices.cost)).tolist()
    deepest, left = np.full(len(now), len(now.hierarchy)), now.budget + CENT
    for asked in first_ones(now):
        yield asked
        deepest[asked.sample], left = asked.level, left - now.prices.cost[asked.level]
        worth.expect(asked.sample, asked.level)
    first = -worth.of_all() / now.prices.cost
    waiting = [(first[i, k], now.keys[i], i, k) for k in levels for i in np.flatnonzero(now.open[:, k]).tolist()]
    heapq.heapify(waiting)
    while waiting:
        _, key, i, k = heapq.heappop(waiting)
        if k >= deepest[i] or now.prices.cost[k] > left:
            continue
        value = worth.of(i, k)
        ratio = -value / now.prices.cost[k]
        if waiting and ratio > waiting[0][0]:
            heapq.heappush(waiting, (ratio, key, i, k))
            continue
        yield Asked(i, k, reason(worth, i, k, value))
        deepest[i], left = k, left - now.prices.cost[k]
        worth.expect(i, k)


def first_ones(now: Situation) -> Iterator[Asked]:
    """Typical samples, until there is money no more or there are `FEW` labels per class, if only the finest level counts."""
    level = now.prices.finest
    if now.target is None or now.target[level] < 1:
        return
    price, missing = float(now.prices.cost[level]), FEW * now.hierarchy.sizes[level] - int((now.labels[:, level] >= 0).sum())
    count = min(missing, int((now.budget + CENT) / price))
    if count > 0:
        yield from itertools.islice(typical(replace(now, budget=count * price)), count)


def reason(worth: Worth, i: int, k: int, value: float) -> str:
    """Why a question is asked, in a few words."""
    own = float((worth.left[i] * worth.reach(i, k)[0]).sum())
    around = 0.0 if value <= 0 else 1 - own / value
    unsure = 1 - float(worth.now.believed[k][i].max())
    return f"{unsure:.0%} unsure of its {worth.now.hierarchy.levels[k]}; {around:.0%} of its worth is for samples like it"
