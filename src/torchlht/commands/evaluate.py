"""`lht evaluate`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from torchlht import console
from torchlht.commands.base import AskingArgs, RuleArgs, RunPlace, StrictArgs, command
from torchlht.data.options import DataPlace, OnErrorArgs, Word
from torchlht.errors import ConfigError
from torchlht.show import terminal
from torchlht.vocabulary import Split


@dataclass(frozen=True)
class EvaluateArgs(RuleArgs, StrictArgs, AskingArgs, OnErrorArgs):
    """Measure a trained model."""

    run: Annotated[RunPlace, Word("RUN")]
    """A run directory, or a model on the hub."""
    data: Annotated[DataPlace | None, Word("DATA")] = None
    """The data to measure it on; the run's own by default."""
    split: Split = "test"
    """Which part of the data."""
    confidence: str | None = None
    """Also measure answers rolled up to the deepest class that reaches these calibrated probabilities: 0.5,0.9,0.99."""
    risk: str | None = None
    """Also measure answers rolled up until at most these shares of them are wrong: 0.01,0.05."""
    json: bool = False
    """Print all metrics as JSON."""

    def confidences(self) -> list[float]:
        """`confidence` as numbers."""
        return _shares("confidence", self.confidence)

    def risks(self) -> list[float]:
        """`risk` as numbers."""
        return _shares("risk", self.risk)


def _shares(name: str, text: str | None) -> list[float]:
    try:
        values = [float(value) for value in (text or "").split(",") if value.strip()]
    except ValueError:
        raise ConfigError(f"`{name}` is {text!r}: pass numbers from 0 to 1, separated by commas") from None
    if not all(0 <= value <= 1 for value in values):
        raise ConfigError(f"`{name}` is {text!r}: pass numbers from 0 to 1, separated by commas")
    return values


@command("evaluate", "with a trained model")
def run_evaluate(args: EvaluateArgs) -> None:
    """Measure a trained model on its test samples or on other data."""
    from torchlht.learn.runs import evaluate

    metrics = evaluate(
        args.run,
        args.data,
        split=args.split,
        rule=args.rule,
        confidences=args.confidences(),
        risks=args.risks(),
        strict=args.strict,
        on_error=args.on_error,
        workers=args.workers,
        device=args.accelerator,
    )
    if args.json:
        print(json.dumps(metrics, indent=1))
        return
    if "graph_levels" in metrics:
        return tell_sets(metrics)
    console.out.print(terminal.metrics_table(metrics))
    console.say(terminal.metrics_sentence(metrics))
    if "answers" in metrics:
        console.say(
            "rolled up to the deepest class that is sure enough: shares of samples answered at each level, and of wrong answers"
        )
        console.out.print(terminal.answers_table(metrics["answers"]))


def tell_sets(metrics: dict[str, Any]) -> None:
    """Print the metrics of a run that answers with sets of classes."""
    console.out.print(terminal.several_table(metrics))
    console.say(terminal.several_sentence(metrics))
    if "answers" in metrics:
        console.say("classes that are sure enough: samples with an answer, and answers that hold a class that is not there")
        console.out.print(terminal.sure_table(metrics["answers"]))
