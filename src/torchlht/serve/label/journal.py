"""The journal: every answer is a line, written once and never changed.

    {"sum":"5f0c…","event":{"type":"answer","samples":["a.jpg"],"what":"label","path":["Charadriiformes","Laridae"],…}}

The sum of a line covers its event and the sum of the line before, so that nothing can be lost or changed in the middle without
notice. A line is on the disk before `append` returns. Whoever is killed while writing leaves a torn last line, which was never
acknowledged: it is ignored, and cut off by the next writer. Any prefix of a journal is a journal.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple, get_args

import msgspec

from torchlht.data.named import is_known
from torchlht.data.pictures import as_place, as_url
from torchlht.doors import read_bytes
from torchlht.errors import DataError, RunError
from torchlht.files import claimed

FILE, FORMAT = "journal.jsonl", 1
BYTES = 2**30
"""Largest journal: some three million answers."""
NAME = 120
"""Longest name of a class or a person, in characters."""

What = Literal["label", "only", "cant_tell", "not_in_tree", "wrong_picture"]
WHATS: tuple[What, ...] = get_args(What)
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME)]
Person = Annotated[str, msgspec.Meta(max_length=NAME)]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every line has: when, and by whom."""

    at: str = ""
    by: Person = ""


class Begin(Event, tag="begin"):
    """The first line: what the journal is about."""

    format: int
    data: str
    levels: list[str]  # coarse → fine


class Answer(Event, tag="answer"):
    """One answer about one sample, or about many at once.

    Attributes:
        samples: their keys.
        seen: for each, the number of the event that the person saw as its last; 0 for none.
        what: `label` is a class; `only`, a class and not deeper, as the picture does not tell; the rest have no class.
        path: names coarse → fine down to the class; "" at a level that its branch skips.
        suggested: for each, the path that the model suggested; empty without one.
        shown: for each, whether the person saw that.
        asked: for each, the level that the page said is enough; empty where it asked for none.
        seconds: how long it took.
    """

    samples: list[str]
    seen: list[int]
    what: What
    path: list[str] = []
    suggested: list[list[str]] = []
    shown: list[bool] = []
    asked: list[str] = []
    seconds: float = 0.0


class NewClass(Event, tag="class"):
    """A class that the data does not have; its path is coarse → fine and ends with it."""

    path: list[str]


class Undo(Event, tag="undo"):
    """The event with this number does not count any more."""

    of: int


class Redo(Event, tag="redo"):
    """The event with this number counts again."""

    of: int


class Trained(Event, tag="trained"):
    """A training: what it learned from, and how good it was.

    Attributes:
        answers: how many answers counted by then.
        labelled: how many samples it learned from.
        accuracy: by level; a level without a sample to check is missing.
        checked: how many samples that was measured on.
        source: which samples these were.
        seconds: how long it took.
    """

    answers: int
    labelled: int
    accuracy: dict[str, float] = {}
    checked: int = 0
    source: str = ""
    seconds: float = 0.0


Entry = Begin | Answer | NewClass | Undo | Redo | Trained


class Line(msgspec.Struct):
    """A line as it is read: the event is decoded after its sum was checked."""

    sum: str
    event: msgspec.Raw


class Read(NamedTuple):
    """A journal as it was read.

    Attributes:
        entries: its events; the number of an event is its place.
        sum: the sum of the last line.
        size: how many bytes count.
        torn: how many bytes follow them, of an answer that was never acknowledged.
    """

    entries: list[Entry]
    sum: str
    size: int
    torn: int


def now() -> str:
    """The time, for an event."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def line_of(entry: Entry, before: str) -> tuple[bytes, str]:
    """An event as a line, and its sum; `before` is the sum of the line before."""
    body = msgspec.json.encode(entry)
    digest = sum_of(body, before)
    return b'{"sum":"%s","event":%s}\n' % (digest.encode(), body), digest


def sum_of(body: bytes, before: str) -> str:
    """The sum of an event that follows a line with the sum `before`."""
    return hashlib.blake2b(before.encode() + body, digest_size=8).hexdigest()


def parse(data: bytes, source: str) -> Read:
    """The events in a journal's bytes. A last line that is torn does not count.

    Raises:
        DataError: when a line before the last is damaged, or the journal is of a newer format.
    """
    entries: list[Entry] = []
    before, size, lines = "", 0, data.split(b"\n")
    for number, line in enumerate(lines[:-1]):
        found = _entry(line, before)
        if found is None:
            if number == len(lines) - 2 and not lines[-1]:
                break  # the last line, with its end but not all of its content on the disk
            raise DataError(
                f"{source} line {number + 1}: is damaged, so what follows cannot be trusted; restore the file from a copy, or "
                f"delete this line and all after it, which gives these answers up"
            )
        entry, before = found
        if (number == 0) != isinstance(entry, Begin) or (isinstance(entry, Begin) and entry.format > FORMAT):
            raise DataError(f"{source} line {number + 1}: not a journal of this version of lht label; update torchlht")
        entries.append(entry)
        size += len(line) + 1
    return Read(entries, before, size, len(data) - size)


def _entry(line: bytes, before: str) -> tuple[Entry, str] | None:
    """The event of a line, and its sum; None if it is damaged."""
    try:
        read = msgspec.json.decode(line, type=Line)
        body = bytes(read.event)
        if read.sum != sum_of(body, before):
            return None
        return msgspec.json.decode(body, type=Entry), read.sum
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_journal(path: Path) -> Read:
    """A journal from its file; empty if there is none yet."""
    try:
        return parse(read_bytes(path, BYTES), str(path))
    except FileNotFoundError:
        return Read([], "", 0, 0)


class Journal:
    """A journal that is written to. `opened` gives one."""

    def __init__(self, path: Path, file: BinaryIO, read: Read) -> None:
        self.path, self._file, self._sum, self._size = path, file, read.sum, read.size
        self._broken = False

    def append(self, entry: Entry) -> None:
        """Write an event. When this returns, it is on the disk.

        Raises:
            OSError: when it could not be written, on a full disk for instance; the journal is then as it was before.
        """
        if self._broken:
            raise OSError(None, "the journal could not be written before; end lht label and start it again", str(self.path))
        line, digest = line_of(entry, self._sum)
        try:
            self._file.seek(self._size)
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError:
            self._take_back()
            raise
        self._sum, self._size = digest, self._size + len(line)

    def _take_back(self) -> None:
        """Cut off what was written of a line; if even that fails, nothing more is written."""
        self._broken = True
        os.ftruncate(self._file.fileno(), self._size)
        self._broken = False


@contextmanager
def opened(folder: Path, begin: Begin) -> Iterator[tuple[Journal, list[Entry]]]:
    """Context: the journal in a folder, and its events. No other process may write it meanwhile.

    Args:
        folder: made if need be.
        begin: the first event of a new journal.

    Raises:
        RunError: when another process has it open.
        DataError: when it is damaged, or about other levels.
    """
    path = folder / FILE
    try:
        claim = claimed(folder)
        claim.__enter__()
    except RunError:
        raise RunError(
            f"{folder}: another lht label is open on this data; several people and tabs can use its page, or end it first"
        ) from None
    try:
        read = read_journal(path)
        check_levels(read, begin.levels, path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            os.ftruncate(handle, read.size)
            journal = Journal(path, file, read)
            if not read.entries:
                journal.append(begin)
                _keep_folder(folder)
            yield journal, read.entries or [begin]
    finally:
        claim.__exit__(None, None, None)


def check_levels(read: Read, levels: list[str], path: Path) -> None:
    """Raise DataError if a journal is about other levels."""
    if read.entries and isinstance(first := read.entries[0], Begin) and first.levels != levels:
        raise DataError(
            f"{path}: is about the levels {', '.join(first.levels)}, but the data has {', '.join(levels)}; pass the same "
            "`levels` and `hierarchy` as before, or another `journal`"
        )


def _keep_folder(folder: Path) -> None:
    """Put the folder's list of names on the disk, where systems allow it."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def journal_folder(data: str, given: Path | None = None) -> Path:
    """Where the journal of some data lies: DATA.labels next to it; in the current folder for data known by name or address."""
    if given is not None:
        return given
    place = as_place(data)
    if is_known(data) or as_url(place):
        return Path(f"{place.name}.labels")
    whole = place.resolve()
    return whole.with_name(f"{whole.name}.labels")
