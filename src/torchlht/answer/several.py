"""`GraphModel`: a trained model that gives several labels per sample, and the directory it lies in."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.answer.asking import over
from torchlht.answer.backbones import Backbone, create_backbone
from torchlht.answer.facets import GraphCalibration, Sure, closed, likeliest, sure_classes
from torchlht.answer.facets import sure as threshold
from torchlht.answer.finding import GRAPH, check_run
from torchlht.answer.html import labels_html
from torchlht.answer.model import Inputs, Model, Unfilled, as_features, as_samples
from torchlht.answer.records import CONFIG, WEIGHTS, read_config
from torchlht.data.batches import SampleSet
from torchlht.data.pictures import Problem
from torchlht.data.preparing import Preprocess
from torchlht.doors import entrance
from torchlht.errors import BackboneError, ConfigError, DataError, RunError, first_line
from torchlht.files import replacing, write_yaml
from torchlht.heads.graphs.exclusive import create_network
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.smoother import Smoother
from torchlht.hierarchy.graph import Graph

BATCH = 256
USUAL = Sure()


@dataclass(frozen=True, repr=False)
class Labels:
    """The classes of one sample.

    Attributes:
        source: the sample's name.
        probabilities: every class that reaches the threshold of its level, with all its ancestors, coarse → fine.
        deepest: those of them without a finer one: the answer.
        levels: the level of each class, if the data names its levels.
        leaves: of samples with one leaf each, the most probable ones.
        promise: what the threshold promises, such as "confidence 0.9".
    """

    source: str
    probabilities: dict[str, float]
    deepest: tuple[str, ...]
    levels: dict[str, str] = field(default_factory=dict)
    leaves: dict[str, float] = field(default_factory=dict)
    promise: str | None = None

    def __str__(self) -> str:
        """The answer in words: `Herring Gull (species, 83%) · Alcidae (family, 95%)`."""
        return " · ".join(map(self._in_words, self.deepest)) or "none is sure enough"

    def __repr__(self) -> str:
        return f"Labels({self.source!r}: {self})"

    def _repr_html_(self) -> str:
        """The picture and a bar per class, for notebooks."""
        return labels_html(self)

    def _in_words(self, name: str) -> str:
        share = f"{self.probabilities[name]:.0%}"
        return f"{name} ({self.levels[name]}, {share})" if self.levels else f"{name} {share}"


class Answering:
    """Answers of whatever gives probabilities of the classes of a graph.

    Attributes:
        graph: the classes.
        exclusive: whether each sample has one leaf.
        calibration: how its probabilities are calibrated, if they are.
        judged: (nodes,) the classes that it has learned.
        levels: names of the levels, coarse → fine, or none.
        thresholds: (levels,) from which probability on a class is answered, if samples have several labels.
        preprocess: how pictures are prepared; None if the inputs are features.
        in_features: width of the features.
        columns: names of the features, if the training data named them.
        sure: the threshold that answers usually have.
    """

    graph: Graph
    exclusive: bool
    calibration: GraphCalibration | None
    judged: Tensor
    levels: tuple[str, ...]
    thresholds: Tensor
    in_features: int
    preprocess: Preprocess | None = None
    columns: tuple[str, ...] = ()
    sure: Sure = USUAL

    def probabilities(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, d) features to (N, nodes) probabilities."""
        raise NotImplementedError

    def see(self, x: Tensor) -> Tensor:
        """Prepared pictures, or features, to (B, nodes) probabilities."""
        raise NotImplementedError

    def look_at(self, data: SampleSet, *, workers: int = 0) -> tuple[list[int], NDArray[np.float32]]:
        """Samples whose labels are their positions, to the positions of those that could be read, and (N, nodes)."""
        module = self if isinstance(self, nn.Module) else None
        found = [(at, said) for _, said, at in over(module, data, self.see, workers=workers)]
        if not found:
            return [], np.empty((0, len(self.graph)), dtype=np.float32)
        at, scores = (torch.cat(parts) for parts in zip(*found, strict=True))
        return at.flatten().tolist(), scores.numpy()

    def rescaled(self, log_p: Tensor, temperature: float) -> Tensor:
        """(N, nodes) log-probabilities at a temperature."""
        raise NotImplementedError

    def calibrated(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probabilities as they were calibrated, or as they are."""
        if self.calibration is None:
            return scores
        log_p = torch.from_numpy(scores).clamp(min=torch.finfo(torch.float32).tiny).log()
        found: NDArray[np.float32] = self.rescaled(log_p, self.calibration.temperature).exp().numpy()
        return found

    def chosen(self, scores: NDArray[np.float32], sure: Sure = USUAL) -> NDArray[np.bool_]:
        """(N, nodes) the classes that are answered with these probabilities: see `answer.facets`."""
        judged: NDArray[np.bool_] = self.judged.numpy()
        if sure.threshold is not None:
            return sure_classes(scores, self.graph, sure.threshold, exclusive=self.exclusive) & judged
        if self.exclusive:
            return likeliest(scores, self.graph) & judged
        return choose(scores, self.thresholds.numpy(), self.graph) & judged

    @entrance
    def predict(
        self,
        inputs: Inputs,
        names: Sequence[str] | None = None,
        sure: Sure | None = None,
        *,
        confidence: float | None = None,
        risk: float | None = None,
        strict: bool = False,
        unreadable: list[Problem] | None = None,
    ) -> list[Labels]:
        """The classes of each sample that reach the threshold of their level, and whose parents do; or that are sure enough.

        Args:
            inputs: one picture (path or PIL) or several, folders, patterns, tables; for a model on features, an (N, d) array,
                NaN where a value is missing, .arff files, or .npz files with an array `x`.
            names: what to call the samples in the answers.
            sure: a threshold that is already known.
            confidence: answer with the classes whose probability reaches this; by default with those that reach the
                threshold of their level, or with the most probable leaf.
            risk: answer with classes that are so sure that at most this share of answers is wrong.
            strict: for `risk`, count validation answers that no label can check as wrong.
            unreadable: a list that takes unreadable pictures, which are then left out of the answers.

        Raises:
            DataError: when inputs are of the wrong kind, or a picture cannot be read and `unreadable` is not given.
            ConfigError: when a risk cannot be promised, or both are asked for.
        """
        sure = sure or threshold(confidence, risk, self.calibration, strict=strict)
        if isinstance(inputs, np.ndarray) and self.preprocess is None:
            rows = [f"row {i}" for i in range(len(inputs))]
            x = as_features(inputs, self.in_features).numpy()
            return self.answered(self.probabilities(x), called(names, rows), sure)
        own, data = as_samples(inputs, self.preprocess, self.in_features, unreadable, self.columns)
        positions, scores = self.look_at(data) if len(data) else ([], np.empty((0, len(self.graph)), dtype=np.float32))
        given = called(names, own)
        return self.answered(scores, [given[i] for i in positions], sure)

    def answered(self, raw: NDArray[np.float32], names: Sequence[str], sure: Sure = USUAL) -> list[Labels]:
        """Answers from (N, nodes) probabilities that are not calibrated yet."""
        scores = self.calibrated(raw)
        return self.named(scores, self.chosen(raw if sure.threshold is None else scores, sure), names, sure)

    def first_leaves(self, scores: NDArray[np.float32], count: int = 3) -> dict[str, float]:
        """The most probable leaves of a sample, by (nodes,) probabilities."""
        first = self.graph.leaves[np.argsort(-scores[self.graph.leaves], kind="stable")[:count]]
        return {self.graph.names[j]: round(float(scores[j]), 4) for j in first}

    def named(self, scores: NDArray[np.float32], chosen: NDArray[np.bool_], names: Sequence[str], sure: Sure) -> list[Labels]:
        """Answers with names, from (N, nodes) probabilities and the classes that are chosen."""
        ends, depth = self.graph.ends(chosen.astype(np.int8)), self.graph.levels
        order = np.argsort(depth, kind="stable")
        found = []
        for source, own, said, deepest in zip(names, scores, chosen, ends, strict=True):
            probabilities = {self.graph.names[j]: round(float(own[j]), 4) for j in order if said[j]}
            answer = tuple(self.graph.names[j] for j in order if deepest[j])
            levels = {self.graph.names[j]: self.levels[depth[j]] for j in order if said[j]} if self.levels else {}
            leaves = self.first_leaves(own) if self.exclusive else {}
            found.append(Labels(source, probabilities, answer, levels, leaves, sure.promise))
        return found


def called(names: Sequence[str] | None, own: Sequence[str]) -> Sequence[str]:
    """The names that samples are given, or their own. Raises DataError if there are more or fewer."""
    if names is not None and len(names) != len(own):
        raise DataError(f"`names` has {len(names)} names for {len(own)} samples")
    return own if names is None else names


class GraphModel(Answering, nn.Module):
    """Pictures or features in, a probability of every class of a graph out.

        >>> model = GraphModel.load("runs/genes")
        >>> model.predict(features)[0].deepest
        ('01/05/01', '42/16')

    Args:
        network: what gives the probabilities.
        judged: (nodes,) the classes that it has learned.
        smoother: the kernel smoother that has a share in the answers, or None.
        backbone: turns pictures into features; None if the inputs are features.
        preprocess: how pictures are prepared; by default as the backbone needs it.
        levels: names of the levels, coarse → fine, or none.
        columns: names of the features, or none.
    """

    def __init__(
        self,
        network: GraphNetwork,
        judged: NDArray[np.bool_],
        smoother: Smoother | None = None,
        *,
        backbone: Backbone | None = None,
        preprocess: Preprocess | None = None,
        levels: Sequence[str] = (),
        columns: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.network, self.smoother, self.graph = network, smoother, network.graph
        self.backbone, self.levels, self.columns = backbone or create_backbone("none"), tuple(levels), tuple(columns)
        self.preprocess = preprocess or self.backbone.preprocess
        self.exclusive, self.calibration, self.in_features = network.args.exclusive, None, network.in_features
        self.register_buffer("judged", torch.from_numpy(np.asarray(judged, dtype=bool)))
        self.register_buffer("center", torch.zeros(network.in_features))
        self.register_buffer("scale", torch.ones(network.in_features))
        self.register_buffer("thresholds", torch.full((int(self.graph.levels.max()) + 1,), 0.5))

    center: Tensor
    scale: Tensor

    def rescaled(self, log_p: Tensor, temperature: float) -> Tensor:
        """(N, nodes) log-probabilities at a temperature."""
        return self.network.rescaled(log_p, temperature)

    def standardise(self, x: NDArray[np.float32]) -> Tensor:
        """Features as the network wants them; missing ones are the mean."""
        if x.ndim != 2 or x.shape[1] != self.network.in_features:
            raise DataError(f"features are {x.shape}; this model takes (samples, {self.network.in_features})")
        return self.scaled(torch.from_numpy(x.astype(np.float32)))

    def scaled(self, x: Tensor) -> Tensor:
        """Features with the mean and spread that the network wants; missing ones are the mean."""
        return torch.nan_to_num((x - self.center) / self.scale, nan=0.0)

    def seen(self, pictures: Tensor) -> Tensor:
        """Prepared pictures (B, 3, size, size) to standardised features."""
        return self.scaled(self.backbone(pictures))

    def see(self, x: Tensor) -> Tensor:
        """Prepared pictures, or features, to (B, nodes) probabilities."""
        return self.look(self.seen(x))

    def learn_scale(self, x: NDArray[np.float32]) -> None:
        """Set mean and spread of the features to those of these samples, with missing values at the mean."""
        missing = np.isnan(x)
        count = np.maximum((~missing).sum(0), 1)
        center = np.where(missing, 0, x).sum(0, dtype=np.float64) / count
        spread = np.sqrt(np.where(missing, 0, x - center).astype(np.float64).__pow__(2).mean(0))
        self.center.copy_(torch.from_numpy(center).float())
        self.scale.copy_(torch.from_numpy(np.where(spread > 0, spread, 1.0)).float())

    @torch.no_grad()
    def probabilities(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, d) features, NaN where missing, to (N, nodes) probabilities; no class is above its parents."""
        was = self.training
        found = [self.eval().look(part) for part in torch.split(self.standardise(x), BATCH)]
        self.train(was)
        both: NDArray[np.float32] = torch.cat(found).numpy() if found else np.empty((0, len(self.graph)), dtype=np.float32)
        return both

    def look(self, x: Tensor) -> Tensor:
        """Probabilities of standardised features."""
        p = self.network.log_probs(self.network(x)).exp()
        if self.smoother is None:
            return p
        share = self.network.args.share()
        return (1 - share) * p + share * self.network.coherent(self.smoother(x))

    def log_look(self, x: Tensor) -> Tensor:
        """Log-probabilities of standardised features."""
        if self.smoother is None:
            return self.network.log_probs(self.network(x))
        return self.look(x).clamp(min=torch.finfo(torch.float32).tiny).log()

    def __repr__(self) -> str:
        """One line; `torch.nn.Module.__repr__(model)` lists the layers."""
        takes = f"pictures by {self.backbone.name}" if self.preprocess else f"features of width {self.in_features}"
        calibrated = "calibrated" if self.calibration else "not calibrated"
        return f"GraphModel({self.network.args.method} on {takes}: {self.graph.describe()}; {calibrated})"

    # ---- its directory ---------------------------------------------------------------------------------------------

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write graph.json, config.yaml and the weights; `extra` is kept in config.yaml."""
        self.graph.write(folder / GRAPH)
        options = {name: value for name, value in self.network.args.to_dict().items() if name != "method"}
        kept = 0 if self.smoother is None else len(self.smoother.samples)
        model = {"backbone": self.backbone.name, "in_features": self.network.in_features, "method": self.network.args.method}
        more: dict[str, Any] = {"preprocess": self.preprocess.to_dict()} if self.preprocess else {}
        more |= {"levels": list(self.levels)} if self.levels else {}
        more |= {"columns": list(self.columns)} if self.columns else {}
        more |= {"pooling": "both"} if self.backbone.peaked else {}
        version = importlib.metadata.version("torchlht")
        written = {"torchlht": version, "model": model | {"options": options, "smoothed": kept, **more}, **extra}
        write_yaml(folder / CONFIG, written)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        with replacing(folder / WEIGHTS) as beside:
            save_file(tensors, beside)
        if self.calibration is not None:
            self.calibration.write(folder)

    @classmethod
    def load(cls, source: str | Path) -> GraphModel:
        """The model in a run directory. Raises RunError when it is incomplete, or gives one label at each level."""
        folder = Path(source)
        check_run(folder)
        if not (folder / GRAPH).is_file():
            raise RunError(f"{folder}: this model gives one label at each level; open it with torchlht.load")
        config = read_config(folder)["model"]
        graph = Graph.read(folder / GRAPH)
        try:
            args = GraphArgs(method=config["method"], **config["options"])
            network = create_network(config["in_features"], graph, args)
            kept = int(config.get("smoothed", 0))
            smoother = Smoother(kept, config["in_features"], len(graph)) if kept else None
            with Unfilled():
                peaked = config.get("pooling") == "both"
                width = config["in_features"] // 2 if peaked else config["in_features"]
                backbone = create_backbone(config["backbone"], pretrained=False, in_features=width)
            if peaked:
                backbone.add_peaks()
            spec = Preprocess.from_dict(config["preprocess"]) if config.get("preprocess") else None
            named = {name: config.get(name, ()) for name in ("levels", "columns")}
            model = cls(network, np.ones(len(graph), bool), smoother, backbone=backbone, preprocess=spec, **named)
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (ConfigError, BackboneError, TypeError, ValueError) as error:
            raise RunError(f"{folder / CONFIG}: no model can be built from it ({first_line(error)})") from error
        except (SafetensorError, RuntimeError) as error:
            what = first_line(error).rstrip(":")
            raise RunError(f"{folder / WEIGHTS}: these weights do not belong to this configuration ({what})") from error
        model.calibration = GraphCalibration.read(folder)
        return model.eval()


def choose(scores: NDArray[np.float32], thresholds: NDArray[np.float32], graph: Graph) -> NDArray[np.bool_]:
    """Classes that reach the threshold of their level, and whose parents are all chosen, too: (N, nodes)."""
    return closed(scores >= thresholds[graph.levels], graph)


@entrance
def load(source: str | Path, *, calibrated: bool = True) -> Model | GraphModel:
    """The model of a run, ready to predict.

        >>> load("runs/birds").predict("beach.jpg")[0].answer(confidence=0.9)
        Answer('Laridae', level='family', probability=0.94)

    Args:
        source: a run directory, or the name of a model on the Hugging Face hub.
        calibrated: whether to read its calibration and what it calls unlike anything known, if they are there.

    Returns:
        A `Model`; a `GraphModel` for a run with several labels per sample, or several parents per class.

    Raises:
        RunError: when there is no such run or model, or it is incomplete.
    """
    if (Path(source) / GRAPH).is_file():
        return GraphModel.load(source)
    return Model.from_pretrained(source, calibrated=calibrated)
