"""A part of a dataset that is small enough for many runs: all classes of the parents that have few enough of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError
from torchlht.files import csv_text, write_text


def write_subset(data: str, table: Path, fewest: int, most: int) -> None:
    """Write a table of the samples whose finest class is one of `fewest` to `most` under its parent.

    Raises:
        ConfigError: when there are none.
    """
    samples = read_data(data)
    kept = np.flatnonzero(in_subset(samples, fewest, most))
    if not len(kept):
        raise ConfigError(f"{data}: no {samples.hierarchy.levels[1]} has {fewest} to {most} classes; pass other `parts`")
    tree, images = samples.hierarchy, samples.images
    assert images is not None
    rows: list[list[object]] = [["path", *(tree.levels[k] for k in tree.top_down), "split"]]
    for i in kept:
        rows.append([Path(str(images[i])).resolve(), *tree.cells(samples.labels[i]), samples.split[i]])
    write_text(table, csv_text(rows))


def in_subset(samples: Samples, fewest: int, most: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(N,) whether the parent of a sample's finest class has so many classes."""
    tree = samples.hierarchy
    sizes = np.bincount(tree.parents[0], minlength=tree.sizes[1])
    parents = samples.labels[:, 1]
    return np.asarray((parents >= 0) & (sizes[parents] >= fewest) & (sizes[parents] <= most))
