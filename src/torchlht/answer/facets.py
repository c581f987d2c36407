"""Answers in a graph of classes: sets of classes with all their ancestors, as deep on every facet as one can be sure.

A label implies its ancestors, so an answer is a closed set, and its deepest classes say the rest. With a threshold it holds
the classes whose probability reaches it; a higher threshold takes classes away and adds none. Of samples with one leaf each,
classes are taken from the most probable down, each only if some leaf lies below it and all taken before: so the classes of an
answer never exclude each other. Without a threshold such an answer is the most probable leaf.

Calibrated is with one temperature: of the softmax over leaves, fitted to the mass of the leaves still possible, or else of the
log-odds of every class. Thresholds for a risk are those of `calibration`; wrong is an answer that holds a class which is not
there. `weighted` counts samples whose labels are known throughout, 1/π times, with π their share; `strict` counts a class
that cannot be checked as wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.calibration import FILE, GRID, WIDEST, RiskCurve
from torchlht.answer.records import CurveRecord
from torchlht.doors import fit, read_json
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.files import write_json
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.hierarchy.graph import Graph, Labels

Scores = NDArray[np.float32]
Chosen = NDArray[np.bool_]
LEAST = float(GRID[1])
"""Classes that are less probable are never answered with a threshold."""
FORMAT = "torchlht-graph-calibration-1"


class Sure(msgspec.Struct, frozen=True):
    """From which probability on classes are answered, and what that promises; no threshold for the answer as it is."""

    threshold: float | None = None
    promise: str | None = None


def closed(chosen: Chosen, graph: Graph) -> Chosen:
    """Those chosen classes whose parents are all chosen, too: (N, nodes)."""
    found = chosen.copy()
    for node in graph.order:
        for parent in graph.parents[node]:
            found[:, node] &= found[:, parent]
    return found


def sure_classes(scores: Scores, graph: Graph, threshold: float, *, exclusive: bool) -> Chosen:
    """(N, nodes) the classes whose probability reaches a threshold; of exclusive ones, those that agree."""
    threshold = max(threshold, LEAST)
    reached: Chosen = scores >= threshold
    return closed(reached & agreeing(scores, graph, threshold) if exclusive else reached, graph)


def agreeing(scores: Scores, graph: Graph, least: float) -> Chosen:
    """(N, nodes) classes of at least this probability that agree: each leaves some leaf to all that are more probable."""
    below, taken = graph.leaves_below.T, np.zeros(scores.shape, dtype=bool)
    order = np.lexsort((np.broadcast_to(graph.levels, scores.shape), -scores))
    possible, rows = np.ones((len(scores), len(graph.leaves)), dtype=bool), np.arange(len(scores))
    for column in order[:, : int((scores >= least).sum(1).max(initial=0))].T:
        both = possible & below[column]
        agrees = both.any(1) & (scores[rows, column] >= least)
        possible[agrees] = both[agrees]
        taken[rows[agrees], column[agrees]] = True
    return taken


def likeliest(scores: Scores, graph: Graph) -> Chosen:
    """(N, nodes) the most probable leaf and its ancestors."""
    found: Chosen = graph.leaves_below[scores[:, graph.leaves].argmax(1)]
    return found


# ---- calibration -----------------------------------------------------------------------------------------------------


class GraphCalibrationRecord(msgspec.Struct):
    """calibration.json of a run on a graph."""

    format: str
    temperature: float
    samples: int
    risk: CurveRecord
    source: str = ""


@dataclass(frozen=True, repr=False)
class GraphCalibration:
    """A temperature, and how often answers are wrong at each threshold, from validation samples.

    Attributes:
        temperature: of the softmax over leaves, or of log-odds.
        samples: how many validation samples there were.
        risk: how often answers are wrong.
        source: name of these samples.
    """

    temperature: float
    samples: int
    risk: RiskCurve
    source: str = ""

    def __repr__(self) -> str:
        return f"GraphCalibration(temperature {self.temperature:.2f}; from {self.samples:,} samples)"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as calibration.json holds them."""
        values = {"format": FORMAT, "temperature": self.temperature, "samples": self.samples, "source": self.source}
        return values | {"risk": self.risk.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any], source: str) -> GraphCalibration:
        """The inverse of `to_dict`. Raises RunError when it is damaged."""
        record = fit(values, GraphCalibrationRecord, source, RunError)
        try:
            curve = RiskCurve.from_dict(values["risk"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{source}: cannot be read ({error!r}); write it again with lht calibrate") from error
        return cls(record.temperature, record.samples, curve, record.source)

    def write(self, folder: Path) -> None:
        """Write calibration.json."""
        write_json(folder / FILE, self.to_dict(), indent=None)

    @classmethod
    def read(cls, folder: Path) -> GraphCalibration | None:
        """The calibration of a run, or None. Raises RunError when it is damaged."""
        if not (folder / FILE).is_file():
            return None
        return cls.from_dict(read_json(folder / FILE, dict[str, Any], RunError), str(folder / FILE))


def fit_calibration(
    network: GraphNetwork, log_p: Tensor, labels: Labels, judged: Chosen, *, source: str = ""
) -> GraphCalibration:
    """Fit the temperature and the risks to samples that the network was not trained on.

    Args:
        network: it says what a temperature scales.
        log_p: (n, nodes) its log-probabilities.
        labels: (n, nodes) what is known.
        judged: (nodes,) the classes that count.
        source: name of these samples.

    Raises:
        DataError: when nothing is known about them.
    """
    known = (labels >= 0) & judged
    if not known.any():
        raise DataError("no sample to calibrate on has a label")
    y = torch.from_numpy(np.where(known, labels, np.int8(-1)))
    warm = _temperature(lambda t: network.surprise(network.rescaled(log_p, t), y))
    scores = network.rescaled(log_p, warm).exp().numpy()
    exclusive = network.args.exclusive
    return GraphCalibration(warm, len(labels), set_risks(scores, labels, network.graph, judged, exclusive=exclusive), source)


def _temperature(cost: Callable[[float], Tensor]) -> float:
    """The temperature of the least cost."""
    from scipy.optimize import minimize_scalar  # takes a third of a second to import

    span = float(np.log(WIDEST))
    found = minimize_scalar(
        lambda log_t: cost(float(np.exp(log_t))).item(), bounds=(-span, span), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))


def set_risks(scores: Scores, labels: Labels, graph: Graph, judged: Chosen, *, exclusive: bool) -> RiskCurve:
    """How often answers are wrong at each threshold.

    Args:
        scores: (n, nodes) calibrated probabilities.
        labels: (n, nodes) what is known.
        graph: the classes.
        judged: (nodes,) the classes that count.
        exclusive: whether each sample has one leaf.
    """
    usable = sure_classes(scores, graph, LEAST, exclusive=exclusive) & judged
    whole: Chosen = np.all(labels[:, judged] >= 0, axis=1)
    share = float(whole.mean()) if len(whole) else 0.0
    weighted, strict, answered = np.zeros(len(GRID)), np.zeros(len(GRID)), np.zeros(len(GRID))
    falling = np.zeros((2, len(scores)), dtype=bool)  # wrong at this threshold or any above it
    for i in reversed(range(len(GRID))):
        said = usable & (scores >= GRID[i])
        falling[0] |= (said & (labels == 0)).any(1) & whole
        falling[1] |= (said & (labels != 1)).any(1)
        weighted[i], strict[i], answered[i] = falling[0].sum() / max(share, 1e-12), falling[1].sum(), said.any(1).sum()
    return RiskCurve(len(scores), weighted, 1 / share if share else np.inf, strict, answered)


def sure(confidence: float | None, risk: float | None, calibration: GraphCalibration | None, *, strict: bool = False) -> Sure:
    """The threshold that is asked for. Raises ConfigError when a risk cannot be promised, or both are asked for."""
    if confidence is not None and risk is not None:
        raise ConfigError("`confidence` and `risk` both set a threshold: pass one of them")
    if confidence is not None:
        if not 0 <= confidence <= 1:
            raise ConfigError(f"`confidence` is {confidence:g}: it must be a probability from 0 to 1")
        return Sure(confidence, f"confidence {confidence:g}")
    if risk is None:
        return Sure()
    if calibration is None:
        raise ConfigError("`risk` needs a calibration: train with `val=0.2`, or run lht calibrate RUN DATA")
    return Sure(calibration.risk.threshold(risk, strict=strict), f"risk {risk:g}")
