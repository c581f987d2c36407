"""The methods: shapes, gradients, a naive reference of the whole LHT head, and the register."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from trees import normal, paths, random_hierarchy, random_labels

from torchlht.errors import ConfigError
from torchlht.hierarchy import Hierarchy
from torchlht.methods import Method, base, create_method, list_methods, method_class, method_options, register
from torchlht.methods.base import Neck
from torchlht.prediction import Prediction

WIDTH, FEATURES, BATCH = 12, 6, 7
TRANSITIONS = ["low_rank", "full", "static", "fixed"]
TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))

LHT = [
    {"transition": transition, "features": features, "confusion": confusion, "confusion_weight": 0.1}
    for transition in TRANSITIONS[:-1]
    for features in ("shared", "split")
    for confusion in ("entropy", "kl")
]
LHT += [{"transition": "fixed", "features": features} for features in ("shared", "split")]
CASES = [("flat", {}), ("multihead", {"features": "shared"}), ("multihead", {"features": "split"}), *(("lht", o) for o in LHT)]


def label(case: tuple[str, dict[str, Any]]) -> str:
    name, options = case
    return "-".join([name, *(str(value) for key, value in options.items() if key != "confusion_weight")])


every_method = pytest.mark.parametrize(("name", "options"), CASES, ids=[label(case) for case in CASES])


def make(name: str, tree: Hierarchy = TREE, seed: int = 0, **options: Any) -> Method:
    torch.manual_seed(seed)
    return create_method(name, FEATURES, tree, width=WIDTH, **options)


def inputs(seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return normal(np.random.default_rng(seed), BATCH, FEATURES, dtype=dtype)


# ---- forward -------------------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_forward_gives_one_normalised_row_per_sample_and_level(name, options, training):
    prediction = make(name, **options).train(training)(inputs(1))
    assert [tuple(log_p.shape) for log_p in prediction.log_probs] == [(BATCH, size) for size in TREE.sizes]
    for level, log_p in enumerate(prediction.log_probs):
        assert log_p.dtype == torch.float32
        torch.testing.assert_close(prediction.probs(level).sum(dim=1), torch.ones(BATCH))
    assert len(prediction.transitions) == (len(TREE) - 1 if name == "lht" else 0)


@pytest.mark.parametrize("transition", TRANSITIONS)
def test_prediction_gives_one_column_stochastic_matrix_per_sample(transition):
    prediction = make("lht", transition=transition)(inputs(2))
    for level in range(len(TREE) - 1):
        matrix = prediction.transition(level)
        assert matrix.shape == (BATCH, TREE.sizes[level + 1], TREE.sizes[level])
        torch.testing.assert_close(matrix.sum(dim=1), torch.ones(BATCH, TREE.sizes[level]))


@pytest.mark.parametrize("name", ["flat", "multihead"])
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


# ---- loss and gradients --------------------------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("missing", [0.0, 0.5, 1.0], ids=["all known", "some known", "none known"])
def test_loss_is_finite_and_every_parameter_has_a_finite_gradient(name, options, reduction, missing):
    """None instead of a zero gradient would stop distributed training."""
    method = make(name, reduction=reduction, **options).train()
    labels = random_labels(TREE, np.random.default_rng(4), BATCH, missing)
    loss = method.loss(method(inputs(4)), labels)
    loss.backward()
    assert loss.dim() == 0
    assert torch.isfinite(loss)
    for key, parameter in method.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key


@every_method
def test_full_labels_reach_every_parameter(name, options):
    """In eval mode: in training, BatchNorm cancels any shift before it, and the gradient of those biases is zero."""
    method = make(name, **options).eval()
    method.loss(method(inputs(5)), paths(TREE, np.random.default_rng(5), BATCH)).backward()
    untouched = [key for key, parameter in method.named_parameters() if parameter.grad.abs().max() < 1e-8]
    assert untouched == []


@every_method
def test_without_labels_only_the_confusion_term_teaches(name, options):
    method = make(name, **options).eval()
    loss = method.loss(method(inputs(6)), torch.full((BATCH, len(TREE)), -1))
    loss.backward()
    taught = {key.split(".")[0] for key, parameter in method.named_parameters() if parameter.grad.count_nonzero()}
    transition = options.get("transition", "fixed")
    expected = {"low_rank": {"neck", "steps"}, "full": {"neck", "steps"}, "static": {"steps"}, "fixed": set()}[transition]
    assert taught == expected
    assert (loss.item() == 0) == (transition == "fixed")


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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flat", [True, False, False, True, False]),
        ("multihead", [True, True, True, True, False]),
        ("lht", [True, True, True, True, False]),
    ],
)
def test_learns_from_names_the_samples_that_teach(name, expected):
    labels = torch.tensor([[0, 1, 2], [-1, 1, 2], [-1, -1, 0], [3, -1, -1], [-1, -1, -1]])
    assert make(name).learns_from(labels).tolist() == expected


@every_method
def test_a_sample_that_does_not_teach_changes_no_gradient(name, options):
    """What `learns_from` leaves out may be left out: under per_level_mean, without the confusion term."""
    method = make(name, **{**options, "confusion_weight": 0.0} if name == "lht" else options).double().eval()
    labels = random_labels(TREE, np.random.default_rng(10), BATCH, 0.5)
    labels[0] = -1
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
    assert list_methods("l*") == [name for name in list_methods() if name.startswith("l")]
    assert list_methods("no such*") == []


@pytest.mark.parametrize(("wrong", "nearest"), [("flt", "flat"), ("multihed", "multihead"), ("lhtt", "lht")])
def test_an_unknown_method_is_refused_with_the_nearest_name(wrong, nearest):
    for ask in (method_class, method_options, lambda name: create_method(name, FEATURES, TREE)):
        with pytest.raises(ConfigError, match=f"unknown method '{wrong}'.*did you mean {nearest}"):
            ask(wrong)


@pytest.mark.parametrize(
    ("name", "wrong", "nearest"),
    [("lht", "gama", "gamma"), ("lht", "confusion_wieght", "confusion_weight"), ("flat", "witdh", "width")],
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
                "gamma": 6.0,
                "bias": True,
                "confusion": "entropy",
                "confusion_weight": 0.0,
            },
        ),
    ],
)
def test_method_options_are_the_keyword_options_with_their_defaults(name, expected):
    assert method_options(name) == expected


@pytest.mark.parametrize("name", ["flat", "multihead", "lht"])
def test_every_option_is_documented(name):
    documented = inspect.getdoc(method_class(name)) + inspect.getdoc(Method)
    assert [option for option in method_options(name) if f"{option}:" not in documented] == []


def test_a_new_method_is_known_by_name_with_its_options(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(base, "_REGISTRY", dict(base._REGISTRY))

        @register("tiny")
        class Tiny(Method):
            def __init__(self, in_features: int, hierarchy: Hierarchy, *, slope: float = 2.0) -> None:
                super().__init__(in_features, hierarchy, width=8)
                self.slope = slope
                self.heads = nn.ModuleList(nn.Linear(8, size) for size in hierarchy.sizes)

            def forward(self, features: Tensor) -> Prediction:
                hidden = self.neck(features)[0]
                return Prediction(tuple(torch.log_softmax(self.slope * head(hidden), dim=1) for head in self.heads))

        assert "tiny" in list_methods()
        assert Tiny.name == "tiny"
        assert method_options("tiny") == {"slope": 2.0}
        method = create_method("tiny", FEATURES, TREE, slope=3.0)
        assert isinstance(method, Tiny)
        assert torch.isfinite(method.loss(method(inputs(18)), paths(TREE, np.random.default_rng(18), BATCH)))
        with pytest.raises(ConfigError, match="did you mean slope"):
            create_method("tiny", FEATURES, TREE, slop=3.0)
    assert "tiny" not in list_methods()


def test_a_method_without_forward_says_what_to_write():
    class Empty(Method):
        pass

    with pytest.raises(TypeError, match=r"Empty must define forward"):
        Empty(FEATURES, TREE, width=8)(inputs(19))


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
