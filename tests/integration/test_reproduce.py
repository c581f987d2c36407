"""`lht reproduce`, whole: tables beside the paper's, pictures, going on after an interruption, archives and features."""

from __future__ import annotations

import csv
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchlht.cli import main
from torchlht.errors import RunError
from torchlht.files import cache_dir
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.prepare import BENCHMARKS
from torchlht.lab.options import ReproduceArgs
from torchlht.lab.reproduction.experiments import MEDIUM
from torchlht.lab.reproduction.running import reproduce

CUB = Hierarchy.read(Path(__file__).parents[2] / "src/torchlht/trees/cub.json")
DIAGNOSES = ["NV", "MEL", "BKL", "DF", "VASC", "BCC", "AKIEC"]
NATURES = ["melanocytic benign", "melanocytic malignant", "benign", "malignant"]


def features(folder: Path, per_class: int = 20) -> Path:
    """Features of the seven diagnoses, easy to tell apart."""
    rng = np.random.default_rng(0)
    leaf = np.repeat(np.arange(7), per_class)
    nature = np.array([0, 1, 2, 2, 2, 3, 3])[leaf]
    np.savez(
        folder / "skin.npz",
        x=(2 * rng.normal(size=(7, 8))[leaf] + rng.normal(size=(len(leaf), 8))).astype(np.float32),
        y=np.stack([leaf, nature, nature // 2], axis=1),
        train=np.arange(len(leaf)) % 4 > 0,
        levels=np.array(["diagnosis", "nature", "origin"]),
        classes_diagnosis=np.array(DIAGNOSES),
        classes_nature=np.array(NATURES),
    )
    return folder / "skin.npz"


def quick(name: str, root: Path, out: Path, **options: object) -> ReproduceArgs:
    settings = {"seeds": 1, "epochs": 1, "jobs": 1, **options}
    return ReproduceArgs(name, root, out=out, **settings)  # type: ignore[arg-type]


def table(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "table.csv").read_text(encoding="utf-8").splitlines()))


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The birds' archive with two small pictures of each species, and made-up attributes."""
    base = tmp_path / "CUB_200_2011"
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8))
    lines: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": [], "classes": []}
    for j, name in enumerate(sorted(CUB.classes[0])):
        (base / "images" / name).mkdir(parents=True)
        lines["classes"].append(f"{j + 1} {name}")
        for i in (0, 1):
            number = 2 * j + i + 1
            picture.save(base / "images" / name / f"{i}.jpg")
            lines["images"].append(f"{number} {name}/{i}.jpg")
            lines["image_class_labels"].append(f"{number} {j + 1}")
            lines["train_test_split"].append(f"{number} {i}")
    for name, text in lines.items():
        (base / f"{name}.txt").write_text("\n".join(text) + "\n")
    (base / "attributes").mkdir()
    random = np.random.default_rng(1).uniform(0, 100, (200, 12))
    np.savetxt(base / "attributes" / "class_attribute_labels_continuous.txt", random)
    monkeypatch.setitem(BENCHMARKS, "cub", dataclasses.replace(BENCHMARKS["cub"], splits={"train": 200, "test": 200}))
    return base


def test_recall_of_each_class_stands_beside_the_papers(tmp_path: Path) -> None:
    out = reproduce(quick("isic-recall", features(tmp_path), tmp_path / "out", epochs=8))
    rows = {(row["setting"], row["method"], row["level"]): row for row in table(out)}
    assert {level for _, _, level in rows} == {*DIAGNOSES, "average"}
    few = [row for row in rows.values() if row["setting"] == "20% labelled only"]
    assert {row["level"]: row["paper"] for row in few}["MEL"] == "42.4"
    assert rows["R=80", "lht-paper:confusion_weight=0.01", "average"]["paper"] == "82.4"
    assert rows["R2=80", "lht", "DF"]["paper"] == "", "ours has no row in the paper"
    for setting in ("R=80", "R2=80"):
        recalls = [float(rows[setting, "lht", name]["mean"]) for name in DIAGNOSES]
        assert float(rows[setting, "lht", "average"]["mean"]) == pytest.approx(np.mean(recalls), abs=0.01)


def test_the_five_metrics_are_the_runs_own(tmp_path: Path) -> None:
    out = reproduce(quick("isic-metrics", features(tmp_path), tmp_path / "out", epochs=2))
    rows = table(out)
    assert {row["metric"] for row in rows} == {"precision", "recall", "accuracy", "F1", "AUC"}
    assert len([row for row in rows if row["paper"]]) == 60
    kept = next(csv.DictReader((out / "R-80" / "results.csv").read_text().splitlines()))
    assert kept["method"] == "hd-cnn"
    assert kept["level"] == "origin"
    assert "## The paper's order and ours" in (out / "table.md").read_text()


def test_a_sweep_is_drawn_and_goes_on_without_training_anything_twice(tmp_path: Path, capsys) -> None:
    data, out = features(tmp_path), tmp_path / "out"
    options = ["--out", str(out), "--seeds", "1", "--epochs", "1", "--jobs", "1"]
    main(["reproduce", "rank-sweep", "--root", str(data), *options])
    assert "lht-paper:rank=2" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"R-90", "table.csv", "table.md", "sweep.png"}
    before = {path: path.stat().st_mtime_ns for path in out.glob("R-90/runs/*/metrics.json")}
    assert len(before) == 10
    text = (out / "table.md").read_text()
    assert "$ lht reproduce rank-sweep --root skin.npz --scale small --seeds 1 --epochs 1" in text
    with pytest.raises(RunError, match="add resume"):
        reproduce(quick("rank-sweep", data, out))
    reproduce(quick("rank-sweep", data, out, resume=True))
    assert {path: path.stat().st_mtime_ns for path in out.glob("R-90/runs/*/metrics.json")} == before
    assert (out / "table.md").read_text() == text


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("confusion-matrix-cub", {"confusion.png"}),
        ("transitions-cub", {"transitions-lht-paper.png", "transitions-lht.png"}),
        ("gamma-cub", {"gamma-lht-paper.png", "gamma-lht.png"}),
    ],
)
def test_figures_are_drawn_from_the_runs(tmp_path: Path, name: str, written: set[str]) -> None:
    out = reproduce(quick(name, features(tmp_path), tmp_path / "out", epochs=2))
    assert {path.name for path in out.glob("*.png")} == written
    for picture in written:
        assert f"({picture})" in (out / "table.md").read_text()
        with Image.open(out / picture) as image:
            assert min(image.size) > 150


def test_the_modes_of_the_perturbed_tree_are_parts_of_one_table(tmp_path: Path) -> None:
    rows = table(reproduce(quick("perturbed", features(tmp_path), tmp_path / "out")))
    assert list(dict.fromkeys(row["setting"] for row in rows)) == [
        f"{kind}, R=0" for kind in ("unperturbed", "renamed", "stale_prior", "rewired")
    ]
    assert not any(row["paper"] for row in rows), "the paper's are of aircraft"


def test_an_archive_is_prepared_and_its_pictures_are_shown(archive: Path, tmp_path: Path) -> None:
    before = sorted(archive.rglob("*"))
    out = reproduce(quick("grad-cam-cub", archive, tmp_path / "out", backbone="small"))
    assert {path.name for path in out.glob("*.png")} == {"grad-cam-lht-paper.png", "grad-cam-lht.png"}
    tree = Hierarchy.read(out / "data" / "hierarchy.json")
    assert tree.classes[2][tree.ancestors(2)[tree.index(0, "084.Red_legged_Kittiwake")]] == "Coraciiformes", "as published"
    assert sorted(archive.rglob("*")) == before


def test_what_needs_no_training_is_drawn_from_the_archive(archive: Path, tmp_path: Path) -> None:
    out = reproduce(quick("attributes-cub", archive.parent, tmp_path / "out"))
    assert {path.name for path in out.iterdir()} == {"attributes.png", "data", "table.md"}
    assert "same family: " in (out / "table.md").read_text()


def test_low_resolution_is_half_the_size_at_small_scale(archive: Path, tmp_path: Path) -> None:
    out = reproduce(quick("low-resolution-cub", archive, tmp_path / "out", backbone="small"))
    config = (out / "R-0" / "runs" / "lht-R0-s0" / "config.yaml").read_text()
    assert "size: 112" in config
    assert [row["paper"] for row in table(out) if row["level"] == "species"] == ["78.0", "79.9", "", ""]


def test_medium_scale_trains_on_a_subset_and_on_all_and_goes_on(archive: Path, tmp_path: Path, monkeypatch) -> None:
    tiny = {"freeze_stages": 2, "views": 2, "image_size": 16, "precision": "32-true", "epochs": 1}
    for name, value in tiny.items():
        monkeypatch.setitem(MEDIUM, name, value)
    options = {"scale": "medium", "backbone": "small"}
    out = reproduce(quick("cub-main", archive, tmp_path / "out", parts="subset-R-90", **options))
    assert len(list((cache_dir() / "views").iterdir())) == 3, (
        "runs share them: two views, and the test samples as answers see them"
    )
    text = (out / "table.md").read_text()
    assert "--scale medium --parts subset-R-90" in text
    assert re.search(r"- subset-R-90: 90% masked, species: .* \(± in points, from 59 test samples alone", text)
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/runs/*/metrics.json")}
    assert len(before) == 8
    out = reproduce(quick("cub-main", archive, tmp_path / "out", parts="subset-R-90,all-R-90", resume=True, **options))
    runs = {path: path.stat().st_mtime_ns for path in out.glob("*/runs/*/metrics.json")}
    assert len(runs) == 16
    assert before.items() <= runs.items(), "nothing is trained twice"
    rows = table(out)
    assert {row["setting"] for row in rows} == {"subset, R=90", "all, R=90"}
    papers = {row["paper"] for row in rows if row["method"] == "fgon" and row["level"] == "species"}
    assert papers == {"63.8"}, "of all birds, beside both"
    assert all(float(row["mean"]) > 0 for row in rows if row["metric"] == "seconds of training")


def test_low_shot_on_other_classes_has_nothing_of_the_papers_beside_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    leaf = np.repeat(np.arange(170), 8)
    x = (rng.normal(size=(170, 6))[leaf] + 0.3 * rng.normal(size=(len(leaf), 6))).astype(np.float32)
    names = np.array([f"{a}{b} bird" for a in "abcdefghijklmnopq" for b in "rstuvwxyzo"])
    np.savez(
        tmp_path / "x.npz",
        x=x,
        y=leaf[:, None],
        train=np.ones(len(leaf), dtype=bool),
        levels=np.array(["class"]),
        classes_class=names,
    )
    out = reproduce(quick("lowshot-ilsvrc", tmp_path / "x.npz", tmp_path / "out"))
    rows = table(out)
    assert {row["method"] for row in rows} == {"nn", "sgm", "ppa", "lsd", "kt", "lht"}
    assert {row["setting"] for row in rows} == {f"K={k}" for k in range(1, 6)}
    assert not any(row["paper"] for row in rows)
