"""Training on labels as far as they are believed: `lht train --audit DIR|auto`.

A label that is more probably wrong than right counts as unknown, from the finest level up to the coarsest that is wrong;
what is above stays. So a wrong family neither teaches nor confines the targets of `semi`, while its right order still does
both.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints, Samples
from torchlht.errors import DataError
from torchlht.learn.audit.discriminant import form_opinions
from torchlht.learn.audit.kept import LABELS, read_audit, read_rows
from torchlht.learn.audit.wrong import Floats, find_doubts

DOUBTED = 0.5


def doubted(samples: Samples, features: NDArray[np.float32], *, seed: int = 0) -> Floats:
    """(N, K) the probability that each label of a training sample is wrong, judged by other training samples; 0 elsewhere."""
    train = samples.index("train")
    part = dataclasses.replace(samples, images=None, features=features).select(train)
    check_enough(part)
    found = np.zeros(samples.labels.shape)
    found[train] = np.nan_to_num(find_doubts(form_opinions(part, seed=seed), part.labels).wrong)
    return found


def doubted_before(samples: Samples, folder: Path) -> Floats:
    """The same from what an audit listed. Labels that the audit did not see, or that have changed since, are believed."""
    kept = read_audit(folder)
    if kept.content != samples.fingerprint():
        raise DataError(f"{samples.name}: not the data of the audit in {folder}, {kept.data}; run lht audit on it")
    tree, places = samples.hierarchy, {key: i for i, key in enumerate(samples.keys)}
    found = np.zeros(samples.labels.shape)
    for row in read_rows(folder / LABELS):
        i, k = places.get(row.sample, -1), tree.levels.index(row.level) if row.level in tree.levels else -1
        if i >= 0 and k >= 0 and samples.labels[i, k] >= 0 and tree.classes[k][samples.labels[i, k]] == row.given:
            found[i, : k + 1] = np.maximum(found[i, : k + 1], row.probability)
    return found


def believed(samples: Samples, wrong: Floats) -> tuple[Samples, int]:
    """The samples without the training labels that are more probably wrong than right; and how many samples lost one."""
    labels: Ints = samples.labels.copy()
    drop = (wrong > DOUBTED) & (labels >= 0) & (samples.split == "train")[:, None]
    for k in range(labels.shape[1]):
        drop[:, k] = drop[:, k:].any(axis=1)  # what is below a wrong label is wrong, too
    lost = (drop & (labels >= 0)).any(axis=1)
    labels[drop] = -1
    return dataclasses.replace(samples, labels=labels), int(lost.sum())


def check_enough(samples: Samples) -> None:
    """Raise DataError if there is nothing to compare: no labels, or no class with two samples."""
    labels = samples.labels
    if not (labels >= 0).any():
        raise DataError(f"{samples.name}: no labels at all, so there is nothing to audit")
    if all(np.bincount(column[column >= 0], minlength=1).max() < 2 for column in labels.T):
        raise DataError(
            f"{samples.name}: every class has a single sample; an audit compares samples of one class: it needs two"
        )
