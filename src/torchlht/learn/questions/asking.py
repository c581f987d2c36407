"""`next_questions`: what to ask an annotator next, about the samples of a dataset that are not labelled to the end."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.data.doubts import refuse_placeholders
from torchlht.data.samples import Bools, Ints, Samples, check_images, read_data
from torchlht.doors import entrance, read_text
from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.files import csv_text, plain_cell
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions.options import COVERAGE, MEAN, NextArgs, QuestionArgs
from torchlht.learn.questions.prices import Floats, Prices
from torchlht.learn.questions.strategy import Question, Situation, answerable, choose

if TYPE_CHECKING:
    from torch import Tensor

    from torchlht.learn.questions.opinion import Opinion

COLUMNS = ("sample", "level", "cost", "why")


@dataclass(frozen=True, eq=False)
class Questions(Sequence[dict[str, Any]]):
    """Questions, best first: `sample`, `level`, `cost`, `why` of each.

        >>> for question in torchlht.next_questions("birds.csv", budget=10): print(question["sample"], question["level"])

    Attributes:
        rows: a dict per question.
        cost: what all of them cost.
        note: what there is to say about them; empty if nothing.
    """

    rows: list[dict[str, Any]]
    cost: float
    note: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: Any) -> Any:
        return self.rows[i]

    def __repr__(self) -> str:
        return f"Questions({len(self)} for {self.cost:g})"

    def csv(self) -> str:
        """As CSV, with a header."""
        return csv_text([COLUMNS, *([row[name] for name in COLUMNS] for row in self.rows)])


@entrance
def next_questions(data: str | Path | NextArgs, **options: Any) -> Questions:
    """What to ask an annotator next: which sample, at which level, best first, for no more than `budget`.

    >>> next_questions("birds.csv", budget=100, cost="species=1,family=0.2,order=0.05")
    Questions(212 for 100)

    Args:
        data: a folder, a table, an .npz or anything else that `lht next` takes; or all options as a `NextArgs`.
        options: the options of `lht next` (dashes are underscores).

    Raises:
        LHTError: if the options or the data are wrong, or nothing is left to ask.
    """
    args = dataclasses.replace(data, **options) if isinstance(data, NextArgs) else made(NextArgs, str(data), options)
    samples = read_pool(args)
    pool = samples.select(samples.index("train"))
    prices = prices_of(args, pool.hierarchy)
    check_budget(args.budget, prices)
    now, note = situation(args, pool, prices)
    for file in args.asked:
        now = dataclasses.replace(now, open=now.open & ~asked_in(file, pool))
    found = choose(args.strategy, now)
    return Questions([described(question, pool) for question in found], math.fsum(q.cost for q in found), note)


def made(kind: type[Any], data: str, options: dict[str, Any]) -> Any:
    """Options of a class from keywords. Raises ConfigError for an unknown one."""
    known = {field.name for field in dataclasses.fields(kind)}
    if unknown := [name for name in options if name not in known]:
        raise ConfigError(f"`{unknown[0]}` is no option: {suggestion(unknown[0], sorted(known))}")
    if not isinstance(options.get("levels") or "", str):
        options = {**options, "levels": ",".join(options["levels"])}
    return kind(data=data, **options)


def described(question: Question, pool: Samples) -> dict[str, Any]:
    """A question with names."""
    level = pool.hierarchy.levels[question.level]
    return dict(zip(COLUMNS, (pool.keys[question.sample], level, question.cost, question.why), strict=True))


def asked_in(file: Path, pool: Samples) -> Bools:
    """(N, K) what was asked in an earlier questions.csv and is unknown still, and everything finer.

    Raises:
        DataError: if it is no such file, or was made for other levels.
    """
    rows = list(csv.DictReader(io.StringIO(read_text(file))))
    place, levels = {key: i for i, key in enumerate(pool.keys)}, list(pool.hierarchy.levels)
    found = np.zeros(pool.labels.shape, dtype=bool)
    for number, row in enumerate(rows, start=2):
        sample, level = plain_cell(row.get("sample") or ""), plain_cell(row.get("level") or "")
        if level not in levels:
            raise DataError(f"{file}, line {number}: the level {level!r} is none of {', '.join(reversed(levels))}")
        if sample in place and pool.labels[place[sample], levels.index(level)] < 0:
            found[place[sample], : levels.index(level) + 1] = True
    return found


# ---- the situation -------------------------------------------------------------------------------------------------


def read_pool(args: QuestionArgs) -> Samples:
    """The samples, with features; those of pictures come from a frozen backbone."""
    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    samples = read_data(args.data, hierarchy=tree, levels=args.level_names(), unknown=args.unknown_names())
    if args.unknown is None:
        refuse_placeholders(samples)
    samples, _ = check_images(samples, args.on_error)
    if not len(samples.index("train")):
        raise DataError(f"{args.data}: no training samples to ask about")
    return dataclasses.replace(samples, features=features_of(args, samples))


def features_of(args: QuestionArgs, samples: Samples) -> NDArray[np.float32]:
    """(N, d) the features in the data, or those of the frozen backbone."""
    if samples.features is not None:
        return samples.features
    from torchlht.learn.building import build
    from torchlht.learn.launching import find_machine
    from torchlht.learn.options import BackboneArgs, TrainArgs
    from torchlht.learn.training import compute_features

    own = {field.name: getattr(args, field.name) for field in dataclasses.fields(BackboneArgs)} | {"freeze": True}
    options = TrainArgs(str(args.data), method="flat", seed=args.seed, accelerator=args.accelerator, **own)
    machine = find_machine(options.accelerator, options.devices, options.precision)
    return compute_features(machine, options, samples, build(options, samples), args.workers)


def prices_of(args: QuestionArgs, tree: Hierarchy) -> Prices:
    """The prices and doubts of the options. Raises ConfigError for a level that the tree does not have."""
    return Prices.of(tree.levels, args.costs(), args.doubts())


def check_budget(budget: float, prices: Prices) -> None:
    """Raise ConfigError if no question can be paid."""
    if budget < prices.cost.min():
        raise ConfigError(f"`budget` is {budget:g}, and the cheapest question costs {prices.cost.min():g}: raise it")


def target_of(target: str, tree: Hierarchy) -> Floats | None:
    """(K,) how much each level counts; None for coverage."""
    if target == COVERAGE:
        return None
    if target == MEAN:
        return np.full(len(tree), 1 / len(tree))
    if target not in tree.levels:
        raise ConfigError(f"`target` is {target!r}: {suggestion(target, [MEAN, COVERAGE, *reversed(tree.levels)])}")
    return np.asarray(np.eye(len(tree))[tree.levels.index(target)])


def situation(args: QuestionArgs, pool: Samples, prices: Prices) -> tuple[Situation, str]:
    """The situation with all labels that are known, and a note if there are none."""
    from torchlht.learn.questions.opinion import Space, form_opinion

    assert pool.features is not None
    coordinates, tree = Space.of(pool.features)(pool.features), pool.hierarchy
    target, opinion = target_of(args.target, tree), form_opinion(coordinates, pool.labels, tree)
    money = Money(prices, target, args.budget)
    now = situated(pool.keys, pool.labels, pool.labels < 0, coordinates, tree, opinion, money, args.seed)
    nothing = "no sample has a label yet: questions are chosen by how samples lie, without an opinion about them"
    return now, nothing if opinion is None else ""


class Money(NamedTuple):
    """What questions cost, how much each level counts (see `target_of`), and how much may be spent."""

    prices: Prices
    target: Floats | None
    budget: float


def situated(
    keys: tuple[str, ...],
    labels: Ints,
    may_ask: Bools,
    coordinates: Tensor,
    tree: Hierarchy,
    opinion: Opinion | None,
    money: Money,
    seed: int,
) -> Situation:
    """The situation of samples at some coordinates, of which an opinion was formed or not."""
    from torchlht.learn.questions.opinion import unopinionated

    space = unopinionated(coordinates) if opinion is None else opinion.space.numpy()
    probs = None if opinion is None else opinion.by_level()
    may_ask = may_ask & answerable(labels, tree)
    return Situation(keys, labels, tree, space, probs, may_ask, money.prices, money.target, money.budget, seed)
