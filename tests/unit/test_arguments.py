"""Options on the command line: read from words, refused in one sentence, explained in groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from torchlht.cli import all_commands, main, parse
from torchlht.commands.arguments import arguments_of, help_text, read_words
from torchlht.data.options import Alias, Word
from torchlht.doors import Count
from torchlht.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What others need, too. And more."""

    colour: Literal["red", "green"] = "red"
    """The colour."""


@dataclass(frozen=True)
class Example(Shared):
    """An example."""

    run: Annotated[str, Word("RUN")]
    """The run."""
    inputs: Annotated[list[str], Word("FILE…")] = field(default_factory=list)
    """Files, or `demo`."""
    size: Count | None = None
    """Chosen by the backbone
    by default."""
    rate: float = 0.5
    """A rate."""
    warm: bool = True
    """Keep warm."""
    names: tuple[str, ...] = ()
    """Some names."""
    target: Annotated[str, Alias("--targets")] = "a"
    """A target."""


def read(*words: str) -> dict[str, object]:
    return read_words("try", Example, words)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["r"], {"run": "r", "inputs": []}),
        (["r", "a", "--size", "3", "b"], {"run": "r", "inputs": ["a", "b"], "size": 3}),
        (["--rate=-1e-3", "r"], {"run": "r", "inputs": [], "rate": -1e-3}),
        (["r", "--rate", "-1"], {"run": "r", "inputs": [], "rate": -1.0}),
        (["r", "--no-warm"], {"run": "r", "inputs": [], "warm": False}),
        (["--names", "a", "b", "--names=c", "--", "r", "--x"], {"run": "r", "inputs": ["--x"], "names": ["a", "b", "c"]}),
        (["r", "--targets", "b"], {"run": "r", "inputs": [], "target": "b"}),
        (["r", "--size", "three"], {"run": "r", "inputs": [], "size": "three"}),
    ],
)
def test_words_become_values(words: list[str], values: dict[str, object]) -> None:
    assert read(*words) == values


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["r", "--colur", "red"], "unknown option --colur: did you mean --colour? lht try --help lists them all"),
        (["r", "-o", "x"], "unknown option -o: lht try --help lists them all"),
        (["r", "--no-size"], "unknown option --no-size: did you mean --size? lht try --help lists them all"),
        (["r", "--size"], "--size needs a value: N"),
        (["r", "--size", "--warm"], "--size needs a value: N"),
        (["r", "--warm=7"], "--warm takes no value"),
        ([], "lht try needs RUN: The run."),
    ],
)
def test_a_mistake_gives_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(*words)
    assert str(refused.value) == sentence


def test_mistakes_of_real_commands(capsys) -> None:
    for words, sentence in {
        "train x --backbne small": "unknown option --backbne: did you mean --backbone? lht train --help lists them all",
        "train x --gama 1": "unknown option --gama: did you mean --gamma? lht train --help lists them all",
        "train my birds": "'birds' is one word too many: lht train takes DATA; put names with blanks in quotes",
        "train x --epochs many": "--epochs is 'many': it takes a whole number",
        "data preview": "lht data preview needs DATA: A folder of pictures, a .csv/.tsv table, shards, an .npz of features",
    }.items():
        with pytest.raises(SystemExit) as stop:
            main(words.split())
        assert stop.value.code == 2
        said = capsys.readouterr().err
        assert said.startswith(f"lht: {sentence}")
        assert said.count("\n") == 1


def test_help_shows_groups_types_and_real_defaults(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert help_text("try", Example, "Tries.").splitlines() == [
        "usage: lht try RUN [FILE…] [options]",
        "",
        "Tries.",
        "",
        "  RUN",
        "      The run.",
        "  FILE…",
        "      Files, or `demo`.",
        "",
        "options:",
        "  --size N",
        "      Chosen by the backbone by default.",
        "  --rate NUMBER",
        "      A rate. (default: 0.5)",
        "  --warm, --no-warm",
        "      Keep warm. (default: yes)",
        "  --names TEXT…",
        "      Some names.",
        "  --target, --targets TEXT",
        "      A target. (default: a)",
        "",
        "what others need, too:",
        "  --colour red|green",
        "      The colour. (default: red)",
    ]


def test_training_starts_with_what_most_people_need(capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        parse("train", ["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert said.index("what most people need:") < said.index("--out PATH") < said.index("--backbone TEXT")
    assert said.index("--quiet") < said.index("how weights are learned:") < said.index("--mixup")


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_help_fits_eighty_columns_and_tells_every_default_in_words(name: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    options = all_commands()[name].options
    text = help_text(name, options, all_commands()[name].help)
    assert max(map(len, text.splitlines())) <= 80
    assert "None" not in text
    assert "--demo" not in text
    for argument in arguments_of(options).values():
        assert argument.flags[0] in text or argument.word


def test_a_path_is_a_path() -> None:
    assert parse("train", ["x", "--out", "runs/a"]).out == Path("runs/a")
