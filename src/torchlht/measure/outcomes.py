"""A run's answers on test samples, kept beside its metrics: from them one sees how far a figure depends on the samples."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.errors import RunError
from torchlht.files import replacing
from torchlht.measure.base import Metric
from torchlht.measure.metrics import Counts, Spec, specs

FILE = "outcomes.npz"


@dataclass(frozen=True)
class Outcomes:
    """Answers to N samples at K levels, fine first.

    Attributes:
        labels: (N, K), -1 where unknown, and where the tree has no class since a branch ends early or skips the level.
        chosen: (N, K) answers, -1 where they are no class of the level.
        ruled: the same by other rules of answering, by their names.
    """

    labels: NDArray[Any]
    chosen: NDArray[Any]
    ruled: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def write(self, run: Path) -> None:
        """Write outcomes.npz, in the smallest integers that hold them."""
        most = max(int(one.max(initial=0)) for one in (self.labels, self.chosen, *self.ruled.values()))
        kind = np.min_scalar_type(-most - 1)  # signed, for -1
        named = {"labels": self.labels, "chosen": self.chosen, **{f"chosen + {name}": v for name, v in self.ruled.items()}}
        arrays: dict[str, Any] = {name: value.astype(kind) for name, value in named.items()}
        with replacing(run / FILE) as beside, beside.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def read(cls, run: Path, rule: str = "") -> Outcomes | None:
        """The answers in a run directory, by another rule if one is named; None if they were not kept.

        Raises:
            RunError: when the file is damaged.
        """
        if not (run / FILE).is_file():
            return None
        name = f"chosen + {rule}" if rule else "chosen"
        try:
            with (run / FILE).open("rb") as file, np.load(file, allow_pickle=False) as kept:
                found = cls(kept["labels"], kept[name]) if name in kept else None
        except (BadZipFile, EOFError, KeyError, ValueError, zlib.error) as error:
            raise RunError(f"{run / FILE}: damaged ({error}); remove it, and verdicts count seeds alone") from None
        if found and (found.labels.ndim != 2 or found.labels.shape != found.chosen.shape or found.chosen.dtype.kind != "i"):
            raise RunError(f"{run / FILE}: not the answers of a run; remove it, and verdicts count seeds alone")
        return found

    def same_samples(self, other: object) -> bool:
        """Whether both are about the same samples."""
        return isinstance(other, Outcomes) and np.array_equal(self.labels, other.labels)

    def known(self, level: int | None) -> NDArray[np.bool_]:
        """(N,) which samples have a label at a level, or at any."""
        labels = self.labels if level is None else self.labels[:, level : level + 1]
        some: NDArray[np.bool_] = np.any(labels >= 0, axis=1)
        return some

    def values(self, spec: Spec, level: int | None) -> NDArray[np.float64] | None:
        """(n,) a metric's value for each sample with a label: their mean is the figure, their spread its noise.

        Of an accuracy, they are 1 for right and 0 for wrong. Of other figures they are pseudo-values: the figure, plus n times
        its derivative by the weight of a sample (the infinitesimal jackknife). A sample counts once, at all levels together.

        Args:
            spec: the metric.
            level: the level, counted from the finest; None for a metric of a run.

        Returns:
            None for metrics that need more than answers.
        """
        known = self.known(level)
        if spec.by is None or isinstance(spec.by, type) or not known.any():
            return None
        weights = torch.ones(len(self.labels), dtype=torch.float64, requires_grad=True)
        if level is not None:
            figure = spec.by(self._counts(level, weights))
        else:
            shown = [k for k in reversed(range(self.labels.shape[1])) if self.known(k).any()]
            figure = spec.by([_figures(self._counts(k, weights)) for k in shown])
        if figure is None:
            return None
        (slope,) = torch.autograd.grad(figure, weights)
        found: NDArray[np.float64] = figure.item() + known.sum() * slope.numpy()[known]
        return found

    def _counts(self, level: int, weights: Tensor) -> Counts:
        """Sums of weights instead of counts."""
        known = torch.from_numpy(self.known(level))
        true, said = (torch.from_numpy(one[:, level].astype(np.int64))[known] for one in (self.labels, self.chosen))
        nothing = torch.zeros(1 + int(max(true.max(), said.max())), dtype=weights.dtype)
        weights, right = weights[known], said == true
        hits, there = nothing.index_add(0, true[right], weights[right]), said >= 0
        return Counts(hits, nothing.index_add(0, said[there], weights[there]), nothing.index_add(0, true, weights), None)


def _figures(counts: Counts) -> dict[str, Any]:
    """Metrics of a level that are functions of counts."""
    return {spec.name: spec.by(counts) for spec in specs("level") if spec.by and not isinstance(spec.by, type)}


class Recorder(Metric):
    """Collects answers batch by batch, also those of other processes, in the order of the samples."""

    rows: list[Tensor]
    tables: list[Tensor]

    def __init__(self, rules: Sequence[str] = ()) -> None:
        super().__init__()
        self.rules = rules
        self.add_state("rows", [])
        self.add_state("tables", [])

    def update(self, rows: Sequence[int], labels: Tensor, chosen: Sequence[Tensor]) -> None:
        """Positions of B samples, their labels (B, K), and their answers (B, K) by the run's rule and by each other one."""
        self.rows.append(torch.tensor(rows, dtype=torch.int64, device=labels.device))
        self.tables.append(torch.stack([labels, *chosen], dim=1))

    def compute(self) -> Tensor:
        """(N, 2 + rules, K): labels, then answers."""
        return torch.cat(self.tables)[torch.cat(self.rows).argsort()]

    def outcomes(self) -> Outcomes | None:
        """All of them, or None if there were no samples; every process has to ask."""
        if not self.update_called:
            return None
        labels, own, *others = (one.cpu().numpy() for one in self.compute().unbind(dim=1))
        return Outcomes(labels, own, dict(zip(self.rules, others, strict=True)))
