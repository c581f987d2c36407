"""Results of a comparison: results.csv, the tables of table.md, and which differences exceed noise."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Column, Table

from torchlht.errors import RunError
from torchlht.files import csv_text, read_csv, replacing, write_text
from torchlht.lab.comparison.contenders import Trial, run_name, summary
from torchlht.measure.metrics import REGISTER, Spec, specs
from torchlht.measure.outcomes import Outcomes
from torchlht.measure.verdict import Verdict, tell_apart

Row = tuple[str, float, int, dict[str, Any]]  # method, mask, seed, metrics
Kept = Callable[[str, float, int], Outcomes | None]  # by method, mask, seed

ACCURACY, MEAN = REGISTER["accuracy"], REGISTER["mean_accuracy"]  # for ranking and comparing methods
RULE = " + "  # between a method and a rule of answering that is not its own
RULES_CHANGE = ("accuracy", "mean_accuracy", "mistake_severity")
KEYS = ("method", "mask", "seed", "level")
INTERVALS = "± in these sentences is the half-width of a 95 % interval; those of a line hold for all its differences at once."
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


# ---- results.csv ---------------------------------------------------------------------------------------------------


def write_results(out: Path, rows: Sequence[Row], trials: Sequence[Trial] = ()) -> Comparison:
    """results.csv, one row per method, mask, seed and level, and table.md; returns the same as `read_results`."""
    columns = [*KEYS, *(spec.name for spec in specs())]
    cells: list[list[object]] = [[*columns]]
    for method, mask, seed, metrics in rows:
        for name, found in views(method, metrics):
            for level in found["levels"]:
                row = tidy(metrics | found, level, method=name, mask=mask, seed=seed)
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


def tidy(metrics: dict[str, Any], level: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A row of results.csv, blank where a figure was not measured."""
    row = {**keys, "level": level["name"]}
    row |= {spec.name: spec.of(level if spec.per == "level" else metrics) for spec in specs()}
    return {column: round(value, 6) if isinstance(value, float) else value for column, value in row.items()}


@dataclass(frozen=True)
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
    """

    methods: list[str]
    masks: list[float]
    levels: list[str]
    seeds: list[int]
    values: dict[tuple[str, float, str, str], dict[int, float]]
    diverged: Sequence[str] = ()
    folder: Path | None = None

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
        return self.values.get((method, mask, level or self.levels[-1], column), {})

    def samples(self, level: str) -> str:
        """How many test samples have a label at a level: " (n = 51)"; nothing if it is not recorded."""
        found = {
            int(n) for (_, _, at, column), by in self.values.items() if (at, column) == (level, "samples") for n in by.values()
        }
        return f" (n = {' or '.join(f'{n:,}' for n in sorted(found))})" if found else ""

    def outcomes(self, method: str, mask: float, seed: int) -> Outcomes | None:
        """A run's answers on test samples; None if they were not kept."""
        if self.folder is None:
            return None
        label, _, rule = method.partition(RULE)
        return Outcomes.read(self.folder / "runs" / run_name(label, mask, seed), rule)

    def at(self, mask: float, *, rules: bool = False) -> list[str]:
        """The methods with results at a mask, the best at the finest level last; with `rules`, those such as "lht + crm"."""
        present = [m for m in self.methods if self.get(m, mask, ACCURACY.name) and (RULE in m) == rules]
        return sorted(present, key=lambda m: ACCURACY.goodness(mean(self.get(m, mask, ACCURACY.name))))


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
    return Comparison(methods, masks, levels, [int(seed) for seed in seeds], values, folder=out)


def finite(text: str) -> float:
    """A number. Raises ValueError for NaN and infinity, too."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text} is not a number")
    return number


# ---- which differences are real ------------------------------------------------------------------------------------


def verdicts(results: Comparison) -> list[Verdict]:
    """Verdicts at each mask, then over all masks, at the finest level and on average over levels."""
    kept = cache(results.outcomes)
    found = []
    for spec in (ACCURACY, MEAN):
        name = results.levels[-1] if spec.per == "level" else spec.headed("table")
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
    outcomes = _outcomes([[[kept(name, mask, seed) for mask in masks] for seed in seeds] for name in whole], spec)
    return [tell_apart(where, whole, spec.better, unit, outcomes)]


def _outcomes(runs: list[list[list[Outcomes | None]]], spec: Spec) -> NDArray[np.float64] | None:
    """(methods, seeds, samples) from runs (methods, seeds, masks), as means over masks.

    None if a run has kept no answers, or not to the same samples, or if the metric needs more than answers.
    """
    level = 0 if spec.per == "level" else None
    first, found = runs[0][0][0], []
    for run in (run for method in runs for seed in method for run in seed):
        if first is None or run is None or not np.array_equal(first.labels, run.labels):
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
    """Rows of mask, method, accuracy per level and mACC; the best at the finest level last."""
    for mask in results.masks:
        for method in results.at(mask):
            figures = [mean_std(results.get(method, mask, ACCURACY.name, level)) for level in results.levels]
            yield [f"{mask:.0%}", method, *figures, mean_std(results.get(method, mask, MEAN.name))]


def quality() -> list[Spec]:
    """Metrics besides accuracy, for the columns of their table; heights last."""
    shown = [spec for spec in specs(shown="table") if spec not in (ACCURACY, MEAN)]
    return sorted(shown, key=lambda spec: (spec.unit == "height", spec.place))


def quality_rows(results: Comparison) -> Iterator[list[str]]:
    """Metrics besides accuracy, at the finest level or along the path."""
    for mask in results.masks:
        for method in results.at(mask):
            found = [(spec, results.get(method, mask, spec.name)) for spec in quality()]
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
    """The columns of the table of accuracies."""
    return ["masked", "method", *(f"{level}{results.samples(level)}" for level in results.levels), MEAN.headed("table")]


def document(results: Comparison, trials: Sequence[Trial] = ()) -> str:
    """The text of table.md."""
    finest = results.levels[-1]
    found = verdicts(results)
    parts = [
        markdown(accuracy_header(results), table_rows(results)),
        "Accuracy in percent on test samples (n: how many have a label), mean ± standard deviation over seeds; at each mask "
        f"the best at {finest} last.",
        "\n".join(f"- {verdict.text()}" for verdict in found),
        INTERVALS,
    ]
    if any(verdict.samples is None for verdict in found):
        parts[-1] += " Runs of earlier versions have kept no answers, so that the choice of test samples cannot be counted."
    if results.diverged:
        parts.append(f"Diverged, and left out above: {'; '.join(results.diverged)}.")
    header = ["masked", "method", *(spec.headed("table") for spec in quality())]
    heights = WORDS[sum(spec.unit == "height" for spec in quality())]
    parts += ["## Along the tree", markdown(header, quality_rows(results))]
    parts.append(
        f"At {finest} or along the path, mean over seeds, in percent but for the last {heights} columns, which are heights of "
        "the lowest common ancestor. A class without siblings follows from its parent: masking it hides nothing."
    )
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
        table.add_column(heading.replace(" (", "\n").removesuffix(")"), justify="right")
    for row in table_rows(results):
        table.add_row(*row)
    yield table
    yield from (verdict.text(limit=5) for verdict in verdicts(results))
    yield f"accuracy in percent on test samples, mean ± standard deviation over seeds · {out / 'table.md'}, accuracy.png"
    best = results.at(results.masks[-1])[-1]
    example = out / "runs" / run_name(best, results.masks[-1], results.seeds[0])
    yield f"next: lht predict {example} {data} --limit 5   ·   lht evaluate {example}"


# ---- accuracy.png: against the share of hidden labels, a panel per level; with one mask, a dot per method ------------

MARKERS = "osD^vP"
INK, FAINT = "#333333", "#dddddd"


def draw_accuracy(results: Comparison, path: Path) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods = ranked(results)
    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK}):
        draw = _lines if len(results.masks) > 1 else _dots
        figure = draw(pyplot, results, methods)
        with replacing(path) as beside:
            figure.savefig(beside, dpi=150, format="png", bbox_inches="tight")
        pyplot.close(figure)


def ranked(results: Comparison) -> list[str]:
    """Methods under their own rule of answering, the best at the finest level under the strongest mask first."""
    present = results.at(max(results.masks))
    others = {m for mask in results.masks for m in results.at(mask)} - set(present)
    return [*reversed(present), *sorted(others)]


def _style(i: int) -> dict[str, Any]:
    """Six colours, distinct also without red and green, times four line styles and six markers."""
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    return {"color": colours[i % 6], "marker": MARKERS[(i // 6 + i) % 6], "linestyle": ("-", "--", ":", "-.")[i // 6 % 4]}


def _summary(results: Comparison, method: str, mask: float, level: str) -> tuple[float, float] | None:
    values = [ACCURACY.scale * v for v in results.get(method, mask, ACCURACY.name, level)]
    return (mean(values), stdev(values) if len(values) > 1 else 0.0) if values else None


def _lines(pyplot: Any, results: Comparison, methods: Sequence[str]) -> Any:
    size = (3.6 * len(results.levels) + 1.6, max(4.2, 0.23 * len(methods) + 0.8))
    figure, panels = pyplot.subplots(1, len(results.levels), figsize=size, squeeze=False)
    masks = sorted(results.masks)
    gap = (masks[-1] - masks[0]) * 100
    for panel, level in zip(panels[0], results.levels, strict=True):
        for i, method in enumerate(methods):
            points = [(100 * m, *s) for m in masks if (s := _summary(results, method, m, level))]
            if points:
                shift = (i / max(len(methods) - 1, 1) - 0.5) * 0.02 * gap  # so that equal points do not overlap
                x, y, error = zip(*points, strict=True)
                panel.errorbar(
                    [v + shift for v in x], y, error, label=method, capsize=2, markersize=4, linewidth=1, **_style(i)
                )
        panel.set_title(f"{level}{results.samples(level)}", loc="left", color=INK)
        panel.set_xlabel("fine labels hidden, %")
        panel.set_xticks([100 * m for m in masks])
        panel.grid(axis="y", color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0][0].set_ylabel(f"{ACCURACY.axis(' on test samples')}  (± std over seeds)")
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="best at right first")
    figure.tight_layout()
    return figure


def _dots(pyplot: Any, results: Comparison, methods: Sequence[str]) -> Any:
    height = 1.2 + 0.26 * len(methods)
    figure, panels = pyplot.subplots(1, len(results.levels), figsize=(2.6 * len(results.levels) + 1.6, height), squeeze=False)
    mask = results.masks[0]
    for panel, level in zip(panels[0], results.levels, strict=True):
        for i, method in enumerate(methods):
            if found := _summary(results, method, mask, level):
                panel.errorbar(found[0], -i, xerr=found[1], capsize=2, markersize=4, color="#0072b2", marker="o")
        panel.set_title(f"{level}{results.samples(level)}", loc="left", color=INK)
        panel.set_yticks([-i for i in range(len(methods))], list(methods) if level == results.levels[0] else [])
        panel.set_xlabel(ACCURACY.axis())
        panel.grid(color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
    figure.suptitle(f"{mask:.0%} of fine labels hidden, ± std over seeds", x=0.01, ha="left", fontsize=9)
    figure.tight_layout()
    return figure
