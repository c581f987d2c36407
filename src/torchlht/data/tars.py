"""Pictures inside uncompressed tar files: SHARD.tar#OFFSET+SIZE is what lies there, SHARD.tar#17 the tar's picture 17."""

from __future__ import annotations

import functools
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from torchlht.data.places import name_of, opened, read_range, state_of
from torchlht.errors import DataError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"})
BLOCK = 512  # a tar is made of these; the header of a file is the one before it
_ADDRESS = re.compile(r"(.+\.tar)#(\d+)(?:\+(\d+))?", re.DOTALL)


class Member(NamedTuple):
    """Where a picture lies: its tar, its first byte and its length."""

    file: Path
    start: int
    size: int

    @property
    def path(self) -> Path:
        """The address, as a path that pictures are opened by."""
        return self.file.with_name(f"{self.file.name}#{self.start}+{self.size}")


def tar_of(path: Path) -> Path | None:
    """The tar that SHARD.tar#… lies in; None when the path is no such address."""
    found = _ADDRESS.fullmatch(str(path))
    return Path(found[1]) if found else None


def member_at(path: Path) -> Member:
    """The place that SHARD.tar#… names."""
    found = _ADDRESS.fullmatch(str(path))
    assert found
    file, first = Path(found[1]), int(found[2])
    if found[3]:
        return Member(file, first, int(found[3]))
    pictures = _pictures(file, state_of(file))
    if first >= len(pictures):
        raise DataError(f"{name_of(file)}: no picture {first}; it holds {len(pictures)}")
    return pictures[first]


def read_member(member: Member) -> tuple[str, bytes]:
    """Name and bytes of a picture. Raises DataError when no such file lies there."""
    return checked(read_range(member.file, member.start - BLOCK, member.start + member.size), member)


def checked(data: bytes, member: Member) -> tuple[str, bytes]:
    """Name and content of a file from its header and bytes. Raises DataError when it is not where it is said to be."""
    where = f"{name_of(member.file)}#{member.start}+{member.size}"
    if len(data) < BLOCK + member.size:
        raise DataError(f"{where}: the shard ends before that; it was cut off: copy it again")
    try:
        header = tarfile.TarInfo.frombuf(data[:BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        header = None
    if header is None or header.size != member.size:
        raise DataError(f"{where}: no picture begins there; the index is of other shards: pack again, or remove index.json")
    return header.name, data[BLOCK:]


class Entry(NamedTuple):
    """A file in a tar: KEY.END, with the place where its content is."""

    key: str
    end: str
    place: Member


def entries(file: Path) -> Iterator[Entry]:
    """The files of a tar in the order in which they lie. Raises DataError when it is cut off or no tar."""
    try:
        with opened(file) as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            end = 0
            for info in tar:
                end = info.offset_data + -(-info.size // BLOCK) * BLOCK
                name = PurePosixPath(info.name).name
                if info.isfile() and not name.startswith("."):
                    stem, _, ending = name.partition(".")
                    key = str(PurePosixPath(info.name).with_name(stem))
                    yield Entry(key, f".{ending.lower()}", Member(file, info.offset_data, info.size))
            raw.seek(end)
            if raw.read(BLOCK) != bytes(BLOCK):
                raise DataError(f"{name_of(file)}: the shard ends in the middle; it was cut off: copy or pack it again")
    except tarfile.TarError as error:
        raise DataError(f"{name_of(file)}: not a whole, uncompressed tar ({error}); copy or pack it again") from None


def is_picture(end: str) -> bool:
    """Whether the end of a name says that it is a picture; .left.jpg does."""
    return f".{end.rpartition('.')[2]}" in SUFFIXES


@functools.lru_cache(maxsize=16)
def _pictures(file: Path, _state: object) -> list[Member]:
    """The pictures of a tar; asked again when the file has changed."""
    return [entry.place for entry in entries(file) if is_picture(entry.end)]
