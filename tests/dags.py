"""Graphs with several parents, and data on them: birds by family and by bill, genes with several functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from torchlht.hierarchy.graph import Graph

BIRDS = Graph.from_edges(
    [
        ("O", "A"),
        ("O", "B"),
        ("P", "C"),
        *(("A", s) for s in "abe"),
        ("B", "c"),
        ("C", "d"),
        *(("hook", s) for s in "acde"),
        ("cone", "b"),
    ]
)


def write_birds(folder: Path, count: int = 160) -> tuple[Path, Path]:
    """Features whose leaf is easy to see, a third of them known by family or bill; and their graph as rows."""
    generator, leaves = np.random.default_rng(0), list("abcd")
    own = generator.integers(0, 4, count)
    x = (generator.normal(size=(count, 4)) * 0.4 + 2 * np.eye(4)[own]).astype(np.float32)
    y = np.array([[leaves[i], "", ""] for i in own], dtype="U4")
    for i in range(0, count, 3):
        parents = [BIRDS.names[p] for p in BIRDS.parents[BIRDS.index(leaves[own[i]])]]
        y[i] = ["", *parents] if i % 2 else ["", generator.choice(parents), ""]
    np.savez(folder / "birds.npz", x=x, y=y, train=np.arange(count) < 3 * count // 4)
    rows = [f"{name},{BIRDS.names[p]}" for name, above in zip(BIRDS.names, BIRDS.parents, strict=True) for p in above]
    (folder / "dag.csv").write_text("name,parent\n" + "\n".join(rows) + "\n")
    return folder / "birds.npz", folder / "dag.csv"


def write_genes(folder: Path, count: int = 90, names: Sequence[str] = ("f0", "f1", "f2", "f3")) -> Path:
    """Samples whose features are their classes: a class a, b or c under x or y, and deep under a and c.

    `names` are those of the attributes, in the order in which they are written; f0 to f3 have values, others are 0.
    """
    generator = np.random.default_rng(0)
    header = "".join(f"@ATTRIBUTE {name} numeric\n" for name in names)
    rows = []
    for i in range(count):
        kind = i % 4
        features = generator.normal(size=4) * 0.3 + 2 * np.eye(4)[kind]
        labels = ("a@b", "deep", "b", "c")[kind] + ("@b" if kind == 1 and i % 8 == 1 else "")
        values = {f"f{i}": f"{v:.3f}" for i, v in enumerate(features)}
        rows.append(",".join(values.get(name, "0") for name in names) + f",{labels}")
    text = f"{header}@ATTRIBUTE class hierarchical root/x,root/y,x/a,y/a,x/b,y/c,a/deep,c/deep\n@DATA\n"
    (folder / "genes.train.arff").write_text(text + "\n".join(rows) + "\n")
    (folder / "genes.test.arff").write_text(text + "\n".join(rows[:24]) + "\n")
    return folder / "genes.train.arff"
