"""README and CONTRIBUTING are true: their commands and examples run, in the order in which they stand there."""

from __future__ import annotations

import functools
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchlht
import torchlht.data
from torchlht.cli import COMMANDS, main
from torchlht.data.demo import write_demo

ROOT = Path(__file__).parents[2]


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the README speaks of: birds.csv with its pictures, tree.csv, beach.jpg, and few drawn birds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torchlht.data, "write_demo", functools.partial(write_demo, train=3, test=1))
    rng = np.random.default_rng(0)
    lines = ["path,order,family,species"]
    for i, (order, family, species) in enumerate([("A", "F", "s"), ("A", "F", "t"), ("A", "G", "u"), ("B", "H", "v")] * 8):
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{order},{family},{species if i % 3 else ''}")
    (tmp_path / "birds.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "tree.csv").write_text("family,species\nF,s\nF,t\nH,v\n")
    Image.new("RGB", (50, 40)).save(tmp_path / "beach.jpg")
    return tmp_path


def shortened(command: str) -> list[str]:
    """The same command with one epoch, small pictures and no download, since tests have neither time nor a network."""
    words = shlex.split(command)[1:]
    if words[0] in ("train", "compare"):
        words += ["--epochs", "1"] + ([] if "demo" in words else ["--image-size", "32"])
    if "resnet18" in words:
        words.append("--no-pretrained")
    return words


def test_the_commands_of_the_readme_run_in_order_and_its_python_after_them(workplace: Path, capsys) -> None:
    commands = [line for block in blocks("README.md", "bash") for line in block.strip().splitlines()]
    assert len(commands) >= 8
    for command in commands:
        main(shortened(command))
    assert {path.name for path in (workplace / "runs").iterdir()} == {"birds", "frozen", "tuned", "compare"}
    capsys.readouterr()
    for code in blocks("README.md", "python"):
        exec(code, {"torchlht": torchlht})
    assert re.match(r"[FGH] 0\.\d+", capsys.readouterr().out)


def test_the_five_line_example_takes_a_training_step(workplace: Path) -> None:
    scope: dict[str, object] = {}
    exec(blocks("README.md", "python")[0], scope)
    assert torch.isfinite(scope["loss"])
    parameters = [*scope["backbone"].parameters(), *scope["head"].parameters()]
    before = [p.detach().clone() for p in parameters]
    torch.optim.SGD(parameters, lr=0.1).step()
    moved = sum(not torch.equal(a, b) for a, b in zip(before, parameters, strict=True))
    assert moved > 0.9 * len(parameters)


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"lht {name}" not in text] == []


def test_the_method_of_contributing_works(workplace: Path) -> None:
    from torchlht.methods import base

    exec(blocks("CONTRIBUTING.md", "python")[0], {"__name__": "example"})
    try:
        tree = torchlht.Hierarchy.from_parents([[0, 0, 1], [0, 0]])
        head = torchlht.create_method("marginal", 5, tree, width=8)
        prediction = head(torch.randn(4, 5))
        head.loss(prediction, torch.tensor([[0, 0, 0], [-1, 1, 0], [-1, -1, 0], [2, 1, 0]])).backward()
        assert torch.allclose(prediction.probs(2), torch.ones(4, 1), atol=1e-6)
        fixed = torchlht.create_method("lht", 5, tree, width=8, transition="fixed")
        fixed.load_state_dict({k.replace("head.", "classifier."): v for k, v in head.state_dict().items()})
        assert torch.allclose(fixed.eval()(torch.ones(1, 5)).log_probs[1], head.eval()(torch.ones(1, 5)).log_probs[1])
    finally:
        base._REGISTRY.pop("marginal")


def test_the_public_names_are_what_is_visible() -> None:
    assert torchlht.__all__ == sorted(torchlht.__all__, key=str)
    assert dir(torchlht) == torchlht.__all__
    for name in torchlht.__all__:
        assert getattr(torchlht, name).__name__ in (name, "from_pretrained")
