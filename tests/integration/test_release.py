"""What is released: a wheel that runs without the repository, and tutorials that run from top to bottom."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    [found] = out.glob("*.whl")
    return found


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "src/torchlht"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = {line.removeprefix("src/") for line in listed.splitlines() if (ROOT / line).exists()}
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert tracked <= inside
    assert all(name.startswith("torchlht/") for name in inside)
    assert "torchlht/py.typed" in inside


def test_the_wheel_trains_and_answers_outside_the_repository(wheel: Path, embeddings: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place)
    code = f"""
import sys
sys.path.insert(0, {str(place)!r})
import torchlht
assert torchlht.__file__.startswith({str(place)!r}), torchlht.__file__
from torchlht.cli import main
main(["train", {str(embeddings)!r}, "--epochs", "1", "--quiet", "--out", "run"])
main(["predict", "run", {str(embeddings)!r}, "--limit", "1"])
main(["report", "run"])
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "run" / "report.html").is_file() or list((tmp_path / "run").rglob("*.html"))


@pytest.mark.parametrize("name", ["birds", "catalogue", "embeddings"])
def test_a_tutorial_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nbformat, nbclient = importlib.import_module("nbformat"), importlib.import_module("nbclient")
        notebook = nbformat.read(ROOT / "docs" / "tutorials" / f"{name}.ipynb", as_version=4)
        assert all(cell.outputs or "import" in cell.source for cell in notebook.cells if cell.cell_type == "code"), (
            "kept with outputs"
        )
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
