"""Graphs from the command line: training, calibration, answers, exports, reports, refusals, data with other attributes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import torchlht
from dags import write_birds, write_genes
from torchlht.answer.exported.read import read_exported
from torchlht.cli import main
from torchlht.errors import RunError


def test_from_training_to_an_exported_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript")
    data, graph = map(str, write_birds(tmp_path))
    run, file = str(tmp_path / "run"), str(tmp_path / "run.onnx")
    main(["train", data, "--hierarchy", graph, "--out", run, "--method", "lht", "--width", "24", "--epochs", "12",
          "--lr", "0.01", "--batch-size", "16", "--val", "0.3", "--quiet"])  # fmt: skip
    assert "leaf right" in capsys.readouterr().out
    assert (tmp_path / "run" / "calibration.json").is_file()
    main(["calibrate", run, data])
    assert "temperature" in capsys.readouterr().out
    main(["evaluate", run, "--confidence", "0.5,0.9", "--risk", "0.3", "--json"])
    metrics = json.loads(capsys.readouterr().out)
    assert [point["promise"] for point in metrics["answers"]] == ["confidence 0.5", "confidence 0.9", "risk 0.3"]
    assert metrics["answers"][0]["classes"] >= metrics["answers"][1]["classes"]
    main(["predict", run, data, "--format", "json", "--limit", "3", "--confidence", "0.8"])
    ours = json.loads(capsys.readouterr().out)
    assert set(ours[0]) == {"file", "answer", "probabilities", "leaves", "promise"}
    assert [one["file"] for one in ours] == [f"birds.npz row {i}" for i in range(3)]
    main(["export", run, "--out", file, "--confidence", "0.8"])
    assert "threshold 0.8 (confidence 0.8)" in capsys.readouterr().out
    main(["predict", file, data, "--format", "json", "--limit", "3"])
    theirs = json.loads(capsys.readouterr().out)
    for one, other in zip(ours, theirs, strict=True):
        assert one["answer"] == other["answer"]
        assert all(math.isclose(p, other["probabilities"][name], abs_tol=2e-4) for name, p in one["probabilities"].items())
    main(["predict", run, data, "--limit", "2", "--confidence", "0.99"])
    assert "birds.npz row 1" in capsys.readouterr().out
    main(["report", run])
    page = (tmp_path / "run" / "report" / "report.html").read_text()
    assert all(word in page for word in ("Hard and easy classes", "down to a leaf", "How it learned", "leaf right"))
    for words, said in (
        (["predict", run, data, "--rule", "path"], "--rule is for one label at each level"),
        (["export", run, "--to", "web"], "needs classes with one parent each"),
        (["report", run, "--compare", run], "--compare is for classes with one parent each"),
        (["evaluate", run, "--risk", "0.0001"], "cannot be promised"),
        (["train", data, "--hierarchy", graph, "--method", "hxe"], "method hxe does not learn here"),
        (["train", data, "--hierarchy", graph, "--semi", "both"], "--semi has no meaning for classes with several parents"),
        (["train", data, "--hierarchy", graph, "--option", "shortcut=1"], "has no option 'shortcut'"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    with pytest.raises(RunError, match="several parents"):
        read_exported(file)


def test_attributes_are_known_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = torchlht.train(str(write_genes(tmp_path)), out=tmp_path / "run", method="flat", width=8, epochs=1, quiet=True).path
    onnx = torchlht.export(run, tmp_path / "run.onnx").path
    for name in ("turned", "renamed", "wider"):
        (tmp_path / name).mkdir()
    write_genes(tmp_path / "turned", names=("f2", "f0", "f3", "f1"))
    asked = {name: str(tmp_path / name / "genes.test.arff") for name in (".", "turned")}
    for words in (
        ["predict", str(run), "--format", "json"],
        ["predict", str(onnx), "--format", "json"],
        ["evaluate", str(run), "--json"],
    ):
        said = []
        for file in asked.values():
            main([*words[:2], file, *words[2:]])
            said.append(capsys.readouterr().out)
        assert said[0] == said[1]
    write_genes(tmp_path / "renamed", names=("f0", "f1", "f2", "g"))
    write_genes(tmp_path / "wider", names=("f0", "f1", "f2", "f3", "f4"))
    for name, fault in (("renamed", "lacks the attribute 'f3'"), ("wider", "also has the attribute 'f4'")):
        for words in (["predict", str(onnx)], ["evaluate", str(run)]):
            with pytest.raises(SystemExit):
                main([*words, str(tmp_path / name / "genes.test.arff")])
            assert fault in capsys.readouterr().err
