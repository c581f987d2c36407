"""Answers for the rows of a table: those of `lht predict`, to the byte; on Ray also when a worker is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from serving import wait_until, write_runs
from torchlht.cli import main
from torchlht.console import json_text
from torchlht.errors import ConfigError
from torchlht.serve.bulk import ROWS, Answerer

SCRIPT = Path(__file__).parents[2] / "examples" / "batch" / "ray_predict.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `write_runs`."""
    return write_runs(tmp_path_factory.mktemp("bulk"), ("birds",))


def predicted(capsys: pytest.CaptureFixture[str], runs: Path, files: list[str], *options: str) -> str:
    """What `lht predict` prints."""
    capsys.readouterr()
    main(["predict", str(runs / "birds"), *files, "--format", "json", "--accelerator", "cpu", *options])
    return capsys.readouterr().out


def joined(parts: list[dict[str, list[str]]]) -> str:
    return json_text([json.loads(one) for part in parts for one in part["json"] if one]) + "\n"


def test_rows_are_answered_as_lht_predict_does(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(file) for file in sorted((runs / "pictures").rglob("*.png"))] * 2
    blocks = [files[i : i + ROWS] for i in range(0, len(files), ROWS)]
    wanted = predicted(capsys, runs, files, "--confidence", "0.5", "--top", "2")
    answerer = Answerer(str(runs / "birds"), "path", confidence=0.5, top=2)
    found = [answerer({"path": np.array(block, dtype=object)}) for block in blocks]
    assert joined(found) == wanted
    assert found[0]["label"] == [one["answer"]["label"] for one in json.loads(wanted)][:ROWS]
    contents = Answerer(str(runs / "birds"), "content", "path", confidence=0.5, top=2)
    frames = [pd.DataFrame({"path": block, "content": [Path(file).read_bytes() for file in block]}) for block in blocks]
    assert joined([contents(frame) for frame in frames]) == wanted


def test_what_cannot_be_read_is_told_in_its_row(runs: Path, tmp_path: Path) -> None:
    good, bad = next((runs / "pictures").rglob("*.png")), tmp_path / "bad.png"
    bad.write_bytes(b"no picture")
    rows = {"picture": [str(bad), str(good), good.read_bytes(), b"nor this", "nowhere.png"]}
    found = Answerer(str(runs / "birds"))(rows)
    assert [bool(one) for one in found["error"]] == [True, False, False, True, True]
    assert [one is None for one in found["label"]] == [True, False, False, True, True]
    assert found["file"] == [str(bad), str(good), "row 2", "row 3", "nowhere.png"]
    assert found["probability"][1] == found["probability"][2]
    with pytest.raises(ConfigError, match="no column 'picture'; it has path"):
        Answerer(str(runs / "birds"))({"path": []})


def workers_of(driver: int) -> list[int]:
    """The processes that answer for a driver of Ray, which are in its session."""
    listed = subprocess.run(["ps", "-eo", "pid=,sid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [int(pid) for pid, session, args in rows if int(session) == driver and args.startswith("ray::MapWorker")]


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="pip install 'torchlht[ray]'")
def test_ray_answers_as_lht_predict_does_though_a_worker_is_killed(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(file) for file in sorted((runs / "pictures").rglob("*.png"))] * 40
    table, out = tmp_path / "pictures.parquet", tmp_path / "answers.json"
    pd.DataFrame({"path": files}).to_parquet(table)
    command = [sys.executable, str(SCRIPT), str(runs / "birds"), str(table), "--column", "path", "--out", str(out)]
    driver = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(workers_of(driver.pid)) == 2 or driver.poll() is not None, 180)
        os.kill(workers_of(driver.pid)[0], signal.SIGKILL)
        assert driver.wait(240) == 0
    finally:
        driver.kill()
    assert out.read_text(encoding="utf-8") == predicted(capsys, runs, files)
