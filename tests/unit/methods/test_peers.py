"""logistic and hiclass answer as the libraries they wrap do on the same standardised features."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.errors import ConfigError, MissingExtraError
from torchlht.heads.method import Estimator, create_method
from torchlht.heads.methods.hiclass import HiClass
from torchlht.heads.methods.logistic import Logistic
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths

LogisticRegression = pytest.importorskip("sklearn.linear_model").LogisticRegression
LocalClassifierPerParentNode = pytest.importorskip("hiclass").LocalClassifierPerParentNode

# coarse to middle: 0 has 0 and 1, 1 has 2 alone, 2 has 3 alone; middle to finest: 0 has 0, 1, 2, 1 has 3 and 4, the others one
TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 3], [0, 0, 1, 2]])
FEATURES = 4
NAMES = ["logistic", "hiclass"]


def samples(seed: int, batch: int = 90) -> tuple[Tensor, Tensor]:
    """Features that lie round their finest class, on scales of their own, and all labels."""
    rng = np.random.default_rng(seed)
    labels = paths(TREE, rng, batch)
    centres = normal(rng, TREE.sizes[0], FEATURES, scale=1.5, dtype=torch.float32)
    x = centres[labels[:, 0]] + normal(rng, batch, FEATURES, dtype=torch.float32)
    return x * torch.tensor([1.0, 10.0, 0.1, 3.0]) + torch.tensor([0.0, 50.0, -1.0, 2.0]), labels


def masked(labels: Tensor, seed: int, share: float = 0.4) -> Tensor:
    """Labels whose finest level is missing for some, and the middle one for some of those."""
    rng, found = np.random.default_rng(seed), labels.clone()
    hidden = torch.from_numpy(rng.random(len(labels)) < share)
    found[hidden, 0] = -1
    found[hidden & torch.from_numpy(rng.random(len(labels)) < 0.4), 1] = -1
    return found


def standardised(x: Tensor, by: Tensor) -> np.ndarray:
    """By the mean and deviation of `by`, in float64."""
    by64 = by.double().numpy()
    return ((x.double().numpy() - by64.mean(axis=0)) / by64.std(axis=0)).astype(np.float32)


def fitted(name: str, x: Tensor, labels: Tensor, **options: object) -> Estimator:
    method = create_method(name, FEATURES, TREE, **options)
    assert isinstance(method, Estimator)
    method.fit(x, labels)
    return method


# ---- logistic ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [range(7), [0, 2, 3, 5], [1, 4], [6, 0]], ids=str)
def test_logistic_has_the_probabilities_of_scikit_learn(present):
    """Also where classes are absent, which get none, and where two are left, for which scikit-learn keeps one row."""
    x, labels = samples(1)
    labels[~torch.isin(labels[:, 0], torch.tensor(list(present))), 0] = -1
    known = labels[:, 0] >= 0
    prediction = fitted("logistic", x, labels)(x)
    scaled = standardised(x, x)
    peer = LogisticRegression(C=1.0, max_iter=1000).fit(scaled[known], labels[known, 0])
    expected = np.zeros((len(x), TREE.sizes[0]))
    expected[:, peer.classes_] = peer.predict_proba(scaled)
    np.testing.assert_allclose(prediction.probs(0).numpy(), expected, atol=2e-4)
    assert prediction.chosen()[:, 0].tolist() == peer.predict(scaled).tolist()


def test_logistic_with_one_class_present_is_certain_of_it():
    x, labels = samples(2)
    labels[labels[:, 0] != 3, 0] = -1
    prediction = fitted("logistic", x, labels)(x)
    assert (prediction.probs(0)[:, 3] == 1).all()
    assert prediction.chosen().unique(dim=0).tolist() == [list(TREE.path(3))]


@pytest.mark.parametrize("C", [0.01, 10.0])
def test_logistic_passes_its_regularisation_on(C):
    x, labels = samples(3)
    peer = LogisticRegression(C=C, max_iter=1000).fit(standardised(x, x), labels[:, 0])
    found = fitted("logistic", x, labels, C=C)(x).probs(0).numpy()
    np.testing.assert_allclose(found, peer.predict_proba(standardised(x, x)), atol=1e-3)


def test_logistic_answers_coarse_levels_by_sums():
    x, labels = samples(4)
    prediction = fitted("logistic", x, labels)(x)
    for k in range(2):
        for c in range(TREE.sizes[k + 1]):
            children = [j for j in range(TREE.sizes[k]) if TREE.parents[k][j] == c]
            torch.testing.assert_close(prediction.probs(k + 1)[:, c], prediction.probs(k)[:, children].sum(dim=1))


def test_logistic_learns_from_fine_labels_only():
    x, labels = samples(5)
    labels = masked(labels, 5)
    method = fitted("logistic", x, labels)
    other = labels.clone()
    other[:, 1:] = -1
    assert torch.equal(method(x).log_probs[0], fitted("logistic", x, other)(x).log_probs[0])
    assert torch.equal(method.learns_from(labels), labels[:, 0] >= 0)


def test_a_feature_that_never_varies_does_no_harm():
    x, labels = samples(6)
    x[:, 2] = 7.0
    for name in NAMES:
        assert all(torch.isfinite(log_p).all() for log_p in fitted(name, x, labels)(x).log_probs)


# ---- hiclass -------------------------------------------------------------------------------------------------------


def peer_tree(scaled: np.ndarray, labels: Tensor) -> LocalClassifierPerParentNode:
    """hiclass itself, on paths of names from coarse to fine."""
    names = [[f"level {k} class {row[k]}" if row[k] >= 0 else "" for k in (2, 1, 0)] for row in labels.tolist()]
    local = LogisticRegression(C=1.0, max_iter=1000, random_state=0)
    return LocalClassifierPerParentNode(local, replace_classifiers=True).fit(scaled, names)


def peer_answers(tree: LocalClassifierPerParentNode, scaled: np.ndarray) -> list[list[int]]:
    """Its answers as numbers, fine first."""
    return [[int(name.rpartition(" ")[2]) for name in row[::-1]] for row in tree.predict(scaled).tolist()]


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize("seed", [7, 8])
def test_hiclass_answers_as_the_library_does(seed, share):
    x, labels = samples(seed)
    labels = masked(labels, seed, share)
    prediction = fitted("hiclass", x, labels)(x)
    scaled = standardised(x, x)
    expected = peer_answers(peer_tree(scaled, labels), scaled)
    assert prediction.chosen().tolist() == expected
    assert len({tuple(row) for row in expected}) > 5


def test_hiclass_uses_its_scale_and_samples_from_those_labelled_at_the_top():
    x, labels = samples(9)
    labels[:30] = -1
    x[:30] += 1000
    prediction = fitted("hiclass", x, labels)(x[30:])
    scaled = standardised(x[30:], x[30:])
    expected = peer_answers(peer_tree(scaled, labels[30:]), scaled)
    assert prediction.chosen().tolist() == expected
    method = create_method("hiclass", FEATURES, TREE)
    assert torch.equal(method.learns_from(labels), labels[:, 2] >= 0)


def test_hiclass_multiplies_the_probabilities_of_each_node():
    """p(leaf) = p(coarse) p(middle | coarse) p(leaf | middle), each from a regression on the samples under that node."""
    x, labels = samples(10)
    labels = masked(labels, 10)
    prediction = fitted("hiclass", x, labels)(x)
    scaled = standardised(x, x)

    def local(level: int, parent: int | None) -> np.ndarray:
        rows = (labels[:, level] >= 0) & ((labels[:, level + 1] == parent) if parent is not None else True)
        y = labels[rows, level].numpy()
        found = np.zeros((len(x), TREE.sizes[level]))
        if len(set(y.tolist())) == 1:
            found[:, y[0]] = 1
        else:
            peer = LogisticRegression(C=1.0, max_iter=1000).fit(scaled[rows], y)
            found[:, peer.classes_] = peer.predict_proba(scaled)
        return found

    expected = local(2, None)
    np.testing.assert_allclose(prediction.probs(2).numpy(), expected, atol=1e-3)
    for level in (1, 0):
        above, expected = expected, np.zeros((len(x), TREE.sizes[level]))
        for parent in range(TREE.sizes[level + 1]):
            expected += local(level, parent) * above[:, [parent]]
        np.testing.assert_allclose(prediction.probs(level).numpy(), expected, atol=1e-3)


def test_hiclass_gives_an_only_child_all_of_its_parents_probability():
    x, labels = samples(11)
    prediction = fitted("hiclass", x, labels)(x)
    torch.testing.assert_close(prediction.probs(0)[:, 6], prediction.probs(2)[:, 2])
    torch.testing.assert_close(prediction.probs(0)[:, 5], prediction.probs(2)[:, 1])


def childless(seed: int) -> tuple[Tensor, Tensor]:
    """Samples of which nobody labelled the children of a middle class, nor anything below a coarse one."""
    x, labels = samples(seed)
    labels[labels[:, 1] == 0, 0] = -1  # three finest classes
    labels[labels[:, 2] == 2, :2] = -1  # an only child, and its only child
    return x, labels


def test_hiclass_shares_out_the_mass_of_a_parent_whose_children_nobody_labelled():
    x, labels = childless(12)
    prediction = fitted("hiclass", x, labels)(x)
    for k in range(3):
        torch.testing.assert_close(prediction.probs(k).sum(dim=1), torch.ones(len(x)), rtol=0, atol=1e-4)
    for leaf in range(3):
        torch.testing.assert_close(prediction.probs(0)[:, leaf], prediction.probs(1)[:, 0] / 3, rtol=1e-4, atol=1e-6)


def test_hiclass_answers_a_path_also_below_a_parent_whose_children_nobody_labelled():
    """The library stops there; it and this agree on what is above."""
    x, labels = childless(12)
    prediction = fitted("hiclass", x, labels)(x)
    for row in prediction.chosen().tolist():
        assert row == list(TREE.path(row[0]))
    scaled = standardised(x, x)
    tree = peer_tree(scaled, labels)
    top = [int(name[0].rpartition(" ")[2]) for name in tree.predict(scaled).tolist()]
    assert prediction.chosen()[:, 2].tolist() == top


def test_hiclass_with_a_gap_in_the_middle_learns_what_is_above_it():
    x, labels = samples(13)
    labels[::3, 1] = -1
    bare = labels.clone()
    bare[::3, 0] = -1
    for a, b in zip(fitted("hiclass", x, labels)(x).log_probs, fitted("hiclass", x, bare)(x).log_probs, strict=True):
        torch.testing.assert_close(a, b)


def test_hiclass_with_one_coarse_class_is_certain_of_it():
    x, labels = samples(14)
    labels[labels[:, 2] != 0] = -1
    prediction = fitted("hiclass", x, labels)(x)
    assert (prediction.probs(2)[:, 0] == 1).all()
    assert (prediction.chosen()[:, 0] < 5).all()


# ---- both ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_distributions_and_answers_are_classes(name):
    x, labels = samples(15)
    prediction = fitted(name, x, masked(labels, 15))(x[:5])
    assert [tuple(log_p.shape) for log_p in prediction.log_probs] == [(5, size) for size in TREE.sizes]
    for k in range(3):
        torch.testing.assert_close(prediction.probs(k).sum(dim=1), torch.ones(5))
        assert prediction.log_probs[k].dtype == torch.float32
    assert prediction.chosen().shape == (5, 3)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_dict_brings_a_fresh_one_to_the_same_answers(name):
    x, labels = samples(16)
    method, fresh = fitted(name, x, masked(labels, 16)), create_method(name, FEATURES, TREE)
    assert not torch.equal(method(x).log_probs[0], fresh(x).log_probs[0])
    fresh.load_state_dict(method.state_dict())
    for a, b in zip(method(x).log_probs, fresh(x).log_probs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(method(x).chosen(), fresh(x).chosen())


@pytest.mark.parametrize("name", NAMES)
def test_fitting_again_forgets_what_was_learned(name):
    x, labels = samples(17)
    method = fitted(name, *samples(18))
    method.fit(x, labels)
    for a, b in zip(method(x).log_probs, fitted(name, x, labels)(x).log_probs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_nothing_to_train_by_steps(name):
    method = create_method(name, FEATURES, TREE)
    assert method.name == name
    assert list(method.parameters()) == []


@pytest.mark.parametrize(
    ("name", "module", "package"), [("logistic", "sklearn.linear_model", "scikit-learn"), ("hiclass",) * 3]
)
def test_a_missing_library_is_named_with_the_extra_that_brings_it(name, module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=package) as caught:
        fitted(name, *samples(20))
    assert "peers" in str(caught.value)


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match=r"C is 0\.0"):
        Logistic(FEATURES, TREE, C=0.0)
    with pytest.raises(ConfigError, match="at least two levels; use the method logistic"):
        HiClass(FEATURES, Hierarchy.from_parents([], classes=[["a", "b"]]))


def test_logistic_takes_a_tree_of_one_level():
    rng = np.random.default_rng(21)
    method = Logistic(FEATURES, Hierarchy.from_parents([], classes=[["a", "b", "c"]]))
    x, labels = normal(rng, 30, FEATURES, dtype=torch.float32), torch.from_numpy(rng.integers(0, 3, (30, 1)))
    method.fit(x, labels)
    peer = LogisticRegression(C=1.0, max_iter=1000).fit(standardised(x, x), labels[:, 0])
    np.testing.assert_allclose(method(x).probs(0).numpy(), peer.predict_proba(standardised(x, x)), atol=1e-4)
