"""`hrn`: hierarchical residual network with a loss over the states of the tree (Chen et al., CVPR 2022).

Each level has its own branch, e_k; finer levels add to coarser ones before the ReLU: r_k = relu(e_k + … + e_K). Every
level has a sigmoid head on r_k, the finest a softmax head as well.

A state is "nothing" or the path from the root to a node; its score is the sum of the sigmoids on it, P(state) ∝ exp(score).
For a sample whose deepest known label is node v:

    L = - log Σ_{states that contain v} P(state)  +  cross-entropy of the softmax head if the finest label is known

Both sums run once over the levels. Scores are sums of numbers below 1, so the first term has a floor well above 0 (about 3.2
on CUB). The original's branches are convolutions on the backbone's map; here a method sees pooled features, so a branch is
BatchNorm – Linear – BatchNorm – ELU – Linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.doors import Width
from torchlht.heads.method import Classifier, Method, Neck, register
from torchlht.heads.prediction import Prediction, masked_mean
from torchlht.heads.transition.core import sum_children, widened
from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class StatePrediction(Prediction):
    """A prediction with the sigmoid outputs of every level, one (B, C_k) tensor each, fine first."""

    nodes: tuple[Tensor, ...] = ()


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
    """

    def __init__(self, in_features: int, hierarchy: Hierarchy, *, width: Width = 600, embedding: Width = 512) -> None:
        super().__init__(in_features, hierarchy)
        self.branches = nn.ModuleList(
            nn.Sequential(Neck(in_features, 1, width=width).layers, nn.Linear(width, embedding)) for _ in hierarchy.sizes
        )
        self.heads = nn.ModuleList(Classifier(embedding, size) for size in hierarchy.sizes)
        self.finest = Classifier(embedding, hierarchy.sizes[0])

    def forward(self, features: Tensor) -> StatePrediction:
        """(B, d) features to log-probabilities: sigmoids at coarser levels, a softmax at the finest."""
        total: Tensor | None = None
        residual: list[Tensor] = []
        for branch in reversed(self.branches):  # coarse to fine
            own = branch(features)
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
