"""What answers cost, and how questions are chosen: options of `lht next`. No torch: the page's server imports it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions.asking import Money, target_of
from torchlht.learn.questions.options import MEAN
from torchlht.learn.questions.prices import Prices
from torchlht.serve.label.journal import Answer

AHEAD = 200
"""Questions at the finest level whose price is spent ahead; the next training asks anew."""


@dataclass(frozen=True)
class Asking:
    """How questions are chosen: the options of `lht next` with these names.

    Attributes:
        cost, cannot_tell: by level.
        target: what is to be improved.
        strategy: its name; None for `ours` with prices, which weighs levels, else `typical`: see benchmarks/label.md.
        seed: for what is left to chance.
    """

    cost: Mapping[str, float] = field(default_factory=dict)
    cannot_tell: Mapping[str, float] = field(default_factory=dict)
    target: str = MEAN
    strategy: str | None = None
    seed: int = 0

    @property
    def chosen(self) -> str:
        """The strategy that is followed."""
        return self.strategy or ("ours" if self.cost else "typical")

    def check(self, tree: Hierarchy) -> None:
        """Raise ConfigError for a level that a tree does not have."""
        self.money(tree)

    def money(self, tree: Hierarchy) -> Money:
        """Prices and target for a tree. Raises ConfigError for a level that it does not have."""
        prices = Prices.of(tree.levels, self.cost, self.cannot_tell)
        return Money(prices, target_of(self.target, tree), AHEAD * float(prices.cost[prices.finest]))

    def prices(self, tree: Hierarchy) -> list[float]:
        """The price of an answer at each level, coarse → fine. One that has none costs what the next finer one does."""
        cost = Prices.of(tree.levels, self.cost).cost
        finite = np.flatnonzero(np.isfinite(cost)).tolist()
        return [float(cost[max((j for j in finite if j <= k), default=finite[0])]) for k in tree.top_down]


def spent(answers: Iterable[Answer], levels: Sequence[str], prices: Sequence[float]) -> float:
    """What answers cost, sample by sample: the level that was asked for, or the one that was told if that is finer.

    Where no level was asked for and none is told, as with a wrong picture, somebody looked for the finest.
    """
    place = {level: k for k, level in enumerate(levels)}

    def price(answer: Answer, i: int) -> float:
        asked = place.get(answer.asked[i], -1) if i < len(answer.asked) else -1
        deepest = max(asked, len(answer.path) - 1)
        return prices[min(deepest, len(prices) - 1) if deepest >= 0 else -1]

    return math.fsum(price(answer, i) for answer in answers for i in range(len(answer.samples)))
