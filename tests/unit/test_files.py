"""Writing whole or not at all, and where caches live."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml

from torchlht.files import cache_dir, replacing, write_json, write_text, write_yaml


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_replacing_puts_the_new_content_in_place_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")
    with replacing(target) as beside:
        beside.write_text("new")
        assert target.read_text() == "old"
        assert beside.parent == target.parent
    assert target.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_replacing_keeps_the_old_file_and_leaves_nothing_behind_on_an_exception(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail() -> None:
        with replacing(target) as beside:
            beside.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_replacing_creates_no_file_when_there_was_none_and_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), replacing(tmp_path / "a.txt"):
        raise RuntimeError
    assert names(tmp_path) == []


def test_replacing_leaves_nothing_behind_when_the_place_is_taken_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError), replacing(tmp_path / "taken") as beside:
        beside.write_text("x")
    assert names(tmp_path) == ["taken"]
    assert (tmp_path / "taken").is_dir()


def test_replacing_makes_the_folders_above(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "c.txt", "x")
    assert (tmp_path / "a" / "b" / "c.txt").read_text() == "x"


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_permissions_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "x")
        assert os.umask(umask) == umask, "the umask is as it was"
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == mode


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), object()])
def test_write_json_refuses_what_is_not_json_and_keeps_the_old_file(tmp_path: Path, bad: object) -> None:
    target = tmp_path / "a.json"
    write_json(target, {"a": 1})
    with pytest.raises((ValueError, TypeError)):
        write_json(target, {"a": [0.5, bad]})
    assert json.loads(target.read_text()) == {"a": 1}
    assert names(tmp_path) == ["a.json"]


def test_json_and_yaml_keep_unicode_and_order(tmp_path: Path) -> None:
    value = {"z": "Möwe 🐦", "a": [1, 2.5, None, True]}
    write_json(tmp_path / "a.json", value)
    write_yaml(tmp_path / "a.yaml", value)
    for file, load in (("a.json", json.loads), ("a.yaml", yaml.safe_load)):
        back = load((tmp_path / file).read_text(encoding="utf-8"))
        assert back == value
        assert list(back) == ["z", "a"]
    assert "Möwe" in (tmp_path / "a.json").read_text(encoding="utf-8")
    assert "Möwe" in (tmp_path / "a.yaml").read_text(encoding="utf-8")


def test_cache_dir_is_lht_cache_then_xdg_then_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "one"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two"))
    assert cache_dir() == tmp_path / "one"
    monkeypatch.delenv("LHT_CACHE")
    assert cache_dir() == tmp_path / "two" / "torchlht"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "torchlht"
