"""What holds for every method: shapes, gradients, memory, names, copies. And the whole LHT head naively, and the register."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from torchlht.errors import ConfigError
from torchlht.heads import method as base
from torchlht.heads.method import (
    Estimator,
    Method,
    Neck,
    aliases_of,
    create_method,
    find_method,
    list_methods,
    method_options,
    options_of,
    parse_options,
    register,
    variant,
)
from torchlht.heads.methods.lht import LHTHead
from torchlht.heads.prediction import Prediction, decide
from torchlht.heads.transition.networks import TransitionNetwork
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy, random_labels, random_method

WIDTH, FEATURES, BATCH = 12, 6, 7
TRANSITIONS = ["low_rank", "full", "static", "fixed"]
REDUCTIONS = ["per_level_mean", "per_sample"]
TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))

PAIRS = [("shared", "entropy"), ("split", "kl")]
CONFUSED = [{"features": features, "confusion": kind, "confusion_weight": 0.1} for features, kind in PAIRS]
BOTH_FEATURES = [{"features": "shared"}, {"features": "split"}]
LHT = [{"transition": "low_rank", **options} for options in CONFUSED]
LHT += [{"transition": "full", **CONFUSED[1]}, {"transition": "static", **CONFUSED[0]}, {"transition": "fixed"}]
BY_STEPS = [name for name in list_methods() if not issubclass(find_method(name).cls, Estimator)]
OPTIONS: dict[str, list[dict[str, Any]]] = {  # to be tried; other methods are tried with their defaults
    "c-hmcnn": [{}, {"mil": True}, {"drop_masked_samples": True}],
    "hmcn": [{"activation": "sigmoid"}, {"activation": "softmax"}],
    "hxe": [{}, {"alpha": 0.0}],
    "implied": BOTH_FEATURES,
    "kt": [{}, {"start": "normal", "variance": 1e-4}],
    "lht": LHT,
    "lht-c2f": CONFUSED,
    "marginal": BOTH_FEATURES,
    "multihead": BOTH_FEATURES,
    "sgm": [{}, {"penalty": 0.1}],
    "soft-labels": [{"soft_coarse": "off"}, {"soft_coarse": "mean"}, {"soft_coarse": "marginal"}, {"beta": 0.0}],
}
CASES = [(name, options) for name in BY_STEPS for options in OPTIONS.get(name, [{}])]
SMALL = {"width": WIDTH, "hidden": 10, "embedding": 10}


def label(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    words = [key if value is True else str(value) for key, value in options.items() if key != "confusion_weight"]
    return "-".join([name, *words])


def parametrized(cases: list[tuple[str, dict[str, Any]]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "options"), cases, ids=[label(case) for case in cases])


every_method = parametrized(CASES)


def small(name: str) -> dict[str, int]:
    return {option: size for option, size in SMALL.items() if option in method_options(name)}


def make(name: str, tree: Hierarchy = TREE, seed: int = 0, **options: Any) -> Method:
    torch.manual_seed(seed)
    return create_method(name, FEATURES, tree, **{**small(name), **options})


def inputs(seed: int, dtype: torch.dtype = torch.float32, batch: int = BATCH) -> Tensor:
    return normal(np.random.default_rng(seed), batch, FEATURES, dtype=dtype)


def assert_probabilities(prediction: Prediction) -> None:
    """Each row of a level is a distribution over its classes, unless the method says that each class has a sigmoid."""
    for level, log_p in enumerate(prediction.log_probs):
        p = log_p.exp()
        assert log_p.dtype == torch.float32
        assert ((p >= 0) & (p <= 1 + 1e-6)).all()
        if level not in prediction.sigmoid:
            torch.testing.assert_close(p.sum(dim=1), torch.ones(len(p)), rtol=0, atol=1e-5)


def assert_trains(method: Method, loss: Tensor) -> None:
    """A finite loss, and a finite gradient for every parameter: None instead of zero would stop distributed training."""
    loss.backward(retain_graph=True)
    assert loss.dim() == 0
    assert torch.isfinite(loss)
    for key, parameter in method.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


# ---- forward -------------------------------------------------------------------------------------------------------


@every_method
def test_forward_gives_one_row_of_probabilities_per_sample_and_level(name, options):
    prediction = make(name, **options).train()(inputs(1))
    assert [tuple(log_p.shape) for log_p in prediction.log_probs] == [(BATCH, size) for size in TREE.sizes]
    assert_probabilities(prediction)
    assert len(prediction.transitions) in (
        (len(TREE) - 1,) if issubclass(find_method(name).cls, LHTHead) else (0, len(TREE) - 1)
    )
    chosen = prediction.chosen()
    assert chosen.shape == (BATCH, len(TREE))
    assert ((chosen >= 0) & (chosen < torch.tensor(TREE.sizes))).all()


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_prediction_gives_one_column_stochastic_matrix_per_sample(transition):
    prediction = make("lht", transition=transition)(inputs(2))
    for level in range(len(TREE) - 1):
        matrix = prediction.transition(level)
        assert matrix.shape == (BATCH, TREE.sizes[level + 1], TREE.sizes[level])
        torch.testing.assert_close(matrix.sum(dim=1), torch.ones(BATCH, TREE.sizes[level]))


@pytest.mark.parametrize("name", ["multihead", "c-hmcnn", "lht-c2f"])
def test_prediction_without_transitions_says_so(name):
    with pytest.raises(ValueError, match="no transitions"):
        make(name)(inputs(2)).transition(0)


@every_method
def test_a_tree_of_a_single_level_works(name, options):
    tree = Hierarchy.from_parents([], classes=[["a", "b", "c"]])
    method = make(name, tree, **options)
    prediction = method(inputs(3))
    loss = method.loss(prediction, torch.tensor([[0], [1], [2], [-1], [0], [1], [2]]))
    loss.backward()
    assert [log_p.shape for log_p in prediction.log_probs] == [(BATCH, 3)]
    assert loss > 0


@pytest.mark.parametrize("name", list_methods())
def test_every_method_also_one_that_is_fitted_at_once_keeps_its_word(name):
    """Probabilities, in bfloat16 as well; answers by its class's rule; the same for a sample alone, and from its weights."""
    method, fresh = (random_method(name, TREE, np.random.default_rng(seed), FEATURES).float() for seed in (1, 2))
    with torch.no_grad():
        said = method(inputs(8))
        assert_probabilities(said)
        assert torch.equal(said.chosen(), decide(Prediction(said.log_probs), TREE, method.rule).chosen())
        alone = method(inputs(8)[:1])
        fresh.load_state_dict(method.state_dict())
        again = fresh(inputs(8))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_probabilities(method(inputs(8)))
    for k, log_p in enumerate(said.log_probs):
        torch.testing.assert_close(alone.log_probs[k], log_p[:1], rtol=1e-4, atol=1e-4)
        assert torch.equal(again.log_probs[k], log_p)


def test_nothing_else_knows_a_particular_method():
    """Methods are found by the register: their files can be added and taken away. Only the public names have `LHTHead`."""
    source = Path(inspect.getfile(base)).parents[1]
    others = [file for file in source.rglob("*.py") if file.parent.name != "methods"]
    knowing = [file.relative_to(source) for file in others if "heads.methods." in file.read_text(encoding="utf-8")]
    assert knowing == []


# ---- loss and gradients --------------------------------------------------------------------------------------------


@every_method
def test_any_pattern_of_missing_labels_trains(name, options):
    """The same levels known for all samples, from all to none, and some other levels for each."""
    whole = paths(TREE, np.random.default_rng(4), BATCH)
    known = [torch.tensor(pattern) for pattern in itertools.product([True, False], repeat=len(TREE))]
    known.append(torch.from_numpy(np.random.default_rng(4).random(whole.shape) < 0.5))
    for reduction in [{"reduction": word} for word in REDUCTIONS] if "reduction" in method_options(name) else [{}]:
        method = make(name, **reduction, **options).train()
        prediction = method(inputs(4))
        for pattern in known:
            method.zero_grad()
            assert_trains(method, method.loss(prediction, torch.where(pattern, whole, -1)))


@every_method
def test_a_batch_of_one_trains(name, options):
    method = make(name, **options).train()
    method(inputs(4))
    before = {key: buffer.clone() for key, buffer in method.named_buffers()}
    assert_trains(method, method.loss(method(inputs(5, batch=1)), paths(TREE, np.random.default_rng(5), 1)))
    assert any(parameter.grad.count_nonzero() for parameter in method.parameters())
    assert all(torch.equal(before[key], buffer) for key, buffer in method.named_buffers())


@every_method
def test_logits_of_a_hundred_thousand_train(name, options):
    """Features and output weights a thousand times too large: a naive probability is 0 there, and its logarithm infinite."""
    method = make(name, **options).eval()
    with torch.no_grad():
        for parameter, _ in outputs(method):
            if parameter.ndim > 1:  # not a bias
                parameter *= 1e3
    prediction = method(1e3 * inputs(6))
    assert min(log_p.min() for log_p in prediction.log_probs) < -1e4
    assert all(torch.isfinite(log_p).all() for log_p in prediction.log_probs)
    assert_trains(method, method.loss(prediction, random_labels(TREE, np.random.default_rng(6), BATCH, 0.3)))


@every_method
def test_autocast_gives_float32_log_probabilities_and_a_finite_loss(name, options):
    method = make(name, **options).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction = method(inputs(7))
        loss = method.loss(prediction, random_labels(TREE, np.random.default_rng(7), BATCH, 0.3))
    assert_probabilities(prediction)
    assert loss.dtype == torch.float32
    assert_trains(method, loss)


@every_method
def test_full_labels_reach_every_parameter(name, options):
    """In eval mode: in training, BatchNorm cancels any shift before it, and the gradient of those biases is zero."""
    method = make(name, **options).eval()
    method.loss(method(inputs(5)), paths(TREE, np.random.default_rng(5), BATCH)).backward()
    untouched = [key for key, parameter in method.named_parameters() if parameter.grad.abs().max() < 1e-8]
    assert untouched == []


@every_method
def test_without_labels_only_the_confusion_term_teaches(name, options):
    """And the drift of lht and the violation term of hmcn, which are switched off here."""
    off = {key: 0.0 for key in ("prior_weight", "violation_weight") if key in method_options(name)}
    method = make(name, **options, **off).eval()
    loss = method.loss(method(inputs(6)), torch.full((BATCH, len(TREE)), -1))
    loss.backward()
    taught = {key.split(".")[0] for key, parameter in method.named_parameters() if parameter.grad.count_nonzero()}
    confused = getattr(method, "confusion_weight", 0) > 0
    expected = set() if not confused else {"steps"} if options.get("transition") == "static" else {"neck", "steps"}
    assert taught == expected
    assert (loss.item() == 0) == (not confused)


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_the_confusion_term_is_added_with_its_weight(kind, reduction):
    rng = np.random.default_rng(7)
    labels = random_labels(TREE, rng, BATCH)
    plain, weighted = (
        make("lht", confusion=kind, confusion_weight=weight, reduction=reduction).double().eval() for weight in (0.0, 0.3)
    )
    prediction = plain(inputs(7, torch.float64))
    omegas = []
    for level in range(len(TREE) - 1):
        t = prediction.transition(level)
        omegas.append((t * t.log()).sum(1).mean() if kind == "entropy" else -(t * t.shape[1]).log().mean())
    omega = sum(omegas) / (len(omegas) if reduction == "per_level_mean" else 1)
    torch.testing.assert_close(weighted.loss(prediction, labels), plain.loss(prediction, labels) + 0.3 * omega)


def test_flat_ignores_coarse_labels():
    method = make("flat")
    rng = np.random.default_rng(8)
    labels = paths(TREE, rng, BATCH)
    labels[:3, 0] = -1
    prediction = method(inputs(8))
    loss = method.loss(prediction, labels)
    other = labels.clone()
    other[:, 1:] = torch.where(torch.rand(BATCH, 2) < 0.5, -1, 0)
    assert method.loss(prediction, other) == loss
    picked = prediction.log_probs[0][torch.arange(3, BATCH), labels[3:, 0]]
    torch.testing.assert_close(loss, -picked.mean() / len(TREE))  # on the scale of the other methods
    assert labels[:, 1:].min() >= 0  # the caller's labels were not written to


def test_flat_gives_coarse_probabilities_as_sums_over_children():
    prediction = make("flat").double().eval()(inputs(9, torch.float64))
    for level in range(len(TREE) - 1):
        expected = prediction.probs(level) @ torch.from_numpy(TREE.matrix(level)).T
        torch.testing.assert_close(prediction.probs(level + 1), expected)


@every_method
def test_learns_from_names_the_samples_that_teach(name, options):
    """Those with any label that it makes something of; or, where that is asked for, with all of them."""
    labels = torch.tensor([[0, 1, 2], [-1, 1, 2], [-1, -1, 0], [3, -1, -1], [-1, -1, -1]])
    method = make(name, **options)
    seen = method.visible(labels) >= 0
    expected = seen.all(dim=1) if "drop_masked_samples" in options else seen.any(dim=1)
    assert method.learns_from(labels).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["flat", "sgm", "soft-labels"])
def test_some_see_fine_labels_alone(name):
    labels = torch.tensor([[0, 1, 2], [-1, 1, 2]])
    assert make(name).visible(labels).tolist() == [[0, -1, -1], [-1, -1, -1]]


@every_method
def test_a_sample_that_does_not_teach_changes_no_gradient(name, options):
    """What `learns_from` leaves out may be left out: under per_level_mean, without a term that needs no labels."""
    off = {key: 0.0 for key in ("confusion_weight", "prior_weight", "violation_weight") if key in method_options(name)}
    method = make(name, **{**options, **off}).double().eval()
    labels = random_labels(TREE, np.random.default_rng(10), BATCH, 0.5)
    labels[:2] = paths(TREE, np.random.default_rng(10), 2)
    labels[2] = -1
    keep, features = method.learns_from(labels), inputs(10, torch.float64)
    assert not keep.all()
    assert keep.any()
    gradients = []
    for rows in (torch.ones(BATCH, dtype=torch.bool), keep):
        loss = method.loss(method(features[rows]), labels[rows])
        gradients.append(torch.autograd.grad(loss, list(method.parameters())))
    for whole, kept in zip(*gradients, strict=True):
        torch.testing.assert_close(whole, kept, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("features", ["shared", "split"])
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_a_coarse_label_moves_the_fine_classifier_of_lht(transition, level, features):
    method = make("lht", transition=transition, features=features)
    labels = torch.full((BATCH, len(TREE)), -1)
    labels[:, level] = paths(TREE, np.random.default_rng(11), BATCH)[:, level]
    method.loss(method(inputs(11)), labels).backward()
    assert method.classifier.weight.grad.abs().max() > 1e-6


@pytest.mark.parametrize("features", ["shared", "split"])
@pytest.mark.parametrize("level", [1, 2])
def test_a_coarse_label_does_not_move_the_fine_head_of_multihead(level, features):
    method = make("multihead", features=features)
    labels = torch.full((BATCH, len(TREE)), -1)
    labels[:, level] = paths(TREE, np.random.default_rng(12), BATCH)[:, level]
    method.loss(method(inputs(12)), labels).backward()
    for k, head in enumerate(method.heads):
        assert (head.weight.grad.count_nonzero() > 0) == (k == level)


# ---- memory --------------------------------------------------------------------------------------------------------


def saved_bytes(method: Method, features: Tensor, labels: Tensor) -> int:
    """What one step keeps for its backward pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in method.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = method.loss(method(features), labels)
    assert loss.requires_grad
    return sum(kept.values())


@every_method
def test_no_method_costs_batch_times_classes_times_classes(name, options):
    """Linear in the classes, but for LHT's own matrices: those are batch × fine × coarse, and few."""
    rng, batch = np.random.default_rng(23), 32
    tree = random_hierarchy(rng, (600, 60, 6))
    method = make(name, tree, **options).train()
    square = 4 * batch * sum(tree.sizes) ** 2
    used = saved_bytes(method, inputs(23, batch=batch), random_labels(tree, rng, batch, 0.3))
    assert used > 4 * batch * sum(tree.sizes)  # so that it is known to count
    assert used < square / (2 if hasattr(method, "steps") else 50)


# ---- names of classes carry no meaning -----------------------------------------------------------------------------


def renamed_tree(tree: Hierarchy, new: list[np.ndarray]) -> Hierarchy:
    """The same tree when class j of level k is called new[k][j]."""
    parents = []
    for k, above in enumerate(tree.parents):
        moved = np.empty_like(above)
        moved[new[k]] = new[k + 1][above]
        parents.append(moved)
    return Hierarchy.from_parents(parents)


def moved(x: Tensor, new: np.ndarray, dim: int = 0) -> Tensor:
    """Entry i of `x` along `dim` goes to place new[i]."""
    return x.index_select(dim, torch.from_numpy(np.argsort(new)))


def outputs(method: Method) -> list[tuple[nn.Parameter, list[int]]]:
    """The parameters whose rows are classes, and of which levels, in order: as many as a level has, or all of them.

    But for transitions, and what `kt` mixes before its answers.
    """
    sizes = method.hierarchy.sizes
    levels = {sum(sizes): list(range(len(sizes)))} | {size: [k] for k, size in enumerate(sizes)}
    own = [p for key, p in method.named_parameters() if key.partition(".")[0] not in ("steps", "mixes") and p.ndim]
    return [(parameter, levels[len(parameter)]) for parameter in own if len(parameter) in levels]


def rename_transition(step: TransitionNetwork, rows: np.ndarray, columns: np.ndarray) -> None:
    """Move what belongs to a row or column of the matrix to its new number, in place."""
    for key, parameter in step.named_parameters():
        rest = parameter.shape[1:]
        if key.startswith("right"):
            parameter.copy_(moved(parameter.view(len(rows), step.rank, *rest), rows).reshape(parameter.shape))
        elif key.startswith("left"):
            parameter.copy_(moved(parameter.view(len(columns), step.rank, *rest), columns).reshape(parameter.shape))
        elif key.startswith("logits."):
            cells = moved(moved(parameter.view(len(rows), len(columns), *rest), rows), columns, dim=1)
            parameter.copy_(cells.reshape(parameter.shape))
        elif key == "logits":
            parameter.copy_(moved(moved(parameter, rows), columns, dim=1))


@torch.no_grad()
def rename_outputs(method: Method, new: list[np.ndarray]) -> None:
    """Move the rows of every output layer to the new numbers of their classes, in place."""
    for parameter, levels in outputs(method):
        parts = parameter.split([len(new[k]) for k in levels])
        parameter.copy_(torch.cat([moved(part, new[k]) for part, k in zip(parts, levels, strict=True)]))
    for k, step in enumerate(getattr(method, "steps", [])):
        rename_transition(step, *((new[k], new[k + 1]) if step.down else (new[k + 1], new[k])))
    for k, mix in enumerate(getattr(method, "mixes", []), start=1):  # reads the heads of all levels up to k
        parts = mix.weight.split([len(n) for n in new[: k + 1]], dim=1)
        mix.weight.copy_(torch.cat([moved(part, n, dim=1) for part, n in zip(parts, new, strict=False)], dim=1))


@every_method
def test_renaming_classes_together_with_the_tree_changes_no_loss(name, options):
    """A method's loss depends on the tree, not on the numbers its classes happen to carry."""
    rng = np.random.default_rng(70)
    tree = random_hierarchy(rng, (9, 7, 4, 2))  # no level as wide as a layer
    options = {**small(name), **options}
    method = random_method(name, tree, rng, FEATURES, **options)
    new = [rng.permutation(size) for size in tree.sizes]
    other = random_method(name, renamed_tree(tree, new), rng, FEATURES, **options)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    features, labels = normal(rng, 9, FEATURES), random_labels(tree, rng, 9)
    labels[:2] = paths(tree, rng, 2)
    relabelled = torch.stack([torch.where(y >= 0, torch.from_numpy(n)[y], -1) for y, n in zip(labels.T, new, strict=True)], 1)
    loss = method.loss(method(features), labels)
    assert abs(loss - other.loss(other(features), relabelled)) > 1e-3  # the weights still have the old order
    rename_outputs(other, new)
    torch.testing.assert_close(other.loss(other(features), relabelled), loss, rtol=1e-10, atol=1e-10)
    for k, (before, after) in enumerate(zip(method(features).log_probs, other(features).log_probs, strict=True)):
        torch.testing.assert_close(after, moved(before, new[k], dim=1), rtol=1e-10, atol=1e-10)


# ---- the whole head, naively ---------------------------------------------------------------------------------------


def naive_softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=0)


def naive_lht(weights: dict[str, np.ndarray], x: np.ndarray, transition: str, split: bool) -> list[np.ndarray]:
    """pᵏ of one sample in plain numpy: BatchNorm, Linear, BatchNorm, ELU, chunks, classifier, transitions, products."""

    def batch_norm(v: np.ndarray, layer: str) -> np.ndarray:
        scaled = (v - weights[f"{layer}.running_mean"]) / np.sqrt(weights[f"{layer}.running_var"] + 1e-5)
        return scaled * weights[f"{layer}.weight"] + weights[f"{layer}.bias"]

    def linear(v: np.ndarray, layer: str) -> np.ndarray:
        return weights[f"{layer}.weight"] @ v + weights[f"{layer}.bias"]

    hidden = batch_norm(linear(batch_norm(x, "neck.layers.0"), "neck.layers.1"), "neck.layers.2")
    hidden = np.where(hidden > 0, hidden, np.exp(hidden) - 1)
    part = len(hidden) // len(TREE)
    chunks = [hidden[k * part : (k + 1) * part] if split else hidden for k in range(len(TREE))]
    probs = [naive_softmax(linear(chunks[0], "classifier"))]
    for k in range(len(TREE) - 1):
        s, u, step = TREE.matrix(k), chunks[k + 1], f"steps.{k}"
        if transition == "low_rank":
            left, right = linear(u, f"{step}.left").reshape(-1, 2), linear(u, f"{step}.right").reshape(-1, 2)
            t = naive_softmax(right @ left.T + weights[f"{step}.gamma"] * s)
        elif transition == "full":
            t = naive_softmax(linear(u, f"{step}.logits").reshape(s.shape))
        elif transition == "static":
            t = naive_softmax(weights[f"{step}.logits"])
        else:
            t = s
        probs.append(t @ probs[-1])
    return probs


@pytest.mark.parametrize("features", ["shared", "split"])
@pytest.mark.parametrize("transition", TRANSITIONS)
def test_the_lht_head_equals_a_naive_float64_reference(transition, features):
    rng = np.random.default_rng(13)
    method = make("lht", transition=transition, features=features).double().eval()
    for key, tensor in method.state_dict().items():
        if tensor.is_floating_point():
            values = normal(rng, *tensor.shape, scale=0.7)
            tensor.copy_(values.abs() + 0.5 if key.endswith("running_var") else values)
    weights = {key: tensor.numpy() for key, tensor in method.state_dict().items()}
    x = inputs(13, torch.float64)
    prediction = method(x)
    for n in range(BATCH):
        expected = naive_lht(weights, x[n].numpy(), transition, features == "split")
        for level, p in enumerate(expected):
            np.testing.assert_allclose(prediction.probs(level)[n].detach().numpy(), p, rtol=0, atol=1e-6)
            np.testing.assert_allclose(prediction.log_probs[level][n].detach().numpy(), np.log(p), rtol=0, atol=1e-6)


# ---- the neck ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "levels", "part"), [(10, 3, 4), (12, 3, 4), (13, 3, 5), (600, 4, 150), (7, 5, 2)])
def test_split_rounds_the_width_up_to_a_multiple_of_the_levels(width, levels, part):
    neck = Neck(FEATURES, levels, features="split", width=width)
    assert neck.width == part
    assert neck.layers[1].out_features == part * levels
    assert [tuple(u.shape) for u in neck(inputs(14))] == [(BATCH, part)] * levels


def test_shared_keeps_the_width_and_gives_every_level_the_same_features():
    neck = Neck(FEATURES, 3, features="shared", width=10)
    first, *others = neck(inputs(15))
    assert neck.width == 10
    assert first.shape == (BATCH, 10)
    assert all(u is first for u in others)


def test_split_gives_the_first_part_to_the_finest_level():
    neck = Neck(FEATURES, 3, features="split", width=12).eval()
    whole = neck.layers(inputs(16))
    for k, u in enumerate(neck(inputs(16))):
        assert torch.equal(u, whole[:, 4 * k : 4 * (k + 1)])


@pytest.mark.parametrize("features", ["shared", "split"])
@pytest.mark.parametrize("name", ["multihead", "lht"])
def test_a_split_level_reads_its_own_part_only(name, features):
    """Moving the finest part of the neck moves the coarser heads of multihead only when the features are shared."""
    method = make(name, features=features).eval()
    before = method(inputs(17))
    with torch.no_grad():
        method.neck.layers[2].bias[:4] += 1.0  # the finest level's third
    after = method(inputs(17))
    coarse_moves = [not torch.allclose(a, b) for a, b in zip(before.log_probs[1:], after.log_probs[1:], strict=True)]
    matrices_move = [not torch.allclose(before.transition(k), after.transition(k)) for k in range(2 if name == "lht" else 0)]
    assert not torch.allclose(before.log_probs[0], after.log_probs[0])
    if name == "multihead":
        assert coarse_moves == [features == "shared"] * 2
    else:
        assert matrices_move == [features == "shared"] * 2
        assert coarse_moves == [True] * 2


# ---- options -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lht", {"features": "splt"}, "splt.*did you mean split"),
        ("multihead", {"features": "share"}, "share.*did you mean shared"),
        ("lht", {"reduction": "per_samples"}, "per_samples.*did you mean per_sample"),
        ("lht", {"confusion": "entrpy"}, "entrpy.*did you mean entropy"),
        ("lht", {"transition": "lowrank"}, "lowrank.*did you mean low_rank"),
        ("lht", {"rank": 0}, "rank is 0"),
        ("lht", {"confusion_weight": -0.1}, "-0.1.*negative"),
        ("lht", {"confusion_weight": 0.1, "transition": "fixed"}, "fixed"),
        ("flat", {"width": 2}, "width is 2.*3"),
        ("marginal", {"features": "splitt"}, "splitt.*did you mean split"),
        ("lht-c2f", {"confusion": "kll"}, "kll.*did you mean kl"),
        ("lht-c2f", {"confusion_weight": -1.0}, "-1.0.*negative"),
        ("soft-labels", {"beta": -1.0}, "beta is -1.0.*negative"),
        ("soft-labels", {"soft_coarse": "men"}, "men.*did you mean mean"),
        ("hxe", {"alpha": -0.1}, "alpha is -0.1.*negative"),
        ("kt", {"level_weights": "1,2"}, "level_weights is '1,2'.*3 levels"),
        ("kt", {"level_weights": "1,2,-1"}, "level_weights is '1,2,-1'.*negative"),
        ("kt", {"level_weights": "1,x,1"}, "level_weights is '1,x,1': pass numbers"),
        ("kt", {"variance": 0.0}, "variance is 0.0"),
        ("kt", {"start": "idenity"}, "idenity.*did you mean identity"),
        ("sgm", {"penalty": -0.1}, "penalty is -0.1.*negative"),
        ("hmcn", {"activation": "sigmod"}, "sigmod.*did you mean sigmoid"),
        ("hmcn", {"mix": 1.0}, "mix is 1.0"),
        ("hmcn", {"mix": 0.0}, "mix is 0.0"),
        ("hmcn", {"dropout": 1.0}, "dropout is 1.0"),
        ("hmcn", {"violation_weight": -0.1}, "violation_weight is -0.1"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_with_what_to_do(name, options, message):
    with pytest.raises(ConfigError, match=message):
        create_method(name, FEATURES, TREE, **options)


def test_scalars_are_gamma_by_the_level_it_leads_to():
    tree = Hierarchy.from_parents([[0, 0, 1, 2], [0, 1, 1]], levels=("species", "family", "order"))
    method = make("lht", tree, gamma=2.5)
    assert method.scalars() == {"gamma_family": 2.5, "gamma_order": 2.5}
    assert make("lht", tree, transition="full").scalars() == {}
    assert make("flat", tree).scalars() == {}


# ---- the register --------------------------------------------------------------------------------------------------


def test_the_methods_are_listed_sorted_and_by_pattern():
    assert {"flat", "lht", "multihead"} <= set(list_methods())
    assert list_methods() == sorted(list_methods())
    assert {"lht", "lht-c2f", "lht-full", "lht-paper", "lht-simplified"} <= set(list_methods("lht*"))
    assert list_methods("lht*") == [name for name in list_methods() if name.startswith("lht")]
    assert list_methods("no such*") == []


@pytest.mark.parametrize("name", [*BY_STEPS, "lht-naive"])
def test_a_method_carries_the_name_it_was_made_by(name):
    method = make(name)
    assert method.name == name
    assert type(method) is find_method(name).cls


@pytest.mark.parametrize("name", list_methods())
def test_every_method_has_a_line_about_it(name):
    entry = find_method(name)
    assert entry.summary.endswith(".")
    assert "\n" not in entry.summary
    assert entry.paper or name in ("flat", "multihead", "implied")


def test_an_alias_stands_for_the_same_thing_and_is_not_listed():
    assert find_method("lht-naive") is find_method("marginal")
    assert aliases_of("marginal") == ["lht-naive"]
    assert aliases_of("lht") == []
    assert "lht-naive" not in list_methods()
    assert method_options("lht-naive") == method_options("marginal")


@pytest.mark.parametrize(
    ("name", "of", "options"),
    [
        ("hd-cnn", "multihead", {"features": "split"}),
        ("lht-paper", "lht", {"features": "split", "gamma": 1.0, "confusion_weight": 0.01, "start": "random"}),
        ("lht-simplified", "lht", {"transition": "static"}),
        ("lht-full", "lht", {"transition": "full"}),
    ],
)
def test_a_variant_is_its_class_with_some_options_set(name, of, options):
    assert find_method(name).cls is find_method(of).cls
    assert find_method(name).options == options
    assert method_options(name) == {**method_options(of), **options}
    variant, plain = make(name, seed=1), make(of, seed=1, **options)
    labels = random_labels(TREE, np.random.default_rng(24), BATCH)
    assert torch.equal(variant.loss(variant(inputs(24)), labels), plain.loss(plain(inputs(24)), labels))


def test_an_option_of_a_variant_can_be_set_otherwise():
    assert make("hd-cnn", features="shared").neck.split is False
    assert make("lht-paper", gamma=3.0).scalars() == {"gamma_level2": 3.0, "gamma_level1": 3.0}


@pytest.mark.parametrize("name", list_methods())
def test_what_is_tried_in_tuning_are_options_that_make_sense(name):
    grid = find_method(name).grid
    assert set(grid) <= set(method_options(name)) - set(find_method(name).options)
    for option, values in grid.items():
        for value in values:
            default = method_options(name)[option]
            assert default is None or isinstance(value, type(default))
            create_method(name, FEATURES, TREE, **{option: value})


def test_options_are_read_by_the_type_hints_of_the_class():
    found = parse_options("hmcn", ["mix=0.25", "activation=softmax", "hidden=8"])
    assert found == {"mix": 0.25, "activation": "softmax", "hidden": 8}
    assert [type(value) for value in found.values()] == [float, str, int]
    assert parse_options("c-hmcnn", ["mil=True", "drop_masked_samples=false"]) == {"mil": True, "drop_masked_samples": False}
    assert parse_options("flat", []) == {}
    assert parse_options("lht", ["tail=0.01", "rank=3"]) == {"tail": 0.01, "rank": 3}
    assert parse_options("lht", ["tail=None"]) == {"tail": None}


@pytest.mark.parametrize(
    ("name", "pair", "message"),
    [
        ("hxe", "alpha", "'alpha' of hxe: write it as name=value"),
        ("hxe", "alfa=1", "no option 'alfa'.*did you mean alpha"),
        ("hxe", "alpha=much", "alpha of hxe is 'much'.*a number"),
        ("hmcn", "hidden=1.5", "hidden of hmcn is '1.5'.*a whole number"),
        ("c-hmcnn", "mil=yes", "mil of c-hmcnn is 'yes'.*true or false"),
        ("lht", "tail=long", "tail of lht is 'long'.*a number or none"),
        ("lht", "form=tilled", "unknown form 'tilled': did you mean tiled"),
    ],
)
def test_an_option_that_cannot_be_read_is_refused_with_what_it_takes(name, pair, message):
    with pytest.raises(ConfigError, match=message):
        parse_options(name, [pair])


@pytest.mark.parametrize("name", list_methods())
def test_words_are_checked_for_every_method_by_name_and_by_class(name):
    cls = find_method(name).cls
    for option in options_of(name).values():
        if words := get_args(option.hint) if get_origin(option.hint) is Literal else ():
            for make in (cls, functools.partial(create_method, name)):
                with pytest.raises(ConfigError, match=f"unknown {option.name} '{words[0]}x': did you mean {words[0]}"):
                    make(FEATURES, TREE, **{option.name: f"{words[0]}x"})


@pytest.mark.parametrize(
    ("wrong", "nearest"), [("flt", "flat"), ("multihed", "multihead"), ("lhtt", "lht"), ("lht-naiv", "lht-naive")]
)
def test_an_unknown_method_is_refused_with_the_nearest_name(wrong, nearest):
    for ask in (find_method, method_options, lambda name: create_method(name, FEATURES, TREE)):
        with pytest.raises(ConfigError, match=f"unknown method '{wrong}'.*did you mean {nearest}"):
            ask(wrong)


@pytest.mark.parametrize(
    ("name", "wrong", "nearest"),
    [
        ("lht", "gama", "gamma"),
        ("lht", "confusion_wieght", "confusion_weight"),
        ("flat", "witdh", "width"),
        ("hxe", "alfa", "alpha"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name, wrong, nearest):
    with pytest.raises(ConfigError, match=f"method {name} has no option '{wrong}'.*did you mean {nearest}"):
        create_method(name, FEATURES, TREE, **{wrong: 1})


def test_flat_has_no_choice_of_features():
    with pytest.raises(ConfigError, match="method flat has no option 'features'"):
        create_method("flat", FEATURES, TREE, features="split")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flat", {"width": 600, "reduction": "per_level_mean"}),
        ("multihead", {"features": "shared", "width": 600, "reduction": "per_level_mean"}),
        (
            "lht",
            {
                "features": "shared",
                "width": 600,
                "reduction": "per_level_mean",
                "transition": "low_rank",
                "rank": 2,
                "gamma": None,
                "prior_weight": None,
                "bias": True,
                "confusion": "entropy",
                "confusion_weight": 0.0,
                "form": "auto",
                "columns": 64,
                "tail": None,
                "start": "auto",
                "yields": None,
            },
        ),
    ],
)
def test_method_options_are_the_keyword_options_with_their_defaults(name, expected):
    assert method_options(name) == expected


@pytest.mark.parametrize("name", list_methods())
def test_every_option_is_documented(name):
    documented = inspect.getdoc(find_method(name).cls)
    assert [option for option in method_options(name) if f"{option}:" not in documented] == []


def test_a_new_method_is_known_by_name_with_its_options(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(base, "_REGISTRY", dict(base._REGISTRY))
        patch.setattr(base, "_ALIASES", dict(base._ALIASES))

        @register("tiny", paper="A paper", aliases=["wee"])
        class Tiny(Method):
            """The first line.

            And more.
            """

            grid = {"slope": (1.0, 2.0)}  # noqa: RUF012

            def __init__(self, in_features: int, hierarchy: Hierarchy, *, slope: float = 2.0) -> None:
                super().__init__(in_features, hierarchy)
                self.slope = slope
                self.heads = nn.ModuleList(nn.Linear(in_features, size) for size in hierarchy.sizes)

            def forward(self, features: Tensor) -> Prediction:
                return Prediction(tuple(torch.log_softmax(self.slope * head(features), dim=1) for head in self.heads))

        variant("steep", Tiny, "tiny, but steep.", slope=9.0)
        assert {"tiny", "steep"} <= set(list_methods())
        entry, steep = find_method("wee"), find_method("steep")
        assert (entry.cls, entry.options, entry.summary, entry.paper) == (Tiny, {}, "The first line.", "A paper")
        assert (steep.cls, steep.options, steep.summary, steep.paper) == (Tiny, {"slope": 9.0}, "tiny, but steep.", "")
        assert (entry.grid, steep.grid) == ({"slope": (1.0, 2.0)}, {})
        assert (method_options("tiny"), method_options("steep")) == ({"slope": 2.0}, {"slope": 9.0})
        method = create_method("tiny", FEATURES, TREE, slope=3.0)
        assert isinstance(method, Tiny)
        assert (method.name, method.slope, create_method("steep", FEATURES, TREE).slope) == ("tiny", 3.0, 9.0)
        assert torch.isfinite(method.loss(method(inputs(18)), paths(TREE, np.random.default_rng(18), BATCH)))
        with pytest.raises(ConfigError, match="did you mean slope"):
            create_method("tiny", FEATURES, TREE, slop=3.0)
    assert "tiny" not in list_methods()


def test_a_method_without_forward_says_what_to_write():
    class Empty(Method):
        pass

    with pytest.raises(TypeError, match=r"Empty must define forward"):
        Empty(FEATURES, TREE)(inputs(19))


def test_an_estimator_without_fit_says_what_to_write():
    class Empty(Estimator):
        pass

    with pytest.raises(TypeError, match=r"Empty must define fit"):
        Empty(FEATURES, TREE).fit(inputs(19), torch.zeros(BATCH, len(TREE)))


# ---- copies --------------------------------------------------------------------------------------------------------


@every_method
def test_a_state_dict_brings_a_fresh_method_to_the_same_answers(name, options):
    method, fresh = make(name, seed=1, **options), make(name, seed=2, **options)
    method(inputs(20))  # moves the running statistics
    method.eval(), fresh.eval()
    assert not torch.equal(method(inputs(21)).log_probs[0], fresh(inputs(21)).log_probs[0])
    fresh.load_state_dict(method.state_dict())
    for a, b in zip(method(inputs(21)).log_probs, fresh(inputs(21)).log_probs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(method(inputs(21)).chosen(), fresh(inputs(21)).chosen())


@every_method
def test_a_state_dict_holds_what_was_learned_and_nothing_of_the_tree(name, options):
    method = make(name, **options)
    statistics = ("running_mean", "running_var", "num_batches_tracked")
    learned = {key for key in method.state_dict() if not key.endswith(statistics)}
    assert learned == {key for key, _ in method.named_parameters()}


@every_method
def test_a_deep_copy_answers_the_same_and_is_independent(name, options):
    method = make(name, **options).eval()
    twin = copy.deepcopy(method)
    before = [log_p.detach().clone() for log_p in method(inputs(22)).log_probs]
    for a, b in zip(before, twin(inputs(22)).log_probs, strict=True):
        assert torch.equal(a, b)
    for parameter in twin.parameters():
        parameter.data += normal(np.random.default_rng(22), *parameter.shape, dtype=torch.float32)
    assert not torch.equal(before[0], twin(inputs(22)).log_probs[0])
    for a, b in zip(before, method(inputs(22)).log_probs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
def test_the_drift_from_the_tree_is_added_with_its_weight(reduction):
    labels = random_labels(TREE, np.random.default_rng(7), BATCH)
    free, held = (make("lht", prior_weight=weight, reduction=reduction).double().eval() for weight in (0.0, 2.0))
    prediction = free(inputs(7, torch.float64))
    drifts = []
    for level in range(len(TREE) - 1):
        start = torch.softmax(6 * torch.tensor(TREE.matrix(level)).double(), dim=0)
        drifts.append((start * (start / prediction.transition(level)).log()).sum(1).mean())
    drift = sum(drifts) / (len(drifts) if reduction == "per_level_mean" else 1)
    torch.testing.assert_close(held.loss(prediction, labels), free.loss(prediction, labels) + 2 * drift)


def test_only_a_strong_prior_of_a_transition_per_image_is_held_by_default():
    """So the published configuration is the paper's formula."""
    weights = {name: make(name).prior_weight for name in ("lht", "lht-paper", "lht-simplified", "lht-full", "marginal")}
    assert weights == {"lht": 10.0, "lht-paper": 0.0, "lht-simplified": 0.0, "lht-full": 0.0, "marginal": 0.0}
    assert make("lht", gamma=1.0).prior_weight == 0
    assert make("lht", gamma=1.0, prior_weight=3.0).prior_weight == 3
    for wrong in ({"transition": "static"}, {"gamma": -1.0}):
        with pytest.raises(ConfigError, match="a prior weight needs"):
            make("lht", prior_weight=1.0, **wrong)
