"""Targets for unknown labels: the sharpness against a naive search, scales of features, and who belongs with whom at first."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from torch import Tensor

from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi import propagation
from torchlht.learn.semi.propagation import (
    SHARPNESS,
    choose_sharpness,
    class_means,
    fill_block,
    one_hot,
    propagate,
    squared_norms,
    whiten,
)
from torchlht.learn.semi.schedule import Semi
from torchlht.learn.semi.targets import Targets, balance, find_blocks
from trees import normal

TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 1]])


def birds(noise: float, each: int = 7, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    """Features around the middle of their class, and labels of which every third is hidden at the finest level or at two."""
    rng = np.random.default_rng(seed)
    leaves = np.repeat(np.arange(8), each)
    labels = np.stack([TREE.ancestors(k)[leaves] for k in range(3)], axis=1)
    labels[::3, 0] = -1
    labels[::6, 1] = -1
    return normal(rng, 8, 5)[leaves] + noise * normal(rng, len(leaves), 5), labels


def naive_likelihood(z: Tensor, labels: np.ndarray, t: float) -> float:
    """Of known finest labels in each block, every one by the means of classes, its own made without it; in float64."""
    fine, total = labels[:, 0], 0.0
    z = z.double()
    means = {c: z[fine == c].mean(dim=0) for c in range(8)}
    norms = squared_norms(torch.stack([means[c] for c in range(8)]), torch.tensor([(fine == c).sum() for c in range(8)]))
    for block in find_blocks(labels, TREE):
        for n in block.deeper.tolist():
            if fine[n] < 0:
                continue
            others = [i for i in range(len(z)) if fine[i] == fine[n] and i != n]
            scores = {}
            for c in block.leaves.tolist():
                mean = z[others].mean(dim=0) if c == fine[n] else means[c]
                scores[c] = t * float(z[n] @ mean - norms[c] / 2)
            total += scores[fine[n]] - float(np.logaddexp.reduce(list(scores.values())))
    return total


@pytest.mark.parametrize("noise", [0.4, 0.7, 1.0])
def test_the_sharpness_is_the_one_under_which_known_labels_are_most_likely(noise: float) -> None:
    x, labels = birds(noise)
    z = F.normalize(x, dim=1).float()
    means, mass = class_means(z, one_hot(labels).matrix(8))
    found = choose_sharpness(z, means, mass, labels, find_blocks(labels, TREE))
    assert found == pytest.approx(max(SHARPNESS.tolist(), key=lambda t: naive_likelihood(z, labels, t)))
    assert SHARPNESS[0] < found < SHARPNESS[-1]


@pytest.mark.parametrize(("power", "fitted"), [(None, True), (0.3, False)])
def test_the_sharpness_is_fitted_unless_the_features_have_seen_the_labels(
    monkeypatch: pytest.MonkeyPatch, power: float | None, fitted: bool
) -> None:
    x, labels = birds(0.6)

    def targets(sharpness: float) -> Tensor:
        monkeypatch.setattr(propagation, "choose_sharpness", lambda *_: sharpness)
        return propagate(x, labels, TREE, power=power).targets.value

    assert torch.equal(targets(2.0), targets(50.0)) != fitted


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_features_on_another_scale_have_the_same_metric(scale: float) -> None:
    x, labels = birds(0.5)
    x = (x - x.mean(dim=0)).float()
    members = one_hot(labels).matrix(8)
    torch.testing.assert_close(whiten(x * scale, members), whiten(x, members), rtol=1e-3, atol=1e-4)


def test_features_that_are_all_the_same_can_be_whitened() -> None:
    assert torch.isfinite(whiten(torch.zeros(56, 5), one_hot(birds(0.5)[1]).matrix(8))).all()


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_at_first_samples_belong_with_those_of_their_deepest_known_class_above_the_finest(levels: int) -> None:
    """Or all together, where nothing is known of them above it."""
    _, labels = birds(0.5)
    tree = Hierarchy.from_parents(TREE.parents[: levels - 1], classes=TREE.classes[:levels])
    labels = labels[:, :levels]
    labels[5] = -1
    found = propagation.parent_groups(labels, tree.sizes).toarray()
    groups = [next(((k, row[k]) for k in range(1, levels) if row[k] >= 0), None) for row in labels.tolist()]
    np.testing.assert_array_equal(found.sum(axis=1), 1)
    together = found @ found.T
    for a, b in np.ndindex(together.shape):
        assert together[a, b] == (groups[a] == groups[b])


def test_a_target_is_trusted_as_far_as_its_likeliest_class() -> None:
    x, labels = birds(0.6)
    z, targets = F.normalize(x, dim=1).float(), one_hot(labels, width=8)
    means, mass = class_means(z, targets.matrix(8))
    for block in find_blocks(labels, TREE):
        targets = fill_block(targets, block, z, means, mass, labels, 20.0, 5)
    assert torch.equal(targets.weight, targets.value.amax(dim=1))
    assert len(torch.unique(targets.weight)) > 5


def test_inside_an_epoch_its_targets_are_kept_as_well() -> None:
    x, labels = birds(0.6)
    log_p = torch.log_softmax(normal(np.random.default_rng(3), len(x), 8, dtype=torch.float32), dim=1)
    semi, inside, outside = (Semi("both", labels, TREE, epochs=3, ready=True) for _ in range(3))
    semi.begin(0, lambda: x, list)
    semi.begin(1, lambda: x, lambda: [(np.arange(len(x)), log_p, None)])
    semi.power = 0.1 + 0.2  # no number of float32
    inside.restore(semi.state(inside=True))
    outside.restore(semi.state())
    assert outside.targets is None
    assert inside.power == outside.power == semi.power
    for name in ("index", "value", "weight"):
        kept = {key: getattr(getattr(semi, key), name) for key in ("near", "targets")}
        assert torch.equal(getattr(inside.targets, name), kept["targets"])
        assert torch.equal(getattr(inside.near, name), kept["near"])
        assert torch.equal(getattr(outside.near, name), kept["near"])
    assert not torch.equal(inside.targets.value.sum(dim=0), inside.near.value.sum(dim=0)), "they are two things"


# ---- few samples, and little to share out --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
def test_candidates_sum_to_one_whatever_they_summed_to(size: float) -> None:
    value = torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    found = Targets.from_candidates(torch.arange(3).expand(3, 3), size * value)
    torch.testing.assert_close(found.value, value)
    torch.testing.assert_close(found.weight, torch.tensor([0.5, 0.0, 1.0]))


def test_a_matrix_without_samples_has_no_targets() -> None:
    assert len(Targets.from_matrix(csr_array((0, 5), dtype=np.float32))) == 0


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_few_samples_are_balanced_as_a_naive_loop_does_it(n: int, size: float) -> None:
    rng = np.random.default_rng(n)
    index = rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)[:, :3]
    value, shares = size * rng.random((n, 3)), np.array([0.1, 0.2, 0.3, 0.4])
    expected = value.copy()
    for _ in range(5):
        mass = [sum(expected[i, j] for i in range(n) for j in range(3) if index[i, j] == c) for c in range(4)]
        for i in range(n):
            row = [expected[i, j] * shares[index[i, j]] * n / mass[index[i, j]] for j in range(3)]
            expected[i] = np.array(row) / sum(row)
    found = balance(torch.from_numpy(index), torch.from_numpy(value), torch.from_numpy(shares))
    np.testing.assert_allclose(found, expected)
