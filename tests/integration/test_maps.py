"""Methods that read the map of a backbone: trained, resumed, asked, reported and exported like others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from torchlht import TrainArgs, load, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.exported.read import read_exported
from torchlht.answer.exported.write import export
from torchlht.answer.records import read_metrics
from torchlht.answer.stages import stages_of
from torchlht.cli import main
from torchlht.errors import BackboneError, ConfigError
from torchlht.learn import fitting
from torchlht.measure.evaluation import evaluate


def options(data: Path, out: Path, **more: Any) -> TrainArgs:
    plain = {"backbone": "small", "image_size": 32, "epochs": 2, "batch_size": 16, "mask": 0.5, "option": ("width=12",)}
    quiet = {"quiet": True, "track": False, "accelerator": "cpu", "workers": 0, "levels": "order,family,species"}
    return TrainArgs(str(data), out, **{**plain, **quiet, **more})


@pytest.mark.parametrize("name", ["small", "efficientnet_lite0", "resnet18", "test_convnext"])
def test_the_features_of_a_backbone_are_the_means_of_its_map(name: str) -> None:
    torch.manual_seed(0)
    backbone, x = create_backbone(name, pretrained=False).eval(), torch.randn(2, 3, 64, 64)
    names = list(backbone.state_dict())
    with torch.no_grad():
        features, stages = backbone(x), len(stages_of(backbone.network))
        backbone.unpool()
        maps = backbone(x)
        with backbone.entering(stages - 1):
            entered = backbone(backbone.maps(x, stages - 1))
    assert maps.shape[:2] == features.shape
    assert maps.shape[2] > 1
    assert torch.equal(entered, maps)
    assert list(backbone.state_dict()) == names
    if name != "test_convnext":  # it normalises what is pooled
        torch.testing.assert_close(maps.mean(dim=(2, 3)), features)


def test_a_mirrored_map_is_turned_back() -> None:
    torch.manual_seed(0)
    backbone, x = create_backbone("small", pretrained=False).eval(), torch.randn(2, 3, 64, 64)
    backbone.unpool()
    backbone.mirrored = True
    with torch.no_grad():
        torch.testing.assert_close(backbone(x.flip(3)), backbone(x).flip(3))


@pytest.mark.parametrize("name", ["test_vit", "none"])
def test_a_network_without_a_map_says_so(name: str) -> None:
    backbone = create_backbone(name, pretrained=False)
    assert not backbone.has_map()
    with pytest.raises(BackboneError, match=f"{name} has no map for the convolutions of a method"):
        backbone.unpool()


@pytest.mark.parametrize("more", [{}, {"freeze_stages": 2, "views": 2, "semi": "both"}, {"accumulate": 3, "mixup": 0.5}])
def test_hrn_has_its_convolutions_where_a_backbone_trains(pictures: Path, tmp_path: Path, more: dict[str, Any]) -> None:
    run = train(options(pictures, tmp_path / "run", method="hrn", **more))
    model = load(run)
    assert model.options["maps"] is True
    assert any(name.startswith("convolutions.") for name in model.method.state_dict())
    assert evaluate(run)["levels"] == read_metrics(run)["levels"]
    assert len(model.predict([str(next(pictures.rglob("*.png")))])) == 1


def test_a_killed_run_ends_with_the_same_weights(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load(train(options(pictures, tmp_path / "whole", method="hrn"))).state_dict()
    with monkeypatch.context() as patch:
        patch.setattr(fitting.console.EpochView, "epoch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(options(pictures, tmp_path / "cut", method="hrn"))
    found = load(train(TrainArgs(resume=tmp_path / "cut", quiet=True, accelerator="cpu", workers=0))).state_dict()
    assert all(torch.equal(value, found[name]) for name, value in whole.items())


@pytest.mark.parametrize(("method", "option"), [("hrn", ()), ("fgon", ("pool=max",))])
def test_it_is_reported_and_exported_like_others(pictures: Path, tmp_path: Path, method: str, option: tuple[str, ...]) -> None:
    run = train(options(pictures, tmp_path / "run", method=method, option=("width=12", *option), val=0.2))
    main(["report", str(run), "--out", str(tmp_path / "page")])
    assert (tmp_path / "page" / "report.html").is_file()
    model, found = load(run), read_exported(export(run, tmp_path / "a.onnx").path)
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(model.look(x).log_probs, found.look(x).log_probs, strict=True):
        torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)


def test_on_features_it_is_as_it_was(pictures: Path, tmp_path: Path) -> None:
    run = train(options(pictures, tmp_path / "run", method="hrn", freeze=True))
    assert load(run).options["maps"] is False
    with pytest.raises(ConfigError, match="method=hrn with these options reads maps: train it on pictures, without freeze"):
        train(options(pictures, tmp_path / "no", method="hrn", freeze=True, option=("maps=True",)))
    with pytest.raises(ConfigError, match="method=fgon with these options reads maps"):
        train(options(pictures, tmp_path / "no", method="fgon", freeze=True, option=("pool=max",)))


def test_a_run_from_before_has_no_convolutions(pictures: Path, tmp_path: Path) -> None:
    run = train(options(pictures, tmp_path / "run", method="hrn", option=("width=12", "maps=False")))
    now = evaluate(run)["levels"]
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["model"]["options"]["maps"]
    config["train"]["option"] = ["width=12"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert not load(run).method.on_maps
    assert evaluate(run)["levels"] == now
