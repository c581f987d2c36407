"""Two trees side by side: what differs, and one with the branches of the other grafted on. Classes are known by their names."""

from __future__ import annotations

from typing import NamedTuple

from torchlht.errors import Fault, HierarchyError
from torchlht.hierarchy.tree import Hierarchy


class Difference(NamedTuple):
    """A class that is only in one tree, or under another parent: `now` is "" if it was removed, `was` if it was added."""

    kind: str
    level: str
    name: str
    was: str
    now: str

    def __str__(self) -> str:
        if self.kind == "moved":
            return f"{self.level} {self.name}: moved from {self.was} to {self.now}"
        return f"{self.level} {self.name}: {self.kind}{f' under {self.was or self.now}' if self.was or self.now else ''}"


def differences(a: Hierarchy, b: Hierarchy) -> list[Difference]:
    """What must be done to `a` to get `b`, coarse → fine. Raises HierarchyError unless their levels have the same names."""
    _same_levels(a, b)
    found = []
    for k in a.top_down:
        was, now = _parents(a, k), _parents(b, k)
        level = a.levels[k]
        found += [Difference("removed", level, name, parent, "") for name, parent in was.items() if name not in now]
        found += [Difference("added", level, name, "", parent) for name, parent in now.items() if name not in was]
        both = [name for name in was if name in now and was[name] != now[name]]
        found += [Difference("moved", level, name, was[name], now[name]) for name in both]
    return found


def graft(a: Hierarchy, b: Hierarchy) -> tuple[Hierarchy, list[Difference]]:
    """`a` with every class of `b` that it lacks, and where the two disagree: there `a` is right.

    A class of `b` goes under the parent it has there, which is added if need be; where `a` has that parent, `a` says what lies
    above it. Raises HierarchyError unless their levels have the same names.
    """
    _same_levels(a, b)
    above = [_parents(b, k) | _parents(a, k) for k in range(len(a))]
    disagree = [d for d in differences(a, b) if d.kind == "moved"]
    own, paths = set(a.classes[0]), []
    for name in [*a.classes[0], *(name for name in b.classes[0] if name not in own)]:
        path = [name]
        for parents in above[:-1]:
            path.append(parents[path[-1]])
        paths.append(tuple(path[::-1]))
    return Hierarchy.from_paths(paths, a.levels[::-1]), disagree


def _parents(tree: Hierarchy, k: int) -> dict[str, str]:
    """The parent of each class of a level, "" at the top."""
    if k == len(tree) - 1:
        return dict.fromkeys(tree.classes[k], "")
    return {name: tree.classes[k + 1][p] for name, p in zip(tree.classes[k], tree.parents[k].tolist(), strict=True)}


def _same_levels(a: Hierarchy, b: Hierarchy) -> None:
    if a.levels != b.levels:
        both = " and ".join(" › ".join(tree.levels[::-1]) for tree in (a, b))
        raise HierarchyError(
            "trees", [Fault("", f"their levels are {both}; rename them with `levels`, so that both are the same")]
        )
