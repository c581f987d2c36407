"""Two trees side by side: what differs, and one with the branches of the other grafted on.

Classes are known by their names. A class that has another name in the other tree is known by its spelling, or by its children:
most of those that both trees have are under it in both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from torchlht.errors import Fault, HierarchyError
from torchlht.hierarchy.spelling import plain
from torchlht.hierarchy.tree import Hierarchy

Place = tuple[int, str]
"""The level and name of a class."""
Renamed = dict[Place, str]
"""Classes of one tree, and what the other calls them."""
Inside = list[tuple[Place, Place]]
"""Children and their parents."""


class Difference(NamedTuple):
    """A class that is only in one tree, has another name there, or is under another parent.

    `kind` is removed, added, renamed or moved. `was` and `now` are its names in the two trees if it is renamed, else its
    parents: `now` is "" if it was removed, `was` if it was added.
    """

    kind: str
    level: str
    name: str
    was: str
    now: str

    def __str__(self) -> str:
        if self.kind == "moved":
            return f"{self.level} {self.name}: moved from {self.was} to {self.now}"
        if self.kind == "renamed":
            return f"{self.level} {self.name}: renamed {self.now}"
        return f"{self.level} {self.name}: {self.kind}{f' under {self.was or self.now}' if self.was or self.now else ''}"


def differences(a: Hierarchy, b: Hierarchy) -> list[Difference]:
    """What must be done to `a` to get `b`, coarse → fine. Raises HierarchyError unless their levels have the same names."""
    _same_levels(a, b)
    new, found = renamed(a, b), []
    for k in a.top_down:
        was, now, level = _places(a, k), _places(b, k), a.levels[k]
        called = {name: new.get((k, name), name) for name in was}
        found += [Difference("renamed", level, name, name, other) for name, other in called.items() if name != other]
        gone = [name for name, other in called.items() if other not in now]
        found += [Difference("removed", level, name, _name(was[name]), "") for name in gone]
        fresh = now.keys() - called.values()
        found += [Difference("added", level, name, "", _name(place)) for name, place in now.items() if name in fresh]
        for name, other in called.items():
            if other in now and _name(_called(was[name], new)) != _name(now[other]):
                found.append(Difference("moved", level, name, _name(was[name]), _name(now[other])))
    return found


def graft(a: Hierarchy, b: Hierarchy) -> tuple[Hierarchy, list[Difference]]:
    """`a` with every class of `b` that it lacks, and where the two disagree, or call a class otherwise: there `a` is right.

    A class of `b` goes under the parent it has there, which is added if need be; where `a` has that parent, `a` says what lies
    above it, and what it is called. Raises HierarchyError unless their levels have the same names.
    """
    _same_levels(a, b)
    old = {(k, new): name for (k, name), new in renamed(a, b).items()}
    above = []
    for k in range(len(a)):
        others = {old.get((k, name), name): _called(place, old) for name, place in _places(b, k).items()}
        above.append(others | _places(a, k))
    disagree = [d for d in differences(a, b) if d.kind in ("renamed", "moved")]
    paths: dict[Place, list[str | None]] = {}
    for place in [*_last(a), *((k, old.get((k, name), name)) for k, name in _last(b))]:
        path: list[str | None] = [None] * len(a)
        at: Place | None = place
        while at:
            path[at[0]] = at[1]
            at = above[at[0]][at[1]]
        paths.setdefault(place, path[::-1])
    return Hierarchy.from_paths(paths.values(), a.levels[::-1]), disagree


# ---- other names -----------------------------------------------------------------------------------------------------


def renamed(a: Hierarchy, b: Hierarchy) -> Renamed:
    """The classes of `a` that have another name in `b`, of the same levels."""
    found: Renamed = {}
    inside: tuple[Inside, Inside] = ([], [])  # children and parents of each tree, in the words of `b`
    for k in range(len(a)):
        was, now = _places(a, k), _places(b, k)
        gone, fresh = [name for name in was if name not in now], [name for name in now if name not in was]
        spelt = _spelt_otherwise(gone, fresh)
        left = {(k, name) for name in gone if name not in spelt}, {(k, name) for name in fresh if name not in spelt.values()}
        found |= {(k, name): new for name, new in spelt.items()} | _same_children(*inside, *left)
        inside[0].extend(((k, found.get((k, n), n)), place) for n, place in was.items() if place)
        inside[1].extend(((k, n), place) for n, place in now.items() if place)
    return found


def _spelt_otherwise(gone: Iterable[str], fresh: Iterable[str]) -> dict[str, str]:
    """Names that differ by their spelling alone, if no third one does."""
    keys = [{key: names for key, names in _by_key(names).items() if len(names) == 1} for names in (gone, fresh)]
    return {keys[0][key][0]: keys[1][key][0] for key in keys[0] if key in keys[1]}


def _by_key(names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(plain(name), []).append(name)
    return found


def _same_children(inside_a: Inside, inside_b: Inside, gone: set[Place], fresh: set[Place]) -> Renamed:
    """Classes with the same children: most of those that both trees have, and two at least, or the only one."""
    both = {child for child, _ in inside_a} & {child for child, _ in inside_b}
    there = {child: parent for child, parent in inside_b if child in both}
    counts = [Counter(parent for child, parent in inside if child in both) for inside in (inside_a, inside_b)]
    alone = [Counter(parent for _, parent in inside) for inside in (inside_a, inside_b)]
    pairs = Counter((parent, there[child]) for child, parent in inside_a if child in both)
    found = {}
    for (one, other), shared in pairs.items():
        most = 2 * shared > max(counts[0][one], counts[1][other])
        if one in gone and other in fresh and most and (shared > 1 or alone[0][one] == alone[1][other] == 1):
            found[one] = other[1]
    return found


def _called(place: Place | None, names: Renamed) -> Place | None:
    """A class by its other name, if it has one."""
    return (place[0], names.get(place, place[1])) if place else None


# ---- the classes of a tree -------------------------------------------------------------------------------------------


def _last(tree: Hierarchy) -> list[Place]:
    """The classes of the finest level, and those at which a branch ends early."""
    found = [(0, name) for name in tree.names[0] if name is not None]
    for k in range(1, len(tree)):
        both = zip(tree.names[k], tree.ends[k].tolist(), strict=True)
        found += [(k, name) for name, ends in both if ends and name is not None]
    return found


def _places(tree: Hierarchy, k: int) -> dict[str, Place | None]:
    """For each class of a level the next one above it; None at the top."""
    if k == len(tree) - 1:
        return dict.fromkeys(tree.classes[k])
    up = [tree.real(k + 1, parent) for parent in tree.parents[k].tolist()]
    places = [(level, tree.classes[level][number]) for level, number in up]
    return {name: place for name, place in zip(tree.names[k], places, strict=True) if name is not None}


def _name(place: Place | None) -> str:
    return place[1] if place else ""


def _same_levels(a: Hierarchy, b: Hierarchy) -> None:
    if a.levels != b.levels:
        both = " and ".join(" › ".join(tree.levels[::-1]) for tree in (a, b))
        what = "give both the same names; of tables, `levels` chooses the columns to compare"
        raise HierarchyError("trees", [Fault("", f"their levels are {both}: {what}")])
