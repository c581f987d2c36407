"""Hierarchical classification that learns from partly labelled data.

>>> import torchlht
>>> tree = torchlht.Hierarchy.read("tree.csv")
>>> head = torchlht.LHTHead(in_features=2048, hierarchy=tree)     # on any network's features
>>> torchlht.load("runs/birds").predict("beach.jpg")              # or use a run of `lht train`

Names are imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {alias.name: str(node.module) for node in _STUB.body if isinstance(node, ast.ImportFrom) for alias in node.names}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("torchlht")
    if name not in _HOMES:
        raise AttributeError(f"module 'torchlht' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
