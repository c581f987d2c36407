"""Low-shot end to end: features with every method, pictures with one, what is written, and going on with what was begun."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import torchlht
from torchlht.cli import main
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot.running import lowshot
from torchlht.lab.options import LowshotArgs
from torchlht.learn.options import TrainArgs

KINDS, FIRST = ["Gull", "Wren", "Tern", "Auk"], ["Black", "Common", "Ivory", "Least", "Royal"]
NAMES = [f"{one}_{kind}" for kind in KINDS for one in FIRST]
FILES = {"lowshot.yaml", "lowshot.csv", "table.md", "accuracy.png", "hierarchy.json", "data", "runs"}


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """20 species of 4 kinds, 14 samples each, on a single level; features are easy but for a direction that says nothing."""
    rng = np.random.default_rng(0)
    species = np.repeat(np.arange(20), 14)
    telling = rng.normal(size=(4, 10))[species // 5] + rng.normal(size=(20, 10))[species] + 0.4 * rng.normal(size=(280, 10))
    x = np.concatenate([telling, 3 * rng.normal(size=(280, 2))], axis=1).astype(np.float32)
    file = tmp_path / "birds.npz"
    np.savez(file, x=x, y=species[:, None], train=np.arange(280) % 7 < 5, levels=["class"], classes_class=np.array(NAMES))
    return file


def test_every_method_on_features_and_going_on(birds: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    words = ["lowshot", str(birds), "--out", str(out), "--target", "8", "--groups", "6,3", "--shots", "1,3", "--draws", "4"]
    words += ["--top", "2", "--seeds", "2", "--epochs", "15", "--batch-size", "16", "--ppa-steps", "100"]
    words += ["--lr", "0.05", "--backbone-lr", "0.05"]
    main(words)
    said = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == FILES
    runs = {f"{method}-s{seed}" for method in ("sgm", "kt", "lht") for seed in (0, 1)} | {
        f"ppa-s{seed}.safetensors" for seed in (0, 1)
    }
    assert {path.name for path in (out / "runs").iterdir()} == runs
    assert Hierarchy.read(out / "hierarchy.json").sizes == (20, 6, 3)
    rows = list(csv.DictReader((out / "lowshot.csv").read_text().splitlines()))
    assert len(rows) == 2 * 4 * (2 * 1 + 4 * 2)  # shots, draws, methods with a seed and with two
    means = {m: np.mean([float(r["top2"]) for r in rows if r["method"] == m]) for m in ("nn", "sgm", "ppa", "lsd", "kt", "lht")}
    assert min(means.values()) > 0.3, means  # a quarter by chance; lsd has no unlabelled samples of the new classes to go by
    assert min(means["sgm"], means["kt"], means["ppa"]) > means["nn"] + 0.05, means  # what says nothing is left out
    table = (out / "table.md").read_text()
    assert table.startswith("| method | 1 shot | 3 shots |")
    assert "12 classes learned from (120 training samples" in table
    assert "8 new ones (112 samples)" in table
    assert "points above nn" in said

    finished = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()}
    before = (out / "lowshot.csv").read_text()
    with pytest.raises(SystemExit):
        main(words)
    assert "add --resume" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--resume", "--epochs", "31"])
    assert "was started with other options" in capsys.readouterr().err
    main([*words, "--resume"])
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*") if path.is_file()} == finished
    assert (out / "lowshot.csv").read_text() == before


def test_a_method_with_options_and_its_own_name(birds: Path, tmp_path: Path) -> None:
    """Any method that is trained by steps takes part, under the data's own tree, too, which here has one level."""
    args = LowshotArgs(
        str(birds), tmp_path / "out", "8", "flat,lht:gamma=1", "1", 2, top=2, tree="data", epochs=1, batch_size=32
    )
    results = lowshot(args)
    assert set(results.methods) == {"flat", "lht:gamma=1"}
    assert torchlht.load(tmp_path / "out" / "runs" / "lht-gamma=1-s0").method.scalars() == {}
    config = (tmp_path / "out" / "runs" / "flat-s0" / "config.yaml").read_text()
    assert "backbone: linear" in config


@pytest.mark.parametrize("more", [(), ("--freeze",)])
def test_pictures(tmp_path: Path, capsys, more: tuple[str, ...]) -> None:
    """A folder per class: the backbone itself is trained, or a layer on its features."""
    rng = np.random.default_rng(0)
    for i, name in enumerate(NAMES[:9]):
        folder = tmp_path / "pictures" / name
        folder.mkdir(parents=True)
        for j in range(5):
            colour = np.array([25 * i, 255 - 25 * i, (90 * i) % 255])
            noisy = np.clip(colour + rng.normal(0, 20, (20, 24, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(noisy).save(folder / f"{j}.png")
    (tmp_path / "new.txt").write_text("\n".join(NAMES[2:5]))
    words = ["lowshot", str(tmp_path / "pictures"), "--target", str(tmp_path / "new.txt"), "--out", str(tmp_path / "out")]
    words += ["--methods", "nn,lht", "--backbone", "small", "--image-size", "16", "--groups", "4,2", "--shots", "1,2"]
    main([*words, "--draws", "3", "--top", "1", "--epochs", "2", "--batch-size", "8", *more])
    rows = list(csv.DictReader((tmp_path / "out" / "lowshot.csv").read_text().splitlines()))
    assert len(rows) == 2 * 3 * 2
    assert list(rows[0]) == ["method", "seed", "draw", "shots", "top1"]
    assert {path.name for path in (tmp_path / "out" / "data").iterdir()} == {"source.npz" if more else "source.csv"}
    backbone = torchlht.load(tmp_path / "out" / "runs" / "lht-s0").backbone
    assert backbone.name == ("linear" if more else "small")


def test_the_linear_backbone_trains_slowly_saves_loads_and_resumes(embeddings: Path, tmp_path: Path) -> None:
    options = {
        "backbone": "linear",
        "batch_size": 32,
        "option": {"width": 24},
        "quiet": True,
        "track": False,
        "accelerator": "cpu",
    }
    whole = torchlht.train(TrainArgs(str(embeddings), tmp_path / "whole", epochs=4, **options))
    weights = load_file(whole / "model.safetensors")
    moved = weights["backbone.network.weight"] - torch.eye(12)
    assert 0 < moved.abs().max() < 0.5
    metrics = json.loads((whole / "metrics.json").read_text())
    assert metrics["levels"][-1]["accuracy"] > 0.8
    assert torchlht.evaluate(whole)["levels"] == metrics["levels"]
    still = torchlht.train(TrainArgs(str(embeddings), tmp_path / "still", epochs=1, backbone_lr=0.0, **options))
    assert torch.equal(load_file(still / "model.safetensors")["backbone.network.weight"], torch.eye(12))


def test_a_killed_training_on_the_linear_backbone_ends_with_the_same_weights(
    embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchlht.learn import fitting

    options = {"backbone": "linear", "batch_size": 32, "option": {"width": 24}, "quiet": True, "track": False, "epochs": 4}
    whole = torchlht.train(TrainArgs(str(embeddings), tmp_path / "whole", **options))
    real, calls = fitting.keep_epoch, []

    def killed(*args: object) -> None:
        real(*args)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fitting, "keep_epoch", killed)
        with pytest.raises(KeyboardInterrupt):
            torchlht.train(TrainArgs(str(embeddings), tmp_path / "killed", **options))
    again = torchlht.train(TrainArgs(resume=tmp_path / "killed", quiet=True))
    one, two = (load_file(run / "model.safetensors") for run in (whole, again))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_pictures_have_no_linear_backbone(pictures: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", str(pictures), "--backbone", "linear", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "--backbone linear is for features" in capsys.readouterr().err
