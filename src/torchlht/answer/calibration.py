"""How sure an answer is, measured on validation samples: temperatures, roll-up to a threshold, thresholds for a risk.

Temperatures, one per level: nine in ten of the answers given with 90 % should be right.

A level that is a distribution becomes softmax(log p / τ); a level with an independent probability per class becomes
σ(logit(p) / τ), class by class. τ minimises the negative log-likelihood of the level's known labels (Guo et al., ICML 2017).
The most probable class of a level stays the same.

Roll-up: the deepest answer that is sure enough.

A rule names a class at every level. The answer is the finest of them whose probability reaches the threshold, with its
ancestors in the tree; raising the threshold moves it up, never down. If no class reaches it, there is no answer.
If the rule answers a path of the tree, as it does for people, a calibrated probability is capped at that of its parent
(`heads.prediction.monotone`), here and in answers. Files from before that were fitted without the cap. Their promises hold all
the same: a capped answer is the uncapped one or one of its ancestors, so it is wrong only where that is.

Conformal risk control (Angelopoulos et al., ICLR 2024): a threshold that limits the share of wrong answers to α.

n validation samples, exchangeable with future samples, are answered at every threshold λ of a fixed grid. W(λ) of them are
wrong at λ or at a higher threshold, so W falls as λ rises; N(λ) ≤ n have an answer at all. The threshold is the smallest λ
with

    (W(λ) + B) / (N(λ) + 1)  ≤  α          B: the most that one sample can add to W

It is at least the λ of conformal risk control, which has n in place of N, and so keeps its guarantee: in expectation over the
validation samples and the next one, the probability of a wrong answer is at most α. Dividing by N aims at more: that at most a
share α of the answers that *are* given is wrong.

Many validation samples are labelled only down to some level. An answer below it cannot be checked. There are two ways to count:

weighted  An answer that goes wrong at level j counts 1/π_j if the label of j is known; π_j is the share of samples with one.
          This is unbiased if missing labels do not depend on the content of a sample. B = 1/min π_j.
strict    An answer that cannot be checked counts as wrong. B = 1. It needs no assumption about missing labels.

Both hold. `weighted` promises more, unless α is so small that B takes much of it. Then, or if it can promise nothing, `strict`
is used.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.records import CalibrationRecord
from torchlht.doors import fit, read_json
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.files import write_json
from torchlht.heads.prediction import RULES, Prediction, answer_by, find_rule
from torchlht.hierarchy.tree import Hierarchy

FILE = "calibration.json"
Kind = Literal["softmax", "sigmoid"]
FEW = 10  # a level with fewer labels keeps its probabilities
WIDEST = 20.0  # temperatures are searched from 1 / WIDEST to WIDEST
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """Temperatures and risks of a model, fitted to validation samples.

    Attributes:
        temperatures: one per level, fine first; 1 if there were too few labels.
        samples: how many labels each level had, fine first.
        kinds: per level, fine first, `softmax` if it is a distribution, `sigmoid` if each class has its own probability.
        risks: for each rule of answering, how often its answers are wrong at each threshold.
        source: name of the validation samples.
    """

    temperatures: tuple[float, ...]
    samples: tuple[int, ...]
    kinds: tuple[Kind, ...]
    risks: dict[str, RiskCurve] = field(default_factory=dict)
    source: str = ""

    def __repr__(self) -> str:
        temperatures = ", ".join(f"{value:.2f}" for value in self.temperatures)
        return f"Calibration(temperatures, fine first: {temperatures}; from {max(self.samples)} samples)"

    def apply(self, prediction: Prediction) -> Prediction:
        """The prediction with calibrated probabilities, without transitions, which belong to the uncalibrated ones."""
        levels = zip(prediction.log_probs, self.temperatures, self.kinds, strict=True)
        return dataclasses.replace(prediction, log_probs=tuple(scaled(*level) for level in levels), transitions=())

    def threshold(self, risk: float, rule: str = "own", *, strict: bool = False) -> float:
        """The threshold that limits the share of wrong answers to `risk`; see `RiskCurve.threshold`.

        Raises:
            ConfigError: when the rule is unknown or newer than this calibration, or the risk cannot be promised.
        """
        find_rule(rule)
        if rule not in self.risks:
            raise ConfigError(f"`risk` was not measured for `rule={rule}`: run lht calibrate RUN again")
        return self.risks[rule].threshold(risk, strict=strict)

    # ---- keeping ---------------------------------------------------------------------------------------------------

    def to_dict(self, hierarchy: Hierarchy) -> dict[str, Any]:
        """Plain values: levels coarse → fine."""
        columns = zip(hierarchy.levels, self.kinds, self.temperatures, self.samples, strict=True)
        levels = [dict(zip(("name", "kind", "temperature", "samples"), level, strict=True)) for level in columns][::-1]
        risks = {rule: curve.to_dict() for rule, curve in self.risks.items()}
        return {"source": self.source, "levels": levels, "risk": risks}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Calibration:
        """The inverse of `to_dict`. Older files have one kind for all levels; it is kept, as risks were measured with it."""
        levels = values["levels"][::-1]
        return cls(
            temperatures=tuple(float(level["temperature"]) for level in levels),
            samples=tuple(int(level["samples"]) for level in levels),
            kinds=tuple(level["kind"] if "kind" in level else values["kind"] for level in levels),
            risks={rule: RiskCurve.from_dict(curve) for rule, curve in values["risk"].items()},
            source=values["source"],
        )

    def write(self, folder: Path, hierarchy: Hierarchy) -> None:
        """Write calibration.json."""
        write_json(folder / FILE, self.to_dict(hierarchy), indent=None)

    @classmethod
    def read(cls, folder: Path, hierarchy: Hierarchy | None = None) -> Calibration | None:
        """The calibration of a run, or None. Raises RunError if it is damaged, or about other levels than the tree's."""
        path = folder / FILE
        try:
            values = read_json(path, dict[str, Any], RunError)
            record = fit(values, CalibrationRecord, str(path), RunError)
        except FileNotFoundError:
            return None
        except RunError as error:
            raise RunError(f"{error}; write it again with lht calibrate") from error
        if hierarchy and [level.name for level in record.levels] != list(reversed(hierarchy.levels)):
            raise RunError(f"{path}: belongs to another run with other levels; write it again with lht calibrate")
        try:
            return cls.from_dict(values)
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: cannot be read ({error!r}); write it again with lht calibrate") from error


def scaled(log_p: Tensor, temperature: float, kind: Kind) -> Tensor:
    """Log-probabilities at a temperature; unchanged at 1."""
    if temperature == 1:
        return log_p
    if kind == "softmax":
        return torch.log_softmax(log_p / temperature, dim=1)
    return F.logsigmoid(_logit(log_p) / temperature)


def _logit(log_p: Tensor) -> Tensor:
    """log p - log(1 - p), finite also if p is 1 in float32."""
    below_one = log_p.clamp(max=-torch.finfo(log_p.dtype).eps)
    return log_p - torch.log(-torch.expm1(below_one))


def fit_calibration(prediction: Prediction, labels: Tensor, hierarchy: Hierarchy, *, source: str = "") -> Calibration:
    """Fit temperatures and risks to a model's predictions for samples that it was not trained on.

    Args:
        prediction: predictions for all samples.
        labels: (n, K) fine first, -1 where unknown. A level's temperature is fitted to its own labels, risks to all labels.
        hierarchy: the tree.
        source: name of these samples.

    Raises:
        DataError: when there are no labels.
    """
    labels = labels.cpu()
    if not (labels >= 0).any():
        raise DataError("no sample to calibrate on has a label")
    kinds, counts = kinds_of(prediction), tuple((labels >= 0).sum(dim=0).tolist())
    levels = zip(prediction.log_probs, labels.unbind(1), kinds, counts, strict=True)
    temperatures = tuple(temperature(log_p, y, kind) if n >= FEW else 1.0 for log_p, y, kind, n in levels)
    found = Calibration(temperatures, counts, kinds, {}, source)
    return dataclasses.replace(found, risks=_risks(found.apply(prediction), labels, hierarchy))


def _risks(calibrated: Prediction, labels: Tensor, hierarchy: Hierarchy) -> dict[str, RiskCurve]:
    """A risk curve for each rule, from the samples with any label."""
    some, found = (labels >= 0).any(dim=1).numpy(), {}
    for rule in RULES:
        decided = answer_by(calibrated, hierarchy, rule)
        confidence, chosen = confidences(decided).double().cpu().numpy(), decided.chosen().cpu().numpy()
        found[rule] = risk_curve(confidence[some], chosen[some], labels.numpy()[some], hierarchy)
    return found


def kinds_of(prediction: Prediction) -> tuple[Kind, ...]:
    """Per level: `sigmoid` if the prediction says so or a row does not sum to one, else `softmax`."""
    whole = [bool((torch.logsumexp(log_p, dim=1).abs() < 1e-3).all()) for log_p in prediction.log_probs]
    return tuple("softmax" if sums and k not in prediction.sigmoid else "sigmoid" for k, sums in enumerate(whole))


def temperature(log_p: Tensor, labels: Tensor, kind: Kind) -> float:
    """The temperature with the least negative log-likelihood of known labels (n,) under log-probabilities (n, C)."""
    from scipy.optimize import minimize_scalar  # takes a third of a second to import

    known = labels >= 0
    floor = log_p.detach().cpu()[known].double().clamp(min=-1e4)  # with a probability of 0 every cost is infinite
    truth = labels[known].unsqueeze(1)

    def cost(log_t: float) -> float:
        t = float(np.exp(log_t))
        if kind == "softmax":
            return -scaled(floor, t, kind).gather(1, truth).mean().item()
        logits = _logit(floor) / t
        return F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits).scatter(1, truth, 1.0)).item()

    span = float(np.log(WIDEST))
    return float(np.exp(minimize_scalar(cost, bounds=(-span, span), method="bounded", options={"xatol": 1e-4}).x))


# ---- risk ----------------------------------------------------------------------------------------------------------

# Fixed in advance: 0 answers everything; then even steps of log-odds from 0.007 to 0.99995; the last, above 1, answers nothing.
GRID: Floats = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(-5, 10, 301))), [2.0]]).astype(np.float32).astype(np.float64)
TAKEN = 0.25  # share of α that B may take before answers are counted strictly


@dataclass(frozen=True)
class RiskCurve:
    """The number of wrong answers among n validation samples, at each threshold of the grid.

    Attributes:
        samples: n.
        weighted: (G,) W, where wrong answers that can be checked also count for those that cannot.
        most: B of `weighted`; infinite if some level has no label.
        strict: (G,) W, where answers that cannot be checked count as wrong.
        answered: (G,) N.
    """

    samples: int
    weighted: Floats
    most: float
    strict: Floats
    answered: Floats

    def threshold(self, risk: float, *, strict: bool = False) -> float:
        """The smallest threshold with at most this share of wrong answers.

        Args:
            risk: the share, α.
            strict: always count answers that cannot be checked as wrong.

        Raises:
            ConfigError: when there are too few samples to promise it at any threshold.
        """
        if not 0 < risk < 1:
            raise ConfigError(f"`risk` is {risk:g}: it must be a share above 0 and below 1")
        small = self.most > TAKEN * risk * (self.samples + 1)
        for way in (True,) if strict or small else (False, True):
            holds = self._bound(way)[:-1] <= risk  # at the last threshold nothing is answered
            if holds.any():
                return float(GRID[int(holds.argmax())])
        lowest = self.least_said(strict=strict)
        can = "nothing can" if lowest is None else f"only {lowest:g} or more can"
        raise ConfigError(
            f"`risk={risk:g}` cannot be promised from {self.samples:,} validation samples, {can}: "
            "pass a higher `risk`, or run lht calibrate RUN DATA with more labelled samples"
        )

    def lowest_risk(self, *, strict: bool = False) -> float | None:
        """The least risk for which there is a `threshold`; None if there is none below 1."""
        least = float(self._bound(strict=True)[:-1].min())
        if not strict:
            enough = self.most / (TAKEN * (self.samples + 1))  # B takes no more than its share of such an α
            least = min(least, max(float(self._bound(strict=False)[:-1].min()), enough))
        return least if least < 1 else None

    def least_said(self, *, strict: bool = False) -> float | None:
        """`lowest_risk` with two digits, rounded up, so that what is said can be promised; None if that is not below 1."""
        lowest = self.lowest_risk(strict=strict)
        if lowest is None:
            return None
        said = Decimal(lowest).normalize(Context(prec=2, rounding=ROUND_CEILING))
        return float(said) if said < 1 else None

    def _bound(self, strict: bool) -> Floats:
        """(G,) the left side of the condition at each threshold."""
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
    """Count wrong answers on validation samples.

    Args:
        confidence: (n, K) probability of the class that a rule chooses at each level, fine first.
        chosen: (n, K) that class.
        labels: (n, K) the true classes, -1 where unknown; the ancestors of a known label are known.
        hierarchy: the tree.
    """
    shares = (labels >= 0).mean(axis=0)
    weighted, strict = losses(chosen, labels, hierarchy, shares)
    most = float(1 / shares.min()) if shares.min() > 0 else np.inf
    levels = _answer_levels(confidence)
    answered = (levels >= 0).sum(axis=0).astype(np.float64)
    return RiskCurve(len(labels), _total(weighted, levels), most, _total(strict, levels), answered)


def losses(chosen: Ints, labels: Ints, hierarchy: Hierarchy, shares: Floats) -> tuple[Floats, Floats]:
    """What an answer at each level adds to W: (n, K) weighted and (n, K) strict."""
    weighted, strict = np.zeros(chosen.shape), np.zeros(chosen.shape)
    for k in range(len(hierarchy)):
        right_above = np.ones(len(chosen), dtype=bool)  # as far as known
        for j in reversed(range(k, len(hierarchy))):
            known = labels[:, j] >= 0
            wrong = known & (hierarchy.ancestors(j, of=k)[chosen[:, k]] != labels[:, j])
            if shares[j] > 0:
                weighted[:, k] += (right_above & wrong) / shares[j]
            right_above &= ~wrong
        strict[:, k] = ~right_above | (labels[:, k] < 0)
    return weighted, strict


def _answer_levels(confidence: Floats) -> Ints:
    """(n, G) the level answered at each threshold of the grid, -1 for none."""
    passes = confidence[:, None, :] >= GRID[:, None]  # (n, G, K)
    levels: Ints = np.where(passes.any(axis=2), passes.argmax(axis=2), -1)
    return levels


def _total(loss: Floats, levels: Ints) -> Floats:
    """(G,) Σ over samples of the largest loss at this threshold or any above it."""
    per_sample = np.where(levels >= 0, np.take_along_axis(loss, levels.clip(min=0), axis=1), 0.0)  # (n, G)
    falling = np.maximum.accumulate(per_sample[:, ::-1], axis=1)[:, ::-1]
    total: Floats = falling.sum(axis=0)
    return total


# ---- roll-up -------------------------------------------------------------------------------------------------------

UNDECIDED = -1  # stands for a class or level where there is no answer


def confidences(prediction: Prediction) -> Tensor:
    """(B, K) the probability of the class chosen at each level, fine first."""
    chosen = prediction.chosen()
    picked = [log_p.gather(1, chosen[:, k : k + 1]) for k, log_p in enumerate(prediction.log_probs)]
    return torch.cat(picked, dim=1).exp()


def answer_levels(confidence: Tensor, threshold: float) -> Tensor:
    """(B,) the finest level whose (B, K) confidence reaches the threshold; `UNDECIDED` if none does."""
    passes = confidence >= threshold
    return torch.where(passes.any(dim=1), passes.int().argmax(dim=1), UNDECIDED)  # argmax: the first, so the finest


def rolled_up(chosen: Tensor, levels: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B, K) the class answered at `levels` and its ancestors; `UNDECIDED` below it.

    Args:
        chosen: (B, K) the class that a rule chooses at each level; they need not be on one path.
        levels: (B,) from `answer_levels`.
        hierarchy: the tree.
    """
    answers = torch.full_like(chosen, UNDECIDED)
    for k in range(len(hierarchy)):
        if k:
            up = torch.as_tensor(hierarchy.parents[k - 1].copy(), device=chosen.device)
            below = answers[:, k - 1]
            answers[:, k] = torch.where(below >= 0, up[below.clamp(min=0)], UNDECIDED)
        here = levels == k
        answers[here, k] = chosen[here, k]
    return answers
