"""README, CONTRIBUTING and the pages are true: their commands and examples run, in the order in which they stand there."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import torchlht
import torchlht.data
from torchlht.cli import all_commands, main
from torchlht.lab.demo import write_demo

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages speak of: birds as a folder and as a table, tree.csv, beach.jpg, and few drawn birds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchlht.lab.demo.write_demo", functools.partial(write_demo, train=3, test=1))
    rng = np.random.default_rng(0)
    lines = ["path,order,family,species"]
    for i, (order, family, species) in enumerate([("A", "F", "s"), ("A", "F", "t"), ("A", "G", "u"), ("B", "H", "v")] * 8):
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{order},{family},{species if i % 3 else ''}")
        folder = tmp_path / "birds" / order / family / species
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / f"{i}.png", folder)
    (tmp_path / "birds.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "tree.csv").write_text("family,species\nF,s\nF,t\nH,v\n")
    Image.new("RGB", (50, 40)).save(tmp_path / "beach.jpg")
    return tmp_path


def shortened(command: str) -> list[str]:
    """The same command with one epoch and seed, small pictures and no download: tests have neither time nor a network."""
    words = shlex.split(command.replace("--seeds 3", "--seeds 1"))[1:]
    if words[0] in ("train", "compare"):
        words += ["--epochs", "1"] + ([] if "demo" in words else ["--image-size", "32"])
    if words[0] == "compare":
        words += ["--jobs", "1"]  # a process of its own takes longer to start than all of these runs
    if "resnet18" in words:
        words.append("--no-pretrained")
    return words


PAGES = [
    "README",
    "docs/your-data",
    "docs/partial-labels",
    "docs/sure",
    "docs/export",
    "docs/prove-it",
    "docs/trees",
    "docs/python",
]
EXPECTED = {"own", "own.onnx", "python", "frozen", "tuned", "semi", "sure", "sure.onnx", "compare", "tuned-compare"}


def test_the_commands_of_the_pages_run_in_order_and_their_python_after_them(workplace: Path, capsys) -> None:
    commands = [line for page in PAGES for block in blocks(f"{page}.md", "bash") for line in block.strip().splitlines()]
    assert len(commands) >= 18
    for command in commands:
        main(shortened(command))
    scope: dict[str, Any] = {}
    capsys.readouterr()
    for code in (code for page in PAGES for code in blocks(f"{page}.md", "python")):
        exec(code, scope)
    assert {path.name for path in (workplace / "runs").iterdir()} >= EXPECTED
    said = capsys.readouterr().out
    assert said.startswith("{'order': ")
    assert re.search(r"'family': '([FGH])', 'species': '.'} \1 0\.\d+", said)


def test_the_five_line_example_takes_a_training_step(workplace: Path) -> None:
    scope: dict[str, Any] = {}
    exec(blocks("docs/python.md", "python")[0], scope)
    assert torch.isfinite(scope["loss"])
    parameters = [*scope["backbone"].parameters(), *scope["head"].parameters()]
    before = [p.detach().clone() for p in parameters]
    torch.optim.SGD(parameters, lr=0.1).step()
    moved = sum(not torch.equal(a, b) for a, b in zip(before, parameters, strict=True))
    assert moved > 0.9 * len(parameters)


def test_the_readme_fits_on_a_screen_and_a_half() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_readme_counts_the_methods_to_compare_with() -> None:
    others = [name for name in torchlht.list_methods() if not name.startswith("lht")]
    assert len(others) == 15
    assert "and fifteen methods to compare it with" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_command_is_on_a_page() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
    assert [name for name in all_commands() if f"lht {name}" not in text] == []


def test_tables_of_the_readme_are_those_of_the_result_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    figures = importlib.import_module("figures")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"<!-- results: (\S+) (\S+) -->\n((?:\|.*\n)+)", text)
    assert found
    for file, mask, rows in found:
        methods = re.findall(r"^\| `(.*?)`", rows, re.MULTILINE)
        assert figures.table(file, methods, float(mask)) == rows.splitlines()


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda p: p.name
)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(
        r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
    inside = [link for link in links if "://" not in link and not link.startswith("gallery/")]
    assert [link for link in inside if not (page.parent / link).exists()] == []


def test_the_method_of_the_page_about_it_and_its_tests_work(embeddings: Path, tmp_path: Path, capsys) -> None:
    """The example is real: its own tests pass, and the command line trains it."""
    from torchlht.heads import method as base

    method, tests = blocks("docs/add-a-method.md", "python")
    assert 35 <= len(method.splitlines()) <= 50
    try:
        exec(method, {"__name__": "example"})
        scope: dict[str, Any] = {}
        exec(tests, scope)
        checks = [check for name, check in scope.items() if name.startswith("test_")]
        assert len(checks) == 2
        for check in checks:
            check()
        main(["train", str(embeddings), "--method", "conditional", "--epochs", "5", "--out", str(tmp_path / "run"), "--quiet"])
        main(["methods", "conditional"])
        assert "--tune tries 300, 600" in capsys.readouterr().out
        assert torchlht.evaluate(tmp_path / "run")["levels"][-1]["accuracy"] > 0.8
    finally:
        base._REGISTRY.pop("conditional", None)


def test_the_public_names_are_what_is_visible() -> None:
    assert torchlht.__all__ == sorted(torchlht.__all__, key=str)
    assert dir(torchlht) == torchlht.__all__
    assert torchlht.__version__ == importlib.metadata.version("torchlht")
    for name in set(torchlht.__all__) - {"__version__"}:
        assert getattr(torchlht, name).__name__ in (name, "from_pretrained")


def test_the_answers_in_the_readme_are_those_of_the_page_about_them() -> None:
    """Typed twice, and so held to each other."""
    readme, page = ((ROOT / name).read_text(encoding="utf-8").splitlines() for name in ("README.md", "docs/sure.md"))
    shown = [line for line in readme if line.startswith("    │")]
    assert len(shown) > 2
    assert [line for line in shown if line not in page] == []
