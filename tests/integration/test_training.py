"""From data to a run directory and back: what is written, what is remembered, what is repeatable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import torchlht
from torchlht import TrainArgs, train
from torchlht.cli import main
from torchlht.heads.method import method_options

FINISHED = {
    "config.yaml", "hierarchy.json", "history.csv", "metrics.json", "model.safetensors", "novelty.safetensors", "outcomes.npz",
    "split.json",
}  # fmt: skip


def quick(data: Path, out: Path, **options: object) -> TrainArgs:
    settings = {
        "epochs": 6,
        "batch_size": 32,
        "quiet": True,
        "track": False,
        "option": {"width": 24},
        "accelerator": "cpu",
        **options,
    }
    return TrainArgs(str(data), out, **settings)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


@pytest.mark.parametrize("method", torchlht.list_methods())
def test_a_run_is_complete_and_predicts(embeddings: Path, tmp_path: Path, method: str) -> None:
    own = {} if "width" in method_options(method) else {"option": ()}
    run = train(quick(embeddings, tmp_path / "run", method=method, mask=0.5, **own))
    assert {path.name for path in run.iterdir()} == FINISHED
    metrics = json.loads((run / "metrics.json").read_text())
    assert [level["name"] for level in metrics["levels"]] == ["order", "family", "species"]
    assert metrics["levels"][-1]["accuracy"] > 0.5
    assert metrics["levels"][-1]["samples"] == 60
    model = torchlht.load(run)
    answers = model.predict(torchlht.read_data(embeddings).features[:5], top=2)
    assert [level.level for level in answers[0].levels] == ["order", "family", "species"]
    assert len(answers[0]["species"].candidates) == 2
    assert torchlht.evaluate(run)["levels"] == metrics["levels"]


def test_answers_can_be_chosen_by_another_rule(embeddings: Path, tmp_path: Path, capsys) -> None:
    """crm gives whole paths for any method; its figures are in metrics.json when asked for, and the same from evaluate."""
    run = train(quick(embeddings, tmp_path / "run", method="multihead", mask=0.8, epochs=2, rules=("crm",)))
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["inconsistency"] > 0
    assert metrics["rules"]["crm"]["inconsistency"] == 0
    again = torchlht.evaluate(run, rule="crm")
    assert again["levels"] == metrics["rules"]["crm"]["levels"]
    main(["predict", str(run), str(embeddings), "--rule", "crm", "--format", "json", "--top", "2"])
    answers = json.loads(capsys.readouterr().out)
    assert all(answer["consistent"] for answer in answers)
    for answer in answers:
        for level in answer["levels"]:
            assert level["label"] == level["candidates"][0]["label"]
            assert len({candidate["label"] for candidate in level["candidates"]}) == 2


def test_a_method_takes_its_own_options_and_a_run_may_leave_the_test_samples_alone(embeddings: Path, tmp_path: Path) -> None:
    run = train(quick(embeddings, tmp_path / "run", method="soft-labels", option=("beta=7",), val=0.2, test=False))
    metrics = json.loads((run / "metrics.json").read_text())
    assert "levels" not in metrics
    assert set(metrics["validation"]) == {"val_order", "val_family", "val_species", "val_mean"}
    assert torchlht.load(run).method.beta == 7.0


def test_the_mask_is_what_was_asked_and_is_kept_in_the_run(embeddings: Path, tmp_path: Path) -> None:
    run = train(quick(embeddings, tmp_path / "run", mask=0.9, epochs=1))
    split = json.loads((run / "split.json").read_text())
    samples = torchlht.read_data(embeddings)
    assert len(split["kept"]) == 12  # 2 of 20 in each of 6 classes
    assert sorted(samples.labels[split["kept"], 0].tolist()) == sorted(list(range(6)) * 2)
    assert set(split["kept"]) <= set(split["train"])
    assert not set(split["train"]) & set(split["test"])


def test_two_runs_of_one_seed_are_equal_to_the_bit_and_of_two_seeds_are_not(embeddings: Path, tmp_path: Path) -> None:
    a, b, c = (train(quick(embeddings, tmp_path / name, seed=seed)) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert all(torch.equal(weights(a)[name], weights(b)[name]) for name in weights(a))
    assert not torch.equal(weights(a)["method.classifier.weight"], weights(c)["method.classifier.weight"])


@pytest.mark.parametrize("options", [["--start", "means"], ["--select", "best", "--optimizer", "adamw", "--lr", "0.01"]])
def test_a_killed_run_resumes_to_the_same_weights_to_the_bit(embeddings: Path, tmp_path: Path, options: list[str]) -> None:
    """kill -9 in the middle, --resume, and nothing tells the two runs apart."""
    command = [sys.executable, "-m", "torchlht", "train", str(embeddings), "--batch-size", "2", "--epochs", "15", "--no-track"]
    command += ["--accelerator", "cpu", *options]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, env=env, capture_output=True)
    victim = subprocess.Popen([*command, "--out", str(tmp_path / "cut")], env=env, stderr=subprocess.DEVNULL)
    checkpoint = tmp_path / "cut" / "checkpoint" / "last.safetensors"
    while not checkpoint.exists():
        assert victim.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    time.sleep(0.1)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not (tmp_path / "cut" / "metrics.json").exists()
    resume = [sys.executable, "-m", "torchlht", "train", "--resume", str(tmp_path / "cut"), "--accelerator", "cpu"]
    subprocess.run(resume, check=True, env=env, capture_output=True)
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    rows = [(tmp_path / name / "history.csv").read_text().splitlines() for name in ("whole", "cut")]
    assert len(rows[0]) == len(rows[1]) == 16
    assert {path.name for path in (tmp_path / "cut").iterdir()} == FINISHED | (
        {"calibration.json"} if "best" in options else set()
    )


def test_best_is_chosen_on_validation_samples_alone(embeddings: Path, tmp_path: Path) -> None:
    run = train(quick(embeddings, tmp_path / "run", select="best", val=0.2))
    split = json.loads((run / "split.json").read_text())
    metrics = json.loads((run / "metrics.json").read_text())
    lines = (run / "history.csv").read_text().splitlines()
    column = lines[0].split(",").index("val_mean")
    scores = [float(line.split(",")[column]) for line in lines[1:]]
    assert metrics["selection"]["epoch"] == scores.index(max(scores)) + 1
    assert 0.1 < len(split["val"]) / 120 < 0.3
    assert not set(split["val"]) & (set(split["train"]) | set(split["test"]))


@pytest.mark.parametrize("precision", ["bf16-mixed", "32-true"])
def test_mixed_precision_learns_too(embeddings: Path, tmp_path: Path, precision: str) -> None:
    run = train(quick(embeddings, tmp_path / "run", precision=precision))
    assert json.loads((run / "metrics.json").read_text())["levels"][-1]["accuracy"] > 0.8


def test_tensorboard_events_are_written_when_wanted(embeddings: Path, tmp_path: Path) -> None:
    run = train(quick(embeddings, tmp_path / "run", track=True, epochs=1))
    assert any((run / "tensorboard").rglob("events.*"))


def test_a_model_saved_elsewhere_predicts_the_same(embeddings: Path, tmp_path: Path) -> None:
    model = torchlht.load(train(quick(embeddings, tmp_path / "run")))
    model.save_pretrained(tmp_path / "copy")
    features = torchlht.read_data(embeddings).features
    assert torchlht.load(tmp_path / "copy").predict(features) == model.predict(features)
    assert {path.suffix for path in (tmp_path / "copy").iterdir()} == {".yaml", ".json", ".safetensors", ".md"}


def test_two_processes_train_one_model_and_test_every_sample_once(embeddings: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    command += ["-m", "torchlht", "train", str(embeddings), "--out", str(tmp_path / "run"), "--accelerator", "cpu"]
    command += ["--epochs", "4", "--batch-size", "32", "--mask", "0.5", "--no-track"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=150)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("next: lht predict") == 1
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["levels"][-1]["samples"] == 60
    assert metrics["levels"][-1]["accuracy"] > 0.5
