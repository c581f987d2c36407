"""What the page is about, and words that several sections use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchlht.console import plural
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import plain
from torchlht.show.seen import Seen

LARGEST = 2000  # classes of a level above which nothing of classes × classes is drawn


@dataclass(frozen=True)
class Subject:
    """A run, those beside it, and what was asked for.

    Attributes:
        runs: what each said of its samples; the first is the one the page is about.
        images: how many pictures Grad-CAM looks at, and worst mistakes are shown.
        attributes: where attributes of the finest classes are, if that was said.
    """

    runs: tuple[Seen, ...]
    images: int
    attributes: Path | None = None

    @property
    def ours(self) -> Seen:
        """The run the page is about."""
        return self.runs[0]

    @property
    def tree(self) -> Hierarchy:
        """The tree of classes."""
        return self.ours.tree

    def alike(self) -> list[Seen]:
        """The runs that were asked about the same samples as the first."""
        return [one for one in self.runs if same_samples(one, self.ours)]


def same_samples(a: Seen, b: Seen) -> bool:
    """Whether two runs were asked about the same samples, in the same order."""
    return a.samples.keys == b.samples.keys and bool(np.array_equal(a.labels, b.labels))


def name_of(tree: Hierarchy, level: int, label: int) -> str:
    """A class as people write it."""
    return plain(tree.classes[level][label])


def drawable(tree: Hierarchy, wanted: list[int]) -> tuple[list[int], list[str]]:
    """Levels small enough to draw, the next coarser one in the place of one that is not; and sentences about those."""
    found: list[int] = []
    sentences = []
    for level in wanted:
        fits = next((k for k in range(level, len(tree)) if tree.sizes[k] <= LARGEST), None)
        if fits != level:
            instead = "" if fits is None else f"; {tree.levels[fits]} is shown instead"
            sentences.append(f"{tree.sizes[level]:,} classes of {tree.levels[level]} are too many to draw{instead}.")
        if fits is not None and fits not in found:
            found.append(fits)
    return found, sentences


# ---- words ---------------------------------------------------------------------------------------------------------

PARTS = {"test": "test ", "val": "validation ", "train": "training ", "all": ""}


def samples_text(seen: Seen) -> str:
    """How many samples of which part: 5,794 test pictures."""
    noun = "picture" if seen.samples.images is not None else "sample"
    return plural(len(seen.samples), f"{PARTS[seen.split]}{noun}")


def hidden_labels(seen: Seen) -> str:
    """Which labels training did not see: 90 % of species."""
    if not seen.args.mask:
        return "none"
    return f"{100 * seen.args.mask:g} % of {listed(list(seen.tree.levels[: seen.args.mask_levels][::-1]))}"


def selection(seen: Seen) -> str:
    """Which epoch was kept, and by which rule."""
    chosen = seen.record.get("selection", {})
    rule = "the best epoch on validation samples" if seen.args.select == "best" else "the last epoch"
    return f"{rule}, {chosen['epoch']} of {chosen['epochs']}" if {"epoch", "epochs"} <= chosen.keys() else rule


def listed(parts: list[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
