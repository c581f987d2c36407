"""Which classes are taken for which: counts, and several methods side by side in the order of the tree."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure

from torchlht.answer.asking import ask
from torchlht.data.batches import SampleSet
from torchlht.errors import ConfigError, DataError
from torchlht.heads.rules import decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.inputs import Network
from torchlht.show.look import (
    Floats,
    Ints,
    caption,
    fitting,
    head,
    heat_map,
    label_classes,
    panels,
    separate,
    share_bar,
    share_scale,
    taxonomy_order,
)
from torchlht.show.theme import look
from torchlht.vocabulary import Rule


def confusion_matrix(
    network: Network, data: SampleSet, level: int = 0, *, rule: Rule = "own", batch_size: int = 256, workers: int = 0
) -> Ints:
    """(C, C) counts at a level: row = the true class, column = the answer. Samples without a label there do not count.

    Args:
        network: a model, or a method for features.
        data: samples with labels.
        level: 0 = finest.
        rule: how answers are chosen; see `torchlht.answer`.
        batch_size: samples at a time.
        workers: processes that decode pictures.
    """
    size = network.hierarchy.sizes[level]
    counts = torch.zeros(size * size, dtype=torch.int64)
    for prediction, labels in ask(network, data, batch_size=batch_size, workers=workers):
        said, true = decide(prediction, network.hierarchy, rule).chosen()[:, level], labels[:, level]
        known = true >= 0
        counts += torch.bincount((true * size + said)[known].cpu(), minlength=size * size)
    return np.asarray(counts.reshape(size, size).numpy())


def class_recalls(matrix: Ints) -> Floats:
    """(C,) the share of each class's samples that was recognised; not a number for a class without samples."""
    return np.diagonal(row_shares(matrix)).copy()


def mean_class_recall(matrix: Ints) -> float:
    """The mean over the classes that have samples."""
    return float(np.nanmean(class_recalls(matrix)))


def row_shares(matrix: Ints) -> Floats:
    """Counts as shares of their row; rows without samples are not numbers."""
    totals = matrix.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(matrix, totals, out=np.full(matrix.shape, np.nan), where=totals > 0)
    return shares


def confusion_figure(matrices: Mapping[str, Ints], tree: Hierarchy, level: int = 0, *, title: str = "") -> Figure:
    """Confusion matrices side by side, each row in shares, classes in the order of the tree, with thin lines between groups.

    Args:
        matrices: (C, C) counts by the name of what made them; see `confusion_matrix`.
        tree: the tree of classes.
        level: the level they are about.
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
    """Raise for nothing to draw, a wrong shape, or a matrix without a single sample."""
    if not matrices:
        raise ConfigError("no confusion matrix to draw")
    size = tree.sizes[level]
    for name, matrix in matrices.items():
        if matrix.shape != (size, size):
            raise DataError(f"{name}: a {tuple(matrix.shape)} confusion matrix for {size} classes of {tree.levels[level]}")
        if not matrix.sum():
            raise DataError(f"{name}: no sample is counted; no label of {tree.levels[level]} is known")
