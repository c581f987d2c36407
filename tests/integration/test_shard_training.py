"""Shards end to end: the same run as from the folder, streamed, resumed, at an address, measured and asked."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

import torchlht
from torchlht import TrainArgs, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Run
from torchlht.cli import main
from torchlht.data.packing import pack
from torchlht.data.pictures import open_image
from torchlht.learn import fitting
from torchlht.measure.evaluation import frozen_features

LEVELS = "order,family,species"


@pytest.fixture
def packed(pictures: Path, tmp_path: Path, capsys) -> Path:
    main(["data", "pack", str(pictures), "--out", str(tmp_path / "shards"), "--per-shard", "10", "--levels", LEVELS])
    assert "5 shards" in capsys.readouterr().out
    return tmp_path / "shards"


def quick(data: Path | str, out: Path, **options: object) -> TrainArgs:
    settings = {"epochs": 2, "batch_size": 8, "quiet": True, "track": False, "accelerator": "cpu", "workers": 0, **options}
    return TrainArgs(str(data), out, backbone="small", image_size=16, **settings)


def results(run: Path) -> dict:
    metrics = json.loads((run / "metrics.json").read_text())
    return {name: value for name, value in metrics.items() if "seconds" not in name}


def test_a_run_on_shards_is_the_run_on_the_folder(pictures: Path, packed: Path, tmp_path: Path) -> None:
    options = {"mask": 0.5, "val": 0.2}
    folder = train(quick(pictures, tmp_path / "folder", levels=LEVELS, **options))
    shards = train(quick(packed, tmp_path / "shard-run", **options))
    some = train(quick(f"{packed}/shards-{{000000..000004}}.tar", tmp_path / "pattern", **options))
    for run in (shards, some):
        assert (run / "split.json").read_text() == (folder / "split.json").read_text()
        assert results(run) == results(folder)


def test_a_streamed_run_is_the_same_with_any_workers_and_when_it_is_interrupted(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"stream": "always", "epochs": 3}
    whole = train(quick(packed, tmp_path / "whole", **options))
    assert results(train(quick(packed, tmp_path / "workers", workers=2, **options))) == results(whole)
    for where, every in (("keep_epoch", None), ("keep_step", 2)):  # between epochs, and inside one
        keep, kept, out = getattr(fitting, where), [], tmp_path / where

        def killed(now: fitting.Fitting, run: Run, keep=keep, kept=kept) -> None:
            keep(now, run)
            kept.append(1)
            if len(kept) == 2:
                raise KeyboardInterrupt

        monkeypatch.setattr(fitting, where, killed)
        with pytest.raises(KeyboardInterrupt):
            train(quick(packed, out, checkpoint_every=every, **options))
        monkeypatch.undo()
        assert results(train(TrainArgs(resume=out, quiet=True, workers=0))) == results(whole)


def test_shards_at_an_address_are_trained_on_measured_and_asked(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    memory = fsspec.filesystem("memory")
    for file in packed.iterdir():
        memory.pipe(f"/birds/{file.name}", file.read_bytes())
    monkeypatch.chdir(tmp_path)
    run = train(quick("memory://birds", None))
    assert run == Path("runs/birds-lht-s0")
    streamed = train(quick(f"file://{packed}", tmp_path / "here", stream="always"))
    assert results(run) == results(streamed)
    main(["evaluate", str(run), "--json"])
    own = json.loads(capsys.readouterr().out)
    main(["evaluate", str(run), "memory://birds/shards-{000000..000004}.tar", "--split", "all", "--json"])
    everything = json.loads(capsys.readouterr().out)
    assert (own["levels"][0]["samples"], everything["levels"][0]["samples"]) == (10, 48)
    main(["predict", str(run), "memory://birds", "--format", "json", "--limit", "2"])
    there = json.loads(capsys.readouterr().out)
    main(["predict", str(run), str(packed), "--format", "json", "--limit", "2"])
    here = json.loads(capsys.readouterr().out)
    assert [answer["levels"] for answer in there] == [answer["levels"] for answer in here]
    main(["predict", str(run), f"{packed}/shards-000001.tar#3", "memory://birds/shards-000001.tar#3", "--format", "csv"])
    rows = capsys.readouterr().out.splitlines()[1:]
    assert rows[0].partition(",")[2] == rows[1].partition(",")[2]
    memory.rm("/birds", recursive=True)


def test_frozen_features_of_streamed_shards_are_those_of_the_folder(
    pictures: Path, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = create_backbone("small")
    spec = backbone.preprocess.resized(16)
    here = frozen_features(torchlht.read_data(pictures), backbone, spec, device=torch.device("cpu"))
    monkeypatch.setattr("torchlht.data.batches.STREAM_FROM", 1000)
    there = frozen_features(torchlht.read_data(packed), backbone, spec, device=torch.device("cpu"))
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_what_is_not_in_shards_is_not_streamed(pictures: Path, tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", str(pictures), "--stream", "always", "--backbone", "small", "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert f"--stream: {pictures} is not in shards; lht data pack" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_picture_of_a_file_of_many_is_packed_as_png(tmp_path: Path) -> None:
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    values = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8)
    for part in ("train", "t10k"):
        header = b"".join(n.to_bytes(4, "big") for n in (2051, 2, 28, 28))
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + values.tobytes())
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(b"".join(n.to_bytes(4, "big") for n in (2049, 2)) + bytes([0, 1]))
    (tmp_path / "t.csv").write_text(
        "path,kind\n" + "".join(f"FashionMNIST/raw/train-images-idx3-ubyte#{i},{'st'[i]}\n" for i in (0, 1))
    )
    before = torchlht.read_data(tmp_path / "t.csv")
    pack(before, tmp_path / "out")
    after = torchlht.read_data(tmp_path / "out")
    for a, b in zip(before.images, after.images, strict=True):
        np.testing.assert_array_equal(np.asarray(open_image(a)), np.asarray(open_image(b)))
