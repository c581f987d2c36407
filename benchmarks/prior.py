"""A prior that yields: `lht` where the tree is right, and where 30 % of the species are in a wrong family.

    python benchmarks/prior.py cub_lite0.npz --out runs/prior

Each run is `lht train cub_lite0.npz --mask R --seed S [--perturb stale --perturb-share 0.3] [--no-yields]`. Writes
benchmarks/results/prior.csv, a line per run, and prints the table of benchmarks/prior.md. What is there is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

TABLE = Path(__file__).parent / "results/prior.csv"
COLUMNS = ("tree", "yields", "mask", "seed", "species", "family", "order")
ARMS = (("stale", True), ("clean", True), ("stale", False))


def run(data: Path, out: Path, tree: str, yields: bool, mask: float, seed: int) -> dict[str, object]:
    """One training, and its accuracy on the test samples."""
    import torchlht

    fault = {"perturb": "stale", "perturb_share": 0.3} if tree == "stale" else {}
    name = f"{tree}-{'yields' if yields else 'holds'}-R{mask:g}-s{seed}"
    found = torchlht.train(
        data, mask=mask, seed=seed, option=(f"yields={yields}".lower(),), out=out / name, quiet=True, **fault
    )
    levels = {level["name"]: round(level["accuracy"], 5) for level in found.metrics["levels"]}
    return {"tree": tree, "yields": yields, "mask": mask, "seed": seed, **levels}


def tell(rows: Sequence[dict[str, str]]) -> None:
    """The table of the page."""
    print("| tree | prior | R | seeds | species | family | order |\n|---|---|---|---|---|---|---|")
    keys = dict.fromkeys((row["tree"], row["yields"], row["mask"]) for row in rows)
    for tree, yields, mask in sorted(keys, key=lambda key: (key[2], key[0], key[1])):
        own = [row for row in rows if (row["tree"], row["yields"], row["mask"]) == (tree, yields, mask)]
        cells = [np.array([100 * float(row[level]) for row in own]) for level in ("species", "family", "order")]
        shown = [f"{one.mean():.1f}" + (f" ± {one.std(ddof=1):.1f}" if len(one) > 1 else "") for one in cells]
        print(f"| {tree} | {'yields' if yields == 'True' else 'holds'} | {mask} | {len(own)} | {' | '.join(shown)} |")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="without it, only the table is told")
    parser.add_argument("--out", type=Path, default=Path("runs/prior"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args(arguments)
    rows = list(csv.DictReader(args.table.open())) if args.table.is_file() else []
    there = {(row["tree"], row["yields"], float(row["mask"]), int(row["seed"])) for row in rows}
    for seed in range(args.seeds if args.data else 0):
        for tree, yields in ARMS:
            for mask in (0.9, 0.0):
                if (tree, str(yields), mask, seed) not in there:
                    rows.append(
                        {name: str(value) for name, value in run(args.data, args.out, tree, yields, mask, seed).items()}
                    )
                    with args.table.open("w", newline="") as file:
                        writer = csv.DictWriter(file, COLUMNS)
                        writer.writeheader()
                        writer.writerows(rows)
                    print(json.dumps(rows[-1]), flush=True)
    tell(rows)


if __name__ == "__main__":
    main()
