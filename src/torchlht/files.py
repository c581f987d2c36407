"""Writing files completely or not at all: write a temporary file, then rename it. And the cache directory."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import yaml

T = TypeVar("T")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`. It replaces `path` when the block succeeds, and is removed when it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        beside.chmod(0o666 & ~_umask())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any, indent: int | None = 1) -> None:
    """Write JSON completely or not at all."""
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False) + "\n")


def write_yaml(path: Path, value: Any) -> None:
    """Write YAML completely or not at all, in the order given."""
    write_text(path, yaml.safe_dump(value, sort_keys=False, allow_unicode=True))


def noted(note: Path, kind: Any, make: Callable[[], T], *, keep: bool = True) -> T:
    """What a note in the cache says. If there is none, or it is damaged, it is made, and written unless `keep` is false."""
    with contextlib.suppress(OSError, UnicodeDecodeError, RecursionError, msgspec.DecodeError):
        return cast(T, msgspec.json.decode(note.read_bytes(), type=kind))
    made = make()
    if keep:
        write_json(note, msgspec.to_builtins(made), indent=None)
    return made


def cache_dir() -> Path:
    """The directory for features, image checks and the drawn birds: $LHT_CACHE, or torchlht in the user's cache directory."""
    if chosen := os.environ.get("LHT_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "torchlht"
