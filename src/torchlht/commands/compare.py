"""`lht compare`."""

from __future__ import annotations

from torchlht import console
from torchlht.commands.base import command
from torchlht.errors import DivergedError
from torchlht.lab.options import CompareArgs


@command("compare", "many runs")
def run_compare(args: CompareArgs) -> None:
    """Train several methods on the same data and tell which differences are real."""
    from torchlht.lab.comparison.grid import compare
    from torchlht.lab.comparison.results import shown_results

    results = compare(args)
    for part in shown_results(args.out, args.data):
        console.say(part)
    if results.diverged:
        some, many = len(results.diverged), "; ".join(results.diverged)
        raise DivergedError(
            f"{console.plural(some, 'run')} of this comparison diverged and {'is' if some == 1 else 'are'} left out: {many}; "
            f"`resume` keeps them so, remove a folder in {args.out / 'runs'} to train it again"
        )
