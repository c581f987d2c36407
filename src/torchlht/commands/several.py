"""`lht predict` for models that give several labels per sample."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from torchlht import console
from torchlht.answer.finding import is_exported
from torchlht.errors import ConfigError, DataError
from torchlht.files import csv_text

if TYPE_CHECKING:
    from torchlht.answer.facets import Sure
    from torchlht.answer.several import Answering, Labels
    from torchlht.commands.data import PreviewArgs
    from torchlht.commands.predict import PredictArgs
    from torchlht.data.several import Several


def predict_several(args: PredictArgs) -> None:
    """Predict pictures, or the samples in .arff or .npz files, and print the answers as a table, as CSV or as JSON."""
    from torchlht.answer.facets import sure

    ones = {"top": 1, "only": None, "exclude": None, "rule": None}
    if given := [name for name, usual in ones.items() if getattr(args, name) != usual]:
        raise ConfigError(f"`{given[0]}` is for one label at each level; this run answers with sets of classes")
    model = open_model(args.run, trust=args.trust)
    asked = model.sure
    if args.confidence is not None or args.risk is not None:
        asked = sure(args.confidence, args.risk, model.calibration, strict=args.strict)
    found = predict_features(model, args, asked) if model.preprocess is None else predict_pictures(model, args, asked)
    if args.format == "json":
        print(console.json_text([as_dict(one) for one in found]))
    elif args.format == "csv":
        header = ("file", "class", *(("level",) if model.levels else ()), "probability", "deepest")
        rows = [header, *rows_of(found, blanks=len(header) - 1)]
        print(csv_text([console.readable(str(cell)) for cell in row] for row in rows), end="")
    else:
        print_several(found)


def open_model(name: str, *, trust: bool = False) -> Answering:
    """A run, or a file exported from one."""
    if is_exported(name):
        from torchlht.answer.exported.graphs import ExportedGraph

        return ExportedGraph.read(name, trust=trust)
    from torchlht.answer.several import GraphModel

    return GraphModel.load(name)


def predict_pictures(model: Answering, args: PredictArgs, asked: Sure) -> list[Labels]:
    """The answers to pictures, folders, patterns and datasets."""
    from torchlht.data.inputs import expand
    from torchlht.data.pictures import Problem

    pictures, unreadable = expand(args.inputs, want_images=True)[: args.limit], list[Problem]()
    found = model.predict(pictures, sure=asked, unreadable=unreadable)
    if unreadable and args.on_error != "skip":
        first = unreadable[0]
        raise DataError(
            f"{len(unreadable)} of {len(pictures)} pictures cannot be read, the first is {first.path} ({first.reason}); "
            "pass `on_error=skip`"
        )
    for problem in unreadable:
        console.notes.print(f"skipped {problem.path}: {problem.reason}", soft_wrap=True)
    return found


def predict_features(model: Answering, args: PredictArgs, asked: Sure) -> list[Labels]:
    """The answers to the samples of .arff and .npz files."""
    if not args.inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with .arff files, or .npz files with an array 'x'")
    return [one for name in args.inputs for one in predict_file(model, Path(name), args.limit, asked)]


def predict_file(model: Answering, path: Path, limit: int | None, asked: Sure) -> list[Labels]:
    """The answers to the samples of one file."""
    from torchlht.data.inputs import feature_rows

    x, first = feature_rows(path, model.columns)[:limit], int(path.suffix.lower() == ".arff")  # as messages about it count rows
    return model.predict(x, [f"{path.name} row {first + i}" for i in range(len(x))], asked)


def as_dict(one: Labels) -> dict[str, Any]:
    """An answer as plain values."""
    found: dict[str, Any] = {"file": one.source, "answer": list(one.deepest), "probabilities": one.probabilities}
    more = {"levels": one.levels, "leaves": one.leaves, "promise": one.promise}
    return found | {name: value for name, value in more.items() if value}


def rows_of(found: Sequence[Labels], blanks: int) -> Iterator[tuple[Any, ...]]:
    """One row per sample and class, with its level if levels have names; one with blanks where no class is sure enough."""
    for one in found:
        if not one.probabilities:
            yield one.source, *[""] * blanks
        for name, probability in one.probabilities.items():
            level = (one.levels[name],) if one.levels else ()
            yield one.source, name, *level, probability, name in one.deepest


def print_several(found: Sequence[Labels]) -> None:
    """One row per sample: the most specific classes that are sure enough, each with its probability; and likely leaves."""
    folder = os.path.commonpath([str(Path(one.source).parent) for one in found]) if found else ""  # not shown, as for trees
    beyond = any(one.promise and one.leaves for one in found)
    table = Table("sample", "classes", *(["and beyond"] if beyond else []))
    for one in found:
        open_ = not set(one.leaves) & set(one.deepest)
        leaves = ", ".join(f"{name} {p:.0%}" for name, p in one.leaves.items()) if open_ else ""
        table.add_row(os.path.relpath(one.source, folder), str(one), *([leaves] if beyond else []))
    console.out.print(table)


def preview_several(args: PreviewArgs) -> None:
    """Count the samples of data whose classes form a graph, or that have several labels each; draw a contact sheet by class."""
    from torchlht.commands.data import draw_sheet
    from torchlht.data.graphed import read_on_graph
    from torchlht.data.several import one_each

    data = read_on_graph(args.data, args, args.several)
    console.say(f"{args.data}   {several_summary(data)}")
    if data.images is None:
        console.say("features only: no pictures to show")
        return
    draw_sheet(one_each(data), args)


def several_summary(data: Several) -> str:
    """How many samples there are, how many labels each has, and how deep these are."""
    graph, ends = data.graph, data.graph.ends(data.labels)
    coarse = graph.open_ends(data.labels)
    ends |= coarse  # a second gull, beside a herring gull
    deepest = [(level, int(ends[:, graph.levels == level].sum())) for level in range(int(graph.levels.max()) + 1)]
    names = data.levels or [f"level{level + 1}" for level, _ in deepest]
    known = " · ".join(f"{names[level]} {count:,}" for level, count in deepest if count)
    splits = " · ".join(f"{name} {len(data.index(name)):,}" for name in ("train", "val", "test") if len(data.index(name)))
    blank = int((data.labels != 1).all(1).sum())
    if data.exclusive:
        open_, leaf = int((data.labels < 0).any(1).sum()), int((data.labels[:, graph.leaves] == 1).any(1).sum())
        return f"{data.describe()}\nleaf known {leaf:,}; of {open_:,} it is not known which one   ({splits})"
    return (
        f"{data.describe()}\n{ends.sum() / max(len(data) - blank, 1):.1f} labels per {'picture' if data.images else 'sample'}, "
        f"down to {known}; below {int(coarse.sum()):,} of them nobody knows more; without a label {blank:,}   ({splits})"
    )
