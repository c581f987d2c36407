"""The options of a run: groups that `lht train` shares with commands that train many times, the presets, and the recipe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from torchlht.answer.finding import check_folder
from torchlht.data.options import DataArgs, Door, FaultArgs, MaskArgs, OnErrorArgs, Options, SplitArgs, TreeArgs, refuse
from torchlht.doors import (
    Count,
    Decay,
    Looks,
    Many,
    NotNegative,
    Parallel,
    Positive,
    Seed,
    Share,
    Side,
    WholeShare,
    Workers,
    all_fitting,
    read_yaml,
)
from torchlht.errors import ConfigError, suggestion
from torchlht.heads.declared import check_method, options_named
from torchlht.learn.following.follow import check_board
from torchlht.vocabulary import Augment, OptimizerName, Pooling, Precision, PresetName, Schedule, SemiName, Stream

if TYPE_CHECKING:
    from torchlht.data.pictures import Picture

# ---- presets -------------------------------------------------------------------------------------------------------


def preset(name: str) -> dict[str, Any]:
    """Options by the name of a preset: `TrainArgs("birds.csv", **preset("paper"))`. See also `preset_options`."""
    if name == "default":
        return {}
    steps = {"epochs": 200, "batch_size": 8, "optimizer": "sgd", "lr": 2e-3, "weight_decay": 5e-4, "clip": 0.0}
    return {"preset": "paper", "backbone": "resnet50", "image_size": 448, "augment": "paper", **steps, "drop_last": True}


def configured(path: str | Path) -> dict[str, Any]:
    """Options from a file: the config.yaml of a run, or `name: value` lines with the names that Python uses, also of a method.

    The directory of that run is left out, since its copy goes elsewhere; `out` in a file of one's own counts.

    Raises:
        ConfigError: when it cannot be read, names an option that there is not, or gives one a value that it does not take.
    """
    found: Any = read_yaml(Path(path), object, ConfigError, exponents=True)
    of_run = isinstance(found, dict) and "train" in found
    values = found["train"] if of_run else found
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: holds no options; write a line name: value for each")
    known = {field.name for field in dataclasses.fields(TrainArgs)}
    of_method = options_named(str(values.get("method", "lht")))
    if unknown := [str(name) for name in values if name not in known and name not in of_method]:
        raise ConfigError(f"{path}: {unknown[0]!r} is no option: {suggestion(unknown[0], [*sorted(known), *of_method])}")
    left_out = {"out", "resume", "config"} if of_run else {"resume", "config"}
    own = {name: value for name, value in values.items() if name not in known}
    kept = {name: value for name, value in values.items() if name in known - left_out}
    if isinstance(kept.get("option"), dict):
        kept["option"] = pairs(kept["option"])
    fitted = all_fitting(kept, TrainArgs, str(path))
    return fitted | {"option": (*fitted.get("option", ()), *pairs(own))} if own else fitted


def merged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Options of a file, and those given beside it, which win; options of a method one by one."""
    pairs = dict(pair.partition("=")[::2] for values in (before, after) for pair in values.get("option") or ())
    return before | after | {"option": tuple(f"{name}={value}" for name, value in pairs.items())}


def preset_options(name: str, mask: float) -> dict[str, Any]:
    """The options that a preset sets for methods; each method takes those it has.

    λ is the paper's value for CUB, which is lower when 90 % of labels are masked.
    """
    if name == "default":
        return {}
    weight = 0.01 if mask >= 0.9 else 0.1
    return {"features": "split", "gamma": 1.0, "confusion": "entropy", "confusion_weight": weight, "start": "random"}


# ---- groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class BackboneArgs(Options):
    """The network that turns pictures into features."""

    backbone: str = "auto"
    """A timm model; `efficientnet_lite0`, whose weights need no hub; or `small`. For features `none`, or `linear`: one trained
    layer, which starts as the identity. `auto` takes none for features, small for the demo, else resnet18."""
    pretrained: bool = True
    """Start the backbone from ImageNet weights."""
    freeze: bool = False
    """Do not train the backbone: its features are computed once and stored on disk, and epochs take seconds."""
    freeze_stages: Many = 0
    """Do not train this many of the first stages of the backbone: what they make of views of the pictures is computed once and
    stored on disk. Of the eight of efficientnet_lite0, freezing 4 makes epochs twice as fast, freezing 6 fourteen times."""
    freeze_norm: bool | None = None
    """Keep the statistics of BatchNorm in the backbone as they are when training starts; by default with --freeze-stages."""
    mirror: bool = False
    """Answers look at each picture and at its mirror image, and take the mean of their features. Takes twice as long."""
    pooling: Pooling = "mean"
    """How the last map of the backbone becomes features: by its `mean` over the picture, or by `both` mean and maximum. That
    gives twice as many features, and was better on birds."""
    looks: Looks = 1
    """How many looks at a picture an answer takes, up to 5; each takes as long as the first. Features are the mean over the
    looks: the picture's centre, all of it made square, its middle enlarged, its largest square, its mirror image."""
    image_size: Side | None = None
    """Side of the square input of the network, in pixels; chosen by the backbone by default."""


OLD_FIELDS = (
    "features", "width", "reduction", "transition", "rank", "gamma", "bias", "confusion", "confusion_weight", "form", "columns",
    "tail", "input_dropout", "cosine",
)  # fmt: skip


def with_old_options(values: dict[str, Any]) -> dict[str, Any]:
    """Values in today's layout: earlier versions kept some options of methods, `OLD_FIELDS`, among the others."""
    mask, named = values.get("mask", 0.0), values.get("option", ())
    if not isinstance(named, list | tuple):
        raise ConfigError(f"`option` is {named!r}: it takes a list of texts")
    known = preset_options(str(values.get("preset", "default")), mask if isinstance(mask, int | float) else 0.0)
    old = {name: values[name] for name in OLD_FIELDS if values.get(name) is not None and values[name] != known.get(name)}
    rest = {name: value for name, value in values.items() if name not in OLD_FIELDS}
    return rest | {"option": [*pairs(old), *named]}


def pairs(options: Mapping[str, Any]) -> list[str]:
    """Options as NAME=VALUE."""
    return [f"{name}={value}" for name, value in options.items()]


@dataclass(frozen=True, kw_only=True)
class MethodArgs(Options):
    """Options of methods."""

    option: tuple[str, ...] = ()
    """Options of the method as NAME=VALUE; of several methods, each takes those it has. Each also has a flag, such as
    --gamma 1 or --no-bias of lht: see `lht methods NAME` or `lht train --method NAME --help`."""

    def __post_init__(self) -> None:
        if isinstance(self.option, Mapping):  # in Python
            object.__setattr__(self, "option", tuple(pairs(self.option)))
        super().__post_init__()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`; also reads values of earlier versions."""
        return super().from_dict(with_old_options(values))


@dataclass(frozen=True, kw_only=True)
class FitArgs(Options):
    """How weights are learned. `TrainArgs.recipe` fills in what is None."""

    semi: SemiName = "none"
    """How samples without a finest label learn: from their neighbours' labels (`propagate`), from the averaged model's own
    predictions (`posterior`), from `both`, or from neighbours and confident predictions (`deep`). Only classes that their known
    labels allow are possible. `fixmatch` (any class) and `taxon` (possible ones) take confident predictions alone, for
    comparing. See docs/semi.md."""
    mixup: NotNegative = 0.0
    """Mix features of pairs of samples, with shares drawn from Beta(a, a) for this a; 0 for none."""
    label_smoothing: Share = 0.0
    """Label smoothing: the share of the uniform distribution in every label."""
    ema: Decay = 0.0
    """Keep a moving average of the weights with this decay, such as 0.99, and use it instead of the weights; 0 for none."""
    epochs: Count | None = None
    """Passes over the training samples. By default 30 for pictures; for features enough for 500 steps, from 10 to 100; in
    quick training (see --schedule) enough to show 33,000 samples, at least 4."""
    batch_size: Count | None = None
    """Samples per step, over all processes; by default 64 for pictures, 128 for features, and 384 in quick
    training (see --schedule)."""
    accumulate: Count = 1
    """Forward passes per step, each over a part of the batch, to save memory. BatchNorm sees one part at a time."""
    views: Count | None = None
    """With --freeze or --freeze-stages: how many views of each picture are computed: the picture itself, its mirror image, and
    augmented ones. Every step draws one. By default 8 with --freeze-stages, and 1 with --freeze, which is no augmentation."""
    checkpoint_every: Count | None = None
    """Steps between checkpoints inside an epoch; by default a checkpoint is written only after each epoch."""
    optimizer: OptimizerName | None = None
    """SGD with momentum 0.9, the default for features; or AdamW, the default for pictures."""
    lr: Positive | None = None
    """Initial learning rate of the head, which falls to zero along a cosine; by default 0.001 with AdamW, 0.05 with
    SGD, and 0.3 in quick training (see --schedule)."""
    schedule: Schedule | None = None
    """Whether the learning rate falls after each epoch, or with each step; then transitions of lht learn in the last part only.
    With `step` and without --semi, features wider than 384, of at least 2,560 samples, have quick training: larger steps, five
    to eight times as fast. On birds every level was better for it: species by 0.9 points with all labels, by 4.4 with few
    species labels."""
    components: Many | None = None
    """Train the first layer on this many principal components of wider features; 0 for the features themselves. By default 0,
    and 384 in quick training (see --schedule). The weights that are kept are those of the features."""
    shortcut: WholeShare | None = None
    """For lht and its variants on features: add this share of their linear discriminant, which is fitted once, to what the
    network makes of the finest classes; 0 for none. By default 0.1 in quick training (see --schedule), or from 1,000 finest
    classes on."""
    guess: bool | None = None
    """For lht and its variants on features: guess unknown finest labels by the discriminant of --shortcut, among the classes
    that known labels allow, and learn from the guesses as from labels. By default if there is a shortcut by default."""
    backbone_lr: NotNegative | None = None
    """Learning rate of the backbone; by default a tenth of --lr if it is pretrained, else --lr."""
    weight_decay: NotNegative | None = None
    """Weight decay; by default 0.0005 with SGD, 0.05 with AdamW."""
    clip: NotNegative = 5.0
    """Largest norm of a step's gradient, 0 for no limit. A learned transition multiplies two layers, which can diverge."""
    drop_last: bool = False
    """Skip the last, smaller batch of an epoch."""

    def _check(self) -> None:
        refuse(0 < self.mixup < 1e-3, f"`mixup` is {self.mixup}: it must be 0, for none, or at least 0.001")


@dataclass(frozen=True, kw_only=True)
class Recipe(FitArgs):
    """How weights are learned, with every value filled in: what `fit` takes."""

    epochs: Count = field()
    batch_size: Count = field()
    views: Count = field()
    optimizer: OptimizerName = field()
    lr: Positive = field()
    backbone_lr: NotNegative = field()
    weight_decay: NotNegative = field()
    schedule: Schedule = field()
    components: Many = field()
    shortcut: WholeShare = field()
    guess: bool = field()
    seed: Seed
    best: bool
    compile: bool
    quiet: bool


@dataclass(frozen=True, kw_only=True)
class MachineArgs(Options):
    """Hardware."""

    accelerator: str = "auto"
    """Where to compute: cpu, cuda, mps, or auto, which takes a GPU if there is one."""
    devices: Parallel = 1
    """Number of devices on this machine; torchrun and `fabric run` set it themselves."""
    precision: Precision = "32-true"
    """Precision of the networks; probabilities are always float32."""
    compile: bool = False
    """Compile the backbone with torch.compile: takes minutes at the start and makes steps faster on a GPU, slower on a CPU."""
    workers: Workers | None = None
    """How many processes decode pictures; the number of cores by default."""
    stream: Stream = "auto"
    """Read training shards from start to end, a few at a time, and shuffle samples in a buffer instead of reading them in
    random order; `auto` does so for shards at an address or of more than 8 GiB."""


SETTLED = ("epochs", "batch_size", "views", "optimizer", "lr", "weight_decay", "schedule", "components", "shortcut", "guess")
"""What config.yaml keeps as the recipe has filled it in."""
BEFORE: dict[str, Any] = {"schedule": "epoch", "components": 0, "shortcut": 0.0, "guess": False, "views": 1}
"""What a run did that does not record them."""
VIEWS = 8  # of each picture, with `freeze_stages`
MANY, COMPONENTS = 2560, 384  # samples from which steps may be larger, and how many components their first layer is trained on
SHOWN = 33_000  # samples that quick training shows at least
SHORTCUT, MANY_CLASSES = 0.1, 1000  # share of the linear discriminant, and from how many finest classes on it is the default
HERE = ("accelerator", "devices", "workers")  # they belong to the machine: a resumed run may change them


@dataclass(frozen=True, kw_only=True)
class RunArgs(MachineArgs, FitArgs, BackboneArgs, MethodArgs, SplitArgs, FaultArgs, MaskArgs, OnErrorArgs, TreeArgs):
    """Preset, augmentation and rules. With the groups it inherits, the options that several runs can share."""

    preset: PresetName = "default"
    """`paper`: the published configuration (ResNet-50, 448 px, 200 epochs, split features, γ = 1); other flags override it."""
    augment: Augment = "standard"
    """Augmentation: `standard` crops and flips at random, `strong` also changes scale, shape and colours, `paper` stretches to
    550 and crops to 448; or `none`."""
    rules: tuple[str, ...] = ()
    """Also measure these rules of answering, such as crm; see `lht evaluate --help`."""

    def _check(self) -> None:
        if self.rules:
            from torchlht.heads.prediction import find_rule

            for rule in self.rules:
                find_rule(rule)
        frozen = "freeze" if self.freeze else "freeze_stages" if self.freeze_stages else ""
        several = self.views is not None and self.views > 1
        refuse(self.mirror and self.looks > 1, "the fifth of `looks` is the mirror image: pass `looks` or `mirror`")
        refuse(
            self.freeze and self.freeze_stages > 0, "`freeze` is for the whole backbone, `freeze_stages` for a part: pass one"
        )
        refuse(
            self.stream == "always" and bool(frozen),
            f"`stream` is for training on pictures; `{frozen}` reads each picture once: pass one of them",
        )
        refuse(
            self.compile and bool(frozen),
            f"`compile` is for a backbone that trains as a whole; with `{frozen}` it does not: pass one of them",
        )
        refuse(
            several and not frozen,
            "`views` is for a frozen backbone, others see a new view in every epoch: add `freeze` or `freeze_stages`",
        )
        refuse(several and self.augment == "none", f"`views` is {self.views}, but with `augment=none` a picture has only one")


# ---- lht train -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainArgs(RunArgs, DataArgs):
    """Train a hierarchical classifier on partly labelled data."""

    FIRST: ClassVar = ("out", "backbone", "freeze", "epochs", "levels", "on_error", "val", "method", "semi", "resume", "quiet")
    """What most people need, in the order of --help."""
    out: Path | None = None
    """Run directory to write; runs/DATA-METHOD-sSEED by default. If a run was interrupted there, the same command goes on."""
    _: dataclasses.KW_ONLY
    config: Annotated[Path, Door(configured)] | None = None
    """Take options from this file: the config.yaml of any run starts the same run, in another directory. Flags override it."""
    resume: Annotated[Path, Door(check_folder)] | None = None
    """Continue the unfinished run in this directory, with the options it was started with."""
    method: Annotated[str, Door(check_method)] = "lht"
    """lht, multihead, flat, …: `lht methods` lists them all, `lht methods NAME` shows the options of one."""
    audit: str | None = None
    """Do not learn from labels that are probably wrong: `auto` looks for them first, and a folder that lht audit has written
    lists them. The class that is probably right takes their place, no deeper than they were; else they count as unknown."""
    test: bool = True
    """Measure the result on the test samples."""
    track: bool = True
    """Show every epoch on the boards that --track-to names."""
    track_to: Annotated[tuple[str, ...], Door(check_board)] = ()
    """Boards to follow training on: tensorboard, mlflow, wandb, or several. By default TensorBoard, if it is installed."""
    quiet: bool = False
    """Show no progress, only the result."""

    def _check(self) -> None:
        refuse(self.config is not None, "`config` is read by `lht train` and `torchlht.train`; here pass `**configured(path)`")

    def quickened(self, samples: int, width: int) -> Self:
        """The same with `schedule=step` where that is quick and was left open: on many samples of wide features."""
        left_open = all(getattr(self, name) is None for name in SETTLED)
        return dataclasses.replace(self, schedule="step") if left_open and self.can_be_quick(samples, width) else self

    def can_be_quick(self, samples: int, width: int) -> bool:
        """Whether there are enough samples and features for larger steps on principal components."""
        return samples >= MANY and width > COMPONENTS and self.semi == "none"

    def recipe(self, *, features: bool, samples: int, width: int = 0, classes: int = 0, pretrained: bool = False) -> Recipe:
        """The recipe with every open value filled in.

        Args:
            features: whether it trains on features instead of pictures.
            samples: how many training samples there are.
            width: how wide the features are.
            classes: how many finest classes there are.
            pretrained: whether the backbone is pretrained and should change slowly.
        """
        optimizer = self.optimizer or ("sgd" if features else "adamw")
        decay = 5e-4 if optimizer == "sgd" else 0.05
        schedule = self.schedule or "epoch"
        quick = schedule == "step" and features and self.can_be_quick(samples, width)
        short = quick or (features and classes >= MANY_CLASSES and self.semi == "none")
        batch_size = self.batch_size or ((384 if quick else 128) if features else 64)
        steps, least = (SHOWN, 4) if quick else (500 * batch_size, 10)
        enough = min(max(math.ceil(steps / samples), least), 100)
        lr = ((0.3 if quick else 0.05) if optimizer == "sgd" else 0.001) if self.lr is None else self.lr
        filled_in: dict[str, Any] = {
            "epochs": self.epochs or (enough if features else 30),
            "batch_size": batch_size,
            "views": self.views or (VIEWS if self.freeze_stages and self.augment != "none" else 1),
            "optimizer": optimizer,
            "lr": lr,
            "backbone_lr": lr * (0.1 if pretrained else 1.0) if self.backbone_lr is None else self.backbone_lr,
            "weight_decay": decay if self.weight_decay is None else self.weight_decay,
            "schedule": schedule,
            "components": (COMPONENTS if quick else 0) if self.components is None else self.components,
            "shortcut": (SHORTCUT if short else 0.0) if self.shortcut is None else self.shortcut,
            "guess": short if self.guess is None else self.guess,
            "best": self.select == "best",
        }
        same = {f.name: getattr(self, f.name) for f in dataclasses.fields(Recipe) if f.name not in filled_in}
        return Recipe(**same, **filled_in)

    def settled(self, recipe: Recipe) -> dict[str, Any]:
        """Plain values for config.yaml, with those of the recipe, so that a resumed run uses the same."""
        return self.to_dict() | {name: getattr(recipe, name) for name in SETTLED}

    def lasting(self) -> Self:
        """The same with data, trees and an audit named so that they are found from any folder."""
        from torchlht.data.samples import lasting_name
        from torchlht.hierarchy.linked import files_of

        trees = {name: getattr(self, name) for name in ("hierarchy", "prior") if getattr(self, name)}
        places: dict[str, Any] = {
            name: Path(",".join(str(file.absolute()) for file in files_of(path))) for name, path in trees.items()
        }
        audit = self.audit if self.audit in (None, "auto") else str(Path(self.audit).absolute())
        return dataclasses.replace(self, data=lasting_name(self.data), audit=audit, **places)

    def streams(self, pictures: Sequence[Picture]) -> bool:
        """Whether to stream training pictures. Raises ConfigError when `stream` is on and they are not in shards."""
        from torchlht.data.batches import in_shards, worth_streaming

        if self.stream == "always" and not in_shards(pictures):
            raise ConfigError(f"`stream`: {self.data} is not in shards; lht data pack {self.data} --out DIR makes them")
        return self.stream == "always" or (self.stream == "auto" and worth_streaming(pictures))
