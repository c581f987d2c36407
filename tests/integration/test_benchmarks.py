"""Benchmarks from their official archives: small ones in the same layouts, and every way they can be wrong."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pickle
import shlex
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image
from torchvision.datasets import CIFAR100

from torchlht.answer.backbones import create_backbone
from torchlht.cli import find_command, main, parse
from torchlht.data.inputs import expand
from torchlht.data.named import known_names
from torchlht.data.pictures import FilePicture, PackedPicture, find_problems, open_image, picture_at
from torchlht.data.preparing import Preprocess
from torchlht.data.samples import Mask, Samples, read_data
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import shipped_tree
from torchlht.lab.benchmarks.prepare import BENCHMARKS, prepare_benchmark
from torchlht.lab.benchmarks.vision import PlainUnpickler, taxa
from torchlht.measure.evaluation import frozen_features
from torchlht.show.preview import contact_sheet


def jpeg() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), (10, 120, 30)).save(out, format="JPEG")
    return out.getvalue()


JPEG = jpeg()


def write(path: Path, content: str | bytes = JPEG) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def lines(pairs: dict[Any, Any]) -> str:
    return "".join(f"{key} {value}\n" for key, value in pairs.items())


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Everything under a folder, with its size and when it last changed."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in [root, *root.rglob("*")]}


def named(samples: Samples) -> dict[str, tuple[str, ...]]:
    """Each key's labels by name, coarse → fine, and its split."""
    tree = samples.hierarchy
    return {
        key: (*(tree.classes[k][row[k]] for k in tree.top_down), str(split))
        for key, row, split in zip(samples.keys, samples.labels, samples.split, strict=True)
    }


@pytest.fixture
def expect(monkeypatch: pytest.MonkeyPatch):
    """Small archives hold less than the official ones."""

    def change(name: str, **changed: Any) -> None:
        monkeypatch.setitem(BENCHMARKS, name, dataclasses.replace(BENCHMARKS[name], **changed))

    return change


# ---- archives in their official layouts ----------------------------------------------------------------------------


def make_cub(root: Path) -> Path:
    """A training and a test picture of each of the 200 species."""
    base, tree = root / "CUB_200_2011", shipped_tree("cub")
    files = {}
    for j, species in enumerate(tree.classes[0]):
        for n in (1, 2):
            files[2 * j + n] = f"{species}/{species[4:]}_{n:04d}_{100 * j + n}.jpg"
            write(base / "images" / files[2 * j + n])
    write(base / "images.txt", lines(files))
    write(base / "image_class_labels.txt", lines({i: (i + 1) // 2 for i in files}))
    write(base / "train_test_split.txt", lines({i: i % 2 for i in files}))
    write(base / "classes.txt", lines({j + 1: name for j, name in enumerate(tree.classes[0])}))
    return root


def aircraft_paths() -> list[tuple[str, str, str]]:
    """100 models, 70 families and 30 makers; as in the real one, most families have a single model."""
    families = [f"{'F/A-' if i % 7 == 0 else 'Family '}{i}" for i in range(70)]
    sizes = [1] * 54 + [2] * 10 + [3, 3, 4, 4, 4, 8]
    of = [family for family, size in zip(families, sizes, strict=True) for _ in range(size)]
    return [(f"Maker {families.index(family) % 30}", family, f"{j}-320 {family[-3:]}/B") for j, family in enumerate(of)]


def make_aircraft(root: Path) -> Path:
    """A picture of each model in trainval and in test."""
    base, paths = root / "fgvc-aircraft-2013b" / "data", aircraft_paths()
    for part, start in (("trainval", 1025794), ("test", 2000000)):
        for column, kind in enumerate(("manufacturer", "family", "variant")):
            write(base / f"images_{kind}_{part}.txt", lines({start + j: path[column] for j, path in enumerate(paths)}))
        for j in range(len(paths)):
            write(base / "images" / f"{start + j}.jpg")
    for column, name in enumerate(("manufacturers", "families", "variants")):
        write(base / f"{name}.txt", "".join(f"{name}\n" for name in dict.fromkeys(path[column] for path in paths)))
    return root


CAR_PARTS = {"train": 2, "test": 1}  # pictures of each model


def car_names() -> list[str]:
    """As they stand in the official files, or nearly: signs and spaces differ between copies."""
    names = list(shipped_tree("cars").classes[0])
    return [name.replace("/", "-") if "C/V" in name else f" {name}" if j % 9 == 0 else name for j, name in enumerate(names)]


def structs(rows: list[dict[str, Any]]) -> np.ndarray:
    """A 1 × N array of structs, as MATLAB writes it."""
    array = np.zeros((1, len(rows)), dtype=[(name, object) for name in rows[0]])
    for i, row in enumerate(rows):
        for name, value in row.items():
            array[name][0, i] = value
    return array


def save_mat(path: Path, **content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, content)


def cell(names: list[str]) -> np.ndarray:
    array = np.empty((1, len(names)), dtype=object)
    array[0, :] = names
    return array


BOX = {"bbox_x1": np.uint16(1), "bbox_y1": np.uint16(2), "bbox_x2": np.uint16(300), "bbox_y2": np.uint16(4)}


def make_old_cars(root: Path, names: list[str] | None = None) -> Path:
    rows = [
        {"relative_im_path": f"car_ims/{n:06d}.jpg", **BOX, "class": np.uint8(j + 1), "test": np.uint8(split == "test")}
        for n, (j, split) in enumerate(((j, s) for j in range(196) for s, k in CAR_PARTS.items() for _ in range(k)), start=1)
    ]
    for row in rows:
        write(root / row["relative_im_path"])
    save_mat(root / "cars_annos.mat", annotations=structs(rows), class_names=cell(names or car_names()))
    return root


def make_new_cars(root: Path, *, devkit: str = "devkit", doubled: bool = False, labels: str = "") -> Path:
    save_mat(root / devkit / "cars_meta.mat", class_names=cell(car_names()))
    for split, each in CAR_PARTS.items():
        order = np.random.default_rng(0).permutation(np.repeat(np.arange(196), each))  # the official lists are mixed
        rows = [{**BOX, "class": np.uint8(j + 1), "fname": f"{n:05d}.jpg"} for n, j in enumerate(order, start=1)]
        folder = root / f"cars_{split}"
        for row in rows:
            write((folder / folder.name if doubled else folder) / row["fname"])
        if split == "train":
            save_mat(root / devkit / "cars_train_annos.mat", annotations=structs(rows))
        else:
            bare = [{name: value for name, value in row.items() if name != "class"} for row in rows]
            save_mat(root / devkit / "cars_test_annos.mat", annotations=structs(bare))
            save_mat(root / labels / "cars_test_annos_withlabels.mat", annotations=structs(rows))
    return root


ISIC = ("MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC")
INPUT, TRUTH = "ISIC2018_Task3_Training_Input", "ISIC2018_Task3_Training_GroundTruth"
GROUPS = "ISIC2018_Task3_Training_LesionGroupings.csv"


def make_isic(root: Path, *, beside: bool = False) -> tuple[Path, dict[str, str]]:
    """40 to 100 pictures of each diagnosis, 1 to 6 of a lesion; gives the lesion of each picture."""
    rng = np.random.default_rng(1)
    truth, lesions = [f"image,{','.join(ISIC)}"], {}
    for d, count in enumerate((60, 100, 50, 45, 55, 40, 42)):
        lesion, left = 0, 0
        for _ in range(count):
            if not left:
                lesion, left = int(rng.integers(10**6)), int(rng.integers(1, 7))
            left -= 1
            image = f"ISIC_{24306 + len(lesions):07d}"
            lesions[image] = f"HAM_{lesion:07d}"
            truth.append(f"{image},{','.join('1.0' if i == d else '0.0' for i in range(7))}")
            write(root / INPUT / f"{image}.jpg")
    write(root / TRUTH / f"{TRUTH}.csv", "\n".join(truth) + "\n")
    rows = "".join(f"{image},{lesion},histopathology\n" for image, lesion in lesions.items())
    write(root / ("" if beside else TRUTH) / GROUPS, f"image,lesion_id,diagnosis_confirm_type\n{rows}")
    return root, lesions


SOURCE_WORDS = {"n01440764": "tench, Tinca tinca", "n02012849": "crane", "n03126707": "crane", "n09999999": "zebra, Equus"}
TARGET_WORDS = {"n00004475": "organism, being", "n02000000": "heron"}


def make_ilsvrc(root: Path, sources: str = "ILSVRC2012/train") -> Path:
    """Four classes to learn from, and two targets; one class is in both."""
    for wnid in SOURCE_WORDS:
        for n in range(203 if wnid == "n01440764" else 3):
            write(root / sources / wnid / f"{wnid}_{n:05d}.JPEG", b"")
    for wnid in [*TARGET_WORDS, "n01440764"]:
        for n in range(152 if wnid == "n02000000" else 2):
            write(root / "ILSVRC2010" / "train" / wnid / f"{wnid}_{n:05d}.JPEG", b"")
    write(root / "LOC_synset_mapping.txt", lines(SOURCE_WORDS))
    write(root / "ILSVRC2010" / "words.txt", "".join(f"{wnid}\t{name}\n" for wnid, name in TARGET_WORDS.items()))
    return root


def make_cifar(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two training pictures and a test picture of each class. The checksums of the official files are not theirs."""
    base, rng = root / "cifar-100-python", np.random.default_rng(0)
    base.mkdir(parents=True)
    for split, each in (("train", 2), ("test", 1)):
        fine = rng.permutation(np.repeat(np.arange(100), each)).tolist()
        data = rng.integers(0, 256, (len(fine), 3072), dtype=np.uint8)
        content = {"data": data, "fine_labels": fine, "coarse_labels": [j % 20 for j in fine], "batch_label": split}
        (base / split).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"fine_label_names": [f"fine {j}" for j in range(100)], "coarse_label_names": [f"coarse {i}" for i in range(20)]}
    (base / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    monkeypatch.setattr(CIFAR100, "train_list", [["train", None]])
    monkeypatch.setattr(CIFAR100, "test_list", [["test", None]])
    monkeypatch.setattr(CIFAR100, "meta", {"filename": "meta", "key": "fine_label_names", "md5": None})
    return root


def make_fashion(root: Path) -> Path:
    """Three training pictures and a test picture of each article, as bright as their number."""
    raw = root / "FashionMNIST" / "raw"
    for part, count in (("train", 30), ("t10k", 10)):
        pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 28, 28)).tobytes()
        write(raw / f"{part}-images-idx3-ubyte", struct.pack(">iiii", 0x803, count, 28, 28) + pixels)
        write(raw / f"{part}-labels-idx1-ubyte", struct.pack(">ii", 0x801, count) + bytes(i % 10 for i in range(count)))
    return root


TAXA = (
    "Animalia_Annelida_Clitellata_Haplotaxida_Lumbricidae_Lumbricus_terrestris",
    "Animalia_Chordata_Aves_Passeriformes_Prunellidae_Prunella_modularis",
    "Animalia_Chordata_Aves_Passeriformes_Prunellidae_Prunella_collaris",
    "Fungi_Ascomycota_Lecanoromycetes_Caliciales_Physciaceae_Physcia_stellaris",
    "Plantae_Tracheophyta_Magnoliopsida_Lamiales_Lamiaceae_Prunella_vulgaris",
)


def make_inat(root: Path, train: str = "2021_train") -> Path:
    for version, each in ((train, 3), ("2021_valid", 1)):
        for j, taxon in enumerate(TAXA):
            for n in range(each):
                write(root / version / f"{j:05d}_{taxon}" / f"{version}-{n}-{j}.jpg")
    return root


@pytest.fixture(scope="module")
def cub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_cub(tmp_path_factory.mktemp("birds"))


@pytest.fixture(scope="module")
def aircraft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_aircraft(tmp_path_factory.mktemp("aircraft"))


@pytest.fixture
def small_cub(expect) -> None:
    expect("cub", splits={"train": 200, "test": 200})


@pytest.fixture
def small_aircraft(expect) -> None:
    for name in ("aircraft", "aircraft-perturbed"):
        expect(name, splits={"train": 100, "test": 100})


@pytest.fixture
def small_cars(expect) -> None:
    expect("cars", splits={"train": 392, "test": 196})


# ---- what all of them have in common -------------------------------------------------------------------------------


def test_a_prepared_benchmark_is_known_by_name_and_its_archive_stays_as_it_is(cub: Path, small_cub: None, own_cache) -> None:
    before = state(cub)
    table = prepare_benchmark("cub", cub)
    assert state(cub) == before
    assert table == own_cache / "data" / "cub" / "cub.csv"
    assert {path.name for path in table.parent.iterdir()} == {"cub.csv", "hierarchy.json"}
    samples = read_data("cub")
    assert samples.name == "cub"
    assert samples.hierarchy == shipped_tree("cub")
    found = named(samples)
    assert Counter(row[-1] for row in found.values()) == {"train": 200, "test": 200}
    first = "002.Laysan_Albatross/Laysan_Albatross_0001_101.jpg"
    assert found[first] == ("Procellariiformes", "Diomedeidae", "002.Laysan_Albatross", "train")
    assert found[first.replace("_0001_101", "_0002_102")][-1] == "test"
    assert all(key.split("/")[0] == row[2] for key, row in found.items())
    assert samples.images is not None
    assert samples.images[0].file.is_absolute()
    assert not find_problems(samples.images)


def test_moving_the_archive_changes_neither_keys_nor_masks(small_cars: None, tmp_path: Path) -> None:
    root = make_new_cars(tmp_path / "here")
    prepare_benchmark("cars", root)
    here = read_data("cars")
    shutil.move(root, tmp_path / "deep" / "down" / "there")
    prepare_benchmark("cars", tmp_path / "deep" / "down" / "there")
    there = read_data("cars")
    assert here.images != there.images
    assert here.keys == there.keys
    assert here.keys[0] == "cars_train/00001.jpg"
    (masked, kept), (other, also) = (Mask(0.5, seed=3).apply(samples) for samples in (here, there))
    assert len(kept) == 196, "one of two"
    assert kept.tolist() == also.tolist()
    assert np.array_equal(masked.labels, other.labels)


def test_keys_are_as_written_when_any_path_is_relative(tmp_path: Path) -> None:
    def keys(*paths: str) -> tuple[str, ...]:
        rows = "".join(f"{path},{'xy'[i % 2]}\n" for i, path in enumerate(paths))
        write(tmp_path / "t.csv", f"path,kind\n{rows}")
        return read_data(tmp_path / "t.csv").keys

    assert keys("/a/b/1.jpg", "c/2.jpg") == ("/a/b/1.jpg", "c/2.jpg")
    assert keys("/a/b/1.jpg", "/a/c/d/2.jpg") == ("b/1.jpg", "c/d/2.jpg")
    assert keys("/a/b/1.jpg", "/a/b/2.jpg") == ("1.jpg", "2.jpg")
    assert keys("/1.jpg", "/b/2.jpg") == ("1.jpg", "b/2.jpg")


def test_every_benchmark_is_a_name_of_data_and_says_how_to_prepare_it() -> None:
    assert {"demo", *BENCHMARKS} <= set(known_names())
    for name, benchmark in BENCHMARKS.items():
        assert len(benchmark.levels) == len(benchmark.sizes)
        with pytest.raises(DataError, match=f"^{name} is not prepared yet: lht data prepare {name} --root DIR.*https://"):
            read_data(name)


def test_a_file_or_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "cars" / "A" / "1.jpg")
    write(tmp_path / "cars" / "B" / "1.jpg")
    assert read_data("cars").hierarchy.classes == (("A", "B"),)


def test_a_prepared_benchmark_can_be_read_with_fewer_levels_or_another_tree(cub: Path, small_cub: None) -> None:
    prepare_benchmark("cub", cub)
    assert read_data("cub", levels=("order", "species")).hierarchy.describe() == "order 13 › species 200"
    tree = shipped_tree("cub")
    assert read_data("cub", hierarchy=tree).hierarchy is tree


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("cup", {}, r"unknown benchmark 'cup': did you mean cub\? \(known: cub, aircraft"),
        ("cars", {"tree": "published"}, r"tree is published: cars has no such tree \(it has default\)"),
        ("cub", {"mode": "renamed"}, "mode is renamed: only aircraft-perturbed has modes"),
        ("aircraft-perturbed", {}, "mode is None: aircraft-perturbed needs one of stale_prior, renamed, rewired"),
    ],
)
def test_options_that_do_not_fit_are_told(tmp_path: Path, name: str, options: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        prepare_benchmark(name, tmp_path, **options)


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_an_empty_or_missing_folder_is_told_with_the_official_home_and_nothing_is_written(
    tmp_path: Path, own_cache: Path, name: str
) -> None:
    mode = BENCHMARKS[name].modes[0] if BENCHMARKS[name].modes else None
    with pytest.raises(DataError, match=r"missing|neither") as caught:
        prepare_benchmark(name, tmp_path, mode=mode)
    assert BENCHMARKS[name].where in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    with pytest.raises(DataError, match="nowhere"):
        prepare_benchmark(name, tmp_path / "nowhere", mode=mode)
    assert not any(own_cache.iterdir())
    assert not any(tmp_path.iterdir())


# ---- CUB -----------------------------------------------------------------------------------------------------------


def test_the_published_tree_of_the_birds_has_its_error(cub: Path, small_cub: None, tmp_path: Path) -> None:
    prepare_benchmark("cub", cub, tree="published")
    samples = read_data("cub")
    assert samples.hierarchy.describe() == "order 13 › family 38 › species 200"
    right, wrong = shipped_tree("cub"), samples.hierarchy
    differ = {}
    for j, species in enumerate(right.classes[0]):
        ours, theirs = (tuple(tree.classes[k][tree.path(j)[k]] for k in (2, 1)) for tree in (right, wrong))
        if ours != theirs:
            differ[species] = (ours, theirs)
    assert differ == {
        "076.Dark_eyed_Junco": (("Passeriformes", "Emberizidae"), ("Passeriformes", "Passerellidae")),
        "084.Red_legged_Kittiwake": (("Charadriiformes", "Laridae"), ("Coraciiformes", "Laridae (published)")),
    }
    family = wrong.index(1, "Laridae (published)")
    assert int((wrong.parents[0] == family).sum()) == 1


def changed_cub(cub: Path, root: Path) -> Path:
    """A copy that shares the pictures, to spoil."""
    base = root / "CUB_200_2011"
    base.mkdir()
    for file in (cub / "CUB_200_2011").glob("*.txt"):
        shutil.copy(file, base)
    (base / "images").symlink_to(cub / "CUB_200_2011" / "images")
    return base


def test_everything_the_birds_lack_is_told_at_once(cub: Path, tmp_path: Path) -> None:
    base = changed_cub(cub, tmp_path)
    (base / "images").unlink()
    (base / "classes.txt").unlink()
    with pytest.raises(
        DataError, match=r"CUB_200_2011: missing images/, classes\.txt; get Caltech-UCSD .* https://www\.vision"
    ):
        prepare_benchmark("cub", tmp_path)


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("train_test_split.txt", "17 1\n", "", r"train_test_split\.txt: nothing about picture 17, which is in images\.txt"),
        ("train_test_split.txt", "17 1\n", "17 2\n", r"train_test_split\.txt picture 17: '2' is not one of 1, 0"),
        (
            "image_class_labels.txt",
            "17 9\n",
            "17 901\n",
            r"image_class_labels\.txt picture 17: '901' is not one of 1, 2, 3, 4, …",
        ),
        (
            "classes.txt",
            "Laysan_Alb",
            "Laysn_Alb",
            r"classes\.txt: species has no class '002\.Laysn_Albatross': did you mean 002",
        ),
        ("images.txt", "17 009", "16 009", r"images\.txt line 17: '16' appears twice"),
        ("images.txt", "\n17 009", "\n17\n18 009", r"images\.txt line 17: '17' has one word"),
        ("images.txt", "_0001_801.jpg", "_0001_999.jpg", r"1 of 400 pictures are missing, the first is .*_0001_999\.jpg"),
    ],
)
def test_each_fault_of_the_birds_is_told(
    cub: Path, small_cub: None, tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    base = changed_cub(cub, tmp_path)
    text = (base / file).read_text()
    assert old in text
    (base / file).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=told):
        prepare_benchmark("cub", base)


def test_wrong_numbers_of_pictures_and_classes_are_told_together(cub: Path, expect, own_cache: Path) -> None:
    with pytest.raises(DataError, match="200 train pictures instead of 5,994; 200 test pictures instead of 5,794"):
        prepare_benchmark("cub", cub)
    expect("cub", sizes=(201, 38, 13), splits={"train": 200, "test": 200})
    with pytest.raises(DataError, match="200 classes of level species instead of 201"):
        prepare_benchmark("cub", cub)
    assert not any(own_cache.iterdir())


# ---- Aircraft ------------------------------------------------------------------------------------------------------


def test_aircraft_are_read_from_any_of_their_folders(aircraft: Path, small_aircraft: None, tmp_path: Path) -> None:
    before = state(aircraft)
    tables = [
        prepare_benchmark("aircraft", aircraft / inner, tmp_path / str(i)).read_text()
        for i, inner in enumerate(("", "fgvc-aircraft-2013b", "fgvc-aircraft-2013b/data"))
    ]
    assert state(aircraft) == before
    assert tables[0] == tables[1] == tables[2]
    prepare_benchmark("aircraft", aircraft)
    samples = read_data("aircraft")
    assert samples.hierarchy.levels == ("model", "family", "maker")
    assert samples.hierarchy.sizes == (100, 70, 30)
    assert list(samples.hierarchy.classes[0]) == [path[2] for path in aircraft_paths()], "in the order of variants.txt"
    expected = {f"{1025794 + j}.jpg": (*path, "train") for j, path in enumerate(aircraft_paths())}
    expected |= {f"{2000000 + j}.jpg": (*path, "test") for j, path in enumerate(aircraft_paths())}
    assert named(samples) == expected


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            "images_family_test.txt",
            " Family 1\n",
            " Family 2\n",
            r"images_family_test\.txt picture 2000001: model '1-320 y 1/B' is under 'Family 2' here but under 'Family 1' else",
        ),
        ("images_manufacturer_test.txt", " Maker 1\n", " Maker 2\n", r"family 'Family 1' is under 'Maker 2' here but under"),
        ("variants.txt", "1-320 y 1/B\n", "", r"variants\.txt: '1-320 y 1/B' is not listed, but pictures have this label"),
        (
            "families.txt",
            "Family 1\n",
            "Family 1\nFamily 1b\n",
            r"families\.txt: 'Family 1b' is listed, but no picture",
        ),
        ("images_variant_trainval.txt", "1025795 ", "1 ", r"nothing about picture 1.*trainval\.txt; get FGVC-Aircraft from"),
    ],
)
def test_each_fault_of_the_aircraft_is_told(
    aircraft: Path, small_aircraft: None, tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    source = aircraft / "fgvc-aircraft-2013b" / "data"
    for text in source.glob("*.txt"):
        shutil.copy(text, tmp_path)
    (tmp_path / "images").symlink_to(source / "images")
    content = (tmp_path / file).read_text()
    assert old in content
    (tmp_path / file).write_text(content.replace(old, new, 1))
    with pytest.raises(DataError, match=told):
        prepare_benchmark("aircraft", tmp_path)


def families(tree: Hierarchy) -> dict[str, str]:
    return {name: tree.classes[1][tree.parents[0][j]] for j, name in enumerate(tree.classes[0])}


def groups(tree: Hierarchy) -> set[frozenset[frozenset[str]]]:
    """The tree without the names of its families: makers as sets of families as sets of models."""
    members: dict[int, set[str]] = {}
    for j, name in enumerate(tree.classes[0]):
        members.setdefault(int(tree.parents[0][j]), set()).add(name)
    makers: dict[int, set[frozenset[str]]] = {}
    for family, models in members.items():
        makers.setdefault(int(tree.parents[1][family]), set()).add(frozenset(models))
    return {frozenset(inside) for inside in makers.values()}


@pytest.fixture
def perturbed(aircraft: Path, small_aircraft: None, tmp_path: Path):
    """The original tree, and samples of a mode with the folder they were written to."""
    plain = prepare_benchmark("aircraft", aircraft, tmp_path / "plain")
    original = Hierarchy.read(plain.with_name("hierarchy.json"))

    def prepared(mode: str, seed: int = 0) -> tuple[Hierarchy, Samples, Path]:
        table = prepare_benchmark("aircraft-perturbed", aircraft, mode=mode, seed=seed)
        return original, read_data("aircraft-perturbed"), table.parent

    return prepared


def test_renamed_families_make_the_same_tree_but_for_names(perturbed) -> None:
    original, samples, folder = perturbed("renamed")
    tree = samples.hierarchy
    assert tree != original
    assert (tree.levels, tree.classes) == (original.levels, original.classes)
    assert groups(tree) == groups(original)
    moved = {families(original)[model] for model, family in families(tree).items() if families(original)[model] != family}
    assert len(moved) == 28, "40 % of 70"
    assert not (folder / "prior.json").exists()
    labels = named(samples)
    for j, path in enumerate(aircraft_paths()):
        assert labels[f"{1025794 + j}.jpg"] == (path[0], families(tree)[path[2]], path[2], "train"), "makers stay"


def test_a_stale_prior_contradicts_the_labels_of_the_moved_families_and_no_others(perturbed) -> None:
    _, renamed, _ = perturbed("renamed")
    original, samples, folder = perturbed("stale_prior")
    prior = Hierarchy.read(folder / "prior.json")
    assert prior == original
    assert samples.hierarchy == renamed.hierarchy
    assert np.array_equal(samples.labels, renamed.labels)
    before, after = families(prior), families(samples.hierarchy)
    moved = {before[model] for model in before if before[model] != after[model]}
    implied = prior.ancestors(1)[samples.labels[:, 0]]
    contradicted = {prior.classes[0][j] for j in samples.labels[implied != samples.labels[:, 1], 0]}
    assert contradicted == {model for model, family in before.items() if family in moved}
    assert len(moved) == 28
    perturbed("renamed")
    assert not (folder / "prior.json").exists(), "of the mode before"


def test_rewired_aircraft_are_in_other_families(perturbed) -> None:
    original, samples, folder = perturbed("rewired")
    before, after = families(original), families(samples.hierarchy)
    assert sum(before[model] != after[model] for model in before) == 40
    assert groups(samples.hierarchy) != groups(original)
    assert np.array_equal(original.parents[1], samples.hierarchy.parents[1]), "families stay with their makers"
    assert not (folder / "prior.json").exists()


@pytest.mark.parametrize("mode", ["renamed", "rewired"])
def test_what_is_perturbed_depends_on_names_and_the_seed(perturbed, mode: str) -> None:
    trees = [perturbed(mode, seed)[1].hierarchy for seed in (0, 0, 1)]
    assert trees[0] == trees[1] != trees[2]


# ---- Cars ----------------------------------------------------------------------------------------------------------


def test_both_layouts_of_the_cars_and_their_common_copies_hold_the_same(small_cars: None, tmp_path: Path) -> None:
    roots = [
        make_old_cars(tmp_path / "old"),
        make_new_cars(tmp_path / "new"),
        tmp_path / "copy",
    ]
    kit = "car_devkit/devkit"
    make_new_cars(roots[2] / "stanford_cars", devkit=kit, doubled=True, labels=kit)
    counts = []
    for root in roots:
        before = state(root)
        prepare_benchmark("cars", root)
        assert state(root) == before
        samples = read_data("cars")
        assert samples.hierarchy == shipped_tree("cars")
        assert not find_problems(samples.images or ())
        counts.append(Counter(named(samples).values()))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0]["SUV", "AM General Hummer SUV 2000", "train"] == 2
    assert counts[0]["Minivan", "Ram C/V Cargo Van Minivan 2012", "test"] == 1
    assert read_data("cars").keys[0] == "cars_train/cars_train/00001.jpg"


def test_body_types_are_counted_as_the_paper_has_them() -> None:
    tree = shipped_tree("cars")
    assert {name: int((tree.parents[0] == i).sum()) for i, name in enumerate(tree.classes[1])} == {
        "SUV": 35,
        "Sedan": 50,
        "Coupe": 34,
        "Hatchback": 13,
        "Convertible": 26,
        "Wagon": 7,
        "Cab": 18,
        "Minivan": 7,
        "Van": 6,
    }
    assert not any("'" in name for name in tree.classes[0])


def test_cars_without_the_labels_of_the_test_pictures_are_told_so(small_cars: None, tmp_path: Path) -> None:
    root = make_new_cars(tmp_path)
    labelled = root / "cars_test_annos_withlabels.mat"
    labelled.unlink()
    with pytest.raises(DataError, match=r"lacks cars_test_annos_withlabels\.mat \(.*cars_test_annos\.mat has no labels"):
        prepare_benchmark("cars", root)
    shutil.copy(root / "devkit" / "cars_test_annos.mat", labelled)
    with pytest.raises(DataError, match=r"withlabels\.mat: its annotations have no class \(a list without labels"):
        prepare_benchmark("cars", root)
    labelled.write_bytes(b"MATLAB 5.0 MAT-file" + b"\0" * 200)
    with pytest.raises(DataError, match=r"withlabels\.mat: not a readable MATLAB file"):
        prepare_benchmark("cars", root)
    save_mat(labelled, other=1)
    with pytest.raises(DataError, match=r"withlabels\.mat: holds no annotations"):
        prepare_benchmark("cars", root)
    labelled.unlink()
    shutil.rmtree(root / "cars_test")
    (root / "devkit" / "cars_meta.mat").unlink()
    with pytest.raises(DataError, match=r"lacks cars_test/, devkit/cars_meta\.mat, cars_test_annos_withlabels\.mat"):
        prepare_benchmark("cars", root)


def test_a_car_nobody_knows_is_told(small_cars: None, tmp_path: Path) -> None:
    names = car_names()
    with pytest.raises(DataError, match=r"cars_annos\.mat: 'Trabant 601 1964' is not one of the 196 known models"):
        prepare_benchmark("cars", make_old_cars(tmp_path / "a", [*names[:-1], "Trabant 601 1964"]))
    with pytest.raises(DataError, match=r"cars_annos\.mat: class 196 of 195"):
        prepare_benchmark("cars", make_old_cars(tmp_path / "b", names[:-1]))


# ---- ISIC ----------------------------------------------------------------------------------------------------------


def test_lesions_are_never_split_and_shares_are_right(expect, tmp_path: Path) -> None:
    root, lesions = make_isic(tmp_path / "isic")
    expect("isic2018", splits={"all": len(lesions)})
    before = state(root)
    prepare_benchmark("isic2018", root)
    assert state(root) == before
    samples = read_data("isic2018")
    assert samples.hierarchy.describe() == "origin 2 › nature 4 › diagnosis 7"
    found = named(samples)
    assert found["ISIC_0024306.jpg"][:3] == ("melanocytic", "melanocytic malignant", "MEL")
    places: dict[str, set[str]] = {}
    for key, row in found.items():
        places.setdefault(lesions[key.removesuffix(".jpg")], set()).add(row[-1])
    assert all(len(splits) == 1 for splits in places.values())
    for diagnosis in ISIC:
        splits = Counter(row[3] for row in found.values() if row[2] == diagnosis)
        total = sum(splits.values())
        for split, share in (("train", 0.7), ("val", 0.1), ("test", 0.2)):
            assert abs(splits[split] - share * total) <= 3, "half a lesion of six"
    splits = Counter(row[3] for row in found.values())
    assert abs(splits["train"] / len(found) - 0.7) < 0.03


def test_the_split_of_lesions_depends_on_their_names_and_the_seed_alone(expect, tmp_path: Path) -> None:
    root, lesions = make_isic(tmp_path / "isic", beside=True)
    expect("isic2018", splits={"all": len(lesions)})

    def prepared(seed: int) -> dict[str, tuple[str, ...]]:
        prepare_benchmark("isic2018", root, seed=seed)
        return named(read_data("isic2018"))

    first, other = prepared(0), prepared(1)
    for file in (root / GROUPS, root / TRUTH / f"{TRUTH}.csv"):
        head, *rows = file.read_text().splitlines()
        file.write_text("\n".join([head, *rows[::-1]]) + "\n")
    assert prepared(0) == first != other


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        (
            f"{TRUTH}/{TRUTH}.csv",
            "0.0",
            "1.0",
            r"GroundTruth\.csv picture ISIC_0024306: 2 diagnoses are 1; exactly one must be",
        ),
        (f"{TRUTH}/{TRUTH}.csv", "image,MEL", "image,MELA", r"GroundTruth\.csv: no column MEL \(columns: image, MELA"),
        (f"{TRUTH}/{TRUTH}.csv", "0.0,", "", r"GroundTruth\.csv line 2: 7 cells, but the header names 8"),
        (
            f"{TRUTH}/{GROUPS}",
            "ISIC_0024306",
            "ISIC_9924306",
            r"nothing about picture ISIC_9924306, which is in ISIC2018_Task3_T",
        ),
        (f"{TRUTH}/{GROUPS}", "lesion_id", "lesion", r"LesionGroupings\.csv: no column lesion_id"),
    ],
)
def test_each_fault_of_the_lesions_is_told(expect, tmp_path: Path, file: str, old: str, new: str, told: str) -> None:
    root, lesions = make_isic(tmp_path)
    expect("isic2018", splits={"all": len(lesions)})
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=told):
        prepare_benchmark("isic2018", root)


def test_a_lesion_of_two_diagnoses_and_missing_files_are_told(expect, tmp_path: Path) -> None:
    root, lesions = make_isic(tmp_path)
    expect("isic2018", splits={"all": len(lesions)})
    text, ends = (root / TRUTH / GROUPS).read_text(), (lesions["ISIC_0024306"], lesions[max(lesions)])
    (root / TRUTH / GROUPS).write_text(text.replace(ends[1], ends[0]))
    with pytest.raises(DataError, match=f"lesion {ends[0]} has two diagnoses, VASC and another"):
        prepare_benchmark("isic2018", root)
    (root / TRUTH / GROUPS).unlink()
    shutil.rmtree(root / INPUT)
    with pytest.raises(DataError, match=f"missing {INPUT}/, {GROUPS}; get ISIC 2018"):
        prepare_benchmark("isic2018", root)


# ---- ILSVRC --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", ["ILSVRC2012/train", "ILSVRC/Data/CLS-LOC/train"])
def test_classes_to_learn_from_and_targets_are_set_apart(expect, tmp_path: Path, sources: str) -> None:
    root = make_ilsvrc(tmp_path / "imagenet", sources)
    expect("ilsvrc-lowshot", sizes=(6,), splits={"train": 200 + 3 * 3 + 150 + 2})
    before = state(root)
    table = prepare_benchmark("ilsvrc-lowshot", root)
    assert state(root) == before
    assert (table.parent / "targets.txt").read_text() == "organism\nheron\n"
    samples = read_data("ilsvrc-lowshot")
    assert samples.hierarchy.classes == (("tench", "crane [n02012849]", "crane [n03126707]", "zebra", "organism", "heron"),)
    found = named(samples)
    assert Counter(row[0] for row in found.values()) == {
        "tench": 200,
        "crane [n02012849]": 3,
        "crane [n03126707]": 3,
        "zebra": 3,
        "organism": 2,
        "heron": 150,
    }
    assert found[f"{sources}/n01440764/n01440764_00199.JPEG"] == ("tench", "train")
    assert f"{sources}/n01440764/n01440764_00200.JPEG" not in found, "the first 200 by name"
    assert not any(key.startswith("ILSVRC2010/train/n01440764") for key in found)


def test_imagenet_without_names_or_with_too_few_pictures_is_told(expect, tmp_path: Path) -> None:
    root = make_ilsvrc(tmp_path)
    expect("ilsvrc-lowshot", sizes=(6,))
    with pytest.raises(DataError, match="361 train pictures instead of 254,000"):
        prepare_benchmark("ilsvrc-lowshot", root)
    (root / "ILSVRC2010" / "words.txt").unlink()
    with pytest.raises(DataError, match=r"mapping\.txt: no name for class n00004475 \(and 1 more\); words\.txt of WordNet"):
        prepare_benchmark("ilsvrc-lowshot", root)
    (root / "LOC_synset_mapping.txt").unlink()
    shutil.rmtree(root / "ILSVRC2010")
    with pytest.raises(
        DataError, match=r"missing ILSVRC2010/train/, a file of class names \(LOC_synset_mapping\.txt, .*ImageNet"
    ):
        prepare_benchmark("ilsvrc-lowshot", root)


# ---- archives that torchvision reads -------------------------------------------------------------------------------


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expect) -> Path:
    expect("cifar100", splits={"train": 200, "test": 100})
    return make_cifar(tmp_path / "cifar", monkeypatch)


@pytest.fixture
def fashion(tmp_path: Path, expect) -> Path:
    expect("fashion-mnist", splits={"train": 30, "test": 10})
    return make_fashion(tmp_path / "fashion")


def test_superclasses_are_those_of_the_archive_and_pictures_are_told_by_number(cifar: Path) -> None:
    before = state(cifar)
    prepare_benchmark("cifar100", cifar / "cifar-100-python")
    prepare_benchmark("cifar100", cifar)
    samples = read_data("cifar100")
    assert state(cifar) == before
    assert samples.hierarchy.describe() == "superclass 20 › class 100"
    assert samples.images is not None
    assert samples.images[17] == PackedPicture(cifar / "cifar-100-python" / "train", 17)
    assert (samples.keys[17], samples.keys[201]) == ("train#17", "test#1")
    content = pickle.loads((cifar / "cifar-100-python" / "train").read_bytes())
    fine = content["fine_labels"][17]
    assert named(samples)["train#17"] == (f"coarse {fine % 20}", f"fine {fine}", "train")
    image = open_image(samples.images[17])
    assert (image.size, image.mode) == ((32, 32), "RGB")
    assert np.array_equal(np.asarray(image), content["data"][17].reshape(3, 32, 32).transpose(1, 2, 0))


def test_a_file_that_is_not_the_official_one_is_told_before_anything_in_it_is_run(cifar: Path, monkeypatch) -> None:
    monkeypatch.setattr(CIFAR100, "train_list", [["train", "16019d7e3df5f24257cddd939b257f8d"]])
    with pytest.raises(DataError, match=r"train: not the official file, or incomplete; unpack the archive again; get CIFAR"):
        prepare_benchmark("cifar100", cifar)
    with pytest.raises(pickle.UnpicklingError, match=r"posix\.system is not part of an array"):
        PlainUnpickler(io.BytesIO(b"cposix\nsystem\n(S'true'\ntR.")).load()


def test_a_class_of_two_superclasses_and_a_damaged_list_of_names_are_told(cifar: Path) -> None:
    base = cifar / "cifar-100-python"
    content = pickle.loads((base / "test").read_bytes())
    content["coarse_labels"][3] = (content["coarse_labels"][3] + 1) % 20
    (base / "test").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(DataError, match=r"test#3: class 'fine \d+' is under 'coarse \d+' here but under"):
        prepare_benchmark("cifar100", cifar)
    (base / "meta").unlink()
    with pytest.raises(DataError, match=r"cifar-100-python: missing meta; get CIFAR-100"):
        prepare_benchmark("cifar100", cifar)


def test_articles_are_grouped_as_usual(fashion: Path) -> None:
    before = state(fashion)
    prepare_benchmark("fashion-mnist", fashion)
    assert state(fashion) == before
    samples = read_data("fashion-mnist")
    assert samples.hierarchy.describe() == "kind 2 › group 6 › article 10"
    found = named(samples)
    assert found["train-images-idx3-ubyte#0"] == ("clothes", "tops", "T-shirt/top", "train")
    assert found["train-images-idx3-ubyte#19"] == ("goods", "shoes", "Ankle boot", "train")
    assert found["t10k-images-idx3-ubyte#8"] == ("goods", "accessories", "Bag", "test")
    assert samples.images is not None
    image = open_image(samples.images[23])
    assert (image.size, image.mode, image.getpixel((5, 5))) == ((28, 28), "RGB", (23, 23, 23))


def test_each_fault_of_the_articles_is_told(fashion: Path) -> None:
    raw = fashion / "FashionMNIST" / "raw"
    labels = raw / "t10k-labels-idx1-ubyte"
    labels.write_bytes(struct.pack(">ii", 0x801, 9) + bytes(9))
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte: 10 pictures but 9 labels"):
        prepare_benchmark("fashion-mnist", fashion)
    images = raw / "train-images-idx3-ubyte"
    images.rename(raw / "train-images-idx3-ubyte.gz")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz must be unpacked: gunzip"):
        prepare_benchmark("fashion-mnist", fashion / "FashionMNIST")
    (raw / "train-images-idx3-ubyte.gz").unlink()
    labels.unlink()
    with pytest.raises(DataError, match="missing raw/train-images-idx3-ubyte, raw/t10k-labels-idx1-ubyte"):
        prepare_benchmark("fashion-mnist", fashion)


def test_too_short_a_file_of_pictures_is_told(fashion: Path) -> None:
    (fashion / "FashionMNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(struct.pack(">iiii", 0x803, 30, 28, 28) + b"\0")
    with pytest.raises(DataError, match="train-images-idx3-ubyte: not the official file, or incomplete"):
        prepare_benchmark("fashion-mnist", fashion)


def test_taxa_are_in_the_names_of_folders_and_namesakes_are_told_apart(expect, tmp_path: Path) -> None:
    root = make_inat(tmp_path / "inat")
    expect("inat2021", sizes=(5, 3, 4, 4, 4, 4, 3), splits={"train": (15, 500), "test": 5})
    before = state(root)
    prepare_benchmark("inat2021", root)
    assert state(root) == before
    samples = read_data("inat2021")
    assert samples.hierarchy.levels[::-1] == ("kingdom", "phylum", "class", "order", "family", "genus", "species")
    found = named(samples)
    assert len(found) == 20
    bird, plant = (found[f"2021_valid/{j:05d}_{TAXA[j]}/2021_valid-0-{j}.jpg"] for j in (1, 4))
    assert bird[3:] == ("Passeriformes", "Prunellidae", "Prunella (Prunellidae)", "Prunella modularis", "test")
    assert plant[4:] == ("Lamiaceae", "Prunella (Lamiaceae)", "Prunella vulgaris", "test")
    assert samples.hierarchy.sizes == (5, 4, 4, 4, 4, 4, 3), "3 names of genera, and 4 genera"


def test_namesakes_under_namesakes_are_told_apart() -> None:
    tree, names = taxa(["0_K_P_C_O_F_G_x", "1_K_P_C_Q_F_G_y"])
    assert tree.sizes == (2, 2, 2, 2, 1, 1, 1)
    assert tree.classes[1:4] == (("G (F (O))", "G (F (Q))"), ("F (O)", "F (Q)"), ("O", "Q"))
    assert names == (2, 1, 1, 2, 1, 1, 1)
    with pytest.raises(DataError, match="two folders hold the same species"):
        taxa(["0_K_P_C_O_F_G_x", "1_K_P_C_O_F_G_x"])


def test_the_smaller_edition_will_do_and_wrong_folders_are_told(expect, tmp_path: Path) -> None:
    root = make_inat(tmp_path, "2021_train_mini")
    expect("inat2021", sizes=(5, 4, 4, 4, 4, 4, 3), splits={"train": (100, 15), "test": 5})
    prepare_benchmark("inat2021", root)
    assert Counter(read_data("inat2021").split) == {"train": 15, "test": 5}
    (root / "2021_valid" / f"00004_{TAXA[4]}").rename(root / "2021_valid" / f"00004_{TAXA[4]}x")
    with pytest.raises(DataError, match=r"00004_.*_vulgaris is in only one of 2021_train_mini and 2021_valid"):
        prepare_benchmark("inat2021", root)
    (root / "2021_valid" / "00005_Plantae").mkdir()
    with pytest.raises(
        DataError, match=r"2021_valid: Unexpected category name 00005_Plantae, wrong number of pieces; get iNat"
    ):
        prepare_benchmark("inat2021", root)
    (root / "2021_valid").rename(root / "val")
    with pytest.raises(DataError, match=r"missing 2021_valid/ \(the archives unpack as train/, train_mini/ and val/"):
        prepare_benchmark("inat2021", root)


# ---- pictures that share a file ------------------------------------------------------------------------------------


def test_pictures_that_share_a_file_are_checked_previewed_kept_and_predicted(fashion: Path, tmp_path: Path) -> None:
    prepare_benchmark("fashion-mnist", fashion)
    samples = read_data("fashion-mnist")
    assert samples.images is not None
    assert find_problems(samples.images) == []
    contact_sheet(samples, tmp_path / "sheet.png", per_class=2)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > 100
    backbone, spec = create_backbone("small"), Preprocess(size=16, resize=16)
    features = frozen_features(samples, backbone, spec, device=torch.device("cpu"))
    assert features.shape == (40, backbone.num_features)
    assert not np.allclose(features[3], features[29])
    assert expand(["fashion-mnist"], want_images=True) == [samples.images[i] for i in samples.index("test")]
    assert expand([str(samples.images[4])], want_images=True) == [samples.images[4]]
    before = samples.fingerprint()
    file = fashion / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    os.utime(file, ns=(1, 1))
    assert samples.fingerprint() == before, "the content counts"
    file.write_bytes(file.read_bytes()[:-1] + b"\x07")
    assert samples.fingerprint() != before


def test_addresses_that_name_nothing_are_told(fashion: Path, tmp_path: Path) -> None:
    file = fashion / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    write(tmp_path / "plain")
    cases = {
        Path(f"{file}#10"): "no picture 10; it holds only 10",
        Path(f"{file}#-1"): "no such file",
        tmp_path / "nothing#1": "no such file",
        tmp_path / "plain#1": r"not a picture file of CIFAR-100 \(cifar-100-python\) or Fashion-MNIST",
    }
    assert len(find_problems([picture_at(case) for case in cases])) == len(cases)
    for path, told in cases.items():
        with pytest.raises(DataError, match=told):
            open_image(path)


def test_a_file_with_such_a_name_is_a_picture_of_its_own(tmp_path: Path) -> None:
    write(tmp_path / "a.jpg")
    write(tmp_path / "a.jpg#1")
    assert picture_at(tmp_path / "a.jpg#1") == FilePicture(tmp_path / "a.jpg#1")
    assert picture_at(tmp_path / "a.jpg#2") == PackedPicture(tmp_path / "a.jpg", 2)
    assert open_image(tmp_path / "a.jpg#1").size == (8, 8)


# ---- the command line ----------------------------------------------------------------------------------------------


def test_the_command_says_what_it_found_and_what_comes_next(cub: Path, small_cub: None, own_cache: Path, capsys) -> None:
    main(["data", "prepare", "cub", "--root", str(cub)])
    assert capsys.readouterr().out.splitlines() == [
        "Caltech-UCSD Birds-200-2011: 400 pictures (train 200 · test 200)",
        "order 13 › family 38 › species 200",
        f"written to {own_cache / 'data' / 'cub'}: cub.csv, hierarchy.json",
        "next: lht train cub",
    ]


def test_what_comes_next_names_files_elsewhere_and_a_prior(
    aircraft: Path, small_aircraft: None, tmp_path: Path, capsys
) -> None:
    out = tmp_path / "of mine"
    command = ["data", "prepare", "aircraft-perturbed", "--root", str(aircraft), "--mode", "stale_prior", "--out", str(out)]
    main(command)
    said = capsys.readouterr().out
    assert (
        f"next: lht train '{out}/aircraft-perturbed.csv' --hierarchy '{out}/hierarchy.json' --prior '{out}/prior.json'" in said
    )
    assert {path.name for path in out.iterdir()} == {"aircraft-perturbed.csv", "hierarchy.json", "prior.json"}
    with (out / "aircraft-perturbed.csv").open() as file:
        assert next(csv.reader(file)) == ["path", "maker", "family", "model", "split"]
    assert json.loads((out / "prior.json").read_text())["levels"][0]["name"] == "model"


def test_what_comes_next_is_a_command_that_is_understood(
    aircraft: Path, small_aircraft: None, expect, tmp_path: Path, capsys
) -> None:
    expect("ilsvrc-lowshot", sizes=(6,), splits={"train": 361})
    root = make_ilsvrc(tmp_path / "imagenet")
    for name, options in (
        ("aircraft", ["--root", str(aircraft)]),
        ("aircraft-perturbed", ["--root", str(aircraft), "--mode", "stale_prior"]),
        ("ilsvrc-lowshot", ["--root", str(root)]),
        ("ilsvrc-lowshot", ["--root", str(root), "--out", str(tmp_path / "out")]),
    ):
        main(["data", "prepare", name, *options])
        command, rest = find_command(shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: lht ")))
        parsed = parse(command, rest)
        assert parsed.data == (str(tmp_path / "out" / f"{name}.csv") if "--out" in options else name)
        for file in (getattr(parsed, "prior", None), getattr(parsed, "target", None)):
            assert file is None or Path(file).is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["cub", "--root", "nowhere"], "nowhere: no such folder; get Caltech-UCSD Birds-200-2011 from Caltech, https://"),
        (["cub"], "lht data prepare cub needs --root DIR; get Caltech-UCSD"),
        (["birds", "--root", "."], "unknown benchmark 'birds'"),
        (["cars", "--root", ".", "--mode", "renamed"], "--mode is renamed"),
    ],
)
def test_mistakes_end_with_2_and_one_sentence(tmp_path, monkeypatch, capsys, arguments: list[str], told: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["data", "prepare", *arguments])
    assert stop.value.code == 2
    said = capsys.readouterr()
    assert told in said.err
    assert said.err.count("\n") == 1
    assert not said.out


def test_benchmarks_are_listed_and_named_in_the_help(capsys) -> None:
    main(["data", "prepare", "list"])
    said = capsys.readouterr().out
    for name, benchmark in BENCHMARKS.items():
        assert f"{name} " in said
        assert benchmark.where in said
    assert "order 13 › family 38 › species 200   (train 5,994 · test 5,794)" in said
    assert "(train 2,686,843 or 500,000 · test 100,000)" in said
    with pytest.raises(SystemExit):
        main(["data", "prepare", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert [name for name in BENCHMARKS if name not in said] == []


SCRIPT = """
import dataclasses, sys
from torchlht.cli import main
from torchlht.lab.benchmarks.prepare import BENCHMARKS
for name, root, *counts in {cases!r}:
    splits = dict(zip(("train", "test") if len(counts) > 1 else ("all",), counts))
    BENCHMARKS[name] = dataclasses.replace(BENCHMARKS[name], splits=splits)
    main(["data", "prepare", name, "--root", root])
assert "torch" not in sys.modules
"""


def test_archives_of_pictures_are_prepared_without_waiting_for_torch(cub: Path, aircraft: Path, tmp_path: Path) -> None:
    isic, lesions = make_isic(tmp_path / "isic")
    cases = [
        ("cub", str(cub), 200, 200),
        ("aircraft", str(aircraft), 100, 100),
        ("cars", str(make_new_cars(tmp_path / "cars")), 392, 196),
        ("isic2018", str(isic), len(lesions)),
    ]
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(cases=cases)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("next: lht train") == 4
