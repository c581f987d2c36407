"""
Labels that are probably wrong
==============================

One label in twenty is made wrong on purpose. ``torchlht.audit`` is not told which, and lists those it doubts, most suspicious first.
"""

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from made_up import LEVELS, birds, tree

import torchlht

x, names = birds(2000)
given, rng = names.copy(), np.random.default_rng(3)
moved = rng.choice(len(names), 100, replace=False)
given.iloc[moved] = names.iloc[rng.permutation(len(names))[:100]].to_numpy()
truly = (given != names).any(axis=1).to_numpy()

classes = tree()
with tempfile.TemporaryDirectory() as folder:
    labels = [[classes.index(k, name) for k, name in enumerate(reversed(row))] for row in given.to_numpy().tolist()]
    names_of = {f"classes_{level}": np.array(classes.classes[2 - k]) for k, level in enumerate(LEVELS)}
    np.savez(
        Path(folder) / "birds.npz",
        x=x.astype(np.float32),
        y=np.array(labels),
        train=np.ones(len(x), bool),
        levels=LEVELS[::-1],
        **names_of,
    )
    doubts = torchlht.audit(Path(folder) / "birds.npz", out=Path(folder) / "doubts", everything=True)

# %%
# Going down the list: how many of the doubted labels are really wrong, and how many of the wrong ones have been found.
ranked = list(dict.fromkeys(int(row.sample) for row in doubts.rows))
hit = np.cumsum(truly[ranked])
looked = np.arange(1, len(ranked) + 1)
figure, panel = plt.subplots(figsize=(7, 3.6), layout="constrained")
panel.plot(looked, 100 * hit / looked, color="#2a6f97", label="wrong, of those looked at")
panel.plot(looked, 100 * hit / truly.sum(), color="#e09f3e", label="found, of the wrong ones")
panel.axvline(truly.sum(), color="#999999", lw=1)
panel.set(
    xlim=(1, 400), ylim=(0, 101), xlabel="labels looked at", ylabel="%", title=f"{truly.sum()} wrong labels among {len(x):,}"
)
panel.legend()
plt.show()
