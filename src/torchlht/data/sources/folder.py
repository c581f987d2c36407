"""A tree of folders. A picture in an inner folder is labelled only down to that folder.

    birds/Charadriiformes/Laridae/Ivory Gull/1.jpg      order, family and species known
    birds/Charadriiformes/Laridae/2.jpg                 order and family known
    birds/Charadriiformes/3.jpg                         order known

Top folders are splits, not classes, if there are only train, val and test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from torchlht.data.pictures import FilePicture, images_in
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_of
from torchlht.errors import DataError, Fault, HierarchyError
from torchlht.hierarchy.reading import Row, Spec, build, folder_rows, subfolders, to_depth
from torchlht.hierarchy.tree import Hierarchy


def read_folder(root: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> Samples:
    """Read a folder of pictures; the tree comes from the folders unless one is given."""
    tops = subfolders(root)
    if not tops:
        raise DataError(f"{root}: no folders inside; expected one folder per class, folders inside folders for finer classes")
    in_splits = all(top.name.lower() in SPLIT_NAMES for top in tops)
    parts = [(top, SPLIT_NAMES[top.name.lower()]) for top in tops] if in_splits else [(root, "train")]
    tree = hierarchy or _tree_of([part for part, _ in parts], root, levels)

    keys, labels, splits, images = [], [], [], []
    for part, split in parts:
        for folder, path in _walk(part, ()):
            label = _label(tree, path, folder)
            for image in images_in(folder):
                keys.append(image.relative_to(root).as_posix())
                labels.append(label)
                splits.append(split)
                images.append(FilePicture(image))
    if not images:
        raise DataError(f"{root}: no pictures in it or its folders (looked for .jpg, .png, .webp and other common kinds)")
    filled = tree.fill(np.array(labels, dtype=np.int64), where=lambda i: keys[i])
    return Samples(root.name, tree, tuple(keys), filled, np.array(splits), images=tuple(images))


def _tree_of(parts: Sequence[Path], root: Path, levels: Sequence[str] | None) -> Hierarchy:
    rows: list[Row] = []
    faults: list[Fault] = []
    for part in parts:
        found, wrong = folder_rows(part)
        rows += found
        faults += wrong
    if not rows and not faults:
        raise DataError(f"{root}: no class folders inside {', '.join(part.name for part in parts)}")
    rows.sort(key=lambda row: row.names)
    rows, names, wrong = to_depth(rows, levels)
    spec, clashes = build(rows, names) if not wrong else (Spec((), (), ()), [])
    if faults := [*faults, *wrong, *clashes]:
        raise HierarchyError(str(root), faults)
    return Hierarchy(**spec._asdict(), source=str(root))


def _walk(folder: Path, path: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    yield folder, path
    for child in subfolders(folder):
        yield from _walk(child, (*path, child.name))


def _label(tree: Hierarchy, path: tuple[str, ...], folder: Path) -> list[int]:
    """The classes along a folder's path, fine first. A branch without finer folders is known down to its pass-through leaf."""
    if len(path) > len(tree):
        raise DataError(f"{folder}: {len(path)} folders deep, but the tree has {len(tree)} levels")
    label = label_of(tree, tree.levels[::-1][: len(path)], path, str(folder))
    level = len(tree) - len(path)
    while path and level > 0 and not subfolders(folder):
        children = np.flatnonzero(tree.parents[level - 1] == label[level])
        if len(children) != 1:
            break
        level -= 1
        label[level] = int(children[0])
    return label


SOURCE = Source("folder", "a folder of pictures", Path.is_dir, read_folder, order=70)
