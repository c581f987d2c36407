"""Which differences between methods exceed seed noise: one test for all of them at once, and its result in words."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Verdict:
    """The best of several methods compared with each other one, paired over seeds.

    Attributes:
        where: what was compared, such as "90% masked, species".
        best: the method with the best mean.
        ahead: methods it is ahead of by more than seed noise, with the difference, the smallest first.
        level: methods it is not shown to differ from, in the same form.
        half: half-width of the simultaneous 95 % interval of a difference; NaN with a single seed.
        seeds: number of seeds.
        unit: unit of the differences.
    """

    where: str
    best: str
    ahead: dict[str, float]
    level: dict[str, float]
    half: float
    seeds: int
    unit: str = "points"

    def text(self, limit: int | None = None) -> str:
        """The verdict in words; long lists are cut to `limit` names."""
        if math.isnan(self.half):
            return f"{self.where}: {self.best} before {_listed(self.level, limit)}, in one seed: no spread, nothing shown."
        parts = [f"winner {self.best}." if not self.level else "no difference shown at the top."]
        if self.level:
            parts.append(f"{self.best} is not shown to differ from {_listed(self.level, limit)}.")
        if self.ahead:
            parts.append(f"{self.best} is ahead of {_listed(self.ahead, limit)}: shown.")
        return f"{self.where}: {' '.join(parts)} (± {self.half:.1f} {self.unit}; {self.seeds} seeds, paired)"


def _listed(gaps: dict[str, float], limit: int | None) -> str:
    """marginal (0.1), multihead (4.5) and 3 others (up to 7.6)."""
    items = [f"{name} ({gap:.1f})" for name, gap in gaps.items()]
    if limit and len(items) > limit:
        items = [*items[: limit - 1], f"{len(items) - limit + 1} others (up to {max(gaps.values()):.1f})"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def tell_apart(
    where: str, scores: Mapping[str, Sequence[float]], better: Literal["higher", "lower"] = "higher", unit: str = "points"
) -> Verdict:
    """Tukey's test in blocks: methods are treatments, seeds (with their masks) are blocks.

    Effects of a seed on all methods alike cancel. The rest is pooled over methods into one estimate of noise. The interval
    covers all differences between methods at once, so that the best of many does not win by luck. With two methods it is the
    paired t interval. It assumes that methods are about equally noisy, and does not cover the choice of test samples.
    """
    names = list(scores)
    table = np.array([scores[name] for name in names])  # (methods, seeds)
    means = table.mean(axis=1) if better == "higher" else -table.mean(axis=1)
    best = names[int(means.argmax())]
    gaps = {name: float(means.max() - m) for name, m in sorted(zip(names, means, strict=True), key=lambda p: -p[1])}
    gaps.pop(best)
    half = interval(table)
    ahead = {name: gap for name, gap in gaps.items() if gap > half}
    return Verdict(where, best, ahead, {n: g for n, g in gaps.items() if n not in ahead}, half, table.shape[1], unit)


def interval(table: np.ndarray[Any, Any]) -> float:
    """Half-width of the simultaneous 95 % interval of a difference of means; NaN when there is no noise to judge by."""
    methods, seeds = table.shape
    freedom = (methods - 1) * (seeds - 1)
    if not freedom:
        return math.nan
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0, keepdims=True) + table.mean()
    noise = math.sqrt((rest**2).sum() / freedom)
    return widest(methods, freedom) * noise / math.sqrt(seeds)


@functools.cache
def widest(methods: int, freedom: int) -> float:
    """The 95 % point of the range of this many equal means, in units of their noise."""
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(0.95, methods, freedom))
