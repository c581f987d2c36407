"""Reading ARFF files whose class is `hierarchical`, as the sets for hierarchical multi-label classification are published.

@ATTRIBUTE alpha0 numeric
@ATTRIBUTE phase  {G1,S,G2}
@ATTRIBUTE class  hierarchical 01/01/03,01/02,…       paths; or edges parent/child, with `root` above the top
@DATA
-0.23,G1,01/01/03@01/02                               several classes are joined by @; ? is a missing value
0.11,S,01/01/?                                        known down to 01/01: what lies below it is unknown
0.40,?,?                                              nothing is known about its classes
{0 1.5,2 01/02}                                       a sparse row: other numbers are 0, other values the first of their list
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchlht.doors import read_text
from torchlht.errors import DataError
from torchlht.hierarchy.graph import Graph, Labels

ROOT = "root"
ATTRIBUTE = re.compile(r"""@attribute\s+('[^']*'|"[^"]*"|[^\s{]+)(?:\s+|(?={))(\S.*)""", re.IGNORECASE)
ENTRY = re.compile(r"""\s*(\d+)\s+((?:'[^']*'|"[^"]*"|[^,'"]*)\s*),""")
CELL = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([^,]*))\s*,""")
MISSING = "?"
LARGEST = float(np.finfo(np.float32).max)


class Arff(NamedTuple):
    """The content of a file: features (N, d) with NaN for missing values, names of columns, labels and their graph.

    `judged` (nodes,) tells which classes are taught and measured: all but those right under `root`, which only say
    which of several ontologies a class belongs to.
    """

    features: NDArray[np.float32]
    labels: Labels
    graph: Graph
    judged: NDArray[np.bool_]
    columns: tuple[str, ...]


class Column(NamedTuple):
    """An attribute: its name, and its values if it is not a number."""

    name: str
    values: dict[str, int] | None

    def width(self) -> int:
        """How many features it gives."""
        return 1 if self.values is None else len(self.values)


def read_arff(path: Path) -> Arff:
    """Read a file. Raises DataError with the line where it is faulty."""
    columns: list[Column] = []
    graph, paths, rows, first = None, False, [], 0
    lines = enumerate(read_text(path).splitlines(), start=1)
    for number, line in lines:
        text = line.strip()
        if text.lower().startswith("@data"):
            rows, first = [(i, row) for i, row in lines if row.strip() and not row.lstrip().startswith("%")], number
        elif text.lower().startswith("@attribute"):
            found, where = ATTRIBUTE.match(text), f"{path} line {number}"
            if found is None:
                raise DataError(f"{where}: an attribute is written @ATTRIBUTE name numeric, or with values: {{a,b}}")
            name, kind = found[1].strip("'\""), found[2].strip()
            if graph is not None:
                raise DataError(f"{where}: the hierarchical attribute must be the last one")
            if kind.lower().startswith("hierarchical"):
                graph, paths = _graph(kind[len("hierarchical") :].strip(), where)
            else:
                columns.append(_column(name, kind, where))
    if graph is None:
        raise DataError(f"{path}: no attribute is `hierarchical`; that is how the classes and their parents are written")
    if not rows:
        raise DataError(f"{path}: no samples{'' if first else ', as there is no @DATA'}")
    return _filled(path, rows, columns, graph, paths)


def _column(name: str, kind: str, where: str) -> Column:
    if kind.lower().split()[0] in ("numeric", "real", "integer"):
        return Column(name, None)
    listed = re.sub(r"}\s*%.*", "}", kind)  # without a remark
    if listed.startswith("{") and listed.endswith("}"):
        values = _cells(listed[1:-1])
        if twice := next((value for i, value in enumerate(values) if value in values[:i]), None):
            raise DataError(f"{where}: attribute {name!r} lists {twice[:40]!r} twice")
        return Column(name, {value: i for i, value in enumerate(values)})
    raise DataError(f"{where}: attribute {name!r} is {kind[:40]!r}; numeric, {{a,b,…}} and hierarchical are read")


def _graph(text: str, where: str) -> tuple[Graph, bool]:
    """The graph that the hierarchical attribute lists, and whether as paths."""
    listed = [item.strip() for item in text.split(",") if item.strip()]
    parts = [item.split("/") for item in listed]
    if any(len(item) != 2 for item in parts) or all(item[0] != ROOT for item in parts):  # edges have two names, and a root
        return Graph.from_edges(_steps(parts), source=where, where="class {}"), True
    edges = [("" if parent == ROOT else parent, child) for parent, child in parts]
    return Graph.from_edges(edges, source=where, where="edge {}"), False


def _steps(paths: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """The edges of paths; a node is named by its whole path."""
    for path in paths:
        names = ["/".join(path[: i + 1]) for i in range(len(path))]
        yield from zip(["", *names[:-1]], names, strict=True)


def _cells(line: str) -> list[str]:
    """The values of a line, which commas separate outside of quotes."""
    if "'" not in line and '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    return [found[found.lastindex or 0].strip() for found in CELL.finditer(f"{line},")]


def _spread(line: str, columns: list[Column], where: str) -> list[str]:
    """All values of a sparse row."""
    cells = ["0" if column.values is None else next(iter(column.values)) for column in columns] + [""]
    text, at = line.removeprefix("{").removesuffix("}").strip().removesuffix(",") + ",", 0
    while at < len(text):
        found = ENTRY.match(text, at)
        if found is None or not line.endswith("}"):
            raise DataError(f"{where}: a sparse row is written {{0 1.5,{len(columns)} class}}: positions, from 0, with values")
        if int(found[1]) >= len(cells):
            raise DataError(f"{where}: position {found[1]}, but there are {len(cells)} attributes, from 0")
        cells[int(found[1])], at = _cells(found[2])[0], found.end()
    return cells


def in_order(features: NDArray[np.float32], own: Sequence[str], wanted: Sequence[str], source: str) -> NDArray[np.float32]:
    """Features with columns of these names in the order that is wanted. Raises DataError when they are others."""
    if tuple(own) == tuple(wanted):
        return features
    for names, others, what in ((wanted, own, "lacks"), (own, wanted, "also has")):
        if odd := [name for name in names if name not in others]:
            more = f" (and {len(odd) - 1:,} more)" if len(odd) > 1 else ""
            raise DataError(f"{source}: {what} the attribute {odd[0]!r}{more}; attributes must be those of the training data")
    place = {name: i for i, name in enumerate(own)}
    if len(place) < len(own):
        raise DataError(f"{source}: two attributes have one name, so they must stand in the order of the training data")
    return features[:, [place[name] for name in wanted]]


def _filled(path: Path, rows: list[tuple[int, str]], columns: list[Column], graph: Graph, paths: bool) -> Arff:
    starts = np.cumsum([0, *(column.width() for column in columns)])
    features = np.zeros((len(rows), starts[-1]), dtype=np.float32)
    labels = np.zeros((len(rows), len(graph)), dtype=np.int8)
    opened = np.zeros(labels.shape, dtype=bool)
    for i, (number, line) in enumerate(rows):
        cells = _spread(line.strip(), columns, f"{path} line {number}") if line.lstrip().startswith("{") else _cells(line)
        if len(cells) != len(columns) + 1:
            raise DataError(f"{path} line {number}: {len(cells)} values for {len(columns) + 1} attributes")
        for column, start, cell in zip(columns, starts, cells, strict=False):
            _put(features[i, start : start + column.width()], column, cell, f"{path} line {number}")
        _label(graph, cells[-1], labels[i], opened[i], f"{path} line {number}")
    names = tuple(f"{c.name}={value}" if c.values else c.name for c in columns for value in c.values or [""])
    judged = np.array([paths or bool(above) for above in graph.parents])
    return Arff(features, graph.open_below(graph.close(labels), opened), graph, judged, names)


def _label(graph: Graph, cell: str, labels: Labels, opened: NDArray[np.bool_], where: str) -> None:
    """Fill in the labels of one sample, and the nodes below which nothing is known."""
    if cell == MISSING:
        labels[:] = -1
        return
    for name in map(str.strip, cell.split("@")):
        if not name:
            raise DataError(f"{where}: a class without a name; write ? where nothing is known")
        known, below, _ = name.rpartition("/") if name.endswith(f"/{MISSING}") else (name, "", "")
        if known != ROOT:
            node = _node(graph, known, where)
            labels[node], opened[node] = 1, opened[node] or bool(below)


def _node(graph: Graph, name: str, where: str) -> int:
    try:
        return graph.index(name)
    except DataError as error:
        raise DataError(f"{where}: {error.message}") from None


def _put(cells: NDArray[np.float32], column: Column, text: str, where: str) -> None:
    """Fill in the features of one value."""
    if text == MISSING:
        cells[:] = np.nan
    elif column.values is not None:
        if text not in column.values:
            raise DataError(f"{where}: {column.name} is {text[:40]!r}, which its attribute does not list")
        cells[column.values[text]] = 1
    else:
        try:
            number = float(text)
        except ValueError:
            raise DataError(f"{where}: {column.name} is {text[:40]!r}, not a number") from None
        if not abs(number) <= LARGEST:
            raise DataError(f"{where}: {column.name} is {text[:40]!r}; a value is a finite number, or ? where it is missing")
        cells[0] = number
