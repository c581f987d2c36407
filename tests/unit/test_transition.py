"""The transition networks and the two ways to propagate, against naive float64 probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.errors import ConfigError
from torchlht.heads.transition import core
from torchlht.heads.transition.core import (
    DenseTransition,
    LowRankTransition,
    Prior,
    TreeTransition,
    propagate,
    sum_children,
    widened,
)
from torchlht.heads.transition.networks import NETWORKS, Fixed, Full, LowRank, Static, TransitionNetwork, create_transition
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, seeds

WIDTH = 5
names = st.sampled_from(sorted(NETWORKS))


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even small trees take the step that large ones do."""
    monkeypatch.setattr(core, "SMALL", 0)


def network(name: str, tree: Hierarchy, level: int, rng: np.random.Generator, **options: object) -> TransitionNetwork:
    """A float64 network whose every parameter is random, so that no term is left at a special value."""
    net = create_transition(name, WIDTH, tree, level, **{"rank": 2, "gamma": 6.0, "bias": True, **options}).double()
    for parameter in net.parameters():
        parameter.data = normal(rng, *parameter.shape)
    return net


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def naive_logits(net: TransitionNetwork, u: np.ndarray, s: np.ndarray) -> np.ndarray:
    """A of one sample, entry by entry, from the parameters alone."""
    a = np.zeros_like(s)
    weights = {name: p.detach().numpy() for name, p in net.named_parameters()}
    for i in range(s.shape[0]):
        for j in range(s.shape[1]):
            if isinstance(net, LowRank):
                for r in range(net.rank):
                    q = weights["right.weight"][i * net.rank + r] @ u + weights["right.bias"][i * net.rank + r]
                    left = weights["left.weight"][j * net.rank + r] @ u + weights["left.bias"][j * net.rank + r]
                    a[i, j] += q * left
                a[i, j] += weights["gamma"] * s[i, j]
            elif isinstance(net, Full):
                row = i * s.shape[1] + j
                a[i, j] = weights["logits.weight"][row] @ u + weights["logits.bias"][row]
            else:
                a[i, j] = weights["logits"][i, j]
    return a


def naive_matrices(net: TransitionNetwork, features: Tensor, s: np.ndarray) -> np.ndarray:
    """(B, C_k, C_{k-1}) by a loop over samples, in probability space."""
    if isinstance(net, Fixed):
        return np.stack([s] * len(features))
    return np.stack([softmax(naive_logits(net, u, s), axis=0) for u in features.numpy()])


# ---- what every network gives --------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), name=names, seed=seeds)
def test_columns_of_every_transition_sum_to_one(tree, name, seed):
    rng = np.random.default_rng(seed)
    for level in range(len(tree) - 1):
        log_t = network(name, tree, level, rng)(normal(rng, 3, WIDTH, scale=3.0)).log_matrix()
        assert log_t.shape[1:] == (tree.sizes[level + 1], tree.sizes[level])
        assert len(log_t) == (3 if name in ("low_rank", "full") else 1)
        torch.testing.assert_close(log_t.double().exp().sum(dim=1), torch.ones(len(log_t), tree.sizes[level]).double())


@quick
@given(tree=hierarchies(), name=names, seed=seeds)
def test_matrices_equal_a_naive_float64_loop(tree, name, seed):
    rng = np.random.default_rng(seed)
    features = normal(rng, 3, WIDTH)
    for level in range(len(tree) - 1):
        net = network(name, tree, level, rng)
        expected = torch.from_numpy(naive_matrices(net, features, tree.matrix(level)))
        found = net(features).log_matrix().exp().double().expand_as(expected)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@quick
@given(tree=hierarchies(), name=names, seed=seeds)
def test_log_space_equals_naive_probability_space(tree, name, seed):
    rng = np.random.default_rng(seed)
    features = normal(rng, 3, WIDTH)
    log_p = torch.log_softmax(normal(rng, 3, tree.sizes[0]), dim=1)
    p = log_p.exp().numpy()
    for level in range(len(tree) - 1):
        net = network(name, tree, level, rng)
        log_p = net(features).propagate(log_p)
        p = np.stack([t @ q for t, q in zip(naive_matrices(net, features, tree.matrix(level)), p, strict=True)])
        torch.testing.assert_close(log_p.exp(), torch.from_numpy(p), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(log_p, torch.from_numpy(np.log(p)), rtol=1e-10, atol=1e-10)


@quick
@given(tree=hierarchies(), name=st.sampled_from(["low_rank", "full", "static"]), seed=seeds)
def test_down_goes_from_coarse_to_fine_with_the_transposed_prior(tree, name, seed):
    rng = np.random.default_rng(seed)
    features = normal(rng, 3, WIDTH)
    for level in range(len(tree) - 1):
        net = network(name, tree, level, rng, down=True)
        assert (net.rows, net.columns) == (tree.sizes[level], tree.sizes[level + 1])
        expected = torch.from_numpy(naive_matrices(net, features, tree.matrix(level).T))
        found = net(features).log_matrix().exp().expand_as(expected)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(found.sum(dim=1), torch.ones(3, tree.sizes[level + 1]).double())


@pytest.mark.parametrize("down", [False, True])
def test_static_starts_from_the_prior_of_its_direction(down):
    tree = random_hierarchy(np.random.default_rng(14), (6, 3))
    net = Static(WIDTH, tree, 0, gamma=2.0, down=down)
    s = torch.from_numpy(tree.matrix(0)).float()
    assert torch.equal(net.logits.detach(), 2 * (s.T if down else s))


def test_the_tree_alone_does_not_go_down():
    tree = random_hierarchy(np.random.default_rng(15), (6, 3))
    with pytest.raises(ConfigError, match="fine to coarse only"):
        create_transition("fixed", WIDTH, tree, 0, down=True)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_low_rank_equals_the_naive_loop_at_every_rank(rank):
    rng = np.random.default_rng(rank)
    tree = random_hierarchy(rng, (7, 4, 2))
    features = normal(rng, 4, WIDTH)
    net = network("low_rank", tree, 0, rng, rank=rank)
    expected = torch.from_numpy(naive_matrices(net, features, tree.matrix(0)))
    torch.testing.assert_close(net(features).log_matrix().exp(), expected, rtol=1e-10, atol=1e-12)


def test_a_shared_matrix_propagates_as_its_copies_would():
    rng = np.random.default_rng(0)
    log_t = torch.log_softmax(normal(rng, 1, 3, 5), dim=1)
    log_p = torch.log_softmax(normal(rng, 4, 5), dim=1)
    torch.testing.assert_close(DenseTransition(log_t).propagate(log_p), propagate(log_p, log_t.expand(4, -1, -1)))


# ---- summing over children -----------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), seed=seeds)
def test_sum_children_equals_log_of_s_times_p(tree, seed):
    rng = np.random.default_rng(seed)
    for level in range(len(tree) - 1):
        log_p = torch.log_softmax(normal(rng, 4, tree.sizes[level], scale=3.0), dim=1)
        s = torch.from_numpy(tree.matrix(level))
        found = sum_children(log_p, torch.tensor(tree.parents[level]), tree.sizes[level + 1])
        torch.testing.assert_close(found, torch.log(log_p.exp() @ s.T), rtol=1e-12, atol=1e-12)


@quick
@given(tree=hierarchies(), seed=seeds)
def test_sum_children_equals_propagating_with_its_log_matrix_and_so_does_its_gradient(tree, seed):
    rng = np.random.default_rng(seed)
    for level in range(len(tree) - 1):
        step = TreeTransition(torch.tensor(tree.parents[level]), tree.sizes[level + 1])
        log_p = torch.log_softmax(normal(rng, 4, tree.sizes[level], scale=3.0), dim=1).requires_grad_()
        weights = normal(rng, 4, tree.sizes[level + 1])
        sparse, dense = step.propagate(log_p), propagate(log_p, step.log_matrix())
        torch.testing.assert_close(sparse, dense, rtol=1e-12, atol=1e-12)
        (sparse_grad,) = torch.autograd.grad((sparse * weights).sum(), log_p)
        (dense_grad,) = torch.autograd.grad((dense * weights).sum(), log_p)
        torch.testing.assert_close(sparse_grad, dense_grad, rtol=1e-12, atol=1e-12)


# ---- the low-rank step ---------------------------------------------------------------------------------------------


def step_and_gradients(
    leaves: list[Tensor], tree: Tensor, weights: Tensor, dtype: torch.dtype, dense: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """log(T p) from L, Q, γ and log p, in one pass or by the matrix, and the gradients of a weighted sum of it."""
    inputs = [leaf.to(dtype).detach().requires_grad_() for leaf in leaves]
    left, right, gamma, log_p = inputs
    step = LowRankTransition(left, right, gamma, Prior.of(*torch.nonzero(tree, as_tuple=True), tree.shape[1]))
    result = propagate(log_p, step.log_matrix()) if dense else step.propagate(log_p)
    return result.detach(), torch.autograd.grad((result * weights.to(dtype)).sum(), inputs)


def low_rank_case(rng: np.random.Generator, sizes: tuple[int, int], scale: float) -> tuple[list[Tensor], Tensor]:
    """Factors that make logits of about this size, γ and log p; and weights of the results."""
    fine, coarse = sizes
    factors = [normal(rng, 3, size, 2, scale=scale**0.5) for size in (fine, coarse)]
    log_p = torch.log_softmax(normal(rng, 3, fine, scale=scale), dim=1)
    return [*factors, torch.tensor(1.5).double(), log_p], normal(rng, 3, coarse)


@quick
@given(tree=hierarchies(), scale=st.sampled_from([0.1, 1.0, 20.0, 400.0, 3000.0]), seed=seeds)
def test_the_low_rank_step_has_the_values_and_gradients_of_its_matrix(tree, scale, seed):
    """Also where sums underflow and it turns to log space, which float64 does from gaps of some 560."""
    leaves, weights = low_rank_case(np.random.default_rng(seed), tree.sizes[:2], scale)
    s = torch.from_numpy(tree.matrix(0))
    found, gradients = step_and_gradients(leaves, s, weights, torch.float64, dense=False)
    expected, reference = step_and_gradients(leaves, s, weights, torch.float64, dense=True)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients, reference, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10 * scale)


@pytest.mark.parametrize("scale", [1.0, 5.0, 15.0, 30.0, 60.0, 200.0])
def test_the_low_rank_step_in_float32_has_the_values_and_gradients_of_float64(scale):
    """From well inside to far outside of what a float32 sum can hold."""
    rng = np.random.default_rng(20)
    tree = random_hierarchy(rng, (30, 12))
    s = torch.from_numpy(tree.matrix(0))
    for _ in range(5):
        leaves, weights = low_rank_case(rng, (30, 12), scale)
        leaves = [leaf.float() for leaf in leaves]
        found, gradients = step_and_gradients(leaves, s, weights, torch.float32, dense=False)
        expected, reference = step_and_gradients(leaves, s, weights, torch.float64, dense=True)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(gradients, reference, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-4 * theirs.abs().max().item())


# ---- the prior -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [-7.0, 0.5, 30.0])
def test_a_constant_beta_on_all_logits_changes_nothing(beta):
    """Why the paper's β is left out: it cancels in the column softmax."""
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (7, 4, 2))
    features = normal(rng, 4, WIDTH)
    net = network("low_rank", tree, 0, rng)
    logits = torch.from_numpy(np.stack([naive_logits(net, u, tree.matrix(0)) for u in features.numpy()]))
    torch.testing.assert_close(torch.log_softmax(logits + beta, dim=1), net(features).log_matrix(), rtol=1e-10, atol=1e-10)


def test_the_gradient_of_beta_is_zero():
    rng = np.random.default_rng(4)
    logits = normal(rng, 4, 3, 6)
    log_p = torch.log_softmax(normal(rng, 4, 6), dim=1)
    beta = torch.zeros((), dtype=torch.float64, requires_grad=True)
    gamma = torch.zeros((), dtype=torch.float64, requires_grad=True)
    s = torch.eye(3, dtype=torch.float64).repeat(1, 2)
    loss = -DenseTransition(torch.log_softmax(logits + gamma * s + beta, dim=1)).propagate(log_p)[:, 0].sum()
    loss.backward()
    assert abs(beta.grad.item()) < 1e-14
    assert abs(gamma.grad.item()) > 1e-3  # so that a zero says something


@pytest.mark.parametrize(("gamma", "documented"), [(6.0, 0.92), (1.0, 0.07)])
def test_gamma_puts_the_stated_mass_on_the_parent_when_the_low_rank_part_is_zero(gamma, documented):
    tree = random_hierarchy(np.random.default_rng(5), (200, 38))
    net = LowRank(WIDTH, tree, 0, gamma=gamma).double()
    for layer in (net.left, net.right):
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    t = net(torch.ones(1, WIDTH).double()).log_matrix().exp()[0]
    on_parent = t[torch.tensor(tree.parents[0]), torch.arange(200)]
    expected = math.exp(gamma) / (math.exp(gamma) + 38 - 1)
    torch.testing.assert_close(on_parent, torch.full((200,), expected).double(), rtol=1e-6, atol=0)
    assert round(expected, 2) == documented


def test_gamma_is_six_unless_told():
    tree = random_hierarchy(np.random.default_rng(6), (5, 3))
    assert LowRank(WIDTH, tree, 0).scalars() == {"gamma": 6.0}
    assert LowRank(WIDTH, tree, 0, gamma=1.5).scalars() == {"gamma": 1.5}


def test_the_prior_is_gamma_times_s_and_differentiable_in_gamma():
    """d log T_π(j)j / dγ = 1 - T_π(j)j."""
    rng = np.random.default_rng(7)
    tree = random_hierarchy(rng, (6, 3))
    net = network("low_rank", tree, 0, rng)
    torch.testing.assert_close(net.prior(net.gamma).detach(), net.gamma.item() * torch.from_numpy(tree.matrix(0)))
    log_t = net(normal(rng, 2, WIDTH)).log_matrix()[:, torch.tensor(tree.parents[0]), torch.arange(6)]
    log_t.sum().backward()
    torch.testing.assert_close(net.gamma.grad, (1 - log_t.detach().exp()).sum())


@pytest.mark.parametrize("gamma", [1.0, 6.0])
def test_static_starts_at_the_softmax_of_gamma_s(gamma):
    tree = random_hierarchy(np.random.default_rng(8), (9, 4))
    net = Static(WIDTH, tree, 0, gamma=gamma).double()
    expected = torch.from_numpy(softmax(gamma * tree.matrix(0), axis=0))
    torch.testing.assert_close(net(torch.zeros(3, WIDTH)).log_matrix()[0].exp(), expected)


def test_full_has_no_prior_so_zero_weights_give_flat_columns():
    tree = random_hierarchy(np.random.default_rng(9), (9, 4))
    net = Full(WIDTH, tree, 0)
    torch.nn.init.zeros_(net.logits.weight)
    torch.nn.init.zeros_(net.logits.bias)
    torch.testing.assert_close(net(torch.ones(2, WIDTH)).log_matrix().exp(), torch.full((2, 4, 9), 0.25))


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, -1])
def test_a_rank_below_one_is_refused(rank):
    tree = random_hierarchy(np.random.default_rng(10), (4, 2))
    with pytest.raises(ConfigError, match=f"rank is {rank}.*at least 1"):
        create_transition("low_rank", WIDTH, tree, 0, rank=rank, gamma=6.0, bias=True)


@pytest.mark.parametrize(
    ("name", "nearest"), [("lowrank", "low_rank"), ("statik", "static"), ("fixd", "fixed"), ("ful", "full")]
)
def test_an_unknown_transition_is_refused_with_the_nearest_name(name, nearest):
    tree = random_hierarchy(np.random.default_rng(11), (4, 2))
    with pytest.raises(ConfigError, match=f"{name}.*did you mean {nearest}"):
        create_transition(name, WIDTH, tree, 0, rank=2, gamma=6.0, bias=True)


@pytest.mark.parametrize("name", ["low_rank", "full"])
def test_bias_false_leaves_no_bias(name):
    tree = random_hierarchy(np.random.default_rng(12), (4, 2))
    for bias in (True, False):
        net = create_transition(name, WIDTH, tree, 0, rank=2, gamma=6.0, bias=bias)
        assert any(key.endswith("bias") for key in net.state_dict()) == bias


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_tree_is_not_part_of_the_weights(name):
    """The hierarchy travels in its own file; a state dict holds only what was learned."""
    tree = random_hierarchy(np.random.default_rng(13), (4, 2))
    net = create_transition(name, WIDTH, tree, 0, rank=2, gamma=6.0, bias=True)
    assert set(net.state_dict()) == {key for key, _ in net.named_parameters()}
    assert net.double().parents.dtype == torch.int64


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_widened_makes_float32_of_half_precision_and_nothing_of_the_rest(given_dtype, expected):
    x = torch.tensor([1.5, -2.0], dtype=given_dtype)
    assert widened(x).dtype == expected
    assert widened(x).tolist() == [1.5, -2.0]
