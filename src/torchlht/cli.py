"""The command line: a table of commands, each a plain function that can be imported and called without it."""

from __future__ import annotations

import csv
import glob
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.table import Table

from torchlht import show
from torchlht.args import TrainArgs, preset
from torchlht.compare import CompareArgs, compare, shown_results
from torchlht.data import read_data
from torchlht.data.embeddings import read_features
from torchlht.data.images import Problem, find_problems, is_image
from torchlht.data.preview import contact_sheet
from torchlht.errors import DataError, HierarchyError, LHTError, suggestion
from torchlht.evaluate import evaluate
from torchlht.hierarchy import Hierarchy
from torchlht.methods import list_methods, method_class, method_options
from torchlht.model import Model, Named
from torchlht.runs import read_metrics
from torchlht.train import train

# ---- train, compare ------------------------------------------------------------------------------------------------


def run_train(args: TrainArgs) -> None:
    """Train a hierarchical classifier on partly labelled data."""
    run = train(args)
    metrics = read_metrics(run)
    show.out.print(show.metrics_table(metrics))
    show.out.print(show.metrics_sentence(metrics))
    rule = metrics["selection"]
    show.out.print(f"epoch {rule['epoch']} of {rule['epochs']} ({rule['rule']}), measured on test samples · kept in {run}")
    show.out.print(f"next: lht predict {run} FILE…   ·   lht evaluate {run}")


def run_compare(args: CompareArgs) -> None:
    """Train several methods on the same data, masks and seeds, and say which differences are real."""
    compare(args)
    for part in shown_results(args.out):
        show.out.print(part)


# ---- evaluate, predict ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateArgs:
    """Measure a trained model."""

    run: tyro.conf.Positional[str]
    """A run directory, or a model on the hub."""
    data: tyro.conf.Positional[str | None] = None
    """What to measure it on; the run's own data by default."""
    split: Literal["test", "val", "train", "all"] = "test"
    """Which part of the data."""
    on_error: Literal["refuse", "skip"] = "refuse"
    """What to do about pictures that cannot be read."""
    workers: int = 0
    """Processes that decode pictures."""
    json: bool = False
    """Print all metrics as JSON."""


def run_evaluate(args: EvaluateArgs) -> None:
    """Measure a trained model on its test samples or on other data."""
    metrics = evaluate(args.run, args.data, split=args.split, on_error=args.on_error, workers=args.workers)
    if args.json:
        print(json.dumps(metrics, indent=1))
        return
    show.out.print(show.metrics_table(metrics))
    show.out.print(show.metrics_sentence(metrics))


@dataclass(frozen=True)
class PredictArgs:
    """Predict classes at every level."""

    run: tyro.conf.Positional[str]
    """A run directory, or a model on the hub."""
    inputs: tyro.conf.Positional[list[str]] = field(default_factory=list)
    """Pictures, folders or patterns; for a model on features, .npz files with `x`."""
    format: Literal["table", "csv", "json"] = "table"
    """How to print the answers."""
    top: int = 1
    """Candidates per level."""
    on_error: Literal["refuse", "skip"] = "refuse"
    """What to do about pictures that cannot be read."""


def run_predict(args: PredictArgs) -> None:
    """Predict classes at every level for pictures, folders or features."""
    model = Model.from_pretrained(args.run)
    if args.top < 1:
        raise DataError(f"--top is {args.top}: at least 1")
    if model.preprocess is None:
        answers = []
        for path in expand(args.inputs, want_images=False):
            answers += model.predict(read_features(path), top=args.top)
    else:
        paths = readable(expand(args.inputs, want_images=True), args.on_error)
        answers = model.predict(paths, top=args.top)
    {"table": print_table, "csv": print_csv, "json": print_json}[args.format](answers)


def expand(inputs: Sequence[str], *, want_images: bool) -> list[Path]:
    """Files named by paths, folders and patterns, in order."""
    if not inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with pictures, folders or patterns")
    files: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and (is_image(p) if want_images else p.suffix == ".npz"))
        else:
            found = [path] if path.exists() else sorted(Path(p) for p in glob.glob(name, recursive=True))  # noqa: PTH207 - absolute patterns, too
        if not found:
            raise DataError(f"{name}: no such file, and no {'pictures' if want_images else '.npz files'} match it")
        files += found
    return files


def readable(paths: list[Path], on_error: str) -> list[Path]:
    """The pictures that can be read; refuses, or goes on without the others."""
    problems: list[Problem] = find_problems(paths)
    if problems and on_error != "skip":
        first = f"{problems[0].path} ({problems[0].reason})"
        raise DataError(f"{len(problems)} of {len(paths)} pictures cannot be read, the first is {first}; pass --on-error skip")
    for problem in problems:
        show.notes.print(f"skipped {problem.path}: {problem.reason}", soft_wrap=True)
    bad = {problem.path for problem in problems}
    return [path for path in paths if str(path) not in bad]


def print_table(answers: Sequence[Named]) -> None:
    """A row per sample, a column per level, runners-up below each other."""
    if not answers:
        return
    table = Table("file", *(answer.level for answer in answers[0].levels))
    for named in answers:
        cells = ["\n".join(f"{c.label} {c.probability:.0%}" for c in level.candidates) for level in named.levels]
        table.add_row(named.source + ("" if named.consistent else "\n(levels disagree)"), *cells)
    show.out.print(table)


def print_csv(answers: Sequence[Named]) -> None:
    """A row per sample: file, then label and probability per level, numbered when there are runners-up."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if not answers:
        return
    ranks = range(max(len(level.candidates) for level in answers[0].levels))
    header = ["file"]
    for level in answers[0].levels:
        for i in ranks[: len(level.candidates)]:
            end = f"_{i + 1}" if i else ""
            header += [f"{level.level}{end}", f"{level.level}_probability{end}"]
    writer.writerow([*header, "consistent"])
    for named in answers:
        row = [named.source]
        for level in named.levels:
            for candidate in level.candidates:
                row += [candidate.label, f"{candidate.probability:.6f}"]
        writer.writerow([*row, str(named.consistent).lower()])


def as_dict(named: Named) -> dict[str, Any]:
    """One answer in the JSON layout."""
    levels = [
        {
            "level": level.level,
            "label": level.label,
            "probability": level.probability,
            "candidates": [{"label": c.label, "probability": c.probability} for c in level.candidates],
        }
        for level in named.levels
    ]
    return {"file": named.source, "levels": levels, "consistent": named.consistent}


def print_json(answers: Sequence[Named]) -> None:
    """A list with one object per sample."""
    print(json.dumps([as_dict(named) for named in answers], indent=1, ensure_ascii=False))


# ---- hierarchy, data, methods --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HierarchyArgs:
    """A tree of classes."""

    file: tyro.conf.Positional[Path]
    """A .csv, .json or .yaml file, a folder tree, or a run directory."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species."""
    depth: int | None = None
    """show: how many levels to draw; all by default."""

    def read(self) -> Hierarchy:
        """The tree these options name."""
        return Hierarchy.read(self.file, self.levels.split(",") if self.levels else None)


def run_hierarchy_show(args: HierarchyArgs) -> None:
    """Draw a tree of classes with counts."""
    show.out.print(show.draw_tree(args.read(), args.file.name, args.depth))


def run_hierarchy_check(args: HierarchyArgs) -> None:
    """List every fault of a tree of classes."""
    try:
        tree = args.read()
    except HierarchyError as error:
        show.notes.print(show.faults_text(error.source, error.faults), soft_wrap=True, markup=False)
        raise SystemExit(2) from None
    show.out.print(f"{args.file}: no problems; {tree.describe()}")


@dataclass(frozen=True)
class PreviewArgs:
    """A look at a dataset before training."""

    data: tyro.conf.Positional[str]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, or `demo`."""
    out: Path | None = None
    """The contact sheet to write; preview-DATA.png here by default."""
    hierarchy: Path | None = None
    """A tree to read the data with."""
    levels: str | None = None
    """Level names coarse → fine."""
    per_class: int = 6
    """Pictures of each class."""


def run_preview(args: PreviewArgs) -> None:
    """Count what is in a dataset and draw a contact sheet by class."""
    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    samples = read_data(args.data, hierarchy=tree, levels=args.levels.split(",") if args.levels else None)
    show.out.print(f"{args.data}   {show.samples_summary(samples)}", soft_wrap=True)
    if samples.images is None:
        show.out.print("features only: no pictures to show")
        return
    problems = find_problems(samples.images)
    for problem in problems[:10]:
        show.out.print(f"unreadable: {problem.path} ({problem.reason})", soft_wrap=True)
    if problems:
        show.out.print(f"{show.plural(len(problems), 'unreadable picture')}; train with --on-error skip to go on without")
    out = args.out or Path(f"preview-{samples.name}.png")
    contact_sheet(samples, out, per_class=args.per_class, skip={problem.path for problem in problems})
    show.out.print(f"contact sheet: {out}")


@dataclass(frozen=True)
class MethodsArgs:
    """The methods that can be trained."""

    pattern: tyro.conf.Positional[str] = "*"
    """Only names that match, such as lht*."""


def run_methods(args: MethodsArgs) -> None:
    """List the methods and their options."""
    table = Table("method", "what it is", "options and defaults")
    for name in list_methods(args.pattern):
        first = (method_class(name).__doc__ or "").strip().splitlines()[0]
        options = ", ".join(f"{option}={default}" for option, default in method_options(name).items())
        table.add_row(name, first, options)
    show.out.print(table)


# ---- dispatch ------------------------------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[Any, type[Any]]] = {
    "train": (run_train, TrainArgs),
    "evaluate": (run_evaluate, EvaluateArgs),
    "predict": (run_predict, PredictArgs),
    "compare": (run_compare, CompareArgs),
    "methods": (run_methods, MethodsArgs),
    "hierarchy show": (run_hierarchy_show, HierarchyArgs),
    "hierarchy check": (run_hierarchy_check, HierarchyArgs),
    "data preview": (run_preview, PreviewArgs),
}


def parse(name: str, kind: type[Any], arguments: Sequence[str]) -> Any:
    """The options of a command from its arguments; a preset's values are defaults that flags override."""

    def once(default: Any) -> Any:
        description = (COMMANDS[name][0].__doc__ or "").strip()
        config = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands)
        extra = {} if default is None else {"default": default}
        return tyro.cli(kind, prog=f"lht {name}", args=list(arguments), description=description, config=config, **extra)

    if kind is not TrainArgs or not any(a.startswith("--preset") for a in arguments):
        return once(None)
    chosen = once(None)
    return once(preset(chosen.preset, mask=chosen.mask))


def usage() -> str:
    """The text of `lht --help`."""
    width = max(map(len, COMMANDS))
    lines = [f"  lht {name:<{width}}  {(function.__doc__ or '').strip()}" for name, (function, _) in COMMANDS.items()]
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
        function, kind = COMMANDS[name]
        function(parse(name, kind, rest))
    except LHTError as error:
        show.notes.print(f"lht: {error}", soft_wrap=True, markup=False)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        show.notes.print("lht: interrupted; an unfinished run continues with lht train --resume RUN")
        raise SystemExit(130) from None
