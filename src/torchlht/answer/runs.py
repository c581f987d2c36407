"""A run directory: what is in it, and how it is written so that a killed run can go on and a finished one is never half there.

config.yaml  hierarchy.json  split.json      written at the start
history.csv  checkpoint/                     after every epoch, checkpoint/ inside of epochs as well where that is asked for
model.safetensors  metrics.json              at the end, when checkpoint/ goes away
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlht.errors import RunError
from torchlht.files import replacing, write_json, write_text

History = list[dict[str, float]]


@dataclass(frozen=True)
class Run:
    """The files of one run, by name."""

    path: Path

    @property
    def metrics(self) -> Path:
        """Results on the test samples; written last, so its being there means the run has finished."""
        return self.path / "metrics.json"

    @property
    def split(self) -> Path:
        """Which samples were trained on, validated on and tested on, and whose fine labels were kept."""
        return self.path / "split.json"

    @property
    def config(self) -> Path:
        """What the model is made of, and the options it is trained with; written first."""
        return self.path / "config.yaml"

    @property
    def last(self) -> Path:
        """The state after the last whole epoch, or inside the one after it."""
        return self.path / "checkpoint" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights of the best epoch so far."""
        return self.path / "checkpoint" / "best.safetensors"

    def claim(self) -> None:
        """Refuse a directory that is in use."""
        if self.metrics.is_file():
            raise RunError(f"{self.path}: holds a finished run; choose another `out`, or remove it")
        if self.config.is_file():
            raise RunError(f"{self.path}: holds an unfinished run; continue it with lht train --resume {self.path}")
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise RunError(f"{self.path}: exists and is not empty; choose another `out`")

    def write_history(self, history: History) -> None:
        """history.csv, whole."""
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in history for name in row))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(history)
        write_text(self.path / "history.csv", text.getvalue())

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        """metrics.json; after it the run is finished and its checkpoints go."""
        write_json(self.metrics, metrics)
        shutil.rmtree(self.last.parent, ignore_errors=True)


def read_metrics(run: Path) -> dict[str, Any]:
    """The metrics of a finished run."""
    try:
        metrics: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{run}: no metrics.json; the run has not finished (lht train --resume {run})") from None
    return metrics


def read_split(run: Path) -> dict[str, Any]:
    """Which samples a run trained on, validated on and tested on, and whose fine labels it kept."""
    try:
        record: dict[str, Any] = json.loads((run / "split.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{run}: no split.json; it is not a run of lht train") from None
    return record


# ---- checkpoints: tensors and plain values, never pickle -----------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """What is kept besides weights and the optimizer's state.

    Attributes:
        history: a row per whole epoch.
        inside: plain values about the epoch that is not whole; None between epochs.
        more: tensors that training needs to go on.
    """

    history: History
    inside: dict[str, Any] | None = None
    more: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(path: Path, network: nn.Module, optimizer: Optimizer, kept: Checkpoint) -> None:
    """The state as it is now, written beside and renamed."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"more.{name}": value for name, value in kept.more.items()}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": v for name, v in state.items() if isinstance(v, Tensor)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with replacing(path) as beside:
        save_file(tensors, beside, metadata={"state": json.dumps({"history": kept.history, "inside": kept.inside})})


def load_checkpoint(path: Path, network: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """Put weights and the optimizer's state back; gives what else was kept."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        state = json.loads(file.metadata()["state"])
    network.load_state_dict({n.removeprefix("network."): v for n, v in tensors.items() if n.startswith("network.")})
    saved: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, i, key = name.split(".", 2)
            saved.setdefault(int(i), {})[key] = value
    optimizer.load_state_dict({"state": saved, "param_groups": optimizer.state_dict()["param_groups"]})
    more = {name.removeprefix("more."): value for name, value in tensors.items() if name.startswith("more.")}
    return Checkpoint(state["history"], state.get("inside"), more)
