"""Hierarchical classification that learns from partly labelled data.

>>> import torchlht
>>> tree = torchlht.Hierarchy.read("tree.csv")
>>> head = torchlht.LHTHead(in_features=2048, hierarchy=tree)     # on any network's features
>>> torchlht.load("runs/birds").predict("beach.jpg")              # or use a run of `lht train`

Names are imported when they are first used, so that the command line answers at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlht.answer import decide as decide
    from torchlht.args import CompareArgs as CompareArgs
    from torchlht.args import TrainArgs as TrainArgs
    from torchlht.comparison import compare as compare
    from torchlht.data import Mask as Mask
    from torchlht.data import Samples as Samples
    from torchlht.data import read_data as read_data
    from torchlht.errors import BackboneError as BackboneError
    from torchlht.errors import ConfigError as ConfigError
    from torchlht.errors import DataError as DataError
    from torchlht.errors import DivergedError as DivergedError
    from torchlht.errors import HierarchyError as HierarchyError
    from torchlht.errors import LHTError as LHTError
    from torchlht.errors import MissingExtraError as MissingExtraError
    from torchlht.errors import RunError as RunError
    from torchlht.evaluation import evaluate as evaluate
    from torchlht.hierarchy import Hierarchy as Hierarchy
    from torchlht.methods import LHTHead as LHTHead
    from torchlht.methods import Method as Method
    from torchlht.methods import create_method as create_method
    from torchlht.methods import list_methods as list_methods
    from torchlht.methods import register as register
    from torchlht.metrics import HierarchyMetrics as HierarchyMetrics
    from torchlht.model import Model as Model
    from torchlht.model import load as load
    from torchlht.prediction import Prediction as Prediction
    from torchlht.training import train as train

_HOMES = {
    "BackboneError": "errors",
    "CompareArgs": "args",
    "ConfigError": "errors",
    "DataError": "errors",
    "DivergedError": "errors",
    "Hierarchy": "hierarchy",
    "HierarchyError": "errors",
    "HierarchyMetrics": "metrics",
    "LHTError": "errors",
    "LHTHead": "methods",
    "Mask": "data",
    "Method": "methods",
    "MissingExtraError": "errors",
    "Model": "model",
    "Prediction": "prediction",
    "RunError": "errors",
    "Samples": "data",
    "TrainArgs": "args",
    "compare": "comparison",
    "create_method": "methods",
    "decide": "answer",
    "evaluate": "evaluation",
    "list_methods": "methods",
    "load": "model",
    "read_data": "data",
    "register": "methods",
    "train": "training",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'torchlht' has no attribute {name!r}")
    return getattr(importlib.import_module(f"torchlht.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
