"""marginal: LHT with T = S, whose coarse probabilities are sums; and flat, which differs in its loss alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.method import Method, create_method
from torchlht.heads.methods.flat import Flat
from torchlht.heads.methods.lht import LHTHead
from torchlht.heads.methods.marginal import Marginal
from torchlht.heads.transition.networks import Fixed
from trees import normal, paths, random_hierarchy, random_labels, random_method

SIZES = (9, 5, 3)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
REDUCTIONS = ["per_level_mean", "per_sample"]


def make(seed: int, name: str = "marginal", **options: object) -> Method:
    return random_method(name, TREE, np.random.default_rng(seed), **options)


def naive_loss(p: np.ndarray, labels: Tensor, reduction: str) -> float:
    """- log of the sum of the softmax over all finest classes below each known label."""
    total = 0.0
    for k in range(len(SIZES)):
        terms = []
        for n, y in enumerate(labels[:, k].tolist()):
            if y >= 0:
                terms.append(-math.log(sum(p[n, leaf] for leaf in range(SIZES[0]) if TREE.path(leaf)[k] == y)))
        if reduction == "per_sample":
            total += sum(terms) / len(labels)
        elif terms:
            total += sum(terms) / len(terms) / len(SIZES)
    return total


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("features", ["shared", "split"])
def test_the_loss_is_minus_log_of_the_sum_over_children(features, missing, reduction):
    rng = np.random.default_rng(1)
    method = make(1, features=features, reduction=reduction)
    x, labels = normal(rng, 8, 5), random_labels(TREE, rng, 8, missing)
    prediction = method(x)
    logits = method.classifier(method.neck(x)[0]).detach().numpy()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert method.loss(prediction, labels).item() == pytest.approx(naive_loss(p, labels, reduction), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("features", ["shared", "split"])
def test_it_is_lht_with_the_fixed_transition_exactly(features, reduction):
    rng = np.random.default_rng(2)
    method = make(2, features=features, reduction=reduction)
    head = LHTHead(5, TREE, width=12, features=features, reduction=reduction, transition="fixed").double().eval()
    assert set(head.state_dict()) == set(method.state_dict())
    head.load_state_dict(method.state_dict())
    x, labels = normal(rng, 8, 5), random_labels(TREE, rng, 8)
    ours, theirs = method(x), head(x)
    for a, b in zip(ours.log_probs, theirs.log_probs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(method.loss(ours, labels), head.loss(theirs, labels))
    assert isinstance(method, LHTHead)
    assert all(isinstance(step, Fixed) for step in method.steps)
    for k in range(2):
        assert torch.equal(ours.transition(k)[0], torch.from_numpy(TREE.matrix(k)).float())


def test_lht_naive_is_another_name_for_it():
    found = []
    for name in ("marginal", "lht-naive"):
        torch.manual_seed(3)
        method = create_method(name, 5, TREE, width=12).eval()
        assert type(method) is Marginal
        found.append(method(normal(np.random.default_rng(3), 4, 5, dtype=torch.float32)).log_probs)
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_no_mass_leaks_between_levels():
    prediction = make(4)(normal(np.random.default_rng(4), 8, 5, scale=3.0))
    for k in range(2):
        for c in range(SIZES[k + 1]):
            children = [j for j in range(SIZES[k]) if TREE.parents[k][j] == c]
            torch.testing.assert_close(prediction.probs(k + 1)[:, c], prediction.probs(k)[:, children].sum(dim=1))
            assert (prediction.log_probs[k][:, children] <= prediction.log_probs[k + 1][:, [c]] + 1e-12).all()


def test_a_coarse_label_lifts_all_of_its_children_in_proportion():
    """∂L/∂z_j = p_j (1 - 1/pᵏ_y) below the label, p_j elsewhere."""
    rng = np.random.default_rng(5)
    method = make(5, reduction="per_sample")
    labels = paths(TREE, rng, 1)
    labels[:, :2] = -1
    kept: list[Tensor] = []
    method.classifier.register_forward_hook(lambda module, inputs, output: kept.append(output))
    prediction = method(normal(rng, 1, 5))
    (gradient,) = torch.autograd.grad(method.loss(prediction, labels), kept[0])
    y, p = labels[0, 2].item(), prediction.probs(0)[0].detach()
    mass = sum(p[leaf].item() for leaf in range(SIZES[0]) if TREE.path(leaf)[2] == y)
    for leaf in range(SIZES[0]):
        inside = TREE.path(leaf)[2] == y
        assert gradient[0, leaf].item() == pytest.approx(p[leaf].item() * (1 - (1 / mass if inside else 0)))


@pytest.mark.parametrize(("features", "read"), [("split", [True, False, False]), ("shared", [True, True, True])])
def test_with_split_features_the_classifier_reads_the_first_part_alone(features, read):
    rng = np.random.default_rng(6)
    method = make(6, features=features)
    method.loss(method(normal(rng, 6, 5)), paths(TREE, rng, 6)).backward()
    moved = (method.neck.layers[1].weight.grad != 0).any(dim=1).view(3, 4).any(dim=1)
    assert moved.tolist() == read


# ---- flat ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_flat_differs_from_it_only_in_its_loss(reduction):
    rng = np.random.default_rng(7)
    method, flat = make(7, reduction=reduction), make(8, "flat", reduction=reduction)
    assert isinstance(flat, Flat)
    flat.load_state_dict(method.state_dict())
    x, labels = normal(rng, 8, 5), random_labels(TREE, rng, 8)
    ours, theirs = method(x), flat(x)
    for a, b in zip(ours.log_probs, theirs.log_probs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(ours.chosen(), theirs.chosen())
    fine_only = labels.clone()
    fine_only[:, 1:] = -1
    assert torch.equal(flat.loss(theirs, labels), method.loss(ours, fine_only))
    assert not torch.isclose(flat.loss(theirs, labels), method.loss(ours, labels))


def test_coarse_labels_teach_it_and_not_flat():
    rng = np.random.default_rng(9)
    x, labels = normal(rng, 8, 5), paths(TREE, rng, 8)
    labels[:, 0] = -1
    for name, teaches in (("marginal", True), ("flat", False)):
        method = make(9, name)
        method.loss(method(x), labels).backward()
        assert bool(method.classifier.weight.grad.count_nonzero()) == teaches
        assert bool(method.learns_from(labels).all()) == teaches
