"""Answers to people lie on one path of the tree, and probabilities fall along it: every method, every way of asking."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlht import list_methods
from torchlht.answer.backbones import create_backbone
from torchlht.answer.calibration import confidences, fit_calibration, risk_curve
from torchlht.answer.exported.read import Exported
from torchlht.answer.exported.write import describe
from torchlht.answer.model import Model, Predictor
from torchlht.answer.named import Named, Wanted
from torchlht.commands.predict import print_csv, print_json, print_table
from torchlht.data.batches import FeatureSet
from torchlht.heads.method import find_method
from torchlht.heads.prediction import RULES, Prediction, answer_by, consistent_rule, decide, monotone
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.evaluation import measure
from trees import hierarchies, normal, paths, quick, random_hierarchy, random_method, seeds

TREE = random_hierarchy(np.random.default_rng(0), (9, 4, 2))
X = normal(np.random.default_rng(1), 25, 5, scale=2.0).float()


def by_themselves(rng: np.random.Generator, tree: Hierarchy, n: int) -> Prediction:
    return Prediction(tuple(torch.log_softmax(normal(rng, n, size, scale=2.0), dim=1) for size in tree.sizes))


def model_of(name: str, *, calibrated: bool = True) -> Model:
    model = Model(create_backbone("none"), random_method(name, TREE, np.random.default_rng(2)).float(), options={}).eval()
    if calibrated:
        model.calibration = fit_calibration(model.look(X), paths(TREE, np.random.default_rng(3), len(X)), TREE)
    return model


def assert_believable(found: list[Named], tree: Hierarchy = TREE) -> None:
    """On one path, and no class that is mentioned, alternatives included, is more probable than its parent."""
    for named in found:
        assert named.consistent
        assert [level.label for level in named.levels] == list(named.levels[-1].path)
        shares = [level.probability for level in named.levels]
        assert shares == sorted(shares, reverse=True)
        every = {level.level: {c.label: c.probability for c in level.candidates} for level in named.levels}
        for k, parents in enumerate(tree.parents):
            for child, parent in enumerate(parents):
                below, above = every[tree.levels[k]], every[tree.levels[k + 1]]
                assert below[tree.classes[k][child]] <= above[tree.classes[k + 1][parent]]
        for threshold in (0.0, 0.3, 0.6, 0.9):
            answer = named.answer(confidence=threshold)
            assert list(answer.path_probabilities) == sorted(answer.path_probabilities, reverse=True)
            assert list(answer.path) == [level.label for level in named.levels][: len(answer.path)]
            if answer.undecided and answer.probability is not None:
                assert all(one.probability <= answer.probability for one in answer.runners_up)


# ---- probabilities that fall ---------------------------------------------------------------------------------------


@quick
@given(tree=hierarchies(), seed=seeds, rule=st.sampled_from([name for name, one in RULES.items() if one.consistent]))
def test_a_probability_is_capped_at_those_above_it_and_the_answer_stays(tree: Hierarchy, seed: int, rule: str) -> None:
    said = by_themselves(np.random.default_rng(seed), tree, 4)
    found = answer_by(said, tree, rule)
    assert torch.equal(found.chosen(), decide(said, tree, rule).chosen())
    for k in range(len(tree)):
        for n in range(4):
            for c in range(tree.sizes[k]):
                least = min(float(said.log_probs[j][n, tree.ancestors(j, of=k)[c]]) for j in range(k, len(tree)))
                assert float(found.log_probs[k][n, c]) == least


@pytest.mark.parametrize("rule", ["own", "argmax"])
def test_levels_that_may_disagree_keep_their_probabilities(rule: str) -> None:
    said = by_themselves(np.random.default_rng(0), TREE, 50)
    assert all(torch.equal(a, b) for a, b in zip(answer_by(said, TREE, rule).log_probs, said.log_probs, strict=True))


def test_the_rule_for_people_is_a_methods_own_only_if_that_is_a_path() -> None:
    assert {name: consistent_rule(name) for name in RULES} == {name: name for name in RULES} | {"own": "path", "argmax": "path"}
    assert {name: model_of(name, calibrated=False).rule for name in ("lht", "soft-labels", "hiclass")} == {
        "lht": "path",
        "soft-labels": "backtrack",
        "hiclass": "top_down",
    }


# ---- every method --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_methods())
@pytest.mark.parametrize("calibrated", [False, True], ids=["raw", "calibrated"])
def test_every_method_answers_along_one_path(name: str, calibrated: bool) -> None:
    model = model_of(name, calibrated=calibrated)
    assert_believable(model.predict(X, top=9))
    if calibrated:
        some = [f"{TREE.levels[k]}/{TREE.classes[k][k]}" for k in range(2)]
        assert_believable(model.predict(X, top=9, exclude=some))
    found = measure(model.method, FeatureSet(X, paths(TREE, np.random.default_rng(4), len(X))), TREE, shown=model.rule)
    assert found["consistent"]["inconsistency"] == 0
    assert found["consistent"]["rule"] == consistent_rule(find_method(name).cls.rule)


def test_the_methods_own_answers_are_those_from_before() -> None:
    model = model_of("multihead")
    assert model.calibration is not None
    sure, found = model.calibration.apply(model.look(X)), model.predict(X, rule="own")
    assert not all(named.consistent for named in found)
    for k in TREE.top_down:
        at = [named[TREE.levels[k]] for named in found]
        assert [one.label for one in at] == [TREE.classes[k][i] for i in sure.log_probs[k].argmax(dim=1)]
        torch.testing.assert_close(torch.tensor([one.probability for one in at]), sure.probs(k).max(dim=1).values)


def test_what_is_printed_lies_on_one_path(capsys) -> None:
    found = model_of("multihead").predict(X, top=1)
    print_csv(found, Wanted())
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    levels = [TREE.levels[k] for k in TREE.top_down]
    for row in rows:
        shares = [float(row[f"{level}_probability"]) for level in levels]
        assert row["consistent"] == "true"
        assert shares == sorted(shares, reverse=True)
    print_json(found, Wanted(0.5, "confidence 0.5"))
    assert all(one["consistent"] and one["answer"]["rule"] == "path" for one in json.loads(capsys.readouterr().out))
    print_table(found, Wanted())
    assert "disagree" not in capsys.readouterr().out


# ---- promises ------------------------------------------------------------------------------------------------------


def test_a_risk_is_measured_on_the_probabilities_that_answers_have() -> None:
    said = by_themselves(np.random.default_rng(5), TREE, 300)
    labels = decide(said, TREE, "path").chosen()
    labels[:150] = paths(TREE, np.random.default_rng(6), 150)
    calibration = fit_calibration(said, labels, TREE)
    shown = answer_by(calibration.apply(said), TREE, "path")
    expected = risk_curve(confidences(shown).double().numpy(), shown.chosen().numpy(), labels.numpy(), TREE)
    found = calibration.risks["path"]
    assert found.to_dict() == expected.to_dict()
    uncapped = decide(calibration.apply(said), TREE, "path")
    before = risk_curve(confidences(uncapped).double().numpy(), uncapped.chosen().numpy(), labels.numpy(), TREE)
    assert found.to_dict() != before.to_dict()
    assert (found.weighted <= before.weighted).all()  # so a promise made before the cap holds with it


# ---- exported files ------------------------------------------------------------------------------------------------


class Echo(Exported):
    """Says what a model says."""

    def __init__(self, model: Model, metadata: dict[str, Any]) -> None:
        super().__init__(metadata, "echo")
        self.model = model

    def run(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.model.look(x).log_probs


def exported(model: Model, asked: Wanted, *, earlier: bool) -> Predictor:
    metadata = describe(model, model.look(X), asked)
    if earlier:
        metadata["rule"] = metadata.pop("own_rule")
    return Echo(model, json.loads(json.dumps(metadata)))


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "earlier"])
def test_an_exported_file_answers_as_the_run(earlier: bool) -> None:
    for name in ("multihead", "soft-labels"):
        model = model_of(name)
        file = exported(model, Wanted(0.5, "confidence 0.5"), earlier=earlier)
        assert file.rule == model.rule
        assert file.predict(X) == model.predict(X)
        assert file.predict(X, rule="own") == model.predict(X, rule="own")


def test_an_earlier_file_keeps_the_rule_its_promise_was_made_for() -> None:
    model = model_of("multihead")
    assert exported(model, Wanted(0.5, "risk 0.1"), earlier=True).rule == "own"
    assert exported(model, Wanted(0.5, "risk 0.1"), earlier=False).rule == "path"


def test_capping_keeps_what_a_prediction_carries() -> None:
    said = dataclasses.replace(by_themselves(np.random.default_rng(7), TREE, 3), sigmoid=(0,))
    found = monotone(decide(said, TREE, "path"), TREE)
    assert found.sigmoid == (0,)
    assert found.scores is not None
