"""The options of `lht train`, and the presets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from torchlht.data.pictures import Picture
from torchlht.data.samples import Mask
from torchlht.data.streaming import in_shards, worth_streaming
from torchlht.errors import ConfigError
from torchlht.lab.perturbing import Perturbation
from torchlht.vocabulary import (
    Augment,
    Confusion,
    Features,
    Form,
    OnError,
    Perturb,
    Reduction,
    Rounding,
    Rule,
    Select,
    SemiName,
    Stream,
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
    "form",
    "columns",
    "tail",
    "input_dropout",
    "cosine",
)


@dataclass(frozen=True)
class TrainArgs:
    """Train a hierarchical classifier on partly labelled data."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = ""
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, a prepared benchmark such as `cub`, or shards:
    their folder, a pattern such as birds/shards-{000000..000099}.tar, or an address such as s3://bucket/birds."""
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
    form: Form | None = None
    """lht: how transitions are computed: `plain`, `tiled` (the same in little memory), `truncated` (the most probable columns;
    the rest follows the tree), or `auto`, by size (auto)."""
    columns: int | None = None
    """lht: how many columns `truncated` computes per sample (64)."""
    tail: float | None = None
    """lht: as many columns as leave at most this probability out, instead."""

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
    accumulate: int = 1
    """Forward passes per step, each over a part of the batch, for want of memory. BatchNorm sees a part at a time."""
    checkpoint_every: int | None = None
    """Steps between checkpoints inside an epoch; only after epochs by default."""
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
    fold: str | None = None
    """Instead of --val: set aside one of N equal parts of the training samples, as in 2/5, so that N runs cover them all."""
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
    compile: bool = False
    """Compile the backbone with torch.compile: minutes at the start, for faster steps on a GPU; on a CPU they got slower."""
    workers: int | None = None
    """Processes that decode pictures; the number of cores by default."""
    stream: Stream = "auto"
    """Read training shards from start to end, a few at a time, and mix samples in a buffer, instead of in any order; `auto`
    does so with shards at an address, and with those of more than 8 GiB."""
    track: bool = True
    """Write TensorBoard events when tensorboard is installed."""
    quiet: bool = False
    """No progress, only the result."""

    def __post_init__(self) -> None:
        problems = [
            (self.epochs is not None and self.epochs < 1, f"--epochs is {self.epochs}: at least 1"),
            (self.batch_size is not None and self.batch_size < 1, f"--batch-size is {self.batch_size}: at least 1"),
            (self.accumulate < 1, f"--accumulate is {self.accumulate}: at least 1"),
            (
                self.checkpoint_every is not None and self.checkpoint_every < 1,
                f"--checkpoint-every is {self.checkpoint_every}: at least 1",
            ),
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
        if self.stream == "always" and self.freeze:
            raise ConfigError("--stream is for training on pictures; with --freeze each of them is looked at once")
        if self.compile and self.freeze:
            raise ConfigError("--compile is for a backbone that trains; with --freeze it looks at each picture once")
        if self.fold is not None and self.val:
            raise ConfigError("--fold and --val both set validation samples aside: pass one of them")
        self.make_mask()  # checks its own options, as do the next
        self.make_perturbation()
        self.fold_numbers()

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

    def fold_numbers(self) -> tuple[int, int] | None:
        """`fold` as the number of a part, from 0, and how many there are."""
        if self.fold is None:
            return None
        part, slash, parts = self.fold.partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) and int(parts) > 1):
            raise ConfigError(f"--fold is {self.fold!r}: a part of several, as in 2/5")
        return int(part) - 1, int(parts)

    def streams(self, pictures: Sequence[Picture]) -> bool:
        """Whether training pictures are streamed. Raises ConfigError when that is asked for and they lie in no shards."""
        if self.stream == "always" and not in_shards(pictures):
            raise ConfigError(f"--stream is for shards; {self.data} is none: lht data pack {self.data} --out DIR makes some")
        return self.stream == "always" or (self.stream == "auto" and worth_streaming(pictures))

    def method_options(self) -> dict[str, Any]:
        """The method's options that were given; the rest are the method's own defaults."""
        values = {name: getattr(self, name) for name in METHOD_OPTIONS}
        return {name: value for name, value in values.items() if value is not None}

    def level_names(self) -> list[str] | None:
        """`levels` as a list, coarse → fine."""
        return [name.strip() for name in self.levels.split(",")] if self.levels else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for config.yaml."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainArgs:
        """The inverse of `to_dict`."""
        paths: dict[str, Any] = {
            name: Path(values[name]) for name in ("out", "resume", "hierarchy", "prior") if values.get(name)
        }
        several: dict[str, Any] = {name: tuple(values[name]) for name in ("option", "rules") if name in values}
        return cls(**{**values, **paths, **several})


def plain(value: Any) -> Any:
    """A value as configuration files have it."""
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
