"""lht-c2f against products of matrices in probability space."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.heads.methods.lht_c2f import LHTCoarseToFine
from trees import naive_cross_entropy, normal, paths, random_hierarchy, random_labels, random_method

SIZES = (9, 5, 3)
TREE = random_hierarchy(np.random.default_rng(0), SIZES)
REDUCTIONS = ["per_level_mean", "per_sample"]


def make(seed: int, **options: object) -> LHTCoarseToFine:
    method = random_method("lht-c2f", TREE, np.random.default_rng(seed), **options)
    assert isinstance(method, LHTCoarseToFine)
    return method


def naive_softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=0)


def naive_forward(method: LHTCoarseToFine, features: Tensor) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(B, C_k) probabilities of every level and (B, C_k, C_{k+1}) matrices V down to every level but the coarsest."""
    weights = {key: tensor.numpy() for key, tensor in method.state_dict().items()}
    parts = [u.detach().numpy() for u in method.neck(features)]
    probs: list[list[np.ndarray]] = [[] for _ in SIZES]
    matrices: list[list[np.ndarray]] = [[] for _ in SIZES[1:]]
    for n in range(len(features)):
        p = naive_softmax(weights["classifier.weight"] @ parts[-1][n] + weights["classifier.bias"])
        probs[-1].append(p)
        for k in (1, 0):  # the step down to level k reads that level's features
            step, u = f"steps.{k}", parts[k][n]
            fine = (weights[f"{step}.right.weight"] @ u + weights[f"{step}.right.bias"]).reshape(SIZES[k], 2)
            coarse = (weights[f"{step}.left.weight"] @ u + weights[f"{step}.left.bias"]).reshape(SIZES[k + 1], 2)
            v = naive_softmax(fine @ coarse.T + weights[f"{step}.gamma"] * TREE.matrix(k).T)
            p = v @ p
            probs[k].append(p)
            matrices[k].append(v)
    return [np.stack(rows) for rows in probs], [np.stack(rows) for rows in matrices]


def naive_confusion(matrices: list[np.ndarray], kind: str, reduction: str) -> float:
    """Mean over samples and columns (coarse classes) of each V, then the mean or the sum over the steps."""
    terms = []
    for v in matrices:
        rows, values = v.shape[1], []
        for n in range(len(v)):
            for j in range(v.shape[2]):
                column = v[n, :, j]
                if kind == "entropy":
                    values.append(sum(x * math.log(x) for x in column))
                else:
                    values.append(sum(math.log(1 / (rows * x)) / rows for x in column))
        terms.append(sum(values) / len(values))
    return sum(terms) / (len(terms) if reduction == "per_level_mean" else 1)


@pytest.mark.parametrize("features", ["shared", "split"])
def test_probabilities_equal_products_of_naive_matrices(features):
    method = make(1, features=features)
    x = normal(np.random.default_rng(1), 5, 5)
    prediction = method(x)
    probs, matrices = naive_forward(method, x)
    for k, p in enumerate(probs):
        np.testing.assert_allclose(prediction.probs(k).detach().numpy(), p, rtol=1e-10)
    for k, v in enumerate(matrices):
        found = prediction.descents[k].log_matrix().exp()
        np.testing.assert_allclose(found.detach().numpy(), v, rtol=1e-10)
        torch.testing.assert_close(found.sum(dim=1), torch.ones(5, SIZES[k + 1]).double())


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0])
def test_the_loss_is_cross_entropy_of_known_levels(missing, reduction):
    rng = np.random.default_rng(2)
    method = make(2, reduction=reduction)
    x, labels = normal(rng, 7, 5), random_labels(TREE, rng, 7, missing)
    probs = [torch.from_numpy(p).log() for p in naive_forward(method, x)[0]]
    expected = naive_cross_entropy(probs, labels, reduction)
    assert method.loss(method(x), labels).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_the_confusion_term_is_over_the_matrices_down(kind, reduction):
    rng = np.random.default_rng(3)
    method = make(3, confusion=kind, confusion_weight=0.3, reduction=reduction)
    x, labels = normal(rng, 7, 5), random_labels(TREE, rng, 7)
    probs, matrices = naive_forward(method, x)
    expected = naive_cross_entropy([torch.from_numpy(p).log() for p in probs], labels, reduction)
    expected += 0.3 * naive_confusion(matrices, kind, reduction)
    assert method.loss(method(x), labels).item() == pytest.approx(expected, rel=1e-10)


def taught(method: LHTCoarseToFine, labels: Tensor, x: Tensor) -> tuple[bool, list[bool]]:
    """Whether the classifier, and each step fine first, have a gradient."""
    method.zero_grad()
    method.loss(method(x), labels).backward()
    steps = [any(bool(p.grad.abs().max() > 1e-9) for p in step.parameters()) for step in method.steps]
    return bool(method.classifier.weight.grad.abs().max() > 1e-9), steps


@pytest.mark.parametrize("features", ["shared", "split"])
@pytest.mark.parametrize(("level", "expected"), [(0, [True, True]), (1, [False, True]), (2, [False, False])])
def test_a_label_teaches_the_steps_above_it_and_none_below(level, expected, features):
    rng = np.random.default_rng(4)
    labels = torch.full((6, 3), -1)
    labels[:, level] = paths(TREE, rng, 6)[:, level]
    assert taught(make(4, features=features), labels, normal(rng, 6, 5)) == (True, expected)


def test_gamma_puts_mass_on_the_children_of_a_class():
    """With nothing learned, every child of a class has e^γ / (e^γ m + C - m), m its number of children."""
    method = LHTCoarseToFine(5, TREE, width=12, gamma=4.0).double().eval()
    for name, parameter in method.named_parameters():
        if name.startswith("steps") and "gamma" not in name:
            torch.nn.init.zeros_(parameter)
    prediction = method(torch.zeros(1, 5).double())
    for k in range(2):
        v = prediction.descents[k].log_matrix().exp()[0]
        for j in range(SIZES[k + 1]):
            children = [i for i in range(SIZES[k]) if TREE.parents[k][i] == j]
            expected = math.exp(4) / (math.exp(4) * len(children) + SIZES[k] - len(children))
            torch.testing.assert_close(v[children, j], torch.full((len(children),), expected).double())


def test_it_has_no_transitions_upwards():
    prediction = make(5)(normal(np.random.default_rng(5), 2, 5))
    assert prediction.transitions == ()
    assert len(prediction.descents) == 2
