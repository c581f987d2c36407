"""`multihead`: one independent softmax per level on a common trunk; `hd-cnn` is the same with split features.

The paper calls this its HD-CNN baseline; the original HD-CNN, with a coarse-gated mixture of fine experts, is another method.
The paper splits the features into K parts. Sharing them is a much stronger baseline, which it leaves out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlht.doors import Width
from torchlht.heads.method import Classifier, Method, Neck, register, variant
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Features, Reduction


@register("multihead")
class MultiHead(Method):
    """Each level has its own linear head and learns from its own labels; nothing ties the levels together.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        features: `shared` (every level reads all of the neck) or `split` (each level its own part, as in the paper).
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
    """

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        self.neck = Neck(in_features, len(hierarchy), features=features, width=width)
        self.heads = nn.ModuleList(Classifier(self.neck.width, size) for size in hierarchy.sizes)

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level."""
        logits = [widened(head(u)) for head, u in zip(self.heads, self.neck(features), strict=True)]
        return Prediction(tuple(torch.log_softmax(z, dim=1) for z in logits))


variant(
    "hd-cnn",
    MultiHead,
    "multihead with split features: the baseline the LHT paper calls HD-CNN.",
    paper="Wang et al., arXiv 2112.02353, table 1; not the original HD-CNN of Yan et al., ICCV 2015",
    features="split",
)
