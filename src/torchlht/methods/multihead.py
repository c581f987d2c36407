"""`multihead`: one independent softmax per level on a common trunk.

The paper calls this its HD-CNN baseline; the original HD-CNN, with a coarse-gated mixture of fine experts, is another thing.
The paper splits the features in K parts; sharing them is a much stronger baseline that it leaves out.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlht.hierarchy import Hierarchy
from torchlht.methods.base import Method, register
from torchlht.prediction import Prediction
from torchlht.transition import widened
from torchlht.vocabulary import Features, Reduction


@register("multihead")
class MultiHead(Method):
    """Each level has its own linear head and learns from its own labels; nothing ties the levels together."""

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: int = 600,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__(in_features, hierarchy, features=features, width=width, reduction=reduction)
        self.heads = nn.ModuleList(nn.Linear(self.neck.width, size) for size in hierarchy.sizes)

    def forward(self, features: Tensor) -> Prediction:
        """See `Method.forward`."""
        logits = [widened(head(u)) for head, u in zip(self.heads, self.neck(features), strict=True)]
        return Prediction(tuple(torch.log_softmax(z, dim=1) for z in logits))
