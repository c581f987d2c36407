"""What travels in an exported file beside the network: one JSON object under the key `torchlht`.

format, torchlht       2, and the version that wrote it
method, backbone       names
input                  {"kind": "picture" or "features", "shape": ["batch", 3, size, size] or ["batch", width]}, float32
outputs, order         names of the levels, one output each; "fine first". Each gives log-probabilities (batch, classes)
preprocess             as in config.yaml; null where the inputs are features
hierarchy              the content of hierarchy.json
calibration            the content of calibration.json; null where there is none
temperatures, kinds    per output: 1 without calibration; `softmax` or `sigmoid`, which is scaled, see `answer.calibration`
                       (format 1: one `kind` for all of them)
rule                   how classes are chosen: argmax, backtrack, …, see `heads.rules`
threshold              {"value": …, "promise": "confidence 0.9"}: what the probability of an answer has to reach; or null
"""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

from torchlht.answer.calibration import kinds_of
from torchlht.answer.model import Model
from torchlht.answer.named import Wanted
from torchlht.errors import RunError
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy

KEY, FORMAT = "torchlht", 2
FILE = f"{KEY}.json"  # inside a .pt2
INPUT = "input"


def describe(model: Model, said: Prediction, asked: Wanted) -> dict[str, Any]:
    """The object for a model; what it `said` of some samples tells the kinds of its levels, unless its calibration does."""
    tree, spec, calibration = model.hierarchy, model.preprocess, model.calibration
    return {
        "format": FORMAT,
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
        "rule": model.method.rule,
        "threshold": {"value": asked.threshold, "promise": asked.promise} if asked.promise else None,
    }


def sample_shape(model: Model) -> tuple[int, ...]:
    """The shape of one input."""
    return (3, model.preprocess.size, model.preprocess.size) if model.preprocess else (model.in_features,)


def output_names(tree: Hierarchy) -> list[str]:
    """What outputs are called: as their levels, unless the input has that name already."""
    return [f"{level} level" if level == INPUT else level for level in tree.levels]


def parse(text: str, source: str) -> dict[str, Any]:
    """The object from a file. Raises RunError when it is none, or one that only a newer version knows."""
    try:
        values = json.loads(text)
        version = int(values["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{source}: what lht export kept in it is damaged ({error!r}); export it again") from error
    if version not in range(1, FORMAT + 1):
        raise RunError(
            f"{source}: written by torchlht {values.get('torchlht')} in format {version}; update torchlht to read it"
        )
    assert isinstance(values, dict)
    return values
