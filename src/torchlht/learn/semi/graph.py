"""Nearest neighbours, and labels that spread along them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array, diags_array
from torch import Tensor

from torchlht.data.samples import Ints
from torchlht.learn.semi.targets import Floats

EXACT = 100_000  # up to so many samples every pair is looked at
PAIRS = 2**24  # similarities at a time
COLUMNS = 256  # classes at a time


def neighbours(x: Tensor, k: int, *, exact: int = EXACT) -> tuple[Tensor, Tensor]:
    """The k most similar other samples of each: cosines (N, k) and positions (N, k).

    Among more than `exact` samples they are looked for in the nearest cells only: samples are divided among about √N centres,
    and each is compared with those of the eight cells whose centres are nearest to its own cell's.

    Args:
        x: (N, d) unit vectors.
        k: how many; fewer when there are not so many samples.
        exact: up to so many samples every pair is looked at.
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
    """For each sample in `own` its k nearest in `there`, itself left out; those that are missing have a cosine of -1."""
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

    Every class spreads by itself, so they are taken a few at a time and only the entries that are asked for are kept.

    Args:
        ties: (N, N) sparse, normalised.
        seeds: (N, classes) sparse, the labels that are known.
        rows: (n,) samples to report.
        columns: (n, m) the classes to report of each.
        keep: share that comes from neighbours at each step.
        steps: how many.
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
