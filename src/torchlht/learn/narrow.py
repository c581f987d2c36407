"""Wide features, trained on their principal components: the first layer of a neck is most of the work, and most of it is waste.

A step of SGD is the same in any orthogonal basis. So the first layer is trained on the coordinates of the standardised
features in the span of their leading components, and written back as the layer on the features themselves. The directions that
are left out vary little (`benchmarks/peers.md`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchlht.answer.model import Model
from torchlht.data.batches import FeatureSet, SampleSet
from torchlht.data.moments import PART, Moments
from torchlht.heads.method import InputNorm, Method, Neck


@dataclass(frozen=True)
class Narrow:
    """Moments of features (N, d), and the directions (d, r) they are trained in, scaled to coordinates around 1."""

    moments: Moments
    directions: Tensor

    @classmethod
    def of(cls, moments: Moments, count: int) -> Narrow:
        """The leading `count` directions."""
        spread, directions = leading(moments.products, count)
        return cls(moments, directions / spread.mean().clamp(min=1e-12).sqrt())

    def coordinates(self, data: SampleSet) -> FeatureSet:
        """A set with coordinates instead of features, a part at a time to save memory."""
        assert isinstance(data, FeatureSet)
        x, *others = (torch.cat([self._in_parts(part) for part in torch.split(view, PART)]) for view in (data.x, *data.others))
        return FeatureSet(x, data.labels, data.weights, others)

    def _in_parts(self, x: Tensor) -> Tensor:
        return self.moments.standardised(x) @ self.directions

    def enter(self, network: nn.Module) -> None:
        """Let the neck of an untrained network take coordinates instead of features."""
        method, neck = parts_of(network)
        assert neck is not None
        layer, (wide, count) = neck.layers[1], self.directions.shape
        assert isinstance(layer, nn.Linear)
        basis = nn.functional.normalize(self.directions, dim=0) * (wide / count) ** 0.5  # as large as a layer of this width
        neck.layers[0] = nn.Identity()
        neck.layers[1] = with_weight(layer, layer.weight.detach() @ basis)
        method.in_features = count

    def leave(self, network: nn.Module) -> None:
        """Let the neck of a trained network take features again, with the same results."""
        method, neck = parts_of(network)
        assert neck is not None
        layer = neck.layers[1]
        assert isinstance(layer, nn.Linear)
        weight = layer.weight.detach() @ self.directions.T.to(layer.weight)
        norm = InputNorm(weight.shape[1]).to(weight)
        norm.running_mean, norm.running_var = self.moments.mean.to(weight), self.moments.variance.to(weight)
        neck.layers[0], neck.layers[1] = norm.train(neck.training), with_weight(layer, weight)
        method.in_features = weight.shape[1]

    def left(self, network: nn.Module) -> nn.Module:
        """A copy of a network that takes features."""
        found = copy.deepcopy(network)
        self.leave(found)
        return found


def leading(products: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues (count,) of a matrix (d, d), ascending, and their vectors (d, count).

    If they are less than half of all, nearly: a random subspace a little larger, multiplied by the matrix twice, holds almost
    as much of the variance, in half the time.
    """
    wide, tried = len(products), count + count // 8
    if 2 * tried > wide:
        spread, directions = torch.linalg.eigh(products)
        return spread[-count:], directions[:, -count:]
    within = torch.randn(wide, tried, generator=torch.Generator().manual_seed(0)).to(products)
    for _ in range(2):
        within = torch.linalg.qr(products @ within).Q
    spread, turned = torch.linalg.eigh(within.mT @ (products @ within))
    return spread[-count:], within @ turned[:, -count:]


def narrow_for(network: nn.Module, data: SampleSet, count: int) -> Narrow | None:
    """The directions to train a network in; None if features are not wider, are dropped at random, or do not enter a neck."""
    if not count or not isinstance(data, FeatureSet) or (isinstance(network, Model) and network.backbone.name != "none"):
        return None
    method, neck = parts_of(network)
    if neck is None or method.in_features <= count or any(isinstance(m, InputNorm) and m.dropout for m in neck.layers):
        return None
    return Narrow.of(data.moments, count)


def parts_of(network: nn.Module) -> tuple[Method, Neck | None]:
    """The method of a network, and its neck if there is one."""
    method = network.method if isinstance(network, Model) else network
    assert isinstance(method, Method)
    neck = getattr(method, "neck", None)
    return method, neck if isinstance(neck, Neck) else None


def with_weight(layer: nn.Linear, weight: Tensor) -> nn.Linear:
    """The layer with another weight, of another width."""
    found = nn.Linear(weight.shape[1], weight.shape[0], bias=False).to(weight)
    found.weight, found.bias = nn.Parameter(weight.contiguous()), layer.bias
    return found
