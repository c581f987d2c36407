"""The low-shot table."""

from __future__ import annotations

from pathlib import Path

from torchlht.args import ReproduceArgs
from torchlht.reproduction.experiments import Experiment
from torchlht.reproduction.tables import Figure


def reproduce_lowshot(experiment: Experiment, args: ReproduceArgs, out: Path, data: str) -> list[Figure]:
    """The low-shot table beside the paper's."""
    raise NotImplementedError
