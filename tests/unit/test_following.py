"""Boards that follow a run: what they are told, that a failing one stops nothing, and the real packages where they are."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from lightning_fabric.loggers import CSVLogger
from lightning_fabric.loggers.logger import Logger

import torchlht
from dags import write_genes
from torchlht.answer.model import Run
from torchlht.errors import ConfigError, MissingExtraError
from torchlht.learn.alone import Alone
from torchlht.learn.following import follow
from torchlht.learn.following.follow import Follow, check_board, followed
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.plugins import plugins

OPTIONS = {"method": "lht", "epochs": 2, "mask": 0.5, "levels": None, "rules": []}
ROW = {"epoch": 2.0, "loss": 0.25, "train_Möwen?": 0.5, "val_mean": math.nan}
METRICS = {"levels": [{"name": "order", "accuracy": 0.9}, {"name": "species", "accuracy": None}], "mean_accuracy": 0.8}


class Remembering:
    """A board that remembers what it is told; it fails from its `breaks`-th figures on."""

    def __init__(self, breaks: int = 99) -> None:
        self.told: list[Any] = []
        self.breaks = breaks

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.told.append(params)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        if len(self.told) >= self.breaks:
            raise ConnectionError("the server is gone\nand more")
        self.told.append((metrics, step))

    def finalize(self, status: str) -> None:
        self.told.append(status)


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Boards by name, as an installed package would add them."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(follow, "plugins", lambda group: {"torchlht.boards": found}[group])
    yield found
    plugins.cache_clear()


def args(**options: Any) -> TrainArgs:
    return TrainArgs("birds", **options)


# ---- what boards are told ------------------------------------------------------------------------------------------


def test_a_board_is_told_options_epochs_and_the_end(boards: dict[str, Any], tmp_path: Path) -> None:
    board = Remembering()
    boards["mine"] = lambda folder: board
    with followed(Alone(), args(track_to=("mine",)), Run(tmp_path), OPTIONS) as told:
        told.epoch(ROW)
        told.result(METRICS)  # this board has no log_result
    options = {"method": "lht", "epochs": 2, "mask": 0.5}
    assert board.told == [options, ({name: ROW[name] for name in ROW if name != "epoch"}, 2), "success"]


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt, "aborted"), (ValueError, "failed")])
def test_a_board_is_told_how_a_run_ends(
    boards: dict[str, Any], tmp_path: Path, error: type[BaseException], status: str
) -> None:
    board = Remembering()
    boards["mine"] = lambda folder: board
    with pytest.raises(error), followed(Alone(), args(track_to=("mine",)), Run(tmp_path), OPTIONS):
        raise error
    assert board.told[-1] == status


def test_a_board_that_fails_is_left_out_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = Remembering(), Remembering(breaks=1)
    told = Follow({"bad": bad, "good": good})
    told.start(OPTIONS)
    told.epoch(ROW)
    told.epoch(ROW | {"epoch": 3.0})
    told.end("success")
    assert len(good.told) == 4
    assert len(bad.told) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said == "bad: ConnectionError: the server is gone; training goes on without it, and history.csv has every figure"


def test_only_the_first_process_and_only_if_wanted(boards: dict[str, Any], tmp_path: Path) -> None:
    boards["mine"] = lambda folder: pytest.fail("made")
    second = SimpleNamespace(is_global_zero=False)
    for machine, wanted in ((second, args(track_to=("mine",))), (Alone(), args(track_to=("mine",), track=False))):
        with followed(machine, wanted, Run(tmp_path), OPTIONS) as told:
            assert told.boards == {}


def test_any_logger_of_fabric_is_a_board(boards: dict[str, Any], embeddings: Path, tmp_path: Path) -> None:
    boards["csv"] = lambda folder: CSVLogger(folder, name="csv", version="")
    options = {"epochs": 2, "batch_size": 64, "quiet": True, "accelerator": "cpu", "option": ("width=8",)}
    run = train(TrainArgs(str(embeddings), out=tmp_path / "run", track_to=("csv",), **options))
    written = (run / "csv" / "metrics.csv").read_text().splitlines()
    assert len(written) == 3
    assert "train_species" in written[0]
    assert not (run / "tensorboard").exists(), "the usual board is for those who name none"


def test_several_labels_per_sample_are_told_epoch_by_epoch_too(boards: dict[str, Any], tmp_path: Path) -> None:
    class Comparing(Remembering):
        def log_result(self, metrics: dict[str, float]) -> None:
            self.told.append(metrics)

    board = Comparing()
    boards["mine"] = lambda folder: board
    options = {"epochs": 2, "quiet": True, "option": ("width=8",), "val": 0.0}
    run = torchlht.train(write_genes(tmp_path), out=tmp_path / "run", track_to=("mine",), **options)
    given, first, second, result, end = board.told
    assert given["method"] == "lht"
    assert [(set(row), step) for row, step in (first, second)] == [({"loss", "seconds"}, 1), ({"loss", "seconds"}, 2)]
    assert result == {f"test_{name}": run.metrics[name] for name in ("auprc", "f1_micro", "f1_macro")}
    assert end == "success"


# ---- which boards there are ----------------------------------------------------------------------------------------


def test_boards_that_are_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, boards: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"unknown track_to 'mlfow': did you mean mlflow\? \(known: tensorboard, mlflow, wandb\)"
    ):
        check_board("mlfow")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, extra in {"tensorboard": "track", "mlflow": "mlflow", "wandb": "wandb"}.items():
        with pytest.raises(MissingExtraError, match=rf"--track-to {name} needs .*: pip install 'torchlht\[{extra}\]'"):
            check_board(name)
    with followed(Alone(), args(), Run(tmp_path), OPTIONS) as told:
        assert told.boards == {}, "the usual board is used if it is installed"


def test_a_board_that_cannot_be_reached_is_one_sentence(boards: dict[str, Any], tmp_path: Path) -> None:
    boards["mine"] = lambda folder: (_ for _ in ()).throw(ConnectionError("refused"))
    sentence = r"^track_to: mine cannot be reached \(ConnectionError: refused\); check its settings, or leave it out$"
    with pytest.raises(ConfigError, match=sentence), followed(Alone(), args(track_to=("mine",)), Run(tmp_path), OPTIONS):
        pytest.fail("goes on")


# ---- MLflow and Weights & Biases: what is asked of them, with stand-ins that refuse anything else -----------------------


class StandInClient:
    """The part of MLflow's client that is used."""

    runs: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - one server for all clients
    experiments: dict[str, str] = {}  # noqa: RUF012

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, str(len(self.experiments)))

    def create_run(self, experiment_id: str, run_name: str) -> Any:
        number = f"r{len(self.runs)}"
        self.runs[number] = {"name": run_name, "status": "RUNNING", "params": {}, "metrics": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=number))

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id]["status"] = status

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(params) <= 100
        self.runs[run_id]["params"] |= {one.key: one.value for one in params}
        self.runs[run_id]["metrics"] += [(one.key, one.value, one.step) for one in metrics]

    def set_terminated(self, run_id: str, status: str) -> None:
        self.runs[run_id]["status"] = status


class StandInRun:
    """The part of a run of Weights & Biases that is used."""

    def __init__(self, **given: Any) -> None:
        self.given, self.project, self.id = given, given["project"], given["id"] or "w0"
        self.config, self.summary, self.rows = Taken(), Taken(), list[Any]()

    def log(self, metrics: dict[str, float], step: int | None) -> None:
        self.rows.append((metrics, step))

    def finish(self, exit_code: int) -> None:
        self.rows.append(exit_code)


class Taken(dict[str, Any]):
    def update(self, given: dict[str, Any], allow_val_change: bool = False) -> None:
        super().update(given)


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[StandInRun]]:
    made: list[StandInRun] = []
    mlflow, entities, wandb = ModuleType("mlflow"), ModuleType("mlflow.entities"), ModuleType("wandb")
    mlflow.MlflowClient = StandInClient  # type: ignore[attr-defined]
    entities.Param = lambda key, value: SimpleNamespace(key=key, value=value)  # type: ignore[attr-defined]
    entities.Metric = lambda key, value, now, step: SimpleNamespace(key=key, value=value, step=step)  # type: ignore[attr-defined]
    wandb.init = lambda **given: made.append(StandInRun(**given)) or made[-1]  # type: ignore[attr-defined]
    wandb.Settings = lambda **given: given  # type: ignore[attr-defined]
    for module in (mlflow, entities, wandb):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for name in ("to_mlflow", "to_wandb"):
        monkeypatch.delitem(sys.modules, f"torchlht.learn.following.{name}", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    StandInClient.runs, StandInClient.experiments = {}, {}
    yield made
    for name in ("to_mlflow", "to_wandb"):
        sys.modules.pop(f"torchlht.learn.following.{name}", None)


def go(board: str, folder: Path, error: type[Exception] | None = None) -> None:
    """A run that a board follows; it is interrupted, if asked."""
    with followed(Alone(), args(track_to=(board,)), Run(folder), OPTIONS) as told:
        assert isinstance(told.boards[board], Logger)
        assert (told.boards[board].name, bool(told.boards[board].version)) == ("torchlht", True)  # type: ignore[attr-defined]
        told.epoch(ROW)
        if error:
            raise error
        told.result(METRICS)


def test_mlflow_keeps_one_run_through_an_interruption(stand_ins: list[StandInRun], tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        go("mlflow", tmp_path / "birds", ValueError)
    assert StandInClient.runs["r0"]["status"] == "FAILED"
    go("mlflow", tmp_path / "birds")
    assert StandInClient.experiments == {"torchlht": "0"}
    (run,) = StandInClient.runs.values()
    assert run["params"] == {"method": "lht", "epochs": "2", "mask": "0.5"}
    figures = [("loss", 0.25, 2), ("train_Möwen_", 0.5, 2)]
    assert run["metrics"] == [*figures, *figures, ("test_order", 0.9, 0), ("test_mean_accuracy", 0.8, 0)]
    assert (run["name"], run["status"]) == ("birds", "FINISHED")
    assert json.loads((tmp_path / "birds" / "boards.json").read_text()) == {"mlflow": "r0"}


def test_wandb_keeps_one_run_through_an_interruption(stand_ins: list[StandInRun], tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        go("wandb", tmp_path / "birds", ValueError)
    go("wandb", tmp_path / "birds")
    first, second = stand_ins
    assert first.given["id"] is None
    assert (second.given["id"], second.given["resume"], second.given["name"]) == ("w0", "allow", "birds")
    assert first.rows == [({name: ROW[name] for name in ROW if name != "epoch"}, 2), 1]
    assert second.rows[-1] == 0
    assert second.config == {"method": "lht", "epochs": 2, "mask": 0.5}
    assert second.summary == {"test_order": 0.9, "test_mean_accuracy": 0.8}


# ---- the real packages, where they are installed -----------------------------------------------------------------------

MLFLOW = """
from mlflow import MlflowClient
client = MlflowClient()
[run] = client.search_runs([client.get_experiment_by_name("torchlht").experiment_id])
assert run.info.status == "FINISHED" and run.info.run_name == "run", run
assert run.data.params["method"] == "lht"
assert [one.step for one in client.get_metric_history(run.info.run_id, "loss")] == [1, 2]
assert 0 <= run.data.metrics["test_species"] <= 1
"""


def run_of(board: str, embeddings: Path, folder: Path, **settings: str) -> dict[str, str]:
    """Train in a process of its own, since these packages start threads and warn; returns its environment."""
    names = {"MLFLOW_TRACKING_URI": "sqlite:///runs.db", "WANDB_MODE": "offline", "GIT_PYTHON_REFRESH": "quiet"}
    environment = os.environ | names | settings
    command = [sys.executable, "-m", "torchlht", "train", str(embeddings), "--epochs", "2", "--quiet", "--track-to", board]
    subprocess.run([*command, "--out", "run"], cwd=folder, env=environment, check=True, timeout=600, capture_output=True)
    return environment


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed")
def test_mlflow_itself(embeddings: Path, tmp_path: Path) -> None:
    environment = run_of("mlflow", embeddings, tmp_path)
    subprocess.run([sys.executable, "-c", MLFLOW], cwd=tmp_path, env=environment, check=True, timeout=600)


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="wandb is not installed")
def test_wandb_itself_offline(embeddings: Path, tmp_path: Path) -> None:
    run_of("wandb", embeddings, tmp_path)
    (written,) = (tmp_path / "run" / "wandb").rglob("*.wandb")
    assert b"test_species" in written.read_bytes()
