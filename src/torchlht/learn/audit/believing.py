"""Training on labels as far as they are believed: `lht train --audit DIR|auto`.

A label that is more probably wrong than right is replaced by what is more probable than not, given the sample and the label,
no deeper than the label was. Where nothing is, it counts as unknown. So a wrong family neither teaches nor confines the targets
of `semi`, and most samples that had one teach another family instead.

Labels are judged twice: the second time by judges that did not learn from those that were doubted the first time. Labels that
end at a level of which it is not shown that any is wrong, since the interval of their number reaches 0, are all believed:
what is doubted among right labels are rare looks, which training needs.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.data.samples import Ints, Samples, deepest_known
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import Opinions, form_opinions
from torchlht.learn.audit.kept import LABELS, read_audit, read_rows
from torchlht.learn.audit.wrong import Doubts, Floats, count_wrong, find_doubts, suggest

DOUBTED = 0.5
TURNS = 2  # how often labels are judged


@dataclass(frozen=True)
class Judged:
    """What is thought of labels before training.

    Attributes:
        wrong: (N, K) the probability that each label is wrong; 0 where that was not asked.
        better: (N, K) what to put instead of a doubted label, -1 where that is open.
    """

    wrong: Floats
    better: Ints


def judge_labels(samples: Samples, features: NDArray[np.float32], *, seed: int = 0) -> Judged:
    """Judge the labels of training samples by other training samples."""
    train = samples.index("train")
    part = dataclasses.replace(samples, images=None, features=features).select(train)
    check_enough(part)
    opinions, doubts = judge_again(part, seed=seed)
    judged = Judged(np.zeros(samples.labels.shape), np.full(samples.labels.shape, -1))
    shown = np.array([count.low >= 1 for count in count_wrong(opinions, part.labels, doubts)] + [False])
    deepest = deepest_known(part.hierarchy.only_real(part.labels))
    judged.wrong[train] = np.where(shown[deepest][:, None], np.nan_to_num(doubts.wrong), 0)
    rows = np.flatnonzero((judged.wrong[train] > DOUBTED).any(axis=1))
    found = suggest(opinions, part.labels, doubts, rows, if_wrong=False)
    for i, level, label in zip(train[rows].tolist(), found.level.tolist(), found.label.tolist(), strict=True):
        judged.better[i] = path_to(samples.hierarchy, level, label)
    return judged


def judge_again(part: Samples, *, seed: int, turns: int = TURNS) -> tuple[Opinions, Doubts]:
    """Opinions, and doubts about the labels of all samples; from the second turn on doubted labels do not form opinions."""
    opinions = form_opinions(part, seed=seed)
    doubts = find_doubts(opinions, part.labels)
    for _ in range(turns - 1):
        fewer = without_doubted(part.labels, np.nan_to_num(doubts.wrong) > DOUBTED)
        opinions = form_opinions(dataclasses.replace(part, labels=fewer), seed=seed)
        doubts = find_doubts(opinions, part.labels)
    return opinions, doubts


def judged_before(samples: Samples, folder: Path) -> Judged:
    """The same from what an audit listed. Labels that the audit did not see, or that have changed since, are believed."""
    kept = read_audit(folder)
    if kept.content != samples.fingerprint():
        raise DataError(f"{samples.name}: not the data of the audit in {folder}, {kept.data}; run lht audit on it")
    tree, places = samples.hierarchy, {key: i for i, key in enumerate(samples.keys)}
    judged = Judged(np.zeros(samples.labels.shape), np.full(samples.labels.shape, -1))
    for row in read_rows(folder / LABELS):
        i, k = places.get(row.sample, -1), tree.levels.index(row.level) if row.level in tree.levels else -1
        if i >= 0 and k >= 0 and samples.labels[i, k] >= 0 and tree.classes[k][samples.labels[i, k]] == row.given:
            judged.wrong[i, : k + 1] = np.maximum(judged.wrong[i, : k + 1], row.probability)
            judged.better[i] = suggested_path(tree, row.suggested_level or row.level, row.suggested)
    return judged


def suggested_path(tree: Hierarchy, level: str, name: str) -> Ints:
    """(K,) the path to a class that a list names; all -1 without one. Raises DataError for a class that is not there."""
    if not name:
        return np.full(len(tree), -1)
    at = tree.levels.index(level) if level in tree.levels else 0
    return path_to(tree, at, tree.index(at, name))


def path_to(tree: Hierarchy, level: int, label: int) -> Ints:
    """(K,) a class and its ancestors, -1 below unless the branch ends there; all -1 for the level -1."""
    found = np.full(len(tree), -1)
    if level >= 0:
        found[level:] = [tree.ancestors(k, of=level)[label] for k in range(level, len(tree))]
    whole: Ints = tree.complete(found[None])[0]
    return whole


def believed(samples: Samples, judged: Judged) -> tuple[Samples, int, int]:
    """The samples with other labels where theirs are doubted; how many have another class, and how many only lost levels."""
    tree, old = samples.hierarchy, samples.labels
    doubted = (judged.wrong > DOUBTED) & (old >= 0) & (samples.split == "train")[:, None]
    labels = without_doubted(old, doubted)
    as_deep = np.arange(len(tree)) >= deepest_known(old)[:, None]
    better = np.where(as_deep, judged.better, -1)
    deeper = deepest_known(better) < deepest_known(labels)
    taken = doubted.any(axis=1) & deeper & ((labels < 0) | (labels == better)).all(axis=1)  # it agrees with what is believed
    labels[taken] = better[taken]
    labels = tree.complete(labels)
    other = ((labels >= 0) & (old >= 0) & (labels != old)).any(axis=1)
    fewer = ((labels < 0) & (old >= 0)).any(axis=1) & ~other
    return dataclasses.replace(samples, labels=labels), int(other.sum()), int(fewer.sum())


def without_doubted(labels: Ints, doubted: NDArray[np.bool_]) -> Ints:
    """(N, K) labels without those that are doubted, and what is below them."""
    found, drop = labels.copy(), doubted & (labels >= 0)
    for k in range(labels.shape[1]):
        drop[:, k] = drop[:, k:].any(axis=1)
    found[drop] = -1
    return found


def check_enough(samples: Samples) -> None:
    """Raise DataError if there is nothing to compare: no labels, or no class with two samples."""
    labels = samples.labels
    if not (labels >= 0).any():
        raise DataError(f"{samples.name}: no labels at all, so there is nothing to audit")
    if all(np.bincount(column[column >= 0], minlength=1).max() < 2 for column in labels.T):
        raise DataError(
            f"{samples.name}: every class has a single sample; an audit compares samples of one class: it needs two"
        )
