"""What to predict, as people name it: pictures, folders, patterns, tables, shards, files of features."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.arff import in_order, read_arff
from torchlht.data.named import is_known
from torchlht.data.pictures import Picture, as_place, as_url, is_image, picture_at
from torchlht.data.samples import read_data, source_of
from torchlht.data.several import is_several, read_several
from torchlht.data.sources.embeddings import read_features
from torchlht.data.sources.table import listed
from torchlht.errors import DataError


def expand(inputs: Sequence[str], *, want_images: bool) -> list[Picture]:
    """The pictures, or files of features, that paths, folders, patterns and datasets name, in order."""
    if not inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with pictures, folders or patterns")
    files: list[Picture] = []
    for name in inputs:
        path, picture = as_place(name), picture_at(name)
        if want_images and is_image(path) and picture.state():
            found = [picture]
        elif want_images and is_dataset(name, path):
            found = test_pictures(name)
        elif path.is_dir():
            inside = (p for p in path.rglob("*") if p.is_file() and (is_image(p) if want_images else p.suffix == ".npz"))
            found = [picture_at(p) for p in sorted(inside)]
        else:
            matching = glob.glob(name, recursive=True)  # noqa: PTH207 - absolute patterns, too
            found = [picture] if picture.state() else [picture_at(p) for p in sorted(map(Path, matching))]
        if not found:
            check_named(name)
            raise DataError(f"{name}: holds no {'pictures' if want_images else '.npz files'}")
        files += found
    return files


def check_named(name: str) -> None:
    """Raise DataError if nothing has this name: no file or folder, nothing that matches it, no dataset."""
    path = as_place(name)
    there = as_url(path) or path.exists() or picture_at(name).state() or glob.glob(name, recursive=True)  # noqa: PTH207
    if not there and not is_dataset(name, path):
        raise DataError(f"{name}: no such file, and nothing matches it")


def pictures_of(name: str | Path) -> list[str | Path | Picture]:
    """The pictures that a folder, pattern or dataset stands for; the name of a picture stands for itself."""
    path = as_place(name)
    pattern = glob.has_magic(str(name)) and not path.exists()
    return [name] if is_image(path) and not pattern and not path.is_dir() else [*expand([str(name)], want_images=True)]


def is_dataset(name: str, path: Path) -> bool:
    """Whether a name stands for data with test pictures: one known by name, a table, shards."""
    source = source_of(path)
    return is_known(name) or (source is not None and source.name not in ("folder", "embeddings"))


def test_pictures(name: str) -> list[Picture]:
    """The test pictures of a dataset, or all of them when it has no test part."""
    source = source_of(as_place(name))
    if source is not None and source.name == "table" and not is_known(name):
        images, split = listed(as_place(name))
    else:
        samples = read_several(name) if is_several(name) else read_data(name)
        images, split = list(samples.images or ()), samples.split.tolist()
    return [image for image, part in zip(images, split, strict=False) if part == "test" or "test" not in split]


def feature_rows(file: Picture | Path | str, columns: Sequence[str] = ()) -> NDArray[np.float32]:
    """The features in an .npz or .arff, one row per sample, in the order of these columns, if both have names.

    Raises:
        DataError: when there is no such file, it is a picture, or its features have other names.
    """
    path = Path(str(file))
    if is_image(path):
        raise DataError(
            f"{path} is a picture, but this model takes features: pass an .npz with an array 'x', made by the network "
            "that made the training features, or train a model on pictures"
        )
    if not path.exists():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() == ".arff":
        found = read_arff(path)
        return in_order(found.features, found.columns, columns or found.columns, str(path))
    return read_features(path)
