"""A frozen backbone's features, computed once and kept on disk under a key of (backbone, weights, preprocessing, data)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht.answer.asking import device_of, over
from torchlht.answer.backbones import Backbone
from torchlht.data.batches import ImageSet, SampleSet, set_batches
from torchlht.data.samples import Samples
from torchlht.data.streaming import worth_streaming
from torchlht.data.transforms import Preprocess
from torchlht.files import cache_dir, replacing

Progress = Callable[[int, int], None]


def cache_path(samples: Samples, backbone: Backbone, spec: Preprocess) -> Path:
    """Where these features are kept, whether they are there yet or not."""
    parts = [backbone.key(), json.dumps(spec.to_dict(), sort_keys=True), samples.fingerprint()]
    return cache_dir() / "features" / f"{backbone.name}-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:24]}.npy"


def frozen_features(
    samples: Samples,
    backbone: Backbone,
    spec: Preprocess,
    *,
    device: torch.device,
    workers: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(N, d) features of every picture: read if they are there already, else computed and kept."""
    path = cache_path(samples, backbone, spec)
    if not path.is_file():
        assert samples.images is not None
        data = ImageSet(samples.images, torch.zeros(len(samples), 1), spec, streamed=worth_streaming(samples.images))
        data.in_memory = False  # each picture is seen once
        order = set_batches(data, 16, seed=0, epoch=0) if data.streamed else None
        features = features_of(backbone.to(device), data, batches=order, workers=workers, progress=progress)
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, features, allow_pickle=False)
    kept: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return kept


def features_of(
    backbone: Backbone,
    data: SampleSet,
    *,
    batches: Sequence[Sequence[int]] | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(N, d) what a backbone makes of samples, where its weights are."""
    batch_size = 16 if device_of(backbone).type == "cpu" else 128  # twice as fast as 64 on a CPU, where large arrays are slow
    features, done = np.empty((len(data), backbone.num_features), dtype=np.float32), 0
    for rows, found, _ in over(backbone, data, backbone, batches=batches, batch_size=batch_size, workers=workers):
        features[rows] = found.float().cpu().numpy()
        done += len(rows)
        if progress:
            progress(done, len(data))
    return features
