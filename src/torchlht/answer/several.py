"""`GraphModel`: a trained model that gives several labels per sample, and the directory it lies in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.answer.finding import GRAPH, check_run
from torchlht.answer.records import CONFIG, WEIGHTS, read_config
from torchlht.errors import ConfigError, DataError, RunError, first_line
from torchlht.files import replacing, write_yaml
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.smoother import Smoother
from torchlht.hierarchy.graph import Graph

BATCH = 256


@dataclass(frozen=True)
class Labels:
    """The classes of one sample.

    Attributes:
        source: the sample's name.
        probabilities: every class that reaches the threshold of its level, with all its ancestors, coarse → fine.
        deepest: those of them without a finer one: the answer.
    """

    source: str
    probabilities: dict[str, float]
    deepest: tuple[str, ...]


class GraphModel(nn.Module):
    """Features in, a probability of every class of a graph out.

        >>> model = GraphModel.load("runs/genes")
        >>> model.predict(features)[0].deepest
        ('01/05/01', '42/16')

    Args:
        network: what gives the probabilities.
        judged: (nodes,) the classes that it has learned.
        smoother: the kernel smoother that has a share in the answers, or None.
    """

    def __init__(self, network: GraphNetwork, judged: NDArray[np.bool_], smoother: Smoother | None = None) -> None:
        super().__init__()
        self.network, self.smoother, self.graph = network, smoother, network.graph
        self.register_buffer("judged", torch.from_numpy(np.asarray(judged, dtype=bool)))
        self.register_buffer("center", torch.zeros(network.in_features))
        self.register_buffer("scale", torch.ones(network.in_features))
        self.register_buffer("thresholds", torch.full((int(self.graph.levels.max()) + 1,), 0.5))

    judged: Tensor
    center: Tensor
    scale: Tensor
    thresholds: Tensor

    def standardise(self, x: NDArray[np.float32]) -> Tensor:
        """Features as the network wants them; missing ones are the mean."""
        if x.ndim != 2 or x.shape[1] != self.network.in_features:
            raise DataError(f"features are {x.shape}; this model takes (samples, {self.network.in_features})")
        scaled = (torch.from_numpy(x.astype(np.float32)) - self.center) / self.scale
        return torch.nan_to_num(scaled, nan=0.0)

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

    def predict(self, x: NDArray[np.float32], names: list[str] | None = None) -> list[Labels]:
        """The classes of each sample that reach the threshold of their level, and whose parents do."""
        scores = self.probabilities(x)
        chosen = choose(scores, self.thresholds.numpy(), self.graph) & self.judged.numpy()
        ends = self.graph.ends(chosen.astype(np.int8))
        order = np.argsort(self.graph.levels, kind="stable")
        found = []
        for i, (own, said, deepest) in enumerate(zip(scores, chosen, ends, strict=True)):
            probabilities = {self.graph.names[j]: round(float(own[j]), 4) for j in order if said[j]}
            answer = tuple(self.graph.names[j] for j in order if deepest[j])
            found.append(Labels(names[i] if names else f"row {i}", probabilities, answer))
        return found

    # ---- its directory ---------------------------------------------------------------------------------------------

    def save(self, folder: Path, extra: dict[str, Any]) -> None:
        """Write graph.json, config.yaml and the weights; `extra` is kept in config.yaml."""
        self.graph.write(folder / GRAPH)
        options = {name: value for name, value in self.network.args.to_dict().items() if name != "method"}
        kept = 0 if self.smoother is None else len(self.smoother.samples)
        model = {"backbone": "none", "in_features": self.network.in_features, "method": self.network.args.method}
        write_yaml(folder / CONFIG, {"model": model | {"options": options, "smoothed": kept}, **extra})
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        with replacing(folder / WEIGHTS) as beside:
            save_file(tensors, beside)

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
            network = GraphNetwork(config["in_features"], graph, args)
            kept = int(config.get("smoothed", 0))
            smoother = Smoother(kept, config["in_features"], len(graph)) if kept else None
            model = cls(network, np.ones(len(graph), dtype=bool), smoother)
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (ConfigError, TypeError, ValueError) as error:
            raise RunError(f"{folder / CONFIG}: no model can be built from it ({first_line(error)})") from error
        except (SafetensorError, RuntimeError) as error:
            what = first_line(error).rstrip(":")
            raise RunError(f"{folder / WEIGHTS}: these weights do not belong to this configuration ({what})") from error
        return model.eval()


def choose(scores: NDArray[np.float32], thresholds: NDArray[np.float32], graph: Graph) -> NDArray[np.bool_]:
    """Classes that reach the threshold of their level, and whose parents are all chosen, too: (N, nodes)."""
    chosen: NDArray[np.bool_] = scores >= thresholds[graph.levels]
    for node in graph.order:
        for parent in graph.parents[node]:
            chosen[:, node] &= chosen[:, parent]
    return chosen
