"""Which classes are hard, which answers are most wrong, and which samples are worth looking at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import Floats, Ints


@dataclass(frozen=True)
class ClassRow:
    """How one finest class fares.

    Attributes:
        label: its number.
        samples: how many there are.
        right: how many are recognised.
        rival: the class it is taken for most often; None where it never is.
        taken: how often.
        height: of the lowest common ancestor of the two; 0 without a rival.
    """

    label: int
    samples: int
    right: int
    rival: int | None
    taken: int
    height: int

    @property
    def recall(self) -> float:
        """The share that is recognised."""
        return self.right / self.samples


def class_rows(labels: Ints, chosen: Ints, tree: Hierarchy) -> list[ClassRow]:
    """Every finest class with samples, the hardest first; counted pair by pair, without a matrix.

    Args:
        labels: (n,) true finest classes, -1 where unknown.
        chosen: (n,) answers.
        tree: the tree of classes.
    """
    known, size = labels >= 0, tree.sizes[0]
    samples = np.bincount(labels[known], minlength=size)
    right = np.bincount(labels[known & (labels == chosen)], minlength=size)
    pairs, times = np.unique(np.stack([labels, chosen])[:, known & (labels != chosen)], axis=1, return_counts=True)
    order = np.argsort(-times, kind="stable")  # for every class the commonest first
    confused, first = np.unique(pairs[0, order], return_index=True)
    heights = tree.lca_height(confused, pairs[1, order][first])
    rivals = dict(zip(confused.tolist(), zip(pairs[1, order][first], times[order][first], heights, strict=True), strict=True))
    rows = []
    for label in np.flatnonzero(samples).tolist():
        rival, taken, height = rivals.get(label, (None, 0, 0))
        named = None if rival is None else int(rival)
        rows.append(ClassRow(label, int(samples[label]), int(right[label]), named, int(taken), int(height)))
    return sorted(rows, key=lambda row: (row.recall, -row.taken, -row.samples, row.label))


def worst_mistakes(labels: Ints, chosen: Ints, confidence: Floats, tree: Hierarchy, count: int) -> Ints:
    """Positions of the wrong finest answers that are farthest off in the tree, the surest first.

    Args:
        labels: (n,) true finest classes, -1 where unknown.
        chosen: (n,) answers.
        confidence: (n,) their probabilities.
        tree: the tree of classes.
        count: how many at most.
    """
    wrong = np.flatnonzero((labels >= 0) & (labels != chosen))
    height = tree.lca_height(chosen[wrong], labels[wrong])
    return np.asarray(wrong[np.lexsort([wrong, -confidence[wrong], -height])][:count])


def examples(labels: Ints, chosen: Ints, confidence: Floats, count: int) -> list[int]:
    """Positions of samples to look at: right and wrong answers in turn, of as many coarsest classes as there are, the surest.

    Args:
        labels: (n, K) true classes, fine first.
        chosen: (n, K) answers.
        confidence: (n,) probabilities of the finest ones.
        count: how many at most.
    """
    known = labels[:, 0] >= 0
    right = labels[:, 0] == chosen[:, 0]
    queues = [_by_turns(np.flatnonzero(known & kind), labels[:, -1], confidence) for kind in (right, ~right)]
    found: list[int] = []
    used: set[int] = set()
    while len(found) < count and any(queues):
        for queue in queues:
            if queue and len(found) < count:
                fresh = next((i for i in queue if int(labels[i, -1]) not in used), queue[0])
                queue.remove(fresh)
                found.append(fresh)
                used.add(int(labels[fresh, -1]))
    return found


def _by_turns(among: Ints, groups: Ints, confidence: Floats) -> list[int]:
    """Samples so that the surest of every group comes before the second surest of any."""
    ranked = among[np.argsort(-confidence[among], kind="stable")]
    turn: dict[int, int] = {}
    keyed = []
    for i in ranked.tolist():
        group = int(groups[i])
        turn[group] = turn.get(group, -1) + 1
        keyed.append((turn[group], i))
    return [i for _, i in sorted(keyed, key=lambda pair: pair[0])]


def straying_class(labels: Ints, chosen: Ints, tree: Hierarchy, level: int) -> tuple[int, int] | None:
    """The class of a level whose samples are most often answered outside its parent, and one of these samples.

    Where none is, the class with the most samples and its first one; None without any.

    Args:
        labels: (n, K) true classes, fine first.
        chosen: (n, K) answers.
        tree: the tree of classes.
        level: the level of the class; not the coarsest.
    """
    known = labels[:, level] >= 0
    if not known.any():
        return None
    outside = known & (chosen[:, level + 1] != labels[:, level + 1])
    among = outside if outside.any() else known
    label = int(np.bincount(labels[among, level]).argmax())
    return label, int(np.flatnonzero(among & (labels[:, level] == label))[0])
