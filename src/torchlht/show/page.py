"""The page about a run: one HTML file that needs nothing else, and its figures as PNGs beside it."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path

from torchlht.errors import ConfigError
from torchlht.files import replacing, write_text
from torchlht.show.figures.attributes import read_class_attributes
from torchlht.show.markup import Html, Section, safe, tag
from torchlht.show.sections.answers import classes_section, confusion_section, mistakes_section
from torchlht.show.sections.head import header
from torchlht.show.sections.inside import attributes_section, gradcam_section, learning_section, transitions_section
from torchlht.show.sections.metrics import metrics_section
from torchlht.show.sections.probabilities import operating_section, reliability_section
from torchlht.show.sections.reading import reading_section
from torchlht.show.sections.subject import Subject
from torchlht.show.seen import see_all

NAME = "report.html"
SECTIONS = (
    metrics_section,
    learning_section,
    reliability_section,
    operating_section,
    confusion_section,
    transitions_section,
    gradcam_section,
    classes_section,
    mistakes_section,
    attributes_section,
    reading_section,
)
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
SCRIPT = """
const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  root.dataset.theme = dark ? "light" : "dark";
});
"""


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        path: of the page.
        figures: how many figures are on it.
        missing: a sentence for everything that was left out.
        seconds: how long it took.
    """

    path: Path
    figures: int
    missing: tuple[str, ...]
    seconds: float


def write_report(
    run: str | Path,
    *,
    compare: Sequence[str | Path] = (),
    out: str | Path | None = None,
    split: str = "test",
    images: int = 6,
    attributes: str | Path | None = None,
    workers: int = 0,
) -> Path:
    """Write a page about a run; gives the path of its report.html.

    >>> write_report("runs/birds", compare=["runs/flat"])

    Args:
        run: a finished run directory.
        compare: other runs on the same tree to stand beside it; the first is the baseline.
        out: folder for the page and its figures; RUN/report by default.
        split: "test", "val", "train" or "all" of the run's data.
        images: how many pictures Grad-CAM looks at, and worst mistakes are shown.
        attributes: of the finest classes, see `read_class_attributes`; looked for beside the pictures by default.
        workers: processes that decode pictures.

    Raises:
        LHTError: for a run that is missing or unfinished, or one to compare with that has another tree.
    """
    return make_report(run, compare=compare, out=out, split=split, images=images, attributes=attributes, workers=workers).path


def make_report(
    run: str | Path,
    *,
    compare: Sequence[str | Path] = (),
    out: str | Path | None = None,
    split: str = "test",
    images: int = 6,
    attributes: str | Path | None = None,
    workers: int = 0,
) -> Report:
    """`write_report`, with what there is to say about it."""
    started = time.monotonic()
    if images < 0:
        raise ConfigError(f"`images` is {images}: 0 for none, or more")
    runs = see_all(run, compare, split=split, workers=workers)
    subject = Subject(tuple(runs), images, Path(attributes) if attributes is not None else None)
    if subject.attributes is not None:
        read_class_attributes(subject.attributes, subject.tree)  # what is wrong with them should be said at once
    sections = [make(subject) for make in SECTIONS]
    folder = Path(out) if out is not None else Path(run) / "report"
    figures = [figure for section in sections for figure in section.figures]
    for figure in figures:
        _write(folder / f"{figure.name}.png", figure.light)
        _write(folder / f"{figure.name}-dark.png", figure.dark)
    write_text(folder / NAME, page(subject.ours.name, header(subject), sections))
    missing = tuple(sentence for section in sections for sentence in section.missing)
    return Report(folder / NAME, len(figures), missing, time.monotonic() - started)


def _write(path: Path, data: bytes) -> None:
    with replacing(path) as beside:
        beside.write_bytes(data)


def page(name: str, head: Html, sections: Sequence[Section]) -> str:
    """The whole document."""
    style = resources.files("torchlht.show").joinpath("page.css").read_text(encoding="utf-8")
    entries = [tag("li", tag("a", section.place.short, href=f"#{section.place.key}")) for section in sections]
    toggle = tag("button", "◐", id="theme", type="button", title="light or dark", aria_label="Switch between light and dark")
    contents = tag("nav", tag("div", tag("ol", *entries), toggle), aria_label="Contents")
    made = f"Made by torchlht {importlib.metadata.version('torchlht')} on {datetime.now():%Y-%m-%d %H:%M}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{safe(name)}: torchlht report</title>",
        f"<style>\n{style}</style>",
        "</head>",
        "<body>",
        head,
        contents,
        tag("main", *(section.shown() for section in sections)),
        tag("footer", f"{made}. Nothing on this page is loaded from elsewhere."),
        f"<script>{SCRIPT}</script>",
        "</body>",
        "</html>",
    ]
    return "\n".join(parts) + "\n"
