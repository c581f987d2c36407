"""fgon: what each head reads, and whom its labels teach."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.methods.fgon import FGoN
from torchlht.heads.prediction import Prediction
from trees import naive_cross_entropy, normal, paths, random_hierarchy, random_labels, random_method

SIZES = (9, 5, 3)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
PART = 4  # width 12 in three parts


def make(seed: int, **options: object) -> FGoN:
    method = random_method("fgon", TREE, np.random.default_rng(seed), **options)
    assert isinstance(method, FGoN)
    return method


def with_parts(method: FGoN, features: Tensor) -> tuple[Prediction, tuple[Tensor, ...]]:
    """The prediction and the parts of the neck it was made from, fine first."""
    kept: list[tuple[Tensor, ...]] = []
    hook = method.neck.register_forward_hook(lambda module, inputs, output: kept.append(output))
    prediction = method(features)
    hook.remove()
    return prediction, kept[0]


def only(level: int, rng: np.random.Generator, batch: int = 6) -> Tensor:
    labels = torch.full((batch, len(TREE)), -1)
    labels[:, level] = paths(TREE, rng, batch)[:, level]
    return labels


def test_each_head_reads_its_own_part_and_all_finer_ones():
    method = make(1)
    prediction, parts = with_parts(method, normal(np.random.default_rng(1), 4, 5))
    for k, size in enumerate(SIZES):
        weight, bias = method.heads[k].weight.detach().numpy(), method.heads[k].bias.detach().numpy()
        for n in range(4):
            seen = np.concatenate([parts[j][n].detach().numpy() for j in range(k, -1, -1)])
            logits = [weight[c] @ seen + bias[c] for c in range(size)]
            p = np.exp(logits) / np.exp(logits).sum()
            np.testing.assert_allclose(prediction.probs(k)[n].detach().numpy(), p, rtol=1e-10)


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
def test_the_loss_is_the_cross_entropy_of_known_levels(missing, reduction):
    rng = np.random.default_rng(2)
    method = make(2, reduction=reduction)
    labels = random_labels(TREE, rng, 7, missing)
    prediction = method(normal(rng, 7, 5))
    expected = naive_cross_entropy(prediction.log_probs, labels, reduction)
    assert method.loss(prediction, labels).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("sizes", "width", "expected"), [((9, 5, 3), 600, [200, 400, 600]), ((9, 3), 600, [300, 600]), ((9, 5, 3), 10, [4, 8, 12])]
)
def test_heads_are_wider_the_coarser_they_are(sizes, width, expected):
    method = FGoN(5, random_hierarchy(np.random.default_rng(3), sizes), width=width)
    assert [head.in_features for head in method.heads] == expected
    assert [head.out_features for head in method.heads] == list(sizes)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_label_teaches_the_features_of_its_own_level_only(level):
    rng = np.random.default_rng(4)
    method = make(4)
    prediction, parts = with_parts(method, normal(rng, 6, 5))
    loss = method.loss(prediction, only(level, rng))
    gradients = torch.autograd.grad(loss, parts, allow_unused=True)
    assert [g is not None and bool(g.count_nonzero()) for g in gradients] == [k == level for k in range(3)]


@pytest.mark.parametrize("level", [1, 2])
def test_a_coarse_label_leaves_the_neck_of_finer_parts_as_it_is(level):
    rng = np.random.default_rng(5)
    method = make(5)
    method.loss(method(normal(rng, 6, 5)), only(level, rng)).backward()
    moved = (method.neck.layers[1].weight.grad != 0).any(dim=1).view(len(SIZES), PART).any(dim=1)
    assert moved.tolist() == [k == level for k in range(3)]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_finer_parts_are_seen_by_coarser_heads_and_not_the_other_way_round(part):
    method = make(6)
    features = normal(np.random.default_rng(6), 4, 5)
    before = method(features)
    with torch.no_grad():
        method.neck.layers[2].bias[part * PART : (part + 1) * PART] += 1.0
    after = method(features)
    changed = [not torch.allclose(a, b) for a, b in zip(before.log_probs, after.log_probs, strict=True)]
    assert changed == [k >= part for k in range(3)]


def test_a_coarse_label_still_teaches_its_head_how_to_read_finer_features():
    rng = np.random.default_rng(7)
    method = make(7)
    method.loss(method(normal(rng, 6, 5)), only(2, rng)).backward()
    assert (method.heads[2].weight.grad.view(SIZES[2], 3, PART) != 0).any(dim=2).all()
    assert method.heads[0].weight.grad.count_nonzero() == 0


def test_as_released_it_takes_the_largest_value_of_each_channel_of_the_map():
    rng = np.random.default_rng(20)
    mean, largest = make(20), make(20, pool="max")
    largest.load_state_dict(mean.state_dict())
    maps = normal(rng, 4, 5, 3, 2)
    pooled = torch.tensor([[max(channel.flatten().tolist()) for channel in sample] for sample in maps], dtype=maps.dtype)
    for found, expected in zip(largest(maps).log_probs, mean(pooled).log_probs, strict=True):
        assert torch.equal(found, expected)
    assert torch.equal(largest.embed(maps), mean.embed(pooled))
