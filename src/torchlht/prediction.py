"""`Prediction`: what every method returns, and all that losses, metrics and answers ever see of it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from torchlht.transition import Transition


@dataclass(frozen=True)
class Prediction:
    """Log-probabilities at every level for one batch, fine first, and the transitions that led to them, if any.

    Attributes:
        log_probs: one (B, C_k) tensor per level.
        transitions: one per adjacent pair of levels for methods that have them, else empty.
    """

    log_probs: tuple[Tensor, ...]
    transitions: tuple[Transition, ...] = ()

    def probs(self, level: int) -> Tensor:
        """(B, C_k) probabilities at a level, 0 = finest."""
        return self.log_probs[level].exp()

    def transition(self, level: int) -> Tensor:
        """(B, C_{k+1}, C_k): the matrices from `level` to the next coarser one, columns summing to one."""
        if not self.transitions:
            raise ValueError("this method has no transitions between its levels")
        matrix = self.transitions[level].log_matrix().exp()
        return matrix.expand(len(self.log_probs[0]), -1, -1)
