"""`hrn`: hierarchical residual network with a loss over the states of the tree (Chen et al., CVPR 2022).

Each level has its own branch, e_k; finer levels add to coarser ones before the ReLU: r_k = relu(e_k + … + e_K). Every
level has a sigmoid head on r_k, the finest a softmax head as well.

A state is "nothing" or the path from the root to a node; its score is the sum of the sigmoids on it, P(state) ∝ exp(score).
For a sample whose deepest known label is node v:

    L = - log Σ_{states that contain v} P(state)  +  cross-entropy of the softmax head if the finest label is known

Both sums run once over the levels. Scores are sums of numbers below 1, so the first term has a floor well above 0 (about 3.2
on CUB). A branch, on the map of a backbone that trains and, without its first line, on features:

    map (B, d, h, w) ─► 1×1 convolution to d/2 – BatchNorm – ReLU – 3×3 convolution to d – BatchNorm – ReLU – mean over space
                     ─► BatchNorm – Linear – BatchNorm – ELU – Linear ─► e_k (B, 512)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.doors import Many, Width
from torchlht.heads.method import BatchNorm, Classifier, Method, Neck, register
from torchlht.heads.prediction import Prediction, masked_mean
from torchlht.heads.transition.core import sum_children, widened
from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class StatePrediction(Prediction):
    """A prediction with the sigmoid outputs of every level, one (B, C_k) tensor each, fine first."""

    nodes: tuple[Tensor, ...] = ()


class MapNorm(BatchNorm):
    """BatchNorm of a map (B, d, h, w): every place is a sample."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, d, h, w) to (B, d, h, w)."""
        places = x.permute(0, 2, 3, 1)  # (B, h, w, d), which is how channels-last maps lie in memory
        return super().forward(places.flatten(0, 2)).view(places.shape).permute(0, 3, 1, 2)


def convolved(channels: int, inner: int) -> list[nn.Module]:
    """The convolutions of a branch, on a map of so many channels, and the mean over space."""
    layers: list[nn.Module] = []
    for before, after, side in ((channels, inner, 1), (inner, channels, 3)):
        convolution = nn.Conv2d(before, after, side, padding=side // 2, bias=False)
        layers += [convolution, MapNorm(after, momentum=0.01), nn.ReLU(inplace=True)]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()]


@register(
    "hrn",
    paper="Chen et al., Label Relation Graphs Enhanced Hierarchical Residual Network, CVPR 2022",
)
class HRN(Method):
    """A branch per level, finer ones added to coarser ones; likelihood of paths in the tree.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        width: width of a branch's hidden layer (1024 in the original).
        embedding: width of e_k.
        maps: whether branches start with convolutions on the backbone's map, as in the original; by default if there is one:
            when a backbone trains on pictures.
        channels: channels between the two convolutions; 0 for half of the map's, as in the original.
    """

    before: ClassVar[dict[str, Any]] = {"maps": False}

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        width: Width = 600,
        embedding: Width = 512,
        maps: bool = False,
        channels: Many = 0,
    ) -> None:
        super().__init__(in_features, hierarchy)
        self.maps = self.on_maps = maps
        inner = channels or max(1, in_features // 2)
        self.convolutions = nn.ModuleList(nn.Sequential(*convolved(in_features, inner)) for _ in hierarchy.sizes if maps)
        self.branches = nn.ModuleList(
            nn.Sequential(Neck(in_features, 1, width=width).layers, nn.Linear(width, embedding)) for _ in hierarchy.sizes
        )
        self.heads = nn.ModuleList(Classifier(embedding, size) for size in hierarchy.sizes)
        self.finest = Classifier(embedding, hierarchy.sizes[0])

    def forward(self, features: Tensor) -> StatePrediction:
        """(B, d) features, or a map (B, d, h, w), to log-probabilities: sigmoids at coarser levels, a softmax at the finest."""
        total: Tensor | None = None
        residual: list[Tensor] = []
        seen = [layers(features) for layers in self.convolutions] if self.maps else [features] * len(self.branches)
        for branch, x in zip(reversed(self.branches), reversed(seen), strict=True):  # coarse to fine
            own = branch(x)
            total = own if total is None else total + own
            residual.append(F.relu(total))
        residual.reverse()
        logits = [widened(head(r)) for head, r in zip(self.heads, residual, strict=True)]
        fine = torch.log_softmax(widened(self.finest(residual[0])), dim=1)
        log_probs, nodes = (fine, *map(F.logsigmoid, logits[1:])), tuple(map(torch.sigmoid, logits))
        return StatePrediction(log_probs, sigmoid=tuple(range(1, len(logits))), nodes=nodes)

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """The negative log-likelihood of the states with the deepest known label, plus cross-entropy at the finest level."""
        assert isinstance(prediction, StatePrediction)
        fine = labels[:, 0]
        picked = prediction.log_probs[0].gather(1, fine.clamp(min=0).unsqueeze(1)).squeeze(1)
        log_state = self.log_state(prediction, labels)
        return masked_mean(-picked, fine >= 0) + masked_mean(-log_state, (labels >= 0).any(dim=1))

    def log_state(self, prediction: StatePrediction, labels: Tensor) -> Tensor:
        """(B,) log of the probability of the states that contain each sample's deepest known label; 0 if none is known."""
        scores = [prediction.nodes[-1]]
        for k in reversed(range(len(self.hierarchy) - 1)):
            scores.append(prediction.nodes[k] + scores[-1][:, self.parents(k)])
        scores.reverse()  # (B, C_k): the sum of the path from the root
        below = [scores[0]]  # log Σ exp(score) over a node and its descendants
        for k, own in enumerate(scores[1:]):
            below.append(torch.logaddexp(own, sum_children(below[-1], self.parents(k), own.shape[1])))
        nothing = torch.zeros_like(below[-1][:, :1])
        log_z = torch.logsumexp(torch.cat([nothing, below[-1]], dim=1), dim=1)
        found, open_ = torch.zeros_like(log_z), torch.ones_like(log_z, dtype=torch.bool)
        for k, y in enumerate(labels.unbind(1)):
            value = below[k].gather(1, y.clamp(min=0).unsqueeze(1)).squeeze(1) - log_z
            found = torch.where(open_ & (y >= 0), value, found)
            open_ = open_ & (y < 0)
        return found
