"""Benchmarks by name: check an official archive and write its table and tree, which `lht train NAME` then finds.

Nothing is downloaded, copied or changed: the table names the pictures in their place.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.files import cache_dir, csv_text, refuse_replacing, write_text

if TYPE_CHECKING:
    from torchlht.hierarchy.tree import Hierarchy
    from torchlht.lab.benchmarks.archive import Archive, Request

__all__ = ["BENCHMARKS", "Benchmark", "Prepared", "find_benchmark", "prepare", "prepare_benchmark", "prepared_table"]

TREE, PRIOR, TARGETS = "hierarchy.json", "prior.json", "targets.txt"


@dataclass(frozen=True)
class Benchmark:
    """A dataset with an official archive.

    Attributes:
        name: its name in commands.
        title: its official title.
        where: its official home, in words and with its address.
        levels: names of its levels, coarse → fine.
        sizes: how many classes each level has, fine first.
        splits: how many pictures each split has, or the numbers of several editions; under `all`, the total.
        read: reads the archive in a folder.
        trees: the trees it offers.
        modes: the perturbations it offers, one of which must be chosen.
    """

    name: str
    title: str
    where: str
    levels: tuple[str, ...]
    sizes: tuple[int, ...]
    splits: Mapping[str, int | tuple[int, ...]]
    read: Callable[[Path, Request], Archive] = field(repr=False)
    trees: tuple[str, ...] = ("default",)
    modes: tuple[str, ...] = ()

    def describe(self) -> str:
        """One line with levels and their sizes."""
        pairs = zip(self.levels, reversed(self.sizes), strict=True)
        return " › ".join(f"{level} {size}" for level, size in pairs)

    def describe_splits(self) -> str:
        """One line with numbers of pictures."""
        return " · ".join(f"{split} {_either(_numbers(count))}" for split, count in self.splits.items())

    def check(self, tree: str, mode: str | None) -> None:
        """Raise ConfigError for a tree or perturbation it does not offer, and for no perturbation if it needs one."""
        if tree not in self.trees:
            raise ConfigError(f"`tree` is {tree}: {self.name} has no such tree (it has {', '.join(self.trees)})")
        if self.modes and mode not in self.modes:
            raise ConfigError(f"`mode` is {mode}: {self.name} needs one of {', '.join(self.modes)}")
        if mode is not None and not self.modes:
            raise ConfigError(f"`mode` is {mode}: only aircraft-perturbed has modes; leave it out")


def _by(file: str, name: str) -> Callable[[Path, Request], Archive]:
    """A reader in a file next to this one, imported when it reads: the names of benchmarks are needed more often."""

    def read(folder: Path, request: Request) -> Archive:
        found: Archive = getattr(importlib.import_module(f"torchlht.lab.benchmarks.{file}"), name)(folder, request)
        return found

    return read


RANKS = ("kingdom", "phylum", "class", "order", "family", "genus", "species")
FGVC = "Oxford's Visual Geometry Group, https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/"
AIRCRAFT_LEVELS, AIRCRAFT_SIZES = ("maker", "family", "model"), (100, 70, 30)
ENTRIES = (
    Benchmark(
        "cub",
        "Caltech-UCSD Birds-200-2011",
        "Caltech, https://www.vision.caltech.edu/datasets/cub_200_2011/",
        ("order", "family", "species"),
        (200, 38, 13),
        {"train": 5_994, "test": 5_794},
        _by("cub", "read_cub"),
        trees=("default", "published"),
    ),
    Benchmark(
        "aircraft",
        "FGVC-Aircraft",
        FGVC,
        AIRCRAFT_LEVELS,
        AIRCRAFT_SIZES,
        {"train": 6_667, "test": 3_333},
        _by("aircraft", "read_aircraft"),
    ),
    Benchmark(
        "aircraft-perturbed",
        "FGVC-Aircraft with a perturbed tree",
        FGVC,
        AIRCRAFT_LEVELS,
        AIRCRAFT_SIZES,
        {"train": 6_667, "test": 3_333},
        _by("aircraft", "read_perturbed"),
        modes=("stale_prior", "renamed", "rewired"),
    ),
    Benchmark(
        "cars",
        "Stanford Cars",
        "Stanford, https://ai.stanford.edu/~jkrause/cars/car_dataset.html, whose links are dead: use a copy in either layout",
        ("type", "model"),
        (196, 9),
        {"train": 8_144, "test": 8_041},
        _by("cars", "read_cars"),
    ),
    Benchmark(
        "isic2018",
        "ISIC 2018 task 3 (HAM10000)",
        "the ISIC challenge, https://challenge.isic-archive.com/data/#2018",
        ("origin", "nature", "diagnosis"),
        (7, 4, 2),
        {"all": 10_015},
        _by("isic", "read_isic"),
    ),
    Benchmark(
        "ilsvrc-lowshot",
        "ILSVRC 2012 with the 360 further classes of ILSVRC 2010",
        "ImageNet, https://image-net.org/download.php",
        ("class",),
        (1360,),
        {"train": 1000 * 200 + 360 * 150},
        _by("ilsvrc", "read_ilsvrc"),
    ),
    Benchmark(
        "cifar100",
        "CIFAR-100 (python version)",
        "Toronto, https://www.cs.toronto.edu/~kriz/cifar.html",
        ("superclass", "class"),
        (100, 20),
        {"train": 50_000, "test": 10_000},
        _by("vision", "read_cifar100"),
    ),
    Benchmark(
        "fashion-mnist",
        "Fashion-MNIST",
        "Zalando Research, https://github.com/zalandoresearch/fashion-mnist",
        ("kind", "group", "article"),
        (10, 6, 2),
        {"train": 60_000, "test": 10_000},
        _by("vision", "read_fashion"),
    ),
    Benchmark(
        "inat2021",
        "iNaturalist 2021",
        "the iNaturalist competition, https://github.com/visipedia/inat_comp/tree/master/2021",
        RANKS,
        (10_000, 4_884, 1_103, 273, 51, 13, 3),
        {"train": (2_686_843, 500_000), "test": 100_000},
        _by("vision", "read_inat"),
    ),
)
BENCHMARKS = {entry.name: entry for entry in ENTRIES}


class Prepared(NamedTuple):
    """A prepared benchmark: the table, every file written, the tree, and how many pictures each split has."""

    table: Path
    written: tuple[Path, ...]
    tree: Hierarchy
    splits: dict[str, int]


def find_benchmark(name: str) -> Benchmark:
    """A benchmark by name. Raises ConfigError, with the nearest names, when it is unknown."""
    if name not in BENCHMARKS:
        raise ConfigError(f"unknown benchmark {name!r}: {suggestion(name, BENCHMARKS)}")
    return BENCHMARKS[name]


def prepared_table(name: str) -> Path:
    """The table of a prepared benchmark. Raises DataError, with what to do, when it has not been prepared."""
    benchmark, table = find_benchmark(name), _home(name) / f"{name}.csv"
    if not table.is_file() or not table.with_name(TREE).is_file():
        mode = f" --mode {'|'.join(benchmark.modes)}" if benchmark.modes else ""
        raise DataError(f"{name} is not prepared yet: lht data prepare {name} --root DIR{mode} (get it from {benchmark.where})")
    return table


def _known(name: str) -> tuple[Path, Path]:
    table = prepared_table(name)
    return table, table.with_name(TREE)


def _demo() -> tuple[Path, None]:
    from torchlht.lab.demo import demo_table

    return demo_table(), None


def _pairs() -> tuple[Path, None]:
    from torchlht.lab.pairs import demo_pairs

    return demo_pairs(), None


NAMED = {"demo": _demo, **{name: partial(_known, name) for name in BENCHMARKS}, "demo-pairs": _pairs}  # to `read_data`


def prepare_benchmark(
    name: str, root: str | Path, out: str | Path | None = None, *, tree: str = "default", mode: str | None = None, seed: int = 0
) -> Path:
    """Check an official archive and write its table and tree.

    Args:
        name: one of `BENCHMARKS`.
        root: the folder the archive was unpacked in, or the archive's own folder.
        out: where to write; by default where `read_data(name)` looks.
        tree: `default`, or `published` for the tree of CUB that published numbers were measured with.
        mode: the perturbation, which only aircraft-perturbed has and needs.
        seed: seed for the split of isic2018 and for what aircraft-perturbed changes.

    Returns:
        The table.

    Raises:
        DataError: when the archive is incomplete; it lists everything missing and where to get it.
        ConfigError: when there is no such benchmark, tree or mode.
    """
    return prepare(name, Path(root), Path(out) if out else None, tree=tree, mode=mode, seed=seed).table


def prepare(name: str, root: Path, out: Path | None, *, tree: str, mode: str | None, seed: int) -> Prepared:
    """As `prepare_benchmark`; returns all that a summary needs."""
    from torchlht.lab.benchmarks.archive import Request

    benchmark = find_benchmark(name)
    benchmark.check(tree, mode)
    try:
        archive = benchmark.read(root.resolve(), Request(tree, mode, seed))
    except DataError as error:
        raise DataError(f"{error}; get {benchmark.title} from {benchmark.where}") from None
    splits = _count(archive)
    if faults := [*_size_faults(benchmark, archive), *_split_faults(benchmark, splits), *_absence_faults(archive)]:
        raise DataError(f"{root}: {'; '.join(faults)}; get {benchmark.title} from {benchmark.where}")
    table, written = _write(archive, out or _home(name), name)
    return Prepared(table, written, archive.tree, splits)


def _home(name: str) -> Path:
    """The default folder of a prepared benchmark."""
    return cache_dir() / "data" / name


# ---- checking ------------------------------------------------------------------------------------------------------


def _count(archive: Archive) -> dict[str, int]:
    """How many pictures each split has."""
    splits: dict[str, int] = {}
    for picture in archive.pictures:
        splits[picture.split] = splits.get(picture.split, 0) + 1
    return splits


def _numbers(count: int | tuple[int, ...]) -> tuple[int, ...]:
    return count if isinstance(count, tuple) else (count,)


def _either(numbers: tuple[int, ...]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)


def _split_faults(benchmark: Benchmark, splits: Mapping[str, int]) -> Iterator[str]:
    """Splits with more or fewer pictures than the official ones."""
    for split, count in benchmark.splits.items():
        found = sum(splits.values()) if split == "all" else splits.get(split, 0)
        if found not in _numbers(count):
            which = "" if split == "all" else f"{split} "
            yield f"{found:,} {which}pictures instead of {_either(_numbers(count))}"


def _size_faults(benchmark: Benchmark, archive: Archive) -> Iterator[str]:
    """Levels with more or fewer classes, among those that have pictures, than the official ones."""
    present = sorted({picture.leaf for picture in archive.pictures})
    for k, expected in enumerate(benchmark.sizes):
        found = len(set(archive.tree.ancestors(k)[present].tolist()))
        if expected not in (found, archive.names[k] if archive.names else found):
            yield f"{found:,} classes of level {archive.tree.levels[k]} instead of {expected:,}"


def _absence_faults(archive: Archive) -> Iterator[str]:
    """Pictures that the archive lists but does not hold."""
    from torchlht.lab.benchmarks.archive import absent

    if missing := absent(archive.pictures):
        yield f"{len(missing):,} of {len(archive.pictures):,} pictures are missing, the first is {missing[0]}"


# ---- writing -------------------------------------------------------------------------------------------------------


def _write(archive: Archive, folder: Path, name: str) -> tuple[Path, tuple[Path, ...]]:
    """Write the tree, other files, and the table last: if it exists, everything does."""
    table = folder / f"{name}.csv"
    header = ",".join(next(_rows(archive)))
    refuse_replacing(table, "a table of lht data prepare", lambda path: path.read_bytes().startswith(header.encode()))
    from torchlht.hierarchy.reading import FORMAT

    refuse_replacing(folder / TREE, "a tree of lht data prepare", lambda path: FORMAT.encode() in path.read_bytes()[:99])
    archive.tree.write(folder / TREE)
    written = [folder / TREE]
    if archive.prior:
        archive.prior.write(folder / PRIOR)
        written.append(folder / PRIOR)
    if archive.targets:
        write_text(folder / TARGETS, "".join(f"{target}\n" for target in archive.targets))
        written.append(folder / TARGETS)
    if table.is_file() and not archive.prior:
        (folder / PRIOR).unlink(missing_ok=True)  # of another mode, prepared here before
    write_text(table, csv_text(_rows(archive)))
    return table, (table, *written)


def _rows(archive: Archive) -> Iterator[tuple[str, ...]]:
    """The lines of the table, header first."""
    tree = archive.tree
    columns = [(tree.classes[k], tree.ancestors(k).tolist()) for k in tree.top_down]
    labels = [tuple(names[up[leaf]] for names, up in columns) for leaf in range(tree.sizes[0])]
    yield ("path", *(tree.levels[k] for k in tree.top_down), "split")
    for picture in archive.pictures:
        yield (picture.path, *labels[picture.leaf], picture.split)
