"""`implied`: a sanity check. If a class has a single child, masking the child hides nothing: fill it in and train `multihead`.

54 of 70 aircraft families have a single model, 12 of 38 bird families a single species: a method can look good under masking by
using this alone.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from torchlht.heads.method import register
from torchlht.heads.methods.multihead import MultiHead
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy


@register("implied")
class Implied(MultiHead):
    """multihead, after labels that follow from a coarser one (an only child) are filled in.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        features: `shared` or `split`; see `multihead`.
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
    """

    @functools.cached_property
    def only(self) -> list[Tensor]:
        """The only child of each class, or -1; see `only_children`."""
        return only_children(self.hierarchy)

    def fill(self, labels: Tensor) -> Tensor:
        """Labels (B, K) with every implied finer label filled in."""
        filled = list(labels.unbind(1))
        for k in reversed(range(len(filled) - 1)):
            only = self.only[k].to(labels.device)
            implied = torch.where(filled[k + 1] >= 0, only[filled[k + 1]], -1)
            filled[k] = torch.where(filled[k] >= 0, filled[k], implied)
        return torch.stack(filled, dim=1)

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """Cross-entropy at every known or implied level."""
        return super().loss(prediction, self.fill(labels))


def only_children(hierarchy: Hierarchy) -> list[Tensor]:
    """Per adjacent pair of levels, for each coarser class its only child, or -1 when it has several: (C_{k+1},)."""
    found = []
    for k, parents in enumerate(hierarchy.parents):
        child = np.zeros(hierarchy.sizes[k + 1], dtype=np.int64)
        child[parents] = np.arange(len(parents))
        several = np.bincount(parents, minlength=hierarchy.sizes[k + 1]) > 1
        found.append(torch.from_numpy(np.where(several, -1, child)))
    return found
