"""The options of every command, once: `--help`, `config.yaml`, presets and Python all come from these dataclasses."""

from torchlht.args.experiments import CommonArgs, CompareArgs, LowshotArgs, ReproduceArgs, ReproduceListArgs
from torchlht.args.look import HierarchyArgs, MethodsArgs, PackArgs, PrepareArgs, PreviewArgs
from torchlht.args.train import METHOD_OPTIONS, TrainArgs, preset
from torchlht.args.use import CalibrateArgs, EvaluateArgs, ExportArgs, PredictArgs, ReportArgs

__all__ = [
    "METHOD_OPTIONS",
    "CalibrateArgs",
    "CommonArgs",
    "CompareArgs",
    "EvaluateArgs",
    "ExportArgs",
    "HierarchyArgs",
    "LowshotArgs",
    "MethodsArgs",
    "PackArgs",
    "PredictArgs",
    "PrepareArgs",
    "PreviewArgs",
    "ReportArgs",
    "ReproduceArgs",
    "ReproduceListArgs",
    "TrainArgs",
    "preset",
]
