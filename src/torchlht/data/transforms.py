"""From a picture to a tensor, in three stages, so that the expensive one can be kept in memory:

decode     path → uint8 (3, h, w), resized          deterministic, the same for training and evaluation
crop       → uint8 (3, size, size)                  random crop and flip in training, the centre otherwise
normalise  → float32                                a whole batch at once
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from torchlht.data.images import open_image, to_rgb
from torchlht.errors import ConfigError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INTERPOLATION = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@dataclass(frozen=True)
class Preprocess:
    """How pictures become tensors. Kept in a run's configuration, so that predicting does what training did.

    Attributes:
        size: side of the square the network sees, in pixels.
        resize: pixels of the shorter side before cropping, or of both sides with `stretch`.
        mean, std: per channel, on a scale of 0 to 1.
        interpolation: `bilinear` or `bicubic`.
        stretch: ignore the aspect ratio when resizing, as the paper does.
        padding: pixels added around the picture before a random crop.
    """

    size: int
    resize: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bilinear"
    stretch: bool = False
    padding: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a configuration file."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Preprocess:
        """The inverse of `to_dict`."""
        kept: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
        return cls(**kept)

    def resized(self, size: int) -> Preprocess:
        """The same for another input size, with the margin for cropping in proportion."""
        if size < 8:
            raise ConfigError(f"`image_size` is {size}: at least 8 pixels are needed")
        return replace(self, size=size, resize=round(size * self.resize / self.size))


def paper_preprocess(size: int) -> Preprocess:
    """The published recipe: 550 px stretched, cropped to 448 with 8 px of padding, mean = std = 0.5; else resize only."""
    if size == 448:
        half = (0.5, 0.5, 0.5)
        return Preprocess(size=448, resize=550, mean=half, std=half, stretch=True, padding=8)
    return Preprocess(size=size, resize=size, stretch=True, padding=4)


def decode(source: str | Path | Image.Image, spec: Preprocess, data: bytes | None = None) -> Tensor:
    """A picture, resized: uint8 (3, h, w). `data` is the content of its file, where that has been read already."""
    image = to_rgb(source) if isinstance(source, Image.Image) else open_image(Path(source), data)
    if spec.stretch:
        target = (spec.resize, spec.resize)
    else:
        scale = spec.resize / min(image.size)
        target = (max(round(image.width * scale), spec.size), max(round(image.height * scale), spec.size))
    if image.size != target:
        image = image.resize(target, INTERPOLATION[spec.interpolation])
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def centre_crop(image: Tensor, spec: Preprocess) -> Tensor:
    """The middle of a picture: (3, size, size)."""
    top, left = (image.shape[1] - spec.size) // 2, (image.shape[2] - spec.size) // 2
    return image[:, top : top + spec.size, left : left + spec.size]


def random_crop(image: Tensor, spec: Preprocess, rng: np.random.Generator) -> Tensor:
    """Anywhere in a picture, mirrored half of the time: (3, size, size)."""
    if spec.padding:
        image = torch.nn.functional.pad(image, [spec.padding] * 4)
    top = rng.integers(image.shape[1] - spec.size + 1)
    left = rng.integers(image.shape[2] - spec.size + 1)
    image = image[:, top : top + spec.size, left : left + spec.size]
    return image.flip(2) if rng.random() < 0.5 else image


def normalise(images: Tensor, spec: Preprocess) -> Tensor:
    """uint8 (B, 3, size, size) to float32, per-channel standardised."""
    mean, std = (torch.tensor(v).view(3, 1, 1) * 255 for v in (spec.mean, spec.std))
    return images.to(torch.float32, copy=True).sub_(mean).div_(std)  # in one piece of memory: making more costs as much
