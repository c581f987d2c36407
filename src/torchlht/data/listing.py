"""Pictures with several labels each, in tables and folders. A picture's labels are a list; each is as deep as somebody knew.

path,order,family,species
a.jpg,Charadriiformes,Laridae|Alcidae,Herring Gull|Razorbill      names in the same place belong together; one alone, to all
b.jpg,Charadriiformes,Laridae,Herring Gull|                       two gulls, one of them a herring gull: the other is unknown
c.jpg,Charadriiformes,Laridae,Herring Gull                        a herring gull, and that is all

path,labels                                                       names from any level of a tree (`hierarchy`)
b.jpg,Laridae|Herring Gull                                        the same as b.jpg above

One rule tells "unknown below" from "that is all": a label that ends above a leaf says that somebody knew no more. What lies
below it is unknown, unless another label names it. All else is not there. A label without any name says that there is one
more, of which nothing is known.

With `several`, a picture in several rows of a table has the labels of all of them, and so has one that lies in several folders:
a link to it, or a file of the same content.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np

from torchlht.data.pictures import FilePicture, Picture, images_in, picture_at
from torchlht.data.samples import tree_of
from torchlht.data.sources.folder import known_part, parts_of, tree_of_folders, walk
from torchlht.data.sources.table import PATH_COLUMNS, files_in, path_column, refuse_doubtful, splits_of, stable_keys
from torchlht.doors import open_file
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.reading import Table, read_table
from torchlht.hierarchy.tree import Hierarchy

BAR = "|"
LABELS = "labels"
"""The column that holds names of any level."""


class Label(NamedTuple):
    """One label: its names, coarse → fine, None where unknown, and where it is written."""

    where: str
    names: tuple[str | None, ...]


class Listed(NamedTuple):
    """A picture, its part of the data, and its labels."""

    key: str
    picture: Picture
    split: str
    labels: tuple[Label, ...]


class Listing(NamedTuple):
    """What a table or folder lists.

    Attributes:
        pictures: the pictures, in the order of their names.
        columns: names of the levels of labels, coarse → fine, as far as they have names.
        tree: the tree that the labels imply; None if one was given.
    """

    pictures: list[Listed]
    columns: tuple[str, ...]
    tree: Hierarchy | None


# ---- tables --------------------------------------------------------------------------------------------------------


def has_bars(path: Path, levels: Sequence[str] | None, known: Sequence[str] = ()) -> bool:
    """Whether a label cell of a table holds a `|`. A file without one is not parsed."""
    with open_file(path) as file:
        if not any(BAR.encode() in block for block in iter(lambda: file.read(2**20), b"")):
            return False
    table = read_table(path)
    if table.faults or not table.rows or not set(PATH_COLUMNS) & set(table.columns):
        return False  # what reads it says what is wrong, or takes another kind of table
    columns = _label_columns(table, path, levels, known)
    return any(BAR in cells[c] for _, cells in table.rows for c in columns.values())


def _label_columns(table: Table, path: Path, levels: Sequence[str] | None, known: Sequence[str]) -> dict[str, int]:
    """The columns with labels, coarse → fine, and their positions: those asked for, those of a tree's levels, or all."""
    others = [name for name in table.columns if name not in (path_column(table, path), "split")]
    of_tree = [name for name in known if name in others]
    wanted = list(levels or of_tree or ([LABELS] if LABELS in others else others))
    if absent := [name for name in wanted if name not in others]:
        raise DataError(f"{path}: no column {absent[0]!r} (columns: {', '.join(table.columns)})")
    if not wanted:
        raise DataError(f"{path}: no columns besides {path_column(table, path)!r}; add one column per level, coarse → fine")
    return {name: table.columns.index(name) for name in wanted}


def list_table(path: Path, given: bool, levels: Sequence[str] | None, unknown: Set[str], known: Sequence[str] = ()) -> Listing:
    """The pictures of a table; several rows of a picture are joined.

    Args:
        path: the table.
        given: whether a tree or graph is given; otherwise the rows imply one.
        levels: the columns with labels, if they are asked for.
        unknown: names that mean that a label is missing, in lower case.
        known: names of the levels of the tree that is given.

    Raises:
        DataError: when a row is faulty; it names the line.
        HierarchyError: when the rows contradict each other.
    """
    table = read_table(path)
    if table.faults:
        raise HierarchyError(str(path), table.faults)
    if not table.rows:
        raise DataError(f"{path}: it has a header but no rows")
    columns = _label_columns(table, path, levels, known)
    if not levels and not given:
        plain = [name for name, c in columns.items() if not any(BAR in cells[c] for _, cells in table.rows)]
        refuse_doubtful(table, path, plain)
    where = [f"{path} line {line}" for line, _ in table.rows]
    files = files_in(table, path)
    rows = zip(stable_keys(files), files, splits_of(table, where), table.rows, where, strict=True)
    found = [
        Listed(key, picture_at(path.parent / file), split, _labels_of(place, line, columns, cells, unknown))
        for key, file, split, (line, cells), place in rows
    ]
    listed = joined(path, found, [os.path.normpath(file) for file in files])
    rows_of_labels = [Row(label.where, label.names) for one in listed for label in one.labels]
    return Listing(listed, tuple(columns), None if given else tree_of(rows_of_labels, tuple(columns), path))


def _labels_of(where: str, line: int, columns: Mapping[str, int], cells: Sequence[str], unknown: Set[str]) -> tuple[Label, ...]:
    """The labels of a row: names in the same place belong together; one alone belongs to all."""
    parts = {level: [part.strip() for part in cells[c].split(BAR)] for level, c in columns.items()}
    longest = max(parts, key=lambda level: len(parts[level]))
    count = len(parts[longest])
    for level, names in parts.items():
        if len(names) not in (1, count):
            said = f"{longest} has {count} names and {level} has {len(names)}"
            raise DataError(f"{where}: {said}; names in the same place belong together, blank where nobody knew")
    if len(parts) == 1 and count > 1 and "" in parts[longest]:
        raise DataError(
            f"{where}: a name beside a {BAR} is empty; leave out the {BAR}, or write the coarser class that is known"
        )
    full = [names if len(names) == count else names * count for names in parts.values()]
    labels = [
        tuple(name if name and name.casefold() not in unknown else None for name in one) for one in zip(*full, strict=True)
    ]
    for i, own in enumerate(labels):
        if own in labels[:i]:
            deepest = next((name for name in reversed(own) if name), "a label without a name")
            raise DataError(f"{where}: {deepest!r} is listed twice; labels are classes, each of them once")
    return tuple(Label(f"line {line}", names) for names in labels)


# ---- folders -------------------------------------------------------------------------------------------------------


def list_folder(root: Path, given: bool, levels: Sequence[str] | None, unknown: Set[str], known: Sequence[str] = ()) -> Listing:
    """The pictures of a folder of folders; one that lies in several of them has all their labels. See `list_table`.

    Raises:
        DataError: when there are no pictures, or a link leads to nothing.
        HierarchyError: when folders contradict each other.
    """
    parts = parts_of(root)
    implied = None if given else tree_of_folders([part for part, _ in parts], root, levels, unknown)
    depth = len(implied) if implied else 0
    found: list[Listed] = []
    for part, split in parts:
        for folder, path in walk(part, ()):
            refuse_dead_links(folder)
            told = known_part(path, unknown)
            names = (*told, *(None,) * (depth - len(told)))
            for image in images_in(folder):
                key = image.relative_to(root).as_posix()
                found.append(Listed(key, FilePicture(image), split, (Label(key, names),)))
    if not found:
        raise DataError(f"{root}: no pictures in it or its folders (looked for .jpg, .png, .webp and other common kinds)")
    pictures = joined(root, found, same_files([one.picture for one in found]))
    return Listing(pictures, implied.levels[::-1] if implied else tuple(known), implied)


def refuse_dead_links(folder: Path) -> None:
    """Raise DataError if a folder holds a link to nothing: it was a picture, or a folder of them."""
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() and not entry.name.startswith(".") and not entry.exists():
            raise DataError(f"{entry}: a link to {entry.readlink()}, which is not there; remove or repair it")


def same_files(pictures: Sequence[Picture]) -> list[str]:
    """For each picture a text that others share only if they are the same file, or have the same content."""
    places = [Path(os.path.realpath(str(picture))) for picture in pictures]
    sizes: dict[int, set[Path]] = {}
    for place in places:
        sizes.setdefault(place.stat().st_size, set()).add(place)
    doubtful = {place for group in sizes.values() if len(group) > 1 for place in group}
    content = {place: hashlib.sha256(place.read_bytes()).hexdigest() for place in sorted(doubtful)}
    return [content.get(place, str(place)) for place in places]


# ---- joining -------------------------------------------------------------------------------------------------------


def joined(path: Path, found: Sequence[Listed], same: Sequence[str]) -> list[Listed]:
    """One entry for each picture, with the labels of all of its rows or places, in the order of names.

    Raises:
        DataError: when a picture is in several parts of the data.
    """
    groups: dict[str, list[Listed]] = {}
    for one, name in zip(found, same, strict=True):
        groups.setdefault(name, []).append(one)
    for first, *others in groups.values():
        for other in others:
            if other.split != first.split:
                places = f"in {first.split} ({first.labels[0].where}) and in {other.split} ({other.labels[0].where})"
                raise DataError(
                    f"{path}: {first.key} is {places}; a picture has one split, or a model is tested on what it has learned"
                )
    whole = [group[0]._replace(labels=tuple(label for one in group for label in one.labels)) for group in groups.values()]
    return sorted(whole, key=lambda one: one.key)


# ---- labels as a matrix --------------------------------------------------------------------------------------------


def label_matrix(listing: Listing, graph: Graph, source: Path) -> Labels:
    """(N, nodes): 1 there, 0 not, -1 unknown, by the rule on top of this file.

    Raises:
        DataError: when a name is in no graph, or not below the coarser names beside it.
    """
    numbers = {name: i for i, name in enumerate(graph.names)}
    labels = np.zeros((len(listing.pictures), len(graph)), dtype=np.int8)
    opened, blank = np.zeros(labels.shape, dtype=bool), np.zeros(len(labels), dtype=bool)
    for i, one in enumerate(listing.pictures):
        for label in one.labels:
            nodes = list(_nodes(label, listing.columns, graph, numbers, source))
            labels[i, nodes] = 1
            opened[i, nodes[-1:]] = graph.heights[nodes[-1:]] > 0
            blank[i] |= not nodes
    found = graph.open_below(graph.close(labels), opened)
    return np.where(blank[:, None] & (found != 1), np.int8(-1), found)


def _nodes(label: Label, columns: Sequence[str], graph: Graph, numbers: Mapping[str, int], source: Path) -> Iterator[int]:
    """The nodes of a label, coarse → fine."""
    last: int | None = None
    for k, name in enumerate(label.names):
        if name is None:
            continue
        own = f"{columns[k]}/{name}" if k < len(columns) else name  # see `Graph.from_tree`
        try:
            node = numbers[own] if own in numbers else graph.index(name)
        except DataError as error:
            instead = "" if name in graph.also else f"; `unknown={name}` counts it as a missing label"
            raise DataError(f"{source} {label.where}: {error.message}{instead}") from None
        if last is not None and last not in graph.above[node]:
            raise DataError(f"{source} {label.where}: {name!r} is not below {graph.names[last]!r} in the tree")
        last = node
        yield node
