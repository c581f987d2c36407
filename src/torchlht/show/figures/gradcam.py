"""Grad-CAM per level: the parts of a picture that lead to the answer at each level (Selvaraju et al., ICCV 2017).

    last feature map A (B, c, h, w) ─► features ─► p¹ ──► T² ──► p² ──► …        w_c = mean over places of ∂ log pᵏ / ∂A_c
                                          └──────► T ─────┘                     map = Σ_c w_c A_c

At a coarser level the gradient has two paths, through the fine classes p¹ and through the transitions T. The two maps before
the ReLU add up to the full map, and can be shown separately.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor, nn

from torchlht.answer.asking import device_of
from torchlht.answer.model import Model
from torchlht.data.pictures import Picture
from torchlht.data.preparing import Preprocess, centre_crop, decode, normalise
from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import DenseTransition, Transition
from torchlht.show.look import Floats, caption, inches, look, panels, plain, theme

Through = Literal["both", "T", "p1"]
Pictures = Tensor | Sequence[str | Path | Picture | Image.Image]
WAYS = {"both": "through p¹ and T", "T": "through T alone", "p1": "through p¹ alone"}


@dataclass(frozen=True)
class ClassMaps:
    """Grad-CAM of one batch before the ReLU, one map per level, fine first.

    Attributes:
        maps: (B, h, w) per level, negative where a place is evidence against the class.
        classes: (B, K) the explained classes.
        probabilities: (B, K) their probabilities.
    """

    maps: tuple[Tensor, ...]
    classes: Tensor
    probabilities: Tensor


def class_maps(model: Model, images: Pictures, *, classes: Tensor | None = None, through: Through = "both") -> ClassMaps:
    """Weighted sums of the last feature map's channels. A channel's weight is the mean gradient of the class over places.

    The gradient is that of log pᵏ at the answer. At the finest level it is that of the logit, if log p¹ is the log-softmax of a
    linear layer.

    Args:
        model: a model with a backbone for pictures.
        images: pictures as paths or PIL images, or a batch (B, 3, size, size) already normalised.
        classes: (B, K) classes to explain, fine first; the model's answers by default.
        through: `both`, or only the path through the transitions (`T`) or through the finest classes (`p1`).

    Raises:
        ConfigError: when the model takes features, or the method has no gradients or no such path.
    """
    if through not in get_args(Through):
        raise ConfigError(f"unknown path {through!r}: {suggestion(through, get_args(Through))}")
    x = as_batch(model, images)
    watch, was_training = _Watch(model), model.training
    model.eval()
    try:
        with watch, torch.enable_grad():
            prediction: Prediction = model(x.detach().clone().requires_grad_())
    finally:
        model.train(was_training)
    chosen = prediction.chosen() if classes is None else classes.to(x.device)
    targets = _targets(model, prediction, watch.logits(prediction.log_probs[0]), through)
    picked = [target.gather(1, chosen[:, k : k + 1]).sum() for k, target in enumerate(targets)]
    found = [p.gather(1, chosen[:, k : k + 1]).exp() for k, p in enumerate(prediction.log_probs)]
    return ClassMaps(tuple(watch.weighted(one) for one in picked), chosen, torch.cat(found, dim=1).detach())


def gradcam(model: Model, images: Pictures, *, classes: Tensor | None = None, through: Through = "both") -> tuple[Tensor, ...]:
    """Grad-CAM at every level, fine first: (B, size, size) from 0 to 1 for each picture; see `class_maps`."""
    x = as_batch(model, images)
    found = class_maps(model, x, classes=classes, through=through)
    return tuple(presentable(one, (x.shape[2], x.shape[3])) for one in found.maps)


def presentable(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps after ReLU, resized, and scaled to 0…1 for each picture; 0 everywhere if no place stands out."""
    large = F.interpolate(F.relu(maps).unsqueeze(1), size, mode="bilinear", align_corners=False).squeeze(1)
    lowest, highest = large.amin(dim=(1, 2), keepdim=True), large.amax(dim=(1, 2), keepdim=True)
    span = highest - lowest
    stands_out = span > 1e-6 * highest  # more than rounding
    return torch.where(stands_out, (large - lowest) / torch.where(stands_out, span, 1), 0)


# ---- pictures ------------------------------------------------------------------------------------------------------


def as_batch(model: Model, images: Pictures) -> Tensor:
    """(B, 3, size, size), prepared for the model and on its device."""
    spec = spec_of(model)
    if isinstance(images, Tensor):
        if images.dim() == 5:  # several looks at each: the first is the picture itself
            images = images[:, 0]
        if images.dim() != 4:
            raise DataError(f"pictures are {tuple(images.shape)}; a batch is (B, 3, height, width)")
        return images.to(device_of(model))
    if not len(images):
        raise DataError("no pictures to look at")
    return normalise(torch.stack([centre_crop(decode(one, spec), spec) for one in images]), spec).to(device_of(model))


def spec_of(model: Model) -> Preprocess:
    """How pictures are prepared for a model. Raises ConfigError if it takes features."""
    if model.preprocess is None:
        raise ConfigError("Grad-CAM needs a backbone that sees pictures; this model takes features")
    return model.preprocess


def visible(x: Tensor, spec: Preprocess) -> Tensor:
    """(B, size, size, 3) from 0 to 1: normalised pictures in their original colours."""
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (spec.mean, spec.std))
    return (x.detach().cpu().float() * std + mean).clamp(0, 1).permute(0, 2, 3, 1)


# ---- gradients -----------------------------------------------------------------------------------------------------


class _Watch(ExitStack):
    """Records the backbone's last feature map and the outputs of linear layers while a batch goes through a model.

    It keeps the last output with the shape of a map: (B, c, h, w), or (B, h, w, c) if timm says so (Swin). For a ViT, it keeps
    the tokens that enter the last block's attention; after it, only the class token counts.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model, self.output = model, torch.empty(0)
        self.linear: list[Tensor] = []

    def __enter__(self) -> _Watch:
        network, method = self.model.backbone.network, self.model.method
        tokens = _token_layer(network)
        for module in network.modules() if tokens is None else ():
            self.callback(module.register_forward_hook(self._see_map).remove)
        if tokens is not None:
            self.callback(tokens.register_forward_hook(self._see_tokens).remove)
        for module in method.modules():
            if isinstance(module, nn.Linear):
                self.callback(module.register_forward_hook(self._note).remove)
        return self

    def _see_map(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A hook: keep this output if it is a map; the last one stays."""
        if isinstance(output, Tensor) and _is_map(output, self._last()):
            self.output = output

    def _see_tokens(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """A hook: keep the tokens."""
        self.output = output

    def _note(self, module: nn.Module, inputs: Any, output: Any) -> None:
        """A hook: keep the output of every linear layer of the method."""
        self.linear.append(output)

    def _last(self) -> bool:
        """Whether channels come last."""
        return str(getattr(self.model.backbone.network, "output_fmt", "NCHW")).endswith("NHWC")

    def logits(self, log_p: Tensor) -> Tensor:
        """The output of the linear layer that `log_p` is the log-softmax of; if there is none, `log_p` itself."""
        for output in self.linear:
            if output.shape == log_p.shape and torch.allclose(output.log_softmax(dim=1), log_p, atol=1e-4):
                return output
        return log_p

    def weighted(self, target: Tensor) -> Tensor:
        """(B, h, w): Σ_c w_c A_c for the gradient of a scalar; 0 if the map has no influence on it."""
        maps = self.channels_first(self.output)
        if not target.requires_grad:
            return torch.zeros_like(maps[:, 0])
        gradient: Tensor | None = torch.autograd.grad(target, self.output, retain_graph=True, allow_unused=True)[0]
        if gradient is None:
            return torch.zeros_like(maps[:, 0])
        weights = self.channels_first(gradient).mean(dim=(2, 3), keepdim=True)
        return (weights * maps).sum(dim=1).detach()

    def channels_first(self, x: Tensor) -> Tensor:
        """(B, c, h, w), whatever order the backbone uses."""
        network: Any = self.model.backbone.network
        if not x.numel():
            raise ConfigError(f"backbone {self.model.backbone.name} has no feature map with more than one place")
        if x.dim() == 3:
            x = x[:, network.num_prefix_tokens :]
            side = math.isqrt(x.shape[1])
            height, width = (side, side) if side * side == x.shape[1] else network.patch_embed.grid_size
            return x.transpose(1, 2).reshape(len(x), -1, height, width)
        return x.permute(0, 3, 1, 2) if self._last() else x


def _token_layer(network: nn.Module) -> nn.Module | None:
    """The layer of a ViT whose tokens serve as the feature map; None for other networks."""
    if not hasattr(network, "num_prefix_tokens"):
        return None
    blocks = getattr(network, "blocks", None)
    layer = getattr(blocks[-1], "norm1", None) if isinstance(blocks, nn.Sequential | nn.ModuleList) and len(blocks) else None
    if not isinstance(layer, nn.Module):
        raise ConfigError(f"Grad-CAM cannot find the last tokens of {type(network).__name__}")
    return layer


def _is_map(x: Tensor, channels_last: bool) -> bool:
    """Whether this has the shape of a feature map with more than one place."""
    return x.dim() == 4 and max(x.shape[1:3] if channels_last else x.shape[2:]) > 1


def _targets(model: Model, prediction: Prediction, logits: Tensor, through: Through) -> list[Tensor]:
    """(B, C_k) per level: log pᵏ with gradients only along the chosen path, or logits at the finest level."""
    if not prediction.log_probs[0].requires_grad:
        raise ConfigError(f"method {model.method.name} has no gradients, which Grad-CAM needs")
    if through == "both":
        return [logits, *prediction.log_probs[1:]]
    if not prediction.transitions:
        raise ConfigError(f"method {model.method.name} has no transitions: its gradient has one path; use through='both'")
    log_p = prediction.log_probs[0]
    targets = [logits if through == "p1" else logits.detach()]
    log_p = log_p if through == "p1" else log_p.detach()
    for transition in prediction.transitions:
        log_p = (held(transition) if through == "p1" else transition).propagate(log_p)
        targets.append(log_p)
    return targets


def held(transition: Transition) -> Transition:
    """The same matrices as constants, without gradients."""
    return DenseTransition(transition.log_matrix().detach())


# ---- over pictures -------------------------------------------------------------------------------------------------


def gradcam_figure(
    model: Model,
    images: Pictures,
    *,
    labels: Tensor | None = None,
    through: Through = "both",
    title: str = "Grad-CAM of the answer at each level",
) -> Figure:
    """One row per picture: the picture, then the levels coarse → fine, each with its map and its answer.

    Args:
        model: a model with a backbone for pictures.
        images: see `class_maps`.
        labels: (B, K) true classes, fine first, -1 where unknown: answers are coloured, and the truth is under the picture.
        through: see `class_maps`.
        title: a line above the figure; the path of the gradient is added.
    """
    x = as_batch(model, images)
    return overlay_figure(model, x, class_maps(model, x, through=through), labels=labels, through=through, title=title)


def overlay_figure(
    model: Model, x: Tensor, found: ClassMaps, *, labels: Tensor | None = None, through: Through = "both", title: str = ""
) -> Figure:
    """`gradcam_figure` from maps that are already computed.

    Args:
        model: the model of the maps.
        x: (B, 3, size, size) the pictures, normalised.
        found: their maps.
        labels: see `gradcam_figure`.
        through: the path of the gradient.
        title: a line above the figure; the path of the gradient is added.
    """
    tree = model.hierarchy
    maps = [presentable(one, (x.shape[2], x.shape[3])).cpu().numpy() for one in found.maps]
    pictures = visible(x, spec_of(model)).numpy()
    with look():
        figure, grid = panels(len(x), len(tree) + 1, (1.5, 1.5), gap=(0.28, 0.42), margin=(0.2, 0.5, 0.9, 0.8))
        for i, line in enumerate(grid):
            line[0].imshow(pictures[i])
            _under(line[0], *_truth(model, labels, i))
            for axes, k in zip(line[1:], tree.top_down, strict=True):
                axes.imshow(washed(pictures[i], maps[k][i]))
                label = int(found.classes[i, k])
                _under(axes, tree.text(k, label), f"{found.probabilities[i, k]:.0%}", _verdict(labels, i, k, label))
        for axes, name in zip(grid[0], ["picture", *(tree.levels[k] for k in tree.top_down)], strict=True):
            axes.set_title(name)
        if through == "T":
            grid[0][-1].set_title(f"{tree.levels[0]}: no T on the way")
        for axes in figure.axes:
            axes.set_axis_off()
        way = f", {WAYS[through]}" if len(tree) > 1 else ""
        caption(grid[0][0], f"{title}{way}  ·  each map on its own scale")
    return figure


def washed(picture: Floats, heat: Floats) -> Floats:
    """(size, size, 3): a picture in grey with a map from 0 to 1 over it."""
    dark, bright = theme().wash
    grey = dark + (bright - dark) * picture.mean(axis=2, keepdims=True)
    cover = 0.8 * heat[:, :, None]
    mixed: Floats = (1 - cover) * grey + cover * theme().heat(heat)[:, :, :3]
    return mixed


def _truth(model: Model, labels: Tensor | None, i: int) -> tuple[str, str, str]:
    """The deepest known class of a picture, as text under it."""
    tree = model.hierarchy
    for k in range(len(tree)) if labels is not None else ():
        assert labels is not None
        if (label := int(labels[i, k])) >= 0:
            return tree.text(k, label), "", theme().ink
    return "", "", theme().ink


def _verdict(labels: Tensor | None, i: int, level: int, said: int) -> str:
    """The colour of an answer: right, wrong, or unknown."""
    if labels is None or int(labels[i, level]) < 0:
        return theme().ink
    return theme().right if int(labels[i, level]) == said else theme().wrong


def _under(axes: Axes, name: str, share: str, colour: str) -> None:
    """Write a name, in two lines if it is long, and a probability below a picture."""
    text = f"{plain(name)}  {share}" if share else plain(name)
    if len(text) > 24 and " " in text:
        middle = min((i for i, letter in enumerate(text) if letter == " "), key=lambda i: abs(i - len(text) / 2))
        text = f"{text[:middle].rstrip()}\n{text[middle + 1 :].lstrip()}"
    axes.text(0, -4 / (72 * inches(axes, "y")), text, transform=axes.transAxes, va="top", fontsize=8, color=colour)
