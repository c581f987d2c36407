"""Stanford Cars, in either of the two layouts it was published in:

old   car_ims/000001.jpg, cars_annos.mat (annotations: relative_im_path, bbox_…, class, test; class_names)
new   cars_train/00001.jpg, cars_test/00001.jpg, devkit/cars_meta.mat (class_names), devkit/cars_train_annos.mat and
      cars_test_annos_withlabels.mat (annotations: bbox_…, class, fname)

Some copies nest folders (cars_train/cars_train, car_devkit/devkit) or put all into stanford_cars. Body types are not in the
archive: trees/cars.json has them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import Archive, Labelled, Request, find_base, shipped_tree

BASES = ("stanford_cars", ".")
DEVKITS = ("devkit", "car_devkit/devkit", "car_devkit", ".")
WITH_LABELS = "cars_test_annos_withlabels.mat"
BARE = "cars_test_annos.mat"


def read_cars(root: Path, request: Request) -> Archive:
    """The cars under `root`, in either layout."""
    base = find_base(root, BASES, ("cars_annos.mat", "car_ims", "cars_train", "cars_test", "devkit", "car_devkit"))
    tree = shipped_tree("cars")
    if (base / "cars_annos.mat").is_file() and (base / "car_ims").is_dir():
        return Archive(tree, _old(base, tree))
    return Archive(tree, _new(base, tree))


def _old(base: Path, tree: Hierarchy) -> list[Labelled]:
    """The pictures of the old layout: one list for both splits."""
    file = base / "cars_annos.mat"
    content = load_mat(file, ("annotations", "class_names"))
    leaves = match_names(tree, content["class_names"], file)
    fields = _fields(content["annotations"], ("relative_im_path", "class", "test"), file)
    return [
        Labelled(str(base / str(path)), _leaf(leaves, number, file), "test" if int(test) else "train")
        for path, number, test in zip(*fields, strict=True)
    ]


def _new(base: Path, tree: Hierarchy) -> list[Labelled]:
    """The pictures of the new layout: a folder and a list for each split."""
    folders = {split: _folder(base, f"cars_{split}") for split in ("train", "test")}
    meta, train, test = (_kit_file(base, name) for name in ("cars_meta.mat", "cars_train_annos.mat", WITH_LABELS))
    missing = [f"cars_{split}/" for split, folder in folders.items() if folder is None]
    missing += [f"devkit/{name}" for name, file in (("cars_meta.mat", meta), ("cars_train_annos.mat", train)) if file is None]
    if test is None:
        missing.append(f"{WITH_LABELS}{_why_labels(base)}")
    if missing or meta is None or train is None or test is None:
        raise DataError(f"{base}: neither car_ims/ with cars_annos.mat, nor the newer layout, which lacks {', '.join(missing)}")
    leaves = match_names(tree, load_mat(meta, ("class_names",))["class_names"], meta)
    pictures = []
    for split, file in (("train", train), ("test", test)):
        names, numbers = _fields(load_mat(file, ("annotations",))["annotations"], ("fname", "class"), file)
        pairs = zip(names, numbers, strict=True)
        pictures += [Labelled(f"{folders[split]}/{name}", _leaf(leaves, number, file), split) for name, number in pairs]
    return pictures


def _folder(base: Path, name: str) -> Path | None:
    """A folder of pictures, which some copies put into a folder of the same name."""
    return next((folder for folder in (base / name / name, base / name) if folder.is_dir()), None)


def _kit_file(base: Path, name: str) -> Path | None:
    """A file of the development kit, wherever it was unpacked to."""
    return next((base / folder / name for folder in DEVKITS if (base / folder / name).is_file()), None)


def _why_labels(base: Path) -> str:
    """A remark if there is only the list of test pictures without labels, as in most copies."""
    bare = _kit_file(base, BARE)
    return f" ({bare} has no labels; the file with labels was published separately, on the same page)" if bare else ""


def load_mat(file: Path, wanted: Sequence[str]) -> dict[str, Any]:
    """These variables of a MATLAB file."""
    from scipy.io import loadmat  # slow to import
    from scipy.io.matlab import MatReadError

    try:
        content: dict[str, Any] = loadmat(file, squeeze_me=True)
    except (MatReadError, ValueError, TypeError, OSError, NotImplementedError) as error:
        raise DataError(f"{file}: not a readable MATLAB file ({error})") from None
    if missing := [name for name in wanted if name not in content]:
        raise DataError(f"{file}: holds no {', '.join(missing)}")
    return content


def _fields(annotations: Any, names: Sequence[str], file: Path) -> list[list[Any]]:
    """Columns of an array of structs."""
    rows = np.atleast_1d(annotations)
    if missing := [name for name in names if name not in (rows.dtype.names or ())]:
        without = " (a list without labels; the one with labels was published separately)" if "class" in missing else ""
        raise DataError(f"{file}: its annotations have no {', '.join(missing)}{without}")
    return [[_plain(value) for value in rows[name]] for name in names]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def match_names(tree: Hierarchy, names: Any, file: Path) -> list[int]:
    """The finest class of each name, in the order of the archive's class numbers. Copies differ in signs and spaces."""
    known = {_letters(name): j for j, name in enumerate(tree.classes[0])}
    found = []
    for name in np.atleast_1d(names).tolist():
        if _letters(str(name)) not in known:
            raise DataError(f"{file}: {str(name)!r} is not one of the {len(known)} known models")
        found.append(known[_letters(str(name))])
    return found


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _leaf(leaves: Sequence[int], number: Any, file: Path) -> int:
    if not 1 <= int(number) <= len(leaves):
        raise DataError(f"{file}: class {number} of {len(leaves)}")
    return leaves[int(number) - 1]
