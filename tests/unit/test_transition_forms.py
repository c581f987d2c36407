"""Tiled and truncated transitions: against the dense matrix in float64, and what each form promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.errors import ConfigError
from torchlht.heads.method import create_method
from torchlht.heads.transition import core, tiled, truncated
from torchlht.heads.transition.core import CONFUSION, LowRankTransition, Prior, propagate, sum_children
from torchlht.heads.transition.networks import PLAIN, LowRank, automatic, create_transition
from torchlht.heads.transition.tiled import TiledTransition
from torchlht.heads.transition.truncated import Columns, TruncatedTransition
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, seeds

WIDTH = 5
Parts = tuple[Tensor, Tensor, Tensor, Tensor, Prior]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that even small trees need several tiles."""
    monkeypatch.setattr(core, "SMALL", 0)
    for module in (core, tiled, truncated):
        monkeypatch.setattr(module, "TILE", 24)


def parts(tree: Hierarchy, rng: np.random.Generator, *, down: bool, rank: int = 2, scale: float = 1.0, batch: int = 3) -> Parts:
    """Factors, γ, log p and prior of the finest step, in float64, with gradients."""
    fine, coarse = tree.sizes[:2]
    rows, columns = (fine, coarse) if down else (coarse, fine)
    left, right = (normal(rng, batch, n, rank, scale=scale).requires_grad_() for n in (columns, rows))
    log_p = torch.log_softmax(normal(rng, batch, columns, scale=2.0), dim=1).requires_grad_()
    above, children = torch.from_numpy(tree.parents[0].copy()), torch.arange(fine)
    prior = Prior.of(children, above, coarse) if down else Prior.of(above, children, fine)
    return left, right, torch.tensor(1.7, dtype=torch.float64, requires_grad=True), log_p, prior


def dense(left: Tensor, right: Tensor, gamma: Tensor, prior: Prior) -> Tensor:
    """log T entry by entry, as the formula has it."""
    s = torch.zeros(right.shape[1], left.shape[1], dtype=left.dtype)
    s[prior.rows, prior.columns] = 1
    return torch.log_softmax(right @ left.mT + gamma * s, dim=1)


def gradients(value: Tensor, *of: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(value, of, allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(of, found, strict=True)]


# ---- a few samples at a time: the same, exactly --------------------------------------------------------------------


@quick
@given(tree=hierarchies(), down=st.booleans(), few=st.sampled_from([0, 1000]), gap=st.sampled_from([0.0, 3000.0]), seed=seeds)
def test_turns_give_the_values_and_gradients_of_the_matrix(tree, down, few, gap, seed):
    """Samples in turns or all at once, and one of them in log space."""
    rng = np.random.default_rng(seed)
    left, right, gamma, log_p, prior = parts(tree, rng, down=down, batch=5)
    left.data[2] *= gap or 1.0
    weights = normal(rng, len(left), right.shape[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core, "FEW", few)
        found = (LowRankTransition(left, right, gamma, prior).propagate(log_p) * weights).sum()
        expected = (propagate(log_p, dense(left, right, gamma, prior)) * weights).sum()
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
        for a, b in zip(*(gradients(v, left, right, gamma, log_p) for v in (expected, found)), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-7, atol=1e-9 * max(1, gap))


# ---- tiled: the same, exactly --------------------------------------------------------------------------------------


@quick
@given(
    tree=hierarchies(),
    down=st.booleans(),
    rank=st.integers(1, 3),
    scale=st.sampled_from([0.5, 3.0, 30.0]),
    width=st.sampled_from([1, 32]),
    seed=seeds,
)
def test_tiles_give_the_values_and_gradients_of_the_matrix(tree, down, rank, scale, width, seed):
    """With one sample at a time, and with several where tiles may be narrow."""
    rng = np.random.default_rng(seed)
    left, right, gamma, log_p, prior = parts(tree, rng, down=down, rank=rank, scale=scale)
    log_t = dense(left, right, gamma, prior)
    weights = normal(rng, len(left), right.shape[1])
    transition = TiledTransition(left, right, gamma, prior, confused=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiled, "WIDTH", width)
        found = (transition.propagate(log_p) * weights).sum()
    expected = (propagate(log_p, log_t) * weights).sum()
    pairs = [(expected, found), *((CONFUSION[kind](log_t), transition.confusion(kind)) for kind in ("entropy", "kl"))]
    for ours, theirs in [*pairs, (sum(a for a, _ in pairs), sum(b for _, b in pairs))]:
        torch.testing.assert_close(theirs, ours, rtol=1e-9, atol=1e-9)
        for a, b in zip(*(gradients(v, left, right, gamma, log_p) for v in (ours, theirs)), strict=True):
            torch.testing.assert_close(b, a, rtol=1e-7, atol=1e-9 * max(1, scale**2))
    torch.testing.assert_close(transition.log_matrix(), log_t)


@pytest.mark.parametrize("before", [False, True])
def test_the_confusion_of_tiles_can_be_had_by_itself_and_after_a_step_that_did_without(before):
    rng = np.random.default_rng(0)
    left, right, gamma, log_p, prior = parts(random_hierarchy(rng, (9, 4, 2)), rng, down=False)
    for kind in ("entropy", "kl"):
        transition = TiledTransition(left, right, gamma, prior)
        if before:
            transition.propagate(log_p)
        torch.testing.assert_close(transition.confusion(kind), CONFUSION[kind](dense(left, right, gamma, prior)))


@pytest.mark.parametrize("gap", [50.0, 80.0, 120.0, 400.0])
def test_tiles_survive_what_float32_cannot_hold(gap):
    """A class whose probability underflows still has a finite loss and the right gradient."""
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (12, 5, 2))
    left, right, _, _, prior = parts(tree, rng, down=False)
    z = torch.zeros(3, 12, dtype=torch.float64)
    z[:, 0] = gap
    big = torch.tensor(gap, dtype=torch.float64)
    found = []
    for dtype in (torch.float64, torch.float32):
        inputs = [x.detach().to(dtype).requires_grad_() for x in (left, right, big, torch.log_softmax(z, dim=1))]
        transition = TiledTransition(*inputs[:3], prior) if dtype == torch.float32 else None
        result = transition.propagate(inputs[3]) if transition else propagate(inputs[3], dense(*inputs[:3], prior))
        loss = -result[:, 4].mean()
        assert torch.isfinite(loss)
        found.append((loss, gradients(loss, *inputs)))
    torch.testing.assert_close(found[1][0].double(), found[0][0], rtol=1e-4, atol=1e-4)
    for exact, ours in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=1e-3, atol=1e-4 * max(1, gap / 50))


@pytest.mark.parametrize("form", ["plain", "tiled"])
def test_float32_gradients_agree_with_float64_at_ordinary_logits(form):
    rng = np.random.default_rng(2)
    tree = random_hierarchy(rng, (300, 60, 7))
    exact, single = (create_method("lht", 16, tree, form="plain", confusion_weight=0.1).double() for _ in range(2))
    single = create_method("lht", 16, tree, form=form, confusion_weight=0.1)
    exact.load_state_dict(single.state_dict())
    x, y = normal(rng, 8, 16), torch.from_numpy(np.array([tree.path(int(leaf)) for leaf in rng.integers(300, size=8)]))
    losses = [head.loss(head(x.to(dtype)), y) for head, dtype in ((exact, torch.float64), (single, torch.float32))]
    for loss in losses:
        loss.backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-5)
    for (name, a), (_, b) in zip(exact.named_parameters(), single.named_parameters(), strict=True):
        assert a.grad is not None
        assert b.grad is not None
        norm = a.grad.norm()
        assert (b.grad.double() - a.grad).norm() <= 1e-4 * norm + 1e-6, name  # some are exactly 0: a bias before a norm


# ---- drift: how far a transition is from the tree -------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.0, 1.7, 6.0])
def test_drift_is_the_divergence_from_the_softened_tree_in_every_form(gamma):
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (9, 4, 2))
    left, right, weight, _, prior = parts(tree, rng, down=False)
    start = torch.log_softmax(gamma * torch.tensor(tree.matrix(0)).double(), dim=0)
    expected = (start.exp() * (start - dense(left, right, weight, prior))).sum(dim=1).mean()
    for kind in (LowRankTransition, TiledTransition):
        found = kind(left, right, weight, prior).drift(gamma)
        torch.testing.assert_close(found, expected)
        for a, b in zip(gradients(expected, left, right, weight), gradients(found, left, right, weight), strict=True):
            torch.testing.assert_close(b, a)
    still = LowRankTransition(left * 0, right * 0, weight * 0 + gamma, prior)
    torch.testing.assert_close(still.drift(gamma), torch.zeros((), dtype=torch.float64))
    net, transition, _ = truncated_step(tree, rng, Columns(2))  # 9 columns: all are drawn
    whole = net.left(transition.features).view(4, 9, 2), transition.right, net.gamma, transition.prior
    torch.testing.assert_close(transition.drift(gamma), LowRankTransition(*whole).drift(gamma))


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_a_step_and_the_drift_share_their_exponentials_and_gradients(scale):
    """Also where sums underflow, and the step is made in log space."""
    rng = np.random.default_rng(5)
    tree = random_hierarchy(rng, (9, 4, 2))
    left, right, weight, log_p, prior = parts(tree, rng, down=False, scale=scale)
    start = torch.log_softmax(6.0 * torch.tensor(tree.matrix(0)).double(), dim=0)
    log_t = dense(left, right, weight, prior)
    expected = propagate(log_p, log_t).square().sum() + 3 * (start.exp() * (start - log_t)).sum(dim=1).mean()
    transition = LowRankTransition(left, right, weight, prior)
    found = transition.propagate(log_p).square().sum()
    assert transition.log_sums is not None
    found = found + 3 * transition.drift(6.0)
    torch.testing.assert_close(found, expected)
    asked = (left, right, weight, log_p)
    for a, b in zip(gradients(expected, *asked), gradients(found, *asked), strict=True):
        torch.testing.assert_close(b, a)


# ---- truncated: bounded, unbiased ----------------------------------------------------------------------------------


def truncated_step(tree: Hierarchy, rng: np.random.Generator, columns: Columns) -> tuple[LowRank, TruncatedTransition, Tensor]:
    net = create_transition("low_rank", WIDTH, tree, 0, gamma=1.0, form="truncated", columns=columns).double()
    assert isinstance(net, LowRank)
    for parameter in (net.left.weight, net.right.weight, net.left.bias, net.right.bias):
        parameter.data = normal(rng, *parameter.shape)
    transition = net(normal(rng, 4, WIDTH))
    assert isinstance(transition, TruncatedTransition)
    return net, transition, torch.log_softmax(normal(rng, 4, tree.sizes[0], scale=3.0), dim=1)


@quick
@given(tree=hierarchies(extra=12), most=st.integers(1, 4), seed=seeds)
def test_the_result_is_off_by_no_more_than_the_mass_left_out(tree, most, seed):
    rng = np.random.default_rng(seed)
    _, transition, log_p = truncated_step(tree, rng, Columns(most))
    found = transition.propagate(log_p).exp()
    exact = propagate(log_p, transition.log_matrix()).exp()
    assert transition.tail is not None
    if most <= 0.25 * tree.sizes[0]:
        kept = log_p.exp().topk(most, dim=1).values.sum(dim=1)
        torch.testing.assert_close(transition.tail, 1 - kept)
    bound = transition.tail + 1e-12
    assert ((found - exact).abs().amax(dim=1) <= bound).all()
    assert ((found - exact).abs().sum(dim=1) / 2 <= bound).all()
    torch.testing.assert_close(found.sum(dim=1), torch.ones(4).double())


@quick
@given(tree=hierarchies(extra=12), tail=st.floats(0.01, 0.9), seed=seeds)
def test_a_tail_that_is_asked_for_is_kept_to(tree, tail, seed):
    _, transition, log_p = truncated_step(tree, np.random.default_rng(seed), Columns(tail=tail))
    transition.propagate(log_p)
    assert transition.tail is not None
    assert (transition.tail <= tail + 1e-12).all()


@quick
@given(tree=hierarchies(extra=12), most=st.integers(1, 3), many=st.sampled_from([1, 1000]), seed=seeds)
def test_truncated_is_what_its_formula_says_and_so_is_its_gradient(tree, most, many, seed):
    """Whether all rows of the layer are computed, or the chosen ones alone."""
    rng = np.random.default_rng(seed)
    net, transition, log_p = truncated_step(tree, rng, Columns(most))
    if most > 0.25 * tree.sizes[0]:
        return
    log_p.requires_grad_()
    weights = normal(rng, 4, tree.sizes[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncated, "MANY", many)
        found = (transition.propagate(log_p) * weights).sum()
    t, p, top = transition.log_matrix().exp(), log_p.exp(), log_p.topk(most, dim=1).indices
    chosen = torch.zeros_like(p).scatter(1, top, 1.0)
    by_tree = (p * (1 - chosen)) @ torch.from_numpy(tree.matrix(0)).T
    expected = (((t @ (p * chosen).unsqueeze(2)).squeeze(2) + by_tree).log() * weights).sum()
    torch.testing.assert_close(found, expected)
    of = (log_p, *net.parameters())
    for a, b in zip(gradients(expected, *of), gradients(found, *of), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_the_confusion_of_drawn_columns_is_unbiased(kind):
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (200, 9, 2))
    _, transition, _ = truncated_step(tree, rng, Columns(8))
    exact = CONFUSION[kind](transition.log_matrix()).item()
    torch.manual_seed(0)
    with torch.no_grad():
        found = np.array([transition.confusion(kind).item() for _ in range(400)])
    assert found.std() > 0
    assert abs(found.mean() - exact) <= 4 * found.std() / math.sqrt(len(found))


def test_what_was_left_out_is_in_the_history():
    tree = random_hierarchy(np.random.default_rng(0), (400, 20, 3))
    head = create_method("lht", 6, tree, form="truncated", columns=8)
    head.train()
    head(torch.randn(5, 6))
    found = head.scalars()
    assert 0 < found["tail_level2"] <= found["tail_max_level2"] < 1
    assert "tail_level2" not in head.scalars()  # asked for once an epoch, of that epoch
    tails = [head(torch.randn(5, 6)).transitions[0].tail for _ in range(3)]
    found = head.scalars()
    assert found["tail_level2"] == pytest.approx(torch.stack(tails).mean().item(), rel=1e-4)
    assert found["tail_max_level2"] == pytest.approx(torch.stack(tails).max().item(), rel=1e-4)
    head.eval()
    head(torch.randn(5, 6))
    assert "tail_level2" not in head.scalars()


# ---- choosing ------------------------------------------------------------------------------------------------------


def test_the_form_is_chosen_by_size():
    assert automatic(38, 200) == "plain"
    assert automatic(100, 1000) == "plain"
    assert automatic(1103, 4884) == "truncated"
    assert automatic(4884, 10000) == "truncated"
    assert automatic(800, 1000) == "tiled"
    assert automatic(800, 1000, most=32) == "truncated"
    assert automatic(1, PLAIN) == "plain"
    assert automatic(1, PLAIN + 1) == "truncated"
    assert automatic(1, PLAIN + 1, down=True) == "tiled"
    assert automatic(38, 200, confused=True) == "plain"
    assert automatic(100, 1000, confused=True) == "tiled"
    assert automatic(1103, 4884, confused=True) == "truncated"


@pytest.mark.parametrize(
    ("form", "kind"), [("plain", LowRankTransition), ("tiled", TiledTransition), ("truncated", TruncatedTransition)]
)
def test_every_form_can_be_asked_for_and_keeps_the_same_weights(form, kind):
    tree = random_hierarchy(np.random.default_rng(0), (40, 8, 3))
    head = create_method("lht", 6, tree, form=form)
    other = create_method("lht", 6, tree)
    other.load_state_dict(head.state_dict())
    prediction = head.eval()(torch.randn(4, 6))
    assert all(type(t) is kind for t in prediction.transitions)


def test_large_trees_refuse_what_is_quadratic():
    tree = Hierarchy.from_parents([np.arange(20_000) // 4, np.arange(5_000) // 2500])
    for name in ("lht-full", "lht-simplified"):
        with pytest.raises(ConfigError, match="use low_rank"):
            create_method(name, 4, tree, width=6)
    with pytest.raises(ConfigError, match="how a coarse class divides"):
        create_transition("low_rank", 4, tree, 0, down=True, form="truncated")
    for wrong in ({"columns": 0}, {"tail": 1.5}):
        with pytest.raises(ConfigError, match="it must be"):
            create_method("lht", 4, tree, **wrong)


def test_no_form_of_a_large_tree_makes_its_matrix():
    """20,000 × 5,000 in float32 would be 400 MB for each of 2 samples; a step gets by with a fraction."""
    tree = Hierarchy.from_parents([np.arange(20_000) // 4, np.arange(5_000) // 2500])
    head = create_method("lht", 4, tree, width=6)
    kept = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept = max(kept, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        prediction = head(torch.randn(2, 4))
        head.loss(prediction, torch.tensor([[5, 1, 0], [-1, -1, 1]])).backward()
    assert kept <= 2 * 5_000 * 64
    assert sum_children(prediction.log_probs[0], torch.from_numpy(tree.parents[0].copy()), 5_000).shape == (2, 5_000)
