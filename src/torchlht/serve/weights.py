"""A network's weights in fewer bytes, and what that changes.

The network computes in float32 all the same: what is stored is cast when it is loaded.

float16   halves the bytes. The rounding of a filter over one channel is carried from one of its numbers to the next, so that
          its sum stays: neighbouring pixels are alike, and the sum is what they see. It halves what rounding changes
int8      a quarter of them: each row of a weight is stored as whole numbers from -127 to 127, and one factor for all of it

Vectors, such as biases, and small tensors stay float32, and so does what float16 cannot hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchlht.answer.exported.read import OnnxModel
from torchlht.answer.named import Wanted
from torchlht.answer.novelty import ALARMS
from torchlht.heads.prediction import Prediction

Weights = Literal["float32", "float16", "int8"]
SMALLEST = 8000  # numbers: smaller tensors stay as they are. They are the first layers, where rounding matters most
BATCH = 16
HALF_MOST = float(np.finfo(np.float16).max)


class Change(NamedTuple):
    """What storing weights in fewer bytes changes, on some samples.

    Attributes:
        weights: how they are stored.
        samples: how many samples were asked about.
        source: what they are: "validation pictures of the run", "random inputs".
        same: the share of them with the same answer, as deep as the threshold allows.
        most: the largest difference of a probability, at any level.
        mean: the mean over samples of their largest.
    """

    weights: Weights
    samples: int
    source: str
    same: float
    most: float
    mean: float

    def __str__(self) -> str:
        if self.weights == "float32":
            return "Weights are stored as they were trained, in float32."
        return (
            f"Weights are stored in {self.weights}. On {self.samples:,} {self.source} that leaves {self.same:.1%} of the "
            f"answers as they are; probabilities change by {self.most:.1g} at most, {self.mean:.1g} on average."
        )


def store(source: Path, target: Path, weights: Weights) -> None:
    """Write an ONNX file with its weights stored in another way."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(source)
    graph, added = model.graph, []
    for tensor in list(graph.initializer):
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2 or np.prod(tensor.dims) < SMALLEST:
            continue
        parts = stored(numpy_helper.to_array(tensor), weights)
        if parts is None:
            continue
        name = tensor.name
        graph.initializer.remove(tensor)
        named = [f"{name} stored", f"{name} factor"][: len(parts)]
        graph.initializer.extend(numpy_helper.from_array(part, one) for part, one in zip(parts, named, strict=True))
        cast = name if len(parts) == 1 else f"{name} cast"
        added.append(onnx.helper.make_node("Cast", [named[0]], [cast], to=onnx.TensorProto.FLOAT))
        if len(parts) == 2:
            added.append(onnx.helper.make_node("Mul", [cast, named[1]], [name]))
    nodes = [*added, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    target.write_bytes(model.SerializeToString())


def stored(values: NDArray[np.float32], weights: Weights) -> list[NDArray[Any]] | None:
    """The arrays whose product, in float32, stands for `values`; None if they stay as they are."""
    if weights == "float16":
        return [halved(values)] if np.abs(values).max() <= HALF_MOST else None
    if weights == "int8" and np.isfinite(values).all():
        most = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True)
        factor = np.where(most > 0, most / np.float32(127), np.float32(1)).astype(np.float32)
        return [np.rint(values / factor).astype(np.int8), factor]
    return None


def halved(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Numbers in float16; those of filters over one channel (C, 1, h, w) keep the sum of each filter."""
    if values.ndim != 4 or values.shape[1] != 1:
        return values.astype(np.float16)
    flat = values.reshape(len(values), -1).astype(np.float64)
    found, carried = np.empty(flat.shape, dtype=np.float16), np.zeros(len(flat))
    for i in range(flat.shape[1]):
        exact = flat[:, i] + carried
        found[:, i] = exact.clip(-HALF_MOST, HALF_MOST).astype(np.float16)
        carried = exact - found[:, i]
    return found.reshape(values.shape)


def bare(content: bytes) -> bytes:
    """An ONNX file without what only describes it: metadata, notes of the exporter, shapes of inner values."""
    import onnx

    model = onnx.load_from_string(content)
    del model.metadata_props[:]
    del model.graph.value_info[:]
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    return bytes(model.SerializeToString())


def changed(whole: OnnxModel, small: OnnxModel, x: Tensor, source: str, weights: Weights, asked: Wanted) -> Change:
    """Compare two networks on prepared inputs (n, …)."""
    same, most = [], []
    for part in torch.split(x, BATCH):
        before, after = (_decided(model, part, asked) for model in (whole, small))
        pairs = zip(before[0].log_probs, after[0].log_probs, strict=True)
        most.append(torch.stack([(a.exp() - b.exp()).abs().amax(dim=1) for a, b in pairs]).amax(dim=0))
        same.append((before[1] == after[1]).all(dim=1))
    worst = torch.cat(most)
    return Change(weights, len(x), source, torch.cat(same).double().mean().item(), worst.max().item(), worst.mean().item())


def _decided(model: OnnxModel, x: Tensor, asked: Wanted) -> tuple[Prediction, Tensor]:
    """The prediction that people see, and (B, K) the classes answered, -1 below the threshold."""
    said = model.look(x)
    found = model.decided(said)
    chosen = found.chosen()
    sure = torch.stack([p.gather(1, c[:, None])[:, 0].exp() for p, c in zip(found.log_probs, chosen.unbind(1), strict=True)], 1)
    below = sure < asked.threshold
    if asked.promise and model.novelty is not None:
        below |= model.novelty.as_far(said) < ALARMS
    return found, chosen.masked_fill(below, -1)
