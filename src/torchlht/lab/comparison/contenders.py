"""Who takes part in a comparison: names, patterns and options to `Contender`s."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from torchlht.errors import ConfigError, LHTError, MissingExtraError
from torchlht.heads.method import Estimator, create_method, find_method, list_methods, options_of, parse_options
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.options import FitArgs
from torchlht.vocabulary import parse_value

TRAINING = ("semi", "mixup", "label_smoothing", "ema", "weight_decay", "epochs")
"""Options of training, not of a method, that contenders may differ in."""


@dataclass(frozen=True)
class Contender:
    """A method with options, under the name it has in tables.

    Attributes:
        label: as the user wrote it: lht, or lht:gamma=1.
        method: the registered name.
        option: the method's options as NAME=VALUE.
        training: options of training as NAME=VALUE.
    """

    label: str
    method: str
    option: tuple[str, ...] = ()
    training: tuple[str, ...] = ()

    @classmethod
    def parse(cls, word: str, everyones: Sequence[str] = ()) -> Contender:
        """From a name with options, lht:gamma=1:semi=both, and options that are for every method that has them."""
        name, *pairs = word.split(":")
        training = tuple(pair for pair in pairs if pair.partition("=")[0] in TRAINING)
        own = (pair for pair in pairs if pair not in training)
        return cls(word, name, (*concerning(name, everyones), *own), training)

    def training_options(self) -> dict[str, Any]:
        """`training` as fields of TrainArgs."""
        hints, named = get_type_hints(FitArgs), (pair.partition("=") for pair in self.training)
        return {name: parse_value(name, self.label, text, hints[name]) for name, _, text in named}

    @property
    def at_once(self) -> bool:
        """Whether it is fitted at once instead of trained by steps."""
        return issubclass(find_method(self.method).cls, Estimator)

    def grid(self) -> dict[str, tuple[Any, ...]]:
        """Its own options to tune: those of its grid that were not given."""
        given = parse_options(self.method, self.option)
        return {name: values for name, values in find_method(self.method).grid.items() if name not in given}


def concerning(method: str, pairs: Sequence[str]) -> tuple[str, ...]:
    """Those of some options, as NAME=VALUE, that a method has."""
    return tuple(pair for pair in pairs if pair.partition("=")[0] in options_of(method))


def check_everyones(pairs: Sequence[str], contenders: Sequence[Contender]) -> None:
    """Raise ConfigError for an option that no contender has."""
    for pair in pairs:
        if not any(pair in contender.option for contender in contenders):
            raise ConfigError(f"`option={pair}`: none of these methods has such an option; lht methods NAME lists those of one")


def run_name(label: str, mask: float, seed: int, candidate: int | None = None) -> str:
    """The folder of a run: lht-R90-s0, or lht-gamma=1-R12.5-c2-s0 for the third candidate of a tuning."""
    trial = "" if candidate is None else f"-c{candidate}"
    return f"{label.replace(':', '-').replace('/', '-')}-R{100 * mask:g}{trial}-s{seed}"


def find_contenders(
    words: list[str], hierarchy: Hierarchy, *, features: bool, option: Sequence[str] = ()
) -> tuple[list[Contender], list[str]]:
    """The contenders a list of words names, each once, and the names that `all` or a pattern had to leave out.

    Args:
        words: names, patterns, `all`, or a name with options, as in lht:gamma=1.
        hierarchy: the tree they are to be made for.
        features: whether methods are given features, as those that are fitted at once need.
        option: options for every method that has them, as NAME=VALUE.

    Raises:
        ConfigError: for an unknown name or option, or a method that cannot take part.
        MissingExtraError: when a method's library is not installed.
    """
    found: dict[str, Contender] = {}
    left_out: dict[str, None] = {}
    for word in words:
        if word != "all" and "*" not in word:
            found[word] = Contender.parse(word, option)
            check(found[word], hierarchy, features=features)
            continue
        names = list_methods("*" if word == "all" else word)
        if not names:
            raise ConfigError(f"`methods={word}`: no method has such a name; lht methods lists them")
        for name in names:
            contender = Contender.parse(name, option)
            try:
                check(contender, hierarchy, features=features)
                found[name] = contender
            except LHTError:  # nobody asked for it by name
                left_out[name] = None
    check_everyones(option, list(found.values()))
    return list(found.values()), list(left_out)


def check(contender: Contender, hierarchy: Hierarchy, *, features: bool) -> None:
    """Raise LHTError when a contender cannot take part: a wrong name or option, a package or features that are missing."""
    name = contender.method
    options, cls = parse_options(name, contender.option), find_method(name).cls
    if issubclass(cls, Estimator):
        if importlib.util.find_spec(cls.package) is None:
            raise MissingExtraError(name, extra="peers")
        if not features:
            raise ConfigError(f"{name} learns from features: compare with `freeze`, or on an .npz of features")
    create_method(name, 8, hierarchy, **options)
    FitArgs(**contender.training_options())  # checks them
