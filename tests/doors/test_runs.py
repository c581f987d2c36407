"""Runs, checkpoints and exports that are damaged, edited or hostile: exit 0 or 2, with one sentence, and nothing lost.

Every case is a real command on a real run in which one file was changed.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml

from torchlht import files
from torchlht.cli import main
from torchlht.errors import RunError
from torchlht.lab.comparison.results import read_results
from torchlht.learn import training

GOLDEN = Path(__file__).parent.parent / "golden"
DEEP = 100_000


class Places:
    """A finished run, an unfinished one, and their data."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        y = rng.integers(0, 4, 60)
        self.data, self.run, self.half = folder / "d.npz", folder / "run", folder / "half"
        x = rng.normal(size=(60, 5)).astype(np.float32)
        np.savez(self.data, x=x, y=np.stack([y, y // 2], 1), train=np.arange(60) < 45)
        words = ["train", str(self.data), "--epochs", "2", "--val", "0.3", "--quiet", "--method", "multihead", "--no-track"]
        main([*words, "--out", str(self.run)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(training, "finish", interrupt)
            with pytest.raises(SystemExit):
                main([*words, "--out", str(self.half)])


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield Places(tmp_path_factory.mktemp("runs"))


def content(folder: Path) -> dict[str, bytes | None]:
    """Every file of a folder; None for what is no file."""
    return {str(one.relative_to(folder)): one.read_bytes() if one.is_file() else None for one in folder.rglob("*")}


def tried(words: list[str], capsys: pytest.CaptureFixture[str], codes: tuple[int, ...] = (0, 2)) -> str:
    """Run a command, which may succeed or be refused with one sentence; returns that sentence."""
    capsys.readouterr()
    code: Any = 0
    try:
        main(words)
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err
    assert code in codes, said
    lines = [line for line in said.splitlines() if line.startswith("lht: ")]
    assert len(lines) == (code != 0), said
    assert "Traceback" not in said
    assert len(said) < 2000
    return " ".join(said.split())


# ---- whole files ---------------------------------------------------------------------------------------------------

CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda old: b"",
    "half": lambda old: old[: len(old) // 2],
    "binary": lambda old: bytes(range(256)) * 4,
    "null": lambda old: b"null",
    "a list": lambda old: b"[]",
    "an empty object": lambda old: b"{}",
    "a number": lambda old: b"1",
    "deep lists": lambda old: b"[" * DEEP + b"]" * DEEP,
    "deep objects": lambda old: b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "flipped bits": lambda old: bytes(byte ^ (90 if i % 37 == 5 else 0) for i, byte in enumerate(old)),
}


def folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe_there(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def circle_there(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def huge_there(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**34)


OTHER: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "a folder": folder_there,
    "a pipe": pipe_there,
    "a circle of links": circle_there,
    "16 GB": huge_there,
}
READ_BY = {
    "config.yaml": "predict",
    "hierarchy.json": "predict",
    "model.safetensors": "predict",
    "calibration.json": "predict",
    "split.json": "calibrate",
    "metrics.json": "report",
}


def words_for(command: str, run: Path, places: Places) -> list[str]:
    return {
        "predict": ["predict", str(run), str(places.data), "--limit", "2"],
        "calibrate": ["calibrate", str(run)],
        "report": ["report", str(run), "--out", str(run.parent / "page"), "--images", "0"],
        "evaluate": ["evaluate", str(run)],
    }[command]


def damage(path: Path, how: str) -> None:
    if how in CONTENT:
        path.write_bytes(CONTENT[how](path.read_bytes()))
    else:
        OTHER[how](path)


@pytest.fixture(autouse=True)
def _fast_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report up to where it draws: that takes seconds."""
    monkeypatch.setattr("torchlht.show.page.SECTIONS", {})


@pytest.mark.parametrize("how", [*CONTENT, *OTHER])
@pytest.mark.parametrize("name", READ_BY)
def test_a_damaged_file_of_a_run(name: str, how: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = shutil.copytree(places.run, tmp_path / "run")
    damage(run / name, how)
    said = tried(words_for(READ_BY[name], run, places), capsys)
    if said and name != "hierarchy.json":  # another tree is seen at the weights
        assert name in said


@pytest.mark.parametrize("how", [*CONTENT, *OTHER])
@pytest.mark.parametrize("name", ["config.yaml", "split.json", "checkpoint/last.safetensors"])
def test_resuming_with_a_damaged_file_says_so_and_loses_nothing(
    name: str, how: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = shutil.copytree(places.half, tmp_path / "run")
    damage(run / name, how)
    before = {} if how in ("a pipe", "16 GB", "a circle of links") else content(run)
    fine = name.startswith("checkpoint") and how in ("missing", "a pipe", "a circle of links")  # from the beginning
    said = tried(["train", "--resume", str(run), "--quiet"], capsys, (0,) if fine else (2,))
    if before and not fine:
        assert content(run) == before
        assert Path(name).name in said or "data has changed" in said or how == "half"


# ---- edited values -------------------------------------------------------------------------------------------------


def edited(values: Any, path: str, new: Any) -> Any:
    """A copy with one value changed; `...` removes it."""
    values = copy.deepcopy(values)
    *above, last = (int(step) if step.isdecimal() else step for step in path.split("/"))
    place = values
    for step in above:
        place = place[step]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return values


CONFIG_EDITS = [
    ("model", ...), ("model", 3), ("model", []), ("train", ...), ("train", 3), ("train", {}), ("train", []),
    ("model/backbone", ...), ("model/backbone", 3), ("model/backbone", "no_such"), ("model/backbone", "../../x"),
    ("model/backbone", "linear"), ("model/in_features", ...), ("model/in_features", "x"),
    ("model/in_features", -1), ("model/in_features", 0), ("model/in_features", 6), ("model/in_features", 10**12),
    ("model/in_features", 2.5), ("model/in_features", None), ("model/method", ...), ("model/method", "no_such"),
    ("model/method", "lht"), ("model/method", ["lht"]), ("model/method", None), ("model/options", ...), ("model/options", None),
    ("model/options", {"width": -1}), ("model/options", {"width": "x"}), ("model/options", {"no_such": 1}),
    ("model/options", {"width": 10**9}), ("model/options", {"hierarchy": 1}), ("model/options", {"in_features": 3}),
    ("model/options", {"input_dropout": 7}), ("model/preprocess", {"size": 8}), ("model/preprocess", {"size": -1, "resize": 8}),
    ("model/preprocess", {"size": 10**9, "resize": 10**9}), ("model/preprocess", [1]), ("model/preprocess", "x"),
    ("model/preprocess", {"size": 16, "resize": 16, "std": [0, 0, 0]}),
    ("model/preprocess", {"size": 16, "resize": 16, "interpolation": "x"}),
]  # fmt: skip
TRAIN_EDITS = [
    ("train/data", ...), ("train/data", None), ("train/data", 3), ("train/data", "no/such"), ("train/data", "a\0b"),
    ("train/data", "x" * 5000), ("train/seed", -1), ("train/seed", "x"), ("train/seed", 10**30), ("train/mask", "x"),
    ("train/mask", 7), ("train/mask", None), ("train/option", None), ("train/option", "x"), ("train/option", ["width"]),
    ("train/option", [3]), ("train/option", ["no_such=3"]), ("train/preset", "no_such"), ("train/preset", None),
    ("train/epochs", 0), ("train/epochs", "x"), ("train/epochs", 10**20), ("train/lr", -1), ("train/lr", "x"),
    ("train/lr", float("nan")), ("train/lr", float("inf")), ("train/optimizer", "foo"), ("train/test_share", 7),
    ("train/levels", 3), ("train/levels", "a,b,c,d"), ("train/hierarchy", "no/such.csv"), ("train/freeze", "x"),
    ("train/select", "x"), ("train/val", -1), ("train/val", 1), ("train/fold", "9/3"), ("train/rules", ["no_such"]),
    ("train/perturb", "x"), ("train/prior", 3), ("train/on_error", "x"), ("train/batch_size", 0), ("train/accumulate", 0),
    ("train/method", "no_such"), ("train/backbone", "resnet18"), ("launch", 3),
]  # fmt: skip


@pytest.mark.parametrize(("path", "new"), CONFIG_EDITS)
def test_an_edited_model(path: str, new: Any, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = shutil.copytree(places.run, tmp_path / "run")
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(edited(config, path, new)))
    tried(words_for("predict", run, places), capsys)


@pytest.mark.parametrize(("path", "new"), TRAIN_EDITS)
def test_edited_options(path: str, new: Any, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = yaml.safe_load((places.run / "config.yaml").read_text())
    text = yaml.safe_dump(edited(config, path, new))
    run = shutil.copytree(places.run, tmp_path / "run")
    (run / "config.yaml").write_text(text)
    tried(words_for("calibrate", run, places), capsys)
    if new in (10**20, 0.5):
        return
    half = shutil.copytree(places.half, tmp_path / "half")
    (half / "config.yaml").write_text(text)
    tried(["train", "--resume", str(half), "--quiet"], capsys)


JSON_EDITS = [
    ("calibration.json", "levels", ...), ("calibration.json", "levels", []), ("calibration.json", "levels", 3),
    ("calibration.json", "levels/0/temperature", 0), ("calibration.json", "levels/0/temperature", -1),
    ("calibration.json", "levels/0/temperature", 1e300), ("calibration.json", "levels/0/temperature", "x"),
    ("calibration.json", "levels/0/temperature", ...), ("calibration.json", "levels/0/kind", "x"),
    ("calibration.json", "levels/0/kind", ...), ("calibration.json", "levels/0/name", "other"),
    ("calibration.json", "levels/0/samples", -1), ("calibration.json", "levels/0/samples", 1.5),
    ("calibration.json", "risk", ...), ("calibration.json", "risk", {}), ("calibration.json", "risk/own", ...),
    ("calibration.json", "risk/own/weighted", [1]), ("calibration.json", "risk/own/weighted", "x"),
    ("calibration.json", "risk/own/most", "x"), ("calibration.json", "risk/own/samples", None),
    ("calibration.json", "source", ...), ("calibration.json", "source", 3),
    ("split.json", "val", ...), ("split.json", "val", []), ("split.json", "val", "x"), ("split.json", "val/0", -1),
    ("split.json", "val/0", 10**9), ("split.json", "val/0", 10**30), ("split.json", "val/0", 1.5), ("split.json", "train", 3),
    ("split.json", "kept", ...), ("split.json", "test", [[]]),
    ("metrics.json", "levels", ...), ("metrics.json", "levels", 3), ("metrics.json", "levels", [3]),
    ("metrics.json", "levels/0/name", 3), ("metrics.json", "levels/0/accuracy", "x"), ("metrics.json", "levels/0", {}),
    ("metrics.json", "selection", ...), ("metrics.json", "selection", "x"), ("metrics.json", "selection/epoch", "x"),
    ("metrics.json", "train_seconds", "x"), ("metrics.json", "train_seconds", 1e300),
    ("hierarchy.json", "levels", ...), ("hierarchy.json", "levels", []), ("hierarchy.json", "levels", ["a"]),
    ("hierarchy.json", "levels/0/classes", []), ("hierarchy.json", "levels/0/classes/0", 3), ("hierarchy.json", "format", "x"),
    ("hierarchy.json", "levels/0/parents", [0, 0, 0, 9]), ("hierarchy.json", "levels/0/parents", "x"),
    ("hierarchy.json", "levels/0/parents", [-1, 0, 0, 1]), ("hierarchy.json", "levels/0/parents", [10**30, 0, 0, 1]),
    ("hierarchy.json", "levels/0/name", ""), ("hierarchy.json", "levels/0/name", None), ("hierarchy.json", "levels/1", ...),
]  # fmt: skip


@pytest.mark.parametrize(("name", "path", "new"), JSON_EDITS)
def test_edited_records(name: str, path: str, new: Any, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = shutil.copytree(places.run, tmp_path / "run")
    values = json.loads((run / name).read_text())
    (run / name).write_text(json.dumps(edited(values, path, new)))
    more = ["--risk", "0.5"] if name == "calibration.json" else []
    tried([*words_for(READ_BY[name], run, places), *more], capsys)


def test_files_of_another_run(places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = next((GOLDEN / "runs").iterdir())
    for name in ("calibration.json", "model.safetensors", "hierarchy.json", "split.json"):
        if (other / name).is_file():
            run = shutil.copytree(places.run, tmp_path / name)
            shutil.copy(other / name, run / name)
            assert tried(words_for(READ_BY[name], run, places), capsys, (2,))


# ---- exports -------------------------------------------------------------------------------------------------------

METADATA_EDITS: list[tuple[str, Any]] = [
    ("format", ...), ("format", 99), ("format", "x"), ("format", -1), ("format", 10**30), ("hierarchy", ...), ("hierarchy", []),
    ("hierarchy/levels", 3), ("hierarchy/levels", []), ("hierarchy/levels/0", ["a"]), ("preprocess", ...),
    ("preprocess", {"size": -1}), ("preprocess", {"size": 10**9, "resize": 10**9}), ("preprocess", [1]), ("calibration", ...),
    ("calibration", 3), ("calibration", {"levels": []}), ("threshold", ...), ("threshold", 3), ("threshold", {"value": "x"}),
    ("threshold", {"value": 1e300, "promise": "x"}), ("threshold", {"value": 0.5, "promise": 3}), ("rule", ...), ("rule", "x"),
    ("rule", 3), ("input", ...), ("input", {"shape": []}), ("input", {"shape": ["batch", "x"]}), ("input", {}),
    ("input", {"shape": ["b", -1]}), ("input", {"shape": ["b", 10**30]}), ("outputs", 3),
]  # fmt: skip
METADATA_TEXTS = ["", "null", "[]", "{", '{"format": NaN}', "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "1e999"]


def with_metadata(source: Path, out: Path, change: Callable[[str], str]) -> Path:
    """An ONNX file with other metadata."""
    model = onnx.load(source)
    for prop in model.metadata_props:
        if prop.key == "torchlht":
            prop.value = change(prop.value)
    out.write_bytes(model.SerializeToString())
    return out


@pytest.mark.parametrize(("path", "new"), METADATA_EDITS)
def test_edited_metadata(path: str, new: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = with_metadata(GOLDEN / "lht.onnx", tmp_path / "a.onnx", lambda text: json.dumps(edited(json.loads(text), path, new)))
    tried(["predict", str(file), str(GOLDEN / "birds.npz"), "--limit", "1"], capsys)


@pytest.mark.parametrize("text", METADATA_TEXTS, ids=lambda text: text[:8])
def test_damaged_metadata(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = with_metadata(GOLDEN / "lht.onnx", tmp_path / "a.onnx", lambda _: text)
    tried(["predict", str(file), str(GOLDEN / "birds.npz"), "--limit", "1"], capsys, (2,))


@pytest.mark.parametrize("how", [*CONTENT, *OTHER])
@pytest.mark.parametrize("end", ["onnx", "pt2"])
def test_a_damaged_export(end: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = shutil.copy(GOLDEN / f"lht.{end}", tmp_path / f"a.{end}")
    damage(Path(file), how)
    tried(["predict", str(file), str(GOLDEN / "birds.npz"), "--limit", "1"], capsys, (2,))


def test_metadata_that_unpacks_to_gigabytes_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "a.pt2"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/extra/torchlht.json", b" " * 2**27)
    assert "--trust" in tried(["predict", str(file), str(GOLDEN / "birds.npz")], capsys, (2,))


# ---- comparisons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "method\nlht\n",
        "method,mask,seed,level,accuracy\nlht,x,0,a,1\n",
        "method,mask,seed,level,accuracy\nlht,0,x,a,1\n",
        "method,mask,seed,level,accuracy\nlht,0,0,a,nan\n",
        "method,mask,seed,level,accuracy\nlht,inf,0,a,1\n",
        "\x00\x00",
        "method,mask,seed,level,accuracy\nlht,0,0,a,x\n",
        "method,mask,seed,level,accuracy\nlht,0\n",
    ],
)
def test_edited_results(text: str, tmp_path: Path):
    (tmp_path / "results.csv").write_text(text)
    with pytest.raises(RunError, match=r"results.csv"):
        read_results(tmp_path)


@pytest.mark.parametrize("how", [*CONTENT, "a folder", "a pipe", "a circle of links"])
def test_a_damaged_comparison(how: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["compare", str(places.data), "--out", str(tmp_path / "c"), "--methods", "flat", "--mask", "0", "--seeds", "1"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "compare.yaml").write_text("methods: [flat]\n")
    damage(tmp_path / "c" / "compare.yaml", how)
    tried([*words, "--epochs", "1", "--jobs", "1", "--resume"], capsys, (2,))


@pytest.mark.parametrize(
    "word",
    [
        "lht:tail=0.01",
        "lht:",
        "lht:=",
        "lht:gamma",
        "lht:gamma=",
        "lht:gamma=x",
        "lht:gamma=nan",
        "lht:gamma=1e999",
        ":",
        "",
        ",",
        "lht:no_such=1",
        "no_such",
        "no_such*",
        "lht:epochs=0",
        "lht:epochs=x",
        "lht:semi=x",
        "lht:mixup=-1",
        "lht:ema=1",
        "lht:ema",
        "lht:weight_decay=-1",
        "lht:weight_decay=nan",
        "lht:width=0",
        "lht:width=1e9",
        "flat:rank=3",
        "lht::",
        "../../x",
        "lht/x",
        "lht:columns=0",
        "lht:columns=-1",
        "lht:form=x",
        "lht:hierarchy=1",
        "lht:in_features=1",
        "[",
        "lht:gamma=1:gamma=2",
        "lht:rank=10000000",
        "lht:bias=maybe",
        "lht:label_smoothing=1",
        "\x1b[31m",
        "lht\n",
        "lht:features=x",
        "all:gamma=1",
    ],
)
def test_contenders(
    word: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("torchlht.lab.comparison.grid.Workers.run", interrupt)  # what can be trained is not
    words = ["compare", str(places.data), "--out", str(tmp_path / "c"), "--mask", "0", "--seeds", "1", "--jobs", "1"]
    said = tried([*words, "--methods", word], capsys, (2, 130))
    if "interrupted" not in said:
        assert not (tmp_path / "c").exists()


# ---- the disk ------------------------------------------------------------------------------------------------------

FULL = [28, 30, 13, 122, 5]  # no space, read-only, no permission, quota, an error of the disk


@pytest.mark.parametrize("number", FULL)
@pytest.mark.parametrize("command", ["train", "calibrate", "export", "compare"])
def test_a_disk_that_takes_nothing_more(
    command: str,
    number: int,
    places: Places,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    run = shutil.copytree(places.run, tmp_path / "run")
    before, out = content(run), str(tmp_path / "out")
    words = {
        "train": ["train", str(places.data), "--epochs", "1", "--quiet", "--out", out],
        "calibrate": ["calibrate", str(run)],
        "export": ["export", str(run), "--out", f"{out}.pt2"],
        "compare": [
            "compare",
            str(places.data),
            "--out",
            out,
            "--methods",
            "flat",
            "--mask",
            "0",
            "--seeds",
            "1",
            "--jobs",
            "1",
        ],
    }[command]

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number), "there")

    monkeypatch.setattr(files.tempfile, "mkstemp", fail)
    said = tried(words, capsys, (2,))
    assert "there: " in said
    assert content(run) == before
    assert [one.name for one in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["x" * 300, "a/" * 3000 + "b"])
@pytest.mark.parametrize("command", ["train", "export", "compare", "report"])
def test_names_that_are_too_long(command: str, name: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / name)
    words = {
        "train": ["train", str(places.data), "--epochs", "1", "--quiet", "--out", out],
        "export": ["export", str(places.run), "--out", f"{out}.pt2"],
        "compare": ["compare", str(places.data), "--out", out],
        "report": ["report", str(places.run), "--out", out],
    }[command]
    assert "too long" in tried(words, capsys, (2,))


@pytest.mark.parametrize("command", ["train", "export", "compare", "report"])
def test_a_file_where_a_folder_should_be(command: str, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "x"):
        words = {
            "train": ["train", str(places.data), "--epochs", "1", "--quiet", "--out", str(out)],
            "export": ["export", str(places.run), "--out", f"{out}/x.pt2"],
            "compare": ["compare", str(places.data), "--out", str(out)],
            "report": ["report", str(places.run), "--out", str(out)],
        }[command]
        tried(words, capsys, (2,))
    assert (tmp_path / "file").read_text() == "mine"
