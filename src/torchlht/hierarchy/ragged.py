"""Branches that end early or skip a level. There a *stand-in* fills the level, so that every level stays complete in the maths.

    order            family        species
    Gaviiformes      Gaviidae      ·                  the branch ends: its species stands in for Gaviidae
    Charadriiformes  ·             Horned Puffin      the branch skips a level: its family stands in for Charadriiformes

A stand-in is no class: nobody labels it, and nobody is shown it. In code it needs a name of its own level, which is made here.
Files and trees say which classes stand in; those written before they did are understood by these names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Names = Sequence[str | None]


def pass_through(name: str, level: str) -> str:
    """The name in code of what stands in for a class at a finer level.

    >>> pass_through("Charadriiformes", "family")
    'Charadriiformes (no family)'
    """
    return f"{name} (no {level})"


def free_name(name: str, taken: Container[str]) -> str:
    """`name` itself, or `name` with a number if a class already has it."""
    candidates = itertools.chain([name], (f"{name} {i}" for i in itertools.count(2)))
    return next(candidate for candidate in candidates if candidate not in taken)


def stand_ins_by_name(levels: Sequence[str], classes: Sequence[Names], parents: Sequence[Ints]) -> tuple[Bools, ...]:
    """Which classes stand in, of a tree that does not say so: those that are named as `pass_through` does it. Fine first."""
    found = [np.zeros(len(classes[-1]), dtype=bool)]
    own = list(classes[-1])  # of each class the name of the last real one on its path
    for k in range(len(parents) - 1, -1, -1):
        number = re.compile(rf"(.*) \(no {re.escape(levels[k])}\)(?: [0-9]+)?", re.DOTALL)
        above = [own[i] for i in parents[k].tolist()]
        named = [match and match[1] for match in (number.fullmatch(name or "") for name in classes[k])]
        flags = np.array([one is not None and one == up for one, up in zip(named, above, strict=True)], dtype=bool)
        own = [up if stands else name for name, up, stands in zip(classes[k], above, flags.tolist(), strict=True)]
        found.append(flags)
    return _without_lost(found[::-1], parents)


def _without_lost(stand_ins: list[Bools], parents: Sequence[Ints]) -> tuple[Bools, ...]:
    """The same, but what only ends a branch that goes on elsewhere is a class: somebody called it so."""
    for k, wrong in reversed(list(enumerate(lost(stand_ins, parents)))):
        stand_ins[k] = stand_ins[k] & ~wrong
        if k:
            stand_ins[k - 1] = stand_ins[k - 1] & ~wrong[parents[k - 1]]
    return tuple(stand_ins)


def lost(stand_ins: Sequence[Bools], parents: Sequence[Ints]) -> list[Bools]:
    """Which stand-ins, fine first, have no class below them, although the class that they stand in for has others."""
    found, ends = [], endings(stand_ins, parents)
    for k, up in enumerate(parents):
        through = stand_ins[k] & ends[k]
        found.append(through & (np.bincount(up)[up] > 1))
    return [*found, np.zeros(len(stand_ins[-1]), dtype=bool)]


def named(levels: Sequence[str], classes: Sequence[Names], parents: Sequence[Ints]) -> tuple[tuple[str, ...], ...]:
    """Classes, fine first, with names in code for those that have none since they stand in."""
    found = [list(names) for names in classes]
    own = list(found[-1])
    for k in range(len(parents) - 1, -1, -1):
        taken = {name for name in found[k] if name is not None}
        above = [own[i] for i in parents[k].tolist()]
        own = [up if name is None else name for name, up in zip(found[k], above, strict=True)]
        for j, name in enumerate(found[k]):
            if name is None:
                found[k][j] = free_name(pass_through(str(above[j]), levels[k]), taken)
                taken.add(str(found[k][j]))
    return tuple(tuple(map(str, names)) for names in found)


def last_real(stand_ins: Sequence[Bools], parents: Sequence[Ints]) -> list[tuple[Ints, Ints]]:
    """For each level, fine first, the level and number of each class itself, or of the one that it stands in for."""
    top = np.arange(len(stand_ins[-1]))
    found = [(np.full(len(top), len(stand_ins) - 1), top)]
    for k in range(len(parents) - 1, -1, -1):
        level, number = (column[parents[k]] for column in found[-1])
        stands = stand_ins[k]
        found.append((np.where(stands, level, k), np.where(stands, number, np.arange(len(stands)))))
    return found[::-1]


def endings(stand_ins: Sequence[Bools], parents: Sequence[Ints]) -> tuple[Bools, ...]:
    """Which classes, fine first, have nothing but stand-ins below them. Of the finest level these are the stand-ins."""
    found = [stand_ins[0]]
    through = stand_ins[0]  # stand-ins with nothing but stand-ins below
    for k in range(1, len(stand_ins)):
        ends = np.ones(len(stand_ins[k]), dtype=bool)
        ends[parents[k - 1][~through]] = False
        found.append(ends)
        through = ends & stand_ins[k]
    return tuple(found)


def completed(labels: Ints, ends: Sequence[Bools], parents: Sequence[Ints]) -> Ints:
    """(N, K) labels, fine first, where those whose branch ends are known down to what stands in below it."""
    found = labels.copy()
    for k in range(len(ends) - 1, 0, -1):
        if ends[k].any():
            below = np.zeros(len(ends[k]), dtype=np.int64)
            below[parents[k - 1]] = np.arange(len(parents[k - 1]))
            rows = np.flatnonzero((found[:, k] >= 0) & (found[:, :k] < 0).all(axis=1))
            rows = rows[ends[k][found[rows, k]]]
            found[rows, k - 1] = below[found[rows, k]]
    return found
