"""`simulate_questions`: labels are hidden and asked for; after every round an opinion is formed and measured."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from torchlht import console
from torchlht.data.samples import Bools, Ints, Samples, choose_some, hashed, hold_out_test
from torchlht.doors import entrance
from torchlht.errors import DataError
from torchlht.files import claimed, write_yaml
from torchlht.lab.simulation.options import AT, SimulateArgs
from torchlht.lab.simulation.results import Cell, Simulation, keep_cell, kept_cell, write_results
from torchlht.learn.questions.asking import Money, check_budget, made, prices_of, read_pool, situated, target_of
from torchlht.learn.questions.opinion import Opinion, Space, form_opinion
from torchlht.learn.questions.prices import Floats, Prices
from torchlht.learn.questions.strategy import CENT, choose

SETTINGS = "simulation.yaml"


@entrance
def simulate_questions(data: str | Path | SimulateArgs, **options: Any) -> Simulation:
    """Play strategies through on labelled data: accuracy on test samples against money spent.

    >>> simulate_questions("birds.npz", out="runs/asked", budget=1200, cost="species=1,family=0.2", strategies="ours,random")

    Writes curve.csv, table.md and figures. Strategies and seeds that are finished are not played again with `resume=True`.

    Args:
        data: anything that `lht next` takes; or all options as a `SimulateArgs`.
        options: the options of `lht next --simulate` (dashes are underscores).
    """
    if isinstance(data, SimulateArgs):
        args = dataclasses.replace(data, **options)
    else:
        args = made(SimulateArgs, str(data), options | {"out": Path(options.get("out", "runs/next"))})
    with claimed(args.out):
        args.claim(SETTINGS, "a simulation")
        return simulate_there(args)


def simulate_there(args: SimulateArgs) -> Simulation:
    """Simulate in a folder that this process has claimed."""
    game = prepare(args)
    write_yaml(args.out / SETTINGS, args.settings())
    grid = [(name, seed) for seed in range(args.seeds) for name in args.strategy_list()]
    cells: dict[tuple[str, int], Cell] = {}
    with console.GridView(len(grid)) as view:
        for name, seed in grid:
            if (cell := kept_cell(args.out, name, seed)) is not None:
                view.skip(1)
            else:
                began = time.monotonic()
                cell = play(game, name, seed)
                keep_cell(args.out, name, seed, cell)
                view.finished(f"{name}, seed {seed}: {described(game, cell)}  ({time.monotonic() - began:.0f} s)")
            cells[name, seed] = cell
    return write_results(args.out, Simulation(game.pool.hierarchy.levels, cells, game.test_labels, args.target))


@dataclass(frozen=True, eq=False)
class Game:
    """What all strategies share.

    Attributes:
        args: the options.
        pool: samples to ask about, with all their labels.
        coordinates, test: (N, r) and (n, r) of the pool and of the test samples.
        test_labels: (n, K).
        prices: what questions cost.
        targets: what each strategy is to improve.
    """

    args: SimulateArgs
    pool: Samples
    coordinates: Tensor
    test: Tensor
    test_labels: Ints
    prices: Prices
    targets: dict[str, Floats | None]


def prepare(args: SimulateArgs) -> Game:
    """Read the data; its test samples are never asked about."""
    samples = hold_out_test(read_pool(args), args.test_share)
    pool, test = samples.select(samples.index("train")), samples.select(samples.index("test"))
    if not (pool.labels[:, 0] >= 0).any():
        raise DataError(f"{args.data}: a simulation needs samples that are labelled to the finest level; there are none")
    prices = prices_of(args, pool.hierarchy)
    check_budget(min(args.budget, args.round), prices)
    assert pool.features is not None
    assert test.features is not None
    space = Space.of(pool.features)
    targets = {name: target_of(name.partition(AT)[2] or args.target, pool.hierarchy) for name in args.strategy_list()}
    return Game(args, pool, space(pool.features), space(test.features), test.labels, prices, targets)


def first_labels(pool: Samples, per_class: int, seed: int) -> Ints:
    """(N, K) labels of which only those of a few samples of each finest class are known."""
    strata = [str(label) for label in pool.labels[:, 0].tolist()]
    some = choose_some(pool.keys, strata, lambda name, n: 0 if name == "-1" else per_class, seed=seed, purpose="start")
    return np.where(some[:, None], pool.labels, -1)


def play(game: Game, name: str, seed: int) -> Cell:
    """One strategy from the first labels until the money is spent or nothing is left to ask."""
    pool, args = game.pool, game.args
    labels = first_labels(pool, args.start, seed)
    may_ask, luck = labels < 0, np.array([hashed(seed, "can tell", key) / 2**64 for key in pool.keys])
    spent, costs, right, asked = 0.0, [], [], []
    counts = np.zeros(len(pool.hierarchy), dtype=np.int64)
    while True:
        opinion = form_opinion(game.coordinates, labels, pool.hierarchy)
        costs.append(spent)
        right.append(hits(game, opinion))
        asked.append(counts.copy())
        money = min(args.budget, len(costs) * args.round) - spent
        if spent >= args.budget - CENT or not (may_ask & (game.prices.cost <= money + CENT)).any():
            return Cell(np.array(costs), np.array(asked), np.array(right))
        purse = Money(game.prices, game.targets[name], money)
        now = situated(pool.keys, labels, may_ask, game.coordinates, pool.hierarchy, opinion, purse, seed)
        found = choose(name.partition(AT)[0], now)
        if not found:
            return Cell(np.array(costs), np.array(asked), np.array(right))
        labels, may_ask = labels.copy(), may_ask.copy()
        for question in found:
            spent, counts[question.level] = spent + question.cost, counts[question.level] + 1
            i = question.sample
            answer(game.prices, pool.labels[i], labels[i], may_ask[i], question.level, luck[i])
        may_ask &= labels < 0


def answer(prices: Prices, truth: Ints, labels: Ints, may_ask: Bools, level: int, luck: float) -> None:
    """Write down, in one sample's rows (K,), what the annotator says; what nobody can tell is not asked again."""
    told = prices.told(level, luck)
    while told < len(truth) and truth[told] < 0:
        told += 1
    labels[told:] = truth[told:]
    if told > level:
        may_ask[:told] = False


def hits(game: Game, opinion: Opinion | None) -> Any:
    """(n, K) whether each test sample is answered right at each level; without an opinion none is."""
    if opinion is None:
        return np.zeros(game.test_labels.shape, dtype=bool)
    return opinion.answers(game.test) == game.test_labels


def described(game: Game, cell: Cell) -> str:
    """Accuracies at the end, coarse → fine."""
    levels, found = game.pool.hierarchy.levels, cell.accuracy(game.test_labels)[-1]
    return "  ".join(f"{levels[k]} {console.percent(found[k])}" for k in reversed(range(len(levels))))
