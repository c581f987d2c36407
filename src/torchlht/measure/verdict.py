"""Which differences between methods exceed noise, of seeds and of test samples: one test for all of them, and its words."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Verdict:
    """The best of several methods compared with each other one, paired over seeds and test samples.

    Attributes:
        where: what was compared, such as "90% masked, species".
        best: the method with the best mean.
        ahead: methods it is ahead of by more than noise, with the difference, the smallest first.
        level: methods it is not shown to differ from, in the same form.
        half: half-width of the simultaneous 95 % interval of each difference; NaN when there is no noise to judge by.
        seeds: number of seeds.
        samples: number of test samples; None if their noise is not counted.
        unit: unit of the differences.
    """

    where: str
    best: str
    ahead: dict[str, float]
    level: dict[str, float]
    half: dict[str, float]
    seeds: int
    samples: int | None = None
    unit: str = "points"

    def text(self, limit: int | None = None) -> str:
        """The verdict in words; long lists are cut to `limit` names."""
        if any(math.isnan(half) for half in self.half.values()):
            return f"{self.where}: {self.best} before {self._listed(self.level, limit)}, in one seed: no spread, nothing shown."
        parts = [f"winner {self.best}." if not self.level else "no difference shown at the top."]
        if self.level:
            parts.append(f"{self.best} is not shown to differ from {self._listed(self.level, limit)}.")
        if self.ahead:
            parts.append(f"{self.best} is ahead of {self._listed(self.ahead, limit)}: shown.")
        return f"{self.where}: {' '.join(parts)} (± in {self.unit}, from {self.covers()})"

    def covers(self) -> str:
        """What the intervals cover."""
        if self.samples is None:
            return f"{self.seeds} seeds alone: which test samples there are is not counted"
        samples = f"{self.samples:,} test samples"
        if self.seeds == 1:
            return f"{samples} alone: what another seed would give is not counted"
        return f"{self.seeds} seeds and {samples}"

    def _listed(self, gaps: dict[str, float], limit: int | None) -> str:
        """marginal (0.1 ± 0.9), multihead (4.5 ± 1.2) and 3 others (up to 7.6)."""
        known = {name: "" if math.isnan(half) else f" ± {half:.1f}" for name, half in self.half.items()}
        items = [f"{name} ({gap:.1f}{known[name]})" for name, gap in gaps.items()]
        if limit and len(items) > limit:
            items = [*items[: limit - 1], f"{len(items) - limit + 1} others (up to {max(gaps.values()):.1f})"]
        return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def tell_apart(
    where: str,
    scores: Mapping[str, Sequence[float]],
    better: Literal["higher", "lower"] = "higher",
    unit: str = "points",
    outcomes: NDArray[np.float64] | None = None,
) -> Verdict:
    """Compare the best method with each other one.

    Args:
        where: what is compared.
        scores: for each method a figure per seed, the same seeds for all.
        better: whether higher or lower figures are better.
        unit: unit of the differences.
        outcomes: (methods, seeds, samples) the same figures sample by sample; see `half_widths`. Without them, seeds alone
            are counted.
    """
    names = list(scores)
    table = np.array([scores[name] for name in names])  # (methods, seeds)
    means = table.mean(axis=1) if better == "higher" else -table.mean(axis=1)
    best = int(means.argmax())
    counted = outcomes is not None and outcomes.shape[2] > 1
    halves = half_widths(outcomes)[best] if outcomes is not None and counted else np.full(len(names), interval(table))
    order = sorted((i for i in range(len(names)) if i != best), key=lambda i: -means[i])
    gaps = {names[i]: float(means[best] - means[i]) for i in order}
    half = {names[i]: float(halves[i]) for i in order}
    ahead = {name: gap for name, gap in gaps.items() if gap > half[name]}
    level = {name: gap for name, gap in gaps.items() if name not in ahead}
    samples = outcomes.shape[2] if outcomes is not None and counted else None
    return Verdict(where, names[best], ahead, level, half, table.shape[1], samples, unit)


def half_widths(outcomes: NDArray[np.float64]) -> NDArray[np.float64]:
    """(methods, methods) half-widths of simultaneous 95 % intervals of the differences of means, over seeds and samples.

    Seeds and samples are crossed and both are random: every seed is tested on the same samples. The variance of a difference
    has a part from samples, of the pair itself (two methods that answer alike differ by little noise), and a part from seeds,
    pooled over methods, as there are few seeds (it assumes that methods are about equally noisy over seeds). The chance that a
    sample turns out differently in another training is in both. The critical value is that of the studentized range, so that
    the best of many does not win by luck; it lies between the one for samples and the one for few seeds, by their shares of
    the variance (Cochran). With few degrees of freedom, what was counted twice is not taken off entirely: an estimate that
    happens to be small would leave too little. `benchmarks/coverage.md` shows how often these intervals hold.

    Args:
        outcomes: (methods, seeds, samples), such as 1 for right and 0 for wrong; at least two samples.
    """
    methods, seeds, samples = outcomes.shape
    over_seeds = outcomes.mean(axis=1)  # (methods, samples)
    covariance = np.cov(over_seeds)
    of_samples = (np.diag(covariance)[:, None] + np.diag(covariance) - 2 * covariance) / samples
    one = np.ptp(outcomes) / samples  # what a single sample can change
    of_samples = np.maximum(of_samples, one**2)
    critical = widest(methods, samples - 1)
    if seeds == 1:
        return np.asarray(critical * np.sqrt(of_samples / 2))
    freedom = (methods - 1) * (seeds - 1)
    rest = outcomes - over_seeds[:, None]
    rest -= rest.mean(axis=0)
    rest -= rest.mean(axis=2, keepdims=True)
    twice = (rest**2).sum() / (freedom * (samples - 1) * samples)
    few = freedom / (freedom + 1)
    of_seeds = 2 * max(0.0, noise(outcomes.mean(axis=2)) - few * twice) / seeds
    variance = of_samples + of_seeds
    share = of_seeds / np.where(variance > 0, variance, 1)
    return np.asarray((critical + (widest(methods, freedom) - critical) * share) * np.sqrt(variance / 2))


def interval(table: NDArray[np.float64]) -> float:
    """Half-width of the simultaneous 95 % interval of a difference of means over seeds alone: Tukey's test in blocks.

    Methods are treatments, seeds (with their masks) are blocks. Effects of a seed on all methods alike cancel. The rest is
    pooled over methods into one estimate of noise. With two methods it is the paired t interval. It does not cover the choice
    of test samples.

    Args:
        table: (methods, seeds) figures.

    Returns:
        NaN when there is no noise to judge by.
    """
    methods, seeds = table.shape
    freedom = (methods - 1) * (seeds - 1)
    return widest(methods, freedom) * math.sqrt(noise(table) / seeds) if freedom else math.nan


def noise(table: NDArray[Any]) -> float:
    """The variance of a (methods, seeds) table beyond effects of methods and of seeds."""
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0, keepdims=True) + table.mean()
    return float((rest**2).sum() / ((table.shape[0] - 1) * (table.shape[1] - 1)))


@functools.cache
def widest(methods: int, freedom: int) -> float:
    """The 95 % point of the range of this many equal means, in units of their noise."""
    from scipy.stats import studentized_range  # takes a second to import

    return float(studentized_range.ppf(0.95, methods, freedom))
