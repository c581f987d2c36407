"""`lht` on a graph: which name an annotator gives, from a leaf up, one step at a time.

q¹ = softmax over leaves,    qᵏ⁺¹ = Tᵏ qᵏ,    Tᵏ = column softmax of A,    A = Q Lᵀ + γ S

S is 1 at all parents of a class, so a column of T is shared among them: it says which of its parents the annotator names, half
and half at first if there are two. A class without parents names itself, and so does a leaf until the step where its parents
are. Columns sum to one, so every qᵏ does. On a tree that is LHT.

It is defined if all ways up from a class have the same number of steps: every edge joins adjacent heights (`Graph.ranks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from torchlht.errors import ConfigError
from torchlht.heads.transition.core import LowRankTransition, Prior, Transition
from torchlht.heads.transition.networks import gamma_for
from torchlht.hierarchy.graph import Graph, Ints


@dataclass(frozen=True)
class HeldTransition(Transition):
    """T = column softmax of γ S, the same for every sample: (rows, columns)."""

    matrix: Tensor

    def propagate(self, log_p: Tensor) -> Tensor:
        """log(T p), (B, rows). Only with a very large γ, a sum could underflow."""
        return torch.log((log_p.exp() @ self.matrix.T).clamp(min=torch.finfo(log_p.dtype).tiny))

    def log_matrix(self) -> Tensor:
        """log T: (1, rows, columns)."""
        return self.matrix.log().unsqueeze(0)


class Walk:
    """The steps from leaves up.

    Args:
        graph: the classes.
        rank: rank of Q and L.
        gamma: γ at the start; None for as much as puts 0.92 of a column on a single parent.

    Attributes:
        layers: the classes that can be named after each number of steps; the first are the leaves.
        new: for each further layer, which of its classes are one step above others there, not names kept from before.
        priors: where S is 1, one per step.
        starts: γ at the start, one per step.
        outputs: how many numbers Q and L of all steps need.

    Raises:
        ConfigError: when edges skip a level.
    """

    def __init__(self, graph: Graph, rank: int, gamma: float | None) -> None:
        ranks = self.ranks_of(graph)
        arrays = [self.layer(graph, ranks, k) for k in range(int(ranks.max()) + 1)]
        self.rank = rank
        self.layers = [torch.from_numpy(layer) for layer in arrays]
        self.new = [torch.from_numpy(ranks[layer] == k) for k, layer in enumerate(arrays) if k]
        self.priors = [self.prior(graph, ranks, k, *pair) for k, pair in enumerate(pairwise(arrays))]
        self.starts = [gamma_for(len(above)) if gamma is None else float(gamma) for above in arrays[1:]]
        self.sizes = [(len(above), len(below)) for below, above in pairwise(arrays)]
        self.outputs = rank * sum(rows + columns for rows, columns in self.sizes)

    @staticmethod
    def ranks_of(graph: Graph) -> Ints:
        """The height of each class. Raises ConfigError when there are none that every edge joins."""
        if graph.ranks is None:
            parent, child = graph.uneven
            raise ConfigError(
                f"method lht goes up one level at a time, but the edge from {parent!r} to {child!r} does not join adjacent "
                "levels: use marginal, which needs no levels"
            )
        return graph.ranks

    @staticmethod
    def layer(graph: Graph, ranks: Ints, k: int) -> Ints:
        """Classes that can be named after k steps: those of that height, tops below it, and leaves above it."""
        stays = (np.array([not above for above in graph.parents]) & (ranks < k)) | ((graph.heights == 0) & (ranks > k))
        found: Ints = np.flatnonzero((ranks == k) | stays)
        return found

    @staticmethod
    def prior(graph: Graph, ranks: Ints, k: int, below: Ints, above: Ints) -> Prior:
        """Where S of a step is 1."""
        row = {int(node): i for i, node in enumerate(above)}
        pairs = [
            (row[named], j)
            for j, node in enumerate(below.tolist())
            for named in (graph.parents[node] if ranks[node] == k and graph.parents[node] else (node,))
        ]
        rows, columns = torch.tensor(pairs, dtype=torch.int64).T
        return Prior.of(rows.contiguous(), columns.contiguous(), len(below))

    def transitions(self, numbers: Tensor, gammas: Sequence[Tensor]) -> list[LowRankTransition]:
        """(B, outputs) numbers to the transitions of one batch."""
        found, at = [], 0
        for (rows, columns), prior, gamma in zip(self.sizes, self.priors, gammas, strict=True):
            left = numbers[:, at : at + self.rank * columns].reshape(len(numbers), columns, self.rank)
            at += self.rank * columns
            right = numbers[:, at : at + self.rank * rows].reshape(len(numbers), rows, self.rank)
            at += self.rank * rows
            found.append(LowRankTransition(left, right, gamma, prior))
        return found

    def held(self, gammas: Sequence[Tensor]) -> list[HeldTransition]:
        """Transitions without Q Lᵀ."""
        found = []
        for (rows, columns), prior, gamma in zip(self.sizes, self.priors, gammas, strict=True):
            logits = torch.zeros(rows, columns).index_put((prior.rows, prior.columns), gamma.expand(len(prior.rows)))
            found.append(HeldTransition(torch.softmax(logits, 0)))
        return found

    def drift(self, step: LowRankTransition, gamma: float) -> Tensor:
        """The mean over samples and columns of KL(T⁰ ‖ T), T⁰ the column softmax of γ₀ S with m ones in a column.

        With t at each parent and e elsewhere: Σ_i T⁰_ij log T_ij = e Σ_i q_i·l_j + (t - e) Σ_{i above j} q_i·l_j + m t γ - ℓ_j.
        """
        rows, columns, prior = step.right.shape[1], step.left.shape[1], step.prior
        m = torch.bincount(prior.columns, minlength=columns).to(step.left.dtype)  # (columns,)
        log_t = -torch.logaddexp(m.log(), (rows - m).log() - gamma)
        log_e = log_t - gamma
        t, e = log_t.exp(), log_e.exp()
        edges = (step.right.index_select(1, prior.rows) * step.left.index_select(1, prior.columns)).sum(2)  # (B, E)
        own = torch.zeros(len(edges), columns, dtype=edges.dtype).index_add(1, prior.columns, edges)
        every = (step.left * step.right.sum(1, keepdim=True)).sum(2)  # (B, columns)
        said = e * every + (t - e) * own + m * t * step.gamma
        told = m * t * log_t + (rows - m) * e * log_e
        return step.normaliser() + (told - said).mean()
