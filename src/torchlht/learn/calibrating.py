"""Calibrating a finished run: on validation samples, on other data, or by cross-validation on its own training samples."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import torch

from torchlht import console
from torchlht.answer.asking import ask_all, find_device, join
from torchlht.answer.calibration import Calibration, fit_calibration
from torchlht.answer.model import Model, read_config
from torchlht.errors import ConfigError
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.measure.evaluation import run_inputs


def calibrate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    on_error: str = "refuse",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Calibration:
    """Fit a run's calibration to labelled samples that it was not trained on, and save it in the run.

    Args:
        run: a run directory.
        data: the samples, with the run's classes; the run's own validation samples by default.
        split: "val", "test", "train" or "all" of it; val by default, or everything if the data has no validation part.
        on_error: "refuse" or "skip" unreadable pictures.
        workers: how many processes decode pictures.
        device: where to compute: cpu, cuda, mps, or auto.
    """
    folder = Path(run)
    inputs = run_inputs(folder, split or "val", data=data, on_error=on_error, calibrated=False)
    model = inputs.model.to(find_device(device))
    name = f"{split or 'val'} part of {'its own data' if data is None else Path(data).name}"
    found = fit_calibration(*ask_all(model, inputs.data, workers=workers), model.hierarchy, source=name)
    found.write(folder, model.hierarchy)
    return found


def cross_calibrate(run: str | Path, folds: int, *, quiet: bool = False) -> Calibration:
    """Fit a run's calibration to all of its training samples, each judged by a model that has not seen it, and save it.

    The run is trained again `folds` times with the same options, each time without one part. No label is lost to validation.
    The guarantee of risk control does not hold for the run itself: the models that are judged are not the one that answers.
    They have seen fewer samples, which usually makes promises cautious.

    Args:
        run: a run directory that set no validation samples aside.
        folds: number of parts, at least 2.
        quiet: show no progress.
    """
    folder = Path(run)
    args = TrainArgs.from_dict(read_config(folder)["train"])
    if folds < 2:
        raise ConfigError(f"`folds` is {folds}: it must be at least 2")
    if args.val or args.fold or args.select == "best":
        raise ConfigError(f"{folder}: this run has its own validation samples; run lht calibrate {folder} without `folds`")
    tree = Model.from_pretrained(folder, calibrated=False).hierarchy
    found, labels = [], []
    with tempfile.TemporaryDirectory() as place, console.counting("folds trained", folds, quiet=quiet) as count:
        for i in range(folds):
            out, fold = Path(place) / str(i), f"{i + 1}/{folds}"
            turn = dataclasses.replace(args, out=out, fold=fold, test=False, quiet=True, track=False)
            part = train(turn)
            inputs = run_inputs(part, "val", calibrated=False)
            prediction, truth = ask_all(inputs.model, inputs.data)
            found.append(prediction)
            labels.append(truth)
            count(i + 1, folds)
    calibration = fit_calibration(join(found), torch.cat(labels), tree, source=f"{folds} folds of its own training data")
    calibration.write(folder, tree)
    return calibration
