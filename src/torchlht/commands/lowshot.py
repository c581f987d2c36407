"""`lht lowshot`."""

from __future__ import annotations

from torchlht import console
from torchlht.lab.lowshot.results import shown
from torchlht.lab.lowshot.running import lowshot
from torchlht.lab.options import LowshotArgs


def run_lowshot(args: LowshotArgs) -> None:
    """Tell new classes from a few examples each, with features trained on other classes."""
    for part in shown(lowshot(args), args.out):
        console.say(part)
