"""How unlike anything it was trained on a sample is, level by level, from the features that a method takes and what it says.

Distance. Features are scaled to length 1. Scatter within and between classes are diagonalised together (Fisher's linear
discriminants), so that in the new coordinates z the scatter within a finest class is 1 and that of all samples is λ. With the
classes' means m_c, and the mean of all samples at 0,

    s(x)  =  min_c |z - m_c|²  -  Σ_i z_i² / λ_i

is the relative Mahalanobis distance (Ren et al., 2021): how much farther from the nearest class than from everything.
Directions that do not tell classes apart cancel out, so few are kept, and the state is small: one matrix, and a mean per class.
A training sample without a finest label counts for the class that the model gives it among those its labels allow.

Doubt. H_k(x) is the entropy of the method's uncalibrated probabilities at level k. A new bird of a known order leaves the
family open, not the order. A level's score is u_k = s / std(s) + H_k / std(H_k).

Reference. u_k of samples that were not trained on: validation samples. `as_far` is the share of them with at least this score,
a p-value; calling those below α unlike anything known calls a share α of known samples so. It never falls from fine to coarse.
Without validation samples, s of training samples that are left out of the fit by turns is the reference. A method is sure of
what it was trained on, so H_k does not count then, and all levels have the same p-value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from torchlht.errors import RunError
from torchlht.files import replacing
from torchlht.heads.prediction import Prediction, path_scores
from torchlht.hierarchy.tree import Hierarchy

FILE = "novelty.safetensors"
ALARMS = 0.05  # share of known samples that may be called unlike anything known
FOLDS, FEW = 10, 20  # parts of the training samples that are left out by turns; fewer samples are not enough
WIDEST, KEPT = 512, 256  # directions of the features that are looked at; discriminants
SHRINKAGE = 0.1  # of the scatter within classes, towards the same variance in all directions
QUANTILES = 1001  # of the reference


@dataclass(frozen=True)
class Space:
    """Discriminants, and the classes in them.

    Attributes:
        centre: (d,) mean of the scaled features.
        projection: (d, q) to the new coordinates.
        spread: (q,) λ.
        means: (C, q) the mean of each finest class that has samples.
    """

    centre: Tensor
    projection: Tensor
    spread: Tensor
    means: Tensor

    def distance(self, features: Tensor) -> Tensor:
        """(B, d) features to (B,) s."""
        return self.inside(F.normalize(features.to(self.projection.dtype), dim=1))

    def inside(self, x: Tensor) -> Tensor:
        """(B,) s of features of length 1, or of their coordinates, if the space is about these."""
        z = (x - self.centre) @ self.projection
        nearest = (self.means.square().sum(dim=1) - 2 * z @ self.means.T).amin(dim=1)
        return nearest + (z.square() * (1 - 1 / self.spread)).sum(dim=1)


@dataclass(frozen=True)
class Novelty:
    """What tells how unlike known samples a sample is.

    Attributes:
        weights: (K, 2) of s and H_k in the score of each level, fine first.
        references: (K, n) quantiles of the scores of known samples, ascending.
        space: the discriminants; None in an exported file, which gives s itself.
    """

    weights: Tensor
    references: Tensor
    space: Space | None = None

    def seen(self, prediction: Prediction, features: Tensor) -> Prediction:
        """The prediction with the distance of its features."""
        assert self.space is not None
        return dataclasses.replace(prediction, distance=self.space.distance(features.cpu()))

    def as_far(self, prediction: Prediction) -> Tensor:
        """(B, K) the share of known samples that are at least as far, by an uncalibrated prediction; fine first."""
        scores = _scores(prediction, self.weights)
        return torch.stack([_share(u, known) for u, known in zip(scores, self.references, strict=True)]).cummax(0).values.T

    def to_dict(self) -> dict[str, Any]:
        """What an exported file keeps, as plain values."""
        return {"alarms": ALARMS, "weights": self.weights.tolist(), "references": self.references.tolist()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Novelty:
        """The inverse of `to_dict`, without the space."""
        return cls(torch.tensor(values["weights"]), torch.tensor(values["references"]))

    def write(self, folder: Path) -> None:
        """Write novelty.safetensors."""
        tensors = {"weights": self.weights, "references": self.references, **vars(self.space)}
        with replacing(folder / FILE) as beside:
            save_file({name: value.contiguous() for name, value in tensors.items()}, beside)

    @classmethod
    def read(cls, folder: Path, in_features: int, levels: int) -> Novelty | None:
        """That of a run whose method takes features of this width, or None."""
        if not (folder / FILE).is_file():
            return None
        try:
            with safe_open(folder / FILE, "pt") as file:
                found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
            novelty = cls(found.pop("weights"), found.pop("references"), Space(**found))
        except (SafetensorError, KeyError, TypeError) as error:
            raise RunError(f"{folder / FILE}: cannot be read ({error!r}); write it again with lht calibrate") from error
        novelty.check(str(folder / FILE), in_features, levels)
        return novelty

    def check(self, source: str, in_features: int, levels: int) -> None:
        """Raise RunError if it is not for features of this width and this many levels, or holds what is no number."""
        assert self.space is not None
        q, n, classes = self.space.spread.numel(), self.references.numel() // levels, self.space.means.shape[:1]
        wanted = {
            "weights": (levels, 2), "references": (levels, n), "centre": (in_features,), "projection": (in_features, q),
            "spread": (q,), "means": (*classes, q),
        }  # fmt: skip
        found = {**vars(self), **vars(self.space)}
        if any(found[name].shape != shape or not torch.isfinite(found[name]).all() for name, shape in wanted.items()):
            raise RunError(f"{source}: does not fit this run; write it again with lht calibrate")


def _scores(prediction: Prediction, weights: Tensor) -> Tensor:
    """(K, B) u_k of every level."""
    assert prediction.distance is not None
    return torch.stack([a * prediction.distance + b * h for (a, b), h in zip(weights, doubts(prediction), strict=True)])


def doubts(prediction: Prediction) -> list[Tensor]:
    """(B,) the entropy of each level, fine first; a level with a sigmoid per class is normalised first."""
    levels = [torch.log_softmax(log_p.cpu(), dim=1) for log_p in prediction.log_probs]
    return [-torch.special.xlogy(log_p.exp(), log_p.exp()).sum(dim=1) for log_p in levels]


def _share(scores: Tensor, known: Tensor) -> Tensor:
    """(B,) the share of (n,) ascending quantiles that are at least as large; never 0."""
    return (1 + len(known) - torch.searchsorted(known, scores.to(known))) / (len(known) + 1)


# ---- fitting ---------------------------------------------------------------------------------------------------------


def fit_novelty(
    features: Tensor, leaves: Tensor, levels: int, known: Sequence[tuple[Tensor, Prediction]] = ()
) -> Novelty | None:
    """Fit to training samples; None if there are too few of them or their features are all the same.

    Args:
        features: (n, d) what the method takes.
        leaves: (n,) a finest class for every sample, see `leaves_of`.
        levels: number of levels.
        known: features of validation samples and the predictions for them, in batches.
    """
    x = F.normalize(features.double(), dim=1)
    if len(x) < FEW or not torch.isfinite(x).all() or torch.allclose(x, x[:1]):
        return None
    centre = x.mean(dim=0)
    _, vectors = torch.linalg.eigh((x - centre).T @ (x - centre))
    basis = vectors[:, -WIDEST:]
    x = (x - centre) @ basis
    found = discriminants(x, leaves)
    space = _rounded(dataclasses.replace(found, centre=centre, projection=basis @ found.projection))
    if sum(len(one) for one, _ in known) >= FEW:
        distance = torch.cat([space.distance(one.cpu()) for one, _ in known])
        doubt = torch.stack([torch.cat(level) for level in zip(*(doubts(said) for _, said in known), strict=True)])
    else:
        distance = left_out(x, leaves)
        doubt = torch.zeros(levels, len(distance))
    spread = torch.cat([distance.std().reshape(1), doubt.std(dim=1)])
    per = torch.where(spread > 0, 1 / spread.clamp(min=1e-12), 0.0).float()
    weights = torch.stack([per[:1].expand(levels), per[1:]], dim=1)
    scores = weights[:, :1] * distance.float() + weights[:, 1:] * doubt.float()
    steps = torch.linspace(0, 1, min(QUANTILES, len(distance)))
    return Novelty(weights, torch.quantile(scores, steps, dim=1).T.contiguous(), space)


def leaves_of(prediction: Prediction, labels: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B,) the finest class of samples: the best path among those that their (B, K) labels allow."""
    scores = path_scores(prediction.log_probs, hierarchy).cpu().clamp(min=torch.finfo(torch.float32).min)
    for k, y in enumerate(labels.cpu().unbind(dim=1)):
        above = torch.from_numpy(hierarchy.ancestors(k).copy())
        scores = scores.masked_fill((above != y.unsqueeze(1)) & (y >= 0).unsqueeze(1), -torch.inf)
    return scores.argmax(dim=1)


def discriminants(x: Tensor, leaves: Tensor) -> Space:
    """Fisher's discriminants of coordinates (n, p) of samples with (n,) classes."""
    centre, classes = x.mean(dim=0), torch.unique(leaves, return_inverse=True)[1]
    z = x - centre
    counts = torch.bincount(classes).unsqueeze(1)
    means = torch.zeros(len(counts), z.shape[1], dtype=z.dtype).index_add_(0, classes, z) / counts
    rest = z - means[classes]
    within = rest.T @ rest / len(z)
    size = within.trace() / len(within) + 1e-12  # no scatter at all, if every class has a single sample
    values, vectors = torch.linalg.eigh((1 - SHRINKAGE) * within + SHRINKAGE * size * torch.eye(len(within), dtype=z.dtype))
    whiten = vectors / values.sqrt()
    white = means @ whiten
    between, rotate = torch.linalg.eigh(white.T @ (white * counts / len(z)))
    kept = slice(-min(KEPT, max(len(counts) - 1, 1), len(between)), None)
    return Space(centre, whiten @ rotate[:, kept], 1 + between[kept].clamp(min=0), white @ rotate[:, kept])


def left_out(x: Tensor, leaves: Tensor) -> Tensor:
    """(n,) s of samples by their coordinates (n, p), each from a fit to nine tenths of them without it."""
    turns, found = torch.from_numpy(np.random.default_rng(0).permutation(len(x)) % FOLDS), torch.empty(len(x), dtype=x.dtype)
    for turn in range(FOLDS):
        out = turns == turn
        found[out] = discriminants(x[~out], leaves[~out]).inside(x[out])
    return found


def _rounded(space: Space) -> Space:
    """The same numbers in float32."""
    return Space(**{name: value.float() for name, value in vars(space).items()})
