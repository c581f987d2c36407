"""Made-up sets of embeddings the size of a real taxonomy, to find out what ten thousand classes cost.

    python benchmarks/large.py large.npz [--classes 10000/4884/1103/273/51/13/3] [--samples 50000] [--width 256]
    python benchmarks/large.py uneven.npz --uneven [--classes 10000/1200/60] [--samples 50000] [--width 256]

Each class is its parent plus noise, each sample its finest class plus noise; a fifth of the samples are for testing.
The uneven set is less kind: few classes have most samples, a fifth of the classes look like children of another parent, and
features are a bent image of what classes and samples are made of.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np

EVEN, UNEVEN = "10000/4884/1103/273/51/13/3", "10000/1200/60"
RANKS = ("species", "genus", "family", "order", "class", "phylum", "kingdom")


def make(sizes: tuple[int, ...], samples: int, width: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    parents = []
    for below, above in pairwise(sizes):  # every parent has a child; the others fall unevenly, as species do
        extra = rng.zipf(1.7, below - above) % above
        parents.append(np.sort(np.concatenate([np.arange(above), extra])))
    centres = rng.normal(size=(sizes[-1], width)).astype(np.float32)
    for up in reversed(parents):
        centres = centres[up] + rng.normal(scale=0.9, size=(len(up), width)).astype(np.float32)
    leaves = np.concatenate([np.arange(sizes[0]), rng.integers(sizes[0], size=samples - sizes[0])])
    y = [leaves]
    for up in parents:
        y.append(up[y[-1]])
    x = centres[leaves] + rng.normal(scale=1.2, size=(samples, width)).astype(np.float32)
    train = np.ones(samples, dtype=bool)
    train[sizes[0] :] = rng.random(samples - sizes[0]) < 0.75
    return {"x": x.astype(np.float16), "y": np.stack(y, axis=1), "train": train, "levels": np.array(RANKS[: len(sizes)])}


def make_uneven(sizes: tuple[int, ...], samples: int, width: int, seed: int = 1) -> dict[str, np.ndarray]:
    rng, inner = np.random.default_rng(seed), width // 4
    parents = [np.sort(np.concatenate([np.arange(m), rng.integers(m, size=n - m)])) for n, m in pairwise(sizes)]
    centres = rng.normal(size=(sizes[-1], inner))
    for up in reversed(parents):
        looks_like = np.where(rng.random(len(up)) < 0.2, rng.integers(len(centres), size=len(up)), up)
        centres = centres[looks_like] + rng.normal(scale=0.9, size=(len(up), inner))
    share = rng.permutation(1 / np.arange(1, sizes[0] + 1) ** 0.8)
    leaves = np.concatenate([np.arange(sizes[0]), rng.choice(sizes[0], size=samples - sizes[0], p=share / share.sum())])
    y = [leaves]
    for up in parents:
        y.append(up[y[-1]])
    z = centres[leaves] + rng.normal(scale=1.5, size=(samples, inner))
    bent = np.tanh(z @ rng.normal(size=(inner, 2 * inner)) / inner**0.5 + rng.normal(scale=0.5, size=2 * inner))
    x = bent @ rng.normal(size=(2 * inner, width)) / (2 * inner) ** 0.5 + rng.normal(scale=0.1, size=(samples, width))
    train = np.ones(samples, dtype=bool)
    train[sizes[0] :] = rng.random(samples - sizes[0]) < 0.75
    return {"x": x.astype(np.float16), "y": np.stack(y, axis=1), "train": train, "levels": np.array(RANKS[: len(sizes)])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--uneven", action="store_true")
    parser.add_argument("--classes")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    maker, usual = (make_uneven, UNEVEN) if args.uneven else (make, EVEN)
    sizes = tuple(int(n) for n in (args.classes or usual).split("/"))
    np.savez(args.out, **maker(sizes, args.samples, args.width))


if __name__ == "__main__":
    main()
