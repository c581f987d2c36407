"""Names of classes as vectors: means of word vectors from a file, or, without one, how the names are spelled."""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import DataError

Floats = NDArray[np.float64]
LETTERS = re.compile(r"[^\W\d_]{2,}|(?<!\d)[^\W\d_](?!\d)")  # the n of n01440764 is part of a number
BUCKETS = 2**13  # places that pieces of names are hashed to
LISTED = 20  # names that a message lists


def words(name: str) -> list[str]:
    """The words of a name, in lower case: letters between anything else, and between the humps of camel case.

    >>> words("001.Black_footed AlbatrossChick")
    ['black', 'footed', 'albatross', 'chick']
    """
    return [part.lower() for run in LETTERS.findall(name) for part in _humps(run)]


def _humps(run: str) -> Iterator[str]:
    """Parts of a run of letters: a capital after a small letter begins one, and so does the last of several before one."""
    start = 0
    for i in range(1, len(run)):
        after_small = run[i].isupper() and not run[i - 1].isupper()
        ends_capitals = run[i].isupper() and i + 1 < len(run) and not run[i + 1].isupper() and run[i - 1].isupper()
        if after_small or ends_capitals:
            yield run[start:i]
            start = i
    yield run[start:]


def name_vectors(names: Sequence[str], file: Path | None = None) -> Floats:
    """(names, d) vectors, from a file of word vectors or from the spelling.

    Raises:
        DataError: for a file that cannot be read, and for names without a word, or without one that it knows, all at once.
    """
    _refuse([name for name in names if not words(name)], "hold no words, which grouping by name needs; pass `tree=data`")
    return spelled(names) if file is None else looked_up(names, file)


def _refuse(names: Sequence[str], why: str) -> None:
    """Raise DataError when there are any such names."""
    if names:
        listed = ", ".join(map(repr, names[:LISTED])) + (", …" if len(names) > LISTED else "")
        raise DataError(f"{len(names)} class names {why}: {listed}")


# ---- from the spelling ---------------------------------------------------------------------------------------------


def spelled(names: Sequence[str]) -> Floats:
    """(names, BUCKETS) unit vectors: words and pieces of 3 to 5 letters, hashed, weighted by how few names they are in."""
    counts = np.zeros((len(names), BUCKETS))
    for i, name in enumerate(names):
        for piece, count in Counter(pieces(name)).items():
            counts[i, bucket(piece)] += count
    rarity = np.log((1 + len(names)) / (1 + (counts > 0).sum(axis=0))) + 1
    weighted = counts * rarity
    unit: Floats = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    return unit


def pieces(name: str) -> Iterator[str]:
    """Each word of a name, and its pieces of 3 to 5 characters with the ends marked.

    >>> list(pieces("Auk"))
    ['=auk', '<au', 'auk', 'uk>', '<auk', 'auk>', '<auk>']
    """
    for word in words(name):
        yield f"={word}"
        marked = f"<{word}>"
        for size in (3, 4, 5):
            yield from (marked[i : i + size] for i in range(len(marked) - size + 1))


def bucket(piece: str) -> int:
    """The place of a piece: a hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest()) % BUCKETS


# ---- from a file ---------------------------------------------------------------------------------------------------


def looked_up(names: Sequence[str], file: Path) -> Floats:
    """(names, d) the mean of the vectors of each name's words, those that the file has."""
    found = read_word_vectors(file, {word for name in names for word in words(name)})
    known = [[found[word] for word in words(name) if word in found] for name in names]
    strange = [name for name, vectors in zip(names, known, strict=True) if not vectors]
    _refuse(strange, f"have no word that is in {file}")
    return np.stack([np.mean(vectors, axis=0) for vectors in known])


def read_word_vectors(file: Path, wanted: Iterable[str]) -> dict[str, Floats]:
    """The vectors of the wanted words, in lower case, from a text file: a word and its numbers per line, .gz or plain.

    A first line "count width" may head it. A word that stands there in several spellings counts as it is spelled in lower case,
    or as it is spelled first.
    """
    wanted, found = set(wanted), {}
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for where, spelling, fields, width in _entries(lines, file):
                word = spelling.lower()
                if word in wanted and (word not in found or word == spelling):
                    found[word] = _numbers(fields, width, where)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a file of word vectors that can be read ({error})") from None
    return found


def _entries(lines: Iterable[str], file: Path) -> Iterator[tuple[str, str, list[str], int]]:
    """Of each line where it is, its word, its other fields, and how many there should be."""
    width = 0
    for number, line in enumerate(lines, start=1):
        where, fields = f"{file} line {number}", line.rstrip().split(" ")
        if number == 1:
            headed = len(fields) == 2 and all(field.isdigit() for field in fields)
            width = int(fields[1]) if headed else len(fields) - 1
            if not width:
                raise DataError(f"{where}: no numbers; a line is a word and its numbers, separated by single spaces")
            if headed:
                continue
        before = max(len(fields) - width, 1)  # a few words of published files hold a space
        yield where, " ".join(fields[:before]), fields[before:], width


def _numbers(fields: Sequence[str], width: int, where: str) -> Floats:
    """The numbers of a line; raises DataError when they are not `width` finite ones."""
    try:
        values = [float(field) for field in fields]
    except ValueError as error:
        raise DataError(f"{where}: {error}; a line is a word and its numbers, separated by single spaces") from None
    if len(values) != width or not all(map(math.isfinite, values)):
        raise DataError(f"{where}: {len(values)} numbers, expected {width} finite ones")
    return np.array(values)
