"""Batches: the order of samples, loading them, and turning a picture into a tensor.

A picture passes three stages; the result of the expensive one can stay in memory:

    decode     picture → uint8 (3, h, w), resized       deterministic, the same for training and evaluation
    crop       → uint8 (3, size, size)                  random crop and flip in training, the centre otherwise
    normalise  → float32                                a whole batch at once
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from torchlht.data.pictures import BytesPicture, Picture, Problem, open_image, to_rgb
from torchlht.data.streaming import Ints, ShardReader, lanes_of, lying, stream_batches, workers_for
from torchlht.errors import ConfigError, DataError

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
    if image.size != target:
        image = image.resize(target, INTERPOLATION[spec.interpolation])
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def centre_crop(image: Tensor, spec: Preprocess) -> Tensor:
    """The centre of a picture: (3, size, size)."""
    top, left = (image.shape[1] - spec.size) // 2, (image.shape[2] - spec.size) // 2
    return image[:, top : top + spec.size, left : left + spec.size]


def random_crop(image: Tensor, spec: Preprocess, rng: np.random.Generator) -> Tensor:
    """A random part of a picture, mirrored half of the time: (3, size, size)."""
    if spec.padding:
        image = torch.nn.functional.pad(image, [spec.padding] * 4)
    top = rng.integers(image.shape[1] - spec.size + 1)
    left = rng.integers(image.shape[2] - spec.size + 1)
    image = image[:, top : top + spec.size, left : left + spec.size]
    return image.flip(2) if rng.random() < 0.5 else image


def normalise(images: Tensor, spec: Preprocess) -> Tensor:
    """uint8 (B, 3, size, size) to float32, standardised per channel."""
    mean, std = (torch.tensor(v).view(3, 1, 1) * 255 for v in (spec.mean, spec.std))
    return images.to(torch.float32, copy=True).sub_(mean).div_(std)  # in place: allocating again would cost as much


Batch = tuple[Tensor, Tensor]
RAM_LIMIT = 2 * 2**30  # decoded pictures are kept in memory up to this many bytes


# ---- sets of samples -------------------------------------------------------------------------------------------------


class FeatureSet(Dataset[Batch]):
    """Features with their labels, loaded one batch at a time."""

    def __init__(self, x: Tensor, labels: Tensor) -> None:
        self.x, self.labels = x, labels
        self.in_memory, self.streamed = True, False

    def __len__(self) -> int:
        return len(self.x)

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Features are not augmented."""

    def view(self, *_: int) -> FeatureSet:
        """The set itself: features have only one view."""
        return self

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The features (B, d) and labels (B, K) at these positions."""
        return self.x[index], self.labels[index]

    def as_input(self, x: Tensor) -> Tensor:
        """The features themselves: a network takes them as they are."""
        return x


class ImageSet(Dataset[Batch]):
    """Pictures with their labels. Small collections are decoded once and kept in memory.

    Args:
        images: the pictures.
        labels: (N, K).
        spec: how they become tensors.
        augment: whether crops are random.
        streamed: whether they are in shards that are read from start to end; batches then come from `stream_batches`.
    """

    def __init__(
        self, images: Sequence[Picture], labels: Tensor, spec: Preprocess, *, augment: bool = False, streamed: bool = False
    ) -> None:
        self.images, self.labels, self.spec, self.augment = list(images), labels, spec, augment
        self.seed, self.epoch = 0, 0
        self.streamed = streamed
        self.unreadable: list[Problem] | None = None  # if it is a list, unreadable pictures are added to it
        self.in_memory = not streamed and 3 * spec.resize**2 * 4 // 3 * len(self.images) <= RAM_LIMIT
        self._kept: list[Tensor] | None = None
        self._planned: Sequence[Sequence[int]] = ()
        self._reader: ShardReader | None = None

    @functools.cached_property
    def shards(self) -> list[Ints]:
        """The positions of the pictures of each shard, in file order."""
        return lying(self.images)

    def __len__(self) -> int:
        return len(self.images)

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Set the augmentation. It depends on seed, epoch and sample alone, so a resumed run repeats it."""
        self.seed, self.epoch = seed, epoch

    def view(self, *moment: int) -> ImageSet:
        """The same pictures without augmentation; or, given a seed and an epoch, with another one than in that epoch."""
        self._decode_all()
        other = copy.copy(self)
        other.streamed = False  # its order differs from that of the shards
        other.augment = self.augment and bool(moment)
        if moment:
            other.set_epoch(moment[0], -1 - moment[1])
        return other

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The pictures, uint8 (B, 3, size, size), and labels (B, K) at these positions."""
        found = [(int(i), crop) for i in index if (crop := self._tried(int(i))) is not None]
        empty = torch.empty(0, 3, self.spec.size, self.spec.size, dtype=torch.uint8)
        return torch.stack([crop for _, crop in found]) if found else empty, self.labels[[i for i, _ in found]]

    def _tried(self, i: int) -> Tensor | None:
        """A picture, or None if it cannot be read and unreadable pictures are only collected."""
        try:
            return self._cropped(i)
        except DataError as error:
            if self.unreadable is None:
                raise
            self.unreadable.append(Problem(str(self.images[i]), str(error).removeprefix(f"{self.images[i]}: ")))
            return None

    def as_input(self, x: Tensor) -> Tensor:
        """The network's input, from a loaded batch. Converted here, as bytes are cheaper to send between processes."""
        return normalise(x, self.spec)

    def _cropped(self, i: int) -> Tensor:
        image = self._decoded(i)
        if not self.augment:
            return centre_crop(image, self.spec)
        moment = [self.seed, self.epoch, i] if self.epoch >= 0 else [self.seed, -self.epoch, i, 1]
        return random_crop(image, self.spec, np.random.default_rng(moment))

    def plan(self, batches: Sequence[Sequence[int]]) -> None:
        """Announce the batches to come, in order; this process or its workers, in turns, will load them."""
        self._planned, self._reader = batches, None

    def _stream(self) -> ShardReader:
        if self._reader is None:
            worker = get_worker_info()
            mine = self._planned[worker.id :: worker.num_workers] if worker else self._planned
            self._reader = ShardReader([self.images[i] for batch in mine for i in batch])
        return self._reader

    def _decoded(self, i: int) -> Tensor:
        if self.streamed:
            return decode(BytesPicture(self._stream().take(self.images[i]), str(self.images[i])), self.spec)
        self._decode_all()
        return self._kept[i] if self._kept is not None else decode(self.images[i], self.spec)

    def _decode_all(self) -> None:
        if self.in_memory and self._kept is None:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                self._kept = list(pool.map(lambda picture: decode(picture, self.spec), self.images))


SampleSet = FeatureSet | ImageSet


def sample_set(
    x: NDArray[np.float32] | None,
    images: Sequence[Picture] | None,
    labels: NDArray[np.int64],
    spec: Preprocess | None,
    *,
    augment: bool = False,
    streamed: bool = False,
) -> SampleSet:
    """A set to load batches from: of features if there are any, else of pictures."""
    y = torch.from_numpy(labels)
    if x is not None:
        return FeatureSet(torch.from_numpy(x), y)
    assert images is not None
    assert spec is not None
    return ImageSet(images, y, spec, augment=augment, streamed=streamed)


def members(data: SampleSet, level: int, label: int) -> list[int]:
    """Positions of the samples of a class."""
    return torch.nonzero(data.labels[:, level] == label).flatten().tolist()


def set_batches(data: SampleSet, batch_size: int, *, seed: int, epoch: int, drop_last: bool = False) -> list[list[int]]:
    """The batches of one epoch over a set: by `stream_batches` if it is streamed, else by `epoch_batches`."""
    if isinstance(data, ImageSet) and data.streamed:
        return stream_batches(data.shards, batch_size, seed=seed, epoch=epoch, drop_last=drop_last)
    return epoch_batches(len(data), batch_size, seed=seed, epoch=epoch, drop_last=drop_last)


def epoch_batches(n: int, batch_size: int, *, seed: int, epoch: int, drop_last: bool = False) -> list[list[int]]:
    """The batches of one epoch: a permutation that depends on the seed and the epoch alone."""
    order = np.random.default_rng([seed, epoch]).permutation(n).tolist()
    batches = [order[i : i + batch_size] for i in range(0, n, batch_size)]
    if drop_last and len(batches) > 1 and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


def load(data: SampleSet, batches: Sequence[Sequence[int]], workers: int = 0) -> Iterator[Batch]:
    """Load these batches in order; worker processes decode pictures on disk ahead."""
    if isinstance(data, ImageSet) and data.streamed:
        data.plan(batches)
        workers = workers_for(lanes_of(len(data.shards)), workers)
    loader = DataLoader(
        data,
        batch_sampler=batches,  # type: ignore[arg-type]
        collate_fn=_as_is,
        num_workers=0 if data.in_memory else workers,
        generator=torch.Generator(),  # else it draws from the global generator when it starts
    )
    try:
        for x, labels in loader:
            yield data.as_input(x), labels
    except DataError as error:  # a worker's error comes with its traceback; the message is the last line
        raise DataError(str(error).strip().splitlines()[-1].removeprefix("torchlht.errors.DataError: ")) from error


def _as_is(batch: Any) -> Any:
    return batch
