"""Training time on embeddings against the peers a user would pick: one core, the same data, the same mask, interleaved.

python benchmarks/peers.py cub_lite0.npz
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch

import torchlht

METHODS = ("hiclass", "logistic", "flat", "multihead", "marginal", "lht")
ROUNDS = 3


def seconds(data: str, method: str, mask: float, folder: Path) -> tuple[float, float]:
    """Training time and accuracy at the finest level of one run."""
    args = torchlht.TrainArgs(data, folder / "run", method=method, mask=mask, quiet=True, track=False)
    metrics = json.loads((torchlht.train(args) / "metrics.json").read_text())
    return metrics["train_seconds"], metrics["levels"][-1]["accuracy"]


def main() -> None:
    torch.set_num_threads(1)
    data = sys.argv[1]
    print("| masked | method | seconds | × hiclass | finest accuracy, % |\n|---|---|---|---|---|")
    for mask in (0.9, 0.0):
        found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
        for _ in range(ROUNDS):
            for method in METHODS:
                with tempfile.TemporaryDirectory() as folder:
                    found[method].append(seconds(data, method, mask, Path(folder)))
        rival = statistics.median(time for time, _ in found["hiclass"])
        for method, runs in found.items():
            time = statistics.median(time for time, _ in runs)
            print(f"| {mask:.0%} | {method} | {time:.1f} | {time / rival:.1f} | {100 * runs[0][1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
