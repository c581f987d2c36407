"""Targets for unknown labels: from neighbours, from the model, when they are made, and the loss they are for."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NoReturn

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import Tensor

from torchlht.heads.prediction import masked_cross_entropy, soft_cross_entropy, towards_uniform
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi import propagation, schedule
from torchlht.learn.semi.propagation import (
    POWER,
    POWERS,
    TYPICAL,
    Propagation,
    affinity,
    choose_sharpness,
    class_means,
    even,
    fill_block,
    hidden_alike,
    neighbours,
    one_hot,
    propagate,
    spread,
    squared_norms,
    whiten,
    with_ancestors,
)
from torchlht.learn.semi.schedule import Semi
from torchlht.learn.semi.targets import MOST, Block, Targets, balance, combine, find_blocks, known_shares, possible, posterior
from trees import hierarchies, normal, paths, quick, random_labels, seeds

TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 1]])
LABELS = np.array(
    [[0, 0, 0], [1, 0, 0], [-1, 0, 0], [-1, 0, 0], [4, 1, 0], [-1, -1, 0], [-1, -1, -1], [-1, 2, 1], [6, 2, 1], [0, 0, 0]]
)
reductions = st.sampled_from(["per_level_mean", "per_sample"])


def random_targets(rng: np.random.Generator, n: int, classes: int, width: int = 3) -> Targets:
    """Some of them without a target, the others with weights of their own."""
    index = rng.permuted(np.tile(np.arange(classes), (n, 1)), axis=1)[:, :width]
    value = rng.dirichlet(np.ones(width), n) * (rng.random((n, 1)) < 0.8)
    weight = rng.random(n) * (value.sum(axis=1) > 0)
    return Targets(torch.from_numpy(index), torch.from_numpy(value).float(), torch.from_numpy(weight).float())


def dense(targets: Targets, classes: int) -> np.ndarray:
    """(N, classes) by a loop."""
    full = np.zeros((len(targets), classes))
    for n in range(len(targets)):
        for c, p in zip(targets.index[n].tolist(), targets.value[n].tolist(), strict=True):
            full[n, c] += p
    return full


def under(tree: Hierarchy, labels: np.ndarray) -> np.ndarray:
    """(N, C_1) bool: the finest classes that no known label of a sample excludes."""
    allowed = np.ones((len(labels), tree.sizes[0]), dtype=bool)
    for n, row in enumerate(labels.tolist()):
        for leaf in range(tree.sizes[0]):
            allowed[n, leaf] = all(y in (-1, above) for y, above in zip(row, tree.path(leaf), strict=True))
    return allowed


# ---- targets -------------------------------------------------------------------------------------------------------


@quick
@given(n=st.integers(1, 6), classes=st.integers(3, 9), seed=seeds)
def test_targets_survive_the_way_to_a_matrix_and_back(n, classes, seed):
    targets = random_targets(np.random.default_rng(seed), n, classes)
    matrix = targets.matrix(classes)
    back = Targets.from_matrix(matrix)
    np.testing.assert_allclose(matrix.toarray(), dense(targets, classes), rtol=1e-6)
    np.testing.assert_allclose(dense(back, classes), dense(targets, classes), rtol=1e-5)
    np.testing.assert_allclose(back.weight.numpy(), dense(targets, classes).max(axis=1), rtol=1e-5)


def test_padding_leaves_no_entries_in_the_matrix():
    assert one_hot(LABELS, width=4).matrix(8).nnz == 5


def test_the_best_class_is_the_most_probable_one_and_minus_one_without_a_target():
    index, value = torch.tensor([[4, 2, 7], [1, 0, 3], [5, 5, 5]]), torch.tensor([[0.2, 0.7, 0.1], [0, 0, 0], [0, 0, 1.0]])
    assert Targets(index, value, value.amax(dim=1)).best().tolist() == [2, -1, 5]


def test_targets_of_some_samples_are_those_of_their_rows():
    targets = random_targets(np.random.default_rng(0), 6, 5)
    some = targets.at(torch.tensor([4, 1]))
    np.testing.assert_array_equal(dense(some, 5), dense(targets, 5)[[4, 1]])
    assert torch.equal(some.weight, targets.weight[[4, 1]])


def test_of_too_many_candidates_the_most_probable_are_kept_and_sum_to_one():
    rng = np.random.default_rng(1)
    index = np.stack([rng.permutation(200)[: MOST + 30] for _ in range(4)])
    value = rng.random(index.shape)
    value[2] = 0
    found = Targets.from_candidates(torch.from_numpy(index), torch.from_numpy(value).float())
    assert found.index.shape == (4, MOST)
    for n in (0, 1, 3):
        kept = sorted(zip(value[n], index[n], strict=True), reverse=True)[:MOST]
        assert set(found.index[n].tolist()) == {c for _, c in kept}
        for p, c in kept:
            assert found.value[n, found.index[n] == c].item() == pytest.approx(p / sum(p for p, _ in kept), rel=1e-5)
    assert found.value[2].count_nonzero() == 0
    assert found.weight[2] == 0


def test_blocks_are_the_samples_with_the_same_deepest_label_finer_ones_first():
    found = [
        (block.level, block.rows.tolist(), block.leaves.tolist(), block.deeper.tolist()) for block in find_blocks(LABELS, TREE)
    ]
    assert found == [
        (1, [2, 3], [0, 1, 2], [0, 1, 9]),
        (1, [7], [5, 6, 7], [8]),
        (2, [5], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 9]),
        (3, [6], list(range(8)), [0, 1, 2, 3, 4, 5, 7, 8, 9]),
    ]


def test_there_are_no_blocks_when_everything_is_known():
    assert find_blocks(paths(TREE, np.random.default_rng(0), 9).numpy(), TREE) == []


def test_a_finest_class_seen_with_a_coarse_label_is_possible_there_whatever_the_tree_says():
    first, second = find_blocks(np.array([[-1, 0, 0], [3, 0, 0], [3, 1, 0], [-1, 1, 0], [6, 2, 1]]), TREE)
    assert first.leaves.tolist() == [0, 1, 2, 3]
    assert second.leaves.tolist() == [3, 4]


@quick
@given(tree=hierarchies(), seed=seeds)
def test_every_sample_without_a_finest_label_is_in_one_block_with_the_leaves_under_its_label(tree, seed):
    labels = with_ancestors(random_labels(tree, np.random.default_rng(seed), 12).numpy(), tree)
    blocks = find_blocks(labels, tree)
    rows = [n for block in blocks for n in block.rows.tolist()]
    assert sorted(rows) == [n for n in range(12) if labels[n, 0] < 0]
    for block in blocks:
        for row in under(tree, labels[block.rows]):
            assert block.leaves.tolist() == np.flatnonzero(row).tolist()


def test_shares_are_counts_of_known_labels_and_one_more_where_there_is_any():
    family, _, order, everything = find_blocks(LABELS, TREE)
    np.testing.assert_allclose(known_shares(LABELS, family), np.array([3, 2, 0]) / 5, rtol=1e-6)
    np.testing.assert_allclose(known_shares(LABELS, order), np.array([3, 2, 0, 0, 2]) / 7, rtol=1e-6)
    np.testing.assert_allclose(known_shares(LABELS, everything), np.array([3, 2, 0, 0, 2, 0, 2, 0]) / 9, rtol=1e-6)


def test_nothing_has_a_share_where_no_label_is_known():
    block = Block(level=1, rows=np.array([0]), leaves=np.array([3, 4]), deeper=np.array([], dtype=np.int64))
    assert known_shares(np.array([[-1, 1, 0]]), block).tolist() == [0, 0]


def test_balancing_reaches_the_shares_and_gives_nothing_to_a_class_without_one():
    rng = np.random.default_rng(2)
    shares = torch.tensor([0.5, 0.3, 0.0, 0.2])
    index = torch.from_numpy(rng.permuted(np.tile(np.arange(4), (50, 1)), axis=1))
    value = torch.softmax(normal(rng, 50, 4, dtype=torch.float32), dim=1)
    before = np.abs(dense(Targets(index, value, value[:, 0]), 4).mean(axis=0) - shares.numpy()).max()
    for rounds, tolerance in ((5, 0.02), (200, 1e-4)):
        found = balance(index, value, shares, rounds)
        columns = dense(Targets(index, found, found[:, 0]), 4).mean(axis=0)
        np.testing.assert_allclose(found.sum(dim=1), 1, rtol=1e-5)
        np.testing.assert_allclose(columns, shares.numpy(), atol=tolerance)
        assert columns[2] == 0
    assert before > 0.2


def test_balancing_takes_columns_and_rows_by_turns():
    rng = np.random.default_rng(3)
    shares, value = np.array([0.6, 0.1, 0.3]), rng.dirichlet(np.ones(3), 7)
    index = rng.permuted(np.tile(np.arange(3), (7, 1)), axis=1)
    found = balance(torch.from_numpy(index), torch.from_numpy(value), torch.from_numpy(shares), rounds=2)
    for _ in range(2):
        mass = [sum(value[n, j] for n in range(7) for j in range(3) if index[n, j] == c) for c in range(3)]
        value = np.array([[value[n, j] * shares[index[n, j]] * 7 / mass[index[n, j]] for j in range(3)] for n in range(7)])
        value = np.array([row / row.sum() for row in value])
    np.testing.assert_allclose(found.numpy(), value, rtol=1e-10)


def conditional(log_p: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    p = [math.exp(x) if a else 0.0 for x, a in zip(log_p, allowed, strict=True)]
    return np.array(p) / sum(p)


@quick
@given(classes=st.integers(1, 9), two=st.booleans(), sharpness=st.sampled_from([1.0, 2.0]), seed=seeds)
def test_what_is_possible_equals_a_naive_loop(classes, two, sharpness, seed):
    rng = np.random.default_rng(seed)
    first, second = (torch.log_softmax(normal(rng, 5, classes), dim=1) for _ in range(2))
    allowed = rng.random((5, classes)) < 0.6
    allowed[np.arange(5), rng.integers(0, classes, 5)] = True
    other = second if two else None
    index, value, agreement = possible(first, torch.from_numpy(allowed), other=other, sharpness=sharpness)
    found = dense(Targets(index, value, agreement), classes)
    for n in range(5):
        p = conditional(first[n].numpy(), allowed[n])
        q = conditional(second[n].numpy(), allowed[n]) if two else p
        both = np.sqrt(p * q)
        np.testing.assert_allclose(found[n], both**sharpness / (both**sharpness).sum(), rtol=1e-4, atol=1e-6)
        assert agreement[n].item() == pytest.approx(both.sum(), rel=1e-5)


def test_views_that_say_the_same_agree_fully_and_less_the_more_they_differ():
    log_p = torch.log(torch.tensor([[0.9, 0.1]] * 3))
    other = torch.log(torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]]))
    _, _, agreement = possible(log_p, torch.ones(3, 2, dtype=torch.bool), other=other)
    assert agreement[0].item() == pytest.approx(1)
    assert agreement[0] > agreement[1] > agreement[2]
    assert agreement[2].item() == pytest.approx(2 * math.sqrt(0.09))


def test_a_view_that_differs_only_in_what_is_impossible_agrees():
    log_p, other = torch.log(torch.tensor([[0.4, 0.2, 0.4]])), torch.log(torch.tensor([[0.2, 0.1, 0.7]]))
    _, _, agreement = possible(log_p, torch.tensor([[True, True, False]]), other=other)
    assert agreement.item() == pytest.approx(1)


def asked(rng: np.random.Generator, labels: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """What `possible` says of these samples on `TREE`."""
    log_p, other = (torch.log_softmax(normal(rng, len(labels), 8, dtype=torch.float32), dim=1) for _ in range(2))
    return possible(log_p, torch.from_numpy(under(TREE, labels)), other=other)


def test_a_posterior_is_confined_to_its_block_and_as_frequent_as_known_labels():
    rng = np.random.default_rng(4)
    labels = np.concatenate([LABELS, np.tile([[-1, 0, 0], [-1, 2, 1]], (60, 1))])
    index, value, agreement = asked(rng, labels)
    found = posterior(index, value, agreement, labels, find_blocks(labels, TREE), 8)
    matrix = dense(found, 8)
    assert (matrix[~under(TREE, labels)] == 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(matrix[10::2].mean(axis=0)[:3], [0.6, 0.4, 0], atol=0.03)
    np.testing.assert_allclose(matrix[11::2, 6], 1, rtol=1e-5)  # the only class of its family with a label
    np.testing.assert_allclose(found.weight.numpy(), matrix.max(axis=1) * agreement.numpy(), rtol=1e-5)


def test_a_posterior_where_no_class_has_a_label_is_no_target():
    labels = np.concatenate([LABELS[:4], [[-1, 2, 1]]])
    found = posterior(*asked(np.random.default_rng(5), labels), labels, find_blocks(labels, TREE), 8)
    assert found.best()[4] == -1
    assert (found.best()[2:4] >= 0).all()


@quick
@given(classes=st.integers(3, 8), seed=seeds)
def test_combined_targets_are_the_mean_weighted_by_confidence(classes, seed):
    rng = np.random.default_rng(seed)
    first, second = random_targets(rng, 6, classes, 2), random_targets(rng, 6, classes, 3)
    a, b, found = dense(first, classes), dense(second, classes), combine(first, second, classes)
    for n in range(6):
        u, v = first.weight[n].item(), second.weight[n].item()
        expected = (u * a[n] + v * b[n]) / (u + v) if u + v > 0 else np.zeros(classes)
        np.testing.assert_allclose(dense(found, classes)[n], expected, rtol=1e-4, atol=1e-6)
        assert found.weight[n].item() == pytest.approx(expected.max(), rel=1e-4)


# ---- metric --------------------------------------------------------------------------------------------------------


def test_features_that_are_never_negative_are_centred_square_roots():
    x = np.random.default_rng(0).exponential(size=(20, 4))
    x[:, 1] = 0
    roots = np.sqrt(x)
    np.testing.assert_allclose(even(torch.from_numpy(x)).numpy(), roots - roots.mean(axis=0), atol=1e-6)


def test_features_of_which_one_is_negative_are_centred_alone():
    x = np.random.default_rng(0).exponential(size=(20, 4))
    x[3, 2] = -0.1
    np.testing.assert_allclose(even(torch.from_numpy(x)).numpy(), x - x.mean(axis=0), atol=1e-6)


def grouped(rng: np.random.Generator, n: int, d: int, groups: int) -> tuple[Tensor, np.ndarray]:
    """Features with unequal spread, and soft memberships of which every fifth is empty."""
    members = rng.dirichlet(np.full(groups, 0.3), n)
    members[::5] = 0
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + members @ rng.normal(scale=3, size=(groups, d))
    return even(torch.from_numpy(x)), members.astype(np.float32)


def naive_scatter(x: np.ndarray, members: np.ndarray) -> np.ndarray:
    """Σ_g Σ_n w_ng (x_n - m_g)(x_n - m_g)ᵀ over Σ w."""
    scatter = np.zeros((x.shape[1], x.shape[1]))
    for g in range(members.shape[1]):
        mean = sum(members[n, g] * x[n] for n in range(len(x))) / members[:, g].sum()
        for n in range(len(x)):
            scatter += members[n, g] * np.outer(x[n] - mean, x[n] - mean)
    return scatter / members.sum()


@pytest.mark.parametrize("shrinkage", [0.0, 0.5, 0.9])
def test_whitening_equals_a_naive_computation(shrinkage):
    x, members = grouped(np.random.default_rng(1), 60, 4, 3)
    scatter = naive_scatter(x.double().numpy(), members.astype(np.float64))
    scatter = (1 - shrinkage) * scatter + shrinkage * np.eye(4) * np.trace(scatter) / 4
    expected = x.double().numpy() @ np.linalg.inv(np.linalg.cholesky(scatter)).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(whiten(x, csr_array(members), shrinkage).numpy(), expected, atol=1e-3)


def test_without_shrinkage_the_scatter_within_groups_is_the_same_in_all_directions():
    x, members = grouped(np.random.default_rng(2), 120, 5, 3)
    inverse = np.linalg.inv(naive_scatter(x.double().numpy(), members.astype(np.float64)))
    lengths = np.sqrt(np.einsum("nd,de,ne->n", x.double().numpy(), inverse, x.double().numpy()))  # before normalising
    z = whiten(x, csr_array(members), 0.0).double().numpy() * lengths[:, None]
    np.testing.assert_allclose(naive_scatter(z, members.astype(np.float64)), np.eye(5), atol=0.01)


def test_with_full_shrinkage_only_lengths_change():
    x, members = grouped(np.random.default_rng(3), 40, 4, 3)
    np.testing.assert_allclose(whiten(x, csr_array(members), 1.0), F.normalize(x, dim=1), atol=1e-5)


def test_whitened_features_have_unit_length():
    x, members = grouped(np.random.default_rng(4), 40, 6, 2)
    np.testing.assert_allclose(whiten(x, csr_array(members)).norm(dim=1), 1, rtol=1e-5)


def test_rotated_features_have_the_same_cosines():
    rng = np.random.default_rng(5)
    x, members = grouped(rng, 50, 6, 3)
    rotation = torch.from_numpy(np.linalg.qr(rng.normal(size=(6, 6)))[0]).float()
    z, turned = whiten(x, csr_array(members)), whiten(x @ rotation, csr_array(members))
    assert (z @ z.T - turned @ turned.T).abs().max() < 1e-4
    assert (z - turned).abs().max() > 0.1


# ---- graph ---------------------------------------------------------------------------------------------------------


def clustered(rng: np.random.Generator, n: int, d: int, centres: int) -> Tensor:
    x = rng.normal(size=(centres, d))[rng.integers(0, centres, n)] + rng.normal(scale=0.5, size=(n, d))
    return F.normalize(torch.from_numpy(x).float(), dim=1)


def brute_force(x: Tensor, k: int) -> np.ndarray:
    cosines = (x @ x.T).numpy()
    np.fill_diagonal(cosines, -np.inf)
    return np.argsort(-cosines, axis=1)[:, :k]


@pytest.mark.parametrize("pairs", [1, 100, 2**24])
def test_neighbours_are_those_of_brute_force_however_many_at_a_time(pairs, monkeypatch):
    monkeypatch.setattr(propagation, "PAIRS", pairs)
    x = clustered(np.random.default_rng(0), 40, 5, 4)
    cosines, found = neighbours(x, 6)
    np.testing.assert_array_equal(found.numpy(), brute_force(x, 6))
    np.testing.assert_allclose(cosines, (x @ x.T).gather(1, found), atol=1e-6)


def test_no_sample_is_its_own_neighbour_even_if_others_are_the_same():
    x = F.normalize(torch.ones(5, 3), dim=1)
    _, found = neighbours(x, 9)
    assert [sorted(row) for row in found.tolist()] == [[j for j in range(5) if j != n] for n in range(5)]


def test_many_samples_find_most_of_their_neighbours_in_the_nearest_cells():
    x = clustered(np.random.default_rng(1), 2000, 16, 40)
    cosines, found = neighbours(x, 10, exact=100)
    truth = brute_force(x, 10)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    assert 0.8 <= recall < 1
    assert (found != torch.arange(2000).unsqueeze(1)).all()
    np.testing.assert_allclose(cosines, (x @ x.T).gather(1, found), atol=1e-5)


def test_ties_are_symmetric_not_negative_and_equal_a_naive_computation():
    x = clustered(np.random.default_rng(2), 25, 3, 6)
    cosines, found = neighbours(x, 12)
    assert (cosines < 0).any()
    weights = np.zeros((25, 25))
    for n in range(25):
        for c, j in zip(cosines[n].tolist(), found[n].tolist(), strict=True):
            weights[n, j] = max(weights[n, j], max(c, 0) ** 3)
            weights[j, n] = max(weights[j, n], max(c, 0) ** 3)
    degree = weights.sum(axis=1)
    expected = [[weights[n, j] / math.sqrt(degree[n] * degree[j]) for j in range(25)] for n in range(25)]
    ties = affinity(cosines, found).toarray()
    np.testing.assert_allclose(ties, expected, atol=1e-6)
    np.testing.assert_allclose(ties, ties.T, atol=1e-7)
    assert (ties >= 0).all()


@dataclasses.dataclass
class Seeded:
    """A graph, labels on some of its samples, and what to report."""

    ties: csr_array
    seeds: np.ndarray
    rows: np.ndarray
    columns: np.ndarray

    def spread(self, **options: float) -> np.ndarray:
        return spread(self.ties, csr_array(self.seeds), self.rows, self.columns, **options)

    def asked(self, full: np.ndarray) -> list[list[float]]:
        return [[full[n, c] for c in row] for n, row in zip(self.rows, self.columns, strict=True)]


@pytest.fixture
def seeded() -> Seeded:
    rng = np.random.default_rng(3)
    labels = np.eye(5, dtype=np.float32)[rng.integers(0, 5, 30)] * (rng.random((30, 1)) < 0.4)
    columns = rng.permuted(np.tile(np.arange(5), (12, 1)), axis=1)[:, :3]
    return Seeded(affinity(*neighbours(clustered(rng, 30, 4, 5), 5)), labels, rng.permutation(30)[:12], columns)


def test_labels_spread_to_the_closed_form(seeded):
    full = 0.1 * np.linalg.solve(np.eye(30) - 0.9 * seeded.ties.toarray().astype(np.float64), seeded.seeds)
    np.testing.assert_allclose(seeded.spread(steps=300), seeded.asked(full), atol=1e-5)


def test_one_step_takes_from_neighbours_what_is_not_kept(seeded):
    full = 0.7 * seeded.ties.toarray() @ seeded.seeds + 0.3 * seeded.seeds
    np.testing.assert_allclose(seeded.spread(keep=0.7, steps=1), seeded.asked(full), atol=1e-6)


def test_labels_spread_alike_however_many_classes_at_a_time(seeded, monkeypatch):
    expected = seeded.spread()
    monkeypatch.setattr(propagation, "COLUMNS", 2)
    np.testing.assert_allclose(seeded.spread(), expected, atol=1e-7)
    assert (expected > 0).any()


# ---- propagation ---------------------------------------------------------------------------------------------------

FAMILIES = Hierarchy.from_parents([[c // 3 for c in range(12)], [0, 0, 1, 1]])


@dataclasses.dataclass
class Clusters:
    """Gaussian classes under `FAMILIES`, two labels each; of the other samples the family is known."""

    features: Tensor
    truth: np.ndarray  # (N, 3)
    labels: np.ndarray

    def propagate(self, **options: float) -> Propagation:
        return propagate(self.features, self.labels, FAMILIES, **options)

    def right(self, found: Propagation) -> float:
        """Share of right ones among samples without a finest label."""
        unknown = self.labels[:, 0] < 0
        return float((found.targets.best().numpy() == self.truth[:, 0])[unknown].mean())

    def known_to(self, level: int, rows: np.ndarray) -> Clusters:
        """The same with nothing known of some samples below a level."""
        labels = self.labels.copy()
        labels[rows, :level] = -1
        return dataclasses.replace(self, labels=labels)


def make_clusters(*, labels: int = 2, each: int = 30, separation: float = 0.7) -> Clusters:
    rng = np.random.default_rng(0)
    fine = rng.permutation(np.repeat(np.arange(12), each))
    x = separation * rng.normal(size=(12, 16))[fine] + rng.normal(size=(len(fine), 16))
    truth = np.stack([FAMILIES.ancestors(k)[fine] for k in range(3)], axis=1)
    known = truth.copy()
    for c in range(12):
        known[np.flatnonzero(fine == c)[labels:], 0] = -1
    return Clusters(torch.from_numpy(x).float(), truth, known)


CLUSTERS = make_clusters()
SMALL = make_clusters(each=8, separation=1.0)
UNKNOWN = np.flatnonzero(SMALL.labels[:, 0] < 0)
MIXED = SMALL.known_to(2, UNKNOWN[::3]).known_to(3, UNKNOWN[1::3])  # families, orders, nothing: a third each


@pytest.fixture(scope="module")
def found() -> Propagation:
    return CLUSTERS.propagate()


@pytest.fixture(scope="module")
def mixed() -> Propagation:
    return MIXED.propagate(rounds=1)


def test_most_samples_are_put_right_where_a_third_would_be_by_chance(found):
    assert CLUSTERS.right(found) > 0.8


def test_targets_of_known_samples_are_their_labels(found):
    known = CLUSTERS.labels[:, 0] >= 0
    np.testing.assert_array_equal(dense(found.targets, 12)[known], np.eye(12)[CLUSTERS.labels[known, 0]])
    assert (found.targets.weight.numpy()[known] == 1).all()


def test_targets_are_confined_to_what_the_known_label_allows(found):
    matrix = dense(found.targets, 12)
    assert (matrix[~under(FAMILIES, CLUSTERS.labels)] == 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.targets.weight.numpy(), matrix.max(axis=1), rtol=1e-5)


def test_samples_known_to_any_level_or_none_get_targets_confined_to_it(mixed):
    matrix = dense(mixed.targets, 12)
    assert (matrix[~under(FAMILIES, MIXED.labels)] == 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)
    right = mixed.targets.best().numpy() == MIXED.truth[:, 0]
    for part, chance in ((UNKNOWN[2::3], 1 / 3), (UNKNOWN[::3], 1 / 6), (UNKNOWN[1::3], 1 / 12)):
        assert right[part].mean() > chance + 0.3


def test_a_third_of_the_labels_is_set_aside_to_see_how_many_are_found_again(found, mixed):
    for result in (found, mixed):
        assert result.checked == 12  # one of two in every class
        assert 0.6 < result.accuracy <= 1
        assert result.power in POWERS.tolist()


def test_other_names_give_the_same_targets(mixed):
    rng = np.random.default_rng(1)
    new = [rng.permutation(size) for size in FAMILIES.sizes]
    parents = [np.zeros(12, dtype=int), np.zeros(4, dtype=int)]
    for k in range(2):
        for c, above in enumerate(FAMILIES.parents[k]):
            parents[k][new[k][c]] = new[k + 1][above]
    labels = np.stack([np.where(y >= 0, names[y], -1) for y, names in zip(MIXED.labels.T, new, strict=True)], axis=1)
    renamed = propagate(MIXED.features, labels, Hierarchy.from_parents(parents), rounds=1)
    assert renamed.power == pytest.approx(mixed.power)
    np.testing.assert_allclose(dense(renamed.targets, 12)[:, new[0]], dense(mixed.targets, 12), atol=5e-3)


def test_another_order_of_samples_gives_the_same_targets():
    order = np.random.default_rng(2).permutation(len(CLUSTERS.labels))
    moved = propagate(CLUSTERS.features[order], CLUSTERS.labels[order], FAMILIES, power=1.0)
    same = moved.targets.best() == CLUSTERS.propagate(power=1.0).targets.best()[order]
    assert same.float().mean() >= 0.99


def test_a_known_finest_label_says_what_is_above_it(mixed):
    gaps = MIXED.labels.copy()
    known = np.flatnonzero(gaps[:, 0] >= 0)
    gaps[known, 1] = -1
    gaps[known[::2], 2] = -1
    found = propagate(MIXED.features, gaps, FAMILIES, rounds=1)
    assert torch.equal(found.targets.index, mixed.targets.index)
    assert torch.equal(found.targets.value, mixed.targets.value)


def test_a_class_without_any_label_gets_no_mass():
    labels = MIXED.labels.copy()
    labels[labels[:, 0] == 4, 0] = -1
    matrix = dense(propagate(MIXED.features, labels, FAMILIES, rounds=1).targets, 12)
    assert (matrix[:, 4] == 0).all()
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)


def test_a_family_without_any_label_gives_no_target():
    labels = MIXED.labels.copy()
    labels[labels[:, 1] == 1, 0] = -1
    found = propagate(MIXED.features, labels, FAMILIES, rounds=1)
    without = labels[:, 1] == 1
    assert (found.targets.best().numpy()[without] == -1).all()
    assert (found.targets.value[without] == 0).all()
    assert (found.targets.weight[without] == 0).all()
    assert (found.targets.best().numpy()[~without] >= 0).all()


def test_the_only_class_of_a_family_is_certain_and_not_set_aside():
    tree = Hierarchy.from_parents([[0, 1, 1], [0, 0]])
    labels = np.array([[0, 0, 0]] * 4 + [[1, 1, 0], [2, 1, 0]] * 3 + [[-1, 0, 0], [-1, 1, 0]] * 3)
    found = propagate(normal(np.random.default_rng(3), 16, 3), labels, tree)
    np.testing.assert_allclose(dense(found.targets, 3)[10::2], [[1, 0, 0]] * 3, rtol=1e-6)
    assert found.checked == 2


def test_with_a_power_given_nothing_is_set_aside():
    given_power = SMALL.propagate(power=0.5)
    assert (given_power.power, given_power.accuracy, given_power.checked) == (0.5, None, 0)
    plain = dense(SMALL.propagate(power=1.0).targets, 12) ** 0.5
    np.testing.assert_allclose(dense(given_power.targets, 12), plain / plain.sum(axis=1, keepdims=True), atol=1e-5)


def test_one_label_per_class_is_too_few_to_set_any_aside():
    found = make_clusters(labels=1, each=8).propagate()
    assert (found.power, found.accuracy, found.checked) == (POWER, None, 0)
    assert (found.targets.best() >= 0).all()


@pytest.mark.parametrize(("labels", "aside"), [(4, 1), (7, 2)])
def test_of_every_class_about_a_third_is_set_aside(labels, aside):
    assert make_clusters(labels=labels, each=8).propagate(rounds=0).checked == 12 * aside


def test_where_everything_is_known_nothing_is_set_aside():
    found = dataclasses.replace(SMALL, labels=SMALL.truth).propagate()
    assert (found.accuracy, found.checked) == (None, 0)
    np.testing.assert_array_equal(found.targets.best().numpy(), SMALL.truth[:, 0])


def test_targets_are_less_sure_where_labels_cannot_be_found_again():
    noise = make_clusters(labels=4, each=8, separation=0.0).propagate(rounds=1)
    clear = make_clusters(labels=4, each=8, separation=2.0).propagate(rounds=1)
    assert clear.power > noise.power
    assert clear.accuracy > noise.accuracy


def test_a_single_level_needs_no_tree():
    rng = np.random.default_rng(4)
    fine = np.repeat(np.arange(4), 15)
    labels = np.where(np.arange(60) % 15 < 3, fine, -1)[:, None]
    x = normal(rng, 4, 8)[fine] + 0.4 * normal(rng, 60, 8)
    found = propagate(x, labels, Hierarchy.from_parents([], classes=[list("abcd")]))
    assert (found.targets.best().numpy() == fine).mean() > 0.9
    np.testing.assert_allclose(dense(found.targets, 4).sum(axis=1), 1, rtol=1e-5)
    assert found.checked == 4


def test_ancestors_are_filled_in_where_nothing_is_said_and_nothing_else_changes():
    labels = np.array([[5, -1, -1], [5, 0, -1], [5, -1, 0], [-1, 1, -1], [-1, -1, 1], [-1, -1, -1]])
    expected = [[5, 2, 1], [5, 0, 0], [5, 2, 0], [-1, 1, 0], [-1, -1, 1], [-1, -1, -1]]
    before = labels.copy()
    assert with_ancestors(labels, TREE).tolist() == expected
    np.testing.assert_array_equal(labels, before)


def test_class_means_equal_a_naive_loop():
    rng = np.random.default_rng(5)
    z, members = normal(rng, 9, 4, dtype=torch.float32), rng.random((9, 3)).astype(np.float32)
    members[:, 1] = 0
    means, mass = class_means(z, csr_array(members))
    for c in range(3):
        total = sum(members[n, c] for n in range(9))
        mean = sum(members[n, c] * z[n].numpy() for n in range(9)) / total if total else np.zeros(4)
        np.testing.assert_allclose(means[c].numpy(), mean, atol=1e-5)
        assert mass[c].item() == pytest.approx(total)


@pytest.mark.parametrize("n", [2, 4, 9])
def test_squared_norms_are_right_on_average_where_those_of_means_of_few_are_too_long(n):
    rng = np.random.default_rng(6)
    z = F.normalize(torch.tensor([1.0, 0.5, 0, 0, 0]) + 0.4 * normal(rng, 4000, n, 5), dim=2)
    truth = z.mean(dim=(0, 1)).square().sum().item()
    means, mass = z.mean(dim=1), torch.full((4000,), float(n))
    assert squared_norms(means, mass).mean().item() == pytest.approx(truth, abs=0.006)
    assert means.square().sum(dim=1).mean().item() == pytest.approx(truth + (1 - truth) / n, abs=0.006)
    assert (1 - truth) / n > 0.015


def sharpness_of(noise: float, each: int = 6) -> float:
    rng = np.random.default_rng(7)
    fine = np.repeat(np.arange(3), each)
    labels = np.concatenate([np.stack([fine, 0 * fine], axis=1), [[-1, 0]]])
    x = normal(rng, 3, 5)[np.append(fine, 0)] + noise * normal(rng, len(labels), 5)
    z = F.normalize(x, dim=1).float()
    tree = Hierarchy.from_parents([[0, 0, 0]])
    means, mass = class_means(z, one_hot(labels).matrix(3))
    return choose_sharpness(z, means, mass, labels, find_blocks(labels, tree))


def test_classes_are_told_apart_more_sharply_the_tighter_they_are():
    assert sharpness_of(0.1) > sharpness_of(0.7) > sharpness_of(30.0)


def test_the_sharpness_is_a_typical_one_where_no_class_has_two_labels():
    assert sharpness_of(0.1, each=1) == TYPICAL


def test_a_block_is_filled_with_means_times_what_spreads_balanced():
    rng, tree = np.random.default_rng(9), Hierarchy.from_parents([[0, 0, 0, 0]])
    fine = [0] * 6 + [1] * 3 + [3] * 2 + [-1] * 9  # none of class 2
    labels = np.array([[c, 0] for c in fine])
    z = F.normalize(normal(rng, 20, 4, dtype=torch.float32), dim=1)
    (block,), before = find_blocks(labels, tree), one_hot(labels, width=4)
    means, mass = class_means(z, before.matrix(4))
    found = dense(fill_block(before, block, z, means, mass, labels, 10.0, 4), 4)

    inside = [*range(11, 20), *range(11)]
    ties = affinity(*neighbours(z[inside], 4)).toarray().astype(np.float64)
    start = np.array([[float(fine[n] == c) / max(fine.count(c), 1) for c in range(4)] for n in inside])
    spreads = start
    for _ in range(40):
        spreads = 0.9 * ties @ spreads + 0.1 * start
    norms, expected = squared_norms(means, mass), np.zeros((9, 4))
    for n in range(9):
        for c in (0, 1, 3):
            reached = max(spreads[n, c] / spreads[n].sum(), 1e-6)
            expected[n, c] = reached * math.exp(10 * (z[11 + n] @ means[c] - norms[c] / 2))
        expected[n] /= expected[n].sum()
    balanced = balance(torch.arange(4).expand(9, 4), torch.from_numpy(expected), torch.tensor([7, 4, 0, 3]) / 14)
    np.testing.assert_allclose(found[11:], balanced, atol=1e-4)
    np.testing.assert_array_equal(found[:11], dense(before, 4)[:11])


@pytest.mark.parametrize("rounds", [0, 1])
def test_the_metric_is_first_that_within_known_coarse_classes_and_then_that_within_targets(rounds):
    labels, targets = MIXED.labels, one_hot(MIXED.labels, width=12)
    groups = [next(((k, row[k]) for k in (1, 2) if row[k] >= 0), None) for row in labels.tolist()]
    members = csr_array(np.array([[group == g for g in dict.fromkeys(groups)] for group in groups], dtype=np.float32))
    for _ in range(rounds + 1):
        z = whiten(even(MIXED.features), members)
        means, mass = class_means(z, targets.matrix(12))
        for block in find_blocks(labels, FAMILIES):
            targets = fill_block(targets, block, z, means, mass, labels, TYPICAL, 20)
        members = targets.matrix(12)
    found = MIXED.propagate(rounds=rounds, power=1.0)
    np.testing.assert_allclose(dense(found.targets, 12), dense(targets, 12), atol=1e-3)


def test_more_are_put_right_after_rounds_of_metric_and_means():
    rng = np.random.default_rng(1)
    truth = np.stack([FAMILIES.ancestors(k)[np.repeat(np.arange(12), 30)] for k in range(3)], axis=1)
    labels = np.where(np.arange(360)[:, None] % 30 >= 2, truth * [0, 1, 1] - [1, 0, 0], truth)
    x = rng.normal(size=(360, 8)) * ([0.7] * 3 + [2.0] * 5)  # classes differ in three directions, samples in the others
    x[:, :3] += rng.normal(scale=3, size=(12, 3))[truth[:, 0]]
    clusters = Clusters(torch.from_numpy(x), truth, labels)
    first, later = (clusters.right(clusters.propagate(rounds=rounds, power=1.0)) for rounds in (0, 4))
    assert later > first + 0.04


def test_classes_without_labels_do_not_crowd_out_others_however_many_they_are():
    rng, many = np.random.default_rng(10), MOST + 16
    labels = np.concatenate([[[c, 0] for c in (3, 40, 77) for _ in range(3)], [[-1, 0]] * 80])
    found = propagate(normal(rng, 89, 3), labels, Hierarchy.from_parents([[0] * many]), rounds=0)
    matrix = dense(found.targets, many)
    np.testing.assert_allclose(matrix[:, [3, 40, 77]].sum(axis=1), 1, rtol=1e-5)


def test_labels_are_hidden_as_deep_as_unknown_ones_are():
    labels = np.concatenate([paths(TREE, np.random.default_rng(8), 400).numpy(), [[-1, 2, 1]] * 30, [[-1, -1, -1]] * 10])
    held = np.arange(0, 400, 2)
    fewer = hidden_alike(labels, held)
    hidden = (fewer[held] < 0).sum(axis=1)
    assert set(hidden.tolist()) == {1, 3}
    assert (hidden == 1).mean() == pytest.approx(0.75, abs=0.1)
    np.testing.assert_array_equal(fewer[held[hidden == 1]], labels[held[hidden == 1]] * [0, 1, 1] - [1, 0, 0])
    others = np.setdiff1d(np.arange(len(labels)), held)
    np.testing.assert_array_equal(fewer[others], labels[others])


# ---- schedule ------------------------------------------------------------------------------------------------------


HASTY = functools.partial(propagate, rounds=0)


def never() -> NoReturn:
    raise AssertionError("was asked")


@pytest.fixture
def hasty(monkeypatch):
    """Fewer rounds of metric, means and graph, which take the time; and nobody is a stranger."""
    monkeypatch.setattr(schedule, "propagate", HASTY)
    monkeypatch.setattr(schedule, "familiarity", lambda features, labels, sizes: torch.ones(len(labels)))


def make_semi(kind: str = "both", clusters: Clusters = MIXED, *, epochs: int = 9, ready: bool = True) -> Semi:
    return Semi(kind, clusters.labels, FAMILIES, epochs=epochs, ready=ready)


def views(clusters: Clusters = MIXED, batch: int = 40, seed: int = 0) -> Callable[[], list[tuple[np.ndarray, Tensor, Tensor]]]:
    """Random predictions of two views, in batches of another order."""
    rng = np.random.default_rng(seed)
    first, second = (torch.log_softmax(normal(rng, len(clusters.labels), 12, dtype=torch.float32), dim=1) for _ in range(2))
    order = rng.permutation(len(clusters.labels))
    parts = [order[start : start + batch] for start in range(0, len(order), batch)]
    return lambda: [(rows, first[rows], second[rows]) for rows in parts]


@pytest.mark.parametrize(
    ("epochs", "ready", "rounds"),
    [(9, True, [0, 3, 6]), (9, False, [3, 6]), (10, True, [0, 4, 8]), (10, False, [4, 8]), (100, True, [0, 34, 68])],
)
def test_neighbours_are_asked_at_the_start_and_after_each_third(epochs, ready, rounds):
    semi = make_semi(epochs=epochs, ready=ready)
    assert semi.rounds == rounds
    assert semi.trusted == rounds[-2]


@pytest.mark.parametrize("kind", ["propagate", "posterior", "both"])
def test_where_everything_is_known_nothing_is_asked(kind):
    semi = make_semi(kind, dataclasses.replace(SMALL, labels=SMALL.truth))
    assert not semi.needed
    assert [semi.begin(epoch, never, never) for epoch in range(9)] == [{}] * 9
    assert semi.targets is None
    assert make_semi(kind).needed


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("kind", ["propagate", "posterior", "both"])
def test_features_are_asked_for_in_rounds_and_the_model_once_it_is_trusted(kind, ready):
    semi, log = make_semi(kind, ready=ready), []
    for epoch in range(9):
        semi.begin(
            epoch,
            lambda epoch=epoch: log.append(("features", epoch)) or MIXED.features,
            lambda epoch=epoch: log.append(("model", epoch)) or views()(),
        )
        assert (semi.targets is None) == (epoch < (0 if ready and kind != "posterior" else 3))
    rounds = [0, 3, 6] if ready else [3, 6]
    assert [epoch for what, epoch in log if what == "features"] == rounds  # `posterior` looks for strangers
    assert [epoch for what, epoch in log if what == "model"] == ([] if kind == "propagate" else list(range(3, 9)))
    assert semi.needs_teacher == (kind != "propagate")


@pytest.mark.usefixtures("hasty")
def test_only_features_from_before_training_tell_how_good_targets_are():
    semi = make_semi("propagate")
    first, between, second = (semi.begin(epoch, lambda: MIXED.features, never) for epoch in (0, 1, 3))
    expected = HASTY(MIXED.features, MIXED.labels, FAMILIES)
    assert first == {"propagated_right": expected.accuracy, "propagated_checked": 12}
    assert (between, second) == ({}, {})
    assert semi.power == expected.power
    again = HASTY(MIXED.features, MIXED.labels, FAMILIES, power=expected.power)
    assert torch.equal(semi.targets.value, again.targets.value)


def test_the_models_targets_do_not_depend_on_batches_and_are_confined():
    semi = make_semi("posterior")
    a, b = semi.ask(views(batch=40)()), semi.ask(views(batch=7)())
    np.testing.assert_allclose(dense(a, 12), dense(b, 12), atol=1e-5)
    unknown = MIXED.labels[:, 0] < 0
    assert (dense(a, 12)[unknown][~under(FAMILIES, MIXED.labels[unknown])] == 0).all()
    np.testing.assert_allclose(dense(a, 12).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.usefixtures("hasty")
def test_the_models_targets_are_its_posterior_given_what_is_known():
    semi, ((rows, log_p, other),) = make_semi("posterior"), views(batch=96)()
    labels = MIXED.labels[rows]
    unknown = labels[:, 0] < 0
    allowed = torch.from_numpy(under(FAMILIES, labels) | ~unknown[:, None])
    expected = posterior(*possible(log_p, allowed, other=other), labels, find_blocks(labels, FAMILIES), 12)
    found = semi.ask([(rows, log_p, other)]).at(torch.from_numpy(rows))
    np.testing.assert_allclose(dense(found, 12), dense(expected, 12), atol=1e-5)
    np.testing.assert_allclose(found.weight, expected.weight, atol=1e-5)


@pytest.mark.usefixtures("hasty")
def test_both_is_neighbours_and_the_model_combined():
    semi = make_semi("both")
    semi.begin(0, lambda: MIXED.features, never)
    near = semi.targets
    semi.begin(4, never, views())
    expected = combine(near, semi.ask(views()()), 12)
    np.testing.assert_allclose(dense(semi.targets, 12), dense(expected, 12), atol=1e-6)
    assert np.abs(dense(semi.targets, 12) - dense(near, 12)).max() > 0.1


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("kind", "epoch"), [("propagate", 0), ("posterior", 3), ("both", 3)])
def test_filled_labels_are_whole_paths_that_keep_what_is_known(kind, epoch):
    semi = make_semi(kind)
    semi.begin(epoch, lambda: MIXED.features, views())
    filled = semi.fill()
    known = MIXED.labels >= 0
    np.testing.assert_array_equal(filled[known], MIXED.labels[known])
    for row in filled.tolist():
        assert row == list(FAMILIES.path(row[0]))
    unknown = ~known[:, 0]
    np.testing.assert_array_equal(filled[unknown, 0], semi.targets.best().numpy()[unknown])


@pytest.mark.usefixtures("hasty")
def test_labels_without_a_target_stay_unknown():
    labels = SMALL.labels.copy()
    labels[labels[:, 1] == 1, 0] = -1
    semi = make_semi("propagate", dataclasses.replace(SMALL, labels=labels))
    semi.begin(0, lambda: SMALL.features, never)
    filled = semi.fill()
    np.testing.assert_array_equal(filled[labels[:, 1] == 1], labels[labels[:, 1] == 1])
    assert (filled[labels[:, 1] != 1] >= 0).all()


@pytest.mark.usefixtures("hasty")
def test_a_run_goes_on_from_its_state_as_if_it_had_not_stopped():
    semi, later = make_semi("both"), make_semi("both")
    semi.begin(0, lambda: MIXED.features, never)
    later.restore(semi.state())
    assert later.power == semi.power != POWER
    for one in (semi, later):
        one.begin(4, never, views())
    for name in ("index", "value", "weight"):
        assert torch.equal(getattr(later.near, name), getattr(semi.near, name))
        assert torch.equal(getattr(later.targets, name), getattr(semi.targets, name))


def test_before_the_first_targets_there_is_no_state():
    semi = make_semi("both", ready=False)
    semi.begin(0, never, never)
    assert semi.state() == {}
    semi.restore({})
    assert (semi.near, semi.power) == (None, POWER)


def test_shares_are_unknown_over_known_labels_and_at_most_one():
    labels = np.array([[0, 0, 0], [-1, 0, 0], [-1, 1, 0], [-1, -1, 1], [-1, 2, 1]])
    assert Semi("both", labels, TREE, epochs=3, ready=True).shares == [1.0, 0.25, 0.0]
    labels[:, 0] = -1
    assert Semi("both", labels, TREE, epochs=3, ready=True).shares[0] == 1.0


# ---- losses --------------------------------------------------------------------------------------------------------


def log_softmax(row: list[float]) -> list[float]:
    total = math.log(sum(math.exp(x) for x in row))
    return [x - total for x in row]


def naive_soft(
    outputs: list[Tensor], labels: Tensor, targets: Targets, tree: Hierarchy, reduction: str, shares: list[float]
) -> float:
    """Cross-entropy with the target summed up the tree, by loops over levels, samples and classes."""
    total, full = 0.0, dense(targets, tree.sizes[0])
    for k, output in enumerate(outputs):
        summed, counted = 0.0, 0.0
        for n in range(len(labels)):
            if labels[n, k] >= 0 or full[n].sum() == 0:
                continue
            log_p, target = log_softmax(output[n].tolist()), [0.0] * tree.sizes[k]
            for leaf, p in enumerate(full[n]):
                target[tree.path(leaf)[k]] += p
            summed -= targets.weight[n].item() * sum(t * x for t, x in zip(target, log_p, strict=True))
            counted += targets.weight[n].item()
        if reduction == "per_sample":
            total += shares[k] * summed / len(labels)
        elif counted:
            total += shares[k] * summed / counted / len(outputs)
    return total


def double(targets: Targets) -> tuple[Tensor, Tensor, Tensor]:
    return targets.index, targets.value.double(), targets.weight.double()


def ancestors(tree: Hierarchy) -> list[Tensor]:
    return [torch.from_numpy(tree.ancestors(k)) for k in range(len(tree))]


def outputs_of(rng: np.random.Generator, tree: Hierarchy, batch: int) -> list[Tensor]:
    return [normal(rng, batch, size, scale=2.0) for size in tree.sizes]


@quick
@given(tree=hierarchies(), reduction=reductions, missing=st.sampled_from([0.3, 0.7, 1.0]), weighted=st.booleans(), seed=seeds)
def test_soft_cross_entropy_equals_a_naive_loop_with_targets_summed_up_the_tree(tree, reduction, missing, weighted, seed):
    rng = np.random.default_rng(seed)
    outputs, labels = outputs_of(rng, tree, 6), random_labels(tree, rng, 6, missing)
    targets = random_targets(rng, 6, tree.sizes[0], min(3, tree.sizes[0]))
    targets = dataclasses.replace(targets, weight=torch.from_numpy(rng.random(6)))  # also of those without a target
    shares = rng.random(len(tree)).tolist() if weighted else None
    found = soft_cross_entropy(outputs, labels, *double(targets), ancestors(tree), reduction, shares)
    expected = naive_soft(outputs, labels, targets, tree, reduction, shares or [1.0] * len(tree))
    assert found.item() == pytest.approx(expected, rel=1e-8, abs=1e-10)


@quick
@given(tree=hierarchies(), reduction=reductions, seed=seeds)
def test_a_certain_target_counts_as_the_hidden_label_would(tree, reduction, seed):
    rng = np.random.default_rng(seed)
    log_probs, truth = [torch.log_softmax(z, dim=1) for z in outputs_of(rng, tree, 6)], paths(tree, rng, 6)
    hidden = torch.from_numpy(rng.random(truth.shape) < 0.5)
    target = truth[:, :1], torch.ones(6, 1).double(), torch.ones(6).double()
    found = soft_cross_entropy(log_probs, truth.masked_fill(hidden, -1), *target, ancestors(tree), reduction)
    expected = masked_cross_entropy(log_probs, truth.masked_fill(~hidden, -1), reduction)
    assert found.item() == pytest.approx(expected.item(), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_known_levels_and_samples_without_a_target_have_no_gradient(reduction):
    rng = np.random.default_rng(0)
    outputs, labels = [z.requires_grad_() for z in outputs_of(rng, TREE, 12)], random_labels(TREE, rng, 12)
    index, value, weight = double(random_targets(rng, 12, 8))
    value[3] = 0
    weight[3] = 1
    soft_cross_entropy(outputs, labels, index, value, weight, ancestors(TREE), reduction).backward()
    for k, z in enumerate(outputs):
        counted = (labels[:, k] < 0) & (value.sum(dim=1) > 0)
        assert 0 < counted.sum() < 12
        assert ((z.grad != 0).any(dim=1) == counted).all()


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_soft_cross_entropy_is_zero_with_a_zero_gradient_when_nothing_is_unknown(reduction):
    rng = np.random.default_rng(1)
    outputs = [z.requires_grad_() for z in outputs_of(rng, TREE, 5)]
    targets = double(random_targets(rng, 5, 8))
    loss = soft_cross_entropy(outputs, paths(TREE, rng, 5), *targets, ancestors(TREE), reduction)
    loss.backward()
    assert loss.item() == 0
    assert all((z.grad == 0).all() for z in outputs)


def test_outputs_that_are_no_distribution_are_normalised():
    rng = np.random.default_rng(2)
    outputs, labels = outputs_of(rng, TREE, 6), torch.full((6, 3), -1)
    sigmoids = [F.logsigmoid(z) for z in outputs]
    shares = [x - x.exp().sum(dim=1, keepdim=True).log() for x in sigmoids]
    target = *double(random_targets(rng, 6, 8)), ancestors(TREE)
    found, expected = soft_cross_entropy(sigmoids, labels, *target), soft_cross_entropy(shares, labels, *target)
    assert found.item() == pytest.approx(expected.item(), rel=1e-10)
    assert (sigmoids[0].exp().sum(dim=1) - 1).abs().min() > 0.1


def test_a_class_of_probability_zero_does_no_harm_where_the_target_excludes_it():
    scores = torch.tensor([[0.3, -torch.inf, 0.1]], requires_grad=True)
    index, value = torch.tensor([[0, 1, 2]]), torch.tensor([[0.75, 0.0, 0.25]])
    loss = soft_cross_entropy([scores], torch.tensor([[-1]]), index, value, torch.ones(1), [torch.arange(3)])
    loss.backward()
    first, second = log_softmax([0.3, 0.1])
    assert loss.item() == pytest.approx(-0.75 * first - 0.25 * second)
    assert torch.isfinite(scores.grad).all()


@quick
@given(tree=hierarchies(), reduction=reductions, missing=st.sampled_from([0.0, 0.5, 1.0]), seed=seeds)
def test_cross_entropy_with_uniform_equals_a_naive_loop(tree, reduction, missing, seed):
    rng = np.random.default_rng(seed)
    outputs, labels = outputs_of(rng, tree, 6), random_labels(tree, rng, 6, missing)
    expected = 0.0
    for k, size in enumerate(tree.sizes):
        known = [n for n in range(6) if labels[n, k] >= 0]
        summed = sum(-sum(log_softmax(outputs[k][n].tolist())) / size for n in known)
        expected += summed / 6 if reduction == "per_sample" else summed / max(len(known), 1) / len(tree)
    assert towards_uniform(outputs, labels, reduction).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


# ---- hazards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-3, 3e-4, 0.0])
def test_classes_that_hardly_vary_can_be_whitened(noise: float) -> None:
    random, group = np.random.default_rng(0), np.repeat(np.arange(4), 90)
    x = even(torch.from_numpy(random.normal(size=(4, 64))[group] + noise * random.normal(size=(360, 64))))
    z = whiten(x, csr_array(np.eye(4, dtype=np.float32)[group]))
    assert torch.isfinite(z).all()
    same = torch.from_numpy(group[:, None] == group)
    assert (z @ z.T)[same].min() > (z @ z.T)[~same].max()


@pytest.mark.parametrize("seed", range(4))
def test_identical_samples_have_approximate_neighbours(seed: int) -> None:
    x = torch.randn(1, 5, generator=torch.Generator().manual_seed(seed)).expand(400, 5)
    cosines, found = neighbours(torch.nn.functional.normalize(x, dim=1), 10, exact=10)
    assert not (found == torch.arange(400).unsqueeze(1))[cosines > 0].any()
    assert (cosines > 0.999).float().mean() > 0.5


def test_coarse_labels_that_contradict_the_tree_do_not_stop_it() -> None:
    tree = Hierarchy.from_parents([[0, 0, 1, 1], [0, 1]])
    labels = np.array([[0, 0, 0], [2, 1, 1], [-1, 1, 0], [-1, -1, 0]])
    targets = propagate(torch.randn(4, 3), labels, tree, power=1.0).targets
    torch.testing.assert_close(targets.value.sum(dim=1), torch.ones(4))


def test_a_schedule_fills_in_ancestors_itself() -> None:
    tree = Hierarchy.from_parents([[0, 0, 1, 1], [0, 1]])
    labels = np.array([[0, -1, -1], [1, -1, -1], [-1, 0, 0]])
    semi = Semi("posterior", labels, tree, epochs=3, ready=True)
    semi.begin(1, lambda: torch.zeros(3, 2), lambda: [(np.arange(3), torch.log_softmax(torch.zeros(3, 4), 1), None)])
    assert semi.fill()[:, 1:].tolist() == [[0, 0]] * 3
    assert semi.targets is not None
    assert semi.targets.value[2].sum() == pytest.approx(1)
