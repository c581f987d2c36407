"""The options of commands that train many times: `lht compare`, `lowshot`, `reproduce`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from torchlht.errors import ConfigError
from torchlht.learn.options import TrainArgs, plain, preset
from torchlht.vocabulary import OnError, Perturb, Reduction, Rounding, Rule, Select, SemiName


@dataclass(frozen=True)
class CommonArgs:
    """Options that are the same for every run; see `lht train --help`."""

    preset: Literal["default", "paper"] = "default"
    hierarchy: Path | None = None
    levels: str | None = None
    on_error: OnError = "refuse"
    mask_levels: int = 1
    mask_rounding: Rounding = "nominal"
    mask_seed: int | None = None
    perturb: Perturb = "none"
    perturb_share: float = 0.0
    label_noise: float = 0.0
    prior: Path | None = None
    backbone: str = "auto"
    pretrained: bool = True
    freeze: bool = False
    image_size: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    semi: SemiName = "none"
    input_dropout: float | None = None
    select: Select = "last"
    val: float | None = None
    rules: tuple[Rule, ...] = ()

    def over_preset(self, mask: float) -> TrainArgs:
        """Options to train with: those that were given, over the preset's."""
        usual = CommonArgs()
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return dataclasses.replace(
            preset(self.preset, mask=mask),
            mask=mask,
            **{name: value for name, value in given.items() if value != getattr(usual, name)},
        )


@dataclass(frozen=True)
class CompareArgs:
    """Compare methods on the same data, masks and seeds."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path
    """Directory for the table and the runs."""
    methods: str = "flat,multihead,marginal,lht"
    """Methods, separated by commas: names, patterns such as lht*, `all`, or a name with options, lht:gamma=1:semi=both."""
    mask: str = "0,0.5,0.9"
    """Shares of hidden fine labels, separated by commas."""
    seeds: int | str = 3
    """How many seeds, 0, 1, …; or the seeds themselves, separated by commas: 10,100,1."""
    tune: bool = False
    """Choose the learning rate and options of each method from its small grid, at each mask, on validation samples."""
    tune_seeds: int = 1
    """How many seeds to try each candidate with; the mean decides."""
    tune_val: float = 0.2
    """Share of the training samples that candidates are judged on; the final runs train on all of them."""
    jobs: int | None = None
    """Runs at a time; the number of cores by default."""
    resume: bool = False
    """Go on with a comparison that was interrupted; finished runs are kept."""
    common: tyro.conf.OmitArgPrefixes[CommonArgs] = field(default_factory=lambda: CommonArgs())

    def __post_init__(self) -> None:
        for ratio in self.masks():
            TrainArgs(mask=ratio)
        if not self.seed_list() or self.tune_seeds < 1:
            raise ConfigError(f"--seeds is {self.seeds} and --tune-seeds {self.tune_seeds}: at least 1")
        if not 0 < self.tune_val < 1:
            raise ConfigError(f"--tune-val is {self.tune_val}: a share between 0 and 1")

    def method_list(self) -> list[str]:
        """`methods` as a list."""
        return [name.strip() for name in self.methods.split(",")]

    def seed_list(self) -> list[int]:
        """`seeds` as numbers, each once."""
        text = str(self.seeds)
        try:
            numbers = [int(value) for value in text.split(",") if value.strip()]
        except ValueError:
            raise ConfigError(f"--seeds is {text!r}: how many, or numbers separated by commas") from None
        return list(dict.fromkeys(numbers)) if "," in text else list(range(*numbers))

    def masks(self) -> list[float]:
        """`mask` as numbers."""
        try:
            return [float(value) for value in self.mask.split(",")]
        except ValueError:
            raise ConfigError(f"--mask is {self.mask!r}: numbers from 0 to 1, separated by commas") from None


@dataclass(frozen=True)
class LowshotArgs:
    """Tell new classes from a few examples each."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path
    """Directory for the table, the tree and the runs."""
    target: Annotated[str, tyro.conf.arg(aliases=["--targets"])] = "50"
    """The new classes: how many of the finest to draw, or a file with a name per line. The others are learned from."""
    methods: str = "nn,sgm,ppa,lsd,kt,lht"
    """Methods, separated by commas: nn, ppa, lsd, or whatever `lht methods` lists, with options as in lht:gamma=1."""
    shots: str = "1,2,3,4,5"
    """Examples of each new class, separated by commas."""
    draws: int = 20
    """How many times examples are drawn; every method gets the same."""
    top: int = 5
    """An answer counts when the right class is among so many."""
    tree: Literal["names", "data"] = "names"
    """The tree that is trained on: groups of similar class names, or the data's own."""
    groups: str = "100,10"
    """names: how many groups at each level above the classes, fine first."""
    cluster: Literal["all", "source"] = "all"
    """names: whether new classes take part in grouping, as in the paper; they are taken out of the tree afterwards."""
    vectors: Path | None = None
    """names: a file of word vectors, a word and its numbers per line, .gz allowed; by default their spelling is compared."""
    seeds: int = 1
    """How many times each method is trained: seeds 0, 1, …"""
    seed: int = 0
    """Of the drawn classes and examples, and of the groups."""

    hierarchy: Path | None = None
    """A tree to read the data with (.csv, .json, .yaml); by default it is put together from the data."""
    levels: str | None = None
    """Level names coarse → fine, as in order,family,species."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    backbone: str = "auto"
    """Pictures: the network that gives features, as of `lht train`. Features have a layer `linear` trained on them instead."""
    pretrained: bool = True
    """Start the backbone from ImageNet weights."""
    freeze: bool = False
    """Pictures: keep the backbone as it is, and train a layer `linear` on its features."""
    image_size: int | None = None
    """Side of the square the network sees, in pixels; the backbone's own by default."""
    epochs: int | None = None
    """Passes over the samples that are learned from: 5 for pictures by default, as in the paper, and 20 for features."""
    batch_size: int = 128
    """Samples per step."""
    lr: float | None = None
    """Learning rate of what is new at the start, falling to zero along a cosine: 0.01 for pictures by default, as in the paper,
    0.05 for features."""
    backbone_lr: float | None = None
    """Learning rate of the backbone: for pictures a tenth of --lr by default, as in the paper; for features 0.1, as one layer
    has to do what a whole network does."""
    weight_decay: float = 5e-4
    """Weight decay of SGD."""
    reduction: Reduction | None = None
    """How cross-entropy is averaged over samples and levels (per_level_mean)."""
    ppa_steps: int = 300
    """ppa: steps of its training; the published 12,500 take ten minutes for 120 classes of 1280 features on one core."""
    resume: bool = False
    """Go on with one that was interrupted; finished trainings are kept."""

    def __post_init__(self) -> None:
        problems = [
            (not self.shot_list() or self.shot_list()[0] < 1, f"--shots is {self.shots!r}: at least one number, from 1"),
            (not self.method_list(), f"--methods is {self.methods!r}: at least one name"),
            (self.draws < 1, f"--draws is {self.draws}: at least 1"),
            (self.top < 1, f"--top is {self.top}: at least 1"),
            (self.seeds < 1, f"--seeds is {self.seeds}: at least 1"),
            (self.weight_decay < 0, f"--weight-decay is {self.weight_decay}: it must not be negative"),
            (self.backbone_lr is not None and self.backbone_lr < 0, f"--backbone-lr is {self.backbone_lr}: not below 0"),
            (self.ppa_steps < 1, f"--ppa-steps is {self.ppa_steps}: at least 1"),
        ]
        for wrong, message in problems:
            if wrong:
                raise ConfigError(message)
        self.group_list()
        TrainArgs(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr)  # checks them

    def method_list(self) -> list[str]:
        """`methods` as a list, each once."""
        return list(dict.fromkeys(name.strip() for name in self.methods.split(",") if name.strip()))

    def shot_list(self) -> list[int]:
        """`shots` as numbers, ascending, each once."""
        return sorted(set(_whole_numbers("--shots", self.shots)))

    def group_list(self) -> list[int]:
        """`groups` as numbers."""
        return _whole_numbers("--groups", self.groups)

    def level_names(self) -> list[str] | None:
        """`levels` as a list, coarse → fine."""
        return [name.strip() for name in self.levels.split(",")] if self.levels else None

    def with_recipe(self, *, features: bool) -> LowshotArgs:
        """The same, with what was left open filled in for training on features, or pictures."""
        return dataclasses.replace(
            self,
            epochs=self.epochs or (20 if features else 5),
            lr=(0.05 if features else 0.01) if self.lr is None else self.lr,
            backbone_lr=0.1 if features and self.backbone_lr is None else self.backbone_lr,
        )

    def settings(self) -> dict[str, Any]:
        """What decides the results, as plain values."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in ("out", "resume")}


def _whole_numbers(flag: str, text: str) -> list[int]:
    try:
        return [int(value) for value in text.split(",") if value.strip()]
    except ValueError:
        raise ConfigError(f"{flag} is {text!r}: whole numbers, separated by commas") from None


@dataclass(frozen=True)
class ReproduceArgs:
    """Run a table or figure of the paper again."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which one: `lht reproduce list` shows them all."""
    root: Path | None = None
    """Where the dataset's archive lies; or a table or an .npz of features to use in its place. Not needed for a dataset that
    was prepared by name."""
    scale: Literal["full", "small"] = "small"
    """`full`: the paper's recipe, 200 epochs of ResNet-50 at 448 px. `small`: the same protocol on frozen features."""
    out: Path | None = None
    """Directory for the table, the pictures and the runs; runs/NAME-SCALE by default."""
    seeds: int | str | None = None
    """How many seeds, or the seeds themselves; 10,100,1 by default, as in the paper's code, and five for ISIC."""
    epochs: int | None = None
    """Other than the recipe's."""
    backbone: str | None = None
    """small: the frozen network whose features are used; efficientnet_lite0 by default."""
    jobs: int | None = None
    """Runs at a time; the number of cores by default."""
    resume: bool = False
    """Go on with one that was interrupted; finished runs are kept."""


@dataclass(frozen=True)
class ReproduceListArgs:
    """What there is to reproduce."""

    pattern: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATTERN")] = "*"
    """Only names that match, such as *cub*."""
