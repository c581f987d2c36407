"""
A tree found in the data
========================

Only species are known here. ``lht hierarchy find`` groups those that look alike; in Python that is ``find_tree``. With few birds of each species the
groups are shaky, and it says so: groups of birds that are drawn again agree less.
"""

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from made_up import LEVELS, PATHS, birds

import torchlht
from torchlht.learn.growing import find_tree, rand_index

x, names = birds(2400, apart=(0.6, 0.35, 0.6))
species = PATHS["species"].tolist()
fine = np.array([species.index(name) for name in names["species"]])
families = PATHS.groupby("family", sort=False).ngroup().to_numpy()


def found_with(each):
    """The 12 groups that are found with so many birds of each species."""
    rows = np.concatenate([np.flatnonzero(fine == c)[:each] for c in range(48)])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "birds.npz"
        np.savez(
            file,
            x=x[rows].astype("f"),
            y=fine[rows, None],
            train=np.ones(len(rows), bool),
            levels=LEVELS[2:],
            classes_species=species,
        )
        return find_tree(torchlht.read_data(file), groups=[12], names=False)


numbers = [3, 5, 10, 20, 30]
found = [found_with(each) for each in numbers]

# %%
# How far the groups are the real families, which nobody told it, and what it thinks of them itself. 1 means the same groups, 0 as by chance.
agree = [rand_index(families, one.tree.parents[0][[one.tree.index(0, name) for name in species]]) for one in found]
figure, panel = plt.subplots(figsize=(7, 3.4), layout="constrained")
panel.plot(numbers, agree, "o-", color="#2a6f97", label="agreement with the families")
panel.plot(numbers, [one.stable[0] for one in found], "o--", color="#999999", label="with groups of birds drawn again")
panel.set(ylim=(0, 1.05), xlabel="birds of each species", ylabel="agreement", title="48 species in 12 groups")
panel.legend()
plt.show()
