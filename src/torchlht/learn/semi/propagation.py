"""Targets from neighbours: label spreading and class means, in a metric that is learned along with them.

Round by round, for every sample without a finest label and every finest class that is possible for it:

    log target = t · (z · m_c - |m_c|² / 2)  +  log F_c          then balanced to the frequencies of the known labels

z are the features in the metric of this round (`metric.whiten`, within the classes of the last round's targets), m_c the mean
of class c under these targets, F label spreading on the nearest-neighbour graph, and t is chosen so that known labels are
predicted best from the others of their class. It is EM for Gaussian classes with one scatter, plus graph and tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csc_array, csr_array, diags_array, vstack
from torch import Tensor

from torchlht.data.samples import Ints, deepest_known
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.targets import MOST, NONE, Block, Floats, Targets, balance, find_blocks, known_shares, without

# ---- a metric for neighbours: the more samples of one class differ in a direction, the less it counts --------


def even(features: Tensor) -> Tensor:
    """Centred features. Non-negative features, as after a ReLU, are replaced by their square roots, which are less skewed."""
    x = features.float()
    x = x.sqrt() if x.min() >= 0 else x
    return x - x.mean(dim=0)


def whiten(x: Tensor, members: Any, shrinkage: float = 0.5) -> Tensor:
    """Unit vectors in which the scatter within classes is the same in all directions.

    Args:
        x: (N, d), centred.
        members: (N, groups) sparse, how much of each sample belongs to each group; samples with an empty row are ignored.
        shrinkage: share of the scatter that is replaced by its mean over all directions, from 0 to 1.
    """
    mass = torch.from_numpy(members.sum(axis=0)).clamp(min=1e-6)
    sums = torch.from_numpy(members.T @ x.numpy())  # (groups, d)
    own = torch.from_numpy(members.sum(axis=1)).unsqueeze(1)
    scatter = ((x * own).T @ x - (sums / mass.unsqueeze(1)).T @ sums) / mass.sum()
    size = scatter.diagonal().mean().clamp(min=0)
    rounding = 1e-4 * x.square().mean() + 1e-12  # rounding error of a difference of large numbers, when classes hardly vary
    scatter = (1 - shrinkage) * (scatter + scatter.T) / 2 + (shrinkage * size + rounding) * torch.eye(len(scatter))
    root = torch.linalg.cholesky(scatter)
    return F.normalize(torch.linalg.solve_triangular(root, x.T, upper=False).T, dim=1)


# ---- neighbours, and labels that spread along them -------------------------------------------------------------------

EXACT = 100_000  # up to this many samples, every pair is compared
PAIRS = 2**24  # similarities at a time
COLUMNS = 256  # classes at a time


def neighbours(x: Tensor, k: int, *, exact: int = EXACT) -> tuple[Tensor, Tensor]:
    """The k most similar other samples of each: cosines (N, k) and positions (N, k).

    Among more than `exact` samples, only the nearest cells are searched: samples are divided among about √N centres,
    and each is compared with those of the eight cells whose centres are nearest to its own cell's.

    Args:
        x: (N, d) unit vectors.
        k: how many neighbours; fewer if there are fewer samples.
        exact: up to this many samples, every pair is compared.
    """
    k = min(k, len(x) - 1)
    if len(x) <= exact:
        everyone = torch.arange(len(x))
        return _among(x, everyone, everyone, k)
    cells, near = _cells(x, centres=int(len(x) ** 0.5), probes=8)
    cosines, found = torch.full((len(x), k), -1.0), torch.zeros(len(x), k, dtype=torch.int64)
    for own, probed in zip(cells, near.tolist(), strict=True):
        there = torch.cat([cells[cell] for cell in probed])
        cosines[own], found[own] = _among(x, own, there, k)
    return cosines, found


def _among(x: Tensor, own: Tensor, there: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """For each sample in `own` its k nearest in `there`, without itself; missing ones have a cosine of -1."""
    cosines, found = torch.full((len(own), k), -1.0), own.unsqueeze(1).expand(-1, k).clone()
    take = min(k + 1, len(there))
    for start in range(0, len(own), step := max(PAIRS // max(len(there), 1), 1)):
        part = own[start : start + step]
        similar = x[part] @ x[there].T
        similar[part.unsqueeze(1) == there.unsqueeze(0)] = -2.0
        best, order = similar.topk(take, dim=1)
        width = min(k, take - 1)
        cosines[start : start + step, :width] = best[:, :width]
        found[start : start + step, :width] = there[order[:, :width]]
    return cosines, found


def _cells(x: Tensor, *, centres: int, probes: int, rounds: int = 5) -> tuple[list[Tensor], Tensor]:
    """Samples divided among centres by a few rounds of k-means, and for each cell the cells nearest to it, itself first."""
    start = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:centres]
    middle = x[start]
    for _ in range(rounds):
        nearest = torch.cat([(part @ middle.T).argmax(dim=1) for part in torch.split(x, max(PAIRS // centres, 1))])
        sums = torch.zeros_like(middle).index_add_(0, nearest, x)
        middle = torch.where(sums.norm(dim=1, keepdim=True) > 0, torch.nn.functional.normalize(sums, dim=1), middle)
    cells = [torch.from_numpy(rows) for rows in _grouped(nearest.numpy(), centres)]
    own_first = (middle @ middle.T).fill_diagonal_(torch.inf)
    return cells, own_first.topk(min(probes, centres), dim=1).indices


def _grouped(group: Any, groups: int) -> list[Any]:
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(1, groups)))


def affinity(cosines: Tensor, found: Tensor, power: float = 3.0) -> Any:
    """(N, N) sparse: how closely samples are tied, symmetric and normalised, D^-½ W D^-½, with W = max(0, cosine)^power."""
    n, k = found.shape
    weights = cosines.clamp(min=0).pow(power).numpy().ravel()
    one_way = csr_array((weights, (np.repeat(np.arange(n), k), found.numpy().ravel())), shape=(n, n))
    both = one_way.maximum(one_way.T)
    scale = diags_array(1 / np.sqrt(both.sum(axis=1).clip(min=1e-9)))
    return csr_array(scale @ both @ scale, dtype=np.float32)


def spread(ties: Any, seeds: Any, rows: Ints, columns: Ints, *, keep: float = 0.9, steps: int = 40) -> Floats:
    """Label spreading (Zhou et al., NIPS 2003): F ← keep · ties · F + (1 - keep) · seeds, repeated.

    Every class spreads independently, so a few are computed at a time, and only the entries to report are kept.

    Args:
        ties: (N, N) sparse, normalised.
        seeds: (N, classes) sparse, the known labels.
        rows: (n,) samples to report.
        columns: (n, m) the classes to report for each.
        keep: share that comes from neighbours at each step.
        steps: number of steps.
    """
    seeds, found = csc_array(seeds), np.zeros(columns.shape, dtype=np.float32)
    for start in range(0, seeds.shape[1], COLUMNS):
        own = np.ascontiguousarray(seeds[:, start : start + COLUMNS].toarray(), dtype=np.float32)
        now = own
        for _ in range(steps):
            now = keep * (ties @ now) + (1 - keep) * own
        here = (columns >= start) & (columns < start + COLUMNS)
        found = np.where(here, now[rows[:, None], np.where(here, columns - start, 0)], found)
    return found


# ---- targets from neighbours -----------------------------------------------------------------------------------------

SHARPNESS = torch.logspace(0, 4, 33)  # candidates for t
TYPICAL, POWER = 100.0, 0.3  # t and the power below, when they cannot be fitted
POWERS = torch.logspace(-1, 0.5, 31)  # candidates for the power of the final targets
CHUNK = 2**24  # similarities at a time


@dataclass(frozen=True)
class Propagation:
    """Targets, and how good they are.

    Attributes:
        targets: one per sample; those of samples with a finest label are that label.
        power: the power they were raised to, so that they are as sure as they are right.
        accuracy: share of held-out labels that were found again; None without held-out labels.
        checked: number of held-out labels.
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
    left_out: Ints = NONE,
) -> Propagation:
    """Targets for samples without a finest label, confined to the classes under the deepest known label.

    First, a third of the known finest labels is held out, to measure how many are found again and how sure targets may be.
    The targets made with all labels are raised to the power under which the held-out labels were most likely.

    Args:
        features: (N, d) features of all training samples.
        labels: (N, K), fine first, -1 where unknown.
        hierarchy: the tree of classes.
        rounds: how often metric, means and graph are recomputed.
        shrinkage: see `whiten`.
        k: number of neighbours.
        power: use this power instead of fitting one. Pass it when the features were trained on these
            labels, which then do not show how well other labels are found; the sharpness is not fitted, either.
        left_out: positions of samples that get no target and take no part.
    """
    labels = with_ancestors(labels, hierarchy)
    x, settings = even(features.cpu()), (rounds, shrinkage, k, power is None, left_out)
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


def _targets(
    x: Tensor, labels: Ints, hierarchy: Hierarchy, rounds: int, shrinkage: float, k: int, fitted: bool, left_out: Ints
) -> Targets:
    blocks = without(find_blocks(labels, hierarchy), left_out)
    targets = one_hot(labels, width=min(MOST, max((len(block.leaves) for block in blocks), default=1)))
    members = parent_groups(
        labels, hierarchy.sizes
    )  # at first there are no targets: the metric is that within known coarse classes
    for _ in range(rounds + 1):
        z = whiten(x, members, shrinkage)
        means, mass = class_means(z, targets.matrix(hierarchy.sizes[0]))
        sharpness = choose_sharpness(z, means, mass, labels, blocks) if fitted else TYPICAL
        for block in blocks:  # finer ones first: what they find helps coarser ones
            targets = fill_block(targets, block, z, means, mass, labels, sharpness, k)
        members = targets.matrix(hierarchy.sizes[0])
    return targets


def with_ancestors(labels: Ints, hierarchy: Hierarchy) -> Ints:
    """Labels with unknown ancestors of known labels filled in; known labels do not change."""
    filled = labels.copy()
    for k, parents in enumerate(hierarchy.parents):
        implied = np.where(filled[:, k] >= 0, parents[filled[:, k]], -1)
        filled[:, k + 1] = np.where(filled[:, k + 1] >= 0, filled[:, k + 1], implied)
    return filled


def one_hot(labels: Ints, width: int = 1) -> Targets:
    """Targets equal to the known finest labels, empty for other samples, with room for `width` classes each."""
    fine = torch.from_numpy(labels[:, :1])
    value = torch.zeros(len(labels), width)
    value[:, 0] = (fine[:, 0] >= 0).float()
    index = torch.zeros(len(labels), width, dtype=torch.int64)
    index[:, :1] = fine.clamp(min=0)
    return Targets(index, value, value[:, 0])


def parent_groups(labels: Ints, sizes: Sequence[int]) -> Any:
    """(N, groups) sparse: each sample in its deepest known class above the finest level, or in one group for all."""
    above = labels[:, 1:] if labels.shape[1] > 1 else np.full((len(labels), 1), -1)
    level = deepest_known(above)
    starts = np.cumsum([0, *sizes[1:]])
    padded = np.concatenate([above, np.zeros((len(above), 1), dtype=above.dtype)], axis=1)
    group = starts[np.minimum(level, len(starts) - 1)] + padded[np.arange(len(above)), level]
    ones = np.ones(len(labels), dtype=np.float32)
    return csr_array((ones, (np.arange(len(labels)), group)), shape=(len(labels), int(starts[-1]) + 1))


def class_means(z: Tensor, members: Any) -> tuple[Tensor, Tensor]:
    """The mean of each finest class (C_1, d) and the number of samples behind it (C_1,)."""
    mass = torch.from_numpy(members.sum(axis=0))
    sums = torch.from_numpy(members.T @ z.numpy())
    return sums / mass.clamp(min=1e-6).unsqueeze(1), mass


def squared_norms(means: Tensor, mass: Tensor) -> Tensor:
    """|m|² of the classes' true means. The mean of n unit vectors is too long by chance: E|m|² = |μ|² + (1 - |μ|²) / n."""
    return ((mass * means.square().sum(dim=1) - 1) / (mass - 1).clamp(min=0.5)).clamp(min=0)


def choose_sharpness(z: Tensor, means: Tensor, mass: Tensor, labels: Ints, blocks: list[Block]) -> float:
    """The t under which known labels are most likely, each judged by the mean of its class without that sample."""
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
    """The targets, with those of one block recomputed."""
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
    """A third of the samples with a finest label, from classes with more than one sample and with siblings."""
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
    """Labels with those of `held` hidden to the same depths, in the same proportions, as on samples without a finest label."""
    deepest = deepest_known(labels)
    as_deep = np.random.default_rng(0).choice(deepest[deepest > 0], len(held))
    fewer = labels.copy()
    fewer[held] = np.where(np.arange(labels.shape[1]) < as_deep[:, None], -1, labels[held])
    return fewer


def _best_power(found: Targets, truth: Tensor) -> float:
    """The power under which the right classes are most likely; 1 when it cannot be fitted."""
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
