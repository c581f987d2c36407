"""Precomputed features: an .npz with `x` (N, d), `y` (N, K) fine first with -1 for unknown, `train` (N,) bool.

Optional: `levels` (names, fine first) and `classes_<level>` (names). Rows with `train` false are the test set.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from torchlht.data.samples import Ints, Samples, Source, label_of
from torchlht.doors import open_file
from torchlht.errors import DataError
from torchlht.files import replacing
from torchlht.hierarchy.paths import CLASSES
from torchlht.hierarchy.tree import Hierarchy, default_levels

RATIO, LOOSE = 100, 2**28
"""How many times smaller than its arrays an .npz may be, from so many bytes of arrays on: features hardly shrink."""
LARGEST = 1e15
"""Largest feature: sums of the squares of larger ones do not fit into float32."""
WANTED = ("x", "y", "train", "levels", "nodes", "edges", "labels", "offsets")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz that describe samples; others are left empty. Pickled objects are refused."""
    with open_file(path) as file:
        try:
            return _arrays(file, path)
        except DataError:
            raise
        except Exception as error:  # readers raise nearly anything on damaged bytes
            raise DataError(f"{path}: not a readable .npz file ({_first_line(error)})") from None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _arrays(file: BinaryIO, path: Path) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        wanted = {name: info for name, info in members.items() if name in WANTED or name.startswith("classes_")}
        total = sum(info.file_size for info in wanted.values())
        if total > max(LOOSE, RATIO * path.stat().st_size):
            raise DataError(f"{path}: would need {total:,} bytes, over {RATIO} times its own size, which is not read")
        return {name: _array(archive, info, path) if name in wanted else np.empty(0) for name, info in members.items()}


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> NDArray[Any]:
    """One array. Its header is checked first, so that nothing is made that the file does not hold."""
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as member:
        old = npy.read_magic(member) == (1, 0)
        shape, _, dtype = npy.read_array_header_1_0(member) if old else npy.read_array_header_2_0(member)
        if dtype.hasobject:
            what = "holds pickled objects, which are never read; save names as plain arrays of strings"
            raise DataError(f"{path}: {name!r} {what}")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise DataError(f"{path}: {name!r} is damaged: its length does not fit its shape {shape}; write it again")
    with archive.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
    return array


def read_features(path: Path) -> NDArray[np.float32]:
    """The features of an .npz alone, for predicting."""
    return features_in(read_arrays(path), path)


def read_embeddings(path: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> Samples:
    """Read an embeddings file; the tree comes from its labels unless one is given. `levels` may be some of the file's."""
    arrays = _of_levels(read_arrays(path), path, levels)
    x = features_in(arrays, path)
    if "nodes" in arrays:
        raise DataError(f"{path}: has several labels per sample, by its array 'nodes'; lht train and lht data preview read it")
    if hierarchy and arrays.get("y", x).size == len(x):
        arrays = arrays | {"y": _from_finest(arrays, path, hierarchy), "levels": np.array(hierarchy.levels)}
        arrays |= {
            f"classes_{level}": np.array(names) for level, names in zip(hierarchy.levels, hierarchy.classes, strict=True)
        }
        levels = None
    y = _labels(arrays, path, len(x))
    train = arrays.get("train", np.ones(len(x), dtype=bool))
    if train.shape != (len(x),) or train.dtype != bool:
        raise DataError(f"{path}: 'train' is {train.dtype} {train.shape}, expected bool ({len(x)},): one flag per row of 'x'")
    names = _level_names(arrays, path, y.shape[1], hierarchy, levels)
    classes = _class_names(arrays, path, y, names)
    if hierarchy:
        y = _renumbered(y, classes, names, hierarchy, path)
    tree = hierarchy or _own_tree(y, classes, names, path)
    filled = tree.fill(y, where=lambda i: f"{path} row {i}")
    keys = tuple(str(i) for i in range(len(x)))
    return Samples(path.stem, tree, keys, filled, np.where(train, "train", "test"), features=x)


def _of_levels(arrays: dict[str, NDArray[Any]], path: Path, levels: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """The arrays with those columns of `y` alone that are asked for, if the file names these and others."""
    y, own = arrays.get("y", np.empty(0)), arrays.get("levels", np.empty(0))
    if not levels or y.ndim != 2 or own.shape != y.shape[1:] or not set(levels) < set(names := names_in(own, "levels", path)):
        return arrays
    kept = [names.index(level) for level in reversed(levels)]
    return arrays | {"y": y[:, kept], "levels": own[kept]}


def finest_alone(path: Path) -> Hierarchy | None:
    """The classes of an .npz whose `y` is one column of names or numbers, as a tree of one level; None of anything else."""
    if not SOURCE.reads(path):
        return None
    arrays = read_arrays(path)
    y = arrays.get("y", np.empty(0))
    if y.ndim != 1 or y.dtype.kind not in "USiu" or not y.size:
        return None
    level = names_in(arrays["levels"], "levels", path)[0] if arrays.get("levels", y[:0]).size else "class"
    given = f"classes_{level}"
    if y.dtype.kind in "US":
        names = [name for name in names_in(np.unique(y), "y", path) if name]
    else:
        numbers = np.arange(min(int(y.max()), CLASSES) + 1)
        names = names_in(arrays.get(given, numbers), given, path)
    return Hierarchy(levels=[level], classes=[names], parents=[], source=str(path)) if names else None


def write_embeddings(path: Path, x: NDArray[np.float32], labels: Ints, tree: Hierarchy) -> None:
    """Write test samples that `read_embeddings` reads: (N, d) features and (N, K) labels."""
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez(file, x=x, y=labels, train=np.zeros(len(x), dtype=bool), **tree.arrays())


def features_in(arrays: dict[str, NDArray[Any]], path: Path) -> NDArray[np.float32]:
    """The features among the arrays of a file. Raises DataError when there are none, or they are no finite numbers."""
    if "x" not in arrays:
        raise DataError(f"{path}: no array 'x' with the features (found: {', '.join(arrays) or 'nothing'})")
    x = arrays["x"]
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise DataError(f"{path}: 'x' is {x.dtype} {x.shape}, expected floating point (samples, width)")
    if not x.size:
        raise DataError(f"{path}: 'x' is empty, {x.shape}; expected (samples, width)")
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused below
        x = x.astype(np.float32)
    if len(bad := np.flatnonzero(~np.isfinite(x).all(axis=1))):
        raise DataError(f"{path}: {len(bad)} rows of 'x' hold NaN or infinity, the first is row {bad[0]}; remove them")
    if max(x.max(), -x.min()) > LARGEST:
        large = np.flatnonzero((np.abs(x) > LARGEST).any(axis=1))
        said = f"{len(large)} rows of 'x' hold numbers beyond {LARGEST:g}, the first is row {large[0]}"
        raise DataError(f"{path}: {said}; remove these rows, or scale 'x'")
    return x


def _labels(arrays: dict[str, NDArray[Any]], path: Path, n: int) -> Ints:
    if "y" not in arrays:
        raise DataError(f"{path}: no array 'y' with the labels (found: {', '.join(arrays)})")
    y = arrays["y"]
    if y.shape == (n,):
        raise DataError(f"{path}: 'y' has one column: pass `hierarchy=FILE` with the tree of its classes, or give all levels")
    if y.ndim != 2 or len(y) != n or not np.issubdtype(y.dtype, np.integer):
        raise DataError(f"{path}: 'y' is {y.dtype} {y.shape}, expected integers ({n}, levels): one row per row of 'x'")
    if not y.size:
        raise DataError(f"{path}: 'y' is empty, {y.shape}; expected one column per level")
    if len(wrong := np.argwhere((y < -1) | (y >= CLASSES))):
        row, column = wrong[0].tolist()
        raise DataError(
            f"{path} row {row}: label {y[row, column]}; labels are class numbers from 0 to {CLASSES - 1:,}, or -1 for unknown"
        )
    return y.astype(np.int64)


def _from_finest(arrays: dict[str, NDArray[Any]], path: Path, tree: Hierarchy) -> Ints:
    """(N, K) labels from one column of finest classes: their names, blank for unknown, or their numbers."""
    y, fine = arrays["y"].reshape(-1), tree.levels[0]
    given = arrays.get(f"classes_{fine}")
    if given is not None and y.dtype.kind in "iu":
        known = names_in(given, f"classes_{fine}", path)
        y = np.array([known[i] if 0 <= i < len(known) else "" if i == -1 else str(i) for i in y.tolist()])
    labels = np.full((len(y), len(tree)), -1, dtype=np.int64)
    if y.dtype.kind in "US":
        numbers = {name: label_of(tree, [fine], [name], f"{path}: 'y'")[0] for name in set(names_in(y, "y", path)) if name}
        labels[:, 0] = [numbers.get(name, -1) for name in names_in(y, "y", path)]
    elif y.dtype.kind in "iu":
        if len(wrong := np.flatnonzero((y < -1) | (y >= tree.sizes[0]))):
            raise DataError(f"{path} row {wrong[0]}: label {y[wrong[0]]}; the tree has {tree.sizes[0]} {fine} classes, from 0")
        labels[:, 0] = y
    else:
        raise DataError(f"{path}: 'y' is {y.dtype}, expected names or numbers of {fine} classes")
    return labels


def _level_names(
    arrays: dict[str, NDArray[Any]], path: Path, depth: int, hierarchy: Hierarchy | None, levels: Sequence[str] | None
) -> list[str]:
    """Level names, fine first."""
    if levels:
        names = list(levels)[::-1]
    elif "levels" in arrays:
        names = names_in(arrays["levels"], "levels", path)
    else:
        names = list(hierarchy.levels) if hierarchy else default_levels(depth)[::-1]
    if len(names) != depth:
        raise DataError(f"{path}: 'y' has {depth} columns but {len(names)} levels are named ({', '.join(names)})")
    return names


def _class_names(arrays: dict[str, NDArray[Any]], path: Path, y: Ints, names: Sequence[str]) -> list[list[str]]:
    classes = []
    for k, level in enumerate(names):
        top = int(y[:, k].max(initial=-1))
        given = arrays.get(f"classes_{level}")
        if given is not None and top >= len(given if given.ndim else ()):
            row = int(y[:, k].argmax())
            raise DataError(f"{path} row {row}: {level} is {top}, but 'classes_{level}' names {given.size} classes")
        classes.append([str(i) for i in range(top + 1)] if given is None else names_in(given, f"classes_{level}", path))
    return classes


def names_in(array: NDArray[Any], name: str, path: Path) -> list[str]:
    """An array of names as text."""
    if array.ndim != 1 or array.dtype.kind not in "USiu":
        raise DataError(f"{path}: {name!r} is {array.dtype} {array.shape}, expected a list of names")
    try:
        return [str(one) for one in array.astype(str).tolist()]
    except (ValueError, SystemError) as error:
        raise DataError(f"{path}: {name!r} holds what is not text ({error})") from None


def _own_tree(y: Ints, classes: Sequence[Sequence[str]], levels: Sequence[str], path: Path) -> Hierarchy:
    """The tree of the labels. A class without a name stands in; below a class that no finer label is under, its branch ends."""
    parents = _parents(y, classes, levels, path)
    named: list[list[str | None]] = [[name or None for name in names] for names in classes]
    for k in range(len(levels) - 2, -1, -1):
        seen = np.union1d(y[:, k + 1][y[:, k + 1] >= 0], np.arange(len(classes[k + 1]), len(named[k + 1])))
        ended = np.setdiff1d(seen, parents[k])
        if len(ended) < len(named[k + 1]):  # else there is no finer label at all
            named[k] += [None] * len(ended)
            parents[k] = np.append(parents[k], ended)
    return Hierarchy(levels=levels, classes=named, parents=parents, source=str(path))


def _parents(y: Ints, classes: Sequence[Sequence[str]], names: Sequence[str], path: Path) -> list[Ints]:
    """Each class's parent, from the first row that knows both. `fill` refuses rows that contradict it."""
    if empty := [name for name, known in zip(names, classes, strict=True) if not known]:
        unknown = "no labels at all" if (y < 0).all() else f"no label of the level {empty[0]}"
        raise DataError(f"{path}: {unknown}; 'y' holds class numbers, fine first, or -1 for unknown")
    parents = []
    for k in range(len(names) - 1):
        both = y[(y[:, k] >= 0) & (y[:, k + 1] >= 0)]
        found = np.full(len(classes[k]), -1, dtype=np.int64)
        child, first = np.unique(both[:, k], return_index=True)
        found[child] = both[first, k + 1]
        for orphan in np.flatnonzero(found < 0).tolist():
            raise DataError(
                f"{path}: no row tells the {names[k + 1]} of the {names[k]} {classes[k][orphan]!r}; pass `hierarchy=FILE`"
            )
        parents.append(found)
    return parents


def _renumbered(y: Ints, classes: Sequence[Sequence[str]], levels: Sequence[str], tree: Hierarchy, path: Path) -> Ints:
    """Labels renumbered for another tree, matched by class name."""
    alone = f"; with `levels={levels[0]}`, the tree tells the other levels" if levels != list(tree.levels) else ""
    if y.shape[1] != len(tree):
        raise DataError(f"{path}: 'y' has {y.shape[1]} columns but the tree has {len(tree)} levels{alone}")
    out = y.copy()
    for k, names in enumerate(classes):
        used = np.unique(y[:, k][y[:, k] >= 0])
        table = np.full(len(names) + 1, -1, dtype=np.int64)
        for i in used:
            try:
                table[i] = tree.index(k, names[i]) if names[i] else -1  # what stands in follows from the class above it
            except DataError as error:
                raise DataError(f"{path}: {error}{alone}") from None
        out[:, k] = table[y[:, k]]
    return out


SOURCE = Source(
    "embeddings", "an .npz of features", lambda place: place.suffix.lower() == ".npz" and place.is_file(), read_embeddings
)
