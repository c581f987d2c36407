"""What is labelled: any data that lht reads, or pictures without any label and a tree of classes. And what an audit doubts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchlht.data.pictures import as_place, as_url, is_image, picture_at
from torchlht.data.samples import Samples, read_data
from torchlht.data.sources.table import PATH_COLUMNS, stable_keys
from torchlht.errors import ConfigError, DataError
from torchlht.files import read_csv
from torchlht.hierarchy.reading import read_table
from torchlht.hierarchy.tree import Hierarchy
from torchlht.serve.label.desk import Doubt
from torchlht.serve.label.journal import Entry, journal_folder
from torchlht.serve.label.state import State

AUDITED = "labels.csv"
NAMED = ("name", "synonym")
COLUMNS = ("sample", "suggested", "suggested_level", "probability", "reason")


@dataclass(frozen=True)
class Source:
    """What to label, and how it is read: see `read_to_label`."""

    data: str
    hierarchy: Path | None = None
    levels: tuple[str, ...] | None = None
    unknown: tuple[str, ...] = ()
    unlabelled: bool = False
    journal: Path | None = None

    def read(self) -> Samples:
        """The samples."""
        return read_to_label(self.data, self.hierarchy, self.levels, self.unknown, self.unlabelled)

    def folder(self) -> Path:
        """Where the journal lies."""
        return journal_folder(self.data, self.journal)


def read_to_label(
    data: str, hierarchy: Path | None, levels: Sequence[str] | None, unknown: Sequence[str], unlabelled: bool
) -> Samples:
    """The samples.

    Args:
        data: as in `read_data`; with `unlabelled` a folder of pictures, or a table that names some.
        hierarchy: a file of the tree, or None for the data's own.
        levels: names of levels, coarse → fine, or None.
        unknown: names that mean that a label is missing.
        unlabelled: whether folders and columns say nothing about classes.
    """
    tree = Hierarchy.read(hierarchy, levels) if hierarchy else None
    if not unlabelled:
        return read_data(data, hierarchy=tree, levels=None if tree else levels, unknown=unknown)
    if tree is None:
        raise ConfigError("`unlabelled` needs the tree of the classes: add `hierarchy=FILE`")
    place = as_place(data)
    root, files = (place, _inside(place)) if place.is_dir() else (place.parent, _listed(place))
    if not files:
        raise DataError(f"{data}: no pictures in it")
    labels = np.full((len(files), len(tree)), -1, dtype=np.int64)
    images = tuple(picture_at(root / file) for file in files)
    return Samples(place.stem, tree, stable_keys(files), labels, np.full(len(files), "train"), images=images)


def _inside(folder: Path) -> list[str]:
    """Pictures in a folder and all folders in it, without hidden ones."""
    found = [path.relative_to(folder) for path in folder.rglob("*") if is_image(path) and path.is_file()]
    return sorted(path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts))


def _listed(file: Path) -> list[str]:
    """The pictures that a table names."""
    table = read_table(file)
    column = next((table.columns.index(name) for name in PATH_COLUMNS if name in table.columns), None)
    if column is None or table.faults:
        raise DataError(f"{file}: no column 'path' naming the pictures, or a faulty table; see lht data preview")
    files = [cells[column] for _, cells in table.rows if cells[column]]
    if asked := [one for one in files if as_url(one)]:
        raise DataError(f"{file}: {asked[0]} is an address; a table names files on this computer")
    return files


def replayed(samples: Samples, entries: Sequence[Entry]) -> State:
    """The state after all events of a journal."""
    state = State(samples)
    for entry in entries:
        state.apply(entry)
    return state


def read_doubts(folder: Path, state: State) -> dict[int, Doubt]:
    """What an audit doubts, by number of the sample, in its order. Samples that the data does not have are left out.

    Raises:
        DataError: when the folder holds no audit.
    """
    file = folder / AUDITED if folder.is_dir() else folder
    if not file.is_file():
        raise DataError(f"{folder}: holds no {AUDITED}; pass the folder that lht audit wrote")
    rows = read_csv(file)
    if rows and (missing := [name for name in COLUMNS if name not in rows[0]]):
        raise DataError(f"{file}: no column {missing[0]!r}; pass the folder that lht audit wrote")
    numbers, found = {key: i for i, key in enumerate(state.keys)}, {}
    levels = state.taxonomy.levels
    for row in rows:
        i, level = numbers.get(row["sample"]), row["suggested_level"]
        node = state.taxonomy.find(levels.index(level), row["suggested"]) if level in levels else None
        if i is not None and i not in found:
            found[i] = Doubt(-1 if node is None else node, _share(row["probability"]), row["reason"])
    return found


def read_synonyms(file: Path, state: State) -> dict[int, list[str]]:
    """Other names of classes, by node: a table with the columns `name` and `synonym`, a row for each.

    Raises:
        DataError: when it is no such table, or a name is no class at any level.
    """
    rows = read_csv(file)
    if rows and (missing := [name for name in NAMED if name not in rows[0]]):
        raise DataError(f"{file}: no column {missing[0]!r}; it takes name,synonym and a row for each synonym")
    found: dict[int, list[str]] = {}
    for number, row in enumerate(rows, start=2):
        nodes = state.taxonomy.named(row["name"])
        if not nodes:
            raise DataError(f"{file}, line {number}: no class is called {row['name']!r}")
        for node in nodes if row["synonym"].strip() else ():
            found.setdefault(node, []).append(row["synonym"].strip())
    return found


def _share(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0
