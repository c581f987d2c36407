"""Dividing classes into source and target, and drawing examples of the target classes.

    finest classes ─┬─ source ─► their training samples, under a tree of names ─► data/source.npz or .csv ─► training
                    └─ target ─► all their samples, any split ─► K drawn examples of each, the rest are test samples

Test samples of source classes, and samples whose finest class is unknown, are not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchlht.data.samples import Ints, Samples, choose_some, hashed
from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.files import csv_text, replacing, write_text
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot.grouping import check_sizes, group, name_vectors, restrict
from torchlht.lab.options import LowshotArgs


@dataclass(frozen=True)
class Protocol:
    """The samples to learn from and to test on.

    Attributes:
        source: the training samples of source classes, labelled in their tree.
        target: all samples of target classes.
        classes: (n,) the class of each target sample, as a number among `names`.
        names: the target classes, sorted.
        grouping: the tree of all classes that took part in grouping.
    """

    source: Samples
    target: Samples
    classes: Ints
    names: tuple[str, ...]
    grouping: Hierarchy

    def describe(self) -> str:
        """One line about the source and target classes."""
        return (
            f"{self.source.hierarchy.sizes[0]} classes learned from ({len(self.source):,} training samples, "
            f"{self.source.hierarchy.describe()}), {len(self.names)} new ones ({len(self.target):,} samples)"
        )


def make_protocol(args: LowshotArgs, samples: Samples) -> Protocol:
    """Divide the classes, and check that there are enough classes and samples.

    Raises:
        ConfigError: when options do not fit these classes.
        DataError: when classes are unknown or have too few samples.
    """
    tree = samples.hierarchy
    targets = target_names(args.target, tree.classes[0], seed=args.seed)
    train = samples.index("train")
    taught = set(samples.labels[train, 0].tolist())
    sources = {name for i, name in enumerate(tree.classes[0]) if i in taught and name not in targets}
    if len(sources) < 2:
        raise ConfigError(f"`target={args.target}` leaves {len(sources)} classes with training samples; leave at least 2")
    if args.top >= len(targets):
        raise ConfigError(f"`top={args.top}` of {len(targets)} new classes is always right; choose fewer, or more classes")
    grouping = make_tree(args, tree, sources, targets)
    names, fine = sorted(targets), np.array([*tree.classes[0], ""])[samples.labels[:, 0]]  # the last entry is for -1
    asked = np.flatnonzero(np.isin(fine, names))
    classes = np.searchsorted(names, fine[asked])
    check_counts(names, classes, max(args.shot_list()))
    learned = samples.select(train[np.isin(fine[train], list(sources))])
    return Protocol(under(learned, restrict(grouping, sources)), samples.select(asked), classes, tuple(names), grouping)


def target_names(text: str, known: Sequence[str], *, seed: int) -> set[str]:
    """The new classes: a number of them, drawn by a hash of their names, or those that a file lists."""
    if text.isdigit():
        count = int(text)
        if not 2 <= count <= len(known) - 2:
            raise ConfigError(f"`target={count}` of {len(known)} classes: at least 2 must be new, and 2 left to learn from")
        drawn = choose_some(known, ["class"] * len(known), lambda *_: count, seed=seed, purpose="lowshot target")
        return {name for name, here in zip(known, drawn, strict=True) if here}
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"`target={text}`: neither a number nor a readable file of class names ({error})") from None
    names = {line.strip() for line in lines if line.strip()}
    for name in sorted(names - set(known)):
        raise DataError(f"{text}: the data has no class {name!r}: {suggestion(name, known)}")
    if len(names) < 2:
        raise DataError(f"{text}: it names {len(names)} classes; name at least 2")
    return names


def make_tree(args: LowshotArgs, tree: Hierarchy, sources: set[str], targets: set[str]) -> Hierarchy:
    """The tree to train on, before target classes are removed."""
    if args.tree == "data":
        return tree
    names = sorted(sources | targets if args.cluster == "all" else sources)
    sizes = args.group_list()
    check_sizes(sizes, len(names))
    return group(names, name_vectors(names, args.vectors), sizes, seed=args.seed, level=tree.levels[0])


def check_counts(names: Sequence[str], classes: Ints, shots: int) -> None:
    """Raise DataError that lists all classes with too few samples for the examples and one test sample."""
    count = np.bincount(classes, minlength=len(names))
    few = [f"{name} ({n})" for name, n in zip(names, count.tolist(), strict=True) if n <= shots]
    if few:
        raise DataError(
            f"{shots} shots need {shots + 1} samples of every new class, one of them to test on; too few of {', '.join(few)}: "
            "lower `shots`, or name other classes in a `target` file"
        )


def under(samples: Samples, tree: Hierarchy) -> Samples:
    """The same samples, labelled in another tree by the names of their finest classes."""
    old = samples.hierarchy.classes[0]
    leaves = np.array([tree.index(0, old[i]) for i in samples.labels[:, 0]])
    labels = np.stack([tree.ancestors(k)[leaves] for k in range(len(tree))], axis=1)
    return Samples(samples.name, tree, samples.keys, labels, samples.split, samples.images, samples.features)


def ranks(keys: Sequence[str], classes: Ints, *, seed: int, number: int) -> Ints:
    """(n,) the rank of each sample within its class in a draw: the first K are the examples of K shots.

    It depends on the keys, the seed and the number of the draw alone. So every method gets the same examples, and those of
    fewer shots are among those of more.
    """
    purpose = f"lowshot examples {number}"
    order = sorted(range(len(keys)), key=lambda i: (classes[i], hashed(seed, purpose, keys[i]), keys[i]))
    found, count = np.zeros(len(keys), dtype=np.int64), dict.fromkeys(classes.tolist(), 0)
    for i in order:
        found[i] = count[int(classes[i])]
        count[int(classes[i])] += 1
    return found


# ---- the source samples as a file ---------------------------------------------------------------------------------


def write_source(samples: Samples, folder: Path) -> Path:
    """Write the source samples as a separate dataset: features as an .npz, pictures as a table of absolute paths."""
    folder.mkdir(parents=True, exist_ok=True)
    return write_features(samples, folder / "source.npz") if samples.images is None else write_table(samples, folder)


def write_features(samples: Samples, path: Path) -> Path:
    """Write an .npz for `read_embeddings`."""
    tree = samples.hierarchy
    arrays: dict[str, Any] = {"x": samples.features, "y": samples.labels, "train": np.ones(len(samples), dtype=bool)}
    arrays |= tree.arrays()
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez(file, **arrays)
    return path


def write_table(samples: Samples, folder: Path) -> Path:
    """Write a table of pictures for `read_table_data`."""
    tree = samples.hierarchy
    assert samples.images is not None
    rows: list[list[str]] = [["path", *(tree.levels[k] for k in tree.top_down), "split"]]
    for picture, label in zip(samples.images, samples.labels, strict=True):
        rows.append([str(Path(str(picture)).resolve()), *tree.cells(label), "train"])
    write_text(folder / "source.csv", csv_text(rows))
    return folder / "source.csv"
