"""`hmcn`: hierarchical multi-label classification networks, feed-forward form (Wehrmann et al., ICML 2018).

From coarse to fine (h = 1 is the coarsest level), with x the neck's output:

    G_1 = φ(W x),  G_h = φ(W_h [G_{h-1}; x])              the global flow; φ is ReLU – BatchNorm – dropout
    o_h = W″ φ(W′ G_h)                                    local logits, one block per level
    o   = W_G G_K                                         global logits, one per class of any level
    P   = mix · σ(o) + (1 - mix) · σ(o_h)                 the answer

    L = BCE(σ(o_h)) + BCE(σ(o)) + λ Σ_edges max(0, P[child] - P[parent])²

The last term, over all edges of the tree, needs no labels; unknown levels have no entries in the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.doors import NotNegative, OpenShare, Share, Width
from torchlht.heads.method import BatchNorm, Classifier, Method, Neck, register, start_rare
from torchlht.heads.prediction import Prediction, masked_binary_cross_entropy, masked_cross_entropy
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.processes import shared_mean
from torchlht.vocabulary import Activation


@dataclass(frozen=True)
class HMCNPrediction(Prediction):
    """A prediction with the logits it was mixed from, one (B, C_k) tensor per level each, fine first."""

    local_logits: tuple[Tensor, ...] = ()
    global_logits: tuple[Tensor, ...] = ()


@register("hmcn", paper="Wehrmann et al., Hierarchical Multi-Label Classification Networks, ICML 2018")
class HMCN(Method):
    """A chain from coarse to fine with local and global outputs; a penalty if a child exceeds its parent.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        violation_weight: λ of the penalty.
        mix: share of the global output in the answer.
        activation: `sigmoid` per class with binary cross-entropy (the original), or `softmax` per level.
        hidden: width of the flow.
        dropout: dropout in φ. The original has 0.5; 0 is better with few labels (3 points on validation samples of real birds).
        width: width of the hidden layer.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"dropout": (0.0, 0.5)}

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        violation_weight: NotNegative = 0.1,
        mix: OpenShare = 0.5,
        activation: Activation = "sigmoid",
        hidden: Width = 384,
        dropout: Share = 0.0,
        width: Width = 600,
    ) -> None:
        super().__init__(in_features, hierarchy)
        self.violation_weight, self.mix, self.activation = violation_weight, mix, activation
        self.neck = Neck(in_features, 1, width=width)

        def layer(inputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), BatchNorm(hidden), nn.Dropout(dropout))

        depth = len(hierarchy)
        self.flow = nn.ModuleList(layer(width + (hidden if h else 0)) for h in range(depth))  # coarse first
        self.inner = nn.ModuleList(layer(hidden) for _ in hierarchy.sizes)
        self.local = nn.ModuleList(Classifier(hidden, size) for size in hierarchy.sizes[::-1])
        self.everywhere = Classifier(hidden, sum(hierarchy.sizes))
        if activation == "sigmoid":
            start_rare(self.everywhere, hierarchy.sizes)
            for head in self.local:
                assert isinstance(head, nn.Linear)
                start_rare(head, [head.out_features])

    def forward(self, features: Tensor) -> HMCNPrediction:
        """(B, d) features to log-probabilities and both kinds of logits at every level."""
        (x,) = self.neck(features)
        state, local = None, []
        for flow, inner, head in zip(self.flow, self.inner, self.local, strict=True):
            state = flow(x if state is None else torch.cat([state, x], dim=1))
            local.append(widened(head(inner(state))))
        local_logits = tuple(local[::-1])  # fine first from here on
        global_logits = torch.split(widened(self.everywhere(state)), list(self.hierarchy.sizes), dim=1)
        log_probs = tuple(self._mixed(a, b) for a, b in zip(local_logits, global_logits, strict=True))
        levels = tuple(range(len(local))) if self.activation == "sigmoid" else ()
        return HMCNPrediction(log_probs, sigmoid=levels, local_logits=local_logits, global_logits=global_logits)

    def _mixed(self, local: Tensor, everywhere: Tensor) -> Tensor:
        """log of the mixture of local and global probabilities."""
        parts = [(local, 1 - self.mix), (everywhere, self.mix)]
        if self.activation == "softmax":
            logs = [torch.log_softmax(z, dim=1) + math.log(share) for z, share in parts]
        else:
            logs = [F.logsigmoid(z) + math.log(share) for z, share in parts]
        return torch.logaddexp(*logs)

    def violation(self, prediction: Prediction) -> Tensor:
        """Mean over samples of Σ_edges max(0, P[child] - P[parent])²."""
        total = prediction.log_probs[0].new_zeros(())
        for k in range(len(self.hierarchy) - 1):
            above = prediction.probs(k + 1)[:, self.parents(k)]  # (B, C_k)
            total = total + shared_mean(F.relu(prediction.probs(k) - above).square().sum(dim=1))
        return total

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy of both outputs over known levels, and the penalty."""
        assert isinstance(prediction, HMCNPrediction)
        total = self.violation_weight * self.violation(prediction)
        for logits in (prediction.local_logits, prediction.global_logits):
            if self.activation == "softmax":
                total = total + masked_cross_entropy([torch.log_softmax(z, dim=1) for z in logits], labels, self.reduction)
            else:
                total = total + masked_binary_cross_entropy(logits, labels)
        return total
