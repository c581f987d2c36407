"""Temperatures, one per level, from validation samples: so that of the answers given with 90 %, nine in ten are right.

A level that is a distribution becomes softmax(log p / τ); a level with a probability of its own for each class becomes
σ(logit(p) / τ), class by class. τ minimises the negative log-likelihood of the level's known labels (Guo et al., ICML 2017).
The most probable class of a level stays the same.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from torchlht.answer.risk import RiskCurve, risk_curve
from torchlht.answer.rollup import confidences
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.files import write_json
from torchlht.heads.prediction import Prediction
from torchlht.heads.rules import RULES, decide, find_rule
from torchlht.hierarchy.tree import Hierarchy

FILE = "calibration.json"
Kind = Literal["softmax", "sigmoid"]
FEW = 10  # labels of a level below which its probabilities are left as they are
WIDEST = 20.0  # temperatures are looked for from 1 / WIDEST to WIDEST
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Calibration:
    """What validation samples said about a model's probabilities.

    Attributes:
        temperatures: one per level, fine first; 1 where there were too few labels to tell.
        samples: how many labels each level had, fine first.
        kinds: per level, fine first, whether it is a distribution (`softmax`) or has a probability per class (`sigmoid`).
        risks: for each rule of answering, how often its answers are wrong at each threshold.
        source: which samples these were.
    """

    temperatures: tuple[float, ...]
    samples: tuple[int, ...]
    kinds: tuple[Kind, ...]
    risks: dict[str, RiskCurve] = field(default_factory=dict)
    source: str = ""

    def apply(self, prediction: Prediction) -> Prediction:
        """The same prediction with calibrated probabilities. Transitions, which led to other ones, are left out."""
        levels = zip(prediction.log_probs, self.temperatures, self.kinds, strict=True)
        return dataclasses.replace(prediction, log_probs=tuple(scaled(*level) for level in levels), transitions=())

    def threshold(self, risk: float, rule: str = "own", *, strict: bool = False) -> float:
        """The threshold that keeps the share of wrong answers under `risk`; see `RiskCurve.threshold`.

        Raises:
            ConfigError: when the rule is unknown or newer than this calibration, or the risk cannot be promised.
        """
        find_rule(rule)
        if rule not in self.risks:
            raise ConfigError(f"`risk` was not measured for `rule={rule}`, which is newer: run lht calibrate RUN again")
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
        """The inverse of `to_dict`. One kind for all levels, as it once was, is kept: risks were measured with it."""
        levels = values["levels"][::-1]
        return cls(
            temperatures=tuple(float(level["temperature"]) for level in levels),
            samples=tuple(int(level["samples"]) for level in levels),
            kinds=tuple(level["kind"] if "kind" in level else values["kind"] for level in levels),
            risks={rule: RiskCurve.from_dict(curve) for rule, curve in values["risk"].items()},
            source=values["source"],
        )

    def write(self, folder: Path, hierarchy: Hierarchy) -> None:
        """calibration.json."""
        write_json(folder / FILE, self.to_dict(hierarchy), indent=None)

    @classmethod
    def read(cls, folder: Path) -> Calibration | None:
        """The calibration of a run; None where it has none."""
        try:
            return cls.from_dict(json.loads((folder / FILE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{folder / FILE}: cannot be read ({error!r}); lht calibrate writes it anew") from error


def scaled(log_p: Tensor, temperature: float, kind: Kind) -> Tensor:
    """Log-probabilities at a temperature; at 1 as they are."""
    if temperature == 1:
        return log_p
    if kind == "softmax":
        return torch.log_softmax(log_p / temperature, dim=1)
    return F.logsigmoid(_logit(log_p) / temperature)


def _logit(log_p: Tensor) -> Tensor:
    """log p - log(1 - p), finite where p is 1 in float32."""
    below_one = log_p.clamp(max=-torch.finfo(log_p.dtype).eps)
    return log_p - torch.log(-torch.expm1(below_one))


def fit_calibration(prediction: Prediction, labels: Tensor, hierarchy: Hierarchy, *, source: str = "") -> Calibration:
    """Temperatures and risks from what a model said of samples that it was not trained on.

    Args:
        prediction: of all of them.
        labels: (n, K) fine first, -1 where unknown. Each level learns from its own labels; risks from all of them.
        hierarchy: the tree.
        source: what to call these samples.

    Raises:
        DataError: when there is nothing to learn from.
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
    """A curve for each rule, from the samples with any label."""
    some, found = (labels >= 0).any(dim=1).numpy(), {}
    for rule in RULES:
        decided = decide(calibrated, hierarchy, rule)
        confidence, chosen = confidences(decided).double().cpu().numpy(), decided.chosen().cpu().numpy()
        found[rule] = risk_curve(confidence[some], chosen[some], labels.numpy()[some], hierarchy)
    return found


def kinds_of(prediction: Prediction) -> tuple[Kind, ...]:
    """Per level `sigmoid` where the prediction says so or a row does not sum to one; else it is a distribution."""
    whole = [bool((torch.logsumexp(log_p, dim=1).abs() < 1e-3).all()) for log_p in prediction.log_probs]
    return tuple("softmax" if sums and k not in prediction.sigmoid else "sigmoid" for k, sums in enumerate(whole))


def temperature(log_p: Tensor, labels: Tensor, kind: Kind) -> float:
    """The temperature with the least negative log-likelihood of (n,) labels, those known, under (n, C) log-probabilities."""
    known = labels >= 0
    floor = log_p.detach().cpu()[known].double().clamp(min=-1e4)  # with a probability of 0 all would be infinitely bad
    truth = labels[known].unsqueeze(1)

    def cost(log_t: float) -> float:
        t = float(np.exp(log_t))
        if kind == "softmax":
            return -scaled(floor, t, kind).gather(1, truth).mean().item()
        logits = _logit(floor) / t
        return F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits).scatter(1, truth, 1.0)).item()

    span = float(np.log(WIDEST))
    return float(np.exp(minimize_scalar(cost, bounds=(-span, span), method="bounded", options={"xatol": 1e-4}).x))
