"""Turning a picture into a tensor.

A picture passes three stages; the result of the expensive one can stay in memory:

    decode     picture → uint8 (3, h, w), resized       deterministic, the same for training and evaluation
    crop       → uint8 (3, size, size)                  random crop and flip in training, the centre otherwise
    normalise  → float32                                a whole batch at once
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from msgspec import Meta
from PIL import Image
from torch import Tensor

from torchlht.data.pictures import PIXELS, Picture, open_image, to_rgb
from torchlht.doors import Looks, Number, Positive, Side, fit
from torchlht.errors import ConfigError, DataError
from torchlht.vocabulary import Augment

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INTERPOLATION = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocess:
    """How pictures become tensors. Stored in a run's configuration, so that prediction does the same as training.

    Attributes:
        size: side of the network's square input, in pixels.
        resize: shorter side before cropping, in pixels; both sides with `stretch`.
        mean, std: per channel, on a scale of 0 to 1.
        interpolation: `bilinear` or `bicubic`.
        stretch: ignore the aspect ratio when resizing, as the paper does.
        padding: pixels added around the picture before a random crop.
        looks: how many looks at a picture answers take; see `looks_at`.
    """

    size: Side
    resize: Side
    mean: tuple[Number, Number, Number] = IMAGENET_MEAN
    std: tuple[Positive, Positive, Positive] = IMAGENET_STD
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    stretch: bool = False
    padding: Annotated[int, Meta(ge=0, le=4096)] = 0
    looks: Looks = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a configuration file; without `looks` if it is 1, as before there were several."""
        values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return values if self.looks > 1 else {name: value for name, value in values.items() if name != "looks"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocess:
        """The inverse of `to_dict`. Raises ConfigError when a value is missing or makes no sense."""
        return fit(values, cls, "`preprocess`", ConfigError)

    def resized(self, size: int) -> Preprocess:
        """The same for another input size, with `resize` in proportion."""
        if size < 8:
            raise ConfigError(f"`image_size` is {size}: it must be at least 8 pixels")
        return replace(self, size=size, resize=round(size * self.resize / self.size))


def paper_preprocess(size: int) -> Preprocess:
    """The published recipe: stretch to 550 px, crop to 448 with 8 px of padding, mean = std = 0.5; else resize only."""
    if size == 448:
        half = (0.5, 0.5, 0.5)
        return Preprocess(size=448, resize=550, mean=half, std=half, stretch=True, padding=8)
    return Preprocess(size=size, resize=size, stretch=True, padding=4)


def decode(source: Picture | str | Path | Image.Image, spec: Preprocess) -> Tensor:
    """Read and resize a picture, an address or a PIL image: uint8 (3, h, w)."""
    image = to_rgb(source) if isinstance(source, Image.Image) else open_image(source)
    if spec.stretch:
        target = (spec.resize, spec.resize)
    else:
        scale = spec.resize / min(image.size)
        target = (max(round(image.width * scale), spec.size), max(round(image.height * scale), spec.size))
    if target[0] * target[1] > PIXELS:
        raise DataError(f"{source}: would be {target[0]:,} × {target[1]:,} pixels after resizing; lower `image_size`")
    if image.size != target:
        image = image.resize(target, INTERPOLATION[spec.interpolation])
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def centre_crop(image: Tensor, spec: Preprocess) -> Tensor:
    """The centre of a picture: (3, size, size)."""
    top, left = (image.shape[1] - spec.size) // 2, (image.shape[2] - spec.size) // 2
    return image[:, top : top + spec.size, left : left + spec.size]


def looks_at(image: Tensor, spec: Preprocess) -> Tensor:
    """What answers see of a picture: its centre (3, size, size); or, with several looks, the first of `LOOKS` (looks, …)."""
    return centre_crop(image, spec) if spec.looks == 1 else torch.stack([look(image, spec) for look in LOOKS[: spec.looks]])


def whole(image: Tensor, spec: Preprocess) -> Tensor:
    """The largest square in the middle of a picture, with nothing cut off its shorter side: (3, size, size)."""
    side = min(image.shape[1:])
    return _scaled(centre_crop(image, replace(spec, size=side)), spec)


def zoomed(image: Tensor, spec: Preprocess) -> Tensor:
    """The middle of the centre, three quarters as wide and high: (3, size, size)."""
    return _scaled(centre_crop(image, replace(spec, size=round(0.75 * spec.size))), spec)


def squeezed(image: Tensor, spec: Preprocess) -> Tensor:
    """All of a picture, made square, mirrored: (3, size, size)."""
    return _scaled(image, spec).flip(2)


def _scaled(image: Tensor, spec: Preprocess) -> Tensor:
    shape = spec.size, spec.size
    return torch.nn.functional.interpolate(image.unsqueeze(0), shape, mode="bilinear", antialias=True)[0]


LOOKS: tuple[Callable[[Tensor, Preprocess], Tensor], ...] = (
    centre_crop,
    squeezed,
    zoomed,
    whole,
    lambda image, spec: centre_crop(image, spec).flip(2),
)


def random_crop(image: Tensor, spec: Preprocess, rng: np.random.Generator) -> Tensor:
    """A random part of a picture, mirrored half of the time: (3, size, size)."""
    if spec.padding:
        image = torch.nn.functional.pad(image, [spec.padding] * 4)
    top = rng.integers(image.shape[1] - spec.size + 1)
    left = rng.integers(image.shape[2] - spec.size + 1)
    image = image[:, top : top + spec.size, left : left + spec.size]
    return image.flip(2) if rng.random() < 0.5 else image


def strong_crop(image: Tensor, spec: Preprocess, rng: np.random.Generator) -> Tensor:
    """A random part at a random scale and shape, in other colours, mirrored half of the time: (3, size, size)."""
    high, wide = image.shape[1:]
    side, shape = math.sqrt(high * wide * rng.uniform(0.35, 1)), math.exp(rng.uniform(-0.29, 0.29))  # from 3:4 to 4:3
    height, width = min(max(round(side / shape), 1), high), min(max(round(side * shape), 1), wide)
    top, left = rng.integers(high - height + 1), rng.integers(wide - width + 1)
    part = image[:, top : top + height, left : left + width].unsqueeze(0)
    part = torch.nn.functional.interpolate(part, (spec.size, spec.size), mode="bilinear", antialias=True)[0]
    part = other_colours(part, *rng.uniform(0.7, 1.3, size=3))
    return part.flip(2) if rng.random() < 0.5 else part


def other_colours(image: Tensor, brightness: float, contrast: float, saturation: float) -> Tensor:
    """A picture, uint8 (3, h, w), with each of these changed by a factor; 1 changes nothing."""
    x = image.float().mul(brightness).clamp_(0, 255)
    x = x.lerp(x.mean().expand_as(x), 1 - contrast).clamp_(0, 255)
    return x.lerp(x.mean(dim=0, keepdim=True).expand_as(x), 1 - saturation).clamp_(0, 255).round().to(torch.uint8)


Crop = Callable[[Tensor, Preprocess, np.random.Generator], Tensor]
CROPS: dict[Augment, Crop] = {"standard": random_crop, "paper": random_crop, "strong": strong_crop}


def normalise(images: Tensor, spec: Preprocess) -> Tensor:
    """uint8 (B, 3, size, size) to float32, standardised per channel."""
    mean, std = (torch.tensor(v).view(3, 1, 1) * 255 for v in (spec.mean, spec.std))
    return images.to(torch.float32, copy=True).sub_(mean).div_(std)  # in place: allocating again would cost as much
