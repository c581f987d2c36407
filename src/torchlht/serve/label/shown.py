"""Pictures for the page, by number of the sample: decoded through the door and encoded anew, so nothing else gets through."""

from __future__ import annotations

import functools
import io

from PIL import Image

from torchlht.data.pictures import open_image
from torchlht.data.samples import Samples
from torchlht.errors import DataError

SIDES = {"small": 224, "large": 1024}
"""Longest side in pixels."""
KEPT = 3000
"""Small pictures that stay in memory: some 30 MB."""


class Shown:
    """The pictures of a dataset as JPEG."""

    def __init__(self, samples: Samples) -> None:
        self.images = samples.images
        self._small = functools.lru_cache(maxsize=KEPT)(lambda i: self._encoded(i, SIDES["small"]))

    def jpeg(self, i: int, size: str) -> bytes:
        """A picture. Raises DataError if there is none, or it cannot be read."""
        return self._small(i) if size == "small" else self._encoded(i, SIDES["large"])

    def _encoded(self, i: int, side: int) -> bytes:
        if self.images is None or not 0 <= i < len(self.images):
            raise DataError("no such picture")
        image = open_image(self.images[i])
        image.thumbnail((side, side), Image.Resampling.BILINEAR)
        file = io.BytesIO()
        image.save(file, format="JPEG", quality=85)
        return file.getvalue()
