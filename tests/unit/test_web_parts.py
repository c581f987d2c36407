"""What a web page is made of: weights in fewer bytes, and the runtime wherever the user has it."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from torchlht.cli import main
from torchlht.errors import ConfigError
from torchlht.serve.page import packed, policy, script_text
from torchlht.serve.runtime import CODE, NAME, WASM, find_runtime
from torchlht.serve.weights import bare, halved, store, stored

# ---- weights ---------------------------------------------------------------------------------------------------------


def test_float16_rounds_and_filters_over_one_channel_keep_their_sums() -> None:
    rng = np.random.default_rng(0)
    plain, filters = rng.normal(size=(50, 40)).astype(np.float32), rng.normal(size=(300, 1, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(halved(plain), plain.astype(np.float16))
    found = halved(filters).astype(np.float64)
    assert np.abs(found - filters).max() <= 2e-3 * np.abs(filters).max()
    ours, nearest = (np.abs((one - filters).sum(axis=(1, 2, 3))) for one in (found, filters.astype(np.float16).astype(float)))
    assert ours.max() <= 1e-3  # half a unit of the last number
    assert ours.mean() < 0.5 * nearest.mean()


def test_int8_is_within_half_a_step_of_each_row() -> None:
    values = np.random.default_rng(0).normal(size=(30, 8, 3, 3)).astype(np.float32) * np.arange(30).reshape(30, 1, 1, 1)
    parts = stored(values, "int8")
    assert parts is not None
    whole, factor = parts
    assert whole.dtype == np.int8
    assert (np.abs(whole * factor - values) <= factor * 0.5001).all()
    assert (whole[0] == 0).all()  # a row of zeros


def test_what_float16_cannot_hold_stays() -> None:
    assert stored(np.full((4, 4), 1e5, dtype=np.float32), "float16") is None
    assert stored(np.full((4, 4), np.inf, dtype=np.float32), "int8") is None
    assert stored(np.ones((4, 4), dtype=np.float32), "float32") is None


def network(path: Path) -> np.ndarray:
    """y = x W + b, written as ONNX; W is large enough to be stored in another way."""
    weight = np.random.default_rng(0).normal(size=(100, 90)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["z"], doc_string="note"), helper.make_node("Add", ["z", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 100])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 90])],
        [numpy_helper.from_array(weight, "W"), numpy_helper.from_array(np.arange(90, dtype=np.float32), "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model.metadata_props.add(key="torchlht", value="{}")
    onnx.save(model, path)
    return weight


@pytest.mark.parametrize(("weights", "size", "error"), [("float32", 4.0, 0.0), ("float16", 2.0, 0.02), ("int8", 1.0, 0.6)])
def test_a_stored_network_computes_the_same_in_fewer_bytes(tmp_path: Path, weights: str, size: float, error: float) -> None:
    weight = network(tmp_path / "whole.onnx")
    store(tmp_path / "whole.onnx", tmp_path / "small.onnx", weights)  # type: ignore[arg-type]
    content = (tmp_path / "small.onnx").read_bytes()
    assert len(content) == pytest.approx(size * weight.size, rel=0.12)
    x = np.random.default_rng(1).normal(size=(5, 100)).astype(np.float32)
    for one in (content, bare(content)):
        found = onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        np.testing.assert_allclose(found, x @ weight + np.arange(90), atol=error + 1e-4)
    assert b"torchlht" in content
    assert b"torchlht" not in bare(content)
    assert b"note" not in bare(content)


# ---- the runtime -----------------------------------------------------------------------------------------------------

FILES = {"package.json": json.dumps({"name": NAME, "version": "1.2.3"}).encode(), CODE: b"code", WASM: b"wasm"}


def package(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def archive(files: dict[str, bytes] = FILES) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a runtime in it, above it or in npm's cache."""
    here = tmp_path / "here" / "deep"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.delenv("NODE_PATH", raising=False)
    monkeypatch.setenv("PATH", "")
    return here


def test_the_runtime_is_found_where_people_have_it(nowhere: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="npm install onnxruntime-web"):
        find_runtime()
    kept = archive()
    digest = hashlib.sha512(kept)
    cache = nowhere.parents[1] / "npm" / "_cacache"
    entry = {
        "key": f"x:https://host/{NAME}/-/{NAME}-1.2.3.tgz",
        "integrity": f"sha512-{base64.b64encode(digest.digest()).decode()}",
    }
    index, text = cache / "index-v5" / "aa" / "bb" / "cc", digest.hexdigest()
    index.parent.mkdir(parents=True)
    index.write_text(f"\nabc\t{json.dumps(entry)}\nabc\tnot json")
    content = cache / "content-v2" / "sha512" / text[:2] / text[2:4] / text[4:]
    content.parent.mkdir(parents=True)
    content.write_bytes(kept[:-1])
    with pytest.raises(ConfigError, match="npm install"):  # damaged
        find_runtime()
    content.write_bytes(kept)
    assert find_runtime()[:3] == ("1.2.3", b"code", b"wasm")
    assert "npm's cache" in find_runtime().source
    package(nowhere.parents[1] / "path" / NAME)
    monkeypatch.setenv("NODE_PATH", str(nowhere.parents[1] / "path"))
    assert find_runtime().source == str(nowhere.parents[1] / "path" / NAME)
    (own_cache / f"{NAME}-1.2.3.tgz").write_bytes(kept)
    assert find_runtime().source == str(own_cache / f"{NAME}-1.2.3.tgz")
    package(nowhere.parent / "node_modules" / NAME)
    assert find_runtime().source == str(nowhere.parent / "node_modules" / NAME)
    assert find_runtime(nowhere.parent).version == "1.2.3"


def test_what_is_no_runtime_is_refused_in_one_sentence(nowhere: Path) -> None:
    other = package(nowhere / "other", {**FILES, "package.json": b'{"name": "left-pad", "version": "1"}'})
    old = package(nowhere / "old", {name: FILES[name] for name in ("package.json", CODE)})
    (nowhere / "x.tgz").write_bytes(b"no archive")
    (nowhere / "old.tgz").write_bytes(archive({"package.json": FILES["package.json"]}))
    cases = {
        nowhere / "none": "no onnxruntime-web is there",
        other: "is left-pad, not onnxruntime-web",
        old: "has no ort-wasm-simd-threaded.wasm, it may be too old",
        nowhere / "x.tgz": "not an archive of npm",
        nowhere / "old.tgz": "it may be too old",
    }
    for place, words in cases.items():
        with pytest.raises(ConfigError, match=words):
            find_runtime(place)


def test_options_of_a_page_are_refused_for_other_formats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.yaml", "hierarchy.json", "model.safetensors"):
        (run / name).touch()
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(run), "--weights", "int8"])
    assert stopped.value.code == 2
    assert "--weights is for --to web" in capsys.readouterr().err


# ---- the document ----------------------------------------------------------------------------------------------------


def test_the_policy_names_the_one_script_and_no_address() -> None:
    script = script_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found = policy(script)
    assert f"'sha256-{digest}'" in found
    assert "unsafe-inline" not in found.split("style-src")[0]
    assert "http" not in found
    assert "connect-src 'none'" in found
    assert "</script" not in script
    assert "innerHTML" not in script


def test_packing_depends_on_the_bytes_alone() -> None:
    assert packed(b"abc" * 100) == packed(b"abc" * 100)
    assert "<" not in packed(bytes(range(256)))
