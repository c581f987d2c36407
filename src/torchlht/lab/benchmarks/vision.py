"""Archives that torchvision reads: CIFAR-100, Fashion-MNIST and iNaturalist 2021.

cifar-100-python/train, test, meta
FashionMNIST/raw/train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte
2021_train/00000_Animalia_Annelida_Clitellata_Haplotaxida_Lumbricidae_Lumbricus_terrestris/*.jpg
2021_train_mini/, which can replace 2021_train/, and 2021_valid/

Superclasses of CIFAR-100 are in its archive, and taxa of iNaturalist in the names of its folders. Fashion-MNIST has classes
only; the usual grouping of them is trees/fashion-mnist.json:

clothes   tops {T-shirt/top, Pullover, Shirt}, bottoms {Trouser}, dresses {Dress}, outers {Coat}
goods     accessories {Bag}, shoes {Sandal, Sneaker, Ankle boot}
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlht.data.pictures import IDX_END, read_packed
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import Archive, Labelled, Request, find_base, place, require, shipped_tree
from torchlht.lab.benchmarks.prepare import RANKS

CIFAR = "cifar-100-python"
INAT_TRAIN, INAT_TEST = ("2021_train", "2021_train_mini"), "2021_valid"


# ---- CIFAR-100 -----------------------------------------------------------------------------------------------------


class PlainUnpickler(pickle.Unpickler):
    """Reads numbers, texts and arrays only: other pickled files could run any program."""

    def find_class(self, module: str, name: str) -> Any:
        """The classes that make up an array. Raises UnpicklingError for all others."""
        if (module, name) not in {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("_codecs", "encode"),
        }:
            raise pickle.UnpicklingError(f"{module}.{name} is not part of an array")
        return super().find_class(module, name)


def read_cifar100(root: Path, request: Request) -> Archive:
    """Read the pictures under `root`, which is cifar-100-python or holds it."""
    base = root.resolve() if root.name == CIFAR else find_base(root, (".",), ()) / CIFAR
    require(base, files=("train", "test", "meta"))
    parts = {split: (read_packed(base / split), _unpickled(base / split)) for split in ("train", "test")}
    meta = _unpickled(base / "meta")
    fine, coarse = meta["fine_label_names"], meta["coarse_label_names"]
    parents: dict[str, str] = {}
    for split, (_, content) in parts.items():
        for i, (label, above) in enumerate(zip(content["fine_labels"], content["coarse_labels"], strict=True)):
            place(parents, "class", fine[label], coarse[above], f"{base / split}#{i}")
    tree = Hierarchy.from_paths([(parents[name], name) for name in fine if name in parents], ("superclass", "class"))
    pictures = [
        Labelled(f"{base / split}#{i}", tree.index(0, fine[label]), split)
        for split, (dataset, _) in parts.items()
        for i, label in enumerate(dataset.targets)
    ]
    return Archive(tree, pictures)


def _unpickled(file: Path) -> dict[str, Any]:
    """The content of a file that torchvision does not expose, read with `PlainUnpickler`."""
    try:
        with file.open("rb") as stream:
            content: dict[str, Any] = PlainUnpickler(stream, encoding="latin1").load()
    except (pickle.PickleError, EOFError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise DataError(f"{file}: not a file of CIFAR-100 ({error}); unpack the archive again") from None
    return content


# ---- Fashion-MNIST -------------------------------------------------------------------------------------------------


def read_fashion(root: Path, request: Request) -> Archive:
    """Read the articles under `root`, which is FashionMNIST or holds it."""
    base = root.resolve() if root.name == "FashionMNIST" else find_base(root, (".",), ()) / "FashionMNIST"
    files = [f"raw/{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    if packed := [name for name in files if not (base / name).is_file() and (base / f"{name}.gz").is_file()]:
        raise DataError(f"{base}: {', '.join(f'{name}.gz' for name in packed)} must be unpacked: gunzip -k {base}/raw/*.gz")
    require(base, files=files)
    tree = shipped_tree("fashion-mnist")
    pictures = []
    for split, part in (("train", "train"), ("test", "t10k")):
        file = base / "raw" / f"{part}{IDX_END}"
        dataset = read_packed(file)
        leaves = [tree.index(0, name) for name in dataset.classes]
        if len(dataset.data) != len(dataset.targets):
            raise DataError(f"{file}: {len(dataset.data)} pictures but {len(dataset.targets)} labels")
        pictures += [Labelled(f"{file}#{i}", leaves[label], split) for i, label in enumerate(dataset.targets.tolist())]
    return Archive(tree, pictures)


# ---- iNaturalist 2021 ----------------------------------------------------------------------------------------------


def read_inat(root: Path, request: Request) -> Archive:
    """The species under `root`."""
    base = find_base(root, (".",), ())
    train = next((name for name in INAT_TRAIN if (base / name).is_dir()), None)
    missing = [f"{' or '.join(INAT_TRAIN)}/"] if train is None else []
    missing += [f"{INAT_TEST}/"] if not (base / INAT_TEST).is_dir() else []
    if missing or train is None:
        unpacked = "the archives unpack as train/, train_mini/ and val/; rename them as torchvision does"
        raise DataError(f"{base}: missing {', '.join(missing)} ({unpacked})")
    parts = {"train": _inat_part(base, train), "test": _inat_part(base, INAT_TEST)}
    folders = parts["train"].all_categories
    if folders != parts["test"].all_categories:
        which = sorted(set(folders) ^ set(parts["test"].all_categories))
        raise DataError(f"{base}: {which[0]} is in only one of {train} and {INAT_TEST}")
    tree, names = taxa(folders)
    pictures = [
        Labelled(f"{dataset.root}/{folders[leaf]}/{name}", leaf, split)
        for split, dataset in parts.items()
        for leaf, name in sorted(dataset.index)
    ]
    return Archive(tree, pictures, names=names)


def _inat_part(base: Path, version: str) -> Any:
    """torchvision's dataset of a folder."""
    from torchvision.datasets import INaturalist  # imports torch

    try:
        return INaturalist(base, version=version, download=False)
    except (RuntimeError, OSError) as error:
        reason = str(error).partition(". You can")[0]
        raise DataError(f"{base / version}: {reason}") from None


def taxa(folders: Sequence[str]) -> tuple[Hierarchy, tuple[int, ...]]:
    """The tree in the names of folders, one species each, and how many names each rank has, fine first.

    An animal and a plant may share the name of a genus. Such taxa get the name of their parent in brackets.
    """
    paths = [folder.split("_")[1:] for folder in folders]
    named = [[*path[:6], f"{path[5]} {path[6]}"] for path in paths]
    if len({tuple(path) for path in named}) < len(named):
        raise DataError("two folders hold the same species; the archive has one folder per species")
    above: list[dict[str, set[tuple[str, ...]]]] = [{} for _ in RANKS]
    for path in named:
        for depth, name in enumerate(path):
            above[depth].setdefault(name, set()).add(tuple(path[:depth]))

    def unique(path: Sequence[str]) -> list[str]:
        labels: list[str] = []
        for depth, name in enumerate(path):
            labels.append(name if len(above[depth][name]) == 1 else f"{name} ({labels[-1]})")
        return labels

    return Hierarchy.from_paths([unique(path) for path in named], RANKS), tuple(len(names) for names in reversed(above))
