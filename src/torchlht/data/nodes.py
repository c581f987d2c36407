"""Features with several labels each: an .npz with `x` (N, d), `nodes`, the names of all classes, and labels.

y (N, nodes)               1 there, 0 not, -1 unknown; what is above a class that is there is there, too
labels (M,), offsets (N+1,)   the labels of row i are labels[offsets[i]:offsets[i+1]], positions in `nodes`; what lies below one
                           that is no leaf is unknown, unless another label names it; a row without labels is unknown

edges (E, 2)               positions of parents and children; without it `hierarchy` names a tree, or no class is below another
train (N,) bool            optional: rows where it is false are the test set
levels                     optional: names of the levels, fine first, as in files with one label per level
"""

from __future__ import annotations

import zipfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.data.sources.embeddings import features_in, names_in, read_arrays
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.graph import Graph, Labels

Arrays = dict[str, NDArray[Any]]


class Found(NamedTuple):
    """What such a file holds; `levels` are coarse → fine."""

    features: NDArray[np.float32]
    labels: Labels
    graph: Graph
    train: NDArray[np.bool_]
    levels: tuple[str, ...]


def holds_nodes(path: Path) -> bool:
    """Whether an .npz has several labels per sample: it holds `nodes`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "nodes.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False  # what reads it says what is wrong


def read_nodes(path: Path, given: Graph | None) -> Found:
    """Read such a file; its graph comes from `edges` unless one is given.

    Raises:
        DataError: when it is faulty; it names the row.
    """
    arrays = read_arrays(path)
    x = features_in(arrays, path)
    names = names_in(arrays["nodes"], "nodes", path)
    if twice := next((name for name, count in Counter(names).items() if count > 1), None):
        raise DataError(f"{path}: 'nodes' names {twice!r} twice; a class has one name, and one column of 'y'")
    graph = given or _graph(names, arrays, path)
    places = np.array([_place(name, graph, path) for name in names], dtype=np.int64)
    if len(set(places.tolist())) < len(names):
        raise DataError(f"{path}: two names in 'nodes' stand for one class")
    if "y" in arrays and "labels" in arrays:
        raise DataError(f"{path}: holds both 'y' and 'labels'; labels are told once: leave one of them out")
    labels = _multi_hot(arrays, path, graph, places, len(x)) if "y" in arrays else _ragged(arrays, path, graph, places, len(x))
    train = arrays.get("train", np.ones(len(x), dtype=bool))
    if train.shape != (len(x),) or train.dtype != bool:
        raise DataError(f"{path}: 'train' is {train.dtype} {train.shape}, expected bool ({len(x)},): one flag per row of 'x'")
    levels = tuple(names_in(arrays["levels"], "levels", path)[::-1]) if "levels" in arrays else ()
    if levels and len(levels) != int(graph.levels.max()) + 1:
        raise DataError(f"{path}: 'levels' names {len(levels)}, but classes lie on {int(graph.levels.max()) + 1} levels")
    return Found(x, labels, graph, train, levels)


def _place(name: str, graph: Graph, path: Path) -> int:
    try:
        return graph.index(name)
    except DataError as error:
        raise DataError(f"{path}: 'nodes': {error.message}") from None


def _graph(names: list[str], arrays: Arrays, path: Path) -> Graph:
    edges = arrays.get("edges", np.empty((0, 2), dtype=np.int64))
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise DataError(f"{path}: 'edges' is {edges.dtype} {edges.shape}, expected whole numbers (edges, 2): parent, child")
    if len(wrong := np.flatnonzero(((edges < 0) | (edges >= len(names))).any(axis=1))):
        raise DataError(f"{path}: edge {wrong[0]} is {edges[wrong[0]].tolist()}, but there are {len(names)} 'nodes'")
    try:
        return Graph.from_edges([(names[a], names[b]) for a, b in edges.tolist()], names, source=str(path), start=0)
    except HierarchyError as error:
        raise DataError(f"{path}: {error.faults[0]}") from None


def _multi_hot(arrays: Arrays, path: Path, graph: Graph, places: NDArray[np.int64], count: int) -> Labels:
    """Labels from 1, 0 and -1, with ancestors filled in, and all that lies below an absent class absent."""
    y = arrays["y"]
    if y.shape != (count, len(places)) or y.dtype.kind not in "iub":
        wanted = f"whole numbers ({count}, {len(places)}): a column per name in 'nodes'"
        raise DataError(f"{path}: 'y' is {y.dtype} {y.shape}, expected {wanted}")
    y = y.astype(np.int64)
    if len(wrong := np.argwhere((y < -1) | (y > 1))):
        row, column = wrong[0].tolist()
        raise DataError(
            f"{path} row {row}: label {y[row, column]} of {graph.names[places[column]]!r}; it is 1, 0 or -1 for unknown"
        )
    labels = np.full((count, len(graph)), -1, dtype=np.int8)
    labels[:, places] = y
    told, labels = labels, graph.close(labels)
    if len(wrong := np.argwhere((told == 0) & (labels == 1))):
        row, node = wrong[0].tolist()
        below = next(one for one in np.flatnonzero(told[row] == 1) if node in graph.above[one])
        said = f"{graph.names[below]!r} is 1, but {graph.names[node]!r} above it is 0"
        raise DataError(f"{path} row {row}: {said}; pass 1 or -1")
    for node in graph.order:
        for parent in graph.parents[node]:
            labels[labels[:, parent] == 0, node] = 0
    return labels


def _ragged(arrays: Arrays, path: Path, graph: Graph, places: NDArray[np.int64], count: int) -> Labels:
    """Labels from positions, by the rule on top of `listing.py`."""
    if missing := [name for name in ("labels", "offsets") if name not in arrays]:
        raise DataError(f"{path}: no array {missing[0]!r}; labels are 'y' (samples, nodes), or 'labels' with 'offsets'")
    flat, offsets = arrays["labels"], arrays["offsets"]
    for name, given in (("labels", flat), ("offsets", offsets)):
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise DataError(f"{path}: {name!r} is {given.dtype} {given.shape}, expected a list of whole numbers")
    if len(offsets) != count + 1:
        raise DataError(f"{path}: 'offsets' has {len(offsets)} numbers for {count} samples, expected {count + 1}")
    flat, offsets = flat.astype(np.int64), offsets.astype(np.int64)
    if offsets[0] != 0 or offsets[-1] != len(flat) or (np.diff(offsets) < 0).any():
        raise DataError(f"{path}: 'offsets' must rise from 0 to {len(flat)}, the length of 'labels'")
    rows = np.repeat(np.arange(count), np.diff(offsets))
    if len(wrong := np.flatnonzero((flat < 0) | (flat >= len(places)))):
        raise DataError(f"{path} row {rows[wrong[0]]}: label {flat[wrong[0]]}, but there are {len(places)} 'nodes'")
    _refuse_twice(flat, rows, graph, places, path)
    labels = np.zeros((count, len(graph)), dtype=np.int8)
    nodes = places[flat]
    labels[rows, nodes] = 1
    opened = (labels == 1) & (graph.heights > 0)
    found = graph.open_below(graph.close(labels), opened)
    found[np.diff(offsets) == 0] = -1
    return found


def _refuse_twice(
    flat: NDArray[np.int64], rows: NDArray[np.int64], graph: Graph, places: NDArray[np.int64], path: Path
) -> None:
    pairs, first, counts = np.unique(np.stack([rows, flat]), axis=1, return_index=True, return_counts=True)
    if len(twice := np.flatnonzero(counts > 1)):
        row, label = pairs[:, twice[np.argmin(first[twice])]]
        raise DataError(
            f"{path} row {row}: {graph.names[places[label]]!r} is listed twice; labels are classes, each of them once"
        )
