"""The pieces of a page: text that is safe, tables, figures in two themes, sections. Plain strings, no template engine."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from torchlht.show.look import DARK, DPI, LIGHT, figure_png, look

SCREEN = 96  # pixels that an inch of a figure takes on a page


class Html(str):
    """Text that is HTML already; any other text is escaped before it gets on a page."""

    __slots__ = ()


def safe(text: object) -> Html:
    """Text for a page: HTML as it is, anything else with its special characters escaped."""
    return text if isinstance(text, Html) else Html(html.escape(str(text), quote=True))


def tag(name: str, *content: object, **attributes: object) -> Html:
    """An element. An attribute that is None or False is left out, True stands alone; class_ and for_ lose their underscore."""
    parts = [name]
    for key, value in attributes.items():
        if value is not None and value is not False:
            word = key.rstrip("_").replace("_", "-")
            parts.append(word if value is True else f'{word}="{safe(value)}"')
    if name in ("img", "meta", "br"):
        return Html(f"<{' '.join(parts)}>")
    return Html(f"<{' '.join(parts)}>{joined(content)}</{name}>")


def joined(parts: Sequence[object], between: str = "") -> Html:
    """Several pieces one after another."""
    return Html(between.join(safe(part) for part in parts))


def paragraph(*content: object, kind: str | None = None) -> Html:
    """A paragraph."""
    return tag("p", *content, class_=kind)


def left_out(sentence: str) -> Html:
    """Says in a section's place why it is not there."""
    return paragraph(sentence, kind="left-out")


def details(summary: str, *content: object) -> Html:
    """Something that is opened by a click."""
    return tag("details", tag("summary", summary), *content)


# ---- tables --------------------------------------------------------------------------------------------------------


def table(head: Sequence[object], rows: Sequence[Sequence[object]], *, words: int = 1, ours: Sequence[int] = ()) -> Html:
    """A table in a box that scrolls by itself.

    Args:
        head: names of the columns.
        rows: cells; a cell that is a `tag` of td or th is taken as it is.
        words: how many columns at the left hold words, the rest numbers.
        ours: rows that stand out.
    """
    names = [tag("th", name, scope="col", class_=None if i < words else "number") for i, name in enumerate(head)]
    lines = [
        tag("tr", *(_cell(cell, i, words) for i, cell in enumerate(row)), class_="ours" if n in ours else None)
        for n, row in enumerate(rows)
    ]
    inside = tag("table", tag("thead", tag("tr", *names)), tag("tbody", *lines))
    return tag("div", inside, class_="scroll", tabindex="0", role="region", aria_label="table")


def _cell(cell: object, column: int, words: int) -> Html:
    if isinstance(cell, Html) and cell.startswith(("<td", "<th")):
        return cell
    return tag("td", cell, class_=None if column < words else "number")


def bar(share: float, text: str) -> Html:
    """A number with a bar behind it as long as a share."""
    return tag("td", tag("span", class_="bar", style=f"width:{100 * share:.1f}%"), tag("span", text), class_="number barred")


def percent(value: float | None, digits: int = 1) -> str:
    """A fraction in percent without the sign; a dash where there is nothing."""
    return "–" if value is None or value != value else f"{100 * value:.{digits}f}"


def number(value: float | None, digits: int = 2) -> str:
    """A number; a dash where there is nothing."""
    return "–" if value is None or value != value else f"{value:.{digits}f}"


# ---- pictures ------------------------------------------------------------------------------------------------------


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

    def shown(self, note: object = "") -> Html:
        """The figure on a page, with a sentence under it."""
        images = [self._image(png, f"on-{theme.name}") for theme, png in ((LIGHT, self.light), (DARK, self.dark))]
        return tag("figure", tag("div", *images, class_="scroll"), tag("figcaption", note) if note else "")

    def _image(self, png: bytes, kind: str) -> Html:
        width, height = (round(side * SCREEN / DPI) for side in Image.open(io.BytesIO(png)).size)
        source = data_uri(jpeg(png), "image/jpeg") if self.photographs else data_uri(png, "image/png")
        return tag("img", class_=kind, src=source, width=width, height=height, alt=self.alt)


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
    """The same picture with 256 colours, which takes a quarter of the room: common ones exactly, others the nearest."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    packed = (pixels.astype(np.int64) * [1 << 16, 1 << 8, 1]).sum(axis=2)
    found, which, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, found >> 8 & 255, found & 255], axis=1)
    chosen = np.argsort(-counts, kind="stable")[:128].tolist()
    apart = ((colours[:, None] - colours[chosen]) ** 2).sum(axis=2)  # (colours, chosen)
    nearest, distance = apart.argmin(axis=1), apart.min(axis=1)
    while len(chosen) < 256 and distance.max() > 0:  # the one that is farthest from all that were chosen
        chosen.append(int(distance.argmax()))
        new = ((colours - colours[chosen[-1]]) ** 2).sum(axis=1)
        nearest, distance = np.where(new < distance, len(chosen) - 1, nearest), np.minimum(new, distance)
    image = Image.fromarray(nearest[which].reshape(packed.shape).astype(np.uint8))
    image.putpalette(colours[chosen].astype(np.uint8).tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def jpeg(picture: bytes | Image.Image, quality: int = 86) -> bytes:
    """A picture as a JPEG."""
    image = picture if isinstance(picture, Image.Image) else Image.open(io.BytesIO(picture))
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as an address that needs no file."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def row(*figures: Html) -> Html:
    """Figures beside each other where there is room, else below each other."""
    return tag("div", *figures, class_="row")


# ---- sections ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a section is: its anchor, its heading, and its name in the table of contents."""

    key: str
    title: str
    short: str


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        place: where it is.
        body: what is in it.
        figures: the figures in it.
        missing: a sentence for each thing that is left out.
    """

    place: Place
    body: Html
    figures: tuple[Drawn, ...] = ()
    missing: tuple[str, ...] = ()

    def shown(self) -> Html:
        """The section on a page."""
        return tag("section", tag("h2", self.place.title), self.body, id=self.place.key)


def absent(place: Place, sentence: str) -> Section:
    """A section that does not apply, and why."""
    return Section(place, left_out(sentence), missing=(f"{place.short}: {sentence}",))
