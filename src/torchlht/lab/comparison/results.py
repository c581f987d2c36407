"""Results of a comparison: results.csv, the tables of table.md, and which differences exceed noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Column, Table

from torchlht.console import plural
from torchlht.errors import RunError
from torchlht.files import csv_text, read_csv, write_text
from torchlht.lab.comparison.board import ACCURACY, TREE, Board, board_for, board_of
from torchlht.lab.comparison.contenders import Trial, run_name, summary
from torchlht.measure.metrics import REGISTER, Spec
from torchlht.measure.outcomes import Outcomes
from torchlht.measure.samplewise import Samplewise
from torchlht.measure.verdict import Verdict, tell_apart

Row = tuple[str, float, int, dict[str, Any]]  # method, mask, seed, metrics
Kept = Callable[[str, float, int], Outcomes | Samplewise | None]  # by method, mask, seed

RULE = " + "  # between a method and a rule of answering that is not its own
RULES_CHANGE = ("accuracy", "mean_accuracy", "mistake_severity")
KEYS = ("method", "mask", "seed", "level")
INTERVALS = "± in these sentences is the half-width of a 95 % interval; those of a line hold for all its differences at once."
COUNTED = " (n: how many have a label)"
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


# ---- results.csv ---------------------------------------------------------------------------------------------------


def write_results(out: Path, rows: Sequence[Row], trials: Sequence[Trial] = ()) -> Comparison:
    """results.csv, one row per method, mask, seed and level, and table.md; returns the same as `read_results`."""
    board = next((board_for(found) for *_, found in rows if "diverged" not in found), TREE)
    columns = [*KEYS, *(spec.name for spec in board.columns)]
    cells: list[list[object]] = [[*columns]]
    for method, mask, seed, metrics in rows:
        for name, found in views(method, metrics):
            for level in found[board.key]:
                row = tidy(board, metrics | found, level, method=name, mask=mask, seed=seed)
                cells.append([row.get(column) for column in columns])
    write_text(out / "results.csv", csv_text(cells))
    diverged = [f"{method}, {mask:.0%} masked, seed {seed}" for method, mask, seed, found in rows if "diverged" in found]
    results = dataclasses.replace(read_results(out), diverged=diverged)
    write_text(out / "table.md", document(results, trials))
    return results


def views(method: str, metrics: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metrics of a run under its method's own rule and under each other measured rule."""
    if "diverged" not in metrics:
        yield method, metrics
        for rule, found in metrics.get("rules", {}).items():
            yield f"{method}{RULE}{rule}", found


def tidy(board: Board, metrics: dict[str, Any], level: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A row of results.csv, blank where a figure was not measured."""
    row = {**keys, "level": level["name"]}
    row |= {spec.name: spec.of(level if spec.per == "level" else metrics) for spec in board.columns}
    return {column: round(value, 6) if isinstance(value, float) else value for column, value in row.items()}


@dataclass(frozen=True, repr=False)
class Comparison:
    """results.csv in memory.

    Attributes:
        methods: in the order of the file.
        masks: in the order of the file.
        levels: coarse → fine.
        seeds: in the order of the file.
        values: measured figures by seed, for each method, mask, level and column.
        diverged: runs that diverged, which are not in the file.
        folder: where its runs are.
        board: what it shows and judges by.
    """

    methods: list[str]
    masks: list[float]
    levels: list[str]
    seeds: list[int]
    values: dict[tuple[str, float, str, str], dict[int, float]]
    diverged: Sequence[str] = ()
    folder: Path | None = None
    board: Board = TREE

    def __repr__(self) -> str:
        shares = ", ".join(f"{mask:.0%}" for mask in self.masks)
        return f"Comparison({', '.join(self.methods)}; {shares} masked; {plural(len(self.seeds), 'seed')})"

    def _repr_html_(self) -> str:
        """The table of accuracies, for notebooks."""
        rows = [["th", *accuracy_header(self)], *(["td", *row] for row in table_rows(self))]
        lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) for tag, *cells in rows)
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"

    def get(self, method: str, mask: float, column: str, level: str | None = None) -> list[float]:
        """One column of one method at one mask, seed by seed; at the finest level by default."""
        return list(self.by_seed(method, mask, column, level).values())

    def by_seed(self, method: str, mask: float, column: str, level: str | None = None) -> dict[int, float]:
        """The same, by seed."""
        return self.values.get((method, mask, level or self.finest, column), {})

    @cached_property
    def finest(self) -> str:
        """The finest level that test samples have labels of."""
        measured = {level for _, _, level, column in self.values if column == self.board.level.name}
        return next((level for level in reversed(self.levels) if level in measured), self.levels[-1])

    def samples(self, level: str) -> str:
        """How many test samples have a label at a level: " (n = 51)"; nothing if it is not recorded."""
        found = {
            int(n) for (_, _, at, column), by in self.values.items() if (at, column) == (level, "samples") for n in by.values()
        }
        return f" (n = {' or '.join(f'{n:,}' for n in sorted(found))})" if found else ""

    def outcomes(self, method: str, mask: float, seed: int) -> Outcomes | Samplewise | None:
        """What a run has kept about test samples; None if it has not."""
        if self.folder is None:
            return None
        label, _, rule = method.partition(RULE)
        return self.board.kept(self.folder / "runs" / run_name(label, mask, seed), rule)

    def at(self, mask: float, *, rules: bool = False) -> list[str]:
        """The methods with results at a mask, the best last, by default at the finest level; or those such as "lht + crm"."""
        first = self.board.judged[0]
        present = [m for m in self.methods if self.get(m, mask, first.name) and (RULE in m) == rules]
        return sorted(present, key=lambda m: first.goodness(mean(self.get(m, mask, first.name))))


def read_results(out: Path) -> Comparison:
    """The results of a finished comparison."""
    path = out / "results.csv"
    try:
        return _results(out, read_csv(path))
    except FileNotFoundError:
        raise RunError(f"{out}: no results.csv; this comparison has not finished") from None
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise RunError(f"{path}: was changed, and cannot be read ({error!r}); lht compare … --resume writes it again") from None


def _results(out: Path, rows: Sequence[dict[str, str]]) -> Comparison:
    if not rows:
        raise ValueError("no rows")
    levels = list(dict.fromkeys(row["level"] for row in rows))
    values: dict[tuple[str, float, str, str], dict[int, float]] = {}
    for row in rows:
        method, mask = row["method"], finite(row["mask"])
        for column in row.keys() - set(KEYS):
            if row[column]:
                values.setdefault((method, mask, row["level"], column), {})[int(row["seed"])] = finite(row[column])
    methods = list(dict.fromkeys(row["method"] for row in rows))
    masks, seeds = (list(dict.fromkeys(float(row[name]) for row in rows)) for name in ("mask", "seed"))
    return Comparison(methods, masks, levels, [int(seed) for seed in seeds], values, folder=out, board=board_of(rows[0].keys()))


def finite(text: str) -> float:
    """A number. Raises ValueError for NaN and infinity, too."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a number")
    return number


# ---- which differences are real ------------------------------------------------------------------------------------


def verdicts(results: Comparison) -> list[Verdict]:
    """Verdicts at each mask, then over all masks; on a tree, at the finest level and on average over levels."""
    kept = cache(results.outcomes)
    found = []
    for spec in results.board.judged:
        name = results.finest if spec.per == "level" else spec.headed("table")
        for mask in results.masks:
            found += _verdict(results, f"{mask:.0%} masked, {name}", [mask], spec, kept)
        if len(results.masks) > 1:
            found += _verdict(results, f"all masks, {name}", results.masks, spec, kept)
    return found


def _verdict(results: Comparison, where: str, masks: Sequence[float], spec: Spec, kept: Kept) -> list[Verdict]:
    """One verdict on means over masks; none when fewer than two methods finished every seed."""
    scores: dict[str, dict[int, float]] = {}
    for method in results.at(masks[0]):
        by = [results.by_seed(method, mask, spec.name) for mask in masks]
        scores[method] = {seed: spec.scale * mean(one[seed] for one in by) for seed in by[0] if all(seed in one for one in by)}
    seeds = max((list(one) for one in scores.values()), key=len, default=[])
    whole = {name: list(one.values()) for name, one in scores.items() if seeds and list(one) == seeds}
    if len(whole) < 2:
        return []
    unit = "points" if spec.unit == "%" else spec.unit
    level = results.levels[::-1].index(results.finest) if spec.per == "level" else None
    outcomes = _outcomes([[[kept(name, mask, seed) for mask in masks] for seed in seeds] for name in whole], spec, level)
    return [tell_apart(where, whole, spec.better, unit, outcomes)]


def _outcomes(
    runs: list[list[list[Outcomes | Samplewise | None]]], spec: Spec, level: int | None
) -> NDArray[np.float64] | None:
    """(methods, seeds, samples) from runs (methods, seeds, masks), as means over masks; `level` counts from the finest.

    None if a run has kept no answers, or not to the same samples, or if the metric needs more than answers.
    """
    first, found = runs[0][0][0], []
    for run in (run for method in runs for seed in method for run in seed):
        if first is None or run is None or not first.same_samples(run):
            return None
        found.append(run.values(spec, level))
    if any(values is None for values in found):
        return None
    shape = (len(runs), len(runs[0]), len(runs[0][0]), -1)
    return np.asarray(spec.scale * np.array(found).reshape(shape).mean(axis=2))


# ---- tables --------------------------------------------------------------------------------------------------------


def mean_std(values: Sequence[float], spec: Spec = ACCURACY) -> str:
    """Mean ± standard deviation over seeds; a dash without values."""
    if not values:
        return "–"
    middle = spec.text(mean(values))
    return f"{middle} ± {spec.text(stdev(values))}" if len(values) > 1 else middle


def table_rows(results: Comparison) -> Iterator[list[str]]:
    """Rows of mask, method, a figure per level and one of all; the best last."""
    one, whole = results.board.level, results.board.whole
    for mask in results.masks:
        for method in results.at(mask):
            figures = [mean_std(results.get(method, mask, one.name, level), one) for level in results.levels]
            yield [f"{mask:.0%}", method, *figures, mean_std(results.get(method, mask, whole.name), whole)]


def quality_rows(results: Comparison) -> Iterator[list[str]]:
    """The other metrics, at the finest level or over all."""
    for mask in results.masks:
        for method in results.at(mask):
            found = [(spec, results.get(method, mask, spec.name)) for spec in results.board.more]
            yield [f"{mask:.0%}", method, *(spec.text(mean(values) if values else None) for spec, values in found)]


def rule_rows(results: Comparison) -> Iterator[list[str]]:
    """The effect of a rule of answering, compared with the method's own."""
    for mask in results.masks:
        for name in results.at(mask, rules=True):
            figures = [_changed(results, name, mask, REGISTER[column]) for column in RULES_CHANGE]
            yield [f"{mask:.0%}", name, *figures, mean_std(results.get(name, mask, "full_path_accuracy"))]


def _changed(results: Comparison, name: str, mask: float, spec: Spec) -> str:
    """A figure under a rule and, in brackets, the mean change over the seeds that have both."""
    ruled, own = (results.by_seed(method, mask, spec.name) for method in (name, name.partition(RULE)[0]))
    change = [ruled[seed] - own[seed] for seed in ruled if seed in own]
    return f"{spec.text(mean(ruled.values()))} ({spec.text(mean(change), '+')})" if change else "–"


def cost_rows(results: Comparison) -> Iterator[list[str]]:
    """The cost of each method: parameters, time per step, time per run at each mask."""
    for method in results.methods:
        if RULE in method:
            continue  # not trained separately
        seconds, steps, parameters = (
            [results.get(method, mask, column) for mask in results.masks]
            for column in ("train_seconds", "seconds_per_step", "parameters")
        )
        if not any(parameters):
            continue
        size = max(mean(p) for p in parameters if p)
        step = [x for s in steps for x in s]
        yield [
            method,
            f"{size / 1e6:.2f} M",
            f"{1000 * mean(step):.1f}" if step else "at once",
            *(f"{mean(s):.0f}" if s else "–" for s in seconds),
        ]


def markdown(header: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    """A table in Markdown."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def accuracy_header(results: Comparison) -> list[str]:
    """The columns of the first table."""
    levels = (f"{level}{results.samples(level)}" for level in results.levels)
    return ["masked", "method", *levels, results.board.whole.headed("table")]


def document(results: Comparison, trials: Sequence[Trial] = ()) -> str:
    """The text of table.md."""
    finest, board = results.finest, results.board
    found = verdicts(results)
    what, best = board.level.heading, f"by {board.ranked_by}" if board.ranked_by else f"at {finest}"
    parts = [
        markdown(accuracy_header(results), table_rows(results)),
        f"{what[0].upper()}{what[1:]} in percent on test samples{COUNTED if results.samples(finest) else ''}, mean ± standard "
        f"deviation over seeds; at each mask the best {best} last.",
        "\n".join(f"- {verdict.text()}" for verdict in found),
        INTERVALS,
    ]
    if any(verdict.samples is None for verdict in found):
        parts[-1] += " Runs of earlier versions have kept no answers, so that the choice of test samples cannot be counted."
    if results.diverged:
        parts.append(f"Diverged, and left out above: {'; '.join(results.diverged)}.")
    header = ["masked", "method", *(spec.headed("table") for spec in board.more)]
    heights = WORDS[sum(spec.unit == "height" for spec in board.more)]
    parts += [f"## {board.title}", markdown(header, quality_rows(results))]
    parts.append(board.explained.format(finest=finest, heights=heights))
    if rules := list(rule_rows(results)):
        headings = [REGISTER[column].headed("table") for column in (*RULES_CHANGE[1:], "full_path_accuracy")]
        columns = ["masked", "method + rule", finest, *headings]
        parts += ["## Rules of answering", markdown(columns, rules), "In brackets, the change from the method's own way."]
    header = ["method", "parameters", "ms per step", *(f"seconds at {mask:.0%}" for mask in results.masks)]
    parts += ["## Cost", markdown(header, cost_rows(results))]
    if trials:
        parts += ["## Tuning", "\n".join(summary(trials))]
        parts.append("Chosen by mean accuracy over levels on validation samples; every candidate is in tuning.csv.")
    return "\n\n".join(parts) + "\n"


def shown_results(out: Path, data: str) -> Iterator[Table | str]:
    """The table, the verdicts, and the next step, for the terminal."""
    results = read_results(out)
    table = Table("masked", Column("method", overflow="fold"))
    for heading in accuracy_header(results)[2:]:
        name, _, count = heading.partition(" (")
        table.add_column(f"{name}\n{count.removesuffix(')')}" if count else name, justify="right")
    for row in table_rows(results):
        table.add_row(*row)
    yield table
    yield from (verdict.text(limit=5) for verdict in verdicts(results))
    what = results.board.level.heading
    yield f"{what} in percent on test samples, mean ± standard deviation over seeds · {out / 'table.md'}, accuracy.png"
    best = (results.at(results.masks[-1]) or results.methods)[-1]
    example = out / "runs" / run_name(best, results.masks[-1], results.seeds[0])
    yield f"next: lht predict {example} {data} --limit 5   ·   lht evaluate {example}"
