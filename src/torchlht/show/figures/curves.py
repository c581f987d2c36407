"""γ, the weight of the tree in each learned transition, over the epochs of runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from torchlht.answer.model import TREE, read_config
from torchlht.errors import ConfigError, RunError
from torchlht.heads.method import method_options
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import panels
from torchlht.show.theme import look

PREFIX = "gamma_"


class GammaCurves(NamedTuple):
    """γ of one run: its initial value, and per level (coarse → fine) its value after each epoch."""

    start: float
    levels: dict[str, list[float]]


def read_gamma(run: str | Path) -> GammaCurves:
    """γ from a run's history.csv, and where it started from its config.yaml.

    Raises:
        RunError: when there is no history, or no γ in it.
    """
    folder = Path(run)
    model = read_config(folder)["model"]
    try:
        with (folder / "history.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise RunError(f"{folder}: no history.csv; not one epoch has ended yet") from None
    tree = Hierarchy.read(folder / TREE)
    names = [tree.levels[k] for k in tree.top_down if rows and PREFIX + tree.levels[k] in rows[0]]
    if not names:
        raise RunError(f"{folder}: its history has no γ; only the low_rank transition of lht has one, not {model['method']}")
    start = {**method_options(model["method"]), **model["options"]}["gamma"]
    return GammaCurves(float(start), {name: [float(row[PREFIX + name]) for row in rows] for name in names})


def gamma_figure(runs: Sequence[str | Path], *, title: str = "") -> Figure:
    """γ of each level's transition after every epoch: a line per level, thin ones for single runs where there are several.

    Args:
        runs: run directories, such as the seeds of one configuration.
        title: a line above the figure.
    """
    if not runs:
        raise ConfigError("no runs to draw γ of")
    curves = [read_gamma(run) for run in runs]
    levels = list(dict.fromkeys(level for curve in curves for level in curve.levels))
    with look() as now:
        figure, [[axes]] = panels(1, 1, (4.6, 2.8), margin=(0.8, 0.7, 1.8, 0.7))
        for i, level in enumerate(levels):
            of_level = [[curve.start, *curve.levels[level]] for curve in curves if level in curve.levels]
            _draw_level(axes, of_level, level, now.colours[i % len(now.colours)])
        for n, start in enumerate(sorted({curve.start for curve in curves})):
            axes.axhline(start, color=now.ink, linewidth=0.6, linestyle=":", zorder=1)
            axes.plot(0, start, "o", color=now.paper, markeredgecolor=now.ink, zorder=4, label="" if n else "initial value")
        axes.set_xlabel("epochs")
        axes.set_ylabel("γ, weight of the tree")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        seeds = f"thick: mean of {len(runs)} runs" if len(runs) > 1 else ""
        axes.set_title("  ·  ".join(part for part in (title, seeds) if part))
    return figure


def _draw_level(axes: Axes, curves: Sequence[Sequence[float]], level: str, colour: str) -> None:
    """One level's γ from epoch 0, where it has its initial value; the mean runs as far as all runs do."""
    for values in curves if len(curves) > 1 else ():
        axes.plot(range(len(values)), values, color=colour, linewidth=0.6, alpha=0.5)
    mean = [fmean(values) for values in zip(*curves, strict=False)]
    axes.plot(range(len(mean)), mean, color=colour, linewidth=1.6, label=f"transition to {level}")
