"""`lht next`."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from torchlht import console
from torchlht.commands.base import command
from torchlht.errors import ConfigError
from torchlht.files import refuse_replacing, write_text
from torchlht.lab.simulation.options import PlayArgs, SimulateArgs
from torchlht.learn.questions.options import NextArgs

if TYPE_CHECKING:
    from torchlht.learn.questions.asking import Questions

SHOWN = 20  # questions in the terminal
FILE = "questions.csv"


@dataclass(frozen=True)
class AskArgs(PlayArgs, NextArgs):
    """What to ask next, and how to print it."""

    FIRST: ClassVar[tuple[str, ...]] = ("budget", "cost", "cannot_tell", "target", "strategy", "out", "format", "simulate")
    _: KW_ONLY
    out: Path | None = None
    """Folder for questions.csv; with --simulate, for curve.csv, table.md and figures."""
    format: Literal["table", "csv", "json"] = "table"
    """How to print the questions."""
    simulate: bool = False
    """Hide labels that are known and play strategies through: accuracy on test samples against money spent."""
    resume: bool = False
    """Continue an interrupted simulation; what is finished is kept."""

    def _check(self) -> None:
        if self.simulate and self.out is None:
            raise ConfigError("`simulate` needs a folder for its results: pass `out`")
        if self.resume and not self.simulate:
            raise ConfigError("`resume` is for `simulate`")


@command("next", "before training")
def run_next(args: AskArgs) -> None:
    """Say what to ask an annotator next: which sample, and at which level.

    With --simulate, play strategies through on labelled data.
    """
    if args.simulate:
        simulate(args)
        return
    from torchlht.learn.questions.asking import next_questions

    own = {field.name: getattr(args, field.name) for field in dataclasses.fields(NextArgs)}
    found = next_questions(NextArgs(**own))
    console.note(found.note, quiet=not found.note)
    if args.out is not None:
        file = args.out / FILE
        refuse_replacing(file, "questions of lht next", lambda path: path.read_text(errors="replace").startswith("sample,"))
        args.out.mkdir(parents=True, exist_ok=True)
        write_text(file, found.csv())
    {"table": print_table, "csv": print_csv, "json": print_json}[args.format](found, args)


def simulate(args: AskArgs) -> None:
    """Play strategies through, and print what came out."""
    from torchlht.lab.simulation.playing import simulate_questions
    from torchlht.lab.simulation.results import CURVE, TABLE

    assert args.out is not None
    own = {field.name: getattr(args, field.name) for field in dataclasses.fields(SimulateArgs)}
    simulate_questions(SimulateArgs(**own))
    console.say((args.out / TABLE).read_text(encoding="utf-8").rstrip())
    console.say(f"written to {args.out}: {CURVE}, {TABLE}, curve.png, curve-dark.png")


def print_csv(found: Questions, args: AskArgs) -> None:
    """Print a header and a row per question."""
    print(found.csv(), end="")


def print_json(found: Questions, args: AskArgs) -> None:
    """Print one JSON object."""
    print(console.json_text({"cost": found.cost, "note": found.note, "questions": found.rows}))


def print_table(found: Questions, args: AskArgs) -> None:
    """Print the first questions, and how many there are of each level."""
    from rich.table import Table

    table = Table("sample", "level")
    table.add_column("cost", justify="right")
    table.add_column("why")
    for row in found[:SHOWN]:
        table.add_row(console.shortened(row["sample"], 60), row["level"], f"{row['cost']:g}", row["why"])
    console.say(table)
    counts: dict[str, int] = {}
    for row in found:
        counts[row["level"]] = counts.get(row["level"], 0) + 1
    levels = " · ".join(f"{name} {count:,}" for name, count in counts.items())
    more = f"; the first {SHOWN} are shown, --out or --format csv gives all" if len(found) > SHOWN and args.out is None else ""
    console.say(f"{console.plural(len(found), 'question')} for {found.cost:g}: {levels}{more}")
    if args.out is not None:
        console.say(f"all of them: {args.out / FILE}")
