"""A comparison end to end: it is killed, goes on, recomputes nothing that was finished, and keeps its word about options."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from torchlht.cli import main
from torchlht.heads.method import list_methods


def test_a_killed_comparison_goes_on_where_it_was(embeddings: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    words = ["compare", str(embeddings), "--methods", "flat,lht", "--mask", "0,0.9", "--seeds", "2", "--epochs", "3"]
    words += ["--out", str(out)]
    command = [sys.executable, "-m", "torchlht", *words]
    victim = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not list(out.glob("runs/*/metrics.json")):
        assert victim.poll() is None, "the comparison ended before it could be killed"
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    time.sleep(1)  # its workers notice and stop
    finished = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/metrics.json")}
    assert 0 < len(finished) < 8

    with pytest.raises(SystemExit):
        main(words)
    assert "add --resume" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words, "--resume", "--lr", "0.3"])
    assert "was started with other options" in capsys.readouterr().err

    last = [out / "runs" / f"lht-R90-s{seed}" for seed in (1, 0)]
    unborn = next(run for run in last if not (run / "metrics.json").is_file())
    shutil.rmtree(unborn, ignore_errors=True)
    unborn.mkdir(parents=True)
    (unborn / "hierarchy.json").write_text("{")  # killed before it began
    main([*words, "--resume"])
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished run was computed again"
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2 * 3
    assert {row["level"] for row in rows} == {"order", "family", "species"}
    said = capsys.readouterr().out
    assert "90% masked, species: " in said
    assert "points, from 2 seeds and " in said
    assert "next: lht predict" in said
    samples = json.loads((out / "runs" / "lht-R0-s0" / "metrics.json").read_text())["levels"][0]["samples"]
    n = f"(n = {samples})"
    table = (out / "table.md").read_text()
    assert table.startswith(f"| masked | method | order {n} | family {n} | species {n} | mACC |")
    assert f"2 seeds and {samples} test samples)" in table
    assert (out / "accuracy.png").stat().st_size > 5000

    words[words.index("--seeds") + 1] = "3"
    main([*words, "--resume"])
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert f"3 seeds and {samples} test samples)" in capsys.readouterr().out.replace("\n", " ")


def test_all_methods_and_peers_with_a_rule(embeddings: Path, tmp_path: Path) -> None:
    """Every registered method ends in the table well above chance, by its own answers and by those of the rule."""
    out = tmp_path / "out"
    words = ["compare", str(embeddings), "--methods", "all,lht:gamma=2", "--mask", "0.5", "--seeds", "2", "--epochs", "6"]
    main([*words, "--rules", "crm", "--out", str(out), "--jobs", "1"])
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    methods = [*list_methods(), "lht:gamma=2"]
    assert {row["method"] for row in rows} == {name + rule for name in methods for rule in ("", " + crm")}
    for row in rows:
        chance = {"species": 1 / 6, "family": 1 / 4, "order": 1 / 2}[row["level"]]
        assert float(row["accuracy"]) > min(chance + 0.25, 0.8), row
        assert float(row["parameters"]) > 0


def test_tuning_chooses_on_validation_samples_and_then_trains_on_everything(embeddings: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    words = ["compare", str(embeddings), "--methods", "flat,logistic", "--mask", "0.5", "--seeds", "2", "--epochs", "2"]
    words += ["--tune", "--tune-val", "0.3", "--jobs", "1", "--out", str(out)]
    main(words)
    account = list(csv.DictReader((out / "tuning.csv").read_text().splitlines()))
    assert [row["method"] for row in account] == ["flat"] * 3 + ["logistic"] * 3
    for method in ("flat", "logistic"):
        rows = [row for row in account if row["method"] == method]
        best = max(rows, key=lambda row: float(row["validation_mean_accuracy"]))
        assert [row["chosen"] for row in rows] == ["1" if row is best else "0" for row in rows]
    trial = json.loads((out / "tuning" / "flat-R50-c0-s0" / "metrics.json").read_text())
    assert "levels" not in trial, "a trial was measured on test samples"
    chosen = next(row["candidate"] for row in account if row["method"] == "flat" and row["chosen"] == "1")
    config = yaml.safe_load((out / "runs" / "flat-R50-s1" / "config.yaml").read_text())["train"]
    assert config["lr"] == pytest.approx(0.05 * {"lr×1": 1, "lr×0.33": 1 / 3, "lr×3": 3}[chosen])
    split = json.loads((out / "runs" / "flat-R50-s1" / "split.json").read_text())
    assert split["val"] == []
    assert "## Tuning" in (out / "table.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("metrics.json")}
    main([*words, "--resume"])
    assert {path: path.stat().st_mtime_ns for path in out.rglob("metrics.json")} == before


def test_a_frozen_backbone_is_run_once_for_the_whole_comparison(pictures: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    words = ["compare", str(pictures), "--backbone", "small", "--freeze", "--methods", "flat,hiclass", "--mask", "0.5"]
    main([*words, "--seeds", "1", "--epochs", "1", "--jobs", "1", "--out", str(out)])
    kept = list((Path(os.environ["LHT_CACHE"]) / "features").iterdir())
    assert len(kept) == 1
    assert {row["method"] for row in csv.DictReader((out / "results.csv").read_text().splitlines())} == {"flat", "hiclass"}
