"""The options of every command, once: `--help`, `config.yaml`, presets and Python all come from these dataclasses."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from torchlht.data.masking import Mask
from torchlht.data.perturbing import Perturbation
from torchlht.errors import ConfigError
from torchlht.vocabulary import (
    Augment,
    Confusion,
    Features,
    OnError,
    Perturb,
    Reduction,
    Rounding,
    Rule,
    Select,
    SemiName,
    Split,
    TransitionName,
)

METHOD_OPTIONS = (
    "features",
    "width",
    "reduction",
    "transition",
    "rank",
    "gamma",
    "bias",
    "confusion",
    "confusion_weight",
    "input_dropout",
    "cosine",
)


@dataclass(frozen=True)
class TrainArgs:
    """Train a hierarchical classifier on partly labelled data."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = ""
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path | None = None
    """Run directory to write; runs/DATA-METHOD-sSEED by default. It must not exist yet."""
    preset: Literal["default", "paper"] = "default"
    """`paper`: the published configuration (ResNet-50, 448 px, 200 epochs, split features, γ = 1); other flags override it."""
    resume: Path | None = None
    """Continue the unfinished run in this directory with the options it was started with."""

    hierarchy: Path | None = None
    """A tree to read the data with (.csv, .json, .yaml); by default it is put together from the data."""
    levels: str | None = None
    """Level names coarse → fine, as in order,family,species: they choose a table's columns and name a folder's levels."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    test_share: float = 0.2
    """Share set aside for testing when the data has no test part of its own."""

    mask: float = 0.0
    """Hide the finest label on this share of the training samples, class by class."""
    mask_levels: int = 1
    """How many of the finest levels --mask hides."""
    mask_rounding: Rounding = "nominal"
    """How many labels a class keeps: `nominal` round, `lht` int + 1, `hrn` ceil."""
    mask_minimum: int = 1
    """Labels kept in every class whatever --mask."""
    mask_seed: int | None = None
    """Which labels are hidden; --seed by default."""

    perturb: Perturb = "none"
    """Perturb the tree, to measure what that does. Finest classes under wrong parents: `rewired`, labels follow; `stale`, in
    the tree alone. Names exchanged at the second finest level: `renamed`, in tree and labels; `stale_prior`, in the labels
    alone."""
    perturb_share: float = 0.0
    """Share of the classes that --perturb moves or renames."""
    prior: Path | None = None
    """A tree that methods are given as the known one although the labels have another: the same levels and classes, other
    parents. For trees that went out of date, and for measuring what a wrong tree costs."""
    label_noise: float = 0.0
    """Share of the training samples without a finest label whose other labels are replaced by wrong ones."""

    method: str = "lht"
    """lht, multihead, flat, …: `lht methods` lists them all, `lht methods NAME` says what options one has."""
    option: tuple[str, ...] = ()
    """Options of the method as NAME=VALUE, such as beta=10 of soft-labels; those below have flags of their own."""
    features: Features | None = None
    """Whether levels share the neck's features or split them; the method's default (shared) if not given."""
    width: int | None = None
    """Width of the neck (600)."""
    reduction: Reduction | None = None
    """How cross-entropy is averaged over samples and levels (per_level_mean)."""
    transition: TransitionName | None = None
    """lht: how a level follows from the finer one (low_rank); `fixed` is the tree itself."""
    rank: int | None = None
    """lht: rank of the low-rank transition (2)."""
    gamma: float | None = None
    """lht: initial weight of the tree in the transition (6)."""
    bias: bool | None = None
    """lht: bias in the transition's layers (True)."""
    confusion: Confusion | None = None
    """lht: which confusion term (entropy)."""
    confusion_weight: float | None = None
    """lht: weight λ of the confusion term (0)."""

    semi: SemiName = "none"
    """What samples without a finest label learn from, confined to what their known labels allow: their neighbours' labels
    (`propagate`), the averaged model's own opinion (`posterior`), or `both`."""
    input_dropout: float | None = None
    """Share of the features that is dropped at the method's input in training (0)."""
    cosine: bool | None = None
    """Classes by cosines between features and weights, times a learned scale (False)."""
    mixup: float = 0.0
    """Mix features of pairs of samples, by shares from Beta(a, a) with this a; 0 for none."""
    label_smoothing: float = 0.0
    """Share of the uniform distribution in every label."""
    ema: float = 0.0
    """Keep a moving average of the weights with this decay, such as 0.99, instead of the last ones; 0 for none."""

    backbone: str = "auto"
    """A timm model, `efficientnet_lite0` (weights without a hub), `small`; for features `none`, or `linear`, a layer trained
    from the identity. `auto` is none for features, small for the demo, else resnet18."""
    pretrained: bool = True
    """Start the backbone from ImageNet weights."""
    freeze: bool = False
    """Keep the backbone as it is: its features are computed once and kept on disk, and epochs take seconds."""
    image_size: int | None = None
    """Side of the square the network sees, in pixels; the backbone's own by default."""
    augment: Augment = "standard"
    """Training pictures: `standard` random crop and flip, `paper` stretched to 550 and cropped to 448, `none`."""

    epochs: int | None = None
    """Passes over the training samples: by default 30 for pictures, and for features enough for 500 steps, from 10 to 100."""
    batch_size: int | None = None
    """Samples per step, over all processes: 128 for features, 64 for pictures by default."""
    optimizer: Literal["sgd", "adamw"] | None = None
    """SGD with momentum 0.9, the default for features; or AdamW, the default for pictures."""
    lr: float | None = None
    """Learning rate of the head at the start, falling to zero along a cosine; 0.05 with SGD, 0.001 with AdamW by default."""
    backbone_lr: float | None = None
    """Learning rate of the backbone; a tenth of --lr when it is pretrained, else the same."""
    weight_decay: float | None = None
    """Weight decay: 0.0005 with SGD, 0.05 with AdamW by default."""
    clip: float = 5.0
    """Largest norm of a step's gradient, 0 for none: a learned transition multiplies two layers, which can run away."""
    drop_last: bool = False
    """Leave out the last, smaller batch of an epoch."""
    select: Select = "last"
    """Which epoch is kept: the last, or the best mean accuracy on validation samples. Never anything on test samples."""
    val: float | None = None
    """Share of the training samples set aside for validation, after masking; by default 0.1 with --select best, else none."""
    test: bool = True
    """Measure the result on the test samples."""
    rules: tuple[Rule, ...] = ()
    """Rules of answering to measure besides the method's own, such as crm; see `lht evaluate --help`."""

    seed: int = 0
    """Of initial weights, order, augmentation and, unless --mask-seed says otherwise, the mask."""
    accelerator: str = "auto"
    """cpu, cuda, mps or auto."""
    devices: int = 1
    """Devices on this machine; under torchrun or `fabric run`, theirs."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Arithmetic of the networks; probabilities are always float32."""
    workers: int | None = None
    """Processes that decode pictures; the number of cores by default."""
    track: bool = True
    """Write TensorBoard events when tensorboard is installed."""
    quiet: bool = False
    """No progress, only the result."""

    def __post_init__(self) -> None:
        problems = [
            (self.epochs is not None and self.epochs < 1, f"--epochs is {self.epochs}: at least 1"),
            (self.batch_size is not None and self.batch_size < 1, f"--batch-size is {self.batch_size}: at least 1"),
            (self.lr is not None and self.lr <= 0, f"--lr is {self.lr}: it must be above 0"),
            (not 0 <= self.test_share < 1, f"--test-share is {self.test_share}: a share from 0 to below 1"),
            (self.val is not None and not 0 <= self.val < 1, f"--val is {self.val}: a share from 0 to below 1"),
            (self.select == "best" and self.val == 0, "--select best needs validation samples, but --val is 0"),
            (self.mixup < 0, f"--mixup is {self.mixup}: it must not be negative"),
            (not 0 <= self.label_smoothing < 1, f"--label-smoothing is {self.label_smoothing}: a share from 0 to below 1"),
            (not 0 <= self.ema < 1, f"--ema is {self.ema}: a decay from 0 to below 1"),
            (self.devices < 1, f"--devices is {self.devices}: at least 1"),
        ]
        for wrong, message in problems:
            if wrong:
                raise ConfigError(message)
        self.make_mask()  # checks its own options, as does the next
        self.make_perturbation()

    def with_recipe(self, *, features: bool, samples: int) -> TrainArgs:
        """The same, with what was left open filled in for training on so many features, or pictures."""
        optimizer = self.optimizer or ("sgd" if features else "adamw")
        decay = 5e-4 if optimizer == "sgd" else 0.05
        batch_size = self.batch_size or (128 if features else 64)
        enough = min(max(math.ceil(500 * batch_size / samples), 10), 100)
        return dataclasses.replace(
            self,
            optimizer=optimizer,
            epochs=self.epochs or (enough if features else 30),
            batch_size=batch_size,
            lr=(0.05 if optimizer == "sgd" else 0.001) if self.lr is None else self.lr,
            weight_decay=decay if self.weight_decay is None else self.weight_decay,
        )

    def make_mask(self) -> Mask:
        """The mask these options describe."""
        seed = self.seed if self.mask_seed is None else self.mask_seed
        return Mask(self.mask, self.mask_levels, self.mask_rounding, self.mask_minimum, seed)

    def make_perturbation(self) -> Perturbation:
        """The faults these options ask for."""
        return Perturbation(self.perturb, self.perturb_share, self.label_noise, self.seed)

    def method_options(self) -> dict[str, Any]:
        """The method's options that were given; the rest are the method's own defaults."""
        values = {name: getattr(self, name) for name in METHOD_OPTIONS}
        return {name: value for name, value in values.items() if value is not None}

    def level_names(self) -> list[str] | None:
        """`levels` as a list, coarse → fine."""
        return [name.strip() for name in self.levels.split(",")] if self.levels else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for config.yaml."""
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainArgs:
        """The inverse of `to_dict`."""
        paths: dict[str, Any] = {
            name: Path(values[name]) for name in ("out", "resume", "hierarchy", "prior") if values.get(name)
        }
        several: dict[str, Any] = {name: tuple(values[name]) for name in ("option", "rules") if name in values}
        return cls(**{**values, **paths, **several})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def preset(name: str, *, mask: float = 0.0) -> TrainArgs:
    """Default options by name. λ of the paper's preset is its CUB value, which the paper lowers where 90 % are masked."""
    if name == "default":
        return TrainArgs()
    return TrainArgs(
        preset="paper",
        backbone="resnet50",
        image_size=448,
        augment="paper",
        features="split",
        gamma=1.0,
        confusion="entropy",
        confusion_weight=0.01 if mask >= 0.9 else 0.1,
        epochs=200,
        batch_size=8,
        optimizer="sgd",
        lr=2e-3,
        weight_decay=5e-4,
        clip=0.0,
        drop_last=True,
    )


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
        return {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in ("out", "resume")}


def _whole_numbers(flag: str, text: str) -> list[int]:
    try:
        return [int(value) for value in text.split(",") if value.strip()]
    except ValueError:
        raise ConfigError(f"{flag} is {text!r}: whole numbers, separated by commas") from None


@dataclass(frozen=True)
class EvaluateArgs:
    """Measure a trained model."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run directory, or a model on the hub."""
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """What to measure it on; the run's own data by default."""
    split: Split = "test"
    """Which part of the data."""
    rule: Rule = "own"
    """How answers are chosen: the method's `own` way (mostly argmax); `argmax` per level; `backtrack` from the finest;
    `top_down`; best `path`; `crm`, the least expected distance in the tree."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    workers: int = 0
    """Processes that decode pictures."""
    json: bool = False
    """Print all metrics as JSON."""


@dataclass(frozen=True)
class PredictArgs:
    """Predict classes at every level."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run directory, or a model on the hub."""
    inputs: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILE…")] = field(default_factory=list)
    """Pictures, folders, patterns, a table or `demo` (their test pictures); for a model on features, .npz files with `x`."""
    format: Literal["table", "csv", "json"] = "table"
    """How to print the answers."""
    top: int = 1
    """Candidates per level."""
    rule: Rule = "own"
    """How answers are chosen: the method's `own` way (mostly argmax); `argmax` per level; `backtrack` from the finest;
    `top_down`; best `path`; `crm`, the least expected distance in the tree."""
    limit: int | None = None
    """Only the first so many."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""


@dataclass(frozen=True)
class HierarchyArgs:
    """A tree of classes."""

    file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """A .csv, .json or .yaml file, a folder tree, or a run directory."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species."""
    depth: int | None = None
    """show: how many levels to draw; all by default."""


@dataclass(frozen=True)
class PreviewArgs:
    """A look at a dataset before training."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path | None = None
    """The contact sheet to write; preview-DATA.png here by default."""
    hierarchy: Path | None = None
    """A tree to read the data with."""
    levels: str | None = None
    """Level names coarse → fine."""
    per_class: int = 6
    """Pictures of each class."""


@dataclass(frozen=True)
class PrepareArgs:
    """A benchmark from its official archive."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """cub, aircraft, aircraft-perturbed, cars, isic2018, ilsvrc-lowshot, cifar100, fashion-mnist or inat2021; `list` says
    what each holds and where it is had from."""
    root: Path | None = None
    """The folder the archive was unpacked in, or the archive's own. Nothing in it is copied or changed."""
    out: Path | None = None
    """Folder for the table and the tree; by default one in the cache, where `lht train NAME` finds them."""
    tree: Literal["default", "published"] = "default"
    """cub: `published` repeats the error of the tree that published numbers were measured with."""
    mode: Literal["stale_prior", "renamed", "rewired"] | None = None
    """aircraft-perturbed: names of families passed around with the old tree for a prior, or without; or models moved."""
    seed: int = 0
    """Of the split of isic2018, and of what aircraft-perturbed changes."""


@dataclass(frozen=True)
class MethodsArgs:
    """The methods that can be trained."""

    pattern: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATTERN")] = "*"
    """Only names that match, such as lht*; a single one is shown with its options."""
    hierarchy: Path | None = None
    """The tree to count parameters for; that of CUB-200-2011 (13 orders, 38 families, 200 species) by default."""
    in_features: int = 2048
    """Width of the features to count parameters for; 2048 is a ResNet-50's."""


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
