"""`ppa`: classifier weights predicted from activations (Qiao et al., CVPR 2018).

    a ─► unit length ─► Linear ─► ReLU ─► Linear ─► unit length = w,     score of x for a class: w · x / ‖x‖

Both layers start at the identity. In a step every class to learn from is given by one of its activations, or, three times in
ten, by their mean; from these all weights are predicted, and cross-entropy is taken of another activation of each class.

The published network is a small one for another dataset: on features of other widths this is an extrapolation. Scores in the
cross-entropy are multiplied by `SCALE`: cosines alone cannot come near a probability of one among many classes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.data.samples import Bools, Ints
from torchlht.files import replacing
from torchlht.lab.lowshot.prototypes import Floats, Scorer, class_means, unit

SINGLE = 0.7  # how often a class is given by a single activation
SCALE, LR = 30.0, 0.03  # not published; from 1, 10, 30 and 0.01, 0.03, 0.1 on classes to learn from


class Predictor(nn.Module):
    """Activations (C, d) to weights (C, d) of unit length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        for layer in (self.layers[0], self.layers[2]):
            assert isinstance(layer, nn.Linear)
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, activations: Tensor) -> Tensor:
        """See the class."""
        return F.normalize(self.layers(F.normalize(activations, dim=1)), dim=1)


def train_predictor(features: Floats, classes: Ints, *, steps: int, seed: int) -> Predictor:
    """A predictor for these classes, all of which have samples.

    Args:
        features: (N, d).
        classes: (N,) numbers from 0.
        steps: of SGD with momentum 0.9 and weight decay 0.0005, its learning rate falling along a cosine.
        seed: of the choice of activations.
    """
    rng, x = np.random.default_rng(seed), torch.from_numpy(features)
    means = torch.from_numpy(class_means(features, classes, np.ones(len(classes), dtype=bool)))
    predictor, own = Predictor(features.shape[1]), torch.arange(len(means))
    optimizer = torch.optim.SGD(predictor.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    order, count = np.argsort(classes, kind="stable"), np.bincount(classes)
    for step in range(steps):
        for part in optimizer.param_groups:
            part["lr"] = LR * (1 + math.cos(math.pi * step / steps)) / 2
        one, other = pick_two(count, rng)
        single = torch.from_numpy(rng.random(len(count)) < SINGLE).unsqueeze(1)
        given = torch.where(single, x[order[one]], means)
        logits = SCALE * F.normalize(x[order[other]], dim=1) @ predictor(given).T
        loss = F.cross_entropy(logits, own)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return predictor


def pick_two(count: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Two different samples of each class, positions among samples sorted by class; twice the same of a class with only one."""
    first = (rng.random(len(count)) * count).astype(np.int64)
    further = 1 + (rng.random(len(count)) * (count - 1)).astype(np.int64)
    start = np.cumsum(count) - count
    return start + first, start + (first + further) % count


def by_predicted_weights(predictor: Predictor, features: Floats, classes: Ints) -> Scorer:
    """Scores are products with the weights that are predicted from the means of each class's examples."""
    directions = unit(features)

    def score(support: Bools) -> Floats:
        with torch.inference_mode():
            weights = predictor(torch.from_numpy(class_means(features, classes, support))).numpy()
        found: Floats = directions[~support] @ weights.T
        return found

    return score


def keep(predictor: Predictor, path: Path) -> None:
    """Write its weights."""
    with replacing(path) as beside:
        save_file(predictor.state_dict(), beside)


def kept(path: Path, width: int) -> Predictor:
    """One that was kept."""
    predictor = Predictor(width)
    predictor.load_state_dict(load_file(path))
    return predictor
