"""`lht train`."""

from __future__ import annotations

from torchlht import console
from torchlht.commands.base import command
from torchlht.learn.options import TrainArgs


@command("train", "training")
def run_train(args: TrainArgs) -> None:
    """Train a hierarchical classifier on partly labelled data."""
    from torchlht.answer.finding import GRAPH
    from torchlht.answer.records import read_metrics
    from torchlht.learn.training import train
    from torchlht.processes import is_first
    from torchlht.show import terminal

    run = train(args)
    if not is_first():  # only one process prints
        return
    metrics = read_metrics(run)
    rule = metrics["selection"]
    chosen = "fitted at once" if rule["rule"] == "at once" else f"epoch {rule['epoch']} of {rule['epochs']} ({rule['rule']})"
    if "graph_levels" in metrics:
        console.out.print(terminal.several_table(metrics))
        console.say(terminal.several_sentence(metrics))
    if "levels" in metrics:
        console.out.print(terminal.metrics_table(metrics))
        console.say(terminal.metrics_sentence(metrics))
        chosen += ", measured on test samples"
    console.say(f"{chosen} · saved in {run}")
    inputs = f"{args.data} --limit 5" if args.data in ("demo", "demo-pairs") else "FILE…"
    if (run / GRAPH).is_file():
        inputs = "FILE.arff" if args.data.lower().endswith(".arff") else inputs
        console.say(f"next: lht predict {run} {inputs}   ·   lht report {run}   ·   lht evaluate {run}   ·   lht export {run}")
        return
    console.say(f"next: lht predict {run} {inputs}   ·   lht report {run}   ·   lht evaluate {run}")
