"""What looks wrong with labels is said before training, or asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchlht import Hierarchy, TrainArgs, read_data
from torchlht.cli import main
from torchlht.data.doubts import doubts, is_placeholder, is_vague, refuse_placeholders
from torchlht.data.samples import Samples
from torchlht.errors import ConfigError, DataError, HierarchyError
from torchlht.learn.training import prepare


def table(folder: Path, text: str) -> Path:
    """A table with these lines; its pictures need not exist to be read."""
    path = folder / "birds.csv"
    path.write_text(text)
    return path


def folder_of(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            Image.new("RGB", (8, 8)).save(root / name)
    return root


def samples_of(paths: list[tuple[str | None, ...]], levels: tuple[str, ...] = ("family", "species")) -> Samples:
    tree = Hierarchy.from_paths(sorted({path for path in paths if path[-1] or path[0]}, key=str), levels)
    labels = [[tree.index(k, name) if (name := path[::-1][k]) else -1 for k in range(len(tree))] for path in paths]
    n = len(paths)
    return Samples("birds", tree, tuple(map(str, range(n))), tree.fill(np.array(labels)), np.array(["train"] * n), images=())


GOOD = [("Auks", "Puffin"), ("Auks", "Puffin"), ("Gulls", "Tern"), ("Gulls", "Tern"), ("Gulls", None)]


def test_nothing_is_said_about_good_labels() -> None:
    assert doubts(samples_of(GOOD)) == []


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            [("Auks", "puffin"), ("Auks", "puffin"), ("Gulls", "Arctic tern"), ("Gulls", "arctic_Tern")],
            "species names that differ only by case or blanks are different classes: "
            "'Puffin' and 'puffin'; 'Arctic tern' and 'arctic_Tern'",
        ),
        ([("Gulls", "Larus sp.")] * 2, "1 class may be a missing label: 'Larus sp.'"),
        ([("thumbs", "Puffin 2")] * 2, "1 class may come from a stray folder: 'thumbs'"),
        ([("Gulls", "Skua")], "1 class at species with one sample, which cannot be both learned and tested: 'Skua'"),
    ],
)
def test_each_doubt_has_its_sentence(more: list[tuple[str | None, ...]], sentence: str) -> None:
    assert sentence in doubts(samples_of(GOOD + more))


def test_examples_are_few_and_counted() -> None:
    (said,) = doubts(samples_of(GOOD + [("Gulls", f"g{i}") for i in range(9)]))
    assert said == "9 classes at species with one sample, which cannot be both learned and tested: 'g0', 'g1', 'g2', …"


def test_a_folder_without_pictures_or_at_another_depth_is_named_once(tmp_path: Path) -> None:
    names = [f"{family}/{species}/{i}.png" for family in "ABCDE" for species in (f"{family}x", f"{family}y") for i in (1, 2)]
    root = folder_of(tmp_path, *names, "thumbs/1.png", "A/empty/", "B/2.png", "__MACOSX/B/1.png", ".git/x/1.png")
    (tmp_path / "A" / "empty").mkdir(exist_ok=True)
    said = doubts(read_data(root, levels=["family", "species"]))
    assert said == ["1 class may come from a stray folder: 'thumbs'", "1 class without a sample: 'empty'"]
    (tmp_path / "thumbs").rename(tmp_path / "Owls")
    said = doubts(read_data(root, levels=["family", "species"]))
    assert said[0] == "1 class at family without any species, maybe at the wrong depth: 'Owls'"


def test_preview_says_them(tmp_path: Path, capsys) -> None:
    root = folder_of(tmp_path / "birds", *(f"{c}/{i}.png" for c in ("a", "A", "b") for i in "12"))
    main(["data", "preview", str(root), "--out", str(tmp_path / "sheet.png")])
    assert (
        "look: level1 names that differ only by case or blanks are different classes: 'A' and 'a'\n" in capsys.readouterr().out
    )


# ---- placeholders --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["unknown", "NA", " n/a", "?", "-", "Unidentified", "NaN"])
def test_placeholders(name: str) -> None:
    assert is_placeholder(name)
    assert is_vague(name)


@pytest.mark.parametrize("name", ["none", "Larus sp.", "Gull spp.", "other"])
def test_vague_names(name: str) -> None:
    assert is_vague(name)
    assert not is_placeholder(name)


@pytest.mark.parametrize("name", ["Nandu", "Wasp", "Unknown Pleasures", "nonesuch"])
def test_names_of_birds(name: str) -> None:
    assert not is_vague(name)


PLACED = "path,family,species\na.jpg,Auks,Puffin\nb.jpg,Auks,unknown\nc.jpg,Gulls,Tern\nd.jpg,NA,NA\n"


def test_training_asks_what_a_placeholder_means(tmp_path: Path) -> None:
    path = table(tmp_path, PLACED)
    with pytest.raises(DataError, match=r"family has a class 'NA' \(1 sample\).*pass unknown=NA,unknown to train") as refused:
        refuse_placeholders(read_data(path))
    assert "--unknown NA,unknown to train on them as unknown, or --unknown '' to keep it" in refused.value.in_flags
    with pytest.raises(DataError, match="looks like a missing label"):
        prepare(TrainArgs(str(path)))


def test_names_that_mean_unknown_are_blanks_in_a_table(tmp_path: Path) -> None:
    samples = read_data(table(tmp_path, PLACED), unknown=["na", "Unknown"])
    assert samples.hierarchy.describe() == "family 2 › species 2"
    assert samples.labels.tolist() == [[0, 0], [-1, 0], [1, 1], [-1, -1]]


def test_folders_that_mean_unknown_are_no_classes(tmp_path: Path) -> None:
    root = folder_of(tmp_path, "A/x/1.png", "A/unknown/2.png", "B/y/3.png", "B/unknown/4.png", "Unknown/5.png")
    with pytest.raises(DataError, match=r"'unknown' is under 'B' here but under 'A' on .*; unknown=Unknown,unknown counts"):
        read_data(root)
    samples = read_data(root, unknown=["unknown"])
    found = dict(zip(samples.keys, samples.labels.tolist(), strict=True))
    assert found == {
        "A/x/1.png": [0, 0],
        "A/unknown/2.png": [-1, 0],
        "B/y/3.png": [1, 1],
        "B/unknown/4.png": [-1, 1],
        "Unknown/5.png": [-1, -1],
    }


def test_features_have_no_names_to_be_unknown(embeddings: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown is for tables and folders, not for an \.npz of features"):
        read_data(embeddings, unknown=["NA"])


def test_a_name_that_is_not_in_the_tree_may_be_unknown(tmp_path: Path) -> None:
    tree = Hierarchy.from_paths([("Auks", "Puffin"), ("Gulls", "Tern")], ["family", "species"])
    path = table(tmp_path, "path,species\na.jpg,Puffin\nb.jpg,unknown\n")
    with pytest.raises(
        DataError, match=r"line 3: species has no class 'unknown'.*unknown=unknown counts it as a missing label"
    ):
        read_data(path, hierarchy=tree)
    assert read_data(path, hierarchy=tree, unknown=["unknown"]).labels.tolist() == [[0, 0], [-1, -1]]


# ---- columns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "cells", "why"),
    [
        ("photo", [f"p{i}" for i in range(12)], "'photo' has as many values as rows"),
        ("where", [f"{i % 3}.25" for i in range(12)], "'where' holds fractions"),
        ("Date", ["today"] * 12, "'Date' is seldom one"),
    ],
)
def test_columns_that_are_hardly_levels_have_to_be_named(tmp_path: Path, column: str, cells: list[str], why: str) -> None:
    lines = [f"{i}.jpg,{'ab'[i % 2]},{'wxyz'[i % 4]},{cell}" for i, cell in enumerate(cells)]
    path = table(tmp_path, "\n".join([f"path,family,species,{column}", *lines]))
    with pytest.raises(DataError) as refused:
        read_data(path)
    sentence = f"{path}: which columns are levels? {why}; name them, coarse → fine: --levels family,species"
    assert refused.value.in_flags == sentence
    assert read_data(path, levels=["family", "species"]).hierarchy.describe() == "family 2 › species 4"
    tree = Hierarchy.from_paths([("a", "w"), ("a", "y"), ("b", "x"), ("b", "z")], ["family", "species"])
    assert len(read_data(path, hierarchy=tree)) == 12


def test_a_few_rows_may_all_be_different(tmp_path: Path) -> None:
    path = table(tmp_path, "path,species\n" + "".join(f"{i}.jpg,s{i}\n" for i in range(9)))
    assert read_data(path).hierarchy.sizes == (9,)


# ---- ragged trees --------------------------------------------------------------------------------------------------


def test_a_branch_of_a_table_may_end_early(tmp_path: Path) -> None:
    lines = "path,order,family,species\na.jpg,Gulls,Terns,Arctic\nb.jpg,Loons,Gaviidae,\nc.jpg,Grebes,,\nd.jpg,Gulls,,\n"
    samples = read_data(table(tmp_path, lines))
    names = [
        [samples.hierarchy.classes[k][i] if i >= 0 else None for k, i in enumerate(row)] for row in samples.labels.tolist()
    ]
    assert names == [
        ["Arctic", "Terns", "Gulls"],
        ["Gaviidae (no species)", "Gaviidae", "Loons"],
        ["Grebes (no species)", "Grebes (no family)", "Grebes"],
        [None, None, "Gulls"],
    ]


def test_a_tree_file_may_have_blank_tails(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text(
        "order,family,species\nGulls,Terns,Arctic\nGulls,Terns,Common\nLoons,Gaviidae,\nGrebes,,\n"
    )
    tree = Hierarchy.read(tmp_path / "tree.csv")
    assert tree.describe() == "order 3 › family 2 › species 2 (2 branches end early)"
    (tmp_path / "tree.csv").write_text("order,species\nGulls,Tern\nGulls,\n")
    with pytest.raises(HierarchyError, match="line 3: species is empty"):
        Hierarchy.read(tmp_path / "tree.csv")


def test_known_labels_are_left_alone_on_the_way_down() -> None:
    tree = Hierarchy.from_paths([("A", None), ("B", "x"), ("B", "y")], ["family", "species"])
    labels = np.array([[-1, 0], [-1, 1], [2, 1], [-1, -1]])
    expected = labels.copy()
    expected[0, 0] = tree.index(0, "A (no species)")
    assert tree.complete(labels).tolist() == expected.tolist()


# ---- one column of labels ------------------------------------------------------------------------------------------

TREE = Hierarchy.from_paths([("Auks", "Puffin"), ("Gulls", "Tern"), ("Gulls", "Skua")], ["family", "species"])
X = np.zeros((4, 2), dtype=np.float32)


@pytest.mark.parametrize(
    "arrays",
    [
        {"y": np.array([1, -1, 0, 2])},
        {"y": np.array([[1], [-1], [0], [2]])},
        {"y": np.array(["Tern", "", "Puffin", "Skua"])},
        {"y": np.array([0, -1, 1, 2]), "classes_species": np.array(["Tern", "Puffin", "Skua"])},
    ],
)
def test_one_column_of_finest_classes_and_a_tree_are_enough(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "x.npz", x=X, **arrays)
    samples = read_data(tmp_path / "x.npz", hierarchy=TREE)
    assert samples.labels.tolist() == [[1, 1], [-1, -1], [0, 0], [2, 1]]


@pytest.mark.parametrize(
    ("arrays", "hierarchy", "sentence"),
    [
        ({"y": np.array([1, 3, 0, 2])}, TREE, "row 1: label 3; the tree has 3 species classes, from 0"),
        ({"y": np.array(["Tern", "Gul", "", ""])}, TREE, "'y': species has no class 'Gul'"),
        ({"y": np.zeros(4)}, TREE, "'y' is float64, expected names or numbers of species classes"),
        ({"y": np.array([1, 3, 0, 2])}, None, "'y' has one column: pass hierarchy=FILE with the tree of its classes"),
    ],
)
def test_what_is_wrong_with_one_column_is_told(tmp_path: Path, arrays, hierarchy, sentence: str) -> None:
    np.savez(tmp_path / "x.npz", x=X, **arrays)
    with pytest.raises(DataError, match=sentence):
        read_data(tmp_path / "x.npz", hierarchy=hierarchy)
