"""`fgon`: fine-grained features help coarse levels, not the other way round (Chang et al., CVPR 2021).

The features are split into K parts v_1 (finest) … v_K. The head of level k reads its own part and, with the gradient stopped,
all finer ones: [v_k; stop(v_{k-1}); …; stop(v_1)]. So coarse labels never change the features of finer levels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlht.doors import Width
from torchlht.heads.method import Classifier, Method, Neck, register
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Pool, Reduction


@register("fgon", paper="Chang et al., Your “Flamingo” is My “Bird”: Fine-Grained, or Not, CVPR 2021")
class FGoN(Method):
    """One head per level on split features; coarse heads read finer features without teaching them.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        width: width of the hidden layer, rounded up to a multiple of the number of levels.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
        pool: `max` takes the largest value of each channel of the backbone's map, as released; `mean` the mean, as other
            methods do. Only a backbone that trains on pictures gives a map.
    """

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
        pool: Pool = "mean",
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        self.on_maps = pool == "max"
        self.neck = Neck(in_features, len(hierarchy), features="split", width=width)
        self.heads = nn.ModuleList(Classifier((k + 1) * self.neck.width, size) for k, size in enumerate(hierarchy.sizes))

    def pool(self, features: Tensor) -> Tensor:
        """The largest value of each channel of a map. Features stay as they are."""
        return features.amax(dim=(2, 3)) if self.on_maps else features

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features, or a map (B, d, h, w), to log-probabilities at every level."""
        parts = self.neck(self.pool(features))
        log_probs = []
        for k, head in enumerate(self.heads):
            seen = torch.cat([parts[k], *(part.detach() for part in reversed(parts[:k]))], dim=1)
            log_probs.append(torch.log_softmax(widened(head(seen)), dim=1))
        return Prediction(tuple(log_probs))
