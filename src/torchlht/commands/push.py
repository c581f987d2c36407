"""`lht push`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torchlht import console
from torchlht.commands.base import RunFolder, command
from torchlht.data.options import Options, Word


@dataclass(frozen=True)
class PushArgs(Options):
    """Put a run on the Hugging Face hub."""

    run: Annotated[RunFolder, Word("RUN")]
    """A finished run."""
    name: Annotated[str, Word("NAME")]
    """Where to put it: OWNER/MODEL. A token comes from `hf auth login` or from HF_TOKEN in the environment."""
    private: bool = False
    """Make it private, if it is new."""


@command("push", "with a trained model")
def run_push(args: PushArgs) -> None:
    """Put a run on the Hugging Face hub, with a model card; `torchlht.load("OWNER/MODEL")` takes it from there."""
    from torchlht.answer.hub import push

    console.say(f"{push(args.run, args.name, private=args.private)} · torchlht.load({args.name!r}) takes it from there")
