"""Samples with several labels each, in a graph of classes: pictures or features, and what is known about every node."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.arff import in_order, read_arff
from torchlht.data.listing import has_bars, label_matrix, list_folder, list_table
from torchlht.data.named import is_known, known_names
from torchlht.data.nodes import holds_nodes, read_nodes
from torchlht.data.options import TreeArgs
from torchlht.data.pictures import Picture, as_place, content_digest
from torchlht.data.samples import Samples, is_plain_folder
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.hierarchy.linked import has_several_parents, holds_links
from torchlht.hierarchy.tree import Hierarchy, default_levels

Floats = NDArray[np.float32]
PARTS = ("trainvalid", "train", "valid", "test")  # as files are named
SPLITS = {"trainvalid": "train", "train": "train", "valid": "val", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class Several:
    """Samples with several labels each.

    Attributes:
        keys: a name per sample that does not change when the data moves.
        labels: (N, nodes): 1 the sample has the class, 0 it does not, -1 unknown; ancestors are filled in.
        graph: the classes.
        judged: (nodes,) which classes are taught and measured.
        split: "train", "val" or "test" for each sample.
        images: a picture per sample, or None for features.
        features: (N, d), NaN where a value is missing; None for pictures.
        columns: names of the features, if the data names them.
        levels: names of the levels, coarse → fine; empty if the data does not name them.
        exclusive: whether each sample belongs to exactly one leaf.
        source: where it was read.
    """

    keys: tuple[str, ...]
    labels: Labels
    graph: Graph
    judged: NDArray[np.bool_]
    split: NDArray[np.str_]
    images: tuple[Picture, ...] | None = None
    features: Floats | None = None
    columns: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    exclusive: bool = False
    source: str = ""

    def __len__(self) -> int:
        return len(self.keys)

    def features_of(self, rows: NDArray[np.int64]) -> Floats:
        """The features of some samples. Raises DataError for pictures."""
        if self.features is None:
            raise DataError(f"{self.source}: holds pictures; features are needed")
        return self.features[rows]

    def with_columns(self, columns: tuple[str, ...]) -> Several:
        """With the features in the order of these names, if both are known. Raises DataError when they are others."""
        if self.features is None or not columns or not self.columns:
            return self
        features = in_order(self.features, self.columns, columns, self.source)
        return dataclasses.replace(self, features=features, columns=columns)

    def select(self, keep: NDArray[np.int64]) -> Several:
        """Only these samples."""
        return dataclasses.replace(
            self,
            keys=tuple(self.keys[i] for i in keep),
            labels=self.labels[keep],
            split=self.split[keep],
            images=tuple(self.images[i] for i in keep) if self.images else None,
            features=None if self.features is None else self.features[keep],
        )

    def fingerprint(self) -> str:
        """A hash that changes when the pictures do."""
        return content_digest(self.images or ())

    def index(self, *splits: str) -> NDArray[np.int64]:
        """The positions of the samples of these parts."""
        return np.flatnonzero(np.isin(self.split, splits))

    def describe(self) -> str:
        """One line about it."""
        held = "pictures" if self.features is None else f"samples of {self.features.shape[1]:,} features"
        many = "" if self.exclusive else ", several labels each"
        return f"{len(self):,} {held}{many} · {self.graph.describe()}"


@dataclass(frozen=True)
class Asked:
    """How data is to be read: see `TreeArgs` and `SeveralArgs`. A tree is read only if something asks for it, and once.

    Attributes:
        levels: names of the levels, coarse → fine, if they are given.
        unknown: names that mean that a label is missing, in lower case.
        several: whether samples have several labels each, if that is told.
        hierarchy: a file of the tree or graph, or None.
        of_model: instead of it, the graph of a model, and the names of its levels.
    """

    levels: tuple[str, ...] | None = None
    unknown: frozenset[str] = frozenset()
    several: bool | None = None
    hierarchy: Path | None = None
    of_model: tuple[Graph, tuple[str, ...]] | None = None

    @classmethod
    def by(cls, args: TreeArgs, several: bool | None) -> Asked:
        """What options ask for."""
        levels, names = args.level_names(), args.unknown_names()
        return cls(tuple(levels) if levels else None, frozenset(name.casefold() for name in names), several, args.hierarchy)

    @property
    def graph(self) -> Graph | None:
        """The graph to read the data with; None for its own."""
        return self._given[0]

    @property
    def known(self) -> tuple[str, ...]:
        """The names of its levels, coarse → fine, if it has levels."""
        return self._given[1]

    @functools.cached_property
    def _given(self) -> tuple[Graph | None, tuple[str, ...]]:
        if self.of_model or self.hierarchy is None:
            return self.of_model or (None, ())
        if holds_links(self.hierarchy) or has_several_parents(self.hierarchy):
            return Graph.read(self.hierarchy), ()
        tree = Hierarchy.read(self.hierarchy)
        return Graph.from_tree(tree), level_names(tree)


USUAL = Asked()


def is_several(source: str | Path, asked: Asked = USUAL) -> bool:
    """Whether samples have several labels each: an .arff, an .npz with `nodes`, a table with a `|` in a label cell.

    `several` decides what to make of tables and folders.
    """
    path = place_of(source)
    kind = path.suffix.lower()
    if kind == ".arff":
        return True
    if asked.several is False or not (path.is_file() or path.is_dir()):
        return False  # what reads it says what is wrong with a pipe
    if is_plain_folder(path):
        return bool(asked.several)
    if kind == ".npz" and holds_nodes(path):
        return True
    if kind in (".csv", ".tsv", ".txt"):
        return bool(asked.several) or has_bars(path, asked.levels, asked.known)
    if asked.several:
        what = "holds no array 'nodes'" if kind == ".npz" else "is neither a table nor a folder of pictures"
        raise ConfigError(f"`several`: {source} {what}; docs/graphs.md says how several labels are written")
    return False


def place_of(source: str | Path) -> Path:
    """Where data lies, also that known by name."""
    return known_names()[str(source)]()[0] if is_known(source) else as_place(source)


def read_several(source: str | Path, asked: Asked = USUAL) -> Several:
    """Read data with several labels per sample.

    Args:
        source: an .arff file: if its name says which part it is, train, valid or test, the other parts beside it are read,
            too; an .npz with `nodes`; a table; or a folder.
        asked: how to read it.

    Raises:
        DataError: when it is faulty; it names the place.
        HierarchyError: when its labels contradict each other.
    """
    path = place_of(source)
    if path.suffix.lower() == ".arff":
        found = _read_parts(path)
    elif path.suffix.lower() == ".npz":
        found = _from_arrays(path, asked)
    else:
        found = _from_pictures(source, path, asked)
    if len(found.graph) < 2:
        raise DataError(f"{source}: only one class, {found.graph.names[0]!r}; a classifier needs at least two")
    return found


def _from_pictures(source: str | Path, path: Path, asked: Asked) -> Several:
    """The pictures of a table or a folder."""
    read = list_folder if path.is_dir() else list_table
    listing = read(path, asked.graph is not None, asked.levels, asked.unknown, asked.known)
    graph = Graph.from_tree(listing.tree) if listing.tree else asked.graph
    assert graph is not None
    return Several(
        keys=tuple(one.key for one in listing.pictures),
        labels=label_matrix(listing, graph, path),
        graph=graph,
        judged=np.ones(len(graph), dtype=bool),
        split=np.array([one.split for one in listing.pictures], dtype="U5"),
        images=tuple(one.picture for one in listing.pictures),
        levels=level_names(listing.tree) if listing.tree else asked.known,
        source=str(source),
    )


def _from_arrays(path: Path, asked: Asked) -> Several:
    found = read_nodes(path, asked.graph)
    return Several(
        keys=tuple(map(str, range(len(found.labels)))),
        labels=found.labels,
        graph=found.graph,
        judged=np.ones(len(found.graph), dtype=bool),
        split=np.where(found.train, "train", "test"),
        features=found.features,
        levels=found.levels or asked.known,
        source=str(path),
    )


def level_names(tree: Hierarchy) -> tuple[str, ...]:
    """The names of a tree's levels, coarse → fine, if every class lies as deep in the graph as in the tree; else none."""
    graph = Graph.from_tree(tree)
    numbers = {name: i for i, name in enumerate(graph.names)}
    for depth, k in enumerate(tree.top_down):
        nodes = (numbers.get(f"{tree.levels[k]}/{name}", numbers.get(name)) for name in tree.classes[k])
        if any(graph.levels[node] != depth for node in nodes if node is not None):
            return ()
    return tree.levels[::-1]


def one_each(data: Several) -> Samples:
    """A sample for each label that is a leaf, with that label alone: for contact sheets."""
    graph, ends = data.graph, data.graph.ends(data.labels)
    rows, leaves = np.nonzero(ends[:, graph.leaves])
    if any(len(above) > 1 for above in graph.parents):
        paths, levels = [[graph.names[leaf]] for leaf in graph.leaves], ["class"]
    else:
        paths = [
            [graph.names[node] for node in sorted(graph.above[leaf], key=graph.levels.__getitem__)] for leaf in graph.leaves
        ]
        levels = list(data.levels) or default_levels(int(graph.levels.max()) + 1)
    tree = Hierarchy.from_paths([[*path, *[None] * (len(levels) - len(path))] for path in paths], levels)
    ends_at = np.array([_leaf_of(tree, path) for path in paths])
    labels = np.stack([tree.ancestors(k)[ends_at[leaves]] for k in range(len(tree))], axis=1)
    keys = tuple(data.keys[i] for i in rows)
    images = tuple(data.images[i] for i in rows) if data.images else None
    return Samples(Path(data.source).stem, tree, keys, labels, data.split[rows], images=images)


def _leaf_of(tree: Hierarchy, path: Sequence[str]) -> int:
    """The finest class at the end of a path, which may end early."""
    level = len(tree) - len(path)
    return int(np.flatnonzero(tree.ancestors(level) == tree.index(level, path[-1]))[0])


def _read_parts(path: Path) -> Several:
    """An .arff file and the parts beside it."""
    files = beside(path)
    parts = {name: read_arff(file) for name, file in files.items()}
    first = next(iter(parts.values()))
    for name, part in parts.items():
        if part.graph != first.graph:
            raise DataError(f"{files[name]}: its classes are not those of {next(iter(files.values()))}")
    features = [in_order(part.features, part.columns, first.columns, str(files[name])) for name, part in parts.items()]
    split = np.concatenate([np.full(len(part.labels), SPLITS[name]) for name, part in parts.items()])
    return Several(
        keys=tuple(f"{files[name].name} row {i + 1}" for name, part in parts.items() for i in range(len(part.labels))),
        labels=np.concatenate([part.labels for part in parts.values()]),
        graph=first.graph,
        judged=first.judged,
        split=split,
        features=np.concatenate(features),
        columns=first.columns,
        source=str(path),
    )


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
