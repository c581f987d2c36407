"""What a method is: features in, a `Prediction` out, and a loss. And the register of methods by name.

features (B, d) ─► Neck ─► u_1 … u_K (B, w) ─► the method's heads ─► Prediction ─► loss(prediction, labels)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fnmatch import fnmatch
from typing import Any, ClassVar, TypeVar, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.errors import ConfigError, suggestion
from torchlht.hierarchy import Hierarchy
from torchlht.losses import masked_cross_entropy
from torchlht.prediction import Prediction
from torchlht.vocabulary import Features, Reduction


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm1d that takes a training batch of one: it has no variance, so the running statistics stand in."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) to (B, d)."""
        if self.training and len(x) == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


class Neck(nn.Module):
    """BatchNorm – Linear – BatchNorm – ELU, then either the same features for every level or K equal chunks.

        split, K = 3:   (B, d) ─► (B, 600) ─► (B, 200) finest, (B, 200), (B, 200) coarsest
        shared:         (B, d) ─► (B, 600) for each

    Args:
        in_features: width of the backbone's features.
        levels: number of levels K.
        features: `shared` or `split`.
        width: width of the hidden layer; with `split` it is rounded up to a multiple of K.
    """

    def __init__(self, in_features: int, levels: int, *, features: Features = "shared", width: int = 600) -> None:
        super().__init__()
        if features not in get_args(Features):
            raise ConfigError(f"unknown features {features!r}: {suggestion(features, get_args(Features))}")
        if width < levels:
            raise ConfigError(f"width is {width}: it needs at least one unit per level ({levels})")
        self.levels, self.split = levels, features == "split"
        if self.split:
            width = -(-width // levels) * levels
        self.width = width // levels if self.split else width
        self.layers = nn.Sequential(BatchNorm(in_features), nn.Linear(in_features, width), BatchNorm(width), nn.ELU())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_features) to one (B, width) tensor per level, fine first."""
        hidden = self.layers(x)
        return hidden.chunk(self.levels, dim=1) if self.split else (hidden,) * self.levels


class Method(nn.Module):
    """A hierarchical classifier on features. Subclass it, write `forward`, and register it by name.

    Args:
        in_features: width of the features it is given.
        hierarchy: the tree of classes.
        features: `shared` (every level reads all of the neck) or `split` (each level its own part, as in the paper).
        width: width of the neck.
        reduction: how cross-entropy is averaged; see `masked_cross_entropy`.
    """

    name: ClassVar[str]

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: int = 600,
        reduction: Reduction = "per_level_mean",
    ) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise ConfigError(f"unknown reduction {reduction!r}: {suggestion(reduction, get_args(Reduction))}")
        self.hierarchy = hierarchy
        self.reduction: Reduction = reduction
        self.neck = Neck(in_features, len(hierarchy), features=features, width=width)

    def forward(self, features: Tensor) -> Prediction:
        """(B, in_features) to log-probabilities at every level."""
        raise TypeError(f"{type(self).__name__} must define forward(features) -> Prediction")

    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """A scalar to minimise. `labels` are (B, K), fine first, -1 where unknown."""
        return masked_cross_entropy(prediction.log_probs, labels, self.reduction)

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: which samples teach this method anything, given their (B, K) labels. The others are not trained on."""
        return (labels >= 0).any(dim=1)

    def scalars(self) -> dict[str, float]:
        """Quantities worth a curve in the training history, such as γ of each transition."""
        return {}


_REGISTRY: dict[str, type[Method]] = {}
M = TypeVar("M", bound=type[Method])


def register(name: str) -> Callable[[M], M]:
    """Class decorator: make a method known by name to `create_method`, the command line and `lht compare`."""

    def enter(cls: M) -> M:
        cls.name = name
        _REGISTRY[name] = cls
        return cls

    return enter


def list_methods(pattern: str = "*") -> list[str]:
    """Names of the registered methods, sorted: `list_methods("lht*")`."""
    return sorted(name for name in _REGISTRY if fnmatch(name, pattern))


def method_class(name: str) -> type[Method]:
    """The class registered under a name. Raises ConfigError, with the nearest name, when there is none."""
    if name not in _REGISTRY:
        raise ConfigError(f"unknown method {name!r}: {suggestion(name, list_methods())}")
    return _REGISTRY[name]


def method_options(name: str) -> dict[str, Any]:
    """The options a method takes, with their defaults."""
    parameters = inspect.signature(method_class(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def create_method(name: str, in_features: int, hierarchy: Hierarchy, **options: Any) -> Method:
    """A method by name, e.g. `create_method("lht", 2048, tree, gamma=6.0)`."""
    known = method_options(name)
    for option in options:
        if option not in known:
            raise ConfigError(f"method {name} has no option {option!r}: {suggestion(option, known)}")
    return method_class(name)(in_features, hierarchy, **options)
