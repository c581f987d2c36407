"""What a comparison shows and judges by: on a tree, with one label per sample in a graph, with several labels per sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlht.measure.metrics import REGISTER, Spec, specs
from torchlht.measure.outcomes import Outcomes
from torchlht.measure.samplewise import Samplewise
from torchlht.measure.several import AUPRC, EXACT, F1_MACRO, LEAF, OF_LEAVES, OF_SETS, PRECISION

ACCURACY, MEAN = REGISTER["accuracy"], REGISTER["mean_accuracy"]


@dataclass(frozen=True)
class Board:
    """The figures of a kind of data.

    Attributes:
        level: what the table shows of each level.
        whole: what it shows of a run.
        judged: what verdicts are about. Methods are ranked by the first.
        title: the heading of the other figures in table.md.
        explained: what table.md says of them; `{finest}` and `{heights}` stand for a level, and for how many are heights.
        own: all its metrics; those of the register by default.
        key: where metrics.json has its levels.
    """

    level: Spec
    whole: Spec
    judged: tuple[Spec, ...]
    title: str
    explained: str
    own: tuple[Spec, ...] = ()
    key: str = "graph_levels"

    @property
    def columns(self) -> list[Spec]:
        """The metrics in results.csv."""
        return list(self.own) or specs()

    @property
    def more(self) -> list[Spec]:
        """Those that have a table of their own, with heights last."""
        shown = [spec for spec in self.columns if spec.headed("table") and spec not in (self.level, self.whole)]
        return sorted(shown, key=lambda spec: (spec.unit == "height", spec.place))

    @property
    def ranked_by(self) -> str:
        """In words, by what methods are ranked, if that is not the finest level."""
        return "" if self.judged[0].per == "level" else self.judged[0].heading

    def kept(self, run: Path, rule: str) -> Outcomes | Samplewise | None:
        """What a run has kept about test samples, by a rule of answering."""
        return Samplewise.read(run) if self.own else Outcomes.read(run, rule)


TREE = Board(
    ACCURACY,
    MEAN,
    (ACCURACY, MEAN),
    "Along the tree",
    "At {finest} or along the path, mean over seeds, in percent but for the last {heights} columns, which are heights of the "
    "lowest common ancestor. A class without siblings follows from its parent: masking it hides nothing.",
    key="levels",
)
LEAVES = Board(
    ACCURACY,
    LEAF,
    (LEAF, AUPRC),
    "Over all classes",
    "Mean over seeds, in percent; average precision is that of {finest}. Right at a level is an answer with all that is there, "
    "and no more.",
    OF_LEAVES,
)
SETS = Board(
    PRECISION,
    AUPRC,
    (AUPRC, F1_MACRO),
    "Sets of classes",
    f"Mean over seeds, in percent; {EXACT.heading} is that of {{finest}}. F1 is hierarchical.",
    OF_SETS,
)


def board_of(columns: Collection[str]) -> Board:
    """The board of a results.csv, by its columns."""
    return SETS if EXACT.name in columns else LEAVES if LEAF.name in columns else TREE


def board_for(metrics: Mapping[str, Any]) -> Board:
    """The board of a run, by its metrics."""
    if TREE.key in metrics or "diverged" in metrics:
        return TREE
    return LEAVES if LEAF.name in metrics else SETS
