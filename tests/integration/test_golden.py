"""Artefacts of an earlier version are read, answer as they did, and go on where they were; see tests/golden/make.py."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Set
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import torchlht
from torchlht.cli import main
from torchlht.heads.prediction import RULES

GOLDEN = Path(__file__).parents[1] / "golden"
TIMES = {"train_seconds", "seconds_per_step", "seconds", "images_per_second"}
SETTLED = {"hierarchical_distance", "information"}  # they ignored the answer that was given, and counted wrong ones
CAPPED = {  # by a rule that answers a path, a probability was not yet capped at that of its parent
    "calibrate-lht": {name for name, rule in RULES.items() if rule.consistent},
    "evaluate-answers": {"answers"},
    "predict-only": {"probability", "path_probabilities", "candidates", "runners_up"},
}
EXPECTED = sorted(path.stem for path in (GOLDEN / "expected").iterdir())
RUNS = sorted(path.name for path in (GOLDEN / "runs").iterdir())


@pytest.fixture
def golden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy to work in, since artefacts know their data by relative paths and some commands write."""
    folder = tmp_path / "golden"
    shutil.copytree(GOLDEN, folder)
    monkeypatch.chdir(folder)
    return folder


def assert_same(found: Any, expected: Any, where: str = "", but: Set[str] = frozenset()) -> None:
    """Equal, floats to 1e-5; something may be added to a mapping. Times, figures settled since and `but` are passed over."""
    if isinstance(expected, dict):
        assert expected.keys() <= found.keys(), where
        for key in expected.keys() - TIMES - SETTLED - but:
            assert_same(found[key], expected[key], f"{where}/{key}", but)
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{where}/{i}", but)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1e-5), where
    else:
        assert found == expected, where


def with_kinds(calibration: Any) -> Any:
    """A calibration as it is written now, each level with its kind: once all had one in common. Anything else as it is."""
    if not isinstance(calibration, dict) or "kind" not in calibration:
        return calibration
    kind = {"kind": calibration["kind"]}
    rest = {key: value for key, value in calibration.items() if key != "kind"}
    return rest | {"levels": [level | kind for level in calibration["levels"]]}


def read_rows(file: Path) -> list[dict[str, Any]]:
    """A table whose numbers are numbers."""

    def value(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    with file.open(encoding="utf-8", newline="") as lines:
        return [{name: value(text) for name, text in row.items()} for row in csv.DictReader(lines)]


def accuracies_and_quality(file: Path) -> tuple[str, list[dict[str, str]]]:
    """Of a table.md the table of accuracies, and the rows of the table along the tree, to which columns may be added."""
    text = file.read_text(encoding="utf-8").partition("## Cost")[0]
    accuracies, _, quality = text.partition("## Along the tree")
    header, _, *rows = [line.strip("| ").split(" | ") for line in quality.splitlines() if line.startswith("|")]
    table = "\n".join(line for line in accuracies.splitlines() if line.startswith("|"))
    return table, [dict(zip(header, row, strict=True)) for row in rows]


def read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def written(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """All files of a folder, when they were written and what is in them."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


# ---- answers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPECTED)
def test_a_command_prints_what_it_printed(name: str, golden: Path, capsys) -> None:
    expected = read_json(golden / "expected" / f"{name}.json")
    words = expected["command"]
    main([*words, "--rule", "own"] if words[0] == "predict" and "--rule" not in words else words)  # it was the default once
    said = capsys.readouterr().out
    if isinstance(expected["output"], str):
        assert said == expected["output"]
    else:
        assert_same(json.loads(said), with_kinds(expected["output"]), but=CAPPED.get(name, set()))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_measured_as_when_it_ended(name: str, golden: Path) -> None:
    run = golden / "runs" / name
    kept, found = read_json(run / "metrics.json"), torchlht.evaluate(run)
    ended = {"selection", "validation", "propagated", "parameters", "rules"} | TIMES
    assert_same(found, {key: value for key, value in kept.items() if key not in ended})
    assert torchlht.load(run).method.parameter_count() == kept["parameters"]


def test_every_method_that_there_was_is_there() -> None:
    kept = {path.name for path in (GOLDEN / "runs").iterdir()} - {"truncated", "paper", "semi", "rules", "linear", "pictures"}
    assert kept <= set(torchlht.list_methods())


def test_a_calibration_is_read_and_written_as_it_was(golden: Path) -> None:
    before = with_kinds(read_json(golden / "runs" / "lht" / "calibration.json"))
    model = torchlht.load("runs/lht")
    assert model.calibration is not None
    assert model.calibration.temperatures == tuple(level["temperature"] for level in before["levels"][::-1])
    model.save_pretrained(golden / "again")
    assert read_json(golden / "again" / "calibration.json") == before
    assert (golden / "again" / "hierarchy.json").read_bytes() == (golden / "hierarchy.json").read_bytes()
    again, first = (load_file(golden / folder / "model.safetensors") for folder in ("again", "runs/lht"))
    assert again.keys() == first.keys()
    assert all(torch.equal(again[name], first[name]) for name in first)


def test_shards_are_read_as_the_pictures_they_were_made_from(golden: Path) -> None:
    shards, pictures = torchlht.read_data("shards"), torchlht.read_data("pictures/pictures.csv")
    assert shards.hierarchy == pictures.hierarchy
    assert shards.labels.tolist() == pictures.labels.tolist()
    assert shards.split.tolist() == pictures.split.tolist()
    assert shards.keys == pictures.keys


def test_a_report_is_written_about_a_run(golden: Path) -> None:
    main(["report", "runs/lht", "--out", "report"])
    page = (golden / "report" / "report.html").read_text(encoding="utf-8")
    assert "Black-legged Kittiwake" in page


# ---- training ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in (GOLDEN / "cut").iterdir()))
def test_an_unfinished_run_ends_as_it_would_have(name: str, golden: Path) -> None:
    """Between epochs, with the best epoch kept aside; and inside of one, with targets for unknown labels."""
    main(["train", "--resume", f"cut/{name}", "--quiet", "--accelerator", "cpu", "--workers", "0"])
    cut, whole = golden / "cut" / name, golden / "whole" / name
    assert_same(read_json(cut / "metrics.json"), read_json(whole / "metrics.json"))
    assert_same(read_rows(cut / "history.csv"), read_rows(whole / "history.csv"))
    since = {"novelty.safetensors", "outcomes.npz"}  # were not written then
    assert {path.name for path in cut.iterdir()} - since == {path.name for path in whole.iterdir()}
    found, expected = (load_file(run / "model.safetensors") for run in (cut, whole))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["lht", "hiclass", "semi", "rules", "paper", "pictures"])
def test_a_run_with_the_same_options_ends_the_same(name: str, golden: Path) -> None:
    """Its config.yaml is read as that of a run that was killed before the first checkpoint."""
    old, new = golden / "runs" / name, golden / "new"
    new.mkdir()
    for file in ("config.yaml", "hierarchy.json", "split.json"):
        shutil.copy(old / file, new / file)
    main(["train", "--resume", "new", "--quiet", "--accelerator", "cpu", "--workers", "0"])
    assert_same(read_json(new / "metrics.json"), read_json(old / "metrics.json"))
    assert_same(read_rows(new / "history.csv"), read_rows(old / "history.csv"))


def test_a_comparison_goes_on_with_its_last_seed(golden: Path, capsys) -> None:
    words = ["compare", "birds.npz", "--methods", "flat:width=8,lht:width=8", "--mask", "0.5", "--seeds", "3", "--epochs", "2"]
    before, rows = written(golden / "compare" / "runs"), read_rows(golden / "compare" / "results.csv")
    assert len(rows) == 2 * 3 * 3
    assert len(list(Path("compare/runs").iterdir())) == 4
    main([*words, "--jobs", "1", "--out", "compare", "--resume"])
    after = written(golden / "compare" / "runs")
    assert {path: after[path] for path in before} == before, "a finished run was computed again"
    assert len(list(Path("compare/runs").iterdir())) == 6
    assert_same(read_rows(golden / "compare" / "results.csv"), rows)
    old_rows = [row for row in rows if row["seed"] < 2]
    found = [{name: row[name] for name in rows[0]} for row in read_rows(golden / "compare" / "results.csv")]
    assert [row for row in found if row["seed"] < 2] == old_rows  # times as well
    told, tables = zip(*(accuracies_and_quality(folder / "compare" / "table.md") for folder in (GOLDEN, golden)), strict=True)
    assert told[0] == told[1].replace(" (n = 48)", "")
    assert [{name: row[name] for name in tables[0][0]} for row in tables[1]] == tables[0]
    assert "flat:width=8" in capsys.readouterr().out


def test_a_low_shot_measurement_is_gone_on_with(golden: Path) -> None:
    words = ["lowshot", "birds.npz", "--methods", "nn,ppa,lht:width=8", "--target", "3", "--groups", "2", "--shots", "1,2"]
    words += ["--draws", "2", "--top", "1", "--epochs", "2", "--batch-size", "16", "--ppa-steps", "20", "--out", "lowshot"]
    before = written(golden / "lowshot" / "runs")
    (golden / "lowshot" / "table.md").unlink()
    main([*words, "--resume"])
    assert written(golden / "lowshot" / "runs") == before, "a finished run was computed again"
    assert_same(read_rows(golden / "lowshot" / "lowshot.csv"), read_rows(GOLDEN / "lowshot" / "lowshot.csv"))
    found, expected = ((folder / "lowshot" / "table.md").read_text().splitlines() for folder in (golden, GOLDEN))
    assert [line for line in found if line.startswith("|")] == [line for line in expected if line.startswith("|")]
