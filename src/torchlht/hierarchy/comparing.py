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
    above = [_places(b, k) | _places(a, k) for k in range(len(a))]
    disagree = [d for d in differences(a, b) if d.kind == "moved"]
    paths: dict[tuple[int, str], list[str | None]] = {}
    for level, name in [*_last(a), *_last(b)]:
        path: list[str | None] = [None] * len(a)
        at: tuple[int, str] | None = (level, name)
        while at:
            path[at[0]] = at[1]
            at = above[at[0]][at[1]]
        paths.setdefault((level, name), path[::-1])
    return Hierarchy.from_paths(paths.values(), a.levels[::-1]), disagree


def _last(tree: Hierarchy) -> list[tuple[int, str]]:
    """Level and name of the classes of the finest level, and of those at which a branch ends early."""
    found = [(0, name) for name in tree.names[0] if name is not None]
    for k in range(1, len(tree)):
        both = zip(tree.names[k], tree.ends[k].tolist(), strict=True)
        found += [(k, name) for name, ends in both if ends and name is not None]
    return found


def _places(tree: Hierarchy, k: int) -> dict[str, tuple[int, str] | None]:
    """For each class of a level the next one above it, with its level; None at the top."""
    if k == len(tree) - 1:
        return dict.fromkeys(tree.classes[k])
    up = [tree.real(k + 1, parent) for parent in tree.parents[k].tolist()]
    places = [(level, tree.classes[level][number]) for level, number in up]
    return {name: place for name, place in zip(tree.names[k], places, strict=True) if name is not None}


def _parents(tree: Hierarchy, k: int) -> dict[str, str]:
    """The name of the class above each class of a level, "" at the top."""
    return {name: place[1] if place else "" for name, place in _places(tree, k).items()}


def _same_levels(a: Hierarchy, b: Hierarchy) -> None:
    if a.levels != b.levels:
        both = " and ".join(" › ".join(tree.levels[::-1]) for tree in (a, b))
        what = "give both the same names; of tables, `levels` chooses the columns to compare"
        raise HierarchyError("trees", [Fault("", f"their levels are {both}: {what}")])
