"""One label per sample in a graph of classes: a softmax over leaves, and what a label at any class says about them.

Every sample belongs to one leaf. Its labels are what is known of every class: 1 if all leaves still possible lie below it, 0 if
none does, else -1. The probability of a class is that of the leaves below it, each counted once.

    marginal    level by level from the top: -log of the mass of the leaves below all classes known down to that level. On a
                tree that is the tree's `marginal`.
    flat        -log of the right leaf's probability; samples without a known leaf teach nothing
    multihead   the same softmax, and a sigmoid for every other class, each learned from where it is known; answers take the
                largest of what lies below a class
    lht         marginal's answers; it learns from the names that an annotator gives, see `walk`
    c-hmcnn     a sigmoid for every class with the max constraint, see `network`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.heads.graphs.network import GraphNetwork, rescaled
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.walk import Walk
from torchlht.heads.transition.core import Transition, sum_children
from torchlht.hierarchy.graph import Graph

LATE = 0.85  # share of training after which transitions learn, as on trees


def create_network(in_features: int, graph: Graph, args: GraphArgs) -> GraphNetwork:
    """The network of a method. Raises ConfigError when the graph is none that the method can learn on."""
    if not args.exclusive or args.method == "c-hmcnn":
        return GraphNetwork(in_features, graph, args)
    return (WalkNetwork if args.method == "lht" else LeafNetwork)(in_features, graph, args)


def log_sums(leaf_log_p: Tensor, pairs: Tensor, nodes: int) -> Tensor:
    """(B, leaves) to (B, nodes): sums over `pairs`, (2, P), of a leaf and a class above it, or itself."""
    return sum_children(leaf_log_p.index_select(1, pairs[0]), pairs[1], nodes).clamp(max=0.0)


def rescaling(graph: Graph, args: GraphArgs) -> Callable[[Tensor, float], Tensor]:
    """What a temperature does to (B, nodes) log-probabilities of a method: it scales a softmax over leaves, or log-odds."""
    if not args.exclusive or args.method in ("c-hmcnn", "multihead"):
        return rescaled
    leaves, pairs = torch.from_numpy(graph.leaves.copy()), torch.from_numpy(graph.leaves_below).nonzero().T
    return lambda log_p, t: log_sums(torch.log_softmax(log_p.index_select(1, leaves) / t, 1), pairs, len(graph))


class LeafNetwork(GraphNetwork):
    """A softmax over leaves; see above."""

    def __init__(self, in_features: int, graph: Graph, args: GraphArgs, more: int = 0) -> None:
        outputs = len(graph) if args.method == "multihead" else len(graph.leaves)
        super().__init__(in_features, graph, args, outputs + more)
        self.leaves = torch.from_numpy(graph.leaves.copy())
        self.inner = torch.from_numpy((graph.heights > 0).nonzero()[0])
        self.levels = torch.from_numpy(graph.levels.copy())
        self.is_below = torch.from_numpy(graph.leaves_below).float()  # (leaves, nodes)
        self.pairs = torch.from_numpy(graph.leaves_below).nonzero().T  # every leaf with each class above it

    def leaf_log_probs(self, z: Tensor) -> Tensor:
        """(B, outputs) to (B, leaves)."""
        return torch.log_softmax(z[:, : len(self.leaves)].float(), 1)

    def log_sums(self, leaf_log_p: Tensor) -> Tensor:
        """(B, leaves) log-probabilities to (B, nodes): each class has those of the leaves below it."""
        return log_sums(leaf_log_p, self.pairs, len(self.graph))

    def log_probs(self, z: Tensor) -> Tensor:
        """(members, B, outputs) to (B, nodes) log-probabilities of classes: the mean of the members' probabilities."""
        members = torch.logsumexp(self.leaf_log_probs(z.flatten(0, 1)).view(*z.shape[:2], len(self.leaves)), 0)
        found = self.log_sums(members - torch.tensor(float(len(z))).log())
        if self.args.method != "multihead":
            return found
        own = F.logsigmoid(z[..., len(self.leaves) :].float())
        found = found.index_copy(1, self.inner, torch.logsumexp(own, 0) - torch.tensor(float(len(z))).log())
        return self.coherent(found)

    def rescaled(self, log_p: Tensor, temperature: float) -> Tensor:
        """Log-probabilities at a temperature."""
        return rescaling(self.graph, self.args)(log_p, temperature)

    def surprise(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """-log of the mass of the leaves that are still possible."""
        if self.args.method == "multihead":
            return super().surprise(log_p, labels)
        possible = self.possible(labels == 1)
        return -torch.logsumexp(log_p.index_select(1, self.leaves).masked_fill(~possible, -torch.inf), 1).mean()

    def possible(self, there: Tensor) -> Tensor:
        """(B, nodes) classes that are there to (B, leaves): whether a leaf lies below all of them."""
        return (there.float() @ self.is_below.T) > there.sum(1, keepdim=True) - 0.5

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """The loss of the method, see above, summed over members: the mean over levels of the mean over those who know it."""
        y = labels.expand(*z.shape[:2], -1).flatten(0, 1)
        flat, there = z.flatten(0, 1), y == 1
        leaf_log_p = self.leaf_log_probs(flat)
        if self.args.method == "marginal":
            terms = [self.level_loss(leaf_log_p, there, level) for level in range(int(self.levels.max()) + 1)]
        else:
            terms = [mean_over(-self.picked(leaf_log_p, there), self.at_leaf(there))]
        if self.args.method == "multihead":
            terms += self.inner_losses(flat, y)
        return torch.stack(terms).mean() * len(z)

    def level_loss(self, leaf_log_p: Tensor, there: Tensor, level: int) -> Tensor:
        """Over samples with a known class of a level: -log of the mass of leaves below all classes known down to there."""
        mass = torch.logsumexp(leaf_log_p.masked_fill(~self.possible(there & (self.levels <= level)), -torch.inf), 1)
        return mean_over(-mass, (there & (self.levels == level)).any(1))

    def at_leaf(self, there: Tensor) -> Tensor:
        """(B,) whether the leaf is known."""
        return there.index_select(1, self.leaves).any(1)

    def picked(self, leaf_log_p: Tensor, there: Tensor) -> Tensor:
        """(B,) log-probability of the known leaf; of any where none is known."""
        right = there.index_select(1, self.leaves).to(torch.uint8).argmax(1, keepdim=True)
        return leaf_log_p.gather(1, right).squeeze(1)

    def inner_losses(self, flat: Tensor, y: Tensor) -> list[Tensor]:
        """For each level, binary cross-entropy of its inner classes where they are known, per sample that knows one."""
        own, z, found = y.index_select(1, self.inner), flat[:, len(self.leaves) :].float(), []
        for level in range(int(self.levels.max()) + 1):
            known = (own >= 0) & (self.levels.index_select(0, self.inner) == level)
            if bool((self.levels.index_select(0, self.inner) == level).any()):
                terms = F.binary_cross_entropy_with_logits(z, (own == 1).float(), reduction="none") * known
                found.append(mean_over(terms.sum(1), known.any(1)))
        return found


def mean_over(terms: Tensor, known: Tensor) -> Tensor:
    """The mean of (B,) terms over the samples that are known; 0 if none is."""
    return torch.where(known, terms, 0.0).sum() / known.sum().clamp(min=1)


class WalkNetwork(LeafNetwork):
    """`lht`: leaves first; a learned transition per sample gives the names one step up, and so on."""

    def __init__(self, in_features: int, graph: Graph, args: GraphArgs) -> None:
        walk = Walk(graph, args.rank, args.gamma)
        super().__init__(in_features, graph, args, walk.outputs)
        self.walk = walk
        self.held = False
        self.gammas = nn.ParameterList(torch.tensor(gamma) for gamma in walk.starts)

    def reached(self, share: float) -> None:
        """Transitions learn late: until then leaves learn from the graph itself."""
        self.held = self.args.prior_weight > 0 and share < LATE

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """-log of the mass of right names at each step whose classes are known, and what holds transitions near the graph."""
        y = labels.expand(*z.shape[:2], -1).flatten(0, 1)
        flat, gammas = z.flatten(0, 1).float(), list(self.gammas)
        log_q = self.leaf_log_probs(flat)
        learned = [] if self.held else self.walk.transitions(flat[:, len(self.leaves) :], gammas)
        steps: Sequence[Transition] = learned or self.walk.held(gammas)
        terms = [mean_over(-self.picked(log_q, y == 1), self.at_leaf(y == 1))]
        for layer, new, step in zip(self.walk.layers[1:], self.walk.new, steps, strict=True):
            log_q, right = step.propagate(log_q), y.index_select(1, layer) == 1
            known = right[:, new].any(1)
            mass = torch.logsumexp(log_q.masked_fill(~right & known.unsqueeze(1), -torch.inf), 1)
            terms.append(mean_over(-mass, known))
        drifts = [self.walk.drift(step, start) for step, start in zip(learned, self.walk.starts, strict=False)]
        held = self.args.prior_weight * torch.stack(drifts).mean() if drifts and self.args.prior_weight else 0.0
        return (torch.stack(terms).mean() + held) * len(z)
