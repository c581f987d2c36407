"""c-hmcnn against the form with an explicit matrix of descendants, batch × nodes × nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from torchlht.heads.methods.c_hmcnn import CHMCNN, ConstrainedPrediction
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, random_method, seeds

SIZES = (8, 4, 2)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)


def make(seed: int, tree: Hierarchy = TREE, **options: object) -> CHMCNN:
    method = random_method("c-hmcnn", tree, np.random.default_rng(seed), **options)
    assert isinstance(method, CHMCNN)
    return method


def node(tree: Hierarchy, level: int, c: int) -> int:
    """The number of a class among all nodes, fine first."""
    return sum(tree.sizes[:level]) + c


def descendants(tree: Hierarchy) -> Tensor:
    """(n, n) bool: row a is true at a itself and all its descendants."""
    found = torch.eye(sum(tree.sizes), dtype=torch.bool)
    for k in range(len(tree)):
        for c in range(tree.sizes[k]):
            above = c
            for j in range(k + 1, len(tree)):
                above = tree.parents[j - 1][above]
                found[node(tree, j, above), node(tree, k, c)] = True
    return found


def naive_max(scores: Tensor, within: Tensor) -> Tensor:
    """(B, n): the largest of the scores (B, n) in each row of `within` (B or 1, n, n)."""
    return torch.where(within, scores.unsqueeze(1), -1.0).amax(dim=2)


def naive_loss(tree: Hierarchy, logits: Tensor, labels: Tensor, mil: bool = False) -> Tensor:
    """Binary cross-entropy with o⁺ for positive nodes, o for the others, over the nodes of known levels.

    With `mil` the deepest known label counts all its descendants in its own o⁺.
    """
    h, d = torch.sigmoid(logits), descendants(tree)
    positive, known = (torch.zeros(h.shape, dtype=torch.bool) for _ in range(2))
    deepest = torch.full((len(labels),), -1)
    for n in range(len(labels)):
        for k in reversed(range(len(tree))):
            if labels[n, k] >= 0:
                first = node(tree, k, 0)
                known[n, first : first + tree.sizes[k]] = True
                deepest[n] = first + labels[n, k]
                positive[n, deepest[n]] = True
    counted = d[None] & positive.unsqueeze(1)
    for n in range(len(labels)):
        if mil and deepest[n] >= 0:
            counted[n, deepest[n]] = d[deepest[n]]
    o, o_plus = naive_max(h, d[None]), naive_max(h, counted)
    right, wrong = -torch.log(torch.where(positive, o_plus, 1.0)), -torch.log(1 - o)
    entries = torch.where(positive, right, wrong)[known]
    return entries.sum() / max(len(entries), 1) * len(d) / len(tree)


class Given(nn.Module):
    """In place of the neck: what comes in is what the head reads."""

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x,)


def from_logits(method: CHMCNN, logits: Tensor) -> ConstrainedPrediction:
    """The prediction for given logits (B, n) of all nodes."""
    method.neck, method.head, method.in_features = Given(), nn.Identity(), logits.shape[1]
    return method(logits)


@quick
@given(tree=hierarchies(), seed=seeds)
def test_the_answer_is_the_largest_output_among_a_class_and_its_descendants(tree, seed):
    logits = normal(np.random.default_rng(seed), 3, sum(tree.sizes), scale=2.0)
    prediction = from_logits(make(1, tree), logits)
    expected = naive_max(torch.sigmoid(logits), descendants(tree)[None])
    torch.testing.assert_close(torch.cat(prediction.log_probs, dim=1).exp(), expected, rtol=1e-10, atol=1e-12)


@quick
@given(tree=hierarchies(), seed=seeds)
def test_no_child_is_above_its_parent(tree, seed):
    rng = np.random.default_rng(seed)
    prediction = make(2, tree)(normal(rng, 5, 5, scale=3.0))
    for k, parents in enumerate(tree.parents):
        for child, parent in enumerate(parents):
            assert (prediction.probs(k)[:, child] <= prediction.probs(k + 1)[:, parent]).all()


@quick
@given(tree=hierarchies(), mil=st.booleans(), missing=st.sampled_from([0.0, 0.4, 0.8, 1.0]), seed=seeds)
def test_loss_and_gradient_equal_those_of_the_explicit_form(tree, mil, missing, seed):
    rng = np.random.default_rng(seed)
    labels = random_labels(tree, rng, 4, missing)
    logits = normal(rng, 4, sum(tree.sizes), scale=2.0).requires_grad_()
    method = make(3, tree, mil=mil)
    found, expected = method.loss(from_logits(method, logits), labels), naive_loss(tree, logits, labels, mil)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    (gradient,) = torch.autograd.grad(found, logits)
    (reference,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(gradient, reference, rtol=1e-8, atol=1e-10)


def test_the_logits_are_linear_in_the_neck():
    method = make(4)
    features = normal(np.random.default_rng(4), 3, 5)
    weights = method.state_dict()
    expected = method.neck(features)[0] @ weights["head.weight"].T + weights["head.bias"]
    torch.testing.assert_close(torch.cat(method(features).free, dim=1), expected)


# ---- missing labels ------------------------------------------------------------------------------------------------


def coarse_only(batch: int, rng: np.random.Generator) -> Tensor:
    labels = paths(TREE, rng, batch)
    labels[:, :-1] = -1
    return labels


def gradient_of(method: CHMCNN, logits: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradient in each level's own logits."""
    leaf = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(method.loss(from_logits(method, leaf), labels), leaf)
    return list(gradient.split(SIZES, dim=1))


def below(level: int, c: int) -> list[int]:
    """The finest classes under a class."""
    return [leaf for leaf in range(SIZES[0]) if TREE.ancestors(level)[leaf] == c]


def test_a_negative_parent_pushes_down_the_largest_of_its_masked_descendants():
    rng = np.random.default_rng(5)
    logits, labels = normal(rng, 1, sum(SIZES)), coarse_only(1, rng)
    wrong = 1 - labels[0, -1].item()
    leaf = below(2, wrong)[-1]
    logits[0, leaf] = 9.0  # the largest of all
    fine, middle, coarse = gradient_of(make(5), logits, labels)
    assert fine[0, leaf] > 0.1
    assert fine.count_nonzero() == 1
    assert middle.count_nonzero() == 0
    assert coarse[0, wrong] == 0


@pytest.mark.parametrize("mil", [False, True])
def test_a_positive_parent_of_masked_children_teaches_itself_or_with_mil_its_largest_descendant(mil):
    rng = np.random.default_rng(6)
    labels = coarse_only(1, rng)
    right, logits = labels[0, -1].item(), normal(rng, 1, sum(SIZES))
    leaf = below(2, right)[0]
    logits[0, leaf] = 9.0
    fine, middle, coarse = gradient_of(make(6, mil=mil), logits, labels)
    assert (fine[0, leaf] < 0) == mil
    assert (coarse[0, right] < 0) == (not mil)
    inside = [c for c in range(SIZES[1]) if TREE.parents[1][c] == right]
    assert fine[0, below(2, right)].count_nonzero() == int(mil)
    assert middle[0, inside].count_nonzero() == 0


def test_a_known_child_lifts_its_ancestors_also_over_a_level_that_is_missing():
    rng = np.random.default_rng(7)
    labels = paths(TREE, rng, 1)
    labels[0, 1] = -1
    logits = normal(rng, 1, sum(SIZES))
    logits[0, labels[0, 0]] = 9.0
    method = make(7)
    found = method.positives(from_logits(method, logits), labels)
    assert [x.item() for x in (found[0], found[2])] == [9.0, 9.0]


def test_another_childs_output_does_not_count_as_the_positives():
    """o⁺ and not o: a parent must not look right for the wrong reason."""
    rng = np.random.default_rng(8)
    labels = paths(TREE, rng, 1)
    sibling = next(leaf for leaf in below(2, labels[0, 2].item()) if leaf != labels[0, 0])
    logits = torch.zeros(1, sum(SIZES)).double()
    logits[0, sibling] = 9.0
    method = make(8)
    prediction = from_logits(method, logits)
    assert prediction.constrained[2][0, labels[0, 2]] == 9
    assert method.positives(prediction, labels)[2].item() == 0


def test_drop_masked_samples_learns_from_complete_samples_only():
    rng = np.random.default_rng(9)
    labels = paths(TREE, rng, 6)
    labels[0, 0] = labels[1, 1] = labels[2, 2] = -1
    labels[3] = -1
    method, logits = make(9, drop_masked_samples=True), normal(rng, 6, sum(SIZES))
    assert method.learns_from(labels).tolist() == [False] * 4 + [True] * 2
    assert make(9).learns_from(labels).tolist() == [True] * 3 + [False] + [True] * 2
    loss = method.loss(from_logits(method, logits), labels)
    torch.testing.assert_close(loss, naive_loss(TREE, logits[4:], labels[4:]))
    assert not torch.isclose(loss, naive_loss(TREE, logits, labels))
    gradient = torch.cat(gradient_of(method, logits, labels), dim=1)
    assert gradient[:4].count_nonzero() == 0
    assert (gradient[4:] != 0).any(dim=1).all()


def test_every_sigmoid_starts_at_one_over_the_size_of_its_level():
    bias = CHMCNN(5, TREE, width=12).head.bias
    expected = torch.cat([torch.full((size,), 1 / size) for size in SIZES])
    torch.testing.assert_close(torch.sigmoid(bias), expected)
