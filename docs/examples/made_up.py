"""Made-up birds for the examples: numbers as a network would give them, and names along a tree of 4 orders, 12 families, 48 species."""

import numpy as np
import pandas as pd

import torchlht

LEVELS = ["order", "family", "species"]
PATHS = pd.DataFrame([(f"order {i // 12}", f"family {i // 4}", f"species {i}") for i in range(48)], columns=LEVELS)


def tree():
    """The tree of all of them."""
    return torchlht.Hierarchy.from_paths(PATHS.to_numpy().tolist(), LEVELS)


def birds(count, seed=0, apart=(1.0, 0.8, 0.55)):
    """Features (count, 24) and their names, a column per level."""
    world, rng = np.random.default_rng(7), np.random.default_rng(seed)
    centres = np.zeros((48, 24))
    for level, far in zip(LEVELS, apart, strict=True):
        centres += far * world.normal(size=(48, 24))[PATHS.groupby(level, sort=False).ngroup()]
    bird = rng.integers(48, size=count)
    return centres[bird] + rng.normal(size=(count, 24)), PATHS.iloc[bird].reset_index(drop=True)


def forget(names, share, level="species", seed=0):
    """The same names, with those of one level blank on a share of the rows."""
    names = names.copy()
    names.loc[np.random.default_rng(seed).random(len(names)) < share, level] = ""
    return names
