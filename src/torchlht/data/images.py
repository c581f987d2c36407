"""Pictures: finding them, opening them, and finding out which cannot be opened before anything depends on it."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import json
import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from torchlht.data.packed import file_of, open_packed, split_address
from torchlht.data.places import as_url, state_of
from torchlht.data.samples import Samples
from torchlht.data.tars import SUFFIXES, member_at, read_member, tar_of
from torchlht.errors import DataError
from torchlht.files import cache_dir, write_json, write_text

UNREADABLE = (OSError, UnidentifiedImageError, ValueError, SyntaxError, Image.DecompressionBombError)


class Problem(NamedTuple):
    """A picture that cannot be used, and why."""

    path: str
    reason: str


def is_image(path: Path) -> bool:
    """Whether a file's name says it is a picture."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def images_in(folder: Path) -> list[Path]:
    """The pictures lying directly in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_image(path))


def open_image(path: Path, data: bytes | None = None) -> Image.Image:
    """A picture as RGB, the right way up. Raises DataError when it cannot be decoded.

    Args:
        path: its file; FILE#N is one of the many in a file, and SHARD.tar#OFFSET+SIZE one in a tar.
        data: the content of the file, where that has been read already.
    """
    if packed := split_address(path):
        return to_rgb(open_packed(*packed))
    source = _source(path) if data is None else io.BytesIO(data)
    try:  # torchvision's decoder gives the same bits and, with PIL's resize after it, is not faster
        with Image.open(source) as image:
            image.load()
            return to_rgb(image)
    except UNREADABLE as error:
        raise DataError(f"{path}: {_reason(error)}") from None


def _source(path: Path) -> Path | io.BytesIO:
    """What a picture is opened from: its file, or its bytes in a tar."""
    return io.BytesIO(read_member(member_at(path))[1]) if tar_of(path) else path


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB, the right way up; transparent parts over white, 16-bit grey scaled down, damaged orientation marks ignored."""
    with contextlib.suppress(SyntaxError, ValueError, KeyError, struct.error):
        image.load()  # a PNG's mark may come last
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied, as by `convert` below
            image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        return Image.fromarray((np.asarray(image).astype(np.int64) // 257).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, UnidentifiedImageError):
        return "not a picture that can be read"
    return str(error) or type(error).__name__


def _try_decode(path: Path) -> str | None:
    """Why a picture cannot be decoded, or None. JPEGs are decoded at an eighth of their size: all of the file is read."""
    try:
        if packed := split_address(path):
            open_packed(*packed)
            return None
        source = _source(path)
    except DataError as error:
        return str(error)
    try:
        with Image.open(source) as image:
            image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))
            image.load()
    except UNREADABLE as error:
        return _reason(error)
    return None


def find_problems(paths: Sequence[Path]) -> list[Problem]:
    """Every picture that cannot be decoded. The answer is kept, and asked again only when a file has changed."""
    digest = hashlib.sha256()
    files = [file_of(path) for path in paths]
    states = {file: f"{as_url(file) or file.resolve()}\0{state_of(file)}" for file in dict.fromkeys(files)}
    for path, file in zip(paths, files, strict=True):
        digest.update(f"{path.name}\0{states[file]}\n".encode())
    note = cache_dir() / "checked" / f"{digest.hexdigest()[:32]}.json"
    if note.is_file():
        return [Problem(*entry) for entry in json.loads(note.read_text())]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = list(pool.map(_try_decode, paths))
    problems = [Problem(str(path), reason) for path, reason in zip(paths, reasons, strict=True) if reason]
    write_json(note, problems)
    return problems


def check_images(samples: Samples, on_error: str) -> tuple[Samples, list[Problem]]:
    """Refuse a dataset with unreadable pictures, or go on without them when `on_error` is "skip"."""
    if samples.images is None or samples.checked:
        return samples, []
    problems = find_problems(samples.images)
    if problems and on_error != "skip":
        listed = cache_dir() / "problems.csv"
        write_problems(listed, problems)
        raise DataError(
            f"{samples.name}: {len(problems)} of {len(samples)} pictures cannot be read, the first is {problems[0].path} "
            f"({problems[0].reason}); all are listed in {listed}: mend or remove them, or pass `on_error=skip`"
        )
    bad = {problem.path for problem in problems}
    keep = np.array([i for i, path in enumerate(samples.images) if str(path) not in bad], dtype=np.int64)
    return (samples.select(keep) if problems else samples), problems


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """A CSV of the pictures that cannot be read."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("path", "reason"), *problems])
    write_text(path, text.getvalue())
