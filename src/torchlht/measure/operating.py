"""Operating points: at a threshold, how many answers are right, how deep they are and how much they tell.

Answering "bird" is always right; guessing species is always deep. The curve of one against the other shows what a model is
worth, and a user picks a point on it. Information is that of Deng et al. (CVPR 2012): a right answer that leaves m of n finest
classes possible tells log(n / m) of log n; a wrong answer or none tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.calibration import UNDECIDED, answer_levels, confidences, rolled_up
from torchlht.errors import DataError
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import only_real

Floats = NDArray[np.float64]
POINTS = 200


@dataclass(frozen=True)
class Decisions:
    """Answers to samples, without the probabilities of all classes, so they fit in memory for any tree.

    Attributes:
        chosen: (n, K) the class answered at each level, fine first.
        confidence: (n, K) its probability.
        labels: (n, K) the true classes, -1 where unknown.
    """

    chosen: Tensor
    confidence: Tensor
    labels: Tensor

    @classmethod
    def of(cls, prediction: Prediction, labels: Tensor) -> Decisions:
        """The decisions of a batch that is calibrated and decided."""
        return cls(prediction.chosen().cpu(), confidences(prediction).cpu(), labels.cpu())

    @classmethod
    def join(cls, parts: Sequence[Decisions]) -> Decisions:
        """Join the decisions of several batches."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("chosen", "confidence", "labels")))

    def known(self) -> Decisions:
        """Those whose finest label is known, so that an answer at any level can be checked."""
        rows = self.labels[:, 0] >= 0
        if not rows.any():
            raise DataError("no sample has a label at the finest level: answers cannot be checked; pass data that has some")
        return Decisions(self.chosen[rows], self.confidence[rows], self.labels[rows])


def operating_point(decisions: Decisions, hierarchy: Hierarchy, threshold: float) -> dict[str, Any]:
    """Measure answers at a threshold, on the samples whose finest label is known.

    Returns:
        threshold, samples; answered: share with an answer; error: share of the answers that are wrong; wrong: share of all
        samples with a wrong answer; depth: mean share of the levels answered; information: mean share of log C_1, with 0
        for a wrong answer; hierarchical_precision, _recall, _f1: over the classes on the answered path; severity: mean number
        of levels by which a wrong answer is too deep; levels, coarse → fine: share of samples answered there and the error of
        those. Where the branch of an answer ends, all levels are answered, and its level is that of the last class.
    """
    given = _answered(decisions.known(), hierarchy, threshold)
    levels, answers, truth, wrong = given.levels, given.answers, given.truth, given.wrong
    said, right = only_real(answers, hierarchy) != UNDECIDED, answers == truth
    hits, total, true = (right & said).sum().item(), said.sum().item(), (only_real(truth, hierarchy) != UNDECIDED).sum().item()
    too_deep = (said & ~right).sum(dim=1)
    return {
        "threshold": threshold,
        "samples": len(truth),
        "answered": _mean(levels != UNDECIDED),
        "error": _share(wrong, levels != UNDECIDED),
        "wrong": _mean(wrong),
        "depth": _mean(answers != UNDECIDED),
        "information": information(answers, wrong, hierarchy).mean().item(),
        "hierarchical_precision": hits / total if total else None,
        "hierarchical_recall": hits / true,
        "hierarchical_f1": 2 * hits / (total + true),
        "severity": too_deep[wrong].double().mean().item() if wrong.any() else None,
        "levels": [
            {"name": hierarchy.levels[k], "answered": _mean(levels == k), "error": _share(wrong & (levels == k), levels == k)}
            for k in hierarchy.top_down
        ],
    }


@dataclass(frozen=True)
class _Answers:
    """Answers at one threshold: the level of each, its path and the true one down to the finest level, whether it is wrong."""

    levels: Tensor
    answers: Tensor
    truth: Tensor
    wrong: Tensor


def _answered(decisions: Decisions, hierarchy: Hierarchy, threshold: float) -> _Answers:
    """Answers to samples whose whole path is known: reading data fills in the ancestors of a known finest class."""
    levels = answer_levels(decisions.confidence, threshold)
    answers = rolled_up(decisions.chosen, levels, hierarchy)
    differs = (answers != decisions.labels).gather(1, levels.clamp(min=0).unsqueeze(1)).squeeze(1)
    wrong = (levels != UNDECIDED) & differs
    if hierarchy.ragged:
        answers = torch.from_numpy(hierarchy.complete(answers.numpy()))
        real = only_real(answers, hierarchy) != UNDECIDED
        levels = torch.where(real.any(dim=1), real.int().argmax(dim=1), UNDECIDED)
    return _Answers(levels, answers, decisions.labels, wrong)


def _mean(flags: Tensor) -> float:
    return flags.double().mean().item()


def _share(part: Tensor, whole: Tensor) -> float | None:
    count = int(whole.sum())
    return int(part.sum()) / count if count else None


def information(answers: Tensor, wrong: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(n,) the share of log C_1 that (n, K) rolled-up answers tell: 1 for a finest class, 0 for none and where (n,) `wrong`."""
    total = float(np.log(hierarchy.sizes[0])) or 1.0
    found = torch.zeros(len(answers), dtype=torch.float64)
    for k in hierarchy.top_down:
        leaves = np.bincount(hierarchy.ancestors(k), minlength=hierarchy.sizes[k])
        told = torch.as_tensor(1 - np.log(leaves) / total)
        said = answers[:, k] != UNDECIDED
        found[said] = told[answers[said, k]]
    return found.masked_fill(wrong, 0.0)


@dataclass(frozen=True)
class OperatingCurve:
    """Operating points from answering everything to answering nothing, arrays of one length.

    Attributes:
        threshold: ascending, the last infinite.
        error: share of the answers that are wrong; NaN if there are no answers.
        wrong: share of all samples with a wrong answer.
        answered: share of samples with an answer.
        depth: mean share of the levels answered.
        information: mean share of the information, with 0 for a wrong answer.
        levels: (points, K) share of samples answered at each level, fine first.
    """

    threshold: Floats
    error: Floats
    wrong: Floats
    answered: Floats
    depth: Floats
    information: Floats
    levels: Floats


def operating_curve(decisions: Decisions, hierarchy: Hierarchy, points: int = POINTS) -> OperatingCurve:
    """About `points` operating points over the whole range of thresholds, spaced evenly over the confidences that occur."""
    known = decisions.known()
    seen = torch.unique(known.confidence).double().numpy()
    grid = np.quantile(seen, np.linspace(0, 1, points), method="nearest") if len(seen) > points else seen
    thresholds = np.concatenate([[0.0], grid[grid > 0], [np.inf]])
    rows = []
    for threshold in thresholds.tolist():
        given = _answered(known, hierarchy, threshold)
        error = _share(given.wrong, given.levels != UNDECIDED)
        rows.append(
            [
                np.nan if error is None else error,
                _mean(given.wrong),
                _mean(given.levels != UNDECIDED),
                _mean(given.answers != UNDECIDED),
                information(given.answers, given.wrong, hierarchy).mean().item(),
                *(_mean(given.levels == k) for k in range(len(hierarchy))),
            ]
        )
    table = np.array(rows, dtype=np.float64)
    error, wrong, answered, depth, told = table[:, :5].T
    return OperatingCurve(thresholds, error, wrong, answered, depth, told, table[:, 5:])
