"""Methods × masks × seeds on the same data, one run directory per cell, and one table that says which differences are real."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import yaml
from rich.table import Table

from torchlht import show
from torchlht.args import CommonArgs, CompareArgs, TrainArgs
from torchlht.errors import RunError
from torchlht.files import write_text, write_yaml
from torchlht.methods import method_class
from torchlht.runs import Run, read_metrics
from torchlht.training import prepare, train

# Two-sided 95 % points of Student's t by degrees of freedom; beyond the list it is close to the normal's.
STUDENT_95 = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
)


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    method: str
    mask: float
    seed: int
    args: TrainArgs

    @property
    def run(self) -> Run:
        """Where it is kept."""
        assert self.args.out is not None
        return Run(self.args.out)


def cells(args: CompareArgs) -> list[Cell]:
    """The whole grid, seeds outermost so that an interrupted comparison has something of everything."""
    common = {f.name: getattr(args.common, f.name) for f in dataclasses.fields(CommonArgs)}
    grid = []
    for seed in range(args.seeds):
        for ratio in args.masks():
            for method in args.method_list():
                out = args.out / "runs" / f"{method}-R{round(100 * ratio)}-s{seed}"
                options = TrainArgs(args.data, out, method=method, mask=ratio, seed=seed, quiet=True, track=False, **common)
                grid.append(Cell(method, ratio, seed, options))
    return grid


def compare(args: CompareArgs) -> None:
    """Train every cell that is not finished, then write results.csv and table.md."""
    for name in args.method_list():
        method_class(name)
    grid = cells(args)
    claim(args)
    prepare(grid[0].args)  # every fault of the data shows here, once, before anything is trained
    waiting = [cell for cell in grid if not cell.run.metrics.is_file()]
    write_yaml(args.out / "compare.yaml", settings(args))
    jobs = min(args.jobs or os.cpu_count() or 1, max(len(waiting), 1))
    if jobs == 1:
        for i, cell in enumerate(waiting):
            run_cell(cell, None)
            report(cell, i + 1, len(waiting))
    else:
        run_parallel(waiting, jobs)
    write_results(args.out, grid)


def claim(args: CompareArgs) -> None:
    """Refuse a directory that holds something else."""
    settled = args.out / "compare.yaml"
    if settled.is_file() and not args.resume:
        raise RunError(f"{args.out}: holds a comparison already; add --resume to go on with it, or choose another --out")
    if settled.is_file() and read_settings(args.out) != settings(args):
        raise RunError(f"{args.out}: was started with other options ({settled}); choose another --out")
    if settled.is_file():
        return
    if args.out.exists() and any(args.out.iterdir()):
        raise RunError(f"{args.out}: exists and is not empty; choose another --out")


def settings(args: CompareArgs) -> dict[str, Any]:
    """What decides the results, as plain values."""
    common = {f.name: getattr(args.common, f.name) for f in dataclasses.fields(CommonArgs)}
    common = {name: str(value) if isinstance(value, Path) else value for name, value in common.items()}
    return {"data": args.data, "methods": args.method_list(), "mask": args.masks(), "seeds": args.seeds, **common}


def read_settings(out: Path) -> dict[str, Any]:
    """The settings a comparison was started with."""
    kept: dict[str, Any] = yaml.safe_load((out / "compare.yaml").read_text(encoding="utf-8"))
    return kept


def run_parallel(waiting: Sequence[Cell], jobs: int) -> None:
    """Cells in separate processes that share the cores evenly."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=die_with_parent) as pool:
        futures = {pool.submit(run_cell, cell, threads): cell for cell in waiting}
        for i, future in enumerate(as_completed(futures)):
            future.result()
            report(futures[future], i + 1, len(waiting))


def die_with_parent() -> None:
    """A worker whose parent is killed stops at once, so that nobody else writes when the comparison goes on."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def run_cell(cell: Cell, threads: int | None) -> None:
    """Train one cell, from its last checkpoint if it has one."""
    if threads:
        torch.set_num_threads(threads)
    started = (cell.run.path / "config.yaml").is_file()
    train(TrainArgs(resume=cell.run.path, quiet=True) if started else cell.args)


def report(cell: Cell, done: int, total: int) -> None:
    """A line per finished cell."""
    metrics = read_metrics(cell.run.path)
    levels = "  ".join(f"{level['name']} {show.percent(level['accuracy'])}" for level in metrics["levels"])
    name = f"{cell.method}, {cell.mask:.0%} masked, seed {cell.seed}"
    show.notes.print(f"{done}/{total}  {name}: {levels}  ({metrics['train_seconds']:.0f} s)", soft_wrap=True)


# ---- results -------------------------------------------------------------------------------------------------------


def write_results(out: Path, grid: Sequence[Cell]) -> None:
    """results.csv: one row per method, mask, seed and level; table.md: means and spreads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "mask", "seed", "level", "accuracy", "mean_accuracy", "inconsistency", "train_seconds"])
    for cell in grid:
        metrics = read_metrics(cell.run.path)
        for level in metrics["levels"]:
            figures = [
                level["accuracy"],
                metrics["mean_accuracy"],
                metrics["inconsistency"],
                round(metrics["train_seconds"], 2),
            ]
            writer.writerow([cell.method, cell.mask, cell.seed, level["name"], *figures])
    write_text(out / "results.csv", text.getvalue())
    results = read_results(out)
    write_text(out / "table.md", markdown(results) + "\n\n" + "\n".join(sentences(results)) + "\n")


@dataclass(frozen=True)
class Results:
    """results.csv by method and mask: accuracy in percent per seed, levels coarse → fine and "mACC" last."""

    methods: list[str]
    masks: list[float]
    levels: list[str]
    accuracy: dict[tuple[str, float, str], list[float]]


def read_results(out: Path) -> Results:
    """The results of a finished comparison."""
    with (out / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    accuracy: dict[tuple[str, float, str], list[float]] = {}
    for row in rows:
        key = (row["method"], float(row["mask"]), row["level"])
        accuracy.setdefault(key, []).append(100 * float(row["accuracy"]))
    levels = list(dict.fromkeys(row["level"] for row in rows))
    for row in rows:
        if row["level"] == levels[-1]:
            accuracy.setdefault((row["method"], float(row["mask"]), "mACC"), []).append(100 * float(row["mean_accuracy"]))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    masks = list(dict.fromkeys(float(row["mask"]) for row in rows))
    return Results(methods, masks, [*levels, "mACC"], accuracy)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def table_rows(results: Results) -> Iterator[list[str]]:
    """masked, method, then a figure per level."""
    for ratio in results.masks:
        for method in results.methods:
            figures = [spread(results.accuracy[method, ratio, level]) for level in results.levels]
            yield [f"{ratio:.0%}", method, *figures]


def markdown(results: Results) -> str:
    """The table for a document."""
    lines = [["masked", "method", *results.levels], ["---"] * (2 + len(results.levels)), *table_rows(results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def sentences(results: Results) -> list[str]:
    """For each mask, the best method at the finest level against each other one: shown, or no difference shown."""
    finest = results.levels[-2]
    found = []
    for ratio in results.masks:
        scores = {method: results.accuracy[method, ratio, finest] for method in results.methods}
        best = max(scores, key=lambda method: mean(scores[method]))
        for other in (method for method in results.methods if method != best):
            found.append(f"{ratio:.0%} masked: {verdict(best, scores[best], other, scores[other], finest)}")
    return found


def verdict(a: str, a_scores: Sequence[float], b: str, b_scores: Sequence[float], level: str) -> str:
    """One paired comparison over seeds, in words. ± is the half-width of the 95 % interval of the mean difference."""
    differences = [x - y for x, y in zip(a_scores, b_scores, strict=True)]
    n = len(differences)
    if n < 2:
        return f"{a} and {b} differ by {differences[0]:.1f} points at {level} in one seed: no spread, nothing shown."
    t = STUDENT_95[n - 2] if n - 2 < len(STUDENT_95) else 2.0
    half = t * stdev(differences) / math.sqrt(n)
    if mean(differences) > half:
        return f"{a} is ahead of {b} by {mean(differences):.1f} ± {half:.1f} points at {level} ({n} seeds, paired): shown."
    gap = f"{mean(differences):.1f} ± {half:.1f}"
    return f"{a} and {b} differ by {gap} points at {level} ({n} seeds, paired): no difference shown."


def shown_results(out: Path) -> Iterator[Table | str]:
    """The table, what it means, and what to do next."""
    results = read_results(out)
    table = Table("masked", "method")
    for level in results.levels:
        table.add_column(level, justify="right")
    for row in table_rows(results):
        table.add_row(*row)
    yield table
    yield from sentences(results)
    yield f"accuracy in percent on test samples, mean ± standard deviation over seeds, last epoch · {out / 'results.csv'}"
    example = out / "runs" / f"{results.methods[-1]}-R{round(100 * results.masks[-1])}-s0"
    yield f"next: lht predict {example} {read_settings(out)['data']} --limit 5   ·   lht evaluate {example}"
