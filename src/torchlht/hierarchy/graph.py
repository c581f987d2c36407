"""`Graph`: classes that may have several parents. A label implies all its ancestors.

Trees with one label per sample are `Hierarchy`; this is for data where a sample has several labels, or a class several parents.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchlht.doors import read_json
from torchlht.errors import DataError, Fault, HierarchyError, RunError, suggestion
from torchlht.files import write_text

Ints = NDArray[np.int64]
Labels = NDArray[np.int8]  # (N, nodes): 1 yes, 0 no, -1 unknown
FORMAT = "torchlht-graph-1"
NODES = 2**16
"""Most nodes of a graph."""
PAIRS = 2**26
"""Most pairs of a node and one of its ancestors."""


class GraphRecord(msgspec.Struct):
    """graph.json: names of nodes, and for each node the positions of its parents."""

    format: str
    names: list[str]
    parents: list[list[int]]


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
    """

    def __init__(self, names: Sequence[str], parents: Sequence[Sequence[int]], source: str = "graph") -> None:
        self.names = tuple(names)
        self.parents = tuple(tuple(sorted(set(map(int, above)))) for above in parents)
        faults = self._faults()
        if faults:
            raise HierarchyError(source, faults)
        self._numbers = {name: i for i, name in enumerate(self.names)}

    # ---- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def from_edges(
        cls, edges: Iterable[tuple[str, str]], names: Iterable[str] = (), *, source: str = "graph", where: str = "edge {}"
    ) -> Graph:
        """From pairs (parent, child) of names; an empty parent makes a top node.

        Args:
            edges: the pairs.
            names: nodes, in this order and before others; those without any edge must be here.
            source: what error messages name.
            where: how an error message names pair i, counted from 1.

        Raises:
            HierarchyError: when there is a circle, which it spells out.
        """
        above: dict[str, dict[str, str]] = {name: {} for name in names}
        for i, (parent, child) in enumerate(edges):
            if parent:
                above.setdefault(parent, {})
                above.setdefault(child, {}).setdefault(parent, where.format(i + 1))
            else:
                above.setdefault(child, {})
        circle = _circle(above)
        if circle:
            raise HierarchyError(source, [circle])
        numbers = {name: i for i, name in enumerate(above)}
        return cls(list(above), [[numbers[parent] for parent in parents] for parents in above.values()], source)

    @classmethod
    def from_dict(cls, record: GraphRecord, source: str = "graph") -> Graph:
        """From the content of graph.json."""
        if record.format != FORMAT:
            raise RunError(f"{source}: its format is {record.format!r}; this version reads {FORMAT!r}")
        return cls(record.names, record.parents, source)

    @classmethod
    def read(cls, path: Path) -> Graph:
        """From graph.json, as `write` has written it."""
        return cls.from_dict(read_json(path, GraphRecord), str(path))

    def _faults(self) -> list[Fault]:
        count = len(self.names)
        if not count or count > NODES:
            return [Fault("", f"{count:,} nodes: a graph has from 1 to {NODES:,}")]
        if len(self.parents) != count:
            return [Fault("", f"{count} names but parents of {len(self.parents)} nodes")]
        seen: set[str] = set()
        faults = [Fault("", f"{name!r} appears twice") for name in self.names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        faults += [Fault("", "a node has an empty name")] * any(not name.strip() for name in self.names)
        wrong = [i for i, above in enumerate(self.parents) if any(not 0 <= p < count for p in above)]
        if wrong:
            return [*faults, Fault(self.names[wrong[0]], f"a parent is outside 0…{count - 1}")]
        circle = _circle(
            {name: {self.names[p]: "" for p in above} for name, above in zip(self.names, self.parents, strict=True)}
        )
        return [*faults, circle] if circle and not faults else faults

    # ---- queries ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.names)

    def index(self, name: str) -> int:
        """The position of a node. Raises DataError, with the nearest names, when there is none of this name."""
        try:
            return self._numbers[name]
        except KeyError:
            raise DataError(f"there is no class {name!r}: {suggestion(name, self.names)}") from None

    @functools.cached_property
    def order(self) -> list[int]:
        """All nodes, parents before their children."""
        return list(TopologicalSorter(dict(enumerate(self.parents))).static_order())

    @functools.cached_property
    def levels(self) -> Ints:
        """The level of each node, from 0: the length of the longest way down to it from a top node."""
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
        record = {"format": FORMAT, "names": list(self.names), "parents": [list(above) for above in self.parents]}
        write_text(path, json.dumps(record, ensure_ascii=False) + "\n")

    def describe(self) -> str:
        """One line about its size."""
        several = sum(len(above) > 1 for above in self.parents)
        more = f", {several:,} with several parents" if several else ", a tree"
        return f"{len(self):,} nodes, {self.edges.shape[1]:,} edges, {int(self.levels.max()) + 1} levels{more}"

    def __repr__(self) -> str:
        return f"Graph({self.describe()})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and (self.names, self.parents) == (other.names, other.parents)

    def __hash__(self) -> int:
        return hash((self.names, self.parents))


def _circle(above: dict[str, dict[str, str]]) -> Fault | None:
    """The first circle among nodes, each with its parents and where these are told; None if there is none."""
    try:
        TopologicalSorter({name: list(parents) for name, parents in above.items()}).prepare()
    except CycleError as error:
        circle: list[str] = list(error.args[1])  # each is a parent of the next
        told = [above[child][parent] for parent, child in pairwise(circle) if above[child].get(parent)]
        places = f" ({', '.join(told)})" if told else ""
        if len(circle) == 2:
            return Fault("", f"{circle[0]!r} is its own parent{places}; remove that edge")
        kin = "grandparent" if len(circle) == 3 else "ancestor"
        return Fault("", f"{circle[0]!r} is its own {kin}: {' › '.join(circle)}{places}; remove one of these edges")
    return None
