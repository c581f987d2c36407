"""Samples in an order of their own, each once, with how often it counts: so that training does not depend on how rows lie.

A sample given twice and a sample of weight 2 become the same thing, and one of weight 0 is not there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import DataError

Floats = NDArray[np.float64]
AT_ONCE = 1024  # rows whose keys are computed at a time
COPIES = 1000
"""Most copies of a sample on average: an epoch shows them all."""


class Distinct(NamedTuple):
    """Distinct samples.

    Attributes:
        rows: (M,) the position of each among those given.
        keys: (M,) a number that depends on its content alone, ascending.
        weights: (M,) how often it counts; None if each counts once.
    """

    rows: NDArray[np.int64]
    keys: NDArray[np.uint64]
    weights: Floats | None


def distinct(x: NDArray[np.float32], labels: NDArray[np.int64], weights: Floats | None = None) -> Distinct:
    """The distinct samples among (N, d) features with (N, K) labels.

    Args:
        x: the features.
        labels: the labels.
        weights: (N,) how much each sample counts; once by default. Whole numbers are numbers of copies; others are scaled to a
            mean of 1.
    """
    counts = np.ones(len(x)) if weights is None else _counts(weights)
    given = np.flatnonzero(counts > 0)
    keys = content_keys(x, labels)[given]
    order = np.argsort(keys, kind="stable")
    given, keys = given[order], keys[order]
    same = np.flatnonzero(keys[1:] == keys[:-1])
    same = same[[_equal(x, labels, given[i], given[i + 1]) for i in same] if len(same) else []]
    starts = np.setdiff1d(np.arange(len(given)), same + 1)
    total = np.add.reduceat(counts[given], starts)
    return Distinct(given[starts], keys[starts], None if (total == 1).all() else total)


def _counts(weights: Floats) -> Floats:
    """How often each sample counts. Raises DataError for weights that make no sense."""
    if not np.isfinite(weights).all() or (weights < 0).any():
        wrong = int(np.argmax(~(np.isfinite(weights) & (weights >= 0))))
        raise DataError(f"sample_weight row {wrong}: {weights[wrong]}; weights are numbers from 0")
    if not weights.any():
        raise DataError("sample_weight: all weights are zero; at least one sample must count")
    if (weights != np.round(weights)).any():
        part: Floats = weights / weights.max()  # the sum of large weights may be infinite
        return part / float(part.mean())
    with np.errstate(over="ignore"):
        mean = float(weights.mean())
    if mean > COPIES:
        raise DataError(f"sample_weight: whole numbers are numbers of copies, and their mean is {mean:g}; divide them by it")
    return weights


def _equal(x: NDArray[Any], labels: NDArray[Any], i: int, j: int) -> bool:
    return np.array_equal(x[i], x[j]) and np.array_equal(labels[i], labels[j])


def content_keys(x: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """(N,) a number for each sample that depends on its features and labels alone."""
    rng = np.random.default_rng(0)
    of_x, of_labels = (rng.integers(2**63, size=width, dtype=np.uint64) * 2 + 1 for width in (x.shape[1], labels.shape[1]))
    keys: NDArray[np.uint64] = (labels.view(np.uint64) * of_labels).sum(axis=1, dtype=np.uint64)
    for start in range(0, len(x), AT_ONCE):
        bits = np.ascontiguousarray(x[start : start + AT_ONCE]).view(np.uint32)
        keys[start : start + AT_ONCE] += (bits * of_x).sum(axis=1, dtype=np.uint64)
    return keys
