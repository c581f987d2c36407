"""The example and the page for scikit-learn's users are true, and the command line reports on what was fitted in Python."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import torchlht
from conftest import LEVELS
from frames import X_NEW, X, Y, features, partly
from torchlht.cli import main
from torchlht.sklearn import HierarchicalClassifier

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sklearn_birds.py"


def test_from_a_frame_with_blanks_to_answers_in_fifteen_lines(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, *cells = EXAMPLE.read_text(encoding="utf-8").split("# %% ")
    assert sum(len([line for line in cell.splitlines()[1:] if line.strip()]) for cell in cells) <= 15
    found = runpy.run_path(str(EXAMPLE))
    answers, truth = found["answers"], found["truth"]
    assert 0.3 < (answers["species"] != "").mean() < 1
    assert (answers["order"] != "").mean() > 0.9
    right = ((answers == truth) | (answers == "")).all(axis=1).mean()
    assert right > 0.85
    assert re.search(rf"{right:.0%} of the answers are right", capsys.readouterr().out)


def test_the_page_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8"), re.DOTALL)
    x, y = np.concatenate([features(seed) for seed in range(2, 8)]), np.concatenate([partly()] * 6)
    given = {"X": x, "X_new": X_NEW, "frame": pd.DataFrame(y, columns=LEVELS), "y_new": Y}
    assert len(blocks) == 4
    for block in blocks:
        exec(block, given)
    assert list(given["model"].scores(X_NEW, Y)) == list(LEVELS)
    assert (given["same"].predict(X_NEW) == given["model"].predict(X_NEW)).all()


def test_test_samples_are_kept_for_evaluate_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = HierarchicalClassifier(epochs=40, random_state=0, options={"width": 24}, val=0.3).fit(X, Y)
    run = fitted.save(tmp_path / "run", X_NEW, partly())
    found = torchlht.evaluate(run)["consistent"]["levels"]
    assert {level["name"]: level["accuracy"] for level in found} == pytest.approx(fitted.scores(X_NEW, partly()))
    main(["report", str(run)])
    assert (run / "report" / "report.html").is_file()
    assert "report.html" in capsys.readouterr().out
