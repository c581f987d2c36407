"""
Two parents for every class
===========================

A species has a family, and a bill. Here every species has both as parents, and most birds are known by one of them alone: by the family, or by the
shape of the bill. ``marginal`` knows the graph and learns from either; ``flat`` learns from species alone.
"""

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from made_up import PATHS, birds

import torchlht

x, names = birds(4000)
bill_of = {name: f"bill {i % 4}" for i, name in enumerate(PATHS["species"])}
rng = np.random.default_rng(0)
train = np.arange(len(x)) < 2000
known = rng.choice(3, len(x), p=[0.1, 0.45, 0.45])  # the species, the family or the bill
known[~train] = 0
said = np.stack([names["species"], names["family"], names["species"].map(bill_of)])[known, np.arange(len(x))]

right = {}
with tempfile.TemporaryDirectory() as home:
    folder = Path(home)
    edges = [(family, species) for family, species in zip(PATHS["family"], PATHS["species"], strict=True)]
    torchlht.Graph.from_edges(edges + [(bill, species) for species, bill in bill_of.items()]).write(folder / "graph.json")
    np.savez(folder / "birds.npz", x=x.astype("f"), y=said.astype(str)[:, None], train=train)
    for method in ("flat", "multihead", "marginal"):
        run = torchlht.train(
            folder / "birds.npz", hierarchy=folder / "graph.json", method=method, lr=0.005, quiet=True, out=folder / method
        )
        right[method] = run.metrics["leaf_accuracy"]

# %%
figure, panel = plt.subplots(figsize=(7, 3), layout="constrained")
panel.barh(list(right)[::-1], [100 * share for share in right.values()][::-1], color=["#2a6f97", "#83b5d1", "#999999"])
panel.set(xlabel="test birds with the right species, %", title=f"{(known[train] == 0).sum()} of 2,000 birds have a species")
plt.show()
