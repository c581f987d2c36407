"""What to ask next: the questions of `lht next`, in the process that learns."""

from __future__ import annotations

import numpy as np

from torchlht.data.samples import Bools, Ints, hashed
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions.asking import situated
from torchlht.learn.questions.opinion import Opinion, form_opinion
from torchlht.learn.questions.strategy import choose
from torchlht.serve.label.costs import Asking
from torchlht.serve.label.learner import Questions
from torchlht.serve.label.learning import LARGE, Material

MOST = 10_000
"""Samples that are compared pair by pair."""


def next_questions(
    material: Material, labels: Ints, done: Bools, tree: Hierarchy, asking: Asking, opinion: Opinion | None = None
) -> Questions:
    """Questions, best first, none if nothing is left to ask.

    Args:
        material: the features.
        labels: (N, K) of all samples of the data, fine first, -1 where unknown.
        done: (N,) samples about which there is nothing more to ask.
        tree: the tree of these labels.
        asking: how they are chosen.
        opinion: what was formed of `material.pool` with these labels; it is formed here if it is None.
    """
    places = np.arange(len(material.pool)) if opinion is not None else some_of(material, labels, tree, asking.seed)
    pool = material.pool[places]
    known, coordinates = labels[material.rows[pool]], material.coordinates[places]
    may_ask = (known < 0) & ~done[material.rows[pool], None]
    if opinion is None:
        opinion = form_opinion(coordinates, known, tree)
    now = situated(
        tuple(material.keys[i] for i in pool), known, may_ask, coordinates, tree, opinion, asking.money(tree), asking.seed
    )
    try:
        found = choose(asking.chosen, now)
    except DataError:  # nothing is left, or the strategy needs labels and there are none
        found = []
    rows = material.rows[pool[[question.sample for question in found]]] if found else np.empty(0, dtype=np.int64)
    levels = np.array([len(tree) - 1 - question.level for question in found], dtype=np.int64)
    return Questions(rows, levels, tuple(question.why for question in found))


def some_of(material: Material, labels: Ints, tree: Hierarchy, seed: int) -> Ints:
    """(S,) places in the pool: all of it, or as many as can be compared, half of them with labels if there are so many."""
    most = max(min(MOST, LARGE // tree.sizes[0]), 2)
    if len(material.pool) <= most:
        return np.arange(len(material.pool))
    luck = np.array([hashed(seed, "asked", material.keys[i]) for i in material.pool], dtype=np.float64)
    labelled = (labels[material.rows[material.pool]] >= 0).any(axis=1)
    turn = np.empty(len(luck))
    for kind in (labelled, ~labelled):
        turn[kind] = np.argsort(np.argsort(luck[kind], kind="stable"), kind="stable")
    return np.sort(np.argsort(turn, kind="stable")[:most])
