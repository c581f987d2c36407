"""COCO-style JSON, Darwin Core archives, and one level of folders with a tree: read as they are, or refused in one sentence."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import LEVELS, PATHS
from kinds import coco_categories, png, write_archive, write_coco, write_flat, write_inat, write_json
from torchlht.data.cuts import CutPicture
from torchlht.data.inputs import test_pictures as pictures_to_test
from torchlht.data.pictures import FilePicture, find_problems, picture_at
from torchlht.data.samples import Samples, label_by_name, read_data, source_of, split_in
from torchlht.errors import DataError, LHTError
from torchlht.hierarchy.tree import Hierarchy

TREE = Hierarchy.from_paths(PATHS, LEVELS)


def names_of(samples: Samples, i: int) -> tuple[str | None, ...]:
    """The classes of a sample, coarse → fine."""
    tree = samples.hierarchy
    return tuple(tree.classes[k][samples.labels[i, k]] if samples.labels[i, k] >= 0 else None for k in tree.top_down)


# ---- boxes ---------------------------------------------------------------------------------------------------------


def test_a_box_cuts_out_what_numpy_cuts_out_and_its_address_finds_it_again(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1, size=(40, 30)))
    pixels = np.asarray(Image.open(io.BytesIO(png(1, size=(40, 30)))))
    for left, top, width, height in ((0, 0, 40, 30), (3, 5, 10, 7), (35, 25, 100, 100)):
        picture = CutPicture(tmp_path / "a.png", left, top, width, height)
        assert (np.asarray(picture.open()) == pixels[top : top + height, left : left + width]).all()
        assert (np.asarray(Image.open(io.BytesIO(picture.read()))) == pixels[top : top + height, left : left + width]).all()
        assert picture_at(str(picture)) == picture
    outside = [CutPicture(tmp_path / "a.png", *box) for box in ((40, 0, 5, 5), (0, 0, 0, 5))]
    assert [problem.reason.partition(",")[0] for problem in find_problems(outside)] == ["the box is empty"] * 2
    (tmp_path / "a.png#1,2,3,4").write_bytes(png(2))
    assert picture_at(tmp_path / "a.png#1,2,3,4") == FilePicture(tmp_path / "a.png#1,2,3,4"), "a file of that name comes first"


def test_boxes_are_those_of_the_picture_the_right_way_up(tmp_path: Path) -> None:
    image = Image.open(io.BytesIO(png(1, size=(40, 30))))
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned clockwise
    turned.save(tmp_path / "a.png", exif=exif)
    cut = CutPicture(tmp_path / "a.png", 30, 20, 10, 10).open()
    assert (np.asarray(cut) == np.asarray(image)[20:30, 30:40]).all()


# ---- COCO ----------------------------------------------------------------------------------------------------------


def test_each_annotation_is_a_sample_where_pictures_hold_several_categories(tmp_path: Path) -> None:
    samples = read_data(write_coco(tmp_path / "coco"))
    assert samples.hierarchy.levels == ("level3", "level2", "level1")
    assert [len(samples.index(split)) for split in ("train", "val", "test")] == [36, 36, 0]
    for i, picture in enumerate(samples.images or ()):
        row, second = divmod(i % 36, 2)
        kind = (row + second) % 6
        assert names_of(samples, i) == PATHS[kind]
        assert (np.asarray(picture.open()) == np.asarray(Image.open(io.BytesIO(png(kind, row))))).all(), "whole pixels"
        assert samples.keys[i].endswith(f"{row:06d}.png#{5 + 24 * second},5,24,24")
    named = read_data(tmp_path / "coco", levels=LEVELS)
    assert named.hierarchy.levels == LEVELS[::-1]
    alone = read_data(tmp_path / "coco" / "annotations" / "instances_val2017.json")
    assert set(alone.split) == {"train"}


def test_samples_of_parts_with_pictures_of_one_name_and_of_one_box_have_names_of_their_own(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "a.png").write_bytes(png(1))
        boxes = [{"image_id": 1, "category_id": kind, "bbox": [1, 2, 3, 4]} for kind in (0, 1, 0)]
        content = {"images": [{"id": 1, "file_name": "a.png"}], "categories": coco_categories(), "annotations": boxes}
        write_json(tmp_path / split / "_annotations.coco.json", content)
    keys = read_data(tmp_path).keys
    assert sorted(keys) == sorted(f"{split}/a.png#1,2,3,4{end}" for split in ("train", "val") for end in ("", " (2)", " (3)"))
    assert read_data(tmp_path / "train" / "_annotations.coco.json").keys[1] == "a.png#1,2,3,4 (2)"


def test_a_picture_with_one_category_is_a_sample_whole(tmp_path: Path) -> None:
    samples = read_data(write_inat(tmp_path))
    assert samples.hierarchy.levels == LEVELS[::-1]
    assert samples.keys == tuple(f"train_val/{i}.png" for i in range(24))
    assert all(names_of(samples, i) == PATHS[i % 6] for i in range(24))
    assert all(isinstance(picture, FilePicture) for picture in samples.images or ())
    family = read_data(tmp_path / "train.json", levels=["family", "species"])
    assert family.hierarchy.levels == ("species", "family")
    unknown = read_data(tmp_path / "train.json", unknown=["horned puffin"])
    assert names_of(unknown, 0) == ("Auks", "Puffins", None)
    given = read_data(tmp_path / "train.json", hierarchy=TREE)
    assert (given.labels == given.hierarchy.fill(given.labels)).all()
    assert names_of(given, 5) == PATHS[5]


def coco(folder: Path, known: list[dict[str, Any]], inside: list[list[int]], **more: Any) -> Path:
    """A file with the categories in each picture, without boxes."""
    images = [{"id": f"i{i}", "file_name": f"{i}.png"} for i in range(len(inside))]
    annotations = [{"image_id": f"i{i}", "category_id": one} for i, some in enumerate(inside) for one in some]
    for i in range(len(inside)):
        (folder / f"{i}.png").write_bytes(png(i))
    return write_json(folder / "x.json", {"images": images, "categories": known, "annotations": annotations} | more)


@pytest.mark.parametrize(
    ("above", "levels", "classes"),
    [
        ({"a": "X", "b": "X", "c": "Y"}, ("category", "supercategory"), (("a", "b", "c"), ("X", "Y"))),
        ({"a": "none", "b": None, "c": ""}, ("category",), (("a", "b", "c"),)),
        ({"a": "a", "b": "Y", "c": "Y"}, ("category", "supercategory"), (("b", "c", "a"), ("Y", "a"))),
        ({"a": "birds", "b": "birds", "c": "birds", "birds": "none"}, ("category",), (("a", "b", "c"),)),
        ({"a": "X", "b": "none", "c": "X"}, ("category", "supercategory"), (("a", "c", "b (no category)"), ("X", "b"))),
    ],
)
def test_levels_come_from_supercategories(
    tmp_path: Path, above: dict[str, str | None], levels: tuple[str, ...], classes: tuple[tuple[str, ...], ...]
) -> None:
    categories = [{"id": i, "name": name, "supercategory": higher} for i, (name, higher) in enumerate(above.items())]
    tree = read_data(coco(tmp_path, categories, [[0], [1], [2], []])).hierarchy
    assert tree.levels == levels
    assert [set(names) for names in tree.classes] == [set(names) for names in classes]


def test_pictures_without_an_annotation_are_unlabelled_and_crowds_are_left_out(tmp_path: Path) -> None:
    categories = [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]
    samples = read_data(coco(tmp_path, categories, [[0], [1], []]))
    assert samples.labels.tolist() == [[0], [1], [-1]]
    crowd = [{"image_id": "i0", "category_id": 1, "iscrowd": 1}]
    file = coco(tmp_path, categories, [[0], [1]])
    content = json.loads(file.read_text())
    content["annotations"] += crowd
    assert len(read_data(write_json(file, content))) == 2


@pytest.mark.parametrize(("flag", "count"), [(False, 3), (True, 2), (None, 3)])
def test_iscrowd_is_a_truth_value_in_some_files(tmp_path: Path, flag: bool | None, count: int) -> None:
    file = coco(tmp_path, CATEGORIES, [[0, 1], [0]])
    content = json.loads(file.read_text())
    content["annotations"][0] |= {"iscrowd": flag, "bbox": [0, 0, 4, 4]}
    content["annotations"][1] |= {"bbox": [4, 4, 4, 4]}
    content["annotations"][2] |= {"bbox": [2, 2, 4, 4]}
    assert len(read_data(write_json(file, content))) == count


def test_pictures_are_found_in_data_also_if_the_first_is_missing(tmp_path: Path) -> None:
    coco(tmp_path, CATEGORIES, [[0], [1], [0]])
    (tmp_path / "data").mkdir()
    for i in range(1, 3):
        (tmp_path / f"{i}.png").rename(tmp_path / "data" / f"{i}.png")
    (tmp_path / "0.png").unlink()
    assert len(find_problems(read_data(tmp_path / "x.json").images or ())) == 1


def test_roboflows_folders_are_splits(tmp_path: Path) -> None:
    for split, count in (("train", 6), ("valid", 3), ("test", 3)):
        source = write_inat(tmp_path / split, count)
        source.rename(tmp_path / split / "_annotations.coco.json")
    samples = read_data(tmp_path)
    assert [len(samples.index(split)) for split in ("train", "val", "test")] == [6, 3, 3]
    assert find_problems(samples.images or ()) == []


BOX = {"image_id": "i0", "category_id": 1, "bbox": [1, 2, 3]}
CATEGORIES = [{"id": 0, "name": "a"}, {"id": 1, "name": "b"}]
WRONG_COCO: dict[str, tuple[dict[str, Any], str]] = {
    "several without box": ({}, r"0\.png: has several categories, and an annotation without bbox"),
    "three numbers": (
        {"annotations": [BOX, BOX | {"category_id": 0}]},
        r"bbox is \[1\.0, 2\.0, 3\.0\]; it must be \[left, top",
    ),
    "unknown category": ({"annotations": [BOX | {"category_id": 9}]}, r"annotations\[0\]: category_id 9 is not in the file"),
    "unknown picture": ({"annotations": [BOX | {"image_id": 9}]}, r"annotations\[0\]: image_id 9 is not in the file"),
    "no name": ({"categories": [{"id": 0}]}, r"categories\[0\] needs an id and a name"),
    "no pictures": ({"images": [], "annotations": []}, r"names no pictures"),
    "a picture twice": ({"images": [{"id": "i0", "file_name": "0.png"}] * 2}, r"images: the id 'i0' is there twice"),
    "a category twice": ({"categories": [*CATEGORIES, {"id": 1, "name": "c"}]}, r"categories: the id 1 is there twice"),
    "one name for two": (
        {
            "categories": [
                {"id": 0, "name": "bat", "supercategory": "animal"},
                {"id": 1, "name": "bat", "supercategory": "sport"},
            ]
        },
        r"two categories are called 'bat', under 'animal' and under 'sport'; rename one",
    ),
    "one species in two families": (
        {"categories": [{"id": 0, "name": "a", "family": "x"}, {"id": 1, "name": "a", "family": "y"}]},
        r"two categories are called 'a', as x › a and as y › a; rename one",
    ),
    "an address": ({"images": [{"id": "i0", "file_name": "http://x.example/a.jpg"}], "annotations": []}, r"is an address"),
    "wrong type": (
        {"annotations": [{"image_id": 1, "category_id": 1, "bbox": "x"}]},
        r"annotations\[0\]\.bbox: expected array",
    ),
    "no images": ({"images": 3}, r"images: expected array, got int"),
}


@pytest.mark.parametrize(
    ("names", "splits"), [(("train", "val"), {"train", "val"}), (("instances_default",), {"train"}), (("labels",), {"train"})]
)
def test_files_in_annotations_may_be_called_otherwise(tmp_path: Path, names: tuple[str, ...], splits: set[str]) -> None:
    file = coco(tmp_path, CATEGORIES, [[0], [1]])
    (tmp_path / "annotations").mkdir()
    for name in names:
        shutil.copy(file, tmp_path / "annotations" / f"{name}.json")
    file.unlink()
    (tmp_path / "annotations" / "notes.json").write_text("{}")
    samples = read_data(tmp_path)
    assert set(samples.split) == splits
    assert samples.hierarchy.classes == (("a", "b"),)


@pytest.mark.parametrize("wrong", WRONG_COCO)
def test_what_no_coco_file_says_is_refused(tmp_path: Path, wrong: str) -> None:
    change, sentence = WRONG_COCO[wrong]
    with pytest.raises(DataError, match=sentence):
        read_data(coco(tmp_path, CATEGORIES, [[0, 1], [0]], **change))


def test_levels_that_do_not_fit_supercategories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"its categories have 3 levels \(level1, level2, level3\), but levels names 2"):
        read_data(write_coco(tmp_path), levels=["x", "y"])
    (tmp_path / "x.json").write_text('{"images": [')
    with pytest.raises(DataError, match=r"x\.json: is not valid JSON"):
        read_data(tmp_path / "x.json")


# ---- Darwin Core archives --------------------------------------------------------------------------------------------


def check_archive(samples: Samples) -> None:
    assert samples.hierarchy.levels == ("species", "family", "order")
    for i, (key, picture) in enumerate(zip(samples.keys, samples.images or (), strict=True)):
        assert key == f"pictures.example/photos/{i}/original.png"
        assert picture.read() == png(i % 6, i)
        assert names_of(samples, i)[:2] == PATHS[i % 6][:2]
        assert (names_of(samples, i)[2] is None) == (i % 4 == 3)


def test_an_archive_unpacked_and_zipped(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    check_archive(read_data(folder, levels=LEVELS))
    assert read_data(folder).hierarchy.levels == ("species", "genus", "family", "order")
    with zipfile.ZipFile(tmp_path / "0001.zip", "w") as archive:
        for name in ("meta.xml", "occurrence.txt", "multimedia.txt"):
            archive.write(folder / name, name)
    shutil.move(folder / "media", tmp_path / "media")
    check_archive(read_data(tmp_path / "0001.zip", levels=LEVELS))
    with pytest.raises(
        DataError, match=r"none of its 24 pictures is here; https://pictures\.example/photos/0/original\.png belongs to .*media"
    ):
        read_data(folder)


def test_pictures_named_after_observations_and_species_without_a_column_for_them(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    for i in range(24):
        (folder / "media" / "pictures.example" / "photos" / str(i) / "original.png").rename(
            folder / "media" / f"{1000 + i}.png"
        )
    meta = (folder / "meta.xml").read_text()
    (folder / "meta.xml").write_text(meta.replace("specificEpithet", "somethingElse"))
    samples = read_data(folder)
    assert names_of(samples, 0)[-1] == f"{PATHS[0][2]} (Phipps, 1774)", "the scientific name fills the level of its rank"
    given = read_data(folder, hierarchy=Hierarchy.from_paths([(a, b) for a, b, _ in PATHS], ("order", "family")))
    assert names_of(given, 0) == PATHS[0][:2]
    (folder / "media" / "1003.png").unlink()
    assert len(find_problems(read_data(folder).images or ())) == 1


def test_a_subspecies_is_of_the_species_that_its_name_begins_with(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    meta = (folder / "meta.xml").read_text()
    (folder / "meta.xml").write_text(meta.replace("specificEpithet", "somethingElse"))
    rows = (folder / "occurrence.txt").read_text().splitlines()
    cells = rows[1].split("\t")
    cells[5:7] = "Turdus merula cabrerae", "SUBSPECIES"
    (folder / "occurrence.txt").write_text("\n".join([rows[0], "\t".join(cells), *rows[2:]]) + "\n")
    samples = read_data(folder)
    assert names_of(samples, 0)[-1] == "Turdus merula"


def test_a_species_has_one_name_whoever_described_it(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    assert names_of(read_data(folder), 0)[-1] == PATHS[0][2], "genus and epithet, not the scientific name with its author"
    meta = (folder / "meta.xml").read_text()
    (folder / "meta.xml").write_text(
        meta.replace("specificEpithet", "somethingElse").replace("locality", "scientificNameAuthorship")
    )
    rows = (folder / "occurrence.txt").read_text().replace('an "open quote', "(Phipps, 1774)")
    (folder / "occurrence.txt").write_text(rows)
    assert names_of(read_data(folder), 0)[-1] == PATHS[0][2]


IMAGES = {"rs.gbif.org/terms/1.0/Multimedia": "rs.gbif.org/terms/1.0/Image"}
AUDUBON = {
    "rs.gbif.org/terms/1.0/Multimedia": "rs.tdwg.org/ac/terms/Multimedia",
    "purl.org/dc/terms/identifier": "rs.tdwg.org/ac/terms/accessURI",
    "purl.org/dc/terms/format": "purl.org/dc/terms/identifier",  # the name of a picture, not where it is
}


@pytest.mark.parametrize("changes", [IMAGES, AUDUBON])
def test_other_tables_of_pictures(tmp_path: Path, changes: dict[str, str]) -> None:
    folder = write_archive(tmp_path / "export")
    meta = (folder / "meta.xml").read_text()
    for one, other in changes.items():
        meta = meta.replace(one, other)
    (folder / "meta.xml").write_text(meta)
    check_archive(read_data(folder, levels=LEVELS))


def test_pictures_lie_where_wget_puts_them_also_if_their_address_has_escapes(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    rows = (
        (folder / "multimedia.txt")
        .read_text()
        .replace("photos/0/", "photos/a%20b%C3%BC/")
        .replace("photos/1/", "photos/c%20d/")
    )
    (folder / "multimedia.txt").write_text(rows)
    photos = folder / "media" / "pictures.example" / "photos"
    (photos / "0").rename(photos / "a bü")
    (photos / "1").rename(photos / "c%20d")  # as other programs leave it
    samples = read_data(folder)
    assert samples.keys[0] == "pictures.example/photos/a%20b%C3%BC/original.png"
    assert not find_problems(samples.images or ())


WRONG_META = {
    "no xml": (lambda text: text.replace("</core>", ""), r"meta\.xml: is not valid XML"),
    "entities": (lambda text: f'<!DOCTYPE a [<!ENTITY b "c">]>{text}', r"declares a document type or entities"),
    "no core": (lambda text: text.replace("core", "nucleus"), r"names no core"),
    "no id": (lambda text: text.replace('<id index="0" />', ""), r"occurrence\.txt needs a id and fields"),
    "elsewhere": (lambda text: text.replace(">occurrence", ">../occurrence"), r"location '\.\./occurrence\.txt' is no file"),
    "negative": (lambda text: text.replace('index="0"', 'index="-1"'), r"a column or a delimiter that is not possible"),
    "too wide": (lambda text: text.replace('index="7"', 'index="99"'), r"8 cells, but meta\.xml names 100"),
    "no ranks": (
        lambda text: text.replace("terms/order", "a/x").replace("terms/family", "a/y").replace("terms/genus", "a/z")
        .replace("terms/taxonRank", "a/w"),
        r"its observations tell no ranks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_META)
def test_an_archive_that_is_none_is_refused(tmp_path: Path, wrong: str) -> None:
    folder = write_archive(tmp_path / "export")
    change, sentence = WRONG_META[wrong]
    (folder / "meta.xml").write_text(change((folder / "meta.xml").read_text()))
    with pytest.raises(LHTError, match=sentence):
        read_data(folder)


def test_media_of_no_observation_and_unknown_levels_are_refused(tmp_path: Path) -> None:
    folder = write_archive(tmp_path / "export")
    with pytest.raises(DataError, match=r"tell order, family, genus, species; pass some of these as levels"):
        read_data(folder, levels=["order", "tribe"])
    with (folder / "multimedia.txt").open("a") as file:
        file.write("7\tStillImage\timage/png\ta.png\n")
    with pytest.raises(DataError, match=r"multimedia\.txt line 50: observation '7' is not in occurrence\.txt"):
        read_data(folder)


# ---- folders around what other tools wrote ----------------------------------------------------------------------------


def test_a_folder_that_is_no_data_points_to_the_data_in_it(tmp_path: Path) -> None:
    (tmp_path / "coco" / "data").mkdir(parents=True)
    file = coco(tmp_path / "coco" / "data", CATEGORIES, [[0], [1]])
    file.rename(tmp_path / "coco" / "labels.json")
    with pytest.raises(DataError, match=r"coco: only one class, 'data'.*; or pass .*coco/labels\.json, which is data$"):
        read_data(tmp_path / "coco")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "1.png").write_bytes(png(0))
    (tmp_path / "pictures" / "notes.csv").write_text("a\n")
    with pytest.raises(DataError, match=r"folders inside folders for finer classes$"):
        read_data(tmp_path / "pictures")
    (tmp_path / "pictures" / "metadata.csv").write_text("file_name,species\n1.png,s\n")
    with pytest.raises(DataError, match=r"pictures: no folders inside.*; or pass .*pictures/metadata\.csv, which is data$"):
        read_data(tmp_path / "pictures")


# ---- tables of addresses ---------------------------------------------------------------------------------------------


def write_observations(folder: Path) -> Path:
    """A CSV as iNaturalist exports it."""
    lines = ["id,url,image_url,taxon_id,scientific_name,taxon_order_name,taxon_family_name,taxon_species_name"]
    for i, path in enumerate(PATHS):
        lines.append(
            f"{i},https://www.inat.example/{i},https://static.inat.example/photos/{i}/a%20b.jpeg?17,7,x,{','.join(path)}"
        )
        place = folder / "media" / "static.inat.example" / "photos" / str(i) / "a b.jpeg?17"
        place.parent.mkdir(parents=True)
        place.write_bytes(png(i))
    (folder / "observations.csv").write_text("\n".join(lines) + "\n")
    return folder / "observations.csv"


def test_a_table_of_addresses_finds_what_was_downloaded(tmp_path: Path) -> None:
    file, columns = write_observations(tmp_path), [f"taxon_{level}_name" for level in ("order", "family", "species")]
    samples = read_data(file, levels=columns)
    assert [names_of(samples, i) for i in range(6)] == list(PATHS)
    assert not find_problems(samples.images or ())
    assert pictures_to_test(str(file)) == list(samples.images or ())
    shutil.rmtree(tmp_path / "media" / "static.inat.example" / "photos" / "0")
    assert len(find_problems(read_data(file, levels=columns).images or ())) == 1
    shutil.rmtree(tmp_path / "media")
    with pytest.raises(
        DataError, match=r"line 2: https://.* belongs to .*/media/static\.inat\.example/photos/0/a%20b\.jpeg.*wget"
    ):
        read_data(file, levels=columns)


def test_an_address_that_makes_no_file_name_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"path,species\nhttps://x.example/{'a' * 300}.jpg,s\n1.png,t\n")
    (tmp_path / "1.png").write_bytes(png(0))
    with pytest.raises(DataError, match=r"line 2: .* is an address"):
        read_data(tmp_path / "a.csv")


# ---- one level of folders --------------------------------------------------------------------------------------------


def test_one_level_of_folders_with_a_tree(tmp_path: Path) -> None:
    samples = read_data(write_flat(tmp_path), hierarchy=Hierarchy.read(tmp_path / "tree.csv"))
    assert [len(samples.index(split)) for split in ("train", "val", "test")] == [42, 14, 21]
    for i, key in enumerate(samples.keys):
        name = key.split("/")[1]
        path = next((path for path in PATHS if path[2] == name), (*PATHS[5][:2], None))
        assert names_of(samples, i) == path
    alone = read_data(tmp_path / "photos" / "train", hierarchy=TREE)
    assert len(alone) == 42
    (tmp_path / "photos" / "train" / "Ivory Gul").mkdir()
    with pytest.raises(DataError, match=r"train/Ivory Gul: 'Ivory Gul' is no class of the tree, at any level: known: "):
        read_data(tmp_path / "photos", hierarchy=TREE)
    assert len(read_data(tmp_path / "photos", hierarchy=TREE, unknown=["ivory gul"])) == 77


def test_folders_of_coarse_classes_are_read_as_before(tmp_path: Path) -> None:
    for name in ("Auks", "Gulls"):
        (tmp_path / "x" / name).mkdir(parents=True)
        (tmp_path / "x" / name / "1.png").write_bytes(png(0))
    samples = read_data(tmp_path / "x", hierarchy=TREE)
    assert [names_of(samples, i) for i in range(2)] == [("Auks", None, None), ("Gulls", None, None)]


def test_a_name_stands_for_the_finest_class_that_has_it() -> None:
    tree = Hierarchy.from_paths([("person", "person"), ("animal", "cat")], ("above", "category"))
    assert label_by_name(tree, "person", "x") == [0, -1]
    assert label_by_name(tree, "animal", "x") == [-1, tree.index(1, "animal")]
    assert label_by_name(tree, None, "x") == [-1, -1]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train-00000-of-00002", "train"),
        ("instances_val2017", "val"),
        ("Validation", "val"),
        ("pretrained", None),
        ("0000", None),
    ],
)
def test_names_of_files_tell_splits(name: str, split: str | None) -> None:
    assert split_in(name) == split


def test_each_kind_is_recognised(tmp_path: Path) -> None:
    places = {
        "coco": write_coco(tmp_path / "coco"),
        "darwin-archive": write_archive(tmp_path / "export"),
        "folder": write_flat(tmp_path),
    }
    for name, place in places.items():
        found = source_of(place)
        assert found is not None
        assert found.name == name


def test_the_files_of_one_dataset_are_read_by_one_rule(tmp_path: Path) -> None:
    write_coco(tmp_path / "coco")
    file = tmp_path / "coco" / "annotations" / "instances_val2017.json"
    content = json.loads(file.read_text())
    content["annotations"] = content["annotations"][::2]  # one bird per picture
    write_json(file, content)
    samples = read_data(tmp_path / "coco")
    assert [len(samples.index(split)) for split in ("train", "val")] == [36, 18]
    assert all(isinstance(picture, CutPicture) for picture in samples.images or ())
    assert all(isinstance(picture, FilePicture) for picture in read_data(file).images or ())
