"""Shards: tar files in the layout of WebDataset, KEY.jpg with KEY.json, local or at an address.

    shards/hierarchy.json          the tree
    shards/index.json              where everything is, so that shards need no scan; `lht data pack` writes it
    shards/shards-000000.tar       0000017-Ivory_Gull_1.jpg, 0000017-Ivory_Gull_1.json, …

KEY.json is {"labels": {"order": "Charadriiformes", "family": "Laridae", "species": null}, "split": "train", "key": "1.jpg"};
split and key are optional. Shards without an index are scanned once, and the result is cached.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, cast

import msgspec
import numpy as np

from torchlht.data.pictures import (
    BLOCK,
    FilePicture,
    TarMember,
    as_place,
    as_url,
    entries,
    identity,
    images_in,
    is_image,
    is_there,
    matching,
    name_of,
    picture_at,
    read_all,
    read_range,
    state_of,
)
from torchlht.data.samples import SPLIT_NAMES, Ints, Samples, Source, label_of, tree_of
from torchlht.doors import from_json
from torchlht.errors import DataError
from torchlht.files import cache_dir, noted
from torchlht.hierarchy.paths import LEVELS, Row
from torchlht.hierarchy.reading import subfolders
from torchlht.hierarchy.tree import Hierarchy

FORMAT = "torchlht-shards-1"
INDEX, TREE = "index.json", "hierarchy.json"
EXPECTED = 'every picture KEY.jpg needs a KEY.json with {"labels": {"order": "…", "species": null}}, coarse → fine'
_BRACES = re.compile(r"\{([^{}]*)\}")
ABOUT_BYTES = 2**20
"""Largest KEY.json."""
SHARDS = 10**6
"""Most shards that a pattern such as {000000..000099} may mean."""
# fmt: off
Split = Literal["train", "val", "test"]
Number = Annotated[int, msgspec.Meta(ge=-1, lt=2**62)]  # of a sample, or of a class; -1 where unknown
Length = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[^/\\\x00]+\.tar\Z")]  # of a file beside the index
# fmt: on


@dataclass
class Shard:
    """The contents of a shard; each list has one entry per sample. What an index says of it is checked against these types.

    Attributes:
        file: its name.
        bytes: its length.
        samples: how many it holds.
        keys: the samples' names.
        numbers: their positions in the original data.
        splits: train, val or test.
        labels: numbers of classes, fine first, -1 where unknown; or names by level, from a shard without an index.
        offsets: where the pictures begin.
        sizes: how long they are.
    """

    file: Name
    bytes: Length
    samples: Length = 0
    keys: list[str] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    labels: list[list[Number] | dict[str, str | None]] = field(default_factory=list)
    offsets: list[Length] = field(default_factory=list)
    sizes: list[Length] = field(default_factory=list)

    def __post_init__(self) -> None:
        lists = (self.keys, self.numbers, self.splits, self.labels, self.offsets, self.sizes)
        if {len(one) for one in lists} != {self.samples}:
            raise ValueError(f"{self.file} has {self.samples} samples, but lists of another length")
        if any(start < BLOCK or start + size > self.bytes for start, size in zip(self.offsets, self.sizes, strict=True)):
            raise ValueError(f"{self.file} has {self.bytes} bytes, but pictures outside them")

    def add(self, key: str, number: int, split: str, labels: list[int] | dict[str, str | None], place: TarMember) -> None:
        """Add one sample."""
        self.samples += 1
        self.keys.append(key)
        self.numbers.append(number)
        self.splits.append(cast(Split, split))
        self.labels.append(labels)
        self.offsets.append(place.start)
        self.sizes.append(place.size)


class Index(msgspec.Struct):
    """The content of index.json."""

    format: Literal["torchlht-shards-1"]  # FORMAT
    shards: list[Shard]


class About(msgspec.Struct):
    """The content of KEY.json; other fields are ignored."""

    labels: Annotated[dict[str, str | None], msgspec.Meta(min_length=1, max_length=LEVELS)]
    split: str | None = None
    key: str | None = None
    number: Number = -1


def is_shards(source: str | Path) -> bool:
    """Whether a name means shards: a tar, a pattern with {000..099} or *, a local folder of tars, or any address."""
    place = as_place(source)
    if place.name.endswith(".tar"):
        return True
    if as_url(place):
        return isinstance(picture_at(place), FilePicture) and not is_image(place)
    if not place.is_dir():
        return False
    listed, tars = (place / INDEX).is_file(), any(place.glob("*.tar"))
    alone = not subfolders(place) and not images_in(place)  # a folder of pictures may also hold tars
    return (listed and tars) or ((listed or tars) and alone)


def read_shards(source: str | Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> Samples:
    """Read shards from their index if there is one, else from the tars. Samples come in the order they were packed."""
    folder, files = find_shards(source)
    indexed = is_there(folder / INDEX)
    shards = _from_index(folder, files) if indexed else _scanned(files or _tars_in(folder))
    own = _own_tree(folder) if is_there(folder / TREE) else None
    count = sum(len(shard.keys) for shard in shards)
    if not count:
        raise DataError(f"{source}: no samples found; {EXPECTED}")
    order = np.argsort(np.concatenate([shard.numbers for shard in shards]), kind="stable")
    places = [TarMember(folder / s.file, *at) for s in shards for at in zip(s.offsets, s.sizes, strict=True)]
    keys = [key for shard in shards for key in shard.keys]
    splits = np.array([split for shard in shards for split in shard.splits])
    names, rows, which, known = _rows([label for shard in shards for label in shard.labels], own, folder)
    where = [f"{name_of(places[i].file)} {keys[i]}" for i in np.unique(which, return_index=True)[1]]
    if own and known is not None and hierarchy in (None, own) and (not levels or list(levels) == names):
        tree, labels = own, own.fill(known, where=lambda i: keys[i])
    else:
        tree, coded = _coded(names, rows, where, hierarchy or (None if levels else own), levels, folder)
        labels = coded[which]
    return Samples(
        name_of_shards(source),
        tree,
        tuple(keys[i] for i in order),
        labels[order],
        splits[order],
        images=tuple(places[i] for i in order),
        checked=indexed and as_url(folder) is not None,
    )


def name_of_shards(source: str | Path) -> str:
    """The name of shards in messages and run directories: their folder's name."""
    place = as_place(source)
    return (place.absolute().parent if place.name.endswith(".tar") else place).name


# ---- which shards --------------------------------------------------------------------------------------------------


def find_shards(source: str | Path) -> tuple[Path, list[Path] | None]:
    """The folder of the shards, and the files meant in it; None for all."""
    place = as_place(source)
    if not place.name.endswith(".tar"):
        return place, None
    files = [Path(name) for name in expand_braces(str(place))]
    files = [found for file in files for found in (matching(file) if "*" in file.name else [file])]
    if not files:
        raise DataError(f"{source}: no shards match it")
    if len({file.parent for file in files}) > 1:
        raise DataError(f"{source}: shards in several folders; put those of one dataset into one folder")
    with ThreadPoolExecutor(16) as pool:
        there = list(pool.map(is_there, files))
    if missing := [file for file, found in zip(files, there, strict=True) if not found]:
        others = f", {sum(there)} of {len(files)} are there: correct the range or pack again" if len(files) > 1 else ""
        raise DataError(f"{name_of(missing[0])}: no such shard{others}")
    return files[0].parent, files


def expand_braces(pattern: str) -> list[str]:
    """Every name that a pattern means: x-{08..10}.tar is x-08.tar, x-09.tar, x-10.tar; x-{a,b}.tar is two names, too.

    Raises DataError when these are more than `SHARDS`.
    """
    texts, braces = _BRACES.split(pattern)[::2], [_choices(inside) for inside in _BRACES.findall(pattern)]
    if math.prod(map(len, braces)) > SHARDS:
        raise DataError(f"{pattern}: means more than {SHARDS:,} shards; correct the range")
    names = []
    for chosen in itertools.product(*braces):
        names.append("".join(text + choice for text, choice in zip(texts, [*chosen, ""], strict=True)))
    return names


def _choices(inside: str) -> Sequence[str]:
    """What may stand in the place of braces."""
    first, dots, last = inside.partition("..")
    if not (dots and first.isdecimal() and last.isdecimal()):
        return inside.split(",")
    if max(len(first), len(last)) > 18 or int(last) - int(first) >= SHARDS:
        return [inside] * (SHARDS + 1)
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]


def _tars_in(folder: Path) -> list[Path]:
    if found := matching(folder / "*.tar"):
        return found
    raise DataError(f"{name_of(folder)}: no {INDEX} and no .tar in it; lht data pack DATA --out DIR writes shards")


# ---- what lies in them ---------------------------------------------------------------------------------------------


def _from_index(folder: Path, files: list[Path] | None) -> list[Shard]:
    """The shards listed in index.json. Raises DataError when one is missing or has another length."""
    place = name_of(folder / INDEX)
    try:
        shards = from_json(read_all(folder / INDEX), Index, place).shards
        if len({shard.file for shard in shards}) < len(shards):
            raise DataError(f"{place}: lists a shard twice")
    except DataError as error:
        why = str(error).removeprefix(place).lstrip(": ")
        raise DataError(
            f"{place}: not an index written by lht data pack ({why}); remove it to scan the shards instead"
        ) from None
    if files is not None:
        by_name = {shard.file: shard for shard in shards}
        if strange := [file.name for file in files if file.name not in by_name]:
            raise DataError(f"{place}: does not list {strange[0]}; remove it to scan the shards instead, or pack again")
        shards = [by_name[file.name] for file in dict.fromkeys(files)]
    with ThreadPoolExecutor(16) as pool:
        for fault in pool.map(lambda shard: _mismatch(folder, shard), shards):
            if fault:
                raise DataError(fault)
    return shards


def _mismatch(folder: Path, shard: Shard) -> str | None:
    """Why a shard is not the one in the index, or None."""
    file = folder / shard.file
    state = state_of(file)
    if state is None:
        return f"{name_of(file)}: no such shard, but {INDEX} lists it; copy it again, or pack again"
    if state[0] != shard.bytes:
        more = "it was cut off or replaced; copy it again, or remove the index to scan the shards instead"
        return f"{name_of(file)}: {state[0]:,} bytes long, but {shard.bytes:,} in {INDEX}: {more}"
    if shard.keys and not as_url(file):  # remote headers are checked when pictures are read
        TarMember(file, shard.offsets[-1], shard.sizes[-1]).read()
    return None


def _scanned(files: list[Path]) -> list[Shard]:
    """The contents of shards without an index, cached until a shard changes."""
    found = []
    for file in files:
        state = state_of(file)
        where, keep = identity([FilePicture(file)])
        scan = partial(_scan, file, state[0] if state else 0)
        found.append(noted(cache_dir() / "shards" / f"{where}.json", Shard, scan, keep=keep))
    start = 0
    for shard in found:  # samples without a number keep the order of the file
        shard.numbers = [start + i if number < 0 else number for i, number in enumerate(shard.numbers)]
        start += len(shard.keys)
    return found


def _scan(file: Path, size: int) -> Shard:
    """Scan a tar: the files of a sample are adjacent and share the name up to the first dot."""
    shard, samples = Shard(file.name, size), dict[str, dict[str, TarMember]]()
    for entry in entries(file):
        samples.setdefault(entry.key, {})[entry.end] = entry.place
    for key, parts in samples.items():
        pictures = [end for end in parts if is_image(PurePosixPath(key + end))]
        where = f"{name_of(file)} {key}"
        if len(pictures) != 1 or ".json" not in parts:
            raise DataError(f"{where}: holds {', '.join(sorted(parts))}; {EXPECTED}")
        place = parts[".json"]
        if place.size > ABOUT_BYTES:
            raise DataError(f"{where}: its .json has {place.size:,} bytes; the most that is read is {ABOUT_BYTES:,}")
        about = _about(read_range(place.file, place.start, place.start + place.size), where)
        split = SPLIT_NAMES.get((about.split or "train").lower())
        if split is None:
            raise DataError(f"{where}: split is {about.split!r}; it must be train, val or test")
        shard.add(about.key or f"{key}{pictures[0]}", about.number, split, about.labels, parts[pictures[0]])
    return shard


def _about(data: bytes, where: str) -> About:
    """KEY.json, checked."""
    try:
        return from_json(data, About, where)
    except DataError as error:
        raise DataError(
            f"{where}: its .json cannot be used ({str(error).removeprefix(where).lstrip(': ')}); {EXPECTED}"
        ) from None


# ---- labels --------------------------------------------------------------------------------------------------------


def _own_tree(folder: Path) -> Hierarchy:
    """The tree in hierarchy.json, next to the shards."""
    place = name_of(folder / TREE)
    try:
        return Hierarchy.from_dict(from_json(read_all(folder / TREE), dict[str, Any], place), source=place)
    except (DataError, KeyError, TypeError) as error:
        why = str(error).removeprefix(place).lstrip(": ")
        raise DataError(f"{place}: not a tree written by lht data pack ({why}); copy it again, or remove it") from None


def _rows(
    labels: list[Any], own: Hierarchy | None, folder: Path
) -> tuple[list[str], list[tuple[str | None, ...]], Ints, Ints | None]:
    """Level names coarse → fine; the distinct rows of class names; the row of each sample; labels as numbers, if any."""
    if isinstance(labels[0], dict):
        names = [own.levels[k] for k in own.top_down] if own else list(labels[0])
        for label in labels:
            if not isinstance(label, dict):
                raise DataError(f"{name_of(folder)}: labels are names in some samples and numbers in others; pack again")
            if strange := [name for name in label if name not in names]:
                raise DataError(f"{name_of(folder)}: a sample has a level {strange[0]!r}, others have {', '.join(names)}")
        distinct: dict[tuple[str | None, ...], int] = {}
        numbers = [distinct.setdefault(tuple(label.get(name) or None for name in names), len(distinct)) for label in labels]
        return names, list(distinct), np.array(numbers), None
    right = own is not None and all(isinstance(label, list) and len(label) == len(own) for label in labels)
    known = np.array(labels if right else [], dtype=np.int64)
    if own is None or not right or (known.max(axis=0) >= own.sizes).any():
        raise DataError(f"{name_of(folder)}: {INDEX} and {TREE} do not belong together; copy both again, or pack again")
    rows, which = np.unique(known, axis=0, return_inverse=True)
    named = [tuple(own.names[k][row[k]] if row[k] >= 0 else None for k in own.top_down) for row in rows]
    return [own.levels[k] for k in own.top_down], named, which.ravel(), known


def _coded(
    names: list[str],
    rows: list[tuple[str | None, ...]],
    where: list[str],
    hierarchy: Hierarchy | None,
    levels: Sequence[str] | None,
    folder: Path,
) -> tuple[Hierarchy, Ints]:
    """The tree, given or from the rows, and the rows' labels in it, fine first."""
    chosen = [hierarchy.levels[k] for k in hierarchy.top_down if hierarchy.levels[k] in names] if hierarchy else None
    columns = chosen if chosen is not None else list(levels or names)
    if not columns or (absent := [name for name in columns if name not in names]):
        wanted = absent[0] if columns else "of the tree"
        raise DataError(f"{name_of(folder)}: no level {wanted} (its levels: {', '.join(names)})")
    at = [names.index(name) for name in columns]
    picked = [Row(place, tuple(row[i] for i in at)) for place, row in zip(where, rows, strict=True)]
    tree = hierarchy or tree_of(picked, columns, folder)
    labels = np.array([label_of(tree, columns, row.names, row.where) for row in picked], dtype=np.int64)
    return tree, tree.fill(labels, where=where.__getitem__)


SOURCE = Source("shards", "a folder of .tar shards", is_shards, read_shards, order=60, called=name_of_shards)
