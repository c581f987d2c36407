"""scikit-learn's own checks of estimators, all of them, without a list of expected failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from torchlht.sklearn import HierarchicalClassifier

QUICK = {"epochs": 25, "options": {"width": 32}}
ESTIMATORS = [HierarchicalClassifier(**QUICK), HierarchicalClassifier("logistic")]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning", "ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(ESTIMATORS)
def test_it_is_an_estimator(estimator: HierarchicalClassifier, check: Callable[[Any], None]) -> None:
    check(estimator)
