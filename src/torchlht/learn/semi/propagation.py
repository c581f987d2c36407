"""Targets from neighbours: label spreading and class means, in a metric that is learned along with them.

Round by round, for every sample without a finest label and every finest class that is possible for it:

    log target = t · (z · m_c - |m_c|² / 2)  +  log F_c          then balanced to the frequencies of the known labels

z are the features in the metric of this round (`metric.whiten`, within the classes of the last round's targets), m_c the mean
of class c under these targets, F label spreading on the nearest-neighbour graph, and t is chosen so that known labels are
predicted best from the others of their class. It is EM for Gaussian classes with one scatter, held to the graph and the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, vstack
from torch import Tensor

from torchlht.data.samples import Ints, deepest_known
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.graph import affinity, neighbours, spread
from torchlht.learn.semi.metric import even, whiten
from torchlht.learn.semi.targets import MOST, Block, Targets, balance, find_blocks, known_shares

SHARPNESS = torch.logspace(0, 4, 33)  # what t is chosen from
TYPICAL, POWER = 100.0, 0.3  # t and the power below, where they cannot be found out
POWERS = torch.logspace(-1, 0.5, 31)  # what the final targets may be raised to
CHUNK = 2**24  # similarities at a time


@dataclass(frozen=True)
class Propagation:
    """Targets, and how good they are.

    Attributes:
        targets: one per sample; those of samples with a finest label are that label.
        power: what they were raised to, to be as sure as they are right.
        accuracy: share of right ones among labels that were set aside to find out; None when none were.
        checked: how many that were.
    """

    targets: Targets
    power: float
    accuracy: float | None = None
    checked: int = 0


def propagate(
    features: Tensor,
    labels: Ints,
    hierarchy: Hierarchy,
    *,
    rounds: int = 4,
    shrinkage: float = 0.5,
    k: int = 20,
    power: float | None = None,
) -> Propagation:
    """Targets for samples without a finest label, confined to the classes under the deepest label that is known.

    A third of the known finest labels is set aside first, to see how many are found again and how sure one may be: the targets
    made with all labels are raised to the power under which those set aside were most likely.

    Args:
        features: (N, d) of all training samples.
        labels: (N, K), fine first, -1 where unknown.
        hierarchy: the tree of classes.
        rounds: of metric, means and graph.
        shrinkage: of the metric.
        k: neighbours.
        power: what to raise the targets to instead of finding out. To be given when the features were trained on these very
            labels, which then say nothing about how well others are found; the sharpness is not fitted to them, either.
    """
    labels = with_ancestors(labels, hierarchy)
    x, settings = even(features.cpu()), (rounds, shrinkage, k, power is None)
    found = _targets(x, labels, hierarchy, *settings)
    held = _held_out(labels, hierarchy)
    if power is not None or not len(held) or not (labels[:, 0] < 0).any():
        power = POWER if power is None else power
        return Propagation(Targets.from_candidates(found.index, found.value.pow(power)), power)
    again = _targets(x, hidden_alike(labels, held), hierarchy, *settings).at(torch.from_numpy(held))
    truth = torch.from_numpy(labels[held, 0])
    power = _best_power(again, truth)
    raised = Targets.from_candidates(found.index, found.value.pow(power))
    return Propagation(raised, power, (again.best() == truth).float().mean().item(), len(held))


def _targets(x: Tensor, labels: Ints, hierarchy: Hierarchy, rounds: int, shrinkage: float, k: int, fitted: bool) -> Targets:
    blocks = find_blocks(labels, hierarchy)
    targets = one_hot(labels, width=min(MOST, max((len(block.leaves) for block in blocks), default=1)))
    members = _parents(labels, hierarchy)  # before there are targets, the metric is that within known coarse classes
    for _ in range(rounds + 1):
        z = whiten(x, members, shrinkage)
        means, mass = class_means(z, targets.matrix(hierarchy.sizes[0]))
        sharpness = choose_sharpness(z, means, mass, labels, blocks) if fitted else TYPICAL
        for block in blocks:  # finer ones first: what they find helps coarser ones
            targets = fill_block(targets, block, z, means, mass, labels, sharpness, k)
        members = targets.matrix(hierarchy.sizes[0])
    return targets


def with_ancestors(labels: Ints, hierarchy: Hierarchy) -> Ints:
    """Labels with what follows from finer ones filled in where nothing is said; where something is, it stays."""
    filled = labels.copy()
    for k, parents in enumerate(hierarchy.parents):
        implied = np.where(filled[:, k] >= 0, parents[filled[:, k]], -1)
        filled[:, k + 1] = np.where(filled[:, k + 1] >= 0, filled[:, k + 1], implied)
    return filled


def one_hot(labels: Ints, width: int = 1) -> Targets:
    """Targets that are the known finest labels, and nothing for other samples, with room for `width` classes each."""
    fine = torch.from_numpy(labels[:, :1])
    value = torch.zeros(len(labels), width)
    value[:, 0] = (fine[:, 0] >= 0).float()
    index = torch.zeros(len(labels), width, dtype=torch.int64)
    index[:, :1] = fine.clamp(min=0)
    return Targets(index, value, value[:, 0])


def _parents(labels: Ints, hierarchy: Hierarchy) -> Any:
    """(N, groups) sparse: each sample in its deepest known class above the finest level, or in one group for all."""
    above = labels[:, 1:] if labels.shape[1] > 1 else np.full((len(labels), 1), -1)
    level = deepest_known(above)
    starts = np.cumsum([0, *hierarchy.sizes[1:]])
    padded = np.concatenate([above, np.zeros((len(above), 1), dtype=above.dtype)], axis=1)
    group = starts[np.minimum(level, len(starts) - 1)] + padded[np.arange(len(above)), level]
    ones = np.ones(len(labels), dtype=np.float32)
    return csr_array((ones, (np.arange(len(labels)), group)), shape=(len(labels), int(starts[-1]) + 1))


def class_means(z: Tensor, members: Any) -> tuple[Tensor, Tensor]:
    """The mean of each finest class (C_1, d) and how many samples' worth it stands on (C_1,)."""
    mass = torch.from_numpy(members.sum(axis=0))
    sums = torch.from_numpy(members.T @ z.numpy())
    return sums / mass.clamp(min=1e-6).unsqueeze(1), mass


def squared_norms(means: Tensor, mass: Tensor) -> Tensor:
    """|m|² of the classes' true means. The mean of n unit vectors is too long by chance: E|m|² = |μ|² + (1 - |μ|²) / n."""
    return ((mass * means.square().sum(dim=1) - 1) / (mass - 1).clamp(min=0.5)).clamp(min=0)


def choose_sharpness(z: Tensor, means: Tensor, mass: Tensor, labels: Ints, blocks: list[Block]) -> float:
    """The t under which known labels are most likely, each judged by the mean of its class without itself."""
    total, norms = torch.zeros(len(SHARPNESS)), squared_norms(means, mass)
    for block in blocks:
        rows = block.deeper[labels[block.deeper, 0] >= 0]
        own, leaves = torch.from_numpy(labels[rows, 0]), torch.from_numpy(block.leaves)
        usable = mass[own] > 1.5
        rows, own = torch.from_numpy(rows)[usable], own[usable]
        if not len(rows) or int((mass[leaves] > 0).sum()) < 2:
            continue
        scores = (z[rows] @ means[leaves].T - norms[leaves] / 2).masked_fill(mass[leaves] <= 0, -torch.inf)
        without = (mass[own].unsqueeze(1) * means[own] - z[rows]) / (mass[own] - 1).unsqueeze(1)
        mine = (z[rows] * without).sum(dim=1) - norms[own] / 2
        place = torch.searchsorted(leaves, own).unsqueeze(1)
        scores = scores.scatter(1, place, mine.unsqueeze(1))
        for i, t in enumerate(SHARPNESS.tolist()):
            total[i] += torch.log_softmax(t * scores, dim=1).gather(1, place).sum()
    return float(SHARPNESS[total.argmax()]) if total.any() else TYPICAL


def fill_block(
    targets: Targets, block: Block, z: Tensor, means: Tensor, mass: Tensor, labels: Ints, sharpness: float, k: int
) -> Targets:
    """The targets with those of one block made anew."""
    leaves, rows = torch.from_numpy(block.leaves), torch.from_numpy(block.rows)
    shares = torch.from_numpy(known_shares(labels, block)) * (mass[leaves] > 0)
    index, value, weight = targets.index.clone(), targets.value.clone(), targets.weight.clone()
    value[rows] = 0
    if shares.sum() > 0:
        here, norms, limit = means[leaves], squared_norms(means[leaves], mass[leaves]), min(MOST, len(leaves))
        likely = [
            (sharpness * (part @ here.T - norms / 2)).masked_fill(shares <= 0, -torch.inf).topk(limit, dim=1)
            for part in torch.split(z[rows], max(CHUNK // len(leaves), 1))
        ]
        scores, local = torch.cat([best for best, _ in likely]), torch.cat([order for _, order in likely])
        if len(leaves) > 1:
            scores = scores + spread_inside(targets, block, z, local, k).clamp(min=1e-6).log()
        found = balance(local, torch.softmax(scores, dim=1), shares)
        index[rows, : local.shape[1]], value[rows, : local.shape[1]] = leaves[local], found
    weight[rows] = value[rows].amax(dim=1)
    return Targets(index, value, weight)


def spread_inside(targets: Targets, block: Block, z: Tensor, local: Tensor, k: int) -> Tensor:
    """What reaches a block's samples along the graph of all samples under its class: (n, m) shares of the `local` classes."""
    inside = np.concatenate([block.rows, block.deeper])
    deeper = targets.at(torch.from_numpy(block.deeper))
    known = deeper.matrix(1 + max(int(block.leaves.max()), int(targets.index.max())))[:, block.leaves]
    known = known @ diags_array(1 / known.sum(axis=0).clip(min=1e-9))  # every class starts with the same amount
    seeds = vstack([csr_array((len(block.rows), len(block.leaves)), dtype=np.float32), known])
    ties = affinity(*neighbours(z[torch.from_numpy(inside)], k))
    found = torch.from_numpy(spread(ties, seeds, np.arange(len(block.rows)), local.numpy()))
    return found / found.sum(dim=1, keepdim=True).clamp(min=1e-12)


# ---- how good they are ---------------------------------------------------------------------------------------------


def _held_out(labels: Ints, hierarchy: Hierarchy) -> Ints:
    """A third of the samples with a finest label, from classes that have more than one, where siblings are possible."""
    fine = np.flatnonzero(labels[:, 0] >= 0)
    siblings = np.bincount(hierarchy.parents[0])[hierarchy.parents[0]] if len(hierarchy) > 1 else np.full(hierarchy.sizes[0], 2)
    order = np.random.default_rng(0).permutation(len(fine))
    chosen: list[int] = []
    seen: dict[int, int] = {}
    for i in fine[order].tolist():
        label = int(labels[i, 0])
        seen[label] = seen.get(label, 0) + 1
        if seen[label] % 3 == 2 and siblings[label] > 1:
            chosen.append(i)
    return np.sort(np.array(chosen, dtype=np.int64))


def hidden_alike(labels: Ints, held: Ints) -> Ints:
    """Labels of which some are hidden as deep as they are on the samples that have no finest label, in the same proportions."""
    deepest = deepest_known(labels)
    as_deep = np.random.default_rng(0).choice(deepest[deepest > 0], len(held))
    fewer = labels.copy()
    fewer[held] = np.where(np.arange(labels.shape[1]) < as_deep[:, None], -1, labels[held])
    return fewer


def _best_power(found: Targets, truth: Tensor) -> float:
    """The power under which the right classes are most likely; 1 when nothing can be said."""
    right = found.index == truth.unsqueeze(1)
    usable = found.value.sum(dim=1) > 0
    if not usable.any():
        return 1.0
    value, right = found.value[usable].clamp(min=1e-6), right[usable] & (found.value[usable] > 0)
    scores = []
    for power in POWERS.tolist():
        raised = torch.where(found.value[usable] > 0, value.pow(power), 0.0)
        likely = (raised * right).sum(dim=1) / raised.sum(dim=1)
        scores.append(likely.clamp(min=1e-4).log().mean())
    return float(POWERS[torch.stack(scores).argmax()])
