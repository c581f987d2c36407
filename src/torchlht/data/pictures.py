"""Pictures, wherever they are stored: opening them, and finding those that cannot be opened before training starts.

    birds/1.jpg, s3://bucket/1.jpg    a file, here or at an address        FilePicture
    shards-000000.tar#1536+20480      the bytes there in a tar             TarMember
    shards-000000.tar#17              picture 17 of a tar                  NthInTar
    cifar-100-python/train#17         picture 17 of a file of CIFAR-100    PackedPicture
    birds.parquet#17                  that in row 17 of a table            RowPicture    (data/rows.py)
    birds/1.jpg#40,8,120,90           what lies in that box                CutPicture    (data/cuts.py)

Only `picture_at` parses addresses. A new kind of picture is a subclass of `Picture` with `file`, `part` and `read`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import pickle
import re
import stat
import struct
import tarfile
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from torchlht.console import readable
from torchlht.doors import TEXT_BYTES, open_file, read_bytes, sentence
from torchlht.errors import DataError
from torchlht.files import cache_dir, csv_text, noted, write_text

# ---- places: a path, or an address such as s3://bucket/birds/shards-000000.tar, which fsspec opens -------------------

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(?=[^/])")  # at least two letters: C:/ is a drive
T = TypeVar("T")


def as_url(place: str | Path) -> str | None:
    """The address of a remote place, restored if a `Path` has folded it; None for a local file, also one named by file://."""
    found = _SCHEME.match(text := str(place))
    if not found or found[1] == "file":
        return None
    return f"{found[1]}://{text[found.end() :]}"


def as_place(name: str | Path) -> Path:
    """A name as a path that others can be joined to; file:///data/birds is /data/birds."""
    return name if isinstance(name, Path) else Path(name.removeprefix("file://"))


def name_of(place: Path) -> str:
    """A place as text for messages."""
    return as_url(place) or str(place)


def state_of(place: Path) -> tuple[int, object] | None:
    """The length of a file and a value that changes with it; None if there is no file."""
    if url := as_url(place):
        if not (found := _ask(url, _info)):
            return None
        return int(found["size"]), str(found.get("ETag") or found.get("mtime") or found.get("created") or "")
    try:
        state = place.stat()
    except (OSError, ValueError):  # what is wrong with it is told when it is read
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    # The inode and the time of the last change of any kind, too: size and time of the content can be set to anything.
    return state.st_size, (state.st_ctime_ns, state.st_mtime_ns, state.st_dev, state.st_ino)


def _info(system: Any, path: str) -> dict[str, Any] | None:
    """What a file system knows about a file, without downloading it as `exists` may; None if there is no file."""
    try:
        found: dict[str, Any] = system.info(path)
    except FileNotFoundError:
        return None
    return found


def is_there(place: Path) -> bool:
    """Whether the file exists."""
    return state_of(place) is not None


def read_range(place: Path, start: int, stop: int) -> bytes:
    """The bytes from `start` to before `stop`: one seek and one read, or one request."""
    if url := as_url(place):
        data: bytes = _ask(url, lambda system, path: system.cat_file(path, start=start, end=stop))
        return data
    with open_file(place) as file:
        file.seek(start)
        return file.read(stop - start)


def read_all(place: Path, limit: int = TEXT_BYTES) -> bytes:
    """A whole file. A local one of more than `limit` bytes is refused."""
    if url := as_url(place):
        data: bytes = _ask(url, lambda system, path: system.cat_file(path))
        return data
    return read_bytes(place, limit)


@contextmanager
def opened(place: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and seeking."""
    url = as_url(place)
    with _ask(url, lambda system, path: system.open(path, "rb")) if url else open_file(place) as file:
        yield file


def matching(pattern: Path) -> list[Path]:
    """The files whose names match a pattern with * in its last part, sorted."""
    if url := as_url(pattern):
        folder = pattern.parent
        return sorted(folder / Path(found).name for found in _ask(url, lambda system, path: system.glob(path)))
    return sorted(pattern.parent.glob(pattern.name)) if pattern.parent.is_dir() else []


def _ask(url: str, question: Callable[[Any, str], T]) -> T:
    """Ask a remote file system about an address. Raises DataError with one sentence when it fails."""
    import fsspec  # not needed for local files

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise DataError(f"{url}: addresses of this kind cannot be opened ({error}); install what fsspec needs for it") from None
    try:
        return question(system, path)
    except FileNotFoundError:
        raise DataError(f"{url}: no such file") from None
    except OSError as error:
        raise DataError(f"{url}: cannot be read ({error}); check the address, your access and the network") from error


# ---- pictures --------------------------------------------------------------------------------------------------------

PICTURE_BYTES = 2**30
"""Largest picture file: an uncompressed picture of `PIXELS` with four channels of 16 bits."""
PIXELS = 2**27
"""Most pixels of a picture, and of what resizing makes of it: the largest cameras have 100 to 130 million."""
ASPECT = 100
"""How many times longer than wide a picture may be. Resizing its short side makes its long side as many times longer."""
LARGE = 2**24
"""Pictures of more pixels than this are decoded one at a time, or many threads would need too much memory."""
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "AVIF", "JPEG2000")
"""What Pillow may open. Its reader of EPS starts another program, and rarer formats are rarely tested against bad files."""
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"})
State = tuple[int, object] | None
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)  # `check_size` refuses earlier, in a sentence
_decoding = threading.Lock()
_ADDRESS = re.compile(r"(?P<file>.+)#(?P<first>\d{1,18})(?:\+(?P<size>\d{1,18})|(?P<box>(?:,\d{1,9}){3}))?", re.DOTALL)


class Picture(ABC):
    """Where a picture is and how to read it. Small, hashable, and can be sent to worker processes; `str` gives its address.

    Attributes:
        file: the file that holds it, alone or with others; None for a picture in memory.
    """

    __slots__ = ()
    file: Path | None

    @abstractmethod
    def read(self) -> bytes:
        """Its bytes, as in a picture file. Raises OSError or DataError when they cannot be read."""

    @property
    def part(self) -> str:
        """The part of its address after the file: which picture of the file it is."""
        return ""

    @property
    def name(self) -> str:
        """The last part of its address."""
        return f"{self.file.name if self.file else ''}{self.part}"

    @property
    def suffix(self) -> str:
        """The suffix of its name, such as .jpg."""
        return PurePath(self.name).suffix.lower()

    def __str__(self) -> str:
        return f"{self.file}{self.part}"

    def open(self) -> Image.Image:
        """The picture as a PIL image, perhaps not decoded yet."""
        return open_bytes(self.read())

    def state(self) -> State:
        """The length of its file and a value that changes with it; None without a file."""
        return state_of(self.file) if self.file else None


@dataclass(frozen=True, slots=True)
class FilePicture(Picture):
    """A picture file, local or at an address."""

    file: Path

    def read(self) -> bytes:
        """The bytes of the file."""
        return read_all(self.file, PICTURE_BYTES)


@dataclass(frozen=True, slots=True)
class BytesPicture(Picture):
    """A picture in memory; `title` names it in messages."""

    data: bytes = field(repr=False)
    title: str = "a picture in memory"
    file: None = field(default=None, init=False)

    def __str__(self) -> str:
        return self.title

    def read(self) -> bytes:
        """Its bytes."""
        return self.data

    def state(self) -> State:
        """Length and hash of its bytes."""
        return len(self.data), hashlib.sha256(self.data).hexdigest()


def picture_at(place: Picture | str | Path) -> Picture:
    """The picture at an address, or the picture itself. FILE#N means a file of that name if there is one."""
    if isinstance(place, Picture):
        return place
    path = as_place(place)
    found = _ADDRESS.fullmatch(str(path)) if "#" in path.name else None
    if not found:
        return FilePicture(path)
    file, first, size = Path(found["file"]), int(found["first"]), found["size"]
    if found["box"]:
        from torchlht.data.cuts import CutPicture

        return FilePicture(path) if path.exists() else CutPicture(file, first, *map(int, found["box"][1:].split(",")))
    if file.name.endswith(".tar"):
        return TarMember(file, first, int(size)) if size else NthInTar(file, first)
    if file.name.lower().endswith((".arrow", ".parquet")) and not size:
        from torchlht.data.rows import RowPicture

        return RowPicture(file, first)
    return FilePicture(path) if size or path.exists() or not file.is_file() else PackedPicture(file, first)


def is_image(path: PurePath) -> bool:
    """Whether a file has the suffix of a picture."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def images_in(folder: Path) -> list[Path]:
    """The pictures directly in a folder, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_image(path))


def states(pictures: Iterable[Picture]) -> Iterator[State]:
    """The state of each picture; a file that holds many is looked up once."""
    known: dict[Path, State] = {}
    for picture in pictures:
        if picture.file is None:
            yield picture.state()
            continue
        if picture.file not in known:
            known[picture.file] = picture.state()
        yield known[picture.file]


# ---- in tars -------------------------------------------------------------------------------------------------------

BLOCK = 512  # bytes per block of a tar; a file's header is the block before it


class InTar(Picture):
    """A picture in an uncompressed tar."""

    __slots__ = ()

    @abstractmethod
    def placed(self) -> TarMember:
        """Its place in the tar. Raises DataError when the tar does not hold it."""

    @property
    def suffix(self) -> str:
        """The suffix of its name in the tar."""
        member = self.placed()
        return PurePosixPath(_header(read_range(member.file, member.start - BLOCK, member.start)).name).suffix.lower()

    def read(self) -> bytes:
        """Its bytes. Raises DataError when it is not there."""
        member = self.placed()
        return member.checked(read_range(member.file, member.start - BLOCK, member.start + member.size))


@dataclass(frozen=True, slots=True, order=True)
class TarMember(InTar):
    """`size` bytes of a tar from `start`: a picture, or its labels."""

    file: Path
    start: int
    size: int

    @property
    def part(self) -> str:
        """#OFFSET+SIZE."""
        return f"#{self.start}+{self.size}"

    def placed(self) -> TarMember:
        """Itself: its place is known."""
        return self

    def checked(self, data: bytes) -> bytes:
        """Its bytes, from `data` with the header in front. Raises DataError when something else is stored there."""
        where = f"{name_of(self.file)}{self.part}"
        if len(data) < BLOCK + self.size:
            raise DataError(f"{where}: the shard is cut off before this place; copy it again")
        try:
            right = _header(data).size == self.size
        except tarfile.HeaderError:
            right = False
        if not right:
            raise DataError(f"{where}: no picture starts here; index.json belongs to other shards: pack again, or remove it")
        return data[BLOCK:]


@dataclass(frozen=True, slots=True)
class NthInTar(InTar):
    """A picture of a tar by its number; its place is looked up when it is read."""

    file: Path
    number: int

    @property
    def part(self) -> str:
        """#NUMBER."""
        return f"#{self.number}"

    def placed(self) -> TarMember:
        """Its place, found by counting pictures."""
        pictures = _pictures(self.file, state_of(self.file))
        if self.number >= len(pictures):
            raise DataError(f"{name_of(self.file)}: no picture {self.number}; it holds only {len(pictures)}")
        return pictures[self.number]


def _header(data: bytes) -> tarfile.TarInfo:
    return tarfile.TarInfo.frombuf(data[:BLOCK], "utf-8", "surrogateescape")


class Entry(NamedTuple):
    """A file in a tar: KEY.END, and where its content is."""

    key: str
    end: str
    place: TarMember


def entries(file: Path) -> Iterator[Entry]:
    """The files of a tar, in order. Raises DataError when it is cut off or not a tar."""
    try:
        with opened(file) as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            end = 0
            for info in tar:
                end = info.offset_data + -(-info.size // BLOCK) * BLOCK
                name = PurePosixPath(info.name).name
                if info.isfile() and not name.startswith("."):
                    stem, _, ending = name.partition(".")
                    key = str(PurePosixPath(info.name).with_name(stem))
                    yield Entry(key, f".{ending.lower()}", TarMember(file, info.offset_data, info.size))
            raw.seek(end)
            if raw.read(BLOCK) != bytes(BLOCK):
                raise DataError(f"{name_of(file)}: the shard is cut off; copy or pack it again")
    except tarfile.TarError as error:
        raise DataError(f"{name_of(file)}: not a complete, uncompressed tar ({error}); copy or pack it again") from None


@functools.lru_cache(maxsize=16)
def _pictures(file: Path, _state: object) -> list[TarMember]:
    """The pictures of a tar; read again when the file has changed."""
    return [entry.place for entry in entries(file) if is_image(PurePosixPath(entry.key + entry.end))]


# ---- of CIFAR-100 and Fashion-MNIST, many in a file ----------------------------------------------------------------

IDX_END = "-images-idx3-ubyte"
_reading = threading.Lock()  # several threads check pictures; without the lock each would read the file


@dataclass(frozen=True, slots=True)
class PackedPicture(Picture):
    """One of the many pictures in a file of CIFAR-100 or Fashion-MNIST."""

    file: Path
    number: int

    @property
    def part(self) -> str:
        """#NUMBER."""
        return f"#{self.number}"

    def open(self) -> Image.Image:
        """The picture. Raises DataError when the file has no such picture or cannot be read."""
        with _reading:
            data = read_packed(self.file).data
        if self.number >= len(data):
            raise DataError(f"{self.file}: no picture {self.number}; it holds only {len(data)}")
        return Image.fromarray(np.asarray(data[self.number]))

    def read(self) -> bytes:
        """The picture as PNG bytes."""
        png = io.BytesIO()
        to_rgb(self.open()).save(png, format="PNG")
        return png.getvalue()


def read_packed(file: Path) -> Any:
    """torchvision's dataset of a file, with `data` and `targets`. It first checks that a pickled file is the official one."""
    found = _read(file)
    if isinstance(found, DataError):
        raise found
    return found


@functools.lru_cache(maxsize=4)
def _read(file: Path) -> Any:
    """The dataset, or an error. Errors are cached too, or every picture of the file would read it again."""
    from torchvision.datasets import CIFAR100, FashionMNIST  # imports torch

    try:
        if file.name.endswith(IDX_END):
            return FashionMNIST(file.parents[2], train=file.name.startswith("train"), download=False)
        if file.parent.name == CIFAR100.base_folder:
            return CIFAR100(file.parents[1], train=file.name == "train", download=False)
    except (RuntimeError, ValueError, TypeError, KeyError, AssertionError, EOFError, OSError, pickle.PickleError):
        return DataError(f"{file}: not the official file, or incomplete; unpack the archive again")
    return DataError(f"{file}: not a picture file of CIFAR-100 (cifar-100-python) or Fashion-MNIST (FashionMNIST/raw)")


# ---- opening -------------------------------------------------------------------------------------------------------


def open_bytes(data: bytes) -> Image.Image:
    """The content of a picture file as a PIL image, not decoded yet. Raises ValueError when it is too large to decode."""
    image = Image.open(io.BytesIO(data), formats=_formats())
    check_size(*image.size)
    return image


@functools.cache
def _formats() -> list[str]:
    """Those of `FORMATS` that this Pillow was built with."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def check_size(width: int, height: int) -> None:
    """Raise ValueError for a picture that would take too much memory."""
    if width * height > PIXELS:
        raise ValueError(f"{width:,} × {height:,} pixels are too many; the most that is read is {PIXELS:,}")
    if max(width, height) > ASPECT * min(width, height):
        raise ValueError(f"{width:,} × {height:,} pixels: more than {ASPECT} times as long as wide")


def open_image(place: Picture | str | Path) -> Image.Image:
    """Open a picture or an address as RGB, the right way up. Raises DataError when it cannot be decoded."""
    return _decoded(picture_at(place), to_rgb)


def _decoded(picture: Picture, then: Callable[[Image.Image], T]) -> T:
    """What a function makes of a picture. Raises DataError with the reason when it cannot be decoded."""
    try:  # torchvision's decoder gives the same bits and is not faster with PIL's resize
        with picture.open() as image, _decoding if image.width * image.height > LARGE else contextlib.nullcontext():
            return then(image)
    except DataError as error:
        raise DataError(f"{picture}: {str(error).removeprefix(f'{picture}: ')}") from None
    except Exception as error:  # decoders raise nearly anything on damaged bytes
        raise DataError(f"{picture}: {_reason(error)}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """RGB, the right way up: transparent parts on white, 16-bit grey scaled down, damaged orientation marks ignored."""
    image.load()  # a PNG may have its orientation at the end
    with contextlib.suppress(SyntaxError, ValueError, KeyError, TypeError, struct.error):
        if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # avoids a copy, as below
            image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode == "I":
        return Image.fromarray((np.asarray(image) // 257).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file"
    if isinstance(error, Image.DecompressionBombError):
        return f"too many pixels; the most that is read is {PIXELS:,}"
    if isinstance(error, UnidentifiedImageError):
        return "not a readable picture"
    if isinstance(error, OSError) and error.errno:
        return sentence(OSError(error.errno, error.strerror or ""))
    return str(error) or type(error).__name__


# ---- checking ------------------------------------------------------------------------------------------------------


SETTLED = 2 * 10**9
"""Nanoseconds: file systems keep times in steps of up to two seconds."""


class Problem(NamedTuple):
    """A picture that cannot be used, and why."""

    path: str
    reason: str


def _try_decode(picture: Picture) -> str | None:
    """Why a picture cannot be decoded, or None. JPEGs are decoded at an eighth of their size, which reads the whole file."""

    def load(image: Image.Image) -> None:
        image.draft("RGB", (max(image.width // 8, 1), max(image.height // 8, 1)))
        image.load()

    try:
        _decoded(picture, load)
    except DataError as error:
        return str(error).removeprefix(f"{picture}: ")
    return None


def find_problems(pictures: Sequence[Picture]) -> list[Problem]:
    """Every picture that cannot be decoded. The result is cached until a file changes."""

    def check() -> list[tuple[int, str]]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return [(i, reason) for i, reason in enumerate(pool.map(_try_decode, pictures)) if reason]

    where, keep = identity(pictures)
    at = Annotated[int, msgspec.Meta(ge=0, lt=max(len(pictures), 1))]
    found = noted(cache_dir() / "checked" / f"{where}.json", list[tuple[at, str]], check, keep=keep)
    return [Problem(str(pictures[i]), reason) for i, reason in found]


def identity(pictures: Sequence[Picture]) -> tuple[str, bool]:
    """A hash of where pictures lie, however that is spelt, and of the states of their files; and whether notes may rely on it.

    They may not while a file is so new that it could change once more and keep its state.
    """
    homes = {file: _home(file) for file in dict.fromkeys(picture.file for picture in pictures) if file}
    digest, newest = hashlib.sha256(), 0
    for picture, state in zip(pictures, states(pictures), strict=True):
        home = homes[picture.file] if picture.file else ""
        digest.update(f"{picture.part}\0{home}\0{state}\n".encode(errors="surrogateescape"))
        newest = max(newest, state[1][0]) if state and isinstance(state[1], tuple) else newest
    return digest.hexdigest()[:32], time.time_ns() - newest > SETTLED


def _home(file: Path) -> str:
    """The one name of a file that may be named in many ways."""
    try:
        return as_url(file) or str(file.resolve())
    except (OSError, RuntimeError, ValueError):  # links in a circle; names that no file can have
        return str(file.absolute())


def content_digest(pictures: Sequence[Picture]) -> str:
    """A hash of the content of pictures, in this order; neither their names nor their places count.

    Files are read for it, but once only as long as none of them changes.
    """

    def read() -> str:
        held = {picture.file: picture for picture in pictures}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            known = dict(zip(held, pool.map(_file_digest, held.values()), strict=True))
        digest = hashlib.sha256()
        for picture in pictures:
            digest.update(f"{known[picture.file] if picture.file else _file_digest(picture)}{picture.part}\n".encode())
        return digest.hexdigest()

    where, keep = identity(pictures)
    return noted(cache_dir() / "contents" / f"{where}.json", str, read, keep=keep)


def _file_digest(picture: Picture) -> str:
    """A hash of the content of a picture's file. At an address it is that of the file's state, if that tells enough."""
    if picture.file is None:
        return hashlib.sha256(picture.read()).hexdigest()
    state = picture.state()
    if (url := as_url(picture.file)) and state and state[1]:
        return hashlib.sha256(f"{url}\0{state}".encode()).hexdigest()
    if state is None:
        return "missing"
    with opened(picture.file) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # files of fsspec have readinto, too


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Write a CSV of unreadable pictures and why."""
    write_text(path, csv_text([("path", "reason"), *([readable(cell) for cell in problem] for problem in problems)]))
