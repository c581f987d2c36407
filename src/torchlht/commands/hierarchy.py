"""`lht hierarchy show` and `lht hierarchy check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from torchlht import console
from torchlht.commands.base import command
from torchlht.data.options import Options, TreePlace, Word
from torchlht.doors import Count
from torchlht.errors import HierarchyError
from torchlht.show import terminal

if TYPE_CHECKING:
    from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class HierarchyArgs(Options):
    """A tree of classes."""

    file: Annotated[TreePlace, Word("FILE")]
    """A .csv, .json or .yaml file, a folder tree, or a run directory."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species."""
    depth: Count | None = None
    """show: how many levels to draw; all by default."""


def read_hierarchy(args: HierarchyArgs) -> Hierarchy:
    """The tree these options name."""
    from torchlht.hierarchy.tree import Hierarchy

    return Hierarchy.read(args.file, args.levels.split(",") if args.levels else None)


@command("hierarchy show", "before training")
def run_hierarchy_show(args: HierarchyArgs) -> None:
    """Draw a tree of classes with counts."""
    console.say(terminal.draw_tree(read_hierarchy(args), args.file.name, args.depth))


@command("hierarchy check", "before training")
def run_hierarchy_check(args: HierarchyArgs) -> None:
    """List every problem in a tree of classes."""
    try:
        tree = read_hierarchy(args)
    except HierarchyError as error:
        console.notes.print(terminal.faults_text(error.source, error.faults), soft_wrap=True)
        raise SystemExit(2) from None
    console.say(f"{args.file}: no problems; {tree.describe()}")
