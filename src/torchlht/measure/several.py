"""Metrics for several labels per sample. Unknown labels are left out.

AU(PRC)     the area under one precision-recall curve over all samples and classes: scikit-learn's micro average precision
F1          hierarchical: answers and labels count with all their ancestors; `micro` over everything, `macro` over samples
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.answer.several import choose
from torchlht.hierarchy.graph import Graph, Labels

Scores = NDArray[np.float32]
Chosen = NDArray[np.bool_]


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
    known = labels >= 0
    there, said = labels == 1, chosen & known
    right, total = (there & said).sum(1), there.sum(1) + said.sum(1)
    macro = np.where(total, 2 * right / np.maximum(total, 1), 1.0)  # nothing said where nothing is there is right
    return {"f1_micro": float(2 * right.sum() / max(total.sum(), 1)), "f1_macro": float(macro.mean())}


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


def measure(labels: Labels, scores: Scores, thresholds: NDArray[np.float32], graph: Graph, judged: Chosen) -> dict[str, Any]:
    """All metrics of a model's probabilities, as metrics.json holds them; levels are coarse → fine."""
    chosen, levels = choose(scores, thresholds, graph), []
    for level in range(len(thresholds)):
        part = judged & (graph.levels == level)
        if part.any():
            own = {"name": f"level{level + 1}", "classes": int(part.sum()), "threshold": float(thresholds[level])}
            precision = average_precision(labels[:, part], scores[:, part])
            levels.append(own | {"average_precision": precision} | f1_scores(labels[:, part], chosen[:, part]))
    overall = {"auprc": average_precision(labels[:, judged], scores[:, judged])}
    return {"samples": len(labels), **overall, **f1_scores(labels[:, judged], chosen[:, judged]), "graph_levels": levels}
