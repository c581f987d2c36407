"""Transitions at their edges: where the prior is, sums that are too small, batches without samples, the form of a network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from torchlht.heads.transition import core, truncated
from torchlht.heads.transition.core import Prior, sum_children, underflown
from torchlht.heads.transition.networks import create_transition
from torchlht.heads.transition.truncated import Columns, TruncatedTransition
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, quick, random_hierarchy, seeds


@quick
@given(tree=hierarchies(), seed=seeds)
def test_the_places_of_the_prior_are_the_pairs_it_was_made_of_by_column(tree: Hierarchy, seed: int) -> None:
    """From children to parents and back; columns with several pairs come in runs, and it is known whether there are any."""
    children, parents = torch.arange(tree.sizes[0]), torch.from_numpy(tree.parents[0].copy())
    order = torch.from_numpy(np.random.default_rng(seed).permutation(tree.sizes[0]))
    for rows, columns, count in ((parents, children, tree.sizes[0]), (children, parents, tree.sizes[1])):
        prior = Prior.of(rows[order], columns[order], count)
        for j in range(count):
            run = slice(prior.starts[j], prior.starts[j + 1])
            assert sorted(prior.rows[run].tolist()) == sorted(rows[columns == j].tolist())
            assert (prior.columns[run] == j).all()
        assert prior.starts[-1] == len(rows)
        assert torch.equal(prior.flat, prior.rows * count + prior.columns)
        assert prior.one_each == (sorted(columns.tolist()) == list(range(count)))


def test_all_of_the_prior_moves_to_a_device() -> None:
    moved = Prior.of(torch.tensor([0, 0, 1]), torch.arange(3), 3).to(torch.device("meta"))
    assert {tensor.device.type for tensor in (moved.rows, moved.columns, moved.flat)} == {"meta"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_are_too_small_only_near_the_end_of_their_type(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    assert not underflown(torch.tensor([1.0, 1e-6, tiny**0.7], dtype=dtype))
    assert underflown(torch.tensor([1.0, tiny**0.9], dtype=dtype))
    assert underflown(torch.tensor([0.0], dtype=dtype))
    assert not underflown(torch.empty(0, 3, dtype=dtype))


@pytest.mark.parametrize("small", [0, 2**16])
@pytest.mark.parametrize("form", ["plain", "tiled", "truncated"])
def test_a_batch_without_samples_goes_through_every_form(monkeypatch: pytest.MonkeyPatch, form: str, small: int) -> None:
    """A process may have no share of a batch; its gradients are zeros."""
    monkeypatch.setattr(core, "SMALL", small)
    tree = random_hierarchy(np.random.default_rng(0), (300, 7))
    net = create_transition("low_rank", 4, tree, 0, form=form)
    found = net(torch.zeros(0, 4)).propagate(torch.zeros(0, 300))
    assert found.shape == (0, 7)
    found.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in net.parameters())


def test_a_network_takes_the_form_that_suits_its_size_its_direction_and_the_confusion_terms() -> None:
    medium = random_hierarchy(np.random.default_rng(0), (500, 40))
    large = random_hierarchy(np.random.default_rng(0), (1100, 1030))
    chosen = {
        (tree.sizes[0], confused, down): create_transition("low_rank", 2, tree, 0, confused=confused, down=down).chosen
        for tree in (medium, large)
        for confused in (False, True)
        for down in (False, True)
    }
    assert {key: form for key, form in chosen.items() if key[0] == 500} == {
        (500, False, False): "plain",
        (500, False, True): "plain",
        (500, True, False): "tiled",
        (500, True, True): "tiled",
    }
    assert {form for (size, _, down), form in chosen.items() if size == 1100 and not down} == {"truncated"}
    assert {form for (size, _, down), form in chosen.items() if size == 1100 and down} == {"tiled"}


def test_a_form_that_is_asked_for_is_taken_whatever_the_size() -> None:
    tree = random_hierarchy(np.random.default_rng(0), (30, 7))
    for form in ("plain", "tiled", "truncated"):
        assert create_transition("low_rank", 2, tree, 0, form=form).chosen == form


# ---- some columns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tail", "count"), [(0.5, 1), (0.25, 2), (0.2, 3), (0.125, 3), (0.1, 4), (0.0, 4)])
def test_as_many_columns_are_done_as_leave_no_more_than_the_tail_in_any_sample(tail: float, count: int) -> None:
    p = torch.tensor([[0.125, 0.5, 0.25, 0.125], [0.0, 1.0, 0.0, 0.0]])
    assert Columns(most=1, tail=tail).count(p.log()) == count


def truncated_transition(*, bias: bool = True) -> TruncatedTransition:
    """Of 40 columns 3 are done. It was not told whom to tell what it left out."""
    rng = np.random.default_rng(0)
    tree = random_hierarchy(rng, (40, 6))
    layer = torch.nn.Linear(4, 2 * 40, bias=bias).double()
    prior = Prior.of(torch.from_numpy(tree.parents[0].copy()), torch.arange(40), 40)
    return TruncatedTransition(normal(rng, 3, 4), layer, normal(rng, 3, 6, 2), torch.tensor(1.5), prior, Columns(3))


def test_nobody_needs_to_be_told_what_was_left_out() -> None:
    transition, log_p = truncated_transition(), torch.log_softmax(normal(np.random.default_rng(1), 3, 40), dim=1)
    transition.propagate(log_p)
    assert transition.tail is not None
    torch.testing.assert_close(transition.tail, 1 - log_p.exp().topk(3, dim=1).values.sum(dim=1))


@pytest.mark.parametrize("bias", [False, True])
def test_the_confusion_of_all_columns_is_that_of_the_matrix_with_and_without_a_bias(
    monkeypatch: pytest.MonkeyPatch, bias: bool
) -> None:
    monkeypatch.setattr(truncated, "DRAWN", 40)
    transition = truncated_transition(bias=bias)
    log_t = transition.log_matrix()
    torch.testing.assert_close(transition.confusion("entropy"), (log_t.exp() * log_t).sum(dim=1).mean())
    torch.testing.assert_close(transition.confusion("kl"), -log_t.mean() - np.log(6))


# ---- while a program is made of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [1, 32])
@pytest.mark.parametrize("form", ["plain", "tiled", "truncated"])
def test_what_exporters_follow_gives_the_same(monkeypatch: pytest.MonkeyPatch, form: str, many: int) -> None:
    """Whether all rows of the layer are computed, or those of chosen columns alone."""
    monkeypatch.setattr(truncated, "MANY", many)
    tree = random_hierarchy(np.random.default_rng(0), (40, 6))
    torch.manual_seed(0)
    net = create_transition("low_rank", 4, tree, 0, form=form, columns=Columns(3)).double()
    x, log_p = normal(np.random.default_rng(1), 3, 4), torch.log_softmax(normal(np.random.default_rng(2), 3, 40), dim=1)
    expected = net(x).propagate(log_p)
    assert not torch.allclose(expected, sum_children(log_p, torch.from_numpy(tree.parents[0].copy()), 6))
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    torch.testing.assert_close(net(x).propagate(log_p), expected)
