"""Classes with their parents from files, where a class may have several parents: rows, references, ontologies.

    .csv .tsv .txt       `name,parent` rows, a name as often as it has parents; or one column per level, coarse → fine
    .json .yaml          {parents: {bat: [mammal, flyer]}}; {graph: nested}, a name under each of its parents; our graph.json
    .obo .ttl .nt .rdf   ontologies, see `ontologies`
    a run directory      its graph.json

Several files, separated by commas, are one graph: a class may have parents in each.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from torchlht.doors import fit, read_bytes
from torchlht.errors import Fault, HierarchyError
from torchlht.hierarchy.ontologies import Ontology, read_obo, read_rdf, read_turtle
from torchlht.hierarchy.paths import Row, Spec, build
from torchlht.hierarchy.reading import (
    CHILD_COLUMNS,
    NEEDS,
    NESTED_BYTES,
    absent,
    compose,
    nested_rows,
    no_tree,
    read_table,
    shortened,
    to_depth,
    unknown_columns,
)

GRAPH_FORMAT = "torchlht-graph-1"
GRAPH = "graph.json"
ONTOLOGIES: dict[str, Callable[[Path], Ontology]] = {
    ".obo": read_obo,
    ".ttl": read_turtle,
    ".nt": read_turtle,
    ".rdf": read_rdf,
    ".xml": read_rdf,
}
KEYS = ("parents", "graph")  # of a nested file that holds a graph
TABLES = (".csv", ".tsv", ".txt")


class Edge(NamedTuple):
    """A class and one of its parents, "" for none, and where that is told."""

    where: str
    name: str
    parent: str


class GraphRecord(msgspec.Struct):
    """graph.json: names of nodes, for each node the positions of its parents, and other names with the nodes they stand for."""

    format: str
    names: list[str]
    parents: list[list[int]]
    also: dict[str, list[str]] = {}


class Linked(NamedTuple):
    """All classes with their parents.

    Attributes:
        edges: classes with their parents, in the order of the files.
        also: other names of classes, such as ids; one name may stand for several classes.
    """

    edges: list[Edge]
    also: dict[str, list[str]]


def files_of(path: Path) -> list[Path]:
    """The files that a name stands for: itself, or several separated by commas. Raises DataError if one is missing."""
    if (path / GRAPH).is_file():
        return [path / GRAPH]
    if path.exists() or "," not in str(path):
        return [path]
    found = [Path(name.strip()) for name in str(path).split(",") if name.strip()]
    for one in found:
        if not one.exists():
            raise absent(one)
    return found


def holds_links(path: Path) -> bool:
    """Whether a place holds a graph: several files, an ontology, a graph.json, or a nested file that says so."""
    if len(files_of(path)) > 1 or path.suffix.lower() in ONTOLOGIES or (path / GRAPH).is_file():
        return True
    return path.suffix.lower() in (".json", ".yaml", ".yml") and path.is_file() and _says_so(path)


def _says_so(path: Path) -> bool:
    if path.suffix.lower() == ".json":
        found = _json(path)
        return _is_own(found) or (isinstance(found, dict) and _only_key(found) in KEYS)
    head = read_bytes(path, NESTED_BYTES).removeprefix(codecs.BOM_UTF8)
    return any(line.startswith(tuple(f"{key}:".encode() for key in KEYS)) for line in head.splitlines()) and (
        _entry(compose(path)) is not None
    )


def _json(path: Path) -> Any:
    try:
        return msgspec.json.decode(read_bytes(path, NESTED_BYTES).removeprefix(codecs.BOM_UTF8))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # whatever reads it says what is wrong


def _only_key(found: dict[str, Any]) -> str:
    return next(iter(found)) if len(found) == 1 else ""


def has_several_parents(path: Path) -> bool:
    """Whether a place holds classes of which some have several parents."""
    found = [file.stat() for file in files_of(path) if file.is_file()]
    return _has_several(path, tuple((one.st_dev, one.st_ino, one.st_mtime_ns, one.st_size) for one in found))


@functools.lru_cache(maxsize=16)
def _has_several(path: Path, _states: tuple[tuple[int, ...], ...]) -> bool:
    """The same of files in these states: many ask, and large ones take long."""
    if holds_links(path):
        pairs = [(edge.name, edge.parent) for edge in read_linked(files_of(path)).edges]
    else:
        pairs = _pairs(path) if path.suffix.lower() in TABLES and path.is_file() else []
    parents: dict[str, set[str]] = {}
    for name, parent in pairs:
        parents.setdefault(name, set()).update([parent] if parent else [])
    return any(len(above) > 1 for above in parents.values())


def _pairs(file: Path) -> list[tuple[str, str]]:
    """Names and parents of a table of such rows, as far as they can be read; nothing of another."""
    table = read_table(file)
    child = next((name for name in CHILD_COLUMNS if name in table.columns), None)
    if child is None or "parent" not in table.columns:
        return []
    name_at, parent_at = table.columns.index(child), table.columns.index("parent")
    return [(cells[name_at], cells[parent_at]) for _, cells in table.rows]


def read_linked(files: Sequence[Path]) -> Linked:
    """Classes and parents of some files. Raises HierarchyError with faults, or DataError if a file is missing."""
    plain: list[tuple[Path, str, list[Edge]]] = []
    ontologies: list[tuple[Path, str, Ontology]] = []
    for file in files:
        if not file.exists():
            raise absent(file)
        place = f"{file} " if len(files) > 1 else ""
        if file.suffix.lower() in ONTOLOGIES:
            ontologies.append((file, place, ONTOLOGIES[file.suffix.lower()](file)))
        else:
            plain.append((file, place, _plain(file)))
    named_edges, also = named(ontologies)
    known = {name for edge in named_edges for name in (edge.name, edge.parent)}
    edges = [_meant(edge, known, also, file)._replace(where=place + edge.where) for file, place, own in plain for edge in own]
    return Linked(edges + named_edges, also)


def _meant(edge: Edge, known: Set[str], also: Mapping[str, Sequence[str]], file: Path) -> Edge:
    """An edge of a file without ids, between the classes that its names and ids mean in the ontologies beside it."""
    meant = [[name] if name in known else also.get(name, [name]) for name in (edge.name, edge.parent)]
    for name, classes in zip((edge.name, edge.parent), meant, strict=True):
        if len(classes) > 1:
            raise HierarchyError(str(file), [Fault(edge.where, fits_several(name, classes))])
    return edge._replace(name=meant[0][0], parent=meant[1][0])


def fits_several(name: str, classes: Sequence[str]) -> str:
    """What is wrong with a name that several classes have."""
    return f"{name!r} fits {len(classes)} classes, {' and '.join(map(repr, classes))}: say which"


def _plain(file: Path) -> list[Edge]:
    """The edges of a table or a nested file, whose classes have names alone."""
    if file.suffix.lower() in TABLES:
        return _from_table(file)
    if file.suffix.lower() in (".json", ".yaml", ".yml"):
        return _from_nested(file)
    what = "classes with several parents are read from .csv, .tsv, .json, .yaml, .obo, .ttl and .rdf"
    raise HierarchyError(str(file), [Fault("", f"{what}, not {file.suffix!r}" if file.suffix else what)])


def _from_table(file: Path) -> list[Edge]:
    table = read_table(file)
    child = next((name for name in CHILD_COLUMNS if name in table.columns), None)
    faults, edges = list(table.faults), list[Edge]()
    if child and "parent" in table.columns:
        name_at, parent_at = table.columns.index(child), table.columns.index("parent")
        edges = [Edge(f"line {line}", cells[name_at], cells[parent_at]) for line, cells in table.rows]
        faults += unknown_columns(table, child)
        faults += [Fault(edge.where, f"{child} is empty") for edge in edges if not edge.name]
    else:
        edges = [edge for line, cells in table.rows for edge in _steps(Row(f"line {line}", tuple(c or None for c in cells)))]
    if faults:
        raise HierarchyError(str(file), faults)
    return edges


def _steps(row: Row) -> Iterator[Edge]:
    """The edges of a path, coarse → fine; missing names are skipped."""
    names = [name for name in row.names if name is not None]
    for parent, name in pairwise(["", *names]):
        yield Edge(row.where, name, parent)


def _from_nested(file: Path) -> list[Edge]:
    if (own := _json(file) if file.suffix.lower() == ".json" else None) and _is_own(own):
        return _from_own(own, file)
    document = compose(file)
    entry = _entry(document)
    if entry is not None and entry[0] == "parents":
        return list(_references(entry[1], file))
    rows, _, faults = nested_rows(document if entry is None else entry[1])
    if faults:
        raise HierarchyError(str(file), faults)
    return [edge for row in rows for edge in _steps(row)]


def _is_own(found: Any) -> bool:
    """Whether this is the content of a graph.json."""
    return isinstance(found, dict) and found.get("format") == GRAPH_FORMAT


def _from_own(found: dict[str, Any], file: Path) -> list[Edge]:
    own = fit(found, GraphRecord, f"{file}: not a complete graph.json")
    if fault := misplaced(own.names, own.parents):
        raise HierarchyError(str(file), [fault])
    pairs = [(name, own.names[p]) for name, above in zip(own.names, own.parents, strict=True) for p in above]
    return [Edge("", name, "") for name in own.names] + [Edge("", name, parent) for name, parent in pairs]


def _entry(document: yaml.Node | None) -> tuple[str, yaml.Node] | None:
    """The key and the value of a document of one key that says that it holds a graph."""
    if isinstance(document, yaml.MappingNode) and len(document.value) == 1:
        key, value = document.value[0]
        if key.value in KEYS:
            return key.value, value
    return None


def _references(node: yaml.Node, file: Path) -> Iterator[Edge]:
    """Edges from names with their parents: bat: [mammal, flyer]."""
    if not isinstance(node, yaml.MappingNode):
        where = f"line {node.start_mark.line + 1}"
        raise HierarchyError(str(file), [Fault(where, "parents must be names with their parents: bat: [mammal, flyer]")])
    for key, value in node.value:
        where, name = f"line {key.start_mark.line + 1}", str(key.value)
        listed = value.value if isinstance(value, yaml.SequenceNode) else [] if value.tag.endswith(":null") else [value]
        words = (isinstance(one, yaml.ScalarNode) and one.value.strip() and not one.tag.endswith(":null") for one in listed)
        if not name.strip() or not all(words):
            raise HierarchyError(str(file), [Fault(where, f"{name!r} must have a name, or a list of names, as parents")])
        yield Edge(where, name.strip(), "")
        yield from (Edge(f"line {one.start_mark.line + 1}", name.strip(), one.value.strip()) for one in listed)


def named(ontologies: Iterable[tuple[Path, str, Ontology]]) -> tuple[list[Edge], dict[str, list[str]]]:
    """Edges between names that people use, of classes that have ids; and ids and names that stand for classes.

    A class is called by its label. If several have the same one, each is called by label and id; the label alone then
    stands for all of them, and `Graph.index` refuses it.

    Raises:
        HierarchyError: when an edge leads to an id that no file describes.
    """
    read = list(ontologies)
    described = {own for *_, one in read for own in one.described}
    former: dict[str, list[str]] = {}
    for old, own in (pair for *_, one in read for pair in one.former if pair[0] not in described):
        former.setdefault(old, []).append(own)
    now = {old: owns[0] for old, owns in former.items() if len(owns) == 1}
    found = [(file, place, one, [(line, own, now.get(up, up)) for line, own, up in one.told]) for file, place, one in read]
    ids = list(dict.fromkeys(own for *_, told in found for _, *pair in told for own in pair if own))
    labels = {own: _local(own) for own in ids}
    labels |= {own: label for *_, one in read for own, label in one.labels.items() if label}
    count: dict[str, int] = {}
    for own in ids:
        count[labels[own]] = count.get(labels[own], 0) + 1
    called = {own: labels[own] if count[labels[own]] == 1 else f"{labels[own]} ({own})" for own in ids}
    also: dict[str, list[str]] = {}
    for own, name in called.items():
        for other in dict.fromkeys((own, labels[own])):
            if other != name:
                also.setdefault(other, []).append(name)
    also |= {old: [called[own] for own in owns] for old, owns in former.items()}
    edges = []
    for file, place, one, told in found:
        for line, own, parent in told:
            if parent and one.described and parent not in described:
                raise HierarchyError(
                    str(file),
                    [Fault(f"line {line}", f"{own!r} is under {parent!r}, which no [Term] describes, or only an obsolete one")],
                )
            edges.append(Edge(f"{place}line {line}", called[own], called[parent] if parent else ""))
    return edges, also


def _local(own: str) -> str:
    """The last part of an address, or an id as it is."""
    return re.split("[#/]", own.rstrip("#/"))[-1] if "://" in own or own.startswith("#") else own


def misplaced(names: Sequence[str], parents: Sequence[Sequence[int]]) -> Fault | None:
    """What is wrong with the positions of parents among names, if something is."""
    if len(parents) != len(names):
        return Fault("", f"{len(names)} names but parents of {len(parents)} nodes")
    wrong = (name for name, above in zip(names, parents, strict=True) if any(not 0 <= p < len(names) for p in above))
    return next((Fault(name, f"a parent is outside 0…{len(names) - 1}") for name in wrong), None)


def circle(above: dict[str, dict[str, str]]) -> Fault | None:
    """The first circle among nodes, each with its parents and where these are told; None if there is none."""
    try:
        TopologicalSorter({name: list(parents) for name, parents in above.items()}).prepare()
    except CycleError as error:
        round_: list[str] = list(error.args[1])  # each is a parent of the next
        told = [above[child][parent] for parent, child in pairwise(round_) if above[child].get(parent)]
        places = f" ({', '.join(shortened(told))})" if told else ""
        if len(round_) == 2:
            return Fault("", f"{round_[0]!r} is its own parent{places}; remove that edge")
        kin = "grandparent" if len(round_) == 3 else "ancestor"
        return Fault("", f"{round_[0]!r} is its own {kin}: {' › '.join(shortened(round_))}{places}; remove one of these edges")
    return None


def parents_of(edges: Iterable[Edge], source: str, names: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Every class with its parents, and where each is told. Raises HierarchyError when there is a circle."""
    above: dict[str, dict[str, str]] = {name: {} for name in names}
    for where, name, parent in edges:
        if parent:
            above.setdefault(parent, {})
            above.setdefault(name, {}).setdefault(parent, where)
        else:
            above.setdefault(name, {})
    if fault := circle(above):
        raise HierarchyError(source, [fault])
    return above


def linked_tree(path: Path, levels: Sequence[str] | None) -> Spec:
    """The tree in a place of linked classes. Raises HierarchyError if a class has several parents."""
    above = parents_of(read_linked(files_of(path)).edges, str(path))
    faults = no_tree([Fault("", _doubled(name, parents)) for name, parents in above.items() if len(parents) > 1])
    faults[-1:] = [last._replace(what=last.what.removesuffix(NEEDS) + NEEDS) for last in faults[-1:]]
    inner = {parent for parents in above.values() for parent in parents}
    rows = [Row("", tuple(_path(name, above))) for name in above if name not in inner] if not faults else []
    rows, names, deep = to_depth(rows, levels)
    spec, wrong = build(rows, names) if rows and not deep else (Spec((), (), ()), [])
    if faults := [*faults, *deep, *wrong] or [Fault("", "holds no classes")] * (not rows):
        raise HierarchyError(str(path), faults)
    return spec


def _doubled(name: str, parents: dict[str, str]) -> str:
    said = " and ".join(f"{parent!r}" + (f" ({where})" if where else "") for parent, where in list(parents.items())[:2])
    return f"{name!r} has {'two' if len(parents) == 2 else len(parents)} parents, {said}"


def _path(name: str, above: dict[str, dict[str, str]]) -> list[str]:
    """A name and all above it in a tree, coarse → fine."""
    found = [name]
    while above[found[-1]]:
        found.append(next(iter(above[found[-1]])))
    return found[::-1]
