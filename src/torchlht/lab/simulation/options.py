"""The options of `lht next --simulate`. Quick to import."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any

from torchlht.data.options import Door, Options, refuse
from torchlht.doors import Count, Many, OpenShare, Positive
from torchlht.lab.options import ManyArgs
from torchlht.learn.questions.options import QuestionArgs, check_strategy

AT = "@"  # before the target of one strategy


def check_strategies(words: str) -> None:
    """Raise ConfigError unless there is a strategy of each name."""
    for word in words.split(","):
        check_strategy(word.strip().partition(AT)[0])


@dataclass(frozen=True, kw_only=True)
class PlayArgs(Options):
    """With --simulate."""

    strategies: Annotated[str, Door(check_strategies)] = "ours,random,margin,typical"
    """Strategies to play through, separated by commas; ours@species is one with a target of its own."""
    seeds: Count = 5
    """How many times: seeds 0, 1, … draw the first labels and all random choices."""
    round: Positive = 100.0
    """How much is spent before an opinion is formed anew, and measured."""
    start: Many = 1
    """How many samples of each finest class are labelled at the start."""
    test_share: OpenShare = 0.2
    """Share of the samples set aside for testing if the data has no test part."""

    def _check(self) -> None:
        refuse(not self.strategy_list(), f"`strategies` is {self.strategies!r}: pass at least one name")

    def strategy_list(self) -> list[str]:
        """`strategies` as a list, each once."""
        return list(dict.fromkeys(name.strip() for name in self.strategies.split(",") if name.strip()))


@dataclass(frozen=True)
class SimulateArgs(PlayArgs, QuestionArgs, ManyArgs):
    """Play strategies through on labelled data."""

    _: KW_ONLY

    def settings(self) -> dict[str, Any]:
        """The options that affect the results, as plain values."""
        found = super().settings() | {"strategies": self.strategy_list(), "seeds": list(range(self.seeds))}
        return {name: value for name, value in found.items() if name not in ("workers", "accelerator", "seed")}

    def continues(self, kept: dict[str, Any]) -> bool:
        """Whether a simulation can be resumed: with the same settings, or with more strategies or seeds."""
        now, kept = self.settings(), {name: value for name, value in kept.items() if name != "option"}  # no method has any
        grown = {name: now[name] for name in ("strategies", "seeds") if set(kept.get(name) or ()) <= set(now[name])}
        return super().continues(kept | grown)
