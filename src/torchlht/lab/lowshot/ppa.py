"""`ppa`: classifier weights predicted from activations (Qiao et al., CVPR 2018).

    a ─► unit length ─► Linear ─► ReLU ─► Linear ─► unit length = w,     score of x for a class: w · x

Both layers start at the identity. In a step every class to learn from is given by one of its activations, or, three times in
ten, by their mean; from these all weights are predicted, and cross-entropy is taken of an activation of each class, as it is,
that is drawn anew and may be the same one. Its length sets how sharp the softmax is: features of unit length teach little.
The released network is a small one, trained for 12,500 steps at a learning rate of 0.001; this one takes fewer and longer ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.data.samples import Bools, Ints
from torchlht.files import replacing
from torchlht.lab.lowshot.prototypes import Floats, Scorer, class_means

SINGLE = 0.7  # how often a class is given by a single activation
LR = 0.03  # from 0.01, 0.03, 0.1 on classes to learn from


class WeightPredictor(nn.Module):
    """Activations (C, d) to weights (C, d) of unit length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        for layer in (self.layers[0], self.layers[2]):
            assert isinstance(layer, nn.Linear)
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, activations: Tensor) -> Tensor:
        """(C, d) activations to (C, d) weights of unit length."""
        return F.normalize(self.layers(F.normalize(activations, dim=1)), dim=1)


def train_predictor(features: Floats, classes: Ints, *, steps: int, seed: int) -> WeightPredictor:
    """A predictor for these classes, all of which have samples.

    Args:
        features: (N, d).
        classes: (N,) numbers from 0.
        steps: of SGD with momentum 0.9 and weight decay 0.0005.
        seed: of the choice of activations.
    """
    rng, x = np.random.default_rng(seed), torch.from_numpy(features)
    means = torch.from_numpy(class_means(features, classes, np.ones(len(classes), dtype=bool)))
    predictor, own = WeightPredictor(features.shape[1]), torch.arange(len(means))
    optimizer = torch.optim.SGD(predictor.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    for _ in range(steps):
        single = torch.from_numpy(rng.random(len(means)) < SINGLE).unsqueeze(1)
        given = torch.where(single, x[pick(classes, rng)], means)
        loss = F.cross_entropy(x[pick(classes, rng)] @ predictor(given).T, own)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return predictor


def pick(classes: Ints, rng: np.random.Generator) -> Ints:
    """The position of a sample of each class, any of them as likely as another."""
    count = np.bincount(classes)
    picked: Ints = np.argsort(classes, kind="stable")[np.cumsum(count) - count + rng.integers(count)]
    return picked


def by_predicted_weights(predictor: WeightPredictor, features: Floats, classes: Ints) -> Scorer:
    """Scores are products with the weights that are predicted from the means of each class's examples."""

    def score(support: Bools) -> Floats:
        with torch.inference_mode():
            weights = predictor(torch.from_numpy(class_means(features, classes, support))).numpy()
        found: Floats = features[~support] @ weights.T
        return found

    return score


def keep(predictor: WeightPredictor, path: Path) -> None:
    """Write its weights."""
    with replacing(path) as beside:
        save_file(predictor.state_dict(), beside)


def kept(path: Path, width: int) -> WeightPredictor:
    """One that was kept."""
    predictor = WeightPredictor(width)
    predictor.load_state_dict(load_file(path))
    return predictor
