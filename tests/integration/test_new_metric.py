"""A metric that is added to the register appears everywhere, and runs from before it stay usable."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from torchlht import console
from torchlht.cli import main
from torchlht.lab.comparison.results import read_results
from torchlht.measure.metrics import REGISTER, Counts, metric
from torchlht.show import terminal

GOLDEN = Path(__file__).parents[1] / "golden"


class Surprise(Metric):
    """How unlikely the true class was held to be."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, log_probs: Tensor, labels: Tensor) -> None:
        """(B, C), (B,)"""
        said = -log_probs.gather(1, labels.unsqueeze(1)).double()
        self.total += torch.stack([said.sum(), torch.tensor(len(labels), dtype=torch.float64)])

    def compute(self) -> Tensor:
        """The mean."""
        return self.total[0] / self.total[1]


def never_answered(counts: Counts) -> Tensor:
    """The share of true classes that is never answered."""
    return ((counts.true > 0) & (counts.said == 0)).sum() / (counts.true > 0).sum()


@pytest.fixture
def added() -> Iterator[None]:
    """Two metrics more: one in a unit of its own, one in percent."""
    before = dict(REGISTER)
    metric("surprise", "surprise", per="level", better="lower", unit="nats")(Surprise)
    metric("never_answered", "never answered", per="level", better="lower")(never_answered)
    yield
    REGISTER.clear()
    REGISTER.update(before)


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what an earlier version wrote, to work in."""
    folder = tmp_path / "golden"
    shutil.copytree(GOLDEN, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(console.out, "width", 160)  # so that headings are not broken
    return folder


def test_an_old_comparison_goes_on_with_blanks_where_a_new_metric_was_not_measured(added: None, golden: Path, capsys) -> None:
    old = read_results(golden / "compare")
    assert old.get(old.methods[0], 0.5, "surprise") == []
    header = (golden / "compare" / "results.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    words = ["compare", "birds.npz", "--methods", "flat:width=8,lht:width=8", "--mask", "0.5", "--seeds", "3", "--epochs", "2"]
    main([*words, "--jobs", "1", "--out", "compare", "--resume"])
    rows = list(csv.DictReader((golden / "compare" / "results.csv").read_text(encoding="utf-8").splitlines()))
    assert list(rows[0])[: len(header)] == header
    assert list(rows[0])[-2:] == ["surprise", "never_answered"]
    for name in ("surprise", "never_answered"):
        assert {row["seed"] for row in rows if row[name]} == {"2"}, "only the last seed was trained with it"
        assert {row["seed"] for row in rows if not row[name]} == {"0", "1"}
    found = read_results(golden / "compare")
    [told] = found.get("lht:width=8", 0.5, "surprise")
    table = (golden / "compare" / "table.md").read_text(encoding="utf-8")
    assert " | surprise, nats | never answered | severity |" in table
    assert f"| {told:.2f} |" in table
    assert "mACC" in capsys.readouterr().out


def test_an_old_run_has_a_dash_on_screen_and_the_figure_when_it_is_measured_again(added: None, golden: Path, capsys) -> None:
    kept = json.loads((golden / "runs" / "lht" / "metrics.json").read_text(encoding="utf-8"))
    assert list(terminal.metrics_table(kept).columns[-3].cells) == ["–"] * 3
    main(["evaluate", "runs/lht"])
    said = capsys.readouterr().out
    assert " ┃ surprise, nats ┃ never answered ┃ classes" in said
    assert "–" not in said
    main(["report", "runs/lht", "--out", "report", "--compare", "runs/flat"])
    page = (golden / "report" / "report.html").read_text(encoding="utf-8")
    for text in ("surprise, nats", "Never answered: the share of true classes that is never answered.", "AUC: how well"):
        assert text in page


def test_a_new_run_has_the_figure_in_its_file_and_on_screen(added: None, golden: Path, capsys) -> None:
    main(["train", "birds.npz", "--epochs", "1", "--out", "new", "--quiet"])
    levels = json.loads((golden / "new" / "metrics.json").read_text(encoding="utf-8"))["levels"]
    assert all(level["surprise"] > 0 and 0 <= level["never_answered"] <= 1 for level in levels)
    assert "surprise, nats" in capsys.readouterr().out
