"""A page from `lht export --to web` against `lht predict`, on the same pictures: answers, requests, size, time.

    python benchmarks/web.py RUN PICTURES [--count 500] [--confidence 0.9] [--weights float16 int8 float32] [--runtime DIR]

PICTURES is what `lht predict` takes: a folder, a dataset such as `cub`. Of its pictures, `count` are taken evenly. The page is
opened from file:// in a Chromium whose network is cut, and given the files as a user would. Times are medians, as ratios to
onnxruntime in Python with one thread on the same ONNX file: opening the network, and a picture from its file to its answer.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from torchlht.answer.exported.read import onnxruntime, read_exported
from torchlht.answer.exported.write import export
from torchlht.answer.model import load
from torchlht.answer.named import Wanted
from torchlht.answer.plain import as_dict
from torchlht.data.inputs import expand
from torchlht.serve.page import export_page

TIMED = 60  # pictures; the first of them warm up
FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]


def in_page(html: Path, files: list[str]) -> dict[str, Any]:
    """What a page says about pictures, how long it took, and the addresses it asked for."""
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        tab = browser.new_context(offline=True).new_page()
        tab.set_default_timeout(0)
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(html.resolve().as_uri())
        tab.evaluate("torchlht.ready")
        opened = float(tab.evaluate("document.documentElement.dataset.ready"))
        tab.set_input_files("#files", files)
        while tab.evaluate("state.items.length === 0 || state.busy"):
            time.sleep(0.5)
        errors = tab.evaluate("state.items.filter(item => item.error).map(item => [item.name, item.error])")
        assert not errors, errors
        found = tab.evaluate("state.items.map(answerOf)")
        seconds = tab.evaluate("state.items.map(item => item.seconds)")
        network = tab.evaluate(
            """async n => {
              const found = [], bytes = seen(await decoded(state.items[0].file), state.about.preprocess);
              for (let i = 0; i < n; i++) {
                const began = performance.now();
                await look(bytes);
                found.push((performance.now() - began) / 1000);
              }
              return found;
            }""",
            TIMED,
        )
        browser.close()
    beyond = [url for url in asked if not url.startswith(("blob:", "data:")) and url != html.resolve().as_uri()]
    return {"answers": found, "opened": opened, "seconds": seconds, "network": network, "requests": beyond}


def in_python(file: Path, pictures: list[str]) -> dict[str, float]:
    """Seconds of onnxruntime with one thread: opening the network, a picture from its file to its answer, the network alone."""
    torch.set_num_threads(1)
    runtime = onnxruntime("this benchmark")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    began = time.perf_counter()
    session = runtime.InferenceSession(file.read_bytes(), options, providers=["CPUExecutionProvider"])
    opened = time.perf_counter() - began
    model = read_exported(file)
    model._session = session  # type: ignore[attr-defined]
    whole, alone = [], []
    for name in pictures[:TIMED]:
        began = time.perf_counter()
        model.predict(name)
        whole.append(time.perf_counter() - began)
    assert model.preprocess is not None
    x = np.random.default_rng(0).normal(size=(1, 3, model.preprocess.size, model.preprocess.size)).astype(np.float32)
    for _ in range(TIMED):
        began = time.perf_counter()
        session.run(None, {"input": x})
        alone.append(time.perf_counter() - began)
    return {"opened": opened, "picture": median(whole[10:]), "network": median(alone[10:])}


def compare(ours: list[dict[str, Any]], page: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of equal answers, and the largest and mean difference of a probability of the answers at all levels."""
    deepest = [a["answer"]["label"] == b["answer"]["label"] for a, b in zip(ours, page, strict=True)]
    finest = [a["levels"][-1]["label"] == b["levels"][-1]["label"] for a, b in zip(ours, page, strict=True)]
    gaps = [
        max(abs(x["probability"] - y["probability"]) for x, y in zip(a["levels"], b["levels"], strict=True))
        for a, b in zip(ours, page, strict=True)
    ]
    return {
        "deepest": float(np.mean(deepest)),
        "finest": float(np.mean(finest)),
        "most": max(gaps),
        "mean": float(np.mean(gaps)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("pictures")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--weights", nargs="+", default=["float16", "int8", "float32"])
    parser.add_argument("--runtime")
    args = parser.parse_args()
    every = [str(one) for one in expand([args.pictures], want_images=True)]
    files = [every[i] for i in np.linspace(0, len(every) - 1, args.count).astype(int)]
    asked = Wanted(args.confidence, f"confidence {args.confidence:g}")
    ours = [as_dict(named, asked) for named in load(args.run).predict(files, top=1)]
    print(f"{len(files)} pictures of {args.pictures}, answers of lht predict --confidence {args.confidence:g}\n")
    print("| weights | MB | requests | same deepest answer | same finest | most | mean | opening | picture | network alone |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.onnx"
        export(args.run, file)
        rival = in_python(file, files)
        for weights in args.weights:
            html = Path(folder) / f"{weights}.html"
            written = export_page(args.run, html, weights=weights, confidence=args.confidence, runtime=args.runtime)
            page = in_page(html, files)
            same = compare(ours, page["answers"])
            ratios = [
                page["opened"] / rival["opened"],
                median(page["seconds"][10:]) / rival["picture"],
                median(page["network"][10:]) / rival["network"],
            ]
            figures = [f"{html.stat().st_size / 1e6:.2f}", f"{len(page['requests'])}", f"{same['deepest']:.1%}"]
            figures += [f"{same['finest']:.1%}", f"{same['most']:.4f}", f"{same['mean']:.5f}", *(f"{r:.1f}" for r in ratios)]
            print(f"| {weights} | {' | '.join(figures)} |", flush=True)
            print(f"<!-- {written.change} opened {page['opened']:.2f} s, picture {median(page['seconds'][10:]):.3f} s -->")
        seconds = ", ".join(f"{name} {value:.3f} s" for name, value in rival.items())
        print(f"\nonnxruntime: {seconds}")


if __name__ == "__main__":
    main()
