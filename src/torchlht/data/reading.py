"""Reading `Samples` from any place that `data/sources` knows, or by a name that an installed package knows."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from pathlib import Path

from torchlht.data.places import as_place, as_url
from torchlht.data.samples import Samples, Source
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.plugins import plugins

Known = Callable[[], tuple[Path, Path | None]]  # returns the place of the data and the file of its tree, if any


def read_data(source: str | Path, *, hierarchy: Hierarchy | None = None, levels: Sequence[str] | None = None) -> Samples:
    """Read a dataset.

    Args:
        source: a folder of pictures, a .csv/.tsv table, an .npz of features, shards (their folder, a pattern such as
            `birds/shards-{000000..000099}.tar`, or an address), `demo`, or a prepared benchmark such as `cub`.
        hierarchy: the tree to read it with; the data's own by default.
        levels: level names, coarse → fine, if the data does not name them or has other columns too.

    Raises:
        DataError: when the data cannot be used; it names the place and what to do.
        HierarchyError: when its labels do not form a tree; it lists every problem.
    """
    place = as_place(source)
    if is_known(source):
        place, tree = known_names()[str(source)]()
        hierarchy = hierarchy or (Hierarchy.read(tree) if tree and not levels else None)
    reader = source_of(place)
    if reader is None:
        raise DataError(f"{source}: {_why_not(place)}")
    samples = reader.read(place, hierarchy, levels)
    if not samples.hierarchy.sizes[0]:
        raise DataError(f"{source}: no labels at all; at least two classes are needed")
    if samples.hierarchy.sizes[0] < 2:
        raise DataError(f"{source}: only one class, {samples.hierarchy.classes[0][0]!r}; a classifier needs at least two")
    return samples


def _why_not(place: Path) -> str:
    """The message about a place that no source reads."""
    if not place.exists():
        return f"no such file or folder, and not a dataset known by name (known: {', '.join(known_names())})"
    *kinds, last = [source.what for source in sources()]
    return f"not data; pass {', '.join(kinds)}, or {last}"


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


def known_names() -> dict[str, Known]:
    """Datasets known by name: the tables that installed packages offer under `torchlht.datasets`."""
    return {name: known for names in plugins("torchlht.datasets").values() for name, known in names.items()}


def is_known(source: str | Path) -> bool:
    """Whether a dataset is known by name; a file or folder of that name takes precedence."""
    return str(source) in known_names() and not Path(source).exists()


def lasting_name(source: str) -> str:
    """A dataset as a run records it: by name, address or absolute path."""
    return source if is_known(source) or as_url(source) else str(as_place(source).resolve())


def short_name(source: str) -> str:
    """A dataset's short name, for run directories."""
    place = as_place(source)
    reader = None if is_known(source) else source_of(place)
    return reader.called(place) if reader else place.stem
