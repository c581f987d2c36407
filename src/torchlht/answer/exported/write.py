"""Export a run: trace it for batches of any size, write a temporary file, check it against the run, rename it."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from torchlht.answer.calibration import kinds_of
from torchlht.answer.exported.read import FILE, FORMAT, INPUT, KEY, Exported, OnnxModel, TorchProgram, quietly
from torchlht.answer.finding import SUFFIXES
from torchlht.answer.model import Model
from torchlht.answer.named import Wanted, wanted
from torchlht.answer.novelty import Space
from torchlht.doors import entrance
from torchlht.errors import ConfigError, MissingExtraError, RunError, first_line
from torchlht.files import replacing
from torchlht.heads.prediction import Prediction, decide
from torchlht.hierarchy.tree import Hierarchy

Format = Literal["onnx", "torch"]
TRACED, CHECKED = 3, (1, 2, 7)  # batch sizes; a size fixed by tracing fails with another one
TOLERANCE = 1e-4  # of a probability
DISTANCE = "distance"  # the name of an output
DYNAMIC = {INPUT: {0: torch.export.Dim("batch", min=1)}}


class Written(NamedTuple):
    """An exported file, its metadata, and the largest difference of a probability from the run's."""

    path: Path
    metadata: dict[str, Any]
    difference: float

    def __repr__(self) -> str:
        return f"Written({str(self.path)!r}, difference {self.difference:.0e})"


@entrance
def export(
    run: str | Path,
    out: str | Path,
    *,
    to: Format | None = None,
    confidence: float | None = None,
    risk: float | None = None,
    strict: bool = False,
) -> Written:
    """Export a run on a tree, and check the file against the run: see `learn.runs.export`."""
    path = Path(out)
    if to is None:
        to = "torch" if path.suffix.lower() == SUFFIXES["torch"] else "onnx"
    if path.suffix.lower() != SUFFIXES[to]:
        raise ConfigError(f"`out` is {path}: its name must end in {SUFFIXES[to]}")
    if path.is_dir():
        raise ConfigError(f"`out` is {path}, which is a folder: name a file")
    if to == "onnx":
        need_onnx()
    model = Model.from_pretrained(run)
    asked = wanted(confidence, risk, model.rule, model.calibration, strict=strict)
    said = model.look(samples(model, 8))
    check_rule(model, said)
    metadata = describe(model, said, asked)
    text = json.dumps(metadata, ensure_ascii=False, allow_nan=False)
    write, read = FORMATS[to]
    what = f"method {model.method.name} on backbone {model.backbone.name}"
    with replacing(path) as beside:
        try:
            with quietly():
                write(traced(model), model, text, beside)
                worst = difference(model, read(beside))
        except Exception as error:  # exporters raise errors of any class
            raise RunError(f"{path}: {what} cannot be exported ({first_line(error.__cause__ or error)})") from error
        if not worst <= TOLERANCE:  # also true for NaN
            raise RunError(
                f"{path}: not written: exported, {what} differs by {worst:.2g} in probability; "
                "try the other format, `to=onnx` or `to=torch`"
            )
    return Written(path, metadata, worst)


def describe(model: Model, said: Prediction, asked: Wanted) -> dict[str, Any]:
    """The metadata of the file, see `read`. Without a calibration, predictions for samples, `said`, tell the levels' kinds."""
    tree, spec, calibration = model.hierarchy, model.preprocess, model.calibration
    return {
        "format": FORMAT if model.novelty else 2,
        "torchlht": importlib.metadata.version("torchlht"),
        "method": model.method.name,
        "backbone": model.backbone.name,
        "input": {"kind": "picture" if spec else "features", "shape": ["batch", *sample_shape(model)]},
        "outputs": list(tree.levels),
        "order": "fine first",
        "preprocess": spec.to_dict() if spec else None,
        "hierarchy": tree.to_dict(),
        "calibration": calibration.to_dict(tree) if calibration else None,
        "temperatures": list(calibration.temperatures) if calibration else [1.0] * len(tree),
        "kinds": list(calibration.kinds if calibration else kinds_of(said)),
        "rule": model.rule,
        "own_rule": model.method.rule,
        "threshold": {"value": asked.threshold, "promise": asked.promise} if asked.promise else None,
        "novelty": model.novelty.to_dict() if model.novelty else None,
    }


def sample_shape(model: Model) -> tuple[int, ...]:
    """The shape of one input."""
    if not model.preprocess:
        return (model.in_features,)
    size, looks = model.preprocess.size, model.preprocess.looks
    return (3, size, size) if looks == 1 else (looks, 3, size, size)


def output_names(tree: Hierarchy) -> list[str]:
    """The names of the outputs: those of their levels, unless the input or the distance has that name."""
    return [f"{level} level" if level in (INPUT, DISTANCE) else level for level in tree.levels]


# ---- tracing and writing -------------------------------------------------------------------------------------------


class LogProbs(nn.Module):
    """A model's log-probabilities, fine first, and its distances: exporters handle tuples of tensors, not a `Prediction`."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self._space = list(vars(model.novelty.space)) if model.novelty else []
        for name in self._space:
            assert model.novelty is not None
            self.register_buffer(name, getattr(model.novelty.space, name))

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        """Pictures or features to one (B, C_k) tensor per level, and (B,) distances if the model has them."""
        features = self.model.backbone(input)
        prediction: Prediction = self.model.method(features)
        space = Space(**{name: self.get_buffer(name) for name in self._space}) if self._space else None
        return (*prediction.log_probs, *((space.distance(self.model.method.pool(features)),) if space else ()))


def traced(model: Model) -> torch.export.ExportedProgram:
    """The model as a graph for batches of any size, without the paths of source files on this computer."""
    program = torch.export.export(LogProbs(model).eval(), (samples(model, TRACED),), dynamic_shapes=DYNAMIC)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program


def _write_onnx(program: torch.export.ExportedProgram, model: Model, text: str, path: Path) -> None:
    names = [*output_names(model.hierarchy), *([DISTANCE] if model.novelty else [])]
    found = torch.onnx.export(
        program,
        dynamo=True,
        input_names=[INPUT],
        output_names=names,
        dynamic_shapes=DYNAMIC,
        custom_translation_table=precise_logarithms(),
        verbose=False,
    )
    assert found is not None
    graph = found.model.graph
    for value in (*graph.initializers.values(), *(value for node in graph.all_nodes() for value in node.outputs)):
        if value.name in names and not value.is_graph_output():  # a level may share its name with an inner value
            value.name = f"inner {value.name}"
    found.model.metadata_props[KEY] = text
    found.save(path, external_data=False)


def precise_logarithms() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Logarithms of probabilities close to 1 or 0 as exact as torch's: exporters write log(sigmoid(x)), which is 0 or -∞ there.

    ONNX has no log1p, but log1p(e) = 2 atanh(e / (2 + e)).
    """
    op = importlib.import_module("onnxscript").opset18

    def log_sigmoid(self: Any) -> Any:
        return op.Sub(op.Min(self, 0.0), log1p(op.Exp(op.Neg(op.Abs(self)))))

    def logaddexp(self: Any, other: Any) -> Any:
        return op.Add(op.Max(self, other), log1p(op.Exp(op.Neg(op.Abs(op.Sub(self, other))))))

    def log1p(e: Any) -> Any:
        return op.Mul(op.Atanh(op.Div(e, op.Add(e, 2.0))), 2.0)

    return {torch.ops.aten.log_sigmoid.default: log_sigmoid, torch.ops.aten.logaddexp.default: logaddexp}


def _write_torch(program: torch.export.ExportedProgram, model: Model, text: str, path: Path) -> None:
    program.example_inputs = None  # they would be pickled
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files={FILE: text})


Write = Callable[[torch.export.ExportedProgram, Model, str, Path], None]
FORMATS: dict[Format, tuple[Write, Callable[[Path], Exported]]] = {
    "onnx": (_write_onnx, OnnxModel.read),
    "torch": (_write_torch, TorchProgram.read),
}


def need_onnx() -> None:
    """Raise MissingExtraError unless what writes ONNX is installed."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(package)
        except ImportError:
            raise MissingExtraError("exporting to ONNX", extra="export") from None


# ---- checking ------------------------------------------------------------------------------------------------------


def samples(model: Model, n: int) -> Tensor:
    """(n, …) random inputs, the same for the same n; features on the scale that the model was trained on."""
    x = torch.randn(n, *sample_shape(model), generator=torch.Generator().manual_seed(n))
    return model.method.typical(x) if model.preprocess is None else x


def check_rule(model: Model, said: Prediction) -> None:
    """Raise RunError if the method's answers to some samples, `said`, follow no rule that an exported file can name."""
    by_rule = decide(Prediction(said.log_probs), model.hierarchy, model.method.rule)
    if not torch.equal(by_rule.chosen(), said.chosen()):
        raise RunError(f"method {model.method.name} answers by a rule that exported files do not support")


def difference(model: Model, exported: Exported) -> float:
    """The largest difference of a probability between a model and its file, over batches of several sizes; it may be NaN."""
    found = []
    for n in CHECKED:
        x = samples(model, n)
        pairs = zip(model.look(x).log_probs, exported.look(x).log_probs, strict=True)
        found += [(ours.exp() - theirs.exp()).abs().max() for ours, theirs in pairs]
    return torch.stack(found).max().item()
