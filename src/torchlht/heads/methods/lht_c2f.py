"""`lht-c2f`: LHT reversed, from coarse to fine.

    pᴷ = softmax(head(u_K)),   pᵏ⁻¹ = Vᵏ pᵏ,   Vᵏ column-stochastic (C_{k-1}, C_k) with prior γ Sᵀ

A fine label teaches the coarse classifier, but a coarse label never reaches the transitions below it. This is the paper's
argument for the other direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlht.doors import NotNegative, Number, Rank, Width
from torchlht.heads.method import Classifier, Method, Neck, register
from torchlht.heads.methods.lht import PAPER
from torchlht.heads.prediction import Prediction, confusion, masked_cross_entropy
from torchlht.heads.transition.core import Transition, widened
from torchlht.heads.transition.networks import create_transition
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Confusion, Features, Reduction


@dataclass(frozen=True)
class DescendingPrediction(Prediction):
    """A prediction with the transitions that lead down to each level but the coarsest, fine first."""

    descents: tuple[Transition, ...] = ()


@register("lht-c2f", paper=PAPER)
class LHTCoarseToFine(Method):
    """Coarse classes first; a learned transition per image gives each finer level.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        features: `shared` or `split`.
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
        rank: rank s of the transition.
        gamma: initial weight of the tree in the transition.
        bias: whether the transition's linear layers have a bias.
        confusion: `entropy` or `kl`; see `lht`.
        confusion_weight: λ of the confusion term.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"gamma": (1.0, 6.0)}

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
        rank: Rank = 2,
        gamma: Number = 6.0,
        bias: bool = True,
        confusion: Confusion = "entropy",
        confusion_weight: NotNegative = 0.0,
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        self.confusion: Confusion = confusion
        self.confusion_weight = confusion_weight
        self.neck = Neck(in_features, len(hierarchy), features=features, width=width)
        self.classifier = Classifier(self.neck.width, hierarchy.sizes[-1])
        self.steps = nn.ModuleList(
            create_transition("low_rank", self.neck.width, hierarchy, k, rank=rank, gamma=gamma, bias=bias, down=True)
            for k in range(len(hierarchy) - 1)
        )

    def forward(self, features: Tensor) -> DescendingPrediction:
        """(B, d) features to log-probabilities at every level, and the transitions between levels."""
        *finer, coarsest = self.neck(features)
        log_probs = [torch.log_softmax(widened(self.classifier(coarsest)), dim=1)]
        descents = tuple(step(u) for step, u in zip(self.steps, finer, strict=True))
        for descent in reversed(descents):
            log_probs.append(descent.propagate(log_probs[-1]))
        return DescendingPrediction(tuple(log_probs[::-1]), descents=descents)

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy at every known level, plus λ times the confusion term."""
        assert isinstance(prediction, DescendingPrediction)
        loss = masked_cross_entropy(prediction.log_probs, labels, self.reduction)
        if self.confusion_weight and prediction.descents:
            loss = loss + self.confusion_weight * confusion(prediction.descents, self.confusion, self.reduction)
        return loss
