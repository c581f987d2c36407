"""What looks wrong with labels although it can be read: said once before training, with counts and examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from torchlht.console import plural
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy

if TYPE_CHECKING:
    from torchlht.data.samples import Samples

SHOWN = 3  # examples in a sentence
# fmt: off
PLACEHOLDERS = frozenset((
    "unknown", "unk", "na", "n/a", "n.a.", "nan", "null", "nil", "?", "??", "???", "-", "--", "_", "unidentified",
    "undetermined", "undefined", "indet", "indet.", "unlabelled", "unlabeled", "unsorted", "tbd", "todo", "missing",
))
"""Names that stand for a missing label, in lower case."""
VAGUE = frozenset(("none", "other", "others", "misc", "miscellaneous", "sp.", "sp", "spp."))
"""Names that may stand for a missing label."""
STRAYS = frozenset((
    "thumbs", "thumbnails", "thumb", "new folder", "untitled folder", "backup", "backups", "tmp", "temp", "cache", "images",
    "img", "pictures", "photos", "data", "duplicates", "trash", "archive",
))
"""Names of folders that are rarely classes, in lower case."""
# fmt: on


def is_placeholder(name: str) -> bool:
    """Whether a name stands for a missing label, such as `unknown` or `n/a`."""
    return name.strip().casefold() in PLACEHOLDERS


def is_vague(name: str) -> bool:
    """Whether a name may stand for a missing label, such as `none` or `Larus sp.`, or surely does."""
    plain = name.strip().casefold()
    return is_placeholder(name) or plain in VAGUE or plain.endswith((" sp.", " spp.", " indet.", " indet"))


def refuse_placeholders(samples: Samples) -> None:
    """Raise DataError if a class is called `unknown`, `NA` or the like: only the user knows what is meant."""
    tree, found = samples.hierarchy, []
    for k in tree.top_down:
        found += [(k, i, name) for i, name in enumerate(tree.names[k]) if name and is_placeholder(name)]
    if found:
        k, i, first = found[0]
        names = ",".join(dict.fromkeys(name for _, _, name in found))
        count = plural(int((samples.labels[:, k] == i).sum()), "sample")
        raise DataError(
            f"{samples.name}: {tree.levels[k]} has a class {first!r} ({count}), which looks like a missing label; pass "
            f"`unknown={names}` to train on them as unknown, or `unknown=''` to keep it as a class"
        )


def doubts(samples: Samples) -> list[str]:
    """Sentences about what looks wrong; empty if nothing does. A class is named once, by the first that fits."""
    tree, told = samples.hierarchy, set[str]()
    counts = [np.bincount(samples.labels[:, k][samples.labels[:, k] >= 0], minlength=size) for k, size in enumerate(tree.sizes)]
    said = [sentence for k in tree.top_down for sentence in _same_names(tree, k)]

    def tell(names: Iterable[str], sentence: str) -> None:
        fresh = [name for name in names if name not in told]
        told.update(fresh)
        if fresh:
            shown = ", ".join(map(repr, fresh[:SHOWN])) + (", …" if len(fresh) > SHOWN else "")
            said.append(f"{len(fresh):,} {'class' if len(fresh) == 1 else 'classes'} {sentence}: {shown}")

    every = [name for k in tree.top_down for name in tree.names[k] if name is not None]
    tell(filter(is_vague, every), "may be a missing label")
    tell((name for name in every if name.strip().casefold() in STRAYS), "may come from a stray folder")
    for k in tree.top_down[:-1]:
        tell(_ended(tree, k), f"at {tree.levels[k]} without any {tree.levels[k - 1]}, maybe at the wrong depth")
    tell((name for k in tree.top_down for name, n in _counted(tree, k, counts) if not n), "without a sample")
    lonely = (name for name, n in _counted(tree, 0, counts) if n == 1)
    said += _several(samples)
    tell(lonely, f"at {tree.levels[0]} with one sample, which cannot be both learned and tested")
    return said


def _several(samples: Samples) -> list[str]:
    """Pictures that are listed more than once, with different labels."""
    if len(set(samples.keys)) == len(samples.keys):
        return []
    found: dict[str, set[bytes]] = {}
    for key, labels in zip(samples.keys, samples.labels, strict=True):
        found.setdefault(key, set()).add(labels.tobytes())
    twice = [key for key, labels in found.items() if len(labels) > 1]
    if not twice:
        return []
    shown = f"{', '.join(twice[:SHOWN])}{', …' if len(twice) > SHOWN else ''}"
    said = f"{plural(len(twice), 'picture')} listed more than once, with different labels: {shown}"
    return [f"{said}; if a picture can show several classes, pass --several"]


def _same_names(tree: Hierarchy, k: int) -> list[str]:
    """Names of a level that differ only in case, blanks, underscores or hyphens."""
    groups: dict[str, list[str]] = {}
    for name in filter(None, tree.names[k]):
        groups.setdefault("".join(name.casefold().replace("_", " ").replace("-", " ").split()), []).append(name)
    twins = [" and ".join(map(repr, names)) for names in groups.values() if len(names) > 1]
    shown = "; ".join(twins[:SHOWN]) + ("; …" if len(twins) > SHOWN else "")
    return [f"{tree.levels[k]} names that differ only by case or blanks are different classes: {shown}"] if twins else []


def _counted(tree: Hierarchy, k: int, counts: Sequence[NDArray[np.int64]]) -> list[tuple[str, int]]:
    """The classes of a level and how many samples each has."""
    return [(name, n) for name, n in zip(tree.names[k], counts[k].tolist(), strict=True) if name is not None]


def _ended(tree: Hierarchy, k: int) -> list[str]:
    """The classes of level k that have nothing below them, if most others do."""
    short = [name for name, ends in zip(tree.names[k], tree.ends[k].tolist(), strict=True) if ends and name is not None]
    return short if 5 * len(short) <= tree.real_sizes[k] + 4 else []
