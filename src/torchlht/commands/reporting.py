"""`lht report`."""

from __future__ import annotations

from torchlht import show
from torchlht.args import ReportArgs
from torchlht.report.page import make_report


def run_report(args: ReportArgs) -> None:
    """Write a page about a run: figures, mistakes, what it looks at."""
    made = make_report(
        args.run,
        compare=args.compare,
        out=args.out,
        split=args.split,
        images=args.images,
        attributes=args.attributes,
        workers=args.workers,
    )
    for sentence in made.missing:
        show.say(f"left out: {sentence}")
    size = made.path.stat().st_size / 1e6
    show.say(f"{made.path}   {size:.1f} MB · {show.plural(made.figures, 'figure')} · {made.seconds:.0f} s")
