"""Strategies of scikit-activeml, by name: `skactiveml:TypiClust`, `CoreSet`, `ProbCover`, `UncertaintySampling`, …"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from torchlht.errors import ConfigError, MissingExtraError, suggestion
from torchlht.learn.questions.strategy import PEERS, Asked, Entry, Situation


def peer(name: str) -> Entry:
    """A query strategy of scikit-activeml's pool, at the finest level that has a price.

    Raises:
        MissingExtraError: without scikit-activeml.
        ConfigError: for a name that it does not have, or a strategy that needs more than samples, labels and a classifier.
    """
    try:
        from skactiveml import pool
        from skactiveml.base import SingleAnnotatorPoolQueryStrategy
    except ImportError:
        raise MissingExtraError(f"the strategy {PEERS}{name}", extra="peers") from None
    kinds: dict[str, Any] = {n: getattr(pool, n) for n in pool.__all__ if inspect.isclass(getattr(pool, n))}
    known = {n: kind for n, kind in kinds.items() if issubclass(kind, SingleAnnotatorPoolQueryStrategy)}
    if name not in known:
        raise ConfigError(f"scikit-activeml has no strategy {name!r}: {suggestion(name, known)}")
    takes = inspect.signature(known[name].query).parameters
    more = [
        p.name for p in takes.values() if p.default is p.empty and p.name not in ("self", "X", "y", "clf", "args", "kwargs")
    ]
    if more:
        raise ConfigError(f"the strategy {PEERS}{name} also needs {', '.join(more)}, which lht next does not have")
    return Entry(functools.partial(ask, name, known[name], "clf" in takes), f"{name} of scikit-activeml", "clf" in takes)


def ask(name: str, kind: Any, classifies: bool, now: Situation) -> Iterator[Asked]:
    """The strategy's questions. A classifier, where it wants one, is logistic regression."""
    level = now.prices.finest
    known, among = now.labels[:, level], now.candidates()
    count = min(int(now.budget / now.prices.cost[level] + 1e-9), len(among))
    if not count:
        return
    y = np.where(known < 0, np.nan, known)
    more = {"clf": classifier(now.hierarchy.sizes[level])} if classifies else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes without samples, and about changes to come
        chosen = kind(random_state=now.seed).query(now.space.astype(float), y, candidates=among, batch_size=count, **more)
    for i in chosen.tolist():
        yield Asked(int(i), level, f"{name} of scikit-activeml")


def classifier(classes: int) -> Any:
    """Logistic regression that knows all classes."""
    from skactiveml.classifier import SklearnClassifier
    from sklearn.linear_model import LogisticRegression

    return SklearnClassifier(LogisticRegression(max_iter=200), classes=list(range(classes)))
