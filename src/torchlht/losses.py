"""Losses shared by methods: cross-entropy over known labels only, and the two confusion terms of LHT."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchlht.vocabulary import Confusion, Reduction


def masked_cross_entropy(log_probs: Sequence[Tensor], labels: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """Cross-entropy at every level over the samples whose label is known there.

    Args:
        log_probs: one (B, C_k) tensor per level.
        labels: (B, K) class indices in the same order of levels, -1 where unknown.
        reduction: `per_level_mean` takes the mean over the known samples of a level, then the mean over levels: a level
            with few labels weighs as much as one with many. `per_sample` sums over levels and divides by B, as the
            paper's equation does. They differ by much under masking: one fine label among 8 samples counts 1 or 1/8.
    """
    if labels.dim() != 2 or labels.shape[1] != len(log_probs):
        raise ValueError(f"labels are {tuple(labels.shape)}, expected (batch, {len(log_probs)}): one column per level")
    total = log_probs[0].new_zeros(())
    for log_p, y in zip(log_probs, labels.unbind(1), strict=True):
        known = y >= 0
        picked = log_p.gather(1, y.clamp(min=0).unsqueeze(1)).squeeze(1)  # (B,)
        summed = torch.where(known, -picked, torch.zeros_like(picked)).sum()
        total = total + (summed / known.sum().clamp(min=1) if reduction == "per_level_mean" else summed / len(y))
    return total / len(log_probs) if reduction == "per_level_mean" else total


def negative_entropy(log_t: Tensor) -> Tensor:
    """Mean over samples and columns of Σ_i T_ij log T_ij, in [-log C_k, 0]: low when columns are spread out."""
    return (log_t.exp() * log_t).sum(dim=1).mean()


def kl_from_uniform(log_t: Tensor) -> Tensor:
    """Mean over samples and columns of KL(uniform ‖ T_·j): label smoothing on the transition; unbounded above."""
    rows = log_t.shape[1]
    return -log_t.mean(dim=1).mean() - torch.log(torch.tensor(rows, dtype=log_t.dtype, device=log_t.device))


CONFUSION = {"entropy": negative_entropy, "kl": kl_from_uniform}


def confusion(log_matrices: Sequence[Tensor], kind: Confusion, reduction: Reduction = "per_level_mean") -> Tensor:
    """The confusion term over all transitions: averaged with `per_level_mean`, summed with `per_sample` (the paper)."""
    terms = torch.stack([CONFUSION[kind](log_t) for log_t in log_matrices])
    return terms.mean() if reduction == "per_level_mean" else terms.sum()
