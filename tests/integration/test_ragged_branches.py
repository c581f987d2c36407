"""From data to answers with a tree whose branches end early or skip a level: nowhere is a name of what stands in for them."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import torchlht
from torchlht.cli import main

PATHS = [
    ("Gulls", "Laridae", "Ivory Gull"), ("Gulls", "Laridae", "Herring Gull"), ("Gulls", "Auks", "Puffin"),
    ("Gulls", "Auks", "Razorbill"), ("Gulls", "", "Skua"), ("Loons", "Gaviidae", ""), ("Grebes", "", ""),
]  # fmt: skip
LEVELS = ("order", "family", "species")
EACH = 24


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Features of seven kinds of birds, some labelled down to their family alone, and some wrongly."""
    folder = tmp_path_factory.mktemp("ragged")
    random = np.random.default_rng(0)
    tree = torchlht.Hierarchy.from_paths([tuple(name or None for name in path) for path in PATHS], LEVELS)
    kind = np.repeat(np.arange(len(PATHS)), EACH)
    centres = random.normal(size=(len(PATHS), 16))
    x = (centres[kind] + 0.6 * random.normal(size=(len(kind), 16))).astype(np.float32)
    rows = []
    for i, k in enumerate(kind.tolist()):
        named = PATHS[5 if i in (3, 4) else k]  # two gulls called loons
        named = (*named[:2], "") if i % 6 == 0 and named[1] else named
        rows.append([tree.index(2 - level, name) if name else -1 for level, name in enumerate(named)][::-1])
    names = {
        f"classes_{level}": np.array([n or "" for n in names]) for level, names in zip(tree.levels, tree.names, strict=True)
    }
    y, train = tree.fill(np.array(rows)), np.arange(len(kind)) % 4 != 0
    np.savez(folder / "birds.npz", x=x, y=y, train=train, levels=np.array(tree.levels), **names)
    return folder


def without_stand_ins(text: str | bytes) -> None:
    assert ("(no " if isinstance(text, str) else b"(no ") not in text


def files_without_stand_ins(folder: Path) -> int:
    """All files of a folder, unpacked; returns how many there are."""
    count = 0
    for path in folder.rglob("*"):
        if path.is_file():
            count += 1
            without_stand_ins(path.read_bytes())
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    for name in archive.namelist():
                        without_stand_ins(archive.read(name))
                        without_stand_ins(archive.read(name).decode("utf-32", errors="ignore"))
    return count


def test_no_stand_in_is_named_on_the_way_from_data_to_answers(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)

    def say(*words: str) -> str:
        main(list(words))
        said = capsys.readouterr()
        without_stand_ins(said.out + said.err)
        return said.out

    said = say("data", "preview", "birds.npz")
    assert "order 3 › family 3 › species 5 (2 branches end early, 1 class skips a level)" in said
    assert "where the branch ends 50 " in said
    say("train", "birds.npz", "--method", "lht", "--epochs", "30", "--val", "0.2", "--mask", "0.3", "--out", "run", "--quiet")
    assert say("hierarchy", "show", "run").count("ends here") == 2
    metrics = json.loads((place / "run" / "metrics.json").read_text(encoding="utf-8"))
    assert [(level["classes"], level["samples"]) for level in metrics["levels"]] == [(3, 42), (3, 30), (5, 21)]

    table = say("predict", "run", "birds.npz", "--top", "7")
    assert "(ends)" in table
    assert "(none)" in table
    assert "the branch ends here" in say("predict", "run", "birds.npz", "--confidence", "0.5")
    rows = list(csv.DictReader(io.StringIO(say("predict", "run", "birds.npz", "--format", "csv", "--confidence", "0.5"))))
    loons, grebes = rows[5 * EACH : 6 * EACH], rows[6 * EACH :]
    assert sum((r["family"], r["species"], r["ends_at"]) == ("Gaviidae", "", "family") for r in loons) > 0.8 * EACH
    assert (
        sum(r["answer"] == "Grebes" and r["answer_level"] == "order" and r["ends_at"] == "order" for r in grebes) > 0.8 * EACH
    )
    found = json.loads(say("predict", "run", "birds.npz", "--format", "json", "--confidence", "0.5"))
    ends = [one["answer"] for one in found if one["answer"]["ends"]]
    assert {one["label"] for one in ends} == {"Gaviidae", "Grebes"}
    assert {one["undecided"] for one in ends} == {None}

    say("evaluate", "run", "--confidence", "0.8")
    say("report", "run", "--out", "report")
    say("export", "run", "--out", "run.onnx", "--confidence", "0.5")
    assert "the branch ends here" in say("predict", "run.onnx", "birds.npz")
    say(
        "compare",
        "birds.npz",
        "--methods",
        "flat,marginal",
        "--epochs",
        "2",
        "--seeds",
        "2",
        "--mask",
        "0",
        "--out",
        "compared",
    )
    say("next", "birds.npz", "--budget", "3")
    say("audit", "birds.npz", "--out", "doubts", "--all", "--quiet")
    say("audit", "apply", "doubts", "--out", "doubts/better.npz")
    say("data", "preview", "doubts/better.npz")
    with (place / "doubts" / "labels.csv").open(encoding="utf-8", newline="") as file:
        doubted = list(csv.DictReader(file))
    assert [r["given"] for r in doubted[:2]] == ["Gaviidae", "Gaviidae"]  # the gulls that were called loons
    assert {r["level"] for r in doubted if r["given"] in ("Gaviidae", "Grebes")} == {"family", "order"}
    assert files_without_stand_ins(place) > 20


def test_pictures_with_a_ragged_tree_are_packed_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[tuple[Any, ...]] = [("path", *LEVELS)]
    for k, path in enumerate(PATHS):
        for i in range(2):
            Image.new("RGB", (8, 8), (30 * k, 90, 60 * i)).save(tmp_path / f"{k}-{i}.png")
            rows.append((f"{k}-{i}.png", *path))
    (tmp_path / "birds.csv").write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    main(["data", "pack", str(tmp_path / "birds.csv"), "--out", str(tmp_path / "shards")])
    main(["data", "preview", str(tmp_path / "shards"), "--out", str(tmp_path / "sheet.png")])
    said = capsys.readouterr().out
    assert said.count("(2 branches end early, 1 class skips a level)") == 2
    assert "labelled down to species 10 · where the branch ends 4 " in said
    assert torchlht.read_data(tmp_path / "shards").hierarchy == torchlht.read_data(tmp_path / "birds.csv").hierarchy
    without_stand_ins(said)
    assert files_without_stand_ins(tmp_path / "shards") == 3
