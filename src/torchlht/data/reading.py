"""Reading data: a folder, a table, shards, an embeddings file or a name, always into `Samples`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torchlht.data.masking import Mask
from torchlht.data.places import as_place, as_url
from torchlht.data.samples import Samples
from torchlht.data.sources.embeddings import read_embeddings
from torchlht.data.sources.folder import read_folder
from torchlht.data.sources.shards import is_shards, name_of_shards, read_shards
from torchlht.data.sources.table import read_table_data
from torchlht.errors import DataError
from torchlht.files import cache_dir
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.prepare import BENCHMARKS, prepared_table
from torchlht.lab.demo import write_demo

__all__ = ["Mask", "Samples", "read_data"]

NAMES = ("demo", *BENCHMARKS)


def read_data(source: str | Path, *, hierarchy: Hierarchy | None = None, levels: Sequence[str] | None = None) -> Samples:
    """Read a dataset.

    Args:
        source: a folder of pictures, a .csv/.tsv table, an .npz of features, shards (their folder, a pattern such as
            `birds/shards-{000000..000099}.tar`, or an address), `demo`, or a benchmark that was prepared, such as `cub`.
        hierarchy: the tree to read it with; without one the data's own is used.
        levels: level names, coarse → fine, where the data does not name them or holds other columns too.

    Raises:
        DataError: when the data cannot be used, with the place and what to do.
        HierarchyError: when its labels do not form a tree, with every fault.
    """
    path = demo_path() if str(source) == "demo" else as_place(source)
    if str(source) in BENCHMARKS and not path.exists():
        path = prepared_table(str(source))
        hierarchy = hierarchy or (None if levels else Hierarchy.read(path.with_name("hierarchy.json")))
    if is_shards(path):
        samples = read_shards(path, hierarchy=hierarchy, levels=levels)
    elif path.is_dir():
        samples = read_folder(path, hierarchy=hierarchy, levels=levels)
    elif not path.is_file():
        raise DataError(f"{source}: no such file or folder, and not a dataset known by name (known: {', '.join(NAMES)})")
    elif path.suffix.lower() == ".npz":
        samples = read_embeddings(path, hierarchy=hierarchy, levels=levels)
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        samples = read_table_data(path, hierarchy=hierarchy, levels=levels)
    else:
        raise DataError(f"{source}: data is a folder of pictures, a .csv or .tsv table, or an .npz of features; or .tar shards")
    if not samples.hierarchy.sizes[0]:
        raise DataError(f"{source}: no labels at all; at least two classes are needed")
    if samples.hierarchy.sizes[0] < 2:
        raise DataError(f"{source}: only one class, {samples.hierarchy.classes[0][0]!r}; a classifier needs at least two")
    return samples


def demo_path(seed: int = 0) -> Path:
    """The table of the drawn birds, drawn on first use."""
    return write_demo(cache_dir() / f"demo-{seed}", seed=seed)


def lasting_name(source: str) -> str:
    """A dataset as a run remembers it: by its name or address, or by its whole path, wherever it is asked from."""
    return source if source in NAMES or as_url(source) else str(as_place(source).resolve())


def short_name(source: str) -> str:
    """A dataset as the names of run directories have it."""
    return name_of_shards(source) if source not in NAMES and is_shards(source) else Path(source).stem
