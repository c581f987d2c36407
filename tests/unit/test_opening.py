"""An exported file from somebody else runs none of their code: real hostile files, whose payload would create a file."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from torchlht.answer.exported.opening import ForeignError, _check_operator, _check_size, plain_onnx, plain_program
from torchlht.answer.exported.read import read_exported
from torchlht.cli import main
from torchlht.errors import RunError

GOLDEN = Path(__file__).parent.parent / "golden"
GRAPH, SAMPLES = "archive/models/model.json", "archive/data/sample_inputs/model.pt"
WEIGHTS, CONSTANTS = "archive/data/weights/model_weights_config.json", "archive/data/constants/model_constants_config.json"
PYTHON = "__import__('pathlib').Path({mark!r}).touch()"


class Payload:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def pickled(mark: Path) -> bytes:
    file = io.BytesIO()
    torch.save(((Payload(mark),), {}), file)
    return file.getvalue()


def rewritten(out: Path, **changes: Callable[[Any], Any]) -> Path:
    """The golden .pt2 with some members changed: functions of their bytes, or of their JSON."""
    where = {"graph": GRAPH, "samples": SAMPLES, "weights": WEIGHTS, "constants": CONSTANTS}
    with zipfile.ZipFile(GOLDEN / "lht.pt2") as before, zipfile.ZipFile(out, "w") as after:
        members = {info.filename: before.read(info) for info in before.infolist()}
        for key, change in changes.items():
            name = where.get(key, f"archive/{key}")
            old = members.get(name, b"")
            new = change(json.loads(old)) if name.endswith(".json") and old else change(old)
            members[name] = new if isinstance(new, bytes) else json.dumps(new).encode()
        for name, content in members.items():
            after.writestr(name, content)
    return out


def set_size(text: str) -> Callable[[Any], Any]:
    def change(graph: Any) -> Any:
        graph["graph_module"]["graph"]["sym_int_values"]["sym_size_int_1"]["as_expr"]["expr_str"] = text
        return graph

    return change


def call(target: str, *words: str) -> Callable[[Any], Any]:
    """A graph whose first node calls a function with words."""

    def change(graph: Any) -> Any:
        inputs = [{"name": "", "arg": {"as_string": word}, "kind": 1} for word in words]
        node = {"target": target, "inputs": inputs, "outputs": [], "metadata": {}, "name": "called"}
        graph["graph_module"]["graph"]["nodes"].insert(0, node)
        return graph

    return change


def named(text: str) -> Callable[[Any], Any]:
    """A graph whose input has this name everywhere."""
    return lambda graph: json.loads(json.dumps(graph).replace('"name": "input"', f'"name": {json.dumps(text)}'))


def guarded(text: str) -> Callable[[Any], Any]:
    return lambda graph: graph | {"guards_code": [text]}


def opaque(mark: Path) -> dict[str, Callable[[Any], Any]]:
    """A constant that is a pickled object."""

    def change(config: Any) -> Any:
        first = next(iter(config["config"].values()))
        return {"config": config["config"] | {"evil": first | {"path_name": "opaque_obj_0"}}}

    return {"constants": change, "data/constants/opaque_obj_0": lambda _: pickle.dumps(Payload(mark))}


def pickled_weight(mark: Path) -> dict[str, Callable[[Any], Any]]:
    def change(config: Any) -> Any:
        first = next(iter(config["config"].values()))
        first["use_pickle"] = True
        return config

    return {"weights": change, "data/weights/weight_0": lambda _: pickled(mark)}


def spec(mark: Path) -> Callable[[Any], Any]:
    """An input that is a defaultdict, whose factory is imported by its name."""
    context = json.dumps({"default_factory_module": "os", "default_factory_name": "getcwd", "dict_context": "[]"})
    bad = {"type": "collections.defaultdict", "context": context, "children_spec": []}

    def change(graph: Any) -> Any:
        graph["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, bad])
        return graph

    return change


HOSTILE: dict[str, Callable[[Path], dict[str, Callable[[Any], Any]]]] = {
    "pickled sample inputs": lambda mark: {"samples": lambda _: pickled(mark)},
    "Python in a size": lambda mark: {"graph": set_size(PYTHON.format(mark=str(mark)))},
    "a function of torch": lambda mark: {"graph": call("torch.os.system", f"touch {mark}")},
    "a name that is code": lambda mark: {"graph": named(f"x=({PYTHON.format(mark=str(mark))})")},
    "a pickled constant": opaque,
    "a pickled weight": pickled_weight,
    "a type that is imported": lambda mark: {"graph": spec(mark)},
    "weights of an earlier layout": lambda mark: {"data/weights/model.pt": lambda _: pickled(mark)},
    "another model": lambda mark: {"models/other.json": lambda _: b"{}"},
    "compiled code": lambda mark: {"data/aotinductor/model/a.so": lambda _: b"ELF"},
    "a deep graph": lambda mark: {"graph": lambda _: b"[" * 100_000 + b"]" * 100_000},
    "a file name": lambda mark: {"graph": call("torch.ops.aten.from_file.default", str(mark))},
}


@pytest.mark.parametrize("way", HOSTILE)
def test_a_hostile_program_is_refused_and_does_nothing(way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    mark = tmp_path / "mark"
    file = rewritten(tmp_path / "a.pt2", **HOSTILE[way](mark))
    with pytest.raises(SystemExit) as stop:
        main(["predict", str(file), str(GOLDEN / "birds.npz"), "--limit", "1"])
    assert stop.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("lht: ") == 1
    assert "--trust" in said or "not a readable" in said
    assert not mark.exists()


@pytest.mark.parametrize("way", ["pickled sample inputs", "Python in a size", "a pickled weight"])
def test_these_files_do_run_code_when_trusted(way: str, tmp_path: Path):
    """So the test above is about something."""
    mark = tmp_path / "mark"
    file = rewritten(tmp_path / "a.pt2", **HOSTILE[way](mark))
    with contextlib.suppress(Exception):  # what the payload gives back is no tensor
        read_exported(file, trust=True).look(torch.zeros(1, 8))
    assert mark.exists()


def test_guards_are_left_out(tmp_path: Path):
    mark = tmp_path / "mark"
    file = rewritten(tmp_path / "a.pt2", graph=guarded(PYTHON.format(mark=str(mark))))
    found, same = read_exported(file), read_exported(GOLDEN / "lht.pt2")
    x = torch.randn(3, same.in_features)
    assert all(torch.equal(a, b) for a, b in zip(found.look(x).log_probs, same.look(x).log_probs, strict=True))
    assert not mark.exists()


def test_a_harmless_program_opens_with_and_without_trust():
    found, trusted = read_exported(GOLDEN / "lht.pt2"), read_exported(GOLDEN / "lht.pt2", trust=True)
    x = torch.randn(3, found.in_features)
    assert all(torch.equal(a, b) for a, b in zip(found.look(x).log_probs, trusted.look(x).log_probs, strict=True))


def test_the_copy_has_no_pickle():
    with zipfile.ZipFile(plain_program(GOLDEN / "lht.pt2")) as copy:
        assert copy.read(SAMPLES) == b""
        assert not any(b"data.pkl" in copy.read(name) for name in copy.namelist())


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s31', positive=True, integer=True)",
        "Mul(Integer(4), Symbol('s0', integer=True))",
        "2*s0 + 1",
        "(s0 - 1)//2",
        "7",
        "FloorDiv(Add(Symbol('s0'), Integer(-1)), Integer(2))",
        "Eq(Symbol('u0'), Integer(1))",
        "-s0",
    ],
)
def test_sizes(text: str):
    _check_size(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "s0.__class__",
        "Symbol('s0').name",
        "Symbol(print(1))",
        "(lambda: 0)()",
        "[s0 for s0 in s1]",
        "'s0'",
        "f'{s0}'",
        "s0 if s0 else s1",
        "Symbol('s0', integer=print(1))",
        "Symbol('__class__')",
        "eval",
        "s0**9",
        "(" * 300,
        "",
        "Integer(*s0)",
        "Mul(s0, key=s1)",
        "Add(print(1))",
        "s0\n;import os",
        "s0 := 1",
        "-" * 499 + "1j",
        "Pow(s0, s0)",
    ],
)
def test_not_sizes(text: str):
    with pytest.raises(ForeignError):
        _check_size(text)


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.linear.default",
        "torch.ops.aten.relu_.default",
        "torch.ops.aten.gelu.default",
        "_operator.getitem",
        "torch.ops.aten.scatter_reduce.two",
        "torch.ops.aten._assert_tensor_metadata.default",
        "torch.ops.aten.sym_size.int",
        "torch.ops.aten.scaled_dot_product_attention.default",
        "torch.ops.aten.einsum.default",
        "torch.sym_max",
    ],
)
def test_operators(target: str):
    _check_operator(target)


@pytest.mark.parametrize(
    "target",
    [
        "torch.os.system",
        "torch.load",
        "torch.hub.load",
        "_operator.attrgetter",
        "_operator.call",
        "math.trunc",
        "#evil:op",
        "",
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.aten._unsafe_index.Tensor",
        "os.system",
        "torch.ops.load_library",
        "torch.ops.aten.__class__.__init__",
        "torch.ops.prim.Print.default",
        "torch.ops.aten.linear",
        "torch.ops.aten.linear.default.__globals__",
        "torch.ops.higher_order.cond",
        "torch.ops.aten.no_such.default",
        "torch.ops.aten._print.default",
        "torch.ops.aten.warn.default",
        "torch.ops.aten.linear.default\n",
    ],
)
def test_not_operators(target: str):
    with pytest.raises(ForeignError):
        _check_operator(target)


# ---- ONNX ----------------------------------------------------------------------------------------------------------


def changed(out: Path, change: Callable[[Any], None]) -> Path:
    model = onnx.load(GOLDEN / "lht.onnx")
    change(model)
    out.write_bytes(model.SerializeToString())
    return out


def external(location: str) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return change


def inner(model: Any) -> None:
    """The same inside an attribute of a node."""
    value = onnx.TensorProto(dims=[1], data_type=1, data_location=onnx.TensorProto.EXTERNAL)
    value.external_data.add(key="location", value="/etc/passwd")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["evil"], value=value))


def custom(model: Any) -> None:
    model.graph.node[0].domain = "com.evil"


@pytest.mark.parametrize("change", [external("../../../../etc/passwd"), external("weights.bin"), inner, custom])
def test_an_onnx_file_names_no_other_file(change: Callable[[Any], None], tmp_path: Path):
    file = changed(tmp_path / "a.onnx", change)
    with pytest.raises(RunError, match=r"(another file|operators of 'com.evil'), so opening .* trust"):
        read_exported(file)


def test_a_plain_onnx_file_is_read_as_it_is():
    assert plain_onnx(GOLDEN / "lht.onnx") == (GOLDEN / "lht.onnx").read_bytes()
    assert read_exported(GOLDEN / "lht.onnx").look(torch.zeros(2, 8)).log_probs[0].shape[0] == 2


@pytest.mark.parametrize("content", [b"", b"\xff" * 99, b"ORTM" + bytes(60), b"\x3a\xff\xff\xff\xff\x0f"])
def test_no_onnx_file(content: bytes, tmp_path: Path):
    (tmp_path / "a.onnx").write_bytes(content)
    with pytest.raises(RunError, match=r"a.onnx"):
        read_exported(tmp_path / "a.onnx")
