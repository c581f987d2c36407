"""A classifier that starts from class means: against plain loops in float64, and what it promises."""

from itertools import repeat

import numpy as np
import pytest
import torch

from torchlht import Hierarchy, create_method
from torchlht.data import moments
from torchlht.data.moments import Moments
from torchlht.heads.method import older_options
from torchlht.heads.methods import lht
from torchlht.heads.starting import RIDGE, SCALE, Sums, discriminant
from torchlht.heads.transition.networks import gamma_for

TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 2], [0, 0, 1]])


def samples(count=60, width=4, seed=0):
    """Features around class centres; species 6 has no label, some samples stop at their genus or order, one has none."""
    rng = np.random.default_rng(seed)
    fine = rng.integers(6, size=count)
    labels = np.stack([fine, TREE.parents[0][fine], TREE.parents[1][TREE.parents[0][fine]]], axis=1)
    x = 3 * rng.normal(size=(7, width))[fine] + rng.normal(size=(count, width))
    labels[20:40, 0], labels[40:45, :2], labels[59] = -1, -1, -1
    return torch.tensor(x), torch.tensor(labels)


def naive(x, labels, ridge=RIDGE, scale=SCALE):
    """Weights and biases, sample by sample and class by class, from the formulas of the module."""
    x, labels = x.numpy(), labels.numpy()
    keep = labels[:, 2] >= 0
    x, labels = x[keep], labels[keep]
    width, above = x.shape[1], {0: x.mean(axis=0)}
    for k in (2, 1, 0):
        inside, free, means, counts = 0.0, 0, {}, {}
        for c in range(TREE.sizes[k]):
            own = x[labels[:, k] == c]
            if len(own):
                means[c], counts[c] = own.mean(axis=0), len(own)
                inside, free = inside + ((own - means[c]) ** 2).sum(), free + len(own) - 1
        inside = inside / (free * width)
        up = {c: above[0 if k == 2 else TREE.parents[k][c]] for c in range(TREE.sizes[k])}
        between = np.mean([((means[c] - up[c]) ** 2).mean() - inside / counts[c] for c in means])
        above = {c: up[c] + between / (between + inside / counts[c]) * (means[c] - up[c]) if c in means else up[c] for c in up}
    scatter, free = np.zeros((width, width)), 0
    for k in range(3):
        for c in range(TREE.sizes[k]):
            here = (labels[:, k] == c) & (labels[:, k - 1] < 0 if k else True)
            if here.any():
                off = x[here] - x[here].mean(axis=0)
                scatter, free = scatter + off.T @ off, free + here.sum() - 1
    spread = scatter / free
    spread += ridge * np.trace(spread) / width * np.eye(width)
    means = np.stack([above[c] for c in range(7)])
    weights = scale * means @ np.linalg.inv(spread)
    return weights, -0.5 * (weights * means).sum(axis=1)


@pytest.mark.parametrize("parts", [1, 7])
def test_it_is_the_formula_whatever_the_batches(parts):
    x, labels = samples()
    found = discriminant(zip(x.chunk(parts), labels.chunk(parts), repeat(None), strict=False), TREE, 4)
    for mine, expected in zip(found, naive(x, labels), strict=True):
        np.testing.assert_allclose(mine.numpy(), expected, rtol=1e-9)


def test_a_class_without_samples_is_at_its_parents_mean_and_one_sample_each_is_no_fault():
    x, labels = samples()
    weights, _ = discriminant([(x, labels, None)], TREE, 4)
    labels[:, 0] = torch.where(labels[:, 0] == 5, -1, labels[:, 0])  # genus 2 has the species 5 and 6 alone
    weights, biases = discriminant([(x, labels, None)], TREE, 4)
    torch.testing.assert_close(weights[5], weights[6])
    one_each = torch.tensor([[c, *TREE.path(c)[1:]] for c in range(7)])
    weights, biases = discriminant([(x[:7], one_each, None)], TREE, 4)
    spread = np.cov(x[:7].numpy().T, bias=True)
    expected = SCALE * x[:7].numpy() @ np.linalg.inv(spread + RIDGE * np.trace(spread) / 4 * np.eye(4))
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-9)
    assert torch.isfinite(biases).all()


def test_a_level_without_any_label_is_where_the_level_above_is():
    x, labels = samples()
    labels[:, 0] = -1
    weights, biases = discriminant([(x, labels, None)], TREE, 4)
    assert torch.isfinite(biases).all()
    for genus in range(3):
        children = weights[torch.from_numpy(TREE.parents[0] == genus)]
        torch.testing.assert_close(children, children[:1].expand_as(children))
    assert not torch.allclose(weights[0], weights[3])


def test_products_leave_out_samples_without_a_label():
    x, labels = samples()
    torch.testing.assert_close(Sums.of([(x, labels, None)], TREE, 4).products, x[:59].mT @ x[:59])


@pytest.mark.parametrize("options", [{}, {"cosine": True}, {"features": "split"}, {"input_dropout": 0.1}])
def test_lht_knows_its_classes_before_the_first_step(options):
    x, labels = samples(400)
    torch.manual_seed(0)
    head = create_method("lht", 4, TREE, width=48, start="means", **options)
    head.begin(x.float(), labels)
    assert head.training
    known = labels[:, 0] >= 0
    right = head.eval()(x.float()).chosen()[known] == labels[known]
    assert right.float().mean() > 0.85


def test_the_neck_has_the_statistics_of_what_it_has_looked_at():
    x, labels = samples()
    head = create_method("lht", 4, TREE, width=6, start="means")
    head.begin(x.float(), labels)
    first, linear, second, _ = head.neck.layers
    torch.testing.assert_close(first.running_var, x.float().var(dim=0))
    within = linear((x.float() - first.running_mean) / (first.running_var + first.eps).sqrt()).detach()
    torch.testing.assert_close(second.running_mean, within.mean(dim=0))
    head.begin(x[:1].float(), labels[:1])
    assert torch.isfinite(torch.cat([p.flatten() for p in head.state_dict().values()])).all()


def test_few_classes_start_at_random_and_many_from_means(monkeypatch):
    x, labels = samples()

    def moved(name="lht", **options):
        head = create_method(name, 4, TREE, width=6, **options)
        was = head.classifier.weight.detach().clone()
        head.begin(x.float(), labels)
        return not torch.equal(was, head.classifier.weight)

    assert not moved()
    assert moved(start="means")
    monkeypatch.setattr(lht, "MANY", 7)
    assert moved()
    assert not moved(start="random")
    assert not moved("lht-paper")
    assert not moved("marginal")
    assert moved("marginal", start="means")


def test_gamma_keeps_the_weight_of_the_parent_as_trees_grow():
    assert gamma_for(1) == gamma_for(2) == gamma_for(38) == 6.0
    for rows in (39, 500, 4884):
        assert 1 / (1 + (rows - 1) * np.exp(-gamma_for(rows))) == pytest.approx(0.916, abs=1e-3)
    wide = Hierarchy.from_parents([list(range(50)), [0] * 50])
    assert create_method("lht", 4, wide).gammas == [gamma_for(50), 6.0]
    assert create_method("lht", 4, wide, gamma=2.0).gammas == [2.0, 2.0]


def test_an_older_run_has_the_gamma_and_the_start_of_its_day():
    assert older_options("lht", {"prior_weight": 10.0}) == {"gamma": 6.0, "start": "random", "yields": False}
    assert older_options("lht-paper", {}) == {"prior_weight": 0.0, "yields": False}  # the variant sets the others
    assert older_options("lht", {"gamma": None, "start": "auto", "prior_weight": 10.0, "yields": True}) == {}


def test_moments_are_those_of_numpy_however_far_from_zero():
    x = samples()[0] + 300
    found = Moments.of(x.float())
    np.testing.assert_allclose(found.variance.numpy(), x.numpy().var(axis=0), rtol=1e-4)
    np.testing.assert_allclose(found.products.numpy(), np.corrcoef(x.numpy().T), atol=1e-4)


def test_paired_units_see_all_that_is_linear():
    neck = create_method("marginal", 4, TREE, width=12, start="means").neck
    neck.pair()
    weight = neck.layers[1].weight.detach()
    torch.testing.assert_close(weight[:4], -weight[4:8])
    torch.testing.assert_close(weight[:4] @ weight[:4].T, torch.eye(4))
    assert not neck.layers[1].bias.any()


def test_products_in_blocks_are_those_of_the_whole(monkeypatch):
    x, weights = samples(width=7)[0].float(), torch.arange(60) % 3
    whole = Moments.of(x, weights).products
    monkeypatch.setattr(moments, "BLOCK", 3)
    torch.testing.assert_close(Moments.of(x, weights).products, whole)
