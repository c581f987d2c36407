"""How fast pictures come in and how two processes compare with one: ratios in one run.

    make bench        or        python benchmarks/pipeline.py [--pictures 1000] [--size 256]

The input pipeline of training (decode, resize, random crop, normalise, batches of 64) against plain PIL, torchvision's
transforms and a DataLoader, on the same JPEGs, drawn on the spot; from files, and from shards. Then training in two processes
(gloo) against one with the same global batch: time, and on features the largest difference between their losses.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from torchlht.data.batches import ImageSet, epoch_batches, load
from torchlht.data.packing import pack
from torchlht.data.preparing import Preprocess
from torchlht.data.samples import read_data

BATCH = 64
ROUNDS = 5  # of which medians are taken
SPEC = Preprocess(size=224, resize=256)


def draw(folder: Path, count: int, size: int) -> None:
    """Smooth pictures, as JPEGs in two folders."""
    rng = np.random.default_rng(0)
    for i in range(count):
        place = folder / "all" / f"class{i % 2}"
        place.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(rng.integers(0, 255, (12, 12, 3)).astype(np.uint8))
        small.resize((size * 4 // 3, size), Image.Resampling.BICUBIC).save(place / f"{i}.jpg", quality=90)


class Plain(Dataset[torch.Tensor]):
    """What one writes without a library."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        steps = [
            v2.Resize(256),
            v2.RandomCrop(224),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
        ]
        self.transform = v2.Compose([*steps, v2.Normalize(SPEC.mean, SPEC.std)])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> torch.Tensor:
        found: torch.Tensor = self.transform(Image.open(self.paths[i]).convert("RGB"))
        return found


def speed(batches: Any, count: int) -> float:
    started = time.perf_counter()
    for _ in batches:
        pass
    return count / (time.perf_counter() - started)


def ours(data: str, workers: int) -> float:
    samples = read_data(data)
    assert samples.images is not None
    inputs = ImageSet(samples.images, torch.from_numpy(samples.labels), SPEC, augment=True)
    inputs.in_memory = False  # as with more pictures than fit
    return speed(load(inputs, epoch_batches(len(samples), BATCH, seed=0, epoch=0), workers), len(samples))


def pipeline(folder: Path, workers: int) -> None:
    paths = sorted((folder / "pictures").rglob("*.jpg"))
    pack(read_data(folder / "pictures"), folder / "shards", per_shard=200)
    print(
        "| workers | plain PIL + DataLoader, img/s | ours from files, × plain | ours from shards, × plain |\n|---|---|---|---|"
    )
    for count in (0, workers):
        rounds = []
        for _ in range(ROUNDS):
            plain = speed(DataLoader(Plain(paths), BATCH, shuffle=True, num_workers=count), len(paths))
            rounds.append((plain, *(ours(str(folder / name), count) / plain for name in ("pictures", "shards"))))
        plain, files, shards = (statistics.median(one) for one in zip(*rounds, strict=True))
        print(f"| {count} | {plain:.0f} | {files:.2f} | {shards:.2f} |", flush=True)


def several(folder: Path) -> None:
    """One process and two with the same global batch: on features, where losses can be compared, and on pictures."""
    rng = np.random.default_rng(0)
    leaves = rng.integers(40, size=6000)
    x = rng.normal(size=(40, 512))[leaves] + rng.normal(size=(6000, 512))
    y = np.stack([leaves, leaves // 4, leaves // 20], axis=1)
    np.savez(folder / "x.npz", x=x.astype(np.float32), y=y, train=np.arange(6000) < 5000)
    print("\ntwo processes against one, same global batch, a thread each")
    losses, ratio = one_and_two(folder / "x.npz", "--mask", "0.8", "--epochs", "10", "--batch-size", "500")
    worst = max(abs(a - b) for a, b in zip(*losses, strict=True))
    print(f"features: {ratio:.2f} × the time of an epoch; losses of 10 epochs differ by at most {worst:.1e}", flush=True)
    network = ("--backbone", "resnet18", "--no-pretrained", "--image-size", "96")
    _, ratio = one_and_two(folder / "pictures", *network, "--epochs", "3", "--batch-size", "64")
    print(f"pictures, ResNet-18 at 96 px: {ratio:.2f} × the time of an epoch")


def one_and_two(data: Path, *options: str) -> tuple[list[list[float]], float]:
    """The losses of both, and how many times as long an epoch takes with two; the first one does not count."""
    losses, seconds = [], []
    for n in (1, 2):
        out = data.with_name(f"{data.stem}-run{n}")
        launch = ["-m"] if n == 1 else ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m"]
        words = [sys.executable, *launch, "torchlht", "train", str(data), "--out", str(out), *options]
        words += ["--accelerator", "cpu", "--quiet", "--no-track"]
        subprocess.run(words, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        with (out / "history.csv").open() as file:
            rows = list(csv.DictReader(file))
        losses.append([float(row["loss"]) for row in rows])
        seconds.append(sum(float(row["seconds"]) for row in rows[1:]))
    return losses, seconds[1] / seconds[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=1000)
    parser.add_argument("--size", type=int, default=256)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        draw(folder / "pictures", args.pictures, args.size)
        pipeline(folder, os.cpu_count() or 1)
        several(folder)


if __name__ == "__main__":
    main()
