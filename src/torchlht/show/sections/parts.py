"""Parts of sections: the runs of a page, tables, figures in two themes, and shared wording."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from torchlht.console import plural
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import DARK, DPI, LIGHT, figure_png, look, plain
from torchlht.show.seen import Seen

LARGEST = 2000  # with more classes in a level, no classes × classes figure is drawn
SCREEN = 96  # pixels per inch of a figure on a page


@dataclass(frozen=True)
class Subject:
    """A run, those to compare it with, and the options of the page.

    Attributes:
        runs: the predictions of each run; the page is about the first.
        images: how many pictures to explain with Grad-CAM, and how many of the worst mistakes to show.
        attributes: the file of attributes of the finest classes, if given.
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
        """The runs with the same samples as the first."""
        return [one for one in self.runs if same_samples(one, self.ours)]


@dataclass(frozen=True)
class Content:
    """The content of a section.

    Attributes:
        data: values for its template, by name.
        figures: its figures.
        missing: one sentence for each thing left out.
    """

    data: Mapping[str, object] = field(default_factory=dict)
    figures: Sequence[Drawn] = ()
    missing: Sequence[str] = ()


class Cell(NamedTuple):
    """A table cell with more than text.

    Attributes:
        text: its text.
        kind: its class in the style sheet.
        share: length of the bar behind it, from 0 to 1.
        span: number of rows it spans.
    """

    text: str
    kind: str = ""
    share: float | None = None
    span: int = 0


class Table(NamedTuple):
    """A table of a page.

    Attributes:
        head: names of the columns.
        rows: cells; a row has fewer if a cell of an earlier row spans it.
        words: how many columns at the left hold words, the rest numbers.
        ours: rows to highlight.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: int = 1
    ours: Sequence[int] = ()


def same_samples(a: Seen, b: Seen) -> bool:
    """Whether two runs have the same samples in the same order."""
    return a.samples.keys == b.samples.keys and bool(np.array_equal(a.labels, b.labels))


def drawable(tree: Hierarchy, wanted: list[int]) -> tuple[list[int], list[str]]:
    """Levels small enough to draw, with the next coarser one for one that is not; and sentences about those."""
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


def name_of(tree: Hierarchy, level: int, label: int) -> str:
    """A class name for people."""
    return plain(tree.text(level, label))


def samples_text(seen: Seen) -> str:
    """How many samples of which part: 5,794 test pictures."""
    noun = "picture" if seen.samples.images is not None else "sample"
    return plural(len(seen.samples), f"{PARTS[seen.split]}{noun}")


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in percent without the sign; a dash for None."""
    return number(None if value is None else 100 * value, digits)


def number(value: float | None, digits: int = 2) -> str:
    """A number; a dash for None."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


# ---- pictures ------------------------------------------------------------------------------------------------------


class Picture(NamedTuple):
    """An image of a page: its address, size in pixels, alternative text, and class in the style sheet."""

    source: str
    width: int
    height: int
    alt: str
    kind: str = ""


@dataclass(frozen=True)
class Drawn:
    """A figure in both themes.

    Attributes:
        name: name of its file, without .png.
        alt: what it shows, for readers who cannot see it.
        light, dark: PNGs.
        photographs: whether it contains photographs, which PNG compresses badly.
    """

    name: str
    alt: str
    light: bytes
    dark: bytes
    photographs: bool = False

    def pictures(self) -> list[Picture]:
        """One picture for each theme; the style sheet hides the other."""
        return [self._picture(png, f"on-{theme.name}") for theme, png in ((LIGHT, self.light), (DARK, self.dark))]

    def _picture(self, png: bytes, kind: str) -> Picture:
        width, height = (round(side * SCREEN / DPI) for side in Image.open(io.BytesIO(png), formats=("PNG",)).size)
        source = jpeg(Image.open(io.BytesIO(png), formats=("PNG",))) if self.photographs else data_uri(png, "image/png")
        return Picture(source, width, height, self.alt, kind)


def draw(name: str, alt: str, make: Callable[[], Figure], *, photographs: bool = False) -> Drawn:
    """Draw a figure twice, in light and in dark.

    Args:
        name: name of its file.
        alt: what it shows.
        make: draws it in the current theme.
        photographs: whether it contains photographs; other figures need only 256 colours.
    """
    found = []
    for theme in (LIGHT, DARK):
        with look(theme):
            png = figure_png(make())
        found.append(png if photographs else few_colours(png))
    return Drawn(name, alt, found[0], found[1], photographs)


def few_colours(png: bytes) -> bytes:
    """The same picture with 256 colours, a quarter of the size; colours hardly change."""
    image = Image.open(io.BytesIO(png), formats=("PNG",)).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def jpeg(image: Image.Image, quality: int = 86) -> str:
    """A picture as a data URI of a JPEG."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return data_uri(buffer.getvalue(), "image/jpeg")


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as a data URI."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
