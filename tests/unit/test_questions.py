"""Strategies of `lht next`, each against a plain loop in float64, and what holds for all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch

from torchlht.errors import ConfigError, DataError, MissingExtraError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.simulation.playing import answer
from torchlht.learn.questions import opinion
from torchlht.learn.questions.opinion import Space, form_opinion, unopinionated
from torchlht.learn.questions.prices import Prices, read_costs, read_doubts
from torchlht.learn.questions.strategies import spread, worth
from torchlht.learn.questions.strategy import Situation, all_strategies, choose, even_probs, find_strategy

TREE = Hierarchy.from_parents([[0, 0, 1, 1, 2, 2], [0, 0, 1]], levels=["species", "family", "order"])
PRICES = Prices.of(TREE.levels, {"species": 1, "family": 0.2, "order": 0.05})


def made_up(n: int = 60, seed: int = 0, known: float = 0.3) -> tuple[torch.Tensor, Any, Any]:
    """Coordinates around class means, all labels, and those that are known to some depth."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 6, n)
    labels = np.stack([TREE.ancestors(k)[truth] for k in range(3)], axis=1)
    order, family, species = rng.normal(size=(2, 8)) * 2, rng.normal(size=(3, 8)) * 1.5, rng.normal(size=(6, 8))
    x = order[labels[:, 2]] + family[labels[:, 1]] + species[truth] + rng.normal(size=(n, 8)) * 0.7
    depth = rng.integers(0, 3, n)
    some = (rng.random(n) < known)[:, None] & (np.arange(3) >= depth[:, None])
    return torch.from_numpy(x.astype(np.float32)), labels, np.where(some, labels, -1)


def situation(
    seed: int = 0, *, known: float = 0.3, target: Any = "mean", prices: Prices = PRICES, budget: float = 5
) -> Situation:
    x, _, labels = made_up(seed=seed, known=known)
    found = form_opinion(x, labels, TREE)
    space, probs = (unopinionated(x), None) if found is None else (found.space.numpy(), found.by_level())
    weights = np.full(3, 1 / 3) if isinstance(target, str) else target
    return Situation(tuple(map(str, range(len(x)))), labels, TREE, space, probs, labels < 0, prices, weights, budget, seed)


# ---- prices --------------------------------------------------------------------------------------------------------


def test_prices_are_read_and_levels_without_one_are_not_asked() -> None:
    found = Prices.of(TREE.levels, read_costs("species=1, family=0.2"))
    assert found.cost.tolist() == [1, 0.2, math.inf]
    assert found.finest == 0
    assert Prices.of(TREE.levels, {}).cost.tolist() == [1, 1, 1]
    assert Prices.of(TREE.levels, {"order": 0.1}).finest == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("species=-1", "cost of species is -1: it must be above 0"),
        ("species", "cost is 'species': pass a number for each level"),
        ("species=nan", "pass a number for each level"),
        ("species=1,species=2", "cost names species twice"),
    ],
)
def test_wrong_prices_are_one_sentence(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_costs(text)


def test_levels_that_are_not_there_and_impossible_probabilities_are_refused() -> None:
    with pytest.raises(ConfigError, match="cost names the level 'specie': did you mean species"):
        Prices.of(TREE.levels, {"specie": 1.0})
    with pytest.raises(ConfigError, match="cannot_tell of species is 1: it must be a probability from 0 to below 1"):
        read_doubts("species=1")


def test_an_annotator_who_cannot_tell_answers_with_the_deepest_level_that_he_can() -> None:
    prices = Prices.of(TREE.levels, {}, {"species": 0.5, "family": 0.2})
    np.testing.assert_allclose(prices.answers(0), [0.5, 0.3, 0.2, 0])
    np.testing.assert_allclose(prices.answers(1), [0, 0.8, 0.2, 0])
    luck = (np.arange(10_000) + 0.5) / 10_000
    for level in range(3):
        told = np.bincount([prices.told(level, value) for value in luck], minlength=4) / len(luck)
        np.testing.assert_allclose(told, prices.answers(level), atol=1e-9)


def test_what_nobody_can_tell_is_not_asked_again() -> None:
    truth = np.array([[0, 0, 0], [-1, 1, 0], [5, 2, 1]])
    labels, may_ask = np.full_like(truth, -1), np.ones(truth.shape, dtype=bool)
    prices = Prices.of(TREE.levels, {}, {"species": 0.5, "family": 0.2})
    for sample, (level, luck) in enumerate([(0, 0.3), (0, 0.9), (1, 0.1)]):
        answer(prices, truth[sample], labels[sample], may_ask[sample], level, luck)
    assert labels.tolist() == [[-1, 0, 0], [-1, 1, 0], [-1, -1, 1]]
    assert (may_ask & (labels < 0)).tolist() == [[False] * 3] * 3
    answer(prices, truth[0], labels[0], may_ask[0], 2, 0.9)
    assert labels[0].tolist() == [-1, 0, 0]  # what was known stays known


# ---- the opinion ---------------------------------------------------------------------------------------------------


def test_an_opinion_keeps_to_known_labels_and_finds_the_others() -> None:
    x, truth, labels = made_up(300, known=0.4)
    found = form_opinion(x, labels, TREE)
    assert found is not None
    for k, probs in enumerate(found.by_level()):
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
        known = labels[:, k] >= 0
        np.testing.assert_allclose(probs[known, labels[known, k]], 1, atol=1e-5)
    assert ((found.answers(x) == truth).mean(axis=0) > [0.75, 0.9, 0.95]).all()
    assert form_opinion(x, np.full_like(labels, -1), TREE) is None


def test_families_alone_are_enough_for_an_opinion_about_families() -> None:
    x, truth, _ = made_up(200)
    labels = np.where((np.arange(200) < 60)[:, None] & (np.arange(3) > 0), truth, -1)
    found = form_opinion(x, labels, TREE)
    assert found is not None
    assert ((found.answers(x) == truth).mean(axis=0)[1:] > 0.9).all()
    leaves = found.by_level()[0]
    np.testing.assert_allclose(leaves[:, 0], leaves[:, 1], atol=1e-5)  # nothing tells two species of one family apart


def test_each_label_is_judged_without_itself() -> None:
    """Against class means that are computed again without each sample, in float64."""
    x, _, labels = made_up(80, known=0.8)
    z = torch.nn.functional.normalize(x.double(), dim=1)
    possible = torch.from_numpy(opinion.possible_leaves(labels, TREE))
    targets = opinion.first_targets(labels, possible).double()
    mass = targets.sum(dim=0)
    bias, share = torch.linspace(-0.2, -0.1, 6).double(), torch.linspace(-1, 0, 6).double()
    rows = [n for n in range(80) if (labels[n] >= 0).any()]
    best = {}
    for t in opinion.SHARPNESS.tolist():
        total = 0.0
        for n in rows:
            score = torch.empty(6).double()
            for c in range(6):
                weights = targets[:, c].clone()
                weights[n] = 0
                mean = (weights @ z) / weights.sum() if weights.sum() >= 0.3 else None
                score[c] = t * (-1.0 if mean is None else z[n] @ mean + bias[c]) + share[c]
            likely = torch.log_softmax(score, 0)[possible[n]].logsumexp(0)
            total += max(float(likely), -12)
        best[t] = total
    means = targets.T @ z / mass.unsqueeze(1)
    found = opinion.choose_sharpness(z[rows], targets[rows], means, mass, bias, share, possible[rows])
    assert found == max(best, key=best.__getitem__)


def test_components_are_those_of_either_matrix_of_products() -> None:
    wide = np.random.default_rng(0).normal(size=(12, 30)).astype(np.float32)
    x = torch.from_numpy(wide)
    kept = Space.of(wide)(wide)
    centred = x - x.mean(dim=0)
    torch.testing.assert_close(kept @ kept.T, centred @ centred.T, atol=1e-3, rtol=1e-3)
    square_roots = Space.of(np.abs(wide))
    assert square_roots.root


# ---- strategies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(all_strategies()))
def test_questions_stay_within_the_budget_and_ask_what_is_unknown_once(name: str) -> None:
    now = situation()
    found = choose(name, now)
    assert math.fsum(q.cost for q in found) <= now.budget
    assert len({(q.sample, q.level) for q in found}) == len(found)
    assert all(now.labels[q.sample, q.level] < 0 and q.cost == now.prices.cost[q.level] and q.why for q in found)
    seen: dict[int, int] = {}
    for q in found:
        assert q.level < seen.get(q.sample, 3)  # a species says what the family is
        seen[q.sample] = q.level
    assert found == choose(name, now)


@pytest.mark.parametrize("name", sorted(all_strategies()))
def test_all_money_is_spent_while_there_is_something_to_ask(name: str) -> None:
    now = situation(budget=10.05)
    left = now.budget - math.fsum(q.cost for q in choose(name, now))
    assert left < (0.05 if name in ("ours", "random-levels") else 1)


@pytest.mark.parametrize("name", sorted(all_strategies()))
def test_without_labels_strategies_work_or_say_why_not(name: str) -> None:
    now = situation(known=0)
    if find_strategy(name).needs_labels:
        with pytest.raises(DataError, match=f"the strategy {name} needs some labels to start from"):
            choose(name, now)
    else:
        assert choose(name, now)


def test_nothing_left_to_ask_is_one_sentence() -> None:
    now = situation()
    full = Situation(now.keys, now.labels, TREE, now.space, now.probs, np.zeros_like(now.open), PRICES, now.target, 5, 0)
    with pytest.raises(DataError, match="nothing is left to ask: every sample is labelled"):
        choose("ours", full)


def test_an_unknown_strategy_is_told() -> None:
    with pytest.raises(ConfigError, match="unknown strategy 'typicl': did you mean typical"):
        find_strategy("typicl")


def test_margin_and_entropy_rank_by_their_definition() -> None:
    now = situation(prices=Prices.of(TREE.levels, {"species": 1}), budget=60)
    probs = now.believed[0].astype(np.float64)
    leads = [sorted(row)[-1] - sorted(row)[-2] for row in probs]
    bits = [-sum(p * math.log2(p) for p in row if p > 0) for row in probs]
    order = [q.sample for q in choose("margin", now)]
    np.testing.assert_allclose([leads[i] for i in order], sorted(leads[i] for i in order), atol=1e-6)
    order = [q.sample for q in choose("entropy", now)]
    np.testing.assert_allclose([-bits[i] for i in order], sorted(-bits[i] for i in order), atol=1e-6)


def test_typicality_is_one_over_the_mean_distance_to_the_nearest() -> None:
    space = situation().space
    for i in range(len(space)):
        far = sorted(math.dist(space[i].astype(float), other.astype(float)) for j, other in enumerate(space) if j != i)
        assert spread.typicality(space, 20)[i] == pytest.approx(20 / sum(far[:20]), rel=1e-4)


def test_typical_takes_the_most_typical_of_the_emptiest_and_largest_cluster() -> None:
    now = situation(prices=Prices.of(TREE.levels, {"species": 1}), budget=6)
    labelled = now.labels[:, 0] >= 0
    group = spread.clusters(now.space, int(labelled.sum()) + 6, now.seed)
    score, taken = spread.typicality(now.space), set(np.flatnonzero(labelled).tolist())
    for q in choose("typical", now):
        options = []
        for c in set(group.tolist()):
            inside = [i for i in range(len(now)) if group[i] == c]
            free = [i for i in inside if i not in taken]
            if free:
                options.append((len(inside) <= spread.SMALL, len([i for i in inside if i in taken]), -len(inside), c, free))
        *_, free = min(options)
        assert q.sample == max(free, key=lambda i: score[i])
        taken.add(q.sample)


def test_coverage_is_greedy_over_balls() -> None:
    now = situation(prices=Prices.of(TREE.levels, {"species": 1}), budget=8)
    radius = spread.pure_radius(now.space, 6, now.seed)
    far = 1 - now.space.astype(np.float64) @ now.space.astype(np.float64).T
    balls = [{j for j in range(len(now)) if far[i, j] <= radius + 1e-6} for i in range(len(now))]
    covered = set().union(*(balls[i] for i in range(len(now)) if now.labels[i, 0] >= 0))
    for q in choose("coverage", now):
        gains = [len(ball - covered) if now.open[i, 0] else -1 for i, ball in enumerate(balls)]
        assert gains[q.sample] == max(gains)
        covered |= balls[q.sample]


def naive_worth(now: Situation, left: Any, i: int, k: int) -> tuple[float, Any]:
    """The worth of a question by the formula in the file's docstring, and what is left after it; float64, no arrays."""
    cosines = now.space.astype(np.float64) @ now.space.astype(np.float64).T
    others = sorted((j for j in range(len(now)) if j != i), key=lambda j: -cosines[i, j])[: worth.NEAREST]
    probs = [p.astype(np.float64) for p in now.believed]
    chance = now.prices.answers(k)
    total, after = 0.0, left.copy()
    for j in [i, *others]:
        bits = [-sum(p * math.log(p) for p in probs[h][j] if p > 0) for h in range(3)]
        for h in range(3):
            share = 0.0
            for m in range(k, 3):
                top = max(m, h)
                near = 1.0 if j == i else max(cosines[i, j], 0) ** worth.POWER * float(probs[top][i] @ probs[top][j])
                part = 1.0 if m <= h else 0.5 * min(1.0, bits[m] / max(bits[h], 1e-9))
                share += chance[m] * near * part
            total += left[j, h] * share
            after[j, h] = left[j, h] * (1 - share)
    return total, after


@pytest.mark.parametrize("unable", [{}, {"species": 0.4, "family": 0.1}])
def test_ours_is_greedy_by_the_formula(unable: dict[str, float]) -> None:
    now = situation(prices=Prices.of(TREE.levels, {"species": 1, "family": 0.2, "order": 0.05}, unable), budget=1.5)
    pairs = [[sorted(map(float, now.believed[h][j]))[-2:] for h in range(3)] for j in range(len(now))]
    left = np.array([[(1 - (first - second)) / 3 for second, first in row] for row in pairs])
    np.testing.assert_allclose(worth.doubts(now), left, atol=1e-6)
    given = worth.Worth(now, worth.tied(now))
    all_at_once = given.of_all()
    for i, k in itertools.product(range(0, len(now), 7), range(3)):
        assert all_at_once[i, k] == pytest.approx(naive_worth(now, left, i, k)[0], rel=1e-3, abs=1e-6)
    money, deepest = 1.5, dict.fromkeys(range(len(now)), 3)
    for q in choose("ours", now):
        found = {
            (i, k): naive_worth(now, left, i, k)[0] / now.prices.cost[k]
            for i, k in itertools.product(range(len(now)), range(3))
            if now.open[i, k] and k < deepest[i] and now.prices.cost[k] <= money + 1e-9
        }
        assert found[q.sample, q.level] == pytest.approx(max(found.values()), rel=1e-3)
        left = naive_worth(now, left, q.sample, q.level)[1]
        deepest[q.sample], money = q.level, money - q.cost


def test_prices_and_targets_decide_which_levels_ours_asks() -> None:
    def levels(target: Any, budget: float = 6, **cost: float) -> set[int]:
        prices = Prices.of(TREE.levels, cost)
        return {q.level for q in choose("ours", situation(target=target, prices=prices, budget=budget))}

    orders, species = np.eye(3)[2], np.eye(3)[0]
    assert levels(species, species=1, family=1, order=1) == {0}  # nothing is cheaper, and species say most
    assert levels(orders, 1, species=1, family=0.2, order=0.05) == {2}  # orders are cheap, and enough


def test_for_the_finest_level_alone_ours_begins_with_typical_samples_until_each_class_has_a_few_labels() -> None:
    now = situation(target=np.eye(3)[0], budget=30)
    now = dataclasses.replace(now, probs=even_probs(now.labels, TREE))  # families are in doubt, too
    missing = worth.FEW * 6 - int((now.labels[:, 0] >= 0).sum())
    first = choose("typical", dataclasses.replace(now, budget=missing))
    found = choose("ours", now)
    assert 0 < missing < 30
    assert [(q.sample, q.level) for q in found[:missing]] == [(q.sample, 0) for q in first]
    assert {1, 2} & {q.level for q in found[missing:]}  # then coarse answers are weighed, too
    assert sum(q.cost for q in found) <= 30 + 1e-6
    assert len({(q.sample, q.level) for q in found}) == len(found)


def test_covering_looks_at_what_has_no_label_near() -> None:
    now = situation(target=None, prices=Prices.of(TREE.levels, {"species": 1}))
    left = worth.Worth(now, worth.tied(now)).left
    labelled = now.labels[:, 0] >= 0
    assert (left[labelled, 0] == 0).all()
    assert left[~labelled, 0].min() < left[~labelled, 0].max() <= 1 / 3


def test_even_probabilities_are_confined_to_known_labels() -> None:
    species, family, order = even_probs(np.array([[-1, -1, 0], [-1, -1, -1], [5, 2, 1]]), TREE)
    np.testing.assert_allclose(species[0], [0.25, 0.25, 0.25, 0.25, 0, 0])
    np.testing.assert_allclose(family[1], [1 / 3] * 3)
    np.testing.assert_allclose(order[2], [0, 1])


# ---- scikit-activeml -----------------------------------------------------------------------------------------------


def test_without_scikit_activeml_its_strategies_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skactiveml", None)
    with pytest.raises(MissingExtraError, match=r"the strategy skactiveml:TypiClust needs an optional package: .*\[peers\]"):
        find_strategy("skactiveml:TypiClust")
