"""Masks: hide fine labels on a share of the training samples, to measure what coarse labels are worth."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

import numpy as np

from torchlht.data.samples import Ints, Samples, draw
from torchlht.errors import ConfigError
from torchlht.vocabulary import Rounding


@dataclass(frozen=True)
class Mask:
    """Hide the `levels` finest labels of a share `ratio` of the training samples of each finest class.

    A function of the data, the ratio and the seed alone.

    Attributes:
        ratio: share R of samples whose fine labels are hidden, 0 to 1.
        levels: how many levels are hidden on them, counted from the finest.
        rounding: how many of n samples keep their label: `nominal` rounds n(1-R); `lht` takes int(n(1-R)) + 1 as the public
            LHT code does (794 instead of 599 on CUB at R = 0.9); `hrn` takes ceil(n(1-R)).
        minimum: labels kept in every class whatever the ratio.
        seed: which samples.
    """

    ratio: float = 0.0
    levels: int = 1
    rounding: Rounding = "nominal"
    minimum: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise ConfigError(f"`mask` is {self.ratio}: it is the share of fine labels to hide, from 0 to 1")
        if self.levels < 1:
            raise ConfigError(f"`mask_levels` is {self.levels}: hide at least 1 level")
        if self.minimum < 0:
            raise ConfigError(f"`mask_minimum` is {self.minimum}: it must not be negative")

    def kept_of(self, n: int) -> int:
        """How many of n samples of a class keep their fine label."""
        share = n * (1 - Fraction(str(self.ratio)))  # exact: 30 * (1 - 0.9) is 2.9999999999999996 in floating point
        if self.ratio == 0:
            return n
        count = {"nominal": floor(share + Fraction(1, 2)), "lht": floor(share) + 1, "hrn": ceil(share)}[self.rounding]
        return min(max(count, self.minimum), n)

    def apply(self, samples: Samples) -> tuple[Samples, Ints]:
        """The samples with labels hidden, and the positions of the training samples that keep their finest label."""
        depth = len(samples.hierarchy)
        if self.ratio and self.levels >= depth:
            raise ConfigError(
                f"`mask_levels={self.levels}` would hide everything: {samples.name} has {depth} levels and the coarsest stays"
            )
        known = np.flatnonzero((samples.split == "train") & (samples.labels[:, 0] >= 0))
        names = samples.hierarchy.classes[0]
        kept = draw(
            [samples.keys[i] for i in known],
            [names[samples.labels[i, 0]] for i in known],
            lambda _, n: self.kept_of(n),
            seed=self.seed,
            purpose="mask",
        )
        labels = samples.labels.copy()
        labels[known[~kept], : self.levels] = -1
        return dataclasses.replace(samples, labels=labels), known[kept]
