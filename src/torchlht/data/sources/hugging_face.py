"""Folders of Hugging Face `datasets`, as `save_to_disk` writes them or the hub holds them; .parquet and .arrow files.

    birds/dataset_dict.json                          birds/data/train-00000-of-00002.parquet
    birds/train/state.json, data-….arrow, …          birds/data/test-00000-of-00001.parquet

A row is a sample: a column of pictures, and columns of type ClassLabel (or of names) that are the levels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec
import numpy as np

from torchlht.data.pictures import FilePicture, Picture
from torchlht.data.rows import ROW_SUFFIXES, RowPicture, Rows, linked, open_rows, told
from torchlht.data.samples import (
    SPLIT_NAMES,
    Samples,
    Source,
    label_by_name,
    label_of,
    split_in,
    tree_of,
)
from torchlht.data.sources.table import doubt_about
from torchlht.doors import read_json
from torchlht.errors import DataError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.reading import subfolders
from torchlht.hierarchy.tree import Hierarchy

DICT, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
HOMES = ("data", "default", *SPLIT_NAMES)
"""Folders in which the hub keeps .parquet files."""


class Splits(msgspec.Struct):
    """The content of dataset_dict.json."""

    splits: list[str]


class DataFile(msgspec.Struct):
    """A file of a dataset on disk."""

    filename: str


class State(msgspec.Struct):
    """The content of state.json."""

    data_files: list[DataFile] = msgspec.field(name="_data_files")
    indices: list[DataFile] = msgspec.field(name="_indices_data_files", default_factory=list)


class Part(NamedTuple):
    """A file of rows, its split, and its name in the keys of samples."""

    rows: Rows
    split: str | None
    name: str


def is_hugging_face(place: Path) -> bool:
    """Whether a place is a .parquet or .arrow file, a folder that `save_to_disk` wrote, or one with .parquet files."""
    if place.suffix.lower() in ROW_SUFFIXES and place.is_file():
        return True
    if not place.is_dir():
        return False
    saved = (place / DICT).is_file() or ((place / STATE).is_file() and (place / INFO).is_file())
    return saved or bool(_parquets(place))


def _parquets(folder: Path) -> list[Path]:
    """The .parquet files of a folder: in it, if there are no other folders, or in those that the hub uses."""
    homes = [one for one in subfolders(folder) if one.name.lower() in HOMES]
    deeper = [one for home in homes if home.name == "default" for one in subfolders(home)]
    alone = [folder] if len(homes) == len(subfolders(folder)) else []
    return sorted(
        file for home in (*alone, *homes, *deeper) for file in home.glob("*.parquet") if file.stem != "metadata"
    )  # beside a metadata.parquet lie pictures


def find_parts(place: Path) -> list[Part]:
    """The files of a dataset, with their splits; None for all if there is only one."""
    found = [(file, split) for file, split in _files(place)]
    several = len({split or "train" for _, split in found}) > 1
    home = place.parent if place.is_file() else place
    return [Part(open_rows(file), split if several else None, file.relative_to(home).as_posix()) for file, split in found]


def _files(place: Path) -> Iterator[tuple[Path, str | None]]:
    if place.is_file():
        yield place, None
    elif (place / DICT).is_file():
        for name in read_json(place / DICT, Splits).splits:
            if name.lower() not in SPLIT_NAMES:
                raise DataError(
                    f"{place / DICT}: split {name!r} is none of train, val and test; pass the folder {place / name}"
                )
            yield from ((file, SPLIT_NAMES[name.lower()]) for file in _saved(place / name))
    elif (place / STATE).is_file():
        yield from ((file, None) for file in _saved(place))
    else:
        for file in _parquets(place):
            yield file, split_in(file.stem) or split_in(file.parent.relative_to(place).as_posix())


def _saved(folder: Path) -> list[Path]:
    """The files that state.json lists."""
    state = read_json(folder / STATE, State)
    if state.indices:
        raise DataError(f"{folder}: its rows are chosen by an index; in Python, call flatten_indices() before save_to_disk()")
    names = [file.filename for file in state.data_files]
    if strange := [name for name in names if name != Path(name).name or not name.lower().endswith(ROW_SUFFIXES)]:
        raise DataError(f"{folder / STATE}: {strange[0]!r} is no .arrow or .parquet file beside it")
    return [folder / name for name in names]


# ---- reading -------------------------------------------------------------------------------------------------------


def read_hugging_face(
    place: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read a dataset; the tree comes from its columns unless one is given. `unknown` names are blanks."""
    parts = find_parts(place)
    if not any(part.rows.count for part in parts):
        raise DataError(f"{place}: holds no rows")
    names = _level_columns(place, parts[0].rows, hierarchy, levels)
    rows = [row for part in parts for row in _rows(part, names, {"", *unknown})]
    by_level = hierarchy is None or set(names) <= set(hierarchy.levels)
    tree = hierarchy or tree_of(rows, names, place)
    where = [f"{place} {row.where}" for row in rows]
    labels = np.array(
        [
            label_of(tree, names, row.names, at) if by_level else label_by_name(tree, row.names[0], at)
            for row, at in zip(rows, where, strict=True)
        ]
    )
    pictures, paths = zip(*(_pictures(part) for part in parts), strict=True)
    return Samples(
        place.stem,
        tree,
        _keys(parts, paths),
        tree.fill(labels, where=where.__getitem__),
        np.array([part.split or "train" for part in parts for _ in range(part.rows.count)]),
        images=tuple(picture for some in pictures for picture in some),
    )


def _rows(part: Part, names: Sequence[str], blank: Set[str]) -> Iterator[Row]:
    """The class names of each row, coarse → fine."""
    if absent := [name for name in names if name not in part.rows.names]:
        raise DataError(f"{part.rows.file}: no column {absent[0]!r} (columns: {', '.join(part.rows.names)})")
    declared = part.rows.features
    with told(part.rows.file):
        columns = [_names(part, name, part.rows.column(name).to_pylist(), declared.get(name, {})) for name in names]
    for i, cells in enumerate(zip(*columns, strict=True)):
        yield Row(f"{part.name} row {i}", tuple(None if cell.casefold() in blank else cell for cell in cells))


def _names(part: Part, column: str, values: list[Any], declared: dict[str, Any]) -> list[str]:
    """The values of a column as names, "" where unknown: the numbers of a ClassLabel stand for its names, -1 for none."""
    known = declared.get("names") if declared.get("_type") == "ClassLabel" else None
    if not isinstance(known, list) or not all(isinstance(value, int | None) for value in values):
        if strange := next((value for value in values if not isinstance(value, str | int | None)), None):
            raise DataError(f"{part.rows.file}: {column!r} holds {type(strange).__name__}s, which name no class")
        return ["" if value is None or value == -1 else str(value).strip() for value in values]
    wrong = next((i for i, value in enumerate(values) if value is not None and not -1 <= value < len(known)), None)
    if wrong is not None:
        raise DataError(
            f"{part.rows.file} row {wrong}: {column} is {values[wrong]}, but the schema has {len(known)} names for it"
        )
    return ["" if value is None or value < 0 else str(known[value]).strip() for value in values]


def _level_columns(place: Path, rows: Rows, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> list[str]:
    """The columns that hold classes, coarse → fine: those asked for or, without, those of type ClassLabel, or of names."""
    columns, picture, declared = rows.names, rows.picture_column(), rows.features
    shown = ", ".join(columns)
    if hierarchy is not None:
        if found := [hierarchy.levels[k] for k in hierarchy.top_down if hierarchy.levels[k] in columns]:
            return found
    elif levels:
        if absent := [name for name in levels if name not in columns or name == picture]:
            raise DataError(f"{place}: no column {absent[0]!r} of labels (columns: {shown})")
        return list(levels)
    labels = [name for name in columns if declared.get(name, {}).get("_type") == "ClassLabel"]
    labels = sorted(labels, key=lambda name: len(declared[name].get("names") or ())) or _plain(rows)
    if not labels or (hierarchy is not None and len(labels) > 1):
        wanted = ",".join(labels) if labels else "order,family,species"
        tree = f"none is a level of the tree ({', '.join(hierarchy.levels[::-1])})" if hierarchy else f"`levels={wanted}`"
        raise DataError(f"{place}: which columns are levels? Name them, coarse → fine: {tree} (columns: {shown})")
    return labels


def _plain(rows: Rows) -> list[str]:
    """Columns of names that look like classes, in files that do not say."""
    texts = [field.name for field in rows.schema if str(field.type).removeprefix("large_") == "string"]
    with told(rows.file):
        return [name for name in texts if not doubt_about(name, [value or "" for value in rows.column(name).to_pylist()])]


def _pictures(part: Part) -> tuple[list[Picture], list[str | None]]:
    """The pictures of a file, and the paths that its rows give them."""
    rows, name = part.rows, part.rows.picture_column()
    with told(rows.file):
        paths = rows.column(name, "path").to_pylist()
        inside = [True] * rows.count if rows.all_inside(name) else rows.column(name, "bytes").is_valid().to_pylist()
    pictures: list[Picture] = [
        RowPicture(rows.file, i) if held or not path else FilePicture(linked(rows.file, path, f"{rows.file} row {i}"))
        for i, (held, path) in enumerate(zip(inside, paths, strict=True))
    ]
    return pictures, paths


def _keys(parts: Sequence[Part], paths: Sequence[Sequence[str | None]]) -> tuple[str, ...]:
    """The paths of the pictures where all have one and all differ, else the numbers of the rows."""
    pairs = [(part, path) for part, some in zip(parts, paths, strict=True) for path in some]
    named = [f"{part.split or ''}/{_short(path)}".lstrip("/") for part, path in pairs if path]
    if len(set(named)) == len(pairs):
        return tuple(named)
    return tuple(f"{part.name}#{i}" for part in parts for i in range(part.rows.count))


def _short(path: str) -> str:
    """A path that does not depend on where the pictures once were."""
    return PurePosixPath(path).name if PurePosixPath(path).is_absolute() else path


SOURCE = Source(
    "hugging-face",
    "a folder of Hugging Face datasets or a .parquet file",
    is_hugging_face,
    read_hugging_face,
    order=50,
    read_without=read_hugging_face,
)
