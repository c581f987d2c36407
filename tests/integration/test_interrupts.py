"""Interrupted and killed: what was running stops, nothing is left that blocks, and resuming gives the same results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LHT = [sys.executable, "-m", "torchlht"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 80)
    path = tmp_path_factory.mktemp("data") / "d.npz"
    np.savez(path, x=rng.normal(size=(80, 5)).astype(np.float32), y=np.stack([y, y // 2], 1), train=np.arange(80) < 60)
    return path


def until(condition: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.05)


def children(pid: int) -> list[str]:
    """Processes in the group of one that was started as its leader."""
    found = subprocess.run(["ps", "-o", "pid=", "-g", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.split()


def hearing() -> None:
    """Hear interrupts: a shell that starts the tests in the background would have them ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_stops_a_comparison_and_its_workers_at_once(data: Path, tmp_path: Path):
    words = [*LHT, "compare", str(data), "--out", str(tmp_path / "c"), "--methods", "flat,lht", "--mask", "0", "--seeds", "2"]
    words += ["--epochs", "4000", "--jobs", "2", "--checkpoint-every", "5"]
    how: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True, "preexec_fn": hearing}
    with subprocess.Popen(words, **how) as process:
        try:
            until(lambda: len(list(tmp_path.glob("c/runs/*/config.yaml"))) == 2)
            os.kill(process.pid, signal.SIGINT)
            began = time.monotonic()
            _, said = process.communicate(timeout=60)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 130
    assert time.monotonic() - began < 20  # each cell takes minutes
    assert "interrupted" in said
    assert "Traceback" not in said
    until(lambda: not children(process.pid), 10)
    assert not list(tmp_path.glob("c/runs/*/metrics.json"))
    assert not (tmp_path / "c" / ".lock").exists()


@pytest.mark.parametrize("what", ["train on features", "train on views"])
def test_training_that_is_killed_is_resumed_to_the_same_bits(what: str):
    kills = Path(__file__).parents[2] / "benchmarks" / "kills.py"
    words = [sys.executable, str(kills), "--kills", "3", "--only", what]
    found = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert "No fault." in found.stdout, found.stdout + found.stderr
    assert found.returncode == 0
