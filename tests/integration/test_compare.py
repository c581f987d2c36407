"""A comparison end to end: it is killed, goes on, recomputes nothing that was finished, and keeps its word about options."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchlht.cli import main


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

    main([*words, "--resume"])
    assert {path: path.stat().st_mtime_ns for path in finished} == finished, "a finished run was computed again"
    rows = list(csv.DictReader((out / "results.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 2 * 3
    assert {row["level"] for row in rows} == {"order", "family", "species"}
    said = capsys.readouterr().out
    assert "points at species (2 seeds, paired)" in said
    assert "next: lht predict" in said
    assert (out / "table.md").read_text().startswith("| masked | method | order | family | species | mACC |")
