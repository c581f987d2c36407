"""The rules that choose answers: each against a naive loop over the tree, and by hand."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.errors import ConfigError
from torchlht.heads.prediction import RULES, Prediction, ancestors_of, decide
from torchlht.heads.transition.core import TreeTransition
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, seeds


def one_level(classes: int) -> Hierarchy:
    return Hierarchy.from_parents([], classes=[[str(i) for i in range(classes)]])


trees = st.one_of(hierarchies(), st.integers(1, 6).map(one_level))
batches = st.integers(1, 8)

# Finest 0, 1, 2 under A; 3 under B.
BY_HAND = Hierarchy.from_parents([[0, 0, 0, 1]])


def random_log_probs(rng: np.random.Generator, tree: Hierarchy, batch: int) -> tuple[Tensor, ...]:
    """Every level by itself, so that levels often disagree."""
    return tuple(torch.log_softmax(normal(rng, batch, n, scale=2.0), dim=1) for n in tree.sizes)


def chosen_by(rule: str, log_probs: tuple[Tensor, ...], tree: Hierarchy) -> list[list[int]]:
    choice = decide(Prediction(log_probs), tree, rule).choice
    assert choice is not None
    assert choice.dtype == torch.int64
    assert choice.shape == (len(log_probs[0]), len(tree))
    return choice.tolist()


def by_hand(fine: list[float], coarse: list[float]) -> tuple[Tensor, Tensor]:
    return torch.tensor([fine]).log(), torch.tensor([coarse]).log()


# ---- naive versions: one sample, a list of numbers per level ----------------------------------------------------------


def best(scores: list[float]) -> int:
    return max(range(len(scores)), key=scores.__getitem__)


def naive_argmax(rows: list[list[float]], tree: Hierarchy) -> list[int]:
    return [best(row) for row in rows]


def naive_backtrack(rows: list[list[float]], tree: Hierarchy) -> list[int]:
    return list(tree.path(best(rows[0])))


def naive_top_down(rows: list[list[float]], tree: Hierarchy) -> list[int]:
    found = [best(rows[-1])]
    for k in range(len(tree) - 2, -1, -1):
        children = [c for c in range(tree.sizes[k]) if tree.parents[k][c] == found[0]]
        found.insert(0, max(children, key=rows[k].__getitem__))
    return found


def naive_path(rows: list[list[float]], tree: Hierarchy) -> list[int]:
    every = [tree.path(leaf) for leaf in range(tree.sizes[0])]
    return list(max(every, key=lambda path: sum(rows[k][c] for k, c in enumerate(path))))


def naive_crm(rows: list[list[float]], tree: Hierarchy) -> list[int]:
    """With the whole matrix of distances."""
    classes = np.arange(tree.sizes[0])
    distance = tree.lca_height(classes[:, None], classes[None, :])
    p = np.exp(rows[0])
    return list(tree.path(int(np.argmin(p / p.sum() @ distance))))


NAIVE: dict[str, Callable[[list[list[float]], Hierarchy], list[int]]] = {
    "argmax": naive_argmax,
    "backtrack": naive_backtrack,
    "top_down": naive_top_down,
    "path": naive_path,
    "crm": naive_crm,
}


def naive(rule: str, log_probs: tuple[Tensor, ...], tree: Hierarchy) -> list[list[int]]:
    return [NAIVE[rule]([log_p[n].tolist() for log_p in log_probs], tree) for n in range(len(log_probs[0]))]


# ---- against loops -------------------------------------------------------------------------------------------------


def test_every_rule_that_can_be_named_is_tested_here():
    assert set(RULES) == {"own", *NAIVE}


@pytest.mark.parametrize("rule", NAIVE)
@quick
@given(tree=trees, batch=batches, seed=seeds)
def test_a_rule_equals_a_naive_loop(rule, tree, batch, seed):
    log_probs = random_log_probs(np.random.default_rng(seed), tree, batch)
    assert chosen_by(rule, log_probs, tree) == naive(rule, log_probs, tree)


@pytest.mark.parametrize("rule", NAIVE)
def test_a_rule_equals_a_naive_loop_on_a_larger_tree(rule):
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (60, 20, 7, 3))
    log_probs = random_log_probs(rng, tree, 25)
    assert chosen_by(rule, log_probs, tree) == naive(rule, log_probs, tree)


def test_no_two_rules_are_the_same_rule():
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (20, 8, 3))
    log_probs = random_log_probs(rng, tree, 50)
    answers = {rule: chosen_by(rule, log_probs, tree) for rule in NAIVE}
    for one, other in itertools.combinations(NAIVE, 2):
        assert answers[one] != answers[other], (one, other)


@pytest.mark.parametrize("rule", NAIVE)
def test_on_a_tree_of_one_level_every_rule_is_argmax(rule):
    log_probs = random_log_probs(np.random.default_rng(2), one_level(7), 30)
    assert chosen_by(rule, log_probs, one_level(7)) == log_probs[0].argmax(dim=1, keepdim=True).tolist()


@pytest.mark.parametrize("rule", NAIVE)
def test_a_batch_without_samples_has_no_answers(rule):
    assert chosen_by(rule, random_log_probs(np.random.default_rng(3), BY_HAND, 0), BY_HAND) == []


# ---- consistency ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in NAIVE if rule != "argmax"])
@quick
@given(tree=trees, batch=batches, seed=seeds)
def test_every_rule_but_argmax_answers_a_path(rule, tree, batch, seed):
    log_probs = random_log_probs(np.random.default_rng(seed), tree, batch)
    for answer in chosen_by(rule, log_probs, tree):
        assert tuple(answer) == tree.path(answer[0])


def test_argmax_may_answer_what_is_no_path():
    assert chosen_by("argmax", by_hand([0.1, 0.2, 0.3, 0.4], [0.9, 0.1]), BY_HAND) == [[3, 0]]


@pytest.mark.parametrize("rule", [rule for rule in NAIVE if rule != "argmax"])
def test_probabilities_of_exactly_zero_still_give_a_path(rule):
    """Coarse is sure of B, fine is sure that it is none of B's children."""
    (answer,) = chosen_by(rule, by_hand([0.5, 0.3, 0.2, 0.0], [0.0, 1.0]), BY_HAND)
    assert tuple(answer) == BY_HAND.path(answer[0])


def test_ancestors_of_finest_classes_by_hand():
    tree = Hierarchy.from_parents([[0, 0, 1, 2], [0, 0, 1]])
    assert ancestors_of(torch.tensor([3, 1, 2]), tree).tolist() == [[3, 2, 1], [1, 0, 0], [2, 1, 0]]


# ---- by hand -------------------------------------------------------------------------------------------------------


def test_the_rules_by_hand_where_levels_disagree():
    """Fine prefers 3 (under B), coarse prefers A.

    Products along the paths: of 0, 0.30 · 0.61 = 0.183; of 3, 0.45 · 0.39 = 0.1755. Expected heights: 1.15 and 1.10.
    """
    fine, coarse = [0.30, 0.15, 0.10, 0.45], [0.61, 0.39]
    expected = {"argmax": [3, 0], "backtrack": [3, 1], "top_down": [0, 0], "path": [0, 0], "crm": [3, 1]}
    assert {rule: chosen_by(rule, by_hand(fine, coarse), BY_HAND)[0] for rule in expected} == expected
    assert chosen_by("path", by_hand(fine, [0.59, 0.41]), BY_HAND) == [[3, 1]]  # 0.177 against 0.1845


def test_crm_prefers_a_class_among_probable_siblings_to_a_slightly_more_probable_lone_class():
    """Expected heights: of 0, 0.29 + 0.03 + 2 · 0.35 = 1.02; of 3, 2 · 0.65 = 1.30."""
    log_probs = by_hand([0.33, 0.29, 0.03, 0.35], [0.65, 0.35])
    assert chosen_by("backtrack", log_probs, BY_HAND) == [[3, 1]]
    assert chosen_by("crm", log_probs, BY_HAND) == [[0, 0]]


def test_crm_keeps_the_lone_class_when_its_lead_is_large_enough():
    """Expected heights: of 0, 0.16 + 0.16 + 2 · 0.52 = 1.36; of 3, 2 · 0.48 = 0.96."""
    assert chosen_by("crm", by_hand([0.16, 0.16, 0.16, 0.52], [0.48, 0.52]), BY_HAND) == [[3, 1]]


# ---- minimal risk --------------------------------------------------------------------------------------------------


@quick
@given(tree=trees, share=st.sampled_from([0.501, 0.9, 1 - 1e-9]), seed=seeds)
def test_crm_is_backtrack_when_one_class_has_more_than_half(tree, share, seed):
    rng = np.random.default_rng(seed)
    leaves = torch.arange(tree.sizes[0])  # each of them once
    rest = torch.softmax(normal(rng, len(leaves), len(leaves), scale=3.0), dim=1)
    p = (1 - share) * rest + share * torch.eye(len(leaves), dtype=torch.float64)
    log_probs = (p.log(), *random_log_probs(rng, tree, len(leaves))[1:])
    found = chosen_by("crm", log_probs, tree)
    assert found == chosen_by("backtrack", log_probs, tree) == [list(tree.path(leaf)) for leaf in leaves.tolist()]


@quick
@given(tree=trees, batch=batches, seed=seeds)
def test_crm_of_sigmoids_is_crm_of_the_same_made_to_sum_to_one(tree, batch, seed):
    rng = np.random.default_rng(seed)
    scores = torch.sigmoid(normal(rng, batch, tree.sizes[0], scale=2.0))
    others = random_log_probs(rng, tree, batch)[1:]
    normalised = (scores / scores.sum(dim=1, keepdim=True)).log()
    found = chosen_by("crm", (scores.log(), *others), tree)
    assert found == chosen_by("crm", (normalised, *others), tree) == naive("crm", (normalised, *others), tree)


def test_crm_looks_at_the_finest_level_alone():
    rng = np.random.default_rng(4)
    tree = random_hierarchy(rng, (20, 8, 3))
    one, other = random_log_probs(rng, tree, 40), random_log_probs(rng, tree, 40)
    assert chosen_by("crm", (one[0], *other[1:]), tree) == chosen_by("crm", one, tree)


# ---- decide --------------------------------------------------------------------------------------------------------


def test_own_leaves_the_prediction_as_it_is():
    prediction = Prediction(random_log_probs(np.random.default_rng(5), BY_HAND, 4))
    assert decide(prediction, BY_HAND, "own") is prediction
    assert decide(prediction, BY_HAND) is prediction
    assert prediction.choice is None


def test_own_keeps_the_answers_a_method_chose_itself():
    choice = torch.tensor([[2, 1], [0, 0]])
    prediction = Prediction(random_log_probs(np.random.default_rng(6), BY_HAND, 2), choice=choice)
    assert decide(prediction, BY_HAND, "own") is prediction
    assert prediction.chosen() is choice


@pytest.mark.parametrize("rule", NAIVE)
def test_a_rule_replaces_the_answers_and_nothing_else(rule):
    log_probs = random_log_probs(np.random.default_rng(7), BY_HAND, 6)
    transitions = (TreeTransition(torch.tensor([0, 0, 0, 1]), 2),)
    held = torch.full((6, 2), -7)
    before = Prediction(log_probs, transitions, choice=held)
    after = decide(before, BY_HAND, rule)
    assert after.chosen().tolist() == naive(rule, log_probs, BY_HAND)
    assert after.log_probs is log_probs
    assert after.transitions is transitions
    assert before.choice is held  # the one that was given is not changed
    assert (held == -7).all()


@pytest.mark.parametrize(("word", "near"), [("backtrak", "backtrack"), ("topdown", "top_down"), ("CRM", None)])
def test_an_unknown_rule_is_an_error_with_the_nearest_name(word, near):
    prediction = Prediction(random_log_probs(np.random.default_rng(8), BY_HAND, 1))
    meant = f"did you mean {near}?" if near else "known: own, argmax"
    with pytest.raises(ConfigError, match=re.escape(f"unknown rule {word!r}: {meant}")):
        decide(prediction, BY_HAND, word)
