"""Out-of-fold opinions: a linear discriminant that learns from labels of any depth, fitted in seconds.

Every finest class is a Gaussian, and all have one scatter. Its mean is drawn to that of its parent, and this to its own
parent's, as `PULL` more samples would: a class with three labels is a corrected guess from its family. Samples without a
finest label are divided among the classes that their known labels allow, round by round (EM).

A score is -½ of the distance to a class over the mean distance to all classes, so that samples far from everything are not
taken for sure. `wrong.py` turns scores into probabilities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchlht.data.samples import Ints, Samples, deepest_known, hashed
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.propagation import even

SHRINKAGE = 0.6  # share of the scatter that is replaced by its mean over all directions
PULL = 2.0  # how many samples the parent's mean counts for
WIDEST = 384  # wider features are reduced to so many principal components, which costs nothing here and is quick
ROUNDS = 3  # of EM, if samples lack their finest label
ROWS = 2**22  # entries of a (samples, classes) table at a time
SHARPNESS = torch.logspace(0.5, 3.5, 37)  # candidates for what turns scores into log-probabilities


@dataclass(frozen=True)
class Judge:
    """A fitted discriminant.

    Attributes:
        root: (d, d) the lower Cholesky factor of the scatter.
        means: (C_1, d) the classes' means, whitened by it.
        mass: (C_1,) how many samples stand behind each, without what the parent lends.
    """

    root: Tensor
    means: Tensor
    mass: Tensor

    def scores(self, x: Tensor) -> Tensor:
        """(B, C_1) scores of (B, d) features; higher is more likely."""
        z = torch.linalg.solve_triangular(self.root, x.T, upper=False).T
        far = z.square().sum(1, keepdim=True) - 2 * z @ self.means.T + self.means.square().sum(1)
        scores: Tensor = -0.5 * far / far.mean(dim=1, keepdim=True).clamp(min=1e-12)
        return scores


@dataclass(frozen=True)
class Opinions:
    """What judges think of samples whose labels they have not seen.

    Attributes:
        x: (N, d) features as the judges take them.
        fold: (N,) the part each sample belongs to; judge number `fold` has not seen it.
        judges: one per part.
        tree: the classes.
    """

    x: Tensor
    fold: Ints
    judges: tuple[Judge, ...]
    tree: Hierarchy

    def chunks(self, among: Ints | None = None) -> Iterator[tuple[Ints, Tensor]]:
        """Positions and (B, C_1) scores of all samples, or of those `among`, some at a time."""
        step = max(ROWS // self.tree.sizes[0], 1)
        for part, judge in enumerate(self.judges):
            rows = np.flatnonzero(self.fold == part)
            rows = rows if among is None else np.intersect1d(rows, among)
            for start in range(0, len(rows), step):
                here = rows[start : start + step]
                yield here, judge.scores(self.x[torch.from_numpy(here)])

    def scores(self, among: Ints) -> Tensor:
        """(n, C_1) scores of some samples, in their order."""
        found = torch.empty(len(among), self.tree.sizes[0])
        place = {int(row): i for i, row in enumerate(among)}
        for rows, scores in self.chunks(among):
            found[[place[int(row)] for row in rows]] = scores
        return found


def form_opinions(
    samples: Samples,
    *,
    folds: int = 10,
    seed: int = 0,
    weights: Tensor | None = None,
    together: Iterable[tuple[int, int]] = (),
) -> Opinions:
    """Judge every sample by discriminants that have not seen its label.

    Args:
        samples: features with labels; pictures must have been turned into features.
        folds: how many parts, each judged by what the others teach.
        seed: chooses the parts, along with the samples' names.
        weights: (N,) how much each sample's label counts in learning; 1 by default.
        together: pairs of samples that belong to the same part, as twins do: one would give the other's label away.
    """
    assert samples.features is not None
    x = components(even(torch.from_numpy(samples.features)), WIDEST)
    fold = choose_parts(samples, folds, seed)
    for first, second in together:
        fold[second] = fold[first]
    judges = []
    for part in range(folds):
        seen = torch.from_numpy(np.flatnonzero(fold != part))
        counts = None if weights is None else weights[seen]
        judges.append(learn(x[seen], samples.labels[seen.numpy()], samples.hierarchy, counts))
    return Opinions(x, fold, tuple(judges), samples.hierarchy)


def components(x: Tensor, most: int) -> Tensor:
    """Features on their first principal components, if there are more than `most`."""
    if x.shape[1] <= most:
        return x
    _, axes = torch.linalg.eigh((x.T @ x).double())  # in float32 this fails where samples are fewer than features
    found: Tensor = x @ axes[:, -most:].float()
    return found


def choose_parts(samples: Samples, folds: int, seed: int) -> Ints:
    """(N,) a part for each sample, such that each class's samples are spread evenly; it depends on keys and seed alone."""
    strata = samples.strata()
    order = sorted(range(len(samples)), key=lambda i: (strata[i], hashed(seed, "audit", samples.keys[i]), samples.keys[i]))
    fold = np.empty(len(samples), dtype=np.int64)
    fold[order] = np.arange(len(samples)) % folds
    return fold


# ---- learning ------------------------------------------------------------------------------------------------------


def learn(x: Tensor, labels: Ints, tree: Hierarchy, weights: Tensor | None = None) -> Judge:
    """A discriminant from (N, d) centred features and (N, K) labels, fine first, -1 where unknown."""
    deepest = deepest_known(labels)
    counts = torch.ones(len(x)) if weights is None else weights
    total = (x * counts.unsqueeze(1)).T @ x
    partial = bool(((deepest > 0) & (deepest < len(tree))).any())
    sums, mass = _known_sums(x, labels, deepest, tree, counts)
    judge = _judge(sums, mass, total, tree)
    for _ in range(ROUNDS - 1 if partial else 0):
        sharpness = _sharpness(judge, x, labels, tree) * 0.7  # soft shares: they are guesses
        sums, mass = _shared_sums(judge, x, labels, deepest, tree, counts, sharpness)
        judge = _judge(sums, mass, total, tree)
    return judge


Sums = list[Tensor]  # per level, fine first: (C_k, d) or (C_k,)


def _known_sums(x: Tensor, labels: Ints, deepest: Ints, tree: Hierarchy, counts: Tensor) -> tuple[Sums, Sums]:
    """Sums and numbers of the samples whose deepest known class each class is."""
    sums = [torch.zeros(size, x.shape[1]) for size in tree.sizes]
    mass = [torch.zeros(size) for size in tree.sizes]
    for k in range(len(tree)):
        rows = torch.from_numpy(np.flatnonzero(deepest == k))
        at = torch.from_numpy(labels[rows.numpy(), k])
        sums[k].index_add_(0, at, x[rows] * counts[rows].unsqueeze(1))
        mass[k].index_add_(0, at, counts[rows])
    return sums, mass


def _shared_sums(
    judge: Judge, x: Tensor, labels: Ints, deepest: Ints, tree: Hierarchy, counts: Tensor, sharpness: float
) -> tuple[Sums, Sums]:
    """The same, with every sample divided among the finest classes that its label allows."""
    sums = [torch.zeros(size, x.shape[1]) for size in tree.sizes]
    mass = [torch.zeros(size) for size in tree.sizes]
    for rows in _pieces(np.flatnonzero(deepest < len(tree)), tree):
        at = torch.from_numpy(rows)
        shares = torch.softmax((judge.scores(x[at]) * sharpness).masked_fill(~allowed(labels[rows], tree), -torch.inf), dim=1)
        shares = shares * counts[at].unsqueeze(1)
        sums[0] += shares.T @ x[at]
        mass[0] += shares.sum(dim=0)
    return sums, mass


def _pieces(rows: Ints, tree: Hierarchy) -> Iterator[Ints]:
    step = max(ROWS // tree.sizes[0], 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def allowed(labels: Ints, tree: Hierarchy) -> Tensor:
    """(N, C_1) bool: the finest classes that (N, K) labels allow."""
    found = torch.ones(len(labels), tree.sizes[0], dtype=torch.bool)
    deepest = deepest_known(labels)
    for k in range(len(tree)):
        rows = np.flatnonzero(deepest == k)
        found[torch.from_numpy(rows)] = torch.from_numpy(tree.ancestors(k)[None, :] == labels[rows, k][:, None])
    return found


def _judge(sums: Sums, mass: Sums, total: Tensor, tree: Hierarchy) -> Judge:
    """A judge from sums and numbers of samples by their deepest class."""
    known = sum(float(m.sum()) for m in mass)
    between = torch.zeros_like(total)
    for level_sums, level_mass in zip(sums, mass, strict=True):
        between += (level_sums / level_mass.clamp(min=1e-6).unsqueeze(1)).T @ level_sums
    classes = sum(int((m > 0.5).sum()) for m in mass)
    scatter = (total - between) / max(known - classes, 0.5 * known, 1.0)
    least = (
        1e-3 * float(total.diagonal().mean()) / max(known, 1.0)
    )  # samples that equal their class leave rounding errors alone
    size = scatter.diagonal().mean().clamp(min=max(least, 1e-12))
    scatter = (1 - SHRINKAGE) * (scatter + scatter.T) / 2 + SHRINKAGE * size * torch.eye(len(scatter))
    root = torch.linalg.cholesky(scatter)
    means = torch.linalg.solve_triangular(root, tree_means(sums, mass, tree).T, upper=False).T
    return Judge(root, means, mass[0])


def tree_means(sums: Sums, mass: Sums, tree: Hierarchy, pull: float = PULL) -> Tensor:
    """(C_1, d) means of the finest classes, each drawn to its parent's by `pull` samples; the root's mean is zero."""
    sums, mass = [s.clone() for s in sums], [m.clone() for m in mass]
    for k, parents in enumerate(tree.parents):
        up = torch.from_numpy(parents.copy())
        sums[k + 1].index_add_(0, up, sums[k])
        mass[k + 1].index_add_(0, up, mass[k])
    above = torch.zeros(tree.sizes[-1], sums[0].shape[1])
    for k in tree.top_down:
        here = above if k == len(tree) - 1 else above[torch.from_numpy(tree.parents[k].copy())]
        above = (sums[k] + pull * here) / (mass[k] + pull).unsqueeze(1)
    return above


def _sharpness(judge: Judge, x: Tensor, labels: Ints, tree: Hierarchy, most: int = 2000) -> float:
    """The factor of scores under which what labels allow is likeliest."""
    rows = np.flatnonzero(labels[:, 0] >= 0)
    rows = rows if len(rows) else np.flatnonzero((labels >= 0).any(axis=1))
    rows = rows[:: -(-len(rows) // most)]
    return best_sharpness(judge.scores(x[torch.from_numpy(rows)]), allowed(labels[rows], tree))


def best_sharpness(scores: Tensor, ok: Tensor) -> float:
    """The factor of (n, C_1) scores under which the classes in `ok` are likeliest."""
    likely = [(torch.softmax(t * scores, dim=1) * ok).sum(dim=1).clamp(min=1e-9).log().mean() for t in SHARPNESS.tolist()]
    return float(SHARPNESS[torch.stack(likely).argmax()])
