"""The page about a run: one self-contained HTML file, and its figures as PNGs next to it."""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from torchlht.answer.finding import GRAPH
from torchlht.doors import entrance
from torchlht.errors import ConfigError
from torchlht.files import replacing, write_text
from torchlht.show.figures.attributes import read_class_attributes
from torchlht.show.sections.answers import (
    classes_section,
    confusion_section,
    mistakes_section,
    operating_section,
    reliability_section,
)
from torchlht.show.sections.inside import attributes_section, gradcam_section, learning_section, transitions_section
from torchlht.show.sections.overview import header, metrics_section, reading_section
from torchlht.show.sections.parts import Content, Subject
from torchlht.show.seen import see_all

NAME = "report.html"
TEMPLATES = Environment(
    loader=PackageLoader("torchlht.show"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        key: its anchor; with _ for -, the macro of sections.html that writes it.
        title: its heading.
        short: its name in the contents.
        content: its content, or a sentence on why it is left out; an empty one if there is nothing to say.
    """

    key: str
    title: str
    short: str
    content: Content | str

    def missing(self) -> list[str]:
        """One sentence for everything left out."""
        if isinstance(self.content, str):
            return [f"{self.short}: {self.content}"] if self.content else []
        return list(self.content.missing)


SECTIONS: tuple[tuple[str, str, str, Callable[[Subject], Content | str]], ...] = (
    ("metrics", "How good it is, level by level", "Metrics", metrics_section),
    ("learning", "How it learned", "Learning", learning_section),
    ("reliability", "Do its probabilities come true?", "Reliability", reliability_section),
    ("operating", "How deep can it answer, and how surely?", "Operating points", operating_section),
    ("confusion", "What is taken for what", "Confusion", confusion_section),
    ("transitions", "From fine to coarse: the tree beside what was learned", "Transitions", transitions_section),
    ("grad-cam", "Where it looks", "Grad-CAM", gradcam_section),
    ("classes", "Hard and easy classes", "Classes", classes_section),
    ("mistakes", "The worst mistakes", "Mistakes", mistakes_section),
    ("attributes", "Do classes that look alike stand together in the tree?", "Attributes", attributes_section),
    ("reading", "How to read this page", "Reading", reading_section),
)


@dataclass(frozen=True)
class Report:
    """The page that was written.

    Attributes:
        path: path of the page.
        figures: how many figures are on it.
        missing: one sentence for everything left out.
        seconds: how long it took.
    """

    path: Path
    figures: int
    missing: tuple[str, ...]
    seconds: float


@entrance
def report(
    run: str | Path,
    *,
    compare: Sequence[str | Path] = (),
    out: str | Path | None = None,
    split: str = "test",
    images: int = 6,
    attributes: str | Path | None = None,
    workers: int = 0,
    device: str = "cpu",
) -> Report:
    """Write a page about a run, with its figures next to it.

    >>> report("runs/birds", compare=["runs/flat"]).path
    PosixPath('runs/birds/report/report.html')

    Args:
        run: a finished run directory.
        compare: other runs on the same tree to compare with; the first is the baseline.
        out: folder for the page and its figures; RUN/report by default.
        split: "test", "val", "train" or "all" of the run's data.
        images: how many pictures to explain with Grad-CAM, and how many of the worst mistakes to show.
        attributes: attributes of the finest classes, see `read_class_attributes`; by default searched next to the pictures.
        workers: how many processes decode pictures.
        device: where to compute: cpu, cuda, mps, or auto.

    Raises:
        LHTError: when a run is missing or unfinished, or a run to compare with has another tree.
    """
    started = time.monotonic()
    if images < 0:
        raise ConfigError(f"`images` is {images}: it must be 0 or more")
    if (Path(run) / GRAPH).is_file():
        return graph_report(Path(run), compare, Path(out) if out else Path(run) / "report", split, images, started)
    runs = see_all(run, compare, split=split, workers=workers, device=device)
    subject = Subject(tuple(runs), images, Path(attributes) if attributes is not None else None)
    if subject.attributes is not None:
        read_class_attributes(subject.attributes, subject.tree)  # fail early if they are wrong
    sections = [Section(key, title, short, make(subject)) for key, title, short, make in SECTIONS]
    return write(Path(out) if out is not None else Path(run) / "report", header(subject), sections, started)


def graph_report(run: Path, compare: Sequence[str | Path], out: Path, split: str, images: int, started: float) -> Report:
    """The page about a run whose classes may have several parents."""
    from torchlht.show import graphs

    if compare:
        raise ConfigError("`compare` is for classes with one parent each; leave it out")
    seen = graphs.GraphSeen.of(run, split)
    sections = [Section(*one) for one in graphs.sections_of(seen, images)]
    return write(out, graphs.header(seen), sections, started)


def write(folder: Path, head: Mapping[str, object], sections: Sequence[Section], started: float) -> Report:
    """Write the page and its figures into a folder."""
    figures = [figure for one in sections if isinstance(one.content, Content) for figure in one.content.figures]
    for figure in figures:
        for end, png in (("", figure.light), ("-dark", figure.dark)):
            with replacing(folder / f"{figure.name}{end}.png") as beside:
                beside.write_bytes(png)
    write_text(folder / NAME, page(head, sections))
    missing = tuple(sentence for section in sections for sentence in section.missing())
    return Report(folder / NAME, len(figures), missing, time.monotonic() - started)


def page(head: Mapping[str, object], sections: Sequence[Section]) -> str:
    """The whole document, from the result of `header` and the sections in order. Sections without content are left out."""
    left_out = [sentence for section in sections if isinstance(section.content, str) for sentence in section.missing()]
    sections = [section for section in sections if not isinstance(section.content, str)]
    made = f"torchlht {importlib.metadata.version('torchlht')} on {datetime.now():%Y-%m-%d %H:%M}"
    return TEMPLATES.get_template("page.html").render(head=head, sections=sections, missing=left_out, made=made)
