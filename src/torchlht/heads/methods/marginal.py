"""`marginal`, alias `lht-naive`: one softmax over the finest classes; a coarse label's likelihood is the sum over its children.

It is the simplest method that learns from partial labels, and equals LHT with T = S.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torchlht.doors import Width
from torchlht.heads.method import register
from torchlht.heads.methods.lht import PAPER, LHTHead
from torchlht.hierarchy.tree import Hierarchy
from torchlht.vocabulary import Features, Reduction, Start


@register("marginal", aliases=["lht-naive"], paper=f"{PAPER}, there LHT_naive")
class Marginal(LHTHead):
    """Fine classes first; a coarse class is the sum of its children, in training too.

    Args:
        in_features: width of the features.
        hierarchy: the tree of classes.
        features: `shared`, or `split`: then the classifier reads only the first K-th of the neck, as in the paper.
        width: width of the hidden layer.
        reduction: how cross-entropy is averaged: `per_level_mean` over the known labels of each level, then over levels;
            `per_sample` sums over levels and divides by the number of samples, as the paper's equation does.
        start: how the classifier starts on features: at `random`, or from the class `means`; see `lht`.
    """

    grid: ClassVar[dict[str, tuple[Any, ...]]] = {}
    before: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        in_features: int,
        hierarchy: Hierarchy,
        *,
        features: Features = "shared",
        width: Width = 600,
        reduction: Reduction = "per_level_mean",
        start: Start = "random",
    ) -> None:
        super().__init__(
            in_features, hierarchy, features=features, width=width, reduction=reduction, transition="fixed", start=start
        )
