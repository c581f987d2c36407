"""boards.json of a run directory: under which names boards know the run, so that a resumed run goes on there."""

from __future__ import annotations

from pathlib import Path

from torchlht.doors import read_json
from torchlht.errors import RunError
from torchlht.files import write_json

FILE = "boards.json"


def kept_name(folder: Path, board: str) -> str | None:
    """The name that a board gave the run before it was interrupted; None for a new one."""
    return _all(folder).get(board)


def keep_name(folder: Path, board: str, name: str) -> None:
    """Write the name that a board gives the run."""
    write_json(folder / FILE, _all(folder) | {board: name})


def _all(folder: Path) -> dict[str, str]:
    return read_json(folder / FILE, dict[str, str], RunError) if (folder / FILE).is_file() else {}
