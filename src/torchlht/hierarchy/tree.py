"""`Hierarchy`: levels, names and parents. Only this file converts between fine-first and coarse-first order."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from torchlht.doors import entrance
from torchlht.errors import DataError, Fault, HierarchyError, suggestion
from torchlht.files import csv_text, write_text
from torchlht.hierarchy.linked import holds_links, linked_tree
from torchlht.hierarchy.paths import CLASSES, LEVELS, Row, Spec, build, narrower
from torchlht.hierarchy.ragged import Bools, Ints, completed, endings, last_real, lost, named, stand_ins_by_name
from torchlht.hierarchy.reading import FORMAT, MARKED, read_tree, spec_of

BLANK = "·"  # a missing name, while a tree is made


class Hierarchy:
    """A tree of classes in K complete levels. In code, level 0 is the finest; on screen, the coarsest comes first.

        >>> tree = Hierarchy.from_paths([("Gulls", "Ivory Gull"), ("Gulls", "Herring Gull"), ("Auks", "Puffin")],
        ...                             levels=("family", "species"))
        >>> tree
        Hierarchy(family 2 › species 3)
        >>> tree.levels                                  # fine first
        ('species', 'family')
        >>> tree.parents[0]                              # the family of each species
        array([0, 0, 1])

    Attributes:
        levels: level names, fine first.
        classes: class names of each level, fine first; unique within a level. What stands in has a name for code here; `names`
            has those that people see.
        parents: one array per adjacent pair of levels: `parents[k][j]` is the index at level k+1 of class j at level k.
        stand_ins: for each level, fine first, which classes only stand in where a branch ends early or skips the level.
    """

    def __init__(
        self,
        *,
        levels: Sequence[str],
        classes: Sequence[Sequence[str | None]],
        parents: Sequence[Sequence[int] | Ints],
        stand_ins: Sequence[Sequence[bool] | Bools] | None = None,
        source: str = "hierarchy",
    ) -> None:
        """A tree from its parts.

        Args:
            levels: level names, fine first.
            classes: class names of each level, fine first; None stands in.
            parents: see the class.
            stand_ins: which classes stand in; by default those without a name, or, if all have one, those that older files
                name so.
            source: what to name in messages.

        Raises:
            HierarchyError: when the parts do not fit together; it lists every fault.
        """
        self.levels = _names(levels, source)
        given = tuple(_names(names, source, gaps=True) for names in classes)
        self.parents = tuple(_numbers(p, source) for p in parents)
        blank = any(name is None for names in given for name in names)
        self.classes = tuple(tuple(BLANK if name is None else name for name in names) for names in given)
        faults = self._faults(blanks=blank)
        if faults:
            raise HierarchyError(source, faults)
        for p in self.parents:
            p.flags.writeable = False
        if blank:
            stand_ins = [[name is None for name in names] for names in given]
            self.classes = named(self.levels, given, self.parents)
        self.stand_ins = self._standing(stand_ins, source)
        self._numbers = tuple({name: i for i, name in enumerate(names)} for names in self.classes)

    # ---- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def from_parents(
        cls,
        parents: Sequence[Sequence[int] | Ints],
        levels: Sequence[str] | None = None,
        classes: Sequence[Sequence[str | None]] | None = None,
    ) -> Hierarchy:
        """From index arrays, fine first. Missing names are replaced by numbers.

        Args:
            parents: `parents[k][j]` is the index at level k+1 of class j at level k.
            levels: names of the K levels, fine first.
            classes: names of the classes of each level, fine first, None where a branch ends early or skips the level; needed
                when there is a single level.
        """
        arrays = _listed(parents, "parents", "from_parents", lambda p: _numbers(p, "from_parents"))
        if classes is None:
            if not arrays:
                raise HierarchyError("from_parents", [Fault("", "no levels: pass parents, or classes for a single level")])
            tops = [p.size for p in arrays] + [int(arrays[-1].max(initial=-1)) + 1]
            classes = [[str(i) for i in range(min(n, CLASSES + 1))] for n in tops]
        lists = _listed(classes, "classes", "from_parents", lambda names: _names(names, "from_parents", gaps=True))
        names = levels if levels is not None else default_levels(len(lists))[::-1]
        return cls(levels=names, classes=lists, parents=arrays, source="from_parents")

    @classmethod
    def from_paths(cls, paths: Iterable[Sequence[str | None]], levels: Sequence[str]) -> Hierarchy:
        """From paths of names, `None` if a branch does not have a level. Names and `levels` are coarse → fine."""
        rows = [Row(f"path {i + 1}", tuple(path)) for i, path in enumerate(paths)]
        wrong = [row for row in rows if len(row.names) != len(levels)]
        faults = [Fault(row.where, f"{len(row.names)} names for {len(levels)} levels") for row in wrong]
        spec, faults = build(rows, levels) if not faults else (Spec((), (), ()), faults)
        if faults:
            raise HierarchyError("paths", faults)
        return cls(**spec._asdict(), source="paths")

    @classmethod
    @entrance
    def read(cls, path: str | Path, levels: Sequence[str] | None = None) -> Hierarchy:
        """From a file or folder: CSV/TSV, nested JSON or YAML, our own `hierarchy.json`, an ontology, or a tree of folders.

        Args:
            path: what to read. A CSV has one row per finest class and its columns run coarse → fine, or it has the
                columns `name,parent` (and `level`).
            levels: level names coarse → fine; they choose and order the columns of a CSV, and name the levels of a tree
                without level names.

        Raises:
            HierarchyError: when the file is faulty; it lists every fault.
            DataError: when there is no such file.
        """
        place = Path(path)
        spec = linked_tree(place, levels) if holds_links(place) else read_tree(place, levels)
        return cls(**spec._asdict(), source=str(path))

    @classmethod
    @entrance
    def from_dict(cls, values: dict[str, Any], source: str = "hierarchy") -> Hierarchy:
        """The inverse of `to_dict`. Raises KeyError or TypeError when something is missing."""
        return cls(**spec_of(values)._asdict(), source=source)

    def _standing(self, stand_ins: Sequence[Sequence[bool] | Bools] | None, source: str) -> tuple[Bools, ...]:
        """Which classes stand in. Raises HierarchyError when these cannot."""
        if stand_ins is None:
            return stand_ins_by_name(self.levels, self.classes, self.parents)
        found = tuple(np.array(flags, dtype=bool) for flags in stand_ins)
        if tuple(map(len, found)) != self.sizes:
            raise HierarchyError(
                source, [Fault("", f"stand_ins are a flag for each class: {self.sizes}; got {len(found)} lists")]
            )
        faults = [Fault(self.levels[-1], "a class without a name: at the coarsest level there is none to stand in for")]
        faults = faults if found[-1].any() else []
        for k, wrong in enumerate(lost(found, self.parents)):
            above = [self.classes[k + 1][self.parents[k][j]] for j in np.flatnonzero(wrong)]
            both = "which has others: a branch ends there or goes on, not both; give it a name"
            faults += [Fault(self.levels[k], f"a class without a name under {name!r}, {both}") for name in above]
        if faults:
            raise HierarchyError(source, faults)
        return found

    def _faults(self, *, blanks: bool = False) -> list[Fault]:
        """All faults of the arrays; with `blanks`, names that are missing are not asked to be unique."""
        faults = []
        depth = len(self.classes)
        if depth == 0 or len(self.levels) != depth or len(self.parents) != depth - 1:
            counts = f"{len(self.levels)} level names, {depth} lists of classes, {len(self.parents)} parent arrays"
            return [Fault("", f"a hierarchy of K levels has K names, K lists and K - 1 parent arrays; got {counts}")]
        if depth > LEVELS or max(map(len, self.classes)) > CLASSES:
            what = f"{depth} levels, the largest of {max(map(len, self.classes)):,} classes"
            return [Fault("", f"{what}; the most that is read is {LEVELS} levels of {CLASSES:,} classes")]
        faults += [Fault("", f"level name {name!r} appears twice") for name in _repeated(self.levels)]
        faults += [Fault("", f"the name {name!a} is not Unicode text; rename it") for name in _unwritable(self.levels)]
        for level, names in zip(self.levels, self.classes, strict=True):
            faults += [Fault(level, f"the name {name!a} is not Unicode text; rename it") for name in _unwritable(names)]
            faults += [Fault(level, f"{name!r} appears twice") for name in _repeated(names) if not (blanks and name == BLANK)]
            faults += [Fault(level, f"class {i} has an empty name") for i, n in enumerate(names) if not n.strip()]
        for k, parents in enumerate(self.parents):
            faults += self._parent_faults(k, parents)
        return faults

    def _parent_faults(self, k: int, parents: Ints) -> list[Fault]:
        fine, coarse = self.levels[k], self.levels[k + 1]
        n, above = len(self.classes[k]), len(self.classes[k + 1])
        if parents.shape != (n,):
            return [Fault(fine, f"{n} classes but {parents.size} parents: every {fine} has exactly one {coarse}")]
        faults = [
            Fault(fine, f"the parent of {self.classes[k][j]!r} is {parents[j]}, outside 0…{above - 1}")
            for j in np.flatnonzero((parents < 0) | (parents >= above))
        ]
        if n < above:
            faults.append(Fault("", narrower(coarse, above, fine, n)))
        for i in np.setdiff1d(np.arange(above), parents):
            faults.append(Fault(coarse, f"{self.classes[k + 1][i]!r} has no {fine} under it"))
        return faults

    # ---- queries ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of levels, K."""
        return len(self.levels)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of classes of each level, fine first."""
        return tuple(len(names) for names in self.classes)

    @property
    def ragged(self) -> bool:
        """Whether a branch ends early or skips a level."""
        return any(bool(flags.any()) for flags in self.stand_ins)

    @cached_property
    def real_sizes(self) -> tuple[int, ...]:
        """The number of classes of each level that do not only stand in, fine first."""
        return tuple(int((~flags).sum()) for flags in self.stand_ins)

    @cached_property
    def ends(self) -> tuple[Bools, ...]:
        """For each level, fine first, the classes at which a branch ends early, and what stands in for them further down."""
        return endings(self.stand_ins, self.parents)

    @cached_property
    def names(self) -> tuple[tuple[str | None, ...], ...]:
        """Class names as people see them, fine first; None for what only stands in. Positions are those of `classes`."""
        both = zip(self.classes, self.stand_ins, strict=True)
        return tuple(tuple(None if s else n for n, s in zip(names, flags.tolist(), strict=True)) for names, flags in both)

    @cached_property
    def _last_real(self) -> list[tuple[Ints, Ints]]:
        return last_real(self.stand_ins, self.parents)

    def real(self, level: int, number: int) -> tuple[int, int]:
        """The level and number of a class itself, or of the class that it stands in for."""
        levels, numbers = self._last_real[level]
        return int(levels[number]), int(numbers[number])

    def text(self, level: int, number: int) -> str:
        """A class as people read it: its name; for a stand-in what it stands in for, with its level: "Laridae (family)"."""
        at, own = self.real(level, number)
        return self.classes[at][own] if at == level else f"{self.classes[at][own]} ({self.levels[at]})"

    def path_names(self, label: Sequence[int] | Ints) -> list[str]:
        """The names of a label (K,), coarse → fine: without what is unknown, or only stands in."""
        return [str(self.names[k][label[k]]) for k in self.top_down if label[k] >= 0 and not self.stand_ins[k][label[k]]]

    def cells(self, label: Sequence[int] | Ints) -> list[str]:
        """The name of each level of a label (K,), coarse → fine: "" where it is unknown, or only something stands in."""
        return [self.names[k][label[k]] or "" if label[k] >= 0 else "" for k in self.top_down]

    def only_real(self, labels: Ints) -> Ints:
        """(N, K) labels, fine first, with -1 also where a class only stands in: there a sample has none to be right about."""
        columns = zip(self.stand_ins, labels.T, strict=True)
        return np.stack([np.where(np.append(flags, False)[y], -1, y) for flags, y in columns], axis=1)

    def complete(self, labels: Ints) -> Ints:
        """(N, K) labels, fine first, where those at a class whose branch ends are known down to what stands in below it."""
        return completed(labels, self.ends, self.parents)

    @property
    def top_down(self) -> range:
        """Level indices in the order people say them, coarse → fine."""
        return range(len(self) - 1, -1, -1)

    def index(self, level: int, name: str) -> int:
        """The number of a class. Raises DataError, with the nearest names, when the level has no such class."""
        try:
            return self._numbers[level][name]
        except KeyError:
            near = suggestion(name, [one for one in self.names[level] if one is not None])
            raise DataError(f"{self.levels[level]} has no class {name!r}: {near}") from None

    def level_of(self, name: str) -> int | None:
        """The finest level that has a class of this name; None without one."""
        return next((level for level, numbers in enumerate(self._numbers) if name in numbers), None)

    def ancestors(self, level: int, of: int = 0) -> Ints:
        """For each class of level `of`, its ancestor at the coarser (or same) `level`."""
        found = np.arange(self.sizes[of])
        for parents in self.parents[of:level]:
            found = parents[found]
        return found

    def path(self, leaf: int) -> tuple[int, ...]:
        """The class of each level, fine first, on the path from a finest class to the top."""
        return tuple(int(self.ancestors(k)[leaf]) for k in range(len(self)))

    def edges(self, level: int) -> Ints:
        """(2, E): child and parent indices between `level` and the next coarser one."""
        return np.stack([np.arange(self.sizes[level]), self.parents[level]])

    def matrix(self, level: int) -> NDArray[np.float64]:
        """S of the step from `level` to the next coarser: 1 where row i is the parent of column j. Dense."""
        matrix = np.zeros((self.sizes[level + 1], self.sizes[level]))
        child, parent = self.edges(level)
        matrix[parent, child] = 1
        return matrix

    def lca_height(self, a: Ints, b: Ints) -> Ints:
        """Height of the lowest common ancestor of finest classes: 0 if equal, 1 for siblings, …, K if nothing is shared."""
        height = np.zeros(np.broadcast(a, b).shape, dtype=np.int64)
        for k in range(len(self)):
            up = self.ancestors(k)
            height += up[a] != up[b]
        return height

    def fill(self, labels: Ints, where: Callable[[int], str] = "row {}".format) -> Ints:
        """Fill in the ancestors of every known label; -1 stays if nothing finer is known.

        Below a class whose branch ends, nothing is unknown: there the label is what stands in for the class.

        Args:
            labels: (N, K), fine first, -1 where unknown.
            where: names row i in messages.

        Raises:
            DataError: when a label contradicts the tree, with its row.
        """
        filled = self._checked_labels(labels, where)
        for k, parents in enumerate(self.parents):
            implied = np.append(parents, -1)[np.maximum(filled[:, k], -1)]  # there may be no classes at all
            wrong = np.flatnonzero((implied >= 0) & (filled[:, k + 1] >= 0) & (implied != filled[:, k + 1]))
            if wrong.size:
                raise DataError(self._contradiction(filled, k, wrong, where))
            filled[:, k + 1] = np.where(implied >= 0, implied, filled[:, k + 1])
        return self.complete(filled)

    def _checked_labels(self, labels: Ints, where: Callable[[int], str]) -> Ints:
        """A copy of the labels. Raises DataError unless they are whole numbers (N, K), each -1 or a class of its level."""
        given = np.asarray(labels)
        if given.shape[1:] != (len(self),) or (given.size and given.dtype.kind not in "iu"):
            raise DataError(
                f"labels are {given.dtype} {given.shape}; expected whole numbers (samples, {len(self)}), fine first"
            )
        wrong = np.argwhere((given < -1) | (given >= np.array(self.sizes)))
        if len(wrong):
            row, k = (int(i) for i in wrong[0])
            raise DataError(
                f"{where(row)}: label {given[row, k]} of {self.levels[k]}; classes are 0…{self.sizes[k] - 1}, -1 unknown"
            )
        return given.astype(np.int64)

    def _contradiction(self, labels: Ints, k: int, wrong: Ints, where: Callable[[int], str]) -> str:
        row = int(wrong[0])
        child, parent = labels[row, k], labels[row, k + 1]
        right = self.classes[k + 1][self.parents[k][child]]
        others = f" (and {wrong.size - 1} more rows like it)" if wrong.size > 1 else ""
        return (
            f"{where(row)}: {self.levels[k]} {self.classes[k][child]!r} is labelled {self.levels[k + 1]} "
            f"{self.classes[k + 1][parent]!r}, but the tree puts it under {right!r}{others}; correct the label or the tree, "
            "or train with such a tree as `prior` instead of `hierarchy`"
        )

    # ---- writing and showing ---------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values: the content of `hierarchy.json`. What stands in is null."""
        parents: list[list[int] | None] = [p.tolist() for p in self.parents]
        levels = [
            {"name": name, "classes": list(names), "parents": above}
            for name, names, above in zip(self.levels, self.names, [*parents, None], strict=True)
        ]
        plain = not self.ragged and not any(flags.any() for flags in stand_ins_by_name(self.levels, self.classes, self.parents))
        return {"format": FORMAT if plain else MARKED, "levels": levels}

    def arrays(self) -> dict[str, Any]:
        """The names of levels and classes as an .npz of features has them: `levels`, `classes_<level>`; "" stands in."""
        texts = [np.array([name or "" for name in names]) for names in self.names]
        return {"levels": np.array(self.levels), **{f"classes_{at}": t for at, t in zip(self.levels, texts, strict=True)}}

    def write(self, path: str | Path) -> None:
        """Write `hierarchy.json`, or a table if the path ends in .csv; `Hierarchy.read` returns the same tree.

        A table numbers classes in the order of its rows, so what stands in where a branch ends may get another number there.
        """
        place = Path(path)
        if place.suffix.lower() == ".csv":
            write_text(place, csv_text(self.rows()))
        else:
            write_text(place, json.dumps(self.to_dict(), ensure_ascii=False, indent=1) + "\n")

    def rows(self) -> list[list[str]]:
        """The tree as a table: level names, then a row per finest class, or per branch that ends early; coarse → fine."""
        paths = np.stack([self.ancestors(k) for k in range(len(self))], axis=1)
        return [[self.levels[k] for k in self.top_down], *(self.cells(path) for path in paths)]

    def describe(self) -> str:
        """One line with levels and their sizes, coarse → fine: "order 13 › family 38 › species 200 (1 branch ends early)"."""
        sizes = " › ".join(f"{self.levels[k]} {self.real_sizes[k]}" for k in self.top_down)
        early, skipping = (self.early, "branch", "branches", "end early"), (self.skipping, "class", "classes", "skip a level")
        notes = [_count(*early), _count(*skipping)]
        return f"{sizes} ({', '.join(filter(None, notes))})" if self.ragged else sizes

    @property
    def early(self) -> int:
        """How many branches end before the finest level."""
        return int(sum((ends & ~flags).sum() for ends, flags in zip(self.ends, self.stand_ins, strict=True)))

    @property
    def skipping(self) -> int:
        """How many classes are not under a class of the next coarser level, but of one further up."""
        pairs = zip(self.stand_ins, self.stand_ins[1:], self.parents, strict=False)
        return int(sum((~own & above[parents]).sum() for own, above, parents in pairs))

    def __repr__(self) -> str:
        return f"Hierarchy({self.describe()})"

    def _repr_html_(self) -> str:
        """Nested lists that open on a click, for notebooks."""
        from torchlht.hierarchy.branches import branches

        return branches(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hierarchy) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.levels, self.classes))


T = TypeVar("T")


def _listed(values: Any, what: str, source: str, read: Callable[[Any], T]) -> list[T]:
    """Each of a list of values, as `read` reads it."""
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise HierarchyError(source, [Fault("", f"{what} are {type(values).__name__}; pass a list for each level, fine first")])
    return [read(value) for value in values]


def _numbers(values: Any, source: str) -> Ints:
    """Whole numbers as an array of their own."""
    try:
        found = np.asarray(values)
    except ValueError:  # rows of different lengths
        found = np.empty((0, 0))
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise HierarchyError(
            source, [Fault("", f"parents are whole numbers, one for each class of a level; got {str(values)[:60]}")]
        )
    return np.array(found, dtype=np.int64)


def _names(values: Any, source: str, *, gaps: bool = False) -> tuple[Any, ...]:
    """Names as a tuple; with `gaps`, some may be None."""
    found = tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else (0,)
    if not all(isinstance(name, str) or (gaps and name is None) for name in found):
        raise HierarchyError(source, [Fault("", f"names are a list of texts; got {str(values)[:60]}")])
    return found


def _count(n: int, one: str, several: str, what: str) -> str:
    """`2 branches end early`; nothing for none."""
    verb, _, rest = what.partition(" ")
    return "" if not n else f"1 {one} {verb}s {rest}" if n == 1 else f"{n:,} {several} {what}"


def default_levels(depth: int) -> list[str]:
    """Names for levels that have none, coarse → fine."""
    return [f"level{i + 1}" for i in range(depth)]


def _unwritable(names: Sequence[str]) -> list[str]:
    """Names that no file in UTF-8 can hold, such as that of a folder in another encoding."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return [name for name in names if re.search("[\ud800-\udfff]", name)]
    return []


def _repeated(names: Sequence[str]) -> list[str]:
    seen: set[str] = set()
    return [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
