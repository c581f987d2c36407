"""Figures from the result files in `benchmarks/results`, as the site and the README state them."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
LEVELS = ("order", "family", "species")


def accuracies(file: str, method: str, mask: float, level: str) -> list[float]:
    """Accuracies in percent, one per seed, of a results.csv as `lht compare` writes it."""
    with (RESULTS / file).open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines) if row["method"] == method and float(row["mask"]) == mask]
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
