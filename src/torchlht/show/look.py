"""One look for every figure: colours and type, light and dark, panels measured in inches, and classes in the order of the tree.

A figure is a `matplotlib.figure.Figure`. A theme applies to every figure that is made and saved inside a `with` block:

>>> with look(DARK):
...     png = figure_png(gamma_figure(["runs/birds"]))

It applies to one thread or task only: figures drawn elsewhere at the same time keep their own theme.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from torchlht.files import replacing
from torchlht.hierarchy.tree import Hierarchy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Side = Literal["x", "y"]
Scale = Literal["root", "log"]

DPI = 150
SMALLEST = 1e-4  # smallest share on a logarithmic scale
TYPE_SIZES = (8.0, 7.0, 6.0)  # of class names, in points; the first that fits is used
LEADING = 1.2
LONGEST = 28  # letters of a class name
TIED, UNTIED = 14.0, 4.0  # points between a heat map and names, with and without lines


# ---- themes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Theme:
    """The colours of one look.

    Attributes:
        name: its name in files and style sheets.
        paper: colour of the background.
        ink, grey, faint: colours of text and axes, of thin lines, of grids.
        rules: colours of lines between groups of classes: finer ones, and the coarsest.
        colours: colours of curves, distinct also without red and green.
        right, wrong: colours of answers.
        shares: colour map from none to all, starting near the background.
        heat: colour map over pictures.
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
    """A colour map with a colour for NaN."""
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
_current: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


def theme() -> Theme:
    """The theme of the current block; light outside any block."""
    return _current.get()


@contextmanager
def look(chosen: Theme | None = None) -> Iterator[Theme]:
    """Context: figures are drawn in one theme, by default that of the surrounding block."""
    token = _current.set(chosen or _current.get())
    try:
        with matplotlib.rc_context(_style(_current.get())):
            yield _current.get()
    finally:
        _current.reset(token)


def _style(chosen: Theme) -> Any:
    """Matplotlib's settings for a theme."""
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
        "text.parse_math": False,  # a class name may contain dollars
    }


# ---- figures -------------------------------------------------------------------------------------------------------


def panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    *,
    gap: tuple[float, float] = (0.5, 0.5),
    margin: tuple[float, float, float, float] = (1.2, 1.2, 0.9, 0.6),
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows × columns panels of exactly this size.

    Args:
        rows: number of rows; the first is on top.
        columns: number of columns.
        size: width and height of a panel, in inches.
        gap: gap between columns and between rows, in inches.
        margin: left, bottom, right and top, in inches; empty parts are cut off when a figure is saved.
    """
    left, bottom, right, top = margin
    width = left + columns * size[0] + (columns - 1) * gap[0] + right
    height = bottom + rows * size[1] + (rows - 1) * gap[1] + top
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=theme().paper)

    def at(row: int, column: int) -> Axes:
        """One panel."""
        x, y = left + column * (size[0] + gap[0]), bottom + (rows - 1 - row) * (size[1] + gap[1])
        return figure.add_axes((x / width, y / height, size[0] / width, size[1] / height))

    return figure, [[at(row, column) for column in range(columns)] for row in range(rows)]


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a PNG completely or not at all; returns its path."""
    with replacing(Path(path)) as beside:
        beside.write_bytes(figure_png(figure))
    return Path(path)


def figure_png(figure: Figure) -> bytes:
    """The figure as PNG bytes, cut to what is drawn."""
    buffer = io.BytesIO()
    with look():
        figure.savefig(buffer, dpi=DPI, format="png", bbox_inches="tight", pad_inches=0.08)
    return buffer.getvalue()


def caption(axes: Axes, text: str, *, lines: int = 1) -> None:
    """Write a line about the whole figure above a panel's title, which has this many lines."""
    above = (12 + 11 * lines) / (72 * inches(axes, "y"))
    axes.text(0, 1 + above, text, transform=axes.transAxes, fontsize=10)


def head(axes: Axes, *parts: str) -> int:
    """A panel's title: its parts on one line, or on several if they do not fit; returns the number of lines."""
    letters = max(12, int(72 * inches(axes, "x") / 4.9))  # letters of 9 points that fit
    joined = "  ·  ".join(part for part in parts if part)
    lines = [joined] if len(joined) <= letters else [line for part in parts for line in textwrap.wrap(part, letters)]
    axes.set_title("\n".join(lines))
    return len(lines)


def fitting(cells: int, target: float) -> float:
    """The length in inches near a target at which each of `cells` is a whole number of pixels, so that all look equal."""
    return cells * max(1, round(target * DPI / cells)) / DPI


def figure_of(axes: Axes) -> Figure:
    """The figure that a panel is in."""
    assert isinstance(axes.figure, Figure)
    return axes.figure


def beside(axes: Axes, gap: float, size: tuple[float, float]) -> Axes:
    """One more panel to the right of another, level with its top; all in inches."""
    figure = figure_of(axes)
    box, (width, height) = axes.get_position(), figure.get_size_inches()
    return figure.add_axes((box.x1 + gap / width, box.y1 - size[1] / height, size[0] / width, size[1] / height))


def inches(axes: Axes, side: Side) -> float:
    """The length of a side of a panel."""
    box, (width, height) = axes.get_position(), figure_of(axes).get_size_inches()
    return float(box.width * width if side == "x" else box.height * height)


# ---- matrices ------------------------------------------------------------------------------------------------------


def share_scale(scale: Scale = "root") -> Normalize:
    """A scale from 0 to 1 with more room for small shares: square root, or logarithm from 0.01 %."""
    return LogNorm(SMALLEST, 1) if scale == "log" else PowerNorm(0.5, vmin=0, vmax=1)


def heat_map(axes: Axes, matrix: Floats, norm: Normalize) -> AxesImage:
    """A matrix as colours, row 0 on top, without ticks; NaN entries are grey."""
    drawn = np.ma.masked_invalid(np.clip(matrix, norm.vmin, norm.vmax))
    image = axes.imshow(drawn, cmap=theme().shares, norm=norm, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
    return image


def colour_bar(axes: Axes, image: AxesImage, label: str, ticks: Sequence[float], names: Sequence[str]) -> None:
    """Draw the legend of a heat map's colours to the right of a panel."""
    bar = beside(axes, 0.14, (0.1, min(inches(axes, "y"), 2.2)))
    figure_of(axes).colorbar(image, cax=bar)
    bar.set_ylabel(label, fontsize=TYPE_SIZES[0])
    bar.set_yticks(list(ticks), list(names), fontsize=TYPE_SIZES[1])
    bar.minorticks_off()
    bar.spines[:].set_visible(True)


def share_bar(axes: Axes, image: AxesImage, label: str, scale: Scale = "root") -> None:
    """The colour bar of `share_scale`."""
    ticks = (0, 0.01, 0.1, 0.25, 0.5, 1) if scale == "root" else (SMALLEST, 0.001, 0.01, 0.1, 1)
    names = [f"{100 * tick:g}%" if tick != SMALLEST else f"≤ {100 * tick:g}%" for tick in ticks]
    colour_bar(axes, image, f"{label} ({scale} scale)", ticks, names)


# ---- classes in the order of the tree ------------------------------------------------------------------------------


def taxonomy_order(tree: Hierarchy, level: int) -> Ints:
    """The classes of a level, ordered so that those of one parent are adjacent, and so on upwards."""
    return np.lexsort([tree.ancestors(k, of=level) for k in range(level, len(tree))])


class Group(NamedTuple):
    """Neighbours in the order of the tree that share a class of a coarser level: positions start ≤ i < stop."""

    start: int
    stop: int
    label: int

    @property
    def centre(self) -> float:
        """Its centre; position i is a cell from i - ½ to i + ½."""
        return (self.start + self.stop - 1) / 2


def groups(tree: Hierarchy, level: int, by: int) -> list[Group]:
    """The classes of a level in the order of the tree, grouped by their ancestors at level `by`."""
    above = tree.ancestors(by, of=level)[taxonomy_order(tree, level)]
    cuts = [0, *(np.flatnonzero(np.diff(above)) + 1).tolist(), len(above)]
    return [Group(start, stop, int(above[start])) for start, stop in pairwise(cuts)]


def plain(name: str) -> str:
    """A class name as people write it: "001.Black_footed_Albatross" is Black footed Albatross; very long ones are cut."""
    text = re.sub(r"^\d+\.(?=\D)", "", name).replace("_", " ").strip() or name
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def separate(axes: Axes, tree: Hierarchy, level: int, side: Side) -> None:
    """Thin lines between the groups of every coarser level, the coarser the darker."""
    for by in range(level + 1, len(tree)):
        coarsest = by == len(tree) - 1 and by > level + 1
        cuts = [group.start / tree.sizes[level] for group in groups(tree, level, by)[1:]]
        ends = [[(cut, 0), (cut, 1)] if side == "x" else [(0, 1 - cut), (1, 1 - cut)] for cut in cuts]
        _lines(axes, ends, color=theme().rules[coarsest], linewidth=0.5 if coarsest else 0.3, alpha=0.7)


def label_classes(axes: Axes, tree: Hierarchy, level: int, side: Side) -> int:
    """Names along a side of a heat map: of the classes or, if these do not fit, of the finest groups that do.

    A name that would overlap its neighbour is moved aside and joined to its place by a thin line. Returns the level of the
    names.
    """
    length = 72 * inches(axes, side)
    by, size = _fitting_names(tree, level, length)
    found = _named(groups(tree, level, by), max(1, int(length / (size * LEADING))), equal=by == level)
    places = np.array([(group.centre + 0.5) / tree.sizes[level] for group in found])
    moved = spread(places * length, size * LEADING, length) / length
    away = (TIED if by > level else UNTIED) / (72 * inches(axes, "y" if side == "x" else "x"))
    for group, at in zip(found, moved.tolist(), strict=True):
        _write_name(axes, side, at, away, plain(tree.text(by, group.label)), size)
    if by > level:
        pairs = zip(places.tolist(), moved.tolist(), strict=True)
        near = 0.85 * away
        ends = [[(a, 0), (b, -near)] if side == "x" else [(0, 1 - a), (-near, 1 - b)] for a, b in pairs]
        _lines(axes, ends, color=theme().grey, linewidth=0.4)
    return by


def _fitting_names(tree: Hierarchy, level: int, length: float) -> tuple[int, float]:
    """The finest level whose names fit along a length in points, and their size."""
    for by in range(level, len(tree)):
        for size in TYPE_SIZES:
            if tree.sizes[by] * size * LEADING <= length:
                return by, size
    return len(tree) - 1, TYPE_SIZES[-1]


def _named(found: list[Group], most: int, *, equal: bool) -> list[Group]:
    """The groups to name: at most `most`, the largest, or evenly chosen if all are of one size."""
    if len(found) <= most:
        return found
    if equal:
        return found[:: math.ceil(len(found) / most)]
    return sorted(sorted(found, key=lambda group: group.start - group.stop)[:most])


def _write_name(axes: Axes, side: Side, at: float, away: float, text: str, size: float) -> None:
    """Write one name next to a heat map, at a share of the side's length."""
    if side == "x":
        where: dict[str, Any] = {"x": at, "y": -away, "rotation": 90, "ha": "center", "va": "top"}
    else:
        where = {"x": -away, "y": 1 - at, "ha": "right", "va": "center_baseline"}
    axes.text(**where, s=text, transform=axes.transAxes, fontsize=size)


def _lines(axes: Axes, ends: Sequence[Sequence[tuple[float, float]]], **style: Any) -> None:
    """Draw straight lines between pairs of points, in shares of a panel's sides."""
    axes.add_artist(LineCollection(ends, transform=axes.transAxes, clip_on=False, **style))


def spread(places: Floats, gap: float, length: float) -> Floats:
    """Ascending places moved as little as possible (least squares) so that neighbours are at least `gap` apart.

    They stay within 0…length, half a gap from its ends, if there is room for all of them.
    """
    offsets = gap * np.arange(len(places))
    room = length - gap / 2 - offsets[-1] if len(places) else 0.0
    level = _ascending(places - offsets)
    return np.clip(level, min(gap / 2, room), max(room, gap / 2)) + offsets


def _ascending(values: Floats) -> Floats:
    """The nearest non-decreasing sequence: pool adjacent violators."""
    blocks: list[tuple[float, int]] = []  # mean and size
    for value in values.tolist():
        block = (value, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, n = blocks.pop()
            block = ((mean * n + block[0] * block[1]) / (n + block[1]), n + block[1])
        blocks.append(block)
    return np.array([mean for mean, n in blocks for _ in range(n)])
