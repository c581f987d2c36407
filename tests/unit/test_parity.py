"""Methods against their published formulas, restated from papers and released code as float64 loops over copied weights.

Each reference starts from features and weights, and shares nothing with the package but the tree.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.heads.method import Method, create_method
from torchlht.heads.prediction import Prediction, crm_scores, decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot import scoring
from torchlht.learn.fitting import make_optimizer
from torchlht.learn.options import TrainArgs
from trees import normal, paths, random_hierarchy, random_labels, random_method

TREE = random_hierarchy(np.random.default_rng(0), (7, 4, 2))
WIDE = 3  # features
BATCH = 5
Array = np.ndarray
Weights = dict[str, Array]


def copied(method: Method) -> Weights:
    return {key: tensor.detach().numpy().copy() for key, tensor in method.state_dict().items()}


def case(name: str, seed: int, **options: object) -> tuple[Method, Weights, Tensor]:
    """A method with random weights, these, and features."""
    rng = np.random.default_rng(seed)
    method = random_method(name, TREE, rng, WIDE, **options)
    return method, copied(method), normal(rng, BATCH, WIDE)


def climbed(tree: Hierarchy, leaf: int) -> list[int]:
    """A finest class and its ancestors, one step at a time."""
    found = [leaf]
    for parents in tree.parents:
        found.append(int(parents[found[-1]]))
    return found


def height(tree: Hierarchy, a: int, b: int) -> int:
    """Of the lowest common ancestor: the levels on which the paths differ."""
    return sum(x != y for x, y in zip(climbed(tree, a), climbed(tree, b), strict=True))


def softmax(z: Array) -> Array:
    return np.exp(z) / np.exp(z).sum()


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z))


def linear(w: Weights, name: str, v: Array) -> Array:
    bias = w[f"{name}.bias"]
    return np.array([sum(w[f"{name}.weight"][i, j] * v[j] for j in range(len(v))) + bias[i] for i in range(len(bias))])


def neck(w: Weights, name: str, x: Array, *, train: bool = False) -> Array:
    """(B, width): BatchNorm, Linear, BatchNorm, ELU."""

    def norm(v: Array, layer: str) -> Array:
        mean = v.mean(axis=0) if train else w[f"{layer}.running_mean"]
        variance = ((v - mean) ** 2).mean(axis=0) if train else w[f"{layer}.running_var"]
        return (v - mean) / np.sqrt(variance + 1e-5) * w[f"{layer}.weight"] + w[f"{layer}.bias"]

    hidden = norm(norm(x, f"{name}.0") @ w[f"{name}.1.weight"].T + w[f"{name}.1.bias"], f"{name}.2")
    return np.where(hidden > 0, hidden, np.exp(np.minimum(hidden, 0)) - 1)


def slope(f: Callable[[Weights], float], w: Weights, names: list[str], step: float = 1e-5) -> Weights:
    """Gradients by central differences, number by number."""
    found = {name: np.zeros_like(w[name]) for name in names}
    for name in names:
        for place in np.ndindex(w[name].shape):
            ends = []
            for sign in (1, -1):
                moved = {**w, name: np.array(w[name])}
                moved[name][place] += sign * step
                ends.append(f(moved))
            found[name][place] = (ends[0] - ends[1]) / (2 * step)
    return found


# ---- LHT: Wang et al., arXiv 2112.02353, and the public resnet_transition.py and hierarchy_loss.py -----------------


def naive_lht(w: Weights, x: Array, tree: Hierarchy, *, train: bool = False) -> tuple[list[Array], list[Array]]:
    """pᵏ (B, C_k) and Tᵏ (B, C_k, C_{k-1}): A = Q Lᵀ + γ S, each column of T a softmax, p ← T p; level k reads chunk k."""
    chunks = np.split(neck(w, "neck.layers", x, train=train), len(tree), axis=1)
    p = [np.stack([softmax(w["classifier.weight"] @ u + w["classifier.bias"]) for u in chunks[0]])]
    t = []
    for k, parents in enumerate(tree.parents):
        name, matrices = f"steps.{k}", []
        for u in chunks[k + 1]:
            left = (w[f"{name}.left.weight"] @ u + w[f"{name}.left.bias"]).reshape(tree.sizes[k], -1)
            right = (w[f"{name}.right.weight"] @ u + w[f"{name}.right.bias"]).reshape(tree.sizes[k + 1], -1)
            a = right @ left.T
            for child, parent in enumerate(parents):
                a[parent, child] += w[f"{name}.gamma"]
            matrices.append(np.exp(a) / np.exp(a).sum(axis=0))
        t.append(np.stack(matrices))
        p.append(np.stack([matrix @ fine for matrix, fine in zip(matrices, p[-1], strict=True)]))
    return p, t


def naive_lht_loss(p: list[Array], t: list[Array], labels: Tensor, kind: str, weight: float, *, paper: bool) -> float:
    """The public code: means over labelled samples and over levels. The paper's equation: sums over levels, over N."""
    levels, batch = len(p), len(labels)
    ce = confused = 0.0
    for k in range(levels):
        losses = [-math.log(p[k][n, labels[n, k]]) for n in range(batch) if labels[n, k] >= 0]
        ce += sum(losses) / batch if paper else sum(losses) / max(len(losses), 1) / levels
    for matrices in t:
        rows = matrices.shape[1]
        if kind == "entropy":
            term = (matrices * np.log(matrices)).sum(axis=1).mean()
        else:
            term = (1 / rows * (math.log(1 / rows) - np.log(matrices))).sum(axis=1).mean()
        confused += term if paper else term / (levels - 1)
    return ce + weight * confused


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_lht_probabilities_transitions_and_loss(kind, paper):
    reduction = "per_sample" if paper else "per_level_mean"
    method, w, x = case("lht-paper", 1, confusion=kind, confusion_weight=0.7, reduction=reduction)
    prediction, (p, t) = method(x), naive_lht(w, x.numpy(), TREE)
    for k in range(3):
        np.testing.assert_allclose(prediction.probs(k).detach().numpy(), p[k], rtol=0, atol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(prediction.transition(k).detach().numpy(), t[k], rtol=0, atol=1e-12)
    labels = random_labels(TREE, np.random.default_rng(1), BATCH)
    expected = naive_lht_loss(p, t, labels, kind, 0.7, paper=paper)
    assert method.loss(prediction, labels).item() == pytest.approx(expected, abs=1e-12)


def test_lht_paper_takes_the_published_steps_of_sgd():
    """γ from 1, λ = 0.01, momentum 0.9, weight decay 0.0005 on everything; batch statistics; gradients by differences."""
    tree = Hierarchy.from_parents([[0, 1, 2, 0], [0, 1, 0]])
    rng = np.random.default_rng(2)
    torch.manual_seed(0)
    method = create_method("lht-paper", 2, tree, width=6).double()
    model = Model(create_backbone("none", in_features=2), method, options={})
    optimizer = make_optimizer(TrainArgs("x.npz", optimizer="sgd", lr=0.05, weight_decay=5e-4), model)
    w = copied(method)
    assert w["steps.0.gamma"] == w["steps.1.gamma"] == 1
    names = [name for name, _ in method.named_parameters()]
    velocity = {name: np.zeros_like(w[name]) for name in names}
    for _ in range(3):
        x, labels = normal(rng, 6, 2), random_labels(tree, rng, 6)

        def loss(weights: Weights, x: Tensor = x, labels: Tensor = labels) -> float:
            return naive_lht_loss(*naive_lht(weights, x.numpy(), tree, train=True), labels, "entropy", 0.01, paper=False)

        found = method.loss(method(x), labels)
        assert found.item() == pytest.approx(loss(w), abs=1e-8)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        gradient = slope(loss, w, names)
        for name in names:
            velocity[name] = 0.9 * velocity[name] + gradient[name] + 5e-4 * w[name]
            w[name] = w[name] - 0.05 * velocity[name]
    for name, parameter in method.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), w[name], rtol=0, atol=1e-8, err_msg=name)


# ---- C-HMCNN: Giunchiglia and Lukasiewicz, NeurIPS 2020, and the public train.py ------------------------------------


def test_c_hmcnn_constraint_and_loss():
    """BCE is the mean over all nodes, as released; the package multiplies it by the mean number of classes of a level."""
    method, w, x = case("c-hmcnn", 3)
    labels = paths(TREE, np.random.default_rng(3), BATCH)
    first, n = np.cumsum([0, *TREE.sizes]), sum(TREE.sizes)
    below = [{a} for a in range(n)]  # each node with all its descendants
    for leaf in range(TREE.sizes[0]):
        path = [int(first[k]) + c for k, c in enumerate(climbed(TREE, leaf))]
        for k, a in enumerate(path):
            below[a] |= set(path[:k])
    entries, prediction = [], method(x)
    found = torch.cat(prediction.log_probs, dim=1).exp().detach().numpy()
    for i, hidden in enumerate(neck(w, "neck.layers", x.numpy())):
        h = sigmoid(linear(w, "head", hidden))
        o = np.array([max(h[b] for b in below[a]) for a in range(n)])
        np.testing.assert_allclose(found[i], o, rtol=0, atol=1e-12)
        right = {int(first[k]) + int(c) for k, c in enumerate(labels[i])}
        entries += [-math.log(max(h[b] for b in below[a] & right)) if a in right else -math.log(1 - o[a]) for a in range(n)]
    assert method.loss(prediction, labels).item() == pytest.approx(np.mean(entries) * n / 3, abs=1e-8)


# ---- HXE and soft labels: Bertinetto et al., CVPR 2020, and the public losses.py, trees.py and labels.py ------------


def flat_softmax(w: Weights, x: Tensor) -> list[Array]:
    return [softmax(linear(w, "classifier", hidden)) for hidden in neck(w, "neck.layers", x.numpy())]


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_hxe_loss(alpha):
    """Weights exp(-α depth) over their sum over all nodes and the root, as released; in the package over those of a path."""
    method, w, x = case("hxe", 4, alpha=alpha)
    labels, losses = paths(TREE, np.random.default_rng(4), BATCH), []
    raw = {depth: math.exp(-alpha * depth) for depth in range(4)}
    every = raw[0] + sum(raw[3 - k] * size for k, size in enumerate(TREE.sizes))
    for p, row in zip(flat_softmax(w, x), labels.tolist(), strict=True):
        under = [[leaf for leaf in range(7) if climbed(TREE, leaf)[k] == row[k]] for k in range(3)] + [list(range(7))]
        mass = [sum(p[leaf] for leaf in leaves) for leaves in under]
        losses.append(sum(raw[3 - k] / every * -math.log(mass[k] / mass[k + 1]) for k in range(3)))
    released = method.loss(method(x), labels).item() * (raw[1] + raw[2] + raw[3]) / every
    assert released == pytest.approx(np.mean(losses), abs=1e-12)


@pytest.mark.parametrize("beta", [4.0, 15.0])
def test_soft_labels_loss(beta):
    """KL of the soft target, its mean over the batch; distances are heights over the largest."""
    method, w, x = case("soft-labels", 5, beta=beta, reduction="per_sample")
    labels, losses = paths(TREE, np.random.default_rng(5), BATCH), []
    largest = max(height(TREE, a, b) for a in range(7) for b in range(7))
    for p, row in zip(flat_softmax(w, x), labels.tolist(), strict=True):
        q = np.array([math.exp(-beta * height(TREE, i, row[0]) / largest) for i in range(7)])
        q /= q.sum()
        losses.append(sum(q[i] * (math.log(q[i]) - math.log(p[i])) for i in range(7)))
    assert method.loss(method(x), labels).item() == pytest.approx(np.mean(losses), abs=1e-6)  # targets are float32


# ---- CRM: Karthik et al., ICLR 2021, and the public compute_results.py ---------------------------------------------


def test_crm_answers_and_ranking():
    """Classes are ranked by the negative product of probabilities and the matrix of heights."""
    rng = np.random.default_rng(6)
    log_p = torch.log_softmax(normal(rng, 200, 7, scale=0.6), dim=1)
    cost = np.array([[height(TREE, a, b) for b in range(7)] for a in range(7)])
    risk = log_p.exp().numpy() @ cost
    scores = crm_scores((log_p,), TREE)
    np.testing.assert_allclose(3 - scores.numpy(), risk, rtol=0, atol=1e-12)
    assert scores.argsort(dim=1, descending=True).tolist() == np.argsort(risk, axis=1).tolist()
    others = tuple(normal(rng, 200, size) for size in TREE.sizes[1:])
    answers = decide(Prediction((log_p, *others)), TREE, "crm").chosen()
    assert answers.tolist() == [climbed(TREE, int(leaf)) for leaf in risk.argmin(axis=1)]
    assert (answers[:, 0] != log_p.argmax(dim=1)).any()  # it does amend something


# ---- HRN: Chen et al., CVPR 2022, and its authors' public tree_loss.py ----------------------------------------------


def test_hrn_likelihood_over_paths():
    """States: nothing, and each path from the root; cross-entropy of the softmax head where the finest label is known."""
    method, w, x = case("hrn", 7, embedding=3)
    labels = paths(TREE, np.random.default_rng(7), BATCH)
    labels[1, 0] = labels[2, 0] = labels[2, 1] = -1
    states: list[set[tuple[int, int]]] = [set()]
    for leaf in range(TREE.sizes[0]):
        path = list(enumerate(climbed(TREE, leaf)))
        states += [set(path[k:]) for k in range(3) if set(path[k:]) not in states]
    assert len(states) == sum(TREE.sizes) + 1
    branch = [neck(w, f"branches.{k}.0", x.numpy()) for k in range(3)]
    tree_terms, fine_terms = [], []
    for n, row in enumerate(labels.tolist()):
        e = [linear(w, f"branches.{k}.1", branch[k][n]) for k in range(3)]
        r = [np.maximum(sum(e[k:]), 0) for k in range(3)]
        node = [sigmoid(linear(w, f"heads.{k}", r[k])) for k in range(3)]
        joint = [math.exp(sum(node[k][c] for k, c in state)) for state in states]
        deepest = next((k, y) for k, y in enumerate(row) if y >= 0)
        inside = sum(j for j, state in zip(joint, states, strict=True) if deepest in state)
        tree_terms.append(-math.log(inside / sum(joint)))
        if row[0] >= 0:
            fine_terms.append(-math.log(softmax(linear(w, "finest", r[0]))[row[0]]))
    expected = np.mean(tree_terms) + np.mean(fine_terms)
    assert method.loss(method(x), labels).item() == pytest.approx(expected, abs=1e-10)


# ---- FGoN: Chang et al., CVPR 2021, and the public Birds_ours_resnet.py --------------------------------------------


def test_fgon_reads_finer_features_without_teaching_them():
    """A head reads its own part and finer ones that are held as they are: gradients by differences with these held."""
    method, w, x = case("fgon", 8, reduction="per_sample")  # the sum over levels, as released
    labels = paths(TREE, np.random.default_rng(8), BATCH)
    held = np.split(neck(w, "neck.layers", x.numpy()), 3, axis=1)

    def loss(weights: Weights) -> float:
        own, total = np.split(neck(weights, "neck.layers", x.numpy()), 3, axis=1), 0.0
        for k in range(3):
            for n in range(BATCH):
                seen = np.concatenate([own[k][n], *(held[j][n] for j in range(k - 1, -1, -1))])
                z = weights[f"heads.{k}.weight"] @ seen + weights[f"heads.{k}.bias"]
                total -= math.log(softmax(z)[labels[n, k]]) / BATCH
        return total

    found = method.loss(method(x), labels)
    assert found.item() == pytest.approx(loss(w), abs=1e-12)
    found.backward()
    names = ["neck.layers.1.weight", *(f"heads.{k}.weight" for k in range(3))]
    for name, gradient in slope(loss, w, names).items():
        np.testing.assert_allclose(method.get_parameter(name).grad.numpy(), gradient, rtol=0, atol=1e-8, err_msg=name)


# ---- KT: Li et al., CVPR 2019, and the public train.prototxt -------------------------------------------------------


def test_kt_outputs_and_loss():
    """Four levels with the released weights 1, 1, 0.3, 1: each coarse level from the outputs of all finer ones and its own."""
    rng = np.random.default_rng(9)
    tree = random_hierarchy(rng, (8, 5, 3, 2))
    method = random_method("kt", tree, rng, WIDE, level_weights="1,1,0.3,1", reduction="per_sample")
    w, x, labels = copied(method), normal(rng, BATCH, WIDE), paths(tree, rng, BATCH)
    prediction, total = method(x), 0.0
    for n in range(BATCH):
        fc = [linear(w, f"heads.{k}", x[n].numpy()) for k in range(4)]
        for k, weight in enumerate((1, 1, 0.3, 1)):
            z = linear(w, f"answers.{k - 1}", linear(w, f"mixes.{k - 1}", np.concatenate(fc[: k + 1]))) if k else fc[0]
            np.testing.assert_allclose(prediction.probs(k)[n].detach().numpy(), softmax(z), rtol=0, atol=1e-12)
            total -= weight * math.log(softmax(z)[labels[n, k]]) / BATCH
    assert method.loss(prediction, labels).item() == pytest.approx(total, abs=1e-10)


@pytest.mark.parametrize("start", ["normal", "identity"])
def test_kt_starts_from_a_standard_deviation_of_a_ten_thousandth(start):
    """`std: 0.0001` of Caffe's gaussian filler; biases are 0. The identity is this package's own."""
    torch.manual_seed(0)
    method = create_method("kt", 300, random_hierarchy(np.random.default_rng(10), (200, 100)), start=start)
    for layer in (*method.heads, *method.mixes, *method.answers):
        noise = layer.weight.detach().clone()
        if start == "identity" and layer not in method.heads:
            noise[:, -layer.out_features :] -= torch.eye(layer.out_features)
        assert noise.std().item() == pytest.approx(1e-4, rel=0.03)
        assert abs(noise.mean().item()) < 5e-6
        assert layer.bias.count_nonzero() == 0


# ---- LSD: Douze et al., CVPR 2018, and the public train_apply_pca.py, build_graph.py and diffusion.py ---------------


def naive_lsd(background: Array, points: Array, classes: Array, support: Array, *, width: int, k: int, steps: int) -> Array:
    """PCA of the features as they are, then unit length; each node's k nearest, itself the first; W₀ + W₀ᵀ; dense."""
    middle = background.mean(axis=0)
    axes = np.linalg.svd(background - middle)[2][:width]
    reduced = [(v - middle) @ axes.T for v in (background, points[support], points[~support])]
    old, examples, asked = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in reduced)
    nodes = np.concatenate([old, examples])
    w = np.zeros((len(nodes), len(nodes)))
    for i, node in enumerate(nodes):
        nearest = np.argsort(-(nodes @ node))[:k]
        assert nearest[0] == i
        w[i, nearest] = 1
    w = w + w.T
    w /= w.sum(axis=1, keepdims=True)
    labels = np.zeros((len(nodes), classes.max() + 1))
    for j, c in enumerate(classes[support]):
        labels[len(old) + j, c] = 1
    for step in range(steps + 1):
        labels = w @ labels if step else labels
        labels /= labels.sum(axis=0)
    return np.stack([labels[np.argsort(-(nodes @ x))[:k]].sum(axis=0) for x in asked])


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_lsd_scores(monkeypatch, steps):
    monkeypatch.setattr(scoring, "NEIGHBOURS", 6)
    monkeypatch.setattr(scoring, "DIMENSIONS", 4)
    rng = np.random.default_rng(11)
    scale = rng.uniform(0.5, 4, size=(64, 1))  # lengths that differ: unit length before PCA would be something else
    background, points = np.split((scale * (1 + rng.normal(size=(64, 7)))).astype(np.float32), [40])
    classes = np.arange(24) % 4
    support = np.arange(24) < 8
    (found,) = scoring.Diffusion(background, points, classes).scores(support, [steps])
    expected = naive_lsd(background.astype(float), points.astype(float), classes, support, width=4, k=6, steps=steps)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


# ---- PPA: Qiao et al., CVPR 2018, and the public WeightNet.lua, TrainerWeightNet.lua and DataSamplerFFt.lua ----------


def test_ppa_takes_the_released_steps(monkeypatch):
    """Raw activations times predicted unit weights; given ones single by 0.7, else the mean; the two drawn independently."""
    rng = np.random.default_rng(12)
    x, classes = (2 + rng.normal(size=(12, 3))).astype(np.float32), np.array([0, 1, 2] * 4)
    drawn: list[Array] = []
    original = scoring.pick

    def noted(classes: Array, rng: np.random.Generator) -> Array:
        drawn.append(original(classes, rng))
        return drawn[-1]

    monkeypatch.setattr(scoring, "pick", noted)
    trained = scoring.train_predictor(x, classes, steps=4, seed=3)
    singles, chances = np.random.default_rng(3), []
    for _ in range(4):  # the same draws once more
        chances.append(singles.random(3) < 0.7)
        original(classes, singles)
        original(classes, singles)
    assert {bool(one) for row in chances for one in row} == {True, False}
    means = np.stack([x[classes == c].astype(float).mean(axis=0) for c in range(3)])
    w = {f"{layer}.{part}": np.eye(3) if part == "weight" else np.zeros(3) for layer in "02" for part in ("weight", "bias")}
    velocity = {name: np.zeros_like(value) for name, value in w.items()}
    for step, single in enumerate(chances):
        given = np.where(single[:, None], x[drawn[2 * step]].astype(float), means)
        asked = x[drawn[2 * step + 1]].astype(float)

        def loss(weights: Weights, given: Array = given, asked: Array = asked) -> float:
            predicted = []
            for a in given:
                out = linear(weights, "2", np.maximum(linear(weights, "0", a / np.linalg.norm(a)), 0))
                predicted.append(out / np.linalg.norm(out))
            return float(np.mean([-math.log(softmax(np.array(predicted) @ asked[c])[c]) for c in range(3)]))

        for name, gradient in slope(loss, w, list(w)).items():
            velocity[name] = 0.9 * velocity[name] + gradient + 5e-4 * w[name]
            w[name] = w[name] - scoring.LR * velocity[name]
    for name, parameter in trained.layers.named_parameters():
        np.testing.assert_allclose(parameter.detach().numpy(), w[name], rtol=0, atol=1e-5, err_msg=name)


def test_ppa_draws_every_sample_of_a_class_alike_and_may_draw_the_same_twice():
    classes, rng = np.array([2, 0, 2, 2, 2, 2]), np.random.default_rng(0)
    classes[1:3] = 0, 1
    found = np.stack([scoring.pick(classes, rng) for _ in range(4000)])
    assert set(found[:, 0]) == {1}
    assert set(found[:, 1]) == {2}
    share = np.bincount(found[:, 2], minlength=6)[[0, 3, 4, 5]] / 4000
    np.testing.assert_allclose(share, 0.25, atol=0.03)
    assert np.mean(found[:-1, 2] == found[1:, 2]) == pytest.approx(0.25, abs=0.03)
