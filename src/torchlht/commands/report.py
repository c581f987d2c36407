"""`lht report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from torchlht import console
from torchlht.commands.base import AskingArgs, RunFolder, command
from torchlht.data.options import Word
from torchlht.doors import Many
from torchlht.vocabulary import Split


@dataclass(frozen=True)
class ReportArgs(AskingArgs):
    """Write a page about a run."""

    run: Annotated[RunFolder, Word("RUN")]
    """A finished run directory."""
    compare: tuple[RunFolder, ...] = ()
    """Other runs on the same tree to compare with, such as a baseline."""
    out: Path | None = None
    """Folder for report.html and the pictures; RUN/report by default."""
    split: Split = "test"
    """The samples to report on."""
    images: Many = 6
    """How many pictures to explain with Grad-CAM, and how many of the worst mistakes to show."""
    attributes: Path | None = None
    """Attributes of the finest classes, one line of numbers each, or the folder CUB_200_2011; found automatically next to a
    prepared CUB."""


@command("report", "with a trained model")
def run_report(args: ReportArgs) -> None:
    """Write a page about a run: figures, mistakes, and where in a picture it looks."""
    from torchlht.show.page import report

    made = report(
        args.run,
        compare=args.compare,
        out=args.out,
        split=args.split,
        images=args.images,
        attributes=args.attributes,
        workers=args.workers,
        device=args.accelerator,
    )
    for sentence in made.missing:
        console.say(f"left out: {sentence}")
    size = made.path.stat().st_size / 1e6
    console.say(f"{made.path}   {size:.1f} MB · {console.plural(made.figures, 'figure')} · {made.seconds:.0f} s")
    console.say(f"next: open {made.path} in a browser")
