"""`CutPicture`: a part of a picture, cut out by a box."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from torchlht.data.pictures import PICTURE_BYTES, Picture, State, open_bytes, read_all, state_of, to_rgb
from torchlht.errors import DataError

HELD: Final = 4
"""Decoded pictures that are held: the boxes of one picture are usually asked for one after another."""


@dataclass(frozen=True, slots=True, order=True)
class CutPicture(Picture):
    """What lies in a box of a picture file, in pixels of the picture the right way up."""

    file: Path
    left: int
    top: int
    width: int
    height: int

    @property
    def part(self) -> str:
        """#LEFT,TOP,WIDTH,HEIGHT."""
        return f"#{self.left},{self.top},{self.width},{self.height}"

    def open(self) -> Image.Image:
        """The part that lies inside the picture. Raises DataError when nothing does."""
        whole = _whole(self.file, state_of(self.file))
        right, bottom = min(self.left + self.width, whole.width), min(self.top + self.height, whole.height)
        if right <= self.left or bottom <= self.top:
            raise DataError(f"{self}: the box is empty, or outside the picture of {whole.width} × {whole.height} pixels")
        return whole.crop((self.left, self.top, right, bottom))

    def read(self) -> bytes:
        """The part as PNG bytes."""
        png = io.BytesIO()
        self.open().save(png, format="PNG")
        return png.getvalue()


@functools.lru_cache(maxsize=HELD)
def _whole(file: Path, _state: State) -> Image.Image:
    """The whole picture, decoded."""
    with open_bytes(read_all(file, PICTURE_BYTES)) as image:
        return to_rgb(image)
