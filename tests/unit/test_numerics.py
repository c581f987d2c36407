"""Numerical hazards: the project's code survives each of them, and the naive linear form shown beside it does not.

"Correct" always means: equal to the naive form computed in float64, where nothing underflows at these gaps.
"""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchlht.heads.method import BatchNorm, Method, create_method
from torchlht.heads.methods.lht import LHTHead
from torchlht.heads.transition import core
from torchlht.heads.transition.core import CONFUSION, kl_from_uniform, negative_entropy, propagate, sum_children
from torchlht.heads.transition.networks import Full, LowRank, TransitionNetwork
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy

PARENTS = [0, 1, 0]  # finest classes 0 and 2 under coarse 0, class 1 alone under coarse 1
TREE = Hierarchy.from_parents([PARENTS])
S = torch.from_numpy(TREE.matrix(0))


@pytest.fixture(autouse=True, params=[0, core.SMALL])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every hazard, in the step that large trees take and in the one that small trees take."""
    monkeypatch.setattr(core, "SMALL", request.param)


def gap_logits(gap: float) -> Tensor:
    return torch.tensor([[0.0, gap, 0.0]])


def linear_log_probs(z: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """The public code's way: softmax, matrix product, and log at the end."""
    p = torch.softmax(z, dim=1)
    return torch.log(p), torch.log((t @ p.unsqueeze(2)).squeeze(2))


def value_and_gradient(loss: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    for a, b in zip(found, expected, strict=True):
        assert torch.isfinite(a).all()
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)


def assert_broken(found: tuple[Tensor, Tensor]) -> None:
    assert not all(torch.isfinite(x).all() for x in found)


# ---- hazards 1 and 4: log of a softmax, and of a sum of it ---------------------------------------------------------


@pytest.mark.parametrize("gap", [95.0, 110.0])
@pytest.mark.parametrize(
    ("name", "options", "level"),
    [
        pytest.param("flat", {}, 0, id="flat, fine label"),
        pytest.param("multihead", {}, 0, id="multihead, fine label"),
        pytest.param("multihead", {}, 1, id="multihead, coarse label"),
        pytest.param("lht", {"transition": "fixed"}, 0, id="lht fixed, fine label"),
        pytest.param("lht", {"transition": "fixed"}, 1, id="lht fixed, coarse label"),
        pytest.param("lht", {"transition": "static", "gamma": 200.0}, 1, id="lht static, coarse label"),
    ],
)
def test_a_confident_mistake_has_the_right_loss_and_gradient(name, options, level, gap):
    """From a gap of 88 the naive gradient is NaN or inf, from 104 the loss is; label 0 is what the model excludes."""
    head = create_method(name, 4, TREE, width=4, **options).eval()
    layer = head.heads[level] if name == "multihead" else head.classifier
    nn.init.zeros_(layer.weight)
    z = gap_logits(gap)[0] if layer.out_features == 3 else torch.tensor([0.0, gap])
    layer.bias.data.copy_(z)
    labels = torch.tensor([[0, -1]] if level == 0 else [[-1, 0]])
    found = value_and_gradient(head.loss(head(torch.zeros(1, 4)), labels), layer.bias)

    def naive(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = layer.bias.detach().to(dtype).requires_grad_()
        log_p, log_coarse = linear_log_probs(leaf[None], (S if len(leaf) == 3 else torch.eye(2)).to(dtype)[None])
        loss = -(log_p if level == 0 or len(leaf) == 2 else log_coarse)[0, 0]
        return value_and_gradient(loss / 2, leaf)  # two levels, one without a label

    assert_same(found, naive(torch.float64))
    assert_broken(naive(torch.float32))


def test_the_known_failure_is_a_finite_loss_with_a_nan_gradient():
    """Why watching the loss is not enough: z = [0, 95, 0], y = 0."""
    z = gap_logits(95.0).requires_grad_()
    loss, gradient = value_and_gradient(-torch.log(torch.softmax(z, dim=1))[0, 0], z)
    assert loss.item() == pytest.approx(95)
    assert gradient.isnan().any()


@pytest.mark.parametrize("gap", [120.0, 600.0])
def test_summing_children_survives_a_gap_at_which_log_of_the_sum_is_infinite(gap):
    def ours(z: Tensor) -> Tensor:
        return -sum_children(torch.log_softmax(z, dim=1), torch.tensor(PARENTS), 2)[0, 0]

    def naive(z: Tensor) -> Tensor:
        return -torch.log(torch.softmax(z, dim=1) @ S.T.to(z.dtype))[0, 0]

    z, z64 = gap_logits(gap).requires_grad_(), gap_logits(gap).double().requires_grad_()
    assert_same(value_and_gradient(ours(z), z), value_and_gradient(naive(z64), z64))
    assert naive(z).item() == float("inf")


# ---- hazard 2: large transition logits -----------------------------------------------------------------------------


def low_rank_with_gamma(gamma: float) -> LowRank:
    """A network that is its prior: T = softmax(γ S)."""
    net = LowRank(4, TREE, 0, gamma=gamma)
    for layer in (net.left, net.right):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    return net


def test_gamma_of_120_keeps_the_loss_and_its_gradients():
    """p¹ sits on the one class whose parent is not the label, and T puts e⁻¹²⁰ on any other way."""
    net, z = low_rank_with_gamma(120.0), gap_logits(110.0).requires_grad_()
    loss = -net(torch.ones(1, 4)).propagate(torch.log_softmax(z, dim=1))[0, 0]
    by_z, by_gamma = torch.autograd.grad(loss, (z, net.gamma))

    def naive(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        z = gap_logits(110.0).to(dtype).requires_grad_()
        gamma = torch.tensor(120.0, dtype=dtype, requires_grad=True)
        loss = -linear_log_probs(z, torch.softmax(gamma * S.to(dtype), dim=0)[None])[1][0, 0]
        return loss.detach(), *torch.autograd.grad(loss, (z, gamma))

    expected = naive(torch.float64)
    assert_same((loss.detach(), by_z), expected[:2])
    assert by_gamma.item() == pytest.approx(expected[2].item(), rel=1e-4)
    assert naive(torch.float32)[0].item() == float("inf")


@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_gamma_of_120_keeps_the_confusion_term_and_its_gradient(kind):
    net = low_rank_with_gamma(120.0)
    found = value_and_gradient(CONFUSION[kind](net(torch.ones(1, 4)).log_matrix()), net.gamma)

    def naive(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        gamma = torch.tensor(120.0, dtype=dtype, requires_grad=True)
        t = torch.softmax(gamma * S.to(dtype), dim=0)
        value = (t * t.log()).sum(dim=0).mean() if kind == "entropy" else -(2 * t).log().mean()
        return value_and_gradient(value, gamma)

    assert_same(found, naive(torch.float64))
    assert_broken(naive(torch.float32))


@pytest.mark.parametrize("kind", ["low_rank", "full"])
def test_large_transition_weights_keep_the_loss_and_its_gradient(kind):
    """Logits of 120 from the features instead of from γ."""
    net: TransitionNetwork
    if kind == "full":
        net = Full(4, TREE, 0)
        nn.init.zeros_(net.logits.weight)
        net.logits.bias.data.copy_((120 * S).flatten())
        learned = net.logits.bias
    else:
        net = low_rank_with_gamma(0.0)
        net.left.bias.data.copy_(torch.tensor([[12.0, 0.0], [0.0, 12.0], [12.0, 0.0]]).flatten())
        net.right.bias.data.copy_(torch.tensor([[10.0, 0.0], [0.0, 10.0]]).flatten())
        learned = net.left.bias
    z = gap_logits(110.0)
    found = value_and_gradient(-net(torch.ones(1, 4)).propagate(torch.log_softmax(z, dim=1))[0, 0], learned)

    def naive(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        leaf = learned.detach().to(dtype).requires_grad_()
        if kind == "full":
            logits = leaf.view(2, 3)
        else:
            logits = net.right.bias.detach().to(dtype).view(2, 2) @ leaf.view(3, 2).T
        return value_and_gradient(-linear_log_probs(z.to(dtype), torch.softmax(logits, dim=0)[None])[1][0, 0], leaf)

    assert_same(found, naive(torch.float64))
    assert_broken(naive(torch.float32))


# ---- hazard 3: half precision --------------------------------------------------------------------------------------


def autocast_works(dtype: torch.dtype) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with torch.autocast("cpu", dtype=dtype):
                return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
        except (RuntimeError, UserWarning):
            return False


HALF = [
    pytest.param(dtype, marks=pytest.mark.skipif(not autocast_works(dtype), reason=f"no {dtype} autocast on this CPU"))
    for dtype in (torch.bfloat16, torch.float16)
]
TRANSITIONS = ["low_rank", "full", "static", "fixed"]


def strong_head(transition: str, seed: int, confusion: str = "entropy", scale: float = 8.0) -> tuple[LHTHead, Tensor, Tensor]:
    """A head whose transition weights have grown, features, and full labels."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    tree = random_hierarchy(rng, (9, 5, 3))
    weight = 0.0 if transition == "fixed" else 0.1
    head = LHTHead(8, tree, width=16, transition=transition, confusion=confusion, confusion_weight=weight).eval()
    for name, parameter in head.named_parameters():
        if name.startswith("steps"):
            parameter.data = normal(rng, *parameter.shape, scale=scale if parameter.dim() else 1.0, dtype=torch.float32)
    head.classifier.weight.data *= 20
    return head, normal(rng, 6, 8, dtype=torch.float32), paths(tree, rng, 6)


@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("dtype", HALF)
def test_autocast_gives_normalised_float32_log_probabilities(dtype, transition):
    head, features, labels = strong_head(transition, 0)
    with torch.autocast("cpu", dtype=dtype):
        prediction = head(features)
        loss = head.loss(prediction, labels)
    for log_p in prediction.log_probs:
        assert log_p.dtype == torch.float32
        assert torch.isfinite(log_p).all()
        torch.testing.assert_close(log_p.exp().sum(dim=1), torch.ones(6), rtol=0, atol=1e-5)
    for step in prediction.transitions:
        assert step.log_matrix().dtype == torch.float32
    assert torch.isfinite(loss)
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())


@pytest.mark.parametrize("dtype", HALF)
def test_the_linear_form_breaks_under_autocast(dtype):
    """On the very logits the head above computes: rows that do not sum to one, or a log of zero."""
    head, features, _ = strong_head("full", 0)
    with torch.autocast("cpu", dtype=dtype):
        fine, *coarser = head.neck(features)
        p = torch.softmax(head.classifier(fine), dim=1)
        error, infinite = 0.0, False
        for step, u in zip(head.steps, coarser, strict=True):
            p = (torch.softmax(step.logits(u).view(-1, step.rows, step.columns), dim=1) @ p.unsqueeze(2)).squeeze(2)
            error = max(error, (p.double().sum(dim=1) - 1).abs().max().item())
            infinite |= bool(torch.log(p).isinf().any())
    assert error > 1e-5
    assert infinite == (dtype == torch.float16)


@pytest.mark.parametrize("kind", ["entropy", "kl"])
@pytest.mark.parametrize("dtype", HALF)
def test_autocast_gives_the_float64_loss_and_gradients_of_the_same_half_precision_outputs(dtype, kind):
    """The linear layers round, what follows does not: loss and gradients at their outputs equal the naive float64 ones."""
    head, features, labels = strong_head("low_rank", 1, kind, scale=2.0)
    assert head.prior_weight == 10
    layers = [head.classifier, *(layer for step in head.steps for layer in (step.left, step.right))]
    outputs: list[Tensor] = []
    hooks = [layer.register_forward_hook(lambda module, inputs, output: outputs.append(output)) for layer in layers]
    with torch.autocast("cpu", dtype=dtype):
        loss = head.loss(head(features), labels)
    for hook in hooks:
        hook.remove()
    assert {output.dtype for output in outputs} == {dtype}
    found = torch.autograd.grad(loss, outputs)

    leaves = [output.detach().double().requires_grad_() for output in outputs]
    p = torch.softmax(leaves[0], dim=1)
    expected = -p[torch.arange(6), labels[:, 0]].log().mean() / 3
    for k, step in enumerate(head.steps):
        left, right = leaves[1 + 2 * k].view(6, step.columns, 2), leaves[2 + 2 * k].view(6, step.rows, 2)
        s = torch.from_numpy(head.hierarchy.matrix(k))
        t = torch.softmax(right @ left.mT + step.gamma.detach().double() * s, dim=1)
        p = (t @ p.unsqueeze(2)).squeeze(2)
        omega = (t * t.log()).sum(dim=1).mean() if kind == "entropy" else -(t * step.rows).log().mean()
        held = torch.softmax(head.gammas[k] * s, dim=0)
        drift = (held * (held.log() - t.log())).sum(dim=1).mean()
        expected = expected - p[torch.arange(6), labels[:, k + 1]].log().mean() / 3 + 0.1 * omega / 2
        expected = expected + head.prior_weight * drift / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    step_size = torch.finfo(dtype).eps
    for mine, reference in zip(found, torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(mine.double(), reference, rtol=step_size, atol=1e-6)


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_head_converted_to_bfloat16_still_gives_normalised_float32_log_probabilities(transition):
    """Not autocast but `head.bfloat16()`, as people do to save memory: "everything is at least float32" holds there too."""
    head, features, _ = strong_head(transition, 2)
    prediction = head.bfloat16()(features.bfloat16())
    for step in prediction.transitions:
        assert step.log_matrix().dtype == torch.float32
    for log_p in prediction.log_probs:
        assert log_p.dtype == torch.float32
        torch.testing.assert_close(log_p.exp().sum(dim=1), torch.ones(6), rtol=0, atol=1e-5)


# ---- hazard 5: an epsilon inside the logarithm ---------------------------------------------------------------------


def test_kl_keeps_its_restoring_gradient_at_a_logit_gap_of_40():
    """T - 1/C whatever the gap; log(T + 1e-10) turns -0.5 into -2e-8."""
    a = torch.tensor([[[40.0], [0.0]]], requires_grad=True)
    (found,) = torch.autograd.grad(kl_from_uniform(torch.log_softmax(a, dim=1)), a)
    torch.testing.assert_close(found, torch.tensor([[[0.5], [-0.5]]]))
    (naive,) = torch.autograd.grad(-torch.log(2 * (torch.softmax(a, dim=1) + 1e-10)).mean(), a)
    assert abs(naive[0, 1, 0].item()) < 1e-6


def test_entropy_is_finite_where_the_epsilon_vanishes_in_float16():
    a = torch.tensor([[[40.0], [0.0]]], dtype=torch.float16)
    t = torch.softmax(a, dim=1)
    assert (torch.log(t + 1e-10) * t).sum().isnan()
    wide = a.float().requires_grad_()
    value, gradient = value_and_gradient(negative_entropy(torch.log_softmax(wide, dim=1)), wide)
    assert value.item() == pytest.approx(-40 * np.exp(-40.0), rel=1e-3, abs=1e-12)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("gap", [40.0, 120.0])
def test_entropy_keeps_the_float64_gradient_of_a_saturated_column(gap):
    a, a64 = (torch.tensor([[[gap], [0.0], [1.0]]], dtype=d).requires_grad_() for d in (torch.float32, torch.float64))
    (found,) = torch.autograd.grad(negative_entropy(torch.log_softmax(a, dim=1)), a)
    t = torch.softmax(a64, dim=1)
    (expected,) = torch.autograd.grad((t * t.log()).sum(), a64)
    torch.testing.assert_close(found[0, 1:].double(), expected[0, 1:], rtol=1e-4, atol=1e-42)


# ---- hazard 6: a training batch of one -----------------------------------------------------------------------------


def buffers(method: Method) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in method.neck.named_buffers()}


@pytest.mark.parametrize("features", ["shared", "split"])
def test_a_training_batch_of_one_works_and_leaves_the_running_statistics_alone(features):
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (6, 3))
    head = LHTHead(5, tree, width=8, features=features).train()
    head.loss(head(normal(rng, 16, 5, dtype=torch.float32)), paths(tree, rng, 16)).backward()
    head.zero_grad()
    before = buffers(head)
    single = normal(rng, 1, 5, dtype=torch.float32)
    prediction = head(single)
    loss = head.loss(prediction, paths(tree, rng, 1))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in head.parameters())
    assert head.neck.layers[1].weight.grad.abs().sum() > 0
    assert all(torch.equal(value, buffers(head)[name]) for name, value in before.items())
    for mine, evaluated in zip(prediction.log_probs, copy.deepcopy(head).eval()(single).log_probs, strict=True):
        torch.testing.assert_close(mine, evaluated)
    head(normal(rng, 2, 5, dtype=torch.float32))
    assert not any(torch.equal(value, buffers(head)[name]) for name, value in before.items())


def test_plain_batchnorm_raises_on_a_training_batch_of_one_and_is_equal_otherwise():
    rng = np.random.default_rng(4)
    plain, ours = nn.BatchNorm1d(5), BatchNorm(5)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        plain(torch.zeros(1, 5))
    assert ours(torch.zeros(1, 5)).shape == (1, 5)
    x = normal(rng, 7, 5, dtype=torch.float32)
    torch.testing.assert_close(ours(x), plain(x))
    torch.testing.assert_close(ours.eval()(x[:1]), plain.eval()(x[:1]))


def test_three_levels_of_log_space_stay_exact_where_every_probability_is_zero_in_float32():
    """A chain of wrong turns: log p = -300, and p is 0 in float32 long before."""
    z = gap_logits(100.0)
    log_t = torch.log_softmax(torch.tensor([[[100.0, 100.0, 100.0], [0.0, 0.0, 0.0]]]), dim=1)
    log_u = torch.log_softmax(torch.tensor([[[0.0, 100.0], [100.0, 0.0]]]), dim=1)
    log_p = propagate(propagate(torch.log_softmax(z, dim=1), log_t), log_u)
    reference = torch.log((log_u.double().exp() @ (log_t.double().exp() @ torch.softmax(z.double(), dim=1).T))[0, :, 0])
    torch.testing.assert_close(log_p[0].double(), reference, rtol=1e-6, atol=1e-6)
