"""A tree of classes from their names: k-means on vectors of the names, then on the means of the groups, and so on upwards."""

from __future__ import annotations

import gzip
import hashlib
import math
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy

Floats = NDArray[np.float64]
LETTERS = re.compile(r"[^\W\d_]{2,}|(?<!\d)[^\W\d_](?!\d)")  # not the n of n01440764
BUCKETS = 2**13  # buckets for hashing pieces of names
LISTED = 20  # names listed in a message


def words(name: str) -> list[str]:
    """The words of a name, in lower case: letters between anything else, and between the humps of camel case.

    >>> words("001.Black_footed AlbatrossChick")
    ['black', 'footed', 'albatross', 'chick']
    """
    return [part.lower() for run in LETTERS.findall(name) for part in _humps(run)]


def _humps(run: str) -> Iterator[str]:
    """Parts of a run of letters, which start with a capital after a small letter, or with the last capital before one."""
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
        DataError: when the file cannot be read, or names have no words, or none that the file knows; it lists all of them.
    """
    _refuse([name for name in names if not words(name)], "contain no words, which grouping by name needs; pass `tree=data`")
    return spelled(names) if file is None else looked_up(names, file)


def _refuse(names: Sequence[str], why: str) -> None:
    """Raise DataError that lists these names, if there are any."""
    if names:
        listed = ", ".join(map(repr, names[:LISTED])) + (", …" if len(names) > LISTED else "")
        raise DataError(f"{len(names)} class names {why}: {listed}")


# ---- from the spelling ---------------------------------------------------------------------------------------------


def spelled(names: Sequence[str]) -> Floats:
    """(names, BUCKETS) unit vectors: words and pieces of 3 to 5 letters, hashed, weighted by rarity among the names."""
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
    """The bucket of a piece: a hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(piece.encode(), digest_size=8).digest()) % BUCKETS


# ---- from a file ---------------------------------------------------------------------------------------------------


def looked_up(names: Sequence[str], file: Path) -> Floats:
    """(names, d) the mean vector of each name's words that are in the file."""
    found = read_word_vectors(file, {word for name in names for word in words(name)})
    known = [[found[word] for word in words(name) if word in found] for name in names]
    strange = [name for name, vectors in zip(names, known, strict=True) if not vectors]
    _refuse(strange, f"have no word that is in {file}")
    return np.stack([np.mean(vectors, axis=0) for vectors in known])


def read_word_vectors(file: Path, wanted: Iterable[str]) -> dict[str, Floats]:
    """The vectors of the wanted words, in lower case, from a text file: a word and its numbers per line, .gz or plain.

    A first line "count width" is allowed. If a word occurs in several spellings, the lower-case one counts, or else the first.
    """
    wanted, found = set(wanted), {}
    try:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for where, spelling, fields, width in _entries(lines, file):
                word = spelling.lower()
                if word in wanted and (word not in found or word == spelling):
                    found[word] = _numbers(fields, width, where)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: not a readable file of word vectors ({error})") from None
    return found


def _entries(lines: Iterable[str], file: Path) -> Iterator[tuple[str, str, list[str], int]]:
    """For each line: its place, its word, its other fields, and how many there should be."""
    width = 0
    for number, line in enumerate(lines, start=1):
        where, fields = f"{file} line {number}", line.rstrip().split(" ")
        if number == 1:
            headed = len(fields) == 2 and all(field.isdigit() for field in fields)
            width = int(fields[1]) if headed else len(fields) - 1
            if not width:
                raise DataError(f"{where}: no numbers; a line must be a word and its numbers, separated by single spaces")
            if headed:
                continue
        before = max(len(fields) - width, 1)  # a few words of published files contain a space
        yield where, " ".join(fields[:before]), fields[before:], width


def _numbers(fields: Sequence[str], width: int, where: str) -> Floats:
    """The numbers of a line; raises DataError when they are not `width` finite ones."""
    try:
        values = [float(field) for field in fields]
    except ValueError as error:
        raise DataError(f"{where}: {error}; a line must be a word and its numbers, separated by single spaces") from None
    if len(values) != width or not all(map(math.isfinite, values)):
        raise DataError(f"{where}: {len(values)} numbers, expected {width} finite ones")
    return np.array(values)


Ints = NDArray[np.int64]
RESTARTS, ROUNDS = 8, 100


def group(
    names: Sequence[str], vectors: Floats, sizes: Sequence[int] = (100, 10), *, seed: int = 0, level: str = "class"
) -> Hierarchy:
    """A tree over the names, which are sorted first: their order does not matter.

    Only directions are clustered: a word vector's length tells how common the word is, and a mean of many is short.

    Args:
        names: the finest classes.
        vectors: (names, d), in the same order.
        sizes: numbers of groups of the levels above, fine first, decreasing.
        seed: seed of k-means.
        level: name of the finest level; those above are group1, group2, …

    Raises:
        ConfigError: when there are more groups than classes, or more groups above than below.
    """
    check_sizes(sizes, len(names))
    order = np.argsort(np.array(names), kind="stable")
    members, x = [names[i] for i in order], vectors[order]
    above = np.arange(len(members))  # the group of each class at the level reached
    classes, parents = [list(members)], []
    for i, size in enumerate(sizes):
        parent = numbered(kmeans(directions(_means(x, above)), size, seed=seed + i))
        above = parent[above]
        parents.append(parent)
        inside = [[members[j] for j in np.flatnonzero(above == g)] for g in range(size)]
        classes.append([f"{commonest(some)} {g + 1}" for g, some in enumerate(inside)])
    levels = [level, *(f"group{i + 1}" for i in range(len(sizes)))]
    return Hierarchy(levels=levels, classes=classes, parents=parents, source="groups of names")


def check_sizes(sizes: Sequence[int], classes: int) -> None:
    """Raise ConfigError unless there are fewer groups at every level, and no more than classes."""
    listed = ",".join(map(str, sizes))
    if any(size < 2 for size in sizes):
        raise ConfigError(f"`groups={listed}`: pass at least 2 groups at each level")
    if any(above >= below for below, above in pairwise(sizes)):
        raise ConfigError(f"`groups={listed}`: pass numbers of groups, fine first, each smaller than the one before")
    if sizes and sizes[0] > classes:
        raise ConfigError(f"`groups={listed}`: more groups than the {classes} classes; choose fewer")


def _means(x: Floats, groups: Ints) -> Floats:
    """(groups, d) the mean of the rows of each group."""
    members = (groups == np.arange(groups.max() + 1)[:, None]).astype(np.float64)  # (groups, n)
    means: Floats = members @ x / members.sum(axis=1, keepdims=True)
    return means


def directions(x: Floats) -> Floats:
    """Rows scaled to unit length; rows of zeros stay."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit: Floats = x / np.where(length > 0, length, 1.0)
    return unit


def numbered(groups: Ints) -> Ints:
    """The same groups, numbered in the order of their first members."""
    first: dict[int, int] = {}
    return np.array([first.setdefault(g, len(first)) for g in groups.tolist()])


def commonest(names: Sequence[str]) -> str:
    """The most frequent word of the names; of several, the last one in the first name that has any: nouns come last."""
    count = Counter(word for name in names for word in set(words(name)))
    most = max(count.values(), default=0)
    return next((word for name in names for word in reversed(words(name)) if count[word] == most), "group")


def restrict(tree: Hierarchy, names: Collection[str]) -> Hierarchy:
    """The tree of these finest classes alone, without groups that have none of them."""
    keep = np.array([i for i, name in enumerate(tree.classes[0]) if name in names])
    classes, parents, stand_ins = [[tree.classes[0][i] for i in keep]], [], [tree.stand_ins[0][keep]]
    for k, up in enumerate(tree.parents):
        above, index = np.unique(up[keep], return_inverse=True)
        classes.append([tree.classes[k + 1][i] for i in above])
        parents.append(index)
        stand_ins.append(tree.stand_ins[k + 1][above])
        keep = above
    source = "the classes to learn from"
    return Hierarchy(levels=tree.levels, classes=classes, parents=parents, stand_ins=stand_ins, source=source)


# ---- k-means -------------------------------------------------------------------------------------------------------


def kmeans(x: Floats, k: int, *, seed: int = 0, restarts: int = RESTARTS) -> Ints:
    """(n,) the group of each row; no group is empty. The best of several starts, by squared distances to centres."""
    x = compact(x)
    best, least = np.zeros(len(x), dtype=np.int64), np.inf
    for restart in range(restarts):
        groups = improve(x, start(x, k, np.random.default_rng([seed, restart])))
        inertia = float(((x - _means(x, groups)[groups]) ** 2).sum())
        if inertia < least:
            best, least = groups, inertia
    return best


def compact(x: Floats) -> Floats:
    """Rows with the same distances, in at most as many dimensions as rows."""
    if x.shape[1] <= len(x):
        return x
    triangle: Floats = np.asarray(np.linalg.qr(x.T, mode="r"))
    return triangle.T


def start(x: Floats, k: int, rng: np.random.Generator) -> Floats:
    """(k, d) distinct rows as centres, drawn in proportion to the squared distance to the nearest earlier one (k-means++)."""
    chosen = [int(rng.integers(len(x)))]
    nearest = squared_distances(x, x[chosen])[:, 0]
    while len(chosen) < k:
        nearest[chosen] = 0
        left = np.setdiff1d(np.arange(len(x)), chosen)
        weights = nearest[left] if nearest[left].sum() > 0 else np.ones(len(left))  # all others equal a centre
        chosen.append(int(rng.choice(left, p=weights / weights.sum())))
        nearest = np.minimum(nearest, squared_distances(x, x[chosen[-1:]])[:, 0])
    return x[chosen]


def improve(x: Floats, centres: Floats) -> Ints:
    """Move rows to their nearest centres and centres to the means of their rows, in turns, until nothing changes."""
    before = np.full(len(x), -1)
    for _ in range(ROUNDS):
        groups = assign(x, centres)
        if (groups == before).all():
            break
        before, centres = groups, _means(x, groups)
    return groups


def assign(x: Floats, centres: Floats) -> Ints:
    """(n,) the nearest centre of each row. A centre without rows takes the row that is farthest from its own.

    Groups of a single row keep it, or they would become empty.
    """
    distances = squared_distances(x, centres)
    groups: Ints = distances.argmin(axis=1)
    own = distances[np.arange(len(x)), groups]
    for empty in np.setdiff1d(np.arange(len(centres)), groups):
        spare = np.bincount(groups, minlength=len(centres))[groups] > 1
        farthest = int(np.where(spare, own, -1.0).argmax())
        groups[farthest], own[farthest] = empty, 0.0
    return groups


def squared_distances(x: Floats, centres: Floats) -> Floats:
    """(n, k) squared distances of rows to centres."""
    distances: Floats = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
    return distances.clip(min=0)
