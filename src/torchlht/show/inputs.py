"""What figures are drawn from: samples that go through a trained network batch by batch."""

from __future__ import annotations

import torch

from torchlht.answer.model import Model
from torchlht.data.batches import SampleSet
from torchlht.heads.method import Method

Network = Model | Method


def members(data: SampleSet, level: int, label: int) -> list[int]:
    """Positions of the samples of a class."""
    return torch.nonzero(data.labels[:, level] == label).flatten().tolist()
