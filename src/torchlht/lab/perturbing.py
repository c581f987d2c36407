"""Faults added on purpose, to measure their effect: trees with misplaced classes, wrong coarse labels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from torchlht.data.samples import Ints, Samples, choose_some, deepest_known, hashed
from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Perturb


@dataclass(frozen=True)
class Perturbation:
    """A fault and how much of it. It depends on the data, the share and the seed alone.

    Attributes:
        kind: `rewired` moves finest classes to a random other parent, and labels follow: a tree that does not fit the looks.
            `stale` moves them in the tree only: labels are right, and the tree given to methods contradicts them.
            `renamed` swaps names at the second finest level, in labels and tree: only names change.
            `stale_prior` swaps them in the labels only, as in the released Perturbed-Aircraft.
        share: share of the finest classes to move, or of the second finest to rename, 0 to 1.
        noise: share of the training samples without a finest label whose other labels are replaced by those of a random
            other class.
        seed: chooses them, and their new places.
    """

    kind: Perturb = "none"
    share: float = 0.0
    noise: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"`perturb_share` is {self.share}: it must be a share of the classes, from 0 to 1")
        if not 0 <= self.noise <= 1:
            raise ConfigError(f"`label_noise` is {self.noise}: pass a share of the samples without a finest label, from 0 to 1")

    def perturb_tree(self, samples: Samples) -> Samples:
        """The samples with another tree; call it before labels are hidden."""
        if self.kind == "none" or len(samples.hierarchy) < 2:
            return samples
        if self.kind in ("renamed", "stale_prior"):
            return self._rename(samples)
        tree = rewire(samples.hierarchy, self.share, self.seed)
        if self.kind == "stale":
            return dataclasses.replace(samples, hierarchy=tree)
        labels = samples.labels.copy()
        known = labels[:, 0] >= 0
        for k in range(1, len(tree)):
            labels[known, k] = tree.ancestors(k)[labels[known, 0]]
        return dataclasses.replace(samples, hierarchy=tree, labels=labels)

    def _rename(self, samples: Samples) -> Samples:
        tree, new = rename_level(samples.hierarchy, self.share, self.seed)
        labels = samples.labels.copy()
        known = labels[:, 1] >= 0
        labels[known, 1] = new[labels[known, 1]]
        prior = samples.hierarchy if self.kind == "stale_prior" else tree
        return dataclasses.replace(samples, hierarchy=prior, labels=labels)

    def perturb_labels(self, samples: Samples) -> Samples:
        """The samples with wrong coarse labels; call it after labels are hidden."""
        if not self.noise:
            return samples
        labels, tree = samples.labels.copy(), samples.hierarchy
        deepest = deepest_known(labels)
        coarse = np.flatnonzero((samples.split == "train") & (deepest > 0) & (deepest < len(tree)))
        strata = samples.strata()
        chosen = choose_some(
            [samples.keys[i] for i in coarse],
            [strata[i] for i in coarse],
            lambda _, n: round(n * self.noise),
            seed=self.seed,
            purpose="noise",
        )
        random = np.random.default_rng([self.seed, 2])
        for i in coarse[chosen].tolist():
            level = int(deepest[i])
            wrong = (labels[i, level] + random.integers(1, max(tree.sizes[level], 2))) % tree.sizes[level]
            labels[i, level:] = [tree.ancestors(k, of=level)[wrong] for k in range(level, len(tree))]
        return dataclasses.replace(samples, labels=labels)


def rewire(tree: Hierarchy, share: float, seed: int = 0) -> Hierarchy:
    """The tree with a share of its finest classes moved to a random other parent. No parent is left without children.

    Only children swap places with each other.
    """
    parents: Ints = tree.parents[0].copy()
    moved = choose_some(tree.classes[0], ["all"] * len(parents), lambda _, n: round(n * share), seed=seed, purpose="rewire")
    moved &= ~tree.stand_ins[0]
    by_name = sorted(np.flatnonzero(~tree.ends[1]).tolist(), key=lambda i: tree.classes[1][i])
    alone = []
    for j in sorted(np.flatnonzero(moved).tolist(), key=lambda j: tree.classes[0][j]):
        if np.sum(parents == parents[j]) > 1:
            others = [i for i in by_name if i != parents[j]]
            parents[j] = others[hashed(seed, "rewire to", tree.classes[0][j]) % len(others)] if others else parents[j]
        else:
            alone.append(j)
    ring = sorted(alone, key=lambda j: hashed(seed, "exchange", tree.classes[0][j]))
    parents[ring] = np.roll(parents[ring], 1)
    return Hierarchy(levels=tree.levels, classes=tree.classes, parents=[parents, *tree.parents[1:]], stand_ins=tree.stand_ins)


def rename_level(tree: Hierarchy, share: float, seed: int = 0, level: int = 1) -> tuple[Hierarchy, Ints]:
    """The tree with the names of a share of a level's classes permuted, and each class's new number.

    Names stay in place and what is under them moves: the class that was number i is now number `new[i]`, with the same children
    and the same parent. It is the same tree except for names.
    """
    names = tree.classes[level]
    chosen = choose_some(names, ["all"] * len(names), lambda _, n: round(n * share), seed=seed, purpose="rename")
    ring = sorted(np.flatnonzero(chosen & ~tree.stand_ins[level]).tolist(), key=lambda i: hashed(seed, "rename to", names[i]))
    new = np.arange(len(names))
    new[ring] = np.roll(ring, 1)
    parents = [p.copy() for p in tree.parents]
    parents[level - 1] = new[parents[level - 1]]
    if level < len(parents):
        parents[level][new] = tree.parents[level]
    return Hierarchy(levels=tree.levels, classes=tree.classes, parents=parents, stand_ins=tree.stand_ins), new
