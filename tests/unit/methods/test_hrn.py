"""hrn against an explicit list of all states of the tree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlht.errors import DataError
from torchlht.heads.methods.hrn import HRN, MapNorm, StatePrediction
from torchlht.hierarchy.tree import Hierarchy
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_labels, random_method, seeds

SIZES = (8, 4, 2)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)

Node = tuple[int, int]  # level and class


def make(seed: int, tree: Hierarchy = TREE) -> HRN:
    method = random_method("hrn", tree, np.random.default_rng(seed), embedding=7)
    assert isinstance(method, HRN)
    return method


def states(tree: Hierarchy) -> list[set[Node]]:
    """Nothing, and for every node the path from the root to it."""
    found: list[set[Node]] = [set()]
    for k in range(len(tree)):
        for c in range(tree.sizes[k]):
            found.append({(j, int(tree.ancestors(j, of=k)[c])) for j in range(k, len(tree))})
    return found


def naive_log_state(tree: Hierarchy, nodes: list[np.ndarray], row: list[int]) -> float | None:
    """log of the probability of all states that contain the deepest known label; `nodes` are one sample's sigmoids."""
    deepest = next(((k, y) for k, y in enumerate(row) if y >= 0), None)
    if deepest is None:
        return None
    weights = [math.exp(sum(nodes[k][c] for k, c in state)) for state in states(tree)]
    inside = [w for state, w in zip(states(tree), weights, strict=True) if deepest in state]
    return math.log(sum(inside) / sum(weights))


def naive_loss(tree: Hierarchy, prediction: StatePrediction, labels: Tensor) -> float:
    fine, tree_terms = [], []
    for n, row in enumerate(labels.tolist()):
        found = naive_log_state(tree, [p[n].detach().numpy() for p in prediction.nodes], row)
        if found is not None:
            tree_terms.append(-found)
        if row[0] >= 0:
            fine.append(-prediction.log_probs[0][n, row[0]].item())
    return sum(fine) / max(len(fine), 1) + sum(tree_terms) / max(len(tree_terms), 1)


def given_nodes(tree: Hierarchy, nodes: list[Tensor]) -> StatePrediction:
    """A prediction with these sigmoids, whose softmax head is flat."""
    flat = torch.full((len(nodes[0]), tree.sizes[0]), -math.log(tree.sizes[0])).double()
    return StatePrediction((flat, *(p.log() for p in nodes[1:])), nodes=tuple(nodes))


def test_there_is_one_state_more_than_nodes():
    assert len(states(TREE)) == sum(SIZES) + 1
    assert sorted(map(len, states(TREE))) == [0] + [1] * 2 + [2] * 4 + [3] * 8


@quick
@given(tree=hierarchies(), missing=st.sampled_from([0.0, 0.5, 1.0]), seed=seeds)
def test_the_loss_equals_the_enumeration_of_states(tree, missing, seed):
    rng = np.random.default_rng(seed)
    labels = random_labels(tree, rng, 4, missing)
    prediction = given_nodes(tree, [torch.sigmoid(normal(rng, 4, size, scale=3.0)) for size in tree.sizes])
    found = make(1, tree).loss(prediction, labels).item()
    assert found == pytest.approx(naive_loss(tree, prediction, labels), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
def test_the_loss_of_its_own_prediction_equals_the_enumeration(missing):
    rng = np.random.default_rng(2)
    method = make(2)
    labels = random_labels(TREE, rng, 8, missing)
    prediction = method(normal(rng, 8, 5))
    assert method.loss(prediction, labels).item() == pytest.approx(naive_loss(TREE, prediction, labels), rel=1e-10, abs=1e-12)


def test_probabilities_of_a_level_and_of_stopping_above_it_sum_to_one():
    rng = np.random.default_rng(3)
    method, nodes = make(3), [torch.sigmoid(normal(rng, 1, size)) for size in SIZES]
    everyone = torch.tensor([[-1, -1, c] for c in range(SIZES[2])])
    repeated = given_nodes(TREE, [p.expand(len(everyone), -1) for p in nodes])
    inside = method.log_state(repeated, everyone).exp().sum().item()
    weights = [math.exp(sum(nodes[k][0, c].item() for k, c in state)) for state in states(TREE)]
    assert inside + weights[0] / sum(weights) == pytest.approx(1)


# ---- the floor -----------------------------------------------------------------------------------------------------


def best_nodes(level: int, y: int) -> list[Tensor]:
    """Sigmoids of 1 on the path to a node and on all below it, of 0 elsewhere: nothing can be more certain."""
    found = [torch.zeros(1, size).double() for size in SIZES]
    for state in states(TREE):
        if (level, y) in state:
            for k, c in state:
                found[k][0, c] = 1
    return found


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_tree_term_has_a_floor_that_no_sigmoids_go_below(level):
    rng = np.random.default_rng(4)
    method, y = make(4), 1
    labels = torch.full((1, 3), -1)
    labels[0, level] = y
    found = -method.log_state(given_nodes(TREE, best_nodes(level, y)), labels).item()
    inside = [state for state in states(TREE) if (level, y) in state]
    path = {node for state in inside for node in state}
    weights = [math.exp(len(state & path)) for state in states(TREE)]
    floor = -math.log(sum(math.exp(len(state)) for state in inside) / sum(weights))
    assert found == pytest.approx(floor)
    assert floor > 0.02
    for _ in range(30):
        nodes = [torch.sigmoid(normal(rng, 1, size, scale=8.0)) for size in SIZES]
        assert -method.log_state(given_nodes(TREE, nodes), labels).item() > floor


@pytest.mark.parametrize(("tops", "middles", "leaves", "floor"), [(2, 2, 2, 0.98), (13, 3, 5, 2.77)])
def test_the_floor_of_a_finest_label_grows_with_the_tree(tops, middles, leaves, floor):
    """Every node off the path has a state of weight at least 1: certainty about 200 species costs more than about 8."""
    tree = Hierarchy.from_parents([np.arange(tops * middles * leaves) // leaves, np.arange(tops * middles) // middles])
    nodes = [torch.zeros(1, size).double() for size in tree.sizes]
    for p in nodes:
        p[0, 0] = 1
    e = math.e
    everything = 1 + e + e**2 + e**3  # nothing, and the states on the path
    everything += (tops - 1) * (1 + middles + middles * leaves) + (middles - 1) * (1 + leaves) * e + (leaves - 1) * e**2
    found = -make(5, tree).log_state(given_nodes(tree, nodes), torch.tensor([[0, 0, 0]])).item()
    assert found == pytest.approx(math.log(everything) - 3)
    assert found == pytest.approx(floor, abs=0.01)


# ---- labels --------------------------------------------------------------------------------------------------------


def test_the_deepest_known_label_is_the_one_that_counts():
    rng = np.random.default_rng(6)
    method = make(6)
    prediction, whole = method(normal(rng, 6, 5)), paths(TREE, rng, 6)
    found = []
    for k in range(3):
        alone, upwards = torch.full_like(whole, -1), whole.clone()
        alone[:, k], upwards[:, :k] = whole[:, k], -1
        found.append(method.log_state(prediction, alone))
        assert torch.equal(found[-1], method.log_state(prediction, upwards))
    assert (found[0] < found[1]).all()  # a state that contains the leaf contains its parent
    assert (found[1] < found[2]).all()


def test_a_sample_without_labels_counts_for_nothing():
    rng = np.random.default_rng(7)
    method = make(7)
    features, labels = normal(rng, 6, 5), paths(TREE, rng, 6)
    labels[2:] = -1
    prediction = method(features)
    assert method.log_state(prediction, labels)[2:].tolist() == [0.0] * 4
    torch.testing.assert_close(method.loss(prediction, labels), method.loss(method(features[:2]), labels[:2]))
    loss = method.loss(prediction, torch.full_like(labels, -1))
    assert loss.item() == 0


def test_the_softmax_head_learns_from_fine_labels_only():
    rng = np.random.default_rng(8)
    method, labels = make(8), paths(TREE, rng, 6)
    for masked, taught in ((False, True), (True, False)):
        method.zero_grad()
        labels[:, 0] = -1 if masked else labels[:, 0]
        method.loss(method(normal(rng, 6, 5)), labels).backward()
        assert bool(method.finest.weight.grad.count_nonzero()) == taught
        assert method.heads[0].weight.grad.count_nonzero() > 0


# ---- features ------------------------------------------------------------------------------------------------------


def test_finer_branches_are_residual_to_coarser_ones():
    """r_k = relu(e_k + … + e_K); a sigmoid head on each, and a softmax head on the finest."""
    method = make(9)
    features = normal(np.random.default_rng(9), 4, 5)
    prediction = method(features)
    own = [branch(features).detach().numpy() for branch in method.branches]
    weights = {key: tensor.numpy() for key, tensor in method.state_dict().items()}
    for k, size in enumerate(SIZES):
        for n in range(4):
            r = np.maximum(sum(own[j][n] for j in range(k, 3)), 0)
            z = [weights[f"heads.{k}.weight"][c] @ r + weights[f"heads.{k}.bias"][c] for c in range(size)]
            expected = [1 / (1 + math.exp(-value)) for value in z]
            np.testing.assert_allclose(prediction.nodes[k][n].detach().numpy(), expected, rtol=1e-10)
            if k == 0:
                logits = weights["finest.weight"] @ r + weights["finest.bias"]
                expected = np.exp(logits) / np.exp(logits).sum()
            np.testing.assert_allclose(prediction.probs(k)[n].detach().numpy(), expected, rtol=1e-10)


def test_a_branch_is_seen_by_its_own_level_and_finer_ones():
    method = make(10)
    features = normal(np.random.default_rng(10), 4, 5)
    before = method(features)
    with torch.no_grad():
        method.branches[1][1].bias += 1.0
    after = method(features)
    changed = [not torch.allclose(a, b) for a, b in zip(before.nodes, after.nodes, strict=True)]
    assert changed == [True, True, False]


def test_the_finest_answer_is_the_softmax_heads_and_coarser_ones_are_sigmoids():
    method = make(11)
    prediction = method(normal(np.random.default_rng(11), 20, 5))
    expected = [prediction.log_probs[0].argmax(dim=1), *(p.argmax(dim=1) for p in prediction.nodes[1:])]
    assert torch.equal(prediction.chosen(), torch.stack(expected, dim=1))
    assert not torch.equal(expected[0], prediction.nodes[0].argmax(dim=1))


# ---- on the map of a backbone --------------------------------------------------------------------------------------


def naive_convolution(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(B, c, h, w) convolved with (d, c, s, s), zeros around the edges, one sum after the other."""
    side = weight.shape[2] // 2
    wide = np.pad(x, ((0, 0), (0, 0), (side, side), (side, side)))
    found = np.zeros((len(x), len(weight), *x.shape[2:]))
    for n, d, i, j in np.ndindex(found.shape):
        found[n, d, i, j] = (wide[n, :, i : i + 2 * side + 1, j : j + 2 * side + 1] * weight[d]).sum()
    return found


def naive_norm(x: np.ndarray, w: dict[str, np.ndarray], name: str, *, training: bool) -> np.ndarray:
    """BatchNorm over all axes but the second."""
    axes = tuple(i for i in range(x.ndim) if i != 1)
    mean, var = (x.mean(axes), x.var(axes)) if training else (w[f"{name}.running_mean"], w[f"{name}.running_var"])
    mean, var, scale, shift = (
        v.reshape(1, -1, *[1] * (x.ndim - 2)) for v in (mean, var, w[f"{name}.weight"], w[f"{name}.bias"])
    )
    return (x - mean) / np.sqrt(var + 1e-5) * scale + shift


@pytest.mark.parametrize("training", [False, True])
def test_on_a_map_each_branch_starts_with_its_two_convolutions(training):
    rng = np.random.default_rng(12)
    method = random_method("hrn", TREE, rng, embedding=7, maps=True, channels=3).train(training)
    w = {name: value.numpy().copy() for name, value in method.state_dict().items()}
    maps = normal(rng, 4, 5, 3, 2)
    with torch.no_grad():
        prediction = method(maps)
    total = 0.0
    for k in (2, 1, 0):
        x = maps.numpy()
        for i, layer in ((0, 1), (3, 4)):
            x = naive_convolution(x, w[f"convolutions.{k}.{i}.weight"])
            x = np.maximum(naive_norm(x, w, f"convolutions.{k}.{layer}", training=training), 0)
        u = naive_norm(x.mean(axis=(2, 3)), w, f"branches.{k}.0.0", training=training)
        u = u @ w[f"branches.{k}.0.1.weight"].T + w[f"branches.{k}.0.1.bias"]
        u = naive_norm(u, w, f"branches.{k}.0.2", training=training)
        u = np.where(u > 0, u, np.expm1(u))
        total = total + u @ w[f"branches.{k}.1.weight"].T + w[f"branches.{k}.1.bias"]
        z = np.maximum(total, 0) @ w[f"heads.{k}.weight"].T + w[f"heads.{k}.bias"]
        np.testing.assert_allclose(prediction.nodes[k].numpy(), 1 / (1 + np.exp(-z)), rtol=1e-9)


def test_its_statistics_move_slowly_and_one_picture_on_one_place_is_no_fault():
    method = random_method("hrn", TREE, np.random.default_rng(13), embedding=7, maps=True).train()
    assert {layer.momentum for layer in method.convolutions.modules() if isinstance(layer, MapNorm)} == {0.01}
    assert method.convolutions[0][0].out_channels == 2, "half of five"
    method.loss(method(normal(np.random.default_rng(0), 1, 5, 1, 1)), paths(TREE, np.random.default_rng(0), 1)).backward()


def test_features_and_maps_are_not_taken_for_each_other():
    rng = np.random.default_rng(14)
    maps, features = (random_method("hrn", TREE, rng, embedding=7, maps=maps) for maps in (True, False))
    with pytest.raises(DataError, match=r"pass a tensor of numbers \(batch, 5, height, width\)"):
        maps(normal(rng, 4, 5))
    with pytest.raises(DataError, match=r"pass a tensor of numbers \(batch, 5\)"):
        features(normal(rng, 4, 5, 3, 3))
    assert not any(name.startswith("convolutions") for name in features.state_dict()), "as it was"
