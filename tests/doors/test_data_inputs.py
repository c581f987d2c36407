"""What comes in as data passes a checked door: it is read, or refused with one sentence. Nothing is run, filled or replaced."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.progress import Progress

from torchlht import cli
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.console import ReadableConsole, plain_column
from torchlht.data.pictures import BytesPicture, content_digest, find_problems, open_image, picture_at
from torchlht.data.preparing import Preprocess, decode
from torchlht.data.samples import check_images, read_data
from torchlht.data.sources.shards import expand_braces
from torchlht.errors import ConfigError, DataError
from torchlht.files import csv_text, read_csv
from torchlht.heads.method import Estimator, create_method, find_method, list_methods
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import Archive, Labelled
from torchlht.lab.benchmarks.prepare import _write as write_prepared
from torchlht.measure.evaluation import cache_path, frozen_features

TREE = Hierarchy.from_parents([[0, 0, 1]])
SPEC = Preprocess(size=16, resize=16)


def png(size: tuple[int, int] = (8, 8), colour: tuple[int, int, int] = (90, 60, 30)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, format="PNG")
    return file.getvalue()


def png_of(width: int, height: int) -> bytes:
    """A small PNG that claims to be of any size; its pixels are all there if they are few."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    row = bytes(1 + -(-min(width, 10**6) // 8))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row * min(height, 10**6 // max(width, 1) + 1)))
        + chunk(b"IEND", b"")
    )


def lht(*arguments: str | Path) -> int:
    """The exit code of a command line."""
    try:
        cli.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def table(folder: Path, *rows: str, header: str = "path,family,species") -> Path:
    file = folder / "b.csv"
    file.write_text("\n".join([header, *rows, ""]))
    return file


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """A table of four pictures, two of each species, and its pictures."""
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(png(colour=(60 * i, 10, 20)))
    return table(tmp_path, "0.png,F,s", "1.png,F,s", "2.png,F,t", "3.png,F,t")


# ---- pictures ------------------------------------------------------------------------------------------------------


def test_a_picture_is_opened_by_known_readers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("another program was started"))
    (tmp_path / "a.jpg").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(DataError, match=r"a\.jpg: not a readable picture"):
        open_image(tmp_path / "a.jpg")
    assert [problem.reason for problem in find_problems([picture_at(tmp_path / "a.jpg")])] == ["not a readable picture"]


@pytest.mark.parametrize(
    ("size", "reason"),
    [((1, 60_000), "more than 100 times as long as wide"), ((60_000, 1), "more than 100 times"), ((2**15, 2**15), "too many")],
)
def test_a_small_file_of_many_pixels_is_unreadable_and_takes_no_memory(
    tmp_path: Path, size: tuple[int, int], reason: str
) -> None:
    (tmp_path / "a.png").write_bytes(png_of(*size))
    with pytest.raises(DataError, match=rf"a\.png: .*{reason}"):
        decode(picture_at(tmp_path / "a.png"), Preprocess(size=224, resize=256))
    (problem,) = find_problems([picture_at(tmp_path / "a.png")])
    assert reason in problem.reason


def test_a_long_picture_is_read_as_far_as_resizing_allows() -> None:
    long = Image.new("RGB", (10, 900))
    assert decode(long, Preprocess(size=32, resize=32)).shape == (3, 2880, 32)
    with pytest.raises(DataError, match=r"would be 4,096 × 368,640 pixels after resizing; lower image_size"):
        decode(long, Preprocess(size=4096, resize=4096))


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "loop", "forbidden", "long", "nul"])
def test_what_is_no_file_is_an_unreadable_picture(birds: Path, kind: str) -> None:
    name = {"long": "x" * 300 + ".png", "nul": "a\0b.png"}.get(kind, "x.png")
    place = birds.with_name(name) if kind != "nul" else birds
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind in ("device", "loop"):
        place.symlink_to("/dev/zero" if kind == "device" else place)
    elif kind == "forbidden":
        place.write_bytes(png())
        place.chmod(0)
        if os.access(place, os.R_OK):
            pytest.skip("root may read everything")
    picture = picture_at(birds.parent / name)
    (problem,) = find_problems([picture])
    assert problem.reason
    with pytest.raises(DataError):
        open_image(picture)


# ---- caches and notes ----------------------------------------------------------------------------------------------


def folder_of(home: Path, colour: tuple[int, int, int]) -> Path:
    """Two folders of pictures that agree in names, sizes and times whatever the colour."""
    for name in ("A", "B"):
        (home / name).mkdir(parents=True)
        for i in range(2):
            file = home / name / f"{i}.bmp"
            Image.new("RGB", (8, 8), (colour[0] + 9 * i, *colour[1:])).save(file)
            os.utime(file, ns=(10**18, 10**18))
    return home


@pytest.mark.parametrize("settled", [0, 2 * 10**9])
def test_features_of_another_dataset_or_of_changed_pictures_are_never_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: int
) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", settled)
    backbone = create_backbone("small", pretrained=False).eval()

    def features(home: Path) -> torch.Tensor:
        return torch.from_numpy(frozen_features(read_data(home), backbone, SPEC, device=torch.device("cpu")))

    dark, light = folder_of(tmp_path / "one" / "x", (0, 0, 0)), folder_of(tmp_path / "two" / "x", (200, 200, 200))
    first = features(dark)
    assert not torch.equal(first, features(light)), "names, sizes and times agree"
    for file in dark.rglob("*.bmp"):
        file.write_bytes((light / file.relative_to(dark)).read_bytes())
        os.utime(file, ns=(10**18, 10**18))
    assert torch.equal(features(dark), features(light)), "changed pictures of the same size and time"
    moved = dark.rename(tmp_path / "three")
    assert cache_path(read_data(moved), backbone, SPEC) == cache_path(read_data(light), backbone, SPEC), "content counts alone"


def test_content_is_read_again_only_when_a_file_changes(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    pictures = read_data(birds).images or ()
    first = content_digest(pictures)
    with monkeypatch.context() as inside:
        inside.setattr("torchlht.data.pictures._file_digest", lambda _: pytest.fail("read again"))
        assert content_digest(pictures) == first
    time.sleep(0.02)
    (birds.parent / "0.png").write_bytes(png(colour=(1, 2, 3)))
    assert content_digest(pictures) != first
    assert content_digest([BytesPicture(b"a"), BytesPicture(b"b")]) != content_digest([BytesPicture(b"b"), BytesPicture(b"a")])


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"text", "short", "shape", "nan", "wide"])
def test_damaged_features_in_the_cache_are_computed_again(birds: Path, damage: bytes | str) -> None:
    samples, backbone = read_data(birds), create_backbone("small", pretrained=False).eval()
    right = frozen_features(samples, backbone, SPEC, device=torch.device("cpu"))
    path = cache_path(samples, backbone, SPEC)
    if damage == "short":
        path.write_bytes(path.read_bytes()[:-4])
    elif damage == "shape":
        np.save(path, right[:2])
    elif damage == "nan":
        np.save(path, np.full_like(right, np.nan))
    elif damage == "wide":
        np.save(path, right.astype(np.float64))
    else:
        assert isinstance(damage, bytes)
        path.write_bytes(damage)
    np.testing.assert_array_equal(frozen_features(samples, backbone, SPEC, device=torch.device("cpu")), right)
    np.testing.assert_array_equal(np.load(path), right)


@pytest.mark.parametrize("damage", ["", "[[0", '[[7, "no"]]', '[[-1, "no"]]', '{"a": 1}', "[[0, 1]]", "[" * 5000, "\ufffe"])
def test_damaged_notes_are_made_again(birds: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    (birds.parent / "2.png").write_bytes(b"no picture")
    time.sleep(0.01)
    images = read_data(birds).images or ()
    first = find_problems(images)
    (note,) = (own_cache / "checked").iterdir()
    note.write_text(damage)
    assert find_problems(images) == first
    assert [Path(problem.path).name for problem in first] == ["2.png"]


def test_a_damaged_note_about_a_shard_is_made_again(shards: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    (shards / "index.json").unlink()
    time.sleep(0.01)
    first = read_data(shards)
    for note in (own_cache / "shards").iterdir():
        note.write_text(note.read_text().replace('"sizes":[', '"sizes":[7,').replace('"sizes": [', '"sizes": [7,'))
    assert read_data(shards).images == first.images


def test_a_cache_that_cannot_be_written_stops_nothing(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache" / "x"))
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    assert handled(capsys, "data", "preview", birds, "--out", tmp_path / "o.png") == ""
    samples, backbone = read_data(birds), create_backbone("small", pretrained=False).eval()
    assert frozen_features(samples, backbone, SPEC, device=torch.device("cpu")).shape == (4, backbone.num_features)
    assert "features are not kept for the next time" in capsys.readouterr().err
    (birds.parent / "0.png").write_bytes(b"no picture")
    assert "1 of 4 pictures cannot be read" in handled(capsys, "data", "pack", birds, "--out", tmp_path / "p")


def test_skipping_does_not_depend_on_how_the_path_was_spelt(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    monkeypatch.setattr("torchlht.data.pictures.SETTLED", 0)
    monkeypatch.chdir(birds.parent)
    (birds.parent / "0.png").write_bytes(b"no picture")
    (birds.parent / "more").mkdir()
    time.sleep(0.01)
    for place in ("b.csv", str(birds), "more/../b.csv", "./b.csv", f"file://{birds}"):
        left, problems = check_images(read_data(place), "skip")
        assert ([Path(problem.path).name for problem in problems], len(left)) == (["0.png"], 3)
    assert len(list((own_cache / "checked").iterdir())) == 1, "one note, whatever the spelling"
    assert lht("data", "pack", birds, "--out", tmp_path / "packed", "--on-error", "skip") == 0
    assert len(read_data(tmp_path / "packed")) == 3


# ---- shards --------------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(birds: Path, tmp_path: Path) -> Path:
    """Two shards of the birds, with an index."""
    assert lht("data", "pack", birds, "--out", tmp_path / "shards", "--per-shard", "2") == 0
    return tmp_path / "shards"


def outside(index: Any, file: str) -> None:
    index["shards"][0]["file"] = file


INDEX: dict[str, Callable[[Any], object]] = {
    "labels of -5": lambda index: index["shards"][0]["labels"].__setitem__(0, [-5, 0]),
    "labels beyond the tree": lambda index: index["shards"][0]["labels"].__setitem__(0, [9, 0]),
    "labels of 2e30": lambda index: index["shards"][0]["labels"].__setitem__(0, [2 * 10**30, 0]),
    "labels that are names": lambda index: index["shards"][0]["labels"].__setitem__(0, {"family": "F"}),
    "short labels": lambda index: index["shards"][0]["labels"].__setitem__(0, [0]),
    "short numbers": lambda index: index["shards"][0]["numbers"].pop(),
    "no numbers": lambda index: index["shards"][0].pop("numbers"),
    "numbers of text": lambda index: index["shards"][0].update(numbers=["0", "1"]),
    "split foo": lambda index: index["shards"][0].update(splits=["foo", "train"]),
    "negative offset": lambda index: index["shards"][0].update(offsets=[-512, 512]),
    "offset before the header": lambda index: index["shards"][0].update(offsets=[0, 512]),
    "size beyond the end": lambda index: index["shards"][0].update(sizes=[2**40, 60]),
    "another length": lambda index: index["shards"][0].update(bytes=5),
    "absolute": lambda index: outside(index, "/etc/shards-000000.tar"),
    "above": lambda index: outside(index, "../shards-000000.tar"),
    "address": lambda index: outside(index, "http://localhost:1/x.tar"),
    "backslash": lambda index: outside(index, "..\\x.tar"),
    "nul": lambda index: outside(index, "a\0.tar"),
    "no tar": lambda index: outside(index, "index.json"),
    "not there": lambda index: outside(index, "other.tar"),
    "twice": lambda index: index["shards"].append(index["shards"][0]),
    "another format": lambda index: index.update(format="torchlht-shards-9"),
    "shards of text": lambda index: index.update(shards="all"),
    "no shards": lambda index: index.update(shards=[]),
}


@pytest.mark.parametrize("name", INDEX)
def test_an_index_is_refused_unless_it_is_as_written(shards: Path, name: str) -> None:
    index = json.loads((shards / "index.json").read_text())
    INDEX[name](index)
    (shards / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError):
        read_data(shards)


@pytest.mark.parametrize("pattern", ["{0..99999999999}", "{0..9}" * 9, f"{{0..{'9' * 5000}}}", "{a,b}" * 40])
def test_a_pattern_of_too_many_shards_is_refused_at_once(pattern: str) -> None:
    with pytest.raises(DataError, match="means more than 1,000,000 shards; correct the range"):
        expand_braces(f"x-{pattern}.tar")
    assert expand_braces("x-{08..10}-{a,b}.tar")[1:3] == ["x-08-b.tar", "x-09-a.tar"]


@pytest.mark.parametrize("cell", ["foo://host/x.jpg", "http://localhost:1/x.jpg", "s3://bucket/x.png", "memory://x.png"])
def test_an_address_in_a_table_is_not_asked(birds: Path, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.data.pictures._ask", lambda *_: pytest.fail("the network was asked"))
    monkeypatch.chdir(birds.parent)
    table(birds.parent, "0.png,F,s", f"{cell},F,t")
    with pytest.raises(DataError, match=r"b\.csv line 3: .* is an address; a table names files on this computer"):
        read_data("b.csv")


# ---- what is written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b.csv", "0.png", "sheet.png", "folder", "link.png"])
def test_a_preview_replaces_nothing_but_a_preview(birds: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = birds.with_name(name)
    (birds.parent / "folder").mkdir()
    (birds.parent / "link.png").symlink_to("nowhere")
    if name == "sheet.png":
        out.write_bytes(png())
    before = out.read_bytes() if out.is_file() else b""
    assert lht("data", "preview", birds, "--out", out) == 2
    assert f"{out}: exists and is not a contact sheet of lht data preview, so it is not replaced" in capsys.readouterr().err
    assert (out.read_bytes() if out.is_file() else b"") == before
    assert lht("data", "preview", birds, "--out", birds.with_name("new.png")) == 0
    assert lht("data", "preview", birds, "--out", birds.with_name("new.png"), "--per-class", "1") == 0, "its own is replaced"


@pytest.mark.parametrize("command", ["preview", "pack"])
def test_nothing_is_written_into_a_folder_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    home = folder_of(tmp_path / "data", (9, 9, 9))
    before = sorted(home.rglob("*"))
    monkeypatch.chdir(home)
    for data in (home, ".", "../data"):
        for out in (home / "A" / "new.png", "B/new.png"):
            assert lht("data", command, data, "--out", out) == 2
            assert "new.png: lies inside the data, " in capsys.readouterr().err
    assert sorted(home.rglob("*")) == before


CELLS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "'=1",
    "''=1",
    "'tis",
    "-0.5",
    "1e-3",
    "plain",
    "",
    "-",
    "a=b",
    '"',
    "a,b",
]


def test_no_cell_becomes_a_formula_and_all_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(csv_text([["name", "=head"], *([cell, 1.5] for cell in CELLS)]))
    first = [line[0] for line in csv.reader((tmp_path / "a.csv").read_text().splitlines())]
    assert [cell for cell in first if cell[:1] in set("=+-@\t")] == ["-0.5"]
    assert [row["name"] for row in read_csv(tmp_path / "a.csv")] == CELLS
    assert read_csv(tmp_path / "a.csv")[0]["=head"] == "1.5"
    names = ["=F", "-G", "@h", "'=i"]
    table = "\n".join(["species", *(csv_text([[name]]).strip() for name in names)])
    (tmp_path / "tree.csv").write_text(f"{table}\n")
    assert Hierarchy.read(tmp_path / "tree.csv").classes == (tuple(names),)


ESCAPES = {
    "clear the screen": "a\x1b[2Jb",
    "title": "a\x1b]0;owned\x07b",
    "clipboard": "a\x1b]52;c;aGk=\x07b",
    "return": "a\rb",
    "backspace": "a\x08b",
    "8-bit control": "a\x9b2Jb",
    "right to left": "a\u202eb",
    "isolate": "a\u2066b",
    "delete": "a\x7fb",
    "line separator": "a\u2028b",
}


@pytest.mark.parametrize("name", ESCAPES)
def test_names_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    text, hidden = ESCAPES[name], set(ESCAPES[name]) - set("ab[2J]0;owned52caGk=")
    (tmp_path / "tree.json").write_text(
        json.dumps({"levels": ["family", "species"], "tree": {"F": [text, "[red]x[/blue] :bird:"]}})
    )
    assert lht("hierarchy", "show", tmp_path / "tree.json") == 0
    assert lht("hierarchy", "check", tmp_path / f"{text}.json") == 2
    (tmp_path / "twice.json").write_text(json.dumps({"F": [text, text]}))
    assert lht("hierarchy", "check", tmp_path / "twice.json") == 2
    said = "".join(capsys.readouterr())
    assert not hidden & set(said)
    assert "[red]x[/blue] :bird:" in said
    table(tmp_path, f'"{text}.png",F,s', '"x.png",F,t', header="path,family,species")
    assert lht("data", "preview", tmp_path / "b.csv", "--out", tmp_path / "o.png") in (0, 2)
    assert not hidden & set("".join(capsys.readouterr()))


def test_names_do_not_steer_a_progress_bar() -> None:
    shown = io.StringIO()
    screen = ReadableConsole(stderr=True)
    screen.file = shown
    with Progress(plain_column("{task.description}"), console=screen) as bar:
        bar.add_task("val \x1b]0;x\x07 [/nothing]")
    assert "\x07" not in shown.getvalue()
    assert "[/n" in shown.getvalue()


# ---- labels and features -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", [-2, 3, 2**40])
@pytest.mark.parametrize("name", [name for name in list_methods() if not issubclass(find_method(name).cls, Estimator)])
def test_a_loss_refuses_labels_that_are_no_classes(name: str, label: int) -> None:
    head = create_method(name, 4, TREE)
    prediction = head(torch.randn(5, 4))
    labels = torch.tensor([[0, 0], [-1, 1], [1, 0], [2, 1], [label, -1]])
    with pytest.raises(DataError, match=rf"label {label} of sample 4: .* has the classes 0 to 2, or -1 for unknown"):
        head.loss(prediction, labels)
    with pytest.raises(DataError, match="whole numbers"):
        head.loss(prediction, labels.float())


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_names_that_are_not_utf8_or_steer_are_predicted_and_shown_as_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    backbone = create_backbone("small", pretrained=False)
    method = create_method("flat", backbone.num_features, TREE)
    Model(backbone, method, options={}, preprocess=SPEC).save_pretrained(tmp_path / "run")
    for name in ("\udcff.png", "=1+1.png", "\x1b[2J.png", "[red].png"):
        Path(f"{tmp_path}/{name}").write_bytes(png())
    capsys.readouterr()
    assert lht("predict", tmp_path / "run", tmp_path, "--format", form) == 0
    said = capsys.readouterr().out
    assert said.encode()
    assert "\x1b" not in said
    assert "[red].png" in said
    if form == "json":
        assert any(one["file"].endswith("\x1b[2J.png") for one in json.loads(said))


@pytest.mark.parametrize("name", ["cub.csv", "hierarchy.json"])
def test_preparing_replaces_its_own_files_only(tmp_path: Path, name: str) -> None:
    tree = Hierarchy.from_paths([("F", "s"), ("F", "t")], levels=("family", "species"))
    archive = Archive(tree, [Labelled("0.png", 0, "train"), Labelled("1.png", 1, "test")])
    write_prepared(archive, tmp_path, "cub")
    write_prepared(archive, tmp_path, "cub")
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(ConfigError, match=f"{name}: exists and is not a t.* of lht data prepare, so it is not replaced"):
        write_prepared(archive, tmp_path, "cub")
    assert (tmp_path / name).read_text() == "mine\n"


def test_a_broken_picture_is_refused_or_named_when_predicting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backbone = create_backbone("small", pretrained=False)
    method = create_method("flat", backbone.num_features, TREE)
    Model(backbone, method, options={}, preprocess=SPEC).save_pretrained(tmp_path / "run")
    (tmp_path / "good.png").write_bytes(png())
    (tmp_path / "bad.png").write_bytes(png_of(1, 60_000))
    said = handled(capsys, "predict", tmp_path / "run", tmp_path)
    assert "1 of 2 pictures cannot be read" in said
    assert lht("predict", tmp_path / "run", tmp_path, "--on-error", "skip") == 0
    assert "bad.png: 1 × 60,000 pixels" in capsys.readouterr().err
    taken: list[Any] = []
    Model.from_pretrained(tmp_path / "run").predict([tmp_path / "bad.png"], unreadable=taken)
    assert len(taken) == 1, "the caller's own list is filled"


def test_features_of_another_width_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Model(create_backbone("none", in_features=4), create_method("flat", 4, TREE), options={}).save_pretrained(tmp_path / "run")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 5), np.float32), y=np.array([[0, 0], [1, 0], [2, 1]]))
    assert lht("evaluate", tmp_path / "run", tmp_path / "x.npz") == 2
    assert "its features are 5 wide; this run takes 4" in capsys.readouterr().err
    assert lht("predict", tmp_path / "run", tmp_path / "x.npz") == 2
    assert "5" in capsys.readouterr().err
    for limit in ("-1", "0"):
        assert lht("predict", tmp_path / "run", tmp_path / "x.npz", "--limit", limit) == 2


# ---- a table of what people and others may hand us: each is read, or refused with one sentence -------------------------


def handled(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """What a command line says: nothing when it works, else one sentence about it, with exit code 2."""
    capsys.readouterr()
    code = lht(*arguments)
    said = capsys.readouterr().err
    assert code in (0, 2), said
    assert not set(map(ord, said)) & (set(range(9)) | set(range(11, 32)) | set(range(127, 160)))
    if code == 0:
        return ""
    assert said.startswith("lht: ")
    assert said.count("\n") == 1, said
    assert len(said) < 2000
    return said


def check(said: str, wanted: str) -> None:
    """Whether a command worked, if nothing is wanted of its error, or said what is wanted."""
    assert wanted in said, said
    assert bool(wanted) == bool(said), said


HEADER = b"path,family,species\n"
ROWS = b"0.png,F,s\n1.png,F,t\n"
TABLES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "empty; a table starts"),
    "a byte order mark": (b"\xef\xbb\xbf", "empty; a table starts"),
    "a line end": (b"\n", "empty; a table starts"),
    "no names": (b",,\n" + ROWS, "the columns have no name"),
    "a header": (HEADER, "it has a header but no rows"),
    "blank lines": (HEADER + b"\n\n" + ROWS + b"\n\n", ""),
    "a mark and Windows lines": (b"\xef\xbb\xbf" + (HEADER + ROWS).replace(b"\n", b"\r\n"), ""),
    "old Mac lines": ((HEADER + ROWS).replace(b"\n", b"\r"), ""),
    "semicolons": ((HEADER + ROWS).replace(b",", b";"), ""),
    "tabs": ((HEADER + ROWS).replace(b",", b"\t"), ""),
    "quotes": (b'"path","family","species"\n"0.png","F","s, t"\n"1.png","F","u ""v"""\n', ""),
    "an open quote": (HEADER + b'"0.png,F,s\n', "is a quotation mark left open?"),
    "a quote inside": (HEADER + b'"0.png"x,F,s\n', "line 2"),
    "NUL": (HEADER + b"0.png,F,s\0\n1.png,F,t\n", "line 2: holds a NUL character"),
    "UTF-16": ((HEADER + ROWS).decode().encode("utf-16"), "is not UTF-8"),
    "Latin-1": (HEADER + "0.png,Möwen,s\n".encode("latin-1"), "line 2: is not UTF-8 (byte 0xf6)"),
    "a column twice": (b"path,species,species\n" + ROWS, "column 'species' appears twice"),
    "a column without a name": (b"path,,species\n" + ROWS, "column 2 has no name"),
    "too few cells": (HEADER + b"0.png,F\n", "line 2: 2 cells, but the header names 3"),
    "too many cells": (HEADER + b"0.png,F,s,t,u\n", "5 cells"),
    "a long cell": (HEADER + b"0.png,F," + b"s" * 200_000 + b"\n", "field larger than field limit"),
    "many columns": (b",".join([b"path", *(b"l%d" % i for i in range(2000))]) + b"\n", "2,001 columns"),
    "many levels": (
        b",".join([b"path", *(b"l%d" % i for i in range(90))]) + b"\n" + b",".join([b"0.png", *([b"x"] * 90)]) + b"\n",
        "90 levels; the most that is read is 64",
    ),
    "no labels": (HEADER + b"0.png,,\n1.png,,\n", "no labels at all"),
    "no fine labels": (HEADER + b"0.png,F,\n1.png,G,\n", ""),
    "no coarse labels": (HEADER + b"0.png,,s\n1.png,,t\n", "no row tells the family"),
    "one class": (HEADER + b"0.png,F,s\n", "only one class"),
    "no pictures named": (HEADER + b",F,s\n1.png,F,t\n", "path is empty"),
    "no column of pictures": (b"family,species\nF,s\nF,t\n", "no column 'path'"),
    "no columns of labels": (b"path\n0.png\n", "no columns besides 'path'"),
    "another split": (b"path,species,split\n0.png,s,train\n1.png,t,holdout\n", "split is 'holdout'"),
    "two families": (HEADER + b"0.png,F,s\n1.png,G,s\n2.png,G,t\n", "is under"),
    "an address": (HEADER + b"0.png,F,s\nhttp://localhost:9/1.png,F,t\n", "is an address"),
    "a missing picture": (HEADER + b"0.png,F,s\nno.png,F,t\n", "unreadable"),
    "a folder": (HEADER + b"0.png,F,s\n.,F,t\n", "unreadable"),
    "a device": (HEADER + b"0.png,F,s\n/dev/zero,F,t\n", "unreadable"),
    "a process": (HEADER + b"0.png,F,s\n/proc/self/mem,F,t\n", "unreadable"),
    "itself": (HEADER + b"0.png,F,s\nb.csv,F,t\n", "unreadable"),
    "a picture of no tar": (HEADER + b"0.png,F,s\n0.tar#5,F,t\n", "unreadable"),
    "a place of 5,000 digits": (HEADER + b"0.png,F,s\n0.tar#" + b"9" * 5000 + b",F,t\n", "unreadable"),
    "a far place": (HEADER + b"0.png,F,s\nb.csv#99999999999999999+9999999999999999,F,t\n", "unreadable"),
    "a long name": (HEADER + b"0.png,F,s\n" + b"x" * 5000 + b".png,F,t\n", "unreadable"),
    "far above": (HEADER + b"0.png,F,s\n" + b"../" * 500 + b"etc/passwd,F,t\n", "unreadable"),
    "a home": (HEADER + b"0.png,F,s\n~/x.png,F,t\n", "unreadable"),
    "names of spaces": (HEADER + b"0.png, , \n1.png,F,t\n", "only one class"),
    "names that steer": (HEADER + b"0.png,F,\x1b]0;x\x07\n1.png,F,t\n", ""),
    "names of markup": (HEADER + b"0.png,[red],[/blue]\n1.png,[red],:bird:\n", ""),
    "formulas": (HEADER + b"0.png,=1+1,'=2\n1.png,=1+1,@x\n", ""),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_or_refused(birds: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    birds.write_bytes(TABLES[name][0])
    wanted = TABLES[name][1]
    said = handled(capsys, "data", "preview", birds, "--out", birds.with_name("o.png"))
    if wanted == "unreadable":
        assert said == ""
        assert "1 of 2 pictures cannot be read" in handled(capsys, "data", "pack", birds, "--out", birds.with_name("p"))
    else:
        check(said, wanted)
    assert handled(capsys, "hierarchy", "show", birds) is not None


DEEP = 10_000
TREES: dict[str, tuple[str, bytes, str]] = {
    "nothing": ("json", b"", "holds no classes"),
    "null": ("json", b"null", "holds no classes"),
    "a number": ("json", b"7", ""),
    "a word": ("yaml", b"Gulls", ""),
    "a list": ("json", b'["a", "b"]', ""),
    "a list of lists": ("json", b'[["a"], ["b"]]', ""),
    "a list of nothing": ("json", b"[[], []]", "holds no classes"),
    "deep lists": ("json", b"[" * DEEP + b"]" * DEEP, "levels deep"),
    "deep mappings": ("json", b'{"a":' * DEEP + b"1" + b"}" * DEEP, "levels deep"),
    "open lists": ("json", b"[" * DEEP, "levels deep"),
    "90 levels": ("json", b"".join(b'{"a%d":' % i for i in range(90)) + b'["x", "y"]' + b"}" * 90, "levels deep"),
    "60 levels": ("json", b"".join(b'{"a%d":' % i for i in range(60)) + b'["x", "y"]' + b"}" * 60, ""),
    "200 lists around": ("json", b"[" * 200 + b'"x"' + b"]" * 200, ""),
    "aliases": ("yaml", b"a: &a [x, y]\nb: *a\n", "line 2: aliases are not read"),
    "a billion laughs": ("yaml", b"a: &a [x, y]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n", "alias"),
    "a loop": ("yaml", b"a: &a\n  b: *a\n", "aliases"),
    "a merge": ("yaml", b"a: &a {b: [c, d]}\ne:\n  <<: *a\n", "aliases"),
    "a tag of Python": ("yaml", b"!!python/object/apply:os.system ['touch owned']\n", ""),
    "a tag": ("yaml", b"!x\na: [b, c]\n", ""),
    "a key that is a list": ("yaml", b"? [a, b]\n: [c, d]\n", "empty name"),
    "a key that is a mapping": ("yaml", b"{{a: b}: c}\n", "empty name"),
    "two documents": ("yaml", b"a: [b, c]\n---\nd: e\n", "found another document"),
    "a tab": ("yaml", b"a:\n\t- b\n\t- c\n", ""),
    "a control character": ("yaml", b"a: [b\x01, c]\n", "not allowed"),
    "NUL": ("json", b'{"a": ["b\0", "c"]}', "not allowed"),
    "a lone surrogate": ("json", b'{"a": ["\\ud800", "c"]}', "Unicode"),
    "a pair of surrogates": ("json", b'{"a": ["\\ud83e\\udd86", "c"]}', ""),
    "Latin-1": ("json", '{"a": ["ö", "c"]}'.encode("latin-1"), "is not UTF-8"),
    "UTF-16": ("json", '{"a": ["b", "c"]}'.encode("utf-16"), "is not UTF-8"),
    "a byte order mark": ("json", b'\xef\xbb\xbf{"a": ["b", "c"]}', ""),
    "a directive": ("yaml", b"%YAML 9.9\n---\na: [b, c]\n", "version"),
    "an unknown escape": ("yaml", b'a: ["\\q", c]\n', "line 1"),
    "an open quote": ("yaml", b'a: ["b, c]\n', "line"),
    "numbers": ("yaml", b"1: [2, 3.5, 1e999, .nan, 0x10, 2024-01-01]\n", ""),
    "true and false": ("yaml", b"yes: [no, true, null]\n", "empty name"),
    "a name twice": ("yaml", b"a: [b, b]\n", "appears twice"),
    "levels of numbers": ("json", b'{"levels": 3, "tree": {"a": ["b", "c"]}}', "levels must be a list"),
    "levels of lists": ("json", b'{"levels": [["a"], ["b"]], "tree": {"a": ["b", "c"]}}', "levels must be a list"),
    "too few levels": ("json", b'{"levels": ["a"], "tree": {"a": ["b", "c"]}}', "2 levels deep but 1"),
    "levels twice": ("json", b'{"levels": ["a", "a"], "tree": {"a": ["b", "c"]}}', "appears twice"),
    "a chain": ("csv", b"name,parent\n" + b"".join(b"n%d,n%d\n" % (i, i + 1) for i in range(20_000)), "levels deep"),
    "a ring": ("csv", b"name,parent\n" + b"".join(b"n%d,n%d\n" % (i, (i + 1) % 5000) for i in range(5000)), "cycle"),
    "itself": ("csv", b"name,parent\na,a\n", "cycle"),
    "rings": ("csv", b"name,parent\na,b\nb,a\nc,d\nd,c\n", "cycle"),
    "a parent that is blank": ("csv", b"name,parent,level\na,,x\nb,a,y\nc,a,\n", "has no level"),
    "levels in a ring": ("csv", b"name,parent,level\na,,x\nb,a,y\nc,b,x\n", "cycle"),
    "another kind": ("toml", b"a = 1", "is read from"),
    "blank tails": ("csv", b"a,b\n" + b"".join(b"n%d,\n" % i for i in range(9)), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_tree_is_read_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    end, content, wanted = TREES[name]
    (tmp_path / f"tree.{end}").write_bytes(content)
    said = handled(capsys, "hierarchy", "show", tmp_path / f"tree.{end}")
    check(said, wanted)
    assert not (tmp_path / "owned").exists()


def own(**changed: Any) -> bytes:
    """A hierarchy.json of three species in two families, changed."""
    fine = {"name": "species", "classes": ["a", "b", "c"], "parents": [0, 0, 1]}
    coarse = {"name": "family", "classes": ["F", "G"], "parents": None}
    content = {"format": "torchlht-hierarchy-1", "levels": [fine, coarse]}
    for place, value in changed.items():
        (content if place in content else coarse if place == "top" else fine)[{"top": "classes"}.get(place, place)] = value
    return json.dumps(content).encode()


OWN: dict[str, bytes] = {
    "levels of text": own(levels="species"),
    "no levels": own(levels=[]),
    "levels of numbers": own(levels=[1, 2]),
    "classes of numbers": own(classes=[1, 2, 3]),
    "no classes": own(classes=[]),
    "classes of null": own(classes=None),
    "an empty name": own(classes=["a", " ", "c"]),
    "a name twice": own(classes=["a", "a", "c"]),
    "a parent too many": own(parents=[0, 0, 1, 1]),
    "a parent outside": own(parents=[0, 0, 9]),
    "a parent of -1": own(parents=[0, 0, -1]),
    "a parent of 2e30": own(parents=[0, 0, 2 * 10**30]),
    "a parent of text": own(parents=["0", 0, 1]),
    "a parent of 0.5": own(parents=[0.5, 0, 1]),
    "parents of true": own(parents=[True, 0, 1]),
    "no parents": own(parents=None),
    "a family without species": own(top=["F", "G", "H"]),
    "a name of a number": own(name=7),
    "a level twice": own(name="family"),
}


@pytest.mark.parametrize("name", OWN)
def test_a_hierarchy_json_is_refused_unless_it_is_as_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "hierarchy.json").write_bytes(OWN[name])
    assert handled(capsys, "hierarchy", "show", tmp_path / "hierarchy.json")
    assert handled(capsys, "hierarchy", "show", tmp_path)


X, Y = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([[0, 0], [1, 0], [2, 1], [-1, 1]])
ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "as it should be": ({}, ""),
    "float64": ({"x": X.astype(np.float64)}, ""),
    "float16, the other end first": ({"x": X.astype(">f2")}, ""),
    "columns first": ({"x": np.asfortranarray(X)}, ""),
    "labels of one byte": ({"y": Y.astype(np.int8)}, ""),
    "names of bytes": ({"levels": np.array([b"species", b"family"])}, ""),
    "more arrays": ({"other": np.zeros(9)}, ""),
    "an array of objects aside": ({"other": np.array([{}, []], dtype=object)}, ""),
    "no x": ({"x": None}, "no array 'x'"),
    "no y": ({"y": None}, "no array 'y'"),
    "whole numbers": ({"x": X.astype(int)}, "expected floating point"),
    "text": ({"x": X.astype(str)}, "expected floating point"),
    "complex": ({"x": X.astype(complex)}, "expected floating point"),
    "objects": ({"x": X.astype(object)}, "'x' holds pickled objects"),
    "labels that are objects": ({"y": Y.astype(object)}, "'y' holds pickled objects"),
    "records": ({"x": np.zeros(4, [("a", "f4"), ("b", "f4")])}, "expected floating point"),
    "flat": ({"x": X.ravel()}, "expected floating point"),
    "a number": ({"x": np.float32(3)}, "expected floating point"),
    "pictures": ({"x": np.zeros((4, 3, 2), np.float32)}, "expected floating point"),
    "nothing": ({"x": X[:0], "y": Y[:0]}, "'x' is empty"),
    "no width": ({"x": X[:, :0]}, "'x' is empty"),
    "NaN": ({"x": np.where(X == 4, np.nan, X)}, "1 rows of 'x' hold NaN or infinity, the first is row "),
    "infinity": ({"x": np.where(X == 4, np.inf, X)}, "1 rows of 'x' hold NaN or infinity"),
    "too large for float32": ({"x": np.where(X == 4, 1e300, X.astype(float))}, "1 rows of 'x' hold NaN or infinity"),
    "too large to square": ({"x": np.where(X == 4, -1e20, X)}, "1 rows of 'x' hold numbers beyond 1e"),
    "too few labels": ({"y": Y[:3]}, "one row per row of 'x'"),
    "labels in one line": ({"y": Y[:, 0]}, "has one column: pass --hierarchy FILE"),
    "no levels": ({"y": Y[:, :0]}, "'y' is empty"),
    "labels of floats": ({"y": Y.astype(float)}, "expected integers"),
    "labels of bools": ({"y": Y > 0}, "expected integers"),
    "labels of -2": ({"y": np.where(Y == 2, -2, Y)}, "row 2: label -2"),
    "labels of 2e9": ({"y": np.where(Y == 2, 2 * 10**9, Y)}, "row 2: label 2000000000"),
    "labels of 2**64 - 1": ({"y": np.where(Y < 0, 2**64 - 1, Y).astype(np.uint64)}, "row 3: label 18446744073709551615"),
    "labels of -2**63": ({"y": np.where(Y == 2, -(2**63), Y)}, "row 2: label -9223372036854775808"),
    "all unknown": ({"y": np.full_like(Y, -1)}, "no labels at all"),
    "fine ones unknown": ({"y": np.where([True, False], -1, Y)}, "no label of the level level2"),
    "one class": ({"y": np.zeros_like(Y)}, "only one class"),
    "a class in two families": ({"y": np.array([[0, 0], [0, 1], [1, 1], [1, 1]])}, "but the tree puts it under"),
    "a class without a family": ({"y": np.array([[0, -1], [1, 0], [2, 1], [2, 1]])}, "no row tells"),
    "train of numbers": ({"train": np.ones(4)}, "one flag per row of 'x'"),
    "train too short": ({"train": np.ones(3, bool)}, "one flag per row of 'x'"),
    "no training samples": ({"train": np.zeros(4, bool)}, ""),
    "too few level names": ({"levels": np.array(["species"])}, "'y' has 2 columns but 1 levels are named"),
    "level names of floats": ({"levels": np.array([1.5, 2.5])}, "expected a list of names"),
    "level names in a table": ({"levels": np.array([["a", "b"]])}, "expected a list of names"),
    "one level name": ({"levels": np.array("species")}, "expected a list of names"),
    "level names that are objects": ({"levels": np.array(["a", "b"], dtype=object)}, "'levels' holds pickled objects"),
    "level names twice": ({"levels": np.array(["a", "a"])}, "appears twice"),
    "too few class names": ({"classes_level2": np.array(["a", "b"])}, "names 2 classes"),
    "class names in a table": ({"classes_level2": np.array([["a"], ["b"], ["c"]])}, "expected a list of names"),
    "one class name": ({"classes_level2": np.array("a")}, "names 1 classes"),
    "class names twice": ({"classes_level2": np.array(["a", "a", "b"])}, "appears twice"),
    "empty class names": ({"classes_level2": np.array(["a", "", "b"])}, "a class without a name under '0', which has others"),
    "class names that are no Unicode": ({"classes_level2": np.array(["a", "\ud800", "b"])}, "is not Unicode text"),
    "class names beyond Unicode": ({"classes_level2": np.array([1, 0x7FFFFFFF, 2], np.uint32).view("U1")}, "not text"),
    "class names of Latin-1": ({"classes_level2": np.array([b"a", b"\xff", b"c"])}, "not text"),
    "class names that steer": ({"classes_level2": np.array(["a", "\x1b[2J", "c"])}, ""),
    "class names of times": ({"classes_level2": np.array([1, 2, 3], "M8[s]")}, "expected a list of names"),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAYS)
def test_an_npz_is_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    changed, wanted = ARRAYS[name]
    arrays = {key: value for key, value in ({"x": X, "y": Y} | changed).items() if value is not None}
    np.savez(tmp_path / "a.npz", **arrays)
    said = handled(capsys, "data", "preview", tmp_path / "a.npz")
    check(said, wanted)


def npy(shape: object, descr: str = "<f4", data: bytes = b"", order: object = False) -> bytes:
    """An array file that claims this shape and type."""
    header = repr({"descr": descr, "fortran_order": order, "shape": shape}).encode()
    header += b" " * (118 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


FILES: dict[str, bytes | dict[str, bytes]] = {
    "nothing": b"",
    "text": b"no zip",
    "an array alone": npy((2, 2), data=bytes(16)),
    "an empty zip": {},
    "text in a zip": {"x.npy": b"text"},
    "a zip without arrays": {"readme.txt": b"text"},
    "a header alone": {"x.npy": npy((4, 3))},
    "a shape too large": {"x.npy": npy((10**9, 10**9), data=bytes(48))},
    "a shape too small": {"x.npy": npy((4, 2), data=bytes(48))},
    "a negative shape": {"x.npy": npy((-4, -3), data=bytes(48))},
    "a shape of text": {"x.npy": npy("(4, 3)", data=bytes(48))},
    "a shape of floats": {"x.npy": npy((4.0, 3), data=bytes(48))},
    "a shape of true": {"x.npy": npy((True, 12), data=bytes(48))},
    "an unknown type": {"x.npy": npy((4, 3), "<q9", data=bytes(48))},
    "a type of nothing": {"x.npy": npy((4, 3), "V0")},
    "a type of 2 GB": {"x.npy": npy((4, 3), "V2000000000", data=bytes(48))},
    "a pickle": {"x.npy": npy((4, 3), "|O", data=b"cos\nsystem\n(S'touch owned'\ntR.")},
    "a header of code": {"x.npy": b"\x93NUMPY\x01\x00" + struct.pack("<H", 30) + b"__import__('os').getcwd()     \n"},
    "a long header": {"x.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b" " * 99},
    "a deep header": {"x.npy": b"\x93NUMPY\x02\x00" + struct.pack("<I", 900) + b"(" * 900},
    "another version": {"x.npy": b"\x93NUMPY\x09\x00" + bytes(99)},
    "no end": {"x.npy": npy((4, 3), data=bytes(48))[:-9]},
}


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_npz_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = FILES[name]
    if isinstance(content, bytes):
        (tmp_path / "a.npz").write_bytes(content)
    else:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            for member, data in content.items():
                archive.writestr(member, data)
    said = handled(capsys, "data", "preview", "a.npz")
    assert "a.npz: " in said
    assert ("pickled objects" in said) == (name == "a pickle")
    assert not (tmp_path / "owned").exists()


def test_a_small_npz_of_very_large_arrays_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.data.sources.embeddings.LOOSE", 2**20)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy((2**20, 1), data=bytes(2**22)))
    with pytest.raises(DataError, match=r"would need 4,194,4\d\d bytes, over 100 times its own size"):
        read_data(tmp_path / "a.npz")


PICTURES: dict[str, bytes] = {
    "nothing": b"",
    "text": b"hello",
    "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
    "eps in binary": b"\xc5\xd0\xd3\xc6" + struct.pack("<6I", 32, 9, 0, 0, 0, 0) + bytes(40),
    "pdf": b"%PDF-1.4\n1 0 obj\n",
    "wmf": b"\xd7\xcd\xc6\x9a\0\0" + bytes(60),
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
    "psd": b"8BPS\0\1" + bytes(40),
    "pcx": b"\x0a\x05\x01\x08" + bytes(140),
    "tar": b"0.png" + bytes(507),
    "half": png()[:40],
    "a wrong sum": png().replace(b"IDAT", b"IDAU"),
    "no pixels": png_of(0, 5),
    "very wide": png_of(2**31 - 1, 1),
    "very large": png_of(2**31 - 1, 2**31 - 1),
    "long": png_of(3, 400),
    "gif of nothing": b"GIF89a" + bytes(20),
    "bmp of -1": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, -1, -1, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(50),
    "bmp of billions": b"BM" + struct.pack("<IHHIIiiHHIIiiII", 100, 0, 0, 54, 40, 2**30, 2**30, 1, 24, 0, 0, 0, 0, 0, 0),
    "tiff in a ring": b"II*\0\x08\0\0\0\0\0\x08\0\0\0",
    "tiff of nothing": b"II*\0\xff\xff\xff\xff",
    "jpeg alone": b"\xff\xd8\xff\xe0\0\x10JFIF",
    "jpeg of 65,535": b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x11\0\x02\x11\0\x03\x11\0\xff\xd9",
    "webp of nothing": b"RIFF\x1a\0\0\0WEBPVP8L" + bytes(20),
    "ppm of nothing": b"P6\n0 0\n255\n",
    "ppm of text": b"P6\nnine nine\n255\n",
    "ppm of 5,000 digits": b"P6\n" + b"9" * 5000 + b" 1\n255\n",
}


@pytest.mark.parametrize("name", PICTURES)
def test_an_unreadable_picture_is_left_out_or_refused(birds: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (birds.parent / "0.png").write_bytes(PICTURES[name])
    assert "1 of 4 pictures cannot be read" in handled(capsys, "data", "pack", birds, "--out", birds.with_name("p"))
    assert handled(capsys, "data", "preview", birds, "--out", birds.with_name("o.png")) == ""
    left, problems = check_images(read_data(birds), "skip")
    assert (len(left), len(problems)) == (3, 1)


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (lambda home: os.mkfifo(home / "A" / "x.png"), ""),
    "a folder named as a picture": (lambda home: (home / "A" / "x.png").mkdir(), ""),
    "a link to itself": (lambda home: (home / "A" / "x.png").symlink_to("x.png"), ""),
    "a link to nothing": (lambda home: (home / "A" / "x.png").symlink_to("nothing.png"), ""),
    "a folder in itself": (lambda home: (home / "A" / "more").symlink_to(home), "a link back"),
    "a ring of folders": (lambda home: (home / "A" / "more").symlink_to("more"), ""),
    "an empty class": (lambda home: (home / "C").mkdir(), ""),
    "very deep": (lambda home: home.joinpath(*["A"] * 80).mkdir(parents=True), "folders deep"),
    "a folder that is no text": (lambda home: Path(f"{home}/\udcff").mkdir(), "is not Unicode text"),
    "a picture that is no text": (lambda home: Path(f"{home}/A/\udcff.png").write_bytes(png()), ""),
    "a name of two lines": (lambda home: (home / "A" / "a\nb.png").write_bytes(b"no"), "cannot be read"),
    "a name that steers": (lambda home: (home / "A" / "\x1b[2J.png").write_bytes(b"no"), "cannot be read"),
    "a name of markup": (lambda home: (home / "A" / "[bold].png").write_bytes(b"no"), "cannot be read"),
    "hidden things": (lambda home: (home / ".git").mkdir(), ""),
    "notes": (lambda home: (home / "notes.txt").write_bytes(b"\xff"), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    home = folder_of(tmp_path / "data", (9, 9, 9))
    make, wanted = FOLDERS[name]
    make(home)
    said = handled(capsys, "data", "pack", home, "--out", tmp_path / "p")
    check(said, wanted)
    if not wanted:
        assert len(read_data(tmp_path / "p")) == len(read_data(home))
        assert handled(capsys, "data", "preview", home, "--out", tmp_path / "o.png") == ""


def tar_of(members: dict[str, bytes], **kinds: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            if kind := kinds.get(name.partition(".")[0]):
                info.type, info.linkname, info.size = kind, "/etc/passwd", 0
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def about(label: object = None, **more: object) -> bytes:
    return json.dumps({"labels": label if label is not None else {"family": "F", "species": "s"}, **more}).encode()


OTHER = {"b.png": png(), "b.json": about({"family": "F", "species": "t"})}
TARS: dict[str, tuple[bytes, str]] = {
    "as it should be": (tar_of({"a.png": png(), "a.json": about(), **OTHER}), ""),
    "nothing": (b"", "not a complete, uncompressed tar"),
    "text": (b"text", "not a complete, uncompressed tar"),
    "zeros": (bytes(10_240), "no samples found"),
    "compressed": (gzip.compress(tar_of({"a.png": png(), "a.json": about()})), "not a complete, uncompressed tar"),
    "cut off": (tar_of({"a.png": png(), "a.json": about()})[:1500], "cut off"),
    "a link": (tar_of({"a.png": png(), "a.json": about()}, a=tarfile.SYMTYPE), "no samples found"),
    "a hard link": (tar_of({"a.png": png(), "a.json": about()}, a=tarfile.LNKTYPE), "no samples found"),
    "a device": (tar_of({"a.png": png(), "a.json": about()}, a=tarfile.CHRTYPE), "no samples found"),
    "names above": (tar_of({"../../a.png": png(), "../../a.json": about(), **OTHER}), ""),
    "absolute names": (tar_of({"/etc/a.png": png(), "/etc/a.json": about(), **OTHER}), ""),
    "no labels": (tar_of({"a.png": png()}), "needs a KEY.json"),
    "no picture": (tar_of({"a.json": about()}), "needs a KEY.json"),
    "labels of a list": (tar_of({"a.png": png(), "a.json": about([1, 2])}), "labels: expected object"),
    "labels of numbers": (tar_of({"a.png": png(), "a.json": about({"family": 1})}), "expected str"),
    "labels of nothing": (tar_of({"a.png": png(), "a.json": about({})}), "labels: expected"),
    "labels of null": (tar_of({"a.png": png(), "a.json": about({"family": None})}), "no labels at all"),
    "many levels": (tar_of({"a.png": png(), "a.json": about({f"l{i}": "x" for i in range(99)})}), "labels: expected"),
    "other levels": (tar_of({"a.png": png(), "a.json": about({"genus": "G"}), **OTHER}), "has a level"),
    "a number of text": (tar_of({"a.png": png(), "a.json": about(number="one")}), "number: expected int"),
    "a number of 1e30": (tar_of({"a.png": png(), "a.json": about(number=10**30)}), "number"),
    "a number of -5": (tar_of({"a.png": png(), "a.json": about(number=-5)}), "number"),
    "a split of holdout": (tar_of({"a.png": png(), "a.json": about(split="holdout")}), "split is 'holdout'"),
    "a split of 1": (tar_of({"a.png": png(), "a.json": about(split=1)}), "split: expected str"),
    "deep labels": (tar_of({"a.png": png(), "a.json": b'{"labels":' + b"[" * DEEP}), "cannot be used"),
    "long labels": (tar_of({"a.png": png(), "a.json": about(more="x" * 2**20)}), "the most that is read is"),
    "labels in Latin-1": (tar_of({"a.png": png(), "a.json": b'{"labels": {"a": "\xff"}}'}), "is not UTF-8"),
    "a list": (tar_of({"a.png": png(), "a.json": b"[]"}), "cannot be used"),
}  # fmt: skip


@pytest.mark.parametrize("name", TARS)
def test_a_tar_is_read_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    content, wanted = TARS[name]
    (tmp_path / "x.tar").write_bytes(content)
    said = handled(capsys, "data", "preview", tmp_path / "x.tar", "--out", tmp_path / "o.png")
    check(said, wanted)


@pytest.mark.parametrize(
    "place",
    [
        "pipe.csv",
        "pipe.npz",
        "pipe.tar",
        "loop.csv",
        "folder.csv",
        "folder.npz",
        "no.csv",
        "x" * 300,
        "/dev/null",
        "/dev/zero",
        "",
    ],
)
@pytest.mark.parametrize("command", [["data", "preview"], ["hierarchy", "show"], ["data", "pack", "--out", "new"]])
def test_what_is_no_data_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if place.startswith("pipe"):
        os.mkfifo(place)
    elif place.startswith("loop"):
        Path(place).symlink_to(place)
    elif place.startswith("folder"):
        Path(place).mkdir()
    assert handled(capsys, *command[:2], place, *command[2:])


# ---- bytes changed at random ---------------------------------------------------------------------------------------

WORDS = [
    b"\n",
    b",",
    b'"',
    b"{",
    b"]",
    b":",
    b"#",
    b"*a",
    b"&a ",
    b"\x1b[2J",
    b"\0",
    b"-1",
    b"1e999",
    b"NaN",
    b"://",
    b"../",
    b"=1",
]
WORDS += [b"\xff\xff\xff\xff", "\u202e".encode()]


def mutated(data: bytes, seed: int) -> bytes:
    """A file with a few bytes changed, left out, put in or cut off."""
    luck = random.Random(seed)
    for _ in range(luck.choice([1, 1, 2, 4])):
        i, kind = luck.randrange(len(data) + 1), luck.randrange(4)
        if kind == 0:
            data = data[:i] + luck.choice(WORDS) + data[i + luck.choice([0, 1, 4]) :]
        elif kind == 1:
            data = data[:i] + luck.randbytes(luck.choice([1, 4])) + data[i + luck.choice([0, 1, 4]) :]
        elif kind == 2:
            data = data[:i] + data[i + luck.choice([1, 8, 100]) :]
        else:
            data = data[:i] if luck.random() < 0.3 else data[:i] + data[max(i - 30, 0) : i] + data[i:]
    return data


@pytest.mark.parametrize(
    "kind", ["b.csv", "0.png", "a.npz", "tree.json", "shards/index.json", "shards/hierarchy.json", "shards/shards-000000.tar"]
)
def test_changed_bytes_are_read_or_refused(shards: Path, birds: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    home = birds.parent
    (home / "tree.json").write_text('{"levels": ["family", "species"], "tree": {"F": ["s", "t"]}}')
    np.savez(home / "a.npz", x=X, y=Y, levels=np.array(["species", "family"]), classes_species=np.array(["s", "t", "u"]))
    data = {"a.npz": "a.npz", "b.csv": "b.csv", "0.png": "b.csv", "tree.json": "b.csv"}.get(kind, "shards")
    more = ["--hierarchy", home / "tree.json"] if kind == "tree.json" else []
    right = (home / kind).read_bytes()
    for seed in range(25):
        (home / kind).write_bytes(mutated(right, seed))
        handled(capsys, "data", "preview", home / data, "--out", home / "o.png", *more)
