"""`lht data pack`: pack pictures from any source into shards, which are read from start to end."""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

from torchlht.console import readable
from torchlht.data.pictures import BLOCK, SUFFIXES, Picture, TarMember, open_bytes, open_image
from torchlht.data.samples import SPLITS, Samples, hashed
from torchlht.data.sources.shards import FORMAT, INDEX, TREE, Shard
from torchlht.errors import ConfigError, DataError
from torchlht.files import LOCK, claimed, write_json
from torchlht.files import content as held_by

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
Dealt = tuple[int, int, str, bytes]  # shard number, sample, suffix of the picture, its bytes
LONGEST = 60  # characters of a sample's name in the tar, which has room for 100


def parse_size(text: str) -> int:
    """Bytes from 100MB, 1.5GB or 512KiB."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    size = int(float(found[1]) * UNITS[found[2].upper()]) if found and found[2].upper() in UNITS else 0
    if size < 1:
        raise ConfigError(f"`size` is {text!r}: pass a number of bytes, such as 100MB or 1GB")
    return size


def pack(samples: Samples, out: Path, *, size: int | None = None, per_shard: int | None = None, seed: int = 0) -> list[Path]:
    """Write shards, their index and the tree into a new folder, completely or not at all; returns the shards.

    Samples are shuffled, in an order that depends on their keys and the seed alone. Each split has its own shards.

    Args:
        samples: pictures.
        out: the folder; it must be empty or not exist yet.
        size: most bytes per shard, unless a single picture is larger.
        per_shard: samples per shard, instead of `size`.
        seed: seed of the order.
    """
    if samples.images is None:
        raise DataError(f"{samples.name}: features are already one file; lht data pack is for pictures")
    if out.exists() and (not out.is_dir() or held_by(out)):
        raise DataError(f"{out}: exists and is not empty; choose another `out`")
    with claimed(out):
        return _pack(samples, out, size, per_shard, seed)


def _pack(samples: Samples, out: Path, size: int | None, per_shard: int | None, seed: int) -> list[Path]:
    """Write into a folder beside `out`, which is claimed and empty, then rename it."""
    beside = out.with_name(f".{out.name}.part")
    shutil.rmtree(beside, ignore_errors=True)  # left by a killed run
    beside.mkdir(parents=True)
    try:
        dealt = itertools.groupby(_dealt(samples, size, per_shard, seed), key=itemgetter(0))
        shards = [_write(samples, part, beside / f"shards-{number:06d}.tar") for number, part in dealt]
        samples.hierarchy.write(beside / TREE)
        write_json(beside / INDEX, {"format": FORMAT, "shards": [asdict(shard) for shard in shards]}, indent=None)
        (out / LOCK).unlink(missing_ok=True)
        beside.replace(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return [out / shard.file for shard in shards]


def _dealt(samples: Samples, size: int | None, per_shard: int | None, seed: int) -> Iterator[Dealt]:
    """The samples in their new order, read one by one and dealt to shards."""
    assert samples.images is not None
    shard = -1
    for split in SPLITS:
        ranked = sorted(samples.index(split).tolist(), key=lambda i: (hashed(seed, "pack", samples.keys[i]), samples.keys[i]))
        held = filled = 0
        for i in ranked:
            end, data = content(samples.images[i])
            needed = len(data) + 4 * BLOCK  # two headers, the labels, and padding of the last block
            if not held or held == per_shard or (size is not None and filled + needed > size):
                shard, held, filled = shard + 1, 0, 0
            held, filled = held + 1, filled + needed
            yield shard, i, end, data


def _write(samples: Samples, part: Iterable[Dealt], file: Path) -> Shard:
    """Write one shard."""
    tree, shard = samples.hierarchy, Shard(file.name, 0)
    with tarfile.open(file, "w", format=tarfile.USTAR_FORMAT) as tar:
        for _, i, end, data in part:
            label, name = samples.labels[i], readable(samples.keys[i])  # JSON holds no name that is not UTF-8
            key = f"{i:07d}-{_plain(name)}"
            names = {tree.levels[k]: tree.names[k][label[k]] if label[k] >= 0 else None for k in tree.top_down}
            split = str(samples.split[i])
            about = {"split": split, "labels": names, "key": name, "number": i}
            place = _add(tar, f"{key}{end}", data)
            _add(tar, f"{key}.json", json.dumps(about, ensure_ascii=False).encode())
            shard.add(name, i, split, label.tolist(), place)
    shard.bytes = file.stat().st_size
    return shard


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> TarMember:
    """Append a file without date and owner; returns its place."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    place = TarMember(Path(name), tar.offset + BLOCK, len(data))
    tar.addfile(info, io.BytesIO(data))
    return place


def _plain(key: str) -> str:
    """A key as part of a name in a tar: its end, with letters and digits only."""
    return re.sub(r"[^A-Za-z0-9-]+", "_", re.sub(r"\.\w+$", "", key))[-LONGEST:].strip("_")


def content(picture: Picture) -> tuple[str, bytes]:
    """Suffix and bytes of a picture: unchanged if the format is common, else converted to PNG."""
    data, end = picture.read(), picture.suffix
    if end in SUFFIXES or (end := _end_of(data)) in SUFFIXES:
        return end, data
    png = io.BytesIO()
    open_image(picture).save(png, format="PNG")
    return ".png", png.getvalue()


def _end_of(data: bytes) -> str:
    """The suffix that fits a picture's content."""
    with open_bytes(data) as image:
        return f".{(image.format or '').lower()}"
