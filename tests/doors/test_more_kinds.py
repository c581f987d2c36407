"""Damaged files of other tools' formats are read or refused with one sentence: no other exception, and no crash."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kinds import bird_rows, write_archive, write_inat, write_parquet, write_saved
from torchlht.data.pictures import find_problems
from torchlht.data.samples import read_data
from torchlht.errors import LHTError

FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "parquet": (lambda folder: write_parquet(folder / "x.parquet", bird_rows(12)), ""),
    "arrow": (lambda folder: write_saved(folder / "saved", bird_rows(12)), "data-00000-of-00001.arrow"),
    "state": (lambda folder: write_saved(folder / "saved", bird_rows(12)), "state.json"),
    "coco": (lambda folder: write_inat(folder, 6), ""),
    "meta": (lambda folder: write_archive(folder / "export", 6), "meta.xml"),
    "observations": (lambda folder: write_archive(folder / "export", 6), "occurrence.txt"),
    "media": (lambda folder: write_archive(folder / "export", 6), "multimedia.txt"),
}


def damaged(data: bytes, luck: random.Random) -> bytes:
    """Some bytes changed, most near the end, where formats keep what is where; or the end cut off."""
    found = bytearray(data)
    for _ in range(luck.choice((1, 3, 20))):
        far = luck.random() < 0.5
        place = luck.randrange(len(found)) if far else max(0, len(found) - 1 - luck.randrange(min(3000, len(found))))
        found[place] = luck.choice((0, 255, 127, 34, 44, 123, found[place] ^ 1 << luck.randrange(8)))
    return bytes(found[: luck.randrange(1, len(found))] if luck.random() < 0.1 else found)


@pytest.mark.parametrize("kind", FILES)
def test_damaged_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    write, name = FILES[kind]
    place = write(tmp_path)
    file = place / name if name else place
    whole, refused = file.read_bytes(), 0
    for seed in range(80):
        file.write_bytes(damaged(whole, random.Random(seed)))
        try:
            find_problems(read_data(place).images or ())
        except (LHTError, OSError) as error:
            refused += bool(str(error))
    assert refused, "some damage is seen"


def test_pipes_and_folders_are_no_rows(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.parquet")
    (tmp_path / "y.parquet").mkdir()
    for name in ("x.parquet", "y.parquet", "z.parquet"):
        with pytest.raises(LHTError):
            read_data(tmp_path / name)
