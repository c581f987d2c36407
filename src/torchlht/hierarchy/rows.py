"""From rows of names to a tree, with every contradiction found on the way.

A row is one path from the coarsest to the finest name, with gaps where nothing is known:

    order            family        species
    Charadriiformes  Laridae       Ivory Gull
    Charadriiformes  ·             Horned Puffin      → family "Charadriiformes (no family)", a pass-through node
    Gaviiformes      Gaviidae      ·                  → species "Gaviidae (no species)", likewise

Pass-through nodes keep every leaf at the same depth, so that a level is always a complete partition of the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from torchlht.errors import Fault


class Row(NamedTuple):
    """Names from coarse to fine, `None` where unknown, and where the row was found."""

    where: str
    names: tuple[str | None, ...]


class Spec(NamedTuple):
    """The bare content of a hierarchy, fine first: see `Hierarchy`."""

    levels: tuple[str, ...]
    classes: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[int, ...], ...]


class Link(NamedTuple):
    """A class's nearest known ancestor: the ancestor's depth, its name and the row that says so."""

    depth: int
    name: str
    where: str


Links = dict[str, Link | None]
"""Every name at one depth, with its nearest known ancestor (None at the top)."""


def pass_through(name: str, level: str) -> str:
    """The name of a node that stands in for a level a branch does not have.

    >>> pass_through("Charadriiformes", "family")
    'Charadriiformes (no family)'
    """
    return f"{name} (no {level})"


def build(rows: Iterable[Row], levels: Sequence[str]) -> tuple[Spec, list[Fault]]:
    """Put the rows together into one tree. `levels` are coarse → fine; the spec is only valid when there is no fault."""
    rows = list(rows)
    links, clashes = _collect_links(rows, levels)
    # Columns in the wrong order make nearly every row clash; then the order is the fault, not the rows.
    faults = _narrow_levels(links, levels) if clashes and len(links[-1]) < len(links[0]) else []
    faults = (faults or clashes) + _rootless(rows, links, levels)
    faults = faults or _distant_clashes(rows, links, levels)
    if faults:
        return Spec((), (), ()), faults
    _add_pass_through(links, levels)
    return _index(links, levels), []


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
    """Names of which no row says what they are under."""
    faults = []
    for depth, found in enumerate(links[1:], start=1):
        for name in (name for name, link in found.items() if link is None):
            first = next(row.where for row in rows if row.names[depth] == name)
            faults.append(Fault(first, f"nothing says which {levels[depth - 1]} the {levels[depth]} {name!r} is under"))
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
    return (
        f"level {fine!r} is finer than {coarse!r} but narrower ({fine_size} classes against {coarse_size}): "
        "levels run coarse → fine; --levels names them in that order"
    )


def _distant_clashes(rows: Sequence[Row], links: Sequence[Links], levels: Sequence[str]) -> list[Fault]:
    """A row that skips a level must still agree with what other rows say about the levels it skips."""
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
    """The ancestor of `name` at depth `high`, or None where the rows do not tell."""
    while depth > high:
        link = links[depth][name]
        if link is None:
            return None
        depth, name = link.depth, link.name
    return name if depth == high else None


def _add_pass_through(links: Sequence[Links], levels: Sequence[str]) -> None:
    """Fill the gaps, in place: first downwards where a branch ends early, then between a class and a distant ancestor."""
    last = len(levels) - 1
    ended: dict[tuple[int, str], str] = {}
    for depth in range(last):
        below: set[str] = set()
        for finer in links[depth + 1 :]:
            below |= {link.name for link in finer.values() if link and link.depth == depth}
        for name in [name for name in links[depth] if name not in below]:
            real = ended.get((depth, name), name)  # a branch two levels short is named after its last real class
            stand_in = _free_name(pass_through(real, levels[depth + 1]), links[depth + 1])
            links[depth + 1][stand_in] = Link(depth, name, "")
            ended[depth + 1, stand_in] = real
    for depth in range(last, 1, -1):
        bridges: dict[tuple[int, str], str] = {}  # one per distant ancestor, shared by its children
        for name, link in list(links[depth].items()):
            assert link is not None
            if link.depth < depth - 1:
                ancestor = (link.depth, link.name)
                if ancestor not in bridges:
                    bridges[ancestor] = _free_name(pass_through(link.name, levels[depth - 1]), links[depth - 1])
                    links[depth - 1][bridges[ancestor]] = link
                links[depth][name] = Link(depth - 1, bridges[ancestor], link.where)


def _free_name(name: str, taken: Links) -> str:
    """`name` itself, or `name` with a number when a class is called so already."""
    candidates = [name, *(f"{name} {i}" for i in range(2, len(taken) + 3))]
    return next(candidate for candidate in candidates if candidate not in taken)


def _index(links: Sequence[Links], levels: Sequence[str]) -> Spec:
    """Number the classes in their order of appearance, and turn the names of parents into numbers."""
    numbers = [{name: i for i, name in enumerate(found)} for found in links]
    parents = []
    for depth in range(len(levels) - 1, 0, -1):
        above = numbers[depth - 1]
        parents.append(tuple(above[link.name] for link in links[depth].values() if link))
    return Spec(
        levels=tuple(reversed(levels)),
        classes=tuple(tuple(found) for found in reversed(links)),
        parents=tuple(parents),
    )
