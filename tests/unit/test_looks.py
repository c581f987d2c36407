"""Several looks at a picture: what each one shows, and that answers take their mean wherever they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import torchlht
from torchlht import TrainArgs, train
from torchlht.data.preparing import Preprocess, centre_crop, decode, looks_at, normalise
from torchlht.errors import ConfigError
from torchlht.measure.evaluation import evaluate
from torchlht.show.figures.gradcam import as_batch

SPEC = Preprocess(size=16, resize=20, looks=5)


def options(data: Path, out: Path, **more: Any) -> TrainArgs:
    plain = {"backbone": "small", "image_size": 16, "epochs": 2, "batch_size": 16, "quiet": True, "track": False, "looks": 3}
    return TrainArgs(str(data), out, **{**plain, "accelerator": "cpu", "workers": 0, "levels": "order,family,species", **more})


def test_looks_show_the_centre_all_of_it_its_middle_its_largest_square_and_its_mirror_image() -> None:
    places = torch.arange(20 * 30).view(1, 20, 30).expand(3, -1, -1) % 30  # the column, from left to right
    image = (8 * places).to(torch.uint8)
    centre, squeezed, zoomed, whole, mirrored = looks_at(image, SPEC).float()[:, 0, 8].unbind()
    assert torch.equal(centre, 8.0 * torch.arange(7, 23))
    assert torch.equal(mirrored, centre.flip(0))
    edges = {"squeezed": (squeezed.flip(0), 0, 29), "zoomed": (zoomed, 9, 20), "whole": (whole, 5, 24)}
    for name, (row, left, right) in edges.items():
        assert (row.diff() >= 0).all(), name
        assert abs(row[0] / 8 - left) < 1, name
        assert abs(row[-1] / 8 - right) < 1, name
    assert torch.equal(looks_at(image, Preprocess(size=16, resize=20)), centre_crop(image, SPEC))
    assert torch.equal(looks_at(image, Preprocess(size=16, resize=20, looks=2)), looks_at(image, SPEC)[:2])


def test_one_look_is_not_written_down_and_several_are() -> None:
    assert "looks" not in Preprocess(size=16, resize=20).to_dict()
    assert Preprocess.from_dict(SPEC.to_dict()) == SPEC
    with pytest.raises(ConfigError, match="looks"):
        Preprocess.from_dict(SPEC.to_dict() | {"looks": 6})


@pytest.mark.parametrize("more", [{}, {"freeze": True}, {"freeze_stages": 2, "views": 2, "val": 0.2}])
def test_answers_take_the_mean_of_looks(more: dict[str, Any], pictures: Path, tmp_path: Path) -> None:
    run = train(options(pictures, tmp_path / "run", **more))
    model, files = torchlht.load(run), sorted(pictures.rglob("*.png"))[:3] or sorted(pictures.rglob("*.jpg"))[:3]
    spec = model.preprocess
    assert spec is not None
    x = normalise(torch.stack([looks_at(decode(file, spec), spec) for file in files]), spec)
    assert x.shape == (3, 3, 3, 16, 16)
    with torch.no_grad():
        expected = torch.stack([model.backbone.network(x[:, i]) for i in range(3)]).mean(dim=0)
        torch.testing.assert_close(model.backbone(x), expected)
        said = model.method(expected).log_probs[0].exp()
    model.calibration = None
    for answer, row in zip(model.predict(files), said, strict=True):
        place = model.hierarchy.classes[0].index(answer.names["species"])
        assert answer.levels[-1].probability == pytest.approx(row[place].item(), abs=1e-4)
    assert {level["name"]: level["accuracy"] for level in evaluate(run)["levels"]} == run.accuracy
    assert as_batch(model, x).shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mirror": True}, "the fifth of looks is the mirror image"),
        ({"method": "hrn"}, "looks is for the mean of features; method=hrn reads maps"),
        ({"looks": 6}, "looks is 6: it must be from 1 to 5"),
    ],
)
def test_looks_that_make_no_sense_are_refused(more: dict[str, Any], message: str, pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        train(options(pictures, tmp_path / "run", **more))
    assert message in refused.value.message.replace("`", "")
