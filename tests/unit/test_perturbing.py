"""Faults made on purpose: which classes move in a tree, which labels become wrong, and what stays as it was."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlht.data.samples import Mask, Samples, with_prior
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.perturbing import Perturbation, rename_level, rewire
from torchlht.learn.options import TrainArgs
from trees import hierarchies, quick, random_hierarchy, seeds

TREE = random_hierarchy(np.random.default_rng(0), (40, 6, 3))


def make(per_class: int = 20, families: int = 4) -> Samples:
    """Four species in each family, two families in each order; a fifth of the samples is for val, a fifth for testing."""
    paths = [(f"o{f // 2}", f"f{f}", f"s{f}{i}") for f in range(families) for i in range(4)]
    tree = Hierarchy.from_paths(paths, ["order", "family", "species"])
    labels = np.full((len(paths) * per_class, 3), -1)
    labels[:, 0] = np.repeat(np.arange(len(paths)), per_class)
    split = np.resize(np.array(["train", "train", "train", "val", "test"]), len(labels))
    return Samples("made up", tree, tuple(map(str, range(len(labels)))), tree.fill(labels), split)


def partly_labelled() -> Samples:
    """Training samples that know species, family, order or nothing, in turns; others know everything."""
    samples = make()
    labels = samples.labels.copy()
    for i in np.flatnonzero(samples.split == "train"):
        labels[i, : i % 4] = -1
    return dataclasses.replace(samples, labels=labels)


def moved(before: Hierarchy, after: Hierarchy) -> set[str]:
    """Names of the finest classes that have another parent."""
    return {name for name in before.classes[0] if parent(before, name) != parent(after, name)}


def parent(tree: Hierarchy, name: str) -> str:
    return tree.classes[1][tree.parents[0][tree.classes[0].index(name)]]


# ---- the tree ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_as_many_classes_move_as_were_asked_for_where_families_are_large(share: float) -> None:
    tree = Hierarchy.from_parents([[i // 10 for i in range(40)]])
    assert len(moved(tree, rewire(tree, share))) == 40 * share


@given(hierarchies(), st.floats(0, 1), seeds)
@quick
def test_no_parent_loses_all_its_children_and_for_that_at_most_one_class_of_each_stays(
    tree: Hierarchy, share: float, seed: int
) -> None:
    after = rewire(tree, share, seed)
    asked = round(tree.sizes[0] * share)
    assert set(after.parents[0].tolist()) == set(range(tree.sizes[1]))
    assert len(moved(tree, after)) <= asked
    if tree.sizes[1] > 1:
        assert len(moved(tree, after)) >= asked - tree.sizes[1]


def test_only_children_take_each_others_places_and_a_single_one_stays() -> None:
    tree = Hierarchy.from_parents([[0, 1, 2]])
    assert len(moved(tree, rewire(tree, 1.0))) == 3
    tree = Hierarchy.from_parents([[0, 1]])
    assert rewire(tree, 0.5) == tree


@pytest.mark.parametrize("seed", range(5))
def test_in_a_tree_of_many_only_children_as_many_move_as_were_asked_for(seed: int) -> None:
    tree = Hierarchy.from_parents([[min(i, 69) for i in range(100)]])  # 69 only children, as many as aircraft have
    after = rewire(tree, 0.4, seed)
    assert len(moved(tree, after)) == 40
    assert set(after.parents[0].tolist()) == set(range(70))


def test_with_a_single_parent_there_is_nowhere_to_go() -> None:
    tree = Hierarchy.from_parents([[0, 0, 0]])
    assert rewire(tree, 1.0) == tree


def test_a_share_of_zero_is_the_same_tree() -> None:
    assert rewire(TREE, 0.0) == TREE


def test_the_new_tree_depends_on_the_seed_and_on_nothing_else() -> None:
    assert rewire(TREE, 0.3, seed=1) == rewire(TREE, 0.3, seed=1)
    assert len({tuple(rewire(TREE, 0.3, seed).parents[0].tolist()) for seed in range(6)}) == 6


def test_names_and_upper_levels_are_untouched_and_so_is_the_given_tree() -> None:
    before = TREE.to_dict()
    after = rewire(TREE, 0.5)
    assert (after.levels, after.classes) == (TREE.levels, TREE.classes)
    assert after.parents[1].tolist() == TREE.parents[1].tolist()
    assert TREE.to_dict() == before
    assert after != TREE


def test_more_is_moved_from_what_less_moves() -> None:
    few, many = (moved(TREE, rewire(TREE, share, seed=2)) for share in (0.2, 0.4))
    assert 0 < len(few) < len(many)
    assert few < many


def test_which_classes_move_depends_on_their_names_not_on_their_numbers() -> None:
    names, parents = [f"s{i}" for i in range(40)], [i // 10 for i in range(40)]
    tree = Hierarchy.from_parents([parents], classes=[names, list("abcd")])
    turned = Hierarchy.from_parents([[3 - p for p in parents[::-1]]], classes=[names[::-1], list("dcba")])
    for seed in range(5):
        assert moved(tree, rewire(tree, 0.3, seed)) == moved(turned, rewire(turned, 0.3, seed))


# ---- trees with labels ---------------------------------------------------------------------------------------------


def test_in_a_rewired_tree_the_labels_of_every_split_follow() -> None:
    samples = partly_labelled()
    after = Perturbation("rewired", share=0.5).perturb_tree(samples)
    assert after.hierarchy == rewire(samples.hierarchy, 0.5)
    assert after.hierarchy.fill(after.labels).tolist() == after.labels.tolist()
    assert after.labels[:, 0].tolist() == samples.labels[:, 0].tolist()
    changed = (after.labels != samples.labels).any(axis=1)
    assert set(samples.split[changed]) == {"train", "val", "test"}


def test_in_a_rewired_tree_samples_without_a_finest_label_keep_theirs() -> None:
    samples = partly_labelled()
    after = Perturbation("rewired", share=0.5).perturb_tree(samples)
    coarse = samples.labels[:, 0] < 0
    assert coarse.any()
    assert after.labels[coarse].tolist() == samples.labels[coarse].tolist()


def test_a_stale_tree_contradicts_labels_that_have_not_changed() -> None:
    samples = make()
    after = Perturbation("stale", share=0.5).perturb_tree(samples)
    assert after.labels.tolist() == samples.labels.tolist()
    assert after.hierarchy == rewire(samples.hierarchy, 0.5)
    assert after.hierarchy != samples.hierarchy
    with pytest.raises(DataError, match="but the tree puts it under"):
        after.hierarchy.fill(after.labels)


@pytest.mark.parametrize("kind", ["rewired", "stale"])
def test_perturbing_leaves_the_given_samples_alone_and_the_seed_decides(kind: str) -> None:
    samples = make()
    before = samples.labels.copy()
    a, b, c = (Perturbation(kind, share=0.5, seed=seed).perturb_tree(samples) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert samples.labels.tolist() == before.tolist()
    assert (a.keys, a.split.tolist()) == (samples.keys, samples.split.tolist())
    assert a.hierarchy == b.hierarchy != c.hierarchy
    assert a.labels.tolist() == b.labels.tolist()


def test_nothing_changes_when_no_kind_of_perturbation_is_asked_for_or_there_is_one_level() -> None:
    samples = make()
    assert Perturbation("none", share=0.5).perturb_tree(samples) is samples
    tree = Hierarchy.from_parents([], classes=[["a", "b"]])
    flat = Samples("flat", tree, ("0", "1"), np.array([[0], [1]]), np.full(2, "train"))
    assert Perturbation("rewired", share=1.0).perturb_tree(flat) is flat


# ---- wrong labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2])
def test_the_asked_share_of_the_samples_without_a_finest_label_gets_a_wrong_one_in_every_class(levels: int) -> None:
    samples, _ = Mask(ratio=0.5, levels=levels).apply(make(per_class=50))
    after = Perturbation(noise=0.3).perturb_labels(samples)
    hidden = (samples.split == "train") & (samples.labels[:, 0] < 0)
    for label in range(samples.hierarchy.sizes[levels]):
        inside = hidden & (samples.labels[:, levels] == label)
        wrong = inside & (after.labels[:, levels] != label)
        assert wrong.sum() == pytest.approx(0.3 * inside.sum(), abs=0.5)


def test_a_wrong_label_is_another_class_with_its_ancestors_and_no_finer_label_appears() -> None:
    samples = partly_labelled()
    after = Perturbation(noise=0.6).perturb_labels(samples)
    tree, seen = samples.hierarchy, set()
    for old, new in zip(samples.labels.tolist(), after.labels.tolist(), strict=True):
        if old == new:
            continue
        level = old.index(next(label for label in old if label >= 0))
        seen.add(level)
        assert new[:level] == [-1] * level
        assert 0 <= new[level] < tree.sizes[level]
        assert new[level] != old[level]
        for k in range(level, 2):
            assert new[k + 1] == tree.parents[k][new[k]]
    assert seen == {1, 2}, "samples that know their family, and samples that know their order only"


def test_wrong_labels_are_any_of_the_other_classes() -> None:
    samples, _ = Mask(ratio=1.0, minimum=0).apply(make(per_class=100))
    after = Perturbation(noise=1.0).perturb_labels(samples)
    train = samples.split == "train"
    pairs = {(int(old), int(new)) for old, new in zip(samples.labels[train, 1], after.labels[train, 1], strict=True)}
    assert pairs == {(old, new) for old in range(4) for new in range(4) if old != new}


def test_samples_with_a_finest_label_without_any_and_of_other_splits_are_untouched() -> None:
    samples = partly_labelled()
    labels = samples.labels.copy()
    labels[samples.split != "train", 0] = -1
    samples = dataclasses.replace(samples, labels=labels)
    after = Perturbation(noise=1.0).perturb_labels(samples)
    known = (labels >= 0).any(axis=1)
    coarse = (samples.split == "train") & (labels[:, 0] < 0) & known
    assert after.labels[~coarse].tolist() == labels[~coarse].tolist()
    assert (after.labels[coarse] != labels[coarse]).any(axis=1).all()


def test_where_a_level_has_one_class_there_is_no_wrong_one() -> None:
    tree = Hierarchy.from_parents([[0, 0, 0]])
    samples = Samples("one", tree, ("0", "1"), np.array([[-1, 0], [-1, 0]]), np.full(2, "train"))
    assert Perturbation(noise=1.0).perturb_labels(samples).labels.tolist() == [[-1, 0], [-1, 0]]


def test_noise_depends_on_the_seed_leaves_the_given_labels_alone_and_is_nothing_at_zero() -> None:
    samples = partly_labelled()
    before = samples.labels.copy()
    a, b, c = (Perturbation(noise=0.5, seed=seed).perturb_labels(samples).labels.tolist() for seed in (1, 1, 2))
    assert a == b
    assert a != c
    assert samples.labels.tolist() == before.tolist()
    assert Perturbation(noise=0.0).perturb_labels(samples) is samples


# ---- refusing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_shares_outside_0_to_1_are_refused_with_the_name_of_the_option(value: float) -> None:
    for refused, option in (({"share": value}, "perturb_share"), ({"noise": value}, "label_noise")):
        with pytest.raises(ConfigError, match=f"{option} is {value}: .* from 0 to 1"):
            Perturbation(**refused)  # type: ignore[arg-type]


def test_options_of_training_are_refused_likewise() -> None:
    with pytest.raises(ConfigError, match=r"perturb_share is 2\.0"):
        TrainArgs(perturb="stale", perturb_share=2.0)
    with pytest.raises(ConfigError, match=r"label_noise is -1\.0"):
        TrainArgs(label_noise=-1.0)


# ---- names ---------------------------------------------------------------------------------------------------------


def groups(tree: Hierarchy) -> set[frozenset[str]]:
    """The finest classes of each second finest one, without its name, and those of its parent."""
    found = set()
    for k in range(1, len(tree)):
        up = tree.ancestors(k)
        found |= {frozenset(np.array(tree.classes[0])[up == i].tolist()) for i in range(tree.sizes[k])}
    return found


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_a_renamed_tree_is_the_same_but_for_names(share: float, seed: int) -> None:
    tree = random_hierarchy(np.random.default_rng(seed), (40, 10, 3))
    after, new = rename_level(tree, share, seed)
    assert sorted(new.tolist()) == list(range(10))
    assert np.sum(new != np.arange(10)) == 10 * share
    assert after.classes == tree.classes
    assert groups(after) == groups(tree)
    assert after.parents[0].tolist() == new[tree.parents[0]].tolist()
    assert [after.parents[1][new[i]] for i in range(10)] == tree.parents[1].tolist()
    assert after.ancestors(2).tolist() == tree.ancestors(2).tolist()


def test_the_coarsest_of_two_levels_can_be_renamed() -> None:
    tree = random_hierarchy(np.random.default_rng(0), (12, 5))
    after, new = rename_level(tree, 1.0)
    assert after.parents[0].tolist() == new[tree.parents[0]].tolist()


def test_renamed_labels_follow_the_tree_and_those_of_a_stale_prior_contradict_it() -> None:
    samples = partly_labelled()
    renamed = Perturbation("renamed", share=0.5).perturb_tree(samples)
    assert renamed.hierarchy.fill(renamed.labels).tolist() == renamed.labels.tolist()
    stale = Perturbation("stale_prior", share=0.5).perturb_tree(samples)
    assert stale.hierarchy == samples.hierarchy
    assert stale.labels.tolist() == renamed.labels.tolist()
    moved = np.flatnonzero(rename_level(samples.hierarchy, 0.5)[1] != np.arange(4))
    against = {int(s) for s, f, _ in stale.labels if s >= 0 and samples.hierarchy.parents[0][s] != f}
    assert against == {s for s in range(16) if samples.hierarchy.parents[0][s] in moved}
    assert stale.labels[:, [0, 2]].tolist() == samples.labels[:, [0, 2]].tolist()


def test_a_prior_is_matched_by_names_and_leaves_labels_as_they_are() -> None:
    samples = partly_labelled()
    turned = random_order(rewire(samples.hierarchy, 0.5))
    after = with_prior(samples, turned)
    assert after.hierarchy == turned
    for before, now in zip(samples.labels, after.labels, strict=True):
        for k in range(3):
            assert (before[k] < 0) == (now[k] < 0)
            assert before[k] < 0 or samples.hierarchy.classes[k][before[k]] == turned.classes[k][now[k]]


def random_order(tree: Hierarchy) -> Hierarchy:
    """The same tree with its paths in another order."""
    leaves = np.random.default_rng(1).permutation(tree.sizes[0])
    paths = [[tree.classes[k][tree.path(j)[k]] for k in tree.top_down] for j in leaves]
    return Hierarchy.from_paths(paths, tree.levels[::-1])


def test_a_prior_with_other_classes_or_levels_is_refused() -> None:
    samples = make()
    fewer = Hierarchy.from_paths([("o0", "f0", "s00"), ("o1", "f9", "s90")], ["order", "family", "species"])
    with pytest.raises(DataError, match="the prior has a species 's90' that made up does not have"):
        with_prior(samples, fewer)
    with pytest.raises(DataError, match="has no class 's01'"):
        with_prior(samples, Hierarchy.from_paths([("o0", "f0", "s00"), ("o1", "f3", "s30")], ["order", "family", "species"]))
    with pytest.raises(DataError, match="the prior has the levels species, order; made up has species, family, order"):
        with_prior(samples, Hierarchy.from_paths([("o0", "s00"), ("o1", "s01")], ["order", "species"]))
