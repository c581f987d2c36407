"""Random trees and random labels on them, for the unit tests. Everything is fine first, as in the code."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.method import Method, create_method, method_options
from torchlht.hierarchy.tree import Hierarchy

torch.set_num_threads(1)  # the tensors here are tiny

quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**32 - 1)


@st.composite
def hierarchies(draw: st.DrawFn, levels: tuple[int, int] = (2, 5), extra: int = 3) -> Hierarchy:
    """Trees of 2…5 levels. Every parent has a child; a level may have a single class, a parent a single child."""
    depth = draw(st.integers(*levels))
    size = draw(st.integers(1, 3))
    parents: list[list[int]] = []
    for _ in range(depth - 1):
        more = draw(st.lists(st.integers(0, size - 1), max_size=extra))
        parents.insert(0, draw(st.permutations([*range(size), *more])))
        size += len(more)
    return Hierarchy.from_parents(parents)


def random_hierarchy(rng: np.random.Generator, sizes: Sequence[int]) -> Hierarchy:
    """A tree with these numbers of classes, fine first, and random parents, each of which has a child."""
    parents = []
    for fine, coarse in itertools.pairwise(sizes):
        above = np.concatenate([np.arange(coarse), rng.integers(0, coarse, fine - coarse)])
        parents.append(rng.permutation(above))
    return Hierarchy.from_parents(parents)


def paths(tree: Hierarchy, rng: np.random.Generator, batch: int) -> Tensor:
    """(B, K) labels of random finest classes with all their ancestors: nothing is missing."""
    leaves = rng.integers(0, tree.sizes[0], batch)
    return torch.from_numpy(np.stack([tree.ancestors(k)[leaves] for k in range(len(tree))], axis=1))


def random_labels(tree: Hierarchy, rng: np.random.Generator, batch: int, missing: float = 0.4) -> Tensor:
    """(B, K) labels on the tree, each of them -1 with probability `missing`, in any pattern."""
    labels = paths(tree, rng, batch)
    labels[torch.from_numpy(rng.random(labels.shape) < missing)] = -1
    return labels


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Gaussian numbers as a tensor."""
    return torch.from_numpy(rng.normal(scale=scale, size=shape)).to(dtype)


def random_method(name: str, tree: Hierarchy, rng: np.random.Generator, in_features: int = 5, **options: Any) -> Method:
    """A float64 method in eval mode whose weights and running statistics are all random: no term is at a special value."""
    small = {"width": 12} if "width" in method_options(name) else {}
    method = create_method(name, in_features, tree, **{**small, **options}).double().eval()
    for key, tensor in method.state_dict().items():
        if tensor.is_floating_point():
            values = normal(rng, *tensor.shape, scale=0.7)
            tensor.copy_(values.abs() + 0.5 if key.endswith("running_var") else values)
    return method


def naive_cross_entropy(log_probs: Sequence[Tensor], labels: Tensor, reduction: str = "per_level_mean") -> float:
    """Cross-entropy over known labels by loops over levels and samples."""
    total = 0.0
    for k, log_p in enumerate(log_probs):
        losses = [-log_p[n, labels[n, k]].item() for n in range(len(labels)) if labels[n, k] >= 0]
        if reduction == "per_sample":
            total += sum(losses) / len(labels)
        elif losses:
            total += sum(losses) / len(losses) / len(log_probs)
    return total
