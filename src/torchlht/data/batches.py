"""Batches: the order of samples, and loading them.

Streaming: The order is planned beforehand, from the contents of the shards alone. Shards are shuffled and dealt to lanes. A
lane has a few shards open, moves their samples one by one into a buffer, and takes them out at random. A batch comes from one
lane, and lanes take turns, so that up to four worker processes read separate shards, except for the last few. The batches of an
epoch are a plain list, so a resumed run continues in the middle and sees every sample exactly once.

`ShardReader` reads ahead in each shard and keeps what is not needed yet: at most the buffer, and a piece per shard.
"""

from __future__ import annotations

import copy
import functools
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from torchlht.data.moments import Moments
from torchlht.data.pictures import (
    BLOCK,
    BytesPicture,
    InTar,
    Picture,
    Problem,
    TarMember,
    as_url,
    read_range,
    states,
)
from torchlht.data.preparing import CROPS, Preprocess, decode, looks_at, normalise
from torchlht.errors import DataError
from torchlht.vocabulary import Augment

Ints = NDArray[np.int64]
# ---- streaming: shards are read from start to end, a few at a time, and samples still come well mixed ----------------

SHARDS_AT_ONCE = 16  # of all lanes together
BUFFER = 2048  # samples, likewise
LANES = 4
PIECE = 4 * 2**20  # bytes read at once from one shard
STREAM_FROM = 8 * 2**30  # bytes of local shards; the system keeps fewer in memory, so random access is as fast


def in_shards(pictures: Sequence[Picture]) -> bool:
    """Whether all of these pictures are in tars."""
    return bool(pictures) and all(isinstance(picture, InTar) for picture in pictures)


def worth_streaming(pictures: Sequence[Picture]) -> bool:
    """Whether pictures are in remote shards, or in local ones too large for the system's memory."""
    if not in_shards(pictures):
        return False
    one_of_each = {picture.file: picture for picture in pictures}
    elsewhere = any(file and as_url(file) for file in one_of_each)
    return elsewhere or sum(state[0] for state in states(one_of_each.values()) if state) > STREAM_FROM


def tar_members(pictures: Sequence[Picture]) -> list[TarMember]:
    """The places of pictures in their shards."""
    return [picture.placed() for picture in pictures if isinstance(picture, InTar)]


def lying(pictures: Sequence[Picture]) -> list[Ints]:
    """The positions of the pictures of each shard, in file order; shards sorted by name."""
    shards: dict[Path, list[tuple[int, int]]] = {}
    for i, member in enumerate(tar_members(pictures)):
        shards.setdefault(member.file, []).append((member.start, i))
    return [np.array([i for _, i in sorted(shards[file])], dtype=np.int64) for file in sorted(shards)]


def lanes_of(shards: int, shards_at_once: int = SHARDS_AT_ONCE) -> int:
    """How many lanes to deal this many shards to: fewer than `LANES` if some would have too few shards to mix."""
    lanes = LANES
    while lanes > 1 and (shards < lanes * (shards_at_once // LANES) or lanes > shards_at_once):
        lanes //= 2
    return lanes


def workers_for(lanes: int, workers: int) -> int:
    """How many of the worker processes to use, so that workers do not share lanes or lanes do not share workers."""
    if workers >= lanes:
        return workers - workers % lanes
    return max((n for n in range(1, workers + 1) if lanes % n == 0), default=0)


def stream_batches(
    shards: Sequence[Ints],
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    shards_at_once: int = SHARDS_AT_ONCE,
    buffer: int = BUFFER,
    drop_last: bool = False,
) -> list[list[int]]:
    """The batches of one epoch: every sample once, in an order that depends on these arguments alone.

    Args:
        shards: the positions of each shard's samples, in file order; see `lying`.
        batch_size: samples per batch.
        seed: seed of the run.
        epoch: counted from 0.
        shards_at_once: how many shards are in use at a time: some of their samples are used and some are not.
        buffer: how many samples may be read but not used yet.
        drop_last: leave out the last batch if it is smaller.
    """
    rng = np.random.default_rng([seed, epoch])
    lanes = lanes_of(len(shards), shards_at_once)
    dealt: list[list[Ints]] = [[] for _ in range(lanes)]
    loads = [0] * lanes
    for s in rng.permutation(len(shards)).tolist():
        lane = loads.index(min(loads))
        dealt[lane].append(shards[s])
        loads[lane] += len(shards[s])
    flows = [_mixed(part, shards_at_once // lanes, max(buffer // lanes, 1), rng) for part in dealt]
    whole = [[flow[i : i + batch_size] for i in range(0, len(flow) - batch_size + 1, batch_size)] for flow in flows]
    batches = [batch for turn in zip_longest(*whole) for batch in turn if batch]
    rest = [i for flow in flows for i in flow[len(flow) // batch_size * batch_size :]]
    batches += [rest[i : i + batch_size] for i in range(0, len(rest), batch_size)]
    if drop_last and len(batches) > 1 and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


def _mixed(shards: Sequence[Ints], at_once: int, buffer: int, rng: np.random.Generator) -> list[int]:
    """The samples of a lane in the order of use."""
    luck = iter(rng.random(sum(map(len, shards))).tolist())
    waiting = deque((s, len(positions)) for s, positions in enumerate(shards) if len(positions))
    unread: deque[tuple[int, deque[int]]] = deque()  # open shards with what is left to read, taking turns
    left: dict[int, int] = {}  # open shards with the number of their unused samples
    held: list[tuple[int, int]] = []
    order: list[int] = []
    while waiting or left:
        while waiting and len(left) < at_once:
            s, count = waiting.popleft()
            left[s] = count
            unread.append((s, deque(shards[s].tolist())))
        while unread and len(held) < buffer:
            s, positions = unread.popleft()
            held.append((s, positions.popleft()))
            if positions:
                unread.append((s, positions))
        chosen = int(next(luck) * len(held))
        held[chosen], held[-1] = held[-1], held[chosen]
        s, position = held.pop()
        order.append(position)
        left[s] -= 1
        if not left[s]:
            del left[s]
    return order


class ShardReader:
    """Pictures in a planned order. Each shard is read once, from start to end, a piece at a time.

    Args:
        plan: the pictures in the order of the calls to `take`; it should be an order of `stream_batches`, or part of one.
        piece: bytes read at once.

    Attributes:
        held: bytes of pictures read and not taken yet.
    """

    def __init__(self, plan: Sequence[Picture], piece: int = PIECE) -> None:
        self.turns = Counter(tar_members(plan))
        self.ahead: dict[Path, deque[TarMember]] = {}
        for member in sorted(self.turns):
            self.ahead.setdefault(member.file, deque()).append(member)
        self.piece, self.held = piece, 0
        self._waiting: dict[TarMember, bytes] = {}

    def take(self, picture: Picture) -> bytes:
        """The next picture of the plan."""
        (member,) = tar_members([picture])
        while member not in self._waiting:
            self._read_on(self.ahead[member.file])
        self.turns[member] -= 1
        if self.turns[member]:  # a method with few samples takes them several times
            return self._waiting[member]
        self.held -= member.size
        return self._waiting.pop(member)

    def _read_on(self, ahead: deque[TarMember]) -> None:
        """Read the next piece of a shard, at least one picture of it."""
        first = last = ahead[0]
        part: list[TarMember] = []
        while ahead and (not part or ahead[0].start + ahead[0].size - first.start <= self.piece):
            last = ahead.popleft()
            part.append(last)
        start = first.start - BLOCK
        data = read_range(first.file, start, last.start + last.size)
        for member in part:
            at = member.start - BLOCK - start
            self._waiting[member] = member.checked(data[at : at + BLOCK + member.size])
            self.held += member.size


Batch = tuple[Tensor, Tensor]
RAM_LIMIT = 2 * 2**30  # decoded pictures are kept in memory up to this many bytes


# ---- sets of samples -------------------------------------------------------------------------------------------------


class FeatureSet(Dataset[Batch]):
    """Features with their labels, loaded one batch at a time.

    Args:
        x: (N, d)
        labels: (N, K)
        weights: (N,) how often an epoch shows each sample, on average; once by default.
        others: (N, d) each: features of other views of the same samples, of which an epoch draws.
    """

    def __init__(
        self, x: Tensor, labels: Tensor, weights: NDArray[np.float64] | None = None, others: Sequence[Tensor] = ()
    ) -> None:
        self.x, self.labels, self.weights, self.others = x, labels, weights, others
        self._drawn = np.zeros(0, dtype=np.int64)  # the view of each sample; empty for x

    def __len__(self) -> int:
        return len(self.x)

    @functools.cached_property
    def moments(self) -> Moments:
        """Mean, variance and products of the features."""
        return Moments.of(self.x, None if self.weights is None else torch.from_numpy(self.weights))

    def labelled(self, labels: Tensor) -> FeatureSet:
        """The same samples with other labels."""
        found = copy.copy(self)
        found.labels = labels
        return found

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Draw a view of each sample."""
        if self.others:
            self._drawn = draw_views(1 + len(self.others), len(self), seed, epoch)

    def view(self, *moment: int) -> FeatureSet:
        """The same samples as they are; or, given a seed and an epoch, other views than in that epoch."""
        if not self.others:
            return self
        other = FeatureSet(self.x, self.labels, self.weights, self.others)
        if moment:
            other.set_epoch(moment[0], -1 - moment[1])
        return other

    def each_view(self) -> list[FeatureSet]:
        """The same samples in each of their views, the one as they are first."""
        return [FeatureSet(x, self.labels, self.weights) for x in (self.x, *self.others)]

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The features (B, d) and labels (B, K) at these positions."""
        rows = torch.as_tensor(index, dtype=torch.int64)
        x = self.x.index_select(0, rows)
        if len(self._drawn):
            drawn = torch.from_numpy(self._drawn[rows.numpy()])
            for i, other in enumerate(self.others, start=1):
                x[drawn == i] = other[rows[drawn == i]]
        return x, self.labels.index_select(0, rows)


class MapSet(Dataset[Batch]):
    """Maps that the first stages of a backbone make of views of pictures, with their labels.

    Args:
        views: per view, (M, h, w, c), usually on disk.
        rows: (N,) the positions of the samples among the M.
        labels: (N, K).
        together: whether a sample is all of its views, as answers see it, instead of one that is drawn.
    """

    def __init__(self, views: Sequence[Tensor], rows: Ints, labels: Tensor, *, together: bool = False) -> None:
        self.views, self.rows, self.labels, self.together = views, rows, labels, together
        self._drawn = np.zeros(len(rows), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def set_epoch(self, seed: int, epoch: int) -> None:
        """Draw a view of each sample."""
        self._drawn = draw_views(len(self.views), len(self), seed, epoch)

    def view(self, *moment: int) -> MapSet:
        """The same samples as they are; or, given a seed and an epoch, other views than in that epoch."""
        other = MapSet(self.views, self.rows, self.labels)
        if moment:
            other.set_epoch(moment[0], -1 - moment[1])
        return other

    def each_view(self) -> list[MapSet]:
        """The same samples in each of their views, the one as they are first."""
        return [MapSet([view], self.rows, self.labels) for view in self.views]

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The maps (B, c, h, w), or (B, views, c, h, w) together, and labels (B, K) at these positions."""
        rows = np.asarray(index)
        if self.together:
            every = torch.stack([view[torch.from_numpy(self.rows[rows])] for view in self.views], dim=1)
            return every.permute(0, 1, 4, 2, 3).float(), self.labels[rows]
        maps = [self.views[view][row] for view, row in zip(self._drawn[rows], self.rows[rows], strict=True)]
        return torch.stack(maps).permute(0, 3, 1, 2).float(), self.labels[rows]


def draw_views(views: int, samples: int, seed: int, epoch: int) -> Ints:
    """A view for each sample. It depends on these arguments alone, so a resumed run repeats it."""
    return np.random.default_rng([seed, abs(epoch), 2 + (epoch < 0)]).integers(views, size=samples)


class ImageSet(Dataset[Batch]):
    """Pictures with their labels. Small collections are decoded once and kept in memory.

    Args:
        images: the pictures.
        labels: (N, K).
        spec: how they become tensors.
        augment: how pictures are augmented; `none` shows their centres.
        streamed: whether they are in shards that are read from start to end; batches then come from `stream_batches`.
    """

    def __init__(
        self, images: Sequence[Picture], labels: Tensor, spec: Preprocess, *, augment: Augment = "none", streamed: bool = False
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
        other.augment = self.augment if moment else "none"
        if moment:
            other.set_epoch(moment[0], -1 - moment[1])
        return other

    def each_view(self) -> list[ImageSet]:
        """The same pictures as they are: their only view that is the same in all epochs."""
        return [self.view()]

    def __getitems__(self, index: Sequence[int]) -> Batch:
        """The pictures, uint8 (B, 3, size, size), or several looks (B, looks, 3, size, size), and labels (B, K)."""
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
        if self.augment == "none":
            return looks_at(image, self.spec)
        moment = [self.seed, self.epoch, i] if self.epoch >= 0 else [self.seed, -self.epoch, i, 1]
        return CROPS[self.augment](image, self.spec, np.random.default_rng(moment))

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


SampleSet = FeatureSet | MapSet | ImageSet


def sample_set(
    x: NDArray[np.float32] | None,
    images: Sequence[Picture] | None,
    labels: NDArray[np.int64],
    spec: Preprocess | None,
    *,
    augment: Augment = "none",
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
    weights = data.weights if isinstance(data, FeatureSet) else None
    return epoch_batches(len(data), batch_size, seed=seed, epoch=epoch, drop_last=drop_last, weights=weights)


def epoch_batches(
    n: int,
    batch_size: int,
    *,
    seed: int,
    epoch: int,
    drop_last: bool = False,
    weights: NDArray[np.float64] | None = None,
) -> list[list[int]]:
    """The batches of one epoch: a permutation that depends on the seed, the epoch and the weights alone.

    A sample of weight w comes w times on average: ⌊w⌋ or ⌈w⌉ times.
    """
    rng = np.random.default_rng([seed, epoch])
    samples = n if weights is None else np.repeat(np.arange(n), np.floor(weights + rng.random(n)).astype(np.int64))
    order = rng.permutation(samples).tolist()
    batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    if drop_last and len(batches) > 1 and len(batches[-1]) < batch_size:
        batches.pop()
    return batches


def load(data: SampleSet, batches: Sequence[Sequence[int]], workers: int = 0) -> Iterator[Batch]:
    """Load these batches in order; worker processes decode pictures on disk ahead."""
    if not isinstance(data, ImageSet):
        yield from map(data.__getitems__, batches)
        return
    if data.streamed:
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
