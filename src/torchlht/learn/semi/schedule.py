"""When targets are made: from neighbours at the start and twice more on the learned features, from the model at every epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from torchlht.data.samples import Ints
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.propagation import POWER, propagate, with_ancestors
from torchlht.learn.semi.targets import MOST, Targets, combine, find_blocks, possible, posterior
from torchlht.vocabulary import SemiName

Views = Iterable[tuple[Ints, Tensor, Tensor | None]]  # batches: positions, log-probabilities (B, C_1), and from another view


class Semi:
    """The targets of one training run, for its training samples in their order.

    Args:
        kind: `propagate`, `posterior` or `both`.
        labels: (N, K) of the training samples, fine first, -1 where unknown.
        hierarchy: the tree of classes.
        epochs: number of epochs.
        ready: whether features are useful before training; if not, the first targets are made after a third of the epochs.
    """

    def __init__(self, kind: SemiName, labels: Ints, hierarchy: Hierarchy, *, epochs: int, ready: bool) -> None:
        labels = with_ancestors(labels, hierarchy)
        self.kind, self.labels, self.hierarchy = kind, labels, hierarchy
        third = math.ceil(epochs / 3)
        self.trusted = third  # targets from the model start at this epoch
        self.rounds = sorted({0 if ready else third, third, 2 * third})
        self.blocks = find_blocks(labels, hierarchy)
        self.allowed = torch.ones(len(self.blocks) + 1, hierarchy.sizes[0], dtype=torch.bool)  # last row: known samples
        self.block_of = torch.full((len(labels),), -1)
        for i, block in enumerate(self.blocks):
            self.allowed[i] = False
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
        return self.kind in ("posterior", "both")

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
        if self.kind in ("propagate", "both") and epoch in self.rounds:
            found = propagate(embed(), self.labels, self.hierarchy, power=None if epoch == 0 else self.power)
            self.near, self.power = found.targets, found.power
            if found.accuracy is not None:
                report = {"propagated_right": found.accuracy, "propagated_checked": found.checked}
        self.targets = self.near
        if self.needs_teacher and epoch >= self.trusted:
            own = self.ask(views())
            self.targets = own if self.near is None else combine(self.near, own, self.hierarchy.sizes[0])
        return report

    def ask(self, views: Views) -> Targets:
        """Targets from predictions for all samples."""
        width = min(MOST, self.hierarchy.sizes[0])
        index, value = torch.zeros(len(self.labels), width, dtype=torch.int64), torch.zeros(len(self.labels), width)
        agreement = torch.ones(len(self.labels))
        for rows, log_p, other in views:
            at = torch.from_numpy(rows)
            index[at], value[at], agreement[at] = possible(log_p, self.allowed[self.block_of[at]], other=other)
        return posterior(index, value, agreement, self.labels, self.blocks, self.hierarchy.sizes[0])

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
        return kept and kept | {"power": torch.tensor(self.power, dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        if state:
            self.near, self.targets, self.power = _targets("", state), _targets("now.", state), state["power"].item()


def _tensors(prefix: str, targets: Targets | None) -> dict[str, Tensor]:
    if targets is None:
        return {}
    parts = {"index": targets.index, "value": targets.value, "weight": targets.weight}
    return {f"{prefix}{name}": value.clone() for name, value in parts.items()}  # `near` may be the epoch's targets


def _targets(prefix: str, state: dict[str, Tensor]) -> Targets | None:
    if f"{prefix}index" not in state:
        return None
    return Targets(*(state[f"{prefix}{name}"] for name in ("index", "value", "weight")))
