"""Predictions in names: the answer, its level, its rule, its probability, and the runners-up.

`Restriction` limits the possible classes by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.calibration import Calibration
from torchlht.answer.html import answer_html
from torchlht.answer.novelty import ALARMS
from torchlht.doors import entrance
from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy

Bools = NDArray[np.bool_]
RUNNERS_UP = 3


@dataclass(frozen=True)
class Candidate:
    """A class and its probability.

    Attributes:
        label: the class.
        probability: its probability at the level that was asked about.
        level: its own level if that is coarser, since its branch ends there or skips the level that was asked about.
    """

    label: str
    probability: float
    level: str | None = None

    @property
    def text(self) -> str:
        """For people: "Ivory Gull"; "Gaviidae (family)" where a species was asked and the branch ends there."""
        return f"{self.label} ({self.level})" if self.level else self.label


@dataclass(frozen=True)
class LevelAnswer:
    """The answer at one level.

    Attributes:
        level: its name.
        candidates: the answer first, then the most probable others.
        path: the answer's ancestors and itself, coarse → fine.
        path_probabilities: their probabilities, each at its own level.
        beside: the most probable other classes of this level.
        below: the most probable classes of the next finer level under the answer.
        ends: whether the branch of the answer has nothing finer, although the tree has finer levels: it ends here, or further
            up if `label` is None.
        as_far: the share of known samples that are at least as far from what was trained on; None if that was not measured.
    """

    level: str
    candidates: tuple[Candidate, ...]
    path: tuple[str, ...] = ()
    path_probabilities: tuple[float, ...] = ()
    beside: tuple[Candidate, ...] = ()
    below: tuple[Candidate, ...] = ()
    ends: bool = False
    as_far: float | None = None

    @property
    def unlike(self) -> bool:
        """Whether it is unlike any class of this level, since few known samples are as far; see `ALARMS`."""
        return self.as_far is not None and self.as_far < ALARMS

    def __repr__(self) -> str:
        return f"LevelAnswer({self.label!r}, level={self.level!r}, probability={self.probability:.3g})"

    @property
    def label(self) -> str | None:
        """The answer; usually the most probable class. None if its branch ends further up, or skips the level."""
        return None if self.candidates[0].level else self.candidates[0].label

    @property
    def text(self) -> str:
        """The answer for people, which is "(ends)" if its branch ends further up, "(none)" if it skips the level."""
        return self.label or ("(ends)" if self.ends else "(none)")

    @property
    def probability(self) -> float:
        """Its probability."""
        return self.candidates[0].probability


class Wanted(NamedTuple):
    """The least probability of an answer, and where that number comes from: "confidence 0.9", "risk 0.05", or None."""

    threshold: float = 0.0
    promise: str | None = None


@dataclass(frozen=True)
class Answer:
    """One answer, as deep as it is sure enough, and where it came from.

        Answer('Laridae', level='family', probability=0.94)

    Attributes:
        label: the class; None if nothing reaches the threshold.
        level: its level, or None.
        probability: its probability, or None.
        path: its ancestors and itself, coarse → fine.
        path_probabilities: their probabilities, each at its own level.
        rule: how classes were chosen: "path", "own", …
        threshold: the least probability of an answer; 0 if the finest level is always answered.
        promise: where the threshold comes from: "confidence 0.9", "risk 0.05", or None.
        undecided: the next finer level, where nothing reached the threshold; None if the finest level is answered, or the
            branch ends at the answer.
        runners_up: the most probable classes there under the answer; where nothing is undecided, the most probable others.
        unlike: in words, the coarsest level whose classes it is all unlike; None if it is like known samples, or that was not
            measured.
        ends: whether the branch ends at the answer, above the finest level: there is nothing finer to know.
    """

    label: str | None
    level: str | None
    probability: float | None
    path: tuple[str, ...]
    path_probabilities: tuple[float, ...]
    rule: str
    threshold: float
    promise: str | None
    undecided: str | None
    runners_up: tuple[Candidate, ...]
    unlike: str | None = None
    ends: bool = False

    def __repr__(self) -> str:
        if self.probability is None:
            return f"Answer(None, threshold={self.threshold:.3g}{f', {self.unlike}' if self.unlike else ''})"
        return f"Answer({self.label!r}, level={self.level!r}, probability={self.probability:.3g})"


@dataclass(frozen=True)
class Named:
    """A prediction for one sample in names, levels coarse → fine.

        >>> named = model.predict("beach.jpg")[0]
        >>> named["family"].label, named["family"].probability
        ('Laridae', 0.94)
        >>> named.answer(confidence=0.9)
        Answer('Laridae', level='family', probability=0.94)

    Attributes:
        source: the picture's path, or the row of the features.
        levels: one answer per level, coarse → fine.
        consistent: whether the answers are on one path of the tree.
        rule: how they were chosen.
        calibration: of the probabilities, or None.
        restricted: whether only some classes were allowed.
        ragged: whether branches of the tree may end early or skip levels.
    """

    source: str
    levels: tuple[LevelAnswer, ...]
    consistent: bool
    rule: str = "own"
    calibration: Calibration | None = field(default=None, repr=False, compare=False)
    restricted: bool = False
    ragged: bool = False

    def __getitem__(self, level: str) -> LevelAnswer:
        for answer in self.levels:
            if answer.level == level:
                return answer
        raise KeyError(f"no level {level!r} (levels: {', '.join(answer.level for answer in self.levels)})")

    def __str__(self) -> str:
        return " › ".join(f"{answer.label} {answer.probability:.0%}" for answer in self.levels if answer.label is not None)

    def __repr__(self) -> str:
        return f"Named({self.source!r}: {self})"

    def _repr_html_(self) -> str:
        """The picture and a bar per level, for notebooks."""
        return answer_html(self)

    @property
    def names(self) -> dict[str, str | None]:
        """The name of each level and the answer there, coarse → fine.

        None where the branch has no class; see `ends_at`.
        """
        return {answer.level: answer.label for answer in self.levels}

    @property
    def ends_at(self) -> str | None:
        """The level at which the branch of the finest answer ends, if that is not the finest level."""
        return self.levels[-1].candidates[0].level

    @property
    def unlike(self) -> str | None:
        """In words, the coarsest level whose classes it is all unlike; None if it is like known samples."""
        for place, level in enumerate(self.levels):
            if level.unlike:
                assert level.as_far is not None
                what = f"any {level.level} I was trained on" if place else "anything I was trained on"
                return f"unlike {what} (further from every {level.level} than {percent_below(level.as_far)} % of known samples)"
        return None

    @entrance
    def answer(self, *, confidence: float | None = None, risk: float | None = None, strict: bool = False) -> Answer:
        """The deepest answer that is sure enough; without arguments, the finest one.

        Args:
            confidence: the least probability of the answer.
            risk: the share of answers that may be wrong; the threshold comes from the calibration.
            strict: for `risk`, count validation answers that no label can check as wrong.

        Raises:
            ConfigError: when both are given, or the risk cannot be promised.
        """
        found = wanted(confidence, risk, self.rule, self.calibration, restricted=self.restricted, strict=strict)
        return self.answer_at(found)

    def answer_at(self, asked: Wanted) -> Answer:
        """The deepest answer whose probability reaches a threshold.

        With a confidence or a risk, a level whose classes the sample is all unlike is not answered. It only moves answers up,
        so the share of wrong ones that was promised holds.
        """
        finer: str | None = None
        for level in reversed(self.levels):
            if level.probability >= asked.threshold and not (asked.promise and level.unlike):
                own = level.candidates[0]
                probability = level.path_probabilities[-1] if own.level else level.probability
                found = (own.label, own.level or level.level, probability, level.path, level.path_probabilities)
                finer = None if level.ends else finer
                beyond = level.below if finer else level.beside
                return Answer(*found, self.rule, *asked, finer, beyond, self.unlike, level.ends)
            finer = level.level
        nothing, top = (None, None, None, (), ()), self.levels[0]
        likeliest = (top.candidates[0], *top.beside)[:RUNNERS_UP]
        return Answer(*nothing, self.rule, *asked, undecided=finer, runners_up=likeliest, unlike=self.unlike)


def percent_below(share: float) -> str:
    """The rest of a share in percent, never rounded up to 100: 0.005 is 99.5, 0.0004 is 99.9."""
    return f"{math.floor(1000 * (1 - share) + 1e-6) / 10:g}"


def wanted(
    confidence: float | None,
    risk: float | None,
    rule: str,
    calibration: Calibration | None,
    *,
    restricted: bool = False,
    strict: bool = False,
) -> Wanted:
    """The threshold for a confidence or a risk.

    Raises:
        ConfigError: when both are given, one is not a share, or the risk cannot be promised.
    """
    if confidence is not None and risk is not None:
        raise ConfigError("`confidence` and `risk` both set a threshold: pass one of them")
    if confidence is not None:
        if not 0 <= confidence <= 1:
            raise ConfigError(f"`confidence` is {confidence:g}: it must be a probability from 0 to 1")
        return Wanted(confidence, f"confidence {confidence:g}")
    if risk is None:
        return Wanted()
    if restricted:
        raise ConfigError(
            "`risk` was measured with all classes and cannot be promised with `only` or `exclude`: pass `confidence` instead"
        )
    if calibration is None:
        raise ConfigError(
            "`risk` needs a calibrated run: train with `val=0.1`, or run lht calibrate RUN DATA with labelled samples "
            "that it was not trained on"
        )
    return Wanted(calibration.threshold(risk, rule, strict=strict), f"risk {risk:g}{', strict' if strict else ''}")


# ---- from tensors --------------------------------------------------------------------------------------------------


def name_all(
    prediction: Prediction,
    hierarchy: Hierarchy,
    sources: Sequence[str],
    top: int,
    *,
    rule: str = "own",
    calibration: Calibration | None = None,
    restricted: bool = False,
    as_far: Tensor | None = None,
) -> list[Named]:
    """A batch of predictions in names.

    Args:
        prediction: already calibrated, restricted and decided.
        hierarchy: the tree.
        sources: a name for each sample.
        top: candidates per level.
        rule: the rule that decided it.
        calibration: the calibration that was applied.
        restricted: whether only some classes were allowed.
        as_far: (B, K) the share of known samples that are at least as far, fine first, if that was measured.
    """
    chosen = prediction.chosen()
    columns = [_name_level(prediction, hierarchy, chosen, k, top) for k in hierarchy.top_down]
    if as_far is not None:
        shares = [as_far[:, k].tolist() for k in hierarchy.top_down]
        columns = [[replace(a, as_far=p) for a, p in zip(*both, strict=True)] for both in zip(columns, shares, strict=True)]
    answers = chosen.cpu().numpy()
    consistent = [all(up[row[k]] == row[k + 1] for k, up in enumerate(hierarchy.parents)) for row in answers]
    return [
        Named(source, levels, bool(agree), rule, calibration, restricted, hierarchy.ragged)
        for source, agree, levels in zip(sources, consistent, zip(*columns, strict=True), strict=True)
    ]


def _name_level(prediction: Prediction, tree: Hierarchy, chosen: Tensor, k: int, top: int) -> list[LevelAnswer]:
    """One level of every sample."""
    log_p, picked = prediction.log_probs[k], chosen[:, k : k + 1]
    best = _candidates(log_p, log_p.scatter(1, picked, torch.inf), tree, k, top)
    beside = _candidates(log_p, log_p.scatter(1, picked, torch.nan), tree, k, RUNNERS_UP)
    below: list[tuple[Candidate, ...]] = [()] * len(log_p)
    if k:
        parents = torch.as_tensor(tree.parents[k - 1].copy(), device=log_p.device)
        finer = prediction.log_probs[k - 1]
        below = _candidates(finer, finer.masked_fill(parents != picked, torch.nan), tree, k - 1, RUNNERS_UP)
    names, shares = [], []
    for j in reversed(range(k, len(tree))):
        above = torch.as_tensor(tree.ancestors(j, of=k).copy(), device=log_p.device)[picked]
        names.append([tree.names[j][i] for i in above.flatten().tolist()])
        shares.append(prediction.log_probs[j].gather(1, above).exp().flatten().tolist())
    ends = tree.ends[k][picked.flatten().cpu().numpy()].tolist()
    paths = [_without_gaps(*both) for both in zip(zip(*names, strict=True), zip(*shares, strict=True), strict=True)]
    rows = zip(best, paths, beside, below, ends, strict=True)
    return [LevelAnswer(tree.levels[k], own, *path, others, under, end) for own, path, others, under, end in rows]


def _without_gaps(names: Sequence[str | None], shares: Sequence[float]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The classes of a path and their probabilities, without levels at which it has none."""
    there = [(name, share) for name, share in zip(names, shares, strict=True) if name is not None]
    return tuple(name for name, _ in there), tuple(share for _, share in there)


def _candidates(log_p: Tensor, score: Tensor, tree: Hierarchy, k: int, most: int) -> list[tuple[Candidate, ...]]:
    """For each sample the classes of a level with the highest scores, in order, without those whose score is NaN."""
    order = torch.where(score.isnan(), -torch.inf, score.clamp(min=torch.finfo(score.dtype).min))
    best = order.topk(min(most, order.shape[1]), dim=1)
    real, index = (best.values > -torch.inf).tolist(), best.indices
    shares = log_p.gather(1, index).exp().tolist()
    return [
        tuple(_candidate(tree, k, c, p) for c, p, there in zip(*row, strict=True) if there)
        for row in zip(index.tolist(), shares, real, strict=True)
    ]


def _candidate(tree: Hierarchy, k: int, number: int, probability: float) -> Candidate:
    """A class of a level; for one that stands in, the class that it stands in for."""
    level, own = tree.real(k, number)
    return Candidate(tree.classes[level][own], probability, None if level == k else tree.levels[level])


# ---- only some classes are possible --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Restriction:
    """The finest classes that remain possible: the species of a region, a subtree, or all but those known to be absent.

    Let A be these classes. Every level is conditioned on A: a coarse class c keeps the share of its probability that its
    remaining descendants have among all of them,

        w¹_j = 1 if j ∈ A else 0,    wᵏ_c = Σ_j pᵏ⁻¹_j wᵏ⁻¹_j / Σ_j pᵏ⁻¹_j over the children j of c,    p̃ᵏ ∝ pᵏ wᵏ

    so a class that loses no descendants only gains by normalising, and a class that loses all has probability 0. If a level is
    the sum of the finer one, this is exactly the conditional distribution.

    Attributes:
        hierarchy: the tree.
        allowed: (C_1,) which finest classes remain.
    """

    hierarchy: Hierarchy
    allowed: Bools

    @classmethod
    def parse(cls, hierarchy: Hierarchy, only: Sequence[str] = (), exclude: Sequence[str] = ()) -> Restriction | None:
        """From names of classes at any level: everything under `only` except what is under `exclude`.

        Write `level/name` if several levels have the name, or @FILE for a file with one name per line.

        Raises:
            ConfigError: when no level or several levels have a name, or no class is left.
        """
        if not only and not exclude:
            return None
        allowed = under(hierarchy, only, "`only`") if only else np.ones(hierarchy.sizes[0], dtype=bool)
        allowed &= ~under(hierarchy, exclude, "`exclude`") if exclude else True
        if not allowed.any():
            raise ConfigError("`only` and `exclude` leave no possible class")
        return cls(hierarchy, allowed)

    def apply(self, prediction: Prediction) -> Prediction:
        """The same prediction, given that one of the remaining classes is true; answers are the most probable classes."""
        tree, log_p = self.hierarchy, prediction.log_probs
        kept = torch.as_tensor(self.allowed, device=log_p[0].device)
        log_w = torch.zeros_like(log_p[0]).masked_fill(~kept, -torch.inf)
        found = [_normalised(log_p[0], log_w)]
        for k in range(len(tree) - 1):
            parents, size = torch.as_tensor(tree.parents[k].copy(), device=kept.device), tree.sizes[k + 1]
            finite = log_p[k].clamp(min=torch.finfo(log_p[k].dtype).min / 2)  # children of probability 0 still have shares
            log_w = sum_children(finite + log_w, parents, size) - sum_children(finite, parents, size)
            kept = torch.zeros(size, dtype=torch.bool, device=kept.device).index_fill(0, parents[kept], True)
            log_w = log_w.masked_fill(~kept, -torch.inf)
            found.append(_normalised(log_p[k + 1], log_w))
        return replace(prediction, log_probs=tuple(found), transitions=(), choice=None, scores=None)


def _normalised(log_p: Tensor, log_w: Tensor) -> Tensor:
    """log of p · w, normalised to sum to one."""
    finite = log_p.clamp(min=torch.finfo(log_p.dtype).min / 2)  # all that remains may have had probability 0
    return torch.log_softmax(finite + log_w, dim=1)


def under(hierarchy: Hierarchy, names: Sequence[str], flag: str) -> Bools:
    """(C_1,) which finest classes are under one of the named classes."""
    found = np.zeros(hierarchy.sizes[0], dtype=bool)
    for name in read_names(names, flag):
        level, index = find_class(hierarchy, name, flag)
        found |= hierarchy.ancestors(level) == index
    return found


def read_names(names: Sequence[str], flag: str) -> list[str]:
    """The names, with @FILE replaced by the names in that file."""
    found: list[str] = []
    for name in names:
        if not name.startswith("@"):
            found.append(name)
            continue
        try:
            lines = Path(name[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{flag} {name}: cannot be read as text with one name per line ({error})") from None
        found += [line.strip() for line in lines if line.strip()]
    return found


def find_class(hierarchy: Hierarchy, name: str, flag: str = "") -> tuple[int, int]:
    """The level and number of a class by its name, or by `level/name`."""
    level_name, slash, rest = name.partition("/")
    if slash and level_name in hierarchy.levels and rest:
        level = hierarchy.levels.index(level_name)
        return level, hierarchy.index(level, rest)
    places = [k for k in hierarchy.top_down if name in hierarchy.names[k]]
    if not places:
        every = [one for names in hierarchy.names for one in names if one is not None]
        raise ConfigError(f"{flag} {name!r}: no class has that name: {suggestion(name, every)}".strip())
    if len(places) > 1 and not _same_leaves(hierarchy, name, places):
        ways = " or ".join(f"{hierarchy.levels[k]}/{name}" for k in places)
        raise ConfigError(f"{flag} {name!r} is a class at several levels: write {ways}".strip())
    return places[0], hierarchy.index(places[0], name)


def _same_leaves(hierarchy: Hierarchy, name: str, places: Sequence[int]) -> bool:
    """Whether the classes of this name are one branch, as when an only child has its parent's name."""
    sets = [hierarchy.ancestors(k) == hierarchy.index(k, name) for k in places]
    return all(bool((one == sets[0]).all()) for one in sets)
