"""Our figures next to the paper's: table.csv, table.md, and whether the methods rank in the same order."""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

from scipy.stats import kendalltau

from torchlht.files import csv_text, write_text
from torchlht.lab.comparison.board import ACCURACY
from torchlht.lab.comparison.results import INTERVALS, Comparison, markdown, mean_std
from torchlht.lab.reproduction.experiments import Arm, Experiment, Measure, Part
from torchlht.measure.metrics import REGISTER, Spec


class Cell(NamedTuple):
    """The place of a figure in the paper."""

    table: str
    setting: str
    level: str
    method: str
    metric: str


@functools.cache
def paper_figures() -> dict[Cell, float]:
    """Every figure of the paper, by its place."""
    text = files("torchlht.lab.reproduction").joinpath("paper.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {Cell(*(row[name] for name in Cell._fields)): float(row["value"]) for row in rows}


SELECTION = (
    "Ours are from the last epoch of every run: nothing is chosen on test samples. The paper does not say which epoch its "
    "figures are from; its public code keeps the one that is best on the test set."
)


@dataclass(frozen=True)
class PaperFigure:
    """One of our figures and the paper's for the same cell.

    Attributes:
        setting: its name in our tables.
        level: a level, a class, or "all".
        metric: the paper's name for it.
        arm: the method, and the paper's name for it.
        values: ours, one per seed.
        paper: the paper's figure as printed, if it has one.
        spec: our metric; accuracy by default.
        samples: how many test samples ours is from: " (n = 51)"; empty if unknown.
    """

    setting: str
    level: str
    metric: str
    arm: Arm
    values: tuple[float, ...]
    paper: float | None
    spec: Spec = ACCURACY
    samples: str = ""

    @property
    def column(self) -> str:
        """Its column in table.md."""
        if self.metric == "ACC":
            return self.level
        return self.metric if self.level == "all" else f"{self.level} {self.metric}"

    def text(self) -> str:
        """Our figure, and the paper's in brackets."""
        return mean_std(self.values, self.spec) + (f" ({self.paper:.1f})" if self.paper is not None else "")


def part_figures(
    experiment: Experiment, part: Part, results: Comparison, recalls: dict[tuple[str, float], dict[str, tuple[float, ...]]]
) -> Iterator[PaperFigure]:
    """Every figure of a part.

    Args:
        experiment: its experiment.
        part: the part.
        results: the results of its runs.
        recalls: by method and mask, each class's recall per seed; for experiments that need it.
    """
    for mask in part.masks:
        for arm in part.arms:
            for measure in experiment.measures:
                for level, values in _values(measure, arm, mask, results, recalls):
                    place = Cell(experiment.table, part.called(mask, by_paper=True), level, arm.paper, measure.paper)
                    known, spec = paper_figures().get(place), REGISTER[measure.column]
                    samples = results.samples(level)
                    yield PaperFigure(part.called(mask), level, measure.paper, arm, tuple(values), known, spec, samples)


def _values(
    measure: Measure,
    arm: Arm,
    mask: float,
    results: Comparison,
    recalls: dict[tuple[str, float], dict[str, tuple[float, ...]]],
) -> Iterator[tuple[str, Sequence[float]]]:
    """The levels, or classes, of a measure, with our values there."""
    if measure.where == "classes":
        every = recalls.get((arm.method, mask), {})
        yield from every.items()
        if every:
            yield "average", [mean(seed) for seed in zip(*every.values(), strict=True)]
    elif measure.where == "levels":
        for level in results.levels:
            yield level, results.get(arm.method, mask, measure.column, level)
    else:
        level = "all" if measure.where == "all" else results.levels[-1]
        yield level, results.get(arm.method, mask, measure.column)


# ---- files ---------------------------------------------------------------------------------------------------------


def write_figures(path: Path, experiment: Experiment, figures: Sequence[PaperFigure]) -> None:
    """Write table.csv: our figures in percent with their spread, and the paper's."""
    header = ["experiment", "setting", "level", "metric", "method", "mean", "std", "seeds", "paper_method", "paper"]
    rows: list[list[object]] = [[*header]]
    for figure in figures:
        values = [figure.spec.scale * value for value in figure.values]
        middle = f"{mean(values):.2f}" if values else ""
        deviation = f"{stdev(values):.2f}" if len(values) > 1 else ""
        known = "" if figure.paper is None else f"{figure.paper:.1f}"
        key = [experiment.name, figure.setting, figure.level, figure.metric, figure.arm.method]
        rows.append([*key, middle, deviation, len(values), figure.arm.paper, known])
    write_text(path, csv_text(rows))


def columns_of(figures: Sequence[PaperFigure]) -> list[str]:
    """The columns of the table, in the order of the figures."""
    return list(dict.fromkeys(figure.column for figure in figures))


def table_rows(figures: Sequence[PaperFigure]) -> Iterator[list[str]]:
    """Rows of setting, method, the paper's name for it, and our figures with the paper's in brackets."""
    columns = columns_of(figures)
    rows: dict[tuple[str, Arm], dict[str, str]] = {}
    for figure in figures:
        rows.setdefault((figure.setting, figure.arm), {})[figure.column] = figure.text()
    for (setting, arm), cells in rows.items():
        yield [setting, arm.method, arm.paper or "–", *(cells.get(column, "–") for column in columns)]


def table_header(figures: Sequence[PaperFigure]) -> list[str]:
    """The header that goes with `table_rows`."""
    return ["setting", "method", "in the paper", *columns_of(figures)]


def document(
    experiment: Experiment,
    figures: Sequence[PaperFigure],
    *,
    how: str,
    command: str,
    pictures: Sequence[str],
    judged: Sequence[str] = (),
) -> str:
    """The text of table.md.

    Args:
        experiment: the experiment.
        figures: our figures and the paper's.
        how: one sentence about the scale and the data.
        command: the command that produced it.
        pictures: Markdown for the pictures.
        judged: which differences exceed noise, a line each.
    """
    parts = [f"# {experiment.name}", f"{experiment.what}.", how, f"```console\n$ {command}\n```"]
    if figures:
        parts.append(markdown(table_header(figures), table_rows(figures)))
        known = any(figure.paper is not None for figure in figures)
        beside = "in brackets the paper's figure for the same cell" if known else "the paper has no figure for any of these"
        counts = ", ".join(dict.fromkeys(f"{figure.level}{figure.samples}" for figure in figures if figure.samples))
        on = f"test samples: {counts}" if counts else "test samples"
        parts.append(f"In percent on {on}; mean ± standard deviation over {experiment.over}; {beside}. {SELECTION}")
        if lines := [*order_lines(figures), *gain_lines(figures)]:
            parts += ["## The paper's order and ours", "\n".join(f"- {line}" for line in lines)]
    if judged:
        parts += ["## Which differences exceed noise", "\n".join(f"- {line}" for line in judged), INTERVALS]
    parts += pictures
    if experiment.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in experiment.notes)]
    return "\n\n".join(parts) + "\n"


# ---- orders --------------------------------------------------------------------------------------------------------


def compared(figures: Sequence[PaperFigure]) -> Iterator[tuple[str, list[PaperFigure]]]:
    """Settings with figures at the finest level of at least three methods that are also in the paper."""
    finest = next((f.column for f in reversed(figures) if f.metric == "ACC" or f.level != "all"), None)
    for setting in dict.fromkeys(figure.setting for figure in figures):
        both = [f for f in figures if f.setting == setting and f.column == finest and f.paper is not None and f.values]
        if len(both) > 2:
            yield setting, both


def order_lines(figures: Sequence[PaperFigure]) -> Iterator[str]:
    """For each setting the paper's order of methods at the finest level, ours, and how far they agree."""
    for setting, both in compared(figures):
        ours = [mean(f.values) for f in both]
        theirs = [f.paper for f in both]
        tau = kendalltau(ours, theirs).statistic
        by_paper = sorted(both, key=lambda f: -f.spec.goodness(f.paper or 0))
        by_us = sorted(both, key=lambda f: -f.spec.goodness(mean(f.values)))
        yield (
            f"{setting}: the paper {' > '.join(f.arm.paper for f in by_paper)}; here "
            f"{' > '.join(f.arm.paper for f in by_us)} (Kendall's τ {tau:.2f})"
        )


def gain_lines(figures: Sequence[PaperFigure]) -> Iterator[str]:
    """The lead of LHT as published over the best of the paper's other methods, in its figures and in ours."""
    for setting, both in compared(figures):
        lht = [f for f in both if f.arm.method.startswith("lht-paper")]
        others = [f for f in both if not f.arm.method.startswith("lht")]
        if not lht or not others:
            continue
        spec = lht[-1].spec
        theirs = spec.goodness(lht[-1].paper or 0) - max(spec.goodness(f.paper or 0) for f in others)
        ours = spec.scale * (spec.goodness(mean(lht[-1].values)) - max(spec.goodness(mean(f.values)) for f in others))
        yield f"{setting}: LHT over the best other, {lht[-1].column}: {theirs:+.1f} in the paper, {ours:+.1f} here"
