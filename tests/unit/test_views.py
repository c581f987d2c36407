"""Views through a frozen backbone: what is stored, what is drawn, and that training on them is resumed to the same bits."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import torchlht
from torchlht import TrainArgs, train
from torchlht.answer.backbones import create_backbone
from torchlht.cli import main
from torchlht.data.batches import FeatureSet, MapSet, draw_views
from torchlht.data.preparing import centre_crop, decode, normalise
from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError
from torchlht.files import cache_dir
from torchlht.learn import views
from torchlht.learn.alone import Alone
from torchlht.learn.building import build
from torchlht.learn.views import Kept
from torchlht.measure.evaluation import evaluate


def options(data: Path, out: Path | None = None, **more: Any) -> TrainArgs:
    plain = {"backbone": "small", "image_size": 16, "epochs": 3, "batch_size": 16, "quiet": True, "track": False}
    return TrainArgs(str(data), out, **{**plain, "accelerator": "cpu", "workers": 0, "levels": "order,family,species", **more})


def kept(data: Path, **more: Any) -> tuple[Kept, Samples]:
    args, samples = options(data, **{"freeze_stages": 2, **more}), read_data(str(data), levels=["order", "family", "species"])
    torch.manual_seed(0)
    return Kept(Alone(), args, samples, build(args, samples), 0), samples


# ---- what is stored --------------------------------------------------------------------------------------------------


def test_the_first_view_is_what_the_first_stages_make_of_the_picture_itself(pictures: Path) -> None:
    made, samples = kept(pictures)
    spec = made.pictures.spec
    x = normalise(torch.stack([centre_crop(decode(picture, spec), spec) for picture in samples.images or ()]), spec)
    with torch.no_grad():
        expected = torch.cat([made.backbone.eval().maps(part, 2) for part in torch.split(x, views.BATCH)])
    assert torch.equal(made.view(0).permute(0, 3, 1, 2), expected.half())


def test_the_second_view_is_its_mirror_image(pictures: Path) -> None:
    made, samples = kept(pictures)
    spec = made.pictures.spec
    x = normalise(torch.stack([centre_crop(decode(picture, spec), spec) for picture in samples.images or ()]), spec)
    with torch.no_grad():
        expected = torch.cat([made.backbone.eval().maps(part, 2) for part in torch.split(x.flip(3), views.BATCH)])
    assert torch.equal(made.view(1).permute(0, 3, 1, 2), expected.half())


def test_other_views_differ_and_are_computed_once(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = kept(pictures)[0]
    found = [made.view(i).clone() for i in range(4)]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(found, 2))
    strong = kept(pictures, augment="strong")[0]
    assert [torch.equal(strong.view(i), found[i]) for i in range(4)] == [True, True, False, False]
    monkeypatch.setattr(views, "write_rows", lambda *_: pytest.fail("it is in the cache"))
    assert torch.equal(kept(pictures, seed=7)[0].view(3), found[3])  # runs with other seeds share it


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY\x01\x00 nothing"])
def test_a_damaged_file_is_made_again(pictures: Path, damage: bytes) -> None:
    before = kept(pictures)[0].view(1).clone()
    (file,) = (cache_dir() / "views").iterdir()
    file.write_bytes(damage)
    assert torch.equal(kept(pictures)[0].view(1), before)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(values: Any, kind: Any, written: list[int] = []) -> Any:  # noqa: B006
        written.append(len(values))
        if len(written) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return values.numpy().astype(kind)

    monkeypatch.setattr(views, "as_kind", full)
    words = ["train", str(pictures), "--out", str(tmp_path / "run"), "--backbone", "small", "--image-size", "16", "--quiet"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--freeze-stages", "2", "--views", "3", "--accelerator", "cpu", "--workers", "0"])
    said = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert "views: the disk is full; free some space, then run the same command again; a view takes 0.0 MB" in said
    assert [file.suffix for file in (cache_dir() / "views").iterdir()] == [".npy"]  # the first view was whole


def test_numbers_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(torchlht.LHTError, match="float16"):
        views.write_rows(tmp_path / "a.npy", (2, 1), np.dtype(np.float16), [([0, 1], torch.tensor([[1.0], [1e5]]))])
    assert not list(tmp_path.iterdir())


def test_rows_are_written_in_any_order(tmp_path: Path) -> None:
    x = torch.arange(12.0).view(6, 2)
    views.write_rows(tmp_path / "a.npy", (6, 2), np.dtype(np.float32), [([4, 1], x[[4, 1]]), ([0, 5, 2, 3], x[[0, 5, 2, 3]])])
    assert np.array_equal(np.load(tmp_path / "a.npy"), x.numpy())


# ---- what is drawn ---------------------------------------------------------------------------------------------------


def test_views_are_drawn_by_seed_and_epoch() -> None:
    drawn = draw_views(4, 1000, seed=0, epoch=3)
    assert np.array_equal(drawn, draw_views(4, 1000, seed=0, epoch=3))
    assert np.bincount(drawn).min() > 200
    others = [draw_views(4, 1000, seed, epoch) for seed, epoch in ((1, 3), (0, 4), (0, -3))]
    assert all(0.65 < (drawn != other).mean() < 0.85 for other in others)


@pytest.mark.parametrize("maps", [False, True])
def test_a_set_shows_the_views_of_the_epoch_and_the_samples_themselves(maps: bool) -> None:
    n, labels = 50, torch.zeros(50, 1)
    values = [torch.full((n, 2, 2, 3) if maps else (n, 3), float(view)) for view in range(3)]
    data: Any = (
        MapSet([v.half() for v in values], np.arange(n), labels) if maps else FeatureSet(values[0], labels, others=values[1:])
    )

    def shown(some: Any) -> list[float]:
        x, _ = some.__getitems__(list(range(n)))
        assert x.dtype == torch.float32
        assert x.shape == ((n, 3, 2, 2) if maps else (n, 3))
        return x.flatten(1)[:, 0].tolist()

    assert shown(data) == [0.0] * n
    data.set_epoch(5, 2)
    assert shown(data) == draw_views(3, n, 5, 2).tolist()
    assert shown(data.view()) == [0.0] * n
    assert shown(data.view(5, 2)) == draw_views(3, n, 5, -3).tolist()
    assert [shown(view) for view in data.each_view()] == [[float(i)] * n for i in range(3)]


# ---- training --------------------------------------------------------------------------------------------------------


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(Path(run) / "model.safetensors")


def test_frozen_stages_stay_and_the_whole_network_is_kept(pictures: Path, tmp_path: Path) -> None:
    run = train(
        options(pictures, tmp_path / "run", freeze_stages=2, views=3, freeze_norm=False, val=0.2, epochs=8, ema=0.9, lr=0.01)
    )
    torch.manual_seed(0)
    start, found = create_backbone("small", pretrained=False).state_dict(), weights(run)
    same = {name for name, value in start.items() if torch.equal(value, found[f"backbone.{name}"])}
    assert same == {name for name in start if int(name.split(".")[1]) < 6}  # two stages of three layers
    said = torchlht.load(run).predict(pictures / "Gulls")
    assert sum(answer.names["order"] == "Gulls" for answer in said) / len(said) > 0.7
    assert run.accuracy["order"] > 0.7


@pytest.mark.parametrize(("more", "same"), [({"freeze_stages": 2}, True), ({"freeze_stages": 2, "freeze_norm": False}, False)])
def test_statistics_stay_if_they_are_frozen_and_the_weights_of_norms_learn(
    more: dict[str, Any], same: bool, pictures: Path, tmp_path: Path
) -> None:
    found = weights(train(options(pictures, tmp_path / "run", **more)))
    assert torch.equal(found["backbone.network.7.running_mean"], torch.zeros(96)) == same
    assert not torch.equal(found["backbone.network.7.weight"], torch.ones(96))


def test_a_backbone_that_trains_as_a_whole_may_keep_its_statistics(pictures: Path, tmp_path: Path) -> None:
    found = weights(train(options(pictures, tmp_path / "run", freeze_norm=True)))
    assert torch.equal(found["backbone.network.1.running_mean"], torch.zeros(16))
    assert not torch.equal(found["backbone.network.1.weight"], torch.ones(16))


def test_one_view_of_frozen_features_is_what_it_was(pictures: Path, tmp_path: Path) -> None:
    one, plain = (train(options(pictures, tmp_path / str(views), freeze=True, views=views)) for views in (1, None))
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(one).items())


@pytest.mark.parametrize("more", [{}, {"freeze": True}, {"freeze_stages": 2, "views": 2}])
def test_answers_also_look_at_mirror_images(more: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    run = train(options(pictures, tmp_path / "run", mirror=True, **more))
    backbone, x = torchlht.load(run).backbone, torch.randn(3, 3, 16, 16)
    assert backbone.mirrored
    with torch.no_grad():
        torch.testing.assert_close(backbone(x), (backbone.network(x) + backbone.network(x.flip(3))) / 2)
    again = evaluate(run)["levels"]
    assert {level["name"]: level["accuracy"] for level in again} == run.accuracy
    plain = train(options(pictures, tmp_path / "plain", **more))
    assert "mirror" not in (plain / "config.yaml").read_text().split("train:")[0]


@pytest.mark.parametrize("more", [{}, {"freeze": True}, {"freeze_stages": 2, "views": 2}, {"freeze_stages": 3, "mirror": True}])
def test_features_may_be_mean_and_maximum_of_the_map(more: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    run = train(options(pictures, tmp_path / "run", pooling="both", **more))
    model, x = torchlht.load(run), torch.randn(3, 3, 16, 16)
    assert model.in_features == 2 * 192
    with torch.no_grad():
        looks = [model.backbone.network(one) for one in ([x, x.flip(3)] if "mirror" in more else [x])]
        expected = sum(torch.cat([one.mean(dim=(2, 3)), one.amax(dim=(2, 3))], dim=1) for one in looks) / len(looks)
        torch.testing.assert_close(model.backbone(x), expected)
    again = evaluate(run)["levels"]
    assert {level["name"]: level["accuracy"] for level in again} == run.accuracy


def test_a_method_on_maps_reads_the_map_and_features_have_none(pictures: Path, tmp_path: Path) -> None:
    assert torchlht.load(train(options(pictures, tmp_path / "hrn", pooling="both", method="hrn"))).in_features == 192
    y = np.array([[0, 0], [1, 0], [2, 1], [3, 1]] * 3)
    np.savez(tmp_path / "x.npz", x=np.zeros((12, 3), np.float32), y=y, train=np.arange(12) < 8)
    with pytest.raises(ConfigError, match=r"pooling.* is for pictures"):
        train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / "features", pooling="both"))


def test_maps_do_not_depend_on_what_comes_after_them(pictures: Path) -> None:
    plain, other = kept(pictures)[0], kept(pictures, pooling="both", mirror=True)[0]
    assert plain._path(0) == other._path(0)
    assert plain._path(0) != kept(pictures, freeze_stages=1)[0]._path(0)


def test_a_comparison_computes_views_once(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, write = [], views.write_rows
    monkeypatch.setattr(views, "write_rows", lambda path, *rest: (written.append(path), write(path, *rest)))
    words = ["compare", str(pictures), "--out", str(tmp_path / "compare"), "--methods", "flat,marginal", "--mask", "0.3"]
    words += [
        "--backbone",
        "small",
        "--image-size",
        "16",
        "--freeze-stages",
        "2",
        "--views",
        "3",
        "--epochs",
        "1",
        "--jobs",
        "1",
    ]
    main([*words, "--seeds", "1", "--accelerator", "cpu", "--workers", "0", "--levels", "order,family,species"])
    assert len(written) == 4  # three of training samples, one of test samples


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"freeze": True, "freeze_stages": 2}, "freeze is for the whole backbone, freeze_stages for a part: pass one"),
        ({"views": 3}, "views is for a frozen backbone, others see a new view in every epoch: add freeze or freeze_stages"),
        ({"freeze": True, "views": 2, "augment": "none"}, "views is 2, but with augment=none a picture has only one"),
        ({"freeze_stages": 2, "stream": "always"}, "freeze_stages reads each picture once: pass one of them"),
        ({"freeze_stages": 2, "compile": True}, "with freeze_stages it does not: pass one of them"),
        ({"freeze_stages": -1}, "freeze_stages is -1: it must not be negative"),
        ({"views": 0}, "views is 0: it must be at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        options(tmp_path, **more)


def test_what_does_not_fit_the_data_or_the_method_is_refused(pictures: Path, embeddings: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="freeze_stages is for pictures"):
        train(options(embeddings, tmp_path / "a", backbone="auto", freeze_stages=2, levels=None))
    with pytest.raises(ConfigError, match="method=logistic is fitted at once and sees one view of each picture: pass views=1"):
        train(options(pictures, tmp_path / "b", freeze=True, views=2, method="logistic"))
    with pytest.raises(torchlht.LHTError, match="freeze_stages is 9, but small has 4"):
        train(options(pictures, tmp_path / "c", freeze_stages=9))
    assert not any((tmp_path / name).exists() for name in "abc")


def test_how_many_views_there_are_by_default(pictures: Path) -> None:
    stages, plain = (options(pictures, freeze_stages=stages).recipe(features=False, samples=9).views for stages in (2, 0))
    assert (stages, plain) == (8, 1)
