"""What a strategy is: it looks at a `Situation` and gives questions, best first.

    @strategy("random", "any sample, at the finest level")
    def random(now: Situation) -> Iterator[Asked]: ...

`choose` takes questions as long as there is money. A strategy that asks at several levels counts the money itself.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Bools, Ints, hashed
from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions import strategies
from torchlht.learn.questions.prices import Floats, Prices

PEERS = "skactiveml:"
CENT = 1e-9  # prices are added up; 0.1 + 0.2 is a little more than 0.3


@dataclass(frozen=True, eq=False)
class Situation:
    """What is known when questions are chosen. Levels are fine first.

    Attributes:
        keys: a name per sample.
        labels: (N, K) known labels, -1 where unknown, with the ancestors of known ones.
        hierarchy: the tree.
        space: (N, d) unit vectors; samples of one class are near each other.
        probs: per level (N, C_k) what each sample is believed to be, given its known labels; None without any label.
        open: (N, K) whether a question may be asked.
        prices: what questions cost.
        target: (K,) how much each level's accuracy counts, in all 1; None to cover the samples evenly.
        budget: how much may be spent.
        seed: for random choices, which depend on it and on the keys.
    """

    keys: tuple[str, ...]
    labels: Ints
    hierarchy: Hierarchy
    space: NDArray[np.float32]
    probs: tuple[NDArray[np.float32], ...] | None
    open: Bools
    prices: Prices
    target: Floats | None
    budget: float
    seed: int

    def __len__(self) -> int:
        return len(self.keys)

    @functools.cached_property
    def believed(self) -> tuple[NDArray[np.float32], ...]:
        """`probs`, or where there is no opinion every class that labels leave possible with the same probability."""
        return self.probs or even_probs(self.labels, self.hierarchy)

    @property
    def plainly(self) -> bool:
        """Whether how samples lie is all there is to go by: no label is known, or the target is to cover them."""
        return self.probs is None or self.target is None

    def candidates(self) -> Ints:
        """Positions of the samples that can be asked at the finest level that has a price."""
        return np.flatnonzero(self.open[:, self.prices.finest])

    def ticket(self, purpose: str) -> NDArray[np.float64]:
        """(N,) random numbers from 0 to 1 that depend on the seed and the keys alone."""
        return np.array([hashed(self.seed, purpose, key) / 2**64 for key in self.keys])


class Asked(NamedTuple):
    """A question: the position of a sample, a level, and why."""

    sample: int
    level: int
    why: str


Strategy = Callable[[Situation], Iterator[Asked]]


class Entry(NamedTuple):
    """A strategy with a line about it, and whether it needs an opinion."""

    choose: Strategy
    what: str
    needs_labels: bool


REGISTER: dict[str, Entry] = {}


def strategy(name: str, what: str, *, needs_labels: bool = False) -> Callable[[Strategy], Strategy]:
    """Decorator: register a strategy under a name."""

    def enter(function: Strategy) -> Strategy:
        REGISTER[name] = Entry(function, what, needs_labels)
        return function

    return enter


@functools.cache
def all_strategies() -> dict[str, Entry]:
    """Every strategy by name, those of scikit-activeml not included."""
    for file in pkgutil.iter_modules(strategies.__path__):
        importlib.import_module(f"{strategies.__name__}.{file.name}")
    return REGISTER


def find_strategy(name: str) -> Entry:
    """The strategy of a name. Raises ConfigError if there is none."""
    known = all_strategies()
    if name.startswith(PEERS):
        from torchlht.learn.questions.strategies.peers import peer

        return peer(name.removeprefix(PEERS))
    if name not in known:
        raise ConfigError(f"unknown strategy {name!r}: {suggestion(name, [*known, f'{PEERS}TypiClust'])}")
    return known[name]


def possible_leaves(labels: Ints, hierarchy: Hierarchy) -> Bools:
    """(N, C_1) which finest classes known labels leave possible."""
    found = np.ones((len(labels), hierarchy.sizes[0]), dtype=bool)
    for k in range(len(hierarchy)):
        known = labels[:, k] >= 0
        found[known] &= hierarchy.ancestors(k)[None] == labels[known, k, None]
    return found


def answerable(labels: Ints, hierarchy: Hierarchy) -> Bools:
    """(N, K) whether known labels leave any class of a level possible: not below branches that all end above it."""
    found = np.ones(labels.shape, dtype=bool)
    for k in range(len(hierarchy) if hierarchy.ragged else 0):
        for j in range(k, len(hierarchy)):
            has = np.zeros(hierarchy.sizes[j] + 1, dtype=bool)
            has[hierarchy.ancestors(j, of=k)[~hierarchy.stand_ins[k]]] = has[-1] = True
            found[:, k] &= has[labels[:, j]]
    return found


def even_probs(labels: Ints, hierarchy: Hierarchy) -> tuple[NDArray[np.float32], ...]:
    """Per level (N, C_k): every finest class that the known labels leave possible is as probable as any other."""
    possible = possible_leaves(labels, hierarchy)
    leaves = (possible / possible.sum(axis=1, keepdims=True)).astype(np.float32)
    return tuple(summed(leaves, hierarchy, k) for k in range(len(hierarchy)))


def summed(leaves: NDArray[np.float32], hierarchy: Hierarchy, level: int) -> NDArray[np.float32]:
    """(N, C_k) probabilities of a level's classes from those of the finest."""
    if level == 0:
        return leaves
    found = np.zeros((hierarchy.sizes[level], len(leaves)), dtype=np.float32)
    np.add.at(found, hierarchy.ancestors(level), leaves.T)
    return found.T


def lead(probs: NDArray[np.float32]) -> Floats:
    """(N,) how far the most probable class is ahead of the second; of a single class, its probability."""
    best = np.sort(probs, axis=1)[:, -2:].astype(np.float64)
    return np.asarray(best[:, -1] - best[:, 0] if best.shape[1] > 1 else best[:, -1])


class Question(NamedTuple):
    """A question to put to an annotator: the position of a sample, a level, its cost, and why."""

    sample: int
    level: int
    cost: float
    why: str


def choose(name: str, now: Situation) -> list[Question]:
    """Questions of a strategy, best first, which together cost no more than the budget.

    Raises:
        DataError: when nothing is left to ask, or the strategy needs labels and there are none.
    """
    entry = find_strategy(name)
    if entry.needs_labels and now.probs is None:
        raise DataError(f"the strategy {name} needs some labels to start from, and there are none; take typical or ours")
    if not (now.open & np.isfinite(now.prices.cost)).any():
        raise DataError("nothing is left to ask: every sample is labelled at every level that has a price")
    left, cheapest, found = now.budget + CENT, float(now.prices.cost.min()), []
    for sample, level, why in entry.choose(now):
        price = float(now.prices.cost[level])
        if price <= left:
            found.append(Question(sample, level, price, why))
            left -= price
        if left < cheapest:
            break
    return found
