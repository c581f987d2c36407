"""Features and labels of the six species of `conftest.PATHS`, as a user of scikit-learn has them."""

from __future__ import annotations

import numpy as np

from conftest import PATHS

ROWS = np.array(PATHS)
SPECIES = np.repeat(np.arange(6), 20)


def features(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (np.random.default_rng(0).normal(size=(6, 12))[SPECIES] * 2 + rng.normal(size=(120, 12))).astype(np.float32)


X, X_NEW, Y = features(), features(1), ROWS[SPECIES]


def partly(share: float = 0.5) -> np.ndarray:
    """The labels without some of the finest ones."""
    y = Y.astype(object)
    y[np.random.default_rng(0).random(len(y)) < share, 2] = ""
    return y
