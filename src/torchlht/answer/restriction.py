"""Only some classes are possible here: a list of species of the region, a subtree, everything but what is known to be absent.

Let A be the finest classes that remain. Every level is conditioned on A: a coarse class c keeps the share of its probability
that its remaining descendants have among all of them,

    w¹_j = 1 if j ∈ A else 0,    wᵏ_c = Σ_j pᵏ⁻¹_j wᵏ⁻¹_j / Σ_j pᵏ⁻¹_j over the children j of c,    p̃ᵏ ∝ pᵏ wᵏ

so a class that loses nothing only gains from renormalising, and one with nothing left has probability 0. Where a level is the
sum of the finer one, this is exactly the conditional distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy.tree import Hierarchy

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Restriction:
    """The finest classes that remain possible.

    Attributes:
        hierarchy: the tree.
        allowed: (C_1,) which of its finest classes.
    """

    hierarchy: Hierarchy
    allowed: Bools

    @classmethod
    def parse(cls, hierarchy: Hierarchy, only: Sequence[str] = (), exclude: Sequence[str] = ()) -> Restriction | None:
        """From names of classes of any level: what is under one of `only`, without what is under one of `exclude`.

        A name may be `level/name` where several levels have it, or @FILE for a file with a name on each line.

        Raises:
            ConfigError: for a name that no level has, or that several have, or when nothing is left.
        """
        if not only and not exclude:
            return None
        allowed = under(hierarchy, only, "`only`") if only else np.ones(hierarchy.sizes[0], dtype=bool)
        allowed &= ~under(hierarchy, exclude, "`exclude`") if exclude else True
        if not allowed.any():
            raise ConfigError("`only` and `exclude` leave no class that could be answered")
        return cls(hierarchy, allowed)

    def apply(self, prediction: Prediction) -> Prediction:
        """The same prediction, given that one of the remaining classes is the true one; answers are the most probable ones."""
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
    """p · w over its sum."""
    finite = log_p.clamp(min=torch.finfo(log_p.dtype).min / 2)  # all that remains may have had probability 0
    return torch.log_softmax(finite + log_w, dim=1)


def under(hierarchy: Hierarchy, names: Sequence[str], flag: str) -> Bools:
    """(C_1,) which finest classes lie under one of the named classes."""
    found = np.zeros(hierarchy.sizes[0], dtype=bool)
    for name in read_names(names, flag):
        level, index = find_class(hierarchy, name, flag)
        found |= hierarchy.ancestors(level) == index
    return found


def read_names(names: Sequence[str], flag: str) -> list[str]:
    """Names as they are; those of files where they begin with @."""
    found: list[str] = []
    for name in names:
        if not name.startswith("@"):
            found.append(name)
            continue
        try:
            lines = Path(name[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{flag} {name}: cannot be read as a text with a name on each line ({error})") from None
        found += [line.strip() for line in lines if line.strip()]
    return found


def find_class(hierarchy: Hierarchy, name: str, flag: str = "") -> tuple[int, int]:
    """The level and number of a class by its name, or by `level/name`."""
    level_name, slash, rest = name.partition("/")
    if slash and level_name in hierarchy.levels and rest:
        level = hierarchy.levels.index(level_name)
        return level, hierarchy.index(level, rest)
    places = [k for k in hierarchy.top_down if name in hierarchy.classes[k]]
    if not places:
        every = [one for names in hierarchy.classes for one in names]
        raise ConfigError(f"{flag} {name!r}: no level has a class of that name: {suggestion(name, every)}".strip())
    if len(places) > 1 and not _same_leaves(hierarchy, name, places):
        ways = " or ".join(f"{hierarchy.levels[k]}/{name}" for k in places)
        raise ConfigError(f"{flag} {name!r} is a class of several levels: write {ways}".strip())
    return places[0], hierarchy.index(places[0], name)


def _same_leaves(hierarchy: Hierarchy, name: str, places: Sequence[int]) -> bool:
    """Whether the classes of this name are one branch, as where an only child bears its parent's name."""
    sets = [hierarchy.ancestors(k) == hierarchy.index(k, name) for k in places]
    return all(bool((one == sets[0]).all()) for one in sets)
