"""Guesses of unknown labels and the shortcut: one round of EM, against plain loops in float64, and what it promises."""

import numpy as np
import pytest
import torch

from torchlht import Hierarchy, TrainArgs, load, train
from torchlht.data.batches import FeatureSet
from torchlht.errors import ConfigError
from torchlht.heads.guessing import RIDGE, Opinion

TREE = Hierarchy.from_parents([[0, 0, 0, 1, 1, 2, 2, 3], [0, 0, 1, 1]])
PATHS = np.stack([TREE.ancestors(k) for k in range(3)], axis=1)


def samples(count=80, width=4, seed=0, apart=3.0):
    """Species 6 and 7 have no label; 7 is an only child. Some samples stop at their genus or order, one has no label."""
    rng = np.random.default_rng(seed)
    fine = rng.integers(8, size=count)
    labels = PATHS[fine].copy()
    x = apart * rng.normal(size=(8, width))[fine] + rng.normal(size=(count, width))
    labels[20:50, 0], labels[50:60, :2], labels[count - 1] = -1, -1, -1
    labels[np.isin(fine, (6, 7)), 0] = -1
    return torch.tensor(5 + x * np.resize([1.0, 0.1, 10.0, 3.0], width)), torch.tensor(labels), fine


def counted(x, labels, weights=None):
    return FeatureSet(x.float(), labels, None if weights is None else np.asarray(weights, dtype=float))


def write(path, x, labels):
    """A file whose tree all labels are found in: the one sample of species 6 and of 7 is for testing."""
    more = torch.from_numpy(PATHS[[6, 7]])
    y, rows = torch.cat([labels, more]).numpy(), np.arange(len(x) + 2)
    np.savez(path, x=torch.cat([x, x[:2]]).float().numpy(), y=y, train=(rows % 4 > 0) & (rows < len(x)))


def standardised(x):
    return ((x - x.mean(dim=0)) / (x.var(dim=0, correction=0) + 1e-5).sqrt()).numpy()


def naive_fit(z, shares):
    """Discriminant of samples that are in nodes in shares: {(level, class): (N,)}, each sample's summing to one."""
    width, total = z.shape[1], sum(shares.values())
    above, scatter, free = {0: total @ z / total.sum()}, np.zeros((width, width)), 0.0
    for share in shares.values():
        if share.sum() > 0:
            mean = share @ z / share.sum()
            scatter += (z - mean).T @ ((z - mean) * share[:, None])
            free += max(share.sum() - 1, 0)
    for k in (2, 1, 0):
        own = {
            c: sum(s for (level, d), s in shares.items() if level <= k and up(level, d, k) == c) for c in range(TREE.sizes[k])
        }
        own = {c: s for c, s in own.items() if np.sum(s) > 0}
        means = {c: s @ z / s.sum() for c, s in own.items()}
        inside = sum((s * ((z - means[c]) ** 2).sum(axis=1)).sum() for c, s in own.items())
        inside /= width * sum(max(s.sum() - 1, 0) for s in own.values())
        parent = {c: above[0 if k == 2 else TREE.parents[k][c]] for c in range(TREE.sizes[k])}
        weight = {c: max(s.sum(), 1) for c, s in own.items()}
        between = np.mean([((means[c] - parent[c]) ** 2).mean() - inside / weight[c] for c in own])
        between = max(between, 1e-12)
        pull = {c: between / (between + inside / weight[c]) for c in own}
        above = {c: parent[c] + pull[c] * (means[c] - parent[c]) if c in own else parent[c] for c in parent}
    spread = scatter / free
    spread += RIDGE * np.trace(spread) / width * np.eye(width)
    means = np.stack([above[c] for c in range(TREE.sizes[0])])
    weights = means @ np.linalg.inv(spread)
    return weights, -0.5 * (weights * means).sum(axis=1)


def up(level, c, to):
    """The ancestor of a class at a coarser level."""
    return PATHS[PATHS[:, level] == c][0, to]


def naive(x, labels):
    """Weights, biases and labels with guesses, from the formulas of the module."""
    z, labels = standardised(x), labels.numpy()
    deepest = [next((k for k in range(3) if row[k] >= 0), None) for row in labels]
    first = {(k, c): np.zeros(len(z)) for k in range(3) for c in range(TREE.sizes[k])}
    for i, k in enumerate(deepest):
        if k is not None:
            first[k, labels[i, k]][i] = 1
    fitted = naive_fit(z, first)
    second = {(0, c): np.zeros(len(z)) for c in range(TREE.sizes[0])}
    for i, k in enumerate(deepest):
        for c, share in posterior(z[i], labels[i], k, *fitted).items():
            second[0, c][i] = share
    fitted, guesses, fits = naive_fit(z, second), labels.copy(), []
    for i, k in enumerate(deepest):
        found = posterior(z[i], labels[i], k, *fitted)
        fits += [fitting(z[i], found, *fitted)] if k else []
        best = max(found, key=found.get, default=None)
        if k and (len(found) == 1 or (found[best] > 0.5 and (labels[:, 0] == best).any() and fits[-1])):
            guesses[i] = np.where(labels[i] >= 0, labels[i], PATHS[best])
    return *fitted, guesses if np.mean(fits) >= 0.9 else labels


def fitting(z, found, weights, biases):
    """Whether the classes that the known label allows are more probable than all others."""
    shares = np.exp(weights @ z + biases)
    return shares[list(found)].sum() > 0.5 * shares.sum()


def posterior(z, label, k, weights, biases):
    """How probable each finest class is that a sample's deepest known label, at level k, allows."""
    if k is None:
        return {}
    leaves = np.flatnonzero(PATHS[:, k] == label[k])
    logits = weights[leaves] @ z + biases[leaves]
    shares = np.exp(logits - logits.max())
    return dict(zip(leaves.tolist(), shares / shares.sum(), strict=True))


@pytest.mark.parametrize("known", [79, 80])  # the last sample has no label
@pytest.mark.parametrize("apart", [3.0, 1.5])
def test_an_opinion_is_one_round_of_em(known, apart):
    x, labels = (part[:known] for part in samples(apart=apart)[:2])
    found, (weights, biases, guesses) = Opinion.of(counted(x, labels), TREE), naive(x, labels)
    np.testing.assert_allclose(found.weight.numpy(), weights, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.bias.numpy(), biases, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(found.labels.numpy(), guesses)
    layer = found.layer(0.25)
    np.testing.assert_allclose(layer(x.float()).numpy(), 0.25 * (standardised(x) @ weights.T + biases), atol=5e-3)
    assert not any(p.requires_grad for p in layer.parameters())


def test_guesses_keep_what_is_known_and_stay_under_it():
    x, labels, fine = samples(400)
    found = Opinion.of(counted(x, labels), TREE).labels
    assert torch.equal(found[labels >= 0], labels[labels >= 0])
    known = found[:, 0] >= 0
    torch.testing.assert_close(found[known], torch.from_numpy(PATHS)[found[known, 0]])
    assert not (found[:, 0] == 6).any()  # nothing says what it looks like
    assert (found[(labels[:, 1] == 3), 0] == 7).all()  # an only child
    assert (found[-1] == -1).all()
    guessed = (labels[:, 0] < 0) & known & torch.from_numpy(fine != 6)
    assert (found[guessed, 0].numpy() == fine[guessed]).mean() > 0.85


@pytest.mark.parametrize("wrong", [5, 50])
def test_nothing_is_guessed_where_the_known_label_looks_wrong_or_at_all_if_many_do(wrong):
    x, labels, fine = samples(400, apart=6.0)
    coarse = np.flatnonzero((labels[:, 0] < 0).numpy() & (labels[:, 1] >= 0).numpy())
    other = coarse[:: len(coarse) // wrong][:wrong]
    labels[other, 1:] = torch.from_numpy(PATHS[(fine[other] + 4) % 8, 1:])
    guessed = (Opinion.of(counted(x, labels), TREE).labels[:, 0] >= 0).numpy() & (labels[:, 0] < 0).numpy()
    assert guessed[other].mean() < 0.5
    assert guessed[np.setdiff1d(coarse, other)].any() == (wrong == 5)


def test_with_all_finest_labels_nothing_is_guessed():
    x, _, fine = samples()
    labels = torch.from_numpy(PATHS[fine])
    assert Opinion.of(counted(x, labels), TREE).labels is labels


def test_samples_that_only_a_genus_is_known_of_make_it_better():
    right = []
    x, labels, fine = samples(600, width=20, apart=0.7)
    labels[8:400, 0], few = -1, torch.arange(600) < 400
    for data in (counted(x[few], labels[few]), counted(x[few & (labels[:, 0] >= 0)], labels[few & (labels[:, 0] >= 0)])):
        answers = Opinion.of(data, TREE).layer(1.0)(x[400:].float()).argmax(dim=1)
        right.append((answers.numpy() == fine[400:]).mean())
    assert right[0] > right[1]


def test_a_sample_that_counts_twice_is_two_samples():
    x, labels, _ = samples()
    often = np.where(np.arange(80) % 3 == 0, 2, 1)
    rows = torch.arange(80).repeat_interleave(torch.from_numpy(often))
    once, twice = counted(x, labels, often), counted(x[rows], labels[rows])
    for mine, other in zip(vars(once.moments).values(), vars(twice.moments).values(), strict=True):
        torch.testing.assert_close(torch.as_tensor(mine), torch.as_tensor(other))
    a, b = (Opinion.of(data, TREE).layer(1.0)(x.float()) for data in (once, twice))
    torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("select", ["last", "best"])
def test_a_run_keeps_its_shortcut(select, tmp_path):
    x, labels, _ = samples(200)
    write(tmp_path / "x.npz", x, labels)
    how = {"method": "marginal", "epochs": 2, "guess": False, "select": select, "quiet": True, "track": False, "seed": 1}
    plain, short = (train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / f"{s}", shortcut=s, **how)) for s in (0.0, 0.5))
    without, found = load(plain), load(short)
    assert without.method.shortcut is None
    logits = without.method(x.float()).log_probs[0] + found.method.shortcut(x.float())
    torch.testing.assert_close(found.method(x.float()).log_probs[0], torch.log_softmax(logits, dim=1))
    without.load_state_dict(found.state_dict())
    torch.testing.assert_close(without(x.float()).log_probs[1], found(x.float()).log_probs[1])


def test_a_method_without_a_shortcut_says_so(tmp_path):
    x, labels, _ = samples(200)
    write(tmp_path / "x.npz", x, labels)
    with pytest.raises(ConfigError, match="shortcut is for lht and its variants, marginal included; leave it at 0 for flat"):
        train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / "run", method="flat", shortcut=0.1, quiet=True))
    with pytest.raises(ConfigError, match="guess is for lht and its variants, marginal included; leave it out for flat"):
        train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / "run", method="flat", guess=True, quiet=True))


def test_a_run_learns_from_guesses_if_asked(tmp_path):
    x, labels, _ = samples(200)
    write(tmp_path / "x.npz", x, labels)
    how = {"method": "marginal", "epochs": 2, "quiet": True, "track": False, "seed": 1}
    runs = [train(TrainArgs(str(tmp_path / "x.npz"), tmp_path / f"{g}", guess=g, **how)) for g in (None, False, True)]
    usual, without, guesses = (load(run).method.classifier.weight for run in runs)
    assert torch.equal(usual, without)
    assert not torch.equal(usual, guesses)
