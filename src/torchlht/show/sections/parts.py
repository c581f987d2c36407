"""What sections are made from: the runs a page is about, tables, figures in two themes, and words that several sections use."""

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

LARGEST = 2000  # classes of a level above which nothing of classes × classes is drawn
SCREEN = 96  # pixels that an inch of a figure takes on a page


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


@dataclass(frozen=True)
class Content:
    """What a section shows.

    Attributes:
        data: what its template asks for, by name.
        figures: those in it.
        missing: a sentence for each thing that is left out.
    """

    data: Mapping[str, object] = field(default_factory=dict)
    figures: Sequence[Drawn] = ()
    missing: Sequence[str] = ()


class Cell(NamedTuple):
    """A cell of a table that is more than a text.

    Attributes:
        text: what it says.
        kind: its class in the style sheet.
        share: how long the bar behind it is, from 0 to 1.
        span: how many rows it stands at the head of.
    """

    text: str
    kind: str = ""
    share: float | None = None
    span: int = 0


class Table(NamedTuple):
    """A table of a page.

    Attributes:
        head: names of the columns.
        rows: cells; a row that a cell of an earlier one reaches into has fewer.
        words: how many columns at the left hold words, the rest numbers.
        ours: rows that stand out.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    words: int = 1
    ours: Sequence[int] = ()


def same_samples(a: Seen, b: Seen) -> bool:
    """Whether two runs were asked about the same samples, in the same order."""
    return a.samples.keys == b.samples.keys and bool(np.array_equal(a.labels, b.labels))


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


def name_of(tree: Hierarchy, level: int, label: int) -> str:
    """A class as people write it."""
    return plain(tree.classes[level][label])


def samples_text(seen: Seen) -> str:
    """How many samples of which part: 5,794 test pictures."""
    noun = "picture" if seen.samples.images is not None else "sample"
    return plural(len(seen.samples), f"{PARTS[seen.split]}{noun}")


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in percent without the sign; a dash where there is nothing."""
    return number(None if value is None else 100 * value, digits)


def number(value: float | None, digits: int = 2) -> str:
    """A number; a dash where there is nothing."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


# ---- pictures ------------------------------------------------------------------------------------------------------


class Picture(NamedTuple):
    """An image of a page: its address, pixels on the screen, what it shows, and its class in the style sheet."""

    source: str
    width: int
    height: int
    alt: str
    kind: str = ""


@dataclass(frozen=True)
class Drawn:
    """A figure in both themes.

    Attributes:
        name: of its file, without .png.
        alt: what it shows, for those who do not see it.
        light, dark: PNGs.
        photographs: whether photographs are in it, which PNG stores badly.
    """

    name: str
    alt: str
    light: bytes
    dark: bytes
    photographs: bool = False

    def pictures(self) -> list[Picture]:
        """One for each theme; the style sheet hides the other."""
        return [self._picture(png, f"on-{theme.name}") for theme, png in ((LIGHT, self.light), (DARK, self.dark))]

    def _picture(self, png: bytes, kind: str) -> Picture:
        width, height = (round(side * SCREEN / DPI) for side in Image.open(io.BytesIO(png)).size)
        source = jpeg(Image.open(io.BytesIO(png))) if self.photographs else data_uri(png, "image/png")
        return Picture(source, width, height, self.alt, kind)


def draw(name: str, alt: str, make: Callable[[], Figure], *, photographs: bool = False) -> Drawn:
    """Draw a figure twice, in light and in dark.

    Args:
        name: of its file.
        alt: what it shows.
        make: draws it in the theme of the block that it is called in.
        photographs: whether photographs are in it; all others get by with 256 colours.
    """
    found = []
    for theme in (LIGHT, DARK):
        with look(theme):
            png = figure_png(make())
        found.append(png if photographs else few_colours(png))
    return Drawn(name, alt, found[0], found[1], photographs)


def few_colours(png: bytes) -> bytes:
    """The same picture with 256 colours, which takes a quarter of the room; none is far from what it was."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    buffer = io.BytesIO()
    image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def jpeg(image: Image.Image, quality: int = 86) -> str:
    """A picture as a JPEG in an address."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return data_uri(buffer.getvalue(), "image/jpeg")


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as an address that needs no file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
