"""How probable it is that a known label is wrong, at each level, and what it should be instead.

A judge gives P(c | x) for every finest class c, without having seen the label. The label g at its deepest known level d is
right with probability w₀; else the annotator slipped to another class of that level, drawn evenly from those under the true
ancestor h levels up, with probability w_h (h = 1: a sibling; the highest h: anywhere). So

    P(g | x)  =  w₀ P(g)  +  Σ_h w_h (P(ancestor of g, h up) - P(g)) / (other classes under that ancestor)

and Bayes' rule says which term made the label. The w of each depth are found by EM over all samples, and with them the
sharpness of each level's probabilities: labels that are wrong do not make the judge unsure. The label of a coarser level j
is wrong if the true class is not under it; the same terms say how probable that is. The sum of these probabilities is how
many wrong labels there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.data.samples import Ints, deepest_known
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import ROWS, Opinions, allowed, best_sharpness

Floats = NDArray[np.float64]
FITTED = 4000  # samples that sharpness is fitted to, at most
FACTORS = (0.6, 0.8, 1.25, 1.6)  # candidates for a level's sharpness, times what it was
SWEEPS = 3
STEPS = 60  # of EM
SMOOTHING = 1.0  # samples that every kind of slip is given from the start; ten times as many are right
LEAST = 1e-12


# ---- probabilities from scores ---------------------------------------------------------------------------------------


def class_log_probs(scores: Tensor, tree: Hierarchy, sharpness: Tensor) -> Tensor:
    """(B, C_1) log P(c | x): each level chosen within the one above, with a sharpness of its own, fine first."""
    total = torch.zeros_like(scores)
    for k in range(len(tree)):
        sharp = scores * sharpness[k]
        own = grouped(sharp, tree.ancestors(k), tree.sizes[k])
        above = (
            grouped(sharp, tree.ancestors(k + 1), tree.sizes[k + 1])[:, _index(tree.parents[k])] if k + 1 < len(tree) else None
        )
        step = own - (own.logsumexp(dim=1, keepdim=True) if above is None else above)
        total += step[:, _index(tree.ancestors(k))]
    return total


def grouped(values: Tensor, group: Ints, groups: int) -> Tensor:
    """(B, groups) log of the summed exponentials of (B, n) values by group."""
    top = values.amax(dim=1, keepdim=True)
    sums = torch.zeros(len(values), groups).index_add_(1, _index(group), (values - top).exp())
    return sums.clamp(min=1e-37).log() + top


def _index(values: Ints) -> Tensor:
    return torch.from_numpy(np.array(values))


def given_probs(log_probs: Tensor, labels: Ints, tree: Hierarchy) -> Floats:
    """(B, K + 1) probabilities of each sample's own label at every level, nan where unknown; the last column is 1, the root."""
    found = np.full((len(labels), len(tree) + 1), np.nan)
    found[:, -1] = 1
    for k in range(len(tree)):
        rows = np.flatnonzero(labels[:, k] >= 0)
        level = grouped(log_probs[rows], tree.ancestors(k), tree.sizes[k]) if k else log_probs[rows]
        at = level.gather(1, torch.from_numpy(labels[rows, k]).unsqueeze(1)).squeeze(1)
        found[rows, k] = at.exp().clamp(max=1).double().numpy()
    return found


# ---- slips -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Slips:
    """How labels go wrong.

    Attributes:
        sharpness: per level, fine first.
        shares: (K, K + 1): of the labels known down to level d, the share that is right, and that slipped to another class
            under the ancestor h = 1 … levels up.
    """

    sharpness: tuple[float, ...]
    shares: Floats


def kinds(given: Floats, labels: Ints, tree: Hierarchy) -> Floats:
    """(N, K + 1) how likely the label is, if it is right (column 0), or if it slipped under the ancestor h levels up."""
    depth, deepest = len(tree), deepest_known(labels)
    found = np.zeros((len(labels), depth + 1))
    for d in range(depth):
        rows = np.flatnonzero(deepest == d)
        own = given[rows, d]
        found[rows, 0] = own
        for h in range(1, depth - d + 1):
            others = _others(tree, d, h)[labels[rows, d]]
            found[rows, h] = np.where(others > 0, (given[rows, d + h] - own).clip(min=0) / others.clip(min=1), 0)
    return found


def _others(tree: Hierarchy, level: int, up: int) -> Ints:
    """(C_level,) how many other classes of a level share the ancestor `up` levels higher; beyond the top, all others."""
    if level + up >= len(tree):
        return np.full(tree.sizes[level], tree.sizes[level] - 1)
    above = tree.ancestors(level + up, of=level)
    others: Ints = np.bincount(above, minlength=tree.sizes[level + up])[above] - 1
    return others


def fit_shares(likely: Floats, deepest: Ints, depth: int, steps: int = STEPS, weights: Floats | None = None) -> Floats:
    """(K, K + 1) the share of each kind, for each depth of labels, by EM."""
    shares = np.zeros((depth, depth + 1))
    counts = np.ones(len(likely)) if weights is None else weights
    for d in range(depth):
        here, count = likely[deepest == d], counts[deepest == d]
        prior = np.array([10.0] + [1.0] * (depth - d) + [0.0] * d) * SMOOTHING
        shares[d] = prior / prior.sum()
        for _ in range(steps if len(here) else 0):
            each = here * shares[d]
            each /= each.sum(axis=1, keepdims=True).clip(min=LEAST)
            total = count @ each + prior
            shares[d] = total / total.sum()
    return shares


def likelihood(likely: Floats, deepest: Ints, shares: Floats) -> float:
    """The mean log-likelihood of known labels."""
    known = deepest < len(shares)
    each = (likely[known] * shares[deepest[known]]).sum(axis=1)
    return float(np.log(each.clip(min=LEAST)).mean())


def fitted_rows(labels: Ints, tree: Hierarchy) -> Ints:
    """Some samples with labels, evenly spaced, to fit sharpness to."""
    known = np.flatnonzero((labels >= 0).any(axis=1))
    most = max(min(FITTED, 8 * ROWS // tree.sizes[0]), 200)
    return known[:: max(-(-len(known) // most), 1)]


def fit_slips(opinions: Opinions, labels: Ints) -> Slips:
    """Sharpness and shares under which the labels are likeliest; `labels` are those that count."""
    tree, rows = opinions.tree, fitted_rows(labels, opinions.tree)
    scores, own, deepest = opinions.scores(rows), labels[rows], deepest_known(labels[rows])
    sharp = np.full(len(tree), 1.4 * best_sharpness(scores, allowed(own, tree)))

    def tried(values: NDArray[Any]) -> tuple[float, Floats]:
        said = class_log_probs(scores, tree, torch.from_numpy(values).float())
        likely = kinds(given_probs(said, own, tree), own, tree)
        shares = fit_shares(likely, deepest, len(tree), steps=20)
        return likelihood(likely, deepest, shares), shares

    best, shares = tried(sharp)
    for _ in range(SWEEPS):
        for k in range(len(tree)):
            for factor in FACTORS:
                other = sharp.copy()
                other[k] *= factor
                value, found = tried(other)
                if value > best:
                    best, sharp, shares = value, other, found
    return Slips(tuple(sharp.tolist()), shares)


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Doubts:
    """What is thought of every label.

    Attributes:
        wrong: (N, K) probability that the known label of each level is wrong, fine first; nan where it is unknown.
        level: (N,) the coarsest level at which the label is wrong, if it is wrong; -1 without any label.
        slips: how labels go wrong.
        given: (N, K + 1) what judges gave the known labels.
    """

    wrong: Floats
    level: Ints
    slips: Slips
    given: Floats

    def named(self) -> Floats:
        """(N,) the probability that the label at the named level is wrong; 0 without any label."""
        at = self.wrong[np.arange(len(self.level)), self.level.clip(min=0)]
        return np.where(self.level >= 0, np.nan_to_num(at), 0.0)

    def deepest(self) -> Floats:
        """(N,) the probability that the deepest known label is wrong; 0 without any label."""
        found: Floats = np.nan_to_num(np.nanmax(np.where(np.isnan(self.wrong), -1, self.wrong), axis=1)).clip(min=0)
        return found


def find_doubts(opinions: Opinions, labels: Ints) -> Doubts:
    """The probability that each known label is wrong."""
    tree, slips = opinions.tree, fit_slips(opinions, labels)
    given = np.full((len(labels), len(tree) + 1), np.nan)
    sharp = torch.tensor(slips.sharpness)
    for rows, scores in opinions.chunks():
        given[rows] = given_probs(class_log_probs(scores, tree, sharp), labels[rows], tree)
    shares = fit_shares(kinds(given, labels, tree), deepest_known(labels), len(tree))
    return doubts_of(given, labels, tree, Slips(slips.sharpness, shares))


def doubts_of(given: Floats, labels: Ints, tree: Hierarchy, slips: Slips) -> Doubts:
    """Bayes' rule, label by label: see the top of this file."""
    deepest, depth = deepest_known(labels), len(tree)
    each = kinds(given, labels, tree) * slips.shares[deepest.clip(max=depth - 1)]
    total = each.sum(axis=1).clip(min=LEAST)
    wrong, level = np.full(labels.shape, np.nan), np.full(len(labels), -1)
    for d in range(depth):
        rows = np.flatnonzero(deepest == d)
        for j in range(d, depth):
            wrong[rows, j] = (
                sum(_beyond(given[rows], each[rows], d, h, j) for h in range(j - d + 1, depth - d + 1)) / total[rows]
            )
        mine = wrong[rows]
        named = np.full(len(rows), d)
        for j in range(d + 1, depth):
            named = np.where(mine[:, j] > 0.5 * mine[:, d], j, named)
        level[rows] = named
    wrong[tree.only_real(labels) < 0] = np.nan  # what stands in is doubted as the class that it stands in for
    for k in range(depth - 1):
        level[(level == k) & np.isnan(wrong[:, k])] = k + 1
    return Doubts(wrong.clip(0, 1), level, slips, given)


def _beyond(given: Floats, each: Floats, d: int, h: int, j: int) -> Floats:
    """The part of the term h that lies outside the label's class at level j."""
    all_of_it = (given[:, d + h] - given[:, d]).clip(min=LEAST)
    found: Floats = each[:, h] * ((given[:, d + h] - given[:, j]) / all_of_it).clip(0, 1)
    return found


# ---- how many ----------------------------------------------------------------------------------------------------------

SOFTER, SHARPER = 0.6, 1.25  # how far the fitted sharpness may be off; chosen so that intervals hold (benchmarks/audit.md)
NORMAL = 1.96


@dataclass(frozen=True)
class Count:
    """How many labels of a level are wrong: an estimate and a 95 % interval."""

    level: int
    known: int
    wrong: float
    low: float
    high: float


def count_wrong(opinions: Opinions, labels: Ints, doubts: Doubts) -> list[Count]:
    """How many labels are wrong, per level, fine first. The interval allows for chance and for judges that are too sure."""
    tree, rows = opinions.tree, fitted_rows(labels, opinions.tree)
    scores, sharp = opinions.scores(rows), torch.tensor(doubts.slips.sharpness)
    fitted, softer, sharper = (_sums(scores, labels[rows], tree, sharp * factor) for factor in (1.0, SOFTER, SHARPER))
    found = []
    for k in range(len(tree)):
        p = doubts.wrong[:, k][opinions.tree.only_real(labels)[:, k] >= 0]
        spread = NORMAL * float(np.sqrt((p * (1 - p)).sum() + p.sum()))
        factors = [other[k] / max(fitted[k], 1e-9) for other in (softer, sharper)]
        low, high = p.sum() * min(1.0, *factors) - spread, p.sum() * max(1.0, *factors) + spread
        found.append(Count(k, len(p), float(p.sum()), max(float(low), 0.0), min(float(high), len(p))))
    return found


def _sums(scores: Tensor, labels: Ints, tree: Hierarchy, sharpness: Tensor) -> Floats:
    """(K,) how many labels are wrong, judged with this sharpness."""
    given = given_probs(class_log_probs(scores, tree, sharpness), labels, tree)
    shares = fit_shares(kinds(given, labels, tree), deepest_known(labels), len(tree))
    found: Floats = np.nansum(doubts_of(given, labels, tree, Slips(tuple(sharpness.tolist()), shares)).wrong, axis=0)
    return found


# ---- what it should be -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Suggestions:
    """For some samples, in their order: the level and the class to put instead, -1 for none, and how sure that is."""

    level: Ints
    label: Ints
    sure: Floats


SURE = 0.5


def suggest(opinions: Opinions, labels: Ints, doubts: Doubts, rows: Ints, *, if_wrong: bool = True) -> Suggestions:
    """What the labels of some samples should be, as deep as it is sure.

    Args:
        opinions: what judges think.
        labels: (N, K) of all samples.
        doubts: what is thought of them.
        rows: the samples.
        if_wrong: take it that the label is wrong at the level that is named; else it may be right, too.
    """
    tree, sharp = opinions.tree, torch.tensor(doubts.slips.sharpness)
    level, label, sure = np.full(len(rows), -1), np.full(len(rows), -1), np.zeros(len(rows))
    place = {int(row): i for i, row in enumerate(rows)}
    for here, scores in opinions.chunks(rows):
        belief = class_log_probs(scores, tree, sharp).double().exp()
        named = doubts.level[here] if if_wrong else None
        belief = belief * torch.from_numpy(_slip_weights(labels[here], named, tree, doubts.slips.shares))
        belief = belief / belief.sum(dim=1, keepdim=True).clamp(min=1e-30)
        at = [place[int(row)] for row in here]
        level[at], label[at], sure[at] = _rolled_up(belief, tree)
    return Suggestions(level, label, sure)


def _slip_weights(labels: Ints, named: Ints | None, tree: Hierarchy, shares: Floats) -> Floats:
    """(B, C_1) how probable it is that a sample of each finest class is given this label; 0 under what is named as wrong."""
    found, deepest, depth = np.zeros((len(labels), tree.sizes[0])), deepest_known(labels), len(tree)
    for i, d in enumerate(deepest.tolist()):
        if d == depth:
            continue
        for h in range(1, depth - d + 1):
            weight = shares[d, h] / max(int(_others(tree, d, h)[labels[i, d]]), 1)
            inside = tree.ancestors(d + h) == labels[i, d + h] if d + h < depth else np.ones(tree.sizes[0], dtype=bool)
            found[i] += weight * inside
        j = d if named is None else int(named[i])
        found[i, tree.ancestors(j) == labels[i, j]] = shares[d, 0] if named is None else 0
    return found


def _rolled_up(belief: Tensor, tree: Hierarchy) -> tuple[Ints, Ints, Floats]:
    """For each row of (B, C_1) probabilities the deepest class that is at least `SURE`: level, class, probability."""
    level, label, sure = np.full(len(belief), -1), np.full(len(belief), -1), np.zeros(len(belief))
    for k in tree.top_down:
        mass = torch.zeros(len(belief), tree.sizes[k], dtype=belief.dtype).index_add_(1, _index(tree.ancestors(k)), belief)
        top, best = mass.max(dim=1)
        better = top.numpy() >= SURE
        real = ~tree.stand_ins[k][best.numpy()]
        level, label = np.where(better & real, k, level), np.where(better & real, best.numpy(), label)
        sure = np.where(better, top.numpy(), sure)
    return level, label, sure
