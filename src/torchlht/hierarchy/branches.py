"""A tree or a graph of classes as HTML that folds: for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from torchlht.hierarchy.paths import LEVELS

if TYPE_CHECKING:
    from torchlht.hierarchy.graph import Graph
    from torchlht.hierarchy.tree import Hierarchy

MOST = 500
"""Classes that are shown; the rest is counted."""
Class = TypeVar("Class")


class Shape(NamedTuple, Generic[Class]):
    """What is drawn: the name of a class, and the next classes under it."""

    name: Callable[[Class], str]
    below: Callable[[Class], Sequence[Class]]


def branches(tree: Hierarchy) -> str:
    """A tree as nested lists that open on a click, coarse → fine, with at most `MOST` classes."""
    top = len(tree) - 1
    shape = Shape[tuple[int, int]](lambda one: tree.classes[one[0]][one[1]], lambda one: _below(tree, *one))
    return _folded(tree.describe(), shape, [(top, i) for i in range(tree.sizes[top])])


def graph_branches(graph: Graph) -> str:
    """The same of a graph. A class with several parents is under each of them."""
    return _folded(graph.describe(), Shape[int](graph.names.__getitem__, graph.children.__getitem__), graph.tops.tolist())


def _folded(title: str, shape: Shape[Class], tops: Sequence[Class]) -> str:
    return f"<details><summary>{escape(title)}</summary>{_listed(shape, tops, [MOST], 1)}</details>"


def _listed(shape: Shape[Class], classes: Sequence[Class], left: list[int], depth: int) -> str:
    """Some classes with what is below them. `left` holds how many more may be shown."""
    shown = classes[: max(left[0], 0)]
    left[0] -= len(shown)
    rest = [f"<li>… and {len(classes) - len(shown):,} more</li>"] if len(shown) < len(classes) else []
    return f"<ul>{''.join([*(_class(shape, one, left, depth) for one in shown), *rest])}</ul>"


def _class(shape: Shape[Class], one: Class, left: list[int], depth: int) -> str:
    name, below = escape(shape.name(one)), shape.below(one)
    if not below:
        return f"<li>{name}</li>"
    inside = _listed(shape, below, left, depth + 1) if depth < LEVELS else "<ul><li>…</li></ul>"
    return f"<li><details><summary>{name} ({len(below):,})</summary>{inside}</details></li>"


def _below(tree: Hierarchy, level: int, number: int) -> list[tuple[int, int]]:
    """Level and number of the next classes under one, past levels that a branch skips."""
    found: list[tuple[int, int]] = []
    for child in np.flatnonzero(tree.parents[level - 1] == number).tolist() if level else ():
        found += _below(tree, level - 1, child) if tree.stand_ins[level - 1][child] else [(level - 1, child)]
    return found
