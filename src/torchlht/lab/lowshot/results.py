"""Results of a low-shot experiment: lowshot.csv, table.md, and tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from torchlht.console import plural
from torchlht.files import csv_text, replacing, write_text
from torchlht.lab.comparison.drawing import FAINT, INK, _style
from torchlht.lab.comparison.results import markdown

BASE = "nn"  # the baseline


class Row(NamedTuple):
    """One measurement, as fractions: how often the true class is first, and among the first `top`."""

    method: str
    seed: int
    draw: int
    shots: int
    first: float
    among: float


class Figure(NamedTuple):
    """A mean in percent, the half-width of its 95 % interval (NaN without repetitions), and the number of values."""

    mean: float
    half: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.1f}" if math.isnan(self.half) else f"{self.mean:.1f} ± {self.half:.1f}"


@dataclass(frozen=True)
class LowshotResults:
    """All measurements.

    Attributes:
        top: an answer is right if the true class is among this many.
        values: percentages (seeds, draws) by method and shots; a deterministic method has one seed.
        caption: how it was measured.
    """

    top: int
    values: dict[tuple[str, int], NDArray[np.float64]]
    caption: str = ""

    @property
    def shots(self) -> list[int]:
        """Numbers of examples, ascending."""
        return sorted({shots for _, shots in self.values})

    @property
    def methods(self) -> list[str]:
        """Methods by their mean over shots, the best last."""
        names = dict.fromkeys(method for method, _ in self.values)
        return sorted(names, key=lambda method: np.mean([self.values[method, k].mean() for k in self.shots]))

    def figure(self, method: str, shots: int) -> Figure:
        """The accuracy of a method."""
        return summary(self.values[method, shots])

    def gain(self, method: str, shots: int) -> Figure:
        """The difference of a method from nn, draw by draw."""
        return summary(self.values[method, shots] - self.values[BASE, shots])


def summary(values: NDArray[np.float64]) -> Figure:
    """Mean and 95 % interval of percentages (seeds, draws), both treated as random.

    Draws are the same for every seed, so the values are not independent. With the mean squares D of draws, S of seeds and R of
    the rest, in the analysis of variance of the table, the variance of its mean is (D + S - R) / (seeds × draws), and at least
    R / (seeds × draws). The interval is Student's, with Satterthwaite's degrees of freedom. With one seed it is the usual one
    over draws. It does not cover the choice of classes, nor that all draws share one set of samples.
    """
    seeds, draws = values.shape
    if draws < 2:
        return Figure(float(values.mean()), math.nan, values.size)
    from scipy.stats import t  # takes a second to import

    by_draw, by_seed = values.mean(axis=0), values.mean(axis=1)
    parts = [(seeds * by_draw.var(ddof=1), draws - 1, 1)]
    if seeds > 1:
        rest = values - by_draw - by_seed[:, None] + values.mean()
        free = (seeds - 1) * (draws - 1)
        parts += [(draws * by_seed.var(ddof=1), seeds - 1, 1), ((rest**2).sum() / free, free, -1)]
    total = sum(sign * square for square, _, sign in parts)
    if total <= parts[-1][0]:
        total, parts = parts[-1][0], parts[-1:]
    if total <= 0:
        return Figure(float(values.mean()), 0.0, values.size)
    freedom = total**2 / sum(square**2 / free for square, free, _ in parts)
    return Figure(float(values.mean()), float(t.ppf(0.975, freedom) * math.sqrt(total / values.size)), values.size)


# ---- files ---------------------------------------------------------------------------------------------------------


def collect(rows: Sequence[Row], top: int, caption: str = "") -> LowshotResults:
    """Rows as tables of seeds × draws."""
    found: dict[tuple[str, int], dict[int, dict[int, float]]] = {}
    for row in rows:
        found.setdefault((row.method, row.shots), {}).setdefault(row.seed, {})[row.draw] = 100 * row.among
    values = {key: np.array([[seed[draw] for draw in sorted(seed)] for seed in seeds.values()]) for key, seeds in found.items()}
    return LowshotResults(top, values, caption)


def write_rows(path: Path, rows: Sequence[Row], top: int) -> None:
    """Write lowshot.csv: one row per method, seed, draw and number of shots."""
    width = 5 if top == 1 else 6
    header = ["method", "seed", "draw", "shots", "top1", f"top{top}"]
    cells = [[*row[:4], f"{row.first:.6f}", f"{row.among:.6f}"][:width] for row in rows]
    write_text(path, csv_text([header[:width], *cells]))


def document(results: LowshotResults) -> str:
    """The text of table.md."""
    parts = [markdown(accuracy_header(results), accuracy_rows(results)), results.caption]
    if others := list(gain_rows(results)):
        parts += ["Difference to nn in points, on the same draws:", markdown(accuracy_header(results), others)]
    return "\n\n".join(part for part in parts if part) + "\n"


def accuracy_header(results: LowshotResults) -> list[str]:
    """The columns of both tables."""
    return ["method", *(plural(k, "shot") for k in results.shots)]


def accuracy_rows(results: LowshotResults) -> Iterator[list[str]]:
    """Rows of accuracies, the best method last."""
    for method in results.methods:
        yield [method, *(str(results.figure(method, k)) for k in results.shots)]


def gain_rows(results: LowshotResults) -> Iterator[list[str]]:
    """Rows of differences to nn, if it took part."""
    for method in results.methods:
        if method != BASE and (BASE, results.shots[0]) in results.values:
            gains = [results.gain(method, k) for k in results.shots]
            yield [method, *(f"{'+' if gain.mean >= 0 else ''}{gain}" for gain in gains)]


def shown(results: LowshotResults, out: Path) -> Iterator[Any]:
    """The tables and their explanation, for the terminal."""
    for rows, title in ((accuracy_rows(results), f"top-{results.top}, %"), (gain_rows(results), "points above nn")):
        table = Table("method", title=title, title_justify="left")
        for name in accuracy_header(results)[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        if table.row_count:
            yield table
    yield results.caption
    yield f"saved in {out}: table.md, lowshot.csv, accuracy.png, hierarchy.json"


def draw_accuracy(results: LowshotResults, path: Path) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK}):
        figure, panel = pyplot.subplots(figsize=(5.2, 4.0))
        for i, method in enumerate(reversed(results.methods)):
            figures = [results.figure(method, k) for k in results.shots]
            means, halves = [f.mean for f in figures], [f.half for f in figures]
            (line,) = panel.plot(results.shots, means, label=method, markersize=4, linewidth=1.2, **_style(i))
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            panel.fill_between(results.shots, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        panel.set_xticks(results.shots)
        panel.set_xlabel("examples of each new class")
        panel.set_ylabel(f"top-{results.top} accuracy, %  (band: 95 % interval)")
        panel.grid(axis="y", color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="best first")
        with replacing(path) as beside:
            figure.savefig(beside, dpi=150, format="png", bbox_inches="tight")
        pyplot.close(figure)
