"""What commands share: their register, and small groups of options.

A command is a function that takes its options and is marked with `@command`. Its file holds the options, the function and the
printing; `torchlht.cli` finds every file here. Heavy imports go inside functions, so that --help does not wait for them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

from torchlht.answer.finding import check_folder, check_model, check_run
from torchlht.data.options import Door, Options
from torchlht.doors import Workers

Group = Literal["before training", "training", "with a trained model", "many runs"]


class Command(NamedTuple):
    """A command: its options, the function that takes them, one line about what it does, and its heading in `lht --help`."""

    options: type[Any]
    run: Callable[[Any], None]
    help: str
    group: Group


COMMANDS: dict[str, Command] = {}
F = TypeVar("F", bound=Callable[[Any], None])


def command(name: str, group: Group) -> Callable[[F], F]:
    """Decorator: register a command. Its argument's type holds the options; the first line of its docstring is the help."""

    def enter(function: F) -> F:
        options = next(hint for argument, hint in get_type_hints(function).items() if argument != "return")
        COMMANDS[name] = Command(options, function, (inspect.getdoc(function) or "").partition("\n")[0], group)
        return function

    return enter


def import_commands(word: str = "") -> None:
    """Import the files of `torchlht.commands`, which register their commands; only the one of this name, if there is one."""
    files = [file.name for file in pkgutil.iter_modules([str(Path(__file__).parent)])]
    for name in [word] if word in files else files:
        importlib.import_module(f"torchlht.commands.{name}")


def all_commands() -> dict[str, Command]:
    """Every command by name."""
    import_commands()
    return COMMANDS


def listed(text: str | None) -> list[str]:
    """Names in an option, separated by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


RunFolder = Annotated[str, Door(check_folder)]
RunPlace = Annotated[str, Door(check_run)]
ModelPlace = Annotated[str, Door(check_model)]


def check_rule(name: str) -> None:
    """Raise ConfigError unless there is such a rule of answering."""
    from torchlht.heads.prediction import find_rule

    find_rule(name)


@dataclass(frozen=True, kw_only=True)
class RuleArgs(Options):
    """How a model answers."""

    rule: Annotated[str, Door(check_rule)] | None = None
    """How answers are chosen. By default along one path of the tree: the best `path`, unless the method has such a way of its
    own. `own`: the method's way, where levels may disagree; `argmax` per level; `backtrack` from the finest; `top_down`;
    `crm`, the least expected distance in the tree. `lht methods` lists them all."""


@dataclass(frozen=True, kw_only=True)
class StrictArgs(Options):
    """How errors are counted for a promised risk."""

    strict: bool = False
    """For --risk: count validation answers that no label can check as wrong, not assuming that labels are missing by chance."""


@dataclass(frozen=True, kw_only=True)
class AcceleratorArgs(Options):
    """Where a model runs."""

    accelerator: str = "auto"
    """Where to compute: cpu, cuda, mps, or auto, which takes a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class AskingArgs(AcceleratorArgs):
    """How pictures are decoded."""

    workers: Workers = 0
    """How many processes decode pictures; 0 for none besides this one."""
