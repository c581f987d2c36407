"""What an audit leaves in its folder: labels.csv, twins.csv, tree.csv, audit.json; and how they are read again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from torchlht.data.samples import Samples, read_data
from torchlht.doors import read_json
from torchlht.errors import DataError, RunError
from torchlht.files import read_csv
from torchlht.hierarchy.tree import Hierarchy

LABELS, TWINS, TREE, RECORD = "labels.csv", "twins.csv", "tree.csv", "audit.json"
COLUMNS = ("sample", "level", "given", "suggested", "suggested_level", "probability", "reason")


class Row(msgspec.Struct, frozen=True):
    """A row of labels.csv."""

    sample: str
    level: str
    given: str
    suggested: str
    suggested_level: str
    probability: float
    reason: str = ""


class KeptCount(msgspec.Struct, frozen=True):
    """How many labels of a level are wrong."""

    level: str
    known: int
    wrong: float
    low: float
    high: float


class KeptAudit(msgspec.Struct, frozen=True):
    """audit.json: which data was audited, its state then, and how many labels are wrong."""

    data: str
    content: str
    labels: str
    samples: int
    counts: list[KeptCount]
    version: int = 1
    hierarchy: str | None = None
    levels: list[str] | None = None
    unknown: list[str] = []
    seconds: float = 0.0


def labels_digest(samples: Samples) -> str:
    """A hash of the labels and the names of the samples."""
    digest = hashlib.sha256(samples.labels.tobytes())
    digest.update("\0".join(samples.keys).encode(errors="surrogateescape"))
    return digest.hexdigest()


def read_audit(folder: Path) -> KeptAudit:
    """audit.json of a folder. Raises RunError if there is none."""
    if not (folder / RECORD).is_file():
        raise RunError(f"{folder}: no audit there ({RECORD} is missing); lht audit DATA --out {folder} makes one")
    return read_json(folder / RECORD, KeptAudit, RunError)


def reread(kept: KeptAudit, folder: Path) -> Samples:
    """The data of an audit, as it is now. Raises DataError if it has changed since."""
    tree = Hierarchy.read(kept.hierarchy, kept.levels) if kept.hierarchy else None
    samples = read_data(kept.data, hierarchy=tree, levels=kept.levels, unknown=kept.unknown)
    if samples.fingerprint() != kept.content or labels_digest(samples) != kept.labels:
        raise DataError(f"{kept.data}: has changed since the audit in {folder}; run lht audit {kept.data} again")
    return samples


def read_rows(path: Path) -> list[Row]:
    """The rows of labels.csv, perhaps edited by hand."""
    if not path.is_file():
        raise RunError(f"{path}: missing; run lht audit again")
    try:
        found = read_csv(path)
    except (UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{path}: not a readable table ({error})") from None
    if found and (missing := [name for name in COLUMNS[:-1] if name not in found[0]]):
        raise DataError(f"{path}: no column {missing[0]!r}; it needs {', '.join(COLUMNS)}")
    try:
        return [msgspec.convert({name: row.get(name, "") for name in COLUMNS}, Row, strict=False) for row in found]
    except msgspec.ValidationError as error:
        raise DataError(f"{path}: {error}; probability is a number from 0 to 1") from None
