"""When targets are made: from neighbours at the start and twice more on the learned features, from the model at every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from torchlht.data.samples import Ints
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.confident import confident
from torchlht.learn.semi.propagation import POWER, propagate, with_ancestors
from torchlht.learn.semi.strangers import familiarity
from torchlht.learn.semi.targets import MOST, NONE, Targets, combine, find_blocks, possible, posterior, without
from torchlht.vocabulary import SemiName

Views = Iterable[tuple[Ints, Tensor, Tensor | None]]  # batches: positions, log-probabilities (B, C_1), and from another view


@dataclass(frozen=True)
class Kind:
    """Where targets come from.

    Attributes:
        neighbours: whether from neighbours.
        model: whether from the averaged model.
        hard: whether its likeliest class alone, if it is sure of it, instead of its probabilities.
        adaptive: whether the threshold of that adapts.
        confined: whether to the classes that known labels allow.
        soon: whether from the second epoch on, instead of after a third of the epochs.
    """

    neighbours: bool = False
    model: bool = False
    hard: bool = False
    adaptive: bool = False
    confined: bool = True
    soon: bool = False


KINDS: dict[SemiName, Kind] = {
    "propagate": Kind(neighbours=True),
    "posterior": Kind(model=True),
    "both": Kind(neighbours=True, model=True),
    "deep": Kind(neighbours=True, model=True, hard=True, adaptive=True),
    "fixmatch": Kind(model=True, hard=True, confined=False, soon=True),
    "taxon": Kind(model=True, hard=True, soon=True),
}


class Semi:
    """The targets of one training run, for its training samples in their order.

    Args:
        kind: one of `KINDS`.
        labels: (N, K) of the training samples, fine first, -1 where unknown.
        hierarchy: the tree of classes.
        epochs: number of epochs.
        ready: whether features are useful before training; if not, the first targets are made after a third of the epochs.
    """

    def __init__(self, kind: SemiName, labels: Ints, hierarchy: Hierarchy, *, epochs: int, ready: bool) -> None:
        labels = with_ancestors(labels, hierarchy)
        self.kind, self.labels, self.hierarchy = KINDS[kind], labels, hierarchy
        third = math.ceil(epochs / 3)
        self.trusted = 1 if self.kind.soon else third  # targets from the model start at this epoch
        self.rounds = sorted({0 if ready else third, third, 2 * third})
        self.blocks = find_blocks(labels, hierarchy)
        self.familiar = torch.ones(len(labels))  # how much samples count
        self.allowed = torch.ones(len(self.blocks) + 1, hierarchy.sizes[0], dtype=torch.bool)  # last row: known samples
        self.block_of = torch.full((len(labels),), -1)
        for i, block in enumerate(self.blocks):
            self.allowed[i] = not self.kind.confined
            self.allowed[i, torch.from_numpy(block.leaves)] = True
            self.block_of[torch.from_numpy(block.rows)] = i
        self.near: Targets | None = None
        self.power = POWER
        self.targets: Targets | None = None
        unknown = (labels < 0).sum(axis=0)
        self.shares: list[float] = np.minimum(1.0, unknown / (len(labels) - unknown).clip(min=1)).tolist()

    @property
    def needed(self) -> bool:
        """Whether any finest label is unknown."""
        return bool((self.labels[:, 0] < 0).any())

    @property
    def needs_teacher(self) -> bool:
        """Whether targets come from an averaged model."""
        return self.kind.model

    @property
    def left_out(self) -> Ints:
        """Positions of samples that are too unlike labelled ones to take part."""
        return np.flatnonzero(self.familiar.numpy() == 0) if (self.familiar == 0).any() else NONE

    def begin(self, epoch: int, embed: Callable[[], Tensor], views: Callable[[], Views]) -> dict[str, float]:
        """Make the targets of an epoch; returns entries for the history.

        Args:
            epoch: counted from 0.
            embed: returns the current features of all training samples.
            views: returns the averaged model's predictions for all of them.
        """
        report: dict[str, float] = {}
        if not self.needed:
            return report
        if epoch in self.rounds and (self.kind.neighbours or self.unlabelled):
            report = self.look_around(epoch, embed())
        self.targets = self.near
        if self.needs_teacher and epoch >= self.trusted:
            own = self.ask(views())
            self.targets = own if self.near is None else combine(self.near, own, self.hierarchy.sizes[0])
        if self.targets is not None and self.unlabelled:
            self.targets = Targets(self.targets.index, self.targets.value, self.targets.weight * self.familiar)
        return report

    def look_around(self, epoch: int, features: Tensor) -> dict[str, float]:
        """Find samples that are unlike any labelled one, and make targets from neighbours; returns entries for the history."""
        if self.unlabelled:
            self.familiar = familiarity(features, self.labels, self.hierarchy.sizes)
        if not self.kind.neighbours:
            return {}
        power = None if epoch == 0 else self.power
        found = propagate(features, self.labels, self.hierarchy, power=power, left_out=self.left_out)
        self.near, self.power = found.targets, found.power
        return {} if found.accuracy is None else {"propagated_right": found.accuracy, "propagated_checked": found.checked}

    @property
    def unlabelled(self) -> bool:
        """Whether there are samples without any label."""
        return bool((self.labels < 0).all(axis=1).any())

    def ask(self, views: Views) -> Targets:
        """Targets from predictions for all samples."""
        width = min(MOST, self.hierarchy.sizes[0])
        index, value = torch.zeros(len(self.labels), width, dtype=torch.int64), torch.zeros(len(self.labels), width)
        agreement = torch.ones(len(self.labels))
        for rows, log_p, other in views:
            at = torch.from_numpy(rows)
            allowed = self.allowed[self.block_of[at]]
            if self.kind.hard:
                index[at], value[at], _ = possible(log_p, allowed, sharpness=1.0)
            else:
                index[at], value[at], agreement[at] = possible(log_p, allowed, other=other)
        blocks, classes = without(self.blocks, self.left_out), self.hierarchy.sizes[0]
        if self.kind.hard:
            return confident(index, value, self.labels, blocks, classes, adaptive=self.kind.adaptive)
        return posterior(index, value, agreement, self.labels, blocks, classes)

    def fill(self) -> Ints:
        """The labels, with unknown ones replaced by the likeliest class of their target, for methods fitted at once."""
        assert self.targets is not None
        best = self.targets.best().numpy()
        filled = self.labels.copy()
        for k in range(len(self.hierarchy)):
            guess = np.where(best >= 0, self.hierarchy.ancestors(k)[best.clip(min=0)], -1)
            filled[:, k] = np.where(filled[:, k] >= 0, filled[:, k], guess)
        return filled

    def state(self, *, inside: bool = False) -> dict[str, Tensor]:
        """The state for a checkpoint; inside an epoch, with its targets."""
        kept = _tensors("", self.near) | (_tensors("now.", self.targets) if inside else {})
        kept |= {"familiar": self.familiar} if (self.familiar < 1).any() else {}
        return kept and kept | {"power": torch.tensor(self.power, dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        if state:
            self.near, self.targets, self.power = _targets("", state), _targets("now.", state), state["power"].item()
            self.familiar = state.get("familiar", self.familiar)


def _tensors(prefix: str, targets: Targets | None) -> dict[str, Tensor]:
    if targets is None:
        return {}
    parts = {"index": targets.index, "value": targets.value, "weight": targets.weight}
    return {f"{prefix}{name}": value.clone() for name, value in parts.items()}  # `near` may be the epoch's targets


def _targets(prefix: str, state: dict[str, Tensor]) -> Targets | None:
    if f"{prefix}index" not in state:
        return None
    return Targets(*(state[f"{prefix}{name}"] for name in ("index", "value", "weight")))
