"""Exported files against the runs they came from: every method, every level, any batch; and without torch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
import torch
from packaging.requirements import Requirement
from PIL import Image
from torch import Tensor

from torchlht import list_methods, load, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.calibration import fit_calibration
from torchlht.answer.exported.read import OnnxModel, read_exported
from torchlht.answer.exported.write import export, samples
from torchlht.answer.model import Model, Predictor
from torchlht.cli import main
from torchlht.commands.export import ExportArgs, run_export
from torchlht.data.batches import FeatureSet
from torchlht.data.preparing import Preprocess
from torchlht.errors import ConfigError, LHTError, RunError
from torchlht.heads.method import method_options
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.training import learn_novelty
from trees import random_method

EXAMPLE = Path(__file__).parents[2] / "examples" / "onnx_predict.py"
BATCHES = (1, 7, 32)  # traced with 3, checked with 1, 2 and 7
TREE = Hierarchy(
    levels=("linear", "family", "Überart"),  # the first is what exporters call a layer's output
    classes=[[f"species {i}" for i in range(9)], ["Gulls", "Auks", "Terns", "日本"], ["[Birds]", "Others"]],
    parents=[[0, 0, 1, 1, 1, 2, 2, 3, 0], [0, 0, 1, 1]],
)


class Case(NamedTuple):
    """A run, and what it was exported to."""

    run: Path
    model: Model
    file: Path
    risk: float | None


def saved(folder: Path, name: str, backbone: str = "none", *, calibrated: bool = True, size: int | None = None) -> Model:
    """A run with random weights; calibrated on labels drawn from its own probabilities."""
    network = create_backbone(backbone, pretrained=False)
    method = random_method(name, TREE, np.random.default_rng(3), network.num_features or 6).float()
    options = {"width": 12} if "width" in method_options(name) else {}
    model = Model(network, method, options=options, preprocess=Preprocess(size, size + 4) if size else None).eval()
    if calibrated:
        said = model.look(samples(model, 300))
        leaves = torch.multinomial(torch.softmax(said.log_probs[0], dim=1), 1, generator=torch.Generator().manual_seed(0))
        labels = torch.stack([torch.from_numpy(TREE.ancestors(k))[leaves[:, 0]] for k in range(len(TREE))], dim=1)
        model.calibration = fit_calibration(said, labels, TREE)
        model.novelty = learn_novelty(
            model, FeatureSet(samples(model, 300), labels), FeatureSet(samples(model, 100), labels[:100])
        )
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Case]]:
    """Calibrated runs on features by method, each exported to ONNX once, with the threshold of a risk."""
    made: dict[str, Case] = {}
    root = tmp_path_factory.mktemp("exports")
    torch.set_num_threads(1)

    def case(name: str) -> Case:
        if name not in made:
            model = saved(root / name, name)
            assert model.calibration is not None
            least = model.calibration.risks[model.rule].lowest_risk()
            risk = None if least is None else round(min(1.05 * least, 0.99), 3)
            file = export(root / name, root / f"{name}.onnx", risk=risk).path
            made[name] = Case(root / name, model, file, risk)
        return made[name]

    yield case
    expected = {entry for name in made for entry in (name, f"{name}.onnx")}
    assert {entry.name for entry in root.iterdir()} == expected  # one file each, and nothing beside it


@pytest.fixture(scope="module")
def pictures_case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run on pictures that is not calibrated, exported with the threshold of a confidence."""
    root = tmp_path_factory.mktemp("pictures")
    model = saved(root / "run", "lht", "small", calibrated=False)
    return Case(root / "run", model, export(root / "run", root / "a.onnx", confidence=0.5).path, None)


def assert_same(model: Predictor, other: Predictor, make: Callable[[int], Tensor]) -> None:
    for n in BATCHES:
        x = make(n)
        ours, theirs = model.look(x), other.look(x)
        assert torch.equal(ours.chosen(), theirs.chosen())
        for k, (a, b) in enumerate(zip(ours.log_probs, theirs.log_probs, strict=True)):
            assert b.shape == (n, TREE.sizes[k])
            torch.testing.assert_close(b.exp(), a.exp(), atol=1e-4, rtol=0)
        if model.novelty is not None:
            assert other.novelty is not None
            torch.testing.assert_close(other.novelty.as_far(theirs), model.novelty.as_far(ours), atol=0.02, rtol=0)


def assert_on_one_path(model: Predictor, x: Tensor) -> None:
    """By default the levels of an answer lie on one path, rolled up or not, and probabilities fall along it."""
    for named in model.predict(x):
        shares = [level.probability for level in named.levels]
        assert named.consistent
        assert shares == sorted(shares, reverse=True)
        rolled_up = list(named.answer_at(model.wanted).path)
        assert rolled_up == [one.label for one in named.levels][: len(rolled_up)]


# ---- the same as the run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_methods())
def test_every_method_says_the_same_in_onnx(name: str, cases: Callable[[str], Case]):
    case = cases(name)
    found = OnnxModel.read(case.file)
    assert_same(case.model, found, lambda n: samples(case.model, n))
    assert_on_one_path(found, samples(case.model, 32))


@pytest.mark.parametrize("name", ["lht", "c-hmcnn", "hiclass"])
def test_programs_of_torch_say_the_same(name: str, cases: Callable[[str], Case], tmp_path: Path):
    case = cases(name)
    found = read_exported(export(case.run, tmp_path / "a.pt2", confidence=0.7).path)
    assert_same(case.model, found, lambda n: samples(case.model, n))
    assert found.wanted == (0.7, "confidence 0.7")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.pt2"]
    x = samples(case.model, 5)
    assert [str(one) for one in found.predict(x)] == [str(one) for one in case.model.predict(x)]
    assert_on_one_path(found, x)


@pytest.mark.parametrize("form", ["onnx", "torch"])
def test_a_model_on_pictures_says_the_same(form: str, pictures_case: Case, tmp_path: Path):
    file = pictures_case.file if form == "onnx" else export(pictures_case.run, tmp_path / "a.pt2").path
    found, noise = read_exported(file), torch.Generator().manual_seed(5)
    assert found.preprocess == pictures_case.model.preprocess
    assert_same(pictures_case.model, found, lambda n: torch.randn(n, 3, 56, 56, generator=noise))


def test_a_timm_network_at_another_size_says_the_same(tmp_path: Path):
    model = saved(tmp_path / "run", "multihead", "test_vit", calibrated=False, size=64)
    found = read_exported(export(tmp_path / "run", tmp_path / "a.onnx").path)
    assert_same(model, found, lambda n: torch.randn(n, 3, 64, 64, generator=torch.Generator().manual_seed(n)))


@pytest.mark.parametrize("name", ["lht", "hrn", "soft-labels", "hiclass"])
def test_answers_are_those_of_the_calibrated_run(name: str, cases: Callable[[str], Case]):
    case = cases(name)
    found, x = OnnxModel.read(case.file), samples(case.model, 90)
    assert case.risk is not None
    assert found.wanted.promise == f"risk {case.risk:g}"
    assert found.hierarchy == TREE
    levels = set()
    for ours, theirs in zip(case.model.predict(x), found.predict(x, batch_size=40), strict=True):
        for a, b in zip(ours.levels, theirs.levels, strict=True):
            assert (b.level, b.label, b.path) == (a.level, a.label, a.path)
            assert b.probability == pytest.approx(a.probability, abs=1e-4)
        mine, its = ours.answer(risk=case.risk), theirs.answer_at(found.wanted)
        levels.add(its.level)
        if min(abs(level.probability - found.wanted.threshold) for level in ours.levels) > 1e-4:  # no answer hangs on rounding
            assert (its.label, its.level, its.path, its.promise) == (mine.label, mine.level, mine.path, mine.promise)
    assert len(levels) > 1  # the threshold rolls some of them up


def test_restrictions_and_rules_work_as_in_the_run(cases: Callable[[str], Case]):
    case = cases("lht")
    found, x = OnnxModel.read(case.file), samples(case.model, 20)
    for ours, theirs in zip(
        case.model.predict(x, only=["Gulls", "Auks"], rule="crm"),
        found.predict(x, only=["Gulls", "Auks"], rule="crm"),
        strict=True,
    ):
        assert [level.label for level in theirs.levels] == [level.label for level in ours.levels]
    assert found.predict(x[:0]) == case.model.predict(x[:0]) == []


# ---- the file itself -----------------------------------------------------------------------------------------------


def test_the_file_is_plain_onnx_and_tells_nothing_of_the_computer(cases: Callable[[str], Case], tmp_path: Path):
    case = cases("lht")
    proto = onnx.load(case.file, load_external_data=False)
    onnx.checker.check_model(proto)
    assert [value.name for value in proto.graph.input] == ["input"]
    assert [value.name for value in proto.graph.output] == [*TREE.levels, "distance"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert [entry.key for entry in proto.metadata_props] == ["torchlht"]
    assert all(node.domain == "" for node in proto.graph.node)
    program = export(case.run, tmp_path / "a.pt2").path
    for file in (case.file, program):
        assert not [
            place
            for place in (str(Path(torch.__file__).parent), str(EXAMPLE.parents[1]))
            if place.encode() in file.read_bytes()
        ]


def test_the_command_says_one_line_and_the_next_step(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    saved(tmp_path / "birds", "flat")
    run_export(ExportArgs(run=str(tmp_path / "birds"), confidence=0.9))
    out, err = capfd.readouterr()
    first, second = out.splitlines()
    file = tmp_path / "birds.onnx"
    assert first.startswith(f"{file} · 0.1 MB · Überart 2 › family 4 › linear 9 · probabilities agree with the run to ")
    assert first.endswith("· calibrated · threshold 0.9 (confidence 0.9)")
    assert second == f"next: lht predict {file} FILE.npz"
    assert err == ""
    main(["export", str(tmp_path / "birds"), "--to", "torch", "--out", str(tmp_path / "new" / "b.pt2")])
    out, err = capfd.readouterr()
    assert "no threshold" in out
    assert err == ""
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.parent.name != "birds"} == {
        "birds",
        "birds.onnx",
        "birds.onnx.md",
        "new",
        "new/b.pt2",
        "new/b.pt2.md",
    }
    card = (tmp_path / "birds.onnx.md").read_text()
    assert "lht predict birds.onnx" in card
    assert "Überart 2 › family 4 › linear 9" in card
    assert "## Limits" in (tmp_path / "birds" / "README.md").read_text()  # of save_pretrained
    (tmp_path / "birds.onnx.md").write_text("my notes")
    with pytest.raises(ConfigError, match="exists and is not a model card that we wrote"):
        run_export(ExportArgs(run=str(tmp_path / "birds")))
    assert (tmp_path / "birds.onnx.md").read_text() == "my notes"


# ---- without torch -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with onnxruntime, numpy, Pillow and what they need, and nothing else: an environment without torch."""
    folder = tmp_path_factory.mktemp("bare")
    wanted, done = ["onnxruntime", "numpy", "pillow"], set[str]()
    while wanted:
        name = wanted.pop()
        if name in done:
            continue
        done.add(name)
        found = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or () if ".." not in file.parts}:
            link = folder / top
            if not top.endswith((".dist-info", "__pycache__")) and not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))).resolve())
        needs = [Requirement(line) for line in found.requires or ()]
        wanted += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return folder


def alone(bare: Path, *arguments: str) -> str:
    """What Python says with only the packages of a folder."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    environment = kept | {"PYTHONPATH": str(bare), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-S", "-P", *arguments], env=environment, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_bare_environment_has_no_torch(bare: Path):
    code = (
        "from importlib.util import find_spec as f; print([n for n in ('torch', 'torchlht', 'onnx', 'timm', 'numpy') if f(n)])"
    )
    assert alone(bare, "-c", code) == "['numpy']\n"


def said(source: str, label: str | None, level: str | None, probability: float | None) -> str:
    return f"{source}: {label} ({level}, {100 * (probability or 0):.0f} %)" if label else f"{source}: nothing is sure enough"


@pytest.mark.parametrize("name", ["lht", "c-hmcnn", "hrn"])
def test_the_example_answers_as_the_run_does_for_features(name: str, bare: Path, cases: Callable[[str], Case], tmp_path: Path):
    case, file = cases(name), tmp_path / "x.npz"
    x = samples(case.model, 40)
    np.savez(file, x=x.numpy())
    answers = [named.answer(risk=case.risk) for named in case.model.predict(x)]
    expected = [said(f"{file} row {i}", a.label, a.level, a.probability) for i, a in enumerate(answers)]
    assert alone(bare, str(EXAMPLE), str(case.file), str(file)).splitlines() == expected


def test_files_of_the_first_format_scale_all_levels_alike(bare: Path, cases: Callable[[str], Case], tmp_path: Path):
    case, file, x = cases("hrn"), tmp_path / "old.onnx", tmp_path / "x.npz"
    proto = onnx.load(case.file)
    about = json.loads(proto.metadata_props[0].value)
    for level in about["calibration"]["levels"]:
        level.pop("kind")
    about |= {"format": 1, "kind": "sigmoid", "calibration": about["calibration"] | {"kind": "sigmoid"}}
    assert about.pop("kinds") == ["softmax", "sigmoid", "sigmoid"]
    proto.metadata_props[0].value = json.dumps(about)
    onnx.save(proto, file)
    found, features = OnnxModel.read(file), samples(case.model, 40)
    assert found.calibration is not None
    assert found.calibration.kinds == ("sigmoid",) * 3
    np.savez(x, x=features.numpy())
    answers = [named.answer_at(found.wanted) for named in found.predict(features)]
    expected = [said(f"{x} row {i}", a.label, a.level, a.probability) for i, a in enumerate(answers)]
    assert alone(bare, str(EXAMPLE), str(file), str(x)).splitlines() == expected


def test_the_example_leaves_other_rules_alone(bare: Path, cases: Callable[[str], Case]):
    with pytest.raises(AssertionError, match="hiclass answers top_down"):
        alone(bare, str(EXAMPLE), str(cases("hiclass").file), "x.npz")


def several_pictures(folder: Path) -> list[str]:
    """Upright, lying on its side by its EXIF mark, with a palette, tiny, and very wide."""
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 255, (6, 5, 3)).astype(np.uint8)).resize((90, 70), Image.Resampling.BICUBIC)
    turned = Image.Exif()
    turned[0x0112] = 6
    smooth.save(folder / "plain.png")
    smooth.save(folder / "turned.jpg", exif=turned)
    smooth.convert("P").save(folder / "palette.gif")
    smooth.resize((9, 7)).save(folder / "tiny.png")
    smooth.resize((300, 20)).save(folder / "wide.png")
    return sorted(str(path) for path in folder.iterdir())


def test_the_example_answers_as_the_run_does_for_pictures(bare: Path, pictures_case: Case, tmp_path: Path):
    pictures = several_pictures(tmp_path)
    answers = [named.answer(confidence=0.5) for named in pictures_case.model.predict(pictures)]
    expected = [said(path, a.label, a.level, a.probability) for path, a in zip(pictures, answers, strict=True)]
    assert alone(bare, str(EXAMPLE), str(pictures_case.file), *pictures).splitlines() == expected


# ---- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "nowhere"], "lht: nowhere: no such run directory"),
        (["export", "run", "--risk", "0.05"], "lht: --risk needs a calibrated run"),
        (["export", "run", "--to", "onnx", "--out", "a.pt2"], "lht: --out is a.pt2: its name must end in .onnx"),
    ],
)
def test_mistakes_are_one_sentence_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    saved(Path("run"), "flat", calibrated=False)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_wrong_inputs_to_an_exported_model_are_the_users_to_mend(cases: Callable[[str], Case]):
    found = OnnxModel.read(cases("lht").file)
    with pytest.raises(LHTError, match=r"features are \(4, 5\); this model takes \(samples, 6\)"):
        found.predict(np.zeros((4, 5), dtype=np.float32))
    with pytest.raises(LHTError, match="this model takes features"):
        found.predict("beach.jpg")
    with pytest.raises(ConfigError, match="cannot be promised"):
        found.predict(samples(cases("lht").model, 1))[0].answer(risk=0.0001)


def test_a_truncated_file_is_not_read(cases: Callable[[str], Case], tmp_path: Path):
    half = tmp_path / "half.onnx"
    half.write_bytes(cases("lht").file.read_bytes()[:5000])
    with pytest.raises(RunError, match=r"half.onnx: not a readable ONNX file"):
        read_exported(half)


def test_an_exported_model_takes_the_same_looks(pictures: Path, tmp_path: Path) -> None:
    run = train(
        str(pictures),
        out=tmp_path / "run",
        levels="order,family,species",
        backbone="small",
        image_size=16,
        looks=3,
        epochs=1,
        workers=0,
        quiet=True,
    )
    model, files = load(run.path), [str(file) for file in sorted(pictures.rglob("*.*g"))[:4]]
    export(run.path, tmp_path / "birds.onnx")
    for a, b in zip(model.predict(files), read_exported(tmp_path / "birds.onnx").predict(files), strict=True):
        assert a.names == b.names
        assert [one.probability for one in a.levels] == pytest.approx([one.probability for one in b.levels], abs=1e-4)
