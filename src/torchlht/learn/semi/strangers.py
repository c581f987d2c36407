"""Samples without any label may be of classes outside the tree: the fewer labelled ones are near them, the less they count.

    r = share of samples with a label among the k nearest          p = share of labelled samples with no larger r
    weight = min(1, p / 0.2); below a half, a sample is left out

Of samples that are like labelled ones and lack a label by chance, one in ten is left out. Strangers have strangers around them.
If labels are so rare that r says nothing, p is 1: nothing is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from torchlht.data.samples import Ints
from torchlht.learn.semi.propagation import even, neighbours, parent_groups, whiten

NEAREST, MOST_NEAREST, EXPECTED = 20, 100, 5  # of k; how many labelled ones are expected among them, if k allows it
FULL, LEAST = 0.2, 0.5  # p from which on a sample counts fully; the smallest weight that is kept


def familiarity(features: Tensor, labels: Ints, sizes: Sequence[int]) -> Tensor:
    """(N,) how much each sample counts: 1 with a label at any level, less without one if few labelled ones are near.

    Args:
        features: (N, d).
        labels: (N, K), -1 where unknown, ancestors filled in.
        sizes: number of classes per level, fine first.
    """
    known = (labels >= 0).any(axis=1)
    if known.all() or known.sum() < 2:
        return torch.ones(len(labels))
    z = whiten(even(features), parent_groups(labels, sizes))
    k = int(np.clip(np.ceil(EXPECTED / known.mean()), NEAREST, MOST_NEAREST))
    near = torch.from_numpy(known).float()[neighbours(z, k)[1]].mean(dim=1)
    weight = torch.ones(len(labels))
    weight[~torch.from_numpy(known)] = weights_of(near[~torch.from_numpy(known)], near[torch.from_numpy(known)])
    return weight


def weights_of(shares: Tensor, usual: Tensor) -> Tensor:
    """Weights of samples from the shares of labelled ones near them, given those of samples that have a label."""
    p = torch.searchsorted(usual.sort().values, shares, right=True).float() / len(usual)
    weight = (p / FULL).clamp(max=1)
    return torch.where(weight < LEAST, 0.0, weight)
