"""Does a learned transition earn its keep? Wrong trees, wrong coarse labels, and the options of the transition.

    python benchmarks/robustness.py birds.npz --out runs/robustness

Runs what is not there yet (`lht compare` with --perturb and --label-noise, three seeds, one recipe for all), then writes
robustness.csv, robustness.md and robustness.png into the folder.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from torchlht import CompareArgs, compare

METHODS = "multihead,marginal,lht-simplified,lht,marginal:semi=both,lht:semi=both"
OPTIONS = [f"lht:{kind}confusion_weight={weight}" for kind in ("", "confusion=kl:") for weight in (0.001, 0.01, 0.1)]
OPTIONS += [*(f"lht:gamma={gamma}" for gamma in (0, 1, 3, 12)), *(f"lht:rank={rank}" for rank in (1, 4))]
STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "clean": (METHODS, {}),
    **{f"rewired{s}": (METHODS, {"perturb": "rewired", "perturb_share": s}) for s in (0.1, 0.4)},
    **{f"noise{s}": (METHODS, {"label_noise": s}) for s in (0.05, 0.3)},
    "options": (",".join(["lht-simplified", *OPTIONS]), {}),
}
PANELS = {
    "finest classes under a wrong parent": ["clean", "rewired0.1", "rewired0.4"],
    "wrong coarse labels": ["clean", "noise0.05", "noise0.3"],
}
COLOURS = ("#999999", "#0072b2", "#cc79a7", "#d55e00", "#0072b2", "#d55e00")

Values = dict[tuple[str, str, str], list[float]]  # study, method, level


def read(out: Path, levels: list[str]) -> Values:
    """Accuracies in percent by study, method and level."""
    found: Values = {}
    for study in STUDIES:
        with (out / study / "results.csv").open() as file:
            for row in csv.DictReader(file):
                found.setdefault((study, row["method"], row["level"]), []).append(100 * float(row["accuracy"]))
                if row["level"] not in levels:
                    levels.append(row["level"])
    return found


def table(values: Values, studies: Sequence[str], levels: Sequence[str]) -> list[str]:
    """A table in Markdown: a row per study and method."""
    lines = ["| study | method | " + " | ".join(levels) + " |", "|" + " --- |" * (len(levels) + 2)]
    for study in studies:
        for method in dict.fromkeys(m for s, m, _ in values if s == study):
            cells = [values[study, method, level] for level in levels]
            lines.append(f"| {study} | {method} | " + " | ".join(f"{mean(c):.1f} ± {stdev(c):.1f}" for c in cells) + " |")
    return lines


def draw(values: Values, levels: Sequence[str], path: Path) -> None:
    """Accuracy against how much is wrong: a column per fault, a row for the finest level and one for the next."""
    style = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, len(PANELS), figsize=(9, 6.2), sharex="col")
        for column, (title, studies) in enumerate(PANELS.items()):
            shares = [100 * float(s.lstrip("abcdefghijklmnopqrstuvwxyz") or 0) for s in studies]
            for row, level in enumerate(levels[::-1][:2]):
                axis = axes[row][column]
                for method, colour in zip(METHODS.split(","), COLOURS, strict=True):
                    cells = [values[s, method, level] for s in studies]
                    line = "-" if "semi" in method else "--"
                    axis.errorbar(shares, [mean(c) for c in cells], [stdev(c) for c in cells], color=colour, linestyle=line,
                                  marker="o" if "semi" in method else "s", markersize=4, capsize=2, label=method)  # fmt: skip
                axis.grid(axis="y", color="#dddddd", linewidth=0.6)
                axis.set_ylabel(f"{level}, % right" if column == 0 else "")
            axes[0][column].set_title(title, loc="left")
            axes[1][column].set_xlabel("%")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(0.99, 0.5), frameon=False)
        figure.tight_layout()
        figure.savefig(path, dpi=130, bbox_inches="tight")


def main() -> None:
    """Run, read, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mask", default="0.9")
    args = parser.parse_args()
    for study, (methods, options) in STUDIES.items():
        compare(CompareArgs(args.data, args.out / study, methods=methods, mask=args.mask, seeds=3, resume=True, **options))
    levels: list[str] = []
    values = read(args.out, levels)
    (args.out / "robustness.md").write_text("\n".join(table(values, list(STUDIES), levels)) + "\n")
    with (args.out / "robustness.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["study", "method", "level", "seed", "accuracy"])
        for (study, method, level), cells in values.items():
            writer.writerows([study, method, level, seed, f"{cell:.2f}"] for seed, cell in enumerate(cells))
    draw(values, levels, args.out / "robustness.png")


if __name__ == "__main__":
    main()
