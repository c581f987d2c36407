"""hxe against a loop over the edges from a label to the root."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from torchlht.heads.method import create_method
from torchlht.heads.methods.hxe import HXE
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy, random_labels, random_method

SIZES = (9, 5, 3)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
REDUCTIONS = ["per_level_mean", "per_sample"]


def make(seed: int, tree: Hierarchy = TREE, **options: object) -> HXE:
    method = random_method("hxe", tree, np.random.default_rng(seed), **options)
    assert isinstance(method, HXE)
    return method


def node_probability(p: np.ndarray, level: int, c: int) -> float:
    """The sum of one sample's softmax over the finest classes below a node; the root is above the last level."""
    if level == len(TREE):
        return 1.0
    return sum(p[leaf] for leaf in range(SIZES[0]) if TREE.ancestors(level)[leaf] == c)


def naive_loss(p: np.ndarray, labels: list[list[int]], alpha: float) -> float:
    raw = [math.exp(-alpha * (len(TREE) - k)) for k in range(len(TREE))]  # depth 1 just under the root
    total = 0.0
    for k in range(len(TREE)):
        terms = []
        for n, row in enumerate(labels):
            if row[k] >= 0:
                parent = int(TREE.parents[k][row[k]]) if k + 1 < len(TREE) else 0
                terms.append(-math.log(node_probability(p[n], k, row[k]) / node_probability(p[n], k + 1, parent)))
        if terms:
            total += raw[k] / sum(raw) * sum(terms) / len(terms)
    return total


@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
def test_the_loss_equals_a_loop_over_edges(missing, alpha):
    rng = np.random.default_rng(1)
    method = make(1, alpha=alpha)
    labels = random_labels(TREE, rng, 8, missing)
    prediction = method(normal(rng, 8, 5))
    expected = naive_loss(prediction.probs(0).detach().numpy(), labels.tolist(), alpha)
    assert method.loss(prediction, labels).item() == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_alpha_of_zero_with_all_labels_known_is_flat(reduction):
    rng = np.random.default_rng(2)
    method = make(2, alpha=0.0, reduction=reduction)
    flat = create_method("flat", 5, TREE, width=12, reduction=reduction).double().eval()
    flat.load_state_dict(method.state_dict())
    features, labels = normal(rng, 8, 5), paths(TREE, rng, 8)
    torch.testing.assert_close(method.loss(method(features), labels), flat.loss(flat(features), labels))


@pytest.mark.parametrize(("reduction", "weight"), [("per_level_mean", 1.0), ("per_sample", 1 / 8)])
def test_one_labelled_sample_among_eight_weighs_one_or_an_eighth(reduction, weight):
    rng = np.random.default_rng(2)
    method = make(2, alpha=0.3, reduction=reduction)
    features, labels = normal(rng, 8, 5), paths(TREE, rng, 8)
    labels[1:] = -1
    alone = method.loss(method(features[:1]), labels[:1])
    torch.testing.assert_close(method.loss(method(features), labels), alone * weight)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0])
def test_weights_sum_to_one_and_fall_with_depth(alpha):
    weights = make(3, alpha=alpha).weights
    assert sum(weights) == pytest.approx(1)
    assert weights == sorted(weights)  # fine first: the deepest weighs least
    assert [b / a for a, b in itertools.pairwise(weights)] == pytest.approx([math.exp(alpha)] * 2)


def test_alpha_of_zero_weighs_every_step_alike():
    assert make(3, alpha=0.0).weights == pytest.approx([1 / 3] * 3)


@pytest.mark.parametrize("level", [1, 2])
def test_a_coarse_label_has_the_edges_from_there_upwards_only(level):
    """So it says nothing on how its mass divides below it: the gradient of each finest class there is its share of it."""
    rng = np.random.default_rng(4)
    method = make(4, alpha=0.3)
    labels = paths(TREE, rng, 1)
    labels[:, :level] = -1
    kept: list[torch.Tensor] = []
    method.classifier.register_forward_hook(lambda module, inputs, output: kept.append(output))
    prediction = method(normal(rng, 1, 5))
    loss = method.loss(prediction, labels)
    (gradient,) = torch.autograd.grad(loss, kept[0])
    p = prediction.probs(0)[0].detach()
    below = torch.from_numpy(TREE.ancestors(level) == labels[0, level].item())
    share = (gradient[0] / p)[below]
    torch.testing.assert_close(share, share[:1].expand_as(share))
    assert (share < 0).all()
    chain = [node_probability(p.numpy(), k, labels[0, k].item()) for k in range(level, 3)] + [1.0]
    steps = [-math.log(a / b) for a, b in itertools.pairwise(chain)]
    assert loss.item() == pytest.approx(sum(w * step for w, step in zip(method.weights[level:], steps, strict=True)))


def test_a_step_uses_the_tree_where_the_label_above_is_missing():
    rng = np.random.default_rng(5)
    method = make(5)
    whole = paths(TREE, rng, 6)
    prediction = method(normal(rng, 6, 5))

    def only(level: int) -> torch.Tensor:
        labels = torch.full_like(whole, -1)
        labels[:, level] = whole[:, level]
        return method.loss(prediction, labels)

    torch.testing.assert_close(sum(only(k) for k in range(3)), method.loss(prediction, whole))


def test_no_mass_leaks_between_levels():
    prediction = make(6)(normal(np.random.default_rng(6), 8, 5))
    for k in range(len(TREE) - 1):
        for c in range(SIZES[k + 1]):
            children = [j for j in range(SIZES[k]) if TREE.parents[k][j] == c]
            torch.testing.assert_close(prediction.probs(k + 1)[:, c], prediction.probs(k)[:, children].sum(dim=1))


def test_a_step_down_from_a_lost_parent_keeps_its_loss():
    """p(child) and p(parent) are both 0 in float32; the step between them is not."""
    tree = Hierarchy.from_parents([[0, 0, 1]])
    method = HXE(5, tree, alpha=0.0, width=12).eval()
    torch.nn.init.zeros_(method.classifier.weight)
    method.classifier.bias.data.copy_(torch.tensor([0.0, math.log(3), 500.0]))
    prediction = method(torch.zeros(1, 5))
    assert prediction.probs(1)[0, 0] == 0
    loss = method.loss(prediction, torch.tensor([[0, -1]]))
    assert loss.item() == pytest.approx(math.log(4) / 2, rel=1e-4)
