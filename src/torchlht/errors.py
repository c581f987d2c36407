"""Every mistake a user can make, as one tree of exceptions. The command line turns each into exit code 2.

    LHTError
    ├── HierarchyError      the tree of classes is faulty; carries every fault found, not only the first
    ├── DataError           a file, picture, row or array cannot be used
    ├── ConfigError         an option, or a combination of options, is invalid
    ├── RunError            a run directory is missing, incomplete or in the way
    ├── BackboneError       a backbone is unknown or its weights cannot be downloaded
    └── MissingExtraError   an optional package is not installed

Each message tells what is wrong, where, and what to do. It names an option by its field, in backquotes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

OPTION = re.compile(r"`(\w+(?:=[^`]*)?)`")


def as_flag(option: str) -> str:
    """An option as a flag: `mask_levels`, `select=best` or `pretrained=False` with two dashes."""
    name, equals, value = option.partition("=")
    name = name.replace("_", "-")
    return f"--no-{name}" if value == "False" else f"--{name}{equals and ' '}{value}"


class LHTError(Exception):
    """Base of every error that the user can fix.

    >>> error = LHTError("`mask_levels` is 0: hide at least 1 level")
    >>> str(error), error.in_flags
    ('mask_levels is 0: hide at least 1 level', '--mask-levels is 0: hide at least 1 level')

    Attributes:
        message: the message as it was given, with options in backquotes.
        in_flags: the message for the command line.
    """

    def __init__(self, message: str) -> None:
        super().__init__(OPTION.sub(lambda option: option[1], message))
        self.message = message
        self.in_flags = OPTION.sub(lambda option: as_flag(option[1]), message)


class Fault(NamedTuple):
    """One thing wrong with a file: `where` it is ("line 84") and `what` it is."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class HierarchyError(LHTError):
    """Raised when a tree of classes has faults; `faults` lists all of them."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = list(faults)
        super().__init__(summarise(source, self.faults))


class DataError(LHTError):
    """Raised when a dataset cannot be read as it is: a missing file, a broken picture, a wrong shape."""


class ConfigError(LHTError):
    """Raised when an option is invalid, such as a mask of 1.5 or an unknown method."""


class DivergedError(LHTError):
    """Raised when a loss becomes NaN or infinite."""


class RunError(LHTError):
    """Raised when a run directory is missing, incomplete, or already holds another run."""


class BackboneError(LHTError):
    """Raised when a backbone's name is unknown or its weights cannot be downloaded."""


class MissingExtraError(LHTError):
    """Raised when an optional package is needed and not installed.

    >>> raise MissingExtraError("efficientnet_lite0", extra="offline")
    """

    def __init__(self, what: str, *, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: {installing(extra)}")


def installing(extra: str) -> str:
    """The command that installs an extra, in a clone or elsewhere: pip leaves the torchlht that is there as it is."""
    return f"pip install 'torchlht[{extra}]'"


def summarise(source: str, faults: Sequence[Fault], limit: int = 3) -> str:
    """One sentence for many faults: the first few, and how to see the rest."""
    first = "; ".join(str(fault) for fault in faults[:limit])
    if len(faults) <= limit:
        return f"{source}: {first}"
    return f"{source}: {len(faults)} problems, the first {limit}: {first} (all of them: lht hierarchy check {source})"


def first_line(error: BaseException) -> str:
    """The start of a message of another library, which may be pages long. What it has in backquotes is no option of ours."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160].replace("`", "'")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an "unknown name" message: the nearest known name, or all of them.

    >>> suggestion("multihed", ["flat", "multihead"])
    'did you mean multihead? (known: flat, multihead)'
    """
    names = list(known)
    listed = ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
    near = nearest(word, names)
    return f"{near} (known: {listed})" if near else f"known: {listed}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The question after a misspelt name, such as "did you mean multihead?"; empty when no name is near."""
    near = difflib.get_close_matches(word[:100], list(known)[:10_000], n=1)  # more would take minutes
    return f"did you mean {near[0]}?" if near else ""
