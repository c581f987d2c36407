"""What pictures outside the tree cost `--semi`: whole families are left out of the tree, and join the unlabelled samples.

    python benchmarks/strangers.py cub_lite0.npz --seeds 3 --out runs/strangers

Families are drawn until they have 40 species. Of the other training samples half have no label at any level; of the half that
has one, 90 % lack the species. Strangers are drawn until they are 30 % of the samples without any label. Three arms have the
same seeds, labels and test samples, all of classes in the tree: strangers left out, strangers among the others, and the same
without the rule that tells them apart (`learn/semi/strangers.py`). Nothing is chosen here, so there are no validation samples.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from torchlht import TrainArgs, train
from torchlht.learn.semi import schedule, strangers

SPECIES, SHARE, BARE, HIDDEN = 40, 0.3, 0.5, 0.9
Ints = NDArray[np.int64]


def stranger_families(y: Ints, rng: np.random.Generator) -> Ints:
    """Families with `SPECIES` species or a few more, drawn at random."""
    chosen: list[int] = []
    for family in rng.permutation(np.unique(y[:, 1])).tolist():
        if len(np.unique(y[np.isin(y[:, 1], chosen), 0])) >= SPECIES:
            break
        chosen.append(family)
    return np.array(chosen)


def made(source: Path, seed: int, *, joined: bool) -> dict[str, Any]:
    """Features and labels of one arm, and how many samples are what."""
    data, rng = dict(np.load(source)), np.random.default_rng(seed)
    y, training = data["y"], data["train"]
    strange = np.isin(y[:, 1], stranger_families(y, rng))
    own = np.flatnonzero(training & ~strange)
    bare = rng.permutation(own)[: round(BARE * len(own))]
    labels = y.copy()
    labels[bare] = -1
    for leaf in np.unique(y[own, 0]):
        rows = rng.permutation(own[(y[own, 0] == leaf) & (labels[own, 0] >= 0)])
        labels[rows[max(round((1 - HIDDEN) * len(rows)), 1) :], 0] = -1
    guests = rng.permutation(np.flatnonzero(training & strange))[: round(len(bare) * SHARE / (1 - SHARE))]
    labels[guests] = -1
    kept = np.concatenate([own, guests if joined else guests[:0], np.flatnonzero(~training & ~strange)])
    return {"x": data["x"][kept], "y": labels[kept], "train": training[kept], "strange": strange[kept], "old": y[kept]}


def as_tree(arm: dict[str, Any]) -> dict[str, Any]:
    """The same with classes numbered again, without those that are outside the tree."""
    y, old, own = arm["y"].copy(), arm["old"], ~arm["strange"]
    for k in range(y.shape[1]):
        names = np.unique(old[own, k])
        y[:, k] = np.where(y[:, k] >= 0, np.searchsorted(names, np.where(y[:, k] >= 0, y[:, k], names[0])), -1)
    return {"x": arm["x"], "y": y, "train": arm["train"]}


def run(source: Path, seed: int, arm: str, out: Path, method: str) -> dict[str, Any]:
    """Train one arm; returns accuracies, and how well strangers were told apart."""
    done = out / f"{arm}-{seed}.json"
    if done.is_file():
        found: dict[str, Any] = json.loads(done.read_text())
        return found
    out.mkdir(parents=True, exist_ok=True)
    parts = made(source, seed, joined=arm != "left out")
    file = out / f"{arm}-{seed}.npz"
    np.savez(file, **as_tree(parts), levels=["species", "family", "order"])
    said: dict[str, Any] = {"arm": arm, "seed": seed}
    rule = strangers.familiarity
    if arm == "without the rule":
        schedule.familiarity = lambda features, labels, sizes: torch.ones(len(labels))
    try:
        trained = train(
            TrainArgs(str(file), out / f"run-{arm}-{seed}", method=method, semi="both", seed=seed, quiet=True, track=False)
        )
    finally:
        schedule.familiarity = rule
    said |= {name: 100 * value for name, value in trained.accuracy.items()}
    if arm == "among the others":
        said |= told_apart(parts)
    done.write_text(json.dumps(said))
    file.unlink()
    print(json.dumps(said), flush=True)
    return said


def told_apart(parts: dict[str, Any]) -> dict[str, float]:
    """AUROC of the weight before training, and the share of strangers and of others that are left out."""
    data = as_tree(parts)
    training = data["train"]
    y, strange = data["y"][training], parts["strange"][training]
    bare = (y < 0).all(axis=1)
    weight = strangers.familiarity(torch.from_numpy(data["x"][training]).float(), y, [int(y[:, k].max()) + 1 for k in range(3)])
    shares = weight.numpy()[bare]
    return {
        "unlabelled": int(bare.sum()),
        "strangers": int(strange.sum()),
        "auroc": float(roc_auc_score(~strange[bare], shares)),
        "strangers left out": float((shares[strange[bare]] == 0).mean()),
        "others left out": float((shares[~strange[bare]] == 0).mean()),
    }


ARMS = ("left out", "among the others", "without the rule")


def main() -> None:
    """Run all arms, write a CSV, print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("features", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--method", default="lht")
    parser.add_argument("--out", type=Path, default=Path("runs/strangers"))
    given = parser.parse_args()
    rows = [run(given.features, seed, arm, given.out, given.method) for seed in range(given.seeds) for arm in ARMS]
    names = list(dict.fromkeys(name for row in rows for name in row))
    with (given.out / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Means and standard deviations over seeds."""
    lines = ["| strangers | order | family | species | species against left out |", "|---|---|---|---|---|"]
    base = np.array([row["species"] for row in rows if row["arm"] == ARMS[0]])
    for arm in ARMS:
        own = [row for row in rows if row["arm"] == arm]
        cells = [np.array([row[level] for row in own]) for level in ("order", "family", "species")]
        apart = cells[2] - base
        figures = [f"{one.mean():.1f} ± {one.std(ddof=len(one) > 1):.1f}" for one in (*cells, apart)]
        lines.append(f"| {arm} | {' | '.join(figures)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
