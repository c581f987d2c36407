"""`lht report`."""

from __future__ import annotations

from torchlht import console
from torchlht.commands.use_options import ReportArgs
from torchlht.show.page import make_report


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
        console.say(f"left out: {sentence}")
    size = made.path.stat().st_size / 1e6
    console.say(f"{made.path}   {size:.1f} MB · {console.plural(made.figures, 'figure')} · {made.seconds:.0f} s")
