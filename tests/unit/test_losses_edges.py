"""Losses where a hierarchy is a plain list of classes: a single level is a level like any other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.prediction import masked_binary_cross_entropy, masked_cross_entropy, soft_cross_entropy, towards_uniform
from torchlht.vocabulary import Reduction
from trees import naive_cross_entropy, normal

LABELS = torch.tensor([[2], [-1], [0], [-1], [4]])


def log_probs() -> Tensor:
    return torch.log_softmax(normal(np.random.default_rng(0), 5, 5), dim=1)


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_cross_entropies_of_a_single_level_equal_naive_loops(reduction: Reduction) -> None:
    log_p, known = log_probs(), [0, 2, 4]
    count = 3 if reduction == "per_level_mean" else 5
    assert masked_cross_entropy([log_p], LABELS, reduction).item() == pytest.approx(
        naive_cross_entropy([log_p], LABELS, reduction)
    )
    uniform = sum(-log_p[n, c].item() / 5 for n in known for c in range(5)) / count
    assert towards_uniform([log_p], LABELS, reduction).item() == pytest.approx(uniform)


def test_binary_cross_entropy_of_a_single_level_equals_a_naive_loop() -> None:
    z = normal(np.random.default_rng(1), 5, 5)
    total = 0.0
    for n in (0, 2, 4):
        for c in range(5):
            p = 1 / (1 + np.exp(-z[n, c].item()))
            total -= np.log(p if c == LABELS[n, 0] else 1 - p)
    assert masked_binary_cross_entropy([z], LABELS).item() == pytest.approx(total / 15 * 5)


def test_targets_of_a_single_level_count_where_its_label_is_unknown() -> None:
    rng, log_p = np.random.default_rng(2), log_probs()
    index, weight = torch.from_numpy(rng.integers(0, 5, (5, 2))), torch.from_numpy(rng.random(5))
    value = torch.from_numpy(rng.random((5, 2)))
    found = soft_cross_entropy([log_p], LABELS, index, value, weight, [torch.arange(5)]).item()
    summed = sum(-(weight[n] * value[n, j] * log_p[n, index[n, j]]).item() for n in (1, 3) for j in range(2))
    assert found == pytest.approx(summed / (weight[1] + weight[3]).item())
