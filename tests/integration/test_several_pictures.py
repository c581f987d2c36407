"""Pictures with several labels: trained with and without their backbone, answered as sets, kept and opened again."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchlht
from torchlht.answer.several import GraphModel
from torchlht.cli import main
from torchlht.data.pictures import Problem
from torchlht.data.several import read_several
from torchlht.errors import DataError, RunError
from torchlht.lab.birds import SPECIES
from torchlht.lab.pairs import choose_pair, draw_pair, write_pairs
from torchlht.learn.several import evaluate_several

COLOURS = {"Red": (220, 40, 40), "Blue": (40, 60, 220), "Green": (40, 190, 60), "Grey": (150, 150, 150)}
FAMILY = {"Red": "Warm", "Blue": "Cold", "Green": "Cold", "Grey": "Dull"}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures whose halves have two colours; every third second label is known only to its family."""
    folder = tmp_path_factory.mktemp("pairs")
    rng, rows, names = np.random.default_rng(0), ["path,family,species,split"], list(COLOURS)
    for i in range(96):
        first, second = rng.choice(4, 2, replace=False).tolist()
        pixels = np.empty((32, 32, 3))
        pixels[:16], pixels[16:] = COLOURS[names[first]], COLOURS[names[second]]
        Image.fromarray((pixels + rng.normal(0, 8, pixels.shape)).clip(0, 255).astype(np.uint8)).save(folder / f"{i}.png")
        told = names[second] if i % 3 or i >= 80 else ""
        families = f"{FAMILY[names[first]]}|{FAMILY[names[second]]}"
        rows.append(f"{i}.png,{families},{names[first]}|{told},{'test' if i >= 80 else 'train'}")
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n")
    return folder / "pairs.csv"


HOW = ["--backbone", "small", "--image-size", "16", "--workers", "0", "--width", "32", "--quiet"]


def test_a_backbone_learns_and_answers_are_sets(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, picture = tmp_path / "run", str(pairs.parent / "80.png")
    more = ["--epochs", "12", "--batch-size", "8", "--lr", "0.005", "--option", "layers=1", "--augment", "none"]
    main(["train", str(pairs), "--out", str(run), *HOW, *more])
    said = capsys.readouterr().out
    assert "species" in said
    assert "family" in said
    metrics = json.loads((run / "metrics.json").read_text())
    assert [level["name"] for level in metrics["graph_levels"]] == ["family", "species"]
    assert metrics["auprc"] > 0.9
    assert metrics["graph_levels"][1]["exact"] > 0.5
    main(["evaluate", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["auprc"] == pytest.approx(metrics["auprc"])
    main(["evaluate", str(run), str(pairs), "--json"])  # read with the run's classes
    assert json.loads(capsys.readouterr().out)["auprc"] == pytest.approx(metrics["auprc"])

    main(["predict", str(run), picture, "--format", "json"])
    (one,) = json.loads(capsys.readouterr().out)
    assert set(one["levels"].values()) <= {"family", "species"}
    main(["predict", str(run), str(pairs), "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len({row["file"] for row in rows}) == 16  # its test pictures
    assert rows[0].keys() == {"file", "class", "level", "probability", "deepest"}
    main(["predict", str(run), picture])
    deepest = one["answer"][0]
    assert f"{deepest} ({one['levels'][deepest]}, " in capsys.readouterr().out

    model = torchlht.load(run)
    assert isinstance(model, GraphModel)
    with Image.open(picture) as image:
        image.load()
    assert model.predict(image)[0].deepest == model.predict(picture)[0].deepest == tuple(one["answer"])
    assert model.predict([]) == []
    unreadable: list[Problem] = []
    (tmp_path / "bad.png").write_bytes(b"no picture")
    found = model.predict([str(tmp_path / "bad.png"), picture], unreadable=unreadable)
    assert [Path(answer.source).name for answer in found] == ["80.png"]
    assert len(unreadable) == 1
    with pytest.raises(DataError, match="takes pictures"):
        model.predict(np.zeros((2, 3), dtype=np.float32))
    for words, said in (
        (["predict", str(run), str(tmp_path / "bad.png")], "1 of 1 pictures cannot be read"),
        (["predict", str(run), picture, "--top", "2"], "--top is for one label at each level"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2
        assert said in capsys.readouterr().err


def test_a_frozen_backbone_gives_features_once(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = {"backbone": "small", "image_size": 16, "freeze": True, "width": 16, "quiet": True, "workers": 0, "method": "lht"}
    run = torchlht.train(str(pairs), out=tmp_path / "run", **how)
    model = torchlht.load(run.path)
    assert isinstance(model, GraphModel)
    assert model.smoother is not None
    pictures = read_several(pairs).images
    assert pictures is not None
    again = model.predict(list(pictures[:3]))
    assert [Path(one.source).name for one in again] == [Path(str(picture)).name for picture in pictures[:3]]
    monkeypatch.setattr("torchlht.measure.evaluation.features_of", None)  # they are in the cache
    other = torchlht.train(str(pairs), out=tmp_path / "other", **how | {"epochs": 2, "method": "c-hmcnn"})
    assert other.metrics["auprc"] is not None
    main(["evaluate", str(run.path), "--split", "val"])


def answers(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What lht predict prints as JSON, with probabilities to two digits."""
    capsys.readouterr()
    main(["predict", *words, "--format", "json"])
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out, parse_float=lambda text: round(float(text), 2))
    return found


def test_exports_and_reports_see_pictures(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    how = {"backbone": "small", "image_size": 16, "freeze": True, "width": 16, "quiet": True, "workers": 0, "method": "lht"}
    run = torchlht.train(str(pairs), out=tmp_path / "run", option={"shortcut": 0.5}, **how)
    pictures = [str(pairs.parent / f"{i}.png") for i in range(80, 84)]
    main(["export", str(run.path), "--out", str(tmp_path / "run.onnx")])
    own = answers([str(run.path), *pictures], capsys)
    assert answers([str(tmp_path / "run.onnx"), *pictures], capsys) == own
    assert all("levels" in one for one in own)
    card = (tmp_path / "run.onnx.md").read_text()
    precision = run.metrics["graph_levels"][-1]["average_precision"]
    assert f"| species | {100 * precision:.1f} | 4 |" in card
    assert f"with torchlht {torchlht.__version__}:" in card
    assert "method: lht" in card
    assert str(tmp_path) not in card  # no place on this machine
    main(["report", str(run.path)])
    assert "species" in (run.path / "report" / "report.html").read_text()


def test_pictures_of_classes_with_several_parents(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edges = [("Warm", ""), ("Cold", ""), ("Loud", ""), ("Quiet", "")]
    edges += [("Red", "Warm"), ("Red", "Loud"), ("Blue", "Cold"), ("Blue", "Quiet"), ("Green", "Cold"), ("Green", "Loud")]
    dag, data = tmp_path / "dag.csv", tmp_path / "data.csv"
    dag.write_text("\n".join(["name,parent", *map(",".join, edges)]) + "\n")
    rng, rows = np.random.default_rng(1), ["path,label,split"]
    for i in range(48):
        name = ("Red", "Blue", "Green")[i % 3]
        pixels = np.full((32, 32, 3), COLOURS[name]) + rng.normal(0, 8, (32, 32, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{FAMILY[name] if i in (3, 4) else name},{'test' if i >= 36 else 'train'}")
    data.write_text("\n".join(rows) + "\n")
    main(["data", "preview", str(data), "--hierarchy", str(dag), "--out", str(tmp_path / "sheet.png")])
    assert "leaf known 47; of 1 it is not known which one" in capsys.readouterr().out  # Red alone is Warm
    run = str(tmp_path / "run")
    more = ["--epochs", "10", "--batch-size", "8", "--lr", "0.01", "--augment", "none", "--method", "marginal", "--val", "0.2"]
    main(["train", str(data), "--hierarchy", str(dag), "--out", run, *HOW, *more])
    assert json.loads((Path(run) / "metrics.json").read_text())["leaf_accuracy"] > 0.9
    main(["evaluate", run, "--confidence", "0.5"])
    main(["export", run, "--out", run + ".onnx"])
    shown = [str(tmp_path / f"{i}.png") for i in range(36, 40)]
    own = answers([run, *shown, "--confidence", "0.6"], capsys)
    assert answers([run + ".onnx", *shown, "--confidence", "0.6"], capsys) == own
    assert {"leaves", "promise"} <= set(own[0])


def test_a_run_on_pictures_can_be_resumed_to_the_same_weights(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = {"backbone": "small", "image_size": 16, "width": 8, "epochs": 3, "quiet": True, "workers": 0, "batch_size": 16}
    one = torchlht.train(str(pairs), out=tmp_path / "a", **how)
    monkeypatch.setattr("torchlht.learn.several.SECONDS", 0.0)

    def note(text: str, quiet: bool) -> None:
        if text.startswith("epoch 2"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("torchlht.console.note", note)
        with pytest.raises(KeyboardInterrupt):
            torchlht.train(str(pairs), out=tmp_path / "b", **how)
    again = torchlht.train(resume=tmp_path / "b")
    first, second = (GraphModel.load(run.path).state_dict() for run in (one, again))
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, atol=0, rtol=0)


def test_what_does_not_fit_is_refused(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--freeze-stages", "1"], "--freeze-stages has no meaning"),
        (["--method", "marginal"], "use lht, c-hmcnn or flat"),
        (["--option", "shortcut=0.5"], "--shortcut is fitted to features that do not change"),
        (["--option", "gamma=1"], "has no option 'gamma'"),
        (["--backbone", "none"], "is for features"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["train", str(pairs), "--out", str(tmp_path / "no"), *HOW, *words])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    run = torchlht.train(str(pairs), out=tmp_path / "run", backbone="small", image_size=16, epochs=1, quiet=True, workers=0)
    names = read_several(pairs).graph.names
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3), np.float32), nodes=names, y=np.zeros((2, 7), int))
    with pytest.raises(DataError, match="wrong data; this run takes pictures"):
        evaluate_several(run.path, tmp_path / "x.npz")
    config = run.path / "config.yaml"
    config.write_text(config.read_text().replace("backbone: small", "backbone: smallest"))
    with pytest.raises(RunError, match="no model can be built from it"):
        GraphModel.load(run.path)


# ---- demo-pairs --------------------------------------------------------------------------------------------------------


def test_pairs_are_drawn_from_their_seed_with_both_labels(tmp_path: Path) -> None:
    table = write_pairs(tmp_path / "pairs", train=96, test=12, size=16)
    assert write_pairs(tmp_path / "pairs") == table  # as it is
    data = read_several(table)
    assert len(data) == 108
    assert data.levels == ("order", "family", "species")
    ends = data.graph.ends(data.labels)
    species = data.graph.levels == 2
    coarse = (ends & ~species).any(1)
    assert not coarse[data.index("test")].any()
    assert 0.3 < coarse[data.index("train")].mean() < 0.7
    np.testing.assert_array_equal((ends & species).sum(1)[data.index("test")], 2)
    first, again = (draw_pair(3, 9, np.random.default_rng(1), 16) for _ in range(2))
    assert first.size == (32, 32)
    assert first.tobytes() == again.tobytes()
    related = [SPECIES[choose_pair(0, np.random.default_rng(i))][1] == SPECIES[0][1] for i in range(400)]
    assert 0.18 < np.mean(related) < 0.32
