"""Exported files as predictors: `OnnxModel` runs in onnxruntime, `TorchProgram` in torch. Neither needs the run.

The file holds one JSON object next to the network, under the key `torchlht`:

format, torchlht       2, or 3 with `novelty`; and the version that wrote it
method, backbone       names
input                  {"kind": "picture" or "features", "shape": ["batch", 3, size, size] or ["batch", width]}, float32
outputs, order         names of the levels, one output each; "fine first". Each is log-probabilities (batch, classes)
preprocess             as in config.yaml; null if the inputs are features
hierarchy              the content of hierarchy.json
calibration            the content of calibration.json; null if there is none
temperatures, kinds    per output: 1 without calibration; `softmax` or `sigmoid`: how it is scaled, see `answer.calibration`
                       (format 1: one `kind` for all of them)
rule                   how classes are chosen: path, backtrack, …, see `heads.prediction`. If they lie on one path of the tree,
                       a calibrated probability is capped at that of its parent
own_rule               the method's own: argmax, …. Files without it have that under `rule`
threshold              {"value": …, "promise": "confidence 0.9"}: the least probability of an answer; or null
novelty                null, or what tells how unlike known samples a sample is, see `answer.novelty`. There is one more output
                       then, `distance` (batch,): s. Per level, fine first, u = a s + b H, with [a, b] of `weights`; the share
                       of `references` with at least this u is below `alarms` for what is unlike anything known
"""

from __future__ import annotations

import importlib
import io
import logging
import warnings
import zipfile
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from torch import Tensor

from torchlht.answer.calibration import Calibration
from torchlht.answer.exported.opening import JSON_LIMIT, ForeignError, plain_onnx, plain_program
from torchlht.answer.finding import SUFFIXES, check_exported
from torchlht.answer.model import Predictor
from torchlht.answer.named import Wanted
from torchlht.answer.novelty import Novelty
from torchlht.answer.records import CalibrationRecord
from torchlht.data.preparing import Preprocess
from torchlht.doors import fit, from_json
from torchlht.errors import ConfigError, LHTError, MissingExtraError, RunError, first_line
from torchlht.heads.prediction import Prediction, consistent_rule, find_rule, own_choice
from torchlht.hierarchy.tree import Hierarchy

KEY, FORMAT = "torchlht", 3
FILE = f"{KEY}.json"  # inside a .pt2
INPUT = "input"


class Exported(Predictor):
    """A model from an exported file.

        >>> model = read_exported("birds.onnx")
        >>> named = model.predict("beach.jpg")[0]
        >>> named.answer_at(model.wanted)                # as deep as the threshold in the file allows
        Answer('Laridae', level='family', probability=0.94)

    Attributes:
        metadata: the JSON object of the file; see above.
        wanted: the threshold of the file.
    """

    def __init__(self, metadata: dict[str, Any], source: str) -> None:
        self.metadata = metadata
        try:
            fit(metadata, MetadataRecord, "metadata", RunError)
        except RunError as error:
            raise RunError(f"{source}: its metadata is incomplete ({error}); export it again") from None
        try:
            self._tree = Hierarchy.from_dict(metadata["hierarchy"], source)
            spec, calibration, threshold = (metadata[key] for key in ("preprocess", "calibration", "threshold"))
            self.preprocess = Preprocess.from_dict(spec) if spec else None
            self.calibration = Calibration.from_dict(calibration) if calibration else None
            self.wanted = Wanted(float(threshold["value"]), str(threshold["promise"])) if threshold else Wanted()
            self._rule = metadata["rule"]
            self._own = metadata.get("own_rule", self._rule)
            for name in (self._rule, self._own):
                find_rule(name)
            self._width = int(metadata["input"]["shape"][1])
            self.novelty = Novelty.from_dict(metadata["novelty"]) if metadata.get("novelty") else None
        except (ConfigError, KeyError, TypeError, ValueError, IndexError) as error:
            raise RunError(f"{source}: its metadata is incomplete ({error!r}); export it again") from error

    @property
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""
        return self._tree

    @property
    def rule(self) -> str:
        """See `Predictor.rule`. An older file that promises a risk answers in its own way: the promise was made for that."""
        if "own_rule" not in self.metadata and (self.wanted.promise or "").startswith("risk"):
            return "own"
        return consistent_rule(self._rule)

    @property
    def in_features(self) -> int:
        """Width of the features it takes."""
        return self._width

    def __repr__(self) -> str:
        takes = f"features of width {self._width}" if self.preprocess is None else "pictures"
        return f"{type(self).__name__}({self.metadata.get('method')} on {takes}: {self._tree.describe()})"

    @abstractmethod
    def run(self, x: Tensor) -> Sequence[Tensor]:
        """(B, …) inputs to log-probabilities (B, C_k) at every level, fine first; then (B,) distances, if they are there."""

    def look(self, x: Tensor) -> Prediction:
        """Uncalibrated probabilities of a prepared batch."""
        try:
            found = tuple(self.run(x.cpu().float()))
        except Exception as error:  # a network that does not fit its metadata fails in many ways
            raise RunError(f"this exported network cannot be run ({first_line(error)}); export it again") from error
        log_probs, distance = (found[:-1], found[-1]) if self.novelty else (found, None)
        if [tuple(level.shape) for level in log_probs] != [(len(x), size) for size in self._tree.sizes]:
            raise RunError("this exported network answers about other classes than its metadata names; export it again")
        return Prediction(log_probs, choice=own_choice(log_probs, self._tree, self._own), distance=distance)


class OnnxModel(Exported):
    """A file written by `lht export --to onnx`, run by onnxruntime on the CPU."""

    def __init__(self, session: Any, metadata: dict[str, Any], source: str) -> None:
        super().__init__(metadata, source)
        self._session = session

    @classmethod
    def read(cls, path: str | Path, *, trust: bool = False, threads: int | None = None) -> OnnxModel:
        """Open a file.

        Args:
            path: the file.
            trust: open it even if it takes weights from other files, or uses operators that are not ONNX's own.
            threads: how many compute; by default as many as there are cores. Given, they sleep between two runs.

        Raises:
            RunError: when it does not exist, is not ONNX, or is not from `lht export`.
            MissingExtraError: without onnxruntime.
        """
        session, text = open_onnx(path, trust=trust, threads=threads)
        return cls(session, parse(text, str(path)), str(path))

    def run(self, x: Tensor) -> Sequence[Tensor]:
        """(B, …) inputs to log-probabilities (B, C_k) at every level, fine first."""
        return [torch.from_numpy(found) for found in self._session.run(None, {INPUT: x.numpy()})]


def open_onnx(path: str | Path, *, trust: bool = False, threads: int | None = None) -> tuple[Any, str]:
    """The session of an ONNX file and its metadata; arguments and errors as of `OnnxModel.read`."""
    runtime = onnxruntime(f"reading {path}")
    check_exported(path)
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # fatal; errors are raised as well
    if threads is not None:
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        content = str(path) if trust else plain_onnx(path)
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ForeignError as error:
        raise _distrusted(path, error) from error
    except LHTError:
        raise
    except Exception as error:  # its errors have no common base class
        raise RunError(f"{path}: not a readable ONNX file ({first_line(error)})") from error
    text = session.get_modelmeta().custom_metadata_map.get(KEY)
    if text is None:
        raise RunError(f"{path}: this ONNX file was not written by lht export, so it has no tree and no class names")
    return session, text


class TorchProgram(Exported):
    """A file written by `lht export --to torch`: a program of torch.export."""

    def __init__(self, module: torch.nn.Module, metadata: dict[str, Any], source: str) -> None:
        super().__init__(metadata, source)
        self._module = module

    @classmethod
    def read(cls, path: str | Path, *, trust: bool = False) -> TorchProgram:
        """Open a file.

        Args:
            path: the file.
            trust: give it to torch.export.load as it is, which may run code of whoever wrote it.

        Raises:
            RunError: when it does not exist, is not a program of torch.export, or is not from `lht export`; or when it holds
                more than tensors, operators and plain values, and is not trusted.
        """
        check_exported(path)
        metadata = parse(_kept(path), str(path))  # first: it tells whether lht export wrote the file
        try:
            with quietly(), Path(path).open("rb") if trust else plain_program(path) as file:
                module = torch.export.load(file).module()
        except ForeignError as error:
            raise _distrusted(path, error) from error
        except LHTError:
            raise
        except Exception as error:
            raise RunError(f"{path}: not a readable torch.export program ({first_line(error)})") from error
        return cls(module, metadata, str(path))

    def run(self, x: Tensor) -> Sequence[Tensor]:
        """(B, …) inputs to log-probabilities (B, C_k) at every level, fine first."""
        with torch.inference_mode():
            found: tuple[Tensor, ...] = self._module(x)
        return found


READERS: dict[str, type[OnnxModel] | type[TorchProgram]] = {SUFFIXES["onnx"]: OnnxModel, SUFFIXES["torch"]: TorchProgram}


def read_exported(path: str | Path, *, trust: bool = False) -> Exported:
    """Read a file written by `lht export`; its suffix, .onnx or .pt2, tells its format.

    Args:
        path: the file.
        trust: open it even if that may run code of whoever wrote it.

    Raises:
        RunError: when the suffix is another, or the file does not exist or cannot be read.
        MissingExtraError: for .onnx without onnxruntime.
    """
    reader = READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise RunError(f"{path}: not a file from lht export; their names end in {' or '.join(READERS)}")
    return reader.read(path, trust=trust)


class ThresholdRecord(msgspec.Struct):
    """The threshold of a file."""

    value: Annotated[float, msgspec.Meta(ge=0, le=2)]
    promise: str


class InputRecord(msgspec.Struct):
    """What the network takes."""

    shape: Annotated[list[str | int], msgspec.Meta(min_length=2, max_length=5)]


class MetadataRecord(msgspec.Struct):
    """The metadata of a file."""

    hierarchy: dict[str, Any]
    preprocess: dict[str, Any] | None
    calibration: CalibrationRecord | None
    threshold: ThresholdRecord | None
    rule: str
    input: InputRecord
    own_rule: str | None = None


class FormatRecord(msgspec.Struct):
    """What tells whether the rest can be read."""

    format: int
    torchlht: str | None = None


def parse(text: str, source: str) -> dict[str, Any]:
    """The metadata of a file. Raises RunError when it is damaged, or when a newer version wrote it."""
    try:
        values = from_json(text, dict[str, Any], "metadata", RunError)
        found = fit(values, FormatRecord, "metadata", RunError)
    except RunError as error:
        raise RunError(f"{source}: its metadata is damaged ({error}); export it again") from None
    if "graph" in values:
        raise RunError(
            f"{source}: its classes may have several parents; lht predict opens it, and in Python ExportedGraph.read"
        )
    if found.format not in range(1, FORMAT + 1):
        raise RunError(f"{source}: written by torchlht {found.torchlht} in format {found.format}; update torchlht to read it")
    return values


def onnxruntime(what: str) -> Any:
    """Import onnxruntime. Raises MissingExtraError, which names what needs it, if it is not installed."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingExtraError(what, extra="export") from None
    return runtime


def _distrusted(path: str | Path, error: ForeignError) -> RunError:
    return RunError(f"{path}: {error}, so opening it could do harm; export it again, or add `trust` if you trust its author")


def _kept(path: str | Path) -> str:
    """The metadata in a .pt2, which is a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info for info in archive.infolist() if info.filename.rpartition("/")[2] == FILE]
            if names and (names[0].compress_type or names[0].file_size > JSON_LIMIT):
                raise _distrusted(path, ForeignError("its metadata is compressed or huge"))
            if names:
                return archive.read(names[0]).decode("utf-8")
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise RunError(f"{path}: not a readable torch.export program ({first_line(error)})") from error
    raise RunError(f"{path}: this .pt2 file was not written by lht export, so it has no tree and no class names")


# ---- exporters print, warn and log a great deal --------------------------------------------------------


@contextmanager
def quietly() -> Iterator[None]:
    """Context: no prints, warnings and log lines. Errors are still raised."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
