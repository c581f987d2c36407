"""A metric for neighbours: directions in which samples of one class differ count less, by how much they do."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def even(features: Tensor) -> Tensor:
    """Centred features; those that are never negative, as after a ReLU, by their square roots, which are less skewed."""
    x = features.float()
    x = x.sqrt() if x.min() >= 0 else x
    return x - x.mean(dim=0)


def whiten(x: Tensor, members: Any, shrinkage: float = 0.5) -> Tensor:
    """Unit vectors in which the scatter within classes is the same in all directions.

    Args:
        x: (N, d), centred.
        members: (N, groups) sparse, how much of each sample belongs to each group; an empty row takes no part.
        shrinkage: share of the scatter that is replaced by its mean over all directions, from 0 to 1.
    """
    mass = torch.from_numpy(members.sum(axis=0)).clamp(min=1e-6)
    sums = torch.from_numpy(members.T @ x.numpy())  # (groups, d)
    own = torch.from_numpy(members.sum(axis=1)).unsqueeze(1)
    scatter = ((x * own).T @ x - (sums / mass.unsqueeze(1)).T @ sums) / mass.sum()
    size = scatter.diagonal().mean().clamp(min=0)
    rounding = 1e-4 * x.square().mean() + 1e-12  # of a difference of large numbers, when classes hardly vary at all
    scatter = (1 - shrinkage) * (scatter + scatter.T) / 2 + (shrinkage * size + rounding) * torch.eye(len(scatter))
    root = torch.linalg.cholesky(scatter)
    return F.normalize(torch.linalg.solve_triangular(root, x.T, upper=False).T, dim=1)
