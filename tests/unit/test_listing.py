"""Several labels per picture: tables with `a|b` cells, rows and folders that are joined, .npz with nodes; what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from torchlht.cli import main
from torchlht.commands.several import several_summary
from torchlht.data.doubts import doubts
from torchlht.data.inputs import expand
from torchlht.data.listing import Label, Listed, Listing, label_matrix
from torchlht.data.options import TreeArgs
from torchlht.data.pictures import FilePicture
from torchlht.data.samples import read_data
from torchlht.data.several import Asked, Several, hide, is_several, one_each, read_several
from torchlht.errors import ConfigError, DataError, HierarchyError
from torchlht.hierarchy.graph import Graph
from torchlht.hierarchy.tree import Hierarchy

BIRDS = Hierarchy.from_paths(
    [("Laridae", "Herring Gull"), ("Laridae", "Ivory Gull"), ("Alcidae", "Puffin"), ("Alcidae", "Razorbill")],
    levels=("family", "species"),
)
SEVERAL = Asked(several=True)


def table(folder: Path, *rows: str, header: str = "path,family,species") -> Path:
    """A table of pictures that need not exist; the last row tells all species."""
    file = folder / "birds.csv"
    known = ["z.jpg,Laridae|Laridae|Alcidae|Alcidae,Herring Gull|Ivory Gull|Puffin|Razorbill"] if "family" in header else []
    file.write_text("\n".join([header, *rows, *(row + "," * (header.count(",") - 2) for row in known)]) + "\n")
    return file


def named(data: Several, key: str, value: int) -> set[str]:
    """The classes of a sample whose label has this value."""
    return {data.graph.names[j] for j in np.flatnonzero(data.labels[data.keys.index(key)] == value)}


# ---- the rule --------------------------------------------------------------------------------------------------------


def test_names_in_the_same_place_belong_together_and_blanks_are_unknown_below(tmp_path: Path) -> None:
    data = read_several(
        table(
            tmp_path,
            "a.jpg,Laridae|Alcidae,Herring Gull|Razorbill",
            "b.jpg,Laridae,Herring Gull|",
            "c.jpg,Laridae,Herring Gull",
            "d.jpg,Laridae|Alcidae,",
            "e.jpg,,Puffin|Ivory Gull",
            "f.jpg,,",
            "g.jpg,Laridae|,Herring Gull|",
        )
    )
    assert named(data, "a.jpg", 1) == {"Laridae", "Alcidae", "Herring Gull", "Razorbill"}
    assert named(data, "a.jpg", -1) == set()
    assert named(data, "b.jpg", 1) == {"Laridae", "Herring Gull"}
    assert named(data, "b.jpg", -1) == {"Ivory Gull"}  # another gull, nobody knows which
    assert named(data, "c.jpg", -1) == set()  # a herring gull, and that is all
    assert named(data, "d.jpg", -1) == {"Herring Gull", "Ivory Gull", "Puffin", "Razorbill"}
    assert named(data, "e.jpg", 1) == {"Laridae", "Alcidae", "Puffin", "Ivory Gull"}
    assert named(data, "f.jpg", -1) == set(data.graph.names)  # nothing is known
    assert named(data, "g.jpg", 1) == {"Laridae", "Herring Gull"}
    assert named(data, "g.jpg", -1) == {"Ivory Gull", "Alcidae", "Puffin", "Razorbill"}  # one more, of which nothing is known
    assert data.levels == ("family", "species")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([None, 0, 1, 2, 3, 4, 5]), min_size=1, max_size=3), min_size=1, max_size=4))
def test_labels_are_those_of_a_plain_loop(samples: list[list[int | None]]) -> None:
    graph = Graph.from_tree(BIRDS)  # Laridae, Alcidae and four species
    picture = FilePicture(Path("a.jpg"))
    listed = [
        Listed(str(i), picture, "train", tuple(Label("", (None if n is None else graph.names[n],)) for n in nodes))
        for i, nodes in enumerate(samples)
    ]
    found = label_matrix(Listing(listed, ("labels",), None), graph, Path("x"))
    for row, nodes in zip(found, samples, strict=True):
        for node in range(len(graph)):
            there = any(n is not None and node in graph.above[n] for n in nodes)
            below = any(n is None or (n != node and n in graph.above[node] and graph.heights[n] > 0) for n in nodes)
            assert row[node] == (1 if there else -1 if below else 0)


def test_a_column_of_names_from_any_level_of_a_tree(tmp_path: Path) -> None:
    BIRDS.write(tmp_path / "tree.json")
    file = table(tmp_path, "a.jpg,Laridae|Herring Gull", "b.jpg,Herring Gull", "c.jpg,", header="path,labels")
    data = read_several(file, Asked.by(TreeArgs(hierarchy=tmp_path / "tree.json"), None))
    assert named(data, "a.jpg", -1) == {"Ivory Gull"}
    assert named(data, "b.jpg", -1) == set()
    assert named(data, "c.jpg", -1) == set(data.graph.names)
    assert data.levels == ("family", "species")


def test_a_graph_with_several_parents(tmp_path: Path) -> None:
    graph = Graph.from_edges([("mammal", "bat"), ("flyer", "bat"), ("flyer", "gull")])
    graph.write(tmp_path / "graph.json")
    file = table(tmp_path, "a.jpg,bat|gull", "b.jpg,flyer", header="path,labels")
    data = read_several(file, Asked.by(TreeArgs(hierarchy=tmp_path / "graph.json"), None))
    assert data.graph == graph
    assert named(data, "a.jpg", 1) == set(graph.names)
    assert named(data, "b.jpg", -1) == {"bat", "gull"}


def test_rows_of_a_picture_are_joined_when_asked(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    rows = [
        "b.jpg,Laridae,Ivory Gull,test",
        "a.jpg,Laridae,Herring Gull,train",
        "./a.jpg,Laridae,,train",
        "a.jpg,Alcidae,Puffin,",
    ]
    file.write_text("\n".join(["path,family,species,split", *rows]) + "\n")
    assert not is_several(file)
    assert any("1 picture listed more than once" in one and "--several" in one for one in doubts(read_data(file)))
    data = read_several(file, SEVERAL)
    assert data.keys == ("a.jpg", "b.jpg")
    assert named(data, "a.jpg", 1) == {"Laridae", "Herring Gull", "Alcidae", "Puffin"}
    assert named(data, "a.jpg", -1) == {"Ivory Gull"}
    assert data.split.tolist() == ["train", "test"]
    file.write_text("\n".join(["path,family,species,split", *reversed(rows)]) + "\n")
    again = read_several(file, SEVERAL)
    np.testing.assert_array_equal(again.labels, data.labels[:, [data.graph.index(name) for name in again.graph.names]])


def drawn(file: Path, tone: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8, 3), tone, dtype=np.uint8)).save(file)


def test_a_picture_in_several_folders_has_all_their_labels(tmp_path: Path) -> None:
    root = tmp_path / "birds"
    drawn(root / "Laridae" / "Herring Gull" / "1.png", 10)
    drawn(root / "Laridae" / "Ivory Gull" / "2.png", 20)
    drawn(root / "Alcidae" / "Puffin" / "3.png", 30)
    (root / "Alcidae" / "Puffin" / "link.png").symlink_to(root / "Laridae" / "Herring Gull" / "1.png")
    (root / "Laridae" / "copy.png").write_bytes((root / "Laridae" / "Ivory Gull" / "2.png").read_bytes())
    assert not is_several(root)
    data = read_several(root, dataclasses.replace(SEVERAL, levels=("family", "species")))
    assert len(data) == 3
    both = data.keys[next(i for i, key in enumerate(data.keys) if key.endswith("link.png"))]
    assert named(data, both, 1) == {"Laridae", "Herring Gull", "Alcidae", "Puffin"}
    assert named(data, "Laridae/copy.png", 1) == {"Laridae", "Ivory Gull"}
    assert named(data, "Laridae/copy.png", -1) == {"Herring Gull"}  # it lies in Laridae, too
    (root / "Laridae" / "dead.png").symlink_to(root / "nowhere.png")
    with pytest.raises(DataError, match=r"dead\.png: a link to .*nowhere\.png, which is not there"):
        read_several(root, SEVERAL)


def arrays(**more: Any) -> dict[str, Any]:
    edges = [[0, 2], [0, 3], [1, 4]]
    return {
        "x": np.zeros((3, 2), np.float32),
        "nodes": ["Laridae", "Alcidae", "Herring", "Ivory", "Puffin"],
        "edges": edges,
        **more,
    }


def test_an_npz_with_a_multi_hot_or_a_ragged_key(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    y = np.array([[-1, 0, 1, 0, -1], [1, 0, -1, -1, 0], [-1, -1, -1, -1, -1]])
    np.savez(file, **arrays(y=y, train=np.array([True, True, False]), levels=["species", "family"]))
    assert is_several(file)
    data = read_several(file)
    assert data.labels.tolist() == [[1, 0, 1, 0, 0], [1, 0, -1, -1, 0], [-1, -1, -1, -1, -1]]
    assert data.levels == ("family", "species")
    assert data.split.tolist() == ["train", "train", "test"]
    np.savez(file, **arrays(labels=[2, 4, 0, 2], offsets=[0, 2, 4, 4]))
    assert read_several(file).labels.tolist() == [[1, 1, 1, 0, 1], [1, 0, 1, -1, 0], [-1, -1, -1, -1, -1]]


# ---- is it several? ----------------------------------------------------------------------------------------------------


def test_a_bar_in_a_label_cell_says_it_and_options_decide(tmp_path: Path) -> None:
    assert is_several(table(tmp_path, "a.jpg,Laridae,Herring Gull|"))
    assert not is_several(tmp_path / "birds.csv", Asked(several=False))
    (tmp_path / "one.csv").write_text("path,family,note\na|b.jpg,Laridae,x|y\n")
    assert not is_several(tmp_path / "one.csv", Asked(levels=("family",)))
    assert is_several(tmp_path / "one.csv", SEVERAL)
    assert not is_several("nosuch")
    np.savez(tmp_path / "one.npz", x=np.zeros((2, 2), np.float32), y=np.zeros((2, 1), int))
    assert not is_several(tmp_path / "one.npz")
    with pytest.raises(ConfigError, match="holds no array 'nodes'"):
        is_several(tmp_path / "one.npz", SEVERAL)


def test_a_name_at_two_levels_and_a_branch_that_ends(tmp_path: Path) -> None:
    file = tmp_path / "birds.csv"
    rows = ["a.jpg,Gulls|Owls,Gulls|", "b.jpg,Gulls|Auks,Kittiwake|Puffin"]
    file.write_text("\n".join(["path,family,species", *rows]) + "\n")
    data = read_several(file)
    assert named(data, "a.jpg", 1) == {"family/Gulls", "species/Gulls", "Owls"}
    assert named(data, "a.jpg", -1) == set()  # Owls ends there: that is all
    assert data.levels == ("family", "species")
    assert len(one_each(data)) == 4


def test_hidden_labels_do_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    rows = [f"{i}.jpg,Laridae|Alcidae,Herring Gull|Puffin" for i in range(20)]
    one = hide(read_several(table(tmp_path, *rows)), 0.5, 3)
    other = hide(read_several(table(tmp_path, *reversed(rows))), 0.5, 3)
    assert one.keys == other.keys
    names = [other.graph.index(name) for name in one.graph.names]
    np.testing.assert_array_equal(one.labels, other.labels[:, names])
    assert 15 < (one.labels[:, one.graph.levels == 1] == -1).any(1).sum() <= 21


# ---- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["a.jpg,Laridae|Alcidae,Herring Gull|Puffin|Razorbill"], r"line 2: species has 3 names and family has 2"),
        (["a.jpg,Laridae,Herring Gull|Herring Gull"], r"line 2: 'Herring Gull' is listed twice"),
        (["a.jpg,Laridae|Laridae,"], r"line 2: 'Laridae' is listed twice"),
        (["a.jpg,|,"], r"line 2: 'a label without a name' is listed twice"),
        ([",Laridae|Alcidae,"], r"line 2: path is empty"),
        (["s3://birds/a.jpg,Laridae|Alcidae,"], r"line 2: s3://birds/a.jpg is an address"),
    ],
)
def test_faulty_cells_are_named_by_line(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_several(table(tmp_path, *rows))


def test_contradictions_are_named_by_line(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"species 'Herring Gull' is under .* but under 'Alcidae' on line 3"):
        read_several(table(tmp_path, "a.jpg,Laridae,Herring Gull|", "b.jpg,Laridae|Alcidae,Ivory Gull|Herring Gull"))
    BIRDS.write(tmp_path / "tree.json")
    asked = Asked.by(TreeArgs(hierarchy=tmp_path / "tree.json"), None)
    with pytest.raises(DataError, match=r"line 2: 'Puffin' is not below 'Laridae' in the tree"):
        read_several(table(tmp_path, "a.jpg,Laridae,Puffin|"), asked)
    with pytest.raises(DataError, match=r"line 2: there is no class 'Hering Gull': did you mean Herring Gull"):
        read_several(table(tmp_path, "a.jpg,Laridae,Hering Gull|"), asked)
    with pytest.raises(DataError, match=r"line 3: a name beside a \| is empty"):
        read_several(table(tmp_path, "a.jpg,Puffin", "b.jpg,Puffin|", header="path,labels"), asked)


def test_a_picture_has_one_split(tmp_path: Path) -> None:
    header = "path,family,species,split"
    file = table(tmp_path, "a.jpg,Laridae,Ivory Gull,train", "b.jpg,Alcidae,,", "a.jpg,Alcidae,,test", header=header)
    with pytest.raises(DataError, match=r"\.csv: a\.jpg is in train \(line 2\) and in test \(line 4\)"):
        read_several(file, SEVERAL)
    drawn(tmp_path / "birds" / "train" / "Gulls" / "1.png", 1)
    drawn(tmp_path / "birds" / "test" / "Auks" / "1.png", 1)
    with pytest.raises(DataError, match=r"is in test \(test/Auks/1.png\) and in train \(train/Gulls/1.png\)"):
        read_several(tmp_path / "birds", SEVERAL)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"y": np.zeros((3, 4), int)}, r"'y' is int64 \(3, 4\), expected whole numbers \(3, 5\)"),
        ({"y": np.full((3, 5), 2)}, r"row 0: label 2 of 'Laridae'; it is 1, 0 or -1"),
        ({"y": np.array([[0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [0] * 5])}, r"row 1: 'Herring' is 1, but 'Laridae' above it is 0"),
        (
            {"y": np.array([[0, -1, 1]] * 3), "nodes": ["a", "b", "c"], "edges": [[0, 1], [1, 2]]},
            r"row 0: 'c' is 1, but 'a' above it is 0",
        ),
        ({"y": np.zeros((3, 5), int), "labels": [2], "offsets": [0, 1, 1, 1]}, "holds both 'y' and 'labels'"),
        ({"labels": [2.0], "offsets": [0, 1, 1, 1]}, r"'labels' is float64 \(1,\), expected a list of whole numbers"),
        ({}, "no array 'labels'"),
        ({"labels": [2]}, "no array 'offsets'"),
        ({"labels": [2, 7], "offsets": [0, 1, 2, 2]}, "row 1: label 7, but there are 5 'nodes'"),
        ({"labels": [2, 2], "offsets": [0, 0, 2, 2]}, "row 1: 'Herring' is listed twice"),
        ({"labels": [2, 2], "offsets": [0, 2, 1, 2]}, "'offsets' must rise from 0 to 2"),
        ({"labels": [2], "offsets": [0, 1]}, "'offsets' has 2 numbers for 3 samples"),
        ({"labels": [2], "offsets": [0, 1, 1, 1], "edges": [[0, 9]]}, r"edge 0 is \[0, 9\], but there are 5 'nodes'"),
        ({"labels": [2], "offsets": [0, 1, 1, 1], "edges": [[0, 2], [2, 0]]}, r"is its own .*\(edge 0, edge 1\)"),
        ({"labels": [2], "offsets": [0, 1, 1, 1], "levels": ["a"]}, "'levels' names 1, but classes lie on 2 levels"),
        ({"labels": [2], "offsets": [0, 1, 1, 1], "nodes": ["a"] * 5}, "'nodes' names 'a' twice"),
    ],
)
def test_faulty_arrays_are_named(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays(**more))
    with pytest.raises(DataError, match=said):
        read_several(tmp_path / "x.npz")


def test_a_label_that_fits_two_classes_is_named_and_one_by_id_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.obo").write_text(
        "[Term]\nid: X:1\nname: wing\n\n[Term]\nid: X:2\nname: wing\n\n[Term]\nid: X:3\nname: bill\n"
    )
    asked = Asked.by(TreeArgs(hierarchy=tmp_path / "a.obo"), None)
    found = read_several(table(tmp_path, "a.jpg,X:1|bill", header="path,labels"), asked)
    assert {name for name, one in zip(found.graph.names, found.labels[0], strict=True) if one} == {"wing (X:1)", "bill"}
    with pytest.raises(DataError, match=r"line 2: 'wing' fits 2 classes, 'wing \(X:1\)' and 'wing \(X:2\)': say which$"):
        read_several(table(tmp_path, "a.jpg,wing|bill", header="path,labels"), asked)
    (tmp_path / "tree.csv").write_text("order,family\nGulls,Gulls\nAuks,Puffins\n")
    asked = Asked.by(TreeArgs(hierarchy=tmp_path / "tree.csv"), None)
    with pytest.raises(DataError, match=r"line 2: 'Gulls' fits 2 classes, 'order/Gulls' and 'family/Gulls': say which$"):
        read_several(table(tmp_path, "a.jpg,Gulls|Puffins", header="path,labels"), asked)


def test_where_a_tree_is_needed_several_labels_are_refused(tmp_path: Path) -> None:
    file = table(tmp_path, "a.jpg,Laridae|Alcidae,Herring|Razorbill", "b.jpg,Laridae,Ivory")
    with pytest.raises(DataError, match="has several labels per sample"):
        read_data(file)
    assert "Herring|Razorbill" in read_data(file, bars=True).hierarchy.classes[0]


def test_a_label_beside_a_deeper_one_is_counted(tmp_path: Path) -> None:
    data = read_several(table(tmp_path, "b.jpg,Laridae,Herring Gull|", "c.jpg,Laridae,Ivory Gull"))
    assert "2.3 labels per picture, down to family 1 · species 6; below 1 of them" in several_summary(data)


def test_what_to_predict_is_listed_whatever_the_labels_say(tmp_path: Path) -> None:
    for name in "abc":
        drawn(tmp_path / f"{name}.png", 1)
    rows = [
        "a.png,Laridae,hooked,0.5",
        "b.png,Alcidae,hooked,0.7",
        "c.png,Laridae|Alcidae,straight|hooked,0.1",
        "a.png,Alcidae,straight,0.2",
    ]
    for header, cells in (("path,family,bill,weight", rows), ("path", [row.partition(",")[0] for row in rows])):
        (tmp_path / "birds.csv").write_text("\n".join([header, *cells]) + "\n")
        found = expand([str(tmp_path / "birds.csv")], want_images=True)
        assert [Path(str(picture)).name for picture in found] == ["a.png", "b.png", "c.png"]
    (tmp_path / "birds.csv").write_text("path,split\na.png,train\nb.png,test\n")
    assert [Path(str(picture)).name for picture in expand([str(tmp_path / "birds.csv")], want_images=True)] == ["b.png"]


def test_a_bar_in_a_table_of_another_kind_is_no_list(tmp_path: Path) -> None:
    file = table(tmp_path, "a.jpg,x,Aves|Laridae", header="associatedMedia,scientificName,higherClassification")
    assert not is_several(file)


def test_links_to_nothing_are_refused_where_links_are_labels(tmp_path: Path) -> None:
    for name in ("Gulls/1.png", "Auks/2.png"):
        drawn(tmp_path / "birds" / name, 1)
    (tmp_path / "birds" / "Auks" / "Puffin").symlink_to(tmp_path / "gone")
    with pytest.raises(DataError, match=r"Auks/Puffin: a link to .*gone, which is not there"):
        read_several(tmp_path / "birds", SEVERAL)


def test_commands_refuse_in_one_sentence_and_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = table(tmp_path, "a.jpg,Laridae,Hering|Hering"), tmp_path / "run"
    np.savez(tmp_path / "x.npz", **arrays(labels=[2], offsets=[0, 1, 1, 1]))
    for words, said in (
        (["train", str(file)], "line 2: 'Hering' is listed twice"),
        (["data", "preview", str(file)], "line 2: 'Hering' is listed twice"),
        (["train", str(tmp_path / "x.npz"), "--backbone", "small", "--epochs", "1"], "holds features already"),
        (["audit", str(tmp_path / "x.npz")], "has several labels per sample, by its array 'nodes'"),
    ):
        with pytest.raises(SystemExit) as stop:
            main([*words, *(["--out", str(out)] if words[0] != "data" else [])])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    assert not (out / "config.yaml").exists()
