"""`Graph`: classes that may have several parents. A label implies all its ancestors.

Trees with one label per sample are `Hierarchy`; this is for data where a sample has several labels, or a class several parents.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.doors import entrance, read_bytes, read_json
from torchlht.errors import DataError, Fault, HierarchyError, RunError, suggestion
from torchlht.files import write_text
from torchlht.hierarchy.linked import (
    GRAPH,
    GRAPH_FORMAT,
    Edge,
    GraphRecord,
    circle,
    files_of,
    fits_several,
    misplaced,
    named,
    parents_of,
    read_linked,
)
from torchlht.hierarchy.ontologies import PARENTAL, Ontology, Told
from torchlht.hierarchy.tree import Hierarchy

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]  # (N, nodes): 1 yes, 0 no, -1 unknown
NODES = 2**16
"""Most nodes of a graph."""
ENTRIES = 2**28
"""Most pairs of a leaf and a node, where one sample has one leaf."""
PAIRS = 2**26
"""Most pairs of a node and one of its ancestors."""


def _names_in(pair: Sequence[str], where: str) -> tuple[str, str]:
    """The parent and the child of an edge. Raises DataError when it is something else."""
    if len(pair) != 2 or not all(isinstance(name, str) for name in pair):
        raise DataError(f"{where} is {pair!r}; an edge is a pair of names: parent, child")
    return pair[0], pair[1]


class Graph:
    """Classes, each with any number of parents, and without a circle.

        >>> graph = Graph.from_edges([("mammal", "bat"), ("flyer", "bat"), ("flyer", "gull")])
        >>> graph
        Graph(4 nodes, 3 edges, 2 levels, 1 with several parents)
        >>> [graph.names[i] for i in graph.ancestors(graph.index("bat"))]
        ['mammal', 'flyer', 'bat']

    Attributes:
        names: names of the nodes, each once.
        parents: for each node, the positions of its parents.
        also: other names, such as the ids of an ontology, and the nodes that each stands for.
    """

    def __init__(
        self,
        names: Sequence[str],
        parents: Sequence[Sequence[int]],
        source: str = "graph",
        also: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.names, self.also = tuple(names), {other: tuple(own) for other, own in (also or {}).items()}
        self.parents = tuple(tuple(sorted(set(map(int, above)))) for above in parents)
        faults = self._faults()
        if faults:
            raise HierarchyError(source, faults)
        self._numbers = {name: i for i, name in enumerate(self.names)}

    # ---- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[str, str]],
        names: Iterable[str] = (),
        *,
        source: str = "graph",
        where: str = "edge {}",
        start: int = 1,
    ) -> Graph:
        """From pairs (parent, child) of names; an empty parent makes a top node.

        Args:
            edges: the pairs.
            names: nodes, in this order and before others; those without any edge must be here.
            source: what error messages name.
            where: how an error message names a pair, by its number.
            start: the number of the first pair.

        Raises:
            DataError: when a pair is not one of two texts.
            HierarchyError: when there is a circle, which it spells out.
        """
        told = [Edge(where.format(i), *_names_in(pair, where.format(i))[::-1]) for i, pair in enumerate(edges, start)]
        return cls._linked(parents_of(told, source, names), source, {})

    @classmethod
    def _linked(cls, above: dict[str, dict[str, str]], source: str, also: Mapping[str, Sequence[str]]) -> Graph:
        """From classes with their parents."""
        numbers = {name: i for i, name in enumerate(above)}
        return cls(list(above), [[numbers[parent] for parent in parents] for parents in above.values()], source, also)

    @classmethod
    def from_networkx(cls, graph: Any, *, up: bool = False, kinds: Collection[str] | None = None) -> Graph:
        """From a directed graph of networkx, or anything with its `nodes` and `edges`.

        Args:
            graph: the graph. A node with a `name` is called by it.
            up: whether edges lead from a class to its parents, as obonet has them, instead of to its children.
            kinds: of a graph with keys at its edges, as obonet has them: the keys of those between parents and children.
                By default `is_a` and `part_of`, as in .obo files, if there are such; else all.

        Raises:
            DataError: when it is no such graph, edges have no direction or none is of these kinds, or nodes are not told
                apart by their texts.
            HierarchyError: when there is a circle.
        """
        if not hasattr(graph, "is_directed"):
            raise DataError(f"{type(graph).__name__} is no graph of networkx; Graph.read reads files, Graph.from_edges pairs")
        if not graph.is_directed():
            raise DataError("this graph has no directions, so it does not tell parents from children; pass a DiGraph")
        texts: dict[str, Any] = {}
        for node in graph.nodes:
            if not str(node).strip():
                raise DataError(f"the node {node!r} has an empty name")
            if texts.setdefault(str(node), node) != node:
                raise DataError(f"{texts[str(node)]!r} and {node!r} are two nodes, but both read {str(node)!r}; rename one")
        edges = [(str(a), str(b), *key) for a, b, *key in graph.edges]
        keys = {edge[2] for edge in edges if len(edge) > 2}
        if kinds is not None and edges and not keys & set(kinds):
            raise DataError(f"no edge has one of the keys {sorted(kinds)} (keys: {sorted(map(str, keys))})")
        kept = set(kinds or PARENTAL & keys or keys)
        ways = dict.fromkeys(edge[:2] for edge in edges if not keys or edge[2] in kept)
        pairs = [way[::-1] if up else way for way in ways]
        told = [Told(0, str(node), "") for node in graph.nodes] + [Told(0, child, parent) for parent, child in pairs]
        labels = {str(node): str(data["name"]) for node, data in graph.nodes(data=True) if data.get("name")}
        found, also = named([(Path("graph"), "", Ontology(told, labels, set()))])
        return cls._linked(parents_of((edge._replace(where="") for edge in found), "graph"), "graph", also)

    @classmethod
    def from_tree(cls, tree: Hierarchy) -> Graph:
        """The classes of a tree, coarse → fine, without those that stand for what a branch does not have.

        A name that classes of several levels have becomes `level/name`; alone it stands for all of them.
        """
        count = Counter(name for names in tree.names for name in names)
        names: list[str] = []
        also: dict[str, list[str]] = {}
        parents: list[list[int]] = []
        above: list[int] = []  # the node of each class of the level above, or of what it stands in for
        for k in tree.top_down:
            own = []
            for j, name in enumerate(tree.names[k]):
                up = above[tree.parents[k][j]] if above else -1
                if name is None:
                    own.append(up)
                    continue
                own.append(len(names))
                names.append(f"{tree.levels[k]}/{name}" if count[name] > 1 else name)
                if count[name] > 1:
                    also.setdefault(name, []).append(names[-1])
                parents.append([up] if up >= 0 else [])
            above = own
        return cls(names, parents, also=also)

    @classmethod
    def from_dict(cls, record: GraphRecord, source: str = "graph") -> Graph:
        """From the content of graph.json."""
        if record.format != GRAPH_FORMAT:
            raise RunError(f"{source}: its format is {record.format!r}; this version reads {GRAPH_FORMAT!r}")
        return cls(record.names, record.parents, source, record.also)

    @classmethod
    @entrance
    def read(cls, path: str | Path) -> Graph:
        """From a file: rows `name,parent`, references, an ontology or graph.json. See `hierarchy.linked`.

        Args:
            path: the file, several separated by commas, or a run directory.

        Raises:
            HierarchyError: when a file is faulty, or there is a circle; it names files and lines.
            DataError: when there is no such file.
        """
        place = Path(path) / GRAPH if (Path(path) / GRAPH).is_file() else Path(path)
        if place.suffix.lower() == ".json" and place.is_file() and GRAPH_FORMAT.encode() in read_bytes(place)[:100]:
            return cls.from_dict(read_json(place, GraphRecord), str(place))
        linked = read_linked(files_of(place))
        above = parents_of(linked.edges, str(place))
        if not above:
            raise HierarchyError(str(place), [Fault("", "holds no classes")])
        return cls._linked(above, str(place), linked.also)

    def _faults(self) -> list[Fault]:
        count = len(self.names)
        if not count or count > NODES:
            return [Fault("", f"{count:,} nodes: a graph has from 1 to {NODES:,}")]
        seen: set[str] = set()
        faults = [Fault("", f"{name!r} appears twice") for name in self.names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        faults += [Fault("", "a node has an empty name")] * any(not name.strip() for name in self.names)
        if wrong := misplaced(self.names, self.parents):
            return [*faults, wrong]
        above = {name: {self.names[p]: "" for p in own} for name, own in zip(self.names, self.parents, strict=True)}
        return faults or [found for found in [circle(above)] if found]

    # ---- queries ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.names)

    def index(self, name: str) -> int:
        """The position of a node. Raises DataError when there is none of this name, or several that it could mean."""
        meant = self.also.get(name, (name,))
        if len(meant) > 1 and name not in self._numbers:
            raise DataError(fits_several(name, meant))
        try:
            return self._numbers[name if name in self._numbers else meant[0]]
        except KeyError:
            raise DataError(f"there is no class {name!r}: {suggestion(name, self.names)}") from None

    @functools.cached_property
    def order(self) -> list[int]:
        """All nodes, parents before their children."""
        return list(TopologicalSorter(dict(enumerate(self.parents))).static_order())

    @functools.cached_property
    def levels(self) -> Ints:
        """For each node, the length of the longest way down to it from a top node, which is its level."""
        level = np.zeros(len(self), dtype=np.int64)
        for node in self.order:
            level[node] = max((level[p] + 1 for p in self.parents[node]), default=0)
        return level

    @functools.cached_property
    def heights(self) -> Ints:
        """The height of each node: 0 for a leaf, else the length of the longest way down from it."""
        height = np.zeros(len(self), dtype=np.int64)
        for node in reversed(self.order):
            for p in self.parents[node]:
                height[p] = max(height[p], height[node] + 1)
        return height

    @functools.cached_property
    def leaves(self) -> Ints:
        """The nodes without children."""
        return np.flatnonzero(self.heights == 0)

    @functools.cached_property
    def tops(self) -> Ints:
        """The nodes without parents."""
        return np.flatnonzero([not above for above in self.parents])

    @functools.cached_property
    def children(self) -> list[list[int]]:
        """For each node, its children."""
        found: list[list[int]] = [[] for _ in self.names]
        for p, node in self.edges.T.tolist():
            found[p].append(node)
        return found

    @functools.cached_property
    def leaves_below(self) -> NDArray[np.bool_]:
        """(leaves, nodes): whether a leaf lies below a node, or is it."""
        if len(self.leaves) * len(self) > ENTRIES:
            raise HierarchyError("graph", [Fault("", f"more than {ENTRIES:,} pairs of a leaf and a node")])
        found = np.zeros((len(self.leaves), len(self)), dtype=bool)
        for i, leaf in enumerate(self.leaves):
            found[i, self.above[leaf]] = True
        return found

    @functools.cached_property
    def leaf_counts(self) -> Ints:
        """For each node, how many leaves lie below it, or are it."""
        return np.bincount(np.concatenate([self.above[leaf] for leaf in self.leaves]), minlength=len(self))

    @property
    def ranks(self) -> Ints | None:
        """Heights so that every edge joins adjacent ones, from 0 in each connected part; None if there are none."""
        return self._ranked[0]

    @property
    def uneven(self) -> tuple[str, str]:
        """A parent and a child whose edge joins no adjacent heights, if `ranks` is None."""
        parent, child = self._ranked[1]
        return self.names[parent], self.names[child]

    @functools.cached_property
    def _ranked(self) -> tuple[Ints | None, tuple[int, int]]:
        unknown = 2 * len(self)
        rank = np.full(len(self), unknown, dtype=np.int64)
        for start in range(len(self)):
            if rank[start] != unknown:
                continue
            part, rank[start] = [start], 0
            for node in part:
                for other, step in [*((p, 1) for p in self.parents[node]), *((c, -1) for c in self.children[node])]:
                    if rank[other] == unknown:
                        rank[other] = rank[node] + step
                        part.append(other)
                    elif rank[other] != rank[node] + step:
                        return None, (other, node) if step == 1 else (node, other)
            rank[part] -= rank[part].min()
        return rank, (0, 0)

    @functools.cached_property
    def edges(self) -> Ints:
        """(2, E): parents and children."""
        pairs = [(p, node) for node, above in enumerate(self.parents) for p in above]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2).T

    @functools.cached_property
    def steps(self) -> list[Ints]:
        """Edges in groups, (2, E_h) each, so that a group needs only what groups before it have found about children."""
        heights = self.heights[self.edges[0]]
        return [self.edges[:, heights == h] for h in range(1, int(self.heights.max()) + 1)]

    @functools.cached_property
    def above(self) -> list[Ints]:
        """For each node, itself and all its ancestors, each once, sorted."""
        found: list[Ints] = [np.empty(0, dtype=np.int64)] * len(self)
        total = 0
        for node in self.order:
            found[node] = np.unique(np.concatenate([np.array([node]), *(found[p] for p in self.parents[node])]))
            total += len(found[node])
            if total > PAIRS:
                raise HierarchyError("graph", [Fault("", f"more than {PAIRS:,} pairs of a node and an ancestor")])
        return found

    @functools.cached_property
    def closure(self) -> Ints:
        """(2, P): every ancestor with each of its descendants, a node with itself too, each pair once."""
        below = np.repeat(np.arange(len(self)), [len(up) for up in self.above])
        pairs = np.stack([np.concatenate(self.above), below])
        return pairs[:, np.lexsort((pairs[1], pairs[0]))]

    def ancestors(self, node: int) -> Ints:
        """A node and all its ancestors."""
        return self.above[node]

    def close(self, labels: Labels) -> Labels:
        """Labels (N, nodes) where every ancestor of a node that is there is there, too."""
        closed = labels.copy()
        for node in reversed(self.order):
            for p in self.parents[node]:
                closed[:, p] = np.where(closed[:, node] == 1, 1, closed[:, p])
        return closed

    def ends(self, labels: Labels) -> NDArray[np.bool_]:
        """Which labels of each sample are its most specific ones: known, without a known child. Labels must be closed."""
        ends: NDArray[np.bool_] = labels == 1
        for p, node in self.edges.T:
            ends[:, p] &= labels[:, node] != 1
        return ends

    def open_ends(self, labels: Labels) -> NDArray[np.bool_]:
        """Which labels are there and have an unknown child."""
        found = np.zeros(labels.shape, dtype=bool)
        for p, node in self.edges.T:
            found[:, p] |= (labels[:, p] == 1) & (labels[:, node] == -1)
        return found

    def open_below(self, labels: Labels, open_nodes: NDArray[np.bool_]) -> Labels:
        """Labels where all that lies below an open node of a sample, and is not known to be there, is unknown."""
        below = open_nodes.copy()
        for node in self.order:
            for p in self.parents[node]:
                below[:, node] |= below[:, p]
        strictly = np.zeros_like(below)
        for p, node in self.edges.T:
            strictly[:, node] |= below[:, p]
        return np.where(strictly & (labels != 1), np.int8(-1), labels)

    # ---- writing and showing ---------------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """Write graph.json; `Graph.read` returns the same graph."""
        write_text(path, json.dumps(self.to_dict(), ensure_ascii=False) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: the content of graph.json."""
        record = {"format": GRAPH_FORMAT, "names": list(self.names), "parents": [list(above) for above in self.parents]}
        return record | ({"also": {other: list(own) for other, own in self.also.items()}} if self.also else {})

    def describe(self) -> str:
        """One line about its size."""
        several = sum(len(above) > 1 for above in self.parents)
        more = f", {several:,} with several parents" if several else ", a tree"
        return f"{len(self):,} nodes, {self.edges.shape[1]:,} edges, {int(self.levels.max()) + 1} levels{more}"

    def __repr__(self) -> str:
        return f"Graph({self.describe()})"

    def _repr_html_(self) -> str:
        """Nested lists that open on a click, for notebooks."""
        from torchlht.hierarchy.branches import graph_branches

        return graph_branches(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.names, self.parents) == (other.names, other.parents)

    def __hash__(self) -> int:
        return hash((self.names, self.parents))
