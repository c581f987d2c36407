"""What a simulation found: curve.csv, table.md, figures, and which differences are real."""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.console import plural
from torchlht.data.samples import Bools, Ints
from torchlht.files import csv_text, replacing, write_text
from torchlht.learn.questions.prices import Floats
from torchlht.measure.verdict import Verdict, tell_apart

MEAN = "mean"  # the row of the mean over levels
CURVE, TABLE = "curve.csv", "table.md"


@dataclass(frozen=True, eq=False)
class Cell:
    """One strategy with one seed, round by round.

    Attributes:
        costs: (R,) money spent.
        asked: (R, K) questions asked so far at each level, fine first.
        right: (R, n, K) whether a test sample is answered right at a level.
    """

    costs: Floats
    asked: Ints
    right: Bools

    def accuracy(self, labels: Ints) -> Floats:
        """(R, K + 1) accuracy at each level, fine first, and their mean last; labels that are unknown do not count."""
        known = labels >= 0
        found = (self.right & known).sum(axis=1) / known.sum(axis=0).clip(min=1)
        return np.concatenate([found, found.mean(axis=1, keepdims=True)], axis=1)


@dataclass(frozen=True, eq=False)
class Simulation:
    """All of it.

    Attributes:
        levels: names, fine first.
        cells: by strategy and seed.
        labels: (n, K) of the test samples.
        target: what was to be improved.
    """

    levels: Sequence[str]
    cells: dict[tuple[str, int], Cell]
    labels: Ints
    target: str

    @property
    def strategies(self) -> list[str]:
        """Their names."""
        return list(dict.fromkeys(name for name, _ in self.cells))

    @property
    def seeds(self) -> list[int]:
        """Their numbers."""
        return sorted({seed for _, seed in self.cells})

    @property
    def shown(self) -> list[str]:
        """Levels coarse → fine, and the mean."""
        return [*reversed(self.levels), MEAN]

    def column(self, level: str) -> int:
        """The position of a level, or of the mean, in what `accuracy` gives."""
        return len(self.levels) if level == MEAN else list(self.levels).index(level)

    @functools.cache  # noqa: B019
    def curves(self, strategy: str) -> tuple[Floats, Floats]:
        """(R,) money and (seeds, R, K + 1) accuracy, as many rounds as all seeds have."""
        own = [self.cells[strategy, seed] for seed in self.seeds]
        rounds = min(len(cell.costs) for cell in own)
        costs = np.mean([cell.costs[:rounds] for cell in own], axis=0)
        return costs, np.stack([cell.accuracy(self.labels)[:rounds] for cell in own])

    def final(self, strategy: str, level: str) -> Floats:
        """(seeds,) accuracy when the money is spent."""
        return np.asarray(self.curves(strategy)[1][:, -1, self.column(level)])

    def price_of(self, strategy: str, level: str, accuracy: float) -> float | None:
        """The money at which the mean over seeds first reaches an accuracy, between rounds on a line; None if it never does."""
        costs, found = self.curves(strategy)
        mean = found.mean(axis=0)[:, self.column(level)]
        if not (mean >= accuracy).any():
            return None
        i = int((mean >= accuracy).argmax())
        if i == 0:
            return float(costs[0])
        share = (accuracy - mean[i - 1]) / (mean[i] - mean[i - 1])
        return float(costs[i - 1] + share * (costs[i] - costs[i - 1]))

    def verdict(self, level: str) -> Verdict | None:
        """Which differences at the end are real; None with a single strategy."""
        if len(self.strategies) < 2:
            return None
        use = self.labels[:, self.column(level)] >= 0 if level != MEAN else (self.labels >= 0).all(axis=1)
        outcomes = np.array([[self._hits(name, seed, level)[use] for seed in self.seeds] for name in self.strategies])
        scores = {name: (100 * self.final(name, level)).tolist() for name in self.strategies}
        return tell_apart(f"{level}, all spent", scores, outcomes=100 * outcomes if use.any() else None)

    def _hits(self, strategy: str, seed: int, level: str) -> Floats:
        """(n,) 1 where a test sample is right at the end; for the mean the share of levels."""
        right = self.cells[strategy, seed].right[-1].astype(np.float64)
        return np.asarray(right.mean(axis=1) if level == MEAN else right[:, self.column(level)])


# ---- files ---------------------------------------------------------------------------------------------------------


def cell_file(out: Path, name: str, seed: int) -> Path:
    """The file of a strategy and a seed."""
    return out / "cells" / f"{name.replace(':', '-')}-s{seed}.npz"


def keep_cell(out: Path, name: str, seed: int, cell: Cell) -> None:
    """Write a finished cell."""
    path = cell_file(out, name, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez(file, costs=cell.costs, asked=cell.asked, shape=cell.right.shape, right=np.packbits(cell.right))


def kept_cell(out: Path, name: str, seed: int) -> Cell | None:
    """A cell that was finished before; None if there is none that can be read."""
    try:
        with np.load(cell_file(out, name, seed), allow_pickle=False) as file:
            shape = tuple(file["shape"].tolist())
            right = np.unpackbits(file["right"], count=int(np.prod(shape))).reshape(shape).astype(bool)
            return Cell(file["costs"], file["asked"], right)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def write_results(out: Path, found: Simulation) -> Simulation:
    """Write curve.csv, table.md and the figure in two themes; returns what was found."""
    from torchlht.show.figures.spending import Curve, spending_figure
    from torchlht.show.look import DARK, LIGHT, look, save_figure

    write_text(out / CURVE, csv_text(curve_rows(found)))
    write_text(out / TABLE, "\n".join(table_lines(found)) + "\n")
    curves = {name: Curve(*_as_percent(found.curves(name))) for name in found.strategies}
    order = [found.column(level) for level in found.shown]
    for name, theme in (("curve.png", LIGHT), ("curve-dark.png", DARK)):
        with look(theme):
            save_figure(spending_figure(curves, found.shown, order), out / name)
    return found


def _as_percent(curve: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    return curve[0], 100 * curve[1]


def curve_rows(found: Simulation) -> list[list[object]]:
    """strategy, seed, cost, level, accuracy: one row per round and level, coarse → fine, then their mean."""
    rows: list[list[object]] = [["strategy", "seed", "cost", "level", "accuracy"]]
    for (name, seed), cell in found.cells.items():
        accuracy = cell.accuracy(found.labels)
        for r, cost in enumerate(cell.costs.tolist()):
            rows += [[name, seed, f"{cost:.6g}", level, f"{accuracy[r, found.column(level)]:.6f}"] for level in found.shown]
    return rows


def table_lines(found: Simulation) -> list[str]:
    """A table of accuracies when all is spent, what each spends until it is as good as `random` then, and verdicts."""
    heads = ["strategy", "spent", "questions", *found.shown, "as good as random at the end"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for name in found.strategies:
        figures = [spread(100 * found.final(name, level)) for level in found.shown]
        spent = found.curves(name)[0][-1]
        lines.append("| " + " | ".join([name, f"{spent:,.0f}", questions(found, name), *figures, reached(found, name)]) + " |")
    told = [verdict.text() for level in found.shown if (verdict := found.verdict(level))]
    counted = f"{plural(len(found.seeds), 'seed')}, {plural(len(found.labels), 'test sample')}; target {found.target}"
    figures_are = "Accuracy in percent, mean ± standard deviation over seeds"
    return [*lines, "", f"{figures_are}: {counted}.", "", *(f"- {text}" for text in told)]


def spread(values: NDArray[np.float64]) -> str:
    """Mean ± standard deviation."""
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def questions(found: Simulation, name: str) -> str:
    """How many questions were asked at each level, coarse → fine; the mean over seeds."""
    asked = np.mean([found.cells[name, seed].asked[-1] for seed in found.seeds], axis=0)
    return ", ".join(f"{asked[k]:,.0f} {level}" for k, level in reversed(list(enumerate(found.levels))) if asked[k])


def reached(found: Simulation, name: str) -> str:
    """The money at which a strategy is as good as `random` in the end, in the mean over levels."""
    if "random" not in found.strategies:
        return "-"
    price = found.price_of(name, MEAN, float(found.final("random", MEAN).mean()))
    return "not reached" if price is None else f"{price:,.0f}"
