"""`c-hmcnn`: coherent networks with a max constraint (Giunchiglia and Lukasiewicz, NeurIPS 2020).

h = σ(W u), one output per class of any level. With D(a) the class a and all its descendants:

    o_a  = max_{b ∈ D(a)} h_b                    the answer: a child is never above its parent
    o⁺_a = max_{b ∈ D(a), y_b = 1} h_b           used to teach a positive class
    L    = BCE, with o⁺ for positive classes and o for the others

σ is monotone, so maxima are taken over logits, level by level: batch × classes, never batch × classes × classes. A sample's
known labels are on one path, so o⁺ is a running maximum along it. Unknown levels have no entries: a positive parent
of unknown children is taught by its own output, while negative parents still push down all their descendants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from torchlht.doors import Width
from torchlht.heads.method import Classifier, Method, Neck, register, start_rare
from torchlht.heads.prediction import Prediction, masked_binary_cross_entropy
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class ConstrainedPrediction(Prediction):
    """A prediction with the logits before and after the constraint, each one (B, C_k) tensor per level."""

    free: tuple[Tensor, ...] = ()
    constrained: tuple[Tensor, ...] = ()


@register(
    "c-hmcnn", paper="Giunchiglia and Lukasiewicz, Coherent Hierarchical Multi-Label Classification Networks, NeurIPS 2020"
)
class CHMCNN(Method):
    """One sigmoid per class; a parent is at least as probable as each of its children, by construction.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        mil: teach a positive class whose children are unknown by the largest output of its descendants instead of its own.
        drop_masked_samples: learn only from samples with every level known; the LHT paper's figures suggest that it was run so.
        width: width of the hidden layer.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"mil": (False, True)}

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        mil: bool = False,
        drop_masked_samples: bool = False,
        width: Width = 600,
    ) -> None:
        super().__init__(in_features, hierarchy)
        self.mil, self.drop_masked_samples = mil, drop_masked_samples
        self.neck = Neck(in_features, 1, width=width)
        self.head = Classifier(width, sum(hierarchy.sizes))
        start_rare(self.head, hierarchy.sizes)

    def forward(self, features: Tensor) -> ConstrainedPrediction:
        """(B, d) features to log-probabilities under the constraint, and both kinds of logits, at every level."""
        free = torch.split(widened(self.head(self.neck(features)[0])), list(self.hierarchy.sizes), dim=1)
        constrained = [free[0]]
        for k, own in enumerate(free[1:]):
            index = self.parents(k).expand_as(constrained[-1])
            constrained.append(own.scatter_reduce(1, index, constrained[-1], "amax"))  # own and the largest child
        log_probs = tuple(F.logsigmoid(z) for z in constrained)
        levels = tuple(range(len(free)))
        return ConstrainedPrediction(log_probs, sigmoid=levels, free=free, constrained=tuple(constrained))

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Binary cross-entropy under the constraint, over known levels."""
        assert isinstance(prediction, ConstrainedPrediction)
        if self.drop_masked_samples:
            labels = torch.where((labels >= 0).all(dim=1, keepdim=True), labels, -1)
        return masked_binary_cross_entropy(prediction.constrained, labels, self.positives(prediction, labels))

    def positives(self, prediction: ConstrainedPrediction, labels: Tensor) -> list[Tensor]:
        """o⁺ of the labelled class of each level as logits, (B,) each: the largest known output from there down its path."""
        found: list[Tensor] = []
        largest = torch.full_like(prediction.free[0][:, 0], -torch.inf)  # so far along the path
        for k, y in enumerate(labels.unbind(1)):
            index = y.clamp(min=0).unsqueeze(1)
            own = prediction.free[k].gather(1, index).squeeze(1)
            largest = torch.where(y >= 0, torch.maximum(own, largest), largest)
            anywhere = prediction.constrained[k].gather(1, index).squeeze(1)
            nothing_below = (labels[:, :k] < 0).all(dim=1)
            found.append(torch.where(nothing_below, anywhere, largest) if self.mil else largest)
        return found

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: every labelled sample, or only those with all levels known."""
        return (labels >= 0).all(dim=1) if self.drop_masked_samples else super().learns_from(labels)
