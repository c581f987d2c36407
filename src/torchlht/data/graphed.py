"""One label per sample in a graph of classes: labels are names of classes at any height, and of several facets at once.

    a folder of pictures     every folder on the way to a picture is a class that it has
    a .csv or .tsv           `path` and columns whose cells are classes, blank where unknown; `split` if there is one
    an .npz                  `x`; `y` with names, or with numbers into `classes_<level>`, one column or several; `train`

What a sample is known to be is the set of leaves below all its names. From that follows what is known of every class: 1 if all
those leaves lie below it, 0 if none does, -1 otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.data.named import is_known, known_names
from torchlht.data.options import TreeArgs
from torchlht.data.pictures import FilePicture, Picture, as_place, images_in, picture_at
from torchlht.data.samples import Mask, choose_some, is_plain_folder
from torchlht.data.several import Asked, Floats, Several, is_several, read_several
from torchlht.data.sources.embeddings import features_in, names_in, read_arrays
from torchlht.data.sources.folder import known_part, parts_of, walk
from torchlht.data.sources.table import files_in, path_column, splits_of, stable_keys
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.hierarchy.linked import has_several_parents
from torchlht.hierarchy.reading import read_table

Names = tuple[str, ...]


class Rows(NamedTuple):
    """What a source holds: for each sample a key, a place for messages, its names and its part; pictures or features."""

    keys: Sequence[str]
    places: Sequence[str]
    names: Sequence[Names]
    split: Sequence[str]
    images: tuple[Picture, ...] | None = None
    features: Floats | None = None


def is_exclusive(source: str, tree: TreeArgs, several: bool | None) -> bool:
    """Whether data has one label per sample, in a graph whose classes have several parents."""
    if tree.hierarchy is None or not has_several_parents(tree.hierarchy):
        return False
    return not is_several(source, Asked.by(tree, several))


def is_on_graph(source: str, tree: TreeArgs, several: bool | None) -> bool:
    """Whether samples have several labels each, or one in a graph whose classes have several parents."""
    return is_several(source, Asked.by(tree, several)) or is_exclusive(source, tree, several)


def read_on_graph(source: str, tree: TreeArgs, several: bool | None, graph: Graph | None = None) -> Several:
    """Data with several labels per sample, or with one in a graph; a graph that is already there is not read again."""
    asked = Asked.by(tree, several)
    if tree.hierarchy is None or is_several(source, asked):
        return read_several(source, asked)
    graph = graph or Graph.read(tree.hierarchy)
    return read_graphed(source, graph, levels=tree.level_names(), unknown=tree.unknown_names())


def read_graphed(
    source: str | Path, graph: Graph, *, levels: Sequence[str] | None = None, unknown: Sequence[str] = ()
) -> Several:
    """Read samples whose labels are classes of a graph.

    Args:
        source: a folder of pictures, a table, or an .npz.
        graph: the classes.
        levels: the columns of a table or an .npz that hold classes; by default all that do.
        unknown: names that mean that a label is missing, in any case.

    Raises:
        DataError: when a name is no class, or fits several; or when no leaf lies below all names of a sample.
    """
    place = known_names()[str(source)]()[0] if is_known(source) else as_place(source)
    blank = {"", *(name.strip().casefold() for name in unknown)}
    if is_plain_folder(place):
        rows = _folder_rows(place, blank)
    elif place.suffix.lower() in (".csv", ".tsv", ".txt"):
        rows = _table_rows(place, graph, levels, blank)
    elif place.suffix.lower() == ".npz":
        rows = _array_rows(place, levels, blank)
    else:
        raise DataError(f"{source}: with classes of several parents, data is a folder of pictures, a .csv, a .tsv or an .npz")
    if len(graph.leaves) < 2:
        raise DataError(f"{source}: only one leaf, {graph.names[graph.leaves[0]]!r}; a classifier needs at least two")
    return Several(
        keys=tuple(rows.keys),
        labels=labels_of(graph, rows.names, rows.places.__getitem__),
        graph=graph,
        judged=np.logical_not(graph.leaves_below.all(0)),
        split=np.array(rows.split),
        images=rows.images,
        features=rows.features,
        exclusive=True,
        source=str(source),
    )


# ---- what is known ---------------------------------------------------------------------------------------------------


def labels_of(graph: Graph, names: Sequence[Names], where: Callable[[int], str]) -> Labels:
    """(N, nodes) what is known of every class, from the names of each sample; `where` names sample i in messages."""
    below, told = graph.leaves_below, dict[Names, Labels]()
    found = np.empty((len(names), len(graph)), dtype=np.int8)
    for i, own in enumerate(names):
        if own not in told:
            told[own] = known_from(graph, _possible(graph, own, below, where(i)))
        found[i] = told[own]
    return found


def known_from(graph: Graph, possible: NDArray[np.bool_]) -> Labels:
    """(nodes,) what is known of every class if one of these leaves, (leaves,), is the right one."""
    inside = graph.leaves_below[possible]
    known: Labels = np.where(inside.all(0), 1, np.where(inside.any(0), -1, 0)).astype(np.int8)
    return known


def _possible(graph: Graph, names: Names, below: NDArray[np.bool_], where: str) -> NDArray[np.bool_]:
    """(leaves,) those below all names."""
    possible = np.ones(len(below), dtype=bool)
    for i, name in enumerate(names):
        try:
            possible &= below[:, graph.index(name)]
        except DataError as error:
            raise DataError(f"{where}: {error.message}") from None
        if not possible.any():
            before = " and ".join(map(repr, names[:i]))
            raise DataError(f"{where}: no class lies below both {before} and {name!r}; correct the label or the graph")
    return possible


def hide_leaves(data: Several, mask: Mask) -> Several:
    """The same with the leaf hidden on a share of the training and validation samples, leaf by leaf.

    What stays known is what follows from the leaf's parents.
    """
    if not mask.ratio:
        return data
    graph, labels = data.graph, data.labels.copy()
    leaf = graph.leaves
    known = np.flatnonzero(np.isin(data.split, ("train", "val")) & (labels[:, leaf] == 1).any(1))
    own = leaf[(labels[known][:, leaf] == 1).argmax(1)]
    keys, strata = [data.keys[i] for i in known], [graph.names[node] for node in own]
    kept = choose_some(keys, strata, lambda _, n: mask.kept_of(n), seed=mask.seed, purpose="mask")
    cut: dict[int, Labels] = {}
    for i, node in zip(known[~kept].tolist(), own[~kept].tolist(), strict=True):
        if node not in cut:
            cut[node] = known_from(graph, np.logical_and.reduce(graph.leaves_below[:, list(graph.parents[node])], axis=1))
        labels[i] = cut[node]
    return dataclasses.replace(data, labels=labels)


# ---- sources ---------------------------------------------------------------------------------------------------------


def _folder_rows(root: Path, blank: Set[str]) -> Rows:
    folders = ((known_part(path, blank), split, folder) for part, split in parts_of(root) for folder, path in walk(part, ()))
    found = [(image, path, split) for path, split, folder in folders for image in images_in(folder)]
    if not found:
        raise DataError(f"{root}: no pictures in it or its folders (looked for .jpg, .png, .webp and other common kinds)")
    images, names, split = zip(*found, strict=True)
    keys = [image.relative_to(root).as_posix() for image in images]
    return Rows(keys, [str(image) for image in images], names, split, images=tuple(FilePicture(image) for image in images))


def _table_rows(path: Path, graph: Graph, levels: Sequence[str] | None, blank: Set[str]) -> Rows:
    table = read_table(path)
    if table.faults:
        raise HierarchyError(str(path), table.faults)
    if not table.rows:
        raise DataError(f"{path}: it has a header but no rows")
    files_at = table.columns.index(path_column(table, path))
    wanted = [table.columns.index(name) for name in _columns(table.columns, levels, path)]
    if levels is None:
        known = set(graph.names) | set(graph.also)
        wanted = [i for i in wanted if i != files_at and known & {cells[i] for _, cells in table.rows}]
    if not wanted:
        raise DataError(f"{path}: no column holds classes of the graph (columns: {', '.join(table.columns)})")
    places, files = [f"{path} line {line}" for line, _ in table.rows], files_in(table, path)
    names = [tuple(cells[i] for i in wanted if cells[i].casefold() not in blank) for _, cells in table.rows]
    images = tuple(picture_at(path.parent / file) for file in files)
    return Rows(stable_keys(files), places, names, splits_of(table, places), images=images)


def _columns(columns: Sequence[str], levels: Sequence[str] | None, path: Path) -> list[str]:
    """The columns that may hold classes."""
    if levels is None:
        return [name for name in columns if name != "split"]
    if absent := [name for name in levels if name not in columns]:
        raise DataError(f"{path}: no column {absent[0]!r} (columns: {', '.join(columns)})")
    return list(levels)


def _array_rows(path: Path, levels: Sequence[str] | None, blank: Set[str]) -> Rows:
    arrays = read_arrays(path)
    x = features_in(arrays, path)
    if "y" not in arrays or arrays["y"].shape[:1] != (len(x),) or arrays["y"].ndim > 2:
        raise DataError(f"{path}: no array 'y' with a row of labels for each of {len(x)} rows of 'x'")
    y = arrays["y"].reshape(len(x), -1)
    called = names_in(arrays["levels"], "levels", path) if "levels" in arrays else [f"level{i + 1}" for i in range(y.shape[1])]
    if len(called) != y.shape[1]:
        raise DataError(f"{path}: 'y' has {y.shape[1]} columns but {len(called)} levels are named ({', '.join(called)})")
    columns = [_named_column(arrays, y[:, i], name, path) for i, name in enumerate(called)]
    wanted = [called.index(name) for name in _columns(called, levels, path)]
    names = [tuple(columns[i][n] for i in wanted if columns[i][n].casefold() not in blank) for n in range(len(x))]
    train = arrays.get("train", np.ones(len(x), dtype=bool))
    if train.shape != (len(x),) or train.dtype != bool:
        raise DataError(f"{path}: 'train' is {train.dtype} {train.shape}, expected bool ({len(x)},): one flag per row of 'x'")
    places = [f"{path} row {i}" for i in range(len(x))]
    return Rows([str(i) for i in range(len(x))], places, names, np.where(train, "train", "test").tolist(), features=x)


def _named_column(arrays: dict[str, NDArray[np.generic]], y: NDArray[np.generic], level: str, path: Path) -> list[str]:
    """The names in one column, blank where unknown."""
    if y.dtype.kind in "US":
        return names_in(y, "y", path)
    given = arrays.get(f"classes_{level}")
    if given is None or y.dtype.kind not in "iu":
        raise DataError(
            f"{path}: 'y' is {y.dtype}; classes of a graph need names: texts, or numbers into an array 'classes_{level}'"
        )
    known, numbers = names_in(given, f"classes_{level}", path), y.astype(np.int64)
    if len(wrong := np.flatnonzero((numbers < -1) | (numbers >= len(known)))):
        raise DataError(
            f"{path} row {wrong[0]}: {level} is {numbers[wrong[0]]}, but 'classes_{level}' names {len(known)} classes"
        )
    return [known[i] if i >= 0 else "" for i in numbers.tolist()]
