"""A Darwin Core archive, as GBIF and iNaturalist export observations: unpacked, or the .zip itself.

    export/meta.xml                            which file holds what, and which column is which term
    export/occurrence.txt                      observations: kingdom, …, species, scientificName, taxonRank
    export/multimedia.txt                      their pictures, by address
    export/media/HOST/PATH, or media/ID.jpg    the pictures themselves, downloaded

A picture is a sample, labelled as its observation is. Levels are the ranks that observations tell.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from xml.etree import ElementTree

import numpy as np

from torchlht.data.downloads import FOLDER, HOW, downloaded
from torchlht.data.pictures import FilePicture, as_url, is_there
from torchlht.data.samples import Samples, Source, label_of, tree_of
from torchlht.data.sources.darwin_core import MEDIA, RANK, RANKS, SCIENTIFIC
from torchlht.doors import as_text, read_bytes
from torchlht.errors import DataError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.reading import TABLE_BYTES
from torchlht.hierarchy.tree import Hierarchy

META: Final = "meta.xml"
META_BYTES: Final = 2**20
"""Largest meta.xml."""
SPACE: Final = "http://rs.tdwg.org/dwc/text/"
STILL: Final = ("", "stillimage", "image")
"""Types of media that are pictures."""
MEDIA_TABLES: Final = ("/Multimedia", "/Image")
"""How the types of tables of media end: two of GBIF, and one of Audubon Core."""
ADDRESSES: Final = ("accessURI", "identifier")
"""Terms that hold the address of a picture; in Audubon Core the second is a mere name of it."""
AUTHOR: Final = "scientificNameAuthorship"
BELOW: Final = ("subspecies", "variety", "form")
"""Ranks whose names begin with that of the species. iNaturalist has no column for the species."""
ESCAPES: Final = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "": ""}
Reader = Callable[[str, int], bytes]  # gives a file of the archive, of at most so many bytes


class Part(NamedTuple):
    """A table of an archive: its file, how it is written, and where its columns are."""

    file: str
    delimiter: str
    quote: str
    skip: int
    key: int
    terms: dict[str, int]
    constants: dict[str, str]


def is_darwin_archive(place: Path) -> bool:
    """Whether a place is such an archive."""
    if place.is_dir() and (place / META).is_file():
        with (place / META).open("rb") as file:
            return SPACE.encode() in file.read(META_BYTES)
    if place.suffix.lower() != ".zip" or not place.is_file():
        return False
    try:
        with zipfile.ZipFile(place) as archive:
            return META in archive.namelist()
    except zipfile.BadZipFile:
        return False


def read_darwin_archive(
    place: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read an archive; the tree comes from its observations unless one is given. `unknown` names are blanks."""
    read = _reader(place)
    core, media = _parts(place, read)
    observed = {cells[0]: cells[1] for cells in _records(place, read, core)}
    shown = list(_shown(place, read, core, media, observed))
    if not shown:
        raise DataError(f"{place}: names no pictures, in {media.file if media else core.file}")
    names = _levels(place, observed, hierarchy, levels)
    rows = [Row(where, _classes(observed[key], names, {"", *unknown})) for where, key, _ in shown]
    tree = hierarchy or tree_of([row for row in rows if any(row.names)], names, place)
    where = [f"{place} {row.where}" for row in rows]
    labels = np.array([label_of(tree, names, row.names, at) for row, at in zip(rows, where, strict=True)])
    files = _files(place, shown)
    return Samples(
        place.stem,
        tree,
        tuple(name.partition("://")[2] or name for _, _, name in shown),
        tree.fill(labels, where=where.__getitem__),
        np.full(len(shown), "train"),
        images=tuple(map(FilePicture, files)),
    )


# ---- the archive ---------------------------------------------------------------------------------------------------


def _reader(place: Path) -> Reader:
    """What reads files of an archive, here or in its zip."""

    def unzipped(name: str, limit: int) -> bytes:
        try:
            with zipfile.ZipFile(place) as archive, archive.open(name) as file:
                data = file.read(limit + 1)
        except (zipfile.BadZipFile, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
            raise DataError(f"{place}: {name} cannot be read from it ({error}); unpack it, and pass the folder") from None
        if len(data) > limit:
            raise DataError(f"{place}: {name} has more than {limit:,} bytes, which is the most that is read")
        return data

    return unzipped if place.is_file() else lambda name, limit: read_bytes(place / name, limit)


def _parts(place: Path, read: Reader) -> tuple[Part, Part | None]:
    """The table of observations, and that of media if there is one."""
    where, data = f"{place} {META}", read(META, META_BYTES)
    if b"<!" in data.replace(b"<!--", b""):
        raise DataError(f"{where}: declares a document type or entities, which are not read; export it again")
    try:
        root = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{where}: is not valid XML ({error})") from None
    core = root.find(f"{{{SPACE}}}core")
    if core is None:
        raise DataError(f"{where}: names no core, the table of observations")
    media = [one for one in root.findall(f"{{{SPACE}}}extension") if one.get("rowType", "").endswith(MEDIA_TABLES)]
    return _part(core, "id", where), _part(media[0], "coreid", where) if media else None


def _part(element: Any, key: str, where: str) -> Part:
    file = element.findtext(f"{{{SPACE}}}files/{{{SPACE}}}location", "").strip()
    if not file or file != PurePosixPath(file).name:
        raise DataError(f"{where}: its location {file!r} is no file beside it")
    delimiter, quote = (
        _character(element.get(name, usual)) for name, usual in (("fieldsTerminatedBy", ","), ("fieldsEnclosedBy", '"'))
    )
    fields = element.findall(f"{{{SPACE}}}field")
    try:
        terms = {_term(one): int(one.get("index")) for one in reversed(fields) if one.get("index") is not None}
        place = int(element.find(f"{{{SPACE}}}{key}").get("index"))
        skip = int(element.get("ignoreHeaderLines", "0"))
    except (AttributeError, TypeError, ValueError):
        raise DataError(f"{where}: {file} needs a {key} and fields with whole numbers as index") from None
    if len(delimiter) != 1 or min(place, *terms.values(), 0) < 0:
        raise DataError(f"{where}: {file} has a column or a delimiter that is not possible")
    constants = {_term(one): one.get("default") for one in fields if one.get("index") is None and one.get("default")}
    return Part(file, delimiter, quote, skip, place, terms, constants)


def _term(field: Any) -> str:
    """The last part of a term's address, such as scientificName."""
    return str(field.get("term", "").rpartition("/")[2])


def _character(written: str) -> str:
    return ESCAPES.get(written, written)


def _records(place: Path, read: Reader, part: Part) -> Iterator[tuple[str, dict[str, str], int]]:
    """The rows of a table: the observation, its values by term, and the line."""
    where = f"{place} {part.file}"
    text = as_text(read(part.file, TABLE_BYTES), where)
    quoting = {"quotechar": part.quote} if part.quote else {"quoting": csv.QUOTE_NONE}
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=part.delimiter, **quoting)
    needed = max(part.key, *part.terms.values(), 0)
    try:
        for number, cells in enumerate(lines):
            if number < part.skip or not any(cells):
                continue
            if len(cells) <= needed:
                raise DataError(f"{where} line {lines.line_num}: {len(cells)} cells, but {META} names {needed + 1}")
            named = {term: cells[index].strip() for term, index in part.terms.items()}
            yield cells[part.key].strip(), part.constants | named, lines.line_num
    except csv.Error as error:
        raise DataError(f"{where} line {lines.line_num}: {error}") from None


def _shown(
    place: Path, read: Reader, core: Part, media: Part | None, observed: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str, str]]:
    """Where a picture is told, its observation, and its name or address."""
    if media is None:
        for key, values in observed.items():
            yield from ((f"{core.file} {key}", key, name.strip()) for name in values.get(MEDIA, "").split("|") if name.strip())
        return
    for key, values, line in _records(place, read, media):
        if key not in observed:
            raise DataError(f"{place} {media.file} line {line}: observation {key!r} is not in {core.file}")
        kind, form = values.get("type", "").lower(), values.get("format", "").lower()
        address = next((values[term] for term in ADDRESSES if values.get(term)), "")
        if address and kind in STILL and (not form or form.startswith("image")):
            yield f"{media.file} line {line}", key, address


# ---- pictures ------------------------------------------------------------------------------------------------------


def _files(place: Path, shown: Sequence[tuple[str, str, str]]) -> list[Path]:
    """Where the pictures lie. Raises DataError if none has been downloaded; those that are missing are found later."""
    home = place.parent if place.is_file() else place
    folder = home / FOLDER
    by_name = {one.stem: one for one in sorted(folder.iterdir())} if folder.is_dir() else {}
    files = [_file(home, key, name, by_name) for _, key, name in shown]
    if not any(map(is_there, files)):
        raise DataError(f"{place}: none of its {len(files):,} pictures is here; {shown[0][2]} belongs to {files[0]}: {HOW}")
    return files


def _file(home: Path, key: str, name: str, by_name: Mapping[str, Path]) -> Path:
    """The file of a picture: as it is named, as wget leaves its address, or under the observation's name."""
    url = as_url(name)
    if not url:
        return home / name
    file = home / downloaded(home, url)
    return file if is_there(file) else by_name.get(key, file)


# ---- labels --------------------------------------------------------------------------------------------------------


def _levels(
    place: Path, observed: Mapping[str, Mapping[str, str]], hierarchy: Hierarchy | None, levels: Sequence[str] | None
) -> list[str]:
    """The ranks that are levels, coarse → fine: those asked for, or all that observations tell."""
    told = [rank for rank in RANKS if any(_class_at(values, rank) for values in observed.values())]
    wanted = [hierarchy.levels[k] for k in hierarchy.top_down] if hierarchy else list(levels or told)
    found = [name for name in wanted if name in told]
    if not found or (levels and found != wanted):
        raise DataError(f"{place}: its observations tell {', '.join(told) or 'no ranks'}; pass some of these as `levels`")
    return found


def _classes(values: Mapping[str, str], names: Sequence[str], blank: Set[str]) -> tuple[str | None, ...]:
    found = (_class_at(values, name) for name in names)
    return tuple(None if name.casefold() in blank else name for name in found)


def _class_at(values: Mapping[str, str], rank: str) -> str:
    """What an observation is at a rank: the value of that term or, if it is blank, what its names say."""
    if values.get(rank) or rank not in RANKS:
        return values.get(rank, "")
    own, genus, epithet = values.get(RANK, "").lower(), values.get("genus"), values.get("specificEpithet")
    if rank == "species" and genus and epithet:
        return f"{genus} {epithet}"
    if own == rank:
        return values.get(SCIENTIFIC, "").removesuffix(values.get(AUTHOR, "")).strip()
    if own in BELOW and rank == "species":  # Turdus merula cabrerae is a Turdus merula
        return " ".join(values.get(SCIENTIFIC, "").split()[:2])
    return ""


SOURCE = Source(
    "darwin-archive",
    "a Darwin Core archive",
    is_darwin_archive,
    read_darwin_archive,
    order=15,
    read_without=read_darwin_archive,
)
