"""Where labels contradict the tree: the parents that the prior follows instead.

A strong prior holds the transition near the tree, so a class that the tree has in the wrong place is held there against its
labels. But samples that are labelled at both levels say where it belongs. With n_p the samples of a class whose label at the
coarser level is p, and π the tree's parent, the prior has γ on the edge to

    p* = argmax n_p   if n_p* ≥ n_π + 2,   else π

and 0 on all others. That is the most probable parent if one label in ten is wrong and the tree has a class in its right place
with a probability between 0.9 and 0.99: a single label does not move a class, nor do wrong ones that are scattered.
"""

from __future__ import annotations

import numpy as np

from torchlht.data.samples import Ints
from torchlht.hierarchy.tree import Hierarchy

AHEAD = 2
"""Samples by which another parent must be ahead of the tree's."""


def counted_parents(fine: Ints, coarse: Ints, parents: Ints) -> Ints:
    """(C,) the parent of each class by labels at two adjacent levels; the tree's where these do not contradict it clearly.

    Args:
        fine: (N,) labels at the finer level, -1 where unknown.
        coarse: (N,) labels at the coarser one, -1 where unknown.
        parents: (C,) those of the tree.
    """
    both, width = (fine >= 0) & (coarse >= 0), int(max(coarse.max(initial=0), parents.max(initial=0))) + 1
    pairs, count = np.unique(fine[both] * width + coarse[both], return_counts=True)
    child, parent = pairs // width, pairs % width
    own = np.zeros(len(parents), dtype=np.int64)
    on_tree = parent == parents[child]
    own[child[on_tree]] = count[on_tree]
    best = np.lexsort((parent, -count, child))  # of each child the most frequent parent first
    first = best[np.flatnonzero(np.r_[True, np.diff(child[best]) != 0])] if len(best) else best
    moved = first[count[first] >= own[child[first]] + AHEAD]
    found = parents.copy()
    found[child[moved]] = parent[moved]
    return found


def moves(tree: Hierarchy, level: int, parents: Ints, most: int = 10) -> str:
    """Where labels have moved classes of a level, in a sentence; "" where they have moved none.

    Args:
        tree: that of answers.
        level: of the classes.
        parents: (C,) those that the transition follows.
        most: how many classes to name.
    """
    moved = np.flatnonzero(parents != tree.parents[level]).tolist()
    if not moved:
        return ""
    above = [tree.text(level + 1, i) for i in range(tree.sizes[level + 1])]
    names = [f"{tree.text(level, j)}: {above[parents[j]]}, not {above[tree.parents[level][j]]}" for j in moved[:most]]
    more = f"; and {len(moved) - most:,} more" if len(moved) > most else ""
    some = f"{len(moved):,} of {tree.sizes[level]:,} classes at the level {tree.levels[level]}"
    follows = f"the transition follows the labels: {'; '.join(names)}{more}"
    return f"In training, labels contradicted the tree about {some}, and {follows}. Answers keep to the tree."
