"""`kt`: knowledge transfer with a class hierarchy (Li et al., CVPR 2019), as in its released network.

    φ ─► fc_1 ─► z_1 ─────────────────────────► log p¹
    φ ─► fc_k ─► z_k,  [z_1; …; z_k] ─► Linear ─► Linear ─► log pᵏ     k = 2 … K, nothing between the two

So every coarser level uses the outputs of the finer ones. There is no neck: heads read the given features.

Layers start from noise with a standard deviation of 0.0001, like the new layers of the released network. Three of these in a
row pass on so little that coarse levels hardly move at first. 30,000 steps make up for that, a short training does not. So by
default the two upper layers start at the identity plus that noise: a coarse level begins as its own plain head.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from torchlht.doors import Positive
from torchlht.errors import ConfigError
from torchlht.heads.method import Classifier, Method, register
from torchlht.heads.prediction import Prediction, masked_cross_entropy
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Reduction

Start = Literal["identity", "normal"]


@register("kt", paper="Li et al., Large-Scale Few-Shot Learning: Knowledge Transfer With Class Hierarchy, CVPR 2019")
class KT(Method):
    """One head per level, directly on the features; a coarser level also reads the outputs of all finer levels.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        level_weights: weights of the levels in the loss, fine first, such as 1,1,0.3,1 (the released ones, for four levels);
            1 for every level by default.
        start: of the two stacked layers: `identity` plus noise, which learns from the first step; or `normal`, noise alone, as
            published.
        variance: variance of the initial weights; 1e-8 as released, a standard deviation of 0.0001. Biases start at 0.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.

    Raises:
        ConfigError: when weights are not one non-negative number per level, the start is unknown, or the variance is not
            above 0.
    """

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        level_weights: str = "",
        start: Start = "identity",
        variance: Positive = 1e-8,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__(in_features, hierarchy, reduction=reduction)
        self.level_weights = parse_weights(level_weights, len(hierarchy))
        sizes = hierarchy.sizes
        self.heads = nn.ModuleList(Classifier(in_features, size) for size in sizes)
        self.mixes = nn.ModuleList(nn.Linear(sum(sizes[: k + 1]), sizes[k]) for k in range(1, len(sizes)))
        self.answers = nn.ModuleList(Classifier(size, size) for size in sizes[1:])
        for layer in (*self.heads, *self.mixes, *self.answers):
            assert isinstance(layer, nn.Linear)
            nn.init.normal_(layer.weight, std=variance**0.5)
            nn.init.zeros_(layer.bias)
        if start == "identity":
            self.start_as_heads()

    @torch.no_grad()
    def start_as_heads(self) -> None:
        """Add the identity, so that each coarse level starts as the output of its own head."""
        for mix, answer in zip(self.mixes, self.answers, strict=True):
            assert isinstance(mix, nn.Linear)
            assert isinstance(answer, nn.Linear)
            own = torch.eye(mix.out_features)
            mix.weight[:, -mix.out_features :] += own  # the head of its own level comes last
            answer.weight += own

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level."""
        outputs = [head(features) for head in self.heads]  # z_k, (B, C_k)
        logits = [outputs[0]]
        for k, (mix, answer) in enumerate(zip(self.mixes, self.answers, strict=True), start=1):
            logits.append(answer(mix(torch.cat(outputs[: k + 1], dim=1))))
        return Prediction(tuple(torch.log_softmax(widened(z), dim=1) for z in logits))

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy at every known level, times its weight."""
        pairs = zip(prediction.log_probs, torch.split(labels, 1, dim=1), strict=True)
        losses = [masked_cross_entropy([log_p], y, self.reduction) for log_p, y in pairs]
        total = torch.stack([w * loss for w, loss in zip(self.level_weights, losses, strict=True)]).sum()
        return total / len(losses) if self.reduction == "per_level_mean" else total


def parse_weights(text: str, levels: int) -> list[float]:
    """Weights of levels as numbers; 1 for each by default."""
    try:
        weights = [float(word) for word in text.split(",")] if text else [1.0] * levels
    except ValueError:
        raise ConfigError(f"level_weights is {text!r}: pass numbers, separated by commas") from None
    if len(weights) != levels or not all(0 <= weight < math.inf for weight in weights):
        raise ConfigError(f"level_weights is {text!r}: pass one number for each of {levels} levels, fine first, none negative")
    return weights
