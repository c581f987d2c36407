"""`lht methods`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table

from torchlht import console
from torchlht.commands.base import command
from torchlht.data.options import Options, TreePlace, Word
from torchlht.doors import Count
from torchlht.errors import ConfigError

if TYPE_CHECKING:
    from torchlht.hierarchy.tree import Hierarchy

CUB = Path(__file__).parents[1] / "trees" / "cub.json"


@dataclass(frozen=True)
class MethodsArgs(Options):
    """List the methods."""

    pattern: Annotated[str, Word("PATTERN")] = "*"
    """Only methods whose name matches, such as lht*; a single match is shown with its options."""
    hierarchy: TreePlace | None = None
    """The tree to count parameters for; CUB-200-2011 (13 orders, 38 families, 200 species) by default."""
    in_features: Count = 2048
    """Width of the features to count parameters for; 2048 is that of a ResNet-50."""


@command("methods", "before training")
def run_methods(args: MethodsArgs) -> None:
    """List the methods with their size, their paper and their options."""
    from torchlht.heads.method import aliases_of, find_method, list_methods
    from torchlht.heads.prediction import RULES
    from torchlht.hierarchy.tree import Hierarchy

    tree = Hierarchy.read(args.hierarchy or CUB)
    names = list_methods(args.pattern)
    if not names:
        find_method(args.pattern)  # an alias, or a mistake
        names = [args.pattern]
    if len(names) == 1:
        console.say(one_method(names[0], tree, args.in_features))
        return
    table = Table("method", "what it is", "from", title_justify="left")
    table.add_column("parameters", justify="right")
    for name in names:
        entry = find_method(name)
        table.add_row(
            "\n".join([name, *(f"= {alias}" for alias in aliases_of(name))]),
            entry.summary,
            entry.paper or "–",
            parameters(name, tree, args.in_features),
        )
    console.out.print(table)
    console.say(f"parameters for {tree.describe()} on {args.in_features} features · options: lht methods NAME")
    console.say(f"rules of answering, for --rule: {' · '.join(f'{name}, {one.meaning}' for name, one in RULES.items())}")


def parameters(name: str, tree: Hierarchy, in_features: int) -> str:
    """A method's number of parameters on a tree, such as "1.23 M"."""
    from torchlht.heads.method import create_method

    try:
        return f"{create_method(name, in_features, tree).parameter_count() / 1e6:.2f} M"
    except ConfigError:
        return "–"  # it does not support this tree


def one_method(name: str, tree: Hierarchy, in_features: int) -> str:
    """A method with its options, their defaults and what they mean."""
    from torchlht.heads.method import aliases_of, find_method, options_of

    entry = find_method(name)
    set_here = ", ".join(f"{option}={value}" for option, value in entry.options.items())
    lines = [f"{name}: {entry.summary}", f"from: {entry.paper or '–'}"]
    lines += [f"also called: {', '.join(aliases_of(name))}"] if aliases_of(name) else []
    lines += [f"a variant with {set_here}"] if set_here else []
    lines.append(f"parameters: {parameters(name, tree, in_features)} for {tree.describe()} on {in_features} features")
    lines += ["", "options, as flags (--name value) or with --option NAME=VALUE:"]
    for option in options_of(name).values():
        tuned = f"   (--tune tries {', '.join(map(str, entry.grid[option.name]))})" if option.name in entry.grid else ""
        lines.append(f"  {option.name}={option.default}{tuned}\n      {option.meaning}")
    return "\n".join(lines)
