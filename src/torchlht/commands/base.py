"""What commands share: the register they enter themselves in, and small groups of options.

A command is a function that takes its options and is marked with `@command`. Its file holds the options, the function and what
is printed; `torchlht.cli` finds every file here. Heavy imports stand inside functions: --help should not wait for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_type_hints

from torchlht.data.options import Options

Group = Literal["before training", "training", "with a trained model", "many runs"]


class Command(NamedTuple):
    """A command: its options, the function that takes them, what it does in a line, and its heading in `lht --help`."""

    options: type[Any]
    run: Callable[[Any], None]
    help: str
    group: Group


COMMANDS: dict[str, Command] = {}
F = TypeVar("F", bound=Callable[[Any], None])


def command(name: str, group: Group) -> Callable[[F], F]:
    """Decorator: a function is a command. Its argument's type has the options, the first line of its docstring is the help."""

    def enter(function: F) -> F:
        options = next(hint for argument, hint in get_type_hints(function).items() if argument != "return")
        COMMANDS[name] = Command(options, function, (inspect.getdoc(function) or "").partition("\n")[0], group)
        return function

    return enter


@dataclass(frozen=True, kw_only=True)
class RuleArgs(Options):
    """How a model answers."""

    rule: str = "own"
    """How answers are chosen: the method's `own` way (mostly argmax); `argmax` per level; `backtrack` from the finest;
    `top_down`; best `path`; `crm`, the least expected distance in the tree. `lht methods` lists them all."""

    def _check(self) -> None:
        from torchlht.heads.prediction import find_rule

        find_rule(self.rule)


@dataclass(frozen=True, kw_only=True)
class StrictArgs(Options):
    """How a promise is counted."""

    strict: bool = False
    """--risk: count validation answers that no label can check as wrong, instead of taking labels to be missing at random."""


@dataclass(frozen=True, kw_only=True)
class AcceleratorArgs(Options):
    """Where a model is asked."""

    accelerator: str = "auto"
    """Where to compute: cpu, cuda, mps, or auto, which is a GPU where there is one."""


@dataclass(frozen=True, kw_only=True)
class AskingArgs(AcceleratorArgs):
    """Where a model is asked, and what decodes pictures."""

    workers: int = 0
    """Processes that decode pictures."""
