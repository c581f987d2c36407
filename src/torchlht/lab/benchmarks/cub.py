"""Caltech-UCSD Birds-200-2011, as its archive unpacks:

CUB_200_2011/images/001.Black_footed_Albatross/*.jpg
CUB_200_2011/images.txt               17 002.Laysan_Albatross/Laysan_Albatross_0002_1027.jpg
CUB_200_2011/image_class_labels.txt   17 2
CUB_200_2011/train_test_split.txt     17 1
CUB_200_2011/classes.txt              2 002.Laysan_Albatross

The archive has no families and orders: these are trees/cub.json. The tree that published numbers were measured with has an
error, a kittiwake alone in a family next to the kingfishers, and the junco among the sparrows: trees/cub-published.json.
"""

from __future__ import annotations

from pathlib import Path

from torchlht.errors import DataError
from torchlht.lab.benchmarks.archive import (
    Archive,
    Labelled,
    Request,
    find_base,
    look_up,
    read_pairs,
    require,
    same_keys,
    shipped_tree,
)

FILES = ("images.txt", "image_class_labels.txt", "train_test_split.txt")
SPLITS = {"1": "train", "0": "test"}


def read_cub(root: Path, request: Request) -> Archive:
    """Read the birds under `root`, which is CUB_200_2011 or holds it."""
    base = find_base(root, ("CUB_200_2011", "."), (*FILES, "classes.txt", "images"))
    require(base, files=(*FILES, "classes.txt"), folders=("images",))
    tree = shipped_tree("cub" if request.tree == "default" else "cub-published")
    try:
        leaves = {number: tree.index(0, name) for number, name in read_pairs(base / "classes.txt").items()}
    except DataError as error:
        raise DataError(f"{base / 'classes.txt'}: {error}") from None
    tables = {str(base / name): read_pairs(base / name) for name in FILES}
    same_keys(tables)
    files, labels, train = tables.values()
    of_labels, of_train = list(tables)[1:]
    pictures = [
        Labelled(
            str(base / "images" / file),
            look_up(leaves, labels[i], f"{of_labels} picture {i}"),
            look_up(SPLITS, train[i], f"{of_train} picture {i}"),
        )
        for i, file in files.items()
    ]
    return Archive(tree, pictures)
