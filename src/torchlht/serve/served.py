"""The models of a server, read again when their files change. Requests go on with the model that they began with."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import torch

from torchlht.answer.calibration import FILE as CALIBRATION
from torchlht.answer.exported.read import OnnxModel, read_exported
from torchlht.answer.finding import find_run, is_exported
from torchlht.answer.model import Model, Predictor
from torchlht.answer.novelty import FILE as NOVELTY
from torchlht.answer.records import CONFIG, TREE, WEIGHTS
from torchlht.data.pictures import state_of
from torchlht.errors import ConfigError, LHTError, suggestion

log = logging.getLogger("torchlht.serve")
LOOK = 1.0  # seconds between two looks at the files


def name_of(run: str) -> str:
    """The name that requests call a model by: birds for runs/birds and birds.onnx."""
    path = Path(run).resolve() if Path(run).is_dir() else Path(run)
    return path.stem if is_exported(run) else path.name


def read_model(run: str) -> Predictor:
    """The model of a run or an exported file, which must take pictures. Raises LHTError."""
    torch.set_num_threads(1)  # several batches at a time have a thread each
    model: Predictor
    if Path(run).suffix.lower() == ".onnx":
        model = OnnxModel.read(run, threads=1)
    else:
        model = read_exported(run) if is_exported(run) else Model.from_pretrained(run).eval()  # several threads look at once
    if model.preprocess is None:
        raise ConfigError(f"{run}: takes features; a server takes pictures")
    return model


def files_of(run: str) -> list[Path]:
    """The files whose change means another model."""
    if is_exported(run):
        return [Path(run)]
    return [find_run(run) / name for name in (CONFIG, TREE, WEIGHTS, CALIBRATION, NOVELTY)]


class Models:
    """The models by name, each the newest that could be read.

    Args:
        runs: run directories or exported files.
    """

    def __init__(self, runs: tuple[str, ...]) -> None:
        self.runs = {name_of(run): run for run in runs}
        if len(self.runs) < len(runs):
            raise ConfigError(f"two of {', '.join(runs)} have the same name: rename one of them")
        self.states = {name: self.state(name) for name in self.runs}
        self.models = {name: read_model(run) for name, run in self.runs.items()}
        self.loads = dict.fromkeys(self.runs, 1)
        self.failures = 0

    def get(self, name: str | None) -> Predictor:
        """A model by its name; the first without one. Raises ConfigError when there is none of that name."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise ConfigError(f"no model is called {name!r}: {suggestion(name, self.models)}")
        return self.models[name]

    def state(self, name: str) -> list[object]:
        """A value that changes with the files of a model."""
        return [state_of(file) for file in files_of(self.runs[name])]

    async def watch(self) -> None:
        """Read a model again when its files have changed, and have then stayed the same for a moment."""
        before = dict(self.states)
        while True:
            await asyncio.sleep(LOOK)
            for name in self.runs:
                now = self.state(name)
                if now != self.states[name] and now == before[name]:
                    await self.reload(name, now)
                before[name] = now

    async def reload(self, name: str, state: list[object]) -> None:
        """Read a model again; if it cannot be read, the one before goes on answering."""
        self.states[name] = state
        try:
            fresh = await asyncio.to_thread(read_model, self.runs[name])
        except (LHTError, OSError) as error:
            self.failures += 1
            log.warning("%s: cannot be read again, the model before goes on answering (%s)", self.runs[name], error)
            return
        self.models[name] = fresh
        self.loads[name] += 1
        log.warning("%s: read again", self.runs[name])

    async def reload_all(self) -> None:
        """Read every model again."""
        for name in self.runs:
            await self.reload(name, self.state(name))
