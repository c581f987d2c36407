"""Mistakes of the user's: exit code 2, one sentence that says what and what to do, no traceback, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from torchlht.cli import main

Case = Callable[[Path], list[str]]
NO_TEST = ("--test-share", "0")


def csv(folder: Path, text: str, name: str = "birds.csv") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def folder_with(folder: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        path = folder / "pictures" / name / "1.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8), (i, i, i)).save(path)
    (folder / "pictures").mkdir(exist_ok=True)
    return folder / "pictures"


def broken_jpeg(folder: Path) -> str:
    root = folder_with(folder, "a/x", "a/y", "b/z")
    picture = root / "a/x/2.jpg"
    Image.effect_noise((200, 200), 50).save(picture)
    picture.write_bytes(picture.read_bytes()[:900])
    return str(root)


def npz(folder: Path, **arrays: np.ndarray) -> str:
    good = {"x": np.zeros((4, 3), np.float32), "y": np.zeros((4, 2), np.int64), "train": np.ones(4, bool)}
    np.savez(folder / "bad.npz", **{**good, **arrays})
    return str(folder / "bad.npz")


def existing_run(folder: Path) -> list[str]:
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").write_text("mine")
    return ["train", good_features(folder), "--out", str(folder / "taken")]


def good_features(folder: Path) -> str:
    y = np.array([[0, 0], [1, 0], [2, 1], [3, 1]] * 5)
    return npz(folder, x=np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), y=y, train=np.arange(20) > 4)


CASES: dict[str, tuple[Case, str]] = {
    "missing file": (lambda d: ["train", str(d / "nowhere.csv")], "no such file or folder"),
    "empty folder": (lambda d: ["train", str(folder_with(d))], "no folders inside; expected one folder per class"),
    "one class only": (lambda d: ["train", str(folder_with(d, "only"))], "only one class, 'only'"),
    "cyclic tree": (
        lambda d: ["train", good_features(d), "--hierarchy", csv(d, "name,parent\na,b\nb,c\nc,a\n", "tree.csv")],
        "line 2: cycle: a → b → c → a",
    ),
    "two parents": (
        lambda d: ["train", csv(d, "path,family,species\n1.png,A,s\n2.png,B,s\n3.png,A,t\n4.png,A,u\n")],
        "line 3: species 's' is under 'B' here but under 'A' on line 2",
    ),
    "contradicting label": (
        lambda d: ["train", csv(d, "path,f,s\n1.png,B,x\n"), "--hierarchy", csv(d, "f,s\nA,x\nB,y\n", "t.csv")],
        "birds.csv line 2: s 'x' is labelled f 'B', but the tree puts it under 'A'",
    ),
    "broken JPEG": (lambda d: ["train", broken_jpeg(d)], "1 of 4 pictures cannot be read"),
    "wrong npz shapes": (
        lambda d: ["train", npz(d, y=np.zeros((3, 2), np.int64))],
        "'y' is int64 (3, 2), expected integers (4, levels)",
    ),
    "mask 1.5": (lambda d: ["train", good_features(d), "--mask", "1.5"], "--mask is 1.5"),
    "negative mask": (lambda d: ["train", good_features(d), "--mask", "-0.1"], "--mask is -0.1"),
    "unknown backbone": (
        lambda d: ["train", str(folder_with(d, "a/x", "a/y", "b/z")), "--backbone", "resnet19", "--test-share", "0"],
        "unknown backbone 'resnet19': did you mean resnet1",
    ),
    "unknown method": (
        lambda d: ["train", good_features(d), "--method", "multihed"],
        "unknown method 'multihed': did you mean multihead?",
    ),
    "run directory that exists": (existing_run, "exists and is not empty; choose another --out"),
    "unknown class": (
        lambda d: ["train", csv(d, "path,f,s\n1.png,A,z\n"), "--hierarchy", csv(d, "f,s\nA,x\nB,y\n", "t.csv")],
        "line 2: s has no class 'z'",
    ),
    "option of another method": (
        lambda d: ["train", good_features(d), "--method", "flat", "--gamma", "3"],
        "method flat has no option 'gamma'",
    ),
    "backbone for features": (lambda d: ["train", good_features(d), "--backbone", "resnet18"], "holds features already"),
    "everything hidden": (
        lambda d: ["train", good_features(d), "--mask", "0.5", "--mask-levels", "2"],
        "would hide everything",
    ),
    "no run to predict with": (lambda d: ["predict", str(d / "none"), "x.png"], "no such run directory"),
    "nothing to resume": (lambda d: ["train", "--resume", str(d / "none")], "no such run directory"),
    "no data": (lambda d: ["train"], "no data: lht train DATA"),
    "unknown command": (lambda d: ["trian"], "unknown command 'trian': did you mean train?"),
    "half a command": (lambda d: ["hierarchy"], "needs a second word"),
    "option that does not exist": (
        lambda d: ["train", good_features(d), "--method", "hxe", "--option", "alpa=0.3"],
        "method hxe has no option 'alpa': did you mean alpha?",
    ),
    "option that is no number": (
        lambda d: ["train", good_features(d), "--method", "hxe", "--option", "alpha=much"],
        "option alpha of hxe is 'much': it takes a number",
    ),
    "compiling features": (lambda d: ["train", good_features(d), "--compile"], "--compile is for the backbone of pictures"),
    "peer on pictures": (
        lambda d: ["train", str(folder_with(d, "a/x", "a/y", "b/z")), "--method", "hiclass", "--backbone", "small", *NO_TEST],
        "--method hiclass trains on features only: add --freeze",
    ),
    "compare with a wrong option": (
        lambda d: ["compare", good_features(d), "--methods", "lht:rank=0", "--out", str(d / "out")],
        "rank is 0",
    ),
    "compare where everything is hidden": (
        lambda d: ["compare", good_features(d), "--mask", "0,0.5", "--mask-levels", "2", "--out", str(d / "out")],
        "would hide everything",
    ),
    "compare with an unknown method": (
        lambda d: ["compare", good_features(d), "--methods", "lht,lth", "--out", str(d / "out")],
        "unknown method 'lth'",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(name: str, tmp_path: Path, capsys, monkeypatch) -> None:
    make, sentence = CASES[name]
    arguments = make(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {path: path.is_dir() or path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert sentence in said.err
    assert said.err.startswith("lht: ")
    assert said.err.count("\n") == 1
    assert "Traceback" not in said.err
    assert said.out == ""
    assert {path: path.is_dir() or path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_flags_that_do_not_exist_exit_with_2(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "demo", "--masks", "0.5"])
    assert stop.value.code == 2
    assert "--mask" in capsys.readouterr().err


def test_hierarchy_check_lists_every_fault(tmp_path: Path, capsys) -> None:
    file = csv(tmp_path, "order,family,species\nA,F,s\nB,F,t\nA,F,\nA,F,s\n")
    with pytest.raises(SystemExit) as stop:
        main(["hierarchy", "check", file])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    for part in ("3 problems", "line 3", "line 4", "line 5", "species is empty", "appears twice (also line 2)"):
        assert part in said
