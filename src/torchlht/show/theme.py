"""Colours and type, light and dark. A theme holds inside a block, for every figure that is made and saved in it:

>>> with look(DARK):
...     png = figure_png(gamma_figure(["runs/birds"]))

It is kept per thread and task, not in the program: what is drawn elsewhere at the same time keeps its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap


@dataclass(frozen=True)
class Theme:
    """The colours of one look.

    Attributes:
        name: what files and style sheets call it.
        paper: behind everything.
        ink, grey, faint: of text and axes, of thin lines, of grids.
        rules: of lines between groups of classes: finer ones, and the coarsest.
        colours: of lines, told apart without red and green.
        right, wrong: of answers.
        shares: from none to all, beginning with nearly the paper.
        heat: of maps that lie on pictures.
        wash: darkest and lightest tone of a grey picture under a map.
    """

    name: str
    paper: str
    ink: str
    grey: str
    faint: str
    rules: tuple[str, str]
    colours: tuple[str, ...]
    right: str
    wrong: str
    shares: Any
    heat: Any
    wash: tuple[float, float]


def _scale(name: str, colours: list[str], bad: str) -> Any:
    """A colour map, and the colour of what is not a number."""
    return LinearSegmentedColormap.from_list(name, colours).with_extremes(bad=bad)


LIGHT = Theme(
    name="light",
    paper="#ffffff",
    ink="#333333",
    grey="#999999",
    faint="#dddddd",
    rules=("#999999", "#333333"),
    colours=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    right="#2f7d4f",
    wrong="#b4472f",
    shares=_scale("shares", ["#ffffff", "#b9dcf2", "#56b4e9", "#0072b2", "#002b45"], "#dddddd"),
    heat=_scale("heat", ["#e69f00", "#d55e00", "#8c1c13"], "#dddddd"),
    wash=(0.35, 1.0),
)
DARK = Theme(
    name="dark",
    paper="#15191e",
    ink="#d3d9de",
    grey="#76818b",
    faint="#333b43",
    rules=("#434d56", "#7d8a95"),
    colours=("#5ab4ee", "#ff9551", "#35c49a", "#e39cc5", "#f2c14e", "#9db2ff"),
    right="#66c78f",
    wrong="#ff8a70",
    shares=_scale("shares-dark", ["#15191e", "#15405f", "#0f74b0", "#5ab4ee", "#f1f9ff"], "#333b43"),
    heat=_scale("heat-dark", ["#f2c14e", "#f07f2e", "#c2301f"], "#333b43"),
    wash=(0.05, 0.8),
)
THEMES = (LIGHT, DARK)
_current: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


def theme() -> Theme:
    """The theme of the block that is running; light outside of any."""
    return _current.get()


@contextmanager
def look(chosen: Theme | None = None) -> Iterator[Theme]:
    """A block in which figures are made in one look.

    Args:
        chosen: its theme; that of the block around it by default.
    """
    token = _current.set(chosen or _current.get())
    try:
        with matplotlib.rc_context(_style(_current.get())):
            yield _current.get()
    finally:
        _current.reset(token)


def _style(chosen: Theme) -> Any:
    """What matplotlib is told of a theme."""
    inked = ("text.color", "axes.titlecolor", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(inked, chosen.ink),
        "axes.facecolor": chosen.paper,
        "figure.facecolor": chosen.paper,
        "grid.color": chosen.faint,
        "grid.linewidth": 0.6,
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.titlelocation": "left",
        "axes.linewidth": 0.6,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "legend.frameon": False,
        "text.parse_math": False,  # a class may have dollars in its name
    }
