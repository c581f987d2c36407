"""`Prediction`: what every method returns, and all that losses, metrics and answers read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchlht.heads.transition.core import Transition


@dataclass(frozen=True)
class Prediction:
    """Log-probabilities at every level for one batch, fine first, and the transitions that led to them, if any.

    Attributes:
        log_probs: one (B, C_k) tensor per level. Most methods give a distribution over the classes of a level; one with a
            sigmoid per class gives each class its own probability, and a row need not sum to one.
        transitions: one per adjacent pair of levels for methods that have them, else empty.
        choice: (B, K) answers, if they are not simply the most probable class of each level.
        scores: (B, C_1) scores by which a rule ranks the finest classes, if not by their probability.
        sigmoid: levels with a sigmoid per class. Rows that do not sum to one also show this, but saturated rows do sum to one.
    """

    log_probs: tuple[Tensor, ...]
    transitions: tuple[Transition, ...] = ()
    choice: Tensor | None = None
    scores: Tensor | None = None
    sigmoid: tuple[int, ...] = ()

    def probs(self, level: int) -> Tensor:
        """(B, C_k) probabilities at a level, 0 = finest."""
        return self.log_probs[level].exp()

    def chosen(self) -> Tensor:
        """(B, K) the class answered at each level, fine first."""
        if self.choice is not None:
            return self.choice
        return torch.stack([log_p.argmax(dim=1) for log_p in self.log_probs], dim=1)

    def first(self, count: int) -> Prediction:
        """The prediction for the first `count` samples, without transitions."""
        choice = None if self.choice is None else self.choice[:count]
        return Prediction(tuple(log_p[:count] for log_p in self.log_probs), choice=choice, sigmoid=self.sigmoid)

    def ranked(self, k: int) -> Tensor:
        """(B, k) finest classes, or all if there are fewer: the answer first, the others by `scores` or else by probability."""
        scores = self.log_probs[0] if self.scores is None else self.scores
        first = scores.scatter(1, self.chosen()[:, :1], torch.inf)
        return first.topk(min(k, first.shape[1]), dim=1).indices

    def transition(self, level: int) -> Tensor:
        """(B, C_{k+1}, C_k): the matrices from `level` to the next coarser one; columns sum to one."""
        if not self.transitions:
            raise ValueError("this method has no transitions between its levels")
        matrix = self.transitions[level].log_matrix().exp()
        return matrix.expand(len(self.log_probs[0]), -1, -1)
