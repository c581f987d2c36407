"""One file per method, one registered class each. Importing this package registers them all."""

from torchlht.methods.base import (
    COMMON_OPTIONS,
    Entry,
    Estimator,
    InputNorm,
    Method,
    aliases_of,
    create_method,
    find_method,
    list_methods,
    method_options,
    parse_options,
    register,
    regularise,
    variant,
)
from torchlht.methods.c_hmcnn import CHMCNN
from torchlht.methods.fgon import FGoN
from torchlht.methods.flat import Flat
from torchlht.methods.hiclass import HiClass
from torchlht.methods.hmcn import HMCN
from torchlht.methods.hrn import HRN
from torchlht.methods.hxe import HXE
from torchlht.methods.implied import Implied
from torchlht.methods.kt import KT
from torchlht.methods.lht import LHTHead
from torchlht.methods.lht_c2f import LHTCoarseToFine
from torchlht.methods.logistic import Logistic
from torchlht.methods.marginal import Marginal
from torchlht.methods.multihead import MultiHead
from torchlht.methods.sgm import SGM
from torchlht.methods.soft_labels import SoftLabels

__all__ = [
    "CHMCNN",
    "COMMON_OPTIONS",
    "HMCN",
    "HRN",
    "HXE",
    "KT",
    "SGM",
    "Entry",
    "Estimator",
    "FGoN",
    "Flat",
    "HiClass",
    "Implied",
    "InputNorm",
    "LHTCoarseToFine",
    "LHTHead",
    "Logistic",
    "Marginal",
    "Method",
    "MultiHead",
    "SoftLabels",
    "aliases_of",
    "create_method",
    "find_method",
    "list_methods",
    "method_options",
    "parse_options",
    "register",
    "regularise",
    "variant",
]
