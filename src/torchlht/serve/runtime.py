"""ONNX Runtime for the browser: the npm package onnxruntime-web, taken from where the user has it. Nothing is downloaded."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchlht.doors import from_json, read_bytes
from torchlht.errors import ConfigError
from torchlht.files import cache_dir

NAME = "onnxruntime-web"
CODE, WASM = "dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm"
LARGEST = 2**28  # bytes of the package, and of each file in it: it has 30 MB
HOW = f"npm install {NAME} in this folder, or npm pack {NAME} and pass the file as `runtime`"


class Runtime(NamedTuple):
    """What a page needs to run a network.

    Attributes:
        version: of the package.
        code: a JavaScript module.
        wasm: what it runs.
        source: where it was found.
    """

    version: str
    code: bytes
    wasm: bytes
    source: str


class Package(msgspec.Struct):
    """What package.json says."""

    name: str
    version: str


def find_runtime(place: Path | None = None) -> Runtime:
    """The runtime in a folder or an archive of npm; by default the first that is found.

    Looked at are node_modules of this folder and of those above it, torchlht's cache, npm's global packages and npm's cache.

    Raises:
        ConfigError: when there is none, or it is not complete.
    """
    if place is not None:
        found = _at(place)
        if found is None:
            raise ConfigError(f"`runtime` is {place}: no {NAME} is there; {HOW}")
        return found
    for one in _places():
        if found := _at(one):
            return found
    if found := _in_npm_cache(_npm_cache()):
        return found
    raise ConfigError(f"a web page needs ONNX Runtime for browsers, which is not here: {HOW}")


def _places() -> Iterator[Path]:
    """Where it may be, nearest first."""
    here = Path.cwd()
    yield from (folder / "node_modules" / NAME for folder in (here, *here.parents))
    yield from sorted(cache_dir().glob(f"{NAME}*"), reverse=True)
    yield from (Path(folder) / NAME for folder in os.environ.get("NODE_PATH", "").split(os.pathsep) if folder)
    if npm := shutil.which("npm"):
        yield Path(npm).parent.parent / "lib" / "node_modules" / NAME


def _at(place: Path) -> Runtime | None:
    """The runtime at a place: the package, a folder that holds it, or its archive; None if it is not there."""
    if place.is_file():
        return _of_archive(read_bytes(place, LARGEST, ConfigError), str(place))
    for folder in (place / "node_modules" / NAME, place / NAME, place):
        if (folder / "package.json").is_file():
            return _complete(lambda name, folder=folder: _read(folder / name), str(folder))  # type: ignore[misc]
    return None


def _read(file: Path) -> bytes:
    try:
        return read_bytes(file, LARGEST, ConfigError)
    except OSError:
        raise KeyError(file.name) from None


def _of_archive(content: bytes, source: str) -> Runtime:
    """The runtime in what `npm pack` writes: a tar with everything under package/."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:*") as archive:

            def member(name: str) -> bytes:
                info = archive.getmember(f"package/{name}")
                file = archive.extractfile(info) if info.isreg() and info.size <= LARGEST else None
                if file is None:
                    raise KeyError(name)
                return file.read()

            return _complete(member, source)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ConfigError(f"{source}: not an archive of npm ({error}); {HOW}") from None


def _complete(read: Callable[[str], bytes], source: str) -> Runtime:
    """The runtime, given a function that reads one of its files or raises KeyError."""
    try:
        package = from_json(read("package.json"), Package, f"{source}: package.json", ConfigError)
        if package.name != NAME:
            raise ConfigError(f"{source}: is {package.name}, not {NAME}; {HOW}")
        return Runtime(package.version, read(CODE), read(WASM), source)
    except KeyError as error:
        raise ConfigError(f"{source}: has no {error.args[0]}, it may be too old; {HOW}") from None


# ---- npm's cache: an index of addresses, and files named by their hash -----------------------------------------------


def _npm_cache() -> Path:
    return Path(os.environ.get("npm_config_cache") or Path.home() / ".npm") / "_cacache"  # noqa: SIM112 - npm's own spelling


def _in_npm_cache(cache: Path) -> Runtime | None:
    """The newest version in npm's cache, or None."""
    found: dict[tuple[int, ...], str] = {}
    for file in sorted((cache / "index-v5").glob("*/*/*")):
        content = file.read_bytes()
        if f"/{NAME}-".encode() in content:
            found.update(_entries(content))
    for _, integrity in sorted(found.items(), reverse=True):
        if (archive := _kept(cache, integrity)) is not None:
            return _of_archive(archive, f"npm's cache in {cache}")
    return None


def _entries(content: bytes) -> Iterator[tuple[tuple[int, ...], str]]:
    """Versions and hashes of the package's archives in a file of the index: a line each, a hash and JSON."""
    for line in content.decode("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line.partition("\t")[2] or "{}")
        except ValueError:
            continue
        file = str(entry.get("key", "")).rpartition("/")[2]
        version = file.removeprefix(f"{NAME}-").removesuffix(".tgz")
        if file == f"{NAME}-{version}.tgz" and all(part.isdigit() for part in version.split(".")) and entry.get("integrity"):
            yield tuple(map(int, version.split("."))), str(entry["integrity"])


def _kept(cache: Path, integrity: str) -> bytes | None:
    """The content with this hash; None if it is gone or damaged."""
    kind, _, text = integrity.partition("-")
    try:
        digest = base64.b64decode(text.split("?")[0], validate=True).hex()
    except binascii.Error:
        return None
    file = cache / "content-v2" / kind / digest[:2] / digest[2:4] / digest[4:]
    if kind not in ("sha512", "sha1", "sha256") or not file.is_file():
        return None
    content = read_bytes(file, LARGEST, ConfigError)
    return content if hashlib.new(kind, content).hexdigest() == digest else None
