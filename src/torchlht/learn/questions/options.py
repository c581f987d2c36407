"""The options of `lht next` that say what to ask. Quick to import."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from torchlht.data.options import DataPlace, Door, OnErrorArgs, Options, TreeArgs, Word
from torchlht.doors import Positive, Seed, Workers
from torchlht.errors import ConfigError, DataError
from torchlht.learn.options import BackboneArgs
from torchlht.learn.questions.prices import read_costs, read_doubts

MEAN, COVERAGE = "mACC", "coverage"  # targets that are no levels


def check_strategy(name: str) -> None:
    """Raise ConfigError unless there is such a strategy, MissingExtraError if it needs a package that is not there."""
    from torchlht.learn.questions.strategy import find_strategy

    find_strategy(name)


def check_file(file: Path) -> None:
    """Raise DataError if there is no such file."""
    if not file.is_file():
        raise DataError(f"{file}: no such file")


StrategyName = Annotated[str, Door(check_strategy)]
FilePlace = Annotated[Path, Door(check_file)]


@dataclass(frozen=True, kw_only=True)
class WorthArgs(Options):
    """What answers cost, and what they are for."""

    cost: str = ""
    """The price of a question at each level, such as species=1,family=0.2,order=0.05. Levels that are not named are not asked;
    without this option every level costs 1."""
    cannot_tell: str = ""
    """How often an annotator cannot tell a level, such as species=0.15,family=0.02. The question is paid for anyway, and
    the answer is the deepest level that the annotator can tell."""
    target: str = MEAN
    """What is to be improved: `mACC`, the mean accuracy over levels; the accuracy at one level, by its name; or `coverage`, so
    that every sample has a labelled one near it. Only the strategy `ours` goes by it."""

    def _check(self) -> None:
        self.costs()
        self.doubts()

    def costs(self) -> dict[str, float]:
        """`cost` by level; empty if every level costs 1."""
        return read_costs(self.cost) if self.cost.strip() else {}

    def doubts(self) -> dict[str, float]:
        """`cannot_tell` by level."""
        return read_doubts(self.cannot_tell) if self.cannot_tell.strip() else {}


@dataclass(frozen=True)
class QuestionArgs(WorthArgs, BackboneArgs, OnErrorArgs, TreeArgs):
    """What to ask, and what it may cost."""

    data: Annotated[DataPlace, Word("DATA")]
    """A folder of pictures, a .csv/.tsv table, shards, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    _: KW_ONLY
    budget: Positive = 100.0
    """How much may be spent, in the unit of --cost."""
    seed: Seed = 0
    """Seed for random choices."""
    workers: Workers = 0
    """How many processes decode pictures."""
    accelerator: str = "auto"
    """Where to compute features of pictures: cpu, cuda, mps, or auto, which takes a GPU if there is one."""

    def _check(self) -> None:
        if self.freeze_stages:
            raise ConfigError("`freeze_stages` is for training: the backbone is not trained here at all")


@dataclass(frozen=True)
class NextArgs(QuestionArgs):
    """What was asked before."""

    _: KW_ONLY
    strategy: StrategyName = "ours"
    """How questions are chosen: `ours`, `random`, `random-levels`, `margin`, `entropy`, `typical` (TypiClust), `coverage`
    (ProbCover), or one of scikit-activeml's, such as skactiveml:TypiClust."""
    asked: tuple[FilePlace, ...] = ()
    """Files questions.csv of earlier calls: what was asked there and is still unknown could not be told, and is not asked
    again, nor is anything finer."""
