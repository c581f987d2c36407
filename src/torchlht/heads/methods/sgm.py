"""`sgm`: a flat classifier with features for learning from few examples (Hariharan and Girshick, ICCV 2017).

The gradient of sample n's cross-entropy in the weights of a linear classifier is (p_n - onehot(y_n)) φ_nᵀ. If it is small for
every n, the classifier that suits all samples also suits each one alone, as it must when there are few:

    L = CE + w · mean_n ‖onehot(y_n) - p_n‖² ‖φ_n‖²

φ are the given features: the classifier is linear in them, without a neck.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchlht.doors import NotNegative
from torchlht.heads.method import Classifier, Method, fine_only, register
from torchlht.heads.prediction import Prediction, masked_mean
from torchlht.heads.transition.core import sum_children, widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Reduction


@dataclass(frozen=True)
class MeasuredPrediction(Prediction):
    """A prediction with ‖φ‖² of each sample, (B,)."""

    energy: Tensor | None = None


@register("sgm", paper="Hariharan and Girshick, Low-Shot Visual Recognition by Shrinking and Hallucinating Features, ICCV 2017")
class SGM(Method):
    """Finest level only, directly on the features, with a penalty on each sample's gradient; coarser levels are sums.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        penalty: weight w of the squared gradients; 0.005 is the published one for a ResNet-50, 0.02 for a ResNet-10.
        reduction: how both terms are averaged: `per_level_mean` over samples with a finest label, `per_sample` over all.
            Coarse levels count as unknown, as in `flat`.

    Raises:
        ConfigError: for a negative penalty.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"penalty": (0.005, 0.02)}

    def __init__(
        self, in_features: int, hierarchy: Hierarchy, *, penalty: NotNegative = 0.005, reduction: Reduction = "per_level_mean"
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        self.penalty = penalty
        self.classifier = Classifier(in_features, hierarchy.sizes[0])
        nn.init.normal_(self.classifier.weight, std=0.01)  # all classes start alike, however large the features
        nn.init.zeros_(self.classifier.bias)

    def forward(self, features: Tensor) -> MeasuredPrediction:
        """(B, d) features to log-probabilities at every level, and ‖φ‖² of each sample."""
        log_probs = [torch.log_softmax(widened(self.classifier(features)), dim=1)]
        for k, size in enumerate(self.hierarchy.sizes[1:]):
            log_probs.append(sum_children(log_probs[-1], self.parents(k), size))
        return MeasuredPrediction(tuple(log_probs), energy=widened(features).square().sum(dim=1))

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy and penalty of the finest level, on the same scale as other methods."""
        assert isinstance(prediction, MeasuredPrediction)
        assert prediction.energy is not None
        y, log_p = labels[:, 0], prediction.log_probs[0]
        index = y.clamp(min=0).unsqueeze(1)
        off = log_p.exp().scatter_add(1, index, -torch.ones_like(log_p[:, :1]))  # p - onehot, (B, C_1)
        penalty = self.penalty * off.square().sum(dim=1) * prediction.energy
        loss = masked_mean(penalty - log_p.gather(1, index).squeeze(1), y >= 0, self.reduction)
        return loss / labels.shape[1] if self.reduction == "per_level_mean" else loss

    def visible(self, labels: Tensor) -> Tensor:
        """(B, K) labels with all but the finest level unknown."""
        return fine_only(labels)

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: samples with a fine label."""
        return labels[:, 0] >= 0
