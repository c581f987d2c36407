"""How training went: the loss, accuracies on training and validation samples, and γ, the weight of the tree, by epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from torchlht.answer.records import TREE, read_config
from torchlht.errors import ConfigError, RunError
from torchlht.files import read_csv
from torchlht.heads.method import method_options, older_options
from torchlht.heads.transition.networks import gamma_for
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import look, panels, theme

PREFIX = "gamma_"
Lines = dict[str, list[float]]


@dataclass(frozen=True)
class History:
    """The content of a run's history.csv, levels coarse → fine; missing parts are empty.

    Attributes:
        epochs: their numbers.
        loss: loss of each epoch.
        train, val: accuracy per level on training and on validation samples.
        gamma: weight of the tree, for levels that have one.
    """

    epochs: list[int]
    loss: list[float]
    train: Lines
    val: Lines
    gamma: Lines


def read_history(run: str | Path, levels: Sequence[str]) -> History | None:
    """The history of a run; None if it has none, as with a method that is fitted at once.

    Args:
        run: a run directory.
        levels: names of the levels, coarse → fine.
    """
    file = Path(run) / "history.csv"
    if not file.is_file():
        return None
    rows = read_csv(file)
    if not rows:
        return None
    train, val, gamma = (_lines(rows, prefix, levels) for prefix in ("train_", "val_", PREFIX))
    loss = _column(rows, "loss")
    found = History([int(float(row.get("epoch") or i + 1)) for i, row in enumerate(rows)], loss, train, val, gamma)
    return found if loss or train or val else None


def _lines(rows: Sequence[Mapping[str, str]], prefix: str, levels: Sequence[str]) -> Lines:
    """The columns with a prefix, by level."""
    return {level: values for level in levels if (values := _column(rows, prefix + level))}


def _column(rows: Sequence[Mapping[str, str]], name: str) -> list[float]:
    """A column as numbers, NaN for an empty cell; an empty list if the whole column is empty."""
    if not any(row.get(name) for row in rows):
        return []
    return [float(row.get(name) or "nan") for row in rows]


def learning_figure(history: History) -> Figure:
    """Panels side by side: loss, accuracy per level, and γ if there is one."""
    shown = [name for name in ("loss", "accuracy", "γ") if _has(history, name)]
    levels = list(history.train or history.val)
    with look() as now:
        figure, [line] = panels(1, len(shown), (2.75, 2.2), gap=(0.6, 0), margin=(0.7, 0.7, 1.8, 0.4))
        colours = {level: now.colours[i % len(now.colours)] for i, level in enumerate(levels)}
        for axes, name in zip(line, shown, strict=True):
            _draw(axes, history, name, colours)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        keys = [Line2D([], [], color=colour, label=level) for level, colour in colours.items()]
        keys += [Line2D([], [], color=now.ink, linestyle=style, label=text) for style, text in _styles(history)]
        line[-1].legend(handles=keys, loc="center left", bbox_to_anchor=(1.04, 0.5))
    return figure


def _has(history: History, panel: str) -> bool:
    """Whether there is anything to draw in a panel."""
    return bool({"loss": history.loss, "accuracy": history.train or history.val, "γ": history.gamma}[panel])


def _styles(history: History) -> list[tuple[Any, str]]:
    """Line styles of the accuracies."""
    pairs = [("--", "training samples", history.train), ("-", "validation samples", history.val)]
    return [(style, text) for style, text, lines in pairs if lines]


def _draw(axes: Axes, history: History, panel: str, colours: Mapping[str, str]) -> None:
    """One panel."""
    dot = "o" if len(history.epochs) == 1 else ""
    if panel == "loss":
        axes.plot(history.epochs, history.loss, color=theme().ink, linewidth=1.4, marker=dot)
        axes.set_title("loss on training samples")
        axes.set_ylim(bottom=0 if min(history.loss) > 0 else None)
    elif panel == "γ":
        for level, values in history.gamma.items():
            axes.plot(history.epochs, values, color=colours[level], linewidth=1.4, marker=dot)
        axes.set_title("γ, weight of the tree in T")
    else:
        for style, lines in (("--", history.train), ("-", history.val)):
            for level, values in lines.items():
                axes.plot(history.epochs, values, style, color=colours[level], linewidth=1.4, marker=dot)
        axes.set_title("accuracy")
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))


# ---- γ of several runs ---------------------------------------------------------------------------------------------


class GammaCurves(NamedTuple):
    """γ of one run per level (coarse → fine): its initial value, and its value after each epoch."""

    start: dict[str, float]
    levels: dict[str, list[float]]


def read_gamma(run: str | Path) -> GammaCurves:
    """γ from a run's history.csv, and its initial value from config.yaml.

    Raises:
        RunError: when there is no history, or no γ in it.
    """
    folder = Path(run)
    model = read_config(folder)["model"]
    try:
        rows = read_csv(folder / "history.csv")
    except FileNotFoundError:
        raise RunError(f"{folder}: no history.csv; no epoch has finished yet") from None
    tree = Hierarchy.read(folder / TREE)
    names = [tree.levels[k] for k in tree.top_down if rows and PREFIX + tree.levels[k] in rows[0]]
    if not names:
        raise RunError(f"{folder}: its history has no γ; only the low_rank transition of lht has one, not {model['method']}")
    method, recorded = model["method"], model["options"]
    given = {**method_options(method), **older_options(method, recorded), **recorded}["gamma"]
    start = {name: gamma_for(tree.sizes[tree.levels.index(name)]) if given is None else float(given) for name in names}
    return GammaCurves(start, {name: [float(row[PREFIX + name]) for row in rows] for name in names})


def gamma_figure(runs: Sequence[str | Path], *, title: str = "") -> Figure:
    """γ of each level's transition after every epoch: one line per level; with several runs, thin lines for each.

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
            of_level = [[curve.start[level], *curve.levels[level]] for curve in curves if level in curve.levels]
            _draw_gamma(axes, of_level, level, now.colours[i % len(now.colours)])
        for n, start in enumerate(sorted({start for curve in curves for start in curve.start.values()})):
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


def _draw_gamma(axes: Axes, curves: Sequence[Sequence[float]], level: str, colour: str) -> None:
    """One level's γ from epoch 0, where it has its initial value; the mean covers the epochs that all runs have."""
    for values in curves if len(curves) > 1 else ():
        axes.plot(range(len(values)), values, color=colour, linewidth=0.6, alpha=0.5)
    mean = [fmean(values) for values in zip(*curves, strict=False)]
    axes.plot(range(len(mean)), mean, color=colour, linewidth=1.6, label=f"transition to {level}")
