"""A run as one file that runs elsewhere, and back: ONNX, or a program of torch.export.

metadata  what travels in the file beside the network: tree, preprocessing, calibration, threshold
write     the file, checked against the run before it takes its name
read      such a file as a `Predictor`
"""

from torchlht.exported.read import Exported, OnnxModel, TorchProgram, read_exported
from torchlht.exported.write import Written, export_onnx, export_torch, write_exported

__all__ = [
    "Exported",
    "OnnxModel",
    "TorchProgram",
    "Written",
    "export_onnx",
    "export_torch",
    "read_exported",
    "write_exported",
]
