"""Methods × masks × seeds on the same data, one run directory per cell, side by side on all cores, resumable."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from torchlht import console
from torchlht.answer.finding import GRAPH
from torchlht.answer.model import Run
from torchlht.answer.records import CONFIG, WEIGHTS, read_config, read_metrics
from torchlht.doors import entrance
from torchlht.errors import ConfigError, DivergedError, RunError
from torchlht.files import claimed, write_yaml
from torchlht.lab.comparison.board import board_for
from torchlht.lab.comparison.contenders import (
    Candidate,
    Contender,
    Trial,
    candidates,
    choose,
    find_contenders,
    find_graph_contenders,
    run_name,
    trial,
    write_account,
)
from torchlht.lab.comparison.drawing import draw_accuracy
from torchlht.lab.comparison.results import Comparison, write_results
from torchlht.lab.options import USUAL_METHODS, CompareArgs
from torchlht.learn.options import TrainArgs
from torchlht.learn.several import check_several, trains_several, warm
from torchlht.learn.several import prepare as prepare_graph
from torchlht.learn.training import later_options, prepare, train, warm_features

SETTINGS = "compare.yaml"
USUAL_OF_SETS = "flat,c-hmcnn,lht"


@dataclass(frozen=True)
class Cell:
    """One run of the grid."""

    contender: Contender
    mask: float
    seed: int
    args: TrainArgs
    candidate: Candidate
    trial: bool = False

    @property
    def run(self) -> Run:
        """Its run directory."""
        assert self.args.out is not None
        return Run(self.args.out)


@entrance
def compare(args: CompareArgs) -> Comparison:
    """Train every run that is not finished, then write results.csv, table.md and accuracy.png; returns all results.

    >>> results = compare(CompareArgs("birds.npz", Path("runs/compare"), methods="multihead,lht", mask="0.9"))
    >>> results.get("lht", 0.9, "accuracy", "family")        # one per seed
    """
    with claimed(args.out):
        return compare_there(args)


def compare_there(args: CompareArgs) -> Comparison:
    """Compare in a folder that this process has claimed."""
    first = args.training(mask=max(args.masks()), option=())
    if trains_several(first):
        args, contenders, lr = enter_graph(args, first)
    else:
        contenders, lr = enter_tree(args, first)
    trials: list[Trial] = []
    grid = cells(args, contenders)
    trial_cells = list(tuning_cells(args, contenders, lr)) if lr is not None and args.tune else []
    with workers(args.jobs or os.cpu_count() or 1, len(grid) + len(trial_cells)) as pool:
        if args.tune:
            pool.run(trial_cells)
            trials = judge(trial_cells)
            write_account(args.out / "tuning.csv", trials)
            grid = cells(args, contenders, choose(trials), lr)
        pool.run(grid)
    rows = [(cell.contender.label, cell.mask, cell.seed, read_metrics(cell.run.path)) for cell in grid]
    if all("diverged" in metrics for *_, metrics in rows):
        raise DivergedError(f"{args.out}: every run diverged, the first one so: {rows[0][-1]['diverged']}")
    results = write_results(args.out, rows, trials)
    draw_accuracy(results, args.out / "accuracy.png")
    return results


def enter_tree(args: CompareArgs, first: TrainArgs) -> tuple[list[Contender], float]:
    """Look at data with a tree: the contenders, and the learning rate of the recipe. Its problems show up before training."""
    args.claim(SETTINGS, "a comparison")
    prepared = prepare(first)
    features = prepared.samples.features is not None or args.freeze
    tree = prepared.samples.hierarchy
    contenders, left_out = find_contenders(args.method_list(), tree, features=features, option=args.option)
    begin(args, left_out)
    if args.freeze or args.freeze_stages:
        warm_features(first, prepared.samples)
    width = 0 if prepared.samples.features is None else prepared.samples.features.shape[1]
    return contenders, first.recipe(features=features, samples=len(prepared.samples.index("train")), width=width).lr


def enter_graph(args: CompareArgs, first: TrainArgs) -> tuple[CompareArgs, list[Contender], None]:
    """The same with a graph, or with several labels per sample; also the options, with the methods that are usual there."""
    if args.tune:
        raise ConfigError("`tune` needs a tree and one label per sample; name what is to be compared, such as lht:width=300")
    data, usual = prepare_graph(first), args.methods is None
    args = dataclasses.replace(args, methods=args.methods or (USUAL_METHODS if data.exclusive else USUAL_OF_SETS))
    contenders, left_out = find_graph_contenders(args.method_list(), data, option=args.option, usual=usual)
    if usual:
        args = dataclasses.replace(args, methods=",".join(contender.label for contender in contenders))
    args.claim(SETTINGS, "a comparison")
    for cell in cells(args, contenders):
        check_several(cell.args)
    warm(first, data)
    begin(args, left_out)
    return args, contenders, None


def begin(args: CompareArgs, left_out: Sequence[str]) -> None:
    """Say who does not take part, and note the options."""
    if left_out:
        console.note(f"left out: {', '.join(left_out)} (name one to see why)", quiet=False)
    write_yaml(args.out / SETTINGS, args.settings())


# ---- the grid ------------------------------------------------------------------------------------------------------


def cells(
    args: CompareArgs,
    contenders: Sequence[Contender],
    chosen: dict[tuple[str, float], Candidate] | None = None,
    lr: float | None = None,
) -> list[Cell]:
    """The whole grid, seeds outermost so that an interrupted comparison has some runs of everything.

    Args:
        args: the options.
        contenders: the methods.
        chosen: what tuning chose, by label and mask.
        lr: the learning rate that a candidate's factor refers to.
    """
    grid = []
    for seed in args.seed_list():
        for ratio in args.masks():
            for contender in contenders:
                out = args.out / "runs" / run_name(contender.label, ratio, seed)
                candidate = (chosen or {}).get((contender.label, ratio), Candidate())
                options = cell_options(args, contender, ratio, seed, out, candidate, lr)
                grid.append(Cell(contender, ratio, seed, options, candidate))
    return grid


def tuning_cells(args: CompareArgs, contenders: Sequence[Contender], lr: float) -> Iterator[Cell]:
    """Every candidate of every contender at every mask; seeds outermost."""
    for seed in range(args.tune_seeds):
        for ratio in args.masks():
            for contender in contenders:
                for i, candidate in enumerate(candidates(contender)):
                    out = args.out / "tuning" / run_name(contender.label, ratio, seed, i)
                    options = cell_options(args, contender, ratio, seed, out, candidate, lr)
                    options = dataclasses.replace(options, val=args.tune_val, test=False, rules=())
                    yield Cell(contender, ratio, seed, options, candidate, trial=True)


def cell_options(
    args: CompareArgs, contender: Contender, mask: float, seed: int, out: Path, candidate: Candidate, lr: float | None
) -> TrainArgs:
    """The options of one run: the common ones, the contender's and the candidate's."""
    options = args.training(
        mask=mask,
        out=out,
        method=contender.method,
        option=(*as_it_began(args, contender), *contender.option, *candidate.option),
        seed=seed,
        quiet=True,
        track=False,
        **contender.training_options(),
    )
    if lr is None or candidate.lr_factor == 1:
        return options
    return dataclasses.replace(options, lr=lr * candidate.lr_factor)


def as_it_began(args: CompareArgs, contender: Contender) -> list[str]:
    """Options that came after the first runs of a contender here, with what they were, so that all its runs are alike."""
    names = (run_name(contender.label, ratio, seed) for seed in args.seed_list() for ratio in args.masks())
    first = next((run for name in names if ((run := args.out / "runs" / name) / CONFIG).is_file()), None)
    return [] if first is None or (first / GRAPH).is_file() else later_options(read_config(first))


def judge(trial_cells: Sequence[Cell]) -> list[Trial]:
    """The trials from finished cells, candidates in order."""
    by_candidate: dict[tuple[Contender, float, Candidate], list[dict[str, Any]]] = {}
    for cell in trial_cells:
        key = (cell.contender, cell.mask, cell.candidate)
        by_candidate.setdefault(key, []).append(read_metrics(cell.run.path))
    return [trial(*key, metrics) for key, metrics in by_candidate.items()]


# ---- the workers ---------------------------------------------------------------------------------------------------


class Workers:
    """Runs cells: in this process if there is one job, else in processes that share the cores evenly."""

    def __init__(self, jobs: int, pool: ProcessPoolExecutor | None, view: console.GridView) -> None:
        self.threads = max(1, (os.cpu_count() or 1) // jobs)
        self.pool, self.view = pool, view

    def run(self, grid: Sequence[Cell]) -> None:
        """Train the unfinished cells."""
        waiting = [cell for cell in grid if not cell.run.metrics.is_file()]
        self.view.skip(len(grid) - len(waiting))
        if self.pool is None:
            for cell in waiting:
                run_cell(cell, None)
                self.view.finished(describe(cell))
            return
        futures = {self.pool.submit(run_cell, cell, self.threads): cell for cell in waiting}
        try:
            for future in as_completed(futures):
                future.result()
                self.view.finished(describe(futures[future]))
        except BrokenProcessPool as error:
            raise RunError(
                "a worker process was killed, perhaps for lack of memory; continue with `resume`, or with fewer `jobs`"
            ) from error


@contextmanager
def workers(jobs: int, total: int) -> Iterator[Workers]:
    """Workers for up to `total` cells, and a view of their progress."""
    jobs = min(jobs, total)
    with console.GridView(total) as view:
        if jobs == 1:
            yield Workers(1, None, view)
            return
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=obey) as pool:
            try:
                yield Workers(jobs, pool, view)
            except BaseException:  # the pool itself would wait for the cells that have begun, and for those it has sent ahead
                for worker in multiprocessing.active_children():
                    worker.kill()  # files are written completely or not at all
                pool.shutdown(cancel_futures=True)
                raise


def obey() -> None:
    """Leave interrupts from the keyboard to the parent of this worker, and end when it ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def leave() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


def run_cell(cell: Cell, threads: int | None) -> None:
    """Train one cell, from its last checkpoint if it has one. Divergence is a result, too."""
    if threads:
        torch.set_num_threads(threads)
    started = (cell.run.path / CONFIG).is_file() and (cell.run.split.is_file() or (cell.run.path / GRAPH).is_file())
    if not started:
        shutil.rmtree(cell.run.path, ignore_errors=True)  # killed before it started
    try:
        train(dataclasses.replace(cell.args, resume=cell.run.path) if started else cell.args)
    except DivergedError as error:
        cell.run.write_metrics({"diverged": str(error)})
    if cell.trial:
        (cell.run.path / WEIGHTS).unlink(missing_ok=True)  # measured, and not needed again


def describe(cell: Cell) -> str:
    """One line about a finished cell."""
    metrics = read_metrics(cell.run.path)
    name = f"{cell.contender.label}, {cell.mask:.0%} masked, seed {cell.seed}"
    if "diverged" in metrics:
        return f"{name}: diverged"
    if cell.trial:
        score = console.percent(metrics["validation"]["val_mean"])
        return f"tuning {name}, {cell.candidate}: {score} on validation samples  ({metrics['train_seconds']:.0f} s)"
    board = board_for(metrics)
    levels = "  ".join(f"{level['name']} {board.level.text(board.level.of(level))}" for level in metrics[board.key])
    return f"{name}: {levels}  ({metrics['train_seconds']:.0f} s)"
