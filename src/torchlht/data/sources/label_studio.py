"""Tasks of Label Studio as JSON: `data.image` names the picture, and an annotation of type `taxonomy` the path of its class.

[{"data": {"image": "a.jpg"}, "annotations": [{"result": [
    {"type": "taxonomy", "value": {"taxonomy": [["Charadriiformes", "Laridae", "Ivory Gull"]]}}]}]}]

The last annotation that was not cancelled counts. Level names are those that lht label wrote, or level1, level2, ….
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
import numpy as np

from torchlht.data.pictures import as_url, picture_at
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_of, tree_of
from torchlht.data.sources.table import stable_keys
from torchlht.doors import read_json
from torchlht.errors import DataError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.tree import Hierarchy, default_levels

START = 2**16
"""Bytes in which a file must show that it is a list of tasks."""
LOCAL = "/data/local-files/"


class Value(msgspec.Struct):
    """What was chosen."""

    taxonomy: list[list[str]] = []


class Result(msgspec.Struct):
    """A part of an annotation."""

    type: str = ""
    value: Value = msgspec.field(default_factory=Value)


class Annotation(msgspec.Struct):
    """What one person said."""

    result: list[Result] = []
    was_cancelled: bool = False


class Meta(msgspec.Struct):
    """What lht label adds."""

    levels: list[str] | None = None
    split: str = "train"


class Task(msgspec.Struct):
    """A picture with annotations."""

    data: dict[str, object]
    annotations: list[Annotation] = []
    meta: Meta = msgspec.field(default_factory=Meta)


def is_label_studio(place: Path) -> bool:
    """Whether a file looks like a list of tasks."""
    if place.suffix.lower() != ".json" or not place.is_file():
        return False
    with place.open("rb") as file:
        start = file.read(START)
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and b'"data"' in start


def read_label_studio(
    path: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read tasks; the tree comes from their annotations unless one is given. Paths end before a name in `unknown`."""
    tasks = read_json(path, list[Task])
    if not tasks:
        raise DataError(f"{path}: holds no tasks")
    where = [f"{path} task {i + 1}" for i in range(len(tasks))]
    classes = [path_of(task, place, unknown) for task, place in zip(tasks, where, strict=True)]
    names = level_names(tasks, classes, hierarchy, levels)
    depth = len(names)
    if long := [place for place, found in zip(where, classes, strict=True) if len(found) > depth]:
        raise DataError(f"{long[0]}: a path of more than {depth} classes; the levels are {', '.join(names)}")
    rows = [
        Row(f"task {i + 1}", tuple(name or None for name in [*found, *[""] * (depth - len(found))]))
        for i, found in enumerate(classes)
    ]
    tree = hierarchy or tree_of([row for row in rows if any(row.names)], names, path)
    files = [file_of(task, place) for task, place in zip(tasks, where, strict=True)]
    labels = np.array([label_of(tree, names, row.names, place) for row, place in zip(rows, where, strict=True)])
    return Samples(
        path.stem,
        tree,
        stable_keys(files),
        tree.fill(labels, where=where.__getitem__),
        np.array([_split(task, place) for task, place in zip(tasks, where, strict=True)]),
        images=tuple(picture_at(path.parent / file) for file in files),
    )


def path_of(task: Task, where: str, unknown: Set[str]) -> list[str]:
    """The names of a task's class, coarse → fine; empty without one."""
    counted = [one for one in task.annotations if not one.was_cancelled]
    results = [one for one in (counted[-1].result if counted else []) if one.type == "taxonomy"]
    paths = [found for one in results for found in one.value.taxonomy]
    if len(paths) > 1:
        raise DataError(f"{where}: {len(paths)} classes; one picture has one class here")
    names = [name.strip() for name in paths[0]] if paths else []
    known = next((i for i, name in enumerate(names) if name.casefold() in unknown), len(names))
    return names[:known]


def level_names(
    tasks: Sequence[Task], classes: Sequence[Sequence[str]], hierarchy: Hierarchy | None, levels: Sequence[str] | None
) -> list[str]:
    """Level names, coarse → fine."""
    if hierarchy is not None:
        return [hierarchy.levels[k] for k in hierarchy.top_down]
    named = levels or next((task.meta.levels for task in tasks if task.meta.levels), None)
    return list(named) if named else default_levels(max(map(len, classes), default=0) or 1)


def file_of(task: Task, where: str) -> str:
    """The file of a task's picture: its name, or that after `/data/local-files/?d=`."""
    name = task.data.get("image")
    if not isinstance(name, str) or not name:
        raise DataError(f"{where}: data.image is missing; it must name the picture")
    if name.startswith(LOCAL):
        name = next(iter(parse_qs(urlsplit(name).query).get("d", [])), "")
    if not name or as_url(name):
        raise DataError(f"{where}: {name!r} is no file on this computer: download the picture, and name its file")
    return name


def _split(task: Task, where: str) -> str:
    if task.meta.split.lower() not in SPLIT_NAMES:
        raise DataError(f"{where}: meta.split is {task.meta.split!r}; it must be train, val or test")
    return SPLIT_NAMES[task.meta.split.lower()]


SOURCE = Source(
    "label-studio",
    "tasks of Label Studio",
    is_label_studio,
    read_label_studio,
    order=25,
    read_without=read_label_studio,
)
