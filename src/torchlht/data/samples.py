"""`Samples`: a dataset, whatever it was read from; and `Source`: a kind of data that can be read."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from operator import attrgetter
from pathlib import Path
from typing import Protocol, get_type_hints

import numpy as np
from numpy.typing import NDArray

from torchlht.data.doubts import is_placeholder
from torchlht.data.named import absent, is_known, known_names
from torchlht.data.pictures import Picture, Problem, as_place, as_url, content_digest, find_problems, write_problems
from torchlht.doors import Count, Many, Seed, WholeShare, entrance, fitting
from torchlht.errors import ConfigError, DataError, Fault, HierarchyError, suggestion
from torchlht.files import cache_dir
from torchlht.hierarchy.paths import Row, build
from torchlht.hierarchy.tree import Hierarchy
from torchlht.plugins import plugins
from torchlht.vocabulary import Rounding

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SPLITS = ("train", "val", "test")
PLAIN = frozenset(("folder", "table", "embeddings", "shards"))
"""Sources of what people write by hand, or we do."""
SPLIT_NAMES = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Samples:
    """Pictures or features with their known labels.

    Attributes:
        name: its name in messages and run directories.
        hierarchy: the tree of classes.
        keys: a name per sample that does not change when the data moves: a relative path, or a row number.
        labels: (N, K), fine first, -1 where unknown; the ancestors of a known label are always filled in.
        split: "train", "val" or "test" per sample.
        images: a picture per sample, or None for features.
        features: (N, d) float32, or None for pictures.
        checked: whether the pictures were already checked, when they were packed.
    """

    name: str
    hierarchy: Hierarchy
    keys: tuple[str, ...]
    labels: Ints
    split: NDArray[np.str_]
    images: tuple[Picture, ...] | None = None
    features: NDArray[np.float32] | None = None
    checked: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        kind = "features" if self.images is None else "pictures"
        return f"Samples({self.name!r}, {len(self):,} {kind}, {self.hierarchy.describe()})"

    def index(self, split: str) -> Ints:
        """Positions of the samples of a split, ascending."""
        return np.flatnonzero(self.split == split)

    def select(self, keep: Ints) -> Samples:
        """Only these samples."""
        return dataclasses.replace(
            self,
            keys=tuple(self.keys[i] for i in keep),
            labels=self.labels[keep],
            split=self.split[keep],
            images=tuple(self.images[i] for i in keep) if self.images else None,
            features=self.features[keep] if self.features is not None else None,
        )

    def strata(self) -> list[str]:
        """Each sample's deepest known class, as "level/name". Splits and masks are balanced over these."""
        tree = self.hierarchy
        return [
            f"{tree.levels[k]}/{tree.classes[k][row[k]]}" if k < len(tree) else "unlabelled"
            for k, row in zip(deepest_known(self.labels).tolist(), self.labels, strict=True)
        ]

    def fingerprint(self) -> str:
        """A hash that changes when the pictures or features do."""
        if self.features is None:
            return content_digest(self.images or ())
        return hashlib.sha256(f"{self.features.shape}".encode() + self.features.tobytes()).hexdigest()


def check_images(samples: Samples, on_error: str) -> tuple[Samples, list[Problem]]:
    """Refuse a dataset with unreadable pictures, or leave them out if `on_error` is "skip"."""
    if samples.images is None or samples.checked:
        return samples, []
    keep, problems = check_pictures(samples.images, samples.name, on_error)
    return (samples.select(keep) if problems else samples), problems


def check_pictures(pictures: Sequence[Picture], name: str, on_error: str) -> tuple[Ints, list[Problem]]:
    """The positions of readable pictures, and what is wrong with the others. Raises DataError unless `on_error` is "skip"."""
    problems = find_problems(pictures)
    if problems and on_error != "skip":
        listed = cache_dir() / "problems.csv"
        try:
            write_problems(listed, problems)
            more = f"all are listed in {listed}: "
        except OSError:
            more = "lht data preview lists more: "
        raise DataError(
            f"{name}: {len(problems)} of {len(pictures)} pictures cannot be read, the first is {problems[0].path} "
            f"({problems[0].reason}); {more}repair or remove them, or pass `on_error=skip`"
        )
    bad = {problem.path for problem in problems}
    return np.array([i for i, picture in enumerate(pictures) if str(picture) not in bad], dtype=np.int64), problems


def refuse_inside(out: Path, data: str | Path) -> None:
    """Raise ConfigError if an output would lie in a folder of data, and be read as part of it the next time."""
    place = as_place(data)
    if not is_known(data) and not as_url(place) and place.is_dir() and out.resolve().is_relative_to(place.resolve()):
        raise ConfigError(f"{out}: lies inside the data, {data}; choose another `out`")


# ---- sources -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A kind of data. Every file of `data/sources` has one under the name SOURCE.

    Attributes:
        name: its name in code.
        what: its name in messages, such as "a folder of pictures".
        reads: whether a place is of this kind.
        read: reads it, given a tree and level names, coarse → fine; None for the data's own.
        order: sources are tried in ascending order.
        called: gives the data's name in run directories.
        read_without: reads it with some names, in lower case, taken for missing labels; None if that is not possible.
    """

    name: str
    what: str
    reads: Callable[[Path], bool]
    read: Callable[[Path, Hierarchy | None, Sequence[str] | None], Samples]
    order: int = 50
    called: Callable[[Path], str] = attrgetter("stem")
    read_without: Callable[[Path, Hierarchy | None, Sequence[str] | None, Set[str]], Samples] | None = None


def tree_of(rows: Sequence[Row], names: Sequence[str], place: Path) -> Hierarchy:
    """The tree that all rows imply together. Classes are in taxonomic order, so the order of rows does not matter."""
    ordered = sorted(rows, key=lambda row: tuple(name or "" for name in row.names))
    spec, faults = build(ordered, names)
    refuse_faults(place, rows, faults)
    return Hierarchy(**spec._asdict(), source=str(place))


def refuse_faults(place: Path, rows: Sequence[Row], faults: Sequence[Fault]) -> None:
    """Raise HierarchyError if there are faults; DataError if names such as `unknown` explain them."""
    names = sorted({name for row in rows for name in row.names if name and is_placeholder(name)})
    if faults and names:
        raise DataError(f"{place}: {faults[0]}; `unknown={','.join(names)}` counts such names as missing labels")
    if faults:
        raise HierarchyError(str(place), faults)


def label_of(tree: Hierarchy, levels: Sequence[str], classes: Sequence[str | None], where: str) -> list[int]:
    """The numbers of a sample's classes, fine first, from their names at some levels; `where` names it in messages."""
    label = [-1] * len(tree)
    for level, name in zip(map(tree.levels.index, levels), classes, strict=True):
        if name is not None:
            try:
                label[level] = tree.index(level, name)
            except DataError as error:
                raise DataError(f"{where}: {error}; `unknown={name}` counts it as a missing label") from None
    return label


def label_by_name(tree: Hierarchy, name: str | None, where: str) -> list[int]:
    """A sample's label from one name: that of a class of any level, the finest if several levels have it."""
    label = [-1] * len(tree)
    if name is not None:
        level = tree.level_of(name)
        if level is None:
            known = dict.fromkeys(one for names in tree.names for one in names if one is not None)
            raise DataError(f"{where}: {name!r} is no class of the tree, at any level: {suggestion(name, known)}")
        label[level] = tree.index(level, name)
    return label


# ---- choosing ------------------------------------------------------------------------------------------------------


def split_in(name: str) -> str | None:
    """The split that a word of a file's or folder's name means, such as that of train-00000-of-00002; None without one."""
    words = re.findall(r"[a-z]+", name.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def deepest_known(labels: Ints) -> Ints:
    """(N,) the finest level at which each row of (N, K) labels is known; K if no level is known."""
    known = labels >= 0
    deepest: Ints = np.where(known.any(axis=1), known.argmax(axis=1), labels.shape[1])
    return deepest


def choose_some(
    keys: Sequence[str], strata: Sequence[str], count: Callable[[str, int], int], *, seed: int, purpose: str
) -> Bools:
    """Choose `count(stratum, n)` of the n samples of each stratum at random.

    The choice depends on the keys, the seed and the purpose alone: samples are ranked by a hash of these, so neither the order
    of a directory listing nor the numbering of classes nor other samples can change it.
    """
    members: dict[str, list[int]] = {}
    for i, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(i)
    chosen = np.zeros(len(keys), dtype=bool)
    for stratum, inside in members.items():
        ranked = sorted(inside, key=lambda i: (hashed(seed, purpose, keys[i]), keys[i]))
        chosen[ranked[: count(stratum, len(inside))]] = True
    return chosen


def hashed(seed: int, purpose: str, key: str) -> int:
    """A number that depends on these arguments alone, for choices that must not depend on any order."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{purpose}/{key}".encode(errors="surrogateescape"), digest_size=8).digest())


def choose_share(samples: Samples, among: Ints, share: float, *, seed: int, purpose: str) -> Ints:
    """A stratified share of the samples `among`; positions, ascending. At least one of each stratum is left behind.

    A stratum too small for a whole sample gives one with the matching probability, so the total is right on average.
    """

    def count(stratum: str, n: int) -> int:
        luck = hashed(seed, purpose, stratum) / 2**64
        return min(int(n * share + luck), n - 1)

    strata = samples.strata()
    labelled = np.array([i for i in among if strata[i] != "unlabelled"], dtype=np.int64)
    chosen = choose_some([samples.keys[i] for i in labelled], [strata[i] for i in labelled], count, seed=seed, purpose=purpose)
    return labelled[chosen]


def choose_fold(samples: Samples, among: Ints, part: int, parts: int, *, seed: int) -> Ints:
    """One of `parts` disjoint, stratified parts of the samples `among`; positions, ascending.

    Together the parts hold every labelled sample, except those that are alone in their stratum.
    """
    strata = samples.strata()
    members: dict[str, list[int]] = {}
    for i in among.tolist():
        members.setdefault(strata[i], []).append(i)
    chosen: list[int] = []
    for stratum, inside in members.items():
        if stratum == "unlabelled" or len(inside) < 2:
            continue
        ranked = sorted(inside, key=lambda i: (hashed(seed, "fold", samples.keys[i]), samples.keys[i]))
        start = hashed(seed, "fold", stratum)  # so that small strata do not all start with the first part
        chosen += [i for rank, i in enumerate(ranked) if (start + rank) % parts == part]
    return np.array(sorted(chosen), dtype=np.int64)


def with_split(samples: Samples, positions: Ints, split: str) -> Samples:
    """The same samples, with some of them moved to another split."""
    new = samples.split.copy()
    new[positions] = split
    return dataclasses.replace(samples, split=new)


def hold_out_test(samples: Samples, share: float) -> Samples:
    """Set a test part aside if the data has none. It is always the same, so that runs can be compared."""
    if (samples.split == "test").any() or share == 0:
        return samples
    chosen = choose_share(samples, samples.index("train"), share, seed=0, purpose="test")
    if not len(chosen):
        raise DataError(f"{samples.name}: {len(samples)} samples are too few to set a test part aside; pass `test_share=0`")
    return with_split(samples, chosen, "test")


def with_prior(samples: Samples, prior: Hierarchy) -> Samples:
    """The samples with another tree of the same classes. Labels do not change, even if that tree contradicts them.

    Raises:
        DataError: when the levels or classes are not the same.
    """
    tree = samples.hierarchy
    if prior.levels != tree.levels:
        raise DataError(f"the prior has the levels {', '.join(prior.levels)}; {samples.name} has {', '.join(tree.levels)}")
    labels = samples.labels.copy()
    for k, names in enumerate(tree.classes):
        if extra := sorted(set(prior.classes[k]) - set(names)):
            raise DataError(
                f"the prior has a {tree.levels[k]} {extra[0]!r} that {samples.name} does not have; both need the same classes"
            )
        number = np.array([prior.index(k, name) for name in names] + [-1])
        labels[:, k] = number[labels[:, k]]
    return dataclasses.replace(samples, hierarchy=prior, labels=labels)


class Faults(Protocol):
    """Faults added on purpose, to measure their effect."""

    def perturb_tree(self, samples: Samples) -> Samples:
        """The samples with another tree; call it before labels are hidden."""
        ...

    def perturb_labels(self, samples: Samples) -> Samples:
        """The samples with wrong labels; call it after labels are hidden."""
        ...


# ---- masks: hide fine labels on a share of the training samples, to measure what coarse labels are worth -------------


@dataclass(frozen=True)
class Mask:
    """Hide the `levels` finest labels of a share `ratio` of the training samples of each finest class.

    The choice depends on the data, the ratio and the seed alone.

    Attributes:
        ratio: share R of samples whose fine labels are hidden, 0 to 1.
        levels: how many levels are hidden on them, counted from the finest.
        rounding: how many of n samples keep their label: `nominal` rounds n(1-R); `lht` takes int(n(1-R)) + 1 as the public
            LHT code does (794 instead of 599 on CUB at R = 0.9); `hrn` takes ceil(n(1-R)).
        minimum: labels kept in every class, whatever the ratio.
        seed: chooses the samples.
    """

    ratio: WholeShare = 0.0
    levels: Count = 1
    rounding: Rounding = "nominal"
    minimum: Many = 1
    seed: Seed = 0

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Mask, include_extras=True).items():
            fitting("mask" if name == "ratio" else f"mask_{name}", getattr(self, name), hint)

    def kept_of(self, n: int) -> int:
        """How many of n samples of a class keep their fine label."""
        share = n * (1 - Fraction(str(self.ratio)))  # exact: 30 * (1 - 0.9) is 2.9999999999999996 in floating point
        if self.ratio == 0:
            return n
        count = {"nominal": floor(share + Fraction(1, 2)), "lht": floor(share) + 1, "hrn": ceil(share)}[self.rounding]
        return min(max(count, self.minimum), n)

    def apply(self, samples: Samples) -> tuple[Samples, Ints]:
        """The samples with labels hidden, and the positions of the training samples that keep their finest label.

        Where a branch ends above the hidden levels, nothing can be hidden: its end is the finest label.
        """
        depth = len(samples.hierarchy)
        if self.ratio and self.levels >= depth:
            raise ConfigError(
                f"`mask_levels={self.levels}` would hide everything: {samples.name} has {depth} levels and the coarsest stays"
            )
        known = np.flatnonzero((samples.split == "train") & (samples.labels[:, 0] >= 0))
        names = samples.hierarchy.classes[0]
        kept = choose_some(
            [samples.keys[i] for i in known],
            [names[samples.labels[i, 0]] for i in known],
            lambda _, n: self.kept_of(n),
            seed=self.seed,
            purpose="mask",
        )
        labels = samples.labels.copy()
        labels[known[~kept], : self.levels] = -1
        labels = samples.hierarchy.complete(labels)
        return dataclasses.replace(samples, labels=labels), known[labels[known, 0] >= 0]


@entrance
def read_data(
    source: str | Path,
    *,
    hierarchy: Hierarchy | None = None,
    levels: Sequence[str] | None = None,
    unknown: Sequence[str] = (),
    bars: bool = False,
) -> Samples:
    """Read a dataset with one label per sample at each level.

    Args:
        source: a folder of pictures, a .csv/.tsv table, an .npz of features, shards (their folder, a pattern such as
            `birds/shards-{000000..000099}.tar`, or an address), `demo`, or a prepared benchmark such as `cub`.
        hierarchy: the tree to read it with; the data's own by default.
        levels: level names, coarse → fine, if the data does not name them or has other columns too.
        unknown: names that mean that a label is missing, such as `unknown`, in any case.
        bars: whether a `|` in a table is part of a name; otherwise it separates several labels, which are refused.

    Raises:
        DataError: when the data cannot be used; it names the place and what to do.
        HierarchyError: when its labels do not form a tree; it lists every problem.
    """
    place = as_place(source)
    if is_known(source):
        place, tree = known_names()[str(source)]()
        hierarchy = hierarchy or (Hierarchy.read(tree) if tree and not levels else None)
    if hierarchy is None and not bars:
        _refuse_several(source, levels)
    reader = source_of(place)
    if reader is None:
        raise _not_data(source) if place.exists() else absent(source)
    try:
        samples = _read(reader, place, hierarchy, levels, unknown)
        if not samples.hierarchy.sizes[0]:
            raise DataError(f"{source}: no labels at all; at least two classes are needed")
        if samples.hierarchy.sizes[0] < 2:
            raise DataError(f"{source}: only one class, {samples.hierarchy.classes[0][0]!r}; a classifier needs at least two")
    except DataError as error:
        if reader.name == "folder" and (inside := _data_inside(place)):
            raise DataError(f"{error.message}; or pass {inside}, which is data") from None
        raise
    return samples


def _read(
    reader: Source, place: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Sequence[str]
) -> Samples:
    if not unknown:
        return reader.read(place, hierarchy, levels)
    if reader.read_without is None:
        raise ConfigError(f"`unknown` is for tables and folders, not for {reader.what}: mark unknown labels there")
    return reader.read_without(place, hierarchy, levels, {name.strip().casefold() for name in unknown})


def _data_inside(folder: Path) -> Path | None:
    """Data that another tool wrote into a folder, beside its pictures or in parts."""
    for one in sorted(folder.iterdir()):
        found = source_of(one)
        if one.name == "metadata.csv" or (found is not None and found.name not in PLAIN):
            return one
    return None


def _refuse_several(source: str | Path, levels: Sequence[str] | None) -> None:
    """Raise DataError for a table or an .arff with several labels per sample. An .npz is refused where it is read."""
    from torchlht.data.several import Asked, is_several

    if as_place(source).suffix.lower() != ".npz" and is_several(source, Asked(levels=tuple(levels) if levels else None)):
        takes = "only lht data preview, train, compare, evaluate and predict take those"
        raise DataError(f"{source}: has several labels per sample; {takes}")


def _not_data(name: str | Path) -> DataError:
    """What to raise for a place that no source reads."""
    *kinds, last = [source.what for source in sources()]
    return DataError(f"{name}: not data; pass {', '.join(kinds)}, or {last}")


@functools.cache
def sources() -> tuple[Source, ...]:
    """The sources of `data/sources` and of installed packages, in the order they are tried."""
    package = importlib.import_module("torchlht.data.sources")
    files = [importlib.import_module(f"{package.__name__}.{file.name}") for file in pkgutil.iter_modules(package.__path__)]
    found: list[Source] = [*(file.SOURCE for file in files), *plugins("torchlht.sources").values()]
    return tuple(sorted(found, key=lambda source: (source.order, source.name)))


def source_of(place: Path) -> Source | None:
    """The source that reads a place, or None."""
    return next((source for source in sources() if source.reads(place)), None)


def is_plain_folder(place: Path) -> bool:
    """Whether a place is a folder whose folders are classes, not one that another tool wrote."""
    reader = source_of(place)
    return reader is not None and reader.name == "folder"


def lasting_name(source: str) -> str:
    """A dataset as a run records it: by name, address or absolute path."""
    return source if is_known(source) or as_url(source) else str(as_place(source).resolve())


def short_name(source: str) -> str:
    """A dataset's short name, for run directories."""
    place = as_place(source)
    reader = None if is_known(source) else source_of(place)
    return reader.called(place) if reader else place.stem
