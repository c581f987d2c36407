"""One file per method, one registered class each. Importing this package registers them all."""

from torchlht.methods.base import Method, create_method, list_methods, method_class, method_options, register
from torchlht.methods.flat import Flat
from torchlht.methods.lht import LHTHead
from torchlht.methods.multihead import MultiHead

__all__ = [
    "Flat",
    "LHTHead",
    "Method",
    "MultiHead",
    "create_method",
    "list_methods",
    "method_class",
    "method_options",
    "register",
]
