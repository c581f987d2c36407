"""Metrics for several labels per sample. Unknown labels are left out.

AU(PRC)     the area under one precision-recall curve over all samples and classes: scikit-learn's micro average precision
F1          hierarchical: answers and labels count with all their ancestors; `micro` over everything, `macro` over samples
exact       the share of samples whose set of classes at a level is exactly right
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.answer.facets import likeliest
from torchlht.answer.several import choose
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.measure.metrics import REGISTER, Spec
from torchlht.measure.samplewise import Samplewise, area_values, digest_of

Scores = NDArray[np.float32]
Chosen = NDArray[np.bool_]

AUPRC = Spec("auprc", "AU(PRC)", "run", "higher", "The area under one precision-recall curve over all samples and classes.")
LEAF = Spec("leaf_accuracy", "leaf right", "run", "higher", "How many of the samples whose leaf is known get the right one.")
F1_MICRO = Spec("f1_micro", "F1 micro", "run", "higher", "Hierarchical F1 over everything.")
F1_MACRO = Spec("f1_macro", "F1 macro", "run", "higher", "Hierarchical F1, the mean over samples.")
PRECISION = Spec("average_precision", "average precision", "level", "higher", "AU(PRC) of one level.")
EXACT = Spec("exact", "set right", "level", "higher", "How many of the samples that are fully known get exactly their set.")
AT_LEVEL = tuple(
    Spec(f"level_{name}", f"{heading} of a level", "level", "higher", key=(name,), table="")
    for name, heading in (("f1_micro", "F1 micro"), ("f1_macro", "F1 macro"))
)
RECORDED = tuple(REGISTER[name] for name in ("samples", "train_seconds", "seconds_per_step", "parameters"))
OF_LEAVES = (REGISTER["accuracy"], LEAF, AUPRC, F1_MICRO, F1_MACRO, PRECISION, *AT_LEVEL, *RECORDED)
OF_SETS = (PRECISION, AUPRC, F1_MICRO, F1_MACRO, EXACT, *AT_LEVEL, *RECORDED)
"""Metrics where each sample has one leaf, and where it has several labels: the columns of results.csv."""


def average_precision(labels: Labels, scores: Scores) -> float | None:
    """The area under the precision-recall curve over all known labels; None if nothing is there."""
    known = labels >= 0
    there, scores = labels[known] == 1, scores[known]
    if not there.any():
        return None
    order = np.argsort(-scores)
    hits = np.cumsum(there[order])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)  # ties count together
    found = hits[last]
    return float(np.sum(np.diff(found, prepend=0) * found / (last + 1)) / found[-1])


def f1_scores(labels: Labels, chosen: Chosen) -> dict[str, float]:
    """Hierarchical F1, micro and macro, of closed sets of classes."""
    return {name: float(one.mean()) for name, one in f1_values(labels, chosen).items()}


def f1_values(labels: Labels, chosen: Chosen) -> dict[str, NDArray[np.float64]]:
    """What each sample adds to them, (N,)."""
    there, said = labels == 1, chosen & (labels >= 0)
    right, total = (there & said).sum(1), there.sum(1) + said.sum(1)
    macro = np.where(total, 2 * right / np.maximum(total, 1), 1.0)  # nothing said where nothing is there is right
    whole = max(total.sum(), 1)
    micro = 2 * right.sum() / whole
    return {"f1_micro": micro + len(labels) * (2 * right - micro * total) / whole, "f1_macro": macro}


def best_threshold(labels: Labels, scores: Scores) -> float:
    """The threshold with the best F1 over all known labels; 0.5 if nothing is there."""
    known = labels >= 0
    there, scores = labels[known] == 1, scores[known]
    if not there.any():
        return 0.5
    order = np.argsort(-scores)
    hits = np.cumsum(there[order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])
    last = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    return float(scores[order][last[np.argmax(f1[last])]])


def fit_thresholds(labels: Labels, scores: Scores, graph: Graph, judged: Chosen) -> NDArray[np.float32]:
    """(levels,) the best threshold of each level."""
    parts = [judged & (graph.levels == level) for level in range(int(graph.levels.max()) + 1)]
    return np.array([best_threshold(labels[:, part], scores[:, part]) for part in parts], dtype=np.float32)


def exact(labels: Labels, chosen: Chosen) -> float | None:
    """The share of samples, among those whose labels are all known, whose set of classes is exactly right; None without any."""
    known = (labels >= 0).all(1)
    return float(((labels == 1) == chosen)[known].all(1).mean()) if known.any() else None


def measure_leaves(labels: Labels, scores: Scores, graph: Graph, judged: Chosen) -> dict[str, Any]:
    """All metrics where each sample has one leaf. Right at a level is an answer with all that is there, and no more."""
    said, levels = likeliest(scores, graph), []
    for level in range(int(graph.levels.max()) + 1):
        part = judged & (graph.levels == level)
        known = (labels[:, part] >= 0).all(1)
        if part.any():
            own = {"name": f"level{level + 1}", "classes": int(part.sum()), "samples": int(known.sum())}
            own["accuracy"] = _share((said[:, part] == (labels[:, part] == 1)).all(1)[known])
            precision = average_precision(labels[:, part], scores[:, part])
            levels.append(own | {"average_precision": precision} | f1_scores(labels[:, part], said[:, part]))
    right = leaf_values(labels, said, graph)
    leaf = {"leaf_accuracy": _share(right), "leaf_samples": len(right)}
    overall = {"auprc": average_precision(labels[:, judged], scores[:, judged])}
    return {"samples": len(labels), **leaf, **overall, **f1_scores(labels[:, judged], said[:, judged]), "graph_levels": levels}


def leaf_values(labels: Labels, said: Chosen, graph: Graph) -> Chosen:
    """Whether the answer is right, for each sample whose leaf is known."""
    there = labels[:, graph.leaves] == 1
    right: Chosen = (said[:, graph.leaves] == there)[there.any(1)].all(1)
    return right


def _share(right: Chosen) -> float | None:
    return float(right.mean()) if len(right) else None


def measure_sure(labels: Labels, chosen: Chosen, graph: Graph, judged: Chosen) -> dict[str, float | None]:
    """What answers with a threshold are worth: shares of samples, and of the answers given.

    `wrong` holds a class that is not there; `unchecked` is not known to, but holds one that nobody knows about.
    """
    chosen = chosen & judged
    given: Chosen = np.any(chosen, axis=1)
    wrong: Chosen = np.any(chosen & (labels == 0), axis=1)[given]
    unknown: Chosen = np.any(chosen & (labels < 0), axis=1)[given]
    ends = graph.ends(chosen.astype(np.int8))[given]
    return {
        "answered": _share(given),
        "leaf": _share(np.any(chosen[:, graph.leaves], axis=1)),
        "wrong": _share(wrong),
        "unchecked": _share(unknown & ~wrong),
        "names": float(ends.sum(1).mean()) if given.any() else None,
        "classes": float(chosen[given].sum(1).mean()) if given.any() else None,
    }


def measure(
    labels: Labels,
    scores: Scores,
    thresholds: NDArray[np.float32],
    graph: Graph,
    judged: Chosen,
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """All metrics of a model's probabilities, as metrics.json holds them; levels are coarse → fine, with these names."""
    chosen, levels = choose(scores, thresholds, graph), []
    for level in range(len(thresholds)):
        part = judged & (graph.levels == level)
        if part.any():
            name = names[level] if names else f"level{level + 1}"
            own = {"name": name, "classes": int(part.sum()), "threshold": float(thresholds[level])}
            precision = average_precision(labels[:, part], scores[:, part])
            right = {"average_precision": precision, "exact": exact(labels[:, part], chosen[:, part])}
            levels.append(own | right | f1_scores(labels[:, part], chosen[:, part]))
    overall = {"auprc": average_precision(labels[:, judged], scores[:, judged])}
    return {"samples": len(labels), **overall, **f1_scores(labels[:, judged], chosen[:, judged]), "graph_levels": levels}


def samplewise(labels: Labels, scores: Scores, chosen: Chosen, graph: Graph, judged: Chosen, *, exclusive: bool) -> Samplewise:
    """What each sample adds to the figures over all classes, from probabilities and answers."""
    area = area_values(labels[:, judged], scores[:, judged])
    figures = f1_values(labels[:, judged], chosen[:, judged]) | ({} if area is None else {"auprc": area})
    if exclusive:
        figures["leaf_accuracy"] = leaf_values(labels, chosen, graph).astype(np.float64)
    return Samplewise(digest_of(labels), figures)
