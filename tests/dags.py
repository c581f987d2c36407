"""A graph of birds by family and by bill, and data on it."""

from __future__ import annotations

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
