"""Accuracy against money spent, a panel per level: one line per strategy, the mean over seeds, with their spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from torchlht.show.look import look, panels

MARKERS = "osD^vP*X"
Floats = NDArray[np.float64]


class Curve(NamedTuple):
    """(R,) money spent, and (seeds, R, columns) accuracy in percent."""

    costs: Floats
    accuracy: Floats


def spending_figure(curves: Mapping[str, Curve], levels: Sequence[str], columns: Sequence[int]) -> Figure:
    """A panel per level.

    Args:
        curves: by strategy.
        levels: titles of the panels, coarse → fine, then the mean.
        columns: the column of each panel.
    """
    with look() as now:
        figure, [line] = panels(1, len(levels), (2.5, 2.6), gap=(0.45, 0), margin=(0.7, 0.6, 1.9, 0.4))
        for axes, level, column in zip(line, levels, columns, strict=True):
            for i, (name, (costs, accuracy)) in enumerate(curves.items()):
                mean, colour = accuracy[:, :, column].mean(axis=0), now.colours[i % len(now.colours)]
                marker = MARKERS[i % len(MARKERS)]
                axes.plot(costs, mean, color=colour, linewidth=1.3, marker=marker, markersize=3, label=name)
                if len(accuracy) > 1:
                    off = accuracy[:, :, column].std(axis=0, ddof=1)
                    axes.fill_between(costs, mean - off, mean + off, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(level)
            axes.set_xlabel("spent")
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.grid(axis="y")
            axes.set_axisbelow(True)
        line[0].set_ylabel("accuracy on test samples, %")
        line[-1].legend(loc="center left", bbox_to_anchor=(1.04, 0.5))
    return figure
