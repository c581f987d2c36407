"""Figures from the result files in `benchmarks/results`, as the site and the README state them."""

from __future__ import annotations

import csv
import functools
import statistics
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
LEVELS = ("order", "family", "species")
Row = dict[str, str]


@functools.cache
def rows_of(file: str) -> list[Row]:
    """The rows of a result file, or of several: `semi-today.csv + semi-r90.csv`."""
    return [
        row for one in file.split(" + ") for row in csv.DictReader((RESULTS / one).read_text(encoding="utf-8").splitlines())
    ]


def accuracies(file: str, method: str, mask: float, level: str) -> list[float]:
    """Accuracies in percent, one per seed, of a results.csv as `lht compare` writes it."""
    rows = [row for row in rows_of(file) if row["method"] == method and float(row["mask"]) == mask]
    found = [100 * float(row["accuracy"]) for row in rows if row["level"] == level]
    if not found:
        raise ValueError(f"{file} has no {level} of {method} at mask {mask}")
    return found


def spread(values: list[float]) -> str:
    """Mean ± standard deviation."""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def result(words: str) -> str:
    """The text of a {result}."""
    file, method, mask, level = words.split()
    return spread(accuracies(file, method, float(mask), level))


def lead(words: str) -> str:
    """The text of a {lead}."""
    file, method, other, mask, level = words.split()
    ours, theirs = (statistics.mean(accuracies(file, name, float(mask), level)) for name in (method, other))
    return f"{ours - theirs:.1f}"


def table(file: str, methods: list[str], mask: float, levels: tuple[str, ...] = LEVELS) -> list[str]:
    """A table of accuracies in Markdown; a method may be given as NAME = what to call it."""
    lines = ["| method | " + " | ".join(levels) + " |", "|---" * (1 + len(levels)) + "|"]
    for one in methods:
        name, _, said = (word.strip() for word in one.partition("="))
        figures = [spread(accuracies(file, name, mask, level)) for level in levels]
        lines.append(f"| {said or f'`{name}`'} | " + " | ".join(figures) + " |")
    return lines


def everything() -> list[str]:
    """A table in Markdown of each accuracy in each result file that has a row per method, mask, seed and level."""
    lines = ["| file | method | hidden | level | accuracy | seeds |", "|---" * 6 + "|"]
    for path in sorted(RESULTS.glob("*.csv")):
        found: dict[tuple[str, str, str], list[float]] = {}
        for row in rows_of(path.name):
            if {"method", "mask", "level", "accuracy"} <= row.keys():
                found.setdefault((row["method"], f"{float(row['mask']):.0%}", row["level"]), []).append(
                    100 * float(row["accuracy"])
                )
        link = f"[{path.stem}](../benchmarks/results/{path.name})"
        lines += [f"| {link} | {' | '.join(key)} | {spread(values)} | {len(values)} |" for key, values in found.items()]
    return lines
