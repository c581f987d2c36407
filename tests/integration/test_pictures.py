"""Pictures end to end: folders and tables, fine-tuning and frozen features, predicting with the command line."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import torchlht
import torchlht.learn.training
from torchlht import TrainArgs, train
from torchlht.cli import main
from torchlht.lab.birds import SPECIES
from torchlht.lab.demo import draw_bird, write_demo


def quick(data: Path | str, out: Path, **options: object) -> TrainArgs:
    settings = {"epochs": 2, "batch_size": 16, "quiet": True, "track": False, "accelerator": "cpu", "workers": 0, **options}
    return TrainArgs(str(data), out, **settings)


def test_fine_tuning_learns_colours_from_a_folder_and_predicts_files(pictures: Path, tmp_path: Path, capsys) -> None:
    run = train(quick(pictures, tmp_path / "run", backbone="small", image_size=16, epochs=12, levels="order,family,species"))
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["levels"][0]["accuracy"] > 0.7
    file = pictures / "Gulls" / "Terns" / "Arctic Tern" / "Arctic Tern 3.png"
    main(["predict", str(run), str(file), "--format", "json", "--top", "2"])
    answer = json.loads(capsys.readouterr().out)[0]
    assert answer["file"] == str(file)
    assert [level["level"] for level in answer["levels"]] == ["order", "family", "species"]
    assert answer["levels"][0]["label"] == "Gulls"
    assert len(answer["levels"][2]["candidates"]) == 2

    main(["predict", str(run), str(pictures), "--format", "csv"])
    lines = capsys.readouterr().out.splitlines()
    as_far = ",order_as_far,family_as_far,species_as_far,unlike"
    assert lines[0] == "file,order,order_probability,family,family_probability,species,species_probability,consistent" + as_far
    assert len(lines) == 1 + 48
    main(["predict", str(run), f"{pictures}/**/*Tern*.png"])
    assert "Arctic Tern 3.png" in capsys.readouterr().out.replace("\n", "")
    main(["evaluate", str(run), str(pictures), "--split", "all", "--json"])
    assert json.loads(capsys.readouterr().out)["levels"][2]["samples"] == 42  # the rest are known to the family only


def test_a_picture_in_memory_is_answered_like_its_file(pictures: Path, tmp_path: Path) -> None:
    from PIL import Image

    model = torchlht.load(train(quick(pictures, tmp_path / "run", backbone="small", image_size=16)))
    file = next(pictures.rglob("*.png"))
    assert model.predict(Image.open(file))[0].levels == model.predict(file)[0].levels


@pytest.mark.filterwarnings("default")  # of those inside torch.compile, some are errors only if told so
def test_a_compiled_backbone_learns_the_same(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and run as graphs, without the minute that it takes to make code from them."""
    traced = functools.partialmethod(torch.nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    monkeypatch.setattr(torchlht.learn.training, "check_compiler", lambda device: None)
    runs = [train(quick(pictures, tmp_path / str(how), backbone="small", image_size=16, compile=how)) for how in (False, True)]
    losses = [np.loadtxt(run / "history.csv", delimiter=",", skiprows=1)[:, 2] for run in runs]
    np.testing.assert_allclose(*losses, rtol=1e-3)
    assert [*load_file(runs[0] / "model.safetensors")] == [*load_file(runs[1] / "model.safetensors")]


def test_frozen_features_are_computed_once(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"backbone": "efficientnet_lite0", "freeze": True, "image_size": 64, "mask": 0.5, "epochs": 5}
    first = train(quick(pictures, tmp_path / "first", **options))
    monkeypatch.setattr(
        "torchlht.measure.evaluation.features_of", lambda *_, **__: pytest.fail("the features were computed again")
    )
    second = train(quick(pictures, tmp_path / "second", method="multihead", **options))
    monkeypatch.undo()
    for run in (first, second):
        assert json.loads((run / "metrics.json").read_text())["levels"][0]["accuracy"] > 0.7
    # what the run directory predicts from pictures is what was measured on cached features
    kept = json.loads((first / "metrics.json").read_text())["levels"]
    for found, level in zip(torchlht.evaluate(first)["levels"], kept, strict=True):
        for name, value in level.items():
            assert found[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value)


def test_frozen_features_are_computed_again_when_a_picture_changes(pictures: Path, tmp_path: Path) -> None:
    from PIL import Image

    from torchlht.answer.backbones import create_backbone
    from torchlht.measure.evaluation import cache_path

    backbone = create_backbone("small")
    spec = backbone.preprocess.resized(16)
    before = cache_path(torchlht.read_data(pictures), backbone, spec)
    Image.new("RGB", (40, 40)).save(next(pictures.rglob("*.png")))
    assert cache_path(torchlht.read_data(pictures), backbone, spec) != before
    assert cache_path(torchlht.read_data(pictures), create_backbone("small"), spec) != before  # other weights


def test_an_unreadable_picture_stops_training_before_it_starts_or_is_skipped(pictures: Path, tmp_path: Path) -> None:
    broken = next(pictures.rglob("*.png"))
    broken.write_bytes(broken.read_bytes()[:60])
    args = quick(pictures, tmp_path / "run", backbone="small", image_size=16)
    with pytest.raises(torchlht.DataError, match=r"1 of 48 pictures cannot be read.*on_error=skip"):
        train(args)
    assert not (tmp_path / "run").exists()
    run = train(quick(pictures, tmp_path / "run", backbone="small", image_size=16, on_error="skip"))
    assert broken.name in (run / "problems.csv").read_text()


def test_the_drawn_birds_are_the_same_for_a_seed_and_differ_between_seeds(tmp_path: Path) -> None:
    assert len(SPECIES) >= 40
    assert len({order for order, _, _ in SPECIES}) >= 3
    assert len({family for _, family, _ in SPECIES}) >= 10
    a, b, c = (np.asarray(draw_bird(7, np.random.default_rng(seed))) for seed in (3, 3, 4))
    assert (a == b).all()
    assert (a != c).any()
    table = write_demo(tmp_path / "birds", train=1, test=1)
    samples = torchlht.read_data(table)
    assert len(samples) == 2 * len(SPECIES)
    assert samples.hierarchy.levels == ("species", "family", "order")
    again = write_demo(tmp_path / "again", train=2, test=1)
    first = (tmp_path / "birds" / samples.keys[0]).read_bytes()
    assert (again.parent / samples.keys[0]).read_bytes() == first, "a picture depends on how many others there are"
