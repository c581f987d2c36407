"""The options of commands that only look: `lht hierarchy`, `data`, `methods`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from torchlht.errors import ConfigError
from torchlht.vocabulary import OnError


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
    """A folder of pictures, a .csv/.tsv table, shards, an .npz of features, `demo`, or a prepared benchmark such as `cub`."""
    out: Path | None = None
    """The contact sheet to write; preview-DATA.png here by default."""
    hierarchy: Path | None = None
    """A tree to read the data with."""
    levels: str | None = None
    """Level names coarse → fine."""
    per_class: int = 6
    """Pictures of each class."""


@dataclass(frozen=True)
class PackArgs:
    """Pictures into tar files that are read from start to end."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """What to pack: a folder of pictures, a .csv/.tsv table, shards, `demo`, or a prepared benchmark such as `cub`."""
    out: Path
    """Folder to write, which must not exist yet: shards-000000.tar, …, index.json and hierarchy.json. `lht train` takes it,
    and so do readers of WebDataset."""
    size: str | None = None
    """Largest size of a shard, as in 100MB (the default) or 1GB."""
    per_shard: int | None = None
    """Instead of --size: samples of a shard."""
    hierarchy: Path | None = None
    """A tree to read the data with."""
    levels: str | None = None
    """Level names coarse → fine."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    seed: int = 0
    """Of the order of the samples, which is mixed."""

    def __post_init__(self) -> None:
        if self.size is not None and self.per_shard is not None:
            raise ConfigError("`size` and `per_shard` both say how large a shard is: pass one of them")
        if self.per_shard is not None and self.per_shard < 1:
            raise ConfigError(f"`per_shard` is {self.per_shard}: at least 1")


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
