"""A frozen backbone's features, computed once and kept on disk under a key of (backbone, weights, preprocessing, data)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht.answer.backbones import Backbone
from torchlht.data.batches import ImageSet, load, set_batches
from torchlht.data.pictures import Picture
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
        features = _compute(samples.images, backbone, spec, device, workers, progress)
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, features, allow_pickle=False)
    kept: NDArray[np.float32] = np.load(path, allow_pickle=False)
    return kept


def _compute(
    images: tuple[Picture, ...],
    backbone: Backbone,
    spec: Preprocess,
    device: torch.device,
    workers: int,
    progress: Progress | None,
) -> NDArray[np.float32]:
    batch_size = 16 if device.type == "cpu" else 128  # twice as fast as 64 on a CPU, where large arrays are slow to get
    data = ImageSet(images, torch.zeros(len(images), 1), spec, streamed=worth_streaming(images))
    data.in_memory = False  # each picture is seen once
    batches = [list(range(i, min(i + batch_size, len(images)))) for i in range(0, len(images), batch_size)]
    if data.streamed:
        batches = set_batches(data, batch_size, seed=0, epoch=0)
    features = np.empty((len(images), backbone.num_features), dtype=np.float32)
    done = 0
    backbone.eval().to(device)
    with torch.inference_mode():
        for rows, (x, _) in zip(batches, load(data, batches, workers), strict=True):
            features[rows] = backbone(x.to(device)).float().cpu().numpy()
            done += len(x)
            if progress:
                progress(done, len(images))
    return features
