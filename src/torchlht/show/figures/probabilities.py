"""Whether probabilities are right, and how deep to answer at each threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from torchlht.errors import DataError
from torchlht.measure.operating import OperatingCurve
from torchlht.show.look import Floats, Ints, figure_of, look, panels, theme

BINS = 15
ACROSS = 3  # panels side by side
NEAR = 0.07  # inches of space around a text
SIZE = (5.0, 3.2)  # of the curve, in inches
FEW = 0.005  # a curve stops below this share of answered samples: a few answers tell nothing


# ---- are they right? --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reliability:
    """Answers in equal bins of their probability, open on the left as in `metrics.CalibrationError`.

    Attributes:
        count: (bins,) number of answers in each.
        confidence: (bins,) their mean probability; NaN in an empty bin.
        accuracy: (bins,) the share of them that is right; NaN in an empty bin.
        error: expected calibration error, Σ count · |accuracy - confidence| / n; NaN without answers.
    """

    count: Ints
    confidence: Floats
    accuracy: Floats
    error: float


def reliability(confidence: Floats, right: NDArray[np.bool_], bins: int = BINS) -> Reliability:
    """Sort (n,) answers into bins by their probability and count how many are right.

    Args:
        confidence: the probability of each answer.
        right: whether it is right.
        bins: number of bins of equal width.

    Raises:
        DataError: when a probability is not a number from 0 to 1.
    """
    if not ((np.asarray(confidence) >= 0) & (np.asarray(confidence) <= 1 + 1e-6)).all():  # also false for NaN
        raise DataError("the probabilities are not all numbers from 0 to 1, so their reliability cannot be counted")
    place = np.clip(np.ceil(np.asarray(confidence, dtype=np.float64) * bins), 1, bins).astype(np.int64) - 1
    count = np.bincount(place, minlength=bins)
    sure, true = (np.bincount(place, weights=np.asarray(v, dtype=np.float64), minlength=bins) for v in (confidence, right))
    some = count > 0
    means = [np.divide(total, count, out=np.full(bins, np.nan), where=some) for total in (sure, true)]
    error = float(np.abs(sure - true).sum() / count.sum()) if some.any() else float("nan")
    return Reliability(count, means[0], means[1], error)


@dataclass(frozen=True)
class LevelReliability:
    """One panel: a level's name, and its reliability before and, if there is a calibration, after calibration."""

    name: str
    before: Reliability
    after: Reliability | None = None

    def title(self) -> str:
        """The level and its calibration error, before and after."""
        after = f" → {100 * self.after.error:.1f}" if self.after else ""
        return f"{self.name}  ·  ECE {100 * self.before.error:.1f}{after} %"


def reliability_figure(levels: Sequence[LevelReliability]) -> Figure:
    """A panel per level: accuracy against probability, and below it a histogram of the probabilities."""
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
    """A low panel below another one."""
    figure = figure_of(axes)
    box, height = axes.get_position(), figure.get_size_inches()[1]
    return figure.add_axes((box.x0, box.y0 - 0.72 / height, box.width, 0.55 / height))


# ---- how deep to answer --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """An operating point that a user may choose.

    Attributes:
        name: "confidence 0.9" or "risk 5 %".
        short: the same, short enough to stand next to a mark.
        risk: whether the threshold was chosen for a share of wrong answers.
        promise: the share of wrong answers it promises.
        found: its measurements; see `torchlht.measure.operating.operating_point`.
    """

    name: str
    short: str
    risk: bool
    promise: float
    found: dict[str, Any]


def operating_figure(curves: Mapping[str, OperatingCurve], points: Mapping[str, Sequence[Point]]) -> Figure:
    """How many of the answers are right against how much they tell, from answering everything to answering little.

    Args:
        curves: by the name of the run; the marks of the first are named.
        points: points of these runs: confidences as dots, risks as diamonds.
    """
    with look() as now:
        figure, [[axes]] = panels(1, 1, SIZE, margin=(0.8, 0.7, 0.3, 0.4))
        axes.set_xlim(0, 1)
        axes.set_ylim(_lowest(curves), 1 + (1 - _lowest(curves)) * 0.03)
        for i, (name, curve) in enumerate(curves.items()):
            colour, some = now.colours[i % len(now.colours)], curve.answered >= FEW
            axes.plot(
                curve.information[some], 1 - curve.error[some], color=colour, linewidth=1.5, label=name, zorder=3 - i / 10
            )
            _mark(axes, points.get(name, ()), colour)
        _name_points(axes, next(iter(points.values()), ()))
        axes.plot([], [], "o", color=now.paper, markeredgecolor=now.ink, markersize=4.5, label="probability at least …")
        if any(point.risk for of_run in points.values() for point in of_run):
            axes.plot([], [], "D", color=now.ink, markersize=4.5, label="at most … wrong, as promised")
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("information in right answers: 100% is the right finest class every time")
        axes.set_ylabel("answers that are right")
        axes.grid()
        axes.set_axisbelow(True)
        axes.legend(loc="lower left")
    return figure


def _lowest(curves: Mapping[str, OperatingCurve]) -> float:
    """The start of the axis of correctness: a round number below all curves."""
    least = min(float(np.min(1 - curve.error[curve.answered >= FEW])) for curve in curves.values())
    return max(0.0, float(np.floor(10 * least - 0.2)) / 10)


def _mark(axes: Axes, points: Sequence[Point], colour: str) -> None:
    """Dots and diamonds on a curve."""
    for point in points:
        if point.found["error"] is not None and point.found["answered"] >= FEW:
            face = colour if point.risk else theme().paper
            axes.plot(
                point.found["information"], 1 - point.found["error"], "D" if point.risk else "o", color=face,
                markeredgecolor=colour, markeredgewidth=1.2, markersize=4.5, zorder=4, clip_on=False,
            )  # fmt: skip


def _name_points(axes: Axes, points: Sequence[Point]) -> None:
    """Write a text next to each mark, on the side farthest from all lines, marks and texts; none if there is no room."""
    low, high = axes.get_ylim()
    scale = np.array([SIZE[0], SIZE[1] / (high - low)])  # inches per unit
    drawn = [np.asarray(line.get_xydata(), dtype=np.float64) for line in axes.lines]
    taken = (np.concatenate(drawn) - [0, low]) * scale
    for point in points:
        if point.found["error"] is None or point.found["answered"] < FEW:
            continue
        at = (np.array([point.found["information"], 1 - point.found["error"]]) - [0, low]) * scale
        places = [at + np.array([0.2 * x, 0.13 * y]) for x in (-1, 1) for y in (-1, 1)]
        room = [np.abs((taken - place) / [1.6, 1]).sum(axis=1).min() for place in places]
        best = places[int(np.argmax(room))]
        if max(room) > NEAR:
            where = best / scale + [0, low]
            axes.text(where[0], where[1], point.short, fontsize=8, ha="center", va="center", zorder=6)
            taken = np.vstack([taken, *(best + np.array([side, 0]) for side in (-0.12, 0, 0.12))])


def share_figure(curves: Mapping[str, OperatingCurve], levels: Sequence[str]) -> Figure:
    """At which level samples are answered as the threshold rises: a panel of areas per run.

    Args:
        curves: by the name of the run.
        levels: names of the levels, fine first.
    """
    with look() as now:
        figure, [line] = panels(1, len(curves), (3.0, 2.3), gap=(0.35, 0), margin=(0.7, 0.7, 1.3, 0.4))
        names = [*levels, "nothing"]
        colours = [*_tones(len(levels)), now.faint]
        for axes, (name, curve) in zip(line, curves.items(), strict=True):
            threshold, shares = _steps(curve)
            rest = 1 - shares.sum(axis=1, keepdims=True)
            axes.stackplot(threshold, *np.hstack([shares, rest]).T, colors=colours, labels=names, step="pre", linewidth=0)
            axes.set_xlim(0, 1)
            axes.set_ylim(0, 1)
            axes.set_title(name)
            axes.set_xlabel("threshold: probability an answer needs")
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            if axes is not line[0]:
                axes.set_yticklabels([])
        line[0].set_ylabel("samples answered at")
        handles, labels = line[-1].get_legend_handles_labels()
        line[-1].legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure


def _tones(levels: int) -> list[Any]:
    """One shade per level, the strongest for the finest."""
    places = np.linspace(0.78, 0.3, levels) if levels > 1 else np.array([0.7])
    return [theme().shares(place) for place in places]


def _steps(curve: OperatingCurve) -> tuple[Floats, Floats]:
    """Thresholds up to 1 and the shares of each level there."""
    inside = curve.threshold <= 1
    threshold = np.append(curve.threshold[inside], 1.0)
    return threshold, np.vstack([curve.levels[inside], curve.levels[~inside][:1]])
