"""The scikit-learn estimator: what it takes, what it answers, and that it works with scikit-learn's tools."""

from __future__ import annotations

import copy
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import torchlht
from conftest import LEVELS, PATHS
from frames import SPECIES, X_NEW, X, Y, partly
from torchlht.cli import main
from torchlht.errors import ConfigError, LHTError, RunError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.sklearn import HierarchicalClassifier

QUICK: dict[str, Any] = {"epochs": 40, "random_state": 0, "options": {"width": 24}}
TREE = Hierarchy.from_paths(PATHS, LEVELS)


@pytest.fixture(scope="module")
def fitted() -> HierarchicalClassifier:
    return HierarchicalClassifier(**QUICK, val=0.3).fit(X, Y)


# ---- answers -------------------------------------------------------------------------------------------------------


def test_answers_are_paths_of_the_tree_and_mostly_right(fitted: HierarchicalClassifier) -> None:
    found = fitted.predict(X_NEW)
    assert found.shape == Y.shape
    assert {tuple(row) for row in found.tolist()} <= set(PATHS)
    assert (found == Y).mean() > 0.9
    assert fitted.levels_ == ["level1", "level2", "level3"]
    assert [sorted(names.tolist()) for names in fitted.classes_] == [sorted(set(Y[:, k].tolist())) for k in range(3)]
    assert fitted.n_features_in_ == 12
    assert fitted.n_iter_ == len(fitted.history_) == 40


def test_probabilities_are_those_of_the_model_in_the_order_of_classes(fitted: HierarchicalClassifier) -> None:
    found = fitted.predict_proba(X_NEW)
    said = fitted.model_.calibration.apply(fitted.model_.look(torch.from_numpy(X_NEW)))
    for k, level in enumerate(found):
        np.testing.assert_allclose(level, said.probs(2 - k).numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(level.sum(axis=1), 1, rtol=1e-4)
        np.testing.assert_allclose(level, np.exp(fitted.predict_log_proba(X_NEW)[k]), rtol=1e-4, atol=1e-6)
    frame = fitted.proba_frame(pd.DataFrame(X_NEW, index=[f"s{i}" for i in range(120)]).to_numpy())
    assert frame.shape == (120, 2 + 4 + 6)
    assert frame["level3"].columns.tolist() == fitted.classes_[2].tolist()
    assert frame["level3"].idxmax(axis=1).tolist() == fitted.classes_[2][found[2].argmax(axis=1)].tolist()


def test_answers_go_as_deep_as_they_are_sure(fitted: HierarchicalClassifier) -> None:
    """Against the answers of `Model.predict`, sample by sample."""
    names = fitted.model_.predict(X_NEW)
    for how in ({"confidence": 0.9}, {"risk": 0.2}, {"confidence": 1.0}, {"risk": 0.2, "strict": True}):
        found = fitted.predict(X_NEW, **how)
        expected = [one.answer(**how).path for one in names]
        assert [tuple(name for name in row if name) for row in found.tolist()] == expected
    assert (fitted.predict(X_NEW, confidence=1.0)[:, 2] == "").any()
    assert (fitted.predict(X_NEW, confidence=0.0) == fitted.predict(X_NEW)).all()


def test_risk_needs_calibration_from_val_or_calibrate() -> None:
    model = HierarchicalClassifier(**QUICK).fit(X, Y)
    before = model.predict_proba(X_NEW)[2]
    with pytest.raises(ValueError, match=re.escape("risk needs calibration: pass val=0.1, or call calibrate")):
        model.predict(X_NEW, risk=0.1)
    assert model.calibrate(X_NEW, partly()) is model
    assert model.predict(X_NEW, risk=0.2).shape == Y.shape
    assert not np.allclose(before, model.predict_proba(X_NEW)[2])


@pytest.mark.parametrize("how", [{"confidence": 2}, {"confidence": "sure"}, {"risk": 0.1, "confidence": 0.5}, {"risk": 0}])
def test_a_wrong_threshold_is_a_value_error(fitted: HierarchicalClassifier, how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"confidence|risk"):
        fitted.predict(X_NEW, **how)


def test_the_score_is_about_the_finest_label_that_is_known(fitted: HierarchicalClassifier) -> None:
    y, found = partly(), fitted.predict(X_NEW)
    y[:3] = ""  # no label at all
    right = [row[2] == said[2] if row[2] else row[1] == said[1] for row, said in zip(y[3:], found[3:], strict=True)]
    assert fitted.score(X_NEW, y) == pytest.approx(np.mean(right))
    weights = np.arange(120.0)
    assert fitted.score(X_NEW, y, sample_weight=weights) == pytest.approx(np.average(right, weights=weights[3:]))
    scores = fitted.scores(X_NEW, y)
    assert list(scores) == fitted.levels_
    assert scores["level3"] == pytest.approx(np.mean([said[2] == row[2] for row, said in zip(y, found, strict=True) if row[2]]))


# ---- labels --------------------------------------------------------------------------------------------------------


def test_partial_labels_train_every_level_and_blanks_are_no_class() -> None:
    model = HierarchicalClassifier(**QUICK).fit(X, partly())
    assert model.hierarchy_.sizes == (6, 4, 2)
    assert model.score(X_NEW, Y) > 0.9


@pytest.mark.parametrize("semi", ["propagate", "posterior", "both"])
def test_semi_trains(semi: str) -> None:
    assert HierarchicalClassifier(**QUICK, semi=semi).fit(X, partly(0.8)).score(X_NEW, Y) > 0.8


def test_without_pandas_a_frame_says_what_to_install(fitted: HierarchicalClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LHTError, match=r"proba_frame\(\) needs pandas: pip install pandas"):
        fitted.proba_frame(X_NEW)


def test_a_frame_names_levels_and_features() -> None:
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)])
    model = HierarchicalClassifier(**QUICK).fit(frame, pd.DataFrame(partly(), columns=LEVELS).replace("", pd.NA))
    assert model.levels_ == list(LEVELS)
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert list(model.scores(frame, pd.DataFrame(Y, columns=LEVELS))) == list(LEVELS)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"f0": "other"}))


@pytest.mark.parametrize("kind", ["tree", "file", "rows"])
def test_with_a_hierarchy_one_name_is_enough(kind: str, tmp_path: Path) -> None:
    TREE.write(tmp_path / "tree.json")
    given: Any = {"tree": TREE, "file": tmp_path / "tree.json", "rows": PATHS}[kind]
    y = np.where(np.arange(120) % 3 == 0, Y[:, 1], Y[:, 2])  # a third of them know the family only
    model = HierarchicalClassifier(**QUICK, hierarchy=given).fit(X, y)
    assert model.hierarchy_.sizes == TREE.sizes
    assert (model.predict(X_NEW) == Y).mean() > 0.9
    assert model.score(X_NEW, Y[:, 2]) > 0.9


def test_numbers_come_back_as_numbers_and_what_is_not_there_as_minus_one() -> None:
    y = np.array([[0, 10], [0, 11], [1, 12], [1, 13], [2, -1], [2, -1]])[SPECIES]  # class 2 has nothing below it
    model = HierarchicalClassifier(**QUICK).fit(X, y)
    found = model.predict(X_NEW)
    assert found.dtype.kind == "i"
    assert (found == y).mean() > 0.9
    assert set(found[:, 1].tolist()) == {10, 11, 12, 13, -1}
    assert (model.predict(X_NEW, confidence=1.0) == -1).any()
    mixed = HierarchicalClassifier(**QUICK).fit(X, [[str(a), b] for a, b in y.tolist()]).predict(X_NEW)
    assert {type(value) for value in mixed.flatten().tolist()} == {str, int}


def test_one_level_is_a_plain_classifier() -> None:
    model = HierarchicalClassifier(**QUICK).fit(X, Y[:, 2])
    assert model.predict(X_NEW).shape == (120,)
    assert model.predict_proba(X_NEW).shape == (120, 6)
    assert model.classes_.tolist() == sorted(set(Y[:, 2]))
    assert model.score(X_NEW, Y[:, 2]) > 0.9


def test_a_branch_that_ends_early_is_answered_to_its_end() -> None:
    rows = [["Bird"], ["Reptile", "Snake"], ["Reptile", "Lizard"], ["Mammal", "Cat"], ["Mammal", "Wolf", "Dog"], ["Fish"]]
    model = HierarchicalClassifier(**QUICK).fit(X, [rows[i] for i in SPECIES])
    found = [tuple(name for name in row if name) for row in model.predict(X_NEW).tolist()]
    assert np.mean([said == tuple(rows[i]) for said, i in zip(found, SPECIES, strict=True)]) > 0.9


def test_numbers_of_a_tree_come_back_as_numbers() -> None:
    rows = [[i // 2, 10 + i] for i in range(6)]
    found = HierarchicalClassifier(**QUICK, hierarchy=rows).fit(X, 10 + SPECIES).predict(X_NEW)
    assert found.dtype.kind == "i"
    assert (found == np.array(rows)[SPECIES]).mean() > 0.9
    named = HierarchicalClassifier(**QUICK, hierarchy=[["ab"[i // 3], 10 + i] for i in range(6)]).fit(X, 10 + SPECIES)
    assert {type(value) for value in named.predict(X_NEW[:9], confidence=1.0).flatten().tolist()} <= {str, int}
    assert named.classes_[0].tolist() == ["a", "b"]


def test_names_that_mean_unknown_are_a_list_or_a_text() -> None:
    y = np.where(partly() == "", "?", partly())
    for unknown in (["?", "sp."], "?,sp."):
        assert HierarchicalClassifier(**QUICK, unknown=unknown).fit(X, y).hierarchy_.sizes == (6, 4, 2)
    assert "?" in HierarchicalClassifier(**QUICK, unknown=()).fit(X, [row[2] for row in y]).classes_


# ---- weights, order, randomness ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lht", "marginal", "logistic"])
def test_weights_are_copies_and_the_order_of_rows_does_not_matter(method: str) -> None:
    weights = np.random.default_rng(0).integers(0, 3, 120)
    copies = np.random.default_rng(1).permutation(np.repeat(np.arange(120), weights))
    options = QUICK if method != "logistic" else {"random_state": 0}
    weighted = HierarchicalClassifier(method, **options).fit(X, partly(), sample_weight=weights)
    copied = HierarchicalClassifier(method, **options).fit(X[copies], partly()[copies])
    for a, b in zip(weighted.predict_proba(X_NEW), copied.predict_proba(X_NEW), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_heavy_class_is_answered_more_often() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 4)), np.arange(200) % 2  # nothing to learn
    weights = np.where(y == 1, 7.5, 0.5)
    assert HierarchicalClassifier(**QUICK).fit(x, y, sample_weight=weights).predict(x).mean() > 0.9


def test_nothing_outside_changes() -> None:
    torch.manual_seed(3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    model = HierarchicalClassifier(**QUICK | {"epochs": 1}, n_jobs=2, val=0.2).fit(X, Y)
    model.predict(X, confidence=0.5)
    model.partial_fit(X, Y)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def test_a_device_is_a_name_or_torchs_own() -> None:
    for device in ("cpu", "auto", torch.device("cpu")):
        assert HierarchicalClassifier(**QUICK | {"epochs": 1}, device=device).fit(X, Y).predict(X).shape == Y.shape


def test_the_random_state_decides() -> None:
    first, again, other = (HierarchicalClassifier(**QUICK | {"random_state": seed}).fit(X, Y) for seed in (0, 0, 1))
    a, b, c = (model.predict_proba(X_NEW)[2] for model in (first, again, other))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    state = HierarchicalClassifier(**QUICK | {"random_state": np.random.RandomState(0)})
    assert not np.array_equal(state.fit(X, Y).predict_proba(X)[2], state.fit(X, Y).predict_proba(X)[2])


# ---- partial_fit ---------------------------------------------------------------------------------------------------


def test_it_learns_batch_by_batch() -> None:
    model = HierarchicalClassifier(**QUICK)
    for turn in range(12):
        for part in np.array_split(np.random.default_rng(turn).permutation(120), 3):
            model.partial_fit(X[part], partly()[part], classes=PATHS if not hasattr(model, "model_") else None)
    assert model.score(X_NEW, Y) > 0.9
    assert model.n_iter_ == 36
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


def test_it_goes_on_after_fit_and_after_pickling() -> None:
    model = HierarchicalClassifier(**QUICK).fit(X, Y).partial_fit(X, Y)
    other = pickle.loads(pickle.dumps(model))
    for one in (model, other):
        one.partial_fit(X[:40], Y[:40])
    np.testing.assert_array_equal(model.predict_proba(X)[2], other.predict_proba(X)[2])


def test_a_part_without_labels_teaches_nothing_and_what_was_calibrated_is_gone() -> None:
    model = HierarchicalClassifier(**QUICK, val=0.2).fit(X, Y)
    before = [value.clone() for value in model.model_.state_dict().values()]
    model.partial_fit(X[:5], np.full((5, 3), ""))
    assert all(torch.equal(a, b) for a, b in zip(before, model.model_.state_dict().values(), strict=True))
    assert model.model_.calibration is None


def test_the_first_part_needs_classes_unless_there_is_a_tree() -> None:
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit"):
        HierarchicalClassifier(**QUICK).partial_fit(X, Y)
    model = HierarchicalClassifier(**QUICK, hierarchy=TREE).partial_fit(X[:40], Y[:40])
    assert model.hierarchy_.sizes == TREE.sizes
    with pytest.raises(ValueError, match=re.escape("y row 0: species has no class 'Dodo'")):
        model.partial_fit(X[:1], [["", "", "Dodo"]])
    assert not hasattr(HierarchicalClassifier("logistic"), "partial_fit")


# ---- scikit-learn's tools ------------------------------------------------------------------------------------------


def test_it_is_searched_validated_and_piped() -> None:
    pipe = make_pipeline(StandardScaler(), HierarchicalClassifier(**QUICK | {"epochs": 20}, hierarchy=TREE))
    folds = KFold(3, shuffle=True, random_state=0)
    assert cross_val_score(pipe, X, partly(), cv=folds).min() > 0.8
    assert (cross_val_predict(pipe, X, Y, cv=folds) == Y).mean() > 0.9
    search = GridSearchCV(pipe, {"hierarchicalclassifier__lr": [1e-6, 0.05]}, cv=folds).fit(X, Y)
    assert search.best_params_ == {"hierarchicalclassifier__lr": 0.05}
    assert search.best_estimator_.predict(X_NEW, confidence=0.99).shape == Y.shape


def test_a_flat_one_is_calibrated_by_scikit_learn() -> None:
    model = CalibratedClassifierCV(HierarchicalClassifier(**QUICK), cv=3).fit(X, Y[:, 2])
    assert model.predict_proba(X_NEW).shape == (120, 6)
    assert model.score(X_NEW, Y[:, 2]) > 0.9


def test_sparse_features_are_the_same_features() -> None:
    x = np.where(X > 1, X, 0)
    dense, thin = HierarchicalClassifier(**QUICK).fit(x, Y), HierarchicalClassifier(**QUICK).fit(sparse.csr_array(x), Y)
    np.testing.assert_array_equal(dense.predict_proba(x)[2], thin.predict_proba(sparse.csc_array(x))[2])


@pytest.mark.parametrize("way", ["pickle", "joblib", "deepcopy"])
def test_copies_answer_the_same(fitted: HierarchicalClassifier, way: str, tmp_path: Path) -> None:
    if way == "joblib":
        joblib.dump(fitted, tmp_path / "model.joblib")
        other = joblib.load(tmp_path / "model.joblib")
    else:
        other = pickle.loads(pickle.dumps(fitted)) if way == "pickle" else copy.deepcopy(fitted)
    np.testing.assert_array_equal(other.predict(X_NEW, risk=0.2), fitted.predict(X_NEW, risk=0.2))
    assert not hasattr(clone(fitted), "model_")


def test_a_notebook_shows_the_tree_with_names_that_do_no_harm() -> None:
    plain = HierarchicalClassifier(**QUICK)
    assert "<li>" not in plain._repr_html_()
    model = plain.fit(X[:40], [["a", "<script>"], ["a", "b"]] * 20)
    for page in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "level1 1 › level2 2" in page
        assert "<li>&lt;script&gt;</li>" in page


def test_a_large_tree_is_cut() -> None:
    from torchlht.hierarchy.branches import MOST, branches

    tree = Hierarchy.from_parents([np.arange(10_000) % 100])
    page = branches(tree)
    assert page.count("<li>") < MOST + 200
    assert "more</li>" in page


# ---- keeping -------------------------------------------------------------------------------------------------------


def test_a_saved_one_is_a_run_that_the_command_line_reads(
    fitted: HierarchicalClassifier, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = fitted.save(tmp_path / "run")
    assert {file.name for file in run.iterdir()} == {
        "calibration.json", "config.yaml", "hierarchy.json", "history.csv", "metrics.json", "model.safetensors", "split.json",
    }  # fmt: skip
    np.savez(tmp_path / "new.npz", x=X_NEW)
    main(["predict", str(run), str(tmp_path / "new.npz"), "--risk", "0.2", "--format", "json"])
    said = json.loads(capsys.readouterr().out)
    paths = [tuple(name for name in row if name) for row in fitted.predict(X_NEW, risk=0.2).tolist()]
    assert [tuple(one["answer"]["path"]) for one in said] == paths
    main(["export", str(run), "--to", "torch", "--out", str(tmp_path / "model.pt2")])


def test_a_saved_one_is_measured_and_calibrated_on_other_data(
    fitted: HierarchicalClassifier, embeddings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = HierarchicalClassifier(**QUICK, levels=LEVELS).fit(X, Y)
    run = model.save(tmp_path / "run")
    arrays = np.load(embeddings)
    measured = torchlht.evaluate(run, embeddings, split="test")
    test, species = ~arrays["train"], arrays["classes_species"][arrays["y"][:, 0]]
    assert measured["consistent"]["levels"][-1]["accuracy"] == pytest.approx(
        (model.predict(arrays["x"][test])[:, 2] == species[test]).mean()
    )
    main(["calibrate", str(run), str(embeddings), "--split", "test"])
    assert (run / "calibration.json").is_file()
    for command in (["evaluate"], ["report"], ["calibrate", "--folds", "2"], ["calibrate", "--split", "test"]):
        with pytest.raises(SystemExit):
            main([command[0], str(run), *command[1:]])
        assert "was fitted in Python and does not know its data; lht evaluate" in capsys.readouterr().err


def test_what_was_saved_is_loaded(fitted: HierarchicalClassifier, tmp_path: Path) -> None:
    other = HierarchicalClassifier.load(fitted.save(tmp_path / "run"))
    np.testing.assert_array_equal(other.predict(X_NEW, risk=0.2), fitted.predict(X_NEW, risk=0.2))
    assert other.classes_[2].tolist() == fitted.classes_[2].tolist()
    assert other.n_iter_ == fitted.n_iter_
    assert other.history_[-1]["loss"] == pytest.approx(fitted.history_[-1]["loss"])
    again = clone(other).fit(X, Y)
    assert (again.predict(X_NEW) == fitted.predict(X_NEW)).mean() > 0.9
    other.partial_fit(X, Y).save(tmp_path / "further")
    with pytest.raises(RunError, match="holds a finished run"):
        other.save(tmp_path / "run")
    with pytest.raises(RunError, match="no such run directory"):
        HierarchicalClassifier.load(tmp_path / "nothing")


def test_a_damaged_one_is_refused(fitted: HierarchicalClassifier, tmp_path: Path) -> None:
    run = fitted.save(tmp_path / "run")
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("- str", "- object", 1))
    with pytest.raises(RunError, match=re.escape("config.yaml: labels[0]:")):
        HierarchicalClassifier.load(run)
    (run / "config.yaml").write_text(config)
    (run / "history.csv").write_text("epoch,loss\n1,low\n")
    with pytest.raises(RunError, match=re.escape("history.csv: is damaged")):
        HierarchicalClassifier.load(run)


def test_numbers_and_feature_names_are_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)])
    model = HierarchicalClassifier(**QUICK).fit(frame, SPECIES)
    other = HierarchicalClassifier.load(model.save(tmp_path / "run"))
    assert other.classes_.tolist() == [0, 1, 2, 3, 4, 5]
    assert other.predict(frame).dtype.kind == "i"
    assert other.feature_names_in_.tolist() == frame.columns.tolist()
    signs = HierarchicalClassifier(**QUICK).fit(X, np.where(SPECIES > 2, 1, -1))
    other = HierarchicalClassifier.load(signs.save(tmp_path / "signs"))
    assert other.score(X, np.full(120, -1)) == signs.score(X, np.full(120, -1)) == pytest.approx(0.5, abs=0.1)


def test_a_run_of_the_command_line_is_loaded(embeddings: Path, tmp_path: Path) -> None:
    run = torchlht.train(embeddings, out=tmp_path / "run", epochs=3, quiet=True)
    model = HierarchicalClassifier.load(run.path)
    answers = run.predict(X_NEW)
    assert model.levels_ == list(LEVELS)
    assert model.predict(X_NEW).tolist() == [list(one.names.values()) for one in answers]
    deep = [tuple(name for name in row if name) for row in model.predict(X_NEW, confidence=0.9).tolist()]
    assert deep == [one.answer(confidence=0.9).path for one in answers]


def test_a_run_on_pictures_is_not_loaded(tmp_path: Path, pictures: Path) -> None:
    run = torchlht.train(pictures, out=tmp_path / "run", backbone="small", epochs=1, quiet=True)
    with pytest.raises(RunError, match="takes pictures; an estimator takes features"):
        HierarchicalClassifier.load(run.path)


# ---- wrong input ---------------------------------------------------------------------------------------------------

CONTRADICTION = [["Gulls", "Puffin"], ["Auks", "Puffin"], ["Auks", "Auk"]] * 40
AGAINST, TOO_DEEP = [["Gulls", "Puffins", ""]] * 120, [["Auks"], ["a", "b", "c", "d"]] * 60
WRONG_FITS: dict[str, tuple[dict[str, Any], Any, Any, str]] = {
    "contradiction": ({}, X, CONTRADICTION, "y: row 0: level2 'Puffin' is under 'Gulls' here but under 'Auks' on row 1"),
    "against the tree": ({"hierarchy": TREE}, X, AGAINST, "y row 0: family 'Puffins' is labelled order 'Gulls', but the tree"),
    "ragged": ({"hierarchy": TREE}, X, TOO_DEEP, "y has 4 columns, but the tree has the levels order, family, species"),
    "one class": ({}, X, [["Gulls", "Puffin"]] * 120, "y: only one class, 'Puffin'; a classifier needs at least two"),
    "no label": ({}, X, [["", ""]] * 120, "y: no label of the level level1"),
    "a placeholder": ({}, X, np.where(SPECIES > 2, "unknown", "Puffin"), "a class 'unknown' (60 samples), which looks like"),
    "NaN": ({}, np.where(X > 2, np.nan, X), Y, "Input X contains NaN."),
    "one dimension": ({}, X[:, 0], Y, "Expected 2D array, got 1D array instead"),
    "other lengths": ({}, X, Y[1:], "Found input variables with inconsistent numbers of samples: [120, 119]"),
    "no y": ({}, X, None, "requires y to be passed, but the target y is None"),
    "method": ({"method": "lth"}, X, Y, "unknown method 'lth': did you mean lht?"),
    "epochs": ({"epochs": 0}, X, Y, "epochs is 0: it must be at least 1"),
    "lr": ({"lr": -1.0}, X, Y, "lr is -1.0: it must be above 0"),
    "val": ({"val": 1.5}, X, Y, "val is 1.5: it must be a share from 0 to below 1"),
    "semi": ({"semi": "all"}, X, Y, "unknown semi 'all'"),
    "option": ({"options": {"gama": 1}}, X, Y, "method lht has no option 'gama': did you mean gamma?"),
    "options": ({"options": 3}, X, Y, "options is 3"),
    "levels": ({"levels": ["a", "b"]}, X, Y, "y has 3 columns, but 2 levels are named (a, b)"),
    "hierarchy": ({"hierarchy": "nowhere.csv"}, X, Y, "nowhere.csv: no such file or folder"),
    "random_state": ({"random_state": -1}, X, Y, "seed is -1: it must be a whole number from 0 to 4294967295"),
    "n_jobs": ({"n_jobs": "all"}, X, Y, "n_jobs is 'all': it takes a whole number"),
    "threads": ({"n_jobs": 10**9}, X, Y, "n_jobs is 1000000000: it must be from -1024 to 1024"),
    "device": ({"device": "abacus"}, X, Y, "'abacus', which is not available here"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_FITS)
def test_what_cannot_be_learned_is_a_value_error_with_one_sentence(case: str) -> None:
    how, x, y, sentence = WRONG_FITS[case]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        HierarchicalClassifier(**{**QUICK, **how}).fit(x, y)


def test_wrong_questions_are_value_errors(fitted: HierarchicalClassifier) -> None:
    with pytest.raises(ValueError, match="X has 11 features, but HierarchicalClassifier is expecting 12 features as input"):
        fitted.predict(X_NEW[:, 1:])
    with pytest.raises(ValueError, match="Input X contains infinity"):
        fitted.predict(np.where(X_NEW > 2, np.inf, X_NEW))
    y = Y.astype(object)
    y[7, 2] = "Dodo"
    with pytest.raises(ValueError, match=re.escape("y row 7: level3 has no class 'Dodo'")):
        fitted.score(X_NEW, y)
    with pytest.raises(ValueError, match="no sample has a label to check the answers with"):
        fitted.score(X_NEW, np.full(Y.shape, ""))
    with pytest.raises(ValueError, match="no sample to calibrate on has a label"):
        fitted.calibrate(X_NEW, np.full(Y.shape, ""))
    with pytest.raises(NotFittedError):
        HierarchicalClassifier().predict(X)
    with pytest.raises(NotFittedError):
        HierarchicalClassifier().score(X, Y)


def test_it_is_told_from_the_error_what_the_command_line_would_say() -> None:
    with pytest.raises(ValueError, match="epochs is 0") as raised:
        HierarchicalClassifier(epochs=0).fit(X, Y)
    assert isinstance(raised.value.__cause__, ConfigError)
    assert raised.value.__cause__.in_flags == "--epochs is 0: it must be at least 1"
