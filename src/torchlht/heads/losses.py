"""Losses shared by methods: cross-entropies over known labels only, and the two confusion terms of LHT.

Divisors that count samples count those of all processes; see `torchlht.processes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from torchlht.heads.transition.core import Transition
from torchlht.processes import shared_count
from torchlht.vocabulary import Confusion, Reduction


def masked_cross_entropy(log_probs: Sequence[Tensor], labels: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """Cross-entropy at every level over the samples whose label is known there.

    Args:
        log_probs: one (B, C_k) tensor per level.
        labels: (B, K) class indices in the same order of levels, -1 where unknown.
        reduction: `per_level_mean` takes the mean over the known samples of a level, then the mean over levels. A level
            with few labels weighs as much as one with many. `per_sample` sums over levels and divides by B, as the
            paper's equation does. Under masking they differ widely: one fine label among 8 samples counts 1 or 1/8.
    """
    if labels.dim() != 2 or labels.shape[1] != len(log_probs):
        raise ValueError(f"labels are {tuple(labels.shape)}, expected (batch, {len(log_probs)}): one column per level")
    total = log_probs[0].new_zeros(())
    for log_p, y in zip(log_probs, labels.unbind(1), strict=True):
        picked = log_p.gather(1, y.clamp(min=0).unsqueeze(1)).squeeze(1)  # (B,)
        total = total + masked_mean(-picked, y >= 0, reduction)
    return total / len(log_probs) if reduction == "per_level_mean" else total


def soft_cross_entropy(
    log_probs: Sequence[Tensor],
    labels: Tensor,
    index: Tensor,
    value: Tensor,
    weight: Tensor,
    ancestors: Sequence[Tensor],
    reduction: Reduction = "per_level_mean",
    shares: Sequence[float] | None = None,
) -> Tensor:
    """Cross-entropy with a distribution over finest classes as the target, at the levels where a sample has no label.

    The target of a coarser level is that distribution summed over children. Cross-entropy is linear in its target, so nothing
    needs to be summed. Outputs that are not a distribution (a sigmoid per class) are normalised first.

    Args:
        log_probs: one (B, C_k) tensor per level, fine first.
        labels: (B, K), -1 where unknown; the target is used there.
        index: (B, m) finest classes of the target.
        value: (B, m) their probabilities; zeros for a sample without a target.
        weight: (B,) how much each sample counts.
        ancestors: per level (C_1,), the class of that level above each finest class.
        reduction: `per_level_mean` takes the weighted mean over samples, then the mean over levels; `per_sample` the sum over
            levels divided by B. As in `masked_cross_entropy`.
        shares: a factor for each level's term.
    """
    total = log_probs[0].new_zeros(())
    for k, (log_p, y) in enumerate(zip(log_probs, labels.unbind(1), strict=True)):
        picked = torch.log_softmax(log_p, dim=1).gather(1, ancestors[k][index])
        picked = torch.where(value > 0, picked, 0.0)
        counted = torch.where((y < 0) & (value.sum(dim=1) > 0), weight, 0.0)
        summed = -(counted * (value * picked).sum(dim=1)).sum()
        count = counted.sum() if reduction == "per_level_mean" else torch.ones_like(y).sum()
        term = summed / shared_count(count, least=1e-6)
        total = total + (1.0 if shares is None else shares[k]) * term
    return total / len(log_probs) if reduction == "per_level_mean" else total


def towards_uniform(log_probs: Sequence[Tensor], labels: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """Cross-entropy of every known level with the uniform distribution: the term that label smoothing adds."""
    total = log_probs[0].new_zeros(())
    for log_p, y in zip(log_probs, labels.unbind(1), strict=True):
        total = total + masked_mean(-torch.log_softmax(log_p, dim=1).mean(dim=1), y >= 0, reduction)
    return total / len(log_probs) if reduction == "per_level_mean" else total


def masked_mean(values: Tensor, known: Tensor, reduction: Reduction = "per_level_mean") -> Tensor:
    """The sum of the known values divided by their number, or by B with `per_sample`; 0 when none is known.

    Args:
        values: (B,)
        known: (B,) bool
        reduction: see `masked_cross_entropy`.
    """
    summed = torch.where(known, values, torch.zeros_like(values)).sum()
    counted = known if reduction == "per_level_mean" else torch.ones_like(known)
    return summed / shared_count(counted.sum())


def masked_binary_cross_entropy(logits: Sequence[Tensor], labels: Tensor, positive: Sequence[Tensor] | None = None) -> Tensor:
    """Binary cross-entropy of every class of every known level; an unknown level has no entries.

    It is the mean over the known entries, so that masking does not change the scale, times the mean number of classes of a
    level, so that steps of SGD are as large as with cross-entropy.

    Args:
        logits: one (B, C_k) tensor per level.
        labels: (B, K), -1 where unknown.
        positive: per level, (B,) logits to use for the true class instead of its own.
    """
    total, entries = logits[0].new_zeros(()), logits[0].new_zeros(())
    for k, (z, y) in enumerate(zip(logits, labels.unbind(1), strict=True)):
        known, index = y >= 0, y.clamp(min=0).unsqueeze(1)
        right = z.gather(1, index).squeeze(1) if positive is None else positive[k]
        wrong = F.softplus(z).scatter(1, index, 0.0).sum(dim=1)
        total = total + torch.where(known, F.softplus(-right) + wrong, 0.0).sum()
        entries = entries + known.sum() * z.shape[1]
    return total / shared_count(entries) * (sum(z.shape[1] for z in logits) / len(logits))


def confusion(transitions: Sequence[Transition], kind: Confusion, reduction: Reduction = "per_level_mean") -> Tensor:
    """The confusion term over all transitions: averaged with `per_level_mean`, summed with `per_sample` (the paper)."""
    terms = torch.stack([transition.confusion(kind) for transition in transitions])
    return terms.mean() if reduction == "per_level_mean" else terms.sum()
