"""What to ask next: samples that the model is unsure about and that stand for many others, each class in its turn.

This is the seam for other ways to ask: `next_order` takes what is known and gives numbers of samples, best first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints
from torchlht.serve.label.learning import Floats, Material, View

REFERENCES, NEIGHBOURS = 2000, 20
"""Typical is what has so many near neighbours among so many samples."""
FIRST = 500
"""Samples that are chosen to be far from each other before there is a model."""


def next_order(material: Material, view: View | None) -> Ints:
    """Numbers of samples, the one most worth asking about first."""
    typical = typicality(material.reduced)
    if view is None:
        return np.asarray(material.rows[spread_order(material.reduced, typical)])
    doubt = 1 - view.sure[material.rows, 0]
    return np.asarray(material.rows[in_turns(doubt * typical, view.path[material.rows, 0])])


def typicality(reduced: Floats) -> NDArray[np.float64]:
    """(N,) from 0 to 1: how near the nearest of some reference samples are, by rank."""
    step = -(-len(reduced) // REFERENCES)
    references = reduced[::step]
    nearest = min(NEIGHBOURS, len(references))
    parts = [reduced[i : i + 4096] @ references.T for i in range(0, len(reduced), 4096)]
    mean = np.concatenate([np.partition(part, -nearest, axis=1)[:, -nearest:].mean(axis=1) for part in parts])
    return np.argsort(np.argsort(mean, kind="stable"), kind="stable") / max(len(mean) - 1, 1)


def in_turns(score: NDArray[np.float64], kind: Ints) -> Ints:
    """The best of every kind first, then the second of every kind, and so on; within a turn by score."""
    by_score = np.lexsort((-score, kind))
    starts = np.flatnonzero(np.r_[True, np.diff(kind[by_score]) != 0])
    turn = np.arange(len(kind)) - np.repeat(starts, np.diff(np.r_[starts, len(kind)]))
    turns = np.empty(len(kind), dtype=np.int64)
    turns[by_score] = turn
    return np.asarray(np.lexsort((-score, turns)))


def spread_order(reduced: Floats, typical: NDArray[np.float64]) -> Ints:
    """Typical samples that are far from each other first, each the farthest from all before it; then the others."""
    chosen = [int(typical.argmax())]
    near = reduced @ reduced[chosen[0]]
    for _ in range(min(FIRST, len(reduced)) - 1):
        near[chosen[-1]] = np.inf
        chosen.append(int(np.argmax((1 - near) * (0.5 + typical))))
        near = np.maximum(near, reduced @ reduced[chosen[-1]])
    rest = np.setdiff1d(np.arange(len(reduced)), chosen)
    return np.array([*chosen, *rest[np.argsort(-typical[rest], kind="stable")]], dtype=np.int64)
