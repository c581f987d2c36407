"""Correcting labels as an audit suggests: a copy of the data and a journal. The original is never touched."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from torchlht.answer.finding import check_folder
from torchlht.data.pictures import as_url
from torchlht.data.samples import Ints, Samples
from torchlht.errors import ConfigError, DataError
from torchlht.files import csv_text, replacing, write_text
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.believing import path_to
from torchlht.learn.audit.kept import LABELS, Row, read_audit, read_rows, reread

JOURNAL = "journal.csv"
LEAST = 0.5


@dataclass(frozen=True)
class Applied:
    """What was written: the corrected data, the journal, and how many labels of how many were changed."""

    data: Path
    journal: Path
    changed: int
    listed: int


def apply_audit(folder: str | Path, out: str | Path | None = None, *, least: float = LEAST) -> Applied:
    """Write a corrected copy of the data of an audit, and a journal of what was changed.

    Args:
        folder: what `lht audit` wrote; rows may have been removed from labels.csv, or their suggestions changed.
        out: the copy, an .npz for features and a .csv for pictures; by default `corrected` in the folder.
        least: leave labels alone that are wrong with a smaller probability.

    Raises:
        DataError: when the data has changed since the audit, or labels.csv names what is not there.
    """
    place = Path(folder)
    check_folder(place)
    kept = read_audit(place)
    samples = reread(kept, place)
    suffix = ".npz" if samples.features is not None else ".csv"
    target = Path(out) if out is not None else place / f"corrected{suffix}"
    if target.suffix.lower() != suffix:
        raise ConfigError(
            f"{target}: the corrected copy is {'an .npz' if suffix == '.npz' else 'a .csv'}; choose such an `out`"
        )
    if target.exists():
        raise ConfigError(f"{target}: exists already; remove it, or choose another `out`")
    rows = read_rows(place / LABELS)
    labels, journal = corrected(samples, rows, least, str(place / LABELS))
    new = dataclasses.replace(samples, labels=labels)
    if samples.features is not None:
        _write_features(target, Path(kept.data), new)
    else:
        write_text(target, csv_text(_table(new)))
    head = ("sample", "level", "before", "after", "probability")
    write_text(target.with_name(f"{target.stem}-{JOURNAL}"), csv_text([head, *journal]))
    return Applied(target, target.with_name(f"{target.stem}-{JOURNAL}"), len(journal), len(rows))


def corrected(samples: Samples, rows: list[Row], least: float, where: str) -> tuple[Ints, list[tuple[object, ...]]]:
    """(N, K) labels with what the rows suggest, and a line of the journal for each change."""
    tree, labels = samples.hierarchy, samples.labels.copy()
    places = {key: i for i, key in enumerate(samples.keys)}
    journal: list[tuple[object, ...]] = []
    for row in sorted(rows, key=lambda one: -one.probability):
        if row.probability < least or row.sample not in places:
            if row.sample not in places:
                raise DataError(f"{where}: no sample {row.sample!r} in the data; remove the row, or run the audit again")
            continue
        i, level = places[row.sample], _level(tree, row.level, where)
        if labels[i, level] < 0 or tree.classes[level][labels[i, level]] != row.given:
            continue  # a row of the same sample came first
        before = path_text(tree, labels[i])
        labels[i] = _suggested(tree, labels[i], level, row, where)
        journal.append((row.sample, row.level, before, path_text(tree, labels[i]), row.probability))
    return labels, journal


def _suggested(tree: Hierarchy, label: Ints, level: int, row: Row, where: str) -> Ints:
    """A sample's label after a row: the suggestion and its ancestors; without one, what is above the wrong level."""
    if row.suggested:
        at = _level(tree, row.suggested_level or row.level, where)
        return path_to(tree, at, tree.index(at, row.suggested))
    return np.where(np.arange(len(tree)) > level, label, -1)


def _level(tree: Hierarchy, name: str, where: str) -> int:
    if name not in tree.levels:
        raise DataError(f"{where}: no level {name!r}; the data has {', '.join(tree.levels[k] for k in tree.top_down)}")
    return tree.levels.index(name)


def path_text(tree: Hierarchy, label: Ints) -> str:
    """The names of a label, coarse → fine."""
    return " › ".join(tree.path_names(label))


def _write_features(target: Path, original: Path, new: Samples) -> None:
    """An .npz with all arrays of the original, whatever they are called and hold, and other labels."""
    others = {f"{name}.npy": array for name, array in {"y": new.labels, **new.hierarchy.arrays()}.items()}
    with ZipFile(original) as before, replacing(target) as beside, ZipFile(beside, "w") as after:
        for name in before.namelist():
            if name not in ("y.npy", "levels.npy") and not name.startswith("classes_"):
                with before.open(name) as member, after.open(name, "w", force_zip64=True) as copy:
                    shutil.copyfileobj(member, copy)
        for name, array in others.items():
            with after.open(name, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _table(new: Samples) -> list[tuple[str, ...]]:
    """A table of pictures that `lht train` reads."""
    tree = new.hierarchy
    assert new.images is not None
    levels = [tree.levels[k] for k in tree.top_down]
    lines: list[tuple[str, ...]] = [("path", *levels, "split")]
    for picture, label, split in zip(new.images, new.labels, new.split.tolist(), strict=True):
        if picture.file is None or picture.part or as_url(picture.file):
            raise ConfigError(
                f"{picture}: pictures in shards cannot be named by a table; audit the folder or table they come from"
            )
        lines.append((str(Path(picture.file).resolve()), *tree.cells(label), split))
    return lines
