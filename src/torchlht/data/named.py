"""Datasets known by name. Quick to import: a name that stands for nothing is refused at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchlht.errors import DataError
from torchlht.plugins import plugins

Known = Callable[[], tuple[Path, Path | None]]  # returns the place of the data and the file of its tree, if any


def known_names() -> dict[str, Known]:
    """Datasets known by name: the tables that installed packages offer under `torchlht.datasets`."""
    return {name: known for names in plugins("torchlht.datasets").values() for name, known in names.items()}


def is_known(source: str | Path) -> bool:
    """Whether a dataset is known by name; a file or folder of that name takes precedence."""
    return str(source) in known_names() and not Path(source).exists()


def absent(name: str | Path) -> DataError:
    """What to raise when a name stands for no data."""
    known = ", ".join(known_names())
    return DataError(f"{name}: no such file or folder, and not a dataset known by name (known: {known})")


def check_data(name: str) -> None:
    """Raise DataError if a name stands for no data. Patterns, addresses and the like are left to what reads them."""
    plain = not any(mark in name for mark in "*?[{:")
    if name and plain and not Path(name).exists() and name not in known_names() and not plugins("torchlht.sources"):
        raise absent(name)
