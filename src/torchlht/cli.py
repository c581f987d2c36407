"""The command line: a table of commands. Nothing heavy is imported until a command's options are known to be right."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import tyro

from torchlht import console
from torchlht.commands.look_options import HierarchyArgs, MethodsArgs, PackArgs, PrepareArgs, PreviewArgs
from torchlht.commands.use_options import CalibrateArgs, EvaluateArgs, ExportArgs, PredictArgs, ReportArgs
from torchlht.errors import LHTError, suggestion
from torchlht.lab.options import CompareArgs, LowshotArgs, ReproduceArgs, ReproduceListArgs
from torchlht.learn.options import TrainArgs, preset


class Command(NamedTuple):
    """A command: its options, the function that takes them (module of `commands`, name), and what it does."""

    options: type[Any]
    function: str
    help: str


COMMANDS: dict[str, Command] = {
    "train": Command(TrainArgs, "training:run_train", "Train a hierarchical classifier on partly labelled data."),
    "evaluate": Command(
        EvaluateArgs, "inference:run_evaluate", "Measure a trained model on its test samples or on other data."
    ),
    "predict": Command(
        PredictArgs, "inference:run_predict", "Predict classes at every level for pictures, folders or features."
    ),
    "calibrate": Command(
        CalibrateArgs, "inference:run_calibrate", "Fit a run's probabilities to what comes true, on validation samples."
    ),
    "report": Command(ReportArgs, "reporting:run_report", "Write a page about a run: figures, mistakes, what it looks at."),
    "export": Command(ExportArgs, "exporting:run_export", "Write a run as one file, ONNX or torch.export, with all it needs."),
    "compare": Command(CompareArgs, "training:run_compare", "Train several methods alike and say which differences are real."),
    "lowshot": Command(
        LowshotArgs, "lowshot:run_lowshot", "Tell new classes from a few examples each, with features trained on other classes."
    ),
    "methods": Command(
        MethodsArgs, "training:run_methods", "List the methods: what each is, its size, its origin, its options."
    ),
    "reproduce": Command(ReproduceArgs, "reproducing:run_reproduce", "Run a table or figure of the paper again."),
    "reproduce list": Command(
        ReproduceListArgs, "reproducing:run_list", "List every table and figure of the paper that can be run again."
    ),
    "hierarchy show": Command(HierarchyArgs, "looking:run_hierarchy_show", "Draw a tree of classes with counts."),
    "hierarchy check": Command(HierarchyArgs, "looking:run_hierarchy_check", "List every fault of a tree of classes."),
    "data preview": Command(
        PreviewArgs, "looking:run_preview", "Count what is in a dataset and draw a contact sheet by class."
    ),
    "data pack": Command(PackArgs, "looking:run_pack", "Pack many pictures into tar shards that are read from start to end."),
    "data prepare": Command(PrepareArgs, "looking:run_prepare", "Check a benchmark's official archive and make it ready."),
}


def parse(name: str, arguments: Sequence[str]) -> Any:
    """The options of a command from its arguments; a preset's values are defaults that flags override."""
    command = COMMANDS[name]

    def once(default: Any) -> Any:
        config = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
        extra = {} if default is None else {"default": default}
        return tyro.cli(
            command.options, prog=f"lht {name}", args=list(arguments), description=command.help, config=config, **extra
        )

    if command.options is not TrainArgs or not any(a.startswith("--preset") for a in arguments):
        return once(None)
    chosen = once(None)
    return once(preset(chosen.preset, mask=chosen.mask))


def usage() -> str:
    """The text of `lht --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  lht {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: lht COMMAND …",
            "",
            *lines,
            "",
            "Each command has its own --help. Try: lht data preview demo; lht train demo",
        ]
    )


def find_command(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command's name, of one word or two, and the arguments after it."""
    for words in (2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS:
            return name, list(arguments[words:])
    inner = [name for name in COMMANDS if name.startswith(f"{arguments[0]} ")]
    if inner:
        raise LHTError(f"lht {arguments[0]} needs a second word: {', '.join(f'lht {name}' for name in inner)}")
    raise LHTError(f"unknown command {arguments[0]!r}: {suggestion(arguments[0], COMMANDS)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """`lht`: run a command. Exit code 2 and one sentence for a mistake of the user's."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return
    try:
        name, rest = find_command(arguments)
        options = parse(name, rest)
        module, function = COMMANDS[name].function.split(":")
        getattr(importlib.import_module(f"torchlht.commands.{module}"), function)(options)
    except LHTError as error:
        console.notes.print(f"lht: {error}", soft_wrap=True)
        raise SystemExit(2) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` has seen enough
    except KeyboardInterrupt:
        console.notes.print("lht: interrupted; lht train --resume RUN goes on with a run, and lht compare … --resume")
        raise SystemExit(130) from None
