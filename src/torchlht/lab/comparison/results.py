"""What a comparison says: results.csv, the tables of table.md, and which differences exceed seed noise."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from torchlht.files import write_text
from torchlht.lab.comparison.contenders import run_name
from torchlht.lab.comparison.tuning import Trial, summary
from torchlht.measure.verdict import Verdict, judge

Row = tuple[str, float, int, dict[str, Any]]  # method, mask, seed, metrics

PER_LEVEL = (
    "accuracy",
    "accuracy_with_siblings",
    "accuracy_without_siblings",
    "mean_class_recall",
    "macro_precision",
    "macro_f1",
    "macro_auc",
    "ece",
)
PER_RUN = (
    "mean_accuracy",
    "full_path_accuracy",
    "inconsistency",
    "mistake_severity",
    "hierarchical_precision",
    "hierarchical_recall",
    "hierarchical_f1",
)
DISTANCES = ("1", "5", "20")
COST = ("train_seconds", "seconds_per_step", "parameters")
RULE = " + "  # between a method and a rule of answering that is not its own
COLUMNS = ["method", "mask", "seed", "level", *PER_LEVEL, *PER_RUN, *(f"hierarchical_distance_{k}" for k in DISTANCES), *COST]


# ---- results.csv ---------------------------------------------------------------------------------------------------


def write_results(out: Path, rows: Sequence[Row], trials: Sequence[Trial] = ()) -> Results:
    """results.csv, one row per method, mask, seed and level, and table.md; gives what read_results gives."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for method, mask, seed, metrics in rows:
        for name, found in views(method, metrics):
            for level in found["levels"]:
                writer.writerow(tidy(found | {c: metrics[c] for c in COST}, level, method=name, mask=mask, seed=seed))
    write_text(out / "results.csv", text.getvalue())
    diverged = [f"{method}, {mask:.0%} masked, seed {seed}" for method, mask, seed, found in rows if "diverged" in found]
    results = read_results(out)
    write_text(out / "table.md", document(results, trials, diverged))
    return results


def views(method: str, metrics: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The metrics of a run under its method's own rule of answering and under each other that was measured."""
    if "diverged" not in metrics:
        yield method, metrics
        for rule, found in metrics.get("rules", {}).items():
            yield f"{method}{RULE}{rule}", found


def tidy(metrics: dict[str, Any], level: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """A row of results.csv."""
    row = {**keys, "level": level["name"]}
    row |= {column: level.get(column) for column in PER_LEVEL} | {column: metrics[column] for column in (*PER_RUN, *COST)}
    row |= {f"hierarchical_distance_{k}": metrics["hierarchical_distance"][k] for k in DISTANCES}
    return {column: round(value, 6) if isinstance(value, float) else value for column, value in row.items()}


@dataclass(frozen=True)
class Results:
    """results.csv in memory: figures by (method, mask, level, column), one per seed.

    Attributes:
        methods: in the order of the file.
        masks: likewise.
        levels: coarse → fine.
        seeds: in the order of the file.
        values: one list per figure, in the order of the seeds.
    """

    methods: list[str]
    masks: list[float]
    levels: list[str]
    seeds: list[int]
    values: dict[tuple[str, float, str, str], list[float]]

    def get(self, method: str, mask: float, column: str, level: str | None = None) -> list[float]:
        """One column of one method at one mask; the finest level's unless another is named."""
        return self.values.get((method, mask, level or self.levels[-1], column), [])

    def at(self, mask: float, *, rules: bool = False) -> list[str]:
        """The methods that have results at a mask, the best at the finest level last; or, as "lht + crm", those with a rule."""
        present = [m for m in self.methods if self.get(m, mask, "accuracy") and (RULE in m) == rules]
        return sorted(present, key=lambda m: mean(self.get(m, mask, "accuracy")))


def read_results(out: Path) -> Results:
    """The results of a finished comparison."""
    with (out / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    levels = list(dict.fromkeys(row["level"] for row in rows))
    values: dict[tuple[str, float, str, str], list[float]] = {}
    for row in rows:
        method, mask = row["method"], float(row["mask"])
        for column in row.keys() - {"method", "mask", "seed", "level"}:
            if row[column]:
                values.setdefault((method, mask, row["level"], column), []).append(float(row[column]))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    masks, seeds = (list(dict.fromkeys(float(row[name]) for row in rows)) for name in ("mask", "seed"))
    return Results(methods, masks, levels, [int(seed) for seed in seeds], values)


# ---- which differences are real ------------------------------------------------------------------------------------


def verdicts(results: Results) -> list[Verdict]:
    """At each mask, then over all masks, at the finest level and on average over levels."""
    finest = results.levels[-1]
    asked = [(finest, "accuracy"), ("mACC", "mean_accuracy")]
    found = []
    for name, column in asked:
        for mask in results.masks:
            found += _verdict(f"{mask:.0%} masked, {name}", {m: results.get(m, mask, column) for m in results.at(mask)})
        if len(results.masks) > 1:
            everywhere = [
                m for m in results.at(results.masks[0]) if all(results.get(m, mask, column) for mask in results.masks)
            ]
            pooled = {m: [results.get(m, mask, column) for mask in results.masks] for m in everywhere}
            means = {m: [mean(s) for s in zip(*v, strict=True)] for m, v in pooled.items() if len({len(s) for s in v}) == 1}
            found += _verdict(f"all masks, {name}", means)
    return found


def _verdict(where: str, scores: dict[str, list[float]]) -> list[Verdict]:
    """One verdict, in points; none when fewer than two methods finished every seed."""
    seeds = max((len(s) for s in scores.values()), default=0)
    whole = {name: [100 * x for x in s] for name, s in scores.items() if len(s) == seeds}
    return [judge(where, whole)] if len(whole) > 1 else []


# ---- tables --------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], scale: float = 100, digits: int = 1) -> str:
    """Mean ± standard deviation over seeds; a dash where there is nothing."""
    if not values:
        return "–"
    middle = f"{scale * mean(values):.{digits}f}"
    return f"{middle} ± {scale * stdev(values):.{digits}f}" if len(values) > 1 else middle


def table_rows(results: Results) -> Iterator[list[str]]:
    """masked, method, then accuracy per level and mACC; the best at the finest level last."""
    for mask in results.masks:
        for method in results.at(mask):
            figures = [spread(results.get(method, mask, "accuracy", level)) for level in results.levels]
            yield [f"{mask:.0%}", method, *figures, spread(results.get(method, mask, "mean_accuracy"))]


def quality_rows(results: Results) -> Iterator[list[str]]:
    """What accuracy does not say, at the finest level or along the path."""
    for mask in results.masks:
        for method in results.at(mask):

            def figure(column: str, scale: float = 100, digits: int = 1, method: str = method, mask: float = mask) -> str:
                values = results.get(method, mask, column)
                return f"{scale * mean(values):.{digits}f}" if values else "–"

            percent = [
                figure(name)
                for name in ("full_path_accuracy", "inconsistency", "hierarchical_f1", "mean_class_recall", "macro_f1", "ece")
            ]
            siblings = [figure("accuracy_with_siblings"), figure("accuracy_without_siblings")]
            distances = [figure(f"hierarchical_distance_{k}", 1, 2) for k in DISTANCES]
            yield [f"{mask:.0%}", method, *percent, *siblings, figure("mistake_severity", 1, 2), *distances]


QUALITY = ["masked", "method", "whole path", "levels disagree", "hF1", "class recall", "macro F1", "ECE", "with siblings"]
QUALITY += ["without siblings", "severity", "distance@1", "@5", "@20"]


def rule_rows(results: Results) -> Iterator[list[str]]:
    """What a rule of answering changes, against the method's own way."""
    for mask in results.masks:
        for name in results.at(mask, rules=True):
            method = name.partition(RULE)[0]
            figures = []
            for column, scale, digits in (("accuracy", 100, 1), ("mean_accuracy", 100, 1), ("mistake_severity", 1, 2)):
                pair = (results.get(name, mask, column), results.get(method, mask, column))
                change = [scale * (a - b) for a, b in zip(*pair, strict=True)]
                figures.append(f"{scale * mean(pair[0]):.{digits}f} ({mean(change):+.{digits}f})" if change else "–")
            yield [f"{mask:.0%}", name, *figures, spread(results.get(name, mask, "full_path_accuracy"))]


def cost_rows(results: Results) -> Iterator[list[str]]:
    """What each method costs: parameters, time per step, time per run at each mask."""
    for method in results.methods:
        if RULE in method:
            continue  # not a training of its own
        every = [results.get(method, mask, column) for column in COST for mask in results.masks]
        seconds, steps, parameters = (every[i * len(results.masks) : (i + 1) * len(results.masks)] for i in range(3))
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
    """A table for a document."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *rows])


def accuracy_header(results: Results) -> list[str]:
    """The columns of the table of accuracies."""
    return ["masked", "method", *results.levels, "mACC"]


def document(results: Results, trials: Sequence[Trial] = (), diverged: Sequence[str] = ()) -> str:
    """table.md."""
    finest = results.levels[-1]
    parts = [
        markdown(accuracy_header(results), table_rows(results)),
        f"Accuracy in percent on test samples, mean ± standard deviation over seeds; at each mask the best at {finest} last.",
        "\n".join(f"- {verdict.text()}" for verdict in verdicts(results)),
        "± in these sentences is the half-width of a 95 % interval that holds for all differences of a line at once (Tukey, "
        "seeds as blocks). It covers seeds and masks, not the choice of test samples.",
    ]
    if diverged:
        parts.append(f"Diverged, and left out above: {'; '.join(diverged)}.")
    parts += ["## Along the tree", markdown(QUALITY, quality_rows(results))]
    parts.append(
        f"At {finest} or along the path, mean over seeds, in percent but for the last four columns, which are heights of the "
        "lowest common ancestor. A class without siblings follows from its parent: masking it hides nothing."
    )
    if rules := list(rule_rows(results)):
        columns = ["masked", "method + rule", finest, "mACC", "severity", "whole path"]
        parts += ["## Rules of answering", markdown(columns, rules), "In brackets, the change from the method's own way."]
    header = ["method", "parameters", "ms per step", *(f"seconds at {mask:.0%}" for mask in results.masks)]
    parts += ["## Cost", markdown(header, cost_rows(results))]
    if trials:
        parts += ["## Tuning", "\n".join(summary(trials))]
        parts.append("Chosen by mean accuracy over levels on validation samples; every candidate is in tuning.csv.")
    return "\n\n".join(parts) + "\n"


def shown_results(out: Path, data: str) -> Iterator[Table | str]:
    """The table, what it means, and what to do next, for the terminal."""
    results = read_results(out)
    table = Table("masked", "method")
    for level in (*results.levels, "mACC"):
        table.add_column(level, justify="right")
    for row in table_rows(results):
        table.add_row(*row)
    yield table
    yield from (verdict.text(limit=5) for verdict in verdicts(results))
    yield f"accuracy in percent on test samples, mean ± standard deviation over seeds · {out / 'table.md'}, accuracy.png"
    best = results.at(results.masks[-1])[-1]
    example = out / "runs" / run_name(best, results.masks[-1], results.seeds[0])
    yield f"next: lht predict {example} {data} --limit 5   ·   lht evaluate {example}"
