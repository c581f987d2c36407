"""ONNX files of models whose classes may have several parents. `read` says what other files hold; these hold:

format, torchlht       4; and the version that wrote it
method                 its name
exclusive              whether each sample has one leaf
input                  {"kind": "picture" or "features", "shape": ["batch", 3, size, size] or ["batch", width]}; features are
                       NaN where a value is missing
preprocess             how pictures are prepared, as in config.yaml; null if the inputs are features
levels                 names of the levels, from the top, or none
columns                names of the features, or none
outputs                ["log_probs"]: (batch, classes), the log-probability of every class; no class is above its parents
graph                  the content of graph.json: names of classes in the order of the output, and for each its parents
judged                 which classes were learned; others, such as a root above everything, are no answers
thresholds             for several labels per sample: from which probability on a class is answered, level by level from the top
calibration            the content of calibration.json, or null
threshold              {"value": …, "promise": "confidence 0.9"} of answers, or null
"""

from __future__ import annotations

import importlib.metadata
import json
import mmap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchlht.answer.exported.read import INPUT, KEY, open_onnx, quietly
from torchlht.answer.exported.write import CHECKED, TOLERANCE, TRACED, need_onnx, precise_logarithms
from torchlht.answer.facets import GraphCalibration, Sure, sure
from torchlht.answer.finding import SUFFIXES
from torchlht.answer.several import Answering, GraphModel
from torchlht.data.preparing import Preprocess
from torchlht.doors import entrance, fit, from_json
from torchlht.errors import ConfigError, DataError, RunError, first_line
from torchlht.files import replacing
from torchlht.heads.graphs.exclusive import rescaling
from torchlht.heads.graphs.options import GraphArgs
from torchlht.hierarchy.graph import Graph
from torchlht.hierarchy.linked import GRAPH_FORMAT, GraphRecord

FORMAT = 4
OUTPUT = "log_probs"


class ThresholdRecord(msgspec.Struct):
    """The threshold of a file."""

    value: float
    promise: str


class GraphMetadata(msgspec.Struct):
    """The metadata of a file."""

    format: int
    method: str
    exclusive: bool
    input: dict[str, Any]
    graph: GraphRecord
    judged: list[bool]
    thresholds: list[float]
    calibration: dict[str, Any] | None = None
    threshold: ThresholdRecord | None = None
    preprocess: dict[str, Any] | None = None
    levels: list[str] = []
    columns: list[str] = []
    torchlht: str | None = None


def is_of_graph(path: str | Path) -> bool:
    """Whether an ONNX file says that its classes form a graph; nothing of it is run."""
    if not Path(path).is_file() or not Path(path).stat().st_size:
        return False
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(f'"graph": {{"format": "{GRAPH_FORMAT}"'.encode()) >= 0


class ExportedGraph(Answering):
    """A model from an ONNX file: pictures or features in, probabilities of all classes out, with the answers of the run.

    >>> ExportedGraph.read("birds.onnx").predict(features)[0].deepest
    ('Ivory Gull',)
    """

    def __init__(self, session: Any, metadata: GraphMetadata, source: str) -> None:
        self._session, self.metadata = session, metadata
        self.graph = Graph.from_dict(metadata.graph, source)
        self.exclusive = metadata.exclusive
        self.judged, self.thresholds = torch.tensor(metadata.judged), torch.tensor(metadata.thresholds)
        calibration, threshold = metadata.calibration, metadata.threshold
        self.calibration = None if calibration is None else GraphCalibration.from_dict(calibration, source)
        self.sure = Sure(threshold.value, threshold.promise) if threshold else Sure()
        self.in_features, self.levels = int(metadata.input["shape"][1]), tuple(metadata.levels)
        self.preprocess = Preprocess.from_dict(metadata.preprocess) if metadata.preprocess else None
        self.columns = tuple(metadata.columns)
        if len(self.judged) != len(self.graph) or len(self.thresholds) != int(self.graph.levels.max()) + 1:
            raise RunError(f"{source}: its metadata does not fit its graph; export it again")
        self._rescale = rescaling(self.graph, GraphArgs(method=metadata.method, exclusive=metadata.exclusive))

    @classmethod
    def read(cls, path: str | Path, *, trust: bool = False) -> ExportedGraph:
        """Open a file. Raises RunError when it is not such a file, and MissingExtraError without onnxruntime."""
        session, text = open_onnx(path, trust=trust)
        values = from_json(text, dict[str, Any], f"{path}: metadata", RunError)
        if values.get("format") != FORMAT:
            raise RunError(
                f"{path}: written in format {values.get('format')}; format {FORMAT} holds classes with several parents"
            )
        try:
            return cls(session, fit(values, GraphMetadata, f"{path}: metadata", RunError), str(path))
        except (ConfigError, KeyError, IndexError, ValueError) as error:
            raise RunError(f"{path}: its metadata is damaged ({first_line(error)}); export it again") from error

    def log_probs(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Prepared pictures, or (N, d) features, NaN where missing, to (N, nodes) log-probabilities."""
        if self.preprocess is None and (x.ndim != 2 or x.shape[1] != self.in_features):
            raise DataError(f"features are {x.shape}; this model takes (samples, {self.in_features})")
        found: NDArray[np.float32] = self._session.run(None, {INPUT: x.astype(np.float32)})[0]
        return found

    def probabilities(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, d) features, NaN where missing, to (N, nodes) probabilities."""
        return np.exp(self.log_probs(x))

    def see(self, x: Tensor) -> Tensor:
        """Prepared pictures, or features, to (B, nodes) probabilities."""
        return torch.from_numpy(self.probabilities(x.cpu().float().numpy()))

    def rescaled(self, log_p: Tensor, temperature: float) -> Tensor:
        """(N, nodes) log-probabilities at a temperature."""
        return self._rescale(log_p, temperature)


# ---- writing ---------------------------------------------------------------------------------------------------------


class WrittenGraph(msgspec.Struct):
    """An exported file, and the largest difference of a probability from the run's."""

    path: Path
    model: ExportedGraph
    difference: float

    def __repr__(self) -> str:
        return f"WrittenGraph({str(self.path)!r}, difference {self.difference:.0e})"


class _LogProbs(nn.Module):
    """Prepared pictures, or features, to log-probabilities of every class."""

    def __init__(self, model: GraphModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input: Tensor) -> Tensor:
        x = (self.model.backbone(input) - self.model.center) / self.model.scale
        return self.model.log_look(torch.where(torch.isnan(x), 0.0, x))


@entrance
def export_graph(
    run: str | Path, out: str | Path, *, confidence: float | None = None, risk: float | None = None, strict: bool = False
) -> WrittenGraph:
    """Export a run on a graph to ONNX and check the file against the run; see `answer.exported.write.export`.

    Raises:
        RunError: when there is no such run, or the file gives other probabilities.
        ConfigError: when the suffix is another, or the threshold cannot be promised.
        MissingExtraError: without the extra `export`.
    """
    path = Path(out)
    if path.suffix.lower() != SUFFIXES["onnx"]:
        raise ConfigError(f"`out` is {path}: classes with several parents are exported to ONNX alone, {SUFFIXES['onnx']}")
    if path.is_dir():
        raise ConfigError(f"`out` is {path}, which is a folder: name a file")
    need_onnx()
    model = GraphModel.load(run)
    text = json.dumps(metadata_of(model, sure(confidence, risk, model.calibration, strict=strict)), ensure_ascii=False)
    with replacing(path) as beside:
        try:
            with quietly():
                _write(model, text, beside)
                exported = ExportedGraph.read(beside)
                worst = max(_difference(model, exported, n) for n in CHECKED)
        except Exception as error:  # exporters raise errors of any class
            raise RunError(f"{path}: this run cannot be exported ({first_line(error.__cause__ or error)})") from error
        if not worst <= TOLERANCE:
            raise RunError(f"{path}: not written: the exported file differs by {worst:.2g} in probability")
    return WrittenGraph(path, exported, worst)


def metadata_of(model: GraphModel, asked: Sure) -> dict[str, Any]:
    """The metadata of the file, see above."""
    return {
        "format": FORMAT,
        "torchlht": importlib.metadata.version("torchlht"),
        "method": model.network.args.method,
        "exclusive": model.exclusive,
        "input": {"kind": "picture" if model.preprocess else "features", "shape": ["batch", *_shape(model)]},
        "preprocess": model.preprocess.to_dict() if model.preprocess else None,
        "levels": list(model.levels),
        "columns": list(model.columns),
        "outputs": [OUTPUT],
        "graph": model.graph.to_dict(),
        "judged": model.judged.tolist(),
        "thresholds": model.thresholds.tolist(),
        "calibration": model.calibration.to_dict() if model.calibration else None,
        "threshold": {"value": asked.threshold, "promise": asked.promise} if asked.promise else None,
    }


def _shape(model: GraphModel) -> tuple[int, ...]:
    """The shape of one input."""
    return (3, model.preprocess.size, model.preprocess.size) if model.preprocess else (model.in_features,)


def _samples(model: GraphModel, n: int) -> Tensor:
    """Inputs: features as those it was trained on; pictures of a colour each, with some noise."""
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, *_shape(model), generator=generator)
    if model.preprocess is None:
        return x * model.scale + model.center
    return torch.randn(n, 3, 1, 1, generator=generator) + 0.2 * x


def _write(model: GraphModel, text: str, path: Path) -> None:
    dynamic = {INPUT: {0: torch.export.Dim("batch", min=1)}}
    program = torch.export.export(_LogProbs(model).eval(), (_samples(model, TRACED),), dynamic_shapes=dynamic)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths of this computer
    found = torch.onnx.export(
        program, dynamo=True, input_names=[INPUT], output_names=[OUTPUT], dynamic_shapes=dynamic,
        custom_translation_table=precise_logarithms(), verbose=False,
    )  # fmt: skip
    assert found is not None
    found.model.metadata_props[KEY] = text
    found.save(path, external_data=False)


def _difference(model: GraphModel, exported: ExportedGraph, n: int) -> float:
    """The largest difference of a probability over n samples, one of which has a missing feature; it may be NaN."""
    x = _samples(model, n)
    if not model.preprocess:
        x[0, 0] = torch.nan
    with torch.no_grad():
        return float((model.see(x) - exported.see(x)).abs().max())
