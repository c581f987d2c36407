"""Several processes are one: the same losses, gradients, weights and figures; going on with more or fewer; coming back."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from conftest import write_embeddings, write_pictures
from several import BY_STEPS, free_port

SEVERAL = Path(__file__).parents[1] / "several.py"
TWENTY = {"epochs": 20, "batch_size": 120, "clip": 1.0, "ema": 0.9, "select": "best", "val": 0.1}  # an epoch is a step
ODD = {"epochs": 4, "batch_size": 17}  # 120 samples: the last batch is one sample, so some process has none
INSIDE = {"epochs": 3, "batch_size": 17, "checkpoint_every": 2}
NOISY = {**INSIDE, "option": {"width": 24, "input_dropout": 0.3}, "ema": 0.9, "semi": "both", "val": 0.1}
LONG = {"epochs": 6, "batch_size": 4, "checkpoint_every": 5}
NO_NORM = {"epochs": 3, "batch_size": 30, "method": "kt", "option": ()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all jobs have been done, in forks of one process: importing torch takes longer than all of them."""
    here = tmp_path_factory.mktemp("several")
    data, pictures = str(write_embeddings(here)), str(write_pictures(here))

    def train(name: str, world: int, options: dict[str, Any], **job: Any) -> dict[str, Any]:
        args = {"data": data, "out": str(here / name), **options}
        return {"do": "train", "world": world, "args": args, **job}

    def go_on(name: str, world: int) -> dict[str, Any]:
        return {"do": "train", "world": world, "resume": str(here / name)}

    def steps(name: str, world: int, parts: int, *, fixed_norm: bool = False) -> dict[str, Any]:
        out = str(here / name)
        job = {"do": "steps", "world": world, "parts": parts, "fixed_norm": fixed_norm, "out": out}
        return {**job, "methods": BY_STEPS, "sizes": [1, 7]}

    def predict(name: str, world: int, run: str, inputs: str, form: str) -> dict[str, Any]:
        arguments = ["predict", str(here / run), inputs, "--format", form, "--top", "2"]
        return {"do": "lht", "world": world, "out": str(here / name), "arguments": arguments, "block": 7}

    picture_options = {"data": pictures, "backbone": "small", "image_size": 32, "epochs": 1, "batch_size": 7}
    jobs = [
        *(steps(f"steps-{world}", world, 1) for world in (1, 2)),
        steps("whole", 1, 1, fixed_norm=True),
        *(steps(f"parts-{world}", world, 3, fixed_norm=True) for world in (1, 2)),
        *({"do": "measure", "world": world, "sizes": [0, 1, 40], "out": str(here / f"measured-{world}")} for world in (1, 3)),
        *(train(f"twenty-{world}", world, TWENTY) for world in (1, 2)),
        *(train(f"odd-{world}", world, ODD) for world in (1, 2, 3)),
        train("odd-1-2", 1, ODD, die_after=2),
        go_on("odd-1-2", 2),
        train("odd-2-1", 2, ODD, die_after=2),
        go_on("odd-2-1", 1),
        train("noisy", 1, NOISY),
        train("noisy-cut", 1, NOISY, die_after=6),
        {"do": "state", "world": 1, "run": str(here / "noisy-cut"), "out": str(here / "noisy-state")},
        go_on("noisy-cut", 1),
        train("inside-1", 1, INSIDE),
        train("inside-1-2", 1, INSIDE, die_after=6),
        go_on("inside-1-2", 2),
        train("inside-2-1", 2, INSIDE, die_after=6),
        go_on("inside-2-1", 1),
        train("long", 2, LONG),
        train("no-norm", 1, NO_NORM),
        *(train(f"no-norm-{world}", world, {**NO_NORM, "accumulate": 4}) for world in (1, 2)),
        train("seen", 2, picture_options),
        *(predict(f"rows-{world}", world, "odd-1", data, "json") for world in (1, 2)),
        *(predict(f"files-{world}", world, "seen", pictures, "csv") for world in (1, 2)),
    ]
    (here / "jobs.json").write_text(json.dumps(jobs))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "LHT_CACHE": str(here / "cache")}
    done = subprocess.run(
        [sys.executable, str(SEVERAL), str(here / "jobs.json")], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return here


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def history(run: Path, column: str = "loss") -> list[float]:
    with (run / "history.csv").open() as file:
        return [float(row[column]) for row in csv.DictReader(file)]


def metrics(run: Path) -> dict[str, Any]:
    return json.loads((run / "metrics.json").read_text())


def assert_same_weights(a: Path, b: Path, tolerance: float = 1e-5) -> None:
    for name, value in weights(a).items():
        torch.testing.assert_close(weights(b)[name], value, rtol=0, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}")


# ---- a step --------------------------------------------------------------------------------------------------------


def test_two_processes_have_the_loss_gradients_and_statistics_of_one(place: Path) -> None:
    """Of every method, in float64; with one sample, one of the two processes has none."""
    one, two = torch.load(place / "steps-1"), torch.load(place / "steps-2")
    assert {key.split("/")[0] for key in one} == set(BY_STEPS)
    torch.testing.assert_close(two, one, rtol=0, atol=1e-10)


@pytest.mark.parametrize("world", [1, 2])
def test_a_step_in_parts_has_the_loss_and_gradients_of_the_whole(place: Path, world: int) -> None:
    torch.testing.assert_close(torch.load(place / f"parts-{world}"), torch.load(place / "whole"), rtol=0, atol=1e-10)


# ---- training ------------------------------------------------------------------------------------------------------


def test_two_processes_train_as_one(place: Path) -> None:
    """Twenty steps with gradients clipped and weights averaged, the best epoch chosen: losses, weights and figures."""
    one, two = place / "twenty-1", place / "twenty-2"
    assert len(history(one)) == 20
    assert history(two) == pytest.approx(history(one), abs=1e-5)
    assert_same_weights(one, two)
    for column in ("val_mean", "train_species"):
        assert history(one, column) == history(two, column)
    exact = ("accuracy", "samples", "mean_class_recall", "macro_f1")
    for a, b in zip(metrics(one)["levels"], metrics(two)["levels"], strict=True):
        assert [a[name] for name in exact] == [b[name] for name in exact]
        assert a["ece"] == pytest.approx(b["ece"], abs=1e-5)
    for name in ("full_path_accuracy", "hierarchical_f1", "selection", "validation"):
        assert metrics(one)[name] == metrics(two)[name]


@pytest.mark.parametrize("world", [2, 3])
def test_no_batch_is_too_small_for_the_processes(place: Path, world: int) -> None:
    assert_same_weights(place / "odd-1", place / f"odd-{world}")
    assert history(place / f"odd-{world}") == pytest.approx(history(place / "odd-1"), abs=1e-5)


def test_accumulation_changes_nothing_where_there_is_no_batch_norm(place: Path) -> None:
    for world in (1, 2):
        assert_same_weights(place / "no-norm", place / f"no-norm-{world}")
        assert history(place / f"no-norm-{world}") == pytest.approx(history(place / "no-norm"), abs=1e-5)


def test_pictures_are_trained_on_by_processes_one_of_which_may_have_none(place: Path) -> None:
    assert len(json.loads((place / "seen" / "split.json").read_text())["train"]) % 7 == 1
    assert metrics(place / "seen")["levels"][0]["samples"] > 0


# ---- going on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["odd-1-2", "odd-2-1"])
def test_a_run_goes_on_with_another_number_of_processes(place: Path, name: str) -> None:
    assert_same_weights(place / "odd-1", place / name)
    assert history(place / name) == pytest.approx(history(place / "odd-1"), abs=1e-5)


def test_a_run_killed_inside_an_epoch_goes_on_to_the_same_weights_to_the_bit(place: Path) -> None:
    """With dropout, targets for unknown labels and averaged weights; its history says the same, too."""
    assert json.loads((place / "noisy-state").read_text())["steps"] == 4
    whole, cut = weights(place / "noisy"), weights(place / "noisy-cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    for column in ("loss", "train_order", "train_family", "train_species", "val_mean"):
        assert history(place / "noisy", column) == history(place / "noisy-cut", column)


@pytest.mark.parametrize("name", ["inside-1-2", "inside-2-1"])
def test_inside_an_epoch_the_number_of_processes_may_change_as_well(place: Path, name: str) -> None:
    assert_same_weights(place / "inside-1", place / name)
    assert history(place / name) == pytest.approx(history(place / "inside-1"), abs=1e-5)
    assert history(place / name, "train_species") == history(place / "inside-1", "train_species")


def workers_of(agent: int) -> list[int]:
    """Processes that a process has started."""
    return [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_torchrun_goes_on_after_a_worker_was_killed(place: Path, tmp_path: Path) -> None:
    """kill -9 of one of two; the rest is up to torchrun. The model is that of a run that nobody disturbed."""
    options = ["--accelerator", "cpu", "--width", "24", "--mask", "0.5", "--workers", "0", "--no-track", "--quiet"]
    options += [text for name, value in LONG.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    command += ["--max-restarts", "2", "-m", "torchlht", "train", str(place / "birds.npz"), *options]
    run, log = tmp_path / "cut", tmp_path / "log"
    with log.open("w") as file:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        torchrun = subprocess.Popen([*command, "--out", str(run)], env=env, stdout=file, stderr=file)
    try:
        latest = time.monotonic() + 100
        while not (run / "checkpoint" / "last.safetensors").exists():
            assert torchrun.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < latest
            time.sleep(0.01)
        os.kill(workers_of(torchrun.pid)[-1], signal.SIGKILL)
        assert torchrun.wait(100) == 0, log.read_text()[-3000:]
    finally:
        torchrun.terminate()  # if it is still there, its workers go with it
    assert "exitcode: -9" in log.read_text()
    assert_same_weights(place / "long", run, tolerance=1e-6)
    assert history(run) == pytest.approx(history(place / "long"), abs=1e-6)
    assert not (run / "checkpoint").exists()


# ---- measuring and predicting --------------------------------------------------------------------------------------


def test_every_sample_is_measured_once_by_any_number_of_processes(place: Path) -> None:
    """Also where there are fewer samples than processes, or none."""
    one, three = (json.loads((place / f"measured-{world}").read_text()) for world in (1, 3))
    assert three["40"]["levels"][0]["samples"] == one["40"]["levels"][0]["samples"] > 20
    assert flat(three) == pytest.approx(flat(one), rel=0, abs=1e-14), "the same predictions; sums of them in another order"


def flat(found: Any) -> list[float]:
    """All numbers in order; -1 for None."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list):
        return [number for one in found for number in flat(one)]
    return [-1.0 if found is None else found] if not isinstance(found, str) else []


@pytest.mark.parametrize("name", ["rows", "files"])
def test_processes_share_what_is_to_be_predicted_and_the_first_prints_it(place: Path, name: str) -> None:
    one, two = (place / f"{name}-{world}.0" for world in (1, 2))
    assert one.read_text().count("\n") > 40
    assert two.read_text() == one.read_text()
    assert (place / f"{name}-2.1").read_text() == ""
