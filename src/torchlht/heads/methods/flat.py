"""`flat`: the common practice. One softmax over the finest classes, trained on fine labels alone."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from torchlht.doors import Width
from torchlht.heads.method import fine_only, register
from torchlht.heads.methods.marginal import Marginal
from torchlht.heads.prediction import Prediction, masked_cross_entropy
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Reduction


@register("flat")
class Flat(Marginal):
    """Finest level only; coarser probabilities are sums over children. Coarse labels teach it nothing.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
    """

    can_shorten: ClassVar[bool] = False

    def __init__(
        self, in_features: int, hierarchy: Hierarchy, *, width: Width = 600, reduction: Reduction = "per_level_mean"
    ) -> None:
        super().__init__(in_features, hierarchy, width=width, reduction=reduction)

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy of the finest level, on the same scale as other methods: coarse labels count as unknown."""
        return masked_cross_entropy(prediction.log_probs, self.visible(labels), self.reduction)

    def visible(self, labels: Tensor) -> Tensor:
        """(B, K) labels with all but the finest level unknown."""
        return fine_only(labels)

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: samples with a fine label."""
        return labels[:, 0] >= 0
