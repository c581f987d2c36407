"""What installed packages add to this one, by entry points: the lab its datasets, and others in the same way theirs.

[project.entry-points."torchlht.datasets"]
mine = "my_package:DATASETS"
"""

from __future__ import annotations

import functools
from importlib.metadata import entry_points
from typing import Any

from torchlht.errors import LHTError


@functools.cache
def plugins(group: str) -> dict[str, Any]:
    """What is offered under a group, by the names of the entries, sorted; imported when it is first asked for.

    Raises:
        LHTError: when one cannot be imported, with its name and the package it is from.
    """
    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            package = f"of {entry.dist.name}" if entry.dist else ""
            raise LHTError(
                f"{group}: {entry.name} {package} ({entry.value}) cannot be imported ({type(error).__name__}: {error}); "
                "mend, update or uninstall that package"
            ) from error
    return found
