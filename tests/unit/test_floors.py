"""The house: imports point down, floor by floor, and packages import nothing by themselves."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import torchlht

ROOT = Path(torchlht.__file__).parent
GROUND = {"doors", "errors", "files", "processes", "vocabulary", "console", "plugins"}
FLOORS = [
    "hierarchy",
    "data",
    "heads",
    "answer",
    "measure",
    "learn",
    "show",
    "serve",
    "client",
    "lab",
    "sklearn",
    "commands",
    "cli",
    "__main__",
]
FILES = [path for path in sorted(ROOT.rglob("*.py")) if path != ROOT / "__init__.py"]


def floor(name: str) -> int:
    """The height of the floor that a module of the package is on."""
    return 0 if name in GROUND else 1 + FLOORS.index(name)


def imported(path: Path) -> set[str]:
    """The first names after `torchlht.` of all that a file imports, inside functions as well."""
    found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
    modules = [f"{node.module}.{alias.name}" for node in found for alias in node.names if node.module]
    return {module.split(".")[1] for module in modules if module.startswith("torchlht.")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_knows_the_floor_above(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert {name for name in imported(path) if floor(name) > floor(own)} == set()


def test_packages_import_nothing_but_the_tree() -> None:
    packages = [path for path in FILES if path.name == "__init__.py" and imported(path)]
    assert packages == [ROOT / "hierarchy" / "__init__.py"]
