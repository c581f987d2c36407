"""Local and remote files: a place is a path, or an address such as s3://bucket/birds/shards-000000.tar, opened by fsspec.

Paths of pictures are `Path`s everywhere, and a `Path` folds s3://bucket into s3:/bucket; `as_url` gives the address back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from torchlht.errors import DataError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(?=[^/])")  # at least two letters: C:/ is a drive
T = TypeVar("T")


def as_url(place: str | Path) -> str | None:
    """The address of a remote place, restored if a `Path` has folded it; None for a local file, also one named by file://."""
    found = _SCHEME.match(text := str(place))
    if not found or found[1] == "file":
        return None
    return f"{found[1]}://{text[found.end() :]}"


def as_place(name: str | Path) -> Path:
    """A name as a path that others can be joined to; file:///data/birds is /data/birds."""
    return name if isinstance(name, Path) else Path(name.removeprefix("file://"))


def name_of(place: Path) -> str:
    """A place as text for messages."""
    return as_url(place) or str(place)


def state_of(place: Path) -> tuple[int, object] | None:
    """The length of a file and a value that changes with it; None if there is no file."""
    if url := as_url(place):
        if not (found := _ask(url, _info)):
            return None
        return int(found["size"]), str(found.get("ETag") or found.get("mtime") or found.get("created") or "")
    if not place.is_file():
        return None
    state = place.stat()
    return state.st_size, state.st_mtime_ns


def _info(system: Any, path: str) -> dict[str, Any] | None:
    """What a file system knows about a file, without downloading it as `exists` may; None if there is no file."""
    try:
        found: dict[str, Any] = system.info(path)
    except FileNotFoundError:
        return None
    return found


def is_there(place: Path) -> bool:
    """Whether the file exists."""
    return state_of(place) is not None


def read_range(place: Path, start: int, stop: int) -> bytes:
    """The bytes from `start` to before `stop`: one seek and one read, or one request."""
    if url := as_url(place):
        data: bytes = _ask(url, lambda system, path: system.cat_file(path, start=start, end=stop))
        return data
    with place.open("rb") as file:
        file.seek(start)
        return file.read(stop - start)


def read_all(place: Path) -> bytes:
    """The bytes of a whole file."""
    if url := as_url(place):
        data: bytes = _ask(url, lambda system, path: system.cat_file(path))
        return data
    return place.read_bytes()


@contextmanager
def opened(place: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading and seeking."""
    url = as_url(place)
    with _ask(url, lambda system, path: system.open(path, "rb")) if url else place.open("rb") as file:
        yield file


def matching(pattern: Path) -> list[Path]:
    """The files whose names match a pattern with * in its last part, sorted."""
    if url := as_url(pattern):
        folder = pattern.parent
        return sorted(folder / Path(found).name for found in _ask(url, lambda system, path: system.glob(path)))
    return sorted(pattern.parent.glob(pattern.name)) if pattern.parent.is_dir() else []


def _ask(url: str, question: Callable[[Any, str], T]) -> T:
    """Ask a remote file system about an address. Raises DataError with one sentence when it fails."""
    import fsspec  # not needed for local files

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"{url}: addresses of this kind cannot be opened ({error}); install what fsspec needs for it") from None
    try:
        return question(system, path)
    except FileNotFoundError:
        raise DataError(f"{url}: no such file") from None
    except OSError as error:
        raise DataError(f"{url}: cannot be read ({error}); check the address, your access and the network") from error
