"""`hiclass`: one logistic regression per parent node, from the hiclass library. A peer: what a user might choose instead.

`LocalClassifierPerParentNode` learns at every node to tell its children apart, from samples labelled that deep, and
answers from the top down. Its fitted regressions are stored here as plain weights: p(child) = p(parent) · p(child | parent).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from torchlht.doors import Count, Positive
from torchlht.errors import ConfigError, MissingExtraError
from torchlht.heads.method import register
from torchlht.heads.methods.logistic import NEVER, Logistic, own_threads, put, regression
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy


@register("hiclass", paper="Miranda et al., HiClass, JMLR 2023")
class HiClass(Logistic):
    """hiclass's LocalClassifierPerParentNode over logistic regressions, answered from the top down. A peer, fitted at once.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes; at least two levels.
        C: inverse strength of the regularisation.
        max_iter: largest number of iterations of the solver.
    """

    package: ClassVar[str] = "hiclass"
    rule: ClassVar[str] = "top_down"

    def __init__(self, in_features: int, hierarchy: Hierarchy, *, C: Positive = 1.0, max_iter: Count = 1000) -> None:
        super().__init__(in_features, hierarchy, C=C, max_iter=max_iter)
        if len(hierarchy) < 2:
            raise ConfigError("hiclass needs a hierarchy of at least two levels; use the method logistic")
        del self.weight, self.bias
        for k, size in enumerate(hierarchy.sizes):
            self.register_buffer(f"weight_{k}", torch.zeros(size, in_features))
            self.register_buffer(f"bias_{k}", torch.full((size,), NEVER))

    def fit(self, features: Tensor, labels: Tensor, *, seed: int = 0) -> None:
        """Fit one regression per parent node to features (N, d) and labels (N, K), and keep its weights."""
        try:
            from hiclass import LocalClassifierPerParentNode
        except ImportError:
            raise MissingExtraError("hiclass", extra="peers") from None
        known = labels[:, -1] >= 0  # it starts at the top
        self.learn_scale(features[known])
        tree = LocalClassifierPerParentNode(regression(self.C, self.max_iter, seed), replace_classifiers=True)
        x = self.standardised(features[known]).numpy()
        with own_threads():
            tree.fit(x, path_names(labels[known]))
        self.take(tree)

    def take(self, tree: Any) -> None:
        """Copy the weights of every node's regression."""
        found = {k: (np.zeros((n, self.in_features)), np.full(n, NEVER)) for k, n in enumerate(self.hierarchy.sizes)}
        for _, node in tree.hierarchy_.nodes(data=True):
            local = node.get("classifier")
            if local is None:
                continue
            ends = [name.rpartition(tree.separator_)[2].split("/") for name in np.asarray(local.classes_).tolist()]
            weight, bias = found[int(ends[0][0])]
            children = np.array([int(index) for _, index in ends])
            if len(children) == 1:
                bias[children] = 0.0
            else:
                put(local, children, weight, bias)
        for k, (weight, bias) in found.items():
            self.get_buffer(f"weight_{k}").copy_(torch.from_numpy(weight))
            self.get_buffer(f"bias_{k}").copy_(torch.from_numpy(bias))

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level, multiplied along the path."""
        x = self.standardised(features)
        logits = [x @ self.get_buffer(f"weight_{k}").T + self.get_buffer(f"bias_{k}") for k in range(len(self.hierarchy))]
        log_probs = [torch.log_softmax(logits[-1], dim=1)]
        for k in reversed(range(len(self.hierarchy) - 1)):
            parents = self.parents(k)
            siblings = sum_children(logits[k], parents, self.hierarchy.sizes[k + 1])
            log_probs.append(log_probs[-1][:, parents] + logits[k] - siblings[:, parents])
        fine_first = tuple(log_probs[::-1])
        return Prediction(fine_first, choice=self.choose(fine_first))

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: samples with a label at the coarsest level, where it starts."""
        return labels[:, -1] >= 0


def path_names(labels: Tensor) -> np.ndarray[Any, Any]:
    """(N, K) labels as hiclass takes them: names coarse → fine, unique over levels, empty where unknown."""
    rows = [[f"{k}/{c}" if c >= 0 else "" for k, c in enumerate(row)][::-1] for row in labels.tolist()]
    return np.array(rows)
