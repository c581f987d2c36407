"""Options on the command line: a dataclass of options read from words, and explained by --help.

A field is `--name VALUE`, a bool `--name` or `--no-name`, a tuple `--name VALUE…`; one marked with `Word` is a word of its own.
Its docstring explains it. Types are checked by the options themselves.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, get_args, get_origin, get_type_hints

from torchlht.data.options import Alias, Door, Word
from torchlht.errors import ConfigError, as_flag, nearest

NAMES = {int: "N", float: "NUMBER", Path: "PATH", str: "TEXT"}


@dataclass(frozen=True)
class Argument:
    """A field of the options as an argument.

    Attributes:
        name: the field's name.
        kinds: the types it may have, without None.
        marks: `Word` and `Alias` of its hint.
        default: its default; MISSING if it is required.
        group: the class that declares it.
    """

    name: str
    kinds: tuple[Any, ...]
    marks: tuple[Any, ...]
    default: Any
    group: Any

    @property
    def meaning(self) -> str:
        """Its docstring, as one line."""
        return _meanings(self.group)[self.name]

    @property
    def word(self) -> str | None:
        """How a word that is not a flag is called, such as RUN; None for a flag."""
        return next((mark.name for mark in self.marks if isinstance(mark, Word)), None)

    @property
    def flags(self) -> tuple[str, ...]:
        """--name and its aliases."""
        return (as_flag(self.name), *(mark.flag for mark in self.marks if isinstance(mark, Alias)))

    @property
    def several(self) -> bool:
        """Whether it takes any number of words."""
        return any(get_origin(kind) in (tuple, list) for kind in self.kinds)

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it may have, if they are few and known."""
        return tuple(str(word) for kind in self.kinds if get_origin(kind) is Literal for word in get_args(kind))

    @property
    def value(self) -> str:
        """What its value looks like: N, a|b, PATH."""
        if self.several:
            return "TEXT…"
        words = [get_args(kind) if get_origin(kind) is Literal else (NAMES.get(kind, "TEXT"),) for kind in self.kinds]
        return "|".join(str(word) for some in words for word in some)

    def read(self, word: str) -> Any:
        """The value that a word stands for; a word that does not fit is left to the options to refuse."""
        for kind in (int, float):
            if kind in self.kinds:
                try:
                    return kind(word)
                except ValueError:
                    continue
        return word

    def shown(self) -> str:
        """How it is written: --freeze, --no-freeze; --epochs N."""
        if self.word:
            return self.word
        if bool in self.kinds:
            return f"{self.flags[0]}, --no-{self.flags[0][2:]}"
        return f"{', '.join(self.flags)} {self.value}"

    def explained(self) -> str:
        """Its meaning, with its default where the meaning does not tell it."""
        if self.default is MISSING:
            return self.meaning if self.word else f"{self.meaning} (required)"
        plain = {True: "yes", False: "no"}[self.default] if isinstance(self.default, bool) else self.default
        return self.meaning if plain in (None, "", ()) else f"{self.meaning} (default: {plain})"

    def needed(self, command: str) -> ConfigError:
        """What to raise when it is missing."""
        return ConfigError(f"lht {command} needs {self.shown()}: {self.meaning.replace('`', '')}")


@functools.cache
def arguments_of(options: Any) -> dict[str, Argument]:
    """The arguments of a class of options, by name; those of its base classes first."""
    hints, found = get_type_hints(options, include_extras=True), {}
    for field in dataclasses.fields(options):
        group = next(cls for cls in options.__mro__ if field.name in vars(cls).get("__annotations__", {}))
        kinds, marks = _unpacked(hints[field.name])
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        default = () if default == [] else default
        found[field.name] = Argument(field.name, tuple(kinds), tuple(marks), default, group)
    return found


def _unpacked(hint: Any) -> tuple[list[Any], list[Any]]:
    """The types of a hint without None, and everything that annotates them."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        kinds, more = _unpacked(inner)
        return kinds, [*marks, *more]
    if get_origin(hint) in (tuple, list):
        return [hint], _unpacked(get_args(hint)[0])[1]
    if get_origin(hint) is Literal or not get_args(hint):
        return ([] if hint is type(None) else [hint]), []
    parts = [_unpacked(part) for part in get_args(hint)]
    return [kind for kinds, _ in parts for kind in kinds], [mark for _, marks in parts for mark in marks]


@functools.cache
def _meanings(group: Any) -> dict[str, str]:
    """The docstring under each field of a class."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(group)).body if isinstance(node, ast.ClassDef)]
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


# ---- reading -------------------------------------------------------------------------------------------------------


def read_words(command: str, options: Any, words: Sequence[str], others: Callable[[], Iterable[str]] = tuple) -> dict[str, Any]:
    """The values of the options that the words after `lht COMMAND` give.

    Args:
        command: the command, for messages.
        options: the class of its options.
        words: the words.
        others: gives flags that are read elsewhere, to suggest them.

    Raises:
        ConfigError: for an unknown option, a missing value or word, or a word too many.
    """
    known = arguments_of(options)
    flags = {flag: argument for argument in known.values() if not argument.word for flag in argument.flags}
    before, after = _cut(words)  # after `--` no word is a flag, whatever it looks like
    try:
        found, unknown = _parser(options).parse_known_intermixed_args([_dashed(word) for word in before])
    except argparse.ArgumentError as fault:
        flag = str(fault.argument_name).split("/")[0]
        needs = "takes no value" if bool in flags[flag].kinds else f"needs a value: {flags[flag].value}"
        raise ConfigError(f"{flag} {needs}") from None
    if unknown:
        flag = unknown[0].partition("=")[0]
        near = nearest(flag, [*flags, *others()])
        raise ConfigError(f"unknown option {flag}: {f'{near} ' if near else ''}lht {command} --help lists them all")
    values = vars(found)
    loose = [*values.pop("words", ()), *after]
    for argument in flags.values():
        if argument.default is MISSING and argument.name not in values:
            raise argument.needed(command)
    return values | _placed(command, [argument for argument in known.values() if argument.word], loose)


@functools.cache
def _parser(options: Any) -> argparse.ArgumentParser:
    """A parser of all flags; words that belong to none are its `words`."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("words", nargs="*")
    for argument in arguments_of(options).values():
        if bool in argument.kinds:
            parser.add_argument(*argument.flags, dest=argument.name, action=argparse.BooleanOptionalAction)
        elif argument.several and not argument.word:
            parser.add_argument(*argument.flags, dest=argument.name, action="extend", nargs="*")
        elif not argument.word:
            parser.add_argument(*argument.flags, dest=argument.name, type=argument.read)
    return parser


def _cut(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The words before `--`, and those after it."""
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _dashed(word: str) -> str:
    """A flag with dashes for underscores; any other word as it is."""
    flag, equals, text = word.partition("=")
    return flag.replace("_", "-") + equals + text if word.startswith("--") else word


def _placed(command: str, places: Sequence[Argument], words: list[str]) -> dict[str, Any]:
    """Words that are no flags, each at its place."""
    values: dict[str, Any] = {}
    for place in places:
        if place.several:
            values[place.name], words = list(words), []
        elif words:
            values[place.name] = place.read(words.pop(0))
        elif place.default is MISSING:
            raise place.needed(command)
    if words:
        takes = " ".join(place.shown() for place in places) or "no words besides options"
        raise ConfigError(f"{words[0]!r} is one word too many: lht {command} takes {takes}; put names with blanks in quotes")
    return values


def check_doors(options: Any) -> None:
    """Ask whether everything is there that the options name: what flags name first, as it is most often misspelt."""
    kind: Any = type(options)
    for argument in sorted(arguments_of(kind).values(), key=lambda argument: argument.word is not None):
        given = getattr(options, argument.name)
        names = () if given == argument.default else given if argument.several else (given,)
        for door in (mark for mark in argument.marks if isinstance(mark, Door)):
            for name in names:
                door.check(name)


# ---- explaining ----------------------------------------------------------------------------------------------------


def words_and_groups(options: Any) -> tuple[list[Argument], dict[str, list[Argument]]]:
    """The words of a command, and its flags by heading: what most people need first, then the groups they are declared in."""
    known = arguments_of(options)
    flags = [argument for argument in known.values() if not argument.word]
    first = [known[name] for name in getattr(options, "FIRST", ())] or [one for one in flags if one.group is options]
    groups = {"what most people need" if hasattr(options, "FIRST") else "options": first}
    for cls in options.__mro__:
        title = (inspect.getdoc(cls) or "").partition("\n")[0].partition(".")[0]
        groups["more" if cls is options else title[:1].lower() + title[1:]] = [
            one for one in flags if one.group is cls and one not in first
        ]
    return [one for one in known.values() if one.word], {title: members for title, members in groups.items() if members}


def usage_line(command: str, words: Sequence[Argument]) -> str:
    """How a command is written: lht train DATA [options]."""
    said = [f"[{argument.word}]" if argument.default is not MISSING else str(argument.word) for argument in words]
    return " ".join(["lht", command, *said, "[options]"])


def help_text(command: str, options: Any, what: str) -> str:
    """The text of `lht COMMAND --help`."""
    words, groups = words_and_groups(options)
    lines = [f"usage: {usage_line(command, words)}", "", textwrap.fill(what, _width()), "", *paragraphs(words)]
    for title, members in groups.items():
        lines += ["", f"{title}:", *paragraphs(members)]
    return "\n".join(lines)


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


class Explained(Protocol):
    """An option of a command, or of a method."""

    def shown(self) -> str:
        """How it is written."""

    def explained(self) -> str:
        """What it means."""


def paragraphs(arguments: Iterable[Explained]) -> Iterator[str]:
    """How options are written, and below what they mean, as wide as the terminal."""
    margin = " " * 6
    fold = textwrap.TextWrapper(_width(), margin, margin, break_on_hyphens=False)
    for argument in arguments:
        yield from (f"  {argument.shown()}", fold.fill(argument.explained()))
