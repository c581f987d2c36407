"""The method of docs/add-a-method.md is one file and its test: put where it says, it passes what `make check` runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WALKING = ["test_methods.py", "test_steps.py", "test_exported.py", "test_commands.py", "test_calibration_levels.py"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source and the unit tests with the two files of the page added."""
    there = tmp_path_factory.mktemp("checkout")
    for folder in ("src", "tests/unit"):
        shutil.copytree(ROOT / folder, there / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/trees.py", "tests/conftest.py"):
        shutil.copy(ROOT / file, there / file)
    text = (ROOT / "docs/add-a-method.md").read_text(encoding="utf-8")
    method, tests = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    places = re.findall(r"`((?:src|tests)/\S*conditional\.py)`", text)
    assert places == ["src/torchlht/heads/methods/conditional.py", "tests/unit/methods/test_conditional.py"]
    for place, code in zip(places, (method, tests), strict=True):
        (there / place).write_text(code, encoding="utf-8")
    return there


def run(checkout: Path, *words: str) -> str:
    """What a tool says there; it must succeed."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "MYPYPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-m", *words], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_written_as_the_rest_is(checkout: Path) -> None:
    both = ["src/torchlht/heads/methods/conditional.py", "tests/unit/methods/test_conditional.py"]
    run(checkout, "ruff", "check", "--no-cache", *both)
    run(checkout, "ruff", "format", "--check", "--no-cache", *both)
    assert "no issues found" in run(checkout, "mypy", "--strict", f"--cache-dir={ROOT / '.mypy_cache'}", both[0])


def test_its_tests_pass_and_those_of_every_method_do_with_it(checkout: Path) -> None:
    words = ["-q", "-n", "0", "-p", "no:cacheprovider", "-k", "conditional"]
    said = run(checkout, "pytest", *words, "tests/unit/methods/test_conditional.py", *(f"tests/unit/{one}" for one in WALKING))
    passed = re.search(r"(\d+) passed", said)
    assert passed
    assert int(passed[1]) > 20, said
