"""Folders of Hugging Face `datasets`, .parquet and .arrow files: read as they are, or refused with one sentence."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kinds
from conftest import PATHS
from kinds import FEATURES, arrow_table, bird_rows, png, write_hub, write_parquet, write_saved, write_splits
from torchlht.cli import main
from torchlht.data.packing import pack
from torchlht.data.pictures import FilePicture, find_problems, picture_at
from torchlht.data.rows import RowPicture, open_rows
from torchlht.data.samples import Samples, read_data, source_of
from torchlht.errors import DataError, LHTError, MissingExtraError
from torchlht.hierarchy.tree import Hierarchy

WRITERS = {
    "splits": write_splits,
    "hub": write_hub,
    "saved": lambda folder: write_saved(folder, bird_rows(24), files=3),
    "parquet": lambda folder: write_parquet(folder.with_suffix(".parquet"), bird_rows(24)),
}


def class_of(samples: Samples, i: int, level: str) -> str | None:
    k = samples.hierarchy.levels.index(level)
    number = samples.labels[i, k]
    return samples.hierarchy.classes[k][number] if number >= 0 else None


@pytest.mark.parametrize("kind", WRITERS)
def test_pictures_labels_and_splits_are_those_of_the_rows(tmp_path: Path, kind: str) -> None:
    samples = read_data(WRITERS[kind](tmp_path / "birds"))
    assert samples.hierarchy.levels == ("species", "family")
    splits = {"splits": (36, 6, 12), "hub": (36, 0, 12)}.get(kind, (24, 0, 0))
    assert tuple(len(samples.index(name)) for name in ("train", "val", "test")) == splits
    for i, (key, picture) in enumerate(zip(samples.keys, samples.images or (), strict=True)):
        row = int(Path(key).stem)
        assert picture.read() == png(row % 6, row)
        assert class_of(samples, i, "species") == (None if row % 4 == 3 else PATHS[row % 6][2])
        assert class_of(samples, i, "family") == PATHS[row % 6][1]
        assert picture_at(str(picture)) == picture == pickle.loads(pickle.dumps(picture))
    assert find_problems(samples.images or ()) == []
    assert ("train/0.png" if kind in ("splits", "hub") else "0.png") in samples.keys


def test_the_same_data_has_the_same_keys_and_labels_however_it_is_saved(tmp_path: Path) -> None:
    first, second = (read_data(WRITERS[kind](tmp_path / kind)) for kind in ("saved", "parquet"))
    assert first.keys == second.keys
    assert (first.labels == second.labels).all()
    assert first.hierarchy == second.hierarchy


def test_rows_are_packed_into_shards_bit_for_bit(tmp_path: Path) -> None:
    samples = read_data(write_hub(tmp_path / "birds"))
    pack(samples, tmp_path / "shards", size=10**6)
    packed = read_data(tmp_path / "shards")
    assert packed.keys == samples.keys
    assert [one.read() for one in packed.images or ()] == [one.read() for one in samples.images or ()]


def test_columns_of_names_and_other_columns(tmp_path: Path) -> None:
    rows = [
        {**row, "family": PATHS[i % 6][1], "species": PATHS[i % 6][2] if i % 4 else "", "place": f"p{i}"}
        for i, row in enumerate(bird_rows(24))
    ]
    file = write_parquet(
        tmp_path / "x.parquet", [{name: row[name] for name in ("image", "family", "species", "place")} for row in rows], None
    )
    samples = read_data(file)
    assert samples.hierarchy.levels == ("species", "family"), "a column with as many values as rows is none"
    assert (samples.labels[:, 0] >= 0).sum() == 18
    assert read_data(file, levels=["family"]).hierarchy.levels == ("family",)
    unknown = read_data(file, levels=["family", "species"], unknown=["arctic tern"])
    assert "Arctic Tern" not in unknown.hierarchy.classes[0]


def test_one_column_of_labels_and_a_tree(tmp_path: Path) -> None:
    rows = [{"image": row["image"], "label": i % 6} for i, row in enumerate(bird_rows(12))]
    features = {"image": {"_type": "Image"}, "label": {"names": kinds.SPECIES, "_type": "ClassLabel"}}
    tree = Hierarchy.from_paths(PATHS, ("order", "family", "species"))
    samples = read_data(write_parquet(tmp_path / "x.parquet", rows, features), hierarchy=tree)
    assert (samples.labels >= 0).all()
    assert class_of(samples, 3, "order") == PATHS[3][0]


def test_pictures_that_rows_name_and_rows_without_one(tmp_path: Path) -> None:
    rows = bird_rows(12)
    (tmp_path / "beside.png").write_bytes(png(0, 99))
    rows[1]["image"] = {"bytes": None, "path": "beside.png"}
    rows[2]["image"] = {"bytes": None, "path": None}
    rows[3]["image"] = None
    for place in (write_parquet(tmp_path / "x.parquet", rows), write_saved(tmp_path / "saved", rows)):
        samples = read_data(place)
        images = samples.images or ()
        assert images[0].read() == png(0, 0)
        assert isinstance(images[1], FilePicture)
        assert images[1].file.name == "beside.png"
        problems = find_problems(images if place.is_file() else images[2:])
        assert [problem.reason for problem in problems] == ["the row has no picture"] * 2
        assert samples.keys[0] == f"{'x.parquet' if place.is_file() else 'data-00000-of-00001.arrow'}#0"


def test_a_file_that_changes_is_opened_again(tmp_path: Path) -> None:
    file = write_parquet(tmp_path / "x.parquet", bird_rows(6))
    assert RowPicture(file, 0).read() == png(0, 0)
    write_parquet(tmp_path / "y.parquet", bird_rows(6, 6)).replace(file)
    assert RowPicture(file, 0).read() == png(0, 6)
    with pytest.raises(DataError, match=r"x\.parquet#6: no such row; the file has 6"):
        RowPicture(file, 6).read()


def test_both_formats_of_arrow(tmp_path: Path) -> None:
    table = arrow_table(bird_rows(6), FEATURES)
    with (tmp_path / "x.arrow").open("wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert open_rows(tmp_path / "x.arrow").count == 6
    assert RowPicture(tmp_path / "x.arrow", 5).read() == png(5, 5)


def test_a_folder_of_pictures_stays_one(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "x" / split / "A").mkdir(parents=True)
        (tmp_path / "x" / split / "A" / "1.png").write_bytes(png(0))
    write_parquet(tmp_path / "x" / "train" / "metadata.parquet", bird_rows(6))
    found = source_of(tmp_path / "x")
    assert found is not None
    assert found.name == "folder"


def test_without_pyarrow_one_sentence_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_parquet(tmp_path / "x.parquet", bird_rows(6))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"reading \.parquet files needs an optional package: pip install 'torchlht\[arrow\]'"
    ):
        read_data(file)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a number without a name": ({"species": 17}, r"row 0: species is 17, but the schema has 6 names for it"),
    "lists": ({"species": [1, 2]}, r"'species' holds lists, which name no class"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_labels_that_are_none_are_refused(tmp_path: Path, wrong: str) -> None:
    change, sentence = WRONG[wrong]
    rows = [{**row, **change} for row in bird_rows(6)]
    with pytest.raises(DataError, match=sentence):
        read_data(write_parquet(tmp_path / "x.parquet", rows))


def test_what_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    rows = bird_rows(6)
    plain = write_parquet(tmp_path / "plain.parquet", [{"a": 1, "b": 2}] * 6, None)
    bare = write_parquet(tmp_path / "bare.parquet", [{"image": row["image"]} for row in rows], None)
    cut = write_parquet(tmp_path / "cut.parquet", rows)
    cut.write_bytes(cut.read_bytes()[:-40])
    text = tmp_path / "text.arrow"
    text.write_text("no rows at all")
    saved = write_saved(tmp_path / "saved", rows)
    (saved / "data-00000-of-00001.arrow").unlink()
    chosen = write_saved(tmp_path / "chosen", rows)
    state = (chosen / "state.json").read_text()
    (chosen / "state.json").write_text(state[:-1] + ', "_indices_data_files": [{"filename": "indices.arrow"}]}')
    away = write_saved(tmp_path / "away", rows)
    (away / "state.json").write_text('{"_data_files": [{"filename": "../saved/x.arrow"}]}')
    odd = write_splits(tmp_path / "odd")
    (odd / "dataset_dict.json").write_text('{"splits": ["unsupervised"]}')
    linked = [{**row, "image": {"bytes": None, "path": "https://x.example/1.png"}} for row in rows]
    sentences = {
        plain: r"plain\.parquet: no column of pictures \(columns: a, b\); one holds bytes and path",
        bare: r"bare\.parquet: which columns are levels\? Name them",
        cut: r"cut\.parquet: is damaged, or no \.parquet file \(.*\); copy or write it again",
        text: r"text\.arrow: is damaged, or no \.arrow file",
        chosen: r"call flatten_indices\(\) before save_to_disk\(\)",
        away: r"state\.json: '\.\./saved/x\.arrow' is no \.arrow or \.parquet file beside it",
        odd: r"split 'unsupervised' is none of train, val and test",
        write_parquet(tmp_path / "linked.parquet", linked): r"row 0: https://x\.example/1\.png is an address",
    }
    for place, sentence in sentences.items():
        with pytest.raises(LHTError, match=sentence):
            read_data(place)
    with pytest.raises(OSError, match="data-00000-of-00001"):  # the command line makes it a sentence
        read_data(saved)
    with pytest.raises(DataError, match=r"no column 'nope' of labels \(columns: image, species, family\)"):
        read_data(write_parquet(tmp_path / "good.parquet", rows), levels=["nope"])


def test_numbers_without_names_are_names_and_minus_one_is_none(tmp_path: Path) -> None:
    rows = [{"image": row["image"], "label": i % 3 - 1} for i, row in enumerate(bird_rows(9))]
    samples = read_data(write_parquet(tmp_path / "x.parquet", rows, None), levels=["label"])
    assert samples.hierarchy.classes == (("0", "1"),)
    assert samples.labels[:, 0].tolist() == [-1, 0, 1] * 3


def test_what_needs_a_table_or_a_folder_of_classes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_parquet(tmp_path / "birds" / "data" / "train.parquet", bird_rows(6))
    (tmp_path / "dag.csv").write_text("name,parent\na,b\na,c\n")
    for words, said in (
        (["--hierarchy", str(tmp_path / "dag.csv")], "with classes of several parents, data is a folder of pictures, a .csv"),
        (["--several"], "birds is neither a table nor a folder of pictures"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["train", str(tmp_path / "birds"), *words, "--out", str(tmp_path / "run")])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
