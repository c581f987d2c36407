"""Batches: which samples come when, and how they are fetched. One path for pictures and features."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from torchlht.data.pictures import BytesPicture, Picture, Problem
from torchlht.data.streaming import Ints, ShardReader, lanes_of, lying, stream_batches, workers_for
from torchlht.data.transforms import Preprocess, centre_crop, decode, normalise, random_crop
from torchlht.errors import DataError

Batch = tuple[Tensor, Tensor]
RAM_LIMIT = 2 * 2**30  # decoded pictures are kept in memory up to this many bytes


class FeatureSet(Dataset[Batch]):
    """Features with their labels, fetched a batch at a time."""

    def __init__(self, x: Tensor, labels: Tensor) -> None:
        self.x, self.labels = x, labels
        self.in_memory, self.streamed = True, False

    def __len__(self) -> int:
        return len(self.x)

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Features are not augmented."""

    def view(self, *_: int) -> FeatureSet:
        """See `ImageSet.view`; features look the same every time."""
        return self

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The features (B, d) and labels (B, K) at these positions."""
        return self.x[index], self.labels[index]

    def as_input(self, x: Tensor) -> Tensor:
        """See `ImageSet.as_input`; features are ready."""
        return x


class ImageSet(Dataset[Batch]):
    """Pictures with their labels. Small collections are decoded once and kept.

    Args:
        images: the pictures.
        labels: (N, K).
        spec: how they become tensors.
        augment: whether crops are random.
        streamed: whether they lie in shards that are read from start to end; batches then come from `stream_batches`.
    """

    def __init__(
        self, images: Sequence[Picture], labels: Tensor, spec: Preprocess, *, augment: bool = False, streamed: bool = False
    ) -> None:
        self.images, self.labels, self.spec, self.augment = list(images), labels, spec, augment
        self.seed, self.epoch = 0, 0
        self.streamed = streamed
        self.unreadable: list[Problem] | None = None  # where there is a list, pictures that cannot be read go there
        self.in_memory = not streamed and 3 * spec.resize**2 * 4 // 3 * len(self.images) <= RAM_LIMIT
        self._kept: list[Tensor] | None = None
        self._planned: Sequence[Sequence[int]] = ()
        self._reader: ShardReader | None = None

    @functools.cached_property
    def shards(self) -> list[Ints]:
        """The positions of the pictures of each shard, in the order in which they lie."""
        return lying(self.images)

    def __len__(self) -> int:
        return len(self.images)

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Augmentation of a sample depends on the seed, the epoch and the sample alone, so a resumed run repeats it."""
        self.seed, self.epoch = seed, epoch

    def view(self, *moment: int) -> ImageSet:
        """The same pictures as they are; or, given a seed and an epoch, in another augmentation than in that epoch's steps."""
        self._decode_all()
        other = copy.copy(self)
        other.streamed = False  # in another order than that of the shards
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
        """A picture, or None where it cannot be read and that is only to be noted."""
        try:
            return self._cropped(i)
        except DataError as error:
            if self.unreadable is None:
                raise
            self.unreadable.append(Problem(str(self.images[i]), str(error).removeprefix(f"{self.images[i]}: ")))
            return None

    def as_input(self, x: Tensor) -> Tensor:
        """What a network takes, from what was fetched; made on arrival, as bytes travel between processes at less cost."""
        return normalise(x, self.spec)

    def _cropped(self, i: int) -> Tensor:
        image = self._decoded(i)
        if not self.augment:
            return centre_crop(image, self.spec)
        moment = [self.seed, self.epoch, i] if self.epoch >= 0 else [self.seed, -self.epoch, i, 1]
        return random_crop(image, self.spec, np.random.default_rng(moment))

    def plan(self, batches: Sequence[Sequence[int]]) -> None:
        """What will be asked for, in this order, by this process or by workers that take turns."""
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
    """Features where there are any, else pictures, as something batches can be fetched from."""
    y = torch.from_numpy(labels)
    if x is not None:
        return FeatureSet(torch.from_numpy(x), y)
    assert images is not None
    assert spec is not None
    return ImageSet(images, y, spec, augment=augment, streamed=streamed)


def set_batches(data: SampleSet, batch_size: int, *, seed: int, epoch: int, drop_last: bool = False) -> list[list[int]]:
    """The batches of one epoch over a set: in the order of its shards where they are streamed, else as `epoch_batches`."""
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
    """Fetch these batches in order; pictures on disk are decoded ahead by worker processes."""
    if isinstance(data, ImageSet) and data.streamed:
        data.plan(batches)
        workers = workers_for(lanes_of(len(data.shards)), workers)
    loader = DataLoader(
        data,
        batch_sampler=batches,  # type: ignore[arg-type]
        collate_fn=_as_is,
        num_workers=0 if data.in_memory else workers,
        generator=torch.Generator(),  # else it draws a number from everybody's, whenever it happens to start
    )
    try:
        for x, labels in loader:
            yield data.as_input(x), labels
    except DataError as error:  # what a worker says comes with its traceback; the sentence is at the end
        raise DataError(str(error).strip().splitlines()[-1].removeprefix("torchlht.errors.DataError: ")) from error


def _as_is(batch: Any) -> Any:
    return batch
