"""A tree of folders. A picture in an inner folder is labelled only down to that folder.

    birds/Charadriiformes/Laridae/Ivory Gull/1.jpg      order, family and species known
    birds/Charadriiformes/Laridae/2.jpg                 order and family known
    birds/Charadriiformes/3.jpg                         order known

Top folders are splits, not classes, if there are only train, val and test. With a tree of its own, one level of folders
may be named after classes of any level, as torchvision's ImageFolder has them:

    photos/train/Ivory Gull/1.jpg                       with --hierarchy tree.csv: order and family follow from the tree
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import numpy as np

from torchlht.data.pictures import FilePicture, images_in
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_by_name, label_of, refuse_faults
from torchlht.errors import DataError, Fault
from torchlht.hierarchy.paths import Row, Spec, build
from torchlht.hierarchy.reading import folder_rows, subfolders, to_depth
from torchlht.hierarchy.tree import Hierarchy


def read_folder(
    root: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read a folder of pictures; the tree comes from the folders unless one is given. `unknown` folders are no classes."""
    parts = parts_of(root)
    tree = hierarchy or tree_of_folders([part for part, _ in parts], root, levels, unknown)
    flat = hierarchy is not None and _is_flat([part for part, _ in parts], hierarchy, unknown)

    keys, labels, splits, images = [], [], [], []
    for part, split in parts:
        for folder, path in walk(part, ()):
            known = known_part(path, unknown)
            if flat and known:
                label = label_by_name(tree, known[0], str(folder))
            else:
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


def parts_of(root: Path) -> list[tuple[Path, str]]:
    """The folders that hold classes, each with its part of the data. Raises DataError if there are no folders inside."""
    tops = subfolders(root)
    if not tops:
        raise DataError(f"{root}: no folders inside; expected one folder per class, folders inside folders for finer classes")
    in_splits = all(top.name.lower() in SPLIT_NAMES for top in tops)
    return [(top, SPLIT_NAMES[top.name.lower()]) for top in tops] if in_splits else [(root, "train")]


def known_part(path: tuple[str, ...], unknown: Set[str]) -> tuple[str, ...]:
    """The names of a path before the first that means unknown."""
    return tuple(itertools.takewhile(lambda name: name.strip().casefold() not in unknown, path))


def _is_flat(parts: Sequence[Path], tree: Hierarchy, unknown: Set[str]) -> bool:
    """Whether there is one level of folders, and not all are classes of the coarsest level."""
    folders = [folder for part in parts for folder in subfolders(part)]
    names = {folder.name for folder in folders if folder.name.strip().casefold() not in unknown}
    return not names <= set(tree.classes[-1]) and not any(subfolders(folder) for folder in folders)


def tree_of_folders(parts: Sequence[Path], root: Path, levels: Sequence[str] | None, unknown: Set[str]) -> Hierarchy:
    """The tree of the folders inside these. Raises DataError or HierarchyError when there is none."""
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


def walk(folder: Path, path: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A folder and all inside it, each with its path of names."""
    yield folder, path
    for child in subfolders(folder):
        yield from walk(child, (*path, child.name))


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
