"""implied: which labels follow from a coarser one, and that nothing else differs from multihead."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.method import create_method
from torchlht.heads.methods.implied import Implied
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_labels, random_method, seeds

# coarse to middle: 0 has 0 and 1, 1 has 2, 2 has 3; middle to finest: 0 has 0 and 3, 1 has 2, 2 has 4, 3 has 1 and 5
TREE = Hierarchy.from_parents([[0, 3, 1, 0, 2, 3], [0, 0, 1, 2]])


def make(tree: Hierarchy = TREE, **options: object) -> Implied:
    method = random_method("implied", tree, np.random.default_rng(0), **options)
    assert isinstance(method, Implied)
    return method


def naive_fill(tree: Hierarchy, labels: Tensor) -> list[list[int]]:
    """From each known label down, for as long as there is one child only and its label is unknown."""
    filled = labels.tolist()
    for row in filled:
        for k in reversed(range(1, len(row))):
            children = [c for c in range(tree.sizes[k - 1]) if tree.parents[k - 1][c] == row[k]]
            if row[k] >= 0 and row[k - 1] < 0 and len(children) == 1:
                row[k - 1] = children[0]
    return filled


@pytest.mark.parametrize(
    ("known", "filled"),
    [
        pytest.param([-1, -1, 1], [4, 2, 1], id="an only child of an only child"),
        pytest.param([-1, -1, 2], [-1, 3, 2], id="an only child with two children"),
        pytest.param([-1, -1, 0], [-1, -1, 0], id="two children"),
        pytest.param([-1, 1, 0], [2, 1, 0], id="an only child under a middle label"),
        pytest.param([-1, 0, 0], [-1, 0, 0], id="two children under a middle label"),
        pytest.param([-1, 1, -1], [2, 1, -1], id="nothing known above"),
        pytest.param([3, 0, 0], [3, 0, 0], id="everything known"),
        pytest.param([4, -1, 1], [4, 2, 1], id="a gap in the middle"),
        pytest.param([-1, -1, -1], [-1, -1, -1], id="nothing known"),
        pytest.param([0, 1, 1], [0, 1, 1], id="known labels that contradict the tree are kept"),
    ],
)
def test_an_only_child_is_filled_in(known, filled):
    assert make().fill(torch.tensor([known])).tolist() == [filled]


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.5, 0.9]), seed=seeds)
def test_filling_equals_a_naive_loop_and_keeps_what_is_known(tree, missing, seed):
    labels = random_labels(tree, np.random.default_rng(seed), 8, missing)
    filled = make(tree).fill(labels)
    assert filled.tolist() == naive_fill(tree, labels)
    assert (filled[labels >= 0] == labels[labels >= 0]).all()


@quick
@given(tree=hierarchies(), seed=seeds)
def test_what_is_filled_in_is_true(tree, seed):
    whole = random_labels(tree, np.random.default_rng(seed), 8, 0.0)
    masked = whole.clone()
    masked[:, 0] = -1
    masked[:4, :-1] = -1
    filled = make(tree).fill(masked)
    assert (filled[filled >= 0] == whole[filled >= 0]).all()


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("features", ["shared", "split"])
def test_the_loss_is_that_of_multihead_on_the_filled_labels(features, reduction):
    rng = np.random.default_rng(1)
    method = make(features=features, reduction=reduction)
    plain = create_method("multihead", 5, TREE, width=12, features=features, reduction=reduction).double().eval()
    plain.load_state_dict(method.state_dict())
    x, labels = normal(rng, 12, 5), random_labels(TREE, rng, 12, 0.5)
    before = labels.clone()
    filled = torch.tensor(naive_fill(TREE, labels))
    assert not torch.equal(filled, labels)
    prediction = method(x)
    for ours, theirs in zip(prediction.log_probs, plain(x).log_probs, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(method.loss(prediction, labels), plain.loss(prediction, filled))
    assert not torch.isclose(method.loss(prediction, labels), plain.loss(prediction, labels))
    assert torch.equal(labels, before)


def test_a_coarse_label_with_an_only_child_moves_the_fine_head():
    method = make()
    for coarse, moves in ((1, True), (0, False)):
        method.zero_grad()
        method.loss(method(normal(np.random.default_rng(2), 2, 5)), torch.tensor([[-1, -1, coarse]] * 2)).backward()
        assert bool(method.heads[0].weight.grad.count_nonzero()) == moves
