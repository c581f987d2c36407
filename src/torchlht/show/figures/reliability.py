"""Whether probabilities come true: of the answers given with 80 %, are eight in ten right?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from torchlht.show.look import Floats, Ints, figure_of, panels
from torchlht.show.theme import look, theme

BINS = 15
ACROSS = 3  # panels side by side


@dataclass(frozen=True)
class Reliability:
    """Answers in equal bins of their probability, open on the left as in `metrics.CalibrationError`.

    Attributes:
        count: (bins,) how many answers fall into each.
        confidence: (bins,) their mean probability; not a number in an empty bin.
        accuracy: (bins,) the share of them that is right; likewise.
        error: expected calibration error, Σ count · |accuracy - confidence| / n; not a number without answers.
    """

    count: Ints
    confidence: Floats
    accuracy: Floats
    error: float


def reliability(confidence: Floats, right: NDArray[np.bool_], bins: int = BINS) -> Reliability:
    """Sort (n,) answers by their probability and compare with how many are right.

    Args:
        confidence: the probability of each answer.
        right: whether it is right.
        bins: how many bins of equal width.
    """
    place = np.clip(np.ceil(np.asarray(confidence, dtype=np.float64) * bins), 1, bins).astype(np.int64) - 1
    count = np.bincount(place, minlength=bins)
    sure, true = (np.bincount(place, weights=np.asarray(v, dtype=np.float64), minlength=bins) for v in (confidence, right))
    some = count > 0
    means = [np.divide(total, count, out=np.full(bins, np.nan), where=some) for total in (sure, true)]
    error = float(np.abs(sure - true).sum() / count.sum()) if some.any() else float("nan")
    return Reliability(count, means[0], means[1], error)


@dataclass(frozen=True)
class LevelReliability:
    """One panel: a level's name, its probabilities as they came, and calibrated where they are."""

    name: str
    before: Reliability
    after: Reliability | None = None

    def title(self) -> str:
        """The level and its calibration error, before and after."""
        after = f" → {100 * self.after.error:.1f}" if self.after else ""
        return f"{self.name}  ·  ECE {100 * self.before.error:.1f}{after} %"


def reliability_figure(levels: Sequence[LevelReliability]) -> Figure:
    """A panel per level: accuracy against probability, and under it how many answers have which probability.

    Args:
        levels: in the order they are shown in.
    """
    columns = min(len(levels), ACROSS)
    rows = -(-len(levels) // columns)
    with look():
        figure, grid = panels(rows, columns, (2.55, 2.3), gap=(0.62, 1.55), margin=(0.7, 1.35, 0.3, 0.5))
        flat = [axes for line in grid for axes in line]
        for i, (axes, level) in enumerate(zip(flat, levels, strict=False)):
            _draw_level(axes, level, first=i % columns == 0)
        for axes in flat[len(levels) :]:
            axes.remove()
        if levels[0].after:
            flat[0].legend(loc="upper left", handlelength=1.4, borderaxespad=0.2)
    return figure


def _draw_level(axes: Axes, level: LevelReliability, *, first: bool) -> None:
    """The diagonal, a line before and one after calibration, and counts below."""
    grey, colours = theme().grey, theme().colours
    shown = [("as trained", level.before, colours[1], "--"), ("calibrated", level.after, colours[0], "-")]
    drawn = [one for one in shown if one[1]] if level.after else [("", level.before, colours[0], "-")]
    counts = _below(axes)
    axes.plot([0, 1], [0, 1], color=grey, linewidth=0.8, zorder=1)
    for i, (label, found, colour, line) in enumerate(drawn):
        assert found is not None
        some = found.count > 0
        axes.plot(
            found.confidence[some], found.accuracy[some], line, marker="o", markersize=3.4, linewidth=1.3,
            color=colour, label=label, zorder=2 + i, clip_on=False,
        )  # fmt: skip
        edges = (np.arange(len(found.count)) + 0.5) / len(found.count)
        width = (0.86 if len(drawn) == 1 else 0.43) / len(found.count)
        counts.bar(edges + (i - (len(drawn) - 1) / 2) * width, found.count, width, color=colour, alpha=0.9)
    for one in (axes, counts):
        one.set_xlim(0, 1)
        one.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100%"])
    axes.set_xticklabels([])
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100%"])
    axes.grid()
    axes.set_axisbelow(True)
    axes.set_title(level.title())
    most = max(int(found.count.max()) for _, found, *_ in drawn if found)
    counts.set_yticks([0, most], ["0", f"{most:,}"])
    counts.set_xlabel("probability of the answer")
    if first:
        axes.set_ylabel("share that is right")
        counts.set_ylabel("answers")


def _below(axes: Axes) -> Axes:
    """A low panel under another one."""
    figure = figure_of(axes)
    box, height = axes.get_position(), figure.get_size_inches()[1]
    return figure.add_axes((box.x0, box.y0 - 0.72 / height, box.width, 0.55 / height))
