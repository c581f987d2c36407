"""`soft-labels`: targets that spread over related classes (Bertinetto et al., Making Better Mistakes, CVPR 2020).

The target of class c gives class i a weight that falls with the height d of their lowest common ancestor:

    q_c[i] ∝ exp(-β d(i, c) / d_max),      L = KL(q_c ‖ p)

d takes K + 1 values, so Σ_i q_c[i] log p_i is a sum over the ancestors of c of the sums of log p over their leaves: linear in
the classes, no matrix of distances. Coarse levels are answered by backtracking from the finest one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from torchlht.doors import NotNegative, Width
from torchlht.heads.method import fine_only, register
from torchlht.heads.methods.marginal import Marginal
from torchlht.heads.prediction import Prediction, masked_mean
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Reduction, SoftCoarse


@register("soft-labels", paper="Bertinetto et al., Making Better Mistakes, CVPR 2020")
class SoftLabels(Marginal):
    """Flat softmax with targets spread over nearby classes; coarse levels by backtracking.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        beta: how sharp the targets are; large values, and also 0 as in the public code, give one-hot targets.
        soft_coarse: what samples without a fine label teach: nothing (`off`, the LHT paper's use), the mean target of the
            finest classes under their deepest known label (`mean`), or that label's likelihood (`marginal`).
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"beta": (5.0, 15.0)}
    can_shorten: ClassVar[bool] = False
    rule: ClassVar[str] = "backtrack"
    mass: Tensor  # (C_1, K + 1): q_c of one class at each height from c
    entropy: Tensor  # (C_1,): Σ_i q_c[i] log q_c[i]

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        beta: NotNegative = 15.0,
        soft_coarse: SoftCoarse = "off",
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__(in_features, hierarchy, width=width, reduction=reduction)
        self.beta, self.soft_coarse = beta, soft_coarse
        mass, entropy = soft_targets(hierarchy, beta)
        self.register_buffer("mass", torch.from_numpy(mass).float(), persistent=False)
        self.register_buffer("entropy", torch.from_numpy(entropy).float(), persistent=False)
        for k in range(len(hierarchy)):
            self.register_buffer(f"ancestors_{k}", torch.from_numpy(hierarchy.ancestors(k)), persistent=False)

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level, with answers by backtracking."""
        prediction = super().forward(features)
        return Prediction(prediction.log_probs, prediction.transitions, self.choose(prediction.log_probs))

    def divergence(self, log_p: Tensor) -> Tensor:
        """(B, C_1): KL(q_c ‖ p) for every finest class c."""
        mass, sizes = self.mass.to(log_p.dtype), self.hierarchy.sizes
        cross, inside = torch.zeros_like(log_p), torch.zeros_like(log_p)
        for k in range(len(self.hierarchy)):
            up = self.get_buffer(f"ancestors_{k}")
            sums = log_p.new_zeros(len(log_p), sizes[k]).index_add(1, up, log_p)[:, up]  # Σ log p under c's ancestor
            cross, inside = cross + mass[:, k] * (sums - inside), sums
        cross = cross + mass[:, -1] * (log_p.sum(dim=1, keepdim=True) - inside)
        return self.entropy.to(log_p.dtype) - cross

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """KL on fine labels; with `soft_coarse`, a term for each sample by its deepest known label."""
        log_p, fine = prediction.log_probs[0], labels[:, 0]
        all_classes = self.divergence(log_p)
        picked = all_classes.gather(1, fine.clamp(min=0).unsqueeze(1)).squeeze(1)
        total = masked_mean(picked, fine >= 0, self.reduction)
        unknown = fine < 0
        for k in range(1, len(self.hierarchy)) if self.soft_coarse != "off" else ():
            y = labels[:, k]
            index = y.clamp(min=0).unsqueeze(1)
            if self.soft_coarse == "marginal":
                value = -prediction.log_probs[k].gather(1, index).squeeze(1)
            else:
                up = self.get_buffer(f"ancestors_{k}")
                summed = log_p.new_zeros(len(log_p), self.hierarchy.sizes[k]).index_add(1, up, all_classes)
                value = (summed / torch.bincount(up)).gather(1, index).squeeze(1)
            total = total + masked_mean(value, unknown & (y >= 0), self.reduction)
            unknown = unknown & (y < 0)
        return total / len(self.hierarchy) if self.reduction == "per_level_mean" else total

    def visible(self, labels: Tensor) -> Tensor:
        """(B, K) labels: those of the finest level, or all if `soft_coarse` is on."""
        return fine_only(labels) if self.soft_coarse == "off" else labels

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: samples with a fine label, or with any label if `soft_coarse` is on."""
        return labels[:, 0] >= 0 if self.soft_coarse == "off" else super().learns_from(labels)


def soft_targets(hierarchy: Hierarchy, beta: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """For each finest class c: the weight of one class at each height 0…K from it (C_1, K + 1), and Σ_i q_c[i] log q_c[i]."""
    depth, leaves = len(hierarchy), hierarchy.sizes[0]
    within = [np.bincount(hierarchy.ancestors(k))[hierarchy.ancestors(k)] for k in range(depth)]
    count = np.diff(np.stack([np.zeros(leaves), *within, np.full(leaves, leaves)], axis=1), axis=1)  # classes at each height
    largest = max(np.flatnonzero(count.sum(axis=0)).max(), 1)
    log_weight = -beta * np.arange(depth + 1) / largest if beta else np.array([0.0] + [-np.inf] * depth)
    total = (count * np.exp(log_weight)).sum(axis=1, keepdims=True)
    mass = np.exp(log_weight) / total
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(mass > 0, count * mass * np.log(mass), 0.0)
    return mass, terms.sum(axis=1)
