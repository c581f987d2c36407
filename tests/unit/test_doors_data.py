"""What comes in as data passes a checked door: it is read, or refused with one sentence. Nothing is run, filled or replaced."""

from __future__ import annotations

import csv
import io
import json
import os
import struct
import time
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
from torchlht.data.batches import Preprocess, decode
from torchlht.data.pictures import BytesPicture, content_digest, find_problems, open_image, picture_at
from torchlht.data.samples import check_images, read_data
from torchlht.data.sources.shards import expand_braces
from torchlht.errors import DataError
from torchlht.files import csv_text, read_csv
from torchlht.heads.method import Estimator, create_method, find_method, list_methods
from torchlht.hierarchy.tree import Hierarchy
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
    row = bytes(1 + -(-width // 8))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row * min(height, 10**6 // width + 1)))
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


def test_features_of_another_width_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Model(create_backbone("none", in_features=4), create_method("flat", 4, TREE), options={}).save_pretrained(tmp_path / "run")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 5), np.float32), y=np.array([[0, 0], [1, 0], [2, 1]]))
    assert lht("evaluate", tmp_path / "run", tmp_path / "x.npz") == 2
    assert "its features are 5 wide; this run takes 4" in capsys.readouterr().err
    assert lht("predict", tmp_path / "run", tmp_path / "x.npz") == 2
    assert "5" in capsys.readouterr().err
    for limit in ("-1", "0"):
        assert lht("predict", tmp_path / "run", tmp_path / "x.npz", "--limit", limit) == 2
