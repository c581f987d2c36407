"""`lht export --to web`: the page in a browser, with a stand-in for the runtime; and as a whole where the runtime is found."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from PIL import Image

from conftest import write_pictures
from torchlht.answer.model import Model, load
from torchlht.answer.named import Wanted
from torchlht.answer.plain import as_dict
from torchlht.cli import main
from torchlht.errors import ConfigError
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import train
from torchlht.serve.page import TALL_FIRST, export_page, page
from torchlht.serve.runtime import Runtime, find_runtime
from torchlht.serve.weights import Change

EVIL = "<img src=x onerror=alert(1)>"
LEVELS = [
    {"name": "species", "classes": [EVIL, "Tufted Puffin", "Arctic Tern", "=Gull"], "parents": [0, 0, 1, 1]},
    {"name": "family", "classes": ["Auks", "</script>"]},
]
# Red pictures are EVIL, green ones Tufted Puffins or Arctic Terns, blue ones =Gull; grey ones could be anything.
STAND_IN = """
export const env = { wasm: {} };
export class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const softmax = x => { const s = Math.log(x.reduce((a, v) => a + Math.exp(v), 0)); return Float32Array.from(x, v => v - s); };
export const InferenceSession = { create: async bytes => {
  if (!bytes.length || !(env.wasm.wasmBinary instanceof Uint8Array)) throw new Error("no bytes");
  return { inputNames: ["input"], outputNames: ["species", "family"], run: async ({ input }) => {
    const n = input.data.length / 3, mean = c => input.data.slice(c * n, c * n + n).reduce((a, v) => a + v, 0) / n;
    const [r, g, b] = [mean(0), mean(1), mean(2)].map(v => 6 * (v + 2) / 4);
    const [auks, others] = [Math.max(r, g), Math.max(g - 0.1, b)];
    return { species: { data: softmax([r, g, g - 0.1, b]) }, family: { data: softmax([auks, others]) } };
  } };
} };
"""


def colour(name: str, rgb: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> dict[str, Any]:
    written = io.BytesIO()
    Image.new("RGB", size, rgb).save(written, "PNG")
    return {"name": name, "mimeType": "image/png", "buffer": written.getvalue()}


RED, GREEN = colour("-red.png", (255, 0, 0)), colour("green.png", (0, 255, 0))
BLUE, BAD = colour("blue.png", (0, 0, 255)), {"name": "bad.png", "mimeType": "image/png", "buffer": b"no picture"}


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a made-up network."""
    graph = helper.make_graph([], "g", [], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])])
    about = {
        **{"hierarchy": {"levels": LEVELS}, "temperatures": [1.0, 1.0], "kinds": ["softmax"] * 2, "rule": "path"},
        **{"input": {"shape": ["batch", 3, 16, 16]}, "novelty": None, "calibrated": True, "only": [], "exclude": []},
        "preprocess": {**{"size": 16, "resize": 18, "mean": [0.5] * 3, "std": [0.25] * 3}, "tall_first": TALL_FIRST}
        | {"interpolation": "bilinear", "stretch": False},
        "threshold": {"value": 0.9, "promise": "confidence 0.9"},
        "promises": [{"risk": 0.05, "threshold": 0.97}],
    }

    class Described:
        class hierarchy:
            describe = staticmethod(lambda: f"2 of {EVIL}")

    file = tmp_path_factory.mktemp("web") / "page.html"
    change = Change("float16", 10, "random inputs", 0.9, 0.01, 0.002)
    runtime = Runtime("0.0", STAND_IN.encode(), b"wasm", "a test")
    network = helper.make_model(graph).SerializeToString()
    model: Any = Described()
    file.write_text(page(EVIL, model, about, change, runtime, network, width=2), encoding="utf-8")
    return file


class Tab:
    """A page in the browser, and everything it asked for or complained about."""

    def __init__(self, browser: Any, file: Path, **how: Any) -> None:
        self.context = browser.new_context(offline=True, **{"viewport": {"width": 1200, "height": 900}, **how})
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))
        self.page.goto(file.resolve().as_uri())
        self.page.evaluate("torchlht.ready")
        self.file = file.resolve().as_uri()

    def give(self, *files: Any) -> None:
        self.page.set_input_files("#files", list(files))
        self.until(f"state.items.length >= {len(files)} && !state.busy")

    def until(self, question: str) -> None:
        """Wait until something is so; the page's policy forbids what playwright would do."""
        for _ in range(200):
            if self.page.evaluate(question):
                return
            time.sleep(0.05)
        raise AssertionError(f"never {question}: {self.faults} {self.text('#notice')}")

    def text(self, selector: str) -> str:
        return str(self.page.text_content(selector))

    def slide(self, value: float) -> None:
        self.page.evaluate("v => { $('threshold').value = v; $('threshold').oninput(); }", value)

    def close(self) -> None:
        """Nothing was asked for, nothing went wrong."""
        assert [url for url in self.asked if url != self.file and not url.startswith("blob:")] == []
        assert self.faults == []
        self.context.close()


@pytest.fixture
def tab(browser: Any, html: Path) -> Iterator[Tab]:
    opened = Tab(browser, html)
    yield opened
    opened.close()


def test_an_answer_is_as_deep_as_it_is_sure(tab: Tab) -> None:
    tab.give(RED)
    assert tab.text("#label") == EVIL  # as text
    assert "species" in tab.text("#level")
    assert tab.page.locator("#path li.sure").count() == 2
    tab.give(GREEN, GREEN)
    tab.page.click("#rows tr:nth-child(2) button")
    assert tab.text("#label") == "Not sure enough"
    tab.slide(50)
    assert tab.text("#label") in ("Auks", "Tufted Puffin")
    tab.slide(0)
    assert tab.text("#label") == "Tufted Puffin"
    assert tab.text("#sure") == "any"
    assert tab.text("#others-title") == "It could also be"
    tab.page.select_option("#promise", "0.05")
    assert tab.text("#sure") == "97 %"


def test_only_some_classes_are_possible(tab: Tab) -> None:
    tab.give(GREEN)
    tab.page.evaluate("$('only').value = 'Arctic Tern, =Gull'; $('only').onchange()")
    assert tab.text("#label") == "Arctic Tern"
    assert tab.text("#restriction") == "2 of 4 possible"
    assert tab.page.is_disabled("#promise")  # it was made for all classes
    tab.page.evaluate("$('only').value = 'Swan'; $('only').onchange()")
    assert tab.text("#restriction-fault") == "No class is called “Swan”; the list before it still holds."
    assert tab.text("#label") == "Arctic Tern"
    tab.page.set_input_files("#list", {"name": "list.txt", "mimeType": "text/plain", "buffer": b"Tufted Puffin\n"})
    tab.until("$('label').textContent === 'Tufted Puffin'")
    tab.page.evaluate("$('every').click()")
    assert tab.text("#restriction") == "all are possible"


def test_many_pictures_make_a_table_to_save(tab: Tab) -> None:
    tab.give(BAD, RED, GREEN, BLUE)
    rows = tab.page.locator("#rows tr")
    assert rows.count() == 4
    assert "cannot read it" in str(rows.nth(0).text_content())
    assert tab.text("#label") == EVIL  # the first that could be read
    with tab.page.expect_download() as saved:
        tab.page.click("#save")
    text = Path(saved.value.path()).read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["file"] for row in found] == ["'-red.png", "green.png", "blue.png"]
    assert [row["species"] for row in found] == [EVIL, "Tufted Puffin", "'=Gull"]
    assert [row["answer"] for row in found] == [EVIL, "", "'=Gull"]
    tab.page.click("#clear")
    assert tab.page.is_hidden("#many")
    assert tab.page.is_hidden("#result")


def test_covering_shows_which_part_mattered(tab: Tab) -> None:
    half = Image.new("RGB", (40, 40), (128, 128, 128))
    half.paste((255, 0, 0), (0, 0, 20, 40))
    written = io.BytesIO()
    half.save(written, "PNG")
    tab.give({"name": "half.png", "mimeType": "image/png", "buffer": written.getvalue()})
    tab.slide(0)
    tab.page.click("#why")
    tab.until("$('why').textContent === 'Hide'")
    heat = tab.page.evaluate("[...$('heat').getContext('2d').getImageData(0, 0, 7, 7).data].filter((_, i) => i % 4 === 3)")
    left, right = (np.array(heat).reshape(7, 7)[:, columns].mean() for columns in (slice(0, 3), slice(4, 7)))
    assert left < right  # clear where the red is
    tab.page.click("#why")
    assert tab.page.is_hidden("#heat")


def test_pictures_are_dropped_pasted_and_taken(tab: Tab) -> None:
    make = """(kind) => {
      const data = new DataTransfer(), canvas = document.createElement("canvas");
      canvas.getContext("2d").fillStyle = "red";
      canvas.getContext("2d").fillRect(0, 0, 300, 150);
      return new Promise(done => canvas.toBlob(blob => {
        data.items.add(new File([blob], `${kind}.png`, { type: "image/png" }));
        if (kind === "paste") dispatchEvent(new ClipboardEvent("paste", { clipboardData: data }));
        else dispatchEvent(new DragEvent("drop", { dataTransfer: data }));
        done();
      }));
    }"""
    for kind, count in (("drop", 1), ("paste", 2)):
        tab.page.evaluate(make, kind)
        tab.until(f"state.items.length === {count} && !state.busy")
    tab.page.click("#camera")
    tab.until("$('camera-box').open && $('viewfinder').videoWidth > 0")
    tab.page.click("#snap")
    tab.until("state.items.length === 3 && !state.busy")
    assert tab.page.evaluate("state.items.map(item => item.error)") == [None] * 3
    assert tab.page.evaluate("$('viewfinder').srcObject.active") is False


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
def test_it_fits_desk_and_phone_in_light_and_dark(browser: Any, html: Path, width: int, scheme: str) -> None:
    tab = Tab(browser, html, viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab.give(RED, GREEN)
    assert tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (min(map(int, re.findall(r"\d+", paper)[:3])) > 200) == (scheme == "light")
    tab.page.click("#theme")
    assert tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != paper
    tab.page.click("#licences summary")
    tab.until(
        "$('licence').textContent.includes('Microsoft') && $('licence').textContent.includes('Permission is hereby granted')"
    )
    tab.close()


def test_nothing_can_be_asked_for_and_no_name_is_markup(tab: Tab, html: Path) -> None:
    content = html.read_text(encoding="utf-8")
    assert EVIL not in content
    assert len(re.findall(r"<script(?! id=)", content)) == 1
    refused = tab.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'asked', error => error.name)")
    assert refused == "TypeError"
    assert any("Content Security Policy" in fault for fault in tab.faults)
    tab.faults.clear()


# ---- as a whole ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A small run on pictures, calibrated."""
    root = tmp_path_factory.mktemp("run")
    pictures = write_pictures(root)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LHT_CACHE", str(root / "cache"))
        options = {"backbone": "small", "epochs": 4, "batch_size": 16, "image_size": 16, "val": 0.3}
        train(TrainArgs(str(pictures), out=root / "birds", quiet=True, track=False, **options))
        yield root / "birds"


def test_the_page_of_a_run_answers_as_lht_predict_does(run: Path, browser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        find_runtime()
    except ConfigError:
        pytest.skip("the runtime for browsers is not here: npm install onnxruntime-web")
    assert main(["export", str(run), "--to", "web", "--confidence", "0.6", "--only", "Auks"]) in (0, None)
    said = capsys.readouterr().out
    assert "float16" in said
    assert "ONNX Runtime Web" in said
    tab = Tab(browser, run.with_suffix(".html"))
    assert tab.text("#restriction") == "3 of 6 possible"
    tab.page.evaluate("$('every').click()")
    pictures = sorted((run.parent / "pictures").rglob("*.png"))[::4]
    tab.give(*map(str, pictures))
    found = tab.page.evaluate("state.items.map(answerOf)")
    asked = Wanted(0.6, "confidence 0.6")
    wanted = [as_dict(named, asked) for named in load(run).predict(pictures, top=5)]
    for ours, theirs in zip(found, wanted, strict=True):
        assert json.dumps(list(ours)) == json.dumps(list(theirs))
        for a, b in zip(ours["levels"], theirs["levels"], strict=True):
            assert (a["level"], a["label"]) == (b["level"], b["label"])
            assert a["probability"] == pytest.approx(b["probability"], abs=0.01)
    tab.close()


def test_a_run_on_features_and_a_missing_runtime_are_refused(run: Path, tmp_path: Path, embeddings: Path) -> None:
    with pytest.raises(ConfigError, match="npm install onnxruntime-web"):
        export_page(run, tmp_path / "page.html", runtime=tmp_path)
    with pytest.raises(ConfigError, match=r"ends in \.html"):
        export_page(run, tmp_path / "page.onnx")
    package = tmp_path / "onnxruntime-web"
    for name, content in {
        "package.json": '{"name": "onnxruntime-web", "version": "1"}',
        "dist/ort.wasm.bundle.min.mjs": "",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(content)
    (package / "dist" / "ort-wasm-simd-threaded.wasm").touch()
    train(TrainArgs(str(embeddings), out=tmp_path / "flat", method="flat", epochs=1, quiet=True, track=False))
    with pytest.raises(ConfigError, match="takes features, and a web page takes pictures"):
        export_page(tmp_path / "flat", tmp_path / "page.html", runtime=package)
    assert isinstance(load(tmp_path / "flat"), Model)
