"""Answers end to end: a run calibrates itself, rolls up at a threshold, and says where every answer came from."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import torchlht
from torchlht import TrainArgs, train
from torchlht.cli import main

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "predict.schema.json").read_text(encoding="utf-8"))


def quick(data: Path, out: Path, **options: object) -> TrainArgs:
    settings = {"epochs": 6, "batch_size": 32, "quiet": True, "track": False, "accelerator": "cpu", "val": 0.3, **options}
    return TrainArgs(str(data), out, **settings)


@pytest.fixture
def run(embeddings: Path, tmp_path: Path) -> Path:
    return train(quick(embeddings, tmp_path / "run", mask=0.5, option={"width": 24}))


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_a_run_with_validation_samples_is_calibrated_and_can_be_again(run: Path, embeddings: Path, capsys) -> None:
    kept = (run / "calibration.json").read_text()
    metrics = json.loads((run / "metrics.json").read_text())
    assert all("ece_calibrated" in level for level in metrics["levels"])
    assert torchlht.evaluate(run)["levels"] == metrics["levels"]
    found = json.loads(kept)
    assert [level["name"] for level in found["levels"]] == ["order", "family", "species"]
    assert found["levels"][2]["samples"] < found["levels"][0]["samples"]  # masked samples have no species to learn from
    (run / "calibration.json").write_text("broken")
    main(["calibrate", str(run)])
    assert "temperatures: order" in capsys.readouterr().out
    assert (run / "calibration.json").read_text() == kept  # the same samples, the same labels
    main(["calibrate", str(run), str(embeddings), "--split", "test", "--json"])
    assert json.loads(capsys.readouterr().out)["levels"][2]["samples"] == 60
    assert (run / "calibration.json").read_text() != kept


def test_rolled_up_answers_are_measured(run: Path, capsys) -> None:
    main(["evaluate", str(run), "--confidence", "0.5,0.99", "--risk", "0.3", "--json"])
    low, high, risk = json.loads(capsys.readouterr().out)["answers"]
    assert low["promise"] == "confidence 0.5"
    assert low["depth"] >= high["depth"]
    assert low["samples"] == 60
    assert risk["promise"] == "risk 0.3"
    assert risk["error"] < 0.5
    main(["evaluate", str(run), "--risk", "0.3", "--strict"])
    said = capsys.readouterr().out
    assert "risk 0.3, strict" in said
    assert "confidence" in refused(["evaluate", str(run), "--confidence", "2"], capsys)
    assert "cannot be promised" in refused(["evaluate", str(run), "--risk", "0.0001"], capsys)


def test_json_csv_and_table_give_the_same_answers(run: Path, embeddings: Path, capsys) -> None:
    arguments = ["predict", str(run), str(embeddings), "--limit", "40", "--confidence", "0.95"]
    main([*arguments, "--format", "json", "--top", "2"])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert len(found) == 40
    named = torchlht.load(run).predict(torchlht.read_data(embeddings).features[:40], top=2)
    for one, other in zip(found, named, strict=True):
        answer = other.answer(confidence=0.95)
        assert (one["answer"]["label"], one["answer"]["level"]) == (answer.label, answer.level)
        assert one["answer"]["path"] == list(answer.path)
        passing = [level for level in one["levels"] if level["probability"] >= 0.95]
        assert one["answer"]["label"] == (passing[-1]["label"] if passing else None)
    assert len({one["answer"]["level"] for one in found}) > 1
    main([*arguments, "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["answer"] for row in rows] == [one["answer"]["label"] or "" for one in found]
    assert [row["answer_level"] for row in rows] == [one["answer"]["level"] or "" for one in found]
    main(arguments)
    said = capsys.readouterr().out
    assert "confidence 0.95" in said
    main(["predict", str(run), str(embeddings), "--limit", "3", "--format", "json"])
    plain = json.loads(capsys.readouterr().out)
    jsonschema.validate(plain, SCHEMA)
    assert all(one["answer"]["level"] == "species" for one in plain)


def test_only_some_classes_are_possible(run: Path, embeddings: Path, tmp_path: Path, capsys) -> None:
    arguments = ["predict", str(run), str(embeddings), "--limit", "60", "--format", "json"]
    main([*arguments, "--only", "Auks,Arctic Tern", "--exclude", "Black Guillemot"])
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, SCHEMA)
    assert {one["answer"]["label"] for one in found} <= {"Horned Puffin", "Tufted Puffin", "Arctic Tern"}
    assert all(one["restricted"] for one in found)
    assert all(one["levels"][1]["label"] in ("Puffins", "Terns") for one in found)
    region = tmp_path / "region.txt"
    region.write_text("Puffins\n")
    main([*arguments, "--only", f"@{region}"])
    found = json.loads(capsys.readouterr().out)
    assert all(one["levels"][0]["probability"] == pytest.approx(1) for one in found)
    assert "did you mean Auks" in refused([*arguments, "--only", "Auk"], capsys)
    assert "cannot be promised with --only" in refused([*arguments, "--only", "Auks", "--risk", "0.1"], capsys)


def test_a_run_without_validation_samples_says_what_it_lacks(embeddings: Path, tmp_path: Path, capsys) -> None:
    run = train(quick(embeddings, tmp_path / "plain", val=None, epochs=1, option={"width": 24}))
    assert not (run / "calibration.json").exists()
    assert "train with --val" in refused(["predict", str(run), str(embeddings), "--risk", "0.1"], capsys)
    assert "train with --val" in refused(["calibrate", str(run)], capsys)
    main(["predict", str(run), str(embeddings), "--limit", "2", "--confidence", "0.5", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert not found[0]["calibrated"]
    asked = ["predict", str(run), str(embeddings)]
    assert "pass one of them" in refused([*asked, "--risk", "0.1", "--confidence", "0.5"], capsys)


def test_folds_calibrate_without_losing_labels(embeddings: Path, tmp_path: Path, capsys) -> None:
    run = train(quick(embeddings, tmp_path / "plain", val=None, mask=0.5, option={"width": 24}))
    before = (run / "model.safetensors").read_bytes()
    main(["calibrate", str(run), "--folds", "3"])
    assert "3 folds of its own training data: order 120 · family 120 · species 60" in capsys.readouterr().out
    assert (run / "model.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_dir() and p.name != "cache"] == ["plain"]
    calibration = torchlht.load(run).calibration
    assert calibration is not None
    assert calibration.threshold(0.3) < 1
    assert "at least 2" in refused(["calibrate", str(run), "--folds", "1"], capsys)
    assert "without DATA" in refused(["calibrate", str(run), str(embeddings), "--folds", "3"], capsys)
    own = train(quick(embeddings, tmp_path / "own", epochs=1, option={"width": 24}))
    assert "has its own validation samples" in refused(["calibrate", str(own), "--folds", "3"], capsys)


@pytest.mark.parametrize("method", ["c-hmcnn", "hiclass"])
def test_methods_of_another_kind_are_calibrated_too(embeddings: Path, tmp_path: Path, method: str) -> None:
    """One has a sigmoid per class, the other its own way of choosing."""
    options = {"option": {"width": 24}} if method == "c-hmcnn" else {}
    run = train(quick(embeddings, tmp_path / "run", method=method, **options))
    model = torchlht.load(run)
    assert model.calibration is not None
    assert set(model.calibration.kinds) == {"sigmoid" if method == "c-hmcnn" else "softmax"}
    features = torchlht.read_data(embeddings).features
    assert features is not None
    for named in model.predict(features[:20]):
        assert all(0 <= c.probability <= 1.0001 for level in named.levels for c in level.candidates)
        answer = named.answer(confidence=0.6)
        assert answer.label is None or np.isfinite(answer.probability)


def test_pictures_in_a_folder_are_answered(pictures: Path, tmp_path: Path, capsys) -> None:
    options = {"backbone": "small", "image_size": 16, "epochs": 8, "batch_size": 16, "workers": 0}
    run = train(quick(pictures, tmp_path / "run", levels="order,family,species", **options))
    for form in ("table", "csv", "json"):
        main(["predict", str(run), str(pictures), "--confidence", "0.6", "--format", form])
        said = capsys.readouterr().out
        assert said.count("Arctic Tern 3.png") == 1
    jsonschema.validate(json.loads(said), SCHEMA)
