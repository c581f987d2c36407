"""What questions bring: strategies of `lht next` on real birds, and where along the way one is shown behind another.

    OMP_NUM_THREADS=1 python benchmarks/next.py cub_lite0.npz --out runs/next --keep

It runs the simulation, or goes on with one, and prints the tables of benchmarks/next.md. With --keep, curve.csv and the
figures are copied to where the page has them.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

from torchlht import simulate_questions
from torchlht.lab.simulation.results import MEAN, Simulation, table_lines
from torchlht.measure.verdict import tell_apart

HERE = Path(__file__).parent
STRATEGIES = "ours,random,ours@species,margin,typical"
COST = "species=1,family=0.2,order=0.05"


def along_the_way(found: Simulation, ours: str, others: list[str], level: str) -> list[str]:
    """A row per round: accuracies, and whether ours is shown ahead of or behind each other strategy."""
    column, rows = found.column(level), []
    heads = ["spent", ours, *others, *(f"against {name}" for name in others)]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for r, cost in enumerate(found.curves(ours)[0]):
        means = [100 * found.curves(name)[1][:, r, column].mean() for name in (ours, *others)]
        rows.append(
            [f"{cost:,.0f}", *(f"{mean:.1f}" for mean in means), *(against(found, ours, name, level, r) for name in others)]
        )
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def against(found: Simulation, ours: str, other: str, level: str, r: int) -> str:
    """The difference of two strategies after a round, with its 95 % interval over seeds and test samples."""
    names, k = (ours, other), found.column(level)
    right = [[found.cells[name, seed].right[r].astype(float) for seed in found.seeds] for name in names]
    outcomes = 100 * np.array([[hit.mean(axis=1) if level == MEAN else hit[:, k] for hit in own] for own in right])
    scores = {name: outcomes[i].mean(axis=1).tolist() for i, name in enumerate(names)}
    verdict = tell_apart(level, scores, outcomes=outcomes)
    gap, half = np.mean(scores[ours]) - np.mean(scores[other]), next(iter(verdict.half.values()))
    shown = "" if abs(gap) <= half else ", ahead" if gap > 0 else ", **behind**"
    return f"{gap:+.1f} ± {half:.1f}{shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--round", type=float, default=100.0)
    parser.add_argument("--keep", action="store_true", help="copy curve and figure into benchmarks/")
    args = parser.parse_args()
    options = {"strategies": STRATEGIES, "seeds": args.seeds, "round": args.round, "budget": 1200.0, "cost": COST}
    found = simulate_questions(args.data, out=args.out, resume=args.out.exists(), **options)
    if args.keep:
        shutil.copy(args.out / "curve.csv", HERE / "results" / "next.csv")
        shutil.copy(args.out / "curve.png", HERE / "next.png")
        shutil.copy(args.out / "curve-dark.png", HERE / "next-dark.png")
    print("\n".join(table_lines(found)), "\n\nmean over levels\n")
    print("\n".join(along_the_way(found, "ours", ["random", "margin", "typical"], MEAN)), "\n\nspecies\n")
    print("\n".join(along_the_way(found, "ours@species", ["random", "margin", "typical"], "species")))


if __name__ == "__main__":
    main()
