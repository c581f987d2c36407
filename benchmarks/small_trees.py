"""Few classes that look alike, many samples, most fine labels hidden: is `lht` at least as good as the plain tree?

    python benchmarks/small_trees.py --out runs/small_trees [--birds birds.npz] [--draws 100-107]

Every draw makes a dataset of its own (features like a frozen network's: rectified, heavy-tailed, several modes per class),
hides 90 % of the fine labels, and trains each method on it with the same mask, batches and initial weights, by the recipe that
`lht train` has for features. `digits` are scikit-learn's, under noise and a tree drawn at random; `bird groups` are real bird
features, with species thrown together at random into seven classes. Writes small_trees.csv, row by row, and small_trees.md.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import t as student
from sklearn.datasets import load_digits

from torchlht import Hierarchy, TrainArgs, create_method
from torchlht.heads.method import parse_options

METHODS = ("marginal", "lht", "lht:prior_weight=0")
TREES = {
    "7/4/2": ([0, 0, 1, 2, 2, 3, 3], [0, 0, 1, 1]),
    "4/2": ([0, 0, 1, 1],),
    "10/5/2": ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 0, 0, 1, 1]),
}
LESIONS = (0.67, 0.11, 0.11, 0.05, 0.033, 0.014, 0.013)  # shares of classes as in dermatology
GROUPS = (0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05)


@dataclass(frozen=True)
class Kind:
    """A kind of made-up data: its tree, training samples, width, how far classes lie apart by level, shares of classes."""

    tree: str
    samples: int
    width: int = 256
    apart: float = 1.2
    levels: tuple[float, ...] = (1.0, 1.0, 1.0)
    shares: tuple[float, ...] | None = None
    noise: float = 0.0


KINDS = {
    "7/4/2": Kind("7/4/2", 4000),
    "7/4/2, shares of lesions": Kind("7/4/2", 5000, apart=1.0, shares=LESIONS),
    "7/4/2, coarse classes alike": Kind("7/4/2", 4000, width=512, levels=(1.2, 0.5, 0.5)),
    "4/2": Kind("4/2", 3000),
    "10/5/2": Kind("10/5/2", 6000, apart=1.5),
    "7/4/2, 30 % of coarse labels wrong": Kind("7/4/2", 4000, noise=0.3),
}


@dataclass(frozen=True)
class Data:
    """Features, labels (N, K) fine first, which samples are for training, the parents of each level."""

    x: np.ndarray
    y: np.ndarray
    train: np.ndarray
    parents: tuple[list[int], ...]


def paths(fine: np.ndarray, parents: tuple[list[int], ...]) -> np.ndarray:
    """(N, K) labels from fine ones."""
    levels = [fine]
    for above in parents:
        levels.append(np.array(above)[levels[-1]])
    return np.stack(levels, axis=1)


def made(kind: Kind, draw: int, modes: int = 3, inner: int = 24, test: int = 4000) -> Data:
    """A made-up dataset."""
    rng, parents = np.random.default_rng([draw, len(kind.tree), kind.samples]), TREES[kind.tree]
    classes = len(parents[0])
    shares = rng.permutation(np.exp(-2 * np.arange(classes) / (classes - 1)) if kind.shares is None else kind.shares)
    means = rng.normal(size=(classes, modes, inner)) * 1.2
    for level, scale in zip(paths(np.arange(classes), parents).T, kind.levels, strict=False):
        means += (rng.normal(size=(level.max() + 1, inner)) * scale)[level][:, None]
    count = kind.samples + test
    fine, mode = rng.choice(classes, count, p=shares / np.sum(shares)), rng.integers(0, modes, count)
    spread = rng.standard_t(5, size=(count, inner)) * rng.gamma(2.0, 0.5, size=(count, 1)) ** 0.5 * np.linspace(1.2, 0.4, inner)
    hidden = (kind.apart * means[fine, mode] / inner**0.5 + spread) @ rng.normal(size=(inner, 256)) / inner**0.5
    hidden = np.maximum(hidden + 0.3 * rng.normal(size=256), 0)
    x = hidden @ rng.normal(size=(256, kind.width)) / 128**0.5 + 0.3 * rng.normal(size=kind.width)
    x = np.maximum(x + 0.4 * rng.normal(size=x.shape), 0) * rng.gamma(4, 0.25, size=(count, 1)) ** 0.5
    return Data(x.astype(np.float32), paths(fine, parents), np.arange(count) < kind.samples, parents)


def digits(draw: int) -> Data:
    """scikit-learn's digits under noise, in a tree of 10/5/2 drawn at random."""
    rng, given = np.random.default_rng([draw, 5]), load_digits()
    x = given.data + 8 * rng.normal(size=given.data.shape)
    fine = rng.permutation(10)[given.target]
    return Data(x.astype(np.float32), paths(fine, TREES["10/5/2"]), rng.permutation(len(x)) < 1200, TREES["10/5/2"])


def bird_groups(draw: int, birds: Path) -> Data:
    """Real features: each species belongs to one of seven classes, drawn at random."""
    rng, given = np.random.default_rng([draw, 99]), np.load(birds, allow_pickle=False)
    species = given["y"][:, 0]
    group = rng.choice(7, species.max() + 1, p=rng.permutation(GROUPS))
    group[rng.permutation(len(group))[:7]] = np.arange(7)
    x = given["x"].astype(np.float32)
    return Data(x, paths(group[species], TREES["7/4/2"]), given["train"].astype(bool), TREES["7/4/2"])


def hide(data: Data, draw: int, noise: float, share: float = 0.9) -> np.ndarray:
    """Training labels with most fine ones hidden, class by class; of those, some coarse ones replaced by another's."""
    rng, labels = np.random.default_rng([draw, 3]), data.y[data.train].copy()
    for one in np.unique(labels[:, 0]):
        rows = rng.permutation(np.flatnonzero(data.y[data.train, 0] == one))
        labels[rows[max(1, round((1 - share) * len(rows))) :], 0] = -1
    wrong = np.flatnonzero((labels[:, 0] < 0) & (rng.random(len(labels)) < noise))
    size = max(data.parents[0]) + 1
    labels[wrong, 1] = (labels[wrong, 1] + rng.integers(1, size, len(wrong))) % size
    for k, above in enumerate(data.parents[1:], start=2):
        labels[wrong, k] = np.array(above)[labels[wrong, k - 1]]
    return labels


def trained(word: str, data: Data, labels: np.ndarray, draw: int) -> dict[str, float]:
    """Train a method by the recipe for features; accuracy per level, and the mass that transitions put off the tree."""
    name, *options = word.split(":")
    x, y = torch.from_numpy(data.x), torch.from_numpy(labels)
    inputs, test = x[data.train], torch.from_numpy(data.y[~data.train])
    recipe = TrainArgs("made").recipe(features=True, samples=len(y))
    torch.manual_seed(draw)
    tree = Hierarchy.from_parents([list(above) for above in data.parents])
    method = create_method(name, x.shape[1], tree, **parse_options(name, options))
    optimizer = torch.optim.SGD(method.parameters(), lr=recipe.lr, momentum=0.9, weight_decay=recipe.weight_decay)
    for epoch in range(recipe.epochs):
        optimizer.param_groups[0]["lr"] = recipe.lr * (1 + np.cos(np.pi * epoch / recipe.epochs)) / 2
        order = torch.from_numpy(np.random.default_rng([draw, epoch]).permutation(len(y)))
        for batch in order.split(recipe.batch_size):
            optimizer.zero_grad()
            method.loss(method(inputs[batch]), y[batch]).backward()
            torch.nn.utils.clip_grad_norm_(method.parameters(), recipe.clip)
            optimizer.step()
    with torch.no_grad():
        prediction = method.eval()(x[~data.train])
        right = 100 * (prediction.chosen() == test).double().mean(dim=0)
        on_tree = prediction.transition(0)[:, data.parents[0], list(range(tree.sizes[0]))]
        off = 100 * ((1 - on_tree) * prediction.probs(0)).sum(dim=1).mean()
    return {"fine": right[0].item(), "middle": right[1].item(), "coarse": right[-1].item(), "off_tree": off.item()}


def load(name: str, draw: int, birds: Path) -> Data:
    """A dataset by name."""
    if name == "digits":
        return digits(draw)
    return bird_groups(draw, birds) if name == "bird groups" else made(KINDS[name], draw)


def rows(draws: range, birds: Path | None) -> Iterator[dict[str, Any]]:
    """A row per dataset, draw and method."""
    for draw in draws:
        for name in [*KINDS, "digits", *(["bird groups"] if birds else [])]:
            data = load(name, draw, birds or Path())
            labels = hide(data, draw, KINDS[name].noise if name in KINDS else 0.0)
            for word in METHODS:
                found = trained(word, data, labels, draw)
                yield {"data": name, "draw": draw, "method": word} | {key: f"{value:.3f}" for key, value in found.items()}


def table(found: list[dict[str, Any]]) -> list[str]:
    """In Markdown: accuracy of the plain tree, and paired differences with 95 % intervals over draws."""
    values: dict[str, dict[str, dict[int, dict[str, Any]]]] = defaultdict(lambda: defaultdict(dict))
    for row in found:
        values[row["data"]][row["method"]][int(row["draw"])] = row
        if KINDS.get(row["data"], Kind("", 0)).noise == 0:
            values["all without wrong labels"][row["method"]][hash((row["data"], row["draw"]))] = row
    lines = ["| data | draws | method | fine | middle | coarse | off the tree |", "|" + " --- |" * 7]
    for name, methods in values.items():
        for word, draws in methods.items():
            both = [draw for draw in draws if all(draw in other for other in methods.values())]
            cells = []
            for level in ("fine", "middle", "coarse"):
                own = np.array([float(draws[draw][level]) for draw in both])
                less = own - np.array([float(methods[METHODS[0]][draw][level]) for draw in both])
                wide = student.ppf(0.975, len(less) - 1) * less.std(ddof=1) / len(less) ** 0.5
                cells.append(f"{own.mean():.1f}" if word == METHODS[0] else f"{less.mean():+.2f} ± {wide:.2f}")
            off = np.mean([float(draws[draw]["off_tree"]) for draw in both])
            lines.append(f"| {name} | {len(both)} | {word} | {' | '.join(cells)} | {off:.1f} % |")
    return lines


def main() -> None:
    """Train, write rows as they come, and the table of all rows in the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--birds", type=Path)
    parser.add_argument("--draws", default="100-107")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "small_trees.csv"
    first, last = map(int, args.draws.split("-"))
    with path.open("a", newline="") as file:
        for row in rows(range(first, last + 1), args.birds):
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
    with path.open() as file:
        (args.out / "small_trees.md").write_text("\n".join(table(list(csv.DictReader(file)))) + "\n")


if __name__ == "__main__":
    main()
