"""`Samples`: a dataset as the rest of the code sees it, whatever it was read from."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.packed import file_of
from torchlht.data.places import state_of
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Samples:
    """Pictures or features with their labels, as far as they are known.

    Attributes:
        name: what messages and run directories call it.
        hierarchy: the tree of classes.
        keys: a name per sample that does not change when the data moves: a relative path, or a row number.
        labels: (N, K), fine first, -1 where unknown; the ancestors of a known label are always filled in.
        split: "train", "val" or "test" per sample.
        images: a path per sample, FILE#N for one of the many in a file, SHARD.tar#OFFSET+SIZE for one in a tar, or None for
            features.
        features: (N, d) float32, or None for pictures.
        checked: whether every picture is known to be readable, from when they were packed.
    """

    name: str
    hierarchy: Hierarchy
    keys: tuple[str, ...]
    labels: Ints
    split: NDArray[np.str_]
    images: tuple[Path, ...] | None = None
    features: NDArray[np.float32] | None = None
    checked: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def index(self, split: str) -> Ints:
        """Positions of the samples of a split, ascending."""
        return np.flatnonzero(self.split == split)

    def select(self, keep: Ints) -> Samples:
        """Only these samples."""
        return dataclasses.replace(
            self,
            keys=tuple(self.keys[i] for i in keep),
            labels=self.labels[keep],
            split=self.split[keep],
            images=tuple(self.images[i] for i in keep) if self.images else None,
            features=self.features[keep] if self.features is not None else None,
        )

    def strata(self) -> list[str]:
        """Each sample's deepest known class, as "level/name": what splits and masks are balanced over."""
        tree = self.hierarchy
        return [
            f"{tree.levels[k]}/{tree.classes[k][row[k]]}" if k < len(tree) else "unlabelled"
            for k, row in zip(deepest_known(self.labels).tolist(), self.labels, strict=True)
        ]

    def fingerprint(self) -> str:
        """A hash that changes when the pictures or features do."""
        digest = hashlib.sha256()
        if self.features is not None:
            digest.update(self.features.tobytes())
        states: dict[Path, tuple[int, object] | None] = {}  # a shard holds many pictures and is asked once
        for key, path in zip(self.keys, self.images or (), strict=bool(self.images)):
            file = file_of(path)
            size, changed = (states[file] if file in states else states.setdefault(file, state_of(file))) or (-1, None)
            digest.update(f"{key}\0{size}\0{changed}\n".encode())
        return digest.hexdigest()


def deepest_known(labels: Ints) -> Ints:
    """(N,) the finest level at which each row of (N, K) labels is known; K where it is nowhere."""
    known = labels >= 0
    deepest: Ints = np.where(known.any(axis=1), known.argmax(axis=1), labels.shape[1])
    return deepest


def draw(keys: Sequence[str], strata: Sequence[str], count: Callable[[str, int], int], *, seed: int, purpose: str) -> Bools:
    """Choose `count(stratum, n)` of the n samples of each stratum at random.

    The choice depends on the keys, the seed and the purpose alone: samples are ranked by a hash of these, so neither the order
    of a directory listing nor the numbering of classes nor other samples can change it.
    """
    members: dict[str, list[int]] = {}
    for i, stratum in enumerate(strata):
        members.setdefault(stratum, []).append(i)
    chosen = np.zeros(len(keys), dtype=bool)
    for stratum, inside in members.items():
        ranked = sorted(inside, key=lambda i: (hashed(seed, purpose, keys[i]), keys[i]))
        chosen[ranked[: count(stratum, len(inside))]] = True
    return chosen


def hashed(seed: int, purpose: str, key: str) -> int:
    """A number that depends on these alone, for choices that must not depend on any order."""
    return int.from_bytes(hashlib.blake2b(f"{seed}/{purpose}/{key}".encode(), digest_size=8).digest())


def draw_share(samples: Samples, among: Ints, share: float, *, seed: int, purpose: str) -> Ints:
    """A stratified share of the samples `among`; positions, ascending. At least one of each stratum is left behind.

    A stratum too small for a whole sample gives one with the matching probability, so the total comes out right.
    """

    def count(stratum: str, n: int) -> int:
        luck = hashed(seed, purpose, stratum) / 2**64
        return min(int(n * share + luck), n - 1)

    strata = samples.strata()
    labelled = np.array([i for i in among if strata[i] != "unlabelled"], dtype=np.int64)
    chosen = draw([samples.keys[i] for i in labelled], [strata[i] for i in labelled], count, seed=seed, purpose=purpose)
    return labelled[chosen]


def draw_fold(samples: Samples, among: Ints, part: int, parts: int, *, seed: int) -> Ints:
    """One of so many disjoint, stratified parts of the samples `among`; positions, ascending.

    Together the parts hold every sample with a label, but for those that are alone in their stratum and always stay behind.
    """
    strata = samples.strata()
    members: dict[str, list[int]] = {}
    for i in among.tolist():
        members.setdefault(strata[i], []).append(i)
    chosen: list[int] = []
    for stratum, inside in members.items():
        if stratum == "unlabelled" or len(inside) < 2:
            continue
        ranked = sorted(inside, key=lambda i: (hashed(seed, "fold", samples.keys[i]), samples.keys[i]))
        start = hashed(seed, "fold", stratum)  # small strata do not all begin with the first part
        chosen += [i for rank, i in enumerate(ranked) if (start + rank) % parts == part]
    return np.array(sorted(chosen), dtype=np.int64)


def with_split(samples: Samples, positions: Ints, split: str) -> Samples:
    """The same samples, with some of them moved to another split."""
    new = samples.split.copy()
    new[positions] = split
    return dataclasses.replace(samples, split=new)


def hold_out_test(samples: Samples, share: float) -> Samples:
    """Set a test part aside when the data has none of its own. Always the same one, so that runs can be compared."""
    if (samples.split == "test").any() or share == 0:
        return samples
    chosen = draw_share(samples, samples.index("train"), share, seed=0, purpose="test")
    if not len(chosen):
        raise DataError(f"{samples.name}: {len(samples)} samples are too few to set a test part aside; pass `test_share=0`")
    return with_split(samples, chosen, "test")
