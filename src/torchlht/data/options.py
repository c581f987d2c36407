"""Groups of options for samples: how data is read, split, masked and perturbed.

A command's options inherit the groups it needs, so each option is declared, explained and checked once. Quick to import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from torchlht.data.named import check_data
from torchlht.doors import Count, Many, Seed, Share, WholeShare, checked
from torchlht.errors import ConfigError
from torchlht.vocabulary import OnError, Perturb, Rounding, Select

if TYPE_CHECKING:
    from torchlht.data.samples import Faults, Mask


class Word(NamedTuple):
    """Marks an option that is a word of its own on the command line, and names it there: `lht train DATA`."""

    name: str


class Alias(NamedTuple):
    """Marks an option with a second flag."""

    flag: str


class Door(NamedTuple):
    """Marks an option that names something that must be there. The command line asks before anything heavy is imported.

    Attributes:
        check: takes the name, and raises the error that whatever opens it would raise.
    """

    check: Callable[[Any], None]


def check_input(name: str) -> None:
    """Raise DataError if there is nothing of this name to predict."""
    if not Path(name).exists():
        from torchlht.data.inputs import check_named

        check_named(name)


def check_tree(file: Path) -> None:
    """Raise DataError if there is no such file or folder, or, of several files separated by commas, not all of them."""
    if not file.exists():
        from torchlht.hierarchy.linked import files_of
        from torchlht.hierarchy.reading import absent

        if files_of(file) == [file]:
            raise absent(file)


DataPlace = Annotated[str, Door(check_data)]
InputPlace = Annotated[str, Door(check_input)]
TreePlace = Annotated[Path, Door(check_tree)]


def refuse(wrong: bool, sentence: str) -> None:
    """Raise ConfigError with this sentence if `wrong`."""
    if wrong:
        raise ConfigError(sentence)


@dataclass(frozen=True)
class Options:
    """Base of all groups: fields fit their types, each group checks the rest in `_check`, and all convert to plain values."""

    def __post_init__(self) -> None:
        checked(self)
        for group in reversed(type(self).__mro__):
            if "_check" in vars(group):
                vars(group)["_check"](self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `to_dict`. Keys of other groups are ignored, missing ones take their default."""
        known = {name: values[name] for name in (f.name for f in dataclasses.fields(cls)) if name in values}
        return cls(**known)


def plain(value: Any) -> Any:
    """A value as stored in configuration files."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, kw_only=True)
class TreeArgs(Options):
    """The tree and its levels."""

    hierarchy: TreePlace | None = None
    """A tree to read the data with (.csv, .json, .yaml, .obo, .ttl, .rdf); by default the tree is taken from the data. Classes
    may have several parents, in one file or in several separated by commas: see docs/graphs.md."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species: they choose columns of a table or an .npz, and name a folder's
    levels."""

    unknown: str | None = None
    """Names in the data that mean that a label is missing, separated by commas, such as unknown,NA,?"""

    def unknown_names(self) -> list[str]:
        """`unknown` as a list."""
        return [name.strip() for name in (self.unknown or "").split(",") if name.strip()]

    def level_names(self) -> list[str] | None:
        """`levels` as a list, coarse → fine."""
        return [name.strip() for name in self.levels.split(",")] if self.levels else None


@dataclass(frozen=True, kw_only=True)
class SeveralArgs(Options):
    """Several labels per sample."""

    several: bool | None = None
    """Whether a picture may have several labels. By default that is so if a label cell of a table holds a |, and for an .npz
    with `nodes`. With --several, a picture in several rows of a table or in several folders has all their labels; with
    --no-several, | is part of a name. See docs/graphs.md."""


@dataclass(frozen=True, kw_only=True)
class OnErrorArgs(Options):
    """Unreadable pictures."""

    on_error: OnError = "refuse"
    """What to do if pictures cannot be read: refuse the data, or skip them."""


@dataclass(frozen=True, kw_only=True)
class MaskArgs(Options):
    """How labels are hidden. Commands add the share of labels to hide."""

    mask_levels: Count = 1
    """How many of the finest levels --mask hides."""
    mask_rounding: Rounding = "nominal"
    """How to round the number of labels that a class keeps: `nominal` to the nearest, `lht` down and one more, `hrn` up."""
    mask_minimum: Many = 1
    """Keep at least this many labels in every class, whatever --mask is."""
    mask_seed: Seed | None = None
    """Seed for choosing the labels to hide; --seed by default."""

    def mask_of(self, ratio: float, seed: int) -> Mask:
        """The mask that hides a share of the finest labels, in a run with this seed."""
        from torchlht.data.samples import Mask

        seed = seed if self.mask_seed is None else self.mask_seed
        return Mask(ratio, self.mask_levels, self.mask_rounding, self.mask_minimum, seed)


@dataclass(frozen=True, kw_only=True)
class FaultArgs(Options):
    """Faults added on purpose, to measure their effect."""

    perturb: Perturb = "none"
    """Perturb the tree, to measure the effect. `rewired` and `stale` put finest classes under wrong parents: in tree and
    labels, or in the tree alone. `renamed` and `stale_prior` swap names at the second finest level: in tree and labels, or
    in the labels alone."""
    perturb_share: WholeShare = 0.0
    """Share of the classes that --perturb moves or renames."""
    prior: TreePlace | None = None
    """Give methods this tree although the labels follow another: the same levels and classes, other parents. For trees that are
    out of date, and for measuring the cost of a wrong tree."""
    label_noise: WholeShare = 0.0
    """Share of the training samples without a finest label whose other labels are made wrong."""

    def _check(self) -> None:
        self.faults_of(0)

    def faults_of(self, seed: int) -> Faults | None:
        """The faults to add in a run with this seed, or None. An installed plugin makes them."""
        from torchlht.plugins import plugins

        if self.perturb == "none" and not self.perturb_share and not self.label_noise:
            return None
        makers = plugins("torchlht.faults").values()
        refuse(not makers, "`perturb` and `label_noise` need a plugin of the group torchlht.faults, and none is installed")
        found: Faults = next(iter(makers))(self.perturb, self.perturb_share, self.label_noise, seed)
        return found


@dataclass(frozen=True, kw_only=True)
class SplitArgs(Options):
    """Test and validation samples."""

    test_share: Share = 0.2
    """Share of the samples set aside for testing if the data has no test part."""
    select: Select = "last"
    """Which epoch to keep: the last, or that with the best mean accuracy on validation samples. Test samples never decide."""
    val: Share | None = None
    """Share of the training samples set aside for validation, after masking; by default 0.1 with --select best, else none."""

    def _check(self) -> None:
        refuse(self.select == "best" and self.val == 0, "`select=best` needs validation samples, but `val` is 0")


@dataclass(frozen=True)
class DataArgs(SeveralArgs, SplitArgs, FaultArgs, MaskArgs, OnErrorArgs, TreeArgs):
    """Samples and seed of one run."""

    data: Annotated[DataPlace, Word("DATA")] = ""
    """A folder of pictures, a .csv/.tsv table, an .npz of features, `demo`, `demo-pairs` (two birds per picture), a prepared
    benchmark such as `cub`, what others wrote (parquet, Hugging Face datasets, COCO, Darwin Core, Label Studio), or shards:
    their folder, a pattern such as birds/shards-{000000..000099}.tar, or an address such as s3://bucket/birds."""
    _: KW_ONLY
    mask: WholeShare = 0.0
    """Hide the finest label on this share of the training samples, class by class."""
    fold: str | None = None
    """Instead of --val: set aside one of N equal parts of the training samples, such as 2/5, so that N runs cover them all."""
    seed: Seed = 0
    """Seed for initial weights, order, augmentation and, unless --mask-seed is given, the mask."""

    def _check(self) -> None:
        refuse(bool(self.fold and self.val), "`fold` and `val` both set validation samples aside: pass one of them")
        self.fold_numbers()

    def make_mask(self) -> Mask:
        """The mask these options describe."""
        return self.mask_of(self.mask, self.seed)

    def make_faults(self) -> Faults | None:
        """The faults these options describe, or None."""
        return self.faults_of(self.seed)

    def fold_numbers(self) -> tuple[int, int] | None:
        """`fold` as the number of the part, from 0, and the number of parts."""
        if self.fold is None:
            return None
        part, slash, parts = self.fold.partition("/")
        if not (slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts) and int(parts) > 1):
            raise ConfigError(f"`fold` is {self.fold!r}: pass a part and the number of parts, such as 2/5")
        return int(part) - 1, int(parts)
