"""What the model thinks of a sample, in nodes of the taxonomy; and which samples are asked about without showing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchlht.data.samples import Bools, Ints, hashed
from torchlht.serve.label.taxonomy import Taxonomy

if TYPE_CHECKING:
    from torchlht.serve.label.learning import View

LEAST = 0.01
"""Candidates below this probability are not shown."""


class Thought(NamedTuple):
    """A class and its probability."""

    node: int
    share: float


class Thoughts:
    """A view of all samples, turned into nodes.

    Args:
        view: what the model thinks.
        taxonomy: the classes.
        confidence: how probable a class must be to be suggested.
    """

    def __init__(self, view: View, taxonomy: Taxonomy, confidence: float) -> None:
        self.view, self.taxonomy = view, taxonomy
        self._nodes = [np.append(nodes, -1) for nodes in taxonomy.numbers(view.tree)]
        reaches = view.sure >= confidence
        level = np.where(reaches.any(axis=1), reaches.argmax(axis=1), -1)  # the finest
        self.suggested: Ints = np.full(len(view.path), -1, dtype=np.int64)
        for k, nodes in enumerate(self._nodes):
            rows = np.flatnonzero(level == k)
            self.suggested[rows] = nodes[view.path[rows, k]]
        real = np.array([taxonomy.real(i) for i in range(len(taxonomy))] + [-1], dtype=np.int64)
        self.suggested = real[self.suggested]

    def path(self, i: int) -> list[Thought]:
        """The best path, coarse → fine."""
        found = [
            Thought(int(self._nodes[k][self.view.path[i, k]]), float(self.view.sure[i, k])) for k in self.view.tree.top_down
        ]
        return [one for one in found if one.node >= 0 and not self.taxonomy.stands_in(one.node)]

    def share(self, i: int) -> float:
        """The probability of what is suggested; 0 without a suggestion."""
        return next((one.share for one in self.path(i) if one.node == self.suggested[i]), 0.0)

    def levels(self, i: int) -> list[list[Thought]]:
        """For each level, coarse → fine, the most probable classes."""
        found, along = [], dict(self.path(i))  # on the path no class is more probable than its parent
        for k in self.view.tree.top_down:
            pairs = zip(self.view.best[i, k].tolist(), self.view.shares[i, k].tolist(), strict=True)
            some = [Thought(int(self._nodes[k][j]), share) for j, share in pairs if j >= 0 and share >= LEAST]
            real = [one for one in some if one.node >= 0 and not self.taxonomy.stands_in(one.node)]
            found.append([Thought(one.node, along.get(one.node, one.share)) for one in real])
        return found


def asked_blind(keys: tuple[str, ...], share: float, seed: int) -> Bools:
    """(N,) the samples whose suggestion is never shown; they depend on names and seed alone."""
    return np.array([hashed(seed, "blind", key) < share * 2**64 for key in keys], dtype=bool)
