"""Writing files completely or not at all: write a temporary file, then rename it. Claiming folders. And the cache directory.

A writer that is killed leaves its temporary file, whose name says who wrote it. The next one to write the same file, or to
claim the folder, removes what dead writers left.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from torchlht.errors import ConfigError, RunError

LOCK = ".lock"
PART = re.compile(r"\..*\.(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-\w+\.part")
STALE = 24 * 3600
"""Seconds after which a temporary file of another machine counts as left behind: nothing takes a day to write."""
SHORT = 64
"""Characters of a file's name in that of its temporary file, so that long names stay possible."""

T = TypeVar("T")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. It replaces `path` when the block succeeds, and is removed when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, path.name)
    writer = f".{path.name[:SHORT]}.{_host()}-{os.getpid()}-"
    handle, name = tempfile.mkstemp(prefix=writer, suffix=".part", dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def sweep(folder: Path, name: str = "") -> None:
    """Remove the temporary files that dead writers left in a folder; with `name`, only those of one file."""
    for left in folder.glob(".*.part"):
        found = PART.fullmatch(left.name)
        if found and left.name.startswith(f".{name[:SHORT]}") and _dead(left, found["host"], int(found["pid"])):
            left.unlink(missing_ok=True)


def _dead(file: Path, host: str, pid: int) -> bool:
    if host != _host():
        with suppress(FileNotFoundError):
            return time.time() - file.stat().st_mtime > STALE
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):  # somebody else's process
        return False
    return False


def _host() -> str:
    import hashlib
    import socket

    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Context: no other process may claim this folder, which is made if need be, and removed again if it stays empty.

    The claim ends with the process, however it ends. On a disk without locks, such as some network disks, nothing is claimed.

    Raises:
        RunError: when another process has claimed it.
    """
    from filelock import FileLock, Timeout

    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(f"{folder}: another process is writing there; wait until it ends, or choose another `out`") from None
    except OSError as error:
        if error.errno not in WITHOUT_LOCKS:
            raise
    try:
        for place in (folder, *(one for one in folder.iterdir() if one.is_dir())):
            sweep(place)
        yield
    finally:
        (folder / LOCK).unlink(missing_ok=True)
        lock.release()
        for one in made:
            with suppress(OSError):  # not empty, or gone
                one.rmdir()


WITHOUT_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def content(folder: Path) -> list[str]:
    """The names of what a folder holds, without what belongs to a claim."""
    return sorted(one.name for one in folder.iterdir() if one.name != LOCK and not PART.fullmatch(one.name))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def refuse_replacing(path: Path, what: str, ours: Callable[[Path], bool]) -> None:
    """Raise ConfigError if `path` is taken by something other than an earlier `what`, which `ours` recognises."""
    if (path.exists() or path.is_symlink()) and not (path.is_file() and ours(path)):
        raise ConfigError(f"{path}: exists and is not {what}, so it is not replaced; choose another `out`")


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON completely or not at all."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def write_yaml(path: Path, value: Any) -> None:
    """Write YAML completely or not at all, in the order given."""
    write_text(path, yaml_text(value))


def yaml_text(value: Any) -> str:
    """Plain values as YAML, in the order given."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


# ---- tables ----------------------------------------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV. Text that a spreadsheet would run as a formula gets a ' in front, which `plain_cell` takes away."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_guarded(cell) for cell in row] for row in rows)
    return text.getvalue()


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV that `csv_text` made, by column."""
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = [[plain_cell(cell) for cell in cells] for cells in csv.reader(file)] or [[]]
    return [dict(zip(header, cells, strict=False)) for cells in rows if cells]


def _guarded(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and not _is_number(cell) else cell


def plain_cell(cell: str) -> str:
    """A cell as it was before `csv_text`.

    >>> plain_cell("'=1+1"), plain_cell("-0.5"), plain_cell("'tis")
    ('=1+1', '-0.5', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# ---- the cache -------------------------------------------------------------------------------------------------------


def noted(note: Path, kind: Any, make: Callable[[], T], *, keep: bool = True) -> T:
    """What a note in the cache says. If there is none, or it is damaged, it is made, and written unless `keep` is false.

    A cache that cannot be written, on a full or read-only disk, costs time the next time and nothing else.
    """
    with suppress(OSError, UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return cast(T, msgspec.json.decode(note.read_bytes(), type=kind))
    made = make()
    if keep:
        with suppress(OSError):
            write_json(note, msgspec.to_builtins(made), indent=None)
    return made


def cache_dir() -> Path:
    """The directory for features, image checks and the drawn birds: $LHT_CACHE, or torchlht in the user's cache directory."""
    if chosen := os.environ.get("LHT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torchlht"
