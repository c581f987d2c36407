"""Masked cross-entropy and the confusion terms against naive float64 loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.prediction import confusion, masked_binary_cross_entropy, masked_cross_entropy, masked_mean
from torchlht.heads.transition.core import DenseTransition, kl_from_uniform, negative_entropy
from trees import hierarchies, naive_cross_entropy, normal, paths, quick, random_hierarchy, random_labels, seeds

REDUCTIONS = ["per_level_mean", "per_sample"]
reductions = st.sampled_from(REDUCTIONS)


def random_log_probs(rng: np.random.Generator, sizes: tuple[int, ...], batch: int) -> list[Tensor]:
    return [torch.log_softmax(normal(rng, batch, size, scale=2.0), dim=1) for size in sizes]


# ---- cross-entropy -------------------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), reduction=reductions, missing=st.sampled_from([0.0, 0.4, 0.9, 1.0]), seed=seeds)
def test_cross_entropy_equals_a_naive_loop(tree, reduction, missing, seed):
    rng = np.random.default_rng(seed)
    log_probs = random_log_probs(rng, tree.sizes, 6)
    labels = random_labels(tree, rng, 6, missing)
    found = masked_cross_entropy(log_probs, labels, reduction).item()
    assert found == pytest.approx(naive_cross_entropy(log_probs, labels, reduction), rel=1e-12, abs=1e-12)


def test_the_mean_per_level_is_the_default():
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (6, 3))
    log_probs, labels = random_log_probs(rng, tree.sizes, 8), paths(tree, rng, 8)
    labels[1:, 0] = -1
    default = masked_cross_entropy(log_probs, labels)
    assert default == masked_cross_entropy(log_probs, labels, "per_level_mean")
    assert default != masked_cross_entropy(log_probs, labels, "per_sample")


@pytest.mark.parametrize(("reduction", "weight"), [("per_level_mean", 1.0), ("per_sample", 1 / 8)])
def test_one_fine_label_among_eight_samples_weighs_one_or_an_eighth(reduction, weight):
    """The weight of that label's loss, relative to the mean coarse loss of the batch."""
    rng = np.random.default_rng(1)
    tree = random_hierarchy(rng, (6, 3))
    fine, coarse = (x.requires_grad_() for x in random_log_probs(rng, tree.sizes, 8))
    labels = paths(tree, rng, 8)
    labels[:5, 0] = -1
    labels[6:, 0] = -1
    masked_cross_entropy([fine, coarse], labels, reduction).backward()
    whole_coarse = -coarse.grad.sum()  # Σ_n of the weight of each sample's coarse loss
    assert (-fine.grad[5, labels[5, 0]] / whole_coarse).item() == pytest.approx(weight)
    assert fine.grad.count_nonzero() == 1


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_without_labels_gives_a_finite_loss_and_a_zero_gradient(level, reduction):
    rng = np.random.default_rng(2)
    tree = random_hierarchy(rng, (7, 4, 2))
    leaves = [normal(rng, 5, size).requires_grad_() for size in tree.sizes]
    labels = paths(tree, rng, 5)
    labels[:, level] = -1
    loss = masked_cross_entropy([torch.log_softmax(z, dim=1) for z in leaves], labels, reduction)
    loss.backward()
    assert torch.isfinite(loss)
    for k, z in enumerate(leaves):
        assert z.grad is not None
        assert torch.isfinite(z.grad).all()
        assert (z.grad.count_nonzero() == 0) == (k == level)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_division_by_the_number_of_levels_stays_when_a_level_has_no_labels(level):
    rng = np.random.default_rng(3)
    tree = random_hierarchy(rng, (7, 4, 2))
    log_probs, labels = random_log_probs(rng, tree.sizes, 5), paths(tree, rng, 5)
    per_level = [-log_p[torch.arange(5), labels[:, k]].mean().item() for k, log_p in enumerate(log_probs)]
    labels[:, level] = -1
    expected = sum(value for k, value in enumerate(per_level) if k != level) / 3
    assert masked_cross_entropy(log_probs, labels).item() == pytest.approx(expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_no_label_at_all_gives_zero_with_a_zero_gradient(reduction):
    rng = np.random.default_rng(4)
    leaves = [normal(rng, 5, size).requires_grad_() for size in (7, 4)]
    loss = masked_cross_entropy([torch.log_softmax(z, dim=1) for z in leaves], torch.full((5, 2), -1), reduction)
    loss.backward()
    assert loss.item() == 0
    assert all(z.grad is not None and z.grad.count_nonzero() == 0 for z in leaves)


@pytest.mark.parametrize("shape", [(5,), (5, 1), (5, 2), (5, 4), (5, 3, 1)])
def test_labels_of_the_wrong_shape_are_refused_with_the_shape_that_is_right(shape):
    log_probs = random_log_probs(np.random.default_rng(5), (6, 4, 2), 5)
    with pytest.raises(ValueError, match=r"expected \(batch, 3\): one column per level") as caught:
        masked_cross_entropy(log_probs, torch.zeros(shape, dtype=torch.int64))
    assert str(shape) in str(caught.value)


@quick
@given(known=st.lists(st.booleans(), min_size=1, max_size=6), reduction=reductions, seed=seeds)
def test_masked_mean_equals_a_naive_loop_and_masked_values_have_no_gradient(known, reduction, seed):
    values = normal(np.random.default_rng(seed), len(known)).requires_grad_()
    found = masked_mean(values, torch.tensor(known), reduction)
    found.backward()
    kept = [values[n].item() for n in range(len(known)) if known[n]]
    count = len(kept) if reduction == "per_level_mean" else len(known)
    assert found.item() == pytest.approx(sum(kept) / max(count, 1), rel=1e-12, abs=1e-12)
    assert [g != 0 for g in values.grad.tolist()] == known


def test_masked_mean_leaves_out_values_that_are_infinite():
    values = torch.tensor([1.0, torch.inf, 3.0], requires_grad=True)
    found = masked_mean(values, torch.tensor([True, False, True]))
    found.backward()
    assert found.item() == 2
    assert values.grad.tolist() == [0.5, 0, 0.5]


# ---- binary cross-entropy ------------------------------------------------------------------------------------------


def naive_binary(logits: list[Tensor], labels: Tensor, positive: list[Tensor] | None = None) -> float:
    """The mean over kept entries, times the mean number of classes of a level."""
    terms = []
    for k, z in enumerate(logits):
        for n in range(len(labels)):
            for c in range(z.shape[1]) if labels[n, k] >= 0 else ():
                right = c == labels[n, k]
                score = positive[k][n] if right and positive is not None else z[n, c]
                p = 1 / (1 + math.exp(-score))
                terms.append(-math.log(p if right else 1 - p))
    return sum(terms) / max(len(terms), 1) * sum(z.shape[1] for z in logits) / len(logits)


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.4, 0.9, 1.0]), other=st.booleans(), seed=seeds)
def test_binary_cross_entropy_equals_a_naive_loop(tree, missing, other, seed):
    rng = np.random.default_rng(seed)
    logits = [normal(rng, 6, size, scale=2.0) for size in tree.sizes]
    positive = [normal(rng, 6) for _ in tree.sizes] if other else None
    labels = random_labels(tree, rng, 6, missing)
    found = masked_binary_cross_entropy(logits, labels, positive).item()
    assert found == pytest.approx(naive_binary(logits, labels, positive), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3, 0.8])
def test_masking_does_not_change_the_scale_of_binary_cross_entropy(missing):
    """Where every entry has the same loss, the mean over the kept ones does not see which they are."""
    rng = np.random.default_rng(8)
    tree = random_hierarchy(rng, (7, 4, 2))
    logits = [torch.zeros(20, size).double() for size in tree.sizes]
    found = masked_binary_cross_entropy(logits, random_labels(tree, rng, 20, missing))
    assert found.item() == pytest.approx(math.log(2) * (7 + 4 + 2) / 3)


def test_entries_of_unknown_levels_have_no_gradient_in_binary_cross_entropy():
    rng = np.random.default_rng(9)
    tree = random_hierarchy(rng, (7, 4, 2))
    logits = [normal(rng, 6, size).requires_grad_() for size in tree.sizes]
    labels = random_labels(tree, rng, 6)
    masked_binary_cross_entropy(logits, labels).backward()
    for k, z in enumerate(logits):
        assert ((z.grad != 0) == (labels[:, k] >= 0).unsqueeze(1)).all()


# ---- confusion -----------------------------------------------------------------------------------------------------


def naive_confusion(t: np.ndarray, kind: str) -> float:
    """Ω of one transition: mean over samples n and columns j, by loops."""
    batch, rows, columns = t.shape
    total = 0.0
    for n in range(batch):
        for j in range(columns):
            for i in range(rows):
                if kind == "entropy":
                    total += t[n, i, j] * math.log(t[n, i, j])
                else:
                    total += (math.log(1 / rows) - math.log(t[n, i, j])) / rows
    return total / (batch * columns)


def random_log_matrices(rng: np.random.Generator, sizes: tuple[int, ...], batch: int = 3) -> list[Tensor]:
    pairs = itertools.pairwise(sizes)
    return [torch.log_softmax(normal(rng, batch, coarse, fine, scale=2.0), dim=1) for fine, coarse in pairs]


@quick
@given(tree=hierarchies(), kind=st.sampled_from(["entropy", "kl"]), reduction=reductions, seed=seeds)
def test_confusion_equals_a_naive_loop(tree, kind, reduction, seed):
    matrices = random_log_matrices(np.random.default_rng(seed), tree.sizes)
    terms = [naive_confusion(log_t.exp().numpy(), kind) for log_t in matrices]
    expected = sum(terms) / (len(terms) if reduction == "per_level_mean" else 1)
    transitions = [DenseTransition(log_t) for log_t in matrices]
    assert confusion(transitions, kind, reduction).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_negative_entropy_has_its_closed_form_gradient_in_the_logits():
    """dΩ/dA_ij = T_ij (log T_ij - Σ_l T_lj log T_lj), over the number of samples and columns."""
    a = normal(np.random.default_rng(6), 3, 4, 7).requires_grad_()
    log_t = torch.log_softmax(a, dim=1)
    (found,) = torch.autograd.grad(negative_entropy(log_t), a)
    t, log_t = log_t.detach().exp(), log_t.detach()
    expected = t * (log_t - (t * log_t).sum(dim=1, keepdim=True)) / (3 * 7)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_kl_from_uniform_has_its_closed_form_gradient_in_the_logits():
    """dΩ/dA_ij = T_ij - 1/C_k, over the number of samples and columns."""
    a = normal(np.random.default_rng(7), 3, 4, 7).requires_grad_()
    (found,) = torch.autograd.grad(kl_from_uniform(torch.log_softmax(a, dim=1)), a)
    expected = (torch.softmax(a.detach(), dim=1) - 1 / 4) / (3 * 7)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


@quick
@given(rows=st.integers(1, 9), scale=st.sampled_from([0.0, 0.1, 3.0, 50.0]), seed=seeds)
def test_negative_entropy_lies_between_minus_log_c_and_zero_and_kl_is_not_negative(rows, scale, seed):
    log_t = torch.log_softmax(normal(np.random.default_rng(seed), 3, rows, 4, scale=scale), dim=1)
    assert -math.log(rows) - 1e-12 <= negative_entropy(log_t).item() <= 1e-12
    assert kl_from_uniform(log_t).item() >= -1e-12


@pytest.mark.parametrize("rows", [2, 5])
def test_both_ends_of_the_range_are_reached(rows):
    flat = torch.log_softmax(torch.zeros(2, rows, 3).double(), dim=1)
    peaked = torch.log_softmax(80 * torch.eye(rows).double()[None].repeat(2, 1, 3), dim=1)
    assert negative_entropy(flat).item() == pytest.approx(-math.log(rows))
    assert negative_entropy(peaked).item() == pytest.approx(0, abs=1e-12)
    assert kl_from_uniform(flat).item() == pytest.approx(0, abs=1e-12)
    assert kl_from_uniform(peaked).item() == pytest.approx(80 * (rows - 1) / rows - math.log(rows))


@quick
@given(rows=st.integers(1, 9), seed=seeds)
def test_negative_entropy_is_the_divergence_to_uniform_minus_log_c(rows, seed):
    """Ω_entropy = KL(T ‖ u) - log C: the opposite direction of `kl`, which is KL(u ‖ T)."""
    log_t = torch.log_softmax(normal(np.random.default_rng(seed), 3, rows, 4), dim=1)
    t = log_t.exp().numpy()
    columns = [sum(p * math.log(p * rows) for p in t[n, :, j]) for n in range(3) for j in range(4)]
    assert negative_entropy(log_t).item() == pytest.approx(np.mean(columns) - math.log(rows), rel=1e-10, abs=1e-12)
