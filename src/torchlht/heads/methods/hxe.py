"""`hxe`: hierarchical cross-entropy (Bertinetto et al., Making Better Mistakes, CVPR 2020).

A flat softmax gives p(node) as the sum over its leaves. The likelihood of a leaf is a chain of steps from the root,
p(leaf) = Π p(node) / p(parent), and each step's cross-entropy has a weight that falls with depth, exp(-α · depth):

    L = - Σ_k w_k log( pᵏ[yᵏ] / pᵏ⁺¹[yᵏ⁺¹] ),   w_k ∝ exp(-α (K - k)),   Σ_k w_k = 1

A label known only down to level k has the steps from there upwards, so missing labels need nothing else. The public code
divides the weights by their sum over all nodes of the tree instead, a constant that would shrink the steps of SGD.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from torchlht.doors import NotNegative, Width
from torchlht.heads.method import register
from torchlht.heads.methods.marginal import Marginal
from torchlht.heads.prediction import Prediction, masked_mean
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Reduction


@register("hxe", paper="Bertinetto et al., Making Better Mistakes, CVPR 2020")
class HXE(Marginal):
    """Flat softmax; each step down the tree has its own cross-entropy, and coarse steps weigh more.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        alpha: how fast the weight of a step falls with its depth; 0 weighs all alike, which is `flat` if all labels are known.
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"alpha": (0.1, 0.4)}
    can_shorten: ClassVar[bool] = False

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        alpha: NotNegative = 0.1,
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__(in_features, hierarchy, width=width, reduction=reduction)
        depths = torch.arange(len(hierarchy), 0, -1)  # fine first; 1 just under the root
        weights = torch.softmax(-alpha * depths.double(), dim=0)
        self.weights: list[float] = (weights if reduction == "per_level_mean" else len(hierarchy) * weights).tolist()

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """The weighted cross-entropy of every known step."""
        total = prediction.log_probs[0].new_zeros(())
        for k, (weight, y) in enumerate(zip(self.weights, labels.unbind(1), strict=True)):
            index = y.clamp(min=0)
            step = prediction.log_probs[k].gather(1, index.unsqueeze(1)).squeeze(1)  # log p(node)
            if k + 1 < len(self.hierarchy):
                above = self.parents(k)[index]
                step = step - prediction.log_probs[k + 1].gather(1, above.unsqueeze(1)).squeeze(1)  # - log p(parent)
            total = total + weight * masked_mean(-step, y >= 0, self.reduction)
        return total
