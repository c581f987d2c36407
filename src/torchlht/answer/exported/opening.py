"""What an exported file may hold, so that opening one from somebody else runs none of their code.

torch.export.load trusts a file: it unpickles sample inputs and constants, evaluates symbolic sizes and guards as Python, calls
any function below `torch` that a node names, and pastes names into source code. So a .pt2 is not given to torch as it is, but
as a copy of what is known to be harmless: raw tensors, public aten operators, names that are names, and sizes that are sums and
products. Sample inputs, guards and notes about sources are not needed, and left out. What else there is needs a word of trust.

onnxruntime runs no code of a file, but reads tensors from any other file that it names: such files are refused.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from torchlht.doors import read_bytes
from torchlht.errors import RunError

JSON_LIMIT = 2**26  # bytes of the graph: a vision transformer's has 5 MB
DEEPEST = 40  # levels of JSON inside a graph: it has 14
LONGEST = 500  # characters of a name, a symbolic size or any other text


class ForeignError(ValueError):
    """Raised when a file holds something that could run code or read other files; the message says what."""


# ---- .pt2 ----------------------------------------------------------------------------------------------------------

TENSORS = re.compile(r"data/(weights/weight|constants/tensor)_\d+")
CONFIGS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
GRAPH, SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
PLAIN = ("archive_format", "archive_version", ".data/version", "byteorder", ".data/serialization_id")
REBUILDS = {"torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"}  # of a pickled float tensor

NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
PATH = re.compile(r"[\w.]*", re.ASCII)  # of a tensor or module inside the model: model.method.neck.layers.0.weight
GRAMMAR = {
    **dict.fromkeys(("parameter_name", "buffer_name", "tensor_constant_name", "fqn", "config"), PATH),
    **dict.fromkeys(("as_float", "as_floats"), re.compile(r"-?Infinity|NaN")),
    **dict.fromkeys(("as_string", "as_strings"), re.compile(r"[ -~]*")),  # becomes a literal
    "torch_version": re.compile(r"[\w.+-]*", re.ASCII),
}
LEFT_OUT: dict[str, Any] = {"metadata": {}, "guards_code": [], "treespec_namedtuple_fields": {}}
OBJECTS = ("as_graph", "as_custom_obj", "as_operator", "custom_obj", "token")  # none of them is a tensor or a plain value
SPECS = ("builtins.tuple", "builtins.list", "builtins.dict", None)  # of inputs and outputs
ARITHMETIC = {
    f"_operator.{name}"
    for name in [
        "eq",
        "ne",
        "le",
        "ge",
        "lt",
        "gt",
        "neg",
        "mul",
        "add",
        "sub",
        "floordiv",
        "mod",
        "truediv",
        "and_",
        "or_",
        "getitem",
    ]
} | {f"torch.sym_{name}" for name in ["not", "int", "float", "ite", "max", "min"]}
PRIVATE = {"_assert_tensor_metadata", "_assert_scalar"}
TEXTS = {"approximate", "rounding_mode", "mode", "pad_mode", "padding", "equation", "indexing", "reduce", "interpolation"}
TEXTS |= {"norm", "ord", "assert_msg"}  # arguments that may be text; file names are not among them


def plain_program(path: str | Path) -> io.BytesIO:
    """A copy of a .pt2 that torch.export.load opens without running anything of it.

    Raises:
        ForeignError: when it holds more than tensors, operators and plain values.
        zipfile.BadZipFile, ValueError: when it is damaged.
    """
    copy = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as plain:
        if len(set(archive.namelist())) < len(archive.namelist()):
            raise ForeignError("it holds two files of one name")
        for info in archive.infolist():
            name, content = info.filename.partition("/")[2], b""
            if info.compress_type or info.flag_bits & 1:
                raise ForeignError("it is compressed or encrypted, which torch does not do")
            if name in (GRAPH, *CONFIGS):
                if info.file_size > JSON_LIMIT:
                    raise ForeignError(f"its graph has {info.file_size / 1e6:.0f} MB")
                values = json.loads(archive.read(info))
                if name in CONFIGS:
                    _check_pickled(values)
                content = json.dumps(_plain(values, "", 0)).encode()
            elif name == SAMPLES:
                _check_samples(archive.read(info))  # and leave them out
            elif name in PLAIN or TENSORS.fullmatch(name):
                content = archive.read(info)
            elif not name.startswith("extra/"):  # plain text, which torch does not need
                raise ForeignError(f"it holds {_short(info.filename)}")
            if not name.startswith("extra/"):
                plain.writestr(f"archive/{name}", content)
    copy.seek(0)
    return copy


def _check_pickled(values: Any) -> None:
    """Tensors are raw bytes, not pickles."""
    for meta in values["config"].values():
        if meta["use_pickle"] is not False or not re.fullmatch(r"(weight|tensor)_\d+", meta["path_name"]):
            raise ForeignError("it holds pickled weights")


def _plain(value: Any, key: str, depth: int) -> Any:
    """JSON in which every name is one; `key` is the name of the field or, in a dict of names, of the dict."""
    if depth > DEEPEST:
        raise ForeignError("its graph is nested too deeply")
    if isinstance(value, dict):
        names = GRAMMAR["config"] if key == "config" else NAME
        for name in value:
            if name in OBJECTS or not names.fullmatch(name) or len(name) > LONGEST:
                raise ForeignError(f"its graph holds {_short(name)}")
        return {name: LEFT_OUT[name] if name in LEFT_OUT else _plain(one, name, depth + 1) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one, key, depth + 1) for one in value]
    if isinstance(value, str):
        _check_text(value, key)
    return value


def _check_text(text: str, key: str) -> None:
    if key in ("in_spec", "out_spec"):
        _check_spec(json.loads(text)[1])
    elif key == "target":
        _check_operator(text)
    elif len(text) > LONGEST:
        raise ForeignError(f"its graph holds {_short(text)}")
    elif key == "expr_str":
        _check_size(text)
    elif not GRAMMAR.get(key, NAME).fullmatch(text):
        raise ForeignError(f"its graph holds {_short(text)} where a name belongs")


def _check_spec(spec: Any, depth: int = 0) -> None:
    """Inputs and outputs are nested tuples, lists and dicts; other types are imported by their name."""
    if spec["type"] not in SPECS or depth > DEEPEST:
        raise ForeignError(f"its inputs or outputs are of the type {_short(str(spec['type']))}")
    for child in spec["children_spec"]:
        _check_spec(child, depth + 1)


def _check_operator(target: str) -> None:
    """An operator computes with tensors and sizes: it is arithmetic, or a public one of aten that takes no file name."""
    found = re.fullmatch(r"torch\.ops\.aten\.([a-zA-Z_]\w*)\.(\w+)", target, re.ASCII)
    known = getattr(getattr(torch.ops.aten, found[1], None), found[2], None) if found else None
    if target in ARITHMETIC or (
        found
        and isinstance(known, torch._ops.OpOverload)
        and (not found[1].startswith("_") or found[1] in PRIVATE or found[1] in ("__and__", "__or__", "__xor__"))
        and all(one.name in TEXTS for one in known._schema.arguments if "str" in str(one.type))
    ):
        return
    raise ForeignError(f"it calls {_short(target)}")


def _check_size(text: str) -> None:
    """A symbolic size: numbers and symbols, added, multiplied, divided or compared; written by sympy or as in Python."""
    try:
        _check_term(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ForeignError(f"it holds Python in place of a size: {_short(text)}") from None


FUNCTIONS = {"Add", "Mul", "Max", "Min", "FloorDiv", "Mod", "PythonMod", "CeilDiv", "CleanDiv", "Integer"}
FUNCTIONS |= {"Eq", "Ne", "Le", "Ge", "Lt", "Gt", "And", "Or", "Not", "Equality", "Unequality"}
FUNCTIONS |= {"LessThan", "GreaterThan", "StrictLessThan", "StrictGreaterThan", "ToFloat", "IntTrueDiv"}
SYMBOL = re.compile(r"[a-z]{1,3}\d+", re.ASCII)


def _check_term(term: ast.expr) -> None:
    inner: list[ast.expr] = []
    match term:
        case ast.Constant(value=int() | float()):
            pass
        case ast.Name(id=name) if SYMBOL.fullmatch(name):
            pass
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=words) if SYMBOL.fullmatch(
            name
        ) and all(isinstance(word.value, ast.Constant) for word in words):
            pass
        case ast.Call(func=ast.Name(id=name), args=inner, keywords=[]) if name in FUNCTIONS:
            pass
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right=right):
            inner = [left, right]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = [operand]
        case _:
            raise ValueError("not a size")
    for one in inner:
        _check_term(one)


def _check_samples(content: bytes) -> None:
    """Sample inputs of earlier exports are a pickled tensor; nothing is unpickled to see that."""
    if not content:
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        pickled = [archive.read(name) for name in archive.namelist() if name.endswith(".pkl")]
    for op, name, _ in (step for one in pickled for step in pickletools.genops(one)):
        if op.name in ("GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4") and name not in REBUILDS:
            raise ForeignError("its sample inputs are pickled Python objects")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


# ---- .onnx ---------------------------------------------------------------------------------------------------------

FIELDS: dict[str, dict[int, str]] = {  # the messages of onnx.proto that lead to a tensor or an operator
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute", 7: "domain"},
    "function": {7: "node", 11: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external", 14: "location"},
}
DOMAINS = (b"", b"ai.onnx")
EXTERNAL = 1
ONNX_BYTES = 2**31  # the most that ONNX's format can hold in one file


def plain_onnx(path: str | Path) -> bytes:
    """The content of an ONNX file that names no other file and no operators but ONNX's own.

    Raises:
        ForeignError: when it does.
        ValueError: when it is not ONNX.
    """
    content = read_bytes(Path(path), ONNX_BYTES, RunError)
    _check_message(memoryview(content), "model", 0)
    return content


def _check_message(data: memoryview, kind: str, depth: int) -> None:
    if depth > DEEPEST:
        raise ForeignError("its graphs are nested too deeply")
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        field, wire = FIELDS[kind].get(tag >> 3), tag & 7
        value, end = _number(data, at) if wire in (0, 2) else (0, at)
        size = {0: 0, 1: 8, 2: value, 5: 4}.get(wire)
        if size is None or end + size > len(data):
            raise ValueError("not a readable ONNX file")
        if field == "external" or (field == "location" and value == EXTERNAL):
            raise ForeignError("it takes its weights from another file")
        if field == "domain" and bytes(data[end : end + size]) not in DOMAINS:
            raise ForeignError(f"it uses operators of {_short(bytes(data[end : end + size]).decode(errors='replace'))}")
        if field in FIELDS and wire == 2:
            _check_message(data[end : end + size], field, depth + 1)
        at = end + size


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A varint, and the place after it."""
    value = 0
    for i in range(10):
        if at + i >= len(data):
            break
        value |= (data[at + i] & 127) << 7 * i
        if data[at + i] < 128:
            return value, at + i + 1
    raise ValueError("not a readable ONNX file")
