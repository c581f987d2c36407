"""Views of pictures through the frozen part of a backbone: computed once, kept on disk, drawn from in training.

View 0 is the picture as answers see it, view 1 its mirror image. The others are augmented. What they look like depends on
their number and on the pictures, not on the seed of a run, so that runs share them. Each view is a file of its own in the
cache: a run that is killed repeats one view at most. Files are mapped, so memory holds only what is in use.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht import console
from torchlht.answer.asking import evaluating, over
from torchlht.answer.model import Model
from torchlht.data.batches import FeatureSet, ImageSet, MapSet, SampleSet, set_batches, worth_streaming
from torchlht.data.samples import Ints, Samples
from torchlht.doors import sentence
from torchlht.errors import BackboneError, DataError
from torchlht.files import cache_dir, replacing
from torchlht.learn.alone import Machine
from torchlht.learn.fitting import Sets
from torchlht.learn.options import TrainArgs

BATCH = 16  # on a CPU; larger ones are slower there


def with_views(machine: Machine, args: TrainArgs, views: int, samples: Samples, model: Model, taught: Ints, sets: Sets) -> Sets:
    """The sets as training sees them: views of training samples, and what the first stages make of validation and test samples.

    Validation and test samples are seen as answers see them, with all their looks. Test samples go through
    the first stages once for all runs, in full precision. Without `freeze_stages`, and with one view of features, they are the
    same sets.
    """
    if not args.freeze_stages and views == 1:
        return sets
    own = np.flatnonzero(samples.split != "test")
    rows = np.searchsorted(own, taught)
    kept = Kept(machine, args, samples.select(own), model, sets.workers)
    if not args.freeze_stages:
        assert isinstance(sets.train, FeatureSet)
        others = [kept.view(i)[rows] for i in range(1, views)]
        return dataclasses.replace(sets, train=FeatureSet(sets.train.x, sets.train.labels, others=others))
    maps = [kept.view(i) for i in range(views)]
    val = sets.val and as_seen(args, kept, np.searchsorted(own, samples.index("val")), sets.val.labels)
    test: SampleSet = sets.test
    if args.test and len(test):
        exact = Kept(machine, args, samples.select(samples.index("test")), model, sets.workers, exact=True)
        test = as_seen(args, exact, np.arange(len(test)), test.labels)
    return dataclasses.replace(sets, train=MapSet(maps, rows, sets.train.labels), val=val, test=test)


def as_seen(args: TrainArgs, kept: Kept, rows: Ints, labels: Tensor) -> MapSet:
    """Samples as answers see them: with all their looks, or beside their mirror images."""
    maps = [kept.view(i) for i in range(2)] if args.mirror else [kept.look(i) for i in range(args.looks)]
    return MapSet(maps, rows, labels, together=len(maps) > 1)


def as_trained(args: TrainArgs, samples: Samples, sets: Sets, split: str) -> SampleSet | None:
    """Training or validation samples by as many views as answers take looks, from maps of `with_views`; None without any."""
    index, own = samples.index(split), np.flatnonzero(samples.split != "test")
    assert isinstance(sets.train, MapSet)
    maps = sets.train.views[: 2 if args.mirror else args.looks]
    labels = torch.from_numpy(samples.labels[index])
    return MapSet(maps, np.searchsorted(own, index), labels, together=len(maps) > 1) if len(index) else None


class Kept:
    """Views of samples through the frozen part of a model's backbone, from the cache or computed and stored there.

    Args:
        machine: where to compute; other processes wait for the first and read its files.
        args: the options.
        samples: the samples.
        model: the model.
        workers: how many processes decode pictures.
        exact: whether to compute and store them in full precision, for measuring.
    """

    def __init__(
        self, machine: Machine, args: TrainArgs, samples: Samples, model: Model, workers: int, *, exact: bool = False
    ) -> None:
        spec, images = model.preprocess, samples.images
        assert spec is not None
        assert images is not None
        self.machine, self.workers, self.stages = machine, workers, args.freeze_stages
        self.backbone = model.backbone.to(machine.device)
        self.augment, self.mirrored = args.augment, False
        self.low, self.quiet = args.precision == "bf16-mixed" and not exact, args.quiet or not machine.is_global_zero
        self.kind = np.dtype(np.float16 if self.stages and not exact else np.float32)
        self.spec, self.chosen = dataclasses.replace(spec, looks=1), 0
        self.pictures = ImageSet(images, torch.zeros(len(samples), 1), self.spec, streamed=worth_streaming(images))
        prepared = json.dumps(self.spec.to_dict(), sort_keys=True)
        self.what = [
            model.backbone.key(self.stages),
            prepared,
            samples.fingerprint(),
            self.stages,
            self.low,
            *(["exact"] if exact else []),
        ]

    def _path(self, number: int, look: int = 0) -> Path:
        """The file of a view or look; its name depends on all that it depends on."""
        what = [*self.what, f"look {look}" if look else self.augment if number > 1 else "none"]
        name = hashlib.sha256("/".join(map(str, what)).encode()).hexdigest()[:24]
        return cache_dir() / "views" / f"{self.backbone.name}-{name}-{number}.npy"

    def view(self, number: int) -> Tensor:
        """A view of all samples: maps (N, h, w, c), or float32 features (N, d) of a backbone that is frozen as a whole.

        Raises:
            DataError: when the disk is full.
        """
        return self._stored(self._path(number), number, 0)

    def look(self, number: int) -> Tensor:
        """A look that answers take at all samples, as `view`; the first is the first view."""
        return self._stored(self._path(0, number), 0, number)

    def _stored(self, path: Path, number: int, look: int) -> Tensor:
        self.pictures.spec, self.chosen = dataclasses.replace(self.spec, looks=1 + look), look
        shape, kind = self._shape(), self.kind
        with self.machine.rank_zero_first():
            found = read_mapped(path, shape, kind)
            if found is None:
                self.pictures.augment = self.augment if number > 1 else "none"
                self.pictures.set_epoch(0, number)
                self.mirrored = number == 1
                write_rows(path, shape, kind, self._run_over(number))
                found = read_mapped(path, shape, kind)
        assert found is not None
        return torch.from_numpy(found)

    def _run(self, x: Tensor) -> Tensor:
        """What the frozen part makes of pictures (B, 3, size, size)."""
        x = x[:, self.chosen] if x.dim() == 5 else x
        x = x.flip(3) if self.mirrored else x
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.low):
            return self.backbone.maps(x, self.stages).permute(0, 2, 3, 1) if self.stages else self.backbone(x)

    def _shape(self) -> tuple[int, ...]:
        size = self.pictures.spec.size
        with evaluating(self.backbone), torch.no_grad():
            return len(self.pictures), *self._run(torch.zeros(1, 3, size, size, device=self.machine.device)).shape[1:]

    def _run_over(self, number: int) -> Iterator[tuple[Sequence[int], Tensor]]:
        """Positions, and what the frozen part makes of a view of them, batch by batch."""
        order = set_batches(self.pictures, BATCH, seed=0, epoch=0) if self.pictures.streamed else None
        what, done = f"{self.backbone.name}, frozen part · view {1 + number}", 0
        with console.counting(what, len(self.pictures), quiet=self.quiet) as count:
            for rows, found, _ in over(
                self.backbone, self.pictures, self._run, batches=order, batch_size=BATCH, workers=self.workers
            ):
                yield rows, found.float().cpu()
                done += len(rows)
                count(done, len(self.pictures))


def write_rows(path: Path, shape: tuple[int, ...], kind: Any, found: Iterable[tuple[Sequence[int], Tensor]]) -> None:
    """Write an array whose rows come in any order, completely or not at all.

    It is written and not mapped: on a full disk, a write says so, while a mapped page would end the process.

    Raises:
        BackboneError: when a number is too large for it.
        DataError: when the disk is full, or cannot be written for another reason.
    """
    header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    try:
        with replacing(path) as beside, beside.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, header)
            start, each = file.tell(), math.prod(shape[1:]) * kind.itemsize
            for rows, values in found:
                for i, row in zip(rows, as_kind(values, kind), strict=True):
                    file.seek(start + i * each)
                    file.write(row.tobytes())
    except OSError as fault:
        size = math.prod(shape) * kind.itemsize / 1e6
        raise DataError(
            f"{path.parent}: {sentence(OSError(fault.errno, fault.strerror))}; a view takes {size:,.1f} MB, and LHT_CACHE in "
            "the environment names another place for them"
        ) from fault


def as_kind(values: Tensor, kind: Any) -> NDArray[Any]:
    """Numbers as they are stored. Raises BackboneError when one is too large."""
    with np.errstate(over="ignore"):
        stored = values.numpy().astype(kind)
    if not np.isfinite(stored).all():
        raise BackboneError("the frozen stages give numbers that float16 cannot hold; freeze other stages, or use `freeze`")
    return stored


def read_mapped(path: Path, shape: tuple[int, ...], kind: Any) -> NDArray[Any] | None:
    """An array on disk, mapped; None when it is not there or the file is damaged, and has to be written."""
    try:
        found = np.load(path, mmap_mode="c", allow_pickle=False)  # pages are private: torch wants them to be writable
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    return found if isinstance(found, np.ndarray) and found.shape == shape and found.dtype == kind else None
