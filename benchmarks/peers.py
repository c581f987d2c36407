"""Seconds on embeddings against hiclass, what a user would pick in scikit-learn: one core, the same process, interleaved.

    python benchmarks/peers.py cub_lite0.npz              # 90 % of the finest labels hidden, and none
    python benchmarks/peers.py cub_lite0.npz --growth     # 10 and 100 times the samples, and 1,000 classes

hiclass is its LocalClassifierPerParentNode over logistic regressions on standardised features. Seconds are those of the CPU, so
that other work on the machine counts less. The growth part runs each fit in a process of its own, for its peak memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from hiclass import LocalClassifierPerParentNode
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from torchlht import HierarchicalClassifier

ROUNDS = 5
METHODS = ("hiclass", "marginal", "lht")
USUAL = (*METHODS, "marginal, not quick", "lht, not quick")  # as `lht train` does


class Birds(NamedTuple):
    """Features, and names coarse → fine; which samples are for training."""

    x: np.ndarray
    y: np.ndarray
    train: np.ndarray


def read(file: str) -> Birds:
    """The samples of an .npz of `lht data embed`."""
    given = np.load(file, allow_pickle=False)
    names = [given[f"classes_{level}"][given["y"][:, k]] for k, level in enumerate(given["levels"])]
    return Birds(given["x"].astype(np.float32), np.stack(names[::-1], axis=1).astype(object), given["train"].astype(bool))


def hide(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Labels with this share of the finest ones blank, class by class."""
    rng, labels = np.random.default_rng([seed, 3]), y.copy()
    for name in np.unique(y[:, -1].astype(str)):
        rows = rng.permutation(np.flatnonzero(y[:, -1] == name))
        labels[rows[max(1, round((1 - share) * len(rows))) :], -1] = ""
    return labels


def estimator(method: str, seed: int) -> Any:
    """An estimator that has not been fitted."""
    if method != "hiclass":
        name, _, slow = method.partition(", ")
        return HierarchicalClassifier(name, random_state=seed, quick=not slow)
    local = LocalClassifierPerParentNode(LogisticRegression(max_iter=1000), replace_classifiers=True)
    return make_pipeline(StandardScaler(), local)


def timed(method: str, seed: int, x: np.ndarray, y: np.ndarray) -> tuple[float, Any]:
    """Seconds of the CPU for a fit, and the fitted estimator."""
    model, begun = estimator(method, seed), time.process_time()
    model.fit(x, y)
    return time.process_time() - begun, model


def seconds(birds: Birds, rounds: int) -> None:
    """Print time and accuracy of each method, the median and the mean over rounds; each round has its own mask."""
    print("| hidden | method | seconds | × hiclass | accuracy, coarse → fine, % |\n|---|---|---|---|---|")
    truth = birds.y[~birds.train]
    for method in USUAL:  # what is imported at the first fit is no part of it
        timed(method, 0, birds.x[birds.train][:400], birds.y[birds.train][:400])
    for share in (0.9, 0.0):
        found: dict[str, list[tuple[float, np.ndarray]]] = {method: [] for method in USUAL}
        for seed in range(rounds):
            labels = hide(birds.y[birds.train], share, seed)
            for method in USUAL:
                taken, model = timed(method, seed, birds.x[birds.train], labels)
                found[method].append((taken, 100 * (model.predict(birds.x[~birds.train]) == truth).mean(axis=0)))
        rival = statistics.median(taken for taken, _ in found["hiclass"])
        for method, runs in found.items():
            taken = statistics.median(one for one, _ in runs)
            each = np.array([one for _, one in runs])
            spread = each.std(axis=0, ddof=1) if rounds > 1 else np.zeros(each.shape[1])
            right = " / ".join(f"{m:.1f} ± {s:.1f}" for m, s in zip(each.mean(axis=0), spread, strict=True))
            print(f"| {share:.0%} | {method} | {taken:.2f} | {taken / rival:.2f} | {right} |", flush=True)


def repeated(birds: Birds, times: int) -> tuple[np.ndarray, np.ndarray]:
    """The training samples this many times, each time with a little noise of its own."""
    x, rng = birds.x[birds.train], np.random.default_rng(times)
    grown = np.empty((times * len(x), x.shape[1]), np.float32)
    for i in range(times):
        grown[i * len(x) : (i + 1) * len(x)] = x + 0.05 * x.std() * rng.standard_normal(x.shape, np.float32)
    return grown, np.tile(birds.y[birds.train], (times, 1))


def divided(birds: Birds) -> tuple[np.ndarray, np.ndarray]:
    """Ten times the samples, and 1,000 classes: each species is cut into five, which lie a little apart."""
    (x, y), rng = repeated(birds, 10), np.random.default_rng(5)
    part = rng.integers(0, 5, len(x))
    shift = {name: 0.5 * x.std() * rng.standard_normal((5, x.shape[1]), np.float32) for name in np.unique(y[:, -1].astype(str))}
    for name, moves in shift.items():
        rows = np.flatnonzero(y[:, -1] == name)
        x[rows] += moves[part[rows]]
        y[rows, -1] = [f"{name} {i}" for i in part[rows]]
    return x, y


SIZES: dict[str, Callable[[Birds], tuple[np.ndarray, np.ndarray]]] = {
    "10 × samples": lambda birds: repeated(birds, 10),
    "10 × samples, 1,000 classes": divided,
    "100 × samples": lambda birds: repeated(birds, 100),
}


def alone(file: str, size: str, method: str, answers: Any) -> None:
    """One fit; answers with its seconds and the peak memory of this process before and after, in GB."""
    quiet()
    x, y = SIZES[size](read(file))
    y = hide(y, 0.9, 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    with threadpool_limits(1):
        taken, _ = timed(method, 0, x, y)
    answers.put((taken, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def growth(file: str, limit: float) -> None:
    """Print time and memory of each method at each size, as far as it gets; `limit` is in seconds, with reading the data."""
    print("| size | method | seconds | GB before → at most |\n|---|---|---|---|")
    fresh = multiprocessing.get_context("spawn")
    for size in SIZES:
        for method in METHODS:
            answers = fresh.Queue()
            process = fresh.Process(target=alone, args=(file, size, method, answers))
            process.start()
            try:
                taken, before, most = answers.get(timeout=limit)
                print(f"| {size} | {method} | {taken:.0f} | {before:.1f} → {most:.1f} |", flush=True)
            except queue.Empty:
                print(f"| {size} | {method} | not in {limit:.0f} | – |", flush=True)
            process.kill()
            process.join()


def quiet() -> None:
    """One thread, and no warnings about regressions that did not converge."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ConvergenceWarning)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each fit of --growth")
    args = parser.parse_args()
    quiet()
    if args.growth:
        growth(args.data, args.limit)
    else:
        with threadpool_limits(1):
            seconds(read(args.data), args.rounds)


if __name__ == "__main__":
    main()
