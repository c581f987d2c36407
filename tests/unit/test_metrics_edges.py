"""Metrics over more samples than float32 can count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torchlht.metrics import CalibrationError, FullPathAccuracy, HierarchicalOverlap, Inconsistency, Ratio

from trees import paths, random_hierarchy

MANY = 2**24  # float32 does not know the number after this one
TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))


@pytest.mark.parametrize("kind", [FullPathAccuracy, Inconsistency])
def test_one_sample_more_is_counted_however_many_there_were(kind: type[Ratio]) -> None:
    metric, labels = kind(TREE), paths(TREE, np.random.default_rng(1), 1)
    metric.update(labels, labels)
    metric.count += MANY
    metric.total += MANY
    before = metric.count.item(), metric.total.item()
    metric.update(labels, labels)
    right = 1 if kind is FullPathAccuracy else 0
    assert (metric.count.item(), metric.total.item()) == (before[0] + 1, before[1] + right)


def test_one_path_more_is_counted_however_many_there_were() -> None:
    metric, labels = HierarchicalOverlap(TREE), paths(TREE, np.random.default_rng(1), 1)
    metric.sums += MANY
    metric.update(labels, labels)
    assert metric.sums.tolist() == [MANY + 3] * 3


def test_one_probability_more_is_counted_however_many_there_were() -> None:
    metric = CalibrationError(bins=1)
    metric.bins += MANY
    metric.update(torch.tensor([1.0]), torch.tensor([True]))
    assert metric.bins.tolist() == [[MANY + 1] * 3]
