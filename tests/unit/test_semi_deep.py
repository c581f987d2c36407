"""Confident targets and samples outside the tree, against plain loops in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.semi.confident import FIXED, adaptive_thresholds, confident
from torchlht.learn.semi.propagation import even, parent_groups, propagate, whiten
from torchlht.learn.semi.schedule import KINDS, Semi
from torchlht.learn.semi.strangers import familiarity, weights_of
from torchlht.learn.semi.targets import find_blocks, known_shares, possible, without
from trees import normal

TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 2, 2], [0, 0, 1]])
N = 60


def said(sharp: float = 4.0) -> tuple[Tensor, np.ndarray]:
    """Log-probabilities of samples, and labels: every fifth is whole, others are known to family, to order, or not at all."""
    rng = np.random.default_rng(0)
    leaves = rng.integers(8, size=N)
    labels = np.stack([TREE.ancestors(k)[leaves] for k in range(3)], axis=1)
    for n in range(N):
        labels[n, : n % 5 if n % 5 < 4 else 1] = -1
    return torch.log_softmax(sharp * normal(rng, N, 8) + 3 * torch.eye(8)[leaves], dim=1), labels


def naive(log_p: Tensor, labels: np.ndarray, kind: str) -> list[tuple[int, bool]]:
    """The likeliest class of each sample without a finest label, and whether it is sure enough; -1 for others."""
    p = log_p.double().exp().numpy()
    found: list[tuple[int, bool]] = [(-1, False)] * len(p)
    for block in find_blocks(labels, TREE):
        classes = list(range(8)) if kind == "fixmatch" else block.leaves.tolist()
        q = {n: {c: p[n, c] / sum(p[n, d] for d in classes) for c in classes} for n in block.rows.tolist()}
        if kind == "deep":
            shares = dict(zip(block.leaves.tolist(), known_shares(labels, block).astype(float).tolist(), strict=True))
            for _ in range(5):
                mass = {c: sum(q[n][c] for n in q) for c in classes}
                q = {n: {c: q[n][c] * shares[c] * len(q) / max(mass[c], 1e-20) for c in classes} for n in q}
                q = {n: {c: q[n][c] / sum(q[n].values()) for c in classes} for n in q}
        mean = {c: sum(q[n][c] for n in q) / len(q) for c in classes}
        usual = sum(max(q[n].values()) for n in q) / len(q)
        for n, own in q.items():
            best = max(own, key=lambda c: own[c])
            limit = usual * mean[best] / max(mean.values()) if kind == "deep" else 0.95
            found[n] = best, own[best] >= limit
    return found


@pytest.mark.parametrize("kind", ["fixmatch", "taxon", "deep"])
@pytest.mark.parametrize("sharp", [3.0, 5.0])
def test_confident_targets_are_those_of_a_plain_loop(kind: Any, sharp: float) -> None:
    log_p, labels = said(sharp)
    semi = Semi(kind, labels, TREE, epochs=3, ready=True)
    half = N // 2
    targets = semi.ask((np.arange(a, a + half), log_p[a : a + half], None) for a in (0, half))
    expected = naive(log_p, labels, kind)
    best, kept = targets.best().tolist(), (targets.weight > 0).tolist()
    for n, (leaf, sure) in enumerate(expected):
        assert kept[n] == sure
        assert best[n] == (leaf if sure else -1)
    assert 5 < sum(kept) < (labels[:, 0] < 0).sum()
    assert torch.equal(targets.value.sum(dim=1), targets.weight)  # all or nothing


def test_only_fixmatch_asks_for_classes_that_the_known_labels_rule_out() -> None:
    log_p, labels = said()
    log_p = torch.log_softmax(log_p + 20 * torch.eye(8)[(labels[:, 1] == 0) * 7], dim=1)  # sure, and mostly wrong
    under = [np.isin(np.arange(8), np.flatnonzero(TREE.ancestors(1) == family)) for family in range(3)]
    for kind in KINDS:
        semi = Semi(kind, labels, TREE, epochs=3, ready=True)
        if not KINDS[kind].model:
            continue
        best = semi.ask([(np.arange(N), log_p, log_p)]).best().tolist()
        known = [n for n in range(N) if labels[n, 0] < 0 <= labels[n, 1] and best[n] >= 0]
        assert all(under[labels[n, 1]][best[n]] for n in known) == (kind != "fixmatch")


def test_a_class_that_is_said_less_often_needs_less() -> None:
    index, value = torch.tensor([[0, 1]] * 4), torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
    limit = adaptive_thresholds(index, value, 3)
    torch.testing.assert_close(limit, torch.tensor([0.75, 0.75 * 0.3 / 0.7, 0.0]))


def test_the_only_possible_class_is_always_sure() -> None:
    lone = Hierarchy.from_parents([[0, 1, 1]])
    labels = np.array([[0, 0], [1, 1], [2, 1], [-1, 0], [-1, 0]])
    log_p = torch.full((5, 3), 1 / 3).log()
    for kind in ("taxon", "deep"):
        assert Semi(kind, labels, lone, epochs=3, ready=True).ask([(np.arange(5), log_p, None)]).best()[3:].tolist() == [0, 0]
    assert FIXED < 1


def test_fixmatch_and_taxon_begin_in_the_second_epoch_and_deep_with_neighbours() -> None:
    log_p, labels = said()
    x = normal(np.random.default_rng(1), N, 4)
    for kind, first in (("fixmatch", False), ("taxon", False), ("deep", True)):
        semi = Semi(kind, labels, TREE, epochs=6, ready=True)  # type: ignore[arg-type]
        for epoch in range(3):
            semi.begin(epoch, lambda: x, lambda: [(np.arange(N), log_p, None)])
            assert (semi.targets is not None) == (first or epoch > 0)


# ---- samples outside the tree ----------------------------------------------------------------------------------------


def crowd(strangers: int = 30) -> tuple[Tensor, np.ndarray]:
    """Eight classes of 30, a third without any label, and strangers elsewhere."""
    rng = np.random.default_rng(3)
    leaves = np.repeat(np.arange(8), 30)
    labels = np.stack([TREE.ancestors(k)[leaves] for k in range(3)], axis=1)
    labels[::3] = -1
    labels[1::2, 0] = -1
    places = 6 * torch.eye(12)
    own = places[leaves] + normal(rng, len(leaves), 12)
    other = places[8 + np.arange(strangers) % 4] + normal(rng, strangers, 12)
    return torch.cat([own, other]), np.concatenate([labels, np.full((strangers, 3), -1)])


def test_the_weight_is_the_share_of_labelled_samples_with_no_more_labelled_ones_near_them() -> None:
    x, labels = crowd()
    z = whiten(even(x), parent_groups(labels, TREE.sizes)).double().numpy()
    known = (labels >= 0).any(axis=1)
    near = np.empty(len(z))
    for n in range(len(z)):
        similar = [(-float(z[n] @ z[i]), i) for i in range(len(z)) if i != n]
        near[n] = np.mean([known[i] for _, i in sorted(similar)[:20]])
    found = familiarity(x, labels, TREE.sizes).numpy()
    for n in range(len(z)):
        p = np.mean(near[known] <= near[n] + 1e-6)
        weight = min(1.0, p / 0.2)
        assert found[n] == pytest.approx(1.0 if known[n] else (weight if weight >= 0.5 else 0.0))


def test_strangers_are_left_out_and_others_stay() -> None:
    x, labels = crowd()
    found = familiarity(x, labels, TREE.sizes)
    unknown = (labels < 0).all(axis=1)
    assert (found[240:] == 0).float().mean() > 0.9
    assert (found[:240][unknown[:240]] == 0).float().mean() < 0.25
    assert (found[~torch.from_numpy(unknown)] == 1).all()


def test_without_strangers_or_without_labels_to_tell_them_nothing_is_left_out() -> None:
    x, labels = crowd()
    assert (familiarity(x, np.where(labels < 0, 0, labels), TREE.sizes) == 1).all()
    assert torch.equal(weights_of(torch.tensor([0.0, 0.2]), torch.zeros(9)), torch.ones(2))
    assert torch.equal(weights_of(torch.tensor([0.0, 0.3, 1.0]), torch.linspace(0.25, 1, 20)), torch.tensor([0.0, 0.5, 1.0]))


@pytest.mark.parametrize("kind", ["both", "taxon", "deep", "propagate"])
def test_strangers_have_no_target_in_any_epoch_and_a_checkpoint_knows_them(kind: Any) -> None:
    x, labels = crowd()
    log_p = torch.log_softmax(normal(np.random.default_rng(0), len(x), 8) * 9, dim=1)
    semi = Semi(kind, labels, TREE, epochs=3, ready=True)
    for epoch in range(2):
        semi.begin(epoch, lambda: x, lambda: [(np.arange(len(x)), log_p, log_p)])
    assert semi.targets is not None
    out = torch.from_numpy(semi.left_out)
    assert len(out) > 25
    assert (semi.targets.weight[out] == 0).all()
    again = Semi(kind, labels, TREE, epochs=3, ready=True)
    again.restore(semi.state(inside=True))
    assert torch.equal(again.familiar, semi.familiar)
    assert again.targets is not None
    assert torch.equal(again.targets.weight, semi.targets.weight)


def test_what_is_left_out_changes_nothing_for_the_others() -> None:
    x, labels = crowd()
    fewer = propagate(x, labels, TREE, rounds=1, left_out=np.arange(240, 270))
    alone = propagate(x[:240], labels[:240], TREE, rounds=1)
    moved = propagate(torch.cat([x[:240], x[240:] + 3]), labels, TREE, rounds=1, left_out=np.arange(240, 270))
    assert (fewer.targets.best()[240:] == -1).all()
    assert (fewer.targets.best()[:240] == alone.targets.best()).float().mean() > 0.95  # the centre of all features differs
    assert (fewer.targets.best() == moved.targets.best()).float().mean() > 0.95


def test_blocks_without_samples_vanish() -> None:
    _, labels = crowd()
    blocks = find_blocks(labels, TREE)
    assert without(blocks, np.empty(0, dtype=np.int64)) == blocks
    fewer = without(blocks, blocks[-1].rows)
    assert len(fewer) == len(blocks) - 1
    assert all(dataclasses.astuple(a)[0] == dataclasses.astuple(b)[0] for a, b in zip(fewer, blocks, strict=False))


def test_a_look_that_is_not_confined_sees_every_class() -> None:
    log_p, labels = said()
    index, value, _ = possible(log_p, torch.ones(N, 8, dtype=torch.bool), sharpness=1.0)
    torch.testing.assert_close(value, log_p.exp().gather(1, index).float())
    found = confident(index, value, labels, find_blocks(labels, TREE), 8)
    assert ((found.weight > 0) <= (value.amax(dim=1) >= FIXED)).all()
