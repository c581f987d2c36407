"""What happens in a step: dropped features, the objective, mixtures, targets, averaged weights; and who may ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn

from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.data.batches import FeatureSet, ImageSet
from torchlht.data.preparing import Preprocess, centre_crop, decode
from torchlht.errors import ConfigError
from torchlht.heads.method import (
    COMMON_OPTIONS,
    BatchNorm,
    Classifier,
    Estimator,
    InputNorm,
    Method,
    create_method,
    find_method,
    list_methods,
    method_options,
    parse_options,
    regularise,
)
from torchlht.heads.prediction import Prediction
from torchlht.lab.comparison.contenders import Contender, find_contenders
from torchlht.learn.optimizers import SGD, AdamW
from torchlht.learn.steps import Averaged, Step, Target, noisy
from torchlht.vocabulary import Augment
from trees import normal, paths, random_hierarchy, random_labels, random_method

FEATURES, BATCH = 6, 10
TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))
BY_STEPS = [name for name in list_methods() if not issubclass(find_method(name).cls, Estimator)]
AT_ONCE = [name for name in list_methods() if name not in BY_STEPS]
WITH_NECK = [name for name in BY_STEPS if create_method(name, FEATURES, TREE).can_drop]
WITH_CLASSIFIER = [
    name for name in BY_STEPS if any(isinstance(m, Classifier) for m in create_method(name, FEATURES, TREE).modules())
]
SMALL = {"width": 12, "hidden": 10, "embedding": 10}


def make(name: str, seed: int = 0, **options: Any) -> Method:
    torch.manual_seed(seed)
    small = {option: size for option, size in SMALL.items() if option in method_options(name)}
    return create_method(name, FEATURES, TREE, **{**small, **options})


def inputs(seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return normal(np.random.default_rng(seed), BATCH, FEATURES, dtype=dtype)


def some_labels(seed: int = 2) -> Tensor:
    """Partly known labels."""
    return random_labels(TREE, np.random.default_rng(seed), BATCH)


def coarse_labels(seed: int = 2) -> Tensor:
    """Everything but the finest label."""
    labels = paths(TREE, np.random.default_rng(seed), BATCH)
    labels[:, 0] = -1
    return labels


# ---- dropped features ----------------------------------------------------------------------------------------------


def trained_norm(dropout: float) -> InputNorm:
    """A norm that has seen features with averages far from zero."""
    norm = InputNorm(FEATURES)
    for seed in range(50):
        norm(3 * inputs(seed) + torch.arange(FEATURES))
    norm.dropout = dropout
    return norm


def test_in_training_features_are_dropped_and_the_rest_is_scaled_up() -> None:
    torch.manual_seed(0)
    norm = InputNorm(FEATURES)
    norm.dropout = 0.25
    found, plain = norm(inputs()), BatchNorm(FEATURES)(inputs())
    dropped = found == 0
    assert 0 < dropped.sum() < dropped.numel() / 2
    torch.testing.assert_close(found[~dropped], plain[~dropped] / 0.75)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_about_the_asked_share_is_dropped(dropout: float) -> None:
    torch.manual_seed(0)
    norm = InputNorm(50)
    norm.dropout = dropout
    share = (norm(torch.randn(400, 50)) == 0).float().mean().item()
    assert share == pytest.approx(dropout, abs=0.02)


def test_what_is_dropped_becomes_what_the_average_becomes() -> None:
    torch.manual_seed(0)
    norm = trained_norm(0.5).eval()
    x = inputs() + 100  # far from the average
    plain, average = norm(x), norm(norm.running_mean.expand(BATCH, -1))
    norm.noisy = True
    found = norm(x)
    dropped = torch.isclose(found, average, atol=1e-5)
    torch.testing.assert_close(found[~dropped], 2 * plain[~dropped])
    assert 0 < dropped.sum() < dropped.numel()


def test_outside_of_training_nothing_is_dropped_unless_it_is_to_be_noisy() -> None:
    torch.manual_seed(0)
    norm, plain = trained_norm(0.9).eval(), trained_norm(0.0).eval()
    assert torch.equal(norm(inputs()), plain(inputs()))
    norm.noisy = True
    assert (norm(inputs()) == 0).any()
    assert torch.equal(norm.running_mean, plain.running_mean), "a second look teaches nothing"


def test_without_dropout_it_is_batch_norm() -> None:
    norm, plain = InputNorm(FEATURES), BatchNorm(FEATURES)
    assert torch.equal(norm(inputs()), plain(inputs()))
    norm.noisy = True
    assert torch.equal(norm.eval()(inputs()), plain.eval()(inputs()))
    assert list(norm.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("name", WITH_NECK)
def test_noise_is_switched_on_for_a_while_even_when_that_ends_in_an_error(name: str) -> None:
    method = make(name, input_dropout=0.5).eval()
    steady = method(inputs()).log_probs[0]
    with noisy(method):
        assert not torch.equal(method(inputs()).log_probs[0], steady)
    assert torch.equal(method(inputs()).log_probs[0], steady)
    with pytest.raises(RuntimeError, match="half way"), noisy(method):
        raise RuntimeError("half way")
    assert torch.equal(method(inputs()).log_probs[0], steady)


# ---- options of every method ---------------------------------------------------------------------------------------


def gradients(method: Method) -> dict[str, Tensor]:
    loss = method.loss(method.train()(inputs()), paths(TREE, np.random.default_rng(3), BATCH))
    assert torch.isfinite(loss)
    loss.backward()
    return {key: p.grad for key, p in method.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", WITH_NECK)
def test_every_method_trains_with_features_dropped(name: str) -> None:
    before, after = gradients(make(name)), gradients(make(name, input_dropout=0.5))
    assert set(after) >= set(before)
    assert all(torch.isfinite(gradient).all() for gradient in after.values())
    assert any(not torch.equal(after[key], before[key]) for key in before), "nothing was dropped"


@pytest.mark.parametrize("name", WITH_NECK)
def test_every_method_with_features_dropped_comes_back_from_its_weights(name: str) -> None:
    method, other = (make(name, seed, input_dropout=0.5) for seed in (0, 1))
    gradients(method)  # a pass that moves running statistics
    other.load_state_dict(method.state_dict())
    for a, b in zip(method.eval()(inputs(5)).log_probs, other.eval()(inputs(5)).log_probs, strict=True):
        assert torch.equal(a, b)
    assert [m.dropout for m in other.modules() if isinstance(m, InputNorm)].count(0.5) > 0


@pytest.mark.parametrize("name", AT_ONCE)
@pytest.mark.parametrize("option", COMMON_OPTIONS)
def test_methods_that_are_fitted_at_once_have_no_such_options(name: str, option: str) -> None:
    with pytest.raises(ConfigError, match=f"method {name} has no option '{option}'"):
        create_method(name, FEATURES, TREE, **{option: 0.5})
    with pytest.raises(ConfigError, match=f"method {name} has no option '{option}'"):
        parse_options(name, [f"{option}=0.5"])
    assert option not in method_options(name, common=True)


class Bare(Method):
    """A method with neither a neck nor one of our classifiers."""

    name = "bare"

    def __init__(self) -> None:
        super().__init__(FEATURES, TREE)
        self.heads = nn.ModuleList(nn.Linear(FEATURES, size) for size in TREE.sizes)

    def forward(self, features: Tensor) -> Prediction:
        return Prediction(tuple(torch.log_softmax(head(features), dim=1) for head in self.heads))


def test_a_method_without_a_neck_or_a_classifier_says_so() -> None:
    regularise(Bare(), input_dropout=0.0, cosine=False)
    with pytest.raises(ConfigError, match="method bare has no neck for input dropout; leave input_dropout at 0"):
        regularise(Bare(), input_dropout=0.3)
    with pytest.raises(ConfigError, match=r"method bare has no linear classifier .* leave cosine off"):
        regularise(Bare(), cosine=True)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_that_leaves_nothing_or_less_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=f"input_dropout is {share}: it must be a share from 0 to below 1"):
        make("lht", input_dropout=share)


@pytest.mark.parametrize("name", BY_STEPS)
def test_common_options_are_read_in_their_types(name: str) -> None:
    assert parse_options(name, ["input_dropout=0.3", "cosine=true"]) == {"input_dropout": 0.3, "cosine": True}
    assert not set(COMMON_OPTIONS) & set(method_options(name))
    with pytest.raises(ConfigError, match=f"option input_dropout of {name} is 'much': it takes a number"):
        parse_options(name, ["input_dropout=much"])
    with pytest.raises(ConfigError, match="it takes true or false"):
        parse_options(name, ["cosine=0.3"])


def test_a_classifier_is_a_linear_layer_as_long_as_nothing_else_is_asked_of_it() -> None:
    layer = Classifier(4, 3)
    x = torch.randn(5, 4)
    assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))
    assert list(layer.state_dict()) == list(nn.Linear(4, 3).state_dict())


# ---- the objective -------------------------------------------------------------------------------------------------


def make_step(name: str = "lht", seed: int = 0, *, method: dict[str, Any] | None = None, **options: Any) -> tuple[Step, Method]:
    """A step of a method in float64 in eval mode, so that two passes give the same."""
    found = random_method(name, TREE, np.random.default_rng(seed), FEATURES, **(method or {}))
    model = Model(create_backbone("none"), found, options={})
    return Step(model, model, **options).eval(), found


def make_target(seed: int = 4, width: int = 3) -> Target:
    rng = np.random.default_rng(seed)
    index = torch.from_numpy(np.stack([rng.permutation(TREE.sizes[0])[:width] for _ in range(BATCH)]))
    return index, torch.from_numpy(rng.dirichlet(np.ones(width), BATCH)), torch.from_numpy(rng.random(BATCH))


def naive_uniform(prediction: Prediction, labels: Tensor, reduction: str) -> float:
    total = 0.0
    for k, log_p in enumerate(prediction.log_probs):
        log_p = log_p - log_p.logsumexp(dim=1, keepdim=True)
        losses = [-log_p[n].sum().item() / log_p.shape[1] for n in range(len(labels)) if labels[n, k] >= 0]
        divisor = len(labels) if reduction == "per_sample" else max(len(losses), 1) * len(labels[0])
        total += sum(losses) / divisor
    return total


def naive_target(prediction: Prediction, labels: Tensor, target: Target, reduction: str, shares: list[float]) -> float:
    total, (index, value, weight) = 0.0, target
    for k, log_p in enumerate(prediction.log_probs):
        log_p = log_p - log_p.logsumexp(dim=1, keepdim=True)
        up, loss, counted = TREE.ancestors(k), 0.0, 0.0
        for n in range(len(labels)):
            if labels[n, k] >= 0:
                continue
            counted += weight[n].item()
            for leaf, p in zip(index[n].tolist(), value[n].tolist(), strict=True):
                loss -= weight[n].item() * p * log_p[n, up[leaf]].item()
        total += shares[k] * loss / (len(labels) if reduction == "per_sample" else max(counted, 1e-6) * len(labels[0]))
    return total


@pytest.mark.parametrize("name", BY_STEPS)
def test_with_nothing_switched_on_the_loss_is_the_methods_own(name: str) -> None:
    step, method = make_step(name)
    x, labels = inputs(dtype=torch.float64), some_labels()
    assert torch.equal(step(x, labels)[0], method.loss(method(x), labels))


def test_hits_are_counted_per_level_among_known_labels() -> None:
    step, method = make_step("multihead")
    x, labels = inputs(dtype=torch.float64), some_labels()
    chosen = method(x).chosen()
    labels[0] = chosen[0]
    for k, (hits, known) in enumerate(step(x, labels)[1].tolist()):
        assert hits == sum(int(chosen[n, k] == labels[n, k]) for n in range(BATCH) if labels[n, k] >= 0)
        assert known == sum(int(labels[n, k] >= 0) for n in range(BATCH))
        assert hits > 0


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("name", ["lht", "flat", "multihead"])
def test_smoothing_mixes_the_loss_with_that_of_the_uniform_distribution(name: str, reduction: str) -> None:
    step, method = make_step(name, method={"reduction": reduction}, smoothing=0.2)
    x, labels = inputs(dtype=torch.float64), some_labels()
    prediction = method(x)
    expected = 0.8 * method.loss(prediction, labels).item() + 0.2 * naive_uniform(prediction, method.visible(labels), reduction)
    assert step(x, labels)[0].item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("with_target", [False, True])
def test_mixup_is_the_mixture_made_by_hand(with_target: bool) -> None:
    shares = [0.5, 0.25, 1.0]
    step, method = make_step("lht", mixup=0.4, shares=shares)
    x, labels, target = inputs(dtype=torch.float64), some_labels(), make_target() if with_target else None

    torch.manual_seed(3)
    share = torch.distributions.Beta(0.4, 0.4).sample().item()
    other = torch.randperm(BATCH)
    large = max(share, 1 - share)
    prediction = method(large * x + (1 - large) * x[other])
    expected = 0.0
    for part, order in ((large, torch.arange(BATCH)), (1 - large, other)):
        expected += part * method.loss(prediction, labels[order]).item()
        if target:
            turned = (target[0][order], target[1][order], target[2][order])
            expected += part * naive_target(prediction, labels[order], turned, "per_level_mean", shares)

    torch.manual_seed(3)
    assert step(x, labels, target)[0].item() == pytest.approx(expected, rel=1e-9)
    assert 0.5 < large < 0.99, "too little is mixed to see"


def test_a_sample_alone_is_not_mixed() -> None:
    step, method = make_step("lht", mixup=0.4)
    x, labels = inputs(dtype=torch.float64)[:1], paths(TREE, np.random.default_rng(0), 1)
    assert torch.equal(step(x, labels)[0], method.loss(method(x), labels))


# ---- targets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["per_level_mean", "per_sample"])
@pytest.mark.parametrize("name", ["lht", "flat", "multihead"])
def test_targets_add_their_cross_entropy_where_labels_are_unknown(name: str, reduction: str) -> None:
    shares = [0.5, 0.25, 1.0]
    step, method = make_step(name, method={"reduction": reduction}, shares=shares)
    x, labels, target = inputs(dtype=torch.float64), some_labels(), make_target()
    prediction = method(x)
    more = naive_target(prediction, labels, target, reduction, shares)
    assert more > 0.01
    assert step(x, labels, target)[0].item() == pytest.approx(method.loss(prediction, labels).item() + more, rel=1e-9)


@pytest.mark.parametrize("name", ["flat", "multihead"])
def test_a_target_teaches_the_finest_classifier_about_samples_that_would_not(name: str) -> None:
    step, method = make_step(name, shares=[1.0] * 3)
    finest = next(layer for layer in method.modules() if isinstance(layer, Classifier) and layer.out_features == TREE.sizes[0])
    x, labels = inputs(dtype=torch.float64), coarse_labels()
    step(x, labels)[0].backward()
    assert finest.weight.grad is not None
    assert not finest.weight.grad.any()
    step(x, labels, make_target())[0].backward()
    assert finest.weight.grad.abs().max() > 1e-3


def test_without_a_target_or_without_an_unknown_label_nothing_is_added() -> None:
    step, method = make_step("lht", shares=[1.0] * 3)
    x, known, unknown = inputs(dtype=torch.float64), paths(TREE, np.random.default_rng(2), BATCH), coarse_labels()
    index, value, weight = make_target()
    assert torch.equal(step(x, known, (index, value, weight))[0], method.loss(method(x), known))
    empty = (index, torch.zeros_like(value), torch.zeros_like(weight))
    assert torch.equal(step(x, unknown, empty)[0], method.loss(method(x), unknown))
    assert not torch.equal(step(x, unknown, (index, value, weight))[0], method.loss(method(x), unknown))


# ---- averaged weights ----------------------------------------------------------------------------------------------


def network(seed: int) -> nn.Module:
    """Weights, running statistics and a whole number, all of them made from the seed."""
    torch.manual_seed(seed)
    made = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).double()
    for _ in range(seed + 1):
        made(torch.randn(5, 3, dtype=torch.float64))
    return made


def test_after_many_steps_with_the_same_weights_the_average_is_these_weights() -> None:
    averaged, same = Averaged(network(0), 0.9), network(1)
    for _ in range(400):
        averaged.update(same)
    for key, value in same.state_dict().items():
        torch.testing.assert_close(averaged.network.state_dict()[key], value)


@pytest.mark.parametrize("decay", [0.15, 0.6, 0.999])
def test_the_average_of_a_sequence_equals_a_naive_loop(decay: float) -> None:
    averaged, mean = Averaged(network(0), decay), network(0).state_dict()["0.weight"].tolist()
    for n in range(1, 13):
        new = network(n).state_dict()["0.weight"].tolist()
        averaged.update(network(n))
        stays = min(decay, (1 + n) / (10 + n))
        mean = [[stays * a + (1 - stays) * b for a, b in zip(*rows, strict=True)] for rows in zip(mean, new, strict=True)]
    torch.testing.assert_close(averaged.network.state_dict()["0.weight"], torch.tensor(mean, dtype=torch.float64))


def test_the_average_is_that_of_timm() -> None:
    averaged, theirs = Averaged(network(0), 0.8), ModelEmaV3(network(0))
    for n in range(1, 40):
        averaged.update(network(n % 7))
        theirs.decay = min(0.8, (1 + n) / (10 + n))
        theirs.update(network(n % 7))
    assert all(torch.equal(value, theirs.module.state_dict()[key]) for key, value in averaged.network.state_dict().items())


def test_running_statistics_are_averaged_and_whole_numbers_are_copied() -> None:
    averaged = Averaged(network(0), 0.5)
    averaged.update(network(7))
    state, old, new = averaged.network.state_dict(), network(0).state_dict(), network(7).state_dict()
    assert state["1.num_batches_tracked"] == 8
    stays = 2 / 11
    torch.testing.assert_close(state["1.running_mean"], stays * old["1.running_mean"] + (1 - stays) * new["1.running_mean"])


def test_the_average_is_a_copy_that_is_not_trained() -> None:
    trained = network(0)
    averaged = Averaged(trained, 0.5)
    with torch.no_grad():
        trained[0].weight.add_(1)
    assert torch.equal(averaged.network.state_dict()["0.weight"], network(0).state_dict()["0.weight"])
    assert not averaged.network.training
    assert trained.training
    assert not any(p.requires_grad for p in averaged.network.parameters())
    assert all(p.requires_grad for p in trained.parameters())


def test_a_restored_average_goes_on_as_if_nothing_had_happened() -> None:
    whole, first, second = (Averaged(network(0), 0.999) for _ in range(3))
    for n in range(1, 9):
        whole.update(network(n))
        (first if n <= 4 else second).update(network(n))
        if n == 4:
            kept = {key: value.clone() for key, value in first.state().items()}
            second.restore({"semi.index": torch.zeros(1), **kept}, steps=4)
            assert all(torch.equal(value, kept[key]) for key, value in second.state().items())
    assert all(torch.equal(value, second.state()[key]) for key, value in whole.state().items())


# ---- views ---------------------------------------------------------------------------------------------------------

SPEC = Preprocess(size=16, resize=24)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    rng, found = np.random.default_rng(0), [tmp_path / f"{i}.png" for i in range(6)]
    for path in found:
        Image.fromarray(rng.integers(0, 256, (26, 30, 3), dtype=np.uint8)).save(path)
    return found


def image_set(pictures: list[Path], *, augment: Augment = "standard") -> ImageSet:
    data = ImageSet(pictures, torch.arange(6).unsqueeze(1), SPEC, augment=augment)
    data.set_epoch(seed=1, epoch=2)
    return data


def seen(data: ImageSet) -> Tensor:
    return data.__getitems__(range(6))[0]


def test_the_plain_view_is_the_middle_of_every_picture(pictures: list[Path]) -> None:
    data = image_set(pictures)
    middle = torch.stack([centre_crop(decode(path, SPEC), SPEC) for path in pictures])
    assert torch.equal(seen(data.view()), middle)
    assert data.view().labels is data.labels


def test_another_view_is_random_repeatable_and_not_that_of_the_steps(pictures: list[Path]) -> None:
    data = image_set(pictures)
    steps, other = seen(data), seen(data.view(1, 2))
    assert not torch.equal(other, steps)
    assert not torch.equal(other, seen(data.view()))
    assert torch.equal(other, seen(image_set(pictures).view(1, 2)))
    for moment in ((1, 3), (2, 2), (1, 0)):
        assert not torch.equal(other, seen(data.view(*moment)))
    assert torch.equal(seen(data), steps), "the training samples are as they were"


def test_without_augmentation_every_view_is_the_same(pictures: list[Path]) -> None:
    data = image_set(pictures, augment="none")
    assert torch.equal(seen(data.view(1, 2)), seen(data.view()))
    features = FeatureSet(torch.randn(3, 2), torch.zeros(3, 1, dtype=torch.int64))
    assert features.view() is features.view(1, 2) is features


# ---- contenders ----------------------------------------------------------------------------------------------------


def test_options_of_the_method_and_of_training_are_told_apart() -> None:
    found = Contender.parse("lht:gamma=1:semi=both:ema=0.99:input_dropout=0.3")
    assert (found.method, found.label) == ("lht", "lht:gamma=1:semi=both:ema=0.99:input_dropout=0.3")
    assert found.option == ("gamma=1", "input_dropout=0.3")
    assert found.training == ("semi=both", "ema=0.99")


def test_options_of_training_come_in_their_types() -> None:
    options = Contender.parse("flat:semi=propagate:mixup=1:label_smoothing=0.1:ema=0.9:weight_decay=1e-3:epochs=7")
    expected = {"semi": "propagate", "mixup": 1.0, "label_smoothing": 0.1, "ema": 0.9, "weight_decay": 1e-3, "epochs": 7}
    found = options.training_options()
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {name: type(value) for name, value in expected.items()}
    assert Contender.parse("flat").training_options() == {}


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("lht:semi=bot", "unknown semi 'bot': did you mean both"),
        ("lht:semi", "unknown semi ''"),
        ("lht:ema=much", "option ema of lht:ema=much is 'much': it takes a number"),
        ("lht:epochs=2.5", r"option epochs of lht:epochs=2.5 is '2.5': it takes a whole number"),
        ("lht:ema=1.5", r"ema is 1.5: it must be a decay from 0 to below 1"),
        ("lht:mixup=-1", "mixup is -1.0: it must not be negative"),
        ("lht:input_dropout=1", "input_dropout is 1.0"),
        ("logistic:input_dropout=0.5", "method logistic has no option 'input_dropout'"),
    ],
)
def test_wrong_options_of_contenders_are_told(word: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        find_contenders([word], TREE, features=True)


# ---- cosines -------------------------------------------------------------------------------------------------------


def cosine_layer() -> Classifier:
    torch.manual_seed(0)
    layer = Classifier(4, 3)
    layer.use_cosine()
    return layer


def test_cosines_are_bounded_by_their_scale_and_do_not_depend_on_how_long_features_are() -> None:
    layer = cosine_layer()
    assert layer.log_scale is not None
    x = torch.randn(50, 4)
    found = layer(x)
    assert ((found - layer.bias).abs() <= layer.log_scale.exp() + 1e-4).all()
    torch.testing.assert_close(layer(1000 * x), found)
    for n in range(3):
        for c in range(3):
            cosine = (x[n] @ layer.weight[c]) / (x[n].norm() * layer.weight[c].norm())
            torch.testing.assert_close(found[n, c], 16 * cosine + layer.bias[c])


def test_cosines_of_features_that_are_all_zero_are_finite_and_so_are_gradients() -> None:
    layer, x = cosine_layer(), torch.zeros(2, 4, requires_grad=True)
    layer(x).square().sum().backward()
    assert torch.equal(layer(x), layer.bias.expand(2, -1))
    assert all(torch.isfinite(t.grad).all() for t in (x, layer.weight, layer.bias, layer.log_scale))


@pytest.mark.parametrize("name", WITH_CLASSIFIER)
def test_every_method_trains_with_cosines_and_comes_back_from_its_weights(name: str) -> None:
    options = {"cosine": True, **({"input_dropout": 0.5} if name in WITH_NECK else {})}
    method, other = (make(name, seed, **options) for seed in (0, 1))
    before, after = gradients(make(name)), gradients(method)
    assert set(after) >= set(before)
    assert any(key.endswith("log_scale") for key in after), "the scale is learned"
    assert all(torch.isfinite(gradient).all() for gradient in after.values())
    other.load_state_dict(method.state_dict())
    for a, b in zip(method.eval()(inputs(5)).log_probs, other.eval()(inputs(5)).log_probs, strict=True):
        assert torch.equal(a, b)


# ---- optimizers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "how"),
    [(SGD, torch.optim.SGD, {"momentum": 0.9}), (AdamW, torch.optim.AdamW, {}), (SGD, torch.optim.SGD, {})],
)
def test_optimizers_take_the_steps_of_torch(ours: Any, theirs: Any, how: dict[str, Any]) -> None:
    def made(kind: Any, net: nn.Module) -> Any:
        first, *rest = net.parameters()
        return kind([{"params": [first], "lr": 0.1}, {"params": rest}], lr=0.03, weight_decay=0.01, **how)

    nets = [network(0), network(0)]
    both = [made(kind, net) for kind, net in zip((ours, theirs), nets, strict=True)]
    for n in range(12):
        x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
        for net, optimizer in zip(nets, both, strict=True):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
        if n == 5:
            kept = [optimizer.state_dict() for optimizer in both]
            both = [made(kind, net) for kind, net in zip((ours, theirs), nets, strict=True)]
            for optimizer, state in zip(both, kept, strict=True):
                optimizer.load_state_dict(state)
    assert all(torch.equal(a, b) for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
    assert not torch.equal(next(nets[0].parameters()), next(network(0).parameters()))
    assert str(both[0].state_dict()) == str(both[1].state_dict())
    assert all(p.requires_grad for p in nets[0].parameters())
