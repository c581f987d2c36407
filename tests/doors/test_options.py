"""The doors on the ground floor: options by their types, plain files by size, depth, encoding and schema, the disk in words."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest

from torchlht import cli, doors
from torchlht.commands.base import COMMANDS
from torchlht.data.options import Options
from torchlht.errors import ConfigError, DataError, LHTError, RunError
from torchlht.learn.options import TrainArgs

# ---- options -------------------------------------------------------------------------------------------------------

OPTIONS = sorted({command.options for command in cli.all_commands().values()}, key=lambda kind: kind.__name__)
FIELDS = [(kind, field.name) for kind in OPTIONS for field in dataclasses.fields(kind)]
HOSTILE: list[Any] = [
    -1, 0, 10**30, 1.5, math.nan, math.inf, -math.inf, 1e308, True, "", "x", "-1", "nan", "a\0b", "\x1b[31m", "\udcff",
    "x" * 10_000, b"x", [], [1], {}, {"a": 1}, object(), np.float32("nan"), np.int64(-5), np.zeros(3), Path("x"), int,
]  # fmt: skip


def needed(kind: type[Any]) -> dict[str, Any]:
    """Values for the fields without a default."""
    missing = dataclasses.MISSING
    open_fields = [f for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    return {f.name: Path("out") if f.name == "out" else "x" for f in open_fields}


def test_all_options_of_all_commands_pass_the_door() -> None:
    assert len(FIELDS) > 200
    assert all(issubclass(kind, Options) for kind in OPTIONS)


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda value: value if isinstance(value, str) else value.__name__)
def test_an_option_is_taken_or_refused_in_one_sentence_whatever_it_is(kind: type[Any], name: str) -> None:
    refused = []
    for value in HOSTILE:
        try:
            kept = getattr(kind(**needed(kind) | {name: value}), name)
        except LHTError as error:
            refused.append(str(error))
        else:
            assert not isinstance(kept, float) or math.isfinite(kept), value
    assert refused  # at least an object() does not fit
    assert not any("\n" in sentence for sentence in refused)


def bounded(hint: Any) -> bool:
    """Whether every number in a hint has bounds."""
    if any(isinstance(rule, msgspec.Meta) for rule in getattr(hint, "__metadata__", ())):
        return True
    return hint not in (int, float) and (get_origin(hint) is None or all(map(bounded, get_args(hint))))


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_every_number_among_options_is_bounded(kind: type[Any]) -> None:
    hints = get_type_hints(kind, include_extras=True)
    names = [f.name for f in dataclasses.fields(kind) if f.name != "seeds"]  # how many, or a list: it checks itself
    assert [name for name in names if not bounded(hints[name])] == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seed": -1}, "--seed is -1: it must be a whole number from 0 to 4294967295"),
        ({"clip": -1.0}, "--clip is -1.0: it must not be negative"),
        ({"backbone_lr": -1.0}, "--backbone-lr is -1.0: it must not be negative"),
        ({"optimizer": "foo"}, "unknown --optimizer 'foo': known: sgd, adamw"),
        ({"lr": math.nan}, "--lr is nan: it must be above 0"),
        ({"epochs": "3"}, "--epochs is '3': it takes a whole number"),
        ({"mask": 2}, "--mask is 2: it must be a share from 0 to 1"),
        ({"mixup": 1e-300}, "--mixup is 1e-300: it must be 0, for none, or at least 0.001"),
        ({"freeze": 1}, "--freeze is 1: it takes true or false"),
        ({"data": "a\0b"}, "--data holds a NUL character: remove it"),
        ({"option": {"gamma": 1}, "workers": 10_000}, "--workers is 10000: it must not be negative, and at most 1024"),
    ],
)
def test_what_does_not_fit_is_told_from_python_as_well(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrainArgs(**{"data": "x.npz"} | options)
    assert caught.value.in_flags == sentence


def test_what_fits_is_converted_to_its_type() -> None:
    args = TrainArgs(data="x.npz", out="runs/a", rules=["crm"], seed=np.int64(3), lr=1)  # type: ignore[arg-type]
    assert (args.out, args.rules, type(args.seed), args.lr) == (Path("runs/a"), ("crm",), int, 1.0)


@pytest.mark.parametrize("seeds", ["", ",", "0", "-1", "x", "1,x", "1,-2", "1e9", 10**9, -3])
def test_seeds_are_some_or_refused(seeds: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="seeds"):
        COMMANDS["compare"].options(data="x.npz", out=tmp_path, seeds=seeds)


# ---- files ---------------------------------------------------------------------------------------------------------


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    for path, what in [(tmp_path / "pipe", "a pipe"), (tmp_path, "a folder"), (Path("/dev/zero"), "a device")]:
        with pytest.raises(DataError, match=f"is {what}, not a file"):
            doors.read_bytes(path)
    with pytest.raises(RunError, match="has 5 bytes; the most that is read is 4"):
        doors.read_bytes(tmp_path / "large", 4, RunError)
    assert doors.read_bytes(tmp_path / "large", 5) == b"12345"


def test_text_is_utf8_with_or_without_a_mark_or_the_line_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("\ufeffmötley".encode())
    assert doors.read_text(file) == "mötley"
    file.write_bytes(b"a\nb\n\xe4")
    with pytest.raises(DataError, match=r"a.txt line 3: is not UTF-8 \(byte 0xe4\); save it as UTF-8"):
        doors.read_text(file)


class Bird(msgspec.Struct):
    name: str
    eggs: list[int] = []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"name": "a", "eggs": [1, "2"]}', r"eggs\[1\]: expected int, got str"),
        ('{"eggs": []}', "lacks name"),
        ("[]", "expected object, got array"),
        ("", "is not valid JSON"),
        ("{", "is not valid JSON"),
        ('{"name": NaN}', "is not valid JSON"),
        ("1e999", "is not valid JSON"),
        ("9" * 5000, "is not valid JSON"),
        ('{"name": "\\ud800"}', "is not valid JSON"),
        ("[" * 100_000 + "]" * 100_000, "is nested too deeply"),
        ("[" * 101 + "1" + "]" * 101, "is nested too deeply"),
    ],
)
def test_json_fits_its_schema_or_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=f"birds.json: {sentence}") as caught:
        doors.from_json(text, Bird, "birds.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name: &x a\neggs: [*x]", " line 2: is not valid YAML \\(aliases are not read"),
        ("name: !!python/object/apply:os.getcwd []", " line 1: is not valid YAML"),
        ("name: [", " line 1: is not valid YAML"),
        ("\x07", ": is not valid YAML"),
        ("name: 2026-99-99", ": is not valid YAML"),
        ("name: " + "9" * 5000, ": is not valid YAML"),
        ("? [a]\n: 1", " line 1: is not valid YAML"),
        ("[" * 5000, ": is nested too deeply"),
        ("name: 1", ": name: expected str, got int"),
    ],
)
def test_yaml_fits_its_schema_or_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=f"birds.yaml{sentence}") as caught:
        doors.from_yaml(text, Bird, "birds.yaml")
    assert "\n" not in str(caught.value)


def test_depth_is_counted_to_the_limit_and_no_further() -> None:
    assert [doors.depth(value) for value in (1, [], [1], {"a": [1]}, [[[]]])] == [0, 0, 1, 2, 2]
    deep: list[Any] = []
    deep.append(deep)
    assert doors.depth(deep) == doors.DEPTH + 1


# ---- the disk ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", sorted(doors.REASONS), ids=lambda number: errno.errorcode[number])
def test_a_fault_of_the_disk_is_one_sentence_and_exit_code_2(number: int, monkeypatch, capsys) -> None:
    def fail(_: Any) -> None:
        raise OSError(number, os.strerror(number), "runs/a/model.safetensors")

    monkeypatch.setitem(COMMANDS, "methods", COMMANDS["methods"]._replace(run=fail))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["methods"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith("lht: runs/a/model.safetensors: ")


def test_other_faults_keep_their_own_words() -> None:
    assert doors.sentence(OSError("The host is down")) == "the host is down"
    assert doors.sentence(OSError(errno.ENOTTY, "Inappropriate ioctl for device", b"x\xff")).startswith(
        "x\udcff: inappropriate"
    )


def test_no_memory_is_said(monkeypatch, capsys) -> None:
    def fail(_: Any) -> None:
        raise MemoryError

    monkeypatch.setitem(COMMANDS, "methods", COMMANDS["methods"]._replace(run=fail))
    with pytest.raises(SystemExit):
        cli.main(["methods"])
    assert "not enough memory" in capsys.readouterr().err
