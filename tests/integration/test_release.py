"""What is released: a wheel that runs without the repository, and tutorials that run from top to bottom."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tomllib
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


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a new environment with the wheel in it, as pip installs it; dependencies are those of this one."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, capture_output=True)
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([home / "bin" / "python", *words], check=True, capture_output=True)
    [libraries] = home.glob("lib/python*/site-packages")
    (libraries / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # its own .pth files are not read
    return home / "bin"


def test_the_wheel_works_as_pip_installs_it(installed: Path, embeddings: Path, tmp_path: Path) -> None:
    def run(*words: str | Path, code: int = 0) -> str:
        done = subprocess.run([*words], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    home = run(installed / "python", "-c", "import torchlht; print(torchlht.__file__)").strip()
    assert Path(home).is_relative_to(installed.parent)
    assert run(installed / "lht", "--version").strip() == f"torchlht {version()}"
    assert "(known: demo, cub," in run(installed / "lht", "train", "nosuch", code=2), "its entry points are there"
    run(installed / "lht", "train", embeddings, "--epochs", "1", "--no-track", "--quiet", "--out", "run")
    answers = run(installed / "lht", "predict", "run", embeddings, "--limit", "1", "--format", "csv")
    assert len(answers.splitlines()) > 1


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_there_is_one_version_and_it_has_its_changes() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", version()), "a semantic version"
    assert importlib.metadata.version("torchlht") == version()
    assert f"\nversion: {version()}\n" in (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## \[?{re.escape(version())}\]?", changes, re.MULTILINE)
    headings = set(re.findall(r"^### (.*)$", changes, re.MULTILINE))
    assert headings <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_wheel_says_what_it_needs_and_whose_work_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        about = file.read(f"torchlht-{version()}.dist-info/METADATA").decode()
        assert {f"torchlht-{version()}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= set(file.namelist())
    assert "Requires-Python: >=3.11" in about
    for extra in ("arrow", "mlflow", "wandb", "track", "serve", "export", "sklearn"):
        assert f"Provides-Extra: {extra}" in about


def test_the_constraints_name_the_newest_version_of_every_direct_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = project["dependencies"], *project["optional-dependencies"].values()
    named = {re.split(r"[>=\[<;]", one)[0].lower().replace("_", "-") for group in groups for one in group} - {"torchlht"}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    assert named <= pinned


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
