"""Mistakes: confusion matrices side by side, hard classes, and samples worth a look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.figure import Figure

from torchlht.answer.asking import ask
from torchlht.answer.model import Network
from torchlht.data.batches import SampleSet
from torchlht.errors import ConfigError, DataError
from torchlht.heads.prediction import decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import only_real
from torchlht.show.look import (
    Floats,
    Ints,
    caption,
    fitting,
    head,
    heat_map,
    label_classes,
    look,
    panels,
    separate,
    share_bar,
    share_scale,
    taxonomy_order,
)


def confusion_matrix(
    network: Network, data: SampleSet, level: int = 0, *, rule: str = "own", batch_size: int = 256, workers: int = 0
) -> Ints:
    """(C, C) counts at a level: row = the true class, column = the answer. Samples without a label there do not count.

    Args:
        network: a model, or a method for features.
        data: samples with labels.
        level: 0 = finest.
        rule: how answers are chosen; see `torchlht.heads.prediction`.
        batch_size: samples at a time.
        workers: how many processes decode pictures.
    """
    size = network.hierarchy.sizes[level]
    counts = torch.zeros(size * size, dtype=torch.int64)
    for prediction, labels in ask(network, data, batch_size=batch_size, workers=workers):
        said = decide(prediction, network.hierarchy, rule).chosen()[:, level]
        true = only_real(labels, network.hierarchy)[:, level]
        known = true >= 0
        counts += torch.bincount((true * size + said)[known].cpu(), minlength=size * size)
    return np.asarray(counts.reshape(size, size).numpy())


def class_recalls(matrix: Ints) -> Floats:
    """(C,) the share of each class's samples that was recognised; NaN for a class without samples."""
    return np.diagonal(row_shares(matrix)).copy()


def mean_class_recall(matrix: Ints) -> float:
    """The mean recall over the classes that have samples."""
    return float(np.nanmean(class_recalls(matrix)))


def row_shares(matrix: Ints) -> Floats:
    """Counts as shares of their row; NaN in rows without samples."""
    totals = matrix.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)
    return shares


def confusion_figure(matrices: Mapping[str, Ints], tree: Hierarchy, level: int = 0, *, title: str = "") -> Figure:
    """Confusion matrices side by side, each row in shares, classes in the order of the tree, with thin lines between groups.

    Args:
        matrices: (C, C) counts by name; see `confusion_matrix`.
        tree: the tree of classes.
        level: their level.
        title: a line above the figure.
    """
    _check(matrices, tree, level)
    order, size = taxonomy_order(tree, level), tree.sizes[level]
    side = fitting(size, max(1.8, min(0.17 * size, 4.0)))
    lines = 1
    with look():
        figure, [line] = panels(1, len(matrices), (side, side), gap=(0.3, 0), margin=(1.9, 1.9, 1.0, 0.9))
        for i, (axes, (name, matrix)) in enumerate(zip(line, matrices.items(), strict=True)):
            image = heat_map(axes, row_shares(matrix)[np.ix_(order, order)], share_scale())
            lines = max(lines, head(axes, name, f"mean class recall {mean_class_recall(matrix):.1%}"))
            separate(axes, tree, level, "x")
            separate(axes, tree, level, "y")
            label_classes(axes, tree, level, "x")
            if i == 0:
                label_classes(axes, tree, level, "y")
        share_bar(line[-1], image, "share of the row")
        samples = next(iter(matrices.values())).sum()
        what = f"rows: true {tree.levels[level]}, columns: answer, on {samples:,} samples"
        caption(line[0], f"{title}  ·  {what}" if title else what, lines=lines)
    return figure


def _check(matrices: Mapping[str, Ints], tree: Hierarchy, level: int) -> None:
    """Raise an error if there is nothing to draw, a shape is wrong, or a matrix has no samples."""
    if not matrices:
        raise ConfigError("no confusion matrix to draw")
    size = tree.sizes[level]
    for name, matrix in matrices.items():
        if matrix.shape != (size, size):
            raise DataError(f"{name}: a {tuple(matrix.shape)} confusion matrix for {size} classes of {tree.levels[level]}")
        if not matrix.sum():
            raise DataError(f"{name}: no samples to count; no label of {tree.levels[level]} is known")


# ---- classes and samples -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassRow:
    """How well one finest class is recognised.

    Attributes:
        label: its number.
        samples: number of samples.
        right: how many are recognised.
        rival: the class it is mistaken for most often; None if it never is.
        taken: how often it is mistaken for that class.
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
        """The share of its samples that is recognised."""
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
    order = np.argsort(-times, kind="stable")  # most frequent first, for every class
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
    """Positions of samples to look at: right and wrong answers in turn, from different coarsest classes, the surest first.

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
    """Samples ordered so that the surest of every group come before all second surest."""
    ranked = among[np.argsort(-confidence[among], kind="stable")]
    turn: dict[int, int] = {}
    keyed = []
    for i in ranked.tolist():
        group = int(groups[i])
        turn[group] = turn.get(group, -1) + 1
        keyed.append((turn[group], i))
    return [i for _, i in sorted(keyed, key=lambda pair: pair[0])]


def straying_class(labels: Ints, chosen: Ints, tree: Hierarchy, level: int) -> tuple[int, int] | None:
    """The class of a level whose answers are most often outside its parent, and one of these samples.

    If there is none, the class with the most samples and its first one; None without samples.

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
