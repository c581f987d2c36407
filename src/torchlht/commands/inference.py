"""`lht evaluate`, `lht predict`."""

from __future__ import annotations

import csv
import glob
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from torchlht import show
from torchlht.args import EvaluateArgs, PredictArgs
from torchlht.data import NAMES, read_data
from torchlht.data.embeddings import read_features
from torchlht.data.images import Problem, find_problems, is_image
from torchlht.data.packed import file_of
from torchlht.errors import DataError
from torchlht.evaluation import evaluate
from torchlht.model import Model, Named


def run_evaluate(args: EvaluateArgs) -> None:
    """Measure a trained model on its test samples or on other data."""
    metrics = evaluate(args.run, args.data, split=args.split, rule=args.rule, on_error=args.on_error, workers=args.workers)
    if args.json:
        print(json.dumps(metrics, indent=1))
        return
    show.out.print(show.metrics_table(metrics))
    show.say(show.metrics_sentence(metrics))


def run_predict(args: PredictArgs) -> None:
    """Predict classes at every level for pictures, folders or features."""
    model = Model.from_pretrained(args.run)
    if args.top < 1:
        raise DataError(f"--top is {args.top}: at least 1")
    if model.preprocess is None:
        answers = []
        for path in expand(args.inputs, want_images=False):
            answers += model.predict(read_features(path)[: args.limit], top=args.top, rule=args.rule)
    else:
        paths = readable(expand(args.inputs, want_images=True)[: args.limit], args.on_error)
        answers = model.predict(paths, top=args.top, rule=args.rule)
    {"table": print_table, "csv": print_csv, "json": print_json}[args.format](answers)


def expand(inputs: Sequence[str], *, want_images: bool) -> list[Path]:
    """Files named by paths, folders, patterns and datasets, in order."""
    if not inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with pictures, folders or patterns")
    files: list[Path] = []
    for name in inputs:
        path = Path(name)
        if want_images and (name in NAMES or path.suffix.lower() in (".csv", ".tsv")):
            found = test_pictures(name)
        elif path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and (is_image(p) if want_images else p.suffix == ".npz"))
        else:
            found = [path] if file_of(path).exists() else sorted(Path(p) for p in glob.glob(name, recursive=True))  # noqa: PTH207 - absolute patterns, too
        if not found:
            raise DataError(f"{name}: no such file, and no {'pictures' if want_images else '.npz files'} match it")
        files += found
    return files


def test_pictures(name: str) -> list[Path]:
    """The test pictures of a dataset, or all of them when it has no test part."""
    samples = read_data(name)
    chosen = samples.index("test") if (samples.split == "test").any() else range(len(samples))
    return [samples.images[i] for i in chosen] if samples.images else []


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
    folder = os.path.commonpath([str(Path(named.source).parent) for named in answers])  # a table has no room for it
    table = Table("file", *(answer.level for answer in answers[0].levels))
    for named in answers:
        cells = ["\n".join(f"{c.label} {c.probability:.0%}" for c in level.candidates) for level in named.levels]
        table.add_row(os.path.relpath(named.source, folder) + ("" if named.consistent else "\n(levels disagree)"), *cells)
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
