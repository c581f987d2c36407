"""Reading a tree of classes from files. All faults are collected before an error is raised.

    .csv .tsv        one row per finest class, columns coarse → fine; or columns name,parent[,level]
    .json .yaml      nested: {Gulls: [Ivory Gull, Herring Gull]}; or {levels: [...], tree: {...}}; or our hierarchy.json
    a folder         folders inside folders

What they hold becomes rows, and rows a tree: see `hierarchy/paths.py`.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import yaml

from torchlht.doors import plain_loader, read_bytes, read_text
from torchlht.errors import DataError, Fault, HierarchyError
from torchlht.files import plain_cell
from torchlht.hierarchy.paths import LEVELS, Row, Spec, build

NESTED_BYTES = 2**24
"""Largest nested .json or .yaml of a tree: half a million names. Its lines are counted, which takes a minute."""
TABLE_BYTES = 2**30
"""Largest table."""
COLUMNS = 1000
"""Most columns of a table."""

TREE = "hierarchy.json"
FORMAT = "torchlht-hierarchy-1"
MARKED = "torchlht-hierarchy-2"
"""The same, but a stand-in is null. In the first format it is known by its name."""
CHILD_COLUMNS = ("name", "child", "class", "taxon")
NEEDS = "; this needs a tree"
SYSTEM_FOLDERS = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found", "__pycache__"}


# ---- files -----------------------------------------------------------------------------------------------------------


def absent(path: Path) -> DataError:
    """What to raise when there is no such tree."""
    return DataError(f"{path}: no such file or folder")


def read_tree(path: Path, levels: Sequence[str] | None = None) -> Spec:
    """The tree in a file or folder. `levels` are coarse → fine. Raises HierarchyError with every fault."""
    if path.is_dir() and (path / TREE).is_file():
        path = path / TREE
    if path.is_dir():
        rows, faults = folder_rows(path)
    elif not path.is_file():
        raise absent(path)
    elif path.suffix.lower() in (".json", ".yaml", ".yml"):
        if (own := _read_own(path)) is not None:
            return own
        rows, own_levels, faults = nested_rows(compose(path))
        levels = levels or own_levels
    elif path.suffix.lower() in (".csv", ".tsv", ".txt"):
        rows, levels, faults = _table_rows(path, levels)
    else:
        raise DataError(f"{path}: a hierarchy is read from .csv, .tsv, .json, .yaml or a folder, not {path.suffix!r}")
    rows, levels, depth_faults = to_depth(rows, levels)
    faults += depth_faults
    if not rows and not faults:
        faults = [Fault("", "holds no classes")]
    if not depth_faults:
        spec, found = build(rows, levels)
        faults += found
    if faults:
        raise HierarchyError(str(path), sorted(faults, key=_line_number))
    return spec


def _line_number(fault: Fault) -> int:
    return int(fault.where.removeprefix("line ")) if fault.where.startswith("line ") else 0


def to_depth(rows: list[Row], levels: Sequence[str] | None) -> tuple[list[Row], Sequence[str], list[Fault]]:
    """Make all rows as long as the deepest, and find or check the names of the levels."""
    depth = max((len(row.names) for row in rows), default=0)
    if depth > LEVELS:
        where = next(row.where for row in rows if len(row.names) > LEVELS)
        return rows, levels or (), [Fault(where, f"more than {LEVELS} levels deep, which is the most that is read")]
    if levels is None:
        levels = [f"level{i + 1}" for i in range(depth)]
    if len(levels) != depth and rows:
        names = ", ".join(levels)
        return (
            rows,
            levels,
            [Fault("", f"the tree is {depth} levels deep but {len(levels)} levels are named ({names})")],
        )
    return [Row(row.where, row.names + (None,) * (depth - len(row.names))) for row in rows], levels, []


# ---- tables --------------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """A CSV or TSV file: its columns, and its rows with their line numbers."""

    columns: list[str]
    rows: list[tuple[int, list[str]]]
    faults: list[Fault]


def read_table(path: Path) -> Table:
    """Read a CSV or TSV with a header. Cells are stripped; blank lines are skipped."""
    text = read_text(path, TABLE_BYTES)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path} line {line}: holds a NUL character, so it is not a plain table; save it as UTF-8 text")
    delimiter = max(",\t;", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [plain_cell(cell.strip()) for cell in next(reader, [])]
        records = [(reader.line_num, [plain_cell(cell.strip()) for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise DataError(f"{path} line {reader.line_num}: {error}; is a quotation mark left open?") from None
    if len(columns) > COLUMNS:
        raise DataError(f"{path}: {len(columns):,} columns; the most that is read is {COLUMNS:,}")
    if not columns:
        raise DataError(f"{path}: empty; a table starts with a line of column names")
    if not any(columns):
        raise DataError(f"{path} line 1: the columns have no name; a table starts with a line of column names")
    faults = [Fault("line 1", f"column {i + 1} has no name") for i, name in enumerate(columns) if not name]
    repeated = sorted({name for name in columns if name and columns.count(name) > 1})
    faults += [Fault("line 1", f"column {name!r} appears twice") for name in repeated]
    rows = []
    for line, cells in records:
        if any(cells) and len(cells) != len(columns):
            faults.append(Fault(f"line {line}", f"{len(cells)} cells, but the header names {len(columns)}"))
        elif any(cells):
            rows.append((line, cells))
    return Table(columns, rows, faults)


def _table_rows(path: Path, levels: Sequence[str] | None) -> tuple[list[Row], Sequence[str] | None, list[Fault]]:
    table = read_table(path)
    child = next((name for name in CHILD_COLUMNS if name in table.columns), None)
    if child and "parent" in table.columns:
        return _edge_rows(table, child, levels)
    return _level_rows(table, levels)


def _level_rows(table: Table, levels: Sequence[str] | None) -> tuple[list[Row], Sequence[str], list[Fault]]:
    """One row per finest class, one column per level."""
    faults = list(table.faults)
    wanted = list(levels) if levels else [name for name in table.columns if name]
    faults += [Fault("line 1", f"no column {name!r}") for name in wanted if name not in table.columns]
    if any(name not in table.columns for name in wanted):
        return [], wanted, faults
    columns = [table.columns.index(name) for name in wanted]
    # With fewer finest than coarsest names the columns are in the wrong order: `build` reports that, so repeats are not.
    top, bottom = ({cells[column] for _, cells in table.rows} for column in (columns[0], columns[-1]))
    rows, first_seen = [], dict[str, int]()
    inner = {name for _, cells in table.rows for name in _above([cells[column] or None for column in columns])}
    for line, cells in table.rows:
        names = [cells[column] or None for column in columns]
        where = f"line {line}"
        finest = names[-1]
        if names[0] is None:
            faults.append(Fault(where, f"{wanted[0]} is empty"))
        elif finest is None and _deepest(names) in inner:  # otherwise the branch ends here
            faults.append(Fault(where, f"{wanted[-1]} is empty"))
        if finest in first_seen and len(bottom) >= len(top):
            faults.append(Fault(where, f"{finest!r} appears twice (also line {first_seen[str(finest)]})"))
        elif finest is not None:
            first_seen.setdefault(finest, line)
        if names[0] is not None:
            rows.append(Row(where, tuple(names)))
    return rows, wanted, faults


def _deepest(names: Sequence[str | None]) -> tuple[int, str | None]:
    """The finest name of a row, with its depth."""
    depth = max(i for i, name in enumerate(names) if name is not None)
    return depth, names[depth]


def _above(names: Sequence[str | None]) -> list[tuple[int, str | None]]:
    """The names of a row that have a finer one below them, with their depths."""
    known = [(i, name) for i, name in enumerate(names) if name is not None]
    return list(known[:-1])


def unknown_columns(table: Table, child: str) -> list[Fault]:
    """Columns that a table of names and parents does not have: ids, perhaps, that parents are told by."""
    known = (child, "parent", "level")
    return [Fault("line 1", f"unknown column {name!r}") for name in table.columns if name and name not in known]


def _edge_rows(table: Table, child: str, levels: Sequence[str] | None) -> tuple[list[Row], Sequence[str] | None, list[Fault]]:
    """One row per class of any level, naming its parent (blank at the top), and optionally its level."""
    faults = table.faults + unknown_columns(table, child)
    column = {name: i for i, name in enumerate(table.columns)}
    parents: dict[str, str] = {}
    lines: dict[str, int] = {}
    ranks: dict[str, str] = {}
    doubled: dict[str, Fault] = {}
    for line, cells in table.rows:
        name, parent = cells[column[child]], cells[column["parent"]]
        if not name:
            faults.append(Fault(f"line {line}", f"{child} is empty"))
        elif parents.get(name) == parent:
            faults.append(Fault(f"line {line}", f"{name!r} appears twice (also line {lines[name]})"))
        elif name in parents and not (parents[name] and parent):
            own = parents[name] or parent
            faults.append(Fault(f"line {line}", f"{name!r} is under {own!r} and at the top (also line {lines[name]})"))
        elif name in parents:
            both = f"{parents[name]!r} and {parent!r} (also line {lines[name]})"
            doubled.setdefault(name, Fault(f"line {line}", f"{name!r} has two parents, {both}"))
        else:
            parents[name], lines[name] = parent, line
            ranks[name] = cells[column["level"]] if "level" in column else ""
    faults += no_tree([*doubled.values()]) + _cycles(parents, lines)
    if faults:
        return [], levels, faults
    return _paths_from_edges(parents, lines, ranks, levels)


def no_tree(doubled: Sequence[Fault]) -> list[Fault]:
    """Classes with two parents as faults of a tree. Of a graph there are many: then two, and how many others there are."""
    if len(doubled) <= 2:
        return list(doubled)
    first, second, *rest = doubled
    others = "another class has" if len(rest) == 1 else f"{len(rest):,} others have"
    return [first, second._replace(what=f"{second.what}, and {others} several, too{NEEDS}")]


def _cycles(parents: dict[str, str], lines: dict[str, int]) -> list[Fault]:
    """Every cycle once, at its first line."""
    faults, done = [], set[str]()
    for start in parents:
        path: dict[str, None] = {}
        name = start
        while name in parents and name not in done and name not in path:
            path[name] = None
            name = parents[name]
        if name in path:
            ring = list(path)
            ring = ring[ring.index(name) :]
            first = min(ring, key=lines.__getitem__)
            turn = ring.index(first)
            turned = [*ring[turn:], *ring[:turn], first]
            faults.append(Fault(f"line {lines[first]}", f"cycle: {' → '.join(shortened(turned))}"))
        done.update(path)
    return faults


def shortened(names: Sequence[str]) -> Sequence[str]:
    """A list that may be long, without its middle."""
    return names if len(names) <= 9 else [*names[:4], "…", *names[-4:]]


def _paths_from_edges(
    parents: dict[str, str], lines: dict[str, int], ranks: dict[str, str], levels: Sequence[str] | None
) -> tuple[list[Row], Sequence[str] | None, list[Fault]]:
    inner = {parent for parent in parents.values() if parent}
    roots = [name for name in inner if name not in parents]
    parents = {**parents, **dict.fromkeys(roots, "")}
    levels, faults = _rank_order(parents, ranks, levels)
    rows = []
    for leaf in (name for name in parents if name not in inner):
        path = [leaf]
        while parents[path[-1]] and len(path) <= LEVELS:
            path.append(parents[path[-1]])
        names: list[str | None] = list(reversed(path))
        if levels and any(ranks.values()):
            placed = {ranks.get(name, ""): name for name in path}
            names = [placed.get(level) for level in levels]
        rows.append(Row(f"line {lines[leaf]}", tuple(names)))
    return rows, levels, faults


def _rank_order(
    parents: dict[str, str], ranks: dict[str, str], levels: Sequence[str] | None
) -> tuple[Sequence[str] | None, list[Fault]]:
    """The levels named in a `level` column, coarse → fine, ordered by the edges."""
    if levels or not any(ranks.values()):
        return levels, []
    missing = [name for name in parents if not ranks.get(name)]
    if missing:
        return levels, [Fault("", f"{name!r} has no level: give every class a row with its level") for name in missing]
    sorter: TopologicalSorter[str] = TopologicalSorter({rank: [] for rank in ranks.values()})
    for name, parent in parents.items():
        if parent:
            sorter.add(ranks[name], ranks[parent])
    try:
        return list(sorter.static_order()), []
    except CycleError as error:
        return levels, [Fault("", f"levels are in a cycle: {' → '.join(error.args[1])}")]


# ---- nested JSON and YAML ------------------------------------------------------------------------------------------


def _read_own(path: Path) -> Spec | None:
    """Our own hierarchy.json; None when the file is something else."""
    try:
        content = msgspec.json.decode(read_bytes(path).removeprefix(codecs.BOM_UTF8))
    except RecursionError:
        raise HierarchyError(
            str(path), [Fault("", f"more than {LEVELS} levels deep, which is the most that is read")]
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # the reader of nested files reports what is wrong
    if not isinstance(content, dict) or content.get("format") not in (FORMAT, MARKED):
        return None
    try:
        return spec_of(content)
    except TypeError as error:
        raise HierarchyError(str(path), [Fault("", f"not a complete hierarchy.json ({error})")]) from None


class OwnLevel(msgspec.Struct):
    """A level of a hierarchy.json."""

    name: str
    classes: list[str | None]
    parents: list[Annotated[int, msgspec.Meta(ge=-(2**62), lt=2**62)]] | None = None


class OwnTree(msgspec.Struct):
    """The content of a hierarchy.json; other fields are ignored."""

    levels: Annotated[list[OwnLevel], msgspec.Meta(min_length=1)]


def spec_of(content: dict[str, Any]) -> Spec:
    """The tree from the content of a hierarchy.json. Raises TypeError when it is none."""
    try:
        levels, marked = msgspec.convert(content, OwnTree).levels, content.get("format") == MARKED
    except msgspec.ValidationError as error:
        raise TypeError(str(error).replace("`", "")) from None
    return Spec(
        levels=tuple(level.name for level in levels),
        classes=tuple(tuple(level.classes) for level in levels),
        parents=tuple(tuple(level.parents or ()) for level in levels[:-1]),
        stand_ins=tuple(tuple(name is None for name in level.classes) for level in levels) if marked else None,
    )


def compose(path: Path) -> yaml.Node | None:
    """Parse to nodes, which know their line. JSON is YAML after replacing its tabs and joining its escapes."""
    text = _SURROGATES.sub(_joined, read_text(path, NESTED_BYTES).replace("\t", " "))
    try:
        document: yaml.Node | None = yaml.compose(text, Loader=plain_loader())
    except RecursionError:
        raise HierarchyError(str(path), [Fault("", f"more than {LEVELS} levels deep")]) from None
    except yaml.reader.ReaderError as error:
        where = f"line {text.count(chr(10), 0, error.position) + 1}"
        raise HierarchyError(str(path), [Fault(where, f"a character that is not allowed in text ({error.reason})")]) from None
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise HierarchyError(str(path), [Fault(where, (error.problem or "not YAML or JSON").removeprefix("but "))]) from None
    return document


_SURROGATES = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")


def _joined(pair: re.Match[str]) -> str:
    """The character that JSON writes as two escapes."""
    return str(json.loads(f'"{pair.group()}"'))


def nested_rows(document: yaml.Node | None) -> tuple[list[Row], list[str] | None, list[Fault]]:
    """Walk mappings and lists down to the leaves."""
    levels: list[str] | None = None
    if document is None:
        return [], None, []
    if isinstance(document, yaml.MappingNode):
        entries = {key.value: value for key, value in document.value if isinstance(key, yaml.ScalarNode)}
        if set(entries) == {"levels", "tree"}:
            names, document = entries["levels"], entries["tree"]
            if not (isinstance(names, yaml.SequenceNode) and all(isinstance(node, yaml.ScalarNode) for node in names.value)):
                where = f"line {names.start_mark.line + 1}"
                return [], None, [Fault(where, "levels must be a list of names, coarse → fine: [order, family, species]")]
            levels = [node.value for node in names.value]
    faults: list[Fault] = []
    return list(_walk(document, (), 0, faults)), levels, faults


def _walk(node: yaml.Node, path: tuple[str, ...], depth: int, faults: list[Fault]) -> Iterator[Row]:
    where = f"line {node.start_mark.line + 1}"
    if depth > 4 * LEVELS:  # a level takes two steps, and a list around it two more
        faults.append(Fault(where, f"more than {LEVELS} levels deep, which is the most that is read"))
        return
    if isinstance(node, yaml.MappingNode):
        yield from _walk_children([(key, value) for key, value in node.value], path, depth + 1, faults)
    elif isinstance(node, yaml.SequenceNode):
        leaves = [(item, None) for item in node.value if isinstance(item, yaml.ScalarNode)]
        yield from _walk_children(leaves, path, depth + 1, faults)
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode):
                yield from _walk(item, path, depth + 1, faults)
    elif node.tag.endswith(":null"):
        yield from [Row(where, path)] if path else []
    else:
        yield from _walk_children([(node, None)], path, depth + 1, faults)


def _walk_children(
    children: Sequence[tuple[yaml.Node, yaml.Node | None]],
    path: tuple[str, ...],
    depth: int,
    faults: list[Fault],
) -> Iterator[Row]:
    first_seen: dict[str, int] = {}
    for key, value in children:
        line = key.start_mark.line + 1
        name = key.value.strip() if isinstance(key.value, str) and not key.tag.endswith(":null") else ""
        if not name:
            faults.append(Fault(f"line {line}", f"empty name under {path[-1]!r}" if path else "empty name at the top"))
        elif name in first_seen:
            faults.append(Fault(f"line {line}", f"{name!r} appears twice (also line {first_seen[name]})"))
        else:
            first_seen[name] = line
            if value is None or (isinstance(value, yaml.CollectionNode) and not value.value):
                yield Row(f"line {line}", (*path, name))
            else:
                yield from _walk(value, (*path, name), depth + 1, faults)


# ---- folders -------------------------------------------------------------------------------------------------------


def subfolders(folder: Path) -> list[Path]:
    """Folders inside a folder, sorted by name; hidden ones and those of operating systems are not classes."""
    inside = (entry for entry in folder.iterdir() if entry.is_dir())
    return sorted(entry for entry in inside if not entry.name.startswith(".") and entry.name not in SYSTEM_FOLDERS)


def folder_rows(root: Path) -> tuple[list[Row], list[Fault]]:
    """One row per folder that has no folders inside it."""
    rows: list[Row] = []
    faults: list[Fault] = []

    def walk(folder: Path, path: tuple[str, ...], above: tuple[Path, ...]) -> None:
        real = folder.resolve()
        if real in above:
            faults.append(Fault(str(folder.relative_to(root)), f"cycle: a link back to {real.name!r}"))
            return
        if len(path) > LEVELS:
            faults.append(
                Fault(str(folder.relative_to(root)), f"more than {LEVELS} folders deep, which is the most that is read")
            )
            return
        inside = subfolders(folder)
        for child in inside:
            walk(child, (*path, child.name), (*above, real))
        if path and not inside:
            rows.append(Row(str(folder.relative_to(root)), path))

    walk(root, (), ())
    return rows, faults
