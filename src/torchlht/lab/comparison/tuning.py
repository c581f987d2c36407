"""Options chosen on validation samples: a small declared grid per method, the same learning rates for all, a full account.

Every candidate is trained on a part of the training samples (after masking) and judged by its mean accuracy over levels on the
rest; test samples take no part. The best candidate is then trained on all training samples, for every seed.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from torchlht.files import write_text
from torchlht.heads.method import method_options
from torchlht.lab.comparison.contenders import Contender

LR_FACTORS = (1.0, 1 / 3, 3.0)  # times the recipe's learning rate; the recipe itself comes first and wins ties


@dataclass(frozen=True)
class Candidate:
    """Options to try: a factor on the learning rate and values of the method's own options, as NAME=VALUE."""

    lr_factor: float = 1.0
    option: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([f"lr×{self.lr_factor:.2g}", *self.option])


def candidates(contender: Contender) -> list[Candidate]:
    """Everything that is tried for a contender: learning rates × its own grid."""
    grid = contender.grid()
    factors = (1.0,) if contender.at_once else LR_FACTORS
    defaults = method_options(contender.method, common=True)
    near_first = [sorted(options, key=lambda value: value != defaults[name]) for name, options in grid.items()]
    values = [[f"{name}={value}" for value in options] for name, options in zip(grid, near_first, strict=True)]
    return [Candidate(factor, option) for factor in factors for option in itertools.product(*values)]


@dataclass(frozen=True)
class Trial:
    """How a candidate did on validation samples."""

    contender: Contender
    mask: float
    candidate: Candidate
    score: float  # mean over seeds of the mean accuracy over levels; -1 when it diverged
    seconds: float


def trial(contender: Contender, mask: float, candidate: Candidate, metrics: Sequence[dict[str, Any]]) -> Trial:
    """The account of one candidate from the metrics of its runs."""
    scores = [-1.0 if "diverged" in found else found["validation"]["val_mean"] for found in metrics]
    seconds = sum(found.get("train_seconds", 0.0) for found in metrics)
    return Trial(contender, mask, candidate, mean(scores), seconds)


def choose(trials: Sequence[Trial]) -> dict[tuple[str, float], Candidate]:
    """The best candidate by contender and mask; of equals the first, which is nearest to the defaults."""
    best: dict[tuple[str, float], Trial] = {}
    for one in trials:
        key = (one.contender.label, one.mask)
        if key not in best or one.score > best[key].score:
            best[key] = one
    return {key: one.candidate for key, one in best.items()}


def write_account(path: Path, trials: Sequence[Trial]) -> None:
    """tuning.csv: every candidate, its score on validation samples, its cost, and whether it was chosen."""
    chosen = choose(trials)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["method", "mask", "candidate", "validation_mean_accuracy", "train_seconds", "chosen"])
    for one in trials:
        mark = int(chosen[one.contender.label, one.mask] == one.candidate)
        score = "diverged" if one.score < 0 else f"{one.score:.5f}"
        writer.writerow([one.contender.label, one.mask, one.candidate, score, f"{one.seconds:.1f}", mark])
    write_text(path, text.getvalue())


def summary(trials: Sequence[Trial]) -> list[str]:
    """The grid, the choice and its cost as a table in Markdown."""
    chosen = choose(trials)
    masks = list(dict.fromkeys(one.mask for one in trials))
    lines = [["method", "candidates", *(f"chosen at {mask:.0%} masked" for mask in masks), "minutes"]]
    lines.append(["---"] * len(lines[0]))
    for label in dict.fromkeys(one.contender.label for one in trials):
        own = [one for one in trials if one.contender.label == label]
        count = len({one.candidate for one in own})
        picks = [str(chosen[label, mask]) for mask in masks]
        lines.append([label, str(count), *picks, f"{sum(one.seconds for one in own) / 60:.1f}"])
    return ["| " + " | ".join(line) + " |" for line in lines]
