"""What Python does with any finished run: measure, calibrate, export. A tree goes one way, a graph of classes another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchlht.answer.calibration import Calibration
from torchlht.answer.exported import write
from torchlht.answer.exported.graphs import WrittenGraph, export_graph
from torchlht.answer.facets import GraphCalibration
from torchlht.answer.finding import GRAPH
from torchlht.doors import entrance
from torchlht.errors import ConfigError
from torchlht.learn import training
from torchlht.learn.several import calibrate_several, evaluate_several
from torchlht.measure import evaluation


@entrance
def evaluate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str = "test",
    rule: str | None = None,
    confidences: Sequence[float] = (),
    risks: Sequence[float] = (),
    strict: bool = False,
    on_error: str = "refuse",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """The metrics of a run.

    Args:
        run: a run directory, or a model on the hub.
        data: the data to evaluate on, with the run's classes; its own by default.
        split: "test", "val", "train" or "all" of it. Other data without a test part is used entirely.
        rule: how answers are chosen; see `torchlht.heads.prediction`. By default the method's own way is measured, and under
            "consistent" what people are shown; "answers" are of the latter. Runs that answer with sets have none.
        confidences: measure answers rolled up to these probabilities, under "answers".
        risks: the same for these shares of wrong answers.
        strict: for `risks`, count validation answers that no label can check as wrong.
        on_error: "refuse" or "skip" unreadable pictures.
        workers: how many processes decode pictures.
        device: where to compute, on a tree: cpu, cuda, mps, or auto.

    Raises:
        LHTError: when there is no such run, or the data is not for it.
    """
    rolled: dict[str, Any] = {"confidences": confidences, "risks": risks, "strict": strict, "on_error": on_error}
    if not on_graph(run):
        return evaluation.evaluate(run, data, split=split, rule=rule, workers=workers, device=device, **rolled)
    if rule is not None:
        raise ConfigError("`rule` is for one label at each level; this run answers with sets of classes")
    return evaluate_several(run, data, split, **rolled)


@entrance
def calibrate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    on_error: str = "refuse",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Calibration | GraphCalibration:
    """Fit a run's calibration to labelled samples that it was not trained on, and save it in the run.

    Args:
        run: a run directory.
        data: the samples, with the run's classes; the run's own validation samples by default.
        split: "val", "test", "train" or "all" of it; val by default, or everything if the data has no validation part.
        on_error: "refuse" or "skip" unreadable pictures.
        workers: how many processes decode pictures.
        device: where to compute, on a tree: cpu, cuda, mps, or auto.

    Raises:
        LHTError: when there is no such run, or no such samples, or nothing is known about them.
    """
    if not on_graph(run):
        return training.calibrate(run, data, split=split, on_error=on_error, workers=workers, device=device)
    return calibrate_several(run, data, split, on_error=on_error)


@entrance
def export(
    run: str | Path,
    out: str | Path,
    *,
    to: write.Format | None = None,
    confidence: float | None = None,
    risk: float | None = None,
    strict: bool = False,
) -> write.Written | WrittenGraph:
    """Export a run to one file and check it against the run; an existing file is replaced.

    >>> export("runs/birds", "birds.onnx", confidence=0.9).difference
    3.6e-07

    Args:
        run: a finished run directory, or a model on the hub.
        out: the file, ending in .onnx or .pt2.
        to: `onnx` or `torch`; by the suffix of `out` if it is left out. Runs that answer with sets take `onnx` alone.
        confidence: store this threshold in the file.
        risk: store the threshold for this share of wrong answers in the file.
        strict: for `risk`, count validation answers that no label can check as wrong.

    Raises:
        RunError: when there is no such run, it cannot be exported, or the file gives other probabilities than the run.
        ConfigError: when the suffix is another, or the threshold cannot be promised.
        MissingExtraError: for ONNX without the extra `export`.
    """
    if not on_graph(run):
        return write.export(run, out, to=to, confidence=confidence, risk=risk, strict=strict)
    if to == "torch":
        raise ConfigError("`to=torch` needs classes with one parent each, and one label per sample; pass `to=onnx`")
    return export_graph(run, out, confidence=confidence, risk=risk, strict=strict)


def on_graph(run: str | Path) -> bool:
    """Whether a run answers with sets of classes."""
    return (Path(run) / GRAPH).is_file()
