"""Samples with several labels each, in a graph of classes: features and what is known about every node."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.data.arff import Arff, read_arff
from torchlht.errors import DataError
from torchlht.hierarchy.graph import Graph, Labels

Floats = NDArray[np.float32]
PARTS = ("trainvalid", "train", "valid", "test")  # as files are named
SPLITS = {"trainvalid": "train", "train": "train", "valid": "val", "test": "test"}


@dataclass(frozen=True)
class Several:
    """Samples with several labels each.

    Attributes:
        features: (N, d), NaN where a value is missing.
        labels: (N, nodes): 1 the sample has the class, 0 it does not, -1 unknown; ancestors are filled in.
        graph: the classes.
        judged: (nodes,) which classes are taught and measured.
        split: "train", "val" or "test" for each sample.
        source: where it was read.
    """

    features: Floats
    labels: Labels
    graph: Graph
    judged: NDArray[np.bool_]
    split: NDArray[np.str_]
    source: str = ""

    def __len__(self) -> int:
        return len(self.features)

    def index(self, *splits: str) -> NDArray[np.int64]:
        """The positions of the samples of these parts."""
        return np.flatnonzero(np.isin(self.split, splits))

    def describe(self) -> str:
        """One line about it."""
        return f"{len(self):,} samples of {self.features.shape[1]:,} features · {self.graph.describe()}"


def is_several(source: str | Path) -> bool:
    """Whether a name is that of data with several labels per sample."""
    return Path(source).suffix.lower() == ".arff"


def read_several(source: str | Path) -> Several:
    """Read an .arff file. If its name says which part it is, train, valid or test, the other parts beside it are read too.

    Raises:
        DataError: when a file is faulty, with the line, or when parts do not fit together.
    """
    path = Path(source)
    files = beside(path)
    parts = {name: read_arff(file) for name, file in files.items()}
    first = next(iter(parts.values()))
    for name, part in parts.items():
        if part.columns != first.columns or part.graph != first.graph:
            raise DataError(f"{files[name]}: its attributes or classes are not those of {next(iter(files.values()))}")
    split = np.concatenate([np.full(len(part.labels), SPLITS[name]) for name, part in parts.items()])
    return Several(_stacked(parts, "features"), _stacked(parts, "labels"), first.graph, first.judged, split, str(path))


def _stacked(parts: dict[str, Arff], name: str) -> Any:
    return np.concatenate([getattr(part, name) for part in parts.values()])


def beside(path: Path) -> dict[str, Path]:
    """A file and the parts beside it, by part: `birds.train.arff` has `birds.valid.arff` and `birds.test.arff`."""
    found = re.fullmatch(rf"(.*[._-])({'|'.join(PARTS)})", path.stem, re.IGNORECASE)
    if not found:
        return {"train": path}
    own, stem = found[2].lower(), found[1].lower()
    others = {file.stem.lower(): file for file in path.parent.glob("*") if file.suffix.lower() == ".arff"}
    there = {part: others[stem + part] for part in PARTS if stem + part in others}
    return {"test": path} if own == "test" and len(there) == 1 else there | {own: path}


def hold_out(data: Several, share: float, seed: int, into: str) -> Several:
    """The same with a share of the training samples moved to another part, drawn by the seed."""
    train = data.index("train")
    count = round(share * len(train))
    chosen = np.random.default_rng([seed, len(into)]).permutation(train)[:count]
    split = data.split.astype("U5")
    split[chosen] = into
    return dataclasses.replace(data, split=split)


def hide(data: Several, share: float, seed: int) -> Several:
    """The same with a share of the most specific labels of training and validation samples hidden.

    A hidden label is cut back to its parents. What lies below these, and is not known by another label, is unknown.
    Top nodes stay known.
    """
    if not share:
        return data
    graph, labels = data.graph, data.labels.copy()
    seen = np.isin(data.split, ("train", "val"))
    top = np.array([not above for above in graph.parents])
    candidates = np.argwhere(graph.ends(labels) & ~top & seen[:, None])
    generator = np.random.default_rng([seed, 1])
    chosen = generator.permutation(len(candidates))[: round(share * len(candidates))]
    opened = np.zeros(labels.shape, dtype=bool)
    for row, node in candidates[chosen]:
        labels[row, node] = 0
        opened[row, list(graph.parents[node])] = True
    return dataclasses.replace(data, labels=graph.open_below(labels, opened))
