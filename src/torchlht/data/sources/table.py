"""A CSV or TSV: a column `path`, one column per level, blanks for unknown labels, and optionally a column `split`.

path,order,family,species,split
a.jpg,Charadriiformes,Laridae,Ivory Gull,train
b.jpg,Charadriiformes,Laridae,,train
c.jpg,,,Ivory Gull,test                         family and order follow from the tree
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np

from torchlht.data.downloads import HOW, downloaded
from torchlht.data.pictures import Picture, as_url, is_there, picture_at
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_of, tree_of
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.reading import Table, read_table
from torchlht.hierarchy.tree import Hierarchy

PATH_COLUMNS = ("path", "file", "filename", "file_name", "image", "image_url")
"""Of these, file_name is in metadata.csv of Hugging Face, and image_url in what iNaturalist exports."""
MANY = 10
"""So many values, all different, are no classes."""
FRACTION = re.compile(r"[+-]?\d+[.]\d+([eE][+-]?\d+)?")
NO_LEVELS = frozenset(("id", "lat", "lon", "lng", "latitude", "longitude", "date", "time", "timestamp", "url", "notes"))


def read_table_data(
    path: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read a table of pictures; the tree comes from its rows unless one is given. `unknown` names are blanks."""
    table = read_table(path)
    if table.faults:
        raise HierarchyError(str(path), table.faults)
    if not table.rows:
        raise DataError(f"{path}: it has a header but no rows")
    of_paths = path_column(table, path)
    names = _level_columns(table, path, of_paths, hierarchy, levels)
    columns = [table.columns.index(name) for name in names]
    blank = {"", *unknown}
    rows = [
        Row(f"line {line}", tuple(None if cells[c].casefold() in blank else cells[c] for c in columns))
        for line, cells in table.rows
    ]
    tree = hierarchy or tree_of(rows, names, path)

    where, files = [f"{path} {row.where}" for row in rows], files_in(table, path)
    labels = np.array([label_of(tree, names, row.names, place) for row, place in zip(rows, where, strict=True)])
    return Samples(
        path.stem,
        tree,
        stable_keys(files),
        tree.fill(labels, where=where.__getitem__),
        np.array(splits_of(table, where)),
        images=tuple(picture_at(path.parent / file) for file in files),
    )


def files_in(table: Table, path: Path) -> list[str]:
    """The file that each row names, of an address the one that was downloaded.

    Raises DataError for a row that names none, and if no address was downloaded.
    """
    of_paths, home = path_column(table, path), path.parent
    named = [cells[table.columns.index(of_paths)] for _, cells in table.rows]
    lines = [f"{path} line {line}" for line, _ in table.rows]
    if "" in named:
        raise DataError(f"{lines[named.index('')]}: {of_paths} is empty; every row must name its picture")
    files = [downloaded(home, url) if (url := as_url(name)) else name for name in named]
    remote = [i for i, name in enumerate(named) if as_url(name)]
    if remote and not any(is_there(home / files[i]) for i in remote):
        first = remote[0]
        instead = f"a table names files on this computer, and this one belongs to {home / files[first]}: {HOW}"
        raise DataError(f"{lines[first]}: {named[first]} is an address; {instead}")
    return files


def listed(path: Path) -> tuple[list[Picture], list[str]]:
    """The pictures of a table, each once, and the part that each belongs to. Labels do not matter."""
    table = read_table(path)
    if table.faults:
        raise HierarchyError(str(path), table.faults)
    splits = splits_of(table, [f"{path} line {line}" for line, _ in table.rows])
    parts = dict(zip(files_in(table, path), splits, strict=True))
    return [picture_at(path.parent / file) for file in parts], list(parts.values())


def stable_keys(files: Sequence[str]) -> tuple[str, ...]:
    """Names that do not change when the data moves: the paths, or, if all are absolute, their parts below the common folder."""
    if not all(Path(file).is_absolute() for file in files):
        return tuple(files)
    folder = os.path.commonpath([str(Path(file).parent) for file in files])
    return tuple(Path(os.path.relpath(file, folder)).as_posix() for file in files)


def path_column(table: Table, path: Path) -> str:
    """The column that names the pictures."""
    for name in PATH_COLUMNS:
        if name in table.columns:
            return name
    raise DataError(f"{path}: no column 'path' naming the pictures (columns: {', '.join(table.columns)})")


def _level_columns(
    table: Table, path: Path, of_paths: str, hierarchy: Hierarchy | None, levels: Sequence[str] | None
) -> list[str]:
    """The columns that hold labels, coarse → fine."""
    others = [name for name in table.columns if name not in (of_paths, "split")]
    if hierarchy:
        wanted = [hierarchy.levels[k] for k in hierarchy.top_down if hierarchy.levels[k] in others]
        if not wanted:
            raise DataError(f"{path}: no column for any level of the tree ({', '.join(hierarchy.levels[::-1])})")
        return wanted
    if not levels:
        refuse_doubtful(table, path, others)
    wanted = list(levels) if levels else others
    if absent := [name for name in wanted if name not in others]:
        raise DataError(f"{path}: no column {absent[0]!r} (columns: {', '.join(table.columns)})")
    if not wanted:
        raise DataError(f"{path}: no columns besides {of_paths!r}; add one column per level, coarse → fine")
    return wanted


def refuse_doubtful(table: Table, path: Path, names: Sequence[str]) -> None:
    """Raise DataError if some columns hardly are levels: their number alone does not say which are."""
    columns = {name: [cells[table.columns.index(name)] for _, cells in table.rows] for name in names}
    doubtful = [(name, why) for name, cells in columns.items() if (why := doubt_about(name, cells))]
    if doubtful:
        said = " and ".join(f"{name!r} {why}" for name, why in doubtful[:2])
        rest = [name for name in names if name not in dict(doubtful)] or names
        raise DataError(f"{path}: which columns are levels? {said}; name them, coarse → fine: `levels={','.join(rest)}`")


def doubt_about(name: str, cells: Sequence[str]) -> str | None:
    """Why a column is hardly a level, or None."""
    values = [cell for cell in cells if cell]
    if len(values) >= MANY and len(set(values)) == len(values):
        return "has as many values as rows"
    if values and all(FRACTION.fullmatch(value) for value in values):
        return "holds fractions"
    return "is seldom one" if name.casefold() in NO_LEVELS else None


def splits_of(table: Table, where: Sequence[str]) -> list[str]:
    """The part of each row: train, val or test."""
    if "split" not in table.columns:
        return ["train"] * len(table.rows)
    column = table.columns.index("split")
    splits = []
    for (_, cells), place in zip(table.rows, where, strict=True):
        value = cells[column].lower() or "train"
        if value not in SPLIT_NAMES:
            raise DataError(f"{place}: split is {cells[column]!r}; it must be train, val or test")
        splits.append(SPLIT_NAMES[value])
    return splits


SOURCE = Source(
    "table",
    "a .csv or .tsv table",
    lambda place: place.suffix.lower() in (".csv", ".tsv", ".txt") and place.is_file(),
    read_table_data,
    order=30,
    read_without=read_table_data,
)
