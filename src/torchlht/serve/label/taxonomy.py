"""The tree as people see it while they label: nodes with numbers, and new ones among them.

Level 0 is the coarsest. A class that only stands for a level that a branch does not have is there, but is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from torchlht.data.samples import Bools, Ints
from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy


class Node(NamedTuple):
    """A class: its name, its level from the coarsest, its parent or -1, and whether people added it."""

    name: str
    level: int
    parent: int
    new: bool = False


class Taxonomy:
    """Nodes by number; numbers never change.

    Attributes:
        levels: names, coarse → fine.
        nodes: all that ever were.
        gone: numbers of those that were taken back.
    """

    def __init__(self, tree: Hierarchy) -> None:
        self._tree = tree
        self.levels = [tree.levels[k] for k in tree.top_down]
        self.nodes: list[Node] = []
        self.gone: set[int] = set()
        self._number: dict[tuple[int, str], int] = {}
        self._lineages: Ints | None = None
        self._stand_ins: dict[int, int] = {}  # those that fill a level that their branch does not have, by their parent
        self._first: list[int] = []  # the first number of each level of the data's own tree
        for level, k in enumerate(tree.top_down):
            self._first.append(len(self.nodes))
            for j, name in enumerate(tree.classes[k]):
                parent = -1 if not level else self._first[level - 1] + int(tree.parents[k][j])
                number = self._enter(Node(name, level, parent))
                if tree.stand_ins[k][j]:
                    self._stand_ins[parent] = number
        self._fill = set(self._stand_ins.values())

    def __len__(self) -> int:
        return len(self.nodes)

    def _enter(self, node: Node) -> int:
        number = self._number[node.level, node.name] = len(self.nodes)
        self.nodes.append(node)
        self._lineages = None
        return number

    def find(self, level: int, name: str) -> int | None:
        """The number of a class that counts, or None."""
        found = self._number.get((level, name))
        return None if found in self.gone else found

    def named(self, name: str) -> list[int]:
        """The classes of a name that count, at any level."""
        found = [self.find(level, name) for level in range(len(self.levels))]
        return [node for node in found if node is not None and not self.stands_in(node)]

    def stands_in(self, node: int) -> bool:
        """Whether a class only fills a level that its branch does not have."""
        return node in self._fill

    def real(self, node: int) -> int:
        """The class itself, or the first ancestor that is more than a stand-in; -1 if there is none."""
        while node >= 0 and self.stands_in(node):
            node = self.nodes[node].parent
        return node

    def path(self, node: int) -> list[str]:
        """Names coarse → fine, down to the class; "" at a level that its branch skips."""
        names: list[str] = []
        while node >= 0:
            names.append("" if self.stands_in(node) else self.nodes[node].name)
            node = self.nodes[node].parent
        return names[::-1]

    def children(self, node: int) -> list[int]:
        """The classes right under one, or, for -1, the coarsest."""
        return [i for i, one in enumerate(self.nodes) if one.parent == node and i not in self.gone]

    # ---- new classes -----------------------------------------------------------------------------------------------

    def check_new(self, parent: int, name: str) -> list[str]:
        """The path of a new class. Raises ConfigError if it cannot be."""
        level = 0 if parent < 0 else self.nodes[parent].level + 1
        if level >= len(self.levels):
            raise ConfigError(f"{self.nodes[parent].name} is a {self.levels[-1]}, the finest level: nothing can be under it")
        if not name.strip() or name != name.strip() or not name.isprintable():
            raise ConfigError("a class needs a name that can be printed, without blanks around it")
        if (there := self.find(level, name)) is not None:
            raise ConfigError(f"{' › '.join(filter(None, self.path(there)))} is there already")
        return [*(self.path(parent) if parent >= 0 else []), name]

    def at(self, path: Sequence[str]) -> int:
        """The class at the end of a path. What is missing of it is added: the table may have lost it since."""
        parent = -1
        for level, name in enumerate(path[: len(self.levels)]):
            if not name:  # the branch skips this level
                parent = self._stand_ins.get(parent, parent)
                continue
            found = self.find(level, name)
            parent = self._enter(Node(name, level, parent, new=True)) if found is None else found
        return parent

    def take_back(self, node: int) -> None:
        """A class does not count any more."""
        self.gone.add(node)

    def bring_back(self, node: int) -> None:
        """It counts again."""
        self.gone.discard(node)
        self._number[self.nodes[node].level, self.nodes[node].name] = node

    # ---- as arrays -------------------------------------------------------------------------------------------------

    def numbers(self, tree: Hierarchy) -> list[Ints]:
        """For each level of a tree, fine first, the node of each class."""
        depth = len(self.levels) - 1
        return [
            np.array([self._number.get((depth - k, name), -1) for name in names], dtype=np.int64)
            for k, names in enumerate(tree.classes)
        ]

    def lineages(self) -> Ints:
        """(nodes + 1, K) the node of each level, coarse → fine, down to each node; -1 below, and in the last row."""
        if self._lineages is None:
            table = np.full((len(self.nodes) + 1, len(self.levels)), -1, dtype=np.int64)
            for i, node in enumerate(self.nodes):  # parents come before their children
                if node.parent >= 0:
                    table[i] = table[node.parent]
                table[i, node.level] = i
            self._lineages = table
        return self._lineages

    def ends(self) -> Bools:
        """(nodes + 1,) whether nothing finer is under a class; false for the last, which stands for no class."""
        parents = [node.parent for i, node in enumerate(self.nodes) if i not in self.gone and not self.stands_in(i)]
        found = np.ones(len(self.nodes) + 1, dtype=bool)
        found[np.array([*parents, -1])] = False
        return found

    def hierarchy(self) -> Hierarchy:
        """The tree of all classes that count; the data's own if none was added."""
        if not any(node.new and i not in self.gone for i, node in enumerate(self.nodes)):
            return self._tree
        counted = [i for i in range(len(self.nodes)) if i not in self.gone and not self.stands_in(i)]
        inner = {self.real(self.nodes[i].parent) for i in counted}
        paths: list[list[str | None]] = []
        for i in counted:
            if i not in inner:
                row: list[str | None] = [None] * len(self.levels)
                for above in self.lineages()[i].tolist():
                    if above >= 0 and not self.stands_in(above):
                        row[self.nodes[above].level] = self.nodes[above].name
                paths.append(row)
        return Hierarchy.from_paths(paths, self.levels)
