"""The first hour: a messy folder is previewed, trained on, asked about, reported on and exported, in a narrow terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import torchlht
from torchlht.cli import main
from torchlht.lab.birds import FAMILIES
from torchlht.lab.demo import draw_bird

SPECIES = [(family.order, family.name, species.name) for family in FAMILIES for species in family.species]
SOME = (0, 1, 4, 5, 28, 29, 40, 41)


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn birds in folders of three depths, among what gathers in such folders."""
    root, rng = tmp_path_factory.mktemp("home") / "birds", np.random.default_rng(0)
    for i in SOME:
        for n in range(8):
            folder = root.joinpath(*SPECIES[i][: 3 if n < 5 else 2 if n < 7 else 1])
            folder.mkdir(parents=True, exist_ok=True)
            draw_bird(i, rng, size=32).save(folder / f"{i}-{n}.png")
    order = root / SPECIES[0][0]
    for stray in ("thumbs", "__MACOSX/x", ".ipynb_checkpoints", f"{order.name}/unknown", f"{order.name}/New folder"):
        (root / stray).mkdir(parents=True)
    for place in (root / "thumbs", order / "unknown", root):
        Image.new("RGB", (32, 32)).save(place / "black.png")
    (order / "broken.png").write_bytes((root / "black.png").read_bytes()[:40])
    (order / "empty.jpg").touch()
    (root / "__MACOSX" / "x" / "._1.png").write_bytes(b"\0\5\x16\7")
    (root / "notes.txt").write_text("to do")
    (root / ".DS_Store").write_bytes(b"\0")
    return root


@pytest.fixture
def said(messy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """Runs a command beside the folder, in eighty columns; returns what it prints."""
    monkeypatch.chdir(messy.parent)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("torchlht.console.out._width", 80)

    def run(command: str) -> str:
        code = None
        try:
            main(command.split())
        except SystemExit as stop:
            code = stop.code
        found = capsys.readouterr()
        assert "Traceback" not in found.err
        return f"{found.out}{found.err}" + (f"exit {code}" if code else "")

    return run


def test_from_a_messy_folder_to_an_exported_model(said: Callable[[str], str], messy: Path) -> None:
    text = said("data preview birds --levels order,family,species")
    assert "2 unreadable pictures; train with --on-error skip" in text
    assert "look: 1 class may be a missing label: 'unknown'\n" in text
    assert "look: 2 classes may come from a stray folder: 'thumbs', 'New folder'\n" in text
    assert "__MACOSX" not in text
    assert "next: lht train birds --levels order,family,species --on-error skip\n" in text
    assert (messy.parent / "preview-birds.png").is_file()

    train = "train birds --levels order,family,species --backbone small --epochs 2 --val 0.25 --out runs/own"
    assert re.search(r"--unknown unknown to train on them as unknown.*exit 2", said(train), re.DOTALL)
    assert re.search(r"2 of 69 pictures cannot be read.*--on-error skip\nexit 2", said(f"{train} --unknown unknown"), re.DOTALL)
    assert not (messy.parent / "runs").exists(), "what is refused leaves nothing"

    text = said(f"{train} --unknown unknown --on-error skip")
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("data "))
    assert re.fullmatch(r"data    birds: 67 pictures · train \d+ · val \d+ · test \d+ · 2 unreadable left out", lines[start])
    assert [line.split()[0] for line in lines[start : start + 5]] == ["data", "levels", "labels", "model", "device"]
    assert lines[start + 3] == "model   lht on small, from scratch, 56 px · 2 epochs of 1 step"
    assert max(len(line) for line in lines if not line.startswith(("look", "answers of", "mean over", "next"))) <= 80
    assert "next: lht predict runs/own FILE…" in text
    again = said(f"{train} --unknown unknown --on-error skip")
    assert "holds a finished run; choose another --out, or remove it\nexit 2" in again

    text = said("predict runs/own birds/Songbirds --on-error skip --confidence 0.5")
    assert re.findall(r"skipped birds/Songbirds/(\S+):", text) == ["broken.png", "empty.jpg"]
    assert "the answer is the deepest class whose probability reaches 0.5 (confidence 0.5)" in text
    assert "mean over levels" in said("evaluate runs/own"), "pictures that training skipped are skipped again"
    assert re.search(r"cannot be promised from \d+ validation samples", said("predict runs/own birds --risk 0.001"))

    text = said("report runs/own --images 0")
    assert re.search(r"runs/own/report/report\.html   [\d.]+ MB · \d+ figures · \d+ s", text)
    assert "Attributes" not in text
    text = said("export runs/own --to torch --confidence 0.5")
    assert "next: lht predict runs/own.pt2 PICTURE…" in text
    assert "order" in said("predict runs/own.pt2 birds/black.png")

    answers = torchlht.load("runs/own").predict("birds/Raptors")
    assert len(answers) == sum(1 for _ in (messy / "Raptors").rglob("*.png"))
    assert list(answers[0].names) == ["order", "family", "species"]
