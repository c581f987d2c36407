"""`logistic`: scikit-learn's logistic regression over the finest classes. A peer: what a user might choose instead.

Features are standardised. It learns from fine labels alone; coarser levels are sums over children.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from torchlht.doors import Count, Positive
from torchlht.errors import MissingExtraError
from torchlht.heads.method import Estimator, register
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children, widened
from torchlht.hierarchy.tree import Hierarchy

NEVER = -1e3  # the logit of a class without samples


@register("logistic", paper="Pedregosa et al., scikit-learn, JMLR 2011")
class Logistic(Estimator):
    """scikit-learn's LogisticRegression on fine labels; coarser probabilities are sums. A peer, fitted at once.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        C: inverse strength of the regularisation.
        max_iter: largest number of iterations of the solver.
    """

    package: ClassVar[str] = "sklearn"
    grid: ClassVar[dict[str, tuple[Any, ...]]] = {"C": (0.01, 0.1, 1.0)}
    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, in_features: int, hierarchy: Hierarchy, *, C: Positive = 1.0, max_iter: Count = 1000) -> None:
        super().__init__(in_features, hierarchy)
        self.C, self.max_iter = C, max_iter
        self.register_buffer("mean", torch.zeros(in_features))
        self.register_buffer("scale", torch.ones(in_features))
        self.register_buffer("weight", torch.zeros(hierarchy.sizes[0], in_features))
        self.register_buffer("bias", torch.zeros(hierarchy.sizes[0]))

    def standardised(self, features: Tensor) -> Tensor:
        """Features scaled so that training samples have mean 0 and deviation 1."""
        return (widened(features) - self.mean) / self.scale

    def typical(self, x: Tensor) -> Tensor:
        """(B, in_features) standard normal numbers, moved to the scale of the training features."""
        return self.mean + self.scale * x

    def learn_scale(self, features: Tensor) -> None:
        """Store mean and deviation of these features."""
        self.mean.copy_(features.mean(dim=0))
        deviation = features.std(dim=0, correction=0)
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))

    def fit(self, features: Tensor, labels: Tensor, *, seed: int = 0) -> None:
        """Fit the regression to features (N, d) with a known finest label in (N, K)."""
        self.learn_scale(features)
        known = labels[:, 0] >= 0
        x, y = self.standardised(features[known]).numpy(), labels[known, 0].numpy()
        weight, bias = fit_softmax(x, y, self.hierarchy.sizes[0], C=self.C, max_iter=self.max_iter, seed=seed)
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.copy_(torch.from_numpy(bias))

    def forward(self, features: Tensor) -> Prediction:
        """(B, d) features to log-probabilities at every level."""
        logits = self.standardised(features) @ self.weight.T + self.bias
        log_probs = [torch.log_softmax(logits, dim=1)]
        for k, size in enumerate(self.hierarchy.sizes[1:]):
            log_probs.append(sum_children(log_probs[-1], self.parents(k), size))
        return Prediction(tuple(log_probs))

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: samples with a fine label."""
        return labels[:, 0] >= 0


def regression(C: float, max_iter: int, seed: int) -> Any:
    """An unfitted scikit-learn regression."""
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtraError("scikit-learn", extra="peers") from None
    return LogisticRegression(C=C, max_iter=max_iter, random_state=seed)


def own_threads() -> AbstractContextManager[object]:
    """Context: numpy's libraries use as many threads as torch; more threads than cores are very slow."""
    from threadpoolctl import threadpool_limits

    limits: AbstractContextManager[object] = threadpool_limits(torch.get_num_threads())
    return limits


def fit_softmax(
    x: np.ndarray[Any, Any], y: np.ndarray[Any, Any], classes: int, *, C: float, max_iter: int, seed: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Weights (classes, d) and biases of a fitted softmax over `classes`; classes without samples are never chosen."""
    weight, bias = np.zeros((classes, x.shape[1])), np.full(classes, NEVER)
    present = np.unique(y)
    if len(present) == 1:
        bias[present] = 0
        return weight, bias
    with own_threads():
        fitted = regression(C, max_iter, seed).fit(x, y)
    put(fitted, fitted.classes_, weight, bias)
    return weight, bias


def put(fitted: Any, rows: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], bias: np.ndarray[Any, Any]) -> None:
    """Write a fitted regression into the rows of its classes. For two classes scikit-learn has one row; the other is 0."""
    if len(rows) == 2:
        weight[rows[1]], bias[rows] = fitted.coef_[0], [0.0, fitted.intercept_[0]]
    else:
        weight[rows], bias[rows] = fitted.coef_, fitted.intercept_
