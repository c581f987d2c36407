"""A tree of folders. A picture in an inner folder is labelled only down to that folder.

    birds/Charadriiformes/Laridae/Ivory Gull/1.jpg      order, family and species known
    birds/Charadriiformes/Laridae/2.jpg                 order and family known
    birds/Charadriiformes/3.jpg                         order known

Top folders are splits, not classes, if there are only train, val and test.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import numpy as np

from torchlht.data.pictures import FilePicture, images_in
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_of, refuse_faults
from torchlht.errors import DataError, Fault
from torchlht.hierarchy.reading import Row, Spec, build, folder_rows, subfolders, to_depth
from torchlht.hierarchy.tree import Hierarchy


def read_folder(
    root: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read a folder of pictures; the tree comes from the folders unless one is given. `unknown` folders are no classes."""
    tops = subfolders(root)
    if not tops:
        raise DataError(f"{root}: no folders inside; expected one folder per class, folders inside folders for finer classes")
    in_splits = all(top.name.lower() in SPLIT_NAMES for top in tops)
    parts = [(top, SPLIT_NAMES[top.name.lower()]) for top in tops] if in_splits else [(root, "train")]
    tree = hierarchy or _tree_of([part for part, _ in parts], root, levels, unknown)

    keys, labels, splits, images = [], [], [], []
    for part, split in parts:
        for folder, path in _walk(part, ()):
            known = known_part(path, unknown)
            label = _label(tree, known, folder, whole=known == path)
            for image in images_in(folder):
                keys.append(image.relative_to(root).as_posix())
                labels.append(label)
                splits.append(split)
                images.append(FilePicture(image))
    if not images:
        raise DataError(f"{root}: no pictures in it or its folders (looked for .jpg, .png, .webp and other common kinds)")
    filled = tree.fill(np.array(labels, dtype=np.int64), where=lambda i: keys[i])
    return Samples(root.name, tree, tuple(keys), filled, np.array(splits), images=tuple(images))


def known_part(path: tuple[str, ...], unknown: Set[str]) -> tuple[str, ...]:
    """The names of a path before the first that means unknown."""
    return tuple(itertools.takewhile(lambda name: name.strip().casefold() not in unknown, path))


def _tree_of(parts: Sequence[Path], root: Path, levels: Sequence[str] | None, unknown: Set[str]) -> Hierarchy:
    rows: list[Row] = []
    faults: list[Fault] = []
    for part in parts:
        found, wrong = folder_rows(part)
        rows += found
        faults += wrong
    if not rows and not faults:
        raise DataError(f"{root}: no class folders inside {', '.join(part.name for part in parts)}")
    if unknown:
        rows = [Row(row.where, names) for row in rows if (names := known_part(tuple(map(str, row.names)), unknown))]
    rows.sort(key=lambda row: row.names)
    rows, level_names, wrong = to_depth(rows, levels)
    spec, clashes = build(rows, level_names) if not wrong else (Spec((), (), ()), [])
    refuse_faults(root, rows, [*faults, *wrong, *clashes])
    return Hierarchy(**spec._asdict(), source=str(root))


def _walk(folder: Path, path: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield folder, path
    for child in subfolders(folder):
        yield from _walk(child, (*path, child.name))


def _label(tree: Hierarchy, path: tuple[str, ...], folder: Path, *, whole: bool) -> list[int]:
    """The classes along a folder's path, fine first. A `whole` path without finer folders is known down to its only leaf."""
    if len(path) > len(tree):
        raise DataError(f"{folder}: {len(path)} folders deep, but the tree has {len(tree)} levels")
    label = label_of(tree, tree.levels[::-1][: len(path)], path, str(folder))
    level = len(tree) - len(path)
    while path and whole and level > 0 and not subfolders(folder):
        children = np.flatnonzero(tree.parents[level - 1] == label[level])
        if len(children) != 1:
            break
        level -= 1
        label[level] = int(children[0])
    return label


SOURCE = Source("folder", "a folder of pictures", Path.is_dir, read_folder, order=70, read_without=read_folder)
