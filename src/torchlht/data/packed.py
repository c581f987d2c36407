"""Pictures that lie together in one file, as those of CIFAR-100 and Fashion-MNIST do: FILE#17 is picture 17 of FILE.

Those in tar files have addresses of their own; see `tars`.
"""

from __future__ import annotations

import functools
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from torchlht.data.tars import tar_of
from torchlht.errors import DataError

IDX_END = "-images-idx3-ubyte"
_reading = threading.Lock()  # pictures are checked by several threads, which would all read the file at first


def split_address(path: Path) -> tuple[Path, int] | None:
    """The file and the number that FILE#N names; None when the path is a file of its own or in a tar, or there is no FILE."""
    name, _, number = path.name.rpartition("#")
    if not name or not number.isdecimal() or name.endswith(".tar") or path.exists():
        return None
    file = path.with_name(name)
    return (file, int(number)) if file.is_file() else None


def file_of(path: Path) -> Path:
    """The file in which a picture lies: its own, or the one it shares."""
    if tar := tar_of(path):
        return tar
    packed = split_address(path)
    return packed[0] if packed else path


def open_packed(file: Path, number: int) -> Image.Image:
    """A picture of a file of many. Raises DataError when the file has no such picture or cannot be read."""
    with _reading:
        data = read_packed(file).data
    if number >= len(data):
        raise DataError(f"{file}: no picture {number}; it holds {len(data)}")
    return Image.fromarray(np.asarray(data[number]))


def read_packed(file: Path) -> Any:
    """torchvision's dataset of a file, with `data` and `targets`. It checks that a pickled file is the official one first."""
    found = _read(file)
    if isinstance(found, DataError):
        raise found
    return found


@functools.lru_cache(maxsize=4)
def _read(file: Path) -> Any:
    """The dataset, or what is wrong with it: an error is kept, too, or every picture of the file would ask again."""
    from torchvision.datasets import CIFAR100, FashionMNIST  # imports torch

    try:
        if file.name.endswith(IDX_END):
            return FashionMNIST(file.parents[2], train=file.name.startswith("train"), download=False)
        if file.parent.name == CIFAR100.base_folder:
            return CIFAR100(file.parents[1], train=file.name == "train", download=False)
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError, EOFError, OSError, pickle.PickleError):
        return DataError(f"{file}: not the official file, or a part of it only; unpack the archive again")
    return DataError(f"{file}: not a file of pictures of CIFAR-100 (cifar-100-python) or Fashion-MNIST (FashionMNIST/raw)")
