"""New classes from a few examples each: names grouped into a tree, features trained under it, rules that tell classes apart.

The function is imported when it is first used: grouping names alone should not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlht.lowshot.running import lowshot as lowshot

__all__ = ["lowshot"]


def __getattr__(name: str) -> Any:
    if name != "lowshot":
        raise AttributeError(f"module 'torchlht.lowshot' has no attribute {name!r}")
    from torchlht.lowshot import running

    return running.lowshot
