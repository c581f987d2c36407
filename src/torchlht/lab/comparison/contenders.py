"""The methods of a comparison and their options: from names and patterns to `Contender`s, and tuning.

Tuning trains every candidate on a part of the training samples (after masking) and judges it by its mean accuracy over
levels on the rest, without test samples. The best one is then trained on all training samples, for every seed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, get_args, get_type_hints

from torchlht.data.several import Several
from torchlht.errors import ConfigError, LHTError, MissingExtraError
from torchlht.files import csv_text, write_text
from torchlht.heads.graphs.options import GraphArgs, GraphMethod, LeafMethod
from torchlht.heads.graphs.walk import Walk
from torchlht.heads.method import Estimator, create_method, find_method, list_methods, method_options, options_of, parse_options
from torchlht.hierarchy.graph import Graph
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
        """From a name with options, lht:gamma=1:semi=both, and options for every method that has them."""
        name, *pairs = word.split(":")
        training = tuple(pair for pair in pairs if pair.partition("=")[0] in TRAINING)
        own = (pair for pair in pairs if pair not in training)
        return cls(word, name, (*concerning(name, everyones), *own), training)

    @classmethod
    def on_graph(cls, word: str, everyones: Sequence[str] = ()) -> Contender:
        """The same for a method on a graph of classes, where all have the same options."""
        found = cls.parse(word)
        return dataclasses.replace(found, option=(*everyones, *found.option))

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
    """The options, as NAME=VALUE, that a method has."""
    return tuple(pair for pair in pairs if pair.partition("=")[0] in options_of(method))


def check_everyones(pairs: Sequence[str], contenders: Sequence[Contender]) -> None:
    """Raise ConfigError for an option that no contender has."""
    for pair in pairs:
        if not any(pair in contender.option for contender in contenders):
            raise ConfigError(f"`option={pair}`: none of these methods has this option; lht methods NAME lists those of one")


def run_name(label: str, mask: float, seed: int, candidate: int | None = None) -> str:
    """The folder of a run: lht-R90-s0, or lht-gamma=1-R12.5-c2-s0 for the third candidate of a tuning."""
    trial = "" if candidate is None else f"-c{candidate}"
    return f"{label.replace(':', '-').replace('/', '-')}-R{100 * mask:g}{trial}-s{seed}"


def find_contenders(
    words: list[str], hierarchy: Hierarchy, *, features: bool, option: Sequence[str] = ()
) -> tuple[list[Contender], list[str]]:
    """The contenders named by a list of words, each once, and the names that `all` or a pattern left out.

    Args:
        words: names, patterns, `all`, or a name with options, such as lht:gamma=1.
        hierarchy: the tree to build them for.
        features: whether methods get features, which those fitted at once need.
        option: options for every method that has them, as NAME=VALUE.

    Raises:
        ConfigError: when a name or option is unknown, or a method cannot take part.
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
            raise ConfigError(f"`methods={word}`: no method has this name; lht methods lists them")
        for name in names:
            contender = Contender.parse(name, option)
            try:
                check(contender, hierarchy, features=features)
                found[name] = contender
            except LHTError:  # it was not named explicitly
                left_out[name] = None
    check_everyones(option, list(found.values()))
    return list(found.values()), list(left_out)


def find_graph_contenders(
    words: list[str], data: Several, *, option: Sequence[str] = (), usual: bool = False
) -> tuple[list[Contender], list[str]]:
    """The same on a graph of classes.

    Args:
        words: as above.
        data: the samples and their graph.
        option: options for every method that has them, as NAME=VALUE.
        usual: whether nobody named them, so that those that cannot take part are left out.

    Raises:
        ConfigError: when a name or option is unknown, or a method does not learn there.
    """
    there, found = get_args(LeafMethod if data.exclusive else GraphMethod), dict[str, Contender]()
    left_out: dict[str, None] = {}
    for word in words:
        pattern = "*" if word == "all" else word
        named = list_methods(pattern) if "*" in pattern else [word]
        if not named:
            raise ConfigError(f"`methods={word}`: no method has this name; lht methods lists them")
        left_out |= dict.fromkeys(name for name in named if "*" in pattern and name not in there)
        for name in named:
            if name not in left_out:
                contender = Contender.on_graph(name, option)
                own = GraphArgs.from_pairs(contender.method, contender.option, exclusive=data.exclusive)
                try:
                    check_there(own, data.graph)
                    found[name] = contender
                except ConfigError:
                    if not usual and "*" not in pattern:
                        raise
                    left_out[name] = None
    if not found:
        raise ConfigError(f"`methods={','.join(words)}`: none of them learns here; use {', '.join(there)}")
    return list(found.values()), list(left_out)


def check_there(own: GraphArgs, graph: Graph) -> None:
    """Raise ConfigError for a method that does not learn on this graph."""
    if own.exclusive and own.method == "lht":
        Walk.ranks_of(graph)


def check(contender: Contender, hierarchy: Hierarchy, *, features: bool) -> None:
    """Raise LHTError when a contender cannot take part: a wrong name or option, or a missing package or features."""
    name = contender.method
    options, cls = parse_options(name, contender.option), find_method(name).cls
    if issubclass(cls, Estimator):
        if importlib.util.find_spec(cls.package) is None:
            raise MissingExtraError(name, extra="peers")
        if not features:
            raise ConfigError(f"{name} trains on features only: compare with `freeze`, or on an .npz of features")
    create_method(name, 8, hierarchy, **options)
    FitArgs(**contender.training_options())  # checks them


# ---- tuning ----------------------------------------------------------------------------------------------------------

LR_FACTORS = (1.0, 1 / 3, 3.0)  # factors on the recipe's learning rate; the recipe comes first and wins ties


@dataclass(frozen=True)
class Candidate:
    """Options to try: a factor on the learning rate and values of the method's options, as NAME=VALUE."""

    lr_factor: float = 1.0
    option: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([f"lr×{self.lr_factor:.2g}", *self.option])


def candidates(contender: Contender) -> list[Candidate]:
    """All candidates of a contender: learning rates × its grid."""
    grid = contender.grid()
    factors = (1.0,) if contender.at_once else LR_FACTORS
    defaults = method_options(contender.method, common=True)
    near_first = [sorted(options, key=lambda value: value != defaults[name]) for name, options in grid.items()]
    values = [[f"{name}={value}" for value in options] for name, options in zip(grid, near_first, strict=True)]
    return [Candidate(factor, option) for factor in factors for option in itertools.product(*values)]


@dataclass(frozen=True)
class Trial:
    """The result of a candidate on validation samples."""

    contender: Contender
    mask: float
    candidate: Candidate
    score: float  # mean over seeds of the mean accuracy over levels; -1 when it diverged
    seconds: float


def trial(contender: Contender, mask: float, candidate: Candidate, metrics: Sequence[dict[str, Any]]) -> Trial:
    """The trial of one candidate, from the metrics of its runs."""
    scores = [-1.0 if "diverged" in found else found["validation"]["val_mean"] for found in metrics]
    seconds = sum(found.get("train_seconds", 0.0) for found in metrics)
    return Trial(contender, mask, candidate, mean(scores), seconds)


def choose(trials: Sequence[Trial]) -> dict[tuple[str, float], Candidate]:
    """The best candidate by contender and mask; of equals the first, which is nearest to the defaults."""
    best: dict[tuple[str, float], Trial] = {}
    for one in trials:
        key = (one.contender.label, one.mask)
        if key not in best or one.score > best[key].score:
            best[key] = one
    return {key: one.candidate for key, one in best.items()}


def write_account(path: Path, trials: Sequence[Trial]) -> None:
    """Write tuning.csv: every candidate, its score on validation samples, its cost, and whether it was chosen."""
    chosen = choose(trials)
    rows: list[list[object]] = [["method", "mask", "candidate", "validation_mean_accuracy", "train_seconds", "chosen"]]
    for one in trials:
        mark = int(chosen[one.contender.label, one.mask] == one.candidate)
        score = "diverged" if one.score < 0 else f"{one.score:.5f}"
        rows.append([one.contender.label, one.mask, one.candidate, score, f"{one.seconds:.1f}", mark])
    write_text(path, csv_text(rows))


def summary(trials: Sequence[Trial]) -> list[str]:
    """The grid, the choice and its cost as a table in Markdown."""
    chosen = choose(trials)
    masks = list(dict.fromkeys(one.mask for one in trials))
    lines = [["method", "candidates", *(f"chosen at {mask:.0%} masked" for mask in masks), "minutes"]]
    lines.append(["---"] * len(lines[0]))
    for label in dict.fromkeys(one.contender.label for one in trials):
        own = [one for one in trials if one.contender.label == label]
        count = len({one.candidate for one in own})
        picks = [str(chosen[label, mask]) for mask in masks]
        lines.append([label, str(count), *picks, f"{sum(one.seconds for one in own) / 60:.1f}"])
    return ["| " + " | ".join(line) + " |" for line in lines]
