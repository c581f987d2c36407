"""Hierarchical classification that learns from partly labelled data.

>>> import torchlht
>>> tree = torchlht.Hierarchy.read("tree.csv")
>>> head = torchlht.LHTHead(in_features=2048, hierarchy=tree)     # on any network's features
>>> torchlht.load("runs/birds").predict("beach.jpg")              # or use a run of `lht train`

Names are imported on first use, so that the command line starts fast.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from torchlht.answer.exported.write import export as export
    from torchlht.answer.model import Model as Model
    from torchlht.answer.model import load as load
    from torchlht.answer.named import Answer as Answer
    from torchlht.data.reading import read_data as read_data
    from torchlht.data.samples import Mask as Mask
    from torchlht.data.samples import Samples as Samples
    from torchlht.errors import BackboneError as BackboneError
    from torchlht.errors import ConfigError as ConfigError
    from torchlht.errors import DataError as DataError
    from torchlht.errors import DivergedError as DivergedError
    from torchlht.errors import HierarchyError as HierarchyError
    from torchlht.errors import LHTError as LHTError
    from torchlht.errors import MissingExtraError as MissingExtraError
    from torchlht.errors import RunError as RunError
    from torchlht.heads.method import Method as Method
    from torchlht.heads.method import create_method as create_method
    from torchlht.heads.method import list_methods as list_methods
    from torchlht.heads.method import register as register
    from torchlht.heads.methods.lht import LHTHead as LHTHead
    from torchlht.heads.prediction import Prediction as Prediction
    from torchlht.heads.rules import decide as decide
    from torchlht.hierarchy.tree import Hierarchy as Hierarchy
    from torchlht.lab.comparison.grid import compare as compare
    from torchlht.lab.options import CompareArgs as CompareArgs
    from torchlht.learn.calibrating import calibrate as calibrate
    from torchlht.learn.options import TrainArgs as TrainArgs
    from torchlht.learn.training import train as train
    from torchlht.measure.evaluation import evaluate as evaluate
    from torchlht.measure.metrics import HierarchyMetrics as HierarchyMetrics
    from torchlht.show.page import report as report

_HOMES = {
    "Answer": "torchlht.answer.named",
    "BackboneError": "torchlht.errors",
    "CompareArgs": "torchlht.lab.options",
    "ConfigError": "torchlht.errors",
    "DataError": "torchlht.errors",
    "DivergedError": "torchlht.errors",
    "Hierarchy": "torchlht.hierarchy.tree",
    "HierarchyError": "torchlht.errors",
    "HierarchyMetrics": "torchlht.measure.metrics",
    "LHTError": "torchlht.errors",
    "LHTHead": "torchlht.heads.methods.lht",
    "Mask": "torchlht.data.samples",
    "Method": "torchlht.heads.method",
    "MissingExtraError": "torchlht.errors",
    "Model": "torchlht.answer.model",
    "Prediction": "torchlht.heads.prediction",
    "RunError": "torchlht.errors",
    "Samples": "torchlht.data.samples",
    "TrainArgs": "torchlht.learn.options",
    "calibrate": "torchlht.learn.calibrating",
    "compare": "torchlht.lab.comparison.grid",
    "create_method": "torchlht.heads.method",
    "decide": "torchlht.heads.rules",
    "evaluate": "torchlht.measure.evaluation",
    "export": "torchlht.answer.exported.write",
    "list_methods": "torchlht.heads.method",
    "load": "torchlht.answer.model",
    "read_data": "torchlht.data.reading",
    "register": "torchlht.heads.method",
    "report": "torchlht.show.page",
    "train": "torchlht.learn.training",
}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("torchlht")
    if name not in _HOMES:
        raise AttributeError(f"module 'torchlht' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
