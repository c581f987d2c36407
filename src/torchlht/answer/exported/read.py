"""Exported files as predictors: `OnnxModel` runs in onnxruntime, `TorchProgram` in torch. Neither needs the run any more."""

from __future__ import annotations

import importlib
import zipfile
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlht.answer.calibration import Calibration
from torchlht.answer.exported.metadata import FILE, INPUT, KEY, parse
from torchlht.answer.exported.quiet import first_line, quietly
from torchlht.answer.named import Wanted
from torchlht.answer.predictor import Predictor
from torchlht.data.batches import Preprocess
from torchlht.errors import ConfigError, MissingExtraError, RunError
from torchlht.heads.prediction import Prediction
from torchlht.heads.rules import find_rule, own_choice
from torchlht.hierarchy.tree import Hierarchy


class Exported(Predictor):
    """A model from an exported file.

        >>> model = read_exported("birds.onnx")
        >>> named = model.predict("beach.jpg")[0]
        >>> named.answer_at(model.wanted)                # as deep as the threshold in the file asks for
        Answer('Laridae', level='family', probability=0.94)

    Attributes:
        metadata: what was kept in the file; see `torchlht.answer.exported.metadata`.
        wanted: the threshold that was kept in it.
    """

    def __init__(self, metadata: dict[str, Any], source: str) -> None:
        self.metadata = metadata
        try:
            self._tree = Hierarchy.from_dict(metadata["hierarchy"], source)
            spec, calibration, threshold = (metadata[key] for key in ("preprocess", "calibration", "threshold"))
            self.preprocess = Preprocess.from_dict(spec) if spec else None
            self.calibration = Calibration.from_dict(calibration) if calibration else None
            self.wanted = Wanted(float(threshold["value"]), str(threshold["promise"])) if threshold else Wanted()
            self._rule = metadata["rule"]
            find_rule(self._rule)
            self._width = int(metadata["input"]["shape"][1])
        except (ConfigError, KeyError, TypeError, ValueError, IndexError) as error:
            raise RunError(f"{source}: what lht export kept in it is not whole ({error!r}); export it again") from error

    @property
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""
        return self._tree

    @property
    def in_features(self) -> int:
        """See `Predictor.in_features`."""
        return self._width

    @abstractmethod
    def run(self, x: Tensor) -> Sequence[Tensor]:
        """(B, …) inputs to log-probabilities (B, C_k) at every level, fine first."""

    def look(self, x: Tensor) -> Prediction:
        """See `Predictor.look`."""
        log_probs = tuple(self.run(x.cpu().float()))
        return Prediction(log_probs, choice=own_choice(log_probs, self._tree, self._rule))


class OnnxModel(Exported):
    """What `lht export --to onnx` wrote, in onnxruntime on the CPU."""

    def __init__(self, session: Any, metadata: dict[str, Any], source: str) -> None:
        super().__init__(metadata, source)
        self._session = session

    @classmethod
    def read(cls, path: str | Path) -> OnnxModel:
        """Open a file.

        Raises:
            RunError: when there is none, it is not ONNX, or not from `lht export`.
            MissingExtraError: without onnxruntime.
        """
        runtime = onnxruntime(f"reading {path}")
        _must_exist(path)
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # fatal; errors are raised as well
        try:
            session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # each fault has a class of its own, with no common base
            raise RunError(f"{path}: not an ONNX file that can be read ({first_line(error)})") from error
        text = session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise RunError(f"{path}: this ONNX file was not written by lht export, so it has no tree and no class names")
        return cls(session, parse(text, str(path)), str(path))

    def run(self, x: Tensor) -> Sequence[Tensor]:
        """See `Exported.run`."""
        return [torch.from_numpy(found) for found in self._session.run(None, {INPUT: x.numpy()})]


class TorchProgram(Exported):
    """What `lht export --to torch` wrote: a program of torch.export."""

    def __init__(self, program: torch.export.ExportedProgram, metadata: dict[str, Any], source: str) -> None:
        super().__init__(metadata, source)
        self._module = program.module()

    @classmethod
    def read(cls, path: str | Path) -> TorchProgram:
        """Open a file.

        Raises:
            RunError: when there is none, it is not a program of torch.export, or not from `lht export`.
        """
        _must_exist(path)
        metadata = parse(_kept(path), str(path))  # first: it says whether this is a file of ours
        try:
            with quietly(), Path(path).open("rb") as file:
                program = torch.export.load(file)
        except Exception as error:
            raise RunError(f"{path}: not a torch.export program that can be read ({first_line(error)})") from error
        return cls(program, metadata, str(path))

    def run(self, x: Tensor) -> Sequence[Tensor]:
        """See `Exported.run`."""
        with torch.inference_mode():
            found: tuple[Tensor, ...] = self._module(x)
        return found


READERS: dict[str, type[OnnxModel] | type[TorchProgram]] = {".onnx": OnnxModel, ".pt2": TorchProgram}


def read_exported(path: str | Path) -> Exported:
    """What `lht export` wrote, by the end of its name: .onnx or .pt2.

    Raises:
        RunError: when it is neither, there is no such file, or it cannot be read.
        MissingExtraError: for .onnx without onnxruntime.
    """
    reader = READERS.get(Path(path).suffix.lower())
    if reader is None:
        raise RunError(f"{path}: not a name that lht export gives; they end in {' or '.join(READERS)}")
    return reader.read(path)


def onnxruntime(what: str) -> Any:
    """The package. Raises MissingExtraError, saying what needs it, when it is not installed."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingExtraError(what, extra="export") from None
    return runtime


def _must_exist(path: str | Path) -> None:
    if not Path(path).is_file():
        raise RunError(f"{path}: no such file; lht export RUN writes one")


def _kept(path: str | Path) -> str:
    """The metadata in a .pt2, which is a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.rpartition("/")[2] == FILE]
            if names:
                return archive.read(names[0]).decode("utf-8")
    except (zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise RunError(f"{path}: not a torch.export program that can be read ({first_line(error)})") from error
    raise RunError(f"{path}: this .pt2 file was not written by lht export, so it has no tree and no class names")
