"""A tree of classes as HTML that folds: for notebooks."""

from __future__ import annotations

from html import escape

import numpy as np

from torchlht.hierarchy.tree import Hierarchy

MOST = 500
"""Classes that are shown; the rest is counted."""


def branches(tree: Hierarchy) -> str:
    """The tree as nested lists that open on a click, coarse → fine, with at most `MOST` classes."""
    left = [MOST]
    top = len(tree) - 1
    inside = _listed(tree, [(top, i) for i in range(tree.sizes[top])], left)
    return f"<details><summary>{escape(tree.describe())}</summary>{inside}</details>"


def _listed(tree: Hierarchy, classes: list[tuple[int, int]], left: list[int]) -> str:
    """Some classes, by level and number, with what is below them. `left` holds how many more may be shown."""
    shown = classes[: max(left[0], 0)]
    left[0] -= len(shown)
    rest = [f"<li>… and {len(classes) - len(shown):,} more</li>"] if len(shown) < len(classes) else []
    return f"<ul>{''.join([*(_class(tree, *one, left) for one in shown), *rest])}</ul>"


def _class(tree: Hierarchy, level: int, number: int, left: list[int]) -> str:
    name = escape(tree.classes[level][number])
    if not level:
        return f"<li>{name}</li>"
    below = _below(tree, level, number)
    if not below:
        return f"<li>{name}</li>"
    return f"<li><details><summary>{name} ({len(below):,})</summary>{_listed(tree, below, left)}</details></li>"


def _below(tree: Hierarchy, level: int, number: int) -> list[tuple[int, int]]:
    """Level and number of the next classes under one, past levels that a branch skips."""
    found: list[tuple[int, int]] = []
    for child in np.flatnonzero(tree.parents[level - 1] == number).tolist() if level else ():
        found += _below(tree, level - 1, child) if tree.stand_ins[level - 1][child] else [(level - 1, child)]
    return found
