"""Several labels per sample: a sigmoid for every class of a graph, and what ties classes to their parents.

z = network(x), one number per class. D(a) is the class a and all its descendants, each counted once.

    flat       p_a = σ(z_a) when it learns; answers take the largest of D(a), so that no child is above its parent
    c-hmcnn    p_a = σ(max_{b ∈ D(a)} z_b); a class that is there learns from the largest of D(a) that is there, too
               (Giunchiglia and Lukasiewicz, NeurIPS 2020)
    lht        1 - p_a = Π_{b ∈ D(a)} (1 - σ(z_b)): a class is there unless neither it nor anything below it is. The transition
               of LHT, from fine to coarse, for labels that do not exclude each other: a known parent teaches its unknown
               children in proportion to how probable they are.

Unknown classes have no term in the loss. Maxima are found along edges, on whole numbers that order the classes and name them;
sums along pairs of the closure: never samples × classes × classes.
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.heads.graphs.options import GraphArgs
from torchlht.hierarchy.graph import Graph


class Below:
    """Sums over a class and all its descendants, each once, by a sparse matrix; it stays on the CPU."""

    def __init__(self, graph: Graph) -> None:
        self.pairs = torch.from_numpy(graph.closure.copy())
        self.matrix, self.transposed = (_sparse(one, len(graph)) for one in (self.pairs, self.pairs.flip(0)))

    def sum(self, values: Tensor) -> Tensor:
        """(B, nodes) to (B, nodes)."""
        if torch.compiler.is_exporting():  # exporters know no sparse matrices
            ancestors, below = self.pairs
            each = values.index_select(1, below)
            return torch.zeros_like(values).scatter_add(1, ancestors.expand_as(each), each)
        found: Tensor = _Sum.apply(values, self.matrix, self.transposed)
        return found


def _sparse(pairs: Tensor, nodes: int) -> Tensor:
    with warnings.catch_warnings():  # that this form is young
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_coo_tensor(pairs, torch.ones(pairs.shape[1]), (nodes, nodes)).to_sparse_csr()


class _Sum(torch.autograd.Function):
    """values Rᵀ, with R sparse."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, matrix: Tensor, transposed: Tensor) -> Tensor:
        ctx.transposed = transposed
        return (matrix @ values.T.contiguous()).T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return (ctx.transposed @ gradient.T.contiguous()).T, None, None


def rescaled(log_p: Tensor, temperature: float) -> Tensor:
    """Log-probabilities at a temperature, which scales log-odds."""
    below_one = log_p.clamp(max=-torch.finfo(log_p.dtype).eps)
    return F.logsigmoid((log_p - torch.log(-torch.expm1(below_one))) / temperature)


def log_present(log_absent: Tensor) -> Tensor:
    """log p from log(1 - p), of classes that are all but absent, too."""
    return torch.log(-torch.expm1(log_absent.clamp(max=-1e-30)))


class GraphNetwork(nn.Module):
    """Features to log-odds and log-probabilities of every class; several members are trained side by side and averaged.

    Args:
        in_features: width of the features.
        graph: the classes.
        args: method, width, number of layers, dropout and members.
        outputs: how many numbers the last layer gives; by default one per class.
    """

    def __init__(self, in_features: int, graph: Graph, args: GraphArgs, outputs: int | None = None) -> None:
        super().__init__()
        self.in_features, self.graph, self.args = in_features, graph, args
        widths = [in_features, *[args.width] * (args.layers - 1), len(graph) if outputs is None else outputs]
        self.weights = nn.ParameterList(torch.empty(args.members, i, o) for i, o in pairwise(widths))
        self.biases = nn.ParameterList(torch.empty(args.members, 1, o) for o in widths[1:])
        for weight, bias in zip(self.weights, self.biases, strict=True):  # as nn.Linear starts
            bound = weight.shape[1] ** -0.5
            nn.init.uniform_(weight, -bound, bound)
            nn.init.uniform_(bias, -bound, bound)
        self.steps = [torch.from_numpy(step.copy()) for step in graph.steps]
        self.below = Below(graph)

    def start_at(self, rates: Tensor) -> None:
        """Start at these rates of each class as the most specific one, (nodes,)."""
        with torch.no_grad():
            self.weights[-1].mul_(0.1)
            self.biases[-1].copy_(torch.logit(rates.clamp(1e-5, 0.5)).expand_as(self.biases[-1]))

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) features, or (members, B, d), to (members, B, nodes) log-odds of each class by itself."""
        x = x.expand(self.args.members, *x.shape[-2:])
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x, weight)
            if i < len(self.weights) - 1:
                x = F.dropout(F.relu(x), self.args.dropout, self.training)
        return x

    def reached(self, share: float) -> None:
        """Called before each epoch with the share of training that is done."""

    def largest(self, z: Tensor, there: Tensor | None = None) -> Tensor:
        """For every sample and class, which class of D(a) has the largest z: (B, nodes).

        Args:
            z: (B, nodes).
            there: (B, nodes) bool, closed; then a class that is there looks only at those below it that are there, too.
        """
        bits = z.detach().float().contiguous().view(torch.int32)
        key = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long()  # whole numbers in the order of z
        if there is not None:
            key += there.long() << 32  # those that are there come before all others
        shift = max(z.shape[1] - 1, 1).bit_length()
        key = (key << shift) | torch.arange(z.shape[1], device=z.device)
        for parents, children in self.steps:
            key.scatter_reduce_(1, parents.expand(len(z), -1), key.index_select(1, children), "amax")
        return key & ((1 << shift) - 1)

    def log_absent(self, z: Tensor) -> Tensor:
        """log(1 - p_a) by `lht`'s product over D(a), (B, nodes)."""
        return -self.below.sum(F.softplus(z))

    def log_probs(self, z: Tensor) -> Tensor:
        """(members, B, nodes) log-odds to (B, nodes) log-probabilities of classes: the mean of the members' probabilities."""
        flat = z.flatten(0, 1).float()
        if self.args.method == "lht":
            found = log_present(self.log_absent(flat))
        else:
            found = F.logsigmoid(self.coherent(flat))
        return torch.logsumexp(found.view(z.shape), 0) - torch.tensor(float(len(z))).log()

    def rescaled(self, log_p: Tensor, temperature: float) -> Tensor:
        """Log-probabilities at a temperature, which scales the log-odds of each class."""
        return rescaled(log_p, temperature)

    def surprise(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """What a temperature is to make small: binary cross-entropy of known classes, from (B, nodes) log-probabilities."""
        return F.binary_cross_entropy(log_p.double().exp().clamp(max=1.0), (labels == 1).double(), (labels >= 0).double())

    def coherent(self, p: Tensor) -> Tensor:
        """(B, nodes) where no class is below any of its descendants."""
        if torch.compiler.is_exporting():
            ancestors, below = self.below.pairs
            each = p.index_select(1, below)
            return p.scatter_reduce(1, ancestors.expand_as(each), each, "amax")
        return p.gather(1, self.largest(p))

    def loss(self, z: Tensor, labels: Tensor) -> Tensor:
        """Binary cross-entropy over known classes, summed over members.

        Args:
            z: (members, B, nodes), from `forward`.
            labels: (B, nodes), or (members, B, nodes): 1 there, 0 not, -1 unknown.
        """
        y = labels.expand(z.shape).flatten(0, 1)
        flat, known, there = z.flatten(0, 1).float(), y >= 0, y == 1
        if self.args.method == "lht":
            absent = self.log_absent(flat)
            terms = -torch.where(there, log_present(absent), absent)
        else:
            if self.args.method == "c-hmcnn":
                flat = flat.gather(1, self.largest(flat, there))
            terms = F.binary_cross_entropy_with_logits(flat, there.float(), reduction="none")
        return (terms * known).sum() / known.sum().clamp(min=1) * len(z)
