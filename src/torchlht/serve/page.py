"""A run as one HTML file that classifies pictures by itself: network, runtime, tree and names inside, no request at any time.

The network and the runtime are gzip in base64, in elements that a browser takes for data. The network's bytes are sorted first,
all first bytes of its numbers, then all second ones: they compress better. Names are inside a compressed JSON object and are
shown as text, never as markup. A policy in the head forbids all that the page does not need, with the hash of the one script.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import importlib.resources
import json
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from torch import Tensor

from torchlht.answer.asking import over
from torchlht.answer.exported.read import OnnxModel
from torchlht.answer.exported.write import Written, export, samples
from torchlht.answer.model import Model
from torchlht.answer.named import Restriction, read_names
from torchlht.data.pictures import ASPECT, PIXELS
from torchlht.doors import entrance
from torchlht.errors import ConfigError, LHTError
from torchlht.files import replacing
from torchlht.heads.prediction import consistent_rule
from torchlht.measure.evaluation import run_inputs
from torchlht.serve.runtime import Runtime, find_runtime
from torchlht.serve.weights import Change, Weights, bare, changed, store
from torchlht.show.page import TEMPLATES as LOOK

SUFFIX = ".html"
SCRIPTS = ("resample.js", "picture.js", "answer.js", "loading.js", "page.js")
RULES = ("path", "backtrack", "top_down", "crm")  # those of answer.js
RISKS = (0.01, 0.02, 0.05, 0.1, 0.2)  # offered in the page if they can be promised
ASKED = 64  # samples that tell what storing weights in fewer bytes changes
TALL_FIRST = int(PIL.__version__.partition(".")[0]) >= 13  # see `resized` in resample.js
TEMPLATES = Environment(
    loader=PackageLoader("torchlht.serve", "web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


class Page(NamedTuple):
    """A page that was written.

    Attributes:
        path: the file.
        metadata: that of the exported network, see `answer.exported.read`.
        change: what the form of the weights changes.
        runtime: version and place of the runtime in it.
    """

    path: Path
    metadata: dict[str, Any]
    change: Change
    runtime: tuple[str, str]

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r}, {self.change})"


@entrance
def export_page(
    run: str | Path,
    out: str | Path,
    *,
    weights: Weights = "float16",
    confidence: float | None = None,
    risk: float | None = None,
    strict: bool = False,
    only: Sequence[str] = (),
    exclude: Sequence[str] = (),
    runtime: str | Path | None = None,
) -> Page:
    """Write a run as one HTML file that classifies pictures; an existing file is replaced.

    >>> str(export_page("runs/birds", "birds.html", confidence=0.9).change)
    'Weights are stored in float16. On 64 validation pictures of the run that leaves 100.0% of the answers as they are; …'

    Args:
        run: a finished run directory, or a model on the hub.
        out: the file, ending in .html.
        weights: how weights are stored; the network computes in float32.
        confidence: the threshold that the page starts with.
        risk: the threshold for this share of wrong answers, instead.
        strict: for `risk`, count validation answers that no label can check as wrong.
        only: classes at any level; all others are ruled out until the user says otherwise.
        exclude: classes at any level to rule out.
        runtime: where the npm package onnxruntime-web is; see `find_runtime`.

    Raises:
        RunError: when there is no such run, or it cannot be exported.
        ConfigError: when the run takes features, the runtime is not found, or an option makes no sense.
        MissingExtraError: without the extra `export`.
    """
    path = Path(out)
    if path.suffix.lower() != SUFFIX or path.is_dir():
        raise ConfigError(f"`out` is {path}: name a file that ends in {SUFFIX}")
    found = find_runtime(Path(runtime) if runtime is not None else None)
    model = Model.from_pretrained(run)
    check_model(model, run)
    if Restriction.parse(model.hierarchy, only, exclude) and risk is not None:
        raise ConfigError("`risk` was measured with all classes: pass `confidence` with `only` or `exclude`")
    with tempfile.TemporaryDirectory() as folder:
        whole, small = Path(folder) / "whole.onnx", Path(folder) / "small.onnx"
        written = export(run, whole, to="onnx", confidence=confidence, risk=risk, strict=strict)
        store(whole, small, weights)
        change = measured(run, model, whole, small, weights)
        about = describe(model, written, strict, read_names(only, "`only`"), read_names(exclude, "`exclude`"))
        text = page(run, model, about, change, found, small.read_bytes(), width=WIDTHS[weights])
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")
    return Page(path, written.metadata, change, (found.version, found.source))


WIDTHS: dict[Weights, int] = {"float32": 4, "float16": 2, "int8": 1}


def check_model(model: Model, run: str | Path) -> None:
    """Raise ConfigError unless a page can run the model."""
    if model.preprocess is None:
        raise ConfigError(f"{run}: takes features, and a web page takes pictures; export it with `to=onnx`")
    if consistent_rule(model.method.rule) not in RULES:
        raise ConfigError(f"{run}: answers by the rule {model.rule}, which a web page does not know; export it with `to=onnx`")


def measured(run: str | Path, model: Model, whole: Path, small: Path, weights: Weights) -> Change:
    """What storing the weights changes, on the run's own pictures if they are there, else on random inputs."""
    before, after = OnnxModel.read(whole), OnnxModel.read(small)
    if weights == "float32":
        return Change(weights, 0, "", 1.0, 0.0, 0.0)
    x, source = own_pictures(run) or (samples(model, ASKED), "random inputs")
    return changed(before, after, x, source, weights, before.wanted)


def own_pictures(run: str | Path) -> tuple[Tensor, str] | None:
    """Some of a run's validation pictures, prepared, or else of its test pictures; None if its data is not there."""
    for split, name in (("val", "validation"), ("test", "test")):
        try:
            inputs = run_inputs(run, split, pictures=True)
        except LHTError:  # the data may have moved, or have no such part
            continue
        some = np.unique(np.linspace(0, len(inputs.samples) - 1, ASKED).astype(int)).tolist()
        x = torch.cat([x for _, x, _ in over(None, inputs.data, lambda x: x, samples=some)])
        return x, f"{name} pictures of the run"
    return None


def describe(model: Model, written: Written, strict: bool, only: Sequence[str], exclude: Sequence[str]) -> dict[str, Any]:
    """What the page knows about the network: the metadata without risk curves, and what they promise."""
    kept = ("input", "preprocess", "hierarchy", "temperatures", "kinds", "rule", "threshold", "novelty")
    found = {name: written.metadata[name] for name in kept}
    return {
        **found,
        "preprocess": {**found["preprocess"], "tall_first": TALL_FIRST},
        "calibrated": model.calibration is not None,
        "promises": promises(model, written, strict),
        "only": list(only),
        "exclude": list(exclude),
    }


def promises(model: Model, written: Written, strict: bool) -> list[dict[str, float]]:
    """Shares of wrong answers that can be promised, with their thresholds."""
    if model.calibration is None or model.rule not in model.calibration.risks:
        return []
    curve, found = model.calibration.risks[model.rule], {}
    for risk in RISKS:
        lowest = curve.lowest_risk(strict=strict)
        if lowest is not None and risk >= lowest:
            found[risk] = curve.threshold(risk, strict=strict)
    threshold = written.metadata["threshold"]
    if threshold and threshold["promise"].startswith("risk"):
        found[float(threshold["promise"].split()[1].rstrip(","))] = threshold["value"]
    return [{"risk": risk, "threshold": found[risk]} for risk in sorted(found)]


# ---- the document ----------------------------------------------------------------------------------------------------


def page(
    run: str | Path, model: Model, about: dict[str, Any], change: Change, runtime: Runtime, network: bytes, *, width: int
) -> str:
    """The whole document."""
    about = {**about, "width": width}
    script = script_text()
    kicker = f"{model.hierarchy.describe()} · {'calibrated' if about['calibrated'] else 'not calibrated'} probabilities"
    return TEMPLATES.get_template("page.html").render(
        title=Path(run).resolve().name if Path(run).is_dir() else Path(run).name,
        kicker=kicker,
        version=importlib.metadata.version("torchlht"),
        runtime=runtime.version,
        precision=str(change),
        policy=policy(script),
        style=Markup(f"{LOOK.get_template('colours.css').render()}\n{_text('page.css')}"),
        script=Markup(script),
        packed={
            "about": packed(json.dumps(about, ensure_ascii=False, allow_nan=False).encode()),
            "licence-text": packed(licence().encode()),
            "runtime-code": packed(runtime.code),
            "runtime-wasm": packed(runtime.wasm),
            "network": packed(sorted_bytes(bare(network), width), zlib.Z_FILTERED),  # better than the default for such numbers
        },
    )


def script_text() -> str:
    """The page's own script."""
    limits = f'"use strict";\nconst MOST_PIXELS = {PIXELS}, MOST_ASPECT = {ASPECT};\n'
    return limits + "".join(_text(name) for name in SCRIPTS)


def policy(script: str) -> str:
    """What the page may do: run this one script, the runtime that it unpacks, and show its own pictures."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' 'wasm-unsafe-eval' blob:; style-src 'unsafe-inline'; "
        "img-src blob: data:; connect-src 'none'; form-action 'none'; base-uri 'none'"
    )


GZIP = 31  # for zlib: gzip's header, and the largest window


def packed(content: bytes, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> Markup:
    """Bytes as gzip in base64; the same for the same bytes."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, GZIP, strategy=strategy)
    return Markup(base64.b64encode(compressor.compress(content) + compressor.flush()).decode("ascii"))


def sorted_bytes(content: bytes, width: int) -> bytes:
    """First all bytes at places 0, w, 2w, …, then all at 1, w + 1, …: what `unsorted` of loading.js puts in order again."""
    numbers = np.frombuffer(content, dtype=np.uint8)
    return b"".join(numbers[i::width].tobytes() for i in range(width))


def licence() -> str:
    """The licence of ONNX Runtime, and the notices of what it is made of: the Python package holds those of the same source."""
    folder = importlib.resources.files("onnxruntime")
    texts = [folder / name for name in ("LICENSE", "ThirdPartyNotices.txt")]
    return "\n\n".join(["ONNX Runtime", *(text.read_text(encoding="utf-8") for text in texts)])


def _text(name: str) -> str:
    return importlib.resources.files("torchlht.serve").joinpath("web", name).read_text(encoding="utf-8")
