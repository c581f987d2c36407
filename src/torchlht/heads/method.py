"""Methods: features in, a `Prediction` out, and a loss. And the register of methods by name.

features (B, d) ─► Neck ─► u_1 … u_K (B, w) ─► the method's heads ─► Prediction ─► loss(prediction, labels)

A name stands for a class, or for a class with some options set (a variant): `hd-cnn` is `multihead` with split features.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlht.doors import Breadth, Share, entrance, fitting
from torchlht.errors import ConfigError, DataError, as_flag
from torchlht.heads.declared import no_option, unknown_method
from torchlht.heads.prediction import Prediction, masked_cross_entropy, own_choice
from torchlht.heads.transition.core import widened
from torchlht.hierarchy.tree import Hierarchy
from torchlht.processes import summed, world
from torchlht.vocabulary import Features, Reduction, kind_of, parse_value

if TYPE_CHECKING:
    from torchlht.heads.guessing import Opinion


class BatchNorm(nn.BatchNorm1d):
    """BatchNorm1d that accepts a training batch of one sample: it has no variance, so the running statistics are used.

    Processes that train together (`torchlht.processes`) share their statistics, on any device; some may have no samples.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) to (B, d)."""
        if self.training and world() > 1:
            return self._shared(x)
        return self._running(x) if self.training and len(x) == 1 else super().forward(x)

    def _running(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)

    def _shared(self, x: Tensor) -> Tensor:
        """Normalise with mean and variance over the samples of all processes."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        wide = widened(x)
        sums = summed(torch.cat([wide.sum(dim=0), wide.new_full((1,), len(wide))]))
        count = sums[-1].detach()
        if count <= 1:
            return self._running(x)
        mean = sums[:-1] / count
        variance = summed((wide - mean).square().sum(dim=0)) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        return ((wide - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias).to(x.dtype)


class InputNorm(BatchNorm):
    """BatchNorm of a method's features, then optional dropout: after BatchNorm, zero is an average value.

    Attributes:
        dropout: share of features dropped in training.
        noisy: also drop outside training, for a second view of the same sample.
    """

    dropout, noisy = 0.0, False

    def forward(self, x: Tensor) -> Tensor:
        """(B, d) to (B, d)."""
        return F.dropout(super().forward(x), self.dropout, self.training or self.noisy)


class Classifier(nn.Linear):
    """The last linear layer before classes: plain, or the cosine between features and class weights, times a learned scale."""

    log_scale: Tensor | None

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.register_parameter("log_scale", None)

    def use_cosine(self) -> None:
        """Switch to cosines."""
        self.log_scale = nn.Parameter(torch.full((), math.log(16.0)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, w) to (B, classes)."""
        if self.log_scale is None:
            return super().forward(x)
        cosine = F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))
        return self.log_scale.exp() * cosine + self.bias


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
        if width < levels:
            raise ConfigError(f"width is {width}: it needs at least one unit per level ({levels})")
        self.levels, self.split = levels, features == "split"
        if self.split:
            width = -(-width // levels) * levels
        self.width = width // levels if self.split else width
        self.layers = nn.Sequential(InputNorm(in_features), nn.Linear(in_features, width), BatchNorm(width), nn.ELU())

    def pair(self) -> None:
        """Let units come in ± pairs along orthogonal directions: together they see all that is linear in the features."""
        layer = self.layers[1]
        assert isinstance(layer, nn.Linear)
        wide, width = layer.weight.shape
        count = min(wide // 2, width)
        basis = torch.linalg.qr(torch.randn(width, count, dtype=torch.float64))[0].mT.to(layer.weight)
        with torch.no_grad():
            layer.weight[: 2 * count] = torch.cat([basis, -basis])
            nn.init.zeros_(layer.bias)

    def look(self, x: Tensor) -> None:
        """Take the running statistics from these features (B, in_features) alone; it is left in the mode for answers."""
        self.eval()
        for layer in self.layers:
            if isinstance(layer, BatchNorm):
                assert layer.running_mean is not None
                assert layer.running_var is not None
                layer.running_mean.copy_(x.mean(dim=0))
                layer.running_var.copy_(x.var(dim=0, correction=min(1, len(x) - 1)))
            x = layer(x)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """(B, in_features) to one (B, width) tensor per level, fine first."""
        hidden = self.layers(x)
        return hidden.chunk(self.levels, dim=1) if self.split else (hidden,) * self.levels


def start_rare(layer: nn.Linear, sizes: Sequence[int]) -> None:
    """Set the biases of a layer of sigmoids so that each class starts at probability one over the size of its level.

    At one half, hundreds of wrong classes would dominate the first steps.
    """
    with torch.no_grad():
        layer.bias.copy_(torch.cat([torch.full((size,), -math.log(max(size - 1, 1))) for size in sizes]))


def check_labels(labels: Tensor, hierarchy: Hierarchy, batch: int) -> None:
    """Raise DataError unless labels are whole numbers (batch, K), fine first, each -1 or a class of its level."""
    sizes = hierarchy.sizes
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise DataError(f"labels are {kind}; they must be a tensor of whole numbers: of classes, or -1 for unknown")
    if labels.shape != (batch, len(sizes)):
        wanted = f"({batch}, {len(sizes)}): a row per sample, a column per level"
        raise DataError(f"labels are {tuple(labels.shape)}, expected {wanted}")
    wrong = (labels < -1) | (labels >= labels.new_tensor(sizes, dtype=torch.long))
    if wrong.any():
        row, k = torch.nonzero(wrong)[0].tolist()
        known = f"{hierarchy.levels[k]} has the classes 0 to {sizes[k] - 1}, or -1 for unknown"
        raise DataError(f"label {labels[row, k].item()} of sample {row}: {known}")


def check_features(method: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Raise DataError unless a method is called with features (B, in_features), or with a map. Runs before every `forward`."""
    assert isinstance(method, Method)
    place, axes = (", height, width", 4) if method.on_maps else ("", 2)
    x, wanted = inputs[0], f"a tensor of numbers (batch, {method.in_features}{place})"
    if not isinstance(x, Tensor):
        raise DataError(f"features are {type(x).__name__}; pass {wanted}")
    if not x.is_floating_point() or x.dim() != axes or x.shape[1] != method.in_features:
        raise DataError(f"features are {x.dtype} {tuple(x.shape)}; pass {wanted}")


Loss = Callable[["Method", Prediction, Tensor], Tensor]


def of_known_labels(loss: Loss) -> Loss:
    """A method's loss that refuses labels which are no classes, instead of taking them for unknown or for another class."""

    @functools.wraps(loss)
    def checked(method: Method, prediction: Prediction, labels: Tensor) -> Tensor:
        check_labels(labels, method.hierarchy, len(prediction.log_probs[0]))
        return loss(method, prediction, labels)

    return checked


class Method(nn.Module):
    """A hierarchical classifier on features. Subclass it, write `forward`, and register it by name.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        reduction: how cross-entropy is averaged; see `masked_cross_entropy`.
    """

    name: str
    grid: ClassVar[dict[str, tuple[Any, ...]]] = {}
    """Values of its options that `lht compare --tune` tries."""
    before: ClassVar[dict[str, Any]] = {}
    """Options that came later, with what they were until then; a run records them, so one that does not is older."""
    rule: ClassVar[str] = "argmax"
    """The rule of `heads.prediction` by which it answers; unless it is argmax, `forward` applies it with `choose`."""
    on_maps: bool = False
    """Whether it takes the map of a backbone, (B, in_features, h, w), instead of its features; set before the first call. A
    method with an option `maps` does so by default where the backbone trains on pictures and has a map."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Check options against their type hints. Raises ConfigError for what does not fit."""
        hints = get_type_hints(cls.__init__, include_extras=True)
        for name in options.keys() & hints.keys():
            fitting(name, options[name], hints[name])
        return super().__new__(cls)

    @entrance
    def __init__(self, in_features: Breadth, hierarchy: Hierarchy, *, reduction: Reduction = "per_level_mean") -> None:
        super().__init__()
        self.in_features, self.hierarchy = in_features, hierarchy
        self.reduction: Reduction = reduction
        self.register_forward_pre_hook(check_features)
        for k, parents in enumerate(hierarchy.parents):
            self.register_buffer(f"parents_{k}", torch.from_numpy(parents.copy()), persistent=False)

    def __repr__(self) -> str:
        """One line; `torch.nn.Module.__repr__(method)` lists the layers."""
        return f"{type(self).__name__}({self.in_features} features → {self.hierarchy.describe()})"

    def parents(self, level: int) -> Tensor:
        """(C_k,) the parent, one level up, of each class of a level; on the method's device."""
        return self.get_buffer(f"parents_{level}")

    def forward(self, features: Tensor) -> Prediction:
        """(B, in_features) to log-probabilities at every level."""
        raise TypeError(f"{type(self).__name__} must define forward(features) -> Prediction")

    def choose(self, log_probs: tuple[Tensor, ...]) -> Tensor | None:
        """(B, K) answers by its rule, for the `choice` of its prediction; None for argmax."""
        return own_choice(log_probs, self.hierarchy, self.rule)

    def __init_subclass__(cls, **how: Any) -> None:
        """The loss of every method, also of one that is not ours, refuses labels that are no classes."""
        super().__init_subclass__(**how)
        if "loss" in vars(cls):
            cls.loss = of_known_labels(cls.loss)  # type: ignore[method-assign]

    @of_known_labels
    def loss(self, prediction: Prediction, labels: Tensor) -> Tensor:
        """A scalar to minimise. `labels` are (B, K), fine first, -1 where unknown."""
        return masked_cross_entropy(prediction.log_probs, labels, self.reduction)

    def visible(self, labels: Tensor) -> Tensor:
        """(B, K) labels without those it does not use."""
        return labels

    def learns_from(self, labels: Tensor) -> Tensor:
        """(B,) bool: which samples this method can learn from, given their (B, K) labels. It is not trained on the others."""
        return (labels >= 0).any(dim=1)

    def heed(self, labels: Tensor) -> list[str]:
        """Called before training with the labels (N, K) of all training samples; gives sentences to say. By default nothing."""
        return []

    def yielded(self) -> list[str]:
        """What labels have moved in the tree it follows, a sentence for each level. By default nothing."""
        return []

    def begin(self, features: Tensor, labels: Tensor) -> None:
        """Called before the first step on features, with all of them, (N, d), and their labels (N, K). By default nothing."""

    can_shorten: ClassVar[bool] = False
    """Whether it has a shortcut, and may learn from guesses; those of the literature are as published."""

    def end(self, opinion: Opinion, share: float) -> None:
        """Called after the last step on features, if `shortcut`, here `share`, is not 0. By default nothing."""

    def pool(self, features: Tensor) -> Tensor:
        """Features (B, in_features) of a map (B, in_features, h, w): its mean. Features stay as they are."""
        return features.mean(dim=(2, 3)) if features.dim() == 4 else features

    def embed(self, features: Tensor) -> Tensor:
        """What it takes to the features (B, width) before its classifier: the neck's output, if there is a neck."""
        neck, features = getattr(self, "neck", None), self.pool(features)
        found: Tensor = neck.layers(features) if isinstance(neck, Neck) else features
        return found

    def typical(self, x: Tensor) -> Tensor:
        """(B, in_features) standard normal numbers, moved to the scale of the training features, if it knows that scale."""
        norm = next((module for module in self.modules() if isinstance(module, InputNorm)), None)
        if norm is None or norm.running_mean is None or norm.running_var is None:
            return x
        return norm.running_mean + norm.running_var.sqrt() * x

    @property
    def can_drop(self) -> bool:
        """Whether input dropout is possible, which needs a neck."""
        return any(isinstance(module, InputNorm) for module in self.modules())

    def reached(self, share: float) -> None:
        """Take note of the share of training that is done. Training by `schedule=step` calls it before every step."""

    def idle(self) -> list[nn.Parameter]:
        """Weights that do not learn now, so that the optimizer leaves them alone, decay included. By default none."""
        return []

    def scalars(self) -> dict[str, float]:
        """Quantities to record in the training history, such as γ of each transition."""
        return {}

    def parameter_count(self) -> int:
        """The number of its trainable parameters."""
        return sum(p.numel() for p in self.parameters())


def fine_only(labels: Tensor) -> Tensor:
    """(B, K) labels with all but the finest level unknown, for methods that learn from fine labels alone."""
    seen = labels.clone()
    seen[:, 1:] = -1
    return seen


class Estimator(Method):
    """A method that is not trained by steps: `fit` takes all samples at once. For models of other libraries."""

    package: ClassVar[str]
    """The package it uses, which the extra `peers` installs."""

    def fit(self, features: Tensor, labels: Tensor, *, seed: int = 0) -> None:
        """Learn from all training samples: features (N, d), labels (N, K)."""
        raise TypeError(f"{type(self).__name__} must define fit(features, labels)")

    def parameter_count(self) -> int:
        """The number of fitted weights."""
        return sum(value.numel() for value in self.state_dict().values())


# ---- the register --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What a name means: a class with some options set, one line about it, and its paper."""

    cls: type[Method]
    options: dict[str, Any]
    summary: str
    paper: str
    grid: dict[str, tuple[Any, ...]]


_REGISTRY: dict[str, Entry] = {}
_ALIASES: dict[str, str] = {}
M = TypeVar("M", bound=type[Method])


def register(name: str, *, paper: str = "", aliases: Sequence[str] = ()) -> Callable[[M], M]:
    """Class decorator: register a method by name for `create_method`, the command line and `lht compare`."""

    def enter(cls: M) -> M:
        summary = (inspect.getdoc(cls) or "").partition("\n")[0]
        _REGISTRY[name] = Entry(cls, {}, summary, paper, cls.grid)
        _ALIASES.update(dict.fromkeys(aliases, name))
        return cls

    return enter


def variant(
    name: str,
    cls: type[Method],
    summary: str,
    *,
    paper: str = "",
    grid: dict[str, tuple[Any, ...]] | None = None,
    **options: Any,
) -> None:
    """Register a method with some options set under another name; `grid` replaces that of the class."""
    own = {option: values for option, values in cls.grid.items() if option not in options}
    _REGISTRY[name] = Entry(cls, options, summary, paper, own if grid is None else grid)


@functools.cache
def _import_all() -> None:
    """Import every file of `heads/methods`, each of which registers its methods; a new file is found automatically."""
    package = importlib.import_module("torchlht.heads.methods")
    for file in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{file.name}")


def _registered() -> dict[str, Entry]:
    _import_all()
    return _REGISTRY


def list_methods(pattern: str = "*") -> list[str]:
    """Names of the registered methods, sorted, without aliases: `list_methods("lht*")`."""
    return sorted(name for name in _registered() if fnmatch(name, pattern))


def aliases_of(name: str) -> list[str]:
    """Other names of a method."""
    return sorted(alias for alias, target in _ALIASES.items() if target == name)


def find_method(name: str) -> Entry:
    """The entry of a name or alias. Raises ConfigError, with the nearest name, when it is unknown."""
    known = _registered()
    found = known.get(_ALIASES.get(name, name))
    if found is None:
        raise unknown_method(name, list_methods(), _ALIASES)
    return found


# ---- options -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An option of a method, as the class declares it: keyword of its constructor, type hint, default, line under Args."""

    name: str
    hint: Any
    default: Any
    meaning: str

    @property
    def kind(self) -> str:
        """Its type, as shown in --help."""
        kind, optional = kind_of(self.hint)
        words = (
            "|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else {int: "N", float: "NUMBER"}.get(kind, "TEXT")
        )
        return "true|false" if kind is bool else words + "|none" * optional

    def shown(self) -> str:
        """How it is written: --bias, --no-bias; --rank N."""
        flag = as_flag(self.name)
        return f"{flag}, --no-{flag[2:]}" if self.kind == "true|false" else f"{flag} {self.kind}"

    def explained(self) -> str:
        """Its meaning as a sentence, with its default where the meaning does not tell it."""
        said = self.meaning[:1].upper() + self.meaning[1:] if self.meaning[:1].isascii() else self.meaning
        plain = {True: "yes", False: "no"}[self.default] if isinstance(self.default, bool) else self.default
        return said if plain is None else f"{said} (default: {plain})"


def options_of(name: str) -> dict[str, Option]:
    """The options of a method: its own, and those of `regularise` if it is trained by steps."""
    entry = find_method(name)
    found = _declared(entry.cls.__init__, entry.cls.__doc__ or "")
    found |= {name: dataclasses.replace(found[name], default=value) for name, value in entry.options.items()}
    return found if issubclass(entry.cls, Estimator) else found | _declared(regularise, regularise.__doc__ or "")


def _declared(function: Callable[..., Any], docstring: str) -> dict[str, Option]:
    """The keywords of a function."""
    hints, meanings = get_type_hints(function), argument_texts(docstring)
    keywords = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return {p.name: Option(p.name, hints[p.name], p.default, meanings.get(p.name, "")) for p in keywords}


def argument_texts(docstring: str) -> dict[str, str]:
    """The text about each argument in the Args section of a docstring."""
    _, _, section = inspect.cleandoc(docstring).partition("Args:\n")
    found: dict[str, str] = {}
    for line in section.splitlines():
        if not line.startswith("    "):
            break
        name, colon, text = line.strip().partition(": ")
        if colon and not line.startswith("     "):
            found[name] = text
        elif found:
            found[list(found)[-1]] += " " + line.strip()
    return found


def method_options(name: str, *, common: bool = False) -> dict[str, Any]:
    """The options a method takes, with their defaults; with `common`, also those that all methods take."""
    others = () if common else COMMON_OPTIONS
    return {option.name: option.default for option in options_of(name).values() if option.name not in others}


def older_options(name: str, recorded: Collection[str]) -> dict[str, Any]:
    """Options of a method that came after a run was made, which has not recorded them, with what they were then."""
    entry = find_method(name)
    return {option: was for option, was in entry.cls.before.items() if option not in {*recorded, *entry.options}}


def find_option(method: str, name: str) -> Option:
    """An option by name. Raises ConfigError, with the nearest name, when the method has no such option."""
    known = options_of(method)
    if name not in known:
        raise no_option(method, name, known)
    return known[name]


def parse_options(name: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Parse options written as `name=value`, by the type hints of a method: `parse_options("hxe", ["alpha=0.3"])`."""
    found = {}
    for pair in pairs:
        option, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"option {pair!r} of {name}: write it as name=value")
        found[option] = parse_value(option, name, text, find_option(name, option).hint)
    return found


@entrance
def create_method(name: str, in_features: int, hierarchy: Hierarchy, **options: Any) -> Method:
    """A method by name, e.g. `create_method("lht", 2048, tree, gamma=6.0)`."""
    for option in options:
        find_option(name, option)
    entry, common = find_method(name), {option: options.pop(option) for option in COMMON_OPTIONS if option in options}
    method = entry.cls(in_features, hierarchy, **{**entry.options, **options})
    method.name = name
    regularise(method, **common)
    return method


@entrance
def regularise(method: Method, *, input_dropout: Share = 0.0, cosine: bool = False) -> None:
    """Options of every method that is trained by steps.

    Args:
        method: the method, changed in place.
        input_dropout: share of the features dropped in training, from 0 to below 1.
        cosine: classify by the cosine between features and class weights, times a learned scale.
    """
    classifiers = [module for module in method.modules() if isinstance(module, Classifier)]
    if input_dropout and not method.can_drop:
        raise ConfigError(f"method {method.name} has no neck for input dropout; leave input_dropout at 0")
    if cosine and not classifiers:
        raise ConfigError(f"method {method.name} has no linear classifier to turn into cosines; leave cosine off")
    for module in method.modules():
        if isinstance(module, InputNorm):
            module.dropout = input_dropout
    for classifier in classifiers if cosine else ():
        classifier.use_cosine()


COMMON_OPTIONS = tuple(_declared(regularise, ""))
"""Options of every method that is trained by steps."""
