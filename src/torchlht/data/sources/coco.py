"""COCO-style JSON: `images`, `categories`, and `annotations` that join them; also as iNaturalist's competitions write it.

{"images": [{"id": 1, "file_name": "1.jpg"}],
 "categories": [{"id": 7, "name": "Ivory Gull", "supercategory": "Laridae"}],
 "annotations": [{"image_id": 1, "category_id": 7, "bbox": [12, 30, 80, 64]}]}

If no picture has two categories, a picture is a sample, whole. Otherwise an annotation is one, cut out by its box.
Levels are the ranks that categories tell, down to `name`; without ranks, the supercategories above them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from math import ceil, floor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from torchlht.data.cuts import CutPicture
from torchlht.data.pictures import FilePicture, Picture, as_url
from torchlht.data.samples import (
    SPLIT_NAMES,
    Samples,
    Source,
    label_by_name,
    label_of,
    split_in,
    tree_of,
)
from torchlht.data.sources.darwin_core import RANKS
from torchlht.doors import read_large_json
from torchlht.errors import DataError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.tree import Hierarchy, default_levels

START: Final = 2**16
"""Bytes in which a file must show what it is."""
COCO_BYTES: Final = 2**32
"""Largest file: that of 2.7 million pictures has about one GB. Outlines of objects are skipped."""
FARTHEST: Final = 10**8
"""Pixels to which boxes are cut."""
TRIED: Final = 100
"""Pictures that are looked for to see where all of them lie."""
ROBOFLOW: Final = "_annotations.coco.json"
Id = int | str
Classes = tuple[str, ...]  # the classes of a category, coarse → fine
T = TypeVar("T")


class Shown(msgspec.Struct):
    """A picture."""

    id: Id
    file_name: str


class Annotation(msgspec.Struct):
    """What is in a picture, and where."""

    image_id: Id
    category_id: Id
    bbox: list[float] | None = None
    iscrowd: int | bool | None = 0


class Content(msgspec.Struct):
    """The content of a file; other fields are ignored."""

    images: list[Shown]
    categories: list[dict[str, Any]]
    annotations: list[Annotation] = []


class File(NamedTuple):
    """A file that was read: where it is, its split, and the folder of its pictures."""

    path: Path
    split: str
    home: Path
    content: Content


class Found(NamedTuple):
    """A sample: its picture and its name, its category, its split, and where it is told."""

    picture: Picture
    key: str
    category: str | None
    split: str
    where: str


def is_coco(place: Path) -> bool:
    """Whether a place is such a file, or a folder with one for each split."""
    if place.is_dir():
        return bool(_in_folder(place))
    if place.suffix.lower() != ".json" or not place.is_file():
        return False
    with place.open("rb") as file:
        start = file.read(START)
    keys = (b'"images"', b'"annotations"', b'"categories"')
    return start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(key in start for key in keys)


def _in_folder(folder: Path) -> list[tuple[Path, str]]:
    """The files of a folder by split: train/_annotations.coco.json, or annotations/instances_train2017.json.

    In `annotations`, files may also be called train.json, and a single one as it likes, such as instances_default.json.
    """
    by_split = [(folder / name / ROBOFLOW, split) for name, split in SPLIT_NAMES.items()]
    inside = sorted((folder / "annotations").glob("*.json"))
    objects = [file for file in inside if file.name.startswith("instances_")] or [file for file in inside if is_coco(file)]
    named = [(file, split_in(file.stem) or ("train" if len(objects) == 1 else None)) for file in objects]
    return [(file, split) for file, split in [*by_split, *named] if split and file.is_file()]


# ---- reading -------------------------------------------------------------------------------------------------------


def read_coco(
    place: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read such files; the tree comes from all categories unless one is given. `unknown` categories are no labels."""
    files = [_opened(file, split) for file, split in (_in_folder(place) if place.is_dir() else [(place, "train")])]
    categories = [one for file in files for one in _categories(file)]
    names, paths = _paths(place, categories, levels, unknown)
    rows = {name: _row(name, path, len(names)) for name, path in paths.items() if path}
    tree = hierarchy or tree_of(list(rows.values()), names, place)
    inside = [_inside(file) for file in files]
    whole = all(len({one.category_id for one in some}) <= 1 for shown in inside for some in shown.values())
    found = [sample for file, shown in zip(files, inside, strict=True) for sample in _samples(file, shown, whole=whole)]
    if not found:
        raise DataError(f"{place}: names no pictures")
    asked = {one.category for one in found}
    known = {name: _label(tree, rows.get(name or ""), names, place, given=hierarchy is not None) for name in asked}
    where = [one.where for one in found]
    return Samples(
        place.stem,
        tree,
        _keys(found),
        tree.fill(np.array([known[one.category] for one in found]), where=where.__getitem__),
        np.array([one.split for one in found]),
        images=tuple(one.picture for one in found),
    )


def _opened(path: Path, split: str) -> File:
    """A file, and the folder in which one of its first pictures is found, as COCO, iNaturalist and FiftyOne lay them out."""
    content = read_large_json(path, Content, COCO_BYTES)
    beside, above, last = path.parent, path.parent.parent, path.stem.rpartition("_")[2]
    homes = [beside, beside / "images", beside / "data", above, above / "images", above / last, above / "images" / last]
    first = [image.file_name for image in content.images[:TRIED]]
    return File(path, split, next((home for name in first for home in homes if (home / name).is_file()), beside), content)


def _categories(file: File) -> list[dict[str, Any]]:
    """The categories, each with an id of its own and a name. Raises DataError if an id is there twice, also of pictures."""
    found = file.content.categories
    for i, one in enumerate(found):
        if not isinstance(one.get("id"), int | str) or not isinstance(one.get("name"), str) or not one["name"].strip():
            raise DataError(f"{file.path}: categories[{i}] needs an id and a name")
    for kind, ids in (("images", [one.id for one in file.content.images]), ("categories", [one["id"] for one in found])):
        if len(set(ids)) < len(ids):
            raise DataError(f"{file.path}: {kind}: the id {Counter(ids).most_common(1)[0][0]!r} is there twice")
    return found


def _row(name: str, path: Classes, depth: int) -> Row:
    return Row(f"category {name!r}", tuple(one or None for one in path) + (None,) * (depth - len(path)))


def _label(tree: Hierarchy, row: Row | None, names: Sequence[str], place: Path, *, given: bool) -> list[int]:
    """The label of a category, fine first; in a given tree its finest name may stand at any level."""
    if row is None:
        return [-1] * len(tree)
    where = f"{place} {row.where}"
    finest = next(name for name in reversed(row.names) if name)
    return label_by_name(tree, finest, where) if given else label_of(tree, names, row.names, where)


def _keys(found: Sequence[Found]) -> tuple[str, ...]:
    """A name for each sample: parts of the data may hold pictures of one name, and pictures may hold a box twice."""
    parted, count, keys = len({one.split for one in found}) > 1, Counter[str](), []
    for one in found:
        key = f"{one.split}/{one.key}" if parted else one.key
        count[key] += 1
        keys.append(key if count[key] == 1 else f"{key} ({count[key]})")
    return tuple(keys)


# ---- samples -------------------------------------------------------------------------------------------------------


def _inside(file: File) -> dict[Id, list[Annotation]]:
    """The annotations of each picture, without crowds."""
    names = {one["id"] for one in file.content.categories}
    shown: dict[Id, list[Annotation]] = {image.id: [] for image in file.content.images}
    for i, one in enumerate(file.content.annotations):
        for kind, key, known in (("image_id", one.image_id, shown), ("category_id", one.category_id, names)):
            if key not in known:
                raise DataError(f"{file.path}: annotations[{i}]: {kind} {key!r} is not in the file")
        if not one.iscrowd:
            shown[one.image_id].append(one)
    return shown


def _samples(file: File, inside: Mapping[Id, Sequence[Annotation]], *, whole: bool) -> list[Found]:
    """The samples of a file, in the order of its pictures: the `whole` pictures, or what their boxes cut out."""
    names = {one["id"]: one["name"].strip() for one in file.content.categories}
    if asked := next((image.file_name for image in file.content.images if as_url(image.file_name)), None):
        raise DataError(f"{file.path}: {asked} is an address; download the picture, and name its file")
    if whole:
        return [_whole(file, image, names, inside[image.id]) for image in file.content.images]
    return [_cut(file, image, names, one) for image in file.content.images for one in inside[image.id]]


def _whole(file: File, image: Shown, names: Mapping[Id, str], inside: Sequence[Annotation]) -> Found:
    """A picture with its only category, or with none."""
    name = names[inside[0].category_id] if inside else None
    return Found(FilePicture(file.home / image.file_name), image.file_name, name, file.split, f"{file.path} {image.file_name}")


def _cut(file: File, image: Shown, names: Mapping[Id, str], one: Annotation) -> Found:
    """What lies in the box of an annotation, whole pixels that cover it."""
    where = f"{file.path} {image.file_name}"
    if not one.bbox:
        raise DataError(f"{where}: has several categories, and an annotation without bbox; a picture has one class here")
    if len(one.bbox) != 4:
        raise DataError(f"{where}: bbox is {one.bbox[:8]}; it must be [left, top, width, height] in pixels")
    left, top, width, height = (min(max(value, -FARTHEST), FARTHEST) for value in one.bbox)
    x, y = max(floor(left), 0), max(floor(top), 0)
    size = max(ceil(left + width) - x, 0), max(ceil(top + height) - y, 0)
    picture = CutPicture(file.home / image.file_name, x, y, *size)
    return Found(picture, f"{image.file_name}{picture.part}", names[one.category_id], file.split, where)


# ---- levels --------------------------------------------------------------------------------------------------------


def _paths(
    place: Path, categories: Sequence[Mapping[str, Any]], levels: Sequence[str] | None, unknown: Set[str]
) -> tuple[list[str], dict[str, Classes]]:
    """Level names, coarse → fine, and the classes of each category by its name."""
    fields = [rank for rank in RANKS if any(one.get(rank) for one in categories)]
    own = {field for one in categories for field in one} - {"supercategory"}
    if levels and (fields or set(levels[:-1]) <= own):
        fields = list(levels)
    elif fields and "species" not in fields:
        fields.append("species")
    if fields:
        finest = None if any(one.get(fields[-1]) for one in categories) else fields[-1]
        wanted = ["name" if field == finest else field for field in fields]
        ranked = [(one["name"].strip(), _known([_text(one.get(field)) for field in wanted], unknown)) for one in categories]
        return fields, _one_each(place, ranked)
    above = _one_each(place, [(one["name"].strip(), _text(one.get("supercategory"))) for one in categories])
    paths = {name: _known(_upwards(name, above), unknown) for name in above}
    while paths and max(map(len, paths.values())) > 1 and len({path[:1] for path in paths.values() if path}) == 1:
        paths = {name: path[1:] for name, path in paths.items()}  # what is above everything tells nothing
    depth = max(map(len, paths.values()), default=1) or 1
    paths = {
        name: path * depth if above[name] == name and len(path) == 1 and depth == 2 else path for name, path in paths.items()
    }
    named = {1: ["category"], 2: ["supercategory", "category"]}.get(depth) or default_levels(depth)
    if levels and len(levels) != depth:
        raise DataError(f"{place}: its categories have {depth} levels ({', '.join(named)}), but `levels` names {len(levels)}")
    return list(levels or named), paths


def _one_each(place: Path, said: Sequence[tuple[str, T]]) -> dict[str, T]:
    """What is said of each name. Raises DataError if two things are: then pictures of both would be of one class."""
    found: dict[str, T] = {}
    for name, what in said:
        before = found.get(name)
        if before and what and before != what:
            raise DataError(f"{place}: two categories are called {name!r}, {_under(before)} and {_under(what)}; rename one")
        found[name] = before or what
    return found


def _under(above: object) -> str:
    """Where a category stands: below a supercategory, or at the end of a path."""
    return f"as {' › '.join(filter(None, above))}" if isinstance(above, tuple) else f"under {above!r}"


def _upwards(name: str, above: Mapping[str, str]) -> list[str]:
    """A category below its supercategories, as far as the file tells."""
    path = [name]
    while (higher := above.get(path[0], "")) and higher.lower() != "none" and higher not in path:
        path.insert(0, higher)
    return path


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _known(path: Sequence[str], unknown: Set[str]) -> Classes:
    """The classes of a path down to the last that is known."""
    known = [name if name.casefold() not in unknown else "" for name in path]
    return tuple(known[: max((i + 1 for i, name in enumerate(known) if name), default=0)])


SOURCE = Source("coco", "COCO-style JSON", is_coco, read_coco, order=26, read_without=read_coco)
