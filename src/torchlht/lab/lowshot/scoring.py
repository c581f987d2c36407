"""Recognising new classes from their examples: `nn`, nearest class means; `ppa`, predicted weights; `lsd`, spread labels.

`ppa`: classifier weights predicted from activations (Qiao et al., CVPR 2018).

    a ─► unit length ─► Linear ─► ReLU ─► Linear ─► unit length = w,     score of x for a class: w · x

Both layers start at the identity. In a step every source class is represented by one of its activations or, three times in
ten, by their mean. From these all weights are predicted. Cross-entropy is taken on another activation of each class, drawn
anew, perhaps the same one. Its length sets how sharp the softmax is: features of unit length teach little. The released network
is small and trained for 12,500 steps at a learning rate of 0.001; this one takes fewer and larger steps.

`lsd`: labels of the examples spread over a graph of unlabelled samples (Douze et al., CVPR 2018).

Nodes are the examples and a background of samples whose labels are not used. Each has an edge to its 30 nearest nodes, itself
first, as in the released code. Nearest means the largest cosine between main components of the features. With W₀ the 0/1 matrix
of these edges and every row or column divided by its sum:

    W = rows(W₀ + W₀ᵀ),     L ← columns(onehot of the examples),     L ← columns(W L), repeated

A test sample is not in the graph: its score for a class is the sum of L over its 30 nearest nodes. The method was published on
up to 100 million pictures; here the background is the source samples. The number of steps, which may be 0, is chosen on some
source classes in place of the new ones, for each number of shots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from scipy.sparse import csr_array, diags_array
from torch import Tensor, nn

from torchlht.data.samples import Bools, Ints, Samples, choose_some
from torchlht.files import replacing
from torchlht.lab.lowshot.protocol import ranks
from torchlht.learn.semi.propagation import neighbours

Floats = NDArray[np.float32]
TINY = float(np.finfo(np.float32).tiny)
Scorer = Callable[[Bools], Floats]
"""Given which samples are examples, (n,) bool, the scores of the others for each class, (rest, classes)."""


def class_means(features: Floats, classes: Ints, support: Bools) -> Floats:
    """(classes, d) the mean of the examples of each class, which all have the same number."""
    members = (classes[support] == np.arange(classes.max() + 1)[:, None]).astype(np.float32)
    means: Floats = (members @ features[support]) / members.sum(axis=1, keepdims=True)
    return means


def unit(x: Floats) -> Floats:
    """Rows scaled to unit length; rows of zeros stay."""
    scaled: Floats = np.divide(x, np.linalg.norm(x, axis=1, keepdims=True).clip(min=TINY))
    return scaled


def by_cosine(features: Floats, classes: Ints) -> Scorer:
    """A scorer by cosines with the mean of each class's examples."""
    directions = unit(features)

    def score(support: Bools) -> Floats:
        found: Floats = directions[~support] @ unit(class_means(features, classes, support)).T
        return found

    return score


def hit_rate(scores: Floats, classes: Ints, top: int) -> float:
    """How often the true class is among the `top` highest scores; ties count by their chance."""
    right = scores[np.arange(len(scores)), classes][:, None]
    higher = (scores > right).sum(axis=1)
    equal = (scores == right).sum(axis=1)  # including itself
    return float(((top - higher) / equal).clip(0, 1).mean())


# ---- ppa -------------------------------------------------------------------------------------------------------------

SINGLE = 0.7  # how often a class is represented by a single activation
LR = 0.03  # chosen from 0.01, 0.03, 0.1 on source classes


class WeightPredictor(nn.Module):
    """Activations (C, d) to weights (C, d) of unit length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        for layer in (self.layers[0], self.layers[2]):
            assert isinstance(layer, nn.Linear)
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, activations: Tensor) -> Tensor:
        """(C, d) activations to (C, d) weights of unit length."""
        return F.normalize(self.layers(F.normalize(activations, dim=1)), dim=1)


def train_predictor(features: Floats, classes: Ints, *, steps: int, seed: int) -> WeightPredictor:
    """Train a predictor on these classes, all of which have samples.

    Args:
        features: (N, d).
        classes: (N,) numbers from 0.
        steps: number of steps of SGD with momentum 0.9 and weight decay 0.0005.
        seed: seed for choosing activations.
    """
    rng, x = np.random.default_rng(seed), torch.from_numpy(features)
    means = torch.from_numpy(class_means(features, classes, np.ones(len(classes), dtype=bool)))
    predictor, own = WeightPredictor(features.shape[1]), torch.arange(len(means))
    optimizer = torch.optim.SGD(predictor.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4)
    for _ in range(steps):
        single = torch.from_numpy(rng.random(len(means)) < SINGLE).unsqueeze(1)
        given = torch.where(single, x[pick(classes, rng)], means)
        loss = F.cross_entropy(x[pick(classes, rng)] @ predictor(given).T, own)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return predictor


def pick(classes: Ints, rng: np.random.Generator) -> Ints:
    """The position of a sample of each class, each with equal probability."""
    count = np.bincount(classes)
    picked: Ints = np.argsort(classes, kind="stable")[np.cumsum(count) - count + rng.integers(count)]
    return picked


def by_predicted_weights(predictor: WeightPredictor, features: Floats, classes: Ints) -> Scorer:
    """A scorer by products with weights predicted from the mean of each class's examples."""

    def score(support: Bools) -> Floats:
        with torch.inference_mode():
            weights = predictor(torch.from_numpy(class_means(features, classes, support))).numpy()
        found: Floats = features[~support] @ weights.T
        return found

    return score


def keep_predictor(predictor: WeightPredictor, path: Path) -> None:
    """Write a predictor's weights."""
    with replacing(path) as beside:
        save_file(predictor.state_dict(), beside)


def kept_predictor(path: Path, width: int) -> WeightPredictor:
    """Read a predictor's weights."""
    predictor = WeightPredictor(width)
    predictor.load_state_dict(load_file(path))
    return predictor


# ---- lsd -------------------------------------------------------------------------------------------------------------

DIMENSIONS, NEIGHBOURS = 256, 30
STEPS = range(11)  # candidates
USUAL = 3  # if there is nothing to try them on
TRIALS = 3  # draws to try on
ROWS = 4096  # at a time
Near = tuple[Floats, Ints]  # cosines and positions of the nearest, (n, k) each


class Diffusion:
    """Background and test samples with their neighbours in the background, so that a draw only adds its examples.

    Args:
        background: (B, d) features.
        features: (n, d) features of the target samples.
        classes: (n,) their classes.
    """

    def __init__(self, background: Floats, features: Floats, classes: Ints) -> None:
        self.classes, (self.background, self.points) = classes, reduced(background, features)
        self.k = min(NEIGHBOURS, len(background))
        self.of_background = itself_and_nearest(self.background, self.k)
        self.of_points = nearest(self.points, self.background, self.k)

    def scores(self, support: Bools, steps: Sequence[int]) -> list[Floats]:
        """Scores of the samples that are not examples, (rest, classes), after each of these ascending numbers of steps."""
        examples, first = self.points[support], len(self.background)
        nodes = first + len(examples)
        edges = [
            self.nearest_nodes(self.background, self.of_background, examples),
            self.nearest_nodes(examples, rows_of(self.of_points, support), examples),
        ]
        asked = self.nearest_nodes(self.points[~support], rows_of(self.of_points, ~support), examples)
        labels = np.zeros((nodes, self.classes.max() + 1), dtype=np.float32)
        labels[first + np.arange(len(examples)), self.classes[support]] = 1
        reader, walk = adjacency(asked, nodes), transitions(adjacency(np.concatenate(edges), nodes))
        spread = enumerate(diffuse(walk, labels, max(steps)))
        return [np.asarray(reader @ now) for step, now in spread if step in steps]

    def nearest_nodes(self, x: Floats, near: Near, examples: Floats) -> Ints:
        """(n, k) the nearest nodes of some samples, given their neighbours in the background; an example is also its own.

        Args:
            x: (n, d) the samples.
            near: cosines and positions of their nearest in the background.
            examples: (m, d) the other nodes, which come after the background.
        """
        found = np.empty((len(x), self.k), dtype=np.int64)
        added = len(self.background) + np.arange(len(examples))
        for start in range(0, len(x), ROWS):
            rows = slice(start, start + ROWS)
            cosines = x[rows] @ examples.T
            both = np.concatenate([near[0][rows], cosines], axis=1)
            nodes = np.concatenate([near[1][rows], np.broadcast_to(added, cosines.shape)], axis=1)
            best = np.argpartition(-both, self.k - 1, axis=1)[:, : self.k]
            found[rows] = np.take_along_axis(nodes, best, axis=1)
        return found


def reduced(background: Floats, features: Floats) -> tuple[Floats, Floats]:
    """Both projected to the main directions of the background, then scaled to unit length."""
    middle = background.mean(axis=0)
    centred = background - middle
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :DIMENSIONS]
    return unit(centred @ axes), unit((features - middle) @ axes)


def itself_and_nearest(x: Floats, k: int) -> Near:
    """Cosines and positions, (n, k) each, of each row of x itself and its k - 1 nearest others."""
    cosines, found = neighbours(torch.from_numpy(x), k - 1)
    itself = np.arange(len(x))[:, None]
    return np.hstack([np.ones_like(itself, dtype=np.float32), cosines]), np.hstack([itself, found])


def nearest(x: Floats, among: Floats, k: int) -> Near:
    """Cosines and positions, (n, k) each, of the k rows of `among` nearest to each row of x."""
    cosines, found = [], []
    for start in range(0, len(x), ROWS):
        best = (torch.from_numpy(x[start : start + ROWS]) @ torch.from_numpy(among).T).topk(k, dim=1)
        cosines.append(best.values.numpy())
        found.append(best.indices.numpy())
    return np.concatenate(cosines), np.concatenate(found)


def rows_of(near: Near, rows: Bools) -> Near:
    """The neighbours of some samples."""
    return near[0][rows], near[1][rows]


def adjacency(edges: Ints, nodes: int) -> Any:
    """(rows, nodes) sparse: 1 where a row has an edge to a node."""
    rows = np.repeat(np.arange(len(edges)), edges.shape[1])
    return csr_array((np.ones(edges.size, dtype=np.float32), (rows, edges.ravel())), shape=(len(edges), nodes))


def transitions(one_way: Any) -> Any:
    """W: edges in both directions, mutual edges counted twice, each row divided by its sum."""
    both = csr_array(one_way + one_way.T)
    return csr_array(diags_array(1 / both.sum(axis=1)) @ both, dtype=np.float32)


def diffuse(walk: Any, labels: Floats, steps: int) -> Iterator[Floats]:
    """(nodes, classes) the labels at the start and after each of `steps` steps."""
    yield (now := columns(labels))
    for _ in range(steps):
        yield (now := columns(np.asarray(walk @ now)))


def columns(x: Floats) -> Floats:
    """Every column divided by its sum; columns of zeros stay."""
    scaled: Floats = np.divide(x, x.sum(axis=0).clip(min=TINY))
    return scaled


def by_diffusion(diffusion: Diffusion, steps: dict[int, int]) -> Scorer:
    """A scorer by spread labels, with the given number of steps for each number of shots."""

    def score(support: Bools) -> Floats:
        shots = int(support.sum()) // (int(diffusion.classes.max()) + 1)
        return diffusion.scores(support, [steps[shots]])[0]

    return score


# ---- how many steps -------------------------------------------------------------------------------------------


def choose_steps(features: Floats, source: Samples, *, shots: Sequence[int], new: int, top: int, seed: int) -> dict[int, int]:
    """For each number of shots, the number of steps with the most hits on source classes that stand in for the new ones.

    Args:
        features: (N, d) features of the source samples.
        source: these samples.
        shots: numbers of examples.
        new: how many new classes there are; as many source classes stand in for them, but at most a third.
        top: an answer is right if the true class is among this many.
        seed: seed for choosing classes and examples.
    """
    stand_ins = choose_classes(source, more_than=max(shots), count=new, seed=seed)
    if not len(stand_ins):
        return dict.fromkeys(shots, USUAL)
    here = np.isin(source.labels[:, 0], stand_ins)
    classes = np.searchsorted(stand_ins, source.labels[here, 0])
    keys = [source.keys[i] for i in np.flatnonzero(here)]
    diffusion, hits = Diffusion(features[~here], features[here], classes), np.zeros((len(shots), len(STEPS)))
    for number in range(TRIALS):
        rank = ranks(keys, classes, seed=seed, number=number)
        for i, k in enumerate(shots):
            asked, found = classes[rank >= k], diffusion.scores(rank < k, STEPS)
            hits[i] += [hit_rate(scores, asked, min(top, len(stand_ins) - 1)) for scores in found]
    return {k: STEPS[int(own.argmax())] for k, own in zip(shots, hits, strict=True)}


def choose_classes(source: Samples, *, more_than: int, count: int, seed: int) -> Ints:
    """Up to `count` classes with more than `more_than` samples, at most a third of these; none if they are too few."""
    names, size = source.hierarchy.classes[0], np.bincount(source.labels[:, 0])
    large = np.flatnonzero(size > more_than)
    some = min(count, len(large) // 3)
    if some < 2:
        return large[:0]
    drawn = choose_some([names[i] for i in large], [""] * len(large), lambda *_: some, seed=seed, purpose="lowshot validation")
    return large[drawn]
