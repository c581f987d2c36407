"""Twins: the same or nearly the same sample twice.

Pictures: equal bytes; or small grey versions, 16 × 16 and then 32 × 32, that correlate so highly that only a copy does. A
copy that was scaled or saved again does; two photographs of one scene do not. Features: rows that are nearly identical.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from torchlht.data.pictures import Picture, open_bytes, to_rgb
from torchlht.data.samples import Samples
from torchlht.errors import DataError

COARSE, FINE = 16, 32  # sides of the grey versions
ALIKE, SURE = 0.97, 0.985  # least correlation of each, set before anything was measured
FLAT = 2.0  # standard deviation of grey values below which a picture shows nothing to compare
PAIRS = 2**24  # similarities at a time
EQUAL = 1e-4  # squared distance of rows, over that of typical rows


@dataclass(frozen=True)
class Twin:
    """A pair of samples: their positions, how alike they are, from 0 to 1, and whether their bytes are the same."""

    first: int
    second: int
    alike: float
    exact: bool


def find_twins(samples: Samples, progress: Callable[[int, int], None] | None = None) -> list[Twin]:
    """All pairs of twins."""
    if samples.images is not None:
        return picture_twins(samples.images, progress)
    assert samples.features is not None
    return row_twins(torch.from_numpy(samples.features))


def row_twins(x: Tensor) -> list[Twin]:
    """Pairs of rows that are nearly identical. Along random directions, in which rows are sorted, twins are neighbours."""
    x = x.float() - x.float().mean(dim=0)
    typical = float(x.square().sum(dim=1).mean()) * 2
    ways = F.normalize(torch.randn(x.shape[1], 3, generator=torch.Generator().manual_seed(0)), dim=0)
    found: dict[tuple[int, int], float] = {}
    limit = (EQUAL * typical) ** 0.5
    for at in (x @ ways).T:
        values, order = at.sort()
        for step in range(1, 9):
            close = torch.nonzero(values[step:] - values[:-step] <= limit).squeeze(1)
            if not len(close):
                break
            a, b = order[close], order[close + step]
            for start in range(0, len(a), 2**16):
                one, other = a[start : start + 2**16], b[start : start + 2**16]
                far = (x[one] - x[other]).square().sum(dim=1) / max(typical, 1e-30)
                for i in torch.nonzero(far <= EQUAL).squeeze(1).tolist():
                    pair = sorted((int(one[i]), int(other[i])))
                    found[pair[0], pair[1]] = float(far[i])
    return [Twin(a, b, 1 - far, far == 0) for (a, b), far in sorted(found.items())]


def picture_twins(pictures: Sequence[Picture], progress: Callable[[int, int], None] | None = None) -> list[Twin]:
    """Pairs of pictures that show the same."""
    digests, small = [], torch.zeros(len(pictures), FINE * FINE)
    for i, picture in enumerate(pictures):
        digest, grey = _looked_at(picture)
        digests.append(digest)
        small[i] = torch.from_numpy(grey.ravel())
        if progress and i % 100 == 99:
            progress(i + 1, len(pictures))
    fine = standardised(small)
    halves = small.view(-1, 1, FINE, FINE)
    coarse = standardised(F.avg_pool2d(halves, FINE // COARSE).flatten(1))
    found = []
    for a, b in similar_pairs(coarse, ALIKE):
        exact = digests[a] == digests[b]
        alike = float(fine[a] @ fine[b])
        if exact or alike >= SURE:
            found.append(Twin(a, b, 1.0 if exact else alike, exact))
    seen = {(twin.first, twin.second) for twin in found}
    found += [Twin(a, b, 1.0, True) for a, b in _equal(digests) if (a, b) not in seen]
    return sorted(found, key=lambda twin: (twin.first, twin.second))


def _looked_at(picture: Picture) -> tuple[str, np.ndarray]:
    """A hash of a picture's bytes, and its small grey version."""
    try:
        data = picture.read()
        with open_bytes(data) as image:
            if image.format == "JPEG":
                image.draft("L", (4 * FINE, 4 * FINE))
                grey = image.convert("L") if image.mode == "L" else to_rgb(image).convert("L")
            else:
                grey = to_rgb(image).convert("L")
        return hashlib.sha256(data).hexdigest(), np.asarray(grey.resize((FINE, FINE), Image.Resampling.BOX), dtype=np.float32)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{picture}: {error}; remove it, or pass `on_error=skip`") from None


def standardised(values: Tensor) -> Tensor:
    """Rows with mean 0 and length 1, so that their product is a correlation; those that hardly vary become 0."""
    centred = values - values.mean(dim=1, keepdim=True)
    varies = centred.square().mean(dim=1, keepdim=True).sqrt() >= FLAT
    return torch.where(varies, F.normalize(centred, dim=1), 0.0)


def similar_pairs(rows: Tensor, least: float) -> Iterator[tuple[int, int]]:
    """Pairs of (N, d) unit rows whose product is at least `least`, a few rows at a time."""
    step = max(PAIRS // max(len(rows), 1), 1)
    for start in range(0, len(rows), step):
        alike = rows[start : start + step] @ rows[start:].T
        for a, b in torch.nonzero(alike >= least).tolist():
            if b > a:
                yield start + a, start + b


def _equal(digests: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Pairs of equal bytes: each with the first of its kind."""
    first: dict[str, int] = {}
    for i, digest in enumerate(digests):
        if digest in first:
            yield first[digest], i
        first.setdefault(digest, i)
