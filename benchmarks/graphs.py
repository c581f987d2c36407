"""A graph over the birds of CUB: order › family › species, and each species also under the shape of its bill.

    python benchmarks/graphs.py make cub_s128.zip cub_lite0.npz --folder DIR      the graph, and features with names
    python benchmarks/graphs.py run cub_s128.zip cub_lite0.npz --folder DIR       benchmarks/results/graphs.csv

The bill of a species is the one that most people saw on its pictures (`has_bill_shape`, the first nine of CUB's 312
attributes). `make` writes dag.csv, taxonomy.csv, and three sets of the same samples:

    birds-0.npz       every species known
    birds-90.npz      species hidden on 90 % of the training samples of each species; their family and bill are known
    birds-90-one.npz  the same, but of each of these only one is known: the family or the bill, by the seed
"""

from __future__ import annotations

import argparse
import csv
import io
import tempfile
import zipfile
from pathlib import Path

import numpy as np

import torchlht
from torchlht.data.samples import Mask, Samples, read_data
from torchlht.data.several import Floats

BILLS = ("curved", "dagger", "hooked", "needle", "hooked seabird", "spatulate", "all-purpose", "cone", "specialized")
METHODS = ("flat", "multihead", "c-hmcnn", "marginal", "lht")
SETS = ("birds-90-one", "birds-0", "birds-90")
HERE = Path(__file__).parent / "results"


def bills(archive: Path) -> list[str]:
    """The bill of each species, in the order of CUB."""
    with zipfile.ZipFile(archive) as held:
        text = held.read("CUB_200_2011/attributes/class_attribute_labels_continuous.txt").decode()
    shares = np.loadtxt(io.StringIO(text))[:, : len(BILLS)]
    return [f"{BILLS[i]} bill" for i in shares.argmax(1)]


def principal(samples: Samples, count: int) -> Floats:
    """The first principal components, from the training samples."""
    assert samples.features is not None
    x = samples.features - samples.features[samples.split == "train"].mean(0)
    _, vectors = np.linalg.eigh(np.cov(x[samples.split == "train"].T))
    found: Floats = (x @ vectors[:, ::-1][:, :count]).astype(np.float32)
    return found


def make(archive: Path, features: Path, out: Path, seed: int, components: int | None = None) -> None:
    """Write the graph and the sets, with all features or so many principal components of those of training samples."""
    out.mkdir(parents=True, exist_ok=True)
    samples = read_data(features)
    tree, own = samples.hierarchy, bills(archive)
    above = np.stack([tree.ancestors(k) for k in range(3)])
    rows = [(tree.classes[0][i], tree.classes[1][above[1, i]]) for i in range(tree.sizes[0])]
    rows += [(tree.classes[1][j], tree.classes[2][p]) for j, p in enumerate(tree.parents[1])]
    shapes = list(zip(tree.classes[0], own, strict=True))
    for name, edges in (("dag.csv", [*rows, *shapes]), ("taxonomy.csv", rows), ("bills.csv", shapes)):
        with (out / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("name", "parent"), *edges])
    x = principal(samples, components) if components else samples.features
    species, family, bill = (np.array(names) for names in (tree.classes[0], np.array(tree.classes[1])[above[1]], own))
    y = samples.labels[:, 0]
    _, kept = Mask(0.9, seed=seed).apply(samples)
    hidden = np.setdiff1d(samples.index("train"), kept)
    tells = np.random.default_rng([seed, 22]).random(len(y)) < 0.5
    whole = np.stack([species[y], family[y], bill[y]], 1).astype("U60")
    some = whole.copy()
    some[hidden, 0] = ""
    one = some.copy()
    one[hidden[tells[hidden]], 2], one[hidden[~tells[hidden]], 1] = "", ""
    for name, labels in (("birds-0", whole), ("birds-90", some), ("birds-90-one", one)):
        # a column for each: a blank is a name that is not known
        np.savez(out / f"{name}.npz", x=x, y=labels, train=samples.split == "train")


def run(args: argparse.Namespace) -> None:
    """Train every method on every set, and write accuracies in percent."""
    rows: list[list[object]] = []
    for seed in range(args.seeds):
        make(args.archive, args.features, args.folder, seed, args.components)
        for name in args.sets.split(","):
            for method in args.methods.split(","):
                with tempfile.TemporaryDirectory() as place:
                    trained = torchlht.train(
                        str(args.folder / f"{name}.npz"), hierarchy=args.folder / "dag.csv", method=method, seed=seed,
                        epochs=args.epochs, out=Path(place) / "run", quiet=True,
                    )  # fmt: skip
                    found = trained.metrics
                figures = [found["leaf_accuracy"], *(level["accuracy"] for level in found["graph_levels"])]
                figures += [found["f1_micro"], found["auprc"]]
                rows.append([name, method, seed, *(f"{100 * value:.2f}" for value in figures), f"{found['train_seconds']:.1f}"])
                print(*rows[-1], flush=True)
                with args.out.open("w", newline="") as file:
                    head = ("data", "method", "seed", "species", "top", "family", "level3", "f1", "auprc", "seconds")
                    csv.writer(file, lineterminator="\n").writerows([head, *rows])


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("do", choices=["make", "run"])
    parser.add_argument("archive", type=Path, help="cub_s128.zip, or the official archive as a .zip")
    parser.add_argument("features", type=Path, help="an .npz of its features with species, family and order")
    parser.add_argument("--folder", type=Path, default=Path("birds-graph"))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--components", type=int, help="principal components of the features to take; all by default")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "graphs.csv")
    args = parser.parse_args()
    if args.do == "make":
        make(args.archive, args.features, args.folder, 0, args.components)
    else:
        run(args)


if __name__ == "__main__":
    main()
