"""`lht train`, `lht compare`, `lht methods`."""

from __future__ import annotations

from lightning_fabric.utilities.rank_zero import rank_zero_only
from rich.table import Table

from torchlht import show
from torchlht.args import CompareArgs, MethodsArgs, TrainArgs
from torchlht.compare import compare, shown_results
from torchlht.methods import list_methods, method_class, method_options
from torchlht.runs import read_metrics
from torchlht.training import train


def run_train(args: TrainArgs) -> None:
    """Train a hierarchical classifier on partly labelled data."""
    run = train(args)
    if getattr(rank_zero_only, "rank", 0):  # of several processes, the first speaks
        return
    metrics = read_metrics(run)
    show.out.print(show.metrics_table(metrics))
    show.say(show.metrics_sentence(metrics))
    rule = metrics["selection"]
    show.say(f"epoch {rule['epoch']} of {rule['epochs']} ({rule['rule']}), measured on test samples · kept in {run}")
    show.say(f"next: lht predict {run} {'demo --limit 5' if args.data == 'demo' else 'FILE…'}   ·   lht evaluate {run}")


def run_compare(args: CompareArgs) -> None:
    """Train several methods on the same data, masks and seeds, and say which differences are real."""
    compare(args)
    for part in shown_results(args.out):
        show.say(part)


def run_methods(args: MethodsArgs) -> None:
    """List the methods and their options."""
    table = Table("method", "what it is", "options and defaults")
    for name in list_methods(args.pattern):
        first = (method_class(name).__doc__ or "").strip().splitlines()[0]
        options = ", ".join(f"{option}={default}" for option, default in method_options(name).items())
        table.add_row(name, first, options)
    show.out.print(table)
