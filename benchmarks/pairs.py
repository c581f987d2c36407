"""Two birds per picture, half of the second labels known only to the family: what the tree is worth.

    python benchmarks/pairs.py --out runs/pairs

Trains every arm on `demo-pairs` with several seeds, from features of a frozen network; epochs, thresholds and the share of the
smoother are chosen on validation samples. Writes pairs.csv: a row per arm and seed. Runs that are there are not run again.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import torchlht
from torchlht.answer.records import read_metrics

HOW: dict[str, Any] = {"backbone": "efficientnet_lite0", "pooling": "both", "freeze": True}
ARMS: dict[str, dict[str, Any]] = {
    "flat": {"method": "flat"},
    "c-hmcnn": {"method": "c-hmcnn"},
    "lht, no smoother": {"method": "lht", "option": ["shortcut=0"]},
    "lht": {"method": "lht"},
}


def row_of(arm: str, seed: int, metrics: dict[str, Any]) -> dict[str, Any]:
    """The figures of one run on the test pictures."""
    levels = {level["name"]: level for level in metrics["graph_levels"]}
    figures = {name: metrics[name] for name in ("auprc", "f1_micro", "f1_macro")}
    figures |= {f"ap_{name}": level["average_precision"] for name, level in levels.items()}
    figures |= {f"both_{name}": level["exact"] for name, level in levels.items()}
    return {"arm": arm, "seed": seed, **{name: round(value, 4) for name, value in figures.items()}}


def main() -> None:
    """Run what is missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="demo-pairs")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    rows = []
    for seed in range(args.seeds):
        for arm, options in ARMS.items():
            run = args.out / f"{arm.replace(', ', '-').replace(' ', '-')}-s{seed}"
            if not (run / "metrics.json").is_file():
                torchlht.train(args.data, out=run, seed=seed, workers=0, quiet=True, **HOW, **options)
            rows.append(row_of(arm, seed, read_metrics(run)))
            print(rows[-1], flush=True)
    with (args.out / "pairs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
