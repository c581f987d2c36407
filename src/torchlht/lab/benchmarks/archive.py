"""What the readers of benchmark archives share: their result, and their checks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from torchlht.data.pictures import picture_at
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy

TREES = Path(__file__).parents[2] / "trees"
Value = TypeVar("Value")


class Labelled(NamedTuple):
    """A picture of an archive: its absolute path, the number of its finest class, and its split."""

    path: str
    leaf: int
    split: str


@dataclass(frozen=True)
class Request:
    """Options for reading an archive: the tree, the perturbation, and the seed."""

    tree: str = "default"
    mode: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class Archive:
    """The content of an archive.

    Attributes:
        tree: the tree that the labels follow.
        pictures: every picture, with its finest class; coarser labels follow from the tree.
        prior: another tree of the same classes, given to methods to mislead them.
        targets: classes set apart for few-shot tests.
        names: how many names each level has, fine first, if that is not the number of its classes: two classes with the
            same name are distinct in the tree.
    """

    tree: Hierarchy
    pictures: list[Labelled]
    prior: Hierarchy | None = None
    targets: tuple[str, ...] = ()
    names: tuple[int, ...] | None = None


def shipped_tree(name: str) -> Hierarchy:
    """A tree that comes with the package."""
    return Hierarchy.read(TREES / f"{name}.json")


def find_base(root: Path, inner: Sequence[str], holds: Sequence[str]) -> Path:
    """The first of the folders `inner` under `root` that contains anything of `holds`; `root` if none does."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder")
    folders = [root / name for name in inner]
    return next((folder for folder in folders if any((folder / name).exists() for name in holds)), root)


def require(base: Path, *, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Raise DataError if a folder lacks any of these; the message names all that are missing."""
    missing = [f"{name}/" for name in folders if not (base / name).is_dir()]
    missing += [name for name in files if not (base / name).is_file()]
    if missing:
        raise DataError(f"{base}: missing {', '.join(missing)}")


def read_pairs(file: Path) -> dict[str, str]:
    """A table from lines of a first word and the rest. Raises DataError for a line of one word or a repeated word."""
    pairs: dict[str, str] = {}
    for number, line in enumerate(read_lines(file), start=1):
        if not line.strip():
            continue
        words = line.split(maxsplit=1)
        if len(words) < 2:
            raise DataError(f"{file} line {number}: {line.strip()!r} has one word; expected a number or name, then its value")
        if words[0] in pairs:
            raise DataError(f"{file} line {number}: {words[0]!r} appears twice")
        pairs[words[0]] = words[1].strip()
    return pairs


def read_lines(file: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are replaced, and later match nothing."""
    return file.read_text(encoding="utf-8", errors="replace").splitlines()


def same_keys(tables: Mapping[str, Mapping[str, str]]) -> None:
    """Raise DataError if tables are not about the same pictures; the message names the first that is not in all."""
    everything = sorted(set().union(*tables.values()))
    for file, table in tables.items():
        if lacking := [key for key in everything if key not in table]:
            holder = next(other for other, held in tables.items() if lacking[0] in held)
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            raise DataError(f"{file}: nothing about picture {lacking[0]}{more}, which is in {Path(holder).name}")


def look_up(table: Mapping[str, Value], key: str, where: str) -> Value:
    """An entry of a table. Raises DataError if there is none."""
    if key not in table:
        raise DataError(f"{where}: {key!r} is not one of {', '.join(list(table)[:4])}{', …' if len(table) > 4 else ''}")
    return table[key]


def place(parents: dict[str, str], level: str, child: str, parent: str, where: str) -> None:
    """Record a class's parent. Raises DataError for a second one."""
    if parents.setdefault(child, parent) != parent:
        raise DataError(f"{where}: {level} {child!r} is under {parent!r} here but under {parents[child]!r} elsewhere")


def absent(pictures: Iterable[Labelled]) -> list[str]:
    """The missing pictures. Each folder is listed once, which is far faster than checking each file."""
    listed: dict[str, set[str]] = {}
    found = []
    for picture in pictures:
        folder, _, name = str(picture_at(picture.path).file).rpartition(os.sep)
        if folder not in listed:
            listed[folder] = {file.name for file in Path(folder).iterdir()} if Path(folder).is_dir() else set()
        if name not in listed[folder]:
            found.append(picture.path)
    return found
