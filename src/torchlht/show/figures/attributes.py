"""Are classes that look alike close in the tree? Attributes of classes, their cosines, and a permutation test.

CUB-200-2011 has 312 attributes (bill shape, wing colour, …): for each species, the share of people who saw it in its pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from torchlht.errors import ConfigError, DataError, suggestion
from torchlht.hierarchy.tree import Hierarchy
from torchlht.show.look import (
    Floats,
    Ints,
    Side,
    beside,
    caption,
    colour_bar,
    fitting,
    head,
    heat_map,
    label_classes,
    look,
    panels,
    separate,
    taxonomy_order,
    theme,
)

CUB_FILE = Path("attributes") / "class_attribute_labels_continuous.txt"
AT_ONCE = 2**22  # similarities read at a time: 32 MB


def read_class_attributes(path: str | Path, tree: Hierarchy | None = None) -> Floats:
    """(C_1, A) attributes, a row per finest class.

    Args:
        path: a text file of numbers, one class per line, or the folder CUB_200_2011 that holds one.
        tree: put rows in the order of its finest classes, by the names in the folder's classes.txt.

    Raises:
        DataError: when the file is missing, is not a table of numbers, or has other classes than the tree.
    """
    file = Path(path) / CUB_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise DataError(f"{file}: no such file; pass the folder CUB_200_2011, which holds {CUB_FILE}")
    table = _table(file)
    if tree is None:
        return table
    if len(table) != tree.sizes[0]:
        raise DataError(f"{file}: {len(table)} rows, but the tree has {tree.sizes[0]} classes of {tree.levels[0]}")
    names = file.parent.parent / "classes.txt"
    return table[_rows(names, tree)] if names.is_file() else table


def _table(file: Path) -> Floats:
    """Numbers separated by blanks, the same count on every line."""
    rows: list[list[float]] = []
    try:
        lines = file.read_text(encoding="utf-8").rstrip().splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise DataError(f"{file}: cannot be read as text ({error})") from None
    for i, line in enumerate(lines, start=1):
        try:
            rows.append([float(word) for word in line.split()])
        except ValueError as error:
            raise DataError(f"{file}, line {i}: {error}; every line must hold the numbers of one class") from None
        if len(rows[-1]) != len(rows[0]):
            raise DataError(f"{file}, line {i}: {len(rows[-1])} numbers, but line 1 has {len(rows[0])}")
        if not np.isfinite(rows[-1]).all():
            raise DataError(f"{file}, line {i}: a number is infinite or missing")
    if not rows:
        raise DataError(f"{file}: it holds no numbers")
    return np.array(rows)


def _rows(names: Path, tree: Hierarchy) -> Ints:
    """The row of each finest class of the tree, from classes.txt: a number and a name per line."""
    lines = names.read_text(encoding="utf-8").rstrip().splitlines()
    found = {line.partition(" ")[2].strip(): i for i, line in enumerate(lines)}
    for name in tree.classes[0]:
        if name not in found:
            raise DataError(f"{names}: no class {name!r}: {suggestion(name, found)}")
    return np.array([found[name] for name in tree.classes[0]])


def cosine_similarity(attributes: Floats, tree: Hierarchy) -> Floats:
    """(C_1, C_1) cosines between the rows of a (C_1, A) matrix."""
    if attributes.ndim != 2 or len(attributes) != tree.sizes[0]:
        rows = f"{tree.sizes[0]} classes of {tree.levels[0]}"
        raise DataError(f"attributes are {attributes.shape}; expected one row for each of {rows}")
    norms = np.linalg.norm(attributes, axis=1)
    if (norms == 0).any():
        name = tree.classes[0][int(np.flatnonzero(norms == 0)[0])]
        raise DataError(f"all attributes of {name!r} are 0: it cannot be compared")
    unit = attributes / norms[:, None]
    return np.asarray((unit @ unit.T).clip(-1, 1))


# ---- the test ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairGroup:
    """Pairs of finest classes with a lowest common ancestor at one height, compared with chance.

    Attributes:
        name: what they share.
        pairs: how many there are.
        mean: mean similarity.
        chance: 2.5 %, 50 % and 97.5 % points of that mean when classes are shuffled over the tree.
        p: one-sided probability of a mean at least as extreme by chance: as high, or for pairs that share nothing as low.
    """

    name: str
    pairs: int
    mean: float
    chance: tuple[float, float, float]
    p: float


def similarity_test(similarity: Floats, tree: Hierarchy, *, permutations: int = 10_000, seed: int = 0) -> list[PairGroup]:
    """Mean similarity of pairs within a family, within an order but not a family, …, and of pairs that share nothing.

    Shuffles keep the shape of the tree and permute the finest classes. p counts the observed tree as one of the shuffles, so it
    is never 0. Kinds of pairs that do not occur are left out.

    Args:
        similarity: (C_1, C_1), symmetric.
        tree: the tree of classes.
        permutations: how many shuffles.
        seed: seed of the shuffles.
    """
    size = tree.sizes[0]
    if permutations < 1:
        raise ConfigError(f"{permutations} permutations: at least 1 is needed")
    if similarity.shape != (size, size) or size < 2:
        raise DataError(
            f"similarities are {similarity.shape}; the tree has {size} classes of {tree.levels[0]}, at least 2 needed"
        )
    first, second = np.triu_indices(size, k=1)
    height = tree.lca_height(first, second)
    kinds = [int(h) for h in range(1, len(tree) + 1) if (height == h).any()]
    means = _shuffled_means(similarity, [(first[height == h], second[height == h]) for h in kinds], permutations, seed)
    found = []
    for h, column in zip(kinds, means.T, strict=True):
        observed, chance = float(column[0]), column[1:]
        slack = 1e-12 * max(abs(observed), 1.0)
        extreme = chance <= observed + slack if h == len(tree) else chance >= observed - slack
        low, middle, high = np.quantile(chance, (0.025, 0.5, 0.975)).tolist()
        p = float((1 + extreme.sum()) / (1 + permutations))
        found.append(PairGroup(what_is_shared(tree, h), int((height == h).sum()), observed, (low, middle, high), p))
    return found


def what_is_shared(tree: Hierarchy, height: int) -> str:
    """What pairs with a lowest common ancestor at this height share."""
    if height == len(tree):
        return f"other {tree.levels[-1]}"
    return f"same {tree.levels[height]}" + (f", other {tree.levels[height - 1]}" if height > 1 else "")


def _shuffled_means(similarity: Floats, kinds: Sequence[tuple[Ints, Ints]], permutations: int, seed: int) -> Floats:
    """(1 + permutations, kinds): the mean of each kind of pairs: as observed in row 0, then shuffled."""
    rng, size = np.random.default_rng(seed), len(similarity)
    total, last = similarity[np.triu_indices(size, k=1)].sum(), len(kinds) - 1
    counts = np.array([len(first) for first, _ in kinds])
    found, at_once = [], max(1, AT_ONCE // max(int(counts[:-1].sum()), size))
    for start in range(0, permutations + 1, at_once):
        places = np.tile(np.arange(size), (min(at_once, permutations + 1 - start), 1))
        shuffled = places[1:] if start == 0 else places
        rng.permuted(shuffled, axis=1, out=shuffled)
        sums = [similarity[places[:, first], places[:, second]].sum(axis=1) for first, second in kinds[:last]]
        rest = total - np.sum(sums, axis=0) if sums else np.full(len(places), total)  # the last kind is the rest
        found.append(np.stack([*sums, rest], axis=1) / counts)
    return np.concatenate(found)


# ---- the figure ----------------------------------------------------------------------------------------------------


def attribute_figure(
    similarity: Floats, tree: Hierarchy, groups: Sequence[PairGroup], *, title: str = "Similarity of class attributes"
) -> Figure:
    """Cosines between classes in the order of the tree, and the means of pairs compared with chance.

    Args:
        similarity: (C_1, C_1) from `cosine_similarity`.
        tree: the tree of classes.
        groups: the result of `similarity_test`.
        title: a line above the figure.
    """
    order, size = taxonomy_order(tree, 0), tree.sizes[0]
    side = fitting(size, max(2.2, min(0.17 * size, 5.3)))
    lowest = float(similarity.min())
    with look():
        figure, [[axes]] = panels(1, 1, (side, side), margin=(1.9, 1.9, 7.4, 0.8))
        image = heat_map(axes, similarity[np.ix_(order, order)], Normalize(lowest, 1))
        lines = head(axes, f"cosine of attributes between {size} classes of {tree.levels[0]}")
        for way in get_args(Side):
            separate(axes, tree, 0, way)
            label_classes(axes, tree, 0, way)
        ticks = np.linspace(lowest, 1, 5)
        colour_bar(axes, image, "cosine", ticks.tolist(), [f"{tick:.2f}" for tick in ticks])
        _draw_means(beside(axes, 2.7, (2.8, 0.35 + 0.5 * len(groups))), groups)
        caption(axes, title, lines=lines)
    return figure


def _draw_means(axes: Axes, groups: Sequence[PairGroup]) -> None:
    """A dot per kind of pairs, on the range of 95 % of the shuffles."""
    faint, grey = theme().faint, theme().grey
    for i, group in enumerate(groups):
        low, middle, high = group.chance
        axes.plot([low, high], [-i, -i], color=faint, linewidth=7, solid_capstyle="butt", label="" if i else "95% of shuffles")
        axes.plot([middle, middle], [-i - 0.12, -i + 0.12], color=grey, linewidth=1)
        axes.plot(group.mean, -i, "o", color=theme().colours[0], label="" if i else "mean of pairs")
        text = f"{group.mean:.3f}   p {_p(group.p)}"
        axes.text(1.04, -i, text, transform=axes.get_yaxis_transform(), va="center")
    names = [f"{group.name}\n{group.pairs:,} pairs" for group in groups]
    axes.set_yticks([-i for i in range(len(groups))], names)
    axes.set_ylim(-len(groups) + 0.4, 0.6)
    axes.margins(x=0.08)
    axes.set_xlabel("mean cosine")
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.set_title("pairs of classes by what they share")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.28), ncols=2)


def _p(p: float) -> str:
    """A p-value as people read it."""
    return f"= {p:.4f}" if p >= 5e-5 else "< 0.0001"
