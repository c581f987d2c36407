"""hmcn against plain loops: the flow, the mixture, the binary cross-entropies and the penalty on the edges of the tree."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.methods.hmcn import HMCN, HMCNPrediction
from trees import naive_cross_entropy, normal, paths, random_hierarchy, random_labels, random_method

SIZES = (7, 4, 2)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
ACTIVATIONS = ["sigmoid", "softmax"]


def make(seed: int, **options: object) -> HMCN:
    method = random_method("hmcn", TREE, np.random.default_rng(seed), hidden=6, **options)
    assert isinstance(method, HMCN)
    return method


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def layer(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """φ: Linear, ReLU, BatchNorm; dropout does nothing here."""
    hidden = np.maximum(weights[f"{name}.0.weight"] @ x + weights[f"{name}.0.bias"], 0)
    mean, variance = weights[f"{name}.2.running_mean"], weights[f"{name}.2.running_var"]
    return (hidden - mean) / np.sqrt(variance + 1e-5) * weights[f"{name}.2.weight"] + weights[f"{name}.2.bias"]


def naive_logits(method: HMCN, features: Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Local and global logits, (B, C_k) each, fine first."""
    weights = {key: tensor.numpy() for key, tensor in method.state_dict().items()}
    local: list[list[np.ndarray]] = [[] for _ in SIZES]
    everywhere: list[list[np.ndarray]] = [[] for _ in SIZES]
    for x in method.neck(features)[0].detach().numpy():
        state = np.zeros(0)
        for h in range(len(SIZES)):  # coarse first
            state = layer(weights, f"flow.{h}", np.concatenate([state, x]))
            inner = layer(weights, f"inner.{h}", state)
            local[len(SIZES) - 1 - h].append(weights[f"local.{h}.weight"] @ inner + weights[f"local.{h}.bias"])
        whole = weights["everywhere.weight"] @ state + weights["everywhere.bias"]
        for k, size in enumerate(SIZES):
            start = sum(SIZES[:k])
            everywhere[k].append(whole[start : start + size])
    return [np.stack(rows) for rows in local], [np.stack(rows) for rows in everywhere]


def naive_probability(row: np.ndarray, c: int, activation: str) -> float:
    return sigmoid(row[c]) if activation == "sigmoid" else math.exp(row[c]) / sum(math.exp(z) for z in row)


def naive_loss(method: HMCN, features: Tensor, labels: Tensor) -> float:
    total = 0.0
    local, everywhere = naive_logits(method, features)
    for logits in (local, everywhere):
        terms = []
        for k, rows in enumerate(logits):
            for n, row in enumerate(rows):
                for c in range(SIZES[k]) if labels[n, k] >= 0 else ():
                    p = sigmoid(row[c])
                    terms.append(-math.log(p) if c == labels[n, k] else -math.log(1 - p))
        if method.activation == "sigmoid":
            total += sum(terms) / max(len(terms), 1) * sum(SIZES) / len(SIZES)
        else:
            probs = [[[naive_probability(row, c, "softmax") for c in range(len(row))] for row in rows] for rows in logits]
            total += naive_cross_entropy([torch.tensor(p, dtype=torch.float64).log() for p in probs], labels)
    return total + method.violation_weight * naive_violation(method, local, everywhere)


def naive_violation(method: HMCN, local: list[np.ndarray], everywhere: list[np.ndarray]) -> float:
    def mixed(k: int, n: int, c: int) -> float:
        inside = naive_probability(local[k][n], c, method.activation)
        return method.mix * naive_probability(everywhere[k][n], c, method.activation) + (1 - method.mix) * inside

    total = 0.0
    for n in range(len(local[0])):
        for k, parents in enumerate(TREE.parents):
            for child, parent in enumerate(parents):
                total += max(0.0, mixed(k, n, child) - mixed(k + 1, n, parent)) ** 2
    return total / len(local[0])


@pytest.mark.parametrize("mix", [0.5, 0.2])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_answer_is_the_mixture_of_both_outputs(activation, mix):
    method = make(1, activation=activation, mix=mix)
    features = normal(np.random.default_rng(1), 4, 5)
    prediction = method(features)
    local, everywhere = naive_logits(method, features)
    for k, size in enumerate(SIZES):
        torch.testing.assert_close(prediction.local_logits[k], torch.from_numpy(local[k]), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(prediction.global_logits[k], torch.from_numpy(everywhere[k]), rtol=1e-10, atol=1e-10)
        for n in range(4):
            for c in range(size):
                inside = naive_probability(local[k][n], c, activation)
                expected = mix * naive_probability(everywhere[k][n], c, activation) + (1 - mix) * inside
                assert prediction.probs(k)[n, c].item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_loss_equals_a_naive_loop(activation, missing):
    rng = np.random.default_rng(2)
    method = make(2, activation=activation, violation_weight=0.3)
    features, labels = normal(rng, 6, 5), random_labels(TREE, rng, 6, missing)
    found = method.loss(method(features), labels).item()
    assert found == pytest.approx(naive_loss(method, features, labels), rel=1e-10)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_entries_of_unknown_levels_are_dropped_from_both_outputs(activation):
    rng = np.random.default_rng(3)
    method = make(3, activation=activation, violation_weight=0.0)
    labels = random_labels(TREE, rng, 6)
    prediction = method(normal(rng, 6, 5))
    logits = [*prediction.local_logits, *prediction.global_logits]
    gradients = torch.autograd.grad(method.loss(prediction, labels), logits)
    for i, gradient in enumerate(gradients):
        known = labels[:, i % len(SIZES)] >= 0
        assert ((gradient != 0) == known.unsqueeze(1)).all()


def by_hand(method: HMCN, logits: list[list[float]]) -> HMCNPrediction:
    """A prediction of one sample whose local and global logits are both these, with gradients."""
    leaves = tuple(torch.tensor([row]).double().requires_grad_() for row in logits)
    log_probs = tuple(torch.nn.functional.logsigmoid(z) for z in leaves)
    return HMCNPrediction(log_probs, local_logits=leaves, global_logits=leaves)


def test_without_labels_the_penalty_pushes_a_child_down_and_its_parent_up():
    method = make(4, violation_weight=0.5)
    logits = [[-5.0] * 7, [-3.0] * 4, [-1.0] * 2]
    logits[0][3] = 2.0
    parent = TREE.parents[0][3]
    prediction = by_hand(method, logits)
    loss = method.loss(prediction, torch.full((1, 3), -1))
    assert loss.item() == pytest.approx(0.5 * (sigmoid(2.0) - sigmoid(-3.0)) ** 2)
    loss.backward()
    fine, middle, coarse = (z.grad[0] for z in prediction.local_logits)
    assert fine[3] > 0 > middle[parent]
    assert (fine.count_nonzero(), middle.count_nonzero(), coarse.count_nonzero()) == (1, 1, 0)


def test_there_is_no_penalty_where_no_child_exceeds_its_parent():
    method = make(5)
    prediction = by_hand(method, [[-2.0] * 7, [-2.0] * 4, [-1.0] * 2])
    assert method.violation(prediction).item() == 0


def test_the_penalty_counts_every_edge_and_averages_over_samples():
    method = make(6)
    one = method.violation(by_hand(method, [[1.0] * 7, [0.0] * 4, [-1.0] * 2])).item()
    expected = 7 * (sigmoid(1.0) - sigmoid(0.0)) ** 2 + 4 * (sigmoid(0.0) - sigmoid(-1.0)) ** 2
    assert one == pytest.approx(expected)
    features = normal(np.random.default_rng(6), 2, 5)
    both = method.violation(method(features))
    assert both.item() == pytest.approx(sum(method.violation(method(x[None])).item() for x in features) / 2)


@pytest.mark.parametrize("weight", [0.1, 2.0])
def test_the_penalty_is_added_with_its_weight(weight):
    rng = np.random.default_rng(7)
    plain, weighted = make(7, violation_weight=0.0), make(7, violation_weight=weight)
    features, labels = normal(rng, 6, 5), paths(TREE, rng, 6)
    prediction = plain(features)
    assert plain.violation(prediction) > 0.1
    expected = plain.loss(prediction, labels) + weight * plain.violation(prediction)
    torch.testing.assert_close(weighted.loss(weighted(features), labels), expected)


@pytest.mark.parametrize(("activation", "starts_rare"), [("sigmoid", True), ("softmax", False)])
def test_sigmoids_start_at_one_over_the_size_of_their_level(activation, starts_rare):
    method = HMCN(5, TREE, activation=activation, hidden=6, width=12)
    biases = [*(head.bias for head in reversed(method.local)), *method.everywhere.bias.split(SIZES)]
    for size, bias in zip((*SIZES, *SIZES), biases, strict=True):
        assert torch.allclose(torch.sigmoid(bias), torch.tensor(1 / size)) == starts_rare


def test_dropout_is_used_in_training_only():
    method = make(8, dropout=0.5)
    features = normal(np.random.default_rng(8), 4, 5)
    assert torch.equal(method(features).log_probs[0], method(features).log_probs[0])
    method.train()
    torch.manual_seed(0)
    assert not torch.equal(method(features).log_probs[0], method(features).log_probs[0])
    still = make(8, dropout=0.0).train()
    assert torch.equal(still(features).log_probs[0], still(features).log_probs[0])
