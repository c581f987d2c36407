"""Every kind of data that others write goes the whole way: preview, train, predict, evaluate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kinds import bird_rows, write_archive, write_coco, write_flat, write_hub, write_inat, write_parquet, write_splits
from torchlht import cli

PLACES: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "datasets": (lambda folder: write_splits(folder / "birds"), []),
    "hub": (lambda folder: write_hub(folder / "birds"), []),
    "parquet": (lambda folder: write_parquet(folder / "birds.parquet", bird_rows(36)), []),
    "coco": (lambda folder: write_coco(folder / "birds"), ["--levels", "order,family,species"]),
    "inat": (write_inat, []),
    "archive": (lambda folder: write_archive(folder / "birds"), ["--levels", "order,family,species"]),
    "flat": (write_flat, ["--hierarchy", "tree.csv"]),
}
QUICK = ["--backbone", "small", "--image-size", "24", "--epochs", "2", "--accelerator", "cpu", "--no-track", "--quiet"]


@pytest.mark.parametrize("kind", PLACES)
def test_from_data_to_answers(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write, tree = PLACES[kind]
    data = str(write(tmp_path))
    cli.main(["data", "preview", data, *tree, "--out", "sheet.png"])
    said = capsys.readouterr().out
    assert "contact sheet: sheet.png" in said
    assert "unreadable" not in said
    workers = ["--workers", "2" if kind in ("hub", "coco") else "0"]
    cli.main(["train", data, *tree, *QUICK, *workers, "--val", "0.2", "--out", "run"])
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["levels"]
    capsys.readouterr()
    cli.main(["predict", "run", data if kind != "flat" else f"{data}/test", "--format", "json"])
    answers = json.loads(capsys.readouterr().out)
    assert len(answers["predictions"] if isinstance(answers, dict) else answers) >= 12
    cli.main(["evaluate", "run", data])
    assert metrics["levels"][-1]["name"] in capsys.readouterr().out
