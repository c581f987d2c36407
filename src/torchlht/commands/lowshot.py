"""`lht lowshot`."""

from __future__ import annotations

from torchlht import console
from torchlht.commands.base import command
from torchlht.lab.options import LowshotArgs


@command("lowshot", "many runs")
def run_lowshot(args: LowshotArgs) -> None:
    """Recognise new classes from a few examples each, with features trained on other classes."""
    from torchlht.lab.lowshot.results import shown
    from torchlht.lab.lowshot.running import lowshot

    for part in shown(lowshot(args), args.out):
        console.say(part)
