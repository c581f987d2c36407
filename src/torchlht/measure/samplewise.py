"""What each test sample adds to the figures of a run on a graph of classes, kept beside its metrics.

From it one sees how far a figure depends on the samples, as from `Outcomes` of a run on a tree. The mean over samples is the
figure. Of a figure that is no mean, they are pseudo-values: the figure, plus N times its derivative by the weight of a sample.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import RunError
from torchlht.files import replacing
from torchlht.hierarchy.graph import Labels
from torchlht.measure.metrics import Spec
from torchlht.measure.outcomes import FILE

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Samplewise:
    """What each of N samples adds to the figures of a run.

    Attributes:
        digest: a hash of the samples' labels.
        figures: by the names of metrics, (N,); fewer if a metric looks at some samples only.
    """

    digest: str
    figures: Mapping[str, Values]

    def write(self, run: Path) -> None:
        """Write outcomes.npz."""
        arrays: dict[str, Any] = {"digest": np.array(self.digest), **self.figures}
        with replacing(run / FILE) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def read(cls, run: Path) -> Samplewise | None:
        """What a run directory has kept, or None. Raises RunError when the file is damaged."""
        if not (run / FILE).is_file():
            return None
        try:
            with (run / FILE).open("rb") as file, np.load(file, allow_pickle=False) as kept:
                figures = {name: kept[name].astype(np.float64) for name in kept.files if name != "digest"}
                return cls(str(kept["digest"]), figures)
        except (BadZipFile, EOFError, KeyError, ValueError, zlib.error) as error:
            raise RunError(f"{run / FILE}: damaged ({error}); remove it, and verdicts count seeds alone") from None

    def same_samples(self, other: object) -> bool:
        """Whether both are about the same samples."""
        return isinstance(other, Samplewise) and self.digest == other.digest

    def values(self, spec: Spec, level: int | None) -> Values | None:
        """What each sample adds to a metric of a run; None if that was not kept."""
        return self.figures.get(spec.name) if level is None else None


def digest_of(labels: Labels) -> str:
    """A hash of labels."""
    return hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest()


def area_values(labels: Labels, scores: NDArray[np.float32]) -> Values | None:
    """(N,) pseudo-values of the area under one precision-recall curve; None if nothing is there.

    The area is the mean, over all pairs of a sample and a class that is there, of the precision among the pairs that score at
    least as high. A sample moves it as one of these pairs, and as a right or wrong one above others.
    """
    rows, columns = np.nonzero(labels >= 0)
    there, own = labels[rows, columns] == 1, scores[rows, columns]
    if not there.any():
        return None
    order = np.argsort(-own, kind="stable")
    rows, there, own = rows[order], there[order].astype(np.float64), own[order]
    last = np.searchsorted(-own, -own, side="right") - 1  # of the pairs that score the same
    first = np.searchsorted(-own, -own, side="left")
    precision = np.cumsum(there)[last] / (last + 1)
    gain, loss = (np.cumsum(one[::-1])[::-1][first] for one in (there / (last + 1), there * precision / (last + 1)))
    area = float((there * precision).sum() / there.sum())
    slopes = (there * (precision + gain - area) - loss) / there.sum()
    return np.asarray(area + len(labels) * np.bincount(rows, slopes, minlength=len(labels)), dtype=np.float64)
