"""`lht predict`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from rich.table import Table

from torchlht import console
from torchlht.answer.finding import GRAPH, SUFFIXES, is_exported
from torchlht.commands.base import AcceleratorArgs, ModelPlace, RuleArgs, StrictArgs, command, listed
from torchlht.data.options import InputPlace, OnErrorArgs, Word
from torchlht.doors import Count, OpenShare, WholeShare
from torchlht.errors import DataError
from torchlht.files import csv_text

if TYPE_CHECKING:
    import torch

    from torchlht.answer.calibration import Calibration
    from torchlht.answer.model import Predictor
    from torchlht.answer.named import Answer, LevelAnswer, Named, Wanted
    from torchlht.data.pictures import Problem


@dataclass(frozen=True)
class PredictArgs(RuleArgs, StrictArgs, OnErrorArgs, AcceleratorArgs):
    """Predict classes at every level."""

    run: Annotated[ModelPlace, Word("RUN")]
    """A run directory, a model on the hub, or a file written by `lht export --to onnx`."""
    inputs: Annotated[list[InputPlace], Word("FILE…")] = field(default_factory=list)
    """Pictures, folders or patterns; a table, shards or `demo` (their test pictures); for a model on features, .npz files
    with `x`."""
    format: Literal["table", "csv", "json"] = "table"
    """How to print the answers."""
    confidence: WholeShare | None = None
    """Answer with the deepest class whose probability reaches this, such as 0.9."""
    risk: OpenShare | None = None
    """Answer as deep as possible while at most this share of answers is wrong, such as 0.05. The threshold comes from
    validation samples, see `lht calibrate`."""
    only: str | None = None
    """Allow only these classes: names at any level, separated by commas, or @FILE with one name per line."""
    exclude: str | None = None
    """Rule out these classes, given in the same way."""
    top: Count = 1
    """Number of candidates per level."""
    limit: Count | None = None
    """Predict only this many inputs, the first ones."""
    trust: bool = False
    """Open an exported file even if it holds more than a network and plain values, and so may run code of whoever wrote it."""

    def only_names(self) -> list[str]:
        """`only` as a list."""
        return listed(self.only)

    def excluded_names(self) -> list[str]:
        """`exclude` as a list."""
        return listed(self.exclude)


T = TypeVar("T")
BATCH = 64  # samples at a time, by one of the processes that predict together


@command("predict", "with a trained model")
def run_predict(args: PredictArgs) -> None:
    """Predict classes at every level for pictures, folders or features.

    Several processes share the work; the first one prints.
    """
    if (Path(args.run) / GRAPH).is_file() or holds_graph(args.run):
        from torchlht.commands.several import predict_several

        return predict_several(args)
    from torchlht.answer.named import wanted
    from torchlht.data.inputs import expand, feature_rows

    processes = Processes.here(args.accelerator)
    model = load_predictor(args.run, trust=args.trust).on(processes.device)
    restricted = bool(args.only or args.exclude)
    asked = wanted(
        args.confidence, args.risk, args.rule or model.rule, model.calibration, restricted=restricted, strict=args.strict
    )
    if asked.promise is None and not restricted:
        asked = model.wanted  # an exported model may carry its own threshold
    if model.preprocess is None:
        files: list[Any] = [feature_rows(file)[: args.limit] for file in expand(args.inputs, want_images=False)]
    else:
        files = [expand(args.inputs, want_images=True)[: args.limit]]
    blocks = [(one[i : i + BATCH], i) for one in files for i in range(0, len(one), BATCH)]
    how = {"top": args.top, "rule": args.rule, "only": args.only_names(), "exclude": args.excluded_names()}
    found, unreadable = predict_blocks(processes, model, blocks, how)
    if unreadable and args.on_error != "skip":
        first, count = unreadable[0], sum(map(len, files))
        raise DataError(
            f"{len(unreadable)} of {count} pictures cannot be read, the first is {first.path} ({first.reason}); "
            "pass `on_error=skip`"
        )
    if processes.rank == 0:
        for problem in unreadable:
            console.notes.print(f"skipped {problem.path}: {problem.reason}", soft_wrap=True)
        if model.novelty is None and args.format == "table" and Path(args.run).is_dir():
            console.note(f"to be told what is unlike anything it was trained on: lht calibrate {args.run}", quiet=False)
        {"table": print_table, "csv": print_csv, "json": print_json}[args.format](found, asked)


@dataclass(frozen=True)
class Processes:
    """The processes that torchrun started to share the work, or this one alone."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @classmethod
    def here(cls, accelerator: str) -> Processes:
        """This process among them, with the device it computes on."""
        from torchlht.answer.asking import find_device

        if "WORLD_SIZE" not in os.environ:
            return cls(find_device(accelerator))
        from torchlht.learn.launching import find_machine

        machine = find_machine(accelerator)
        return cls(machine.device, machine.global_rank, machine.world_size)

    def everyone(self, mine: T) -> list[T]:
        """What each of them has found."""
        if self.count == 1:
            return [mine]
        from torchlht.processes import objects_of_all

        return objects_of_all(mine)


def predict_blocks(
    processes: Processes, model: Predictor, blocks: Sequence[tuple[Any, int]], how: dict[str, Any]
) -> tuple[list[Named], list[Problem]]:
    """Answers, and unreadable pictures, in the order of the inputs. Processes take blocks in turn.

    Args:
        processes: those that share the work.
        model: what answers.
        blocks: some inputs, and the number of the first of them where they are rows of features.
        how: how to answer, see `Predictor.predict`.
    """
    mine: list[tuple[list[Named], list[Problem]]] = []
    for inputs, first in blocks[processes.rank :: processes.count]:
        unreadable: list[Problem] = []
        answers: list[Named] = model.predict(inputs, batch_size=BATCH, unreadable=unreadable, **how)
        if model.preprocess is None:
            answers = [dataclasses.replace(named, source=f"row {first + i}") for i, named in enumerate(answers)]
        mine.append((answers, unreadable))
    everyone = processes.everyone(mine)
    in_order = [everyone[i % processes.count][i // processes.count] for i in range(len(blocks))]
    return [named for answers, _ in in_order for named in answers], [problem for _, some in in_order for problem in some]


def holds_graph(name: str) -> bool:
    """Whether this is an exported file of a model whose classes may have several parents."""
    if Path(name).suffix.lower() != SUFFIXES["onnx"]:
        return False
    from torchlht.answer.exported.graphs import is_of_graph

    return is_of_graph(name)


def load_predictor(name: str, *, trust: bool = False) -> Predictor:
    """Load a run, or a file exported from one; `trust` is that of `read_exported`."""
    if is_exported(name):
        from torchlht.answer.exported.read import read_exported

        return read_exported(name, trust=trust)
    from torchlht.answer.model import Model

    return Model.from_pretrained(name)


# ---- printing ------------------------------------------------------------------------------------------------------


def print_table(found: Sequence[Named], asked: Wanted) -> None:
    """One row per sample, one column per level, runners-up below; with a threshold, the answer and the classes above it."""
    if not found:
        return
    from torchlht.answer.novelty import ALARMS

    folder = os.path.commonpath([str(Path(named.source).parent) for named in found])  # not shown: a table has no room
    table = Table("file", *(["answer", "and beyond"] if asked.promise else [level.level for level in found[0].levels]))
    for named in found:
        if asked.promise:
            cells = list(answer_texts(named.answer_at(asked)))
        else:
            cells = ["\n".join(_candidate_texts(level)) for level in named.levels]
            marks = [f"\n(unlike any {level.level})" if level.unlike else "" for level in named.levels]
            cells = [cell + mark for cell, mark in zip(cells, marks, strict=True)]
        table.add_row(os.path.relpath(named.source, folder) + ("" if named.consistent else "\n(levels disagree)"), *cells)
    console.out.print(table)
    if asked.promise:
        promise = f"{asked.promise}{measured_on(found[0].calibration) if asked.promise.startswith('risk') else ''}"
        console.say(f"the answer is the deepest class whose probability reaches {asked.threshold:.3g} ({promise})")
    if not asked.promise:
        for mark, meaning in (("(ends)", "the branch ends further up"), ("(none)", "the branch skips this level")):
            if any(level.text == mark for named in found for level in named.levels):
                console.say(f"{mark}: {meaning}, there is no finer class" if mark == "(ends)" else f"{mark}: {meaning}")
    if any(named.unlike for named in found):
        console.say(f"unlike: further from all it was trained on than {1 - ALARMS:.0%} of known samples, or more")


def measured_on(calibration: Calibration | None) -> str:
    """How many validation samples a promised risk comes from."""
    counts = [curve.samples for curve in calibration.risks.values()] if calibration else []
    return f", from {console.plural(max(counts), 'validation sample')}" if counts else ""


def _candidate_texts(level: LevelAnswer) -> list[str]:
    """The answer at a level, and its rivals."""
    own, *others = level.candidates
    return [f"{level.text} {own.probability:.0%}", *(f"{c.text} {c.probability:.0%}" for c in others)]


def answer_texts(answer: Answer) -> tuple[str, str]:
    """Two cells: the answer with its level and the classes above it; and the candidates below it."""
    could_be = ", ".join(f"{c.text} {c.probability:.0%}" for c in answer.runners_up)
    beyond = f"{answer.undecided}: {could_be}" if answer.undecided else ""
    if answer.probability is None:
        return answer.unlike or "undecided", beyond
    above = [f"{label} {p:.0%}" for label, p in zip(answer.path[:-1], answer.path_probabilities[:-1], strict=True)]
    ends = "the branch ends here" if answer.ends else ""
    lines = [f"{answer.label} ({answer.level}, {answer.probability:.0%})", " › ".join(above), ends, answer.unlike or ""]
    return "\n".join(line for line in lines if line), beyond


def print_csv(found: Sequence[Named], asked: Wanted) -> None:
    """One row per sample: file, answer, then label and probability per level, numbered if there are runners-up.

    Where branches may end early, a class is blank where there is none, and `ends_at` names the level at which the branch ends.
    """
    if not found:
        return
    ranks = range(max(len(level.candidates) for level in found[0].levels))
    header = ["file", *(["answer", "answer_level", "answer_probability"] if asked.promise else [])]
    for level in found[0].levels:
        for i in ranks[: len(level.candidates)]:
            end = f"_{i + 1}" if i else ""
            header += [f"{level.level}{end}", f"{level.level}_probability{end}"]
    header += ["ends_at"] if found[0].ragged else []
    far = found[0].levels[0].as_far is not None
    rows = [[*header, "consistent", *([f"{level.level}_as_far" for level in found[0].levels] + ["unlike"] if far else [])]]
    for named in found:
        row = [named.source]
        if asked.promise:
            answer = named.answer_at(asked)
            row += [answer.label or "", answer.level or "", _six(answer.probability)]
        for level in named.levels:
            for i, candidate in enumerate(level.candidates):
                row += [candidate.text if i else level.label or "", _six(candidate.probability)]
        row += [named.ends_at or ""] if named.ragged else []
        row.append(str(named.consistent).lower())
        rows.append([*row, *(_six(level.as_far) for level in named.levels), named.unlike or ""] if far else row)
    print(csv_text([console.readable(cell) for cell in row] for row in rows), end="")


def _six(probability: float | None) -> str:
    return "" if probability is None else f"{probability:.6f}"


def print_json(found: Sequence[Named], asked: Wanted) -> None:
    """A list with one object per sample."""
    from torchlht.answer.plain import as_dict

    print(console.json_text([as_dict(named, asked) for named in found]))
