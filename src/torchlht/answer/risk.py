"""Conformal risk control (Angelopoulos et al., ICLR 2024): a threshold that keeps wrong answers under a share α.

n validation samples, exchangeable with those to come, are answered at every threshold λ of a fixed grid. W(λ) of them are
wrong, or would be at a higher threshold, which makes W fall as λ rises; N(λ) ≤ n are answered at all. The smallest λ is taken
with

    (W(λ) + B) / (N(λ) + 1)  ≤  α          B: the most that one sample can add to W

It is at least the λ of conformal risk control, which has n in the place of N, and so has its guarantee: in expectation over
validation samples and the next one, a wrong answer is given with a probability of at most α. Dividing by N aims at more: that
of the answers that *are* given at most a share α is wrong.

Many validation samples are labelled only down to some level, and an answer below it cannot be checked. Two ways of counting:

weighted  An answer that goes wrong at level j counts 1/π_j where the label of j is known, π_j being the share of samples with
          one: without bias, if which labels are missing does not depend on what a sample shows. B = 1/min π_j.
strict    An answer that cannot be checked counts as wrong. B = 1. It needs no assumption about missing labels.

Both hold. `weighted` says more unless α is so small that B takes much of it; then, or where it can promise nothing, `strict` is
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Fixed beforehand: 0, everything is answered; then even steps of log-odds from 0.007 to 0.99995; then above 1, nothing is.
GRID: Floats = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-5, 10, 301))), [2.0]]).astype(np.float32).astype(np.float64)
TAKEN = 0.25  # share of α that B may take before answers are counted strictly


@dataclass(frozen=True)
class RiskCurve:
    """How many of n validation samples are answered wrongly at each threshold of the grid.

    Attributes:
        samples: n.
        weighted: (G,) W with the wrong answers that can be checked standing for those that cannot.
        most: B of that; infinite where some level has no label at all.
        strict: (G,) W with all answers that cannot be checked counted as wrong.
        answered: (G,) N.
    """

    samples: int
    weighted: Floats
    most: float
    strict: Floats
    answered: Floats

    def threshold(self, risk: float, *, strict: bool = False) -> float:
        """The smallest threshold at which at most this share of answers is wrong.

        Args:
            risk: the share, α.
            strict: count answers that cannot be checked as wrong, whatever α.

        Raises:
            ConfigError: when the samples are too few to promise it at any threshold.
        """
        if not 0 < risk < 1:
            raise ConfigError(f"`risk` is {risk:g}: a share above 0 and below 1")
        small = self.most > TAKEN * risk * (self.samples + 1)
        for way in (True,) if strict or small else (False, True):
            holds = self._bound(way)[:-1] <= risk  # at the last threshold nothing is answered
            if holds.any():
                return float(GRID[int(holds.argmax())])
        lowest = self.lowest_risk()
        can = "nothing can be" if lowest is None else f"{lowest:.2g} is the least that can be"
        raise ConfigError(
            f"`risk={risk:g}` cannot be promised from {self.samples:,} validation samples, {can}: "
            "pass a higher `risk`, or run lht calibrate RUN DATA with more labelled samples"
        )

    def lowest_risk(self) -> float | None:
        """The least risk that can be promised; None where there is none below 1."""
        least = float(self._bound(strict=True)[:-1].min())
        return least if least < 1 else None

    def _bound(self, strict: bool) -> Floats:
        """(G,) the left side of the condition."""
        wrong, most = (self.strict, 1.0) if strict else (self.weighted, self.most)
        bound: Floats = (wrong + most) / (self.answered + 1)
        return bound

    def to_dict(self) -> dict[str, Any]:
        """Plain values; an infinite B is null."""
        return {
            "samples": self.samples,
            "weighted": self.weighted.round(6).tolist(),
            "most": self.most if np.isfinite(self.most) else None,
            "strict": self.strict.tolist(),
            "answered": self.answered.tolist(),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RiskCurve:
        """The inverse of `to_dict`."""
        arrays = {name: np.array(values[name], dtype=np.float64) for name in ("weighted", "strict", "answered")}
        if any(array.shape != GRID.shape for array in arrays.values()):
            raise ValueError(f"a risk curve has {len(GRID)} points")
        return cls(values["samples"], most=np.inf if values["most"] is None else values["most"], **arrays)


def risk_curve(confidence: Floats, chosen: Ints, labels: Ints, hierarchy: Hierarchy) -> RiskCurve:
    """From validation samples.

    Args:
        confidence: (n, K) probability of the class that a rule names at each level, fine first.
        chosen: (n, K) that class.
        labels: (n, K) the true ones, -1 where unknown; the ancestors of a known label are known.
        hierarchy: the tree.
    """
    shares = (labels >= 0).mean(axis=0)
    weighted, strict = losses(chosen, labels, hierarchy, shares)
    most = float(1 / shares.min()) if shares.min() > 0 else np.inf
    levels = _answer_levels(confidence)
    answered = (levels >= 0).sum(axis=0).astype(np.float64)
    return RiskCurve(len(labels), _total(weighted, levels), most, _total(strict, levels), answered)


def losses(chosen: Ints, labels: Ints, hierarchy: Hierarchy, shares: Floats) -> tuple[Floats, Floats]:
    """(n, K) what an answer at each level adds to W, weighted and strict."""
    weighted, strict = np.zeros(chosen.shape), np.zeros(chosen.shape)
    for k in range(len(hierarchy)):
        right_above = np.ones(len(chosen), dtype=bool)  # so far as known
        for j in reversed(range(k, len(hierarchy))):
            known = labels[:, j] >= 0
            wrong = known & (hierarchy.ancestors(j, of=k)[chosen[:, k]] != labels[:, j])
            if shares[j] > 0:
                weighted[:, k] += (right_above & wrong) / shares[j]
            right_above &= ~wrong
        strict[:, k] = ~right_above | (labels[:, k] < 0)
    return weighted, strict


def _answer_levels(confidence: Floats) -> Ints:
    """(n, G) the level that is answered at each threshold of the grid, -1 for none."""
    passes = confidence[:, None, :] >= GRID[:, None]  # (n, G, K)
    levels: Ints = np.where(passes.any(axis=2), passes.argmax(axis=2), -1)
    return levels


def _total(loss: Floats, levels: Ints) -> Floats:
    """(G,) Σ over samples of the largest loss at this threshold or any above it."""
    per_sample = np.where(levels >= 0, np.take_along_axis(loss, levels.clip(min=0), axis=1), 0.0)  # (n, G)
    falling = np.maximum.accumulate(per_sample[:, ::-1], axis=1)[:, ::-1]
    total: Floats = falling.sum(axis=0)
    return total
