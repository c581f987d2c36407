"""What exporters are shown of a transition, whose shapes cannot depend on data, is what a run computes: in float64."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.heads.transition.networks import LowRank, create_transition
from torchlht.heads.transition.truncated import Columns, TruncatedTransition
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, seeds


def exporting() -> patch:
    return patch("torch.compiler.is_exporting", lambda: True)


def step(tree: Hierarchy, rng: np.random.Generator, form: str, columns: Columns) -> tuple[LowRank, Tensor, Tensor]:
    """A network with random weights, features, and log-probabilities at the finest level."""
    net = create_transition("low_rank", 5, tree, 0, gamma=1.0, form=form, columns=columns).double()
    assert isinstance(net, LowRank)
    for parameter in (net.left.weight, net.right.weight, net.left.bias, net.right.bias):
        parameter.data = normal(rng, *parameter.shape)
    return net, normal(rng, 4, 5), torch.log_softmax(normal(rng, 4, tree.sizes[0], scale=3.0), dim=1)


@pytest.mark.parametrize("form", ["plain", "tiled", "columns", "tail"])
@quick
@given(tree=hierarchies(extra=20), most=st.integers(1, 5), tail=st.floats(0.01, 0.99), seed=seeds)
def test_exporters_see_what_the_run_computes(form, tree, most, tail, seed):
    columns = Columns(most, tail if form == "tail" else None)
    truncated = form in ("columns", "tail")
    net, x, log_p = step(tree, np.random.default_rng(seed), "truncated" if truncated else form, columns)
    with torch.no_grad():
        expected = net(x).propagate(log_p)
        with exporting():
            torch.testing.assert_close(net(x).propagate(log_p), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tail", [0.02, 0.3, 0.6, 0.9])
def test_a_tail_against_the_formula(tail):
    """As many columns as the hardest sample of a batch needs; all of them from a quarter on."""
    rng = np.random.default_rng(int(10 * tail))
    tree = random_hierarchy(rng, (40, 6, 2))
    net, x, log_p = step(tree, rng, "truncated", Columns(tail=tail))
    p = log_p.exp().numpy()
    count = max(next(n for n in range(1, 41) if np.sort(row)[::-1][:n].sum() >= 1 - tail) for row in p)
    with torch.no_grad(), exporting():
        transition = net(x)
        assert isinstance(transition, TruncatedTransition)
        found, t = transition.propagate(log_p).exp().numpy(), transition.log_matrix().exp().numpy()
    expected = np.zeros((4, 6))
    for b, row in enumerate(p):
        done = np.argsort(-row)[: count if count <= 10 else 40]
        for j in range(40):
            expected[b] += t[b, :, j] * row[j] if j in done else row[j] * (np.arange(6) == tree.parents[0][j])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert (count <= 10) == (tail > 0.02)  # all cases but one leave something out
