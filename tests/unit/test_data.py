"""Reading folders, tables and embeddings into `Samples`, and drawing parts of them."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from torchlht.data.pictures import FilePicture
from torchlht.data.samples import Samples, choose_fold, choose_share, choose_some, hold_out_test, read_data, with_split
from torchlht.data.sources.embeddings import read_features
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.tree import Hierarchy

LEVELS = ("order", "family", "species")
BIRDS = Hierarchy.from_paths(
    [
        ("Charadriiformes", "Laridae", "Ivory Gull"),
        ("Charadriiformes", "Laridae", "Herring Gull"),
        ("Charadriiformes", "Alcidae", "Horned Puffin"),
        ("Gaviiformes", "Gaviidae", "Common Loon"),
    ],
    LEVELS,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def pictures(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (10, 20, 30)).save(file)


def table(folder: Path, text: str, name: str = "birds.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def named(samples: Samples) -> dict[str, tuple[str | None, ...]]:
    """Each key's labels by name, coarse → fine, None where unknown."""
    tree = samples.hierarchy
    return {
        key: tuple(tree.classes[k][row[k]] if row[k] >= 0 else None for k in tree.top_down)
        for key, row in zip(samples.keys, samples.labels, strict=True)
    }


# ---- folders -------------------------------------------------------------------------------------------------------


def test_a_picture_is_labelled_down_to_the_folder_it_lies_in(home: Path) -> None:
    pictures(home, "C/L/Gull/1.jpg", "C/L/Tern/1.png", "C/L/2.jpg", "C/3.jpg", "4.jpg")
    samples = read_data(home, levels=LEVELS)
    assert named(samples) == {
        "C/L/Gull/1.jpg": ("C", "L", "Gull"),
        "C/L/Tern/1.png": ("C", "L", "Tern"),
        "C/L/2.jpg": ("C", "L", None),
        "C/3.jpg": ("C", None, None),
        "4.jpg": (None, None, None),
    }
    assert samples.name == "data"
    assert set(samples.split) == {"train"}
    assert samples.features is None
    assert samples.images is not None
    assert [picture.file.relative_to(home).as_posix() for picture in samples.images] == list(samples.keys)
    assert samples.hierarchy.levels == LEVELS[::-1]


def test_a_leaf_folder_shallower_than_the_tree_is_labelled_down_to_its_pass_through_leaf(home: Path) -> None:
    pictures(home, "C/L/Gull/1.jpg", "C/L/Tern/1.jpg", "G/Loons/1.jpg", "G/2.jpg")
    labels = named(read_data(home, levels=LEVELS))
    assert labels["G/Loons/1.jpg"] == ("G", "Loons", "Loons (no species)")
    assert labels["G/2.jpg"] == ("G", None, None), "an inner folder is known only down to itself"


def test_top_folders_that_are_all_splits_are_splits(home: Path) -> None:
    pictures(home, "train/A/x/1.jpg", "Valid/A/y/1.jpg", "test/B/z/1.jpg", "test/B/2.jpg")
    samples = read_data(home)
    assert dict(zip(samples.keys, samples.split, strict=True)) == {
        "train/A/x/1.jpg": "train",
        "Valid/A/y/1.jpg": "val",
        "test/B/z/1.jpg": "test",
        "test/B/2.jpg": "test",
    }
    assert samples.hierarchy.classes == (("x", "y", "z"), ("A", "B"))
    assert named(samples)["test/B/2.jpg"] == ("B", None)


def test_a_top_folder_called_test_among_others_is_a_class(home: Path) -> None:
    pictures(home, "test/1.jpg", "other/1.jpg")
    samples = read_data(home)
    assert samples.hierarchy.classes == (("other", "test"),)
    assert set(samples.split) == {"train"}


def test_a_folder_that_is_a_leaf_in_one_split_only_is_an_inner_class(home: Path) -> None:
    pictures(home, "train/A/x/1.jpg", "train/A/y/1.jpg", "train/B/z/1.jpg", "test/A/1.jpg")
    samples = read_data(home)
    assert samples.hierarchy.classes == (("x", "y", "z"), ("A", "B"))
    assert named(samples)["test/A/1.jpg"] == ("A", None)


def test_hidden_files_hidden_folders_and_other_files_are_ignored(home: Path) -> None:
    pictures(home, "A/1.jpg", "B/1.JPG", "A/.2.jpg", ".thumbs/1.jpg")
    (home / "A" / "notes.txt").write_text("not a picture")
    (home / "A" / "Thumbs.db").write_bytes(b"neither")
    samples = read_data(home)
    assert samples.keys == ("A/1.jpg", "B/1.JPG")
    assert samples.hierarchy.classes == (("A", "B"),)


def test_keys_and_classes_do_not_depend_on_the_order_of_creation(tmp_path: Path) -> None:
    files = ["B/y/2.jpg", "A/x/1.jpg", "B/10.jpg", "A/w/3.jpg", "B/y/1.jpg"]
    found = []
    for number, order in enumerate([files, files[::-1], sorted(files)]):
        pictures(tmp_path / str(number), *order)
        found.append(read_data(tmp_path / str(number)))
    assert found[0].keys == found[1].keys == found[2].keys
    assert found[0].hierarchy == found[1].hierarchy == found[2].hierarchy
    assert found[0].labels.tolist() == found[1].labels.tolist() == found[2].labels.tolist()


def test_folders_are_read_with_a_given_tree(home: Path) -> None:
    pictures(home, "Charadriiformes/Laridae/Ivory Gull/1.jpg", "Gaviiformes/1.jpg")
    samples = read_data(home, hierarchy=BIRDS)
    assert samples.hierarchy is BIRDS
    assert named(samples)["Charadriiformes/Laridae/Ivory Gull/1.jpg"] == ("Charadriiformes", "Laridae", "Ivory Gull")
    assert named(samples)["Gaviiformes/1.jpg"][0] == "Gaviiformes"


def test_a_folder_the_given_tree_does_not_know_is_told_with_the_nearest_class(home: Path) -> None:
    pictures(home, "Charadriiformes/Laridea/1.jpg")
    with pytest.raises(DataError, match=r"Laridea: family has no class 'Laridea': did you mean Laridae\?"):
        read_data(home, hierarchy=BIRDS)


def test_a_folder_in_the_wrong_place_of_the_given_tree_is_told_with_the_picture(home: Path) -> None:
    pictures(home, "Gaviiformes/Laridae/1.jpg")
    with pytest.raises(DataError, match=r"Gaviiformes/Laridae/1\.jpg: family 'Laridae' is labelled order 'Gaviiformes'"):
        read_data(home, hierarchy=BIRDS)


def test_folders_deeper_than_the_given_tree_are_told(home: Path) -> None:
    pictures(home, "Gaviiformes/Gaviidae/Common Loon/young/1.jpg")
    with pytest.raises(DataError, match="4 folders deep, but the tree has 3 levels"):
        read_data(home, hierarchy=BIRDS)


def test_a_number_of_level_names_that_does_not_fit_the_folders_is_told(home: Path) -> None:
    pictures(home, "A/x/1.jpg", "A/y/1.jpg")
    with pytest.raises(HierarchyError, match="the tree is 2 levels deep but 3 levels are named"):
        read_data(home, levels=LEVELS)


def test_the_same_folder_under_two_folders_is_told_with_the_dataset_and_the_folders(home: Path) -> None:
    pictures(home, "A/x/1.jpg", "B/x/1.jpg", "B/y/1.jpg")
    with pytest.raises(HierarchyError, match="'x' is under 'B' here but under 'A'") as caught:
        read_data(home)
    assert str(home) in str(caught.value)
    assert "B/x" in str(caught.value)


def test_a_link_back_up_is_told(home: Path) -> None:
    pictures(home, "A/x/1.jpg", "B/1.jpg")
    (home / "A" / "x" / "again").symlink_to(home / "A", target_is_directory=True)
    with pytest.raises(HierarchyError, match="A/x/again: cycle"):
        read_data(home)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([], "no folders inside; expected one folder per class"),
        (["1.jpg"], "no folders inside; expected one folder per class"),
        (["A/x.txt", "B/y.txt"], "no pictures in it or its folders"),
        (["A/1.jpg"], "only one class, 'A'; a classifier needs at least two"),
        (["train/1.jpg", "test/1.jpg"], "folder"),
    ],
)
def test_a_folder_that_is_no_dataset_is_told(home: Path, files: list[str], told: str) -> None:
    pictures(home, *[file for file in files if file.endswith(".jpg")])
    for file in files:
        if file.endswith(".txt"):
            (home / file).parent.mkdir(parents=True, exist_ok=True)
            (home / file).write_text("")
    with pytest.raises(DataError, match=told) as caught:
        read_data(home)
    assert str(home) in str(caught.value)


# ---- tables --------------------------------------------------------------------------------------------------------

ROWS = """path,order,family,species,split
a.jpg,Charadriiformes,Laridae,Ivory Gull,train
b.jpg,Charadriiformes,Laridae,,train
c.jpg,Charadriiformes,,,train
d.jpg,,,Ivory Gull,test
e.jpg,,,,val
f.jpg,Gaviiformes,,Common Loon,
g.jpg,Gaviiformes,Gaviidae,Common Loon,TEST
"""


def test_blanks_are_unknown_and_ancestors_are_filled_in(home: Path) -> None:
    samples = read_data(table(home, ROWS))
    assert named(samples) == {
        "a.jpg": ("Charadriiformes", "Laridae", "Ivory Gull"),
        "b.jpg": ("Charadriiformes", "Laridae", None),
        "c.jpg": ("Charadriiformes", None, None),
        "d.jpg": ("Charadriiformes", "Laridae", "Ivory Gull"),
        "e.jpg": (None, None, None),
        "f.jpg": ("Gaviiformes", "Gaviidae", "Common Loon"),
        "g.jpg": ("Gaviiformes", "Gaviidae", "Common Loon"),
    }
    assert samples.split.tolist() == ["train", "train", "train", "test", "val", "train", "test"]
    assert samples.hierarchy.describe() == "order 2 › family 2 › species 2"
    assert samples.name == "birds"


def test_pictures_are_found_beside_the_table_and_by_absolute_path(home: Path, tmp_path: Path) -> None:
    text = f"path,species\nimages/a.jpg,x\n{tmp_path}/elsewhere/b.jpg,y\n"
    samples = read_data(table(home, text))
    assert samples.images == (FilePicture(home / "images" / "a.jpg"), FilePicture(tmp_path / "elsewhere" / "b.jpg"))
    assert samples.keys[0] == "images/a.jpg"


@pytest.mark.parametrize("column", ["path", "file", "filename", "file_name", "image"])
def test_the_column_of_paths_has_several_names_and_any_place(home: Path, column: str) -> None:
    samples = read_data(table(home, f"species\t{column}\nx\ta.jpg\ny\tb.jpg\n", "birds.tsv"))
    assert samples.keys == ("a.jpg", "b.jpg")
    assert samples.hierarchy.levels == ("species",)


@pytest.mark.parametrize(
    ("word", "split"),
    [
        ("train", "train"),
        ("", "train"),
        ("val", "val"),
        ("valid", "val"),
        ("Validation", "val"),
        ("test", "test"),
        ("TEST", "test"),
    ],
)
def test_the_words_for_a_split(home: Path, word: str, split: str) -> None:
    samples = read_data(table(home, f"path,species,split\na.jpg,x,{word}\nb.jpg,y,train\n"))
    assert samples.split.tolist() == [split, "train"]


def test_without_a_split_column_everything_is_for_training(home: Path) -> None:
    assert read_data(table(home, "path,species\na.jpg,x\nb.jpg,y\n")).split.tolist() == ["train", "train"]


def test_an_unknown_split_is_told_with_its_line(home: Path) -> None:
    text = "path,species,split\na.jpg,x,train\n\nb.jpg,y,exam\n"
    with pytest.raises(DataError, match=r"birds\.csv line 4: split is 'exam'; it must be train, val or test"):
        read_data(table(home, text))


def test_levels_choose_and_order_among_other_columns(home: Path) -> None:
    text = "species,photographer,path,order\nGull,Ann,a.jpg,C\nLoon,Bob,b.jpg,G\nTern,Ann,c.jpg,C\n"
    samples = read_data(table(home, text), levels=("order", "species"))
    assert samples.hierarchy.levels == ("species", "order")
    assert named(samples) == {"a.jpg": ("C", "Gull"), "b.jpg": ("G", "Loon"), "c.jpg": ("C", "Tern")}


def test_the_order_of_rows_does_not_change_the_numbering(home: Path) -> None:
    head, *rows = ROWS.splitlines()
    one = read_data(table(home, "\n".join([head, *rows]), "one.csv"))
    two = read_data(table(home, "\n".join([head, *rows[::-1]]), "two.csv"))
    assert one.hierarchy == two.hierarchy
    assert named(one) == named(two)


def test_a_contradiction_between_rows_is_told_with_its_lines(home: Path) -> None:
    text = "path,family,species\na.jpg,A,x\nb.jpg,A,w\nc.jpg,B,y\nd.jpg,B,x\n"
    with pytest.raises(HierarchyError, match=r"birds\.csv: line 5: species 'x' is under 'B' here but under 'A' on line 2"):
        read_data(table(home, text))


def test_a_contradiction_with_the_given_tree_is_told_with_its_line(home: Path) -> None:
    text = "path,order,family,species\na.jpg,Gaviiformes,Gaviidae,Common Loon\nb.jpg,,Alcidae,Ivory Gull\n"
    with pytest.raises(DataError, match=r"birds\.csv line 3: species 'Ivory Gull' is labelled family 'Alcidae'"):
        read_data(table(home, text), hierarchy=BIRDS)


def test_a_class_the_given_tree_does_not_know_is_told_with_its_line_and_the_nearest(home: Path) -> None:
    text = "path,species\na.jpg,Ivory Gull\nb.jpg,Comon Loon\n"
    with pytest.raises(DataError, match=r"birds\.csv line 3: species has no class 'Comon Loon': did you mean Common Loon\?"):
        read_data(table(home, text), hierarchy=BIRDS)


def test_a_given_tree_needs_only_some_of_its_levels_as_columns(home: Path) -> None:
    text = "path,species,remark\na.jpg,Ivory Gull,nice\nb.jpg,,blurred\n"
    samples = read_data(table(home, text), hierarchy=BIRDS)
    assert named(samples) == {"a.jpg": ("Charadriiformes", "Laridae", "Ivory Gull"), "b.jpg": (None, None, None)}


def test_a_middle_level_is_filled_in_from_the_given_tree(home: Path) -> None:
    text = "path,order,family,species\na.jpg,Charadriiformes,,Horned Puffin\n"
    samples = read_data(table(home, text), hierarchy=BIRDS)
    assert named(samples) == {"a.jpg": ("Charadriiformes", "Alcidae", "Horned Puffin")}


@pytest.mark.parametrize(
    ("text", "levels", "told"),
    [
        ("species,family\nx,A\n", None, r"no column 'path' naming the pictures \(columns: species, family\)"),
        ("path,species\na.jpg,x\nb.jpg,y\n", ("genus", "species"), r"no column 'genus' \(columns: path, species\)"),
        ("path,split\na.jpg,train\n", None, "no columns besides 'path'; add one column per level"),
        ("path,species\n", None, "a header but no rows"),
        ("", None, "empty; a table starts with a line of column names"),
        ("path,species\na.jpg,x\n,y\n", None, "line 3: path is empty; every row must name its picture"),
        ("path,species\na.jpg,x\nb.jpg,x\n", None, "only one class, 'x'"),
        ("path,species\na.jpg,x\nb.jpg\n", None, "line 3: 1 cells, but the header names 2"),
        ("path,species,species\na.jpg,x,x\n", None, "line 1: column 'species' appears twice"),
        ("path,family,species\na.jpg,A,x\nb.jpg,,y\n", None, "line 3: no row tells the family of the species 'y'"),
        ("path,species,family\na.jpg,x,A\nb.jpg,y,A\nc.jpg,z,B\n", None, "level 'family' is finer than 'species' but narrower"),
    ],
)
def test_each_fault_of_a_table_is_told(home: Path, text: str, levels: tuple[str, ...] | None, told: str) -> None:
    path = table(home, text)
    with pytest.raises((DataError, HierarchyError), match=told) as caught:
        read_data(path, levels=levels)
    assert str(path) in str(caught.value)


def test_a_table_with_no_column_of_the_given_tree_is_told(home: Path) -> None:
    with pytest.raises(DataError, match=r"no column for any level of the tree \(order, family, species\)"):
        read_data(table(home, "path,kind\na.jpg,x\n"), hierarchy=BIRDS)


def test_a_table_of_unlabelled_pictures_is_told(home: Path) -> None:
    with pytest.raises((DataError, HierarchyError), match=r"birds\.csv: .*class"):
        read_data(table(home, "path,species\na.jpg,\nb.jpg,\n"))


# ---- embeddings ----------------------------------------------------------------------------------------------------

Y = np.array([[0, 0], [1, 0], [2, 1], [-1, 1], [2, -1], [-1, -1]])
TRAIN = np.array([True, True, True, True, False, False])


def npz(folder: Path, name: str = "birds.npz", **changed: Any) -> Path:
    """A good embeddings file, with some arrays changed, or left out when None."""
    x = np.arange(18, dtype=np.float32).reshape(6, 3)
    arrays = {"x": x, "y": Y, "train": TRAIN} | changed
    np.savez(folder / name, **{name: value for name, value in arrays.items() if value is not None})
    return folder / name


NAMED = {
    "levels": np.array(["species", "family"]),
    "classes_species": np.array(["Gull", "Tern", "Puffin"]),
    "classes_family": np.array(["Laridae", "Alcidae"]),
}


def test_embeddings_with_names(home: Path) -> None:
    samples = read_data(npz(home, **NAMED))
    assert samples.hierarchy == Hierarchy.from_paths(
        [("Laridae", "Gull"), ("Laridae", "Tern"), ("Alcidae", "Puffin")], ("family", "species")
    )
    assert samples.labels.tolist() == [[0, 0], [1, 0], [2, 1], [-1, 1], [2, 1], [-1, -1]], "ancestors are filled in"
    assert samples.split.tolist() == ["train"] * 4 + ["test"] * 2
    assert samples.keys == ("0", "1", "2", "3", "4", "5")
    assert samples.images is None
    assert samples.features is not None
    assert samples.features.tolist() == np.arange(18.0).reshape(6, 3).tolist()
    assert samples.name == "birds"


def test_embeddings_without_names_number_classes_and_levels(home: Path) -> None:
    samples = read_data(npz(home))
    assert samples.hierarchy.levels == ("level2", "level1")
    assert samples.hierarchy.classes == (("0", "1", "2"), ("0", "1"))
    assert read_data(npz(home), levels=("family", "species")).hierarchy.levels == ("species", "family")


def test_embeddings_without_a_train_array_are_all_for_training(home: Path) -> None:
    assert set(read_data(npz(home, train=None)).split) == {"train"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_features_of_any_width_of_float_become_float32(home: Path, dtype: str) -> None:
    samples = read_data(npz(home, x=np.linspace(0, 1, 18).reshape(6, 3).astype(dtype)))
    assert samples.features is not None
    assert samples.features.dtype == np.float32
    assert np.allclose(samples.features.ravel(), np.linspace(0, 1, 18), atol=1e-3)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64"])
def test_labels_of_any_width_of_integer_are_read(home: Path, dtype: str) -> None:
    assert read_data(npz(home, y=Y.astype(dtype))).labels.dtype == np.int64


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": None}, r"no array 'x' with the features \(found: y, train\)"),
        ({"y": None}, r"no array 'y' with the labels \(found: x, train\)"),
        ({"x": np.zeros(6, np.float32)}, r"'x' is float32 \(6,\), expected floating point \(samples, width\)"),
        ({"x": np.zeros((6, 2, 2), np.float32)}, r"'x' is float32 \(6, 2, 2\)"),
        ({"x": np.zeros((6, 3), np.int64)}, r"'x' is int64 \(6, 3\), expected floating point"),
        ({"x": np.zeros((5, 3), np.float32)}, r"'y' is int64 \(6, 2\), expected integers \(5, levels\)"),
        ({"y": Y[:, 0]}, r"'y' has one column: pass hierarchy=FILE"),
        ({"y": Y.astype(float)}, r"'y' is float64 \(6, 2\), expected integers"),
        ({"train": TRAIN[:4]}, r"'train' is bool \(4,\), expected bool \(6,\)"),
        ({"train": TRAIN.astype(int)}, r"'train' is int64 \(6,\), expected bool \(6,\)"),
        ({"levels": np.array(["species"])}, r"'y' has 2 columns but 1 levels are named \(species\)"),
        (
            {**NAMED, "classes_species": np.array(["Gull", "Tern"])},
            r"birds\.npz row 2: species is 2, but 'classes_species' names 2 classes",
        ),
        (
            {**NAMED, "classes_species": np.array(["Gull", "Tern", "Puffin", "Loon"])},
            r"no row tells the family of the species 'Loon'; pass hierarchy=FILE",
        ),
        (
            {"y": np.array([[0, 0], [2, 0], [0, 1], [0, 0], [0, 0], [0, 0]])},
            r"no row tells the level1 of the level2 '1'",
        ),
        (
            {"y": np.array([[0, 0], [1, 0], [2, 1], [0, 0], [1, 1], [0, 0]])},
            r"birds\.npz row 4: level2 '1' is labelled level1 '1'",
        ),
        ({**NAMED, "classes_species": np.array(["Gull", "Gull", "Puffin"])}, "species: 'Gull' appears twice"),
        (
            {**NAMED, "classes_species": np.array(["Gull", "Tern", "Puffin"], dtype=object)},
            "save names as plain arrays of strings",
        ),
        ({**NAMED, "classes_species": np.array("Gull")}, "classes_species"),
        ({"y": np.zeros((6, 2), np.int64)}, "only one class, '0'"),
    ],
)
def test_each_fault_of_an_embeddings_file_is_told(home: Path, changed: dict[str, Any], told: str) -> None:
    path = npz(home, **changed)
    with pytest.raises((DataError, HierarchyError), match=told) as caught:
        read_data(path)
    assert str(path) in str(caught.value)


def test_levels_choose_columns_of_an_embeddings_file_and_a_tree_tells_the_others(home: Path) -> None:
    path = npz(home, **NAMED)
    families = read_data(path, levels=["family"])
    assert families.hierarchy.levels == ("family",)
    np.testing.assert_array_equal(families.labels[:, 0], Y[:, 1])
    assert read_data(path, levels=["Familie", "Art"]).hierarchy.levels == ("Art", "Familie")
    found = Hierarchy.from_paths([("g", "Gull"), ("g", "Tern"), ("h", "Puffin")], ("group", "species"))
    with pytest.raises(DataError, match="with levels=species, the tree tells the other levels"):
        read_data(path, hierarchy=found)
    grouped = read_data(path, hierarchy=found, levels=["species"])
    assert grouped.hierarchy == found
    np.testing.assert_array_equal(grouped.labels, [[y, [0, 0, 1, -1][y]] for y in Y[:, 0]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_features_that_are_not_finite_are_counted_by_row(home: Path, value: float) -> None:
    x = np.zeros((6, 3), np.float32)
    x[1, 0] = x[1, 2] = x[4, 1] = value
    with pytest.raises(DataError, match="2 rows of 'x' hold NaN or infinity"):
        read_data(npz(home, x=x))


def test_a_label_below_minus_one_is_told_with_its_own_row(home: Path) -> None:
    y = Y.copy()
    y[3, 0], y[5, 1] = -2, -7
    with pytest.raises(
        DataError, match=r"birds\.npz row 3: label -2; labels are class numbers from 0 to 1,048,575, or -1 for unknown"
    ):
        read_data(npz(home, y=y))


@pytest.mark.parametrize(
    "changed",
    [
        {"x": np.zeros((0, 3), np.float32), "y": np.zeros((0, 2), np.int64), "train": np.zeros(0, bool)},
        {"y": np.full((6, 1), -1)},
        {"y": np.zeros((6, 0), np.int64)},
    ],
)
def test_embeddings_without_rows_labels_or_levels_are_told(home: Path, changed: dict[str, Any]) -> None:
    with pytest.raises((DataError, HierarchyError), match=r"birds\.npz"):
        read_data(npz(home, **changed))


@pytest.mark.parametrize("content", [b"", b"path,species\na.jpg,x\n", b"PK\x03\x04 and then nothing"])
def test_a_file_that_only_is_called_npz_is_told(home: Path, content: bytes) -> None:
    (home / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: "):
        read_data(home / "a.npz")


def test_a_single_array_called_npz_is_told(home: Path) -> None:
    with (home / "a.npz").open("wb") as file:
        np.save(file, np.zeros((3, 3)))
    with pytest.raises(DataError, match=r"a\.npz: "):
        read_data(home / "a.npz")


def test_half_an_npz_is_told(home: Path) -> None:
    path = npz(home)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"birds\.npz: not a readable \.npz file"):
        read_data(path)


def test_a_given_tree_renumbers_the_labels_by_name(home: Path) -> None:
    tree = Hierarchy.from_paths(
        [("Alcidae", "Auk"), ("Alcidae", "Puffin"), ("Laridae", "Tern"), ("Laridae", "Gull")], ("family", "species")
    )
    samples = read_data(npz(home, **NAMED), hierarchy=tree)
    assert samples.hierarchy is tree
    assert list(named(samples).values()) == [
        ("Laridae", "Gull"),
        ("Laridae", "Tern"),
        ("Alcidae", "Puffin"),
        ("Alcidae", None),
        ("Alcidae", "Puffin"),
        (None, None),
    ]


def test_a_given_tree_may_know_the_parent_no_row_tells(home: Path) -> None:
    tree = Hierarchy.from_paths([("A", "0"), ("A", "1"), ("B", "2")], ("level1", "level2"))
    y = np.array([[0, -1], [1, -1], [2, -1], [0, -1], [1, -1], [2, -1]])
    with pytest.raises((DataError, HierarchyError)):
        read_data(npz(home, y=y))
    assert read_data(npz(home, y=y), hierarchy=tree).labels[:, 1].tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        (
            Hierarchy.from_paths([("Laridae", "Gull"), ("Laridae", "Turn"), ("Alcidae", "Puffin")], ("family", "species")),
            r"birds\.npz: species has no class 'Tern': did you mean Turn\?",
        ),
        (
            Hierarchy.from_paths([("Gull",), ("Tern",), ("Puffin",)], ("species",)),
            "'y' has 2 columns but the tree has 1 levels",
        ),
        (
            Hierarchy.from_paths([("Laridae", "Gull"), ("Alcidae", "Tern"), ("Alcidae", "Puffin")], ("family", "species")),
            r"birds\.npz row 1: species 'Tern' is labelled family 'Laridae', but the tree puts it under 'Alcidae'",
        ),
    ],
)
def test_a_given_tree_that_does_not_fit_the_embeddings_is_told(home: Path, tree: Hierarchy, told: str) -> None:
    with pytest.raises(DataError, match=told):
        read_data(npz(home, **NAMED), hierarchy=tree)


def test_features_alone_are_read_without_labels(home: Path) -> None:
    assert read_features(npz(home, y=None, train=None)).shape == (6, 3)


# ---- which reader --------------------------------------------------------------------------------------------------


def test_a_missing_file_is_told_with_the_names_that_are_known(home: Path) -> None:
    with pytest.raises(DataError, match=r"birdz: no such file or folder, and not a dataset known by name \(known: .*demo"):
        read_data("birdz")


def test_an_unknown_kind_of_file_is_told_with_the_known_kinds(home: Path) -> None:
    (home / "birds.hdf5").write_bytes(b"PAR1")
    with pytest.raises(
        DataError, match=r"hdf5: not data; pass .* a \.csv or \.tsv table, an \.npz of features, .* a folder of pictures"
    ):
        read_data(home / "birds.hdf5")


def test_a_source_may_be_a_string(home: Path) -> None:
    assert len(read_data(str(npz(home)))) == 6


# ---- samples -------------------------------------------------------------------------------------------------------


def make(sizes: list[int], unlabelled: int = 0) -> Samples:
    """One class per size, all under one coarse class, and some samples of which nothing is known."""
    tree = Hierarchy.from_paths([("all", f"s{i}") for i in range(len(sizes))], ("coarse", "fine"))
    fine = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(unlabelled, -1)]).astype(np.int64)
    labels = tree.fill(np.stack([fine, np.full(len(fine), -1)], axis=1))
    keys = tuple(f"{i:04d}" for i in range(len(fine)))
    x = np.arange(len(fine), dtype=np.float32)[:, None]
    return Samples("made", tree, keys, labels, np.full(len(fine), "train"), features=x)


def test_select_takes_everything_of_the_samples_asked_for_in_their_order(home: Path) -> None:
    samples = read_data(table(home, ROWS))
    part = samples.select(np.array([6, 0, 3]))
    assert part.keys == ("g.jpg", "a.jpg", "d.jpg")
    assert part.split.tolist() == ["test", "train", "test"]
    assert part.labels.tolist() == samples.labels[[6, 0, 3]].tolist()
    assert part.images == tuple(FilePicture(home / name) for name in part.keys)
    assert part.features is None
    assert part.hierarchy is samples.hierarchy
    assert len(part) == 3


def test_select_takes_the_features_too() -> None:
    part = make([2, 3]).select(np.array([4, 1]))
    assert part.features is not None
    assert part.features.tolist() == [[4.0], [1.0]]
    assert part.images is None


def test_index_gives_the_positions_of_a_split(home: Path) -> None:
    samples = read_data(table(home, ROWS))
    assert samples.index("train").tolist() == [0, 1, 2, 5]
    assert samples.index("val").tolist() == [4]
    assert samples.index("test").tolist() == [3, 6]


def test_a_stratum_is_the_deepest_class_that_is_known(home: Path) -> None:
    assert read_data(table(home, ROWS)).strata() == [
        "species/Ivory Gull",
        "family/Laridae",
        "order/Charadriiformes",
        "species/Ivory Gull",
        "unlabelled",
        "species/Common Loon",
        "species/Common Loon",
    ]


def test_the_fingerprint_changes_when_a_picture_does_and_only_then(home: Path) -> None:
    pictures(home, "A/1.jpg", "B/1.jpg", "B/2.jpg")
    before = read_data(home).fingerprint()
    assert read_data(home).fingerprint() == before
    assert read_data(home, levels=("kind",)).fingerprint() == before, "names of levels are no pictures"
    state = (home / "B" / "1.jpg").stat()
    Image.new("RGB", (9, 9), (200, 0, 0)).save(home / "B" / "1.jpg")
    os.utime(home / "B" / "1.jpg", ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))
    changed = read_data(home).fingerprint()
    assert changed != before
    (home / "B" / "2.jpg").unlink()
    assert read_data(home).fingerprint() not in (before, changed)


def test_the_fingerprint_changes_when_a_feature_does() -> None:
    samples = make([2, 3])
    assert samples.features is not None
    other = samples.features.copy()
    other[3, 0] += 1
    assert dataclasses.replace(samples, features=other).fingerprint() != samples.fingerprint()
    assert make([2, 3]).fingerprint() == samples.fingerprint()


# ---- drawing -------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30), st.integers(0, 99), st.integers(0, 5), st.data())
@settings(max_examples=25, deadline=None)
def test_a_draw_takes_the_count_of_each_stratum_whatever_the_order(
    strata: list[str], seed: int, wanted: int, data: st.DataObject
) -> None:
    keys = [f"{i}.jpg" for i in range(len(strata))]
    chosen = choose_some(keys, strata, lambda _, n: min(wanted, n), seed=seed, purpose="p")
    for stratum in set(strata):
        inside = [chosen[i] for i, s in enumerate(strata) if s == stratum]
        assert sum(inside) == min(wanted, len(inside))
    order = data.draw(st.permutations(range(len(keys))))
    again = choose_some(
        [keys[i] for i in order], [strata[i] for i in order], lambda _, n: min(wanted, n), seed=seed, purpose="p"
    )
    assert again.tolist() == [chosen[i] for i in order]


def test_a_draw_depends_on_the_seed_and_the_purpose() -> None:
    keys = [str(i) for i in range(60)]
    draws = [
        choose_some(keys, ["all"] * 60, lambda _, n: n // 2, seed=seed, purpose=purpose).tolist()
        for seed, purpose in [(0, "mask"), (1, "mask"), (0, "val"), (1, "val")]
    ]
    assert len({tuple(d) for d in draws}) == 4


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.floats(0, 1), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_a_share_is_stratified_and_leaves_one_of_each_stratum_behind(sizes: list[int], share: float, seed: int) -> None:
    samples = make(sizes, unlabelled=3)
    chosen = choose_share(samples, np.arange(len(samples)), share, seed=seed, purpose="val")
    assert (np.diff(chosen) > 0).all(), "positions are ascending"
    assert (samples.labels[chosen, 0] >= 0).all(), "what has no label is not drawn"
    taken = np.bincount(samples.labels[chosen, 0], minlength=len(sizes))
    for n, got in zip(sizes, taken, strict=True):
        assert got <= n - 1
        assert min(np.floor(n * share), n - 1) <= got <= np.ceil(n * share)
    assert choose_share(samples, np.arange(len(samples)), share, seed=seed, purpose="val").tolist() == chosen.tolist()


def test_a_share_is_drawn_only_among_those_offered() -> None:
    samples = make([10, 10])
    among = np.array([1, 3, 5, 7, 11, 13, 15, 17])
    chosen = choose_share(samples, among, 0.5, seed=0, purpose="val")
    assert set(chosen.tolist()) < set(among.tolist())
    assert np.bincount(samples.labels[chosen, 0]).tolist() == [2, 2]


def test_a_share_of_small_strata_comes_out_right_in_total() -> None:
    samples = make([4] * 500)
    among = np.arange(2000)
    totals = [len(choose_share(samples, among, 0.1, seed=seed, purpose="val")) for seed in range(3)]
    assert all(abs(total - 200) < 45 for total in totals), "4 standard deviations of 500 coins of 0.4"
    assert len(set(totals)) > 1


def test_with_split_moves_only_those_asked_for() -> None:
    samples = make([3, 3])
    moved = with_split(samples, np.array([1, 4]), "test")
    assert moved.split.tolist() == ["train", "test", "train", "train", "test", "train"]
    assert set(samples.split) == {"train"}


def test_a_test_part_is_set_aside_when_there_is_none() -> None:
    samples = make([10, 20, 30])
    held = hold_out_test(samples, 0.2)
    assert np.bincount(held.labels[held.index("test"), 0]).tolist() == [2, 4, 6]
    assert len(held.index("train")) == 48
    assert hold_out_test(samples, 0.2).split.tolist() == held.split.tolist(), "always the same"


def test_a_test_part_of_its_own_is_respected() -> None:
    samples = with_split(make([10, 20]), np.array([3]), "test")
    assert hold_out_test(samples, 0.5) is samples


def test_a_share_of_zero_sets_nothing_aside() -> None:
    samples = make([10, 20])
    assert hold_out_test(samples, 0) is samples


def test_a_validation_part_is_not_taken_for_testing() -> None:
    samples = with_split(make([10, 10]), np.arange(0, 20, 2), "val")
    held = hold_out_test(samples, 0.4)
    assert held.index("val").tolist() == list(range(0, 20, 2))
    assert np.bincount(held.labels[held.index("test"), 0]).tolist() == [2, 2]


def test_data_too_small_to_set_anything_aside_is_told_with_the_way_out() -> None:
    with pytest.raises(DataError, match="made: 3 samples are too few to set a test part aside; pass test_share=0"):
        hold_out_test(make([1, 1, 1]), 0.2)


def test_folds_are_disjoint_stratified_and_hold_all_but_what_stands_alone(home: Path) -> None:
    rows = [f"{i}.png,Charadriiformes,Laridae,{'Ivory Gull' if i % 2 else ''}" for i in range(20)]
    pictures(home, *(f"{i}.png" for i in range(21)))
    samples = read_data(table(home, "\n".join(["path,order,family,species", *rows, "20.png,Gaviiformes,Gaviidae,Common Loon"])))
    among = np.arange(21)
    parts = [choose_fold(samples, among, i, 5, seed=3) for i in range(5)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(20))  # the only loon always stays behind
    assert all((part % 2).sum() == 2 and len(part) == 4 for part in parts)
    assert not np.array_equal(parts[0], choose_fold(samples, among, 0, 5, seed=4))
