"""Roll-up: the deepest answer one is sure enough of.

A rule names a class at every level. The answer is the finest of them whose probability reaches the threshold, with its
ancestors in the tree; raising the threshold moves it up, never down. Where no class reaches it, nothing is answered.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy

UNDECIDED = -1  # in the place of a class, or of a level, where nothing is answered


def confidences(prediction: Prediction) -> Tensor:
    """(B, K) the probability of the class that is answered at each level, fine first."""
    chosen = prediction.chosen()
    picked = [log_p.gather(1, chosen[:, k : k + 1]) for k, log_p in enumerate(prediction.log_probs)]
    return torch.cat(picked, dim=1).exp()


def answer_levels(confidence: Tensor, threshold: float) -> Tensor:
    """(B,) the finest level whose (B, K) confidence reaches the threshold; `UNDECIDED` where none does."""
    passes = confidence >= threshold
    return torch.where(passes.any(dim=1), passes.int().argmax(dim=1), UNDECIDED)  # argmax: the first, so the finest


def rolled_up(chosen: Tensor, levels: Tensor, hierarchy: Hierarchy) -> Tensor:
    """(B, K) the class answered at `levels` and its ancestors; `UNDECIDED` below it.

    Args:
        chosen: (B, K) the class a rule names at each level, which need not lie on one path.
        levels: (B,) from `answer_levels`.
        hierarchy: the tree.
    """
    answers = torch.full_like(chosen, UNDECIDED)
    for k in range(len(hierarchy)):
        if k:
            up = torch.as_tensor(hierarchy.parents[k - 1].copy(), device=chosen.device)
            below = answers[:, k - 1]
            answers[:, k] = torch.where(below >= 0, up[below.clamp(min=0)], UNDECIDED)
        here = levels == k
        answers[here, k] = chosen[here, k]
    return answers
