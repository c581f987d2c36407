"""The doors: what comes from outside passes one of them, or is refused with one sentence.

Options are checked against their own types, which are finite and bounded. Files are checked for being files, for their size,
depth and encoding, and are decoded into a schema. An OSError becomes a sentence. Every limit is a constant here, or stands next
to the one reader that has it; docs/limits.md lists them all.
"""

from __future__ import annotations

import codecs
import dataclasses
import errno
import functools
import inspect
import os
import re
import stat
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, BinaryIO, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from torchlht.errors import ConfigError, DataError, LHTError, suggestion

P = ParamSpec("P")
T = TypeVar("T")

TEXT_BYTES = 2**30
"""Largest JSON, YAML or other text file: the index of a million samples has 400 MB."""
DEPTH = 100
"""Deepest nesting of JSON or YAML. A tree of life has some 40 levels."""

# ---- options -------------------------------------------------------------------------------------------------------


# Named types, so that a field says what it is; bounds also keep NaN and infinity out.
# fmt: off
Port = Annotated[int, msgspec.Meta(ge=0, le=65535, description="it must be from 0 to 65535")]
Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**32, description="it must be a whole number from 0 to 4294967295")]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**9, description="it must be at least 1")]
Many = Annotated[int, msgspec.Meta(ge=0, le=10**9, description="it must not be negative")]
Parallel = Annotated[int, msgspec.Meta(ge=1, le=1024, description="it must be at least 1, and at most 1024")]
Threads = Annotated[int, msgspec.Meta(ge=-1024, le=1024, description="it must be from -1024 to 1024")]
Workers = Annotated[int, msgspec.Meta(ge=0, le=1024, description="it must not be negative, and at most 1024")]
Side = Annotated[int, msgspec.Meta(ge=8, le=4096, description="it must be from 8 to 4096 pixels")]
Looks = Annotated[int, msgspec.Meta(ge=1, le=5, description="it must be from 1 to 5")]
Breadth = Annotated[int, msgspec.Meta(ge=1, le=10**6, description="it must be from 1 to 1000000")]
Rank = Annotated[int, msgspec.Meta(ge=1, le=1024, description="it must be from 1 to 1024")]
Width = Annotated[int, msgspec.Meta(ge=1, le=2**16, description="it must be from 1 to 65536")]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1, description="it must be a share from 0 to below 1")]
WholeShare = Annotated[float, msgspec.Meta(ge=0, le=1, description="it must be a share from 0 to 1")]
OpenShare = Annotated[float, msgspec.Meta(gt=0, lt=1, description="it must be a share between 0 and 1")]
Decay = Annotated[float, msgspec.Meta(ge=0, lt=1, description="it must be a decay from 0 to below 1")]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e30, description="it must be above 0")]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e30, description="it must not be negative")]
Number = Annotated[float, msgspec.Meta(ge=-1e30, le=1e30, description="it must be a number")]
# fmt: on

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a path", tuple: "a list of texts"}


def checked(options: Any) -> None:
    """Check every field of a dataclass against its type hint, and convert what fits: a str to a Path, a list to a tuple.

    Raises ConfigError, from the command line and from Python alike.
    """
    kind: Any = type(options)
    for name, hint in _hints(kind).items():
        value = fitting(name, getattr(options, name), hint)
        object.__setattr__(options, name, value)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def all_fitting(values: Mapping[str, Any], kind: Any, source: str) -> dict[str, Any]:
    """Values from a file as the fields of a dataclass want them. Raises ConfigError that names the file."""
    try:
        return {name: fitting(name, value, _hints(kind)[name]) for name, value in values.items()}
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def fitting(name: str, value: Any, hint: Any) -> Any:
    """The value of an option as its type wants it. Raises ConfigError that says what it takes."""
    plain = value.item() if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0 else value
    if isinstance(plain, os.PathLike) and not isinstance(plain, Path):
        plain = Path(plain)  # a run that `train` has returned
    if isinstance(plain, str | Path) and "\0" in str(plain):
        raise ConfigError(f"`{name}` holds a NUL character: remove it")
    for part in _parts(hint):
        try:
            return _as(part, plain)
        except (msgspec.ValidationError, UnicodeEncodeError):
            continue
    raise ConfigError(_refusal(name, value, hint))


def _as(kind: Any, value: Any) -> Any:
    """A value as one type wants it. Raises ValidationError when it does not fit; types without a check take anything."""
    if get_origin(kind) in (Annotated, Literal, tuple, list) or kind in (bool, int, float):
        return msgspec.convert(value, kind, dec_hook=_from_text)
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if get_origin(kind) is None and isinstance(kind, type) and kind is not Any and not isinstance(value, kind):
        raise msgspec.ValidationError
    return value


def _from_text(kind: Any, value: Any) -> Any:
    """For msgspec: a value of a type that it does not know."""
    return _as(kind, value)


def _refusal(name: str, value: Any, hint: Any) -> str:
    """What an option of this type takes: it must be at least 1; it takes a whole number; did you mean adamw?"""
    parts = [part for part in _parts(hint) if part is not type(None)]
    kinds = [get_args(part)[0] if get_origin(part) is Annotated else get_origin(part) or part for part in parts]
    shown = textwrap.shorten(repr(value), 200, placeholder="…")
    for part, kind in zip(parts, kinds, strict=True):
        if kind is Literal:
            return f"unknown `{name}` {shown}: {suggestion(str(value), get_args(part))}"
        rules = [rule for rule in get_args(part)[1:] if isinstance(rule, msgspec.Meta) and rule.description]
        if rules and (isinstance(value, kind) or (kind is float and isinstance(value, int))):
            return f"`{name}` is {shown}: {rules[0].description}"
    return f"`{name}` is {shown}: it takes {' or '.join(WORDS.get(kind, f'a {kind.__name__}') for kind in kinds)}"


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union; of any other type, itself."""
    if get_origin(hint) is Annotated and not any(isinstance(mark, msgspec.Meta) for mark in hint.__metadata__):
        return _parts(hint.__origin__)  # a mark that has nothing to do with values
    if get_origin(hint) in (Union, UnionType):
        return tuple(part for member in get_args(hint) for part in _parts(member))
    return (hint,)


def _bound(signature: inspect.Signature, values: tuple[Any, ...], named: dict[str, Any]) -> inspect.BoundArguments | None:
    """What a call passes for each parameter; None if it does not fit."""
    try:
        return signature.bind(*values, **named)
    except TypeError:
        return None


def entrance(function: Callable[P, T]) -> Callable[P, T]:
    """Decorator: what a public function is called with is checked against its type hints.

    Texts, paths, numbers, words and objects of one class are checked; what is more general is left to the function.
    """
    signature, hints = inspect.signature(function), functools.cache(lambda: get_type_hints(function, include_extras=True))

    @functools.wraps(function)
    def call(*values: P.args, **named: P.kwargs) -> T:
        bound = _bound(signature, values, named)
        if bound is None:
            return function(*values, **named)  # Python says what is wrong with the call, with the function's name
        for name, value in bound.arguments.items():
            if name in hints():
                fitted = fitting(name, value, hints()[name])
                kept = isinstance(value, list | dict | set) and type(fitted) is type(value)  # the caller may want it filled
                bound.arguments[name] = value if kept else fitted
        return function(*bound.args, **bound.kwargs)

    return call


# ---- files ---------------------------------------------------------------------------------------------------------


def read_bytes(path: Path, limit: int = TEXT_BYTES, error: type[LHTError] = DataError) -> bytes:
    """The content of a regular file. Raises `error` for pipes, devices and folders, and above `limit` bytes."""
    with open_file(path, error) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise error(f"{path}: has {size:,} bytes; the most that is read is {limit:,}")
        return file.read(limit)


def open_file(path: Path, error: type[LHTError] = DataError) -> BinaryIO:
    """Open a regular file for reading. Raises `error` for pipes, devices and folders, and never waits for one."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise error(f"{path}: is {_what(mode)}, not a file")


def _what(mode: int) -> str:
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a pipe", stat.S_ISSOCK: "a socket"}
    return next((name for test, name in kinds.items() if test(mode)), "a device")


def read_text(path: Path, limit: int = TEXT_BYTES, error: type[LHTError] = DataError) -> str:
    """The text of a regular file in UTF-8, with or without a byte order mark."""
    return as_text(read_bytes(path, limit, error), str(path), error)


def as_text(data: bytes, source: str, error: type[LHTError] = DataError) -> str:
    """Bytes as UTF-8 text. Raises `error` that says on which line it is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise error(f"{source} line {line}: is not UTF-8 (byte 0x{data[fault.start]:02x}); save it as UTF-8") from None


def read_json(path: Path, kind: type[T], error: type[LHTError] = DataError) -> T:
    """A JSON file, decoded into a schema: a msgspec.Struct, a dataclass or a plain type."""
    return from_json(read_bytes(path, error=error), kind, str(path), error)


def from_json(data: bytes | str, kind: type[T], source: str, error: type[LHTError] = DataError) -> T:
    """JSON text, decoded into a schema. Raises `error` that names the source and the field."""
    text = as_text(data, source, error) if isinstance(data, bytes) else data
    try:
        content = msgspec.json.decode(text)
    except RecursionError:
        raise error(f"{source}: is nested too deeply; {DEPTH} levels are the most that is read") from None
    except (msgspec.DecodeError, UnicodeEncodeError) as fault:
        raise error(f"{source}: is not valid JSON ({str(fault).removeprefix('JSON is malformed: ')})") from None
    return fit(content, kind, source, error)


def read_large_json(path: Path, kind: type[T], limit: int, error: type[LHTError] = DataError) -> T:
    """A JSON file, decoded straight into a schema: what the schema does not name is skipped and takes no memory."""
    try:
        return msgspec.json.decode(read_bytes(path, limit, error).removeprefix(codecs.BOM_UTF8), type=kind)
    except RecursionError:
        raise error(f"{path}: is nested too deeply") from None
    except msgspec.ValidationError as fault:
        raise error(f"{path}: {_misfit(fault)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise error(f"{path}: is not valid JSON ({str(fault).removeprefix('JSON is malformed: ')})") from None


@functools.cache
def plain_loader(*, exponents: bool = False) -> Any:
    """A loader of plain YAML: no tags, and no aliases, which can make a small file endless.

    With `exponents`, 1e-3 is a number, as YAML 1.2 has it and people write it; without, it may be a class.
    """
    import yaml

    class PlainLoader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                mark = self.get_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, "aliases are not read; write the value again", mark)
            return super().compose_node(parent, index)

    if exponents:
        number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
        PlainLoader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    return PlainLoader


def read_yaml(path: Path, kind: type[T], error: type[LHTError] = DataError, *, exponents: bool = False) -> T:
    """A YAML file without tags and aliases, decoded into a schema. With `exponents`, 1e-3 is a number."""
    return from_yaml(read_text(path, error=error), kind, str(path), error, exponents=exponents)


def from_yaml(text: str, kind: type[T], source: str, error: type[LHTError] = DataError, *, exponents: bool = False) -> T:
    """YAML text without tags and aliases, decoded into a schema. Raises `error` that names the source and the line or field."""
    import yaml  # slower to import than all of this file

    try:
        content = yaml.load(text, plain_loader(exponents=exponents))
    except RecursionError:
        raise error(f"{source}: is nested too deeply; {DEPTH} levels are the most that is read") from None
    except (yaml.YAMLError, ValueError, OverflowError) as fault:
        mark = getattr(fault, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise error(
            f"{source}{where}: is not valid YAML ({getattr(fault, 'problem', None) or str(fault).splitlines()[0]})"
        ) from None
    return fit(content, kind, source, error)


def fit(content: Any, kind: type[T], source: str, error: type[LHTError] = DataError) -> T:
    """Plain content as a schema wants it. Raises `error` that names the source and the field."""
    if depth(content) > DEPTH:
        raise error(f"{source}: is nested too deeply; {DEPTH} levels are the most that is read")
    try:
        return msgspec.convert(content, kind, dec_hook=_from_text)
    except msgspec.ValidationError as fault:
        raise error(f"{source}: {_misfit(fault)}") from None


def _misfit(fault: msgspec.ValidationError) -> str:
    """Which field does not fit its schema, and why."""
    what, _, where = str(fault).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    what = what.replace("`", "").replace("Expected", "expected", 1).replace("Object missing required field", "lacks", 1)
    return f"{field}: {what}" if field else what


def depth(content: Any) -> int:
    """How deep lists and mappings are nested, counted level by level and not further than needed."""
    found, level = 0, [content]
    while level and found <= DEPTH:
        level = [inner for value in level for inner in _inside(value)]
        found += bool(level)
    return found


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


# ---- the disk ------------------------------------------------------------------------------------------------------

REASONS = {
    errno.ENOSPC: "the disk is full; free some space, then run the same command again",
    errno.EDQUOT: "your quota on this disk is used up; free some space, then run the same command again",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.EROFS: "the disk is read-only; choose another place",
    errno.EACCES: "no permission; ask for access, or choose another place",
    errno.EPERM: "no permission; ask for access, or choose another place",
    errno.ENAMETOOLONG: "the name is too long for this disk; choose a shorter one",
    errno.ENOENT: "no such file or folder",
    errno.EISDIR: "is a folder, not a file",
    errno.ENOTDIR: "a part of this path is a file, not a folder",
    errno.EEXIST: "exists already; choose another name",
    errno.ENOTEMPTY: "is not empty; choose another place",
    errno.ELOOP: "links point at each other in a circle",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n), or use fewer `workers`",
    errno.ENFILE: "too many files are open on this machine",
    errno.EIO: "the disk reports an error",
    errno.EXDEV: "lies on another disk",
    errno.ENOMEM: "there is not enough memory",
}


def sentence(fault: OSError) -> str:
    """What went wrong with a file or with the network, in one sentence.

    >>> sentence(OSError(errno.ENOSPC, "", "runs/a/model.safetensors"))
    'runs/a/model.safetensors: the disk is full; free some space, then run the same command again'
    """
    reason = REASONS.get(fault.errno or 0) or (fault.strerror or str(fault) or type(fault).__name__).lower()
    where = fault.filename2 or fault.filename
    return f"{os.fsdecode(where)}: {reason}" if isinstance(where, str | bytes | Path) else reason
