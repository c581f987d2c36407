"""`repair`: what is wrong with a tree, by what its classes look like and are called; and the tree with classes moved."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from torchlht.data.samples import Samples
from torchlht.errors import DataError, nearest
from torchlht.hierarchy.spelling import plain
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.discriminant import form_opinions
from torchlht.learn.audit.placing import Remark, class_cosines, misplaced, same_classes, spellings
from torchlht.learn.growing import NAMED, by_key, judge_of, labelled, shared_words
from torchlht.learn.splitting import split_classes, split_parents

SURE = 1.0  # log-odds from which a move is made


def propose(samples: Samples, tree: Hierarchy) -> list[Remark]:
    """Moves, most surely first; then classes and parents that are perhaps two, classes that are perhaps one, and spellings.

    Args:
        samples: features with finest labels; their own tree plays no part.
        tree: the tree to judge, with the same finest classes.

    Raises:
        DataError: when the finest classes are others.
    """
    samples = under(samples, tree)
    samples = samples.select(by_key(samples.keys))  # the order of the data must not matter to draws
    x, fine = labelled(samples)
    judge = judge_of(x, fine, tree.sizes[0])
    cosines = class_cosines(judge)
    alike, _ = shared_words([tree.text(0, i) for i in range(tree.sizes[0])], 1 - cosines)
    if alike is not None:
        cosines = cosines + NAMED * alike
    moves = misplaced(judge, tree, cosines)
    splits = [*split_parents(x, fine, judge, tree), *split_classes(x, fine, judge, tree, samples.keys)]
    return [*moves, *splits, *same_classes(form_opinions(samples), samples), *spellings(tree)]


def under(samples: Samples, tree: Hierarchy) -> Samples:
    """The samples that have a finest label, with this tree in the place of their own."""
    own, missing = samples.hierarchy.classes[0], sorted(set(samples.hierarchy.classes[0]) - set(tree.classes[0]))
    if missing:
        names = [name for name in tree.names[0] if name is not None]
        same = next((name for name in names if plain(name) == plain(missing[0])), None)
        near = f"did you mean {same}?" if same else nearest(missing[0], names)
        what = f"{tree.levels[0]} {missing[0]!r} is not in the tree ({len(missing)} of {len(own)} missing)"
        how = "name it as the tree does, add it there, or mark its samples as unlabelled"
        raise DataError(f"{samples.name}: {what}: {f'{near} ' if near else ''}{how}")
    place = np.array([tree.index(0, name) for name in own])
    kept = samples.select(np.flatnonzero(samples.labels[:, 0] >= 0))
    fine = place[kept.labels[:, 0]]
    labels = np.stack([tree.ancestors(k)[fine] for k in range(len(tree))], axis=1)
    return dataclasses.replace(kept, hierarchy=tree, labels=labels)


def moved(tree: Hierarchy, remarks: Sequence[Remark], sure: float = SURE) -> tuple[Hierarchy, list[Remark]]:
    """The tree with every sure move to another parent made, and these moves. A parent that loses its last child goes, too."""
    if len(tree) == 1:
        return tree, []
    places, finest = {tree.text(1, parent): parent for parent in range(tree.sizes[1])}, tree.levels[0]
    sure_ones = [r for r in remarks if r.kind == "misplaced" and r.score >= sure and r.level == finest]
    made = [r for r in sure_ones if {r.now, r.better} <= set(places)]
    better = {remark.label: places[remark.better] for remark in made}
    paths = []
    for name, parent in zip(tree.names[0], tree.parents[0].tolist(), strict=True):
        at = better.get(name or "", parent)
        up = [tree.names[k][tree.ancestors(k, of=1)[at]] for k in tree.top_down if k >= 1]
        paths.append((*up, name))
    return (Hierarchy.from_paths(paths, tree.levels[::-1]) if made else tree), made
