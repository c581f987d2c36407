"""What the theory of LHT says, in the form in which it is true: every docstring is a proposition, every test its check."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.methods.lht import LHTHead
from torchlht.heads.prediction import Prediction, masked_cross_entropy
from torchlht.heads.transition.core import DenseTransition, Transition, TreeTransition
from torchlht.heads.transition.networks import NETWORKS
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy

SIZES = (11, 7, 5, 3, 2)
FEATURES = 6
DEPTHS = [2, 3, 4, 5]
TRANSITIONS = sorted(NETWORKS)


def random_head(tree: Hierarchy, rng: np.random.Generator, transition: str, **options: object) -> LHTHead:
    """A float64 head in eval mode with weights large enough for its matrices to be far from flat and from S."""
    head = LHTHead(FEATURES, tree, width=12, transition=transition, **options).double().eval()
    for parameter in head.parameters():
        parameter.data = normal(rng, *parameter.shape)
    return head


def with_fine_logits(head: LHTHead, features: Tensor) -> tuple[Prediction, Tensor]:
    """The prediction and the finest logits z it was made from, whose gradient can be asked for."""
    kept = []
    hook = head.classifier.register_forward_hook(lambda module, inputs, output: kept.append(output))
    prediction = head(features)
    hook.remove()
    return prediction, kept[0]


def composite(prediction: Prediction, level: int) -> Tensor:
    """Tᵏ…T², (B, C_k, C_1): the product of the matrices from the finest level to `level`."""
    product = torch.eye(prediction.log_probs[0].shape[1], dtype=torch.float64).expand(len(prediction.log_probs[0]), -1, -1)
    for k in range(level):
        product = prediction.transition(k).double() @ product
    return product


def level_loss(prediction: Prediction, level: int, y: Tensor) -> Tensor:
    """Σ_n of the cross-entropy of one level, so that every sample's gradient is its own."""
    labels = torch.full((len(y), len(prediction.log_probs)), -1)
    labels[:, level] = y
    return masked_cross_entropy(prediction.log_probs, labels, "per_sample") * len(y)


def closed_form(p: Tensor, t: Tensor) -> Tensor:
    """G_j = (1 - t_j / Σ_l t_l p_l) p_j for p and t of shape (B, C_1)."""
    return (1 - t / (t * p).sum(dim=1, keepdim=True)) * p


# ---- propositions 1 and 2 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_proposition_1_every_level_is_a_product_of_matrices_times_the_finest(depth, transition):
    """Given p(Yᵏ | Yᵏ⁻¹, Y¹, x) = p(Yᵏ | Yᵏ⁻¹, x), pᵏ = Tᵏ(x) … T²(x) p¹: a product of matrices, not a composition."""
    rng = np.random.default_rng(depth)
    head = random_head(random_hierarchy(rng, SIZES[:depth]), rng, transition)
    prediction = head(normal(rng, 4, FEATURES))
    for level in range(depth):
        expected = (composite(prediction, level) @ prediction.probs(0).unsqueeze(2)).squeeze(2)
        torch.testing.assert_close(prediction.probs(level), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_proposition_2_gradient_of_a_coarse_label_in_the_fine_logits(depth, transition):
    """For T that does not depend on z, ∂Lᵏ/∂z_j = (1 - t_j / pᵏ_y) p¹_j, with t the row y of Tᵏ…T²."""
    rng = np.random.default_rng(10 + depth)
    tree = random_hierarchy(rng, SIZES[:depth])
    head = random_head(tree, rng, transition)
    features, labels = normal(rng, 8, FEATURES), paths(tree, rng, 8)
    for level in range(depth):
        prediction, z = with_fine_logits(head, features)
        (found,) = torch.autograd.grad(level_loss(prediction, level, labels[:, level]), z)
        t = composite(prediction, level)[torch.arange(8), labels[:, level]]
        torch.testing.assert_close(found, closed_form(prediction.probs(0), t), rtol=1e-10, atol=1e-10)
        assert found.abs().max() > 1e-3


# ---- the corollary -------------------------------------------------------------------------------------------------


def fine_gradient(z: Tensor, steps: list[Transition], y: Tensor) -> Tensor:
    """Gradient of the coarsest level's loss in z, (B, C_1), through fixed transitions."""
    z = z.clone().requires_grad_()
    log_probs = [torch.log_softmax(z, dim=1)]
    for step in steps:
        log_probs.append(step.propagate(log_probs[-1]))
    (gradient,) = torch.autograd.grad(level_loss(Prediction(tuple(log_probs)), len(steps), y), z)
    return gradient


def random_steps(rng: np.random.Generator, sizes: tuple[int, ...], batch: int) -> tuple[list[Transition], Tensor]:
    """Random dense transitions and their product."""
    product = torch.eye(sizes[0], dtype=torch.float64).expand(batch, -1, -1)
    steps: list[Transition] = []
    for fine, coarse in itertools.pairwise(sizes):
        steps.append(DenseTransition(torch.log_softmax(normal(rng, batch, coarse, fine, scale=2.0), dim=1)))
        product = steps[-1].log_matrix().exp() @ product
    return steps, product


@pytest.mark.parametrize("depth", DEPTHS)
def test_corollary_the_likeliest_child_is_pushed_up(depth):
    """At j* = argmax_j t_yj the gradient is ≤ 0, and < 0 if p¹_j* > 0 and some class in the support of p¹ has a smaller t."""
    rng = np.random.default_rng(20 + depth)
    z, y = normal(rng, 30, SIZES[0]), torch.from_numpy(rng.integers(0, SIZES[depth - 1], 30))
    steps, product = random_steps(rng, SIZES[:depth], 30)
    best = product[torch.arange(30), y].argmax(dim=1, keepdim=True)
    gradient = fine_gradient(z, steps, y)
    assert (gradient.gather(1, best) < 0).all()
    assert (gradient > 0).any(dim=1).all()  # and some other class down: the sum over j is zero
    torch.testing.assert_close(gradient.sum(dim=1), torch.zeros(30).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("depth", DEPTHS)
def test_corollary_is_not_strict_when_the_row_is_flat(depth):
    """If t_yj is the same for all j the gradient is 0 everywhere, so "strictly negative" would be false."""
    rng = np.random.default_rng(30 + depth)
    z, y = normal(rng, 6, SIZES[0]), torch.from_numpy(rng.integers(0, SIZES[depth - 1], 6))
    steps, _ = random_steps(rng, SIZES[:depth], 6)
    column = torch.log_softmax(normal(rng, 6, SIZES[depth - 1], 1), dim=1)
    steps[-1] = DenseTransition(column.expand(-1, -1, SIZES[depth - 2]))
    torch.testing.assert_close(fine_gradient(z, steps, y), torch.zeros_like(z), rtol=0, atol=1e-14)


def test_corollary_is_not_strict_when_the_likeliest_child_has_no_mass():
    """If p¹_j* = 0 its gradient is 0, however large t_yj* is: a class given up is not found again."""
    t = torch.tensor([[0.9, 0.5, 0.2], [0.1, 0.5, 0.8]]).double()
    z = torch.tensor([[-2000.0, 0.3, -0.2]]).double()
    gradient = fine_gradient(z, [DenseTransition(t.log()[None])], torch.tensor([0]))
    assert gradient[0, 0] == 0
    assert gradient[0, 1] < 0 < gradient[0, 2]


# ---- theorem 1 -----------------------------------------------------------------------------------------------------


def posterior(p: Tensor, t: Tensor) -> Tensor:
    """p(Y¹ = j | yᵏ) ∝ t_j p_j."""
    return t * p / (t * p).sum(dim=1, keepdim=True)


@pytest.mark.parametrize("depth", DEPTHS)
def test_theorem_1_the_gradient_is_the_distance_to_the_posterior(depth):
    """For one sample ∂Lᵏ/∂z = p¹ - p(Y¹ | yᵏ): it vanishes exactly where p¹ equals that posterior."""
    rng = np.random.default_rng(40 + depth)
    z, y = normal(rng, 20, SIZES[0]), torch.from_numpy(rng.integers(0, SIZES[depth - 1], 20))
    steps, product = random_steps(rng, SIZES[:depth], 20)
    p, t = torch.softmax(z, dim=1), product[torch.arange(20), y]
    torch.testing.assert_close(fine_gradient(z, steps, y), p - posterior(p, t), rtol=1e-10, atol=1e-12)


def test_theorem_1_descent_on_one_sample_brings_its_prediction_to_the_posterior():
    """Gradient descent on z of one sample, T fixed, makes p¹ - p(Y¹ | yᵏ) as small as one likes; pᵏ_y grows all the while."""
    rng = np.random.default_rng(50)
    z, y = normal(rng, 1, SIZES[0]), torch.tensor([1])
    steps, product = random_steps(rng, SIZES[:3], 1)
    t = product[:, 1]

    def state(z: Tensor) -> tuple[float, float]:
        p = torch.softmax(z, dim=1)
        return (p - posterior(p, t)).abs().max().item(), (t * p).sum().item()

    gaps, likelihoods = zip(state(z), strict=True)
    for _ in range(4):
        for _ in range(150):
            z = z - 2.0 * fine_gradient(z, steps, y)
        gap, likelihood = state(z)
        gaps, likelihoods = (*gaps, gap), (*likelihoods, likelihood)
    assert gaps[-1] < 0.02 * gaps[0]
    assert list(likelihoods) == sorted(likelihoods)
    assert likelihoods[-1] <= t.max().item() < 1  # the infimum of the loss is that of the best column, and is not attained


@pytest.mark.parametrize("share", [0.5, 0.1, 0.999])
def test_theorem_1_holds_for_any_split_among_the_children(share):
    """With T = S every p¹ on the children of yᵏ is stationary and its own posterior: the right child is not singled out."""
    steps: list[Transition] = [TreeTransition(torch.tensor([0, 0, 1]), 2)]
    log_share = torch.tensor([share, 1 - share]).double().log()
    inside = torch.cat([log_share, torch.tensor([-2000.0]).double()])[None]
    gradient = fine_gradient(inside, steps, torch.tensor([0]))
    p = torch.softmax(inside, dim=1)
    torch.testing.assert_close(gradient, torch.zeros(1, 3).double(), rtol=0, atol=1e-14)
    torch.testing.assert_close(p, posterior(p, torch.tensor([[1.0, 1.0, 0.0]]).double()))
    outside = torch.cat([log_share, torch.tensor([0.0]).double()])[None]
    assert fine_gradient(outside, steps, torch.tensor([0]))[0, 2] > 0.1


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_theorem_1_needs_one_nonzero_feature_only(entry):
    """For one sample and z = W h the gradient in W vanishes only with p¹ - posterior, if h has one non-zero entry."""
    rng = np.random.default_rng(60)
    steps, product = random_steps(rng, SIZES[:2], 1)
    h = torch.zeros(1, 3).double()
    h[0, entry] = 0.7
    w = normal(rng, SIZES[0], 3).requires_grad_()
    z = h @ w.T
    log_p = torch.log_softmax(z, dim=1)
    (found,) = torch.autograd.grad(-steps[0].propagate(log_p)[0, 2], w)
    p = log_p.detach().exp()
    torch.testing.assert_close(found, (p - posterior(p, product[:, 2])).T @ h, rtol=1e-10, atol=1e-12)
    assert found[:, entry].abs().max() > 1e-3


@pytest.mark.parametrize(
    ("features", "y"),
    [([[1.0, 2.0], [1.0, 2.0]], [0, 1]), ([[1.0, 2.0], [-1.0, -2.0]], [0, 0])],
    ids=["same features, other label", "opposite features, same label"],
)
def test_theorem_1_is_false_for_two_samples_that_share_a_linear_layer(features, y):
    """Σ_n (p_n - q_n) h_nᵀ = 0 does not force p_n = q_n: at W = 0 the two samples cancel, and neither is at its posterior."""
    h, y = torch.tensor(features).double(), torch.tensor(y)
    t = torch.tensor([[0.8, 0.2], [0.2, 0.8]]).double()
    layer = torch.nn.Linear(2, 2, bias=False).double()
    torch.nn.init.zeros_(layer.weight)
    z = layer(h)
    z.retain_grad()
    log_p = torch.log_softmax(z, dim=1)
    log_coarse = DenseTransition(t.log()[None]).propagate(log_p)
    level_loss(Prediction((log_p, log_coarse)), 1, y).backward()
    torch.testing.assert_close(layer.weight.grad, torch.zeros(2, 2).double(), rtol=0, atol=1e-14)
    p = log_p.detach().exp()
    torch.testing.assert_close(z.grad, p - posterior(p, t[y]))
    assert (z.grad.abs().max(dim=1).values > 0.2).all()


# ---- T = S ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", DEPTHS)
def test_lht_with_the_fixed_transition_marginalises_the_softmax_over_children(depth):
    """With T = S, pᵏ_i is the sum of the softmax over all finest classes below i."""
    rng = np.random.default_rng(80 + depth)
    tree = random_hierarchy(rng, SIZES[:depth])
    head = random_head(tree, rng, "fixed")
    prediction, z = with_fine_logits(head, normal(rng, 5, FEATURES))
    p = torch.softmax(z.detach(), dim=1).numpy()
    for level in range(depth):
        above = tree.ancestors(level)
        for i in range(tree.sizes[level]):
            expected = sum(p[:, j] for j in range(tree.sizes[0]) if above[j] == i)
            np.testing.assert_allclose(prediction.probs(level)[:, i].detach().numpy(), expected, rtol=1e-10, atol=1e-14)
