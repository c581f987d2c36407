"""A frozen backbone's features, computed once and kept on disk under a key of (backbone, weights, preprocessing, data)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht.backbones import Backbone
from torchlht.data.loading import ImageSet, load
from torchlht.data.samples import Samples
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
    batch_size: int = 64,
    progress: Progress | None = None,
) -> tuple[NDArray[np.float32], bool]:
    """(N, d) features of every picture, and whether they were there already."""
    path = cache_path(samples, backbone, spec)
    if path.is_file():
        return np.load(path, allow_pickle=False), True
    assert samples.images is not None
    features = _compute(samples.images, backbone, spec, device, workers, batch_size, progress)
    with replacing(path) as beside, beside.open("wb") as file:
        np.save(file, features, allow_pickle=False)
    return features, False


def _compute(
    images: tuple[Path, ...],
    backbone: Backbone,
    spec: Preprocess,
    device: torch.device,
    workers: int,
    batch_size: int,
    progress: Progress | None,
) -> NDArray[np.float32]:
    data = ImageSet(images, torch.zeros(len(images), 1), spec)
    data.in_memory = False  # each picture is seen once: stream it
    batches = [list(range(i, min(i + batch_size, len(images)))) for i in range(0, len(images), batch_size)]
    features = np.empty((len(images), backbone.num_features), dtype=np.float32)
    done = 0
    backbone.eval().to(device)
    with torch.inference_mode():
        for x, _ in load(data, batches, workers):
            features[done : done + len(x)] = backbone(x.to(device)).float().cpu().numpy()
            done += len(x)
            if progress:
                progress(done, len(images))
    return features
