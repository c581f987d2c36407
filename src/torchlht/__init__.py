"""Hierarchical classification that learns from partly labelled data.

>>> import torchlht
>>> tree = torchlht.Hierarchy.read("tree.csv")
>>> head = torchlht.LHTHead(in_features=2048, hierarchy=tree)     # on any network's features
>>> torchlht.load("runs/birds").predict("beach.jpg")              # or use a run of `lht train`
"""

from torchlht.args import TrainArgs
from torchlht.data import Mask, Samples, read_data
from torchlht.errors import (
    BackboneError,
    ConfigError,
    DataError,
    HierarchyError,
    LHTError,
    MissingExtraError,
    RunError,
)
from torchlht.evaluate import evaluate
from torchlht.hierarchy import Hierarchy
from torchlht.methods import LHTHead, Method, create_method, list_methods, register
from torchlht.metrics import HierarchyMetrics
from torchlht.model import Model
from torchlht.prediction import Prediction
from torchlht.train import train

load = Model.from_pretrained

__all__ = [
    "BackboneError",
    "ConfigError",
    "DataError",
    "Hierarchy",
    "HierarchyError",
    "HierarchyMetrics",
    "LHTError",
    "LHTHead",
    "Mask",
    "Method",
    "MissingExtraError",
    "Model",
    "Prediction",
    "RunError",
    "Samples",
    "TrainArgs",
    "create_method",
    "evaluate",
    "list_methods",
    "load",
    "read_data",
    "register",
    "train",
]
