"""Plugins: what installed packages add through entry points, as the lab does with its datasets.

[project.entry-points."torchlht.datasets"]
mine = "my_package:DATASETS"
"""

from __future__ import annotations

import functools
from typing import Any

from torchlht.errors import LHTError


@functools.cache
def plugins(group: str) -> dict[str, Any]:
    """The plugins of a group by name, sorted; imported on first use.

    Raises:
        LHTError: when one cannot be imported; it names the entry and its package.
    """
    from importlib.metadata import entry_points  # the command line starts faster without it

    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            found[entry.name] = entry.load()
        except Exception as error:
            package = f"of {entry.dist.name}" if entry.dist else ""
            raise LHTError(
                f"{group}: {entry.name} {package} ({entry.value}) cannot be imported ({type(error).__name__}: {error}); "
                "repair, update or uninstall that package"
            ) from error
    return found
