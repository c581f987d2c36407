"""`lht evaluate`, `lht calibrate`, `lht predict`."""

from __future__ import annotations

import csv
import dataclasses
import glob
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_fabric import Fabric
from rich.table import Table

from torchlht import console
from torchlht.answer.calibration import FEW, Calibration
from torchlht.answer.calibration import FILE as CALIBRATION
from torchlht.answer.exported.read import READERS, read_exported
from torchlht.answer.model import TREE, Model
from torchlht.answer.named import Answer, Candidate, Named, Wanted, wanted
from torchlht.answer.predictor import Predictor
from torchlht.commands.use_options import CalibrateArgs, EvaluateArgs, PredictArgs
from torchlht.data.images import Problem, find_problems, is_image
from torchlht.data.packed import file_of
from torchlht.data.places import is_there
from torchlht.data.reading import NAMES, read_data
from torchlht.data.sources.embeddings import read_features
from torchlht.data.sources.shards import is_shards
from torchlht.data.tars import tar_of
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.calibrating import calibrate, cross_calibrate
from torchlht.learn.launching import make_fabric
from torchlht.measure.evaluation import evaluate
from torchlht.processes import objects_of_all
from torchlht.show import terminal


def run_evaluate(args: EvaluateArgs) -> None:
    """Measure a trained model on its test samples or on other data."""
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
    )
    if args.json:
        print(json.dumps(metrics, indent=1))
        return
    console.out.print(terminal.metrics_table(metrics))
    console.say(terminal.metrics_sentence(metrics))
    if "answers" in metrics:
        console.say(
            "rolled up to the deepest class that is sure enough: share of samples answered at each level, wrong ones of them"
        )
        console.out.print(terminal.answers_table(metrics["answers"]))


def run_calibrate(args: CalibrateArgs) -> None:
    """Fit a run's probabilities to what comes true, on validation samples."""
    if args.folds is not None and (args.data or args.split):
        raise ConfigError("`folds` is for the run's own training samples: pass it without DATA and `split`")
    if args.folds is not None:
        found = cross_calibrate(args.run, args.folds, quiet=args.json)
    else:
        found = calibrate(args.run, args.data, split=args.split, on_error=args.on_error, workers=args.workers)
    tree = Hierarchy.read(Path(args.run) / TREE)
    if args.json:
        print(json.dumps(found.to_dict(tree), indent=1))
        return
    console.say(calibration_text(found, tree))
    console.say(f"kept in {Path(args.run) / CALIBRATION} · next: lht predict {args.run} FILE… --confidence 0.9")


def calibration_text(found: Calibration, tree: Hierarchy) -> str:
    """Temperatures, and what can be promised."""
    few = {k: "" if found.samples[k] >= FEW else " (too few labels)" for k in tree.top_down}
    temperatures = "  ".join(f"{tree.levels[k]} {found.temperatures[k]:.2f}{few[k]}" for k in tree.top_down)
    labels = " · ".join(f"{tree.levels[k]} {found.samples[k]:,}" for k in tree.top_down)
    lowest = found.risks["own"].lowest_risk()
    risk = f"the least --risk that can be promised is {lowest:.2g}" if lowest else "no --risk can be promised"
    return f"temperatures: {temperatures}\nfitted to labels of the {found.source}: {labels}; {risk}"


BATCH = 64  # samples at a time, by one of the processes that predict together


def run_predict(args: PredictArgs) -> None:
    """Predict classes at every level for pictures, folders or features. Processes share the work; the first one prints."""
    fabric = make_fabric("cpu")
    model = load_predictor(args.run)
    restricted = bool(args.only or args.exclude)
    asked = wanted(args.confidence, args.risk, args.rule, model.calibration, restricted=restricted, strict=args.strict)
    if asked.promise is None and not restricted:
        asked = model.wanted  # an exported model may bring a threshold along
    ways: dict[str, Any] = {
        "top": args.top,
        "rule": args.rule,
        "only": args.only_names(),
        "exclude": args.excluded_names(),
    }
    if model.preprocess is None:
        files: list[Any] = [read_features(path)[: args.limit] for path in expand(args.inputs, want_images=False)]
    else:
        files = [readable(fabric, expand(args.inputs, want_images=True)[: args.limit], args.on_error)]
    blocks = [(one[i : i + BATCH], i) for one in files for i in range(0, len(one), BATCH)]
    found = predict_blocks(fabric, model, blocks, ways)
    if fabric.is_global_zero:
        {"table": print_table, "csv": print_csv, "json": print_json}[args.format](found, asked)


def predict_blocks(fabric: Fabric, model: Predictor, blocks: Sequence[tuple[Any, int]], ways: dict[str, Any]) -> list[Named]:
    """Answers in the order of the inputs, in the first process; the others get nothing. Each takes every so-manieth block.

    Args:
        fabric: the processes.
        model: what answers.
        blocks: some inputs, and the number of the first of them where they are rows of features.
        ways: how to answer.
    """
    mine: list[list[Named]] = []
    for inputs, first in blocks[fabric.global_rank :: fabric.world_size]:
        answers = model.predict(inputs, batch_size=BATCH, **ways)
        if model.preprocess is None:
            answers = [dataclasses.replace(named, source=f"row {first + i}") for i, named in enumerate(answers)]
        mine.append(answers)
    everyone = objects_of_all(mine)
    if not fabric.is_global_zero:
        return []
    in_order = [everyone[i % fabric.world_size][i // fabric.world_size] for i in range(len(blocks))]
    return [named for answers in in_order for named in answers]


def load_predictor(name: str) -> Predictor:
    """A run, or a file that a run was exported to."""
    return read_exported(name) if Path(name).suffix.lower() in READERS else Model.from_pretrained(name)


def expand(inputs: Sequence[str], *, want_images: bool) -> list[Path]:
    """Files named by paths, folders, patterns and datasets, in order."""
    if not inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with pictures, folders or patterns")
    files: list[Path] = []
    for name in inputs:
        path = Path(name)
        if want_images and (name in NAMES or path.suffix.lower() in (".csv", ".tsv") or (is_shards(name) and not tar_of(path))):
            found = test_pictures(name)
        elif path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and (is_image(p) if want_images else p.suffix == ".npz"))
        else:
            found = [path] if is_there(file_of(path)) else sorted(Path(p) for p in glob.glob(name, recursive=True))  # noqa: PTH207 - absolute patterns, too
        if not found:
            raise DataError(f"{name}: no such file, and no {'pictures' if want_images else '.npz files'} match it")
        files += found
    return files


def test_pictures(name: str) -> list[Path]:
    """The test pictures of a dataset, or all of them when it has no test part."""
    samples = read_data(name)
    chosen = samples.index("test") if (samples.split == "test").any() else range(len(samples))
    return [samples.images[i] for i in chosen] if samples.images else []


def readable(fabric: Fabric, paths: list[Path], on_error: str) -> list[Path]:
    """The pictures that can be read; refuses, or goes on without the others. Each process looks at some of them."""
    parts = objects_of_all(find_problems(paths[fabric.global_rank :: fabric.world_size]))
    place = {str(path): i for i, path in enumerate(paths)}
    problems: list[Problem] = sorted((problem for part in parts for problem in part), key=lambda problem: place[problem.path])
    if problems and on_error != "skip":
        first = f"{problems[0].path} ({problems[0].reason})"
        raise DataError(f"{len(problems)} of {len(paths)} pictures cannot be read, the first is {first}; pass `on_error=skip`")
    for problem in problems if fabric.is_global_zero else ():
        console.notes.print(f"skipped {problem.path}: {problem.reason}", soft_wrap=True)
    bad = {problem.path for problem in problems}
    return [path for path in paths if str(path) not in bad]


# ---- printing ------------------------------------------------------------------------------------------------------


def print_table(found: Sequence[Named], asked: Wanted) -> None:
    """A row per sample: a column per level, runners-up below each other; with a threshold, the answer and the way to it."""
    if not found:
        return
    folder = os.path.commonpath([str(Path(named.source).parent) for named in found])  # a table has no room for it
    table = Table("file", *(["answer", "and beyond"] if asked.promise else [level.level for level in found[0].levels]))
    for named in found:
        if asked.promise:
            cells = list(answer_texts(named.answer_at(asked)))
        else:
            cells = ["\n".join(f"{c.label} {c.probability:.0%}" for c in level.candidates) for level in named.levels]
        table.add_row(os.path.relpath(named.source, folder) + ("" if named.consistent else "\n(levels disagree)"), *cells)
    console.out.print(table)
    if asked.promise:
        console.say(f"answered is the deepest class whose probability reaches {asked.threshold:.3g} ({asked.promise})")


def answer_texts(answer: Answer) -> tuple[str, str]:
    """An answer in two cells: the class and its level, with what is above it; and what it could be below that."""
    could_be = ", ".join(f"{c.label} {c.probability:.0%}" for c in answer.runners_up)
    beyond = f"{answer.undecided}: {could_be}" if answer.undecided else ""
    if answer.probability is None:
        return "undecided", beyond
    above = [f"{label} {p:.0%}" for label, p in zip(answer.path[:-1], answer.path_probabilities[:-1], strict=True)]
    return f"{answer.label} ({answer.level}, {answer.probability:.0%})\n{' › '.join(above)}".rstrip(), beyond


def print_csv(found: Sequence[Named], asked: Wanted) -> None:
    """A row per sample: file, answer, then label and probability per level, numbered when there are runners-up."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if not found:
        return
    ranks = range(max(len(level.candidates) for level in found[0].levels))
    header = ["file", *(["answer", "answer_level", "answer_probability"] if asked.promise else [])]
    for level in found[0].levels:
        for i in ranks[: len(level.candidates)]:
            end = f"_{i + 1}" if i else ""
            header += [f"{level.level}{end}", f"{level.level}_probability{end}"]
    writer.writerow([*header, "consistent"])
    for named in found:
        row = [named.source]
        if asked.promise:
            answer = named.answer_at(asked)
            row += [answer.label or "", answer.level or "", _six(answer.probability)]
        for level in named.levels:
            for candidate in level.candidates:
                row += [candidate.label, _six(candidate.probability)]
        writer.writerow([*row, str(named.consistent).lower()])


def _six(probability: float | None) -> str:
    return "" if probability is None else f"{probability:.6f}"


def as_dict(named: Named, asked: Wanted) -> dict[str, Any]:
    """One sample in the JSON layout: docs/predict.schema.json."""
    answer = named.answer_at(asked)
    return {
        "file": named.source,
        "answer": {
            "label": answer.label,
            "level": answer.level,
            "probability": answer.probability,
            "path": list(answer.path),
            "path_probabilities": list(answer.path_probabilities),
            "rule": answer.rule,
            "promise": answer.promise,
            "threshold": answer.threshold,
            "undecided": answer.undecided,
            "runners_up": _candidates(answer.runners_up),
        },
        "levels": [
            {
                "level": level.level,
                "label": level.label,
                "probability": level.probability,
                "candidates": _candidates(level.candidates),
            }
            for level in named.levels
        ],
        "consistent": named.consistent,
        "calibrated": named.calibration is not None,
        "restricted": named.restricted,
    }


def _candidates(found: Sequence[Candidate]) -> list[dict[str, Any]]:
    return [{"label": c.label, "probability": c.probability} for c in found]


def print_json(found: Sequence[Named], asked: Wanted) -> None:
    """A list with one object per sample."""
    print(json.dumps([as_dict(named, asked) for named in found], indent=1, ensure_ascii=False))
