"""An opinion in seconds: what samples without labels are, from those that have some, whatever their depth.

It is EM for classes that are equally wide clouds, on principal components of the features. Round by round

    P_jc ∝ π_c · exp t · (z_j · m_c - |m_c|² / 2)          among the classes that the known labels of j leave possible

z are unit vectors in which the scatter within classes is the same in all directions, m_c the mean of class c under P, π_c its
share, and t is chosen so that known labels are most likely when each is judged without itself. Last, a linear classifier that
starts there takes a few steps of L-BFGS towards P. Unlabelled samples make this far better than training on few labels alone,
and `benchmarks/next.md` has what it costs against `lht train --semi both`, which takes a minute where this takes two seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from torchlht.data.samples import Ints
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.questions.strategy import possible_leaves

COMPONENTS = 256  # of the features that are kept
ROUNDS = 8  # of EM; twice as many were no better on validation samples of birds
SHRINKAGE = 0.3  # share of the scatter that is replaced by its mean over all directions
SMOOTHING = 20.0  # samples that every class is given when its share is estimated
SHARPNESS = torch.logspace(1, 2.05, 8)  # candidates for t
USUAL = 40.0  # t in the first round
STEPS = 12  # of L-BFGS
HOLD = 0.003  # how firmly the classifier is held where it starts
NEVER = -1e9
LEAST = -60.0  # the smallest logarithm of a probability that is told


@dataclass(frozen=True, eq=False)
class Space:
    """Principal components of features. Non-negative features, as after a ReLU, enter as their square roots.

    Attributes:
        root: whether square roots are taken.
        mean: (d,) of the features.
        basis: (d, r) the components.
    """

    root: bool
    mean: Tensor
    basis: Tensor

    @classmethod
    def of(cls, features: NDArray[np.float32], components: int = COMPONENTS) -> Space:
        """Of (N, d) features."""
        x = torch.from_numpy(features)
        root = bool(x.min() >= 0)
        x = x.sqrt() if root else x
        mean = x.mean(dim=0)
        x = x - mean
        if len(x) < x.shape[1]:  # the smaller of the two matrices of products has the same values
            values, left = torch.linalg.eigh(x @ x.T)
            basis = F.normalize(x.T @ left[:, -components:], dim=0)
        else:
            values, basis = torch.linalg.eigh(x.T @ x)
        kept = values[-components:] > 1e-6 * values[-1].clamp(min=1e-30)
        return cls(root, mean, basis[:, -components:][:, kept])

    def __call__(self, features: NDArray[np.float32]) -> Tensor:
        """(N, r) coordinates."""
        x = torch.from_numpy(features)
        return ((x.clamp(min=0).sqrt() if self.root else x) - self.mean) @ self.basis


@dataclass(frozen=True, eq=False)
class Opinion:
    """What samples are believed to be.

    Attributes:
        hierarchy: the tree.
        root: (r, r) lower triangular; its inverse makes the scatter within classes even.
        weight: (C_1, r + 1) of the linear classifier, biases last.
        probs: (N, C_1) the finest classes of the samples it was made from, confined to what their labels leave possible.
        space: (N, r) these samples as unit vectors.
    """

    hierarchy: Hierarchy
    root: Tensor
    weight: Tensor
    probs: Tensor
    space: Tensor

    def answers(self, coordinates: Tensor) -> Ints:
        """(N, K) the most probable class of each level, for samples in the same `Space`."""
        leaves = torch.softmax(with_one(whitened(coordinates, self.root)) @ self.weight.T, dim=1)
        return np.stack([p.argmax(dim=1).numpy() for p in by_level(leaves, self.hierarchy)], axis=1)

    def by_level(self) -> tuple[NDArray[np.float32], ...]:
        """Per level (N, C_k) `probs`."""
        return tuple(p.numpy() for p in by_level(self.probs, self.hierarchy))


class Opinionated(nn.Module):
    """An opinion as a network: features in, a `Prediction` out.

    Args:
        space: what makes coordinates of features.
        opinion: what was formed from samples in that space.
    """

    def __init__(self, space: Space, opinion: Opinion) -> None:
        super().__init__()
        self.space, self.opinion = space, opinion

    def forward(self, features: Tensor) -> Prediction:
        """Log-probabilities at every level; a coarse class is the sum of its finest."""
        z = whitened(self.space(features.numpy()), self.opinion.root)
        logs = [torch.log_softmax(with_one(z) @ self.opinion.weight.T, dim=1).clamp(min=LEAST)]
        tree = self.opinion.hierarchy
        for k in range(1, len(tree)):
            own = torch.from_numpy(tree.ancestors(k).copy())
            logs.append(sum_children(logs[0], own, tree.sizes[k]))
        return Prediction(tuple(logs))


def by_level(leaves: Tensor, hierarchy: Hierarchy) -> list[Tensor]:
    """Per level (N, C_k) from probabilities of the finest classes."""
    found = [leaves]
    for k in range(1, len(hierarchy)):
        own = torch.from_numpy(hierarchy.ancestors(k).copy())
        found.append(torch.zeros(len(leaves), hierarchy.sizes[k]).index_add_(1, own, leaves))
    return found


def whitened(x: Tensor, root: Tensor) -> Tensor:
    """(N, r) unit vectors."""
    return F.normalize(torch.linalg.solve_triangular(root, x.T, upper=False).T, dim=1)


def with_one(z: Tensor) -> Tensor:
    """(N, r + 1) with a 1 at the end."""
    return F.pad(z, (0, 1), value=1.0)


def unopinionated(coordinates: Tensor) -> NDArray[np.float32]:
    """(N, r) unit vectors where no label is known: the scatter of all samples is made even."""
    return whitened(coordinates, root_of(coordinates.T @ coordinates / len(coordinates))).numpy()


def root_of(scatter: Tensor) -> Tensor:
    """The Cholesky factor of a scatter, drawn towards its mean over all directions."""
    size = scatter.diagonal().mean().clamp(min=1e-12)
    found: Tensor = torch.linalg.cholesky(
        (1 - SHRINKAGE) * (scatter + scatter.T) / 2 + SHRINKAGE * size * torch.eye(len(scatter))
    )
    return found


def first_targets(labels: Ints, possible: Tensor) -> Tensor:
    """(N, C_1) known finest labels. A class without one starts from samples of its parent, if some are labelled so far."""
    found = torch.zeros(possible.shape)
    known = torch.from_numpy(labels[:, 0] >= 0)
    found[known] = possible[known].float()
    named = torch.from_numpy((labels >= 0).any(axis=1)) & ~known
    found[named] = (possible[named] & (found.sum(dim=0) == 0)).float()
    return found / found.sum(dim=1, keepdim=True).clamp(min=1)


def form_opinion(coordinates: Tensor, labels: Ints, hierarchy: Hierarchy, *, rounds: int = ROUNDS) -> Opinion | None:
    """An opinion from samples of which some have labels; None if none has.

    Args:
        coordinates: (N, r) of all samples, labelled or not.
        labels: (N, K), fine first, -1 where unknown, with the ancestors of known labels.
        hierarchy: the tree.
        rounds: of EM.
    """
    if not (labels >= 0).any():
        return None
    x, possible = coordinates, torch.from_numpy(possible_leaves(labels, hierarchy))
    rows = torch.from_numpy(np.flatnonzero((labels >= 0).any(axis=1)))
    targets, share = first_targets(labels, possible), torch.zeros(hierarchy.sizes[0])
    root, sharpness = root_of(x.T @ x / len(x)), USUAL
    for turn in range(rounds):
        mass = targets.sum(dim=0)
        root = root_of(scatter_within(x, targets, mass)) if turn else root
        z = whitened(x, root)
        means = targets.T @ z / mass.clamp(min=1e-6).unsqueeze(1)
        bias = -squared_norms(means, mass) / 2 if turn else torch.full_like(mass, -0.15)
        if turn % 2:
            sharpness = choose_sharpness(z[rows], targets[rows], means, mass, bias, share, possible[rows])
        weight = torch.cat([sharpness * means, (sharpness * bias + share).unsqueeze(1)], dim=1)
        weight[mass <= 0, -1] = NEVER
        targets = torch.softmax((with_one(z) @ weight.T).masked_fill(~possible, 2 * NEVER), dim=1)
        share = ((targets.sum(dim=0) + SMOOTHING) / (len(x) + SMOOTHING * len(mass))).log()
    return Opinion(hierarchy, root, towards(with_one(z), targets, weight), targets, z)


def scatter_within(x: Tensor, targets: Tensor, mass: Tensor) -> Tensor:
    """(r, r) the scatter around class means."""
    sums = targets.T @ x
    own = (x * targets.sum(dim=1, keepdim=True)).T @ x
    return (own - (sums / mass.clamp(min=1e-6).unsqueeze(1)).T @ sums) / mass.sum()


def squared_norms(means: Tensor, mass: Tensor) -> Tensor:
    """|m|² of the classes' true means: the mean of n unit vectors is too long by chance."""
    return ((mass * means.square().sum(dim=1) - 1) / (mass - 1).clamp(min=0.5)).clamp(min=0)


def choose_sharpness(
    z: Tensor, targets: Tensor, means: Tensor, mass: Tensor, bias: Tensor, share: Tensor, possible: Tensor
) -> float:
    """The t under which known labels are most likely, each judged without itself."""
    others = mass - targets
    scores = (mass * (z @ means.T) - targets) / others.clamp(min=1e-6) + bias
    scores = scores.masked_fill(others < 0.3, -1.0)

    def likely(t: float) -> float:
        logs = torch.log_softmax(t * scores + share, dim=1)
        return logs.masked_fill(~possible, NEVER).logsumexp(dim=1).clamp(min=-12).mean().item()

    return float(max(SHARPNESS.tolist(), key=likely))


def towards(inputs: Tensor, targets: Tensor, start: Tensor) -> Tensor:
    """Weights of a linear classifier after a few steps from `start` towards targets."""
    weight = start.clone().requires_grad_()
    steps = torch.optim.LBFGS([weight], max_iter=STEPS, history_size=5)

    def loss() -> Tensor:
        steps.zero_grad()
        off = -(targets * torch.log_softmax(inputs @ weight.T, dim=1)).sum(dim=1).mean()
        found = off + HOLD * (weight - start).square().sum() / len(inputs)
        found.backward()  # type: ignore[no-untyped-call]
        return found

    with torch.enable_grad():
        steps.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach()
