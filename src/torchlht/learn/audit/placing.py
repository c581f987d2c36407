"""Where the tree does not fit what is seen: classes under the wrong parent, two names for one class, spellings of one name.

Classes are compared by the cosines of their means, in which samples without a finest label have their share. A class belongs
to the parent whose other children are most like it: masses of e^(SHARP · cosine), without the class itself. A class without
siblings is judged one level higher. The most misplaced class is put where it belongs before the next is looked for: else the
relatives it was taken from would seem to be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from torchlht.data.samples import Ints, Samples
from torchlht.hierarchy.spelling import plain
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import Judge, Opinions, learn
from torchlht.learn.audit.wrong import Floats

SHARP = 10.0
MANY_CLASSES = 5000  # with more, classes are not compared in pairs
MOST = 100  # misplaced classes that are looked for, at most
FEWEST = 10  # samples that a class needs before it is taken for another
TOLD = 0.7  # two classes are one if judges are surely right less often


@dataclass(frozen=True)
class Remark:
    """Something about the tree.

    Attributes:
        kind: `misplaced`, `same class` or `spelling`; of `repair` also `split`.
        level: of the class.
        label: its name.
        now: its parent, or the other class.
        better: the parent it looks like, or the name to keep; "" if that is open.
        score: how strong the evidence is: log-odds against `now`; for spellings 0; for splits see `learn/splitting.py`.
        reason: a sentence.
    """

    kind: str
    level: str
    label: str
    now: str
    better: str
    score: float
    reason: str


def find_remarks(opinions: Opinions, samples: Samples) -> list[Remark]:
    """Everything about the tree that looks wrong, most suspicious first."""
    tree = samples.hierarchy
    judge = learn(opinions.x, samples.labels, tree)
    found = [*misplaced(judge, tree), *same_classes(opinions, samples)] if tree.sizes[0] <= MANY_CLASSES else []
    return sorted(found, key=lambda one: -one.score) + spellings(tree)


# ---- under the wrong parent ------------------------------------------------------------------------------------------


def misplaced(judge: Judge, tree: Hierarchy, cosines: Floats | None = None) -> list[Remark]:
    """Finest classes that look like the children of another parent, most surely first.

    Args:
        judge: knows which classes have samples.
        tree: where the classes are.
        cosines: (C_1, C_1) how much classes are alike; by default the cosines of the judge's means.
    """
    cosines = class_cosines(judge) if cosines is None else cosines
    near = np.exp(SHARP * (cosines - 1))
    np.fill_diagonal(near, 0)
    near[:, judge.mass.numpy() <= 0] = 0
    paths = np.stack([tree.ancestors(k) for k in range(len(tree))], axis=1)
    open_ones, found = judge.mass.numpy() > 0, []
    for _ in range(min(MOST, tree.sizes[0])):
        score, level, better = placed(near, tree, paths)
        score = np.where(open_ones, score, -np.inf)
        i = int(score.argmax())
        if score[i] <= 0:
            break
        k, place = int(level[i]), int(better[i])
        found.append(_remark(tree, i, k, int(paths[i, k]), place, float(score[i])))
        open_ones[i] = False
        paths[i, k:] = [tree.ancestors(j, of=k)[place] for j in range(k, len(tree))]
    return found


def class_cosines(judge: Judge) -> Floats:
    """(C_1, C_1) cosines of the classes' means."""
    means = F.normalize(judge.means, dim=1)
    found: Floats = (means @ means.T).double().numpy()
    return found


def placed(near: Floats, tree: Hierarchy, paths: Ints) -> tuple[Floats, Ints, Ints]:
    """For each finest class: log-odds against its place, the level where it has relatives, and the best other class there.

    Args:
        near: (C_1, C_1) how close classes are, 0 on the diagonal.
        tree: the tree.
        paths: (C_1, K) the ancestors of each class, as they are now.
    """
    each = np.arange(len(near))
    score, level, better = np.full(len(near), -np.inf), np.zeros(len(near), dtype=np.int64), np.zeros(len(near), dtype=np.int64)
    done = np.zeros(len(near), dtype=bool)
    for k in range(1, len(tree)):
        mass = np.zeros((tree.sizes[k], len(near)))
        np.add.at(mass, paths[:, k], near.T)
        own = mass[paths[:, k], each]
        mass[paths[:, k], each] = 0
        mass[tree.ends[k]] = 0  # nothing is put under a class whose branch ends
        here = (own > 0) & ~done
        odds = np.log(mass.max(axis=0).clip(min=1e-300)) - np.log(own.clip(min=1e-300))
        score, level = np.where(here, odds, score), np.where(here, k, level)
        better = np.where(here, mass.argmax(axis=0), better)
        done |= own > 0
    return score, level, better


def _remark(tree: Hierarchy, i: int, k: int, now: int, place: int, score: float) -> Remark:
    (level, own), here, there = tree.real(0, i), tree.text(k, now), tree.text(k, place)
    alone = f"; it is the only {tree.levels[0]} of its {tree.levels[1]}" if k > 1 and not level else ""
    reason = f"looks like {tree.levels[0]} classes under {there}, not like the others under {here}{alone}"
    return Remark("misplaced", tree.levels[level], tree.classes[level][own], here, there, score, reason)


# ---- two names for one -----------------------------------------------------------------------------------------------


def same_classes(opinions: Opinions, samples: Samples) -> list[Remark]:
    """Pairs of siblings that judges who have not seen the labels cannot tell apart: right hardly more often than a coin."""
    tree, wins, counts = samples.hierarchy, *_told_apart(opinions, samples)
    parents = tree.parents[0] if len(tree) > 1 else np.zeros(tree.sizes[0], dtype=np.int64)
    enough = np.flatnonzero((counts >= FEWEST) & ~tree.stand_ins[0])
    found = []
    for a in enough.tolist():
        for b in enough[(enough > a) & (parents[enough] == parents[a])].tolist():
            both = counts[a] + counts[b]
            right = (wins[a, b] + wins[b, a]) / both
            if right + 2 * np.sqrt(0.25 / both) < TOLD:
                one, other = tree.classes[0][a], tree.classes[0][b]
                reason = f"{one} and {other} are told apart in {100 * right:.0f} % of {both:.0f} samples, as by a coin"
                found.append(Remark("same class", tree.levels[0], one, other, "", float(TOLD - right), reason))
    return found


def _told_apart(opinions: Opinions, samples: Samples) -> tuple[Floats, Floats]:
    """(C_1, C_1) how many samples of each class score higher for it than for each other class, and how many it has."""
    size, fine = samples.hierarchy.sizes[0], samples.labels[:, 0]
    wins, counts = torch.zeros(size, size), np.bincount(fine[fine >= 0], minlength=size).astype(np.float64)
    for rows, scores in opinions.chunks(np.flatnonzero(fine >= 0)):
        own = torch.from_numpy(fine[rows])
        wins.index_add_(0, own, (scores.gather(1, own.unsqueeze(1)) > scores).float())
    return wins.double().numpy(), counts


# ---- spellings -------------------------------------------------------------------------------------------------------


def spellings(tree: Hierarchy) -> list[Remark]:
    """Names of one level that differ by case, accents, blanks, hyphens, the order of words, or a slip of the pen."""
    found = []
    for k in tree.top_down:
        names = [name for name in tree.names[k] if name is not None]
        plainly = {plain(name): name for name in reversed(names)}  # the first name of each spelling
        same = [(one, other, one, CASE) for one, other in _twins(names, plain)]
        same += [(one, other, one, ORDER) for one, other in _twins(list(plainly.values())[::-1], _words)]
        slips = [(plainly[a], plainly[b], "", f"differ by {how}") for a, b, how in _slips(sorted(plainly))]
        found += [
            Remark("spelling", tree.levels[k], other, one, better, 0.0, f"{one!r} and {other!r} {how}")
            for one, other, better, how in same + slips
        ]
    return found


CASE, ORDER = "differ only by case, accents, blanks or hyphens", "are the same words in another order"


def _words(name: str) -> str:
    """The words of a name in the order of the alphabet."""
    return " ".join(sorted(plain(word) for word in re.split(r"[\s_,]+", name) if word))


def _twins(names: list[str], key: Callable[[str], str]) -> list[tuple[str, str]]:
    """Pairs with the same key: the first name that has it, and each other."""
    first: dict[str, str] = {}
    return [(first[key(name)], name) for name in names if first.setdefault(key(name), name) != name]


LONG = 6  # shorter names that differ by a letter are often different words


def _slips(names: list[str]) -> list[tuple[str, str, str]]:
    """Pairs of long names without digits that a slip of the pen turns into each other, and what slipped."""
    by_gap: dict[str, list[str]] = {}
    for name in names:
        if len(name) >= LONG and name.isalpha():
            by_gap.setdefault(name, []).append(name)
            for i in range(len(name)):
                by_gap.setdefault(f"{name[:i]}*{name[i + 1 :]}", []).append(name)
                by_gap.setdefault(name[:i] + name[i + 1 :], []).append(name)
            for i in range(len(name) - 1):
                by_gap.setdefault(f"{name[:i]}*{''.join(sorted(name[i : i + 2]))}*{name[i + 2 :]}", []).append(name)
    pairs = {(a, b) for group in by_gap.values() for a in group for b in group if a < b}
    return sorted((a, b, how) for a, b in pairs if (how := _slip(a, b)))


def _slip(a: str, b: str) -> str:
    """What turns one name into the other: a letter that is changed, left out or put in, or two that have changed places."""
    short, long = sorted((a, b), key=len)
    if len(short) < len(long):
        left_out = len(long) - len(short) == 1 and any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
        return "one letter" if left_out else ""
    other = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y]
    if len(other) == 1:
        return "one letter"
    swapped = len(other) == 2 and other[1] == other[0] + 1 and a[other[0]] + a[other[1]] == b[other[1]] + b[other[0]]
    return "two letters that have changed places" if swapped else ""
