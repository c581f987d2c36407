"""What the examples of hiclass's documentation do, with another import: the same calls on the same data, and right answers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from torchlht.sklearn import LocalClassifierPerLevel, LocalClassifierPerNode, LocalClassifierPerParentNode

ANIMALS = [
    ["Animal", "Mammal", "Sheep"],
    ["Animal", "Mammal", "Cow"],
    ["Animal", "Reptile", "Snake"],
    ["Animal", "Reptile", "Lizard"],
]
ENDING_EARLY = [["Bird"], ["Reptile", "Snake"], ["Reptile", "Lizard"], ["Mammal", "Cat"], ["Mammal", "Wolf", "Dog"]]


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Their examples set no seed, so the estimator draws one from numpy's."""
    np.random.seed(0)


def column(*values: int) -> list[list[int]]:
    return [[value] for value in values]


def as_good(found: np.ndarray, rows: list[list[str]]) -> bool:
    """Whether answers are paths of the tree, all but one right: there is one sample of each class."""
    right = [said == row for said, row in zip(found.tolist(), rows, strict=True)]
    return all(said in rows for said in found.tolist()) and sum(right) >= len(rows) - 1


def test_the_first_example() -> None:
    with pytest.warns(UserWarning, match="local_classifier: not used, as one network learns all nodes"):
        classifier = LocalClassifierPerNode(local_classifier=RandomForestClassifier())
    classifier.fit(column(1, 2, 3, 4), ANIMALS)
    assert as_good(classifier.predict(column(4, 3, 2, 1)), ANIMALS[::-1])


def test_different_numbers_of_levels() -> None:
    with pytest.warns(UserWarning, match="local_classifier"):
        classifier = LocalClassifierPerParentNode(local_classifier=LogisticRegression())
    classifier.fit(column(1, 2, 3, 4, 5), ENDING_EARLY)
    assert as_good(classifier.predict(column(5, 4, 3, 2, 1)), [row + [""] * (3 - len(row)) for row in ENDING_EARLY[::-1]])


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_pipeline_of_text_with_sparse_features_and_threads(as_frame: bool) -> None:
    titles, rows = (
        ["Struggling to repay loan", "Unable to get annual report"],
        [["Loan", "Student loan"], ["Credit", "Reports"]],
    )
    steps = [("count", CountVectorizer()), ("tfidf", TfidfTransformer()), ("last", LocalClassifierPerParentNode(n_jobs=1))]
    y: Any = pd.DataFrame(rows, columns=["Cat1", "Cat2"]).assign(Cat3=" ") if as_frame else rows
    pipeline = Pipeline(steps)
    if as_frame:  # a level without a name is a class of its own there, and none here
        with pytest.raises(ValueError, match="y: no label of the level Cat3; leave the column out"):
            pipeline.fit(pd.Series(titles), y)
        y = y[["Cat1", "Cat2"]]
    pipeline.fit(titles, y)
    assert as_good(pipeline.predict(titles[::-1]), rows[::-1])


def test_persistence(tmp_path: Path) -> None:
    x = [[1, 2], [3, 4], [5, 6], [7, 8]]
    with pytest.warns(UserWarning, match="local_classifier"):
        classifier = LocalClassifierPerLevel(local_classifier=LogisticRegression())
    classifier.fit(x, ANIMALS)
    (tmp_path / "trained_model.sav").write_bytes(pickle.dumps(classifier))
    loaded = pickle.loads((tmp_path / "trained_model.sav").read_bytes())
    assert as_good(loaded.predict(x[::-1]), ANIMALS[::-1])


def test_calibration() -> None:
    with pytest.warns(UserWarning, match="local_classifier, calibration_method, probability_combiner: not used"):
        classifier = LocalClassifierPerNode(
            local_classifier=RandomForestClassifier(), calibration_method="isotonic", probability_combiner="multiply"
        )
    classifier.fit(column(1, 2, 3, 4), ANIMALS)
    classifier.calibrate(column(5, 6, 7, 8), [ANIMALS[i] for i in (1, 0, 3, 2)])
    probabilities = classifier.predict_proba(column(4, 3, 2, 1))
    assert [level.shape for level in probabilities] == [(4, 1), (4, 2), (4, 4)]
    assert sorted(classifier.classes_[2]) == ["Cow", "Lizard", "Sheep", "Snake"]
    np.testing.assert_allclose(probabilities[2].sum(axis=1), 1, rtol=1e-5)


def test_policies_of_local_classifiers_are_named_and_other_arguments_refused() -> None:
    with pytest.warns(UserWarning, match="binary_policy: not used"):
        LocalClassifierPerNode(binary_policy="inclusive")
    with pytest.raises(TypeError, match="warm_start"):
        LocalClassifierPerNode(warm_start=True)


def test_several_paths_for_one_sample_are_refused() -> None:
    with pytest.raises(ValueError, match="y row 0: has several paths"):
        LocalClassifierPerNode().fit([[1, 2], [3, 4]], [[["Mammal", "Human"], ["Fish"]], [["Mammal", "Human"]]])
