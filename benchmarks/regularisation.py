"""What each kind of regularisation is worth with few labels, judged on validation samples alone.

    python benchmarks/regularisation.py birds.npz --mask 0.9

Each setting is trained on two thirds of the labels that the mask leaves and judged on the last third, three times over with the
same mask: cross-validation on the few labels there are. Test samples are never measured.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from torchlht.answer.records import read_metrics
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train

SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {"option": {"input_dropout": 0.0}},
    "input dropout 0.3": {"option": {"input_dropout": 0.3}},
    "input dropout 0.5": {"option": {"input_dropout": 0.5}},
    "mixup 0.2": {"option": {"input_dropout": 0.0}, "mixup": 0.2},
    "weight decay 0.005": {"option": {"input_dropout": 0.0}, "weight_decay": 5e-3},
    "label smoothing 0.1": {"option": {"input_dropout": 0.0}, "label_smoothing": 0.1},
    "averaged weights 0.99": {"option": {"input_dropout": 0.0}, "ema": 0.99},
    "cosine classifier": {"option": {"input_dropout": 0.0, "cosine": True}},
}


def run(job: tuple[str, str, str, float, str, int]) -> dict[str, float]:
    """One training; gives the accuracy on its validation samples."""
    data, method, semi, mask, setting, fold = job
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    options = TrainArgs(
        data,
        folder / "run",
        method=method,
        semi=semi,  # type: ignore[arg-type]
        mask=mask,
        mask_seed=0,
        seed=fold,
        val=1 / 3,
        test=False,
        quiet=True,
        track=False,
        **SETTINGS[setting],
    )
    train(options)
    found: dict[str, float] = read_metrics(folder / "run")["validation"]
    shutil.rmtree(folder)
    return found


def main() -> None:
    """A table on the screen, and a CSV if asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--method", default="lht")
    parser.add_argument("--mask", type=float, default=0.9)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    cells = [(semi, setting) for semi in ("none", "both") for setting in SETTINGS]
    jobs = [(args.data, args.method, semi, args.mask, setting, fold) for semi, setting in cells for fold in range(args.folds)]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(run, jobs))
    rows = []
    for i, (semi, setting) in enumerate(cells):
        folds = results[i * args.folds : (i + 1) * args.folds]
        levels = [name for name in folds[0] if name != "val_mean"]
        values = {name.removeprefix("val_"): [100 * fold[name] for fold in folds] for name in levels}
        rows.append({"semi": semi, "setting": setting} | {n: f"{mean(v):.1f} ± {stdev(v):.1f}" for n, v in values.items()})
    print("| " + " | ".join(rows[0]) + " |\n|" + " --- |" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(row.values()) + " |")
    if args.csv:
        with args.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
