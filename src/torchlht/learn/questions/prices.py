"""What a question costs at each level, and how often an annotator cannot answer it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import ConfigError, suggestion

Floats = NDArray[np.float64]


def read_pairs(name: str, text: str) -> dict[str, float]:
    """`species=1,family=0.2` as numbers by level. Raises ConfigError for anything else, negative numbers included."""
    found: dict[str, float] = {}
    for part in text.split(","):
        level, equals, number = (word.strip() for word in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not (level and equals) or math.isnan(value) or math.isinf(value):
            raise ConfigError(f"`{name}` is {text!r}: pass a number for each level, such as species=1,family=0.2")
        if level in found:
            raise ConfigError(f"`{name}` names {level} twice")
        found[level] = value
    return found


def read_costs(text: str) -> dict[str, float]:
    """Prices by level. Raises ConfigError unless all are above 0."""
    found = read_pairs("cost", text)
    for level, price in found.items():
        if price <= 0:
            raise ConfigError(f"`cost` of {level} is {price:g}: it must be above 0")
    return found


def read_doubts(text: str) -> dict[str, float]:
    """Probabilities by level that an annotator cannot tell. Raises ConfigError unless all are from 0 to below 1."""
    found = read_pairs("cannot_tell", text)
    for level, share in found.items():
        if not 0 <= share < 1:
            raise ConfigError(f"`cannot_tell` of {level} is {share:g}: it must be a probability from 0 to below 1")
    return found


@dataclass(frozen=True)
class Prices:
    """Prices and doubts of one tree's levels, fine first.

    Attributes:
        cost: (K,) the price of a question; infinite where none may be asked.
        unable: (K,) the probability that an annotator cannot tell a level; never larger at a coarser level.
    """

    cost: Floats
    unable: Floats

    @classmethod
    def of(cls, levels: Sequence[str], cost: Mapping[str, float], unable: Mapping[str, float] | None = None) -> Prices:
        """From numbers by level. Without prices every level costs 1; a level without one is not asked.

        Raises:
            ConfigError: for a level that the tree does not have.
        """
        for name, given in (("cost", cost), ("cannot_tell", unable or {})):
            for level in given:
                if level not in levels:
                    raise ConfigError(f"`{name}` names the level {level!r}: {suggestion(level, reversed(levels))}")
        prices = np.array([cost.get(level, math.inf) if cost else 1.0 for level in levels])
        doubts = np.array([(unable or {}).get(level, 0.0) for level in levels])
        return cls(prices, np.minimum.accumulate(doubts))

    @property
    def finest(self) -> int:
        """The finest level that may be asked."""
        return int(np.isfinite(self.cost).argmax())

    def answers(self, level: int) -> Floats:
        """(K + 1,) the probability that an answer at `level` is given at each level; the last is that of no answer at all."""
        able = 1 - np.append(self.unable, 0.0)
        found = np.diff(able, prepend=0.0)
        found[level] = able[level]
        found[:level] = 0
        return found

    def told(self, level: int, luck: float) -> int:
        """The level at which an annotator answers, K for none; `luck`, from 0 to 1, is the sample's."""
        return next((k for k in range(level, len(self.unable)) if luck >= self.unable[k]), len(self.unable))
