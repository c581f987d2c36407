"""Labels as people hold them in Python: rows of names coarse → fine in lists, arrays or data frames, with blanks.

    [["Gulls", "Ivory Gull"], ["Gulls", ""], ["Auks"]]         a list of rows, short ones filled with blanks
    np.array([[3, 17], [3, -1]])                               numbers are names, too
    frame[["family", "species"]]                               a data frame, whose columns name the levels
    ["Ivory Gull", "Puffin"]                                   one column: finest names of a given tree, or a flat problem

Unknown are "", None, nan, pandas' NA, the number -1, and whatever else is said to mean unknown; they are never classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints, label_of, refuse_faults
from torchlht.errors import DataError, Fault, HierarchyError
from torchlht.hierarchy.paths import LEVELS, Row, build
from torchlht.hierarchy.tree import Hierarchy, default_levels

SHOWN = 3  # faults in a sentence
LabelName = Literal[
    "str", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]
"""Names of the dtypes of labels."""


@dataclass(frozen=True)
class Column:
    """The labels of one level.

    Attributes:
        codes: (N,) positions in `names`, -1 where unknown.
        names: the distinct labels as text, in order.
        dtype: of the labels; `as_values` turns names back into labels.
    """

    codes: Ints
    names: tuple[str, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Columns:
    """Labels of samples by name.

    Attributes:
        columns: one per level, coarse → fine.
        levels: the names of the columns; None if they have none.
        flat: whether each sample has one label instead of a row of them.
        where: the name of the labels in messages.
    """

    columns: tuple[Column, ...]
    levels: tuple[str, ...] | None
    flat: bool
    where: str = "y"

    def __len__(self) -> int:
        return len(self.columns[0].codes)

    def place(self, i: int) -> str:
        """The name of a row in messages."""
        return f"{self.where} row {i}"

    def names(self, i: int) -> tuple[str | None, ...]:
        """The names of a row, None where unknown."""
        return tuple(column.names[column.codes[i]] if column.codes[i] >= 0 else None for column in self.columns)


# ---- reading -------------------------------------------------------------------------------------------------------


def read_columns(y: Any, unknown: Sequence[str] = (), *, signs: bool = False, where: str = "y") -> Columns:
    """Labels in any form that this file describes.

    Args:
        y: the labels.
        unknown: more names that mean unknown, in any case.
        signs: whether -1 is a class; see `two_signs`.
        where: the name of the labels in messages.

    Raises:
        DataError: when they are in no such form.
    """
    values, dtypes, names, flat = _as_lists(y, where)
    blank = {name.strip().casefold() for name in unknown}
    columns = tuple(_column(*one, blank, signs, where) for one in zip(values, dtypes, strict=True))
    return Columns(columns, names, flat, where)


def two_signs(y: Any) -> bool:
    """Whether labels are -1 and 1, one each: the usual way to write two classes, where -1 cannot mean unknown."""
    values = np.asarray(y if not isinstance(y, list | tuple) or not any(map(_is_row, y)) else 0)
    return values.ndim == 1 and values.dtype.kind in "if" and set(np.unique(values).tolist()) == {-1, 1}


def _as_lists(y: Any, where: str) -> tuple[list[list[Any]], list[np.dtype[Any]], tuple[str, ...] | None, bool]:
    """A list of labels and a dtype per column, the names of the columns, and whether there is no second dimension."""
    names = _column_names(y)
    if isinstance(y, np.ma.MaskedArray):
        y = np.where(np.ma.getmaskarray(y), "", y.data.astype(object))
    if isinstance(y, list | tuple) and any(_is_row(one) for one in y):
        return *_from_rows(y, where), names, False
    array = y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)  # so that numbers beside blanks stay whole
    if array.ndim == 1 and array.dtype == object and any(_is_row(one) for one in array):
        return *_from_rows(array.tolist(), where), names, False
    if array.ndim not in (1, 2) or not array.shape[-1]:
        raise DataError(
            f"{where} is {type(y).__name__} {array.shape}: pass a row of names coarse → fine for each sample, or one name each"
        )
    if array.ndim == 2 and array.shape[1] > LEVELS:
        raise DataError(f"{where} has {array.shape[1]:,} columns; the most that is read is {LEVELS}, one per level")
    table = array.reshape(len(array), -1)
    return [table[:, i].tolist() for i in range(table.shape[1])], [array.dtype] * table.shape[1], names, array.ndim == 1


def _column_names(y: Any) -> tuple[str, ...] | None:
    """The columns of a data frame, or the name of a series, if they are texts."""
    named = getattr(y, "columns", None)
    found: list[Any] = list(named) if named is not None else [getattr(y, "name", None)]
    return tuple(found) if all(isinstance(name, str) and name.strip() for name in found) else None


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _from_rows(rows: Sequence[Any], where: str) -> tuple[list[list[Any]], list[np.dtype[Any]]]:
    """Columns from rows of different lengths; a name alone is a row of one."""
    rows = [list(row) if _is_row(row) else [row] for row in rows]
    depth = max(map(len, rows))
    for i, row in enumerate(rows):
        if any(_is_row(one) for one in row):
            raise DataError(f"{where} row {i}: has several paths; each sample has one row of names, coarse → fine")
    filled = [row + [None] * (depth - len(row)) for row in rows]
    return [list(column) for column in zip(*filled, strict=True)], [np.dtype(object)] * depth


def _column(values: list[Any], dtype: np.dtype[Any], blank: set[str], signs: bool, where: str) -> Column:
    """One column, its names in order: numbers by value, others by text."""
    numbers: dict[Any, int] = {}
    try:
        codes = np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)
    except TypeError:
        wrong = next(i for i, value in enumerate(values) if not _can_hash(value))
        raise DataError(f"{where} row {wrong}: {str(values[wrong])[:60]} is no name") from None
    known = {value: _name(value) for value in numbers if not _is_blank(value, blank, signs)}
    dtype = dtype if dtype.kind in "iufb" else _common(list(known))
    if dtype.kind == "f" and (between := [value for value in known if not float(value).is_integer()]):
        first = between[0]
        raise DataError(f"{where} row {values.index(first)}: {first} is continuous; labels are names or whole numbers")
    order = sorted(known, key=known.__getitem__ if dtype.kind == "U" else float)
    names = {name: i for i, name in enumerate(dict.fromkeys(known[value] for value in order))}
    table = np.array([names[known[value]] if value in known else -1 for value in numbers], dtype=np.int64)
    return Column(table[codes] if len(codes) else codes, tuple(names), dtype)


def _can_hash(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _is_blank(value: Any, blank: set[str], signs: bool) -> bool:
    """Whether a label is missing."""
    if isinstance(value, str):
        return not value.strip() or value.strip().casefold() in blank
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # those of pandas, without importing it
        return True
    return bool(value != value) or (bool(value == -1) and not signs)


def _name(value: Any) -> str:
    """A label as text: 3 and 3.0 are the same class."""
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _common(values: list[Any]) -> np.dtype[Any]:
    """The dtype of labels from a list: of numbers if all are, else of texts."""
    kinds = {"b" if isinstance(value, bool) else np.asarray(value).dtype.kind for value in values}
    if not kinds or not kinds <= set("iufb"):
        return np.dtype(str)
    return np.dtype(bool if kinds == {"b"} else np.float64 if "f" in kinds else np.int64)


def as_values(names: Sequence[str], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Names as labels of a dtype; names that are none, such as stand-ins among numbers, stay texts in an array of objects."""
    if dtype.kind not in "iufb":
        return np.array(names, dtype=str)
    values = [_value(name, dtype.kind) for name in names]
    texts = sum(isinstance(value, str) for value in values)
    return np.array(values, dtype=str if texts == len(values) else object if texts else dtype)


def _value(name: str, kind: str) -> Any:
    if kind == "b":
        return {"True": True, "False": False}.get(name, name)
    try:
        return float(name) if kind == "f" else int(name)
    except ValueError:
        return name


# ---- the tree and the numbers of classes ---------------------------------------------------------------------------


def tree_of_columns(columns: Columns, levels: Sequence[str] | None = None) -> Hierarchy:
    """The tree that all rows imply together; the classes of a level are in order.

    Args:
        columns: the labels.
        levels: names of the levels, coarse → fine; by default those of the columns.

    Raises:
        DataError: when the rows contradict each other, or a level has no label; it names a row.
    """
    depth, where = len(columns.columns), columns.where
    names = list(levels or columns.levels or (default_levels(depth) if not columns.flat else ["class"]))
    if len(names) != depth:
        raise DataError(f"{where} has {depth} columns, but {len(names)} levels are named ({', '.join(names)})")
    for level, column in zip(names, columns.columns, strict=True):
        if not column.names:
            raise DataError(f"{where}: no label of the level {level}; leave the column out, or label some samples")
    rows = [Row(f"row {i}", columns.names(i)) for i in _distinct(columns)]
    spec, faults = build(rows, names)
    try:
        refuse_faults(Path(where), rows, faults)
        return Hierarchy(**spec._asdict(), source=where)
    except HierarchyError as error:
        raise DataError(f"{where}: {_some(error.faults)}") from None


def _distinct(columns: Columns) -> list[int]:
    """A row of each kind, in the order of their names."""
    key, first = np.zeros(len(columns), dtype=np.int64), np.zeros(1, dtype=np.int64)
    for column in columns.columns:
        _, first, key = np.unique(key * (len(column.names) + 1) + column.codes, return_index=True, return_inverse=True)
    return first.tolist()


def _some(faults: Sequence[Fault]) -> str:
    more = f" (and {len(faults) - SHOWN} more)" if len(faults) > SHOWN else ""
    return "; ".join(map(str, faults[:SHOWN])) + more


def labels_in(tree: Hierarchy, columns: Columns) -> Ints:
    """(N, K) the classes of a tree, fine first, -1 where unknown, with ancestors filled in.

    Raises:
        DataError: when a name is not in the tree, or a row contradicts it; it names the row.
    """
    labels = np.full((len(columns), len(tree)), -1, dtype=np.int64)
    if columns.flat:
        column, known = columns.columns[0], [set(names) for names in tree.names]
        levels = [next((k for k, names in enumerate(known) if name in names), 0) for name in column.names]  # finest first
        numbers = [_number(tree, level, columns, column, name) for level, name in zip(levels, column.names, strict=True)]
        rows = np.flatnonzero(column.codes >= 0)
        labels[rows, np.array(levels)[column.codes[rows]]] = np.array(numbers)[column.codes[rows]]
    else:
        for level, column in zip(_levels_in(tree, columns), columns.columns, strict=True):
            numbers = [_number(tree, level, columns, column, name) for name in column.names]
            labels[:, level] = np.array([*numbers, -1])[column.codes]
    return tree.fill(labels, where=columns.place)


def _number(tree: Hierarchy, level: int, columns: Columns, column: Column, name: str) -> int:
    """The number of a class. Raises DataError that names the first row with an unknown one."""
    try:
        return tree.index(level, name)
    except DataError:
        where = columns.place(int(np.argmax(column.codes == column.names.index(name))))
        return label_of(tree, [tree.levels[level]], [name], where)[level]  # raises, and says how to leave it out


def _levels_in(tree: Hierarchy, columns: Columns) -> list[int]:
    """The level of each column: by name if all columns are named after levels, else by position."""
    if columns.levels and all(name in tree.levels for name in columns.levels):
        return [tree.levels.index(name) for name in columns.levels]
    if len(columns.columns) > len(tree) or (columns.levels and len(columns.columns) != len(tree)):
        known = ", ".join(tree.levels[k] for k in tree.top_down)
        raise DataError(f"{columns.where} has {len(columns.columns)} columns, but the tree has the levels {known}")
    return list(tree.top_down)[: len(columns.columns)]


def as_labels(tree: Hierarchy, level: int, chosen: Ints, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """(N,) classes of a level as labels; blank for -1, and for classes that stand for what a branch does not have.

    Args:
        tree: the tree.
        level: the level.
        chosen: (N,) numbers of classes, or -1.
        values: the classes as labels, see `as_values`.
        dtype: of the labels: numbers are blank as -1 or nan, others as "".
    """
    gone = tree.stand_ins[level].tolist()
    if not any(gone) and (chosen >= 0).all():
        return values[chosen]
    blank: Any = {"i": -1, "u": -1, "f": np.nan}.get(dtype.kind, "")
    shown = [*(blank if away else value for value, away in zip(values.tolist(), gone, strict=True)), blank]
    return np.array(shown, dtype=object if dtype.kind == "b" else None)[chosen]
