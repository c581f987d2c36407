"""Confident targets: what the averaged model is sure of when it sees a picture as it is becomes the label of other views.

    q = p(Y¹ | x), divided by its sum over the classes that are possible     p: the averaged model, x: the picture as it is
    label = argmax q, if max q reaches the threshold of that class           otherwise there is no target

| `semi` | possible classes | balanced | threshold |
|---|---|---|---|
| `fixmatch` | all: the coarse label is not asked (Sohn et al., NeurIPS 2020) | no | 0.95 |
| `taxon` | those under the deepest known label (after Su and Maji, arXiv 2111.11595) | no | 0.95 |
| `deep` | those under the deepest known label | to the frequencies of known labels | `adaptive` |

An adaptive threshold is FreeMatch's (Wang et al., ICLR 2023), among the samples with the same deepest known label:
τ_c = mean of max q · q̄_c / max q̄, with q̄ the mean of q. Classes that the model rarely says have a lower one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchlht.data.samples import Ints
from torchlht.learn.semi.targets import Block, Targets, balance, known_shares

FIXED = 0.95  # the threshold of FixMatch


def confident(
    index: Tensor, value: Tensor, labels: Ints, blocks: list[Block], classes: int, *, adaptive: bool = False
) -> Targets:
    """Hard targets of samples whose most probable class is sure enough; empty ones for the others.

    Args:
        index: (N, m) possible finest classes.
        value: (N, m) their probabilities, which sum to one.
        labels: (N, K), fine first, -1 where unknown.
        blocks: the samples without a finest label, by their deepest known label.
        classes: number of finest classes.
        adaptive: balance probabilities in each block, and let thresholds adapt; otherwise the threshold is `FIXED`.
    """
    kept = torch.zeros(len(index))
    best = index[:, :1].clone()
    for block in blocks:
        rows = torch.from_numpy(block.rows)
        where, q = index[rows], value[rows]
        if adaptive:
            shares = torch.zeros(classes)
            shares[torch.from_numpy(block.leaves)] = torch.from_numpy(known_shares(labels, block))
            q = balance(where, q, shares) if shares.sum() > 0 else q
        sure, place = q.max(dim=1, keepdim=True)
        best[rows] = where.gather(1, place)
        limit = adaptive_thresholds(where, q, classes)[best[rows, 0]] if adaptive else torch.full((len(rows),), FIXED)
        kept[rows] = (sure[:, 0] >= limit * (1 - 1e-6)).float()  # the only possible class is always sure enough
    return Targets(best, kept.unsqueeze(1), kept)


def adaptive_thresholds(index: Tensor, value: Tensor, classes: int) -> Tensor:
    """(classes,) the threshold of each class among samples with these probabilities, which sum to one; see above."""
    mean = torch.zeros(classes).index_add_(0, index.ravel(), value.ravel()) / max(len(value), 1)
    return value.amax(dim=1).mean() * mean / mean.max().clamp(min=1e-30)
