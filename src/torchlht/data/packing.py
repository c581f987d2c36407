"""`lht data pack`: pictures from anywhere into shards, so that many of them can be read from the start of a file to its end."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from PIL import Image

from torchlht.data.images import open_image
from torchlht.data.packed import split_address
from torchlht.data.samples import SPLITS, Samples, hashed
from torchlht.data.sources.shards import FORMAT, INDEX, TREE, Shard
from torchlht.data.tars import BLOCK, SUFFIXES, Member, member_at, read_member, tar_of
from torchlht.errors import ConfigError, DataError
from torchlht.files import write_json

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
LONGEST = 60  # characters of a sample's own name in the tar, where 100 have room


def parse_size(text: str) -> int:
    """Bytes from 100MB, 1.5GB or 512KiB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = int(float(found[1]) * UNITS[found[2].upper()]) if found and found[2].upper() in UNITS else 0
    if size < 1:
        raise ConfigError(f"`size` is {text!r}: a number of bytes, as in 100MB or 1GB")
    return size


def pack(samples: Samples, out: Path, *, size: int | None = None, per_shard: int | None = None, seed: int = 0) -> list[Path]:
    """Write shards, their index and the tree into a new folder, whole or not at all; gives the shards.

    Samples are mixed, each split in shards of its own, in an order that depends on their keys and the seed alone.

    Args:
        samples: pictures.
        out: the folder; it must not exist yet, or be empty.
        size: bytes that a shard has at most, unless a single picture is larger.
        per_shard: samples of a shard, instead.
        seed: of the order.
    """
    if samples.images is None:
        raise DataError(f"{samples.name}: features are one file already; lht data pack is for pictures")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"{out}: exists and is not empty; choose another `out`")
    beside = out.with_name(f".{out.name}.part")
    shutil.rmtree(beside, ignore_errors=True)  # of a packing that was killed
    beside.mkdir(parents=True)
    try:
        shards = [
            _write(samples, part, beside / f"shards-{i:06d}.tar")
            for i, part in enumerate(_parts(samples, size, per_shard, seed))
        ]
        samples.hierarchy.write(beside / TREE)
        write_json(beside / INDEX, {"format": FORMAT, "shards": [asdict(shard) for shard in shards]}, indent=None)
        beside.replace(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [out / shard.file for shard in shards]


def _parts(samples: Samples, size: int | None, per_shard: int | None, seed: int) -> Iterator[list[int]]:
    """The samples of each shard."""
    assert samples.images is not None
    for split in SPLITS:
        ranked = sorted(samples.index(split).tolist(), key=lambda i: (hashed(seed, "pack", samples.keys[i]), samples.keys[i]))
        part: list[int] = []
        filled = 0
        for i in ranked:
            needed = _length(samples.images[i]) + 4 * BLOCK  # two headers, the labels, and what fills the last block
            if part and (len(part) == per_shard or (size is not None and filled + needed > size)):
                yield part
                part, filled = [], 0
            part.append(i)
            filled += needed
        if part:
            yield part


def _length(path: Path) -> int:
    """About how many bytes a picture takes."""
    if tar_of(path):
        return member_at(path).size
    return 4096 if split_address(path) else path.stat().st_size


def _write(samples: Samples, part: list[int], file: Path) -> Shard:
    """One shard."""
    assert samples.images is not None
    tree, shard = samples.hierarchy, Shard(file.name, 0)
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in part:
            label, key = samples.labels[i], f"{i:07d}-{_plain(samples.keys[i])}"
            names = {tree.levels[k]: tree.classes[k][label[k]] if label[k] >= 0 else None for k in tree.top_down}
            split = str(samples.split[i])
            about = {"split": split, "labels": names, "key": samples.keys[i], "number": i}
            end, data = content(samples.images[i])
            place = _add(tar, f"{key}{end}", data)
            _add(tar, f"{key}.json", json.dumps(about, ensure_ascii=False).encode())
            shard.add(samples.keys[i], i, split, label.tolist(), place)
    shard.bytes = file.stat().st_size
    return shard


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> Member:
    """Append a file that says nothing of when and by whom it was written; gives where it lies."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    place = Member(Path(name), tar.offset + BLOCK, len(data))
    tar.addfile(info, io.BytesIO(data))
    return place


def _plain(key: str) -> str:
    """A key as part of a name in a tar: its end, without dots, slashes and whatever else is not a letter or digit."""
    return re.sub(r"[^A-Za-z0-9-]+", "_", re.sub(r"\.\w+$", "", key))[-LONGEST:].strip("_")


def content(path: Path) -> tuple[str, bytes]:
    """How a picture's name ends, and its bytes: those of its file as they are, else a PNG."""
    if not split_address(path):
        name, data = read_member(member_at(path)) if tar_of(path) else (path.name, path.read_bytes())
        end = PurePosixPath(name).suffix.lower()
        if end in SUFFIXES or (end := _end_of(data)) in SUFFIXES:
            return end, data
    png = io.BytesIO()
    open_image(path).save(png, format="PNG")
    return ".png", png.getvalue()


def _end_of(data: bytes) -> str:
    """How the name of a picture should end, from what is in it."""
    with Image.open(io.BytesIO(data)) as image:
        return f".{(image.format or '').lower()}"
