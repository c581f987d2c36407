"""How good predictions are: per level, along the path, and how bad the mistakes are. All reduce across processes.

Samples whose label is unknown at a level do not count there. Numbers are fractions in [0, 1] unless said otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities.data import dim_zero_cat

from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy

MOST_FOR_AUC = 2000  # classes of a level; its scores are kept for all samples and classes, which is too much for more


class Ratio(Metric):
    """Base of metrics that are a mean over some of the samples: subclasses add to `total` and `count`."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def add(self, values: Tensor) -> None:
        """Count these values in."""
        self.total += values.double().sum()
        self.count += len(values)

    def compute(self) -> Tensor:
        """The mean so far; NaN when nothing was counted."""
        return self.total / self.count


class FullPathAccuracy(Ratio):
    """Share of samples with every level right, among those with every level known."""

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        known = (labels >= 0).all(dim=1)
        self.add((chosen == labels).all(dim=1)[known])


class Inconsistency(Ratio):
    """Share of samples whose most probable classes do not lie on one path of the tree (TICE)."""

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` is (B, K), fine first; labels are not needed."""
        broken = torch.zeros(len(chosen), dtype=torch.bool, device=chosen.device)
        for k, parents in enumerate(self.hierarchy.parents):
            up = torch.as_tensor(parents.copy(), device=chosen.device)
            broken |= up[chosen[:, k]] != chosen[:, k + 1]
        self.add(broken)


class MistakeSeverity(Ratio):
    """Mean height of the lowest common ancestor over wrong finest answers: 1 for a sibling, K for nothing in common.

    It falls when easy mistakes are added, so read it beside the accuracy.
    """

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        answer, truth = chosen[:, 0], labels[:, 0]
        wrong = (truth >= 0) & (answer != truth)
        height = self.hierarchy.lca_height(answer[wrong].cpu().numpy(), truth[wrong].cpu().numpy())
        self.add(torch.from_numpy(height).to(chosen.device))


class HierarchicalDistance(Ratio):
    """Mean height of the lowest common ancestor between the truth and each of the first k finest classes.

    The first is the class that is answered. The others follow as the rule of answering ranks them (`crm` by their expected
    distance, as in its public code; `path` by the product along the path), and by their probability where it ranks none.
    """

    def __init__(self, hierarchy: Hierarchy, k: int) -> None:
        super().__init__(hierarchy)
        self.k = k

    def update(self, ranked: Tensor, labels: Tensor) -> None:
        """`ranked` are finest classes (B, k or more), the best first, or all there are; `labels` (B, K)."""
        known = labels[:, 0] >= 0
        height = self.hierarchy.lca_height(ranked[known, : self.k].cpu().numpy(), labels[known, :1].cpu().numpy())
        self.add(torch.from_numpy(height).to(labels.device).double().mean(dim=1))


class HierarchicalOverlap(Metric):
    """Precision, recall and F1 of the set of answered nodes with all their ancestors (Kiritchenko), summed over samples.

    Levels where the label is unknown do not count. When the answers of all levels agree, precision and recall are the same.
    """

    full_state_update = False
    sums: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy
        self.add_state("sums", torch.zeros(3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        said = chosen[:, :0]  # the answers of this and all finer levels, carried up to this level
        for k in range(len(self.hierarchy)):
            if k:
                said = torch.as_tensor(self.hierarchy.parents[k - 1].copy(), device=chosen.device)[said]
            said = torch.cat([said, chosen[:, k : k + 1]], dim=1).sort(dim=1).values  # (B, k + 1)
            known = labels[:, k] >= 0
            distinct = 1 + (said[:, 1:] != said[:, :-1]).sum(dim=1)
            right = (said == labels[:, k : k + 1]).any(dim=1)
            self.sums += torch.stack([right[known].sum(), distinct[known].sum(), known.sum()]).double()

    def compute(self) -> Tensor:
        """(3,) precision, recall, F1; NaN when nothing was counted."""
        right, said, true = self.sums
        return torch.stack([right / said, right / true, 2 * right / (said + true)])


class ClassCounts(Metric):
    """How often each class was answered rightly, answered, and true: linear in the classes, where a confusion matrix is not."""

    full_state_update = False
    counts: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(size, 3, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """(B,) answers and (B,) labels, -1 where unknown."""
        known = labels >= 0
        said, true = chosen[known], labels[known]
        for column, found in enumerate((true[said == true], said, true)):
            self.counts[:, column] += torch.bincount(found, minlength=len(self.counts))

    def compute(self) -> Tensor:
        """(classes, 3)"""
        return self.counts


class CalibrationError(Metric):
    """Expected calibration error: |accuracy - probability of the answer| over 15 equal bins, weighted by their samples."""

    full_state_update = False
    bins: Tensor

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        self.add_state("bins", torch.zeros(bins, 3, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, probability: Tensor, right: Tensor) -> None:
        """(B,) probabilities of the answers, and whether they are right."""
        n = len(self.bins)
        place = (probability.double() * n).ceil().long().clamp(1, n) - 1  # bins are open on the left
        rows = torch.stack([torch.ones_like(probability), probability, right.to(probability.dtype)], dim=1).double()
        self.bins.index_add_(0, place, rows)

    def compute(self) -> Tensor:
        """The error so far; NaN when nothing was counted."""
        count, probability, right = self.bins.unbind(dim=1)
        return (probability - right).abs().sum() / count.sum()


class CalibrationErrors(nn.Module):
    """The calibration error of every level, of answers to samples whose label is known there."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.levels = [CalibrationError() for _ in hierarchy.sizes]
        self._all = nn.ModuleList(self.levels)  # so that .to(device) reaches them

    def update(self, prediction: Prediction, labels: Tensor) -> None:
        """Count a batch in. `labels` are (B, K), fine first, -1 where unknown."""
        chosen = prediction.chosen()
        for k, log_p in enumerate(prediction.log_probs):
            known = labels[:, k] >= 0
            probability = log_p.gather(1, chosen[:, k : k + 1]).squeeze(1).exp()
            self.levels[k].update(probability[known], (chosen[:, k] == labels[:, k])[known])

    def compute(self) -> list[float | None]:
        """The errors, coarse → fine; None where there was nothing to measure."""
        return [_measured(level) for level in reversed(self.levels)]


class MacroAUC(Metric):
    """Mean one-against-rest area under the ROC curve over the classes that occur and are not all there is.

    The rank statistic itself, ties counted half, so it needs no thresholds.
    """

    full_state_update = False
    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, log_probs: Tensor, labels: Tensor) -> None:
        """(B, C) scores and (B,) labels, -1 where unknown."""
        self.scores.append(log_probs[labels >= 0].float())
        self.labels.append(labels[labels >= 0])

    def compute(self) -> Tensor:
        """The mean over classes; NaN when no class has both positives and negatives."""
        if len(self.labels) == 0:  # a list, or one tensor once the processes have put theirs together
            return torch.tensor(torch.nan)
        scores, labels = dim_zero_cat(self.scores), dim_zero_cat(self.labels)
        areas = []
        for c in torch.unique(labels).tolist():
            positive = labels == c
            if not positive.all():
                areas.append(_area(scores[:, c], positive))
        return torch.stack(areas).mean() if areas else torch.tensor(torch.nan)


def _area(scores: Tensor, positive: Tensor) -> Tensor:
    """P(score of a positive > score of a negative) + half of P(equal)."""
    _, inverse, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    ends = counts.cumsum(0).double()
    ranks = (ends - (counts - 1) / 2)[inverse]  # average rank among ties, from 1
    n, m = positive.sum().double(), (~positive).sum().double()
    area: Tensor = (ranks[positive].sum() - n * (n + 1) / 2) / (n * m)
    return area


class HierarchyMetrics(nn.Module):
    """All of them at once, in the layout of `metrics.json`.

    The macro precision and F1 of a level are those of scikit-learn: means over the classes that are true or answered, so an
    answer that is never true counts as 0. The mean class recall is its balanced accuracy: over the classes that are true.

    >>> metrics = HierarchyMetrics(tree)
    >>> metrics.update(prediction, labels)           # as often as there are batches
    >>> metrics.compute()["mean_accuracy"]
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy
        self.counts = [ClassCounts(size) for size in hierarchy.sizes]
        self.auc = [MacroAUC() for _ in hierarchy.sizes]
        self.calibration = CalibrationErrors(hierarchy)
        self.along_path = {
            "full_path_accuracy": FullPathAccuracy(hierarchy),
            "inconsistency": Inconsistency(hierarchy),
            "mistake_severity": MistakeSeverity(hierarchy),
        }
        self.distance = {str(k): HierarchicalDistance(hierarchy, k) for k in (1, 5, 20)}
        self.overlap = HierarchicalOverlap(hierarchy)
        several = [*self.counts, *self.auc, *self.calibration.levels, *self.along_path.values(), *self.distance.values()]
        self._all = nn.ModuleList([*several, self.overlap])  # so that .to(device) reaches them

    def update(self, prediction: Prediction, labels: Tensor) -> None:
        """Count a batch in. `labels` are (B, K), fine first, -1 where unknown."""
        chosen = prediction.chosen()
        for k, log_p in enumerate(prediction.log_probs):
            self.counts[k].update(chosen[:, k], labels[:, k])
            if log_p.shape[1] <= MOST_FOR_AUC:
                self.auc[k].update(log_p, labels[:, k])
        self.calibration.update(prediction, labels)
        for metric in (*self.along_path.values(), self.overlap):
            metric.update(chosen, labels)
        ranked = prediction.ranked(max(distance.k for distance in self.distance.values()))
        for distance in self.distance.values():
            distance.update(ranked, labels)

    def compute(self) -> dict[str, Any]:
        """The content of `metrics.json`: levels coarse → fine; None where there was nothing to measure."""
        levels = [self._level(k) for k in self.hierarchy.top_down]
        accuracies = [level["accuracy"] for level in levels if level["accuracy"] is not None]
        overlap = self.overlap.compute() if self.overlap.update_called else torch.full((3,), torch.nan)
        return {
            "levels": levels,
            "mean_accuracy": sum(accuracies) / len(accuracies) if accuracies else None,
            **{name: _measured(metric) for name, metric in self.along_path.items()},
            "hierarchical_distance": {name: _measured(metric) for name, metric in self.distance.items()},
            **{f"hierarchical_{n}": _number(v) for n, v in zip(("precision", "recall", "f1"), overlap, strict=True)},
        }

    def _level(self, k: int) -> dict[str, Any]:
        counts = self.counts[k].compute() if self.counts[k].update_called else self.counts[k].counts
        true_positive, predicted, support = counts.double().unbind(dim=1)
        recall = (true_positive / support)[support > 0]
        either = predicted + support > 0
        precision = torch.where(predicted > 0, true_positive / predicted, 0.0)[either]  # never predicted: 0
        f1 = (2 * true_positive / (predicted + support))[either]
        return {
            "name": self.hierarchy.levels[k],
            "classes": self.hierarchy.sizes[k],
            "samples": int(support.sum()),
            "accuracy": _number(true_positive.sum() / support.sum()),
            **self._by_siblings(k, true_positive, support),
            "mean_class_recall": _number(recall.mean()),
            "macro_precision": _number(precision.mean()),
            "macro_f1": _number(f1.mean()),
            "macro_auc": _measured(self.auc[k]),
            "ece": _measured(self.calibration.levels[k]),
        }

    def _by_siblings(self, k: int, right: Tensor, support: Tensor) -> dict[str, float | None]:
        """Accuracy on classes with and without siblings; a class without follows from its parent. Not at the coarsest level."""
        if k + 1 == len(self.hierarchy):
            return {}
        parents = torch.as_tensor(self.hierarchy.parents[k].copy(), device=right.device)
        several = (torch.bincount(parents) > 1)[parents]
        return {
            name: _number(right[rows].sum() / support[rows].sum())
            for name, rows in (("accuracy_with_siblings", several), ("accuracy_without_siblings", ~several))
        }


def _measured(metric: Metric) -> float | None:
    return _number(metric.compute()) if metric.update_called else None


def _number(value: Tensor) -> float | None:
    """A plain number, or None where there was nothing to measure."""
    return None if torch.isnan(value) else value.item()
