"""How good predictions are: per level, along the path, and how bad mistakes are. All are reduced across processes.

Samples whose label is unknown at a level do not count there, nor those whose branch of the tree ends above it or skips it: they
have no class there to be right about. What stands in for it is no class of the level either. The whole path of a sample is the
classes it has, and that its branch ends there. Distances are those of the tree with every branch drawn down to the finest
level.

Numbers are fractions in [0, 1] unless stated otherwise.

A metric is declared once, here. `metric` registers its `Spec`, which metrics.json, results.csv, table.md, the
terminal, the report and the plots read. A new one is a decorated function or class in this file, with a naive
version in tests/unit/test_metrics.py; it then appears everywhere, with a dash where it was not measured.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from torchlht.doors import entrance
from torchlht.errors import ConfigError
from torchlht.heads.method import check_labels
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.base import Metric

RANKED = 20  # finest classes per sample that metrics can use, the best first
MOST_FOR_AUC = 2000  # classes of a level; AUC keeps scores of all samples and classes, too many beyond this
UNITS = {"%": (100, 1), "height": (1, 2), "count": (1, 0)}  # factor and digits for showing a figure

HIDDEN: dict[str, Any] = {"terminal": "", "table": "", "report": ""}  # in metrics.json and results.csv only

T = TypeVar("T", bound=Callable[..., Any])


# ---- what a metric is ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spec:
    """A metric's name, unit and meaning; reading it computes nothing.

    Attributes:
        name: its column in results.csv.
        heading: its name for people.
        per: "level" or "run".
        better: "higher" or "lower".
        meaning: what it means, for people; by default the first paragraph of the docstring of `by`.
        unit: "%" (kept as a fraction), "height" of the lowest common ancestor, "count", or any other.
        key: its key in metrics.json, or in a level of it; its name by default.
        terminal, table, report: its heading in the terminal, in table.md and in the report; empty if it is not shown.
        place: its place among the columns of table.md, ascending.
        by: the function or class that computes it, see `metric`; None if training records it.
        options: options of that class.
        part: which of several numbers of that class.
        most: the most classes of a level it is measured at.
    """

    name: str
    heading: str
    per: Literal["level", "run"]
    better: Literal["higher", "lower"]
    meaning: str = ""
    unit: str = "%"
    key: tuple[str, ...] = ()
    terminal: str | None = None
    table: str | None = None
    report: str | None = None
    place: int = 100
    by: Callable[..., Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    part: int | None = None
    most: float = math.inf

    def headed(self, where: str) -> str:
        """Its heading in the terminal, the table or the report, with its unit if the figures do not show it."""
        given: str | None = getattr(self, where)
        heading = self.heading if given is None else given
        return heading if self.unit in UNITS or not heading else f"{heading}, {self.unit}"

    def axis(self, where: str = "") -> str:
        """The label of an axis: "accuracy on test samples, %"."""
        return f"{self.heading}{where}" + ("" if self.unit == "count" else f", {self.unit}")

    @property
    def scale(self) -> int:
        """The factor for showing a figure."""
        return UNITS.get(self.unit, (1, 2))[0]

    def text(self, value: float | None, sign: str = "") -> str:
        """A figure as text: 0.941 → "94.1"; a dash for None."""
        return "–" if value is None else f"{self.scale * value:{sign}.{UNITS.get(self.unit, (1, 2))[1]}f}"

    def goodness(self, value: float) -> float:
        """The figure, or its negative, so that larger is better."""
        return value if self.better == "higher" else -value

    def of(self, found: Mapping[str, Any]) -> float | None:
        """Its figure in a metrics.json, or in a level of one; None if it was not measured."""
        *above, last = self.key or (self.name,)
        for key in above:
            found = found.get(key, {})
        return found.get(last)

    def put(self, found: dict[str, Any], value: float | None) -> None:
        """Write its figure where `of` finds it."""
        *above, last = self.key or (self.name,)
        for key in above:
            found = found.setdefault(key, {})
        found[last] = value


REGISTER: dict[str, Spec] = {}


def specs(per: str | None = None, shown: str | None = None) -> list[Spec]:
    """The metrics in the order of declaration; optionally only those per "level" or "run", or with a heading in one place."""
    return [s for s in REGISTER.values() if per in (None, s.per) and (shown is None or s.headed(shown))]


def metric(name: str, heading: str, **facts: Any) -> Callable[[T], T]:
    """Register a metric with the fields of `Spec`. The decorated object computes it:

    - per level, a function of `Counts`; NaN when there is nothing to measure, None if the level has no such figure;
    - per run, a function of the levels of metrics.json, coarse → fine;
    - a subclass of `Metric` (or of torchmetrics.Metric), built without arguments for every level, or with the hierarchy for a
      run, and with `options`. The parameters of its `update` name attributes of `LevelBatch` or of `Batch`.

    Raises:
        ConfigError: when a metric has this name already.
    """
    if name in REGISTER:
        raise ConfigError(f"there is a metric {name} already: choose another name")

    def register(by: T) -> T:
        said = inspect.cleandoc(by.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        REGISTER[name] = Spec(name, heading, by=by, **{"meaning": said, **facts})
        return by

    return register


class Batch:
    """The inputs of metrics of a run.

    Attributes:
        prediction: the prediction.
        labels: (B, K), fine first, -1 where unknown.
        chosen: (B, K) answers, fine first.
        real: the same as `labels`, but -1 also where a class only stands in.
        ranked: (B, at most 20) finest classes, the best first.
    """

    def __init__(self, prediction: Prediction, labels: Tensor, hierarchy: Hierarchy) -> None:
        self.prediction, self.labels, self.chosen = prediction, labels, prediction.chosen()
        self.real = only_real(labels, hierarchy)

    @cached_property
    def ranked(self) -> Tensor:
        """The best finest classes, computed on first use."""
        return self.prediction.ranked(RANKED)


def only_real(labels: Tensor, hierarchy: Hierarchy) -> Tensor:
    """See `Hierarchy.only_real`."""
    return torch.from_numpy(hierarchy.only_real(labels.cpu().numpy())).to(labels) if hierarchy.ragged else labels


class LevelBatch:
    """The inputs of metrics of a level, for the B samples that have a class there which is known.

    Attributes:
        labels: (B,).
        chosen: (B,) answers.
        log_probs: (B, C).
        probability: (B,) probability of the answers.
        right: (B,) whether they are right.
    """

    def __init__(self, batch: Batch, k: int) -> None:
        known = batch.real[:, k] >= 0
        self.labels, self.chosen = batch.real[known, k], batch.chosen[known, k]
        self.log_probs = batch.prediction.log_probs[k][known]
        self.probability = self.log_probs.gather(1, self.chosen.unsqueeze(1)).squeeze(1).exp()
        self.right = self.chosen == self.labels


def count_in(one: Metric, batch: Batch | LevelBatch) -> None:
    """Update a metric with the inputs that its `update` names."""
    one.update(*(getattr(batch, name) for name in _asked(type(one).update)))


@cache
def _asked(update: Callable[..., None]) -> tuple[str, ...]:
    return tuple(inspect.signature(update).parameters)[1:]


# ---- per level: from counts of classes -----------------------------------------------------------------------------


class ClassCounts(Metric):
    """How often each class was answered correctly, answered, and true: linear in the classes, unlike a confusion matrix."""

    counts: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.add_state("counts", torch.zeros(size, 3, dtype=torch.int64))

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """(B,) answers and (B,) labels, -1 where unknown."""
        known = labels >= 0
        said, true = chosen[known], labels[known]
        for column, found in enumerate((true[said == true], said, true)):
            self.counts[:, column] += torch.bincount(found, minlength=len(self.counts))

    def compute(self) -> Tensor:
        """(classes, 3)"""
        return self.counts


class Counts(NamedTuple):
    """The counts that metrics of a level are computed from.

    Attributes:
        right, said, true: (C,) how often each class was answered correctly, answered, and true.
        siblings: (C,) whether it has siblings; None at the coarsest level.
    """

    right: Tensor
    said: Tensor
    true: Tensor
    siblings: Tensor | None


@metric("accuracy", "accuracy", per="level", better="higher")
def accuracy(counts: Counts) -> Tensor:
    """The share of samples that is answered rightly."""
    return counts.right.sum() / counts.true.sum()


@metric("accuracy_with_siblings", "with siblings", per="level", better="higher", place=7, terminal="", report="")
def accuracy_with_siblings(counts: Counts) -> Tensor | None:
    """The accuracy on classes whose parent has other children, too; not at the coarsest level."""
    some = counts.siblings
    return None if some is None else counts.right[some].sum() / counts.true[some].sum()


@metric("accuracy_without_siblings", "without siblings", per="level", better="higher", place=8, terminal="", report="")
def accuracy_without_siblings(counts: Counts) -> Tensor | None:
    """The accuracy on only children, which follow from their parent; not at the coarsest level."""
    some = None if counts.siblings is None else ~counts.siblings
    return None if some is None else counts.right[some].sum() / counts.true[some].sum()


@metric("mean_class_recall", "mean class recall", per="level", better="higher", table="class recall", place=4)
def mean_class_recall(counts: Counts) -> Tensor:
    """The accuracy class by class, then averaged, so that rare classes count as much as common ones.

    The balanced accuracy of scikit-learn: over the classes that are true.
    """
    return (counts.right / counts.true)[counts.true > 0].mean()


@metric("macro_precision", "macro precision", per="level", better="higher", **HIDDEN)
def macro_precision(counts: Counts) -> Tensor:
    """The share of a class's answers that is right, averaged over the classes that are true or answered.

    As in scikit-learn, a class that is never answered counts as 0.
    """
    share = torch.where(counts.said > 0, counts.right / counts.said, 0.0)
    return share[counts.said + counts.true > 0].mean()


@metric("macro_f1", "macro F1", per="level", better="higher", place=5)
def macro_f1(counts: Counts) -> Tensor:
    """Precision and recall of each class in one number, averaged over the classes that are true or answered.

    As in scikit-learn, an answer that is never true counts as 0.
    """
    return (2 * counts.right / (counts.said + counts.true))[counts.said + counts.true > 0].mean()


# ---- per level: from probabilities ---------------------------------------------------------------------------------


@metric("macro_auc", "AUC", per="level", better="higher", table="", most=MOST_FOR_AUC)
class MacroAUC(Metric):
    """How well scores rank the samples of a class above all others; 50 is chance.

    The one-against-rest area under the ROC curve, averaged over the classes that have both positives and negatives. It is the
    rank statistic itself, with ties counted half, so it needs no thresholds.
    """

    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("scores", [])
        self.add_state("labels", [])

    def update(self, log_probs: Tensor, labels: Tensor) -> None:
        """(B, C) scores and (B,) labels, -1 where unknown."""
        self.scores.append(log_probs[labels >= 0].float())
        self.labels.append(labels[labels >= 0])

    def compute(self) -> Tensor:
        """The mean over classes; NaN when no class has both positives and negatives."""
        if not self.labels:
            return torch.tensor(torch.nan)
        scores, labels = torch.cat(self.scores), torch.cat(self.labels)
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


@metric("ece", "calibration error (ECE)", per="level", better="lower", terminal="", table="ECE", place=6)
class CalibrationError(Metric):
    """How far probabilities are from what comes true, averaged over answers.

    Expected calibration error: |accuracy - probability of the answer| over 15 equal bins, weighted by their samples.
    """

    bins: Tensor

    def __init__(self, bins: int = 15) -> None:
        super().__init__()
        self.add_state("bins", torch.zeros(bins, 3, dtype=torch.float64))

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


# ---- per run -------------------------------------------------------------------------------------------------------


@metric("mean_accuracy", "mean accuracy", per="run", better="higher", terminal="mean over levels", table="mACC")
def mean_accuracy(levels: Sequence[Mapping[str, Any]]) -> float:
    """The accuracy, averaged over the levels with labels."""
    found = [level["accuracy"] for level in levels if level["accuracy"] is not None]
    return sum(found) / len(found) if found else math.nan


class Ratio(Metric):
    """Base of metrics that are a mean over some samples: subclasses add to `total` and `count`."""

    total: Tensor
    count: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy
        self.add_state("total", torch.zeros((), dtype=torch.float64))
        self.add_state("count", torch.zeros((), dtype=torch.float64))

    def add(self, values: Tensor) -> None:
        """Add these values."""
        self.total += values.double().sum()
        self.count += len(values)

    def compute(self) -> Tensor:
        """The mean so far; NaN when nothing was counted."""
        return self.total / self.count


@metric("full_path_accuracy", "whole path right", per="run", better="higher", table="whole path", place=1)
class FullPathAccuracy(Ratio):
    """The share of samples with every level right, among those with every level known."""

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        known = (labels >= 0).all(dim=1)
        self.add((chosen == labels).all(dim=1)[known])


@metric("inconsistency", "levels disagree", per="run", better="lower", place=2)
class Inconsistency(Ratio):
    """The share of samples whose answers do not lie on one path of the tree (TICE)."""

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` is (B, K), fine first; labels are not needed."""
        broken = torch.zeros(len(chosen), dtype=torch.bool, device=chosen.device)
        for k, parents in enumerate(self.hierarchy.parents):
            up = torch.as_tensor(parents.copy(), device=chosen.device)
            broken |= up[chosen[:, k]] != chosen[:, k + 1]
        self.add(broken)


@metric("mistake_severity", "mistake severity", per="run", better="lower", unit="height", table="severity", place=9)
class MistakeSeverity(Ratio):
    """By how many levels wrong finest answers are off, 1 being a sibling; it falls when easy mistakes are added, so read it
    beside the accuracy.

    The mean height of the lowest common ancestor, K for nothing in common.
    """

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        answer, truth = chosen[:, 0], labels[:, 0]
        wrong = (truth >= 0) & (answer != truth)
        height = self.hierarchy.lca_height(answer[wrong].cpu().numpy(), truth[wrong].cpu().numpy())
        self.add(torch.from_numpy(height).to(chosen.device))


@metric("hierarchical_f1", "hierarchical F1", per="run", better="higher", part=2, terminal="", table="hF1", place=3)
@metric("hierarchical_recall", "hierarchical recall", per="run", better="higher", part=1, **HIDDEN)
@metric("hierarchical_precision", "hierarchical precision", per="run", better="higher", part=0, **HIDDEN)
class HierarchicalOverlap(Metric):
    """How far the answered classes with all their ancestors are the true ones.

    Precision, recall and F1 of the set of answered nodes with all their ancestors (Kiritchenko), summed over samples.
    Levels where the label is unknown do not count. When the answers of all levels agree, precision and recall are the same.
    """

    sums: Tensor

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy = hierarchy
        self.add_state("sums", torch.zeros(3, dtype=torch.float64))

    def update(self, chosen: Tensor, labels: Tensor) -> None:
        """`chosen` and `labels` are (B, K), fine first."""
        said = chosen[:, :0]  # the answers of this and all finer levels, carried up to this level
        for k in range(len(self.hierarchy)):
            if k:
                said = torch.as_tensor(self.hierarchy.parents[k - 1].copy(), device=chosen.device)[said]
            said = torch.cat([said, chosen[:, k : k + 1]], dim=1).sort(dim=1).values  # (B, k + 1)
            known, stands = labels[:, k] >= 0, torch.as_tensor(self.hierarchy.stand_ins[k], device=chosen.device)
            fresh = torch.cat([torch.ones_like(known)[:, None], said[:, 1:] != said[:, :-1]], dim=1) & ~stands[said]
            there = known & ~stands[labels[:, k].clamp(min=0)]
            right = (said == labels[:, k : k + 1]).any(dim=1)
            self.sums += torch.stack([right[there].sum(), fresh[known].sum(), there.sum()]).double()

    def compute(self) -> Tensor:
        """(3,) precision, recall, F1; NaN when nothing was counted."""
        right, said, true = self.sums
        return torch.stack([right / said, right / true, 2 * right / (said + true)])


class HierarchicalDistance(Ratio):
    """By how many levels the first k finest classes are off: the mean height of their lowest common ancestor with the truth.

    The first is the class that is answered. The others follow as the rule of answering ranks them (`crm` by their expected
    distance, as in its public code; `path` by the product along the path), and by their probability where it ranks none.
    """

    def __init__(self, hierarchy: Hierarchy, k: int) -> None:
        super().__init__(hierarchy)
        self.k = k

    def update(self, ranked: Tensor, labels: Tensor) -> None:
        """`ranked` are finest classes (B, at least k, or all), the best first; `labels` (B, K)."""
        known = labels[:, 0] >= 0
        height = self.hierarchy.lca_height(ranked[known, : self.k].cpu().numpy(), labels[known, :1].cpu().numpy())
        self.add(torch.from_numpy(height).to(labels.device).double().mean(dim=1))


for k in (1, 5, RANKED):
    shown = {"terminal": "", "table": "distance@1" if k == 1 else f"@{k}", "report": "", "place": 9 + k}
    kept = {"key": ("hierarchical_distance", str(k)), "options": {"k": k}}
    metric(f"hierarchical_distance_{k}", f"distance@{k}", per="run", better="lower", unit="height", **shown, **kept)(
        HierarchicalDistance
    )

for name, unit, said in (  # training records them
    ("train_seconds", "s", "The time that training took."),
    ("seconds_per_step", "s", "The time that a step of training took; none where there are no steps."),
    ("parameters", "count", "How many numbers training fits."),
):
    REGISTER[name] = Spec(name, name.replace("_", " "), "run", "lower", said, unit, terminal="", table="", report="")
REGISTER["samples"] = Spec("samples", "samples", "level", "higher", "How many have a label.", "count", **HIDDEN)


# ---- all of them ---------------------------------------------------------------------------------------------------


class CalibrationErrors(nn.Module):
    """The calibration error of every level, over samples whose label is known there."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy, self.levels = hierarchy, [CalibrationError() for _ in hierarchy.sizes]
        self._all = nn.ModuleList(self.levels)  # so that .to(device) reaches them

    def update(self, prediction: Prediction, labels: Tensor) -> None:
        """Add a batch. `labels` are (B, K), fine first, -1 where unknown."""
        batch = Batch(prediction, labels, self.hierarchy)
        for k, level in enumerate(self.levels):
            count_in(level, LevelBatch(batch, k))

    def compute(self) -> list[float | None]:
        """The errors, coarse → fine; None if there was nothing to measure."""
        return [_number(_measured(level)) for level in reversed(self.levels)]


class HierarchyMetrics(nn.Module):
    """All metrics at once, in the layout of `metrics.json`.

    >>> metrics = HierarchyMetrics(tree)
    >>> metrics.update(prediction, labels)           # for every batch
    >>> metrics.compute()["mean_accuracy"]
    """

    @entrance
    def __init__(self, hierarchy: Hierarchy) -> None:
        super().__init__()
        self.hierarchy, self.specs = hierarchy, [spec for spec in specs() if spec.by]
        self.counts = [ClassCounts(size) for size in hierarchy.sizes]
        kinds = [(s, s.by) for s in self.specs if isinstance(s.by, type)]
        self.at_level = [
            {s.name: kind(**s.options) for s, kind in kinds if s.per == "level" and size <= s.most} for size in hierarchy.sizes
        ]
        shared: dict[Any, Metric] = {}  # one instance for metrics that are parts of it
        self.along_path = {
            s.name: shared.setdefault((kind, *s.options.items()), kind(hierarchy, **s.options))
            for s, kind in kinds
            if s.per == "run"
        }
        self.run = list(shared.values())
        levels = [one for found in self.at_level for one in found.values()]
        self._all = nn.ModuleList([*self.counts, *levels, *self.run])  # so that .to(device) reaches them

    @entrance
    def update(self, prediction: Prediction, labels: Tensor) -> None:
        """Add a batch. `labels` are (B, K), fine first, -1 where unknown."""
        check_labels(labels, self.hierarchy, len(prediction.log_probs[0]))
        batch = Batch(prediction, labels, self.hierarchy)
        for one in self.run:
            count_in(one, batch)
        for k in range(len(self.hierarchy)):
            level = LevelBatch(batch, k)
            for one in (self.counts[k], *self.at_level[k].values()):
                count_in(one, level)

    def compute(self) -> dict[str, Any]:
        """The content of `metrics.json`: levels coarse → fine; None if there was nothing to measure."""
        found: dict[str, Any] = {"levels": [self._level(k) for k in self.hierarchy.top_down]}
        self._fill(found, "run", self.along_path, found["levels"])
        return found

    def _level(self, k: int) -> dict[str, Any]:
        counts = self.counts[k].compute() if self.counts[k].update_called else self.counts[k].counts
        tree, real = self.hierarchy, ~torch.as_tensor(self.hierarchy.stand_ins[k], device=counts.device)
        found = {"name": tree.levels[k], "classes": tree.real_sizes[k], "samples": int(counts[:, 2].sum())}
        right, said, true = (counts * real[:, None]).double().unbind(dim=1)
        self._fill(found, "level", self.at_level[k], Counts(right, said, true, self._siblings(k, counts.device)))
        return found

    def _fill(self, found: dict[str, Any], per: str, measured: Mapping[str, Metric], basis: Any) -> None:
        """Fill in measured metrics, and those that functions compute from the basis: counts, or the levels."""
        for spec in self.specs:
            if spec.per == per and spec.by:
                value = _measured(measured.get(spec.name), spec.part) if isinstance(spec.by, type) else spec.by(basis)
                if value is not None:
                    spec.put(found, _number(value))

    def _siblings(self, k: int, device: torch.device) -> Tensor | None:
        if k + 1 == len(self.hierarchy):
            return None
        parents = torch.as_tensor(self.hierarchy.parents[k].copy(), device=device)
        return (torch.bincount(parents) > 1)[parents]


def _measured(one: Metric | None, part: int | None = None) -> Tensor | float:
    if one is None or not one.update_called:
        return math.nan
    found: Tensor = one.compute()
    return found if part is None else found[part]


def _number(value: Tensor | float) -> float | None:
    """A plain number, or None if there was nothing to measure."""
    return None if value != value else float(value)
