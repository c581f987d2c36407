"""One writer per place, and nothing left of dead ones."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from torchlht import files
from torchlht.answer.asking import ask, ask_all
from torchlht.answer.model import Run
from torchlht.cli import main
from torchlht.data.batches import FeatureSet
from torchlht.errors import DataError, DivergedError, RunError
from torchlht.files import claimed, content, replacing, sweep
from torchlht.heads.prediction import Prediction
from torchlht.show.figures.probabilities import reliability

HOLD = """
import sys, time
from pathlib import Path
from torchlht.files import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Context: another process has claimed a folder; then it is killed."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.kill()


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def features(path: Path) -> Path:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 40)
    np.savez(path, x=rng.normal(size=(40, 5)).astype(np.float32), y=np.stack([y, y // 2], 1), train=np.arange(40) < 30)
    return path


def test_a_second_writer_is_refused_until_the_first_is_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data, out = features(tmp_path / "d.npz"), tmp_path / "out"
    for words in (["train", str(data), "--epochs", "1"], ["compare", str(data), "--epochs", "1", "--jobs", "1"]):
        with held(out):
            with pytest.raises(SystemExit) as stop:
                main([*words, "--out", str(out)])
            assert stop.value.code == 2
            assert "another process is writing there" in " ".join(capsys.readouterr().err.split())
            assert content(out) == []
    main(["train", str(data), "--epochs", "1", "--quiet", "--out", str(out)])
    assert ".lock" not in names(out)


def test_a_claim_is_given_back(tmp_path: Path):
    out = tmp_path / "a" / "b"
    with claimed(out):
        with pytest.raises(RunError, match="another process"), claimed(out):
            pass
        assert out.is_dir()
    assert not out.parent.exists()  # it stayed empty
    with claimed(out):
        (out / "x").write_text("x")
    assert names(out) == ["x"]


def test_a_refused_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for words in (["train", "no.npz"], ["train", "no.npz", "--out", "a/b"], ["compare", "no.npz", "--out", "c"]):
        with pytest.raises(SystemExit):
            main(words)
    assert names(tmp_path) == []


def test_disks_without_locks_are_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def none(self: object) -> None:
        raise OSError(files.WITHOUT_LOCKS[0], "no locks")

    monkeypatch.setattr("filelock.FileLock.acquire", none)
    with claimed(tmp_path / "a"):
        (tmp_path / "a" / "x").write_text("x")


def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def part(folder: Path, name: str, pid: int, host: str | None = None) -> Path:
    file = folder / f".{name}.{host or files._host()}-{pid}-x1.part"
    file.write_text("half")
    return file


def test_leftovers_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path: Path):
    gone, other, alive = part(tmp_path, "a", dead()), part(tmp_path, "b", dead()), part(tmp_path, "a", os.getpid())
    foreign, theirs = part(tmp_path, "a", dead(), "00000000"), tmp_path / ".mine.part"
    theirs.write_text("not ours")
    with replacing(tmp_path / "a") as beside:
        beside.write_text("whole")
    assert not gone.exists()
    assert other.exists()  # of another file
    with claimed(tmp_path):
        assert not other.exists()
    old = part(tmp_path, "c", dead(), "00000000")
    os.utime(old, (0, 0))
    sweep(tmp_path)
    assert not old.exists()
    assert all(one.exists() for one in (alive, foreign, theirs))


def test_the_longest_names_can_be_written(tmp_path: Path):
    name = "a" * 255
    with replacing(tmp_path / name) as beside:
        beside.write_text("x")
    assert names(tmp_path) == [name]


def test_a_run_that_was_killed_before_it_began_does_not_block(tmp_path: Path):
    for name in ("split.json", "hierarchy.json"):
        (tmp_path / name).write_text("{}")
    Run(tmp_path).claim()
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match="not empty"):
        Run(tmp_path).claim()


def test_a_tree_of_ones_own_is_not_taken_for_a_run(tmp_path: Path):
    (tmp_path / "hierarchy.json").write_text("{}")
    with pytest.raises(RunError, match="not empty"):
        Run(tmp_path).claim()


# ---- NaN -----------------------------------------------------------------------------------------------------------


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> Prediction:
        return Prediction((torch.full((len(x), 3), float("nan")),))


@pytest.mark.parametrize("asking", [lambda *a: list(ask(*a)), ask_all])
def test_probabilities_that_are_not_numbers_are_refused_where_they_arise(asking: Callable[..., object]):
    data = FeatureSet(torch.zeros(4, 2), torch.zeros(4, 1, dtype=torch.int64))
    with pytest.raises(DivergedError, match="not numbers"):
        asking(Broken(), data)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.5, 1.5])
def test_reliability_takes_probabilities_alone(value: float):
    with pytest.raises(DataError, match="from 0 to 1"):
        reliability(np.array([0.5, value]), np.array([True, False]))


# ---- divergence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", ["0", "5"])
def test_training_that_diverges_says_so(clip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = features(tmp_path / "d.npz")
    with pytest.raises(SystemExit) as stop:
        main(["train", str(data), "--out", str(tmp_path / "r"), "--lr", "1e30", "--clip", clip, "--epochs", "3", "--quiet"])
    assert stop.value.code == 2
    assert "diverged; try a lower --lr" in " ".join(capsys.readouterr().err.split())


def test_one_diverging_cell_is_left_out_of_a_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data, out = features(tmp_path / "d.npz"), tmp_path / "c"
    words = ["compare", str(data), "--out", str(out), "--methods", "flat:weight_decay=1e20,multihead", "--mask", "0", "--seeds"]
    words += ["1", "--epochs", "2", "--jobs", "1"]
    for more in ([], ["--resume"]):
        with pytest.raises(SystemExit) as stop:
            main([*words, *more])
        assert stop.value.code == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "1 run of this comparison diverged and is left out: flat:weight_decay=1e20, 0% masked, seed 0" in said
        assert "Diverged, and left out above: flat:weight_decay=1e20" in (out / "table.md").read_text()
        assert "multihead" in (out / "results.csv").read_text()


def test_a_comparison_in_which_everything_diverges(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data, out = features(tmp_path / "d.npz"), tmp_path / "c"
    words = ["compare", str(data), "--out", str(out), "--methods", "flat", "--mask", "0", "--seeds", "1", "--epochs", "2"]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--lr", "1e30", "--jobs", "1"])
    assert stop.value.code == 2
    assert "every run diverged" in capsys.readouterr().err
