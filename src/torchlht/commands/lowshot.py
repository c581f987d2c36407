"""`lht lowshot`."""

from __future__ import annotations

from torchlht import show
from torchlht.args import LowshotArgs
from torchlht.lowshot import lowshot
from torchlht.lowshot.results import shown


def run_lowshot(args: LowshotArgs) -> None:
    """Tell new classes from a few examples each, with features trained on other classes."""
    for part in shown(lowshot(args), args.out):
        show.say(part)
