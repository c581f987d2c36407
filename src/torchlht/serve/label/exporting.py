"""Labels as a file: what the data says and what people answered, together. The data itself is not changed.

    csv           path, a column per level, split                 what `lht train` reads
    darwin-core   the same with Darwin Core's terms, and who said so, when, and what else
    label-studio  tasks with a taxonomy as annotations
    npz           features with their labels, for data that holds features

Samples that are `not in the tree` or a `wrong picture` are left out of csv and npz; the other two say so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from torchlht.data.pictures import FilePicture
from torchlht.data.samples import Ints, Samples, refuse_inside
from torchlht.data.sources.darwin_core import MEDIA, PARTITION, RANK, SCIENTIFIC
from torchlht.errors import ConfigError, DataError
from torchlht.files import csv_text, replacing, write_json, write_text
from torchlht.serve.label.journal import FILE, Answer, check_levels, read_journal
from torchlht.serve.label.reading import Source, replayed
from torchlht.serve.label.state import UNTOUCHED, State

To = Literal["csv", "darwin-core", "label-studio", "npz"]
ENDS: dict[str, To] = {".json": "label-studio", ".npz": "npz"}
SUFFIXES: dict[To, str] = {"csv": ".csv", "darwin-core": ".csv", "label-studio": ".json", "npz": ".npz"}
REMARKS = {
    "only": "not further from this picture",
    "cant_tell": "cannot tell",
    "not_in_tree": "not in the tree",
    "wrong_picture": "wrong picture",
}


class Written(NamedTuple):
    """A file that was written: how many samples it has, how many of them have an answer, and what to know about it."""

    path: Path
    samples: int
    changed: int
    notes: list[str]


class Labelled(NamedTuple):
    """Data with the answers of its journal.

    Attributes:
        samples: the data.
        state: the labels.
        out: the file to be written.
    """

    samples: Samples
    state: State
    out: Path

    def kept(self) -> Ints:
        """Samples that belong to the collection."""
        return np.flatnonzero(~self.state.left_out())

    def names(self, i: int) -> list[str]:
        """A sample's classes, coarse → fine, blank where unknown or where the branch has no such level."""
        taxonomy, row = self.state.taxonomy, self.state.taxonomy.lineages()[self.state.node[i]].tolist()
        return ["" if node < 0 or taxonomy.stands_in(node) else taxonomy.nodes[node].name for node in row]

    def place(self, i: int) -> str:
        """Where a picture lies, seen from the file. Raises ConfigError if it is no file of its own."""
        picture = self.samples.images[i] if self.samples.images is not None else None
        if not isinstance(picture, FilePicture):
            raise ConfigError(f"{self.samples.name}: its pictures are no files of their own, which such a file could name")
        return Path(os.path.relpath(picture.file, self.out.resolve().parent)).as_posix()

    def last(self, i: int) -> Answer | None:
        """The answer that counts, or None."""
        return next((answer for _, answer, counts in reversed(self.state.history(i)) if counts), None)


def export_labels(source: Source, out: Path | None = None, to: To | None = None) -> Written:
    """Write the labels of some data, with the answers in its journal.

    Args:
        source: the data.
        out: the file; its name by default is made from the data's.
        to: the format; by default what `out` ends in, else what fits the data.

    Raises:
        ConfigError: when the format does not fit the data, or a file that is in the way is not replaced.
        DataError: when the journal is damaged.
    """
    samples = source.read()
    read = read_journal(source.folder() / FILE)
    tree = samples.hierarchy
    check_levels(read, [tree.levels[k] for k in tree.top_down], source.folder() / FILE)
    if not read.entries:
        raise DataError(f"{source.folder()}: no journal there; label some samples first with lht label {source.data}")
    to = to or ENDS.get(out.suffix.lower() if out else "", "npz" if samples.images is None else "csv")
    if (to == "npz") != (samples.images is None):
        raise ConfigError(
            f"{samples.name} holds {'features' if samples.images is None else 'pictures'}: it cannot be written `to={to}`"
        )
    path = out or Path(f"{samples.name}-labelled{SUFFIXES[to]}")
    refuse_inside(path, source.data)
    if path.exists() and path.resolve() == Path(source.data).resolve():
        raise ConfigError(f"{path}: is the data itself, which is never changed; choose another `out`")
    labelled = Labelled(samples, replayed(samples, read.entries), path)
    WRITERS[to](labelled)
    return told(labelled, to)


def told(labelled: Labelled, to: To) -> Written:
    """What was written."""
    state, notes = labelled.state, []
    left = int(state.left_out().sum())
    if left and to in ("csv", "npz"):
        notes.append(f"left out: {left:,} that are not in the tree, or are the wrong picture")
    if state.strangers:
        notes.append(f"{state.strangers:,} answers are about samples that {labelled.samples.name} does not have any more")
    added = [node.name for i, node in enumerate(state.taxonomy.nodes) if node.new and i not in state.taxonomy.gone]
    if added:
        shown = ", ".join(added[:5]) + (", …" if len(added) > 5 else "")
        notes.append(f"new classes: {shown}; a tree in a file does not have them, so train without `--hierarchy`")
    rows = labelled.kept() if to in ("csv", "npz") else np.arange(len(state))
    return Written(labelled.out, len(rows), int((state.mark[rows] != UNTOUCHED).sum()), notes)


def write_csv(labelled: Labelled) -> None:
    """A table as `lht train` reads it."""
    levels = labelled.state.taxonomy.levels
    rows = [[labelled.place(i), *labelled.names(i), str(labelled.state.split[i])] for i in labelled.kept().tolist()]
    write_text(labelled.out, csv_text([["path", *levels, "split"], *rows]))


def write_darwin_core(labelled: Labelled) -> None:
    """A table with the terms of Darwin Core where it has one."""
    state = labelled.state
    header = ["occurrenceID", "basisOfRecord", MEDIA, *state.taxonomy.levels, SCIENTIFIC, RANK]
    header += ["identifiedBy", "dateIdentified", "identificationRemarks", PARTITION]
    rows: list[Sequence[str]] = [header]
    for i in range(len(state)):
        names, answer = labelled.names(i), labelled.last(i)
        deepest = max((level for level, name in enumerate(names) if name), default=-1)
        known = [names[deepest], state.taxonomy.levels[deepest]] if deepest >= 0 else ["", ""]
        said = [answer.by, answer.at, REMARKS.get(answer.what, "")] if answer else ["", "", ""]
        record = "MachineObservation"
        rows.append([state.keys[i], record, labelled.place(i), *names, *known, *said, str(state.split[i])])
    write_text(labelled.out, csv_text(rows))


def write_label_studio(labelled: Labelled) -> None:
    """Tasks with annotations, as Label Studio imports them."""
    state, levels = labelled.state, labelled.state.taxonomy.levels
    tasks: list[dict[str, Any]] = []
    for i in range(len(state)):
        names, answer = labelled.names(i), labelled.last(i)
        deep = max((level + 1 for level, name in enumerate(names) if name), default=0)
        result = [taxonomy_result([names[:deep]])] if deep else []
        if answer is not None and answer.what in REMARKS:
            result.append(choice_result(answer.what))
        task: dict[str, Any] = {
            "data": {"image": labelled.place(i), "key": state.keys[i]},
            "meta": {"levels": levels, "split": str(state.split[i])},
            "annotations": [{"result": result, "was_cancelled": False}] if result or answer else [],
        }
        if answer is not None:
            task["annotations"][0] |= {"created_at": answer.at, "created_username": answer.by, "lead_time": answer.seconds}
        tasks.append(task)
    write_json(labelled.out, tasks)


def taxonomy_result(paths: list[list[str]]) -> dict[str, Any]:
    """A label in Label Studio's words."""
    return {"from_name": "taxonomy", "to_name": "image", "type": "taxonomy", "value": {"taxonomy": paths}}


def choice_result(what: str) -> dict[str, Any]:
    """An answer without a class in Label Studio's words."""
    return {"from_name": "remark", "to_name": "image", "type": "choices", "value": {"choices": [what]}}


def write_npz(labelled: Labelled) -> None:
    """Features with their labels; `train` is false for test samples."""
    tree, rows = labelled.state.taxonomy.hierarchy(), labelled.kept()
    assert labelled.samples.features is not None
    with replacing(labelled.out) as beside, beside.open("wb") as file:
        np.savez(
            file,
            x=labelled.samples.features[rows],
            y=labelled.state.labels(tree)[rows],
            train=labelled.state.split[rows] != "test",
            **tree.arrays(),
        )


WRITERS: dict[To, Callable[[Labelled], None]] = {
    "csv": write_csv,
    "darwin-core": write_darwin_core,
    "label-studio": write_label_studio,
    "npz": write_npz,
}
