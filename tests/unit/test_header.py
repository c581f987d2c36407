"""What a run tells before it starts, and progress that fits a narrow terminal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import torchlht
from torchlht import console
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.console import EpochView, shortened
from torchlht.data.samples import Samples, with_split
from torchlht.errors import RunError
from torchlht.heads.method import create_method
from torchlht.learn.header import frozen_text, header
from torchlht.learn.options import TrainArgs


def test_the_header_counts_samples_levels_and_labels(embeddings: Path) -> None:
    samples, _ = torchlht.Mask(0.5).apply(torchlht.read_data(embeddings))
    samples = with_split(samples, np.arange(4), "val")
    model = Model(create_backbone("none"), create_method("flat", 12, samples.hierarchy), options={})
    recipe = TrainArgs("x", epochs=3, batch_size=50).recipe(features=True, samples=117)
    said = header(samples, 2, model, recipe, torch.device("cpu"), Path("runs/a"))
    train = len(samples.index("train"))
    fine = int((samples.labels[samples.index("train"), 0] >= 0).sum())
    assert said.splitlines() == [
        f"data    birds: 180 samples · train {train} · val 4 · test {176 - train} · 2 unreadable left out",
        "levels  order 2 › family 4 › species 6",
        f"labels  of {train} training samples: order {train} · family {train} · species {fine}",
        "model   flat on features of width 12 · 3 epochs of 3 steps",
        "device  cpu · writes runs/a",
    ]
    assert 0 < fine < train


def test_the_header_names_the_backbone_and_how_it_starts() -> None:
    tree = torchlht.Hierarchy.from_parents([[0, 1, 1]], levels=["species", "family"])
    samples = Samples("birds", tree, ("a", "b"), np.array([[0, 0], [-1, 1]]), np.array(["train", "train"]), images=())
    model = Model(create_backbone("small"), create_method("logistic", 192, tree), options={})
    recipe = TrainArgs("x").recipe(features=False, samples=2)
    said = header(samples, 0, model, recipe, torch.device("cpu"), Path("r"), frozen=frozen_text(True, 0))
    assert "birds: 2 pictures · train 2\n" in said
    assert "logistic on small, from scratch, frozen, 56 px · fitted at once\n" in said


@pytest.mark.parametrize("levels", [1, 3, 9])
def test_progress_fits_eighty_columns(levels: int, monkeypatch) -> None:
    narrow = Console(width=80, force_terminal=True, record=True)
    monkeypatch.setattr(console, "notes", narrow)
    view = EpochView(100, 10, start=0, quiet=False)
    text = "loss 1.234  train: " + "  ".join(f"a_long_level_{k} 99.9" for k in range(levels)) + "  1,234/s"
    view.epoch(100, text)
    narrow.print(view.bar.get_renderable())
    lines = narrow.export_text().rstrip("\n").splitlines()
    assert len(lines) == 1
    assert len(lines[0]) <= 80
    assert "loss 1.234" in lines[0]


def test_a_text_is_cut_with_an_ellipsis() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abc def", 5) == "abc…"


def test_a_promised_risk_tells_how_many_validation_samples_it_has(capsys) -> None:
    from types import SimpleNamespace

    from torchlht.answer.named import Candidate, LevelAnswer, Named, Wanted
    from torchlht.commands.predict import print_table

    calibration = SimpleNamespace(risks={"path": SimpleNamespace(samples=133)})
    named = Named("a.jpg", (LevelAnswer("family", (Candidate("Gulls", 0.9),)),), True, calibration=calibration)
    print_table([named], Wanted(0.72, "risk 0.3"))
    assert "reaches 0.72 (risk 0.3, from 133 validation samples)" in capsys.readouterr().out
    print_table([named], Wanted(0.8, "confidence 0.8"))
    assert "reaches 0.8 (confidence 0.8)" in capsys.readouterr().out


def test_a_run_without_validation_samples_says_what_to_calibrate_on(tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text('{"train": [0], "val": [], "test": [], "kept": []}')
    with pytest.raises(RunError, match=r"--folds 5, which trains five times more, .* DATA .* train with val=0\.2"):
        torchlht.calibrate(tmp_path)
