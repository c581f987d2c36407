"""`lht reproduce`, `lht reproduce list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from torchlht import console
from torchlht.commands.base import command
from torchlht.data.options import Options, Word
from torchlht.errors import ConfigError
from torchlht.lab.options import CompareArgs, ReproduceArgs

if TYPE_CHECKING:
    from torchlht.lab.reproduction.experiments import Experiment


@dataclass(frozen=True)
class ReproduceListArgs(Options):
    """List what can be reproduced."""

    pattern: Annotated[str, Word("PATTERN")] = "*"
    """Only names that match, such as *cub*."""


@command("reproduce", "many runs")
def run_reproduce(args: ReproduceArgs) -> None:
    """Reproduce a table or figure of the paper."""
    if args.name == "hmc":
        from torchlht.lab.hmc import reproduce_hmc as reproduce
    else:
        from torchlht.lab.reproduction.running import reproduce

    out = reproduce(args)
    for part in shown(out):
        console.say(part)


def shown(out: Path) -> Iterator[Table | str]:
    """table.md for the terminal: its table drawn, its text as it is, without pictures and code."""
    lines = (out / "table.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("|")]
    if rows:
        header, _, *body = rows
        table = Table()
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i < 3 else "right", overflow="fold")
        for row in body:
            table.add_row(*row)
        yield table
    yield from (line for line in lines if line and not line.startswith(("|", "```", "$", "# ", "![")))
    yield f"saved in {out}: {', '.join(path.name for path in sorted(out.iterdir()) if path.is_file())}"


@command("reproduce list", "many runs")
def run_list(args: ReproduceListArgs) -> None:
    """List every table and figure of the paper that can be reproduced."""
    from torchlht.lab.reproduction.experiments import list_experiments

    found = list_experiments(args.pattern)
    several = fnmatchcase("hmc", args.pattern)
    if not found and not several:
        raise ConfigError(f"no experiment matches {args.pattern!r}; lht reproduce list shows them all")
    table = Table(box=None, pad_edge=False)
    for name in ("name", "what", "data", "runs full / medium / small"):
        table.add_column(name, no_wrap=name in ("name", "data"), justify="right" if name.startswith("runs") else "left")
    for experiment in found:
        counts = " / ".join(str(runs(experiment, scale) or "–") for scale in ("full", "medium", "small"))
        table.add_row(experiment.name, experiment.what, experiment.data, counts if experiment.parts else "–")
    if several:
        what = "Fifteen sets with several labels per sample: C-HMCNN as published against lht, see docs/graphs.md"
        table.add_row("hmc", what, "ARFF files", "60 / – / 60")
    console.out.print(table)
    console.say("one: lht reproduce NAME --root ARCHIVE [--scale full|medium|small]   ·   archives: lht data prepare list")


def runs(experiment: Experiment, scale: str) -> int:
    """How many models an experiment trains."""
    parts = experiment.medium if scale == "medium" else experiment.parts
    seeds = [CompareArgs("", Path(), seeds=part.seeds or experiment.seeds).seed_list() for part in parts]
    return sum(len(own) * len(part.arms_at(scale)) * len(part.masks) for own, part in zip(seeds, parts, strict=True))
