"""A tree of classes from rows. All faults are collected before an error is raised.

A row is one path from the coarsest to the finest name, with gaps for unknown names:

    order            family        species
    Charadriiformes  Laridae       Ivory Gull
    Charadriiformes  ·             Horned Puffin      → a family that stands in, since the branch skips this level
    Gaviiformes      Gaviidae      ·                  → a species that stands in, since the branch ends above it

Stand-ins keep every leaf at the same depth, so that a level is always a complete partition of the classes. They have names of
their own in code alone, see `hierarchy/ragged.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from torchlht.errors import Fault
from torchlht.hierarchy.ragged import free_name, pass_through

LEVELS = 64
"""Most levels of a tree, and so deepest nesting of folders and files. A tree of life has some 40."""
CLASSES = 2**20
"""Most classes of a level: a layer of a million outputs is the most that fits into memory."""


class Row(NamedTuple):
    """Names from coarse to fine, `None` where unknown, and where the row was found."""

    where: str
    names: tuple[str | None, ...]


class Spec(NamedTuple):
    """The bare content of a hierarchy, fine first: see `Hierarchy`."""

    levels: tuple[str, ...]
    classes: tuple[tuple[str | None, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    stand_ins: tuple[tuple[bool, ...], ...] | None = None


class Link(NamedTuple):
    """A class's nearest known ancestor: the ancestor's depth, its name and the row that tells it."""

    depth: int
    name: str
    where: str


Links = dict[str, Link | None]
"""Every name at one depth, with its nearest known ancestor (None at the top)."""


def build(rows: Iterable[Row], levels: Sequence[str]) -> tuple[Spec, list[Fault]]:
    """Build one tree from the rows. `levels` are coarse → fine; the spec is valid only if there are no faults."""
    rows = list(rows)
    if len(levels) > LEVELS:
        return Spec((), (), ()), [Fault("", f"{len(levels):,} levels; the most that is read is {LEVELS}")]
    links, clashes = _collect_links(rows, levels)
    # Columns in the wrong order make nearly every row clash; then only the order is reported.
    faults = _narrow_levels(links, levels) if clashes and len(links[-1]) < len(links[0]) else []
    faults = (faults or clashes) + _rootless(rows, links, levels)
    faults = faults or _distant_clashes(rows, links, levels)
    if faults:
        return Spec((), (), ()), faults
    return _index(links, levels, _add_stand_ins(links, levels)), []


def _collect_links(rows: Sequence[Row], levels: Sequence[str]) -> tuple[list[Links], list[Fault]]:
    """For each depth, every name's closest known ancestor. An adjacent ancestor beats a distant one."""
    links: list[Links] = [{} for _ in levels]
    clashes = []
    for where, names in rows:
        above: Link | None = None
        for depth, name in enumerate(names):
            if name is None:
                continue
            held = links[depth].setdefault(name, above)
            if above is not None and (held is None or held.depth < above.depth):
                links[depth][name] = above
            elif above is not None and held is not None and held.depth == above.depth == depth - 1 and held.name != above.name:
                clash = f"is under {above.name!r} here but under {held.name!r} on {held.where}"
                clashes.append(Fault(where, f"{levels[depth]} {name!r} {clash}"))
            above = Link(depth, name, where)
    return links, clashes


def _rootless(rows: Sequence[Row], links: Sequence[Links], levels: Sequence[str]) -> list[Fault]:
    """Names whose parent no row tells."""
    faults = []
    for depth, found in enumerate(links[1:], start=1):
        rootless = [name for name, link in found.items() if link is None]
        places = {row.names[depth]: row.where for row in reversed(rows)} if rootless else {}
        for name in rootless:
            first = places[name]
            faults.append(Fault(first, f"no row tells the {levels[depth - 1]} of the {levels[depth]} {name!r}"))
    return faults


def _narrow_levels(links: Sequence[Links], levels: Sequence[str]) -> list[Fault]:
    pairs = zip(levels, links, levels[1:], links[1:], strict=False)
    return [
        Fault("", narrower(coarse, len(above), fine, len(below)))
        for coarse, above, fine, below in pairs
        if len(below) < len(above)
    ]


def narrower(coarse: str, coarse_size: int, fine: str, fine_size: int) -> str:
    """The sentence for a finer level with fewer classes than the coarser one above it."""
    classes = "1 class" if fine_size == 1 else f"{fine_size} classes"
    return (
        f"level {fine!r} is finer than {coarse!r} but narrower ({classes} against {coarse_size}): "
        "levels run coarse → fine; --levels names them in that order"
    )


def _distant_clashes(rows: Sequence[Row], links: Sequence[Links], levels: Sequence[str]) -> list[Fault]:
    """Rows that skip a level and contradict other rows about the skipped level."""
    faults = []
    for where, names in rows:
        known = [(depth, name) for depth, name in enumerate(names) if name is not None]
        for (high, ancestor), (depth, name) in pairwise(known):
            actual = _ancestor(links, depth, name, high)
            if high < depth - 1 and actual is not None and actual != ancestor:
                clash = f"is under {levels[high]} {ancestor!r} here but under {actual!r} elsewhere"
                faults.append(Fault(where, f"{levels[depth]} {name!r} {clash}"))
    return faults


def _ancestor(links: Sequence[Links], depth: int, name: str, high: int) -> str | None:
    """The ancestor of `name` at depth `high`, or None if the rows do not tell."""
    while depth > high:
        link = links[depth][name]
        if link is None:
            return None
        depth, name = link.depth, link.name
    return name if depth == high else None


def _add_stand_ins(links: Sequence[Links], levels: Sequence[str]) -> list[set[str]]:
    """Fill the gaps in place: first below branches that end early, then between a class and a distant ancestor.

    Returns:
        the names, by depth, of those that were added.
    """
    added: list[set[str]] = [set() for _ in levels]
    last = len(levels) - 1
    ended: dict[tuple[int, str], str] = {}
    for depth in range(last):
        below: set[str] = set()
        for finer in links[depth + 1 :]:
            below |= {link.name for link in finer.values() if link and link.depth == depth}
        for name in [name for name in links[depth] if name not in below]:
            real = ended.get((depth, name), name)  # a branch two levels short is named after its last real class
            stand_in = free_name(pass_through(real, levels[depth + 1]), links[depth + 1])
            links[depth + 1][stand_in] = Link(depth, name, "")
            added[depth + 1].add(stand_in)
            ended[depth + 1, stand_in] = real
    for depth in range(last, 1, -1):
        bridges: dict[tuple[int, str], str] = {}  # one per distant ancestor, shared by its children
        for name, link in list(links[depth].items()):
            assert link is not None
            if link.depth < depth - 1:
                ancestor = (link.depth, link.name)
                if ancestor not in bridges:
                    bridges[ancestor] = free_name(pass_through(link.name, levels[depth - 1]), links[depth - 1])
                    links[depth - 1][bridges[ancestor]] = link
                    added[depth - 1].add(bridges[ancestor])
                links[depth][name] = Link(depth - 1, bridges[ancestor], link.where)
    return added


def _index(links: Sequence[Links], levels: Sequence[str], added: Sequence[set[str]]) -> Spec:
    """Number the classes in order of appearance, and turn the names of parents into numbers."""
    numbers = [{name: i for i, name in enumerate(found)} for found in links]
    parents = []
    for depth in range(len(levels) - 1, 0, -1):
        above = numbers[depth - 1]
        parents.append(tuple(above[link.name] for link in links[depth].values() if link))
    return Spec(
        levels=tuple(reversed(levels)),
        classes=tuple(tuple(found) for found in reversed(links)),
        parents=tuple(parents),
        stand_ins=tuple(tuple(name in new for name in found) for found, new in zip(links[::-1], added[::-1], strict=True)),
    )
