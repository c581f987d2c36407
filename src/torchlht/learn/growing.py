"""A tree found in the data: classes that look alike, and are called alike where that helps, are put into one group.

Classes are compared as in `audit/placing.py`, by the cosines of their means under a shrunk scatter; two are near if the same
classes are near both. Classes whose names end in the same word, as those of gulls do, or begin with it, as in Latin and French,
come first, if such classes look more alike than others do. Groups are joined by average linkage.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht.data.samples import Ints, Samples
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import WIDEST, Judge, components, learn
from torchlht.learn.audit.placing import MANY_CLASSES, SHARP, class_cosines
from torchlht.learn.audit.wrong import Floats
from torchlht.learn.semi.propagation import even

NAMED = 0.5  # how much nearer classes are whose names end in the same word; cosines are from -1 to 1
HELPFUL = 0.1  # by how much such classes must look more alike than others before their names count
Bools = NDArray[np.bool_]
REPEATS = 10  # of drawing samples again


@dataclass(frozen=True)
class Found:
    """A tree and what it is worth.

    Attributes:
        tree: its finest level is that of the data.
        stable: for each level of groups, coarse → fine: agreement (adjusted Rand index) with groups of samples drawn again.
        inside: for each of them, the share of mistakes between classes that stay inside a group,
        chance: and that share if mistakes fell on any class,
        right: and the share of samples whose group is found by judges who have not seen them; last, that of the finest classes.
        named: whether names took part.
        unseen: classes without a labelled sample: they are with those that are called alike, or in a group of their own.
    """

    tree: Hierarchy
    stable: tuple[float, ...]
    inside: tuple[float, ...]
    chance: tuple[float, ...]
    right: tuple[float, ...]
    named: bool
    unseen: tuple[str, ...] = ()


def find_tree(
    samples: Samples, *, levels: int = 2, groups: Sequence[int] | None = None, names: bool = True, seed: int = 0
) -> Found:
    """Build a tree over the finest classes from features.

    Args:
        samples: features, with finest labels on at least two samples of some class.
        levels: how many levels the tree has, with the finest.
        groups: how many groups each level above the finest has, fine first; by default chosen by how well they separate.
        names: whether names may help.
        seed: for drawing samples again.

    Raises:
        DataError: when there are too few labelled classes, or no features, or these are all the same.
        ConfigError: when so many levels or groups cannot be.
    """
    if levels < 2:
        raise ConfigError(f"`levels` is {levels}: a tree with groups has at least 2")
    x, fine, seen = _in_order(samples, *labelled(samples))
    size, classes = len(seen), finest_names(samples.hierarchy)
    if groups is not None and (len(groups) != levels - 1 or any(not 1 <= n <= below for below, n in pairwise([size, *groups]))):
        said = f"pass {levels - 1} numbers from 1 to {size}, fine first, none above the one before"
        raise ConfigError(f"`groups` is {list(groups)}: {said}")
    far = distances(x, fine, size)
    alike, at = shared_words([classes[c] for c in seen], far) if names else (None, LAST)
    more: Floats = np.zeros((size, size)) if alike is None else NAMED * (1 - alike.astype(np.float64))
    near = profiles(far) + more
    counts = list(groups) if groups is not None else choose_counts(near, levels - 1, far + more)
    cuts = cut(near, counts)
    generator = np.random.default_rng(seed)
    again = [cut(_redrawn(x, fine, size, more, generator), counts) for _ in range(REPEATS)]
    stable = [float(np.mean([rand_index(own, other[i]) for other in again])) for i, own in enumerate(cuts)]
    confused = mistakes(x, fine, size, generator)
    inside, chance = zip(*(_worth(confused, own) for own in cuts), strict=True)
    hosts = _hosts(classes, seen, cuts[0], at if alike is not None else None)
    tree = named_tree(samples.hierarchy, cuts, hosts, at)
    missed = len(confused) / len(fine)
    right = tuple(1 - missed * (1 - share) for share in inside[::-1])
    unseen = tuple(classes[c] for c in np.setdiff1d(np.arange(len(classes)), seen))
    return Found(tree, tuple(stable[::-1]), inside[::-1], chance[::-1], (*right, 1 - missed), alike is not None, unseen)


def labelled(samples: Samples) -> tuple[torch.Tensor, Ints]:
    """Features and finest labels of the samples that have one, as judges take them."""
    if samples.features is None:
        raise DataError(f"{samples.name}: holds pictures; classes are compared by features, such as those of a frozen backbone")
    keep = np.flatnonzero(samples.labels[:, 0] >= 0)
    count = len(np.unique(samples.labels[keep, 0]))
    if count < 3 or len(keep) < count + 2:
        raise DataError(
            f"{samples.name}: {len(keep)} labelled samples of {count} finest classes are too few to group classes: "
            "this takes 3 classes, and 2 samples more than there are classes"
        )
    if samples.hierarchy.sizes[0] > MANY_CLASSES:
        raise DataError(f"{samples.name}: more than {MANY_CLASSES:,} finest classes are not compared in pairs")
    if not np.ptp(samples.features[keep], axis=0).any():
        raise DataError(f"{samples.name}: all labelled samples have the same features, so classes cannot be compared")
    x = components(even(torch.from_numpy(samples.features[keep])), WIDEST)
    return x, samples.labels[keep, 0]


def _in_order(samples: Samples, x: torch.Tensor, fine: Ints) -> tuple[torch.Tensor, Ints, Ints]:
    """Labelled samples by class and key, and the classes they have, by name: the order of the data must not matter to draws.

    Returns:
        (N, d) features, (N,) classes by their place in that order, and (C,) the number of the class at each place.
    """
    names = finest_names(samples.hierarchy)
    seen = sorted(np.unique(fine).tolist(), key=names.__getitem__)
    place = np.zeros(len(names), dtype=np.int64)
    place[seen] = np.arange(len(seen))
    rows = by_key([samples.keys[i] for i in np.flatnonzero(samples.labels[:, 0] >= 0)])
    rows = rows[np.argsort(place[fine[rows]], kind="stable")]
    return x[torch.from_numpy(rows)], place[fine[rows]], np.array(seen)


def by_key(keys: Sequence[str]) -> Ints:
    """(N,) positions of samples in the order of their keys; row numbers count up."""
    numbers = [int(key) if key.isdecimal() else -1 for key in keys]
    return np.array(sorted(range(len(keys)), key=lambda i: (numbers[i], keys[i])), dtype=np.int64)


# ---- how far classes are apart -----------------------------------------------------------------------------------------


def judge_of(x: torch.Tensor, fine: Ints, size: int) -> Judge:
    """A discriminant of the finest classes alone, which no tree draws together."""
    return learn(x, fine[:, None], Hierarchy(levels=["class"], classes=[[str(i) for i in range(size)]], parents=[]))


def distances(x: torch.Tensor, fine: Ints, size: int) -> Floats:
    """(C, C) one minus the cosines of the classes' means, 1 to a class without samples."""
    judge = judge_of(x, fine, size)
    far = 1 - class_cosines(judge)
    absent = judge.mass.numpy() <= 0
    far[absent], far[:, absent] = 1, 1
    np.fill_diagonal(far, 0)
    return far.clip(min=0)


def profiles(far: Floats) -> Floats:
    """(C, C) one minus the correlation of what two classes are near to: e^(SHARP · cosine) to each, also themselves."""
    found = 1 - np.corrcoef(np.exp(-SHARP * far))
    np.fill_diagonal(found, 0)
    near: Floats = ((found + found.T) / 2).clip(min=0)
    return near


LAST, FIRST = -1, 0  # which word of a name


def word(name: str, at: int = LAST) -> str:
    """The last, or the first, word of at least three letters of a name; "" without one.

    >>> word("004.Ivory_Gull"), word("004.Larus_argentatus", FIRST)
    ('Gull', 'Larus')
    """
    return str((re.findall(r"[^\W\d_]{3,}", name) or [""])[at])


def same_word(names: Sequence[str], at: int = LAST) -> Bools:
    """(C, C) whether two names end, or begin, in the same word.

    >>> same_word(["Herring_Gull", "004.Ivory Gull", "Puffin"]).tolist()
    [[False, True, False], [True, False, False], [False, False, False]]
    """
    words = [word(name, at).casefold() for name in names]
    found = np.array([[a == b != "" for b in words] for a in words]).reshape(len(names), len(names))
    np.fill_diagonal(found, False)
    return found


def shared_words(names: Sequence[str], far: Floats) -> tuple[Bools | None, int]:
    """(C, C) which classes are called alike, and by which word: the one that goes with looks more; None if neither does."""
    alike = {at: same_word(names, at) for at in (LAST, FIRST)}
    at = max(alike, key=lambda at: _closer(far, alike[at]))
    return (alike[at] if names_help(far, alike[at]) else None), at


def names_help(far: Floats, alike: Bools) -> bool:
    """Whether classes with similar names look more alike than others do."""
    return _closer(far, alike) > HELPFUL


def _closer(far: Floats, alike: Bools) -> float:
    """How much nearer classes with similar names are than others."""
    others = ~alike & ~np.eye(len(far), dtype=bool)
    return float(far[others].mean() - far[alike].mean()) if alike.any() and others.any() else 0.0


# ---- groups ------------------------------------------------------------------------------------------------------------


def cut(far: Floats, counts: Sequence[int]) -> list[Ints]:
    """The group of each class, for every number of groups: average linkage, cut there."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    joined = linkage(squareform(far, checks=False), "average")
    return [np.unique(fcluster(joined, count, "maxclust"), return_inverse=True)[1] for count in counts]


def choose_counts(far: Floats, levels: int, apart: Floats) -> list[int]:
    """For each level, fine first, the number of groups, cut by `far`, that separates best among some, measured by `apart`."""
    found: list[int] = []
    top = len(far)
    for _ in range(levels):
        if top <= 2:
            said = f"{len(far)} classes make {len(found) + 1} levels at most, each with fewer groups than the one below"
            raise ConfigError(f"`levels` is {levels + 1}: {said}; pass `levels={len(found) + 1}`")
        tried = sorted({max(round(top * share), 2) for share in (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)})
        scores = [silhouette(apart, own) for own in cut(far, tried)]
        top = tried[int(np.argmax(scores))]
        found.append(top)
    return found


def silhouette(far: Floats, groups: Ints) -> float:
    """The mean silhouette: how much nearer classes are to their own group than to the next; 0 for those without another."""
    if not groups.any():
        return 0.0
    member = np.eye(groups.max() + 1)[groups]
    count = member.sum(0)
    total = far @ member
    each = np.arange(len(far))
    own = total[each, groups] / np.maximum(count[groups] - 1, 1)
    other = total / count
    other[each, groups] = np.inf
    nearest = other.min(1)
    score = np.where(count[groups] > 1, (nearest - own) / np.maximum(np.maximum(nearest, own), 1e-12), 0)
    return float(score.mean())


def rand_index(a: Ints, b: Ints) -> float:
    """The adjusted Rand index of two groupings: 1 if they are the same, 0 as by chance."""
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), 1)
    pairs, rows, columns = ((n * (n - 1) / 2).sum() for n in (table, table.sum(1), table.sum(0)))
    expected = rows * columns / max(len(a) * (len(a) - 1) / 2, 1)
    most = (rows + columns) / 2
    return float((pairs - expected) / (most - expected)) if most != expected else 1.0


def _redrawn(x: torch.Tensor, fine: Ints, size: int, more: Floats, generator: np.random.Generator) -> Floats:
    """Distances from as many samples of each class, drawn with replacement, and what names add to them."""
    rows = redrawn_rows(fine, generator)
    return profiles(distances(x[torch.from_numpy(rows)], fine[rows], size)) + more


def redrawn_rows(fine: Ints, generator: np.random.Generator) -> Ints:
    """As many samples of each class, drawn with replacement."""
    return np.concatenate([generator.choice(own, len(own)) for own in _by_class(fine)])


def _by_class(fine: Ints) -> list[Ints]:
    """The rows of each class, in the order in which classes appear, which is not that of their numbers."""
    classes, first = np.unique(fine, return_index=True)
    return [np.flatnonzero(fine == c) for c in classes[np.argsort(first)]]


def mistakes(x: torch.Tensor, fine: Ints, size: int, generator: np.random.Generator) -> Ints:
    """(M, 2) true and given class of samples that a judge who has not seen them takes for another class."""
    half = np.zeros(len(fine), dtype=bool)
    for own in _by_class(fine):
        half[generator.permutation(own)[: len(own) // 2]] = True
    found = []
    for seen in (half, ~half):
        judge = judge_of(x[torch.from_numpy(seen)], fine[seen], size)
        scores = judge.scores(x[torch.from_numpy(~seen)])
        scores[:, judge.mass <= 0] = -torch.inf
        said = scores.argmax(1).numpy()
        found.append(np.stack([fine[~seen], said], 1)[said != fine[~seen]])
    return np.concatenate(found)


def _worth(confused: Ints, groups: Ints) -> tuple[float, float]:
    """The share of mistakes inside a group, and what it would be by chance."""
    sizes = np.bincount(groups)
    chance = float(((sizes[groups] - 1) / max(len(groups) - 1, 1)).mean())
    return (float((groups[confused[:, 0]] == groups[confused[:, 1]]).mean()) if len(confused) else 1.0), chance


def _hosts(classes: Sequence[str], seen: Ints, groups: Ints, at: int | None) -> Ints:
    """(C,) the place of the class with samples whose groups each class shares; -1 without one.

    That is the class itself, or, if names help, one that is called alike, of the group with most of those.
    """
    hosts = np.full(len(classes), -1)
    hosts[seen] = np.arange(len(seen))
    if at is None:
        return hosts
    alike: dict[str, list[int]] = {}
    for place, c in enumerate(seen.tolist()):
        alike.setdefault(word(classes[c], at).casefold(), []).append(place)
    for c in np.flatnonzero(hosts < 0).tolist():
        if (named := word(classes[c], at).casefold()) and named in alike:
            places = np.array(alike[named])
            hosts[c] = places[groups[places] == np.bincount(groups[places]).argmax()][0]
    return hosts


def named_tree(tree: Hierarchy, cuts: Sequence[Ints], hosts: Ints, at: int) -> Hierarchy:
    """The tree of nested groups; a group is called after the word that most of its classes have, or after its first class."""
    levels = [tree.levels[0], *(f"group{i + 1 if len(cuts) > 1 else ''}" for i in range(len(cuts)))]
    finest = finest_names(tree)
    classes, parents, below = [finest], [], np.arange(tree.sizes[0])
    for groups in cuts:
        own = np.append(groups, groups.max() + 1)[hosts]  # one group more for those without a host
        above = np.zeros(below.max() + 1, dtype=np.int64)
        above[below] = own
        parents.append(above)
        titles = [_title([finest[i] for i in np.flatnonzero(own == g)], at) for g in range(groups.max() + 1)]
        classes.append(_unique([*titles, *(["without samples"] if (hosts < 0).any() else [])]))
        below = own
    none = [np.zeros(len(names), dtype=bool) for names in classes]
    return Hierarchy(levels=levels, classes=classes, parents=parents, stand_ins=none, source="found tree")


def finest_names(tree: Hierarchy) -> list[str]:
    """The names of the finest classes; where a branch ends early, that of the class it ends at."""
    return _unique([tree.classes[level][own] for level, own in (tree.real(0, i) for i in range(tree.sizes[0]))])


def _title(members: Sequence[str], at: int) -> str:
    words = [word(name, at) for name in members]
    best = max(sorted(set(words)), key=words.count)
    if best and words.count(best) * 2 > len(members) > 1:
        return f"{best} group"
    return f"{members[0]} and others" if len(members) > 1 else f"{members[0]} alone"


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return found
