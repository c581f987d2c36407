"""TensorBoard: events in RUN/tensorboard. Fabric's own logger takes seconds to import, and this is the usual board."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter


class TensorBoard:
    """Writes events."""

    def __init__(self, folder: Path) -> None:
        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Nothing: config.yaml has them."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Write figures as events."""
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def finalize(self, status: str) -> None:
        """Close the file."""
        self.writer.close()
