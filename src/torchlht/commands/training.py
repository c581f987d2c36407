"""`lht train`, `lht compare`, `lht methods`."""

from __future__ import annotations

from pathlib import Path

from lightning_fabric.utilities.rank_zero import rank_zero_only
from rich.table import Table

from torchlht import console
from torchlht.answer.runs import read_metrics
from torchlht.commands.look_options import MethodsArgs
from torchlht.errors import ConfigError
from torchlht.heads.method import aliases_of, create_method, find_method, list_methods, options_of
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.comparison.grid import compare
from torchlht.lab.comparison.results import shown_results
from torchlht.lab.options import CompareArgs
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.show import terminal

CUB = Path(__file__).parents[1] / "trees" / "cub.json"


def run_train(args: TrainArgs) -> None:
    """Train a hierarchical classifier on partly labelled data."""
    run = train(args)
    if getattr(rank_zero_only, "rank", 0):  # of several processes, the first speaks
        return
    metrics = read_metrics(run)
    rule = metrics["selection"]
    chosen = "fitted at once" if rule["rule"] == "at once" else f"epoch {rule['epoch']} of {rule['epochs']} ({rule['rule']})"
    if "levels" in metrics:
        console.out.print(terminal.metrics_table(metrics))
        console.say(terminal.metrics_sentence(metrics))
        chosen += ", measured on test samples"
    console.say(f"{chosen} · kept in {run}")
    inputs = "demo --limit 5" if args.data == "demo" else "FILE…"
    console.say(f"next: lht predict {run} {inputs}   ·   lht report {run}   ·   lht evaluate {run}")


def run_compare(args: CompareArgs) -> None:
    """Train several methods on the same data, masks and seeds, and say which differences are real."""
    compare(args)
    for part in shown_results(args.out, args.data):
        console.say(part)


def run_methods(args: MethodsArgs) -> None:
    """List the methods, their size and their origin; one alone with its options."""
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


def parameters(name: str, tree: Hierarchy, in_features: int) -> str:
    """How many numbers a method learns on a tree."""
    try:
        return f"{create_method(name, in_features, tree).parameter_count() / 1e6:.2f} M"
    except ConfigError:
        return "–"  # it does not take such a tree


def one_method(name: str, tree: Hierarchy, in_features: int) -> str:
    """A method with its options, their defaults and what they mean."""
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
