"""The rule of nearest class means, and how answers are counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Bools, Ints

Floats = NDArray[np.float32]
TINY = float(np.finfo(np.float32).tiny)
Scorer = Callable[[Bools], Floats]
"""Given which samples are examples, (n,) bool, the scores of the others for each class, (rest, classes)."""


def class_means(features: Floats, classes: Ints, support: Bools) -> Floats:
    """(classes, d) the mean of the examples of each class, which all have equally many."""
    members = (classes[support] == np.arange(classes.max() + 1)[:, None]).astype(np.float32)
    means: Floats = (members @ features[support]) / members.sum(axis=1, keepdims=True)
    return means


def unit(x: Floats) -> Floats:
    """Rows of unit length; one of zeros stays."""
    scaled: Floats = np.divide(x, np.linalg.norm(x, axis=1, keepdims=True).clip(min=TINY))
    return scaled


def by_cosine(features: Floats, classes: Ints) -> Scorer:
    """Scores are cosines with the means of each class's examples."""
    directions = unit(features)

    def score(support: Bools) -> Floats:
        found: Floats = directions[~support] @ unit(class_means(features, classes, support)).T
        return found

    return score


def hit_rate(scores: Floats, classes: Ints, top: int) -> float:
    """How often the right class is among the `top` highest scores; equal ones are in any order, and count by their chance."""
    right = scores[np.arange(len(scores)), classes][:, None]
    higher = (scores > right).sum(axis=1)
    equal = (scores == right).sum(axis=1)  # itself among them
    return float(((top - higher) / equal).clip(0, 1).mean())
