"""Streaming: an epoch reads shards from start to end, a few at a time, and still mixes samples well.

The order is planned beforehand, from the contents of the shards alone. Shards are shuffled and dealt to lanes. A lane has a few
shards open, moves their samples one by one into a buffer, and takes them out at random. A batch comes from one lane, and lanes
take turns, so that up to four worker processes read separate shards, except for the last few. The batches of an epoch are a
plain list, so a resumed run continues in the middle and sees every sample exactly once.

`ShardReader` reads ahead in each shard and keeps what is not needed yet: at most the buffer, and a piece per shard.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.pictures import BLOCK, InTar, Picture, TarMember, states
from torchlht.data.places import as_url, read_range

Ints = NDArray[np.int64]
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


def members(pictures: Sequence[Picture]) -> list[TarMember]:
    """The places of pictures in their shards."""
    return [picture.placed() for picture in pictures if isinstance(picture, InTar)]


def lying(pictures: Sequence[Picture]) -> list[Ints]:
    """The positions of the pictures of each shard, in file order; shards sorted by name."""
    shards: dict[Path, list[tuple[int, int]]] = {}
    for i, member in enumerate(members(pictures)):
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
        self.turns = Counter(members(plan))
        self.ahead: dict[Path, deque[TarMember]] = {}
        for member in sorted(self.turns):
            self.ahead.setdefault(member.file, deque()).append(member)
        self.piece, self.held = piece, 0
        self._waiting: dict[TarMember, bytes] = {}

    def take(self, picture: Picture) -> bytes:
        """The next picture of the plan."""
        (member,) = members([picture])
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
