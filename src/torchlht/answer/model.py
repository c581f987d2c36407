"""`Predictor`: pictures or features in, answers in names out. `Model`: a trained backbone and method. `Run`: its directory.

A run directory is written so that a killed run can be resumed and a finished one is always complete:

split.json  hierarchy.json  config.yaml      written at the start, in this order
history.csv  checkpoint/                     after every epoch; checkpoint/ also inside epochs, with `checkpoint_every`
outcomes.npz  model.safetensors  metrics.json  at the end, when checkpoint/ is removed
"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode

from torchlht.answer.asking import device_of, evaluating, over
from torchlht.answer.backbones import Backbone, create_backbone
from torchlht.answer.calibration import Calibration
from torchlht.answer.card import card
from torchlht.answer.finding import GRAPH, find_run
from torchlht.answer.named import Named, Restriction, Wanted, name_all
from torchlht.answer.novelty import Novelty
from torchlht.answer.records import CONFIG, TREE, WEIGHTS, Number, Position, read_config
from torchlht.answer.table import Answers
from torchlht.data.batches import FeatureSet, ImageSet, SampleSet
from torchlht.data.inputs import feature_rows, pictures_of
from torchlht.data.pictures import Picture, Problem
from torchlht.data.preparing import Preprocess
from torchlht.doors import Count, entrance, fit, from_json
from torchlht.errors import BackboneError, ConfigError, DataError, RunError, first_line
from torchlht.files import content, csv_text, replacing, write_json, write_text, write_yaml
from torchlht.heads.method import Method, create_method
from torchlht.heads.prediction import Prediction, answer_by, consistent_rule
from torchlht.hierarchy.tree import Hierarchy

Inputs = str | Path | Picture | Image.Image | Tensor | NDArray[Any] | Sequence[str | Path | Picture | Image.Image]
History = list[dict[str, float]]
BEGUN = {"split.json", "problems.csv", TREE}  # what is written before config.yaml


class Predictor(ABC):
    """Turns inputs into a `Prediction`, and that into answers: the base of trained and exported models.

    Attributes:
        preprocess: how pictures are prepared; None if the inputs are features.
        calibration: its calibration, or None.
        wanted: the threshold stored in an exported model; no threshold otherwise.
        novelty: what tells how unlike known samples a sample is, or None.
    """

    preprocess: Preprocess | None
    calibration: Calibration | None
    wanted: Wanted = Wanted()
    novelty: Novelty | None = None

    @property
    @abstractmethod
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""

    @property
    @abstractmethod
    def in_features(self) -> int:
        """Width of the features, if the inputs are features."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """How it answers unless asked otherwise: along one path of the tree, see `consistent_rule`."""

    @abstractmethod
    def look(self, x: Tensor) -> Prediction:
        """Uncalibrated probabilities of a prepared batch, without gradients."""

    @entrance
    def predict(
        self,
        inputs: Inputs,
        *,
        top: Count = 5,
        rule: str | None = None,
        only: Sequence[str] = (),
        exclude: Sequence[str] = (),
        batch_size: Count = 64,
        unreadable: list[Problem] | None = None,
    ) -> Answers:
        """Named labels with probabilities at every level, calibrated if the model is.

        Args:
            inputs: one picture (path or PIL) or several, folders, patterns, tables; for a model on features, an (N, d) array
                or .npz files with an array `x`.
            top: how many candidates per level.
            rule: how answers are chosen, see `torchlht.heads.prediction`; by default along one path of the tree, with
                probabilities that fall from coarse to fine.
            only: classes at any level; all others are ruled out.
            exclude: classes at any level to rule out.
            batch_size: how many samples at a time.
            unreadable: a list that takes unreadable pictures, which are then left out of the answers.

        Raises:
            DataError: when inputs are of the wrong kind, or a picture cannot be read and `unreadable` is not given.
        """
        restriction, rule = Restriction.parse(self.hierarchy, only, exclude), rule or self.rule
        names, data = as_samples(inputs, self.preprocess, self.in_features, unreadable)
        found = Answers()
        for _, said, at in () if not len(data) else over(None, data, self.look, batch_size=batch_size):
            found += self.named(said, [names[i] for i in at.flatten().tolist()], top, rule, restriction)
        return found

    def named(
        self, said: Prediction, names: Sequence[str], top: int, rule: str | None = None, restriction: Restriction | None = None
    ) -> list[Named]:
        """What `look` said about samples with these names, in words."""
        rule = rule or self.rule
        far = None if self.novelty is None or said.distance is None else self.novelty.as_far(said)
        return name_all(
            self.decided(said, rule, restriction),
            self.hierarchy,
            names,
            top,
            rule=rule,
            calibration=self.calibration,
            restricted=restriction is not None,
            as_far=far,
        )

    def on(self, device: torch.device) -> Self:
        """The same predictor on a device, if it can be moved."""
        return self

    def decided(self, prediction: Prediction, rule: str | None = None, restriction: Restriction | None = None) -> Prediction:
        """A prediction calibrated, then restricted, then decided by a rule, its own by default."""
        if self.calibration is not None:
            prediction = self.calibration.apply(prediction)
        if restriction is not None:
            prediction = restriction.apply(prediction)
        return answer_by(prediction, self.hierarchy, rule or self.rule)


def as_features(inputs: Tensor | NDArray[Any], in_features: int) -> Tensor:
    """An array of features, (N, d), NaN where a value is missing. Raises DataError when it is none, or not as wide."""
    try:
        with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which is refused below
            given = inputs if isinstance(inputs, Tensor) else torch.from_numpy(inputs.astype(np.float32))
    except (TypeError, ValueError):
        raise DataError(f"features are {inputs.dtype}; this model takes numbers") from None
    x = given.to(torch.float32)
    if x.dim() != 2 or x.shape[1] != in_features:
        raise DataError(f"features are {tuple(x.shape)}; this model takes (samples, {in_features})")
    if len(rows := x.isinf().any(dim=1).nonzero()):
        raise DataError(f"features of row {int(rows[0])} hold infinity, or numbers too large for float32; scale or remove them")
    return x


def as_samples(
    inputs: Any,
    preprocess: Preprocess | None,
    in_features: int,
    unreadable: list[Problem] | None,
    columns: Sequence[str] = (),
) -> tuple[list[str], SampleSet]:
    """A name for each input, and a set of all of them, whose labels are their positions.

    Args:
        inputs: pictures, or features, as `Predictor.predict` takes them.
        preprocess: how pictures are prepared; None if the inputs are features.
        in_features: width of the features.
        unreadable: a list that takes unreadable pictures, or None.
        columns: names of the features, or none.

    Raises:
        DataError: when they are of the wrong kind.
    """
    if isinstance(inputs, Tensor | np.ndarray):
        if preprocess is not None:
            raise DataError("this model takes pictures: pass paths or PIL images, not an array of features")
        x = as_features(inputs, in_features)
        return [f"row {i}" for i in range(len(x))], FeatureSet(x, torch.arange(len(x)).unsqueeze(1))
    if not isinstance(inputs, str | Path | Picture | Image.Image | Iterable):
        takes = "features: an (N, d) array" if preprocess is None else "pictures: paths or PIL images"
        raise DataError(f"this model takes {takes}; got {type(inputs).__name__}")
    several: list[Any] = [inputs] if isinstance(inputs, str | Path | Picture | Image.Image) else list(inputs)
    if preprocess is None:
        if not several or not all(isinstance(one, str | Path) for one in several):
            raise DataError("this model takes features: pass an (N, d) array, or an .npz with an array 'x'")
        return as_samples(np.concatenate([feature_rows(one, columns) for one in several]), None, in_features, unreadable)
    several = [picture for one in several for picture in (pictures_of(one) if isinstance(one, str | Path) else [one])]
    names = [f"image {i}" if isinstance(one, Image.Image) else str(one) for i, one in enumerate(several)]
    data = ImageSet(several, torch.arange(len(several)).unsqueeze(1), preprocess)
    data.in_memory, data.unreadable = False, unreadable  # each picture is seen once
    return names, data


class Unfilled(TorchFunctionMode):
    """Context: weights that would be random are zero, which is faster, as trained ones are loaded into them."""

    RANDOM = (Tensor.uniform_, Tensor.normal_, nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `TorchFunctionMode`."""
        named: dict[str, Any] = kwargs or {}
        if func not in self.RANDOM:
            return func(*args, **named)
        weights = args[0] if args else named["tensor"]
        weights.detach().zero_()
        return weights


class Model(nn.Module, Predictor):
    """Pictures (or features) in, probabilities at every level out.

    Args:
        backbone: turns pictures into features; `create_backbone("none")` if the inputs are features.
        method: turns features into a `Prediction`.
        options: the method's options, to be saved with it.
        preprocess: how pictures are prepared; by default as the backbone needs it.
    """

    def __init__(
        self, backbone: Backbone, method: Method, *, options: dict[str, Any], preprocess: Preprocess | None = None
    ) -> None:
        super().__init__()
        self.backbone, self.method, self.options = backbone, method, options
        self.preprocess = preprocess or backbone.preprocess
        self.calibration: Calibration | None = None
        self.source: Path | None = None  # the directory that its weights are from
        if self.preprocess is not None:
            backbone.look_at(self.preprocess.size)
        if method.on_maps:
            backbone.unpool()

    @property
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""
        return self.method.hierarchy

    @property
    def rule(self) -> str:
        """See `Predictor.rule`."""
        return consistent_rule(self.method.rule)

    def forward(self, x: Tensor) -> Prediction:
        """(B, 3, size, size) pictures or (B, d) features to a `Prediction`."""
        prediction = self.method(self.backbone(x))
        assert isinstance(prediction, Prediction)
        return prediction

    @property
    def in_features(self) -> int:
        """Width of the features the method takes."""
        return self.method.in_features

    def look(self, x: Tensor) -> Prediction:
        """Uncalibrated probabilities of a prepared batch, in evaluation mode and without gradients."""
        with evaluating(self), torch.inference_mode():
            features = self.backbone(x.to(device_of(self)))
            prediction: Prediction = self.method(features)
            return prediction if self.novelty is None else self.novelty.seen(prediction, self.method.pool(features))

    def on(self, device: torch.device) -> Self:
        """The same model on a device."""
        return self.to(device)

    def part_for(self, *, features: bool) -> nn.Module:
        """The part that takes these samples: the method alone, if they are features and the backbone takes pictures."""
        return self.method if features and self.preprocess is not None else self

    def __repr__(self) -> str:
        """One line; `torch.nn.Module.__repr__(model)` lists the layers."""
        takes = f"features of width {self.in_features}" if self.preprocess is None else f"pictures by {self.backbone.name}"
        calibrated = "calibrated" if self.calibration else "not calibrated"
        return f"Model({self.method.name} on {takes}: {self.hierarchy.describe()}; {calibrated})"

    # ---- keeping ---------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """The values needed to build the same model again, without the tree and the weights."""
        return {
            "backbone": self.backbone.name,
            "in_features": self.method.in_features,
            "method": self.method.name,
            "options": self.options,
            "preprocess": self.preprocess.to_dict() if self.preprocess else None,
            **({"mirror": True} if self.backbone.mirrored else {}),
            **({"pooling": "both"} if self.backbone.peaked else {}),
        }

    def write_config(self, folder: Path, *, extra: dict[str, Any] | None = None) -> None:
        """Write everything except the weights: config.yaml and hierarchy.json."""
        self.hierarchy.write(folder / TREE)
        version = importlib.metadata.version("torchlht")
        write_yaml(folder / CONFIG, {"torchlht": version, "model": self.config(), **(extra or {})})

    def save_pretrained(self, directory: str | Path) -> None:
        """Write config.yaml, hierarchy.json, model.safetensors and a model card, README.md: plain values and tensors."""
        folder, trained = Path(directory), self._run()
        self.save(folder)
        write_text(folder / "README.md", card(folder, folder.absolute().name, trained=trained))

    def _run(self) -> Path | None:
        """The run that it comes from, if it still is what was measured there."""
        if self.source is None or not (self.source / WEIGHTS).is_file():
            return None
        kept, own = load_file(self.source / WEIGHTS), self.state_dict()
        same = kept.keys() == own.keys() and all(torch.equal(kept[name], own[name].cpu()) for name in kept)
        return self.source if same else None

    def save(self, directory: str | Path, *, extra: dict[str, Any] | None = None) -> None:
        """The same without a card; `extra` is kept in config.yaml."""
        folder = Path(directory)
        self.write_config(folder, extra=extra)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        with replacing(folder / WEIGHTS) as beside:
            save_file(weights, beside)
        if self.calibration is not None:
            self.calibration.write(folder, self.hierarchy)
        if self.novelty is not None:
            self.novelty.write(folder)

    @classmethod
    @entrance
    def from_pretrained(cls, source: str | Path, *, calibrated: bool = True) -> Model:
        """A model from a local directory (a run is one) or from the Hugging Face hub by its id, ready to predict.

        Args:
            source: the directory, or the id.
            calibrated: whether to read its calibration and what it calls unlike anything known, if they are there.

        Raises:
            RunError: when there is no such directory or repository, or it is incomplete.
        """
        folder = find_run(source)
        if (folder / GRAPH).is_file():
            raise RunError(
                f"{folder}: has several parents per class, or several labels per sample; "
                "lht predict, lht evaluate and torchlht.load open it"
            )
        config = read_config(folder)["model"]
        hierarchy = Hierarchy.read(folder / TREE)
        try:
            model = cls._built(config, hierarchy)
        except (ConfigError, BackboneError) as error:
            raise RunError(f"{folder / CONFIG}: {error.message}") from error
        except (TypeError, ValueError, RuntimeError) as error:  # of methods and backbones that are not ours, too
            raise RunError(f"{folder / CONFIG}: no model can be built from it ({first_line(error)})") from error
        try:
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (SafetensorError, RuntimeError) as error:
            what = first_line(error).rstrip(":")
            raise RunError(f"{folder / WEIGHTS}: these weights do not belong to this configuration ({what})") from error
        model.calibration = Calibration.read(folder, hierarchy) if calibrated else None
        model.novelty = Novelty.read(folder, model.method.in_features, len(hierarchy)) if calibrated else None
        model.source = folder
        return model.eval()

    @classmethod
    def _built(cls, config: dict[str, Any], hierarchy: Hierarchy) -> Model:
        """The model that a configuration describes, without weights."""
        peaked = config.get("pooling") == "both"
        width = config["in_features"] // 2 if peaked else config["in_features"]
        with Unfilled():
            backbone = create_backbone(config["backbone"], pretrained=False, in_features=width)
            method = create_method(config["method"], config["in_features"], hierarchy, **config["options"])
        preprocess = Preprocess.from_dict(config["preprocess"]) if config.get("preprocess") else None
        backbone.mirrored = config.get("mirror", False)
        if peaked:
            backbone.add_peaks()
        return cls(backbone, method, options=config["options"], preprocess=preprocess)


Network = Model | Method
load = Model.from_pretrained


# ---- run directories -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """The files of one run, by name."""

    path: Path

    @property
    def metrics(self) -> Path:
        """Results on the test samples; written last: if it exists, the run has finished."""
        return self.path / "metrics.json"

    @property
    def split(self) -> Path:
        """Which samples were trained on, validated on and tested on, and whose fine labels were kept."""
        return self.path / "split.json"

    @property
    def config(self) -> Path:
        """The parts of the model and the options of the run; written when everything else is there to train."""
        return self.path / "config.yaml"

    @property
    def last(self) -> Path:
        """The state after the last complete epoch, or inside the next one."""
        return self.path / "checkpoint" / "last.safetensors"

    @property
    def best(self) -> Path:
        """The weights of the best epoch so far."""
        return self.path / "checkpoint" / "best.safetensors"

    def claim(self) -> None:
        """Raise RunError if the directory is in use."""
        if self.metrics.is_file():
            raise RunError(f"{self.path}: holds a finished run; choose another `out`, or remove it")
        if self.config.is_file():
            raise RunError(f"{self.path}: holds an unfinished run; continue it with lht train --resume {self.path}")
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file; choose another `out`")
        left = content(self.path) if self.path.is_dir() else []
        if left and not (self.split.name in left and set(left) <= BEGUN):  # killed before it began
            raise RunError(f"{self.path}: exists and is not empty; choose another `out`")

    def clear(self) -> None:
        """Remove what a run wrote that was stopped before its first checkpoint."""
        for name in (CONFIG, *BEGUN, "history.csv", "boards.json"):
            (self.path / name).unlink(missing_ok=True)
        for name in ("tensorboard", "checkpoint"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def write_history(self, history: History) -> None:
        """Write all of history.csv."""
        names = list(dict.fromkeys(name for row in history for name in row))
        write_text(self.path / "history.csv", csv_text([names, *([row.get(name) for name in names] for row in history)]))

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        """Write metrics.json, which finishes the run, and remove its checkpoints."""
        write_json(self.metrics, metrics)
        shutil.rmtree(self.last.parent, ignore_errors=True)


# ---- checkpoints: tensors and plain values, never pickle -----------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds besides weights and the optimizer's state.

    Attributes:
        history: a row per complete epoch.
        inside: plain values about an incomplete epoch; None between epochs.
        more: tensors that training needs to resume.
    """

    history: History
    inside: dict[str, Any] | None = None
    more: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(path: Path, network: nn.Module, optimizer: Optimizer, kept: Checkpoint) -> None:
    """Save the current state in a temporary file, then rename it."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"more.{name}": value for name, value in kept.more.items()}
    for i, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{name}": v for name, v in state.items() if isinstance(v, Tensor)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with replacing(path) as beside:
        save_file(tensors, beside, metadata={"state": json.dumps({"history": kept.history, "inside": kept.inside})})


class InsideRecord(msgspec.Struct):
    """How far an epoch was."""

    steps: Position
    seconds: Number
    found: dict[str, Number]


class StateRecord(msgspec.Struct):
    """The plain values of a checkpoint."""

    history: list[dict[str, Number]]
    inside: InsideRecord | None = None


def load_checkpoint(path: Path, network: nn.Module, optimizer: Optimizer) -> Checkpoint:
    """Restore weights and the optimizer's state; returns the rest."""
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        state = from_json(file.metadata()["state"], dict[str, Any], str(path), RunError)
    fit(state, StateRecord, str(path), RunError)
    network.load_state_dict({n.removeprefix("network."): v for n, v in tensors.items() if n.startswith("network.")})
    saved: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, i, key = name.split(".", 2)
            saved.setdefault(int(i), {})[key] = value
    optimizer.load_state_dict({"state": saved, "param_groups": optimizer.state_dict()["param_groups"]})
    more = {name.removeprefix("more."): value for name, value in tensors.items() if name.startswith("more.")}
    return Checkpoint(state["history"], state.get("inside"), more)
