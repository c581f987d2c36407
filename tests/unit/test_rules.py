"""The register of rules: what one decorated function reaches, and what a wrong name or an older calibration says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlht.answer.backbones import create_backbone
from torchlht.answer.calibration import Calibration, fit_calibration
from torchlht.answer.model import Model
from torchlht.cli import main, parse
from torchlht.errors import ConfigError
from torchlht.heads.prediction import RULES, Prediction, ancestors_of, decide, rule
from torchlht.hierarchy.tree import Hierarchy
from trees import normal, paths, random_hierarchy, random_method

TREE = random_hierarchy(np.random.default_rng(0), (6, 3, 2))


def said(n: int = 200) -> Prediction:
    rng = np.random.default_rng(1)
    return Prediction(tuple(torch.log_softmax(normal(rng, n, size), dim=1) for size in TREE.sizes))


def fitted() -> Calibration:
    return fit_calibration(said(), paths(TREE, np.random.default_rng(2), 200), TREE)


@pytest.fixture
def last(monkeypatch: pytest.MonkeyPatch) -> str:
    """A rule that always answers the last of the finest classes."""
    monkeypatch.setitem(RULES, "last", RULES["own"])  # so that it is gone afterwards

    @rule("last", "always the last class")
    def choose(log_probs: tuple[Tensor, ...], hierarchy: Hierarchy) -> Tensor:
        return ancestors_of(torch.full((len(log_probs[0]),), hierarchy.sizes[0] - 1), hierarchy)

    return "last"


def test_a_function_with_a_line_above_it_is_a_rule_everywhere(last: str, capsys) -> None:
    assert decide(said(3), TREE, last).chosen().tolist() == [list(TREE.path(5))] * 3
    assert parse("evaluate", ["run", "--rule", last]).rule == last
    assert parse("predict", ["run", "x.npz", "--rule", last]).rule == last
    assert parse("compare", ["x", "--out", "y", "--rules", "crm", last]).rules == ("crm", last)
    assert last in fitted().risks
    assert set(fitted().risks) == set(RULES)
    main(["methods", "f*"])
    assert "last, always the last class" in " ".join(capsys.readouterr().out.split())


def test_a_rule_that_ranks_says_by_what() -> None:
    for name, one in RULES.items():
        found = decide(said(5), TREE, name)
        if one.scores is None:
            assert found.scores is None, name
        else:
            assert one.choose is not None
            torch.testing.assert_close(found.scores, one.scores(said(5).log_probs, TREE))
            assert torch.equal(found.chosen(), one.choose(said(5).log_probs, TREE))


def test_every_rule_says_what_it_means_in_a_line() -> None:
    assert all(one.meaning and "\n" not in one.meaning for one in RULES.values())


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "nowhere", "--rule", "crn"],
        ["predict", "nowhere", "nothing.jpg", "--rule", "crn"],
        ["train", "nowhere.csv", "--rules", "path", "crn"],
        ["compare", "nowhere.csv", "--out", "nowhere", "--rules", "crn"],
    ],
    ids=lambda words: words[0],
)
def test_a_wrong_name_is_told_before_anything_is_looked_for(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("lht: unknown rule 'crn': did you mean crm? (known: own, argmax")


# ---- older calibrations --------------------------------------------------------------------------------------------


def test_a_calibration_from_before_a_rule_says_what_to_do_and_serves_all_others(last: str, tmp_path: Path) -> None:
    values = fitted().to_dict(TREE)
    del values["risk"][last]
    (tmp_path / "calibration.json").write_text(json.dumps(values))
    old = Calibration.read(tmp_path)
    assert old is not None
    with pytest.raises(ConfigError, match="risk was not measured for rule=last: run lht calibrate RUN again"):
        old.threshold(0.9, last)
    assert old.threshold(0.9, "crm") == fitted().threshold(0.9, "crm")
    with pytest.raises(ConfigError, match="unknown rule 'lats': did you mean last"):
        old.threshold(0.9, "lats")
    model = Model(create_backbone("none"), random_method("flat", TREE, np.random.default_rng(0), 5).float(), options={})
    model.calibration = old
    (named,) = model.predict(torch.zeros(1, 5), rule=last)
    assert named.answer(confidence=0.0).label == TREE.classes[0][5]
    with pytest.raises(ConfigError, match="lht calibrate RUN again"):
        named.answer(risk=0.9)
