"""Weights & Biases: a run of the project WANDB_PROJECT; with WANDB_MODE=offline in RUN/wandb, for `wandb sync` later."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import wandb
from lightning_fabric.loggers.logger import Logger

from torchlht.learn.following.kept import keep_name, kept_name

PROJECT: Final = "torchlht"


class WandbLogger(Logger):
    """A Fabric logger that writes to Weights & Biases, under the name of the run directory."""

    def __init__(self, folder: Path) -> None:
        kept = kept_name(folder, "wandb")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=folder.name,
            dir=str(folder),
            id=kept,
            resume="allow" if kept else None,
            settings=wandb.Settings(console="off", silent=True),
        )
        keep_name(folder, "wandb", self.run.id)

    @property
    def name(self) -> str:
        """The project."""
        return str(self.run.project)

    @property
    def version(self) -> str:
        """The id of the run."""
        return str(self.run.id)

    def log_hyperparams(self, params: dict[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Write the options."""
        self.run.config.update(params, allow_val_change=True)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write figures."""
        self.run.log(metrics, step=step)

    def log_result(self, metrics: dict[str, float]) -> None:
        """Write what was measured at the end."""
        self.run.summary.update(metrics)

    def finalize(self, status: str) -> None:
        """Say how the run ended."""
        self.run.finish(exit_code=0 if status == "success" else 1)
