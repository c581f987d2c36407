"""Labels as files: what lht label export writes is what lht reads, and nothing in the data changes."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from torchlht.cli import main
from torchlht.data.samples import Samples, read_data
from torchlht.errors import ConfigError, DataError
from torchlht.serve.label.desk import Desk, Given
from torchlht.serve.label.exporting import export_labels
from torchlht.serve.label.journal import Begin, What, opened
from torchlht.serve.label.reading import Source, read_doubts, replayed

TABLE = """path,order,family,species,split
a.png,Charadriiformes,Laridae,Ivory Gull,train
b.png,Charadriiformes,Laridae,,train
c.png,Charadriiformes,Alcidae,Puffin,test
d.png,,,,train
e.png,Passeriformes,,,train
f.png,Charadriiformes,,,train
g.png,Charadriiformes,Laridae,Ivory Gull,train
"""


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A table with a branch that ends at the order, and a journal about it."""
    (tmp_path / "birds.csv").write_text(TABLE)
    for name in "abcdefg":
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    source = Source(str(tmp_path / "birds.csv"))
    with opened(source.folder(), Begin(format=1, data="birds", levels=["order", "family", "species"])) as (journal, entries):
        samples = source.read()
        desk = Desk(samples, replayed(samples, entries), journal)

        def say(key: str, what: What, name: str | None = None, level: int = 0) -> None:
            i = desk.state.keys.index(key)
            node = None if name is None else desk.state.taxonomy.find(level, name)
            desk.answer(Given([(i, int(desk.state.version[i]))], what, node, "ann"))

        family = desk.state.taxonomy.find(1, "Laridae")
        assert family is not None
        desk.add_class(family, "=Sabine's Gull", "ann")
        say("b.png", "label", "=Sabine's Gull", 2)
        say("d.png", "only", "Laridae", 1)
        say("f.png", "wrong_picture")
        say("g.png", "not_in_tree")
        say("e.png", "cant_tell")
    return source


def names(samples: Samples) -> dict[str, list[str]]:
    tree = samples.hierarchy
    found = {}
    for key, row in zip(samples.keys, samples.labels.tolist(), strict=True):
        classes = [tree.classes[k][row[k]] if row[k] >= 0 else "" for k in tree.top_down]
        found[Path(key).name] = ["" if "(no " in name else name for name in classes]
    return found


EXPECTED = {
    "a.png": ["Charadriiformes", "Laridae", "Ivory Gull"],
    "b.png": ["Charadriiformes", "Laridae", "=Sabine's Gull"],
    "c.png": ["Charadriiformes", "Alcidae", "Puffin"],
    "d.png": ["Charadriiformes", "Laridae", ""],
    "e.png": ["Passeriformes", "", ""],
}


@pytest.mark.parametrize(("to", "name"), [("csv", "x.csv"), ("darwin-core", "x.csv"), ("label-studio", "x.json")])
def test_what_is_written_is_read_again(source: Source, tmp_path: Path, to: str, name: str) -> None:
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    (tmp_path / "elsewhere").mkdir()
    written = export_labels(source, tmp_path / "elsewhere" / name, to)  # type: ignore[arg-type]
    samples = read_data(written.path)
    gone = {} if to == "csv" else {"f.png": ["", "", ""], "g.png": ["", "", ""]}
    assert names(samples) == EXPECTED | gone
    assert [samples.hierarchy.levels[k] for k in samples.hierarchy.top_down] == ["order", "family", "species"]
    assert samples.split[[Path(key).name for key in samples.keys].index("c.png")] == "test"
    assert samples.images is not None
    assert all(Path(str(picture)).is_file() for picture in samples.images)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()} == before
    assert any("=Sabine's Gull" in note for note in written.notes)


def test_who_said_what_and_when_goes_along(source: Source, tmp_path: Path) -> None:
    path = export_labels(source, tmp_path / "dwc.csv", "darwin-core").path
    rows = {row["occurrenceID"]: row for row in csv.DictReader(io.StringIO(path.read_text()))}
    assert (rows["d.png"]["scientificName"], rows["d.png"]["taxonRank"]) == ("Laridae", "family")
    assert (rows["d.png"]["identifiedBy"], rows["d.png"]["identificationRemarks"]) == ("ann", "not further from this picture")
    assert rows["a.png"]["identifiedBy"] == ""
    tasks = json.loads(export_labels(source, tmp_path / "ls.json").path.read_text())
    choices = [result["value"].get("choices") for result in tasks[5]["annotations"][0]["result"]]
    assert choices == [["wrong_picture"]]


def test_the_command_and_what_it_refuses(
    source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["label", "export", "birds.csv"])
    said = capsys.readouterr().out
    assert "left out: 2 that are not in the tree, or are the wrong picture" in said
    assert "written to birds-labelled.csv: 5 samples, 3 by answers" in said
    assert "next: lht train birds-labelled.csv" in said
    with pytest.raises(ConfigError, match="is the data itself"):
        export_labels(source, tmp_path / "birds.csv")
    with pytest.raises(ConfigError, match="holds pictures"):
        export_labels(source, tmp_path / "x.npz")
    with pytest.raises(DataError, match="no journal there"):
        export_labels(Source(source.data, journal=tmp_path / "none"))


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt])
def test_lht_label_says_what_comes_next_however_it_was_ended(
    ends: type[BaseException] | None, source: Source, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchlht.serve.label.serving.serve", Mock(side_effect=ends))
    main(["label", source.data, "--no-browser"])
    assert "every answer is saved; next: lht label export" in capsys.readouterr().out


def test_features_are_written_with_their_labels(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    y = np.array([[0, 0], [1, 0], [2, 1], [-1, -1], [-1, 1], [-1, -1]])
    np.savez(tmp_path / "f.npz", x=x, y=y, train=np.array([True] * 5 + [False]), levels=np.array(["species", "family"]))
    source = Source(str(tmp_path / "f.npz"))
    with opened(source.folder(), Begin(format=1, data="f", levels=["family", "species"])) as (journal, entries):
        desk = Desk(source.read(), replayed(source.read(), entries), journal)
        node = desk.add_class(0, "new", "ann")
        desk.answer(Given([(3, 0), (5, 0)], "label", node, "ann"))
        desk.answer(Given([(4, 0)], "wrong_picture", None, "ann"))
    samples = read_data(export_labels(source, tmp_path / "out.npz").path)
    assert samples.features is not None
    np.testing.assert_array_equal(samples.features, x[[0, 1, 2, 3, 5]])
    assert [samples.hierarchy.classes[0][i] for i in samples.labels[:, 0]] == ["0", "1", "2", "new", "new"]
    assert samples.split.tolist() == ["train"] * 4 + ["test"]


def test_pictures_without_labels_need_a_tree_only(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text("family,species\nGulls,Ivory Gull\nAuks,Puffin\n")
    (tmp_path / "pics" / "june").mkdir(parents=True)
    for name in ("june/a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / "pics" / name)
    samples = Source(str(tmp_path / "pics"), tmp_path / "tree.csv", unlabelled=True).read()
    assert samples.keys == ("b.png", "june/a.png")
    assert (samples.labels == -1).all()
    (tmp_path / "list.csv").write_text("path\npics/b.png\n")
    assert Source(str(tmp_path / "list.csv"), tmp_path / "tree.csv", unlabelled=True).read().keys == ("pics/b.png",)


def test_doubts_of_an_audit(source: Source, tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    header = "sample,level,given,suggested,suggested_level,probability,reason\n"
    rows = "a.png,species,Ivory Gull,Puffin,species,0.91,wrong family\nzz.png,order,x,y,order,1,gone\n"
    rows += "c.png,species,Puffin,,,,odd\n"
    (tmp_path / "audit" / "labels.csv").write_text(header + rows)
    state = replayed(source.read(), [])
    found = read_doubts(tmp_path / "audit", state)
    assert {state.keys[i]: (doubt.share, doubt.reason) for i, doubt in found.items()} == {
        "a.png": (0.91, "wrong family"),
        "c.png": (0.0, "odd"),
    }
    assert state.taxonomy.path(found[0].node) == ["Charadriiformes", "Alcidae", "Puffin"]


# ---- reading what others wrote -----------------------------------------------------------------------------------------


def test_darwin_core_as_others_write_it(tmp_path: Path) -> None:
    text = "gbifID\toccurrenceID\tassociatedMedia\tkingdom\torder\tfamily\tgenus\tscientificName\ttaxonRank\n"
    text += "1\to1\ta.jpg\tAnimalia\tPasseriformes\tCorvidae\tCorvus\tCorvus corax\tspecies\n"
    text += "2\to2\tb.jpg\tAnimalia\tPasseriformes\tCorvidae\t\tCorvidae\tfamily\n"
    text += "3\to3\tc.jpg\tAnimalia\tPasseriformes\tParidae\tParus\tParus\tgenus\n"
    (tmp_path / "occurrence.txt").write_text(text)
    samples = read_data(tmp_path / "occurrence.txt")
    assert names(samples)["b.jpg"] == ["Animalia", "Passeriformes", "Corvidae", ""]
    for wrong, said in (
        ("http://x.org/a.jpg", "must name one file"),
        ("a.jpg|b.jpg", "must name one file"),
        ("", "must name one file"),
    ):
        (tmp_path / "occurrence.txt").write_text(text.replace("\ta.jpg\t", f"\t{wrong}\t"))
        with pytest.raises(DataError, match=said):
            read_data(tmp_path / "occurrence.txt")


def task(image: object, *paths: list[str], **more: object) -> dict[str, object]:
    results = [{"type": "taxonomy", "value": {"taxonomy": list(paths)}}] if paths else []
    return {"id": 1, "data": {"image": image}, "annotations": [{"result": results}], **more}


def test_label_studio_as_others_write_it(tmp_path: Path) -> None:
    tasks = [
        task("/data/local-files/?d=pics/a.jpg", ["Gulls", "Ivory Gull"]),
        task("b.jpg", ["Auks", "Puffin"]),
        task("c.jpg", ["Auks"]),
        task("d.jpg"),
    ]
    late = {"result": [{"type": "taxonomy", "value": {"taxonomy": [["Gulls"]]}}], "was_cancelled": True}
    tasks[1]["annotations"].append(late)  # type: ignore[attr-defined]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    samples = read_data(tmp_path / "tasks.json", levels=["family", "species"])
    assert samples.keys == ("pics/a.jpg", "b.jpg", "c.jpg", "d.jpg")
    assert list(names(samples).values()) == [["Gulls", "Ivory Gull"], ["Auks", "Puffin"], ["Auks", ""], ["", ""]]
    for wrong, said in (
        (task("e.jpg", ["Gulls"], ["Auks"]), "task 5: 2 classes"),
        (task("https://x.org/a.jpg", ["Gulls"]), "no file on this computer"),
        (task(3), "data.image is missing"),
        ({"annotations": []}, "lacks"),
        (task("e.jpg", ["a", "b", "c"]), "a path of more than 2 classes"),
        (task("e.jpg", meta={"split": "x"}), "must be train, val or test"),
    ):
        (tmp_path / "tasks.json").write_text(json.dumps([*tasks, wrong]))
        with pytest.raises(DataError, match=said):
            read_data(tmp_path / "tasks.json", levels=["family", "species"])
