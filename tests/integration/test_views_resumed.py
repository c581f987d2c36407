"""Training on views that is killed while they are computed, and again in an epoch, ends with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from torchlht import TrainArgs, train
from torchlht.files import cache_dir
from torchlht.learn import fitting, views


def options(data: Path, out: Path, **more: Any) -> TrainArgs:
    plain = {"backbone": "small", "image_size": 16, "epochs": 3, "batch_size": 16, "quiet": True, "track": False}
    return TrainArgs(str(data), out, **{**plain, "accelerator": "cpu", "workers": 0, "levels": "order,family,species", **more})


DEEP = {"semi": "deep", "pooling": "both", "mirror": True, "mask_levels": 2}


@pytest.mark.parametrize(
    "more", [{"freeze_stages": 2, "checkpoint_every": 1}, {"freeze": True}, {"freeze_stages": 2, "checkpoint_every": 1, **DEEP}]
)
def test_a_run_killed_in_an_epoch_or_between_views_is_resumed_to_the_same_bits(
    more: dict[str, Any], pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = {"views": 3, "semi": "both", "mask": 0.3, **more}
    whole = train(options(pictures, tmp_path / "whole", **more))
    for file in (cache_dir() / "views").iterdir():
        file.unlink()
    write, step, calls = views.write_rows, fitting.take_step, []

    def killed_writing(path: Path, *rest: Any) -> None:
        if len(calls) == 1:
            raise KeyboardInterrupt
        calls.append(path)
        write(path, *rest)

    def killed_in_an_epoch(*rest: Any) -> None:
        if len(calls) == 8:
            raise KeyboardInterrupt
        calls.append(None)
        step(*rest)

    cut = options(pictures, tmp_path / "cut", **more)
    for place, name, killed in ((views, "write_rows", killed_writing), (fitting, "take_step", killed_in_an_epoch)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, killed)
            with pytest.raises(KeyboardInterrupt):
                train(cut)
    assert len(calls) == 8
    again = load_file(train(cut).path / "model.safetensors")
    assert all(torch.equal(value, again[name]) for name, value in load_file(whole.path / "model.safetensors").items())
