"""soft-labels against a dense matrix of targets, one row per class."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.method import create_method
from torchlht.heads.methods.soft_labels import SoftLabels, soft_targets
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, random_method, seeds

SIZES = (9, 5, 3)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
REDUCTIONS = ["per_level_mean", "per_sample"]


def make(seed: int, tree: Hierarchy = TREE, **options: object) -> SoftLabels:
    method = random_method("soft-labels", tree, np.random.default_rng(seed), **options)
    assert isinstance(method, SoftLabels)
    return method


def height(tree: Hierarchy, a: int, b: int) -> int:
    """Height of the lowest common ancestor: climb until the two meet, or to the root."""
    for k in range(len(tree)):
        if a == b:
            return k
        if k + 1 < len(tree):
            a, b = tree.parents[k][a], tree.parents[k][b]
    return len(tree)


def dense_targets(tree: Hierarchy, beta: float) -> np.ndarray:
    """(C_1, C_1): row c is q_c."""
    n = tree.sizes[0]
    largest = max(height(tree, i, c) for i in range(n) for c in range(n))
    q = np.zeros((n, n))
    for c in range(n):
        for i in range(n):
            q[c, i] = float(i == c) if beta == 0 or largest == 0 else math.exp(-beta * height(tree, i, c) / largest)
        q[c] /= q[c].sum()
    return q


def divergence(q: np.ndarray, log_p: Tensor) -> float:
    """KL(q ‖ p) of one sample."""
    return sum(float(w) * (math.log(w) - log_p[i].item()) for i, w in enumerate(q) if w > 0)


def under(k: int, y: int) -> list[int]:
    return [leaf for leaf in range(SIZES[0]) if TREE.ancestors(k)[leaf] == y]


def naive_loss(method: SoftLabels, log_p: Tensor, labels: Tensor) -> float:
    q = dense_targets(TREE, method.beta)
    by_level: list[list[float]] = [[] for _ in SIZES]
    for n, row in enumerate(labels.tolist()):
        deepest = next((k for k, y in enumerate(row) if y >= 0), None)
        if deepest is None or (deepest > 0 and method.soft_coarse == "off"):
            continue
        leaves = under(deepest, row[deepest])
        if deepest > 0 and method.soft_coarse == "marginal":
            by_level[deepest].append(-math.log(sum(math.exp(log_p[n, leaf]) for leaf in leaves)))
        else:
            by_level[deepest].append(sum(divergence(q[leaf], log_p[n]) for leaf in leaves) / len(leaves))
    if method.reduction == "per_sample":
        return sum(map(sum, by_level)) / len(labels)
    return sum(sum(values) / len(values) for values in by_level if values) / len(SIZES)


# ---- targets -------------------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), beta=st.sampled_from([0.0, 0.5, 5.0, 15.0]), seed=seeds)
def test_targets_sum_to_one_and_fall_with_the_height_of_the_common_ancestor(tree, beta, seed):
    """Heights over the largest that occurs: under a single coarsest class that is not the number of levels."""
    expected = dense_targets(tree, beta)
    mass, entropy = soft_targets(tree, beta)
    n = tree.sizes[0]
    q = np.array([[mass[c, height(tree, i, c)] for i in range(n)] for c in range(n)])
    np.testing.assert_allclose(q.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(q, expected, rtol=1e-12, atol=1e-15)
    logs = np.log(expected, out=np.zeros_like(expected), where=expected > 0)
    np.testing.assert_allclose(entropy, (expected * logs).sum(axis=1), rtol=1e-10, atol=1e-12)


def test_a_large_height_has_the_stated_weight():
    """Two siblings and a stranger, β = 3: 1, e⁻¹·⁵, e⁻³."""
    tree = Hierarchy.from_parents([[0, 0, 1]])
    mass, _ = soft_targets(tree, 3.0)
    weights = np.array([1, math.exp(-1.5), math.exp(-3)])
    np.testing.assert_allclose(mass[0], weights / weights.sum())
    np.testing.assert_allclose(mass[2] * (1 + 2 * math.exp(-3)), [1, math.exp(-1.5), math.exp(-3)])


# ---- loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.7, 15.0])
def test_the_divergence_equals_that_from_the_dense_matrix_for_every_class(beta):
    log_p = torch.log_softmax(normal(np.random.default_rng(1), 4, SIZES[0], scale=2.0), dim=1)
    found = make(1, beta=beta).divergence(log_p)
    expected = [[divergence(q, row) for q in dense_targets(TREE, beta)] for row in log_p]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("soft_coarse", ["off", "mean", "marginal"])
def test_the_loss_equals_a_naive_loop(soft_coarse, missing, reduction):
    rng = np.random.default_rng(2)
    method = make(2, beta=4.0, soft_coarse=soft_coarse, reduction=reduction)
    labels = random_labels(TREE, rng, 8, missing)
    prediction = method(normal(rng, 8, 5))
    expected = naive_loss(method, prediction.log_probs[0].detach(), labels)
    assert method.loss(prediction, labels).item() == pytest.approx(expected, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("beta", [0.0, 1e4])
def test_no_beta_and_a_large_one_are_one_hot_and_that_is_flat(beta, reduction):
    rng = np.random.default_rng(3)
    method = make(3, beta=beta, reduction=reduction)
    flat = create_method("flat", 5, TREE, width=12, reduction=reduction).double().eval()
    flat.load_state_dict(method.state_dict())
    features, labels = normal(rng, 8, 5), random_labels(TREE, rng, 8)
    prediction = method(features)
    torch.testing.assert_close(method.loss(prediction, labels), flat.loss(flat(features), labels))
    known = [n for n in range(8) if labels[n, 0] >= 0]
    total = -sum(prediction.log_probs[0][n, labels[n, 0]].item() for n in known)
    expected = total / len(known) / len(SIZES) if reduction == "per_level_mean" else total / 8
    assert method.loss(prediction, labels).item() == pytest.approx(expected)


def test_the_loss_is_least_where_the_prediction_is_the_target():
    method = make(4, beta=5.0)
    target = torch.from_numpy(dense_targets(TREE, 5.0))
    at_target = method.divergence(target.log()).diagonal()
    torch.testing.assert_close(at_target, torch.zeros(SIZES[0]).double(), rtol=0, atol=1e-5)
    assert (method.divergence(torch.log_softmax(target.log() * 1.1, dim=1)).diagonal() > 1e-4).all()


def logits_of(method: SoftLabels, features: Tensor) -> tuple[object, Tensor]:
    kept: list[Tensor] = []
    hook = method.classifier.register_forward_hook(lambda module, inputs, output: kept.append(output))
    prediction = method(features)
    hook.remove()
    return prediction, kept[0]


@pytest.mark.parametrize("level", [1, 2])
def test_the_mean_of_the_divergences_pulls_towards_the_mean_target(level):
    """∂L/∂z = p - mean of q_c over the classes below: the value has another constant than KL(mean ‖ p), the gradient not."""
    rng = np.random.default_rng(5)
    method = make(5, beta=4.0, soft_coarse="mean", reduction="per_sample")
    labels = paths(TREE, rng, 6)
    labels[:, :level] = -1
    prediction, z = logits_of(method, normal(rng, 6, 5))
    (found,) = torch.autograd.grad(method.loss(prediction, labels), z)
    q = dense_targets(TREE, 4.0)
    target = torch.from_numpy(np.stack([q[under(level, y)].mean(axis=0) for y in labels[:, level].tolist()]))
    torch.testing.assert_close(found, (torch.softmax(z.detach(), dim=1) - target) / 6, rtol=1e-5, atol=1e-6)


def test_off_gives_coarse_labels_no_gradient():
    rng = np.random.default_rng(6)
    method = make(6)
    labels = paths(TREE, rng, 6)
    labels[:3, 0] = -1
    prediction, z = logits_of(method, normal(rng, 6, 5))
    (gradient,) = torch.autograd.grad(method.loss(prediction, labels), z)
    assert gradient[:3].count_nonzero() == 0
    assert (gradient[3:] != 0).any(dim=1).all()


@pytest.mark.parametrize("soft_coarse", ["mean", "marginal"])
def test_the_deepest_known_label_alone_counts(soft_coarse):
    rng = np.random.default_rng(7)
    method = make(7, soft_coarse=soft_coarse)
    labels = paths(TREE, rng, 6)
    labels[3:, 0] = -1
    prediction = method(normal(rng, 6, 5))
    bare = labels.clone()
    bare[:3, 1:] = bare[3:, 2:] = -1
    assert method.loss(prediction, labels) == method.loss(prediction, bare)


@pytest.mark.parametrize(("soft_coarse", "coarse"), [("off", False), ("mean", True), ("marginal", True)])
def test_coarse_labels_teach_only_when_soft_coarse_is_on(soft_coarse, coarse):
    labels = torch.tensor([[0, 1, 2], [-1, 1, 2], [-1, -1, 0], [3, -1, -1], [-1, -1, -1]])
    assert make(8, soft_coarse=soft_coarse).learns_from(labels).tolist() == [True, coarse, coarse, True, False]


# ---- answers -------------------------------------------------------------------------------------------------------


def test_coarse_levels_are_answered_by_backtracking():
    """Class 0 is the likeliest, but its parent is not: 0.4 against 0.3 + 0.3."""
    method = SoftLabels(5, Hierarchy.from_parents([[0, 1, 1]]), width=12).eval()
    torch.nn.init.zeros_(method.classifier.weight)
    method.classifier.bias.data.copy_(torch.tensor([0.4, 0.3, 0.3]).log())
    prediction = method(torch.zeros(1, 5))
    torch.testing.assert_close(prediction.probs(1), torch.tensor([[0.4, 0.6]]))
    assert prediction.chosen().tolist() == [[0, 0]]


def test_what_is_answered_is_a_path_from_the_likeliest_finest_class():
    prediction = make(9)(normal(np.random.default_rng(9), 20, 5))
    for n, row in enumerate(prediction.chosen().tolist()):
        assert row == list(TREE.path(prediction.log_probs[0][n].argmax().item()))
