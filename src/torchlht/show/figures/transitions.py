"""The learned transitions next to the tree: column j shows where class j goes one level up.

The step from the finest level, species, to the next, family, is T² here, as in the paper's formulas; its figure calls it T¹.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchlht.answer.asking import as_set, ask
from torchlht.answer.model import Network
from torchlht.data.batches import SampleSet, members
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import (
    Floats,
    Scale,
    caption,
    fitting,
    head,
    heat_map,
    label_classes,
    look,
    panels,
    plain,
    separate,
    share_bar,
    share_scale,
    taxonomy_order,
)

NUMBERS_AT_ONCE = 2**24  # entries of the matrices of a batch: 64 MB
WIDE = 40  # with more columns, matrices are stacked instead of side by side
WIDEST = 10.5  # inches that matrices side by side may take together


def mean_transition(
    network: Network, data: SampleSet | Tensor, level: int = 0, *, samples: Sequence[int] | None = None, workers: int = 0
) -> Floats:
    """(C_{k+1}, C_k): the transition from a level to the next coarser one, averaged over samples; see `mean_transitions`."""
    return mean_transitions(network, data, [level], samples=samples, workers=workers)[0]


def mean_transitions(
    network: Network, data: SampleSet | Tensor, levels: Sequence[int], *, samples: Sequence[int] | None = None, workers: int = 0
) -> list[Floats]:
    """(C_{k+1}, C_k) each: the transitions from levels to the next coarser ones, averaged over samples in one pass.

    Args:
        network: a model or method with transitions from fine to coarse.
        data: the samples, as a set or as a batch of inputs.
        levels: the finer of the two levels of each transition, 0 = finest.
        samples: positions of samples to average over, one for a single image; all by default.
        workers: how many processes decode pictures.

    Raises:
        ConfigError: when the method has no such transition.
    """
    tree = network.hierarchy
    for level in levels:
        if not 0 <= level < len(tree) - 1:
            last = len(tree) - 2
            raise ConfigError(f"no transition from level {level}: of {len(tree)} levels, those from 0 to {last} have one")
    shapes = [(tree.sizes[level + 1], tree.sizes[level]) for level in levels]
    at_once = max(1, min(256, NUMBERS_AT_ONCE // max(rows * columns for rows, columns in shapes)))
    totals, count = [torch.zeros(shape, dtype=torch.float64) for shape in shapes], 0
    for prediction, _ in ask(network, data, samples=samples, batch_size=at_once, workers=workers):
        if not prediction.transitions:
            raise ConfigError(f"{_name(network)} has no transitions from fine to coarse to show; use a run of lht or marginal")
        n = len(prediction.log_probs[0])
        for total, level in zip(totals, levels, strict=True):
            with torch.no_grad():
                matrices = prediction.transitions[level].log_matrix().exp()  # one per sample, or one for all
            total += matrices.mean(dim=0, dtype=torch.float64).cpu() * n
        count += n
    return [np.asarray((total / count).numpy()) for total in totals]


def _name(network: Network) -> str:
    """The name of a network's method in messages."""
    method = network if not hasattr(network, "method") else network.method
    return f"method {getattr(method, 'name', type(method).__name__)}"


def transition_panels(
    network: Network,
    data: SampleSet | Tensor,
    level: int = 0,
    *,
    images: Sequence[int] = (),
    classes: Sequence[int] = (),
    whole: bool = True,
    workers: int = 0,
) -> dict[str, Floats]:
    """Titles and matrices for `transition_figure`: single samples, means over classes, and the mean over the whole set.

    Args:
        network: a model or method with transitions.
        data: the samples.
        level: the finer of the two levels.
        images: positions of samples to show one by one.
        classes: classes of that level whose samples are averaged.
        whole: whether to show the mean over all samples.
        workers: how many processes decode pictures.
    """
    data, tree, found = as_set(data), network.hierarchy, {}
    symbol = f"T{superscript(level + 2)}"
    for i in images:
        label = int(data.labels[i, level]) if data.labels.shape[1] > level else -1
        of = f", {plain(tree.text(level, label))}" if label >= 0 else ""
        found[f"{symbol} of one sample: number {i}{of}"] = mean_transition(network, data, level, samples=[i], workers=workers)
    for label in classes:
        inside = members(data, level, label)
        if not inside:
            raise DataError(f"no samples of {tree.levels[level]} {tree.text(level, label)!r} to average over")
        title = f"{symbol}, mean over {len(inside):,} samples of {plain(tree.text(level, label))}"
        found[title] = mean_transition(network, data, level, samples=inside, workers=workers)
    if whole:
        found[f"{symbol}, mean over all {len(data):,} samples"] = mean_transition(network, data, level, workers=workers)
    return found


def transition_figure(
    tree: Hierarchy, matrices: Mapping[str, Floats], level: int = 0, *, scale: Scale = "root", title: str = ""
) -> Figure:
    """S and transitions side by side on one scale, rows and columns in the order of the tree.

    Args:
        tree: the tree of classes.
        matrices: (C_{k+1}, C_k) each, by title; see `transition_panels`.
        level: the finer of the two levels.
        scale: scale of the colours: `root`, or `log`, which shows small probabilities off the tree.
        title: a line above the figure.
    """
    shown = {f"S{superscript(level + 2)}, the tree": tree.matrix(level), **matrices}
    size = _size(tree, level)
    wide = tree.sizes[level] > WIDE or len(shown) * size[0] > WIDEST
    with look():
        shape = (len(shown), 1) if wide else (1, len(shown))
        figure, grid = panels(*shape, size, gap=(0.25, 0.55), margin=(1.7, 1.7, 1.0, 0.9))
        flat = [axes for line in grid for axes in line]
        lines = 1
        for i, (axes, (name, matrix)) in enumerate(zip(flat, shown.items(), strict=True)):
            image = heat_map(axes, ordered(tree, level, matrix), share_scale(scale))
            lines = max(lines, head(axes, name, f"{on_tree(tree, level, matrix):.1%} on the tree" if i else ""))
            _name_sides(axes, tree, level, rows=wide or i == 0, columns=not wide or i == len(shown) - 1)
        share_bar(flat[0] if wide else flat[-1], image, "probability", scale)
        if title:
            caption(flat[0], title, lines=1 if wide else lines)
    return figure


def _size(tree: Hierarchy, level: int) -> tuple[float, float]:
    """Width and height of one matrix, in inches."""
    rows, columns = tree.sizes[level + 1], tree.sizes[level]
    width = 7.0 if columns > WIDE else max(2.4, 0.16 * columns)
    return fitting(columns, width), fitting(rows, max(1.3, min(0.16 * rows, 2.4)))


def _name_sides(axes: Axes, tree: Hierarchy, level: int, *, rows: bool, columns: bool) -> None:
    """Draw lines between groups, and names of rows and columns as needed."""
    separate(axes, tree, level, "x")
    separate(axes, tree, level + 1, "y")
    if rows:
        label_classes(axes, tree, level + 1, "y")
    if columns:
        label_classes(axes, tree, level, "x")


def ordered(tree: Hierarchy, level: int, matrix: Floats) -> Floats:
    """A (C_{k+1}, C_k) matrix with rows and columns in the order of the tree."""
    found: Floats = matrix[np.ix_(taxonomy_order(tree, level + 1), taxonomy_order(tree, level))]
    return found


def on_tree(tree: Hierarchy, level: int, matrix: Floats) -> float:
    """The share of probability that goes to the true parent, averaged over the columns."""
    return float((tree.matrix(level) * matrix).sum() / matrix.shape[1])


def superscript(number: int) -> str:
    """A number in superscript."""
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
