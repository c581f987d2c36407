"""The options of commands that train many times: `lht compare`, `lowshot`, `reproduce`."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from torchlht.data.options import Alias, DataArgs, DataPlace, Door, OnErrorArgs, Options, TreeArgs, Word, plain, refuse
from torchlht.doors import Count, NotNegative, OpenShare, Parallel, Positive, Seed, fitting, read_yaml
from torchlht.errors import ConfigError, RunError
from torchlht.files import content
from torchlht.heads.declared import check_method
from torchlht.learn.options import HERE, BackboneArgs, MethodArgs, RunArgs, TrainArgs, preset, with_old_options

MOST_SEEDS = 1000
USUAL_METHODS = "flat,multihead,marginal,lht"


@dataclass(frozen=True)
class ManyArgs(Options):
    """The directory of an experiment."""

    data: Annotated[DataPlace, Word("DATA")]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path
    """Directory for the table and the runs."""
    _: KW_ONLY
    resume: bool = False
    """Continue an interrupted experiment; finished runs are kept."""

    def settings(self) -> dict[str, Any]:
        """The options that affect the results, as plain values."""
        return {name: value for name, value in self.to_dict().items() if name not in ("out", "resume", "jobs", *HERE)}

    def claim(self, name: str, what: str) -> None:
        """Raise RunError if the directory holds something else.

        Args:
            name: name of the file with the settings.
            what: what it should hold, such as "a comparison".
        """
        settled = self.out / name
        if not settled.is_file() and self.out.exists() and content(self.out):
            raise RunError(f"{self.out}: exists and is not empty; choose another `out`")
        if settled.is_file() and not self.resume:
            raise RunError(f"{self.out}: already holds {what}; add `resume` to continue it, or choose another `out`")
        if settled.is_file() and not self.continues(self.kept_settings(settled)):
            raise RunError(f"{self.out}: was started with other options ({settled}); choose another `out`")

    def continues(self, kept: dict[str, Any]) -> bool:
        """Whether an experiment with the settings `kept` can be resumed with these: if they are the same."""
        return kept == self.settings()

    def kept_settings(self, settled: Path) -> dict[str, Any]:
        """The settings in a file. Earlier versions wrote fewer; missing ones take their default, or the preset's value."""
        kept = read_yaml(settled, dict[str, Any], RunError)
        usual = {f.name: plain(f.default) for f in dataclasses.fields(self) if f.name in self.settings()}
        found = usual | with_old_options(kept)
        early = {} if "option" in kept else preset(found.get("preset", "default"))
        return found | {name: value for name, value in early.items() if found[name] == usual[name]}


def check_methods(words: str) -> None:
    """Raise ConfigError unless there is a method of each name. Patterns are left to the comparison."""
    for word in words.split(","):
        if word.strip() != "all" and "*" not in word:
            check_method(word.strip().split(":")[0])


@dataclass(frozen=True)
class CompareArgs(RunArgs, ManyArgs):
    """Compare methods on the same data, masks and seeds."""

    methods: Annotated[str, Door(check_methods)] | None = None
    """Methods, separated by commas: names, patterns such as lht*, `all`, or a name with options, lht:gamma=1:semi=both. By
    default flat,multihead,marginal,lht; of several labels per sample flat,c-hmcnn,lht."""
    mask: str = "0,0.5,0.9"
    """Shares of hidden fine labels, separated by commas."""
    seeds: int | str = 3
    """How many seeds, 0, 1, …; or the seeds themselves, separated by commas: 10,100,1."""
    tune: bool = False
    """Choose the learning rate and options of each method from its small grid, at each mask, on validation samples."""
    tune_seeds: Count = 1
    """Number of seeds for each candidate; the mean decides."""
    tune_val: OpenShare = 0.2
    """Share of the training samples to judge candidates on; the final runs train on all of them."""
    jobs: Parallel | None = None
    """Number of runs at a time; the number of cores by default."""

    def _check(self) -> None:
        for ratio in self.masks():
            DataArgs(mask=ratio)
        self.seed_list()

    def training(self, **more: Any) -> TrainArgs:
        """The options of one run: the common ones, and `more`."""
        common = {f.name: getattr(self, f.name) for f in dataclasses.fields(RunArgs)}
        return TrainArgs(**{"data": self.data, **common, **more})

    def settings(self) -> dict[str, Any]:
        """The options that affect the results, as plain values."""
        lists = {"methods": self.method_list(), "mask": self.masks(), "seeds": self.seed_list()}
        found = super().settings() | lists
        return found if self.tune else {name: value for name, value in found.items() if not name.startswith("tune")}

    def continues(self, kept: dict[str, Any]) -> bool:
        """Whether a comparison can be resumed: with the same settings, or with more methods, masks or seeds."""
        now, lists = self.settings(), {name: kept.get(name) for name in ("methods", "mask", "seeds")}
        grown = {name: now[name] for name, was in lists.items() if isinstance(was, list) and all(v in now[name] for v in was)}
        return super().continues(kept | grown)

    def method_list(self) -> list[str]:
        """`methods` as a list."""
        return [name.strip() for name in (self.methods or USUAL_METHODS).split(",")]

    def seed_list(self) -> list[int]:
        """`seeds` as numbers, each once."""
        numbers = _whole_numbers("seeds", str(self.seeds))
        many = "," in str(self.seeds)
        refuse(not many and not 1 <= numbers[0] <= MOST_SEEDS, f"`seeds` is {self.seeds}: it must be from 1 to {MOST_SEEDS}")
        return [fitting("seeds", seed, Seed) for seed in dict.fromkeys(numbers)] if many else list(range(*numbers))

    def masks(self) -> list[float]:
        """`mask` as numbers."""
        try:
            return [float(value) for value in self.mask.split(",")]
        except ValueError:
            raise ConfigError(f"`mask` is {self.mask!r}: pass numbers from 0 to 1, separated by commas") from None


@dataclass(frozen=True)
class LowshotArgs(MethodArgs, BackboneArgs, OnErrorArgs, TreeArgs, ManyArgs):
    """Recognise new classes from a few examples each."""

    target: Annotated[str, Alias("--targets")] = "50"
    """The new classes: how many of the finest to draw, or a file with one name per line. The others are used for training."""
    methods: str = "nn,sgm,ppa,lsd,kt,lht"
    """Methods, separated by commas: nn, ppa, lsd, or any that `lht methods` lists, with options such as lht:gamma=1."""
    shots: str = "1,2,3,4,5"
    """Numbers of examples of each new class, separated by commas."""
    draws: Count = 20
    """How many times to draw examples; every method gets the same."""
    top: Count = 5
    """An answer is right if the true class is among this many."""
    tree: Literal["names", "data"] = "names"
    """The tree to train on: `names` groups similar class names, `data` is the data's own."""
    groups: str = "100,10"
    """For --tree names: how many groups at each level above the classes, fine first."""
    cluster: Literal["all", "source"] = "all"
    """For --tree names: whether new classes take part in grouping, as in the paper; they are then removed from the tree."""
    vectors: Path | None = None
    """For --tree names: a file of word vectors, one word and its numbers per line, .gz allowed; by default spelling is used."""
    seeds: Count = 1
    """How many times to train each method: seeds 0, 1, …"""
    seed: Seed = 0
    """Seed for drawing classes and examples, and for grouping."""

    _: KW_ONLY
    backbone: str = "auto"
    """For pictures: the backbone, as in `lht train`. For features, a layer `linear` is trained on them instead."""
    freeze: bool = False
    """For pictures: do not train the backbone, but a layer `linear` on its features."""
    epochs: Count | None = None
    """Passes over the training samples; by default 5 for pictures, as in the paper, and 20 for features."""
    batch_size: Count = 128
    """Samples per step."""
    lr: Positive | None = None
    """Initial learning rate of the new layers, which falls to zero along a cosine; by default 0.01 for pictures, as in the
    paper, and 0.05 for features."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone; by default a tenth of --lr for pictures, as in the paper, and 0.1 for features, as one
    layer has to do the work of a whole network."""
    weight_decay: NotNegative = 5e-4
    """Weight decay of SGD."""
    ppa_steps: Count = 300
    """Training steps of ppa; the published 12,500 take ten minutes for 120 classes and 1280 features on one core."""

    def _check(self) -> None:
        self.shot_list()
        refuse(not self.method_list(), f"`methods` is {self.methods!r}: pass at least one name")
        self.group_list()

    def method_list(self) -> list[str]:
        """`methods` as a list, each once."""
        return list(dict.fromkeys(name.strip() for name in self.methods.split(",") if name.strip()))

    def shot_list(self) -> list[int]:
        """`shots` as numbers, ascending, each once."""
        return [fitting("shots", number, Count) for number in sorted(set(_whole_numbers("shots", self.shots)))]

    def group_list(self) -> list[int]:
        """`groups` as numbers."""
        return [fitting("groups", number, Count) for number in _whole_numbers("groups", self.groups)]

    def with_recipe(self, *, features: bool) -> LowshotArgs:
        """The same options, with every open value filled in for features, or for pictures."""
        return dataclasses.replace(
            self,
            epochs=self.epochs or (20 if features else 5),
            lr=(0.05 if features else 0.01) if self.lr is None else self.lr,
            backbone_lr=0.1 if features and self.backbone_lr is None else self.backbone_lr,
        )


def _whole_numbers(name: str, text: str) -> list[int]:
    """One or several whole numbers."""
    try:
        found = [int(value) for value in text.split(",") if value.strip()]
    except ValueError:
        found = []
    refuse(not found, f"`{name}` is {text!r}: pass whole numbers, separated by commas")
    return found


@dataclass(frozen=True)
class ReproduceArgs(Options):
    """Reproduce a table or figure of the paper."""

    name: Annotated[str, Word("NAME")]
    """Its name; `lht reproduce list` shows them all."""
    root: Path | None = None
    """The dataset's archive; or a table or an .npz of features to use instead. Not needed for a dataset that was prepared by
    name."""
    scale: Literal["full", "medium", "small"] = "small"
    """`full`: the paper's recipe, 200 epochs of ResNet-50 at 448 px. `medium`, for cub-main: the last stages of a small network
    train on pictures, on some families and on all birds. `small`: the same protocol on frozen features."""
    parts: str | None = None
    """Only the parts whose names begin with these words, separated by commas, such as subset or R-90; all by default."""
    out: Path | None = None
    """Directory for the table, the pictures and the runs; runs/NAME-SCALE by default."""
    seeds: int | str | None = None
    """How many seeds, or the seeds themselves; 10,100,1 by default, as in the paper's code; five for ISIC, and one for all
    birds at medium scale."""
    epochs: Count | None = None
    """Number of epochs, instead of the recipe's."""
    backbone: str | None = None
    """For --scale small and medium: the network, frozen or in part; efficientnet_lite0 by default."""
    jobs: Parallel | None = None
    """Number of runs at a time; the number of cores by default."""
    resume: bool = False
    """Continue an interrupted reproduction; finished runs are kept."""

    def part_names(self) -> list[str]:
        """`parts` as a list."""
        return [] if self.parts is None else [word.strip() for word in self.parts.split(",")]
