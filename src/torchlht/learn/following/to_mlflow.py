"""MLflow: a run on its server or in its file, as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME say."""

from __future__ import annotations

import math
import os
import re
import time
from pathlib import Path
from typing import Any, Final

from lightning_fabric.loggers.logger import Logger
from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from torchlht.learn.following.kept import keep_name, kept_name

EXPERIMENT: Final = "torchlht"
ENDS: Final = {"success": "FINISHED", "failed": "FAILED", "aborted": "KILLED"}
LONGEST: Final = 500
"""Characters of an option's value that every version of MLflow takes."""
AT_ONCE: Final = 100
"""Options that MLflow takes in one request."""
_REFUSED: Final = re.compile(r"[^\w/ .\-]")  # in names of figures


class MLflowLogger(Logger):
    """A Fabric logger that writes to MLflow, under the name of the run directory."""

    def __init__(self, folder: Path) -> None:
        self.client = MlflowClient()
        self.experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        kept = kept_name(folder, "mlflow")
        self.resumed = kept is not None
        if kept:
            self.client.update_run(kept, status="RUNNING")
        self.run: str = kept or self._new(folder.name)
        keep_name(folder, "mlflow", self.run)

    def _new(self, name: str) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        number = found.experiment_id if found else self.client.create_experiment(self.experiment)
        return str(self.client.create_run(number, run_name=name).info.run_id)

    @property
    def name(self) -> str:
        """The experiment."""
        return self.experiment

    @property
    def version(self) -> str:
        """The number that MLflow gave the run."""
        return self.run

    def log_hyperparams(self, params: dict[str, Any], *_: Any, **__: Any) -> None:  # type: ignore[override]
        """Write the options; once, since MLflow lets no one change them."""
        if self.resumed:
            return
        wanted = [Param(name, str(value)[:LONGEST]) for name, value in params.items()]
        for start in range(0, len(wanted), AT_ONCE):
            self.client.log_batch(self.run, params=wanted[start : start + AT_ONCE])

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Write figures that are numbers."""
        now = int(time.time() * 1000)
        found = {_REFUSED.sub("_", name): value for name, value in metrics.items() if math.isfinite(value)}
        self.client.log_batch(self.run, metrics=[Metric(name, value, now, step or 0) for name, value in found.items()])

    def log_result(self, metrics: dict[str, float]) -> None:
        """Write what was measured at the end."""
        self.log_metrics(metrics)

    def finalize(self, status: str) -> None:
        """Say how the run ended."""
        self.client.set_terminated(self.run, ENDS.get(status, "FAILED"))
