"""What an exported file holds, and every way in which one can be wrong. Nothing is exported here: that takes seconds."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from torchlht.answer.backbones import create_backbone
from torchlht.answer.calibration import Calibration, fit_calibration
from torchlht.answer.exported import write
from torchlht.answer.exported.read import Exported, OnnxModel, parse, quietly, read_exported
from torchlht.answer.exported.write import (
    FORMATS,
    Written,
    check_rule,
    describe,
    export,
    output_names,
    samples,
)
from torchlht.answer.model import Model
from torchlht.answer.named import Wanted
from torchlht.commands.export import beside, summary
from torchlht.errors import ConfigError, HierarchyError, LHTError, MissingExtraError, RunError, first_line
from torchlht.heads.method import create_method, find_method, list_methods
from torchlht.hierarchy.tree import Hierarchy
from trees import paths, random_hierarchy, random_method

TREE = random_hierarchy(np.random.default_rng(0), (6, 3, 2))


def described(model: Model, asked: Wanted | None = None) -> dict[str, Any]:
    return describe(model, model.look(samples(model, 3)), asked or Wanted())


class Echo(Exported):
    """Says what a function says."""

    def __init__(self, model: Model, says: Callable[[Tensor], Sequence[Tensor]]) -> None:
        super().__init__(described(model), "echo")
        self.says = says

    def run(self, x: Tensor) -> Sequence[Tensor]:
        return self.says(x)


def model_of(name: str = "multihead", backbone: str = "none") -> Model:
    network = create_backbone(backbone)
    method = random_method(name, TREE, np.random.default_rng(0), network.num_features or 5).float()
    return Model(network, method, options={"width": 12}).eval()


def calibrated(model: Model) -> Calibration:
    x = samples(model, 60)
    return fit_calibration(model.look(x), paths(TREE, np.random.default_rng(0), 60), TREE, source="60 samples")


def again(model: Model, asked: Wanted | None = None) -> Exported:
    """A model's description through JSON and back."""
    text = json.dumps(described(model, asked), ensure_ascii=False, allow_nan=False)
    found = Echo(model, lambda x: model.look(x).log_probs)
    Exported.__init__(found, parse(text, "file"), "file")
    return found


# ---- what is kept --------------------------------------------------------------------------------------------------


def test_everything_but_the_network_survives_the_file():
    model = model_of()
    model.calibration = calibrated(model)
    found = again(model, Wanted(0.83, "risk 0.05"))
    assert found.hierarchy == TREE
    assert found.preprocess is None
    assert found.in_features == 5
    assert found.wanted == Wanted(0.83, "risk 0.05")
    assert found.calibration is not None
    assert found.calibration.to_dict(TREE) == model.calibration.to_dict(TREE)
    assert found.metadata["temperatures"] == list(model.calibration.temperatures)
    x = torch.randn(4, 5).numpy()
    assert found.predict(x) == model.predict(x)


def test_a_model_on_pictures_keeps_how_they_are_prepared():
    model = model_of("flat", "small")
    found = again(model)
    assert found.preprocess == model.preprocess
    assert found.wanted == Wanted()
    assert found.calibration is None
    assert found.metadata["input"] == {"kind": "picture", "shape": ["batch", 3, 56, 56]}
    assert found.metadata["temperatures"] == [1.0, 1.0, 1.0]
    assert found.metadata["outputs"] == list(TREE.levels)
    assert found.metadata["order"] == "fine first"


def test_names_of_any_kind_survive():
    tree = Hierarchy(levels=["Ärt", "input"], classes=[["a [b]", "ü\n", "日本"], ['"', "x"]], parents=[[0, 1, 1]])
    assert Hierarchy.from_dict(json.loads(json.dumps(tree.to_dict(), ensure_ascii=False)), "file") == tree
    assert output_names(tree) == ["Ärt", "input level"]


@pytest.mark.parametrize(("name", "rule"), [("hiclass", "top_down"), ("soft-labels", "backtrack"), ("lht", "argmax")])
def test_the_own_way_of_answering_is_a_rule(name: str, rule: str):
    assert find_method(name).cls.rule == described(model_of(name))["own_rule"] == rule
    assert described(model_of(name))["rule"] == ("path" if rule == "argmax" else rule)


@pytest.mark.parametrize("name", list_methods())
def test_a_file_answers_as_the_method_does(name: str):
    model = model_of(name)
    found, x = again(model), torch.randn(50, 5)
    assert torch.equal(found.look(x).chosen(), model.look(x).chosen())


@pytest.mark.parametrize(("name", "fine", "coarse"), [("hrn", "softmax", "sigmoid"), ("c-hmcnn", "sigmoid", "sigmoid")])
def test_the_kinds_of_probabilities_are_kept_per_level(name: str, fine: str, coarse: str):
    model = model_of(name)
    assert described(model)["kinds"] == [fine, coarse, coarse]
    model.calibration = calibrated(model)
    assert described(model)["kinds"] == [fine, coarse, coarse]
    found = again(model).calibration
    assert found is not None
    assert found.kinds == model.calibration.kinds


def test_a_file_of_the_first_format_scales_all_levels_alike():
    model = model_of("hrn")
    model.calibration = dataclasses.replace(calibrated(model), kinds=("sigmoid",) * 3)  # as it was found then
    values = described(model)
    del values["kinds"]
    for level in values["calibration"]["levels"]:
        del level["kind"]
    values |= {"format": 1, "kind": "sigmoid"}
    values["calibration"]["kind"] = "sigmoid"
    found = Echo(model, lambda x: model.look(x).log_probs)
    Exported.__init__(found, parse(json.dumps(values), "file"), "file")
    assert found.calibration is not None
    assert found.calibration.kinds == ("sigmoid",) * 3
    x = torch.randn(4, 5).numpy()
    assert found.predict(x) == model.predict(x)


# ---- what is refused -----------------------------------------------------------------------------------------------


def without(*keys: str) -> dict[str, Any]:
    kept = described(model_of())
    inner = kept
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    return kept


@pytest.mark.parametrize("keys", [("hierarchy",), ("hierarchy", "levels"), ("preprocess",), ("rule",), ("input", "shape")])
def test_metadata_that_are_not_whole(keys: tuple[str, ...]):
    with pytest.raises(RunError, match=r"birds.onnx: its metadata is incomplete .*export it again"):
        OnnxModel(None, without(*keys), "birds.onnx")


def test_a_faulty_tree_is_named_with_its_file():
    kept = described(model_of())
    kept["hierarchy"]["levels"][0]["parents"][0] = 9
    with pytest.raises(HierarchyError, match=r"birds.onnx: .*outside 0…2"):
        OnnxModel(None, kept, "birds.onnx")


def test_a_rule_that_only_a_newer_version_knows():
    kept = described(model_of()) | {"rule": "bottom_up"}
    with pytest.raises(RunError, match=r"birds.onnx: its metadata is incomplete .*unknown rule 'bottom_up'"):
        OnnxModel(None, kept, "birds.onnx")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x"}', "3"])
def test_damaged_metadata(text: str):
    with pytest.raises(RunError, match="f: its metadata is damaged"):
        parse(text, "f")


def test_metadata_of_a_later_format():
    with pytest.raises(RunError, match=r"written by torchlht 9.1 in format 4; update torchlht"):
        parse('{"format": 4, "torchlht": "9.1"}', "f")


def foreign_onnx(path: Path) -> None:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    other = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [other])
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)


def zipped(path: Path, **files: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"archive/extra/{name}.json", text)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.onnx", lambda p: None, "no such file; write one with lht export RUN"),
        ("a.pt2", lambda p: None, "no such file"),
        ("a.onnx", lambda p: p.mkdir(), "no such file"),
        ("a.onnx", lambda p: p.write_text(""), "not a readable ONNX file"),
        ("a.onnx", lambda p: p.write_text("hello " * 9), "not a readable ONNX file"),
        ("a.pt2", lambda p: p.write_text("hello " * 9), r"not a readable torch.export program"),
        ("a.onnx", foreign_onnx, "this ONNX file was not written by lht export"),
        ("a.pt2", zipped, r"this .pt2 file was not written by lht export"),
        ("a.pt2", lambda p: zipped(p, torchlht="{"), "is damaged"),
        ("a.pt2", lambda p: zipped(p, torchlht='{"format": 1}'), r"not a readable torch.export program"),
        ("a.PNG", lambda p: p.write_text(""), r"their names end in .onnx or .pt2"),
    ],
)
def test_files_that_are_something_else(
    tmp_path: Path, name: str, make: Callable[[Path], None], message: str, capfd: pytest.CaptureFixture[str]
):
    path = tmp_path / name
    make(path)
    with pytest.raises(RunError, match=message) as raised:
        read_exported(path)
    assert str(raised.value).startswith(str(path))
    assert capfd.readouterr() == ("", "")


def test_a_missing_package_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"reading .*a.onnx needs an optional package: .*pip install .*\[export\]"):
        read_exported(tmp_path / "a.onnx")
    with pytest.raises(MissingExtraError, match="exporting to ONNX needs"):
        export(tmp_path, tmp_path / "a.onnx")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"run": "nowhere"}, RunError, "nowhere: no such run directory"),
        ({"run": "."}, RunError, r"not a complete run, config.yaml"),
        ({"out": "a.bin"}, ConfigError, r"out is .*a.bin: its name must end in .onnx"),
        ({"out": "a.pt2", "to": "onnx"}, ConfigError, r"end in .onnx"),
        ({"out": "a.onnx", "to": "torch"}, ConfigError, r"end in .pt2"),
        ({"out": "folder.onnx"}, ConfigError, "a folder: name a file"),
        ({"risk": 0.05}, ConfigError, "risk needs a calibrated run"),
        ({"confidence": 1.5}, ConfigError, "confidence is 1.5"),
        ({"confidence": 0.9, "risk": 0.05}, ConfigError, "pass one of them"),
    ],
)
def test_exports_that_are_refused_before_anything_is_done(
    tmp_path: Path, options: dict[str, Any], error: type[LHTError], message: str
):
    (tmp_path / "folder.onnx").mkdir()
    run = tmp_path / options.pop("run", "run")
    if run.name == "run":
        model_of().save_pretrained(run)
    with pytest.raises(error, match=message):
        export(run, tmp_path / options.pop("out", "a.onnx"), **options)
    assert {entry.name for entry in tmp_path.iterdir()} <= {"run", "folder.onnx"}


# ---- whole or not at all -------------------------------------------------------------------------------------------


def tampered(by: float) -> Callable[[Model, Tensor], Sequence[Tensor]]:
    return lambda model, x: [(log_p.exp() + by).log() for log_p in model.look(x).log_probs]


@pytest.mark.parametrize(("by", "fine"), [(0.0, True), (2e-5, True), (3e-4, False), (float("nan"), False)])
def test_a_file_that_says_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: float, fine: bool):
    model, path = model_of(), tmp_path / "a.onnx"
    model.save_pretrained(tmp_path / "run")
    path.write_text("before")
    echo = Echo(model, lambda x: tampered(by)(model, x))
    monkeypatch.setattr(write, "traced", lambda model: None)
    monkeypatch.setitem(FORMATS, "onnx", (lambda program, model, text, path: path.write_text("after"), lambda path: echo))
    if fine:
        assert export(tmp_path / "run", path).difference == pytest.approx(by, abs=1e-6)
    else:
        with pytest.raises(RunError, match=r"a.onnx: not written: exported, method multihead on backbone none differs by"):
            export(tmp_path / "run", path)
    assert path.read_text() == ("after" if fine else "before")
    assert {entry.name for entry in tmp_path.iterdir()} == {"run", "a.onnx"}


def test_what_an_exporter_raises_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(model: Model) -> None:
        print("pages and pages")
        raise RuntimeError("\nno such operator\nand pages more")

    monkeypatch.setattr(write, "traced", fails)
    model_of().save_pretrained(tmp_path / "run")
    for name in ("a.onnx", "a.pt2"):
        with pytest.raises(RunError, match=r"method multihead on backbone none cannot be exported \(no such operator\)$"):
            export(tmp_path / "run", tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_a_method_that_answers_in_a_way_no_rule_is_cannot_be_exported():
    for name in list_methods():
        model = model_of(name)
        check_rule(model, model.look(samples(model, 50)))
    model = model_of("flat")
    said = model.look(samples(model, 50))
    least = torch.stack([log_p.argmin(dim=1) for log_p in said.log_probs], dim=1)
    with pytest.raises(RunError, match="method flat answers by a rule that exported files do not support"):
        check_rule(model, dataclasses.replace(said, choice=least))


def test_a_file_that_fails_when_it_runs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails_at_seven(x: Tensor) -> Sequence[Tensor]:
        if len(x) == 7:
            raise RuntimeError("a batch of 3 was expected")
        return model.look(x).log_probs

    model = model_of()
    model.save_pretrained(tmp_path / "run")
    monkeypatch.setattr(write, "traced", lambda model: None)
    monkeypatch.setitem(FORMATS, "onnx", (lambda *_: None, lambda path: Echo(model, fails_at_seven)))
    with pytest.raises(RunError, match=r"cannot be exported \(a batch of 3 was expected\)"):
        export(tmp_path / "run", tmp_path / "a.onnx")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_inputs_to_check_with_are_on_the_scale_of_the_features():
    method = create_method("lht", 4, TREE, width=8)
    norm = method.neck.layers[0]
    norm.running_mean.fill_(100.0)
    norm.running_var.fill_(1e-4)
    x = samples(Model(create_backbone("none"), method, options={}).eval(), 500)
    assert x.mean().item() == pytest.approx(100, abs=0.01)
    assert x.std().item() == pytest.approx(0.01, rel=0.1)


# ---- being quiet, and saying it ------------------------------------------------------------------------------------


def test_quiet_blocks_say_nothing_and_hide_no_error(capfd: pytest.CaptureFixture[str]):
    def noisy() -> None:
        print("out")
        print("err", file=sys.stderr)
        logging.getLogger("torch").critical("log")
        warnings.warn("warning", stacklevel=1)
        raise ValueError("heard")

    before = logging.root.manager.disable
    with pytest.raises(ValueError, match="heard"), quietly():
        noisy()
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == before
    assert first_line(ValueError("")) == "ValueError"
    assert LHTError(f"x ({first_line(ValueError('unset the `HF_HUB_OFFLINE` variable'))})").in_flags == (
        "x (unset the 'HF_HUB_OFFLINE' variable)"
    )


def test_a_run_is_exported_beside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runs" / "birds.v2").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert beside("runs/birds.v2", ".onnx") == Path("runs/birds.v2.onnx")
    assert beside("runs/birds.v2/", ".pt2") == Path("runs/birds.v2.pt2")
    assert beside("someone/birds", ".onnx") == Path("birds.onnx")
    monkeypatch.chdir(tmp_path / "runs" / "birds.v2")
    assert beside(".", ".onnx") == tmp_path / "runs" / "birds.v2.onnx"


def test_the_summary_says_what_is_in_the_file(tmp_path: Path):
    path = tmp_path / "a.onnx"
    path.write_bytes(bytes(1_234_567))
    model = model_of()
    plain = summary(Written(path, described(model), 3.1e-7))
    levels = "level1 2 › level2 3 › level3 6"
    assert plain == f"{path} · 1.2 MB · {levels} · probabilities agree with the run to 3e-07 · not calibrated · no threshold"
    model.calibration = calibrated(model)
    said = summary(Written(path, described(model, Wanted(0.8312, "risk 0.05")), 0.0))
    assert said.endswith("to 0e+00 · calibrated · threshold 0.831 (risk 0.05)")
