"""`Model`: a trained backbone and method with all that is needed to use them: tree, names, preprocessing. Plain files."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any, Self

import torch
import yaml
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.answer.asking import device_of, evaluating
from torchlht.answer.backbones import Backbone, create_backbone, prefer_cache_when_offline
from torchlht.answer.calibration import FILE as CALIBRATION
from torchlht.answer.calibration import Calibration
from torchlht.answer.predictor import Predictor
from torchlht.data.batches import Preprocess
from torchlht.errors import RunError
from torchlht.files import replacing, write_yaml
from torchlht.heads.method import Method, create_method
from torchlht.heads.prediction import Prediction
from torchlht.hierarchy.tree import Hierarchy

CONFIG, TREE, WEIGHTS = "config.yaml", "hierarchy.json", "model.safetensors"


class Model(nn.Module, Predictor):
    """Pictures (or features) in, probabilities at every level out.

    Args:
        backbone: turns pictures into features; `create_backbone("none")` when they are features already.
        method: turns features into a `Prediction`.
        options: the method's options, kept for saving.
        preprocess: how pictures are prepared; the backbone's own by default.
    """

    def __init__(
        self, backbone: Backbone, method: Method, *, options: dict[str, Any], preprocess: Preprocess | None = None
    ) -> None:
        super().__init__()
        self.backbone, self.method, self.options = backbone, method, options
        self.preprocess = preprocess or backbone.preprocess
        self.calibration: Calibration | None = None
        if self.preprocess is not None:
            backbone.look_at(self.preprocess.size)

    @property
    def hierarchy(self) -> Hierarchy:
        """The tree of classes."""
        return self.method.hierarchy

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
        """What the model says of a batch, in evaluation mode and without gradients."""
        with evaluating(self), torch.inference_mode():
            prediction: Prediction = self(x.to(device_of(self)))
        return prediction

    def on(self, device: torch.device) -> Self:
        """The same on a device."""
        return self.to(device)

    def part_for(self, *, features: bool) -> nn.Module:
        """What samples go into: the method alone where they are features and the backbone takes pictures."""
        return self.method if features and self.preprocess is not None else self

    # ---- keeping ---------------------------------------------------------------------------------------------------

    def config(self) -> dict[str, Any]:
        """What is needed to build the same model again, apart from the tree and the weights."""
        return {
            "backbone": self.backbone.name,
            "in_features": self.method.in_features,
            "method": self.method.name,
            "options": self.options,
            "preprocess": self.preprocess.to_dict() if self.preprocess else None,
        }

    def write_config(self, folder: Path, *, extra: dict[str, Any] | None = None) -> None:
        """Write all but the weights: config.yaml and hierarchy.json."""
        self.hierarchy.write(folder / TREE)
        version = importlib.metadata.version("torchlht")
        write_yaml(folder / CONFIG, {"torchlht": version, "model": self.config(), **(extra or {})})

    def save_pretrained(self, directory: str | Path, *, extra: dict[str, Any] | None = None) -> None:
        """Write config.yaml, hierarchy.json and model.safetensors. Plain values and tensors only, never pickle."""
        folder = Path(directory)
        self.write_config(folder, extra=extra)
        weights = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        with replacing(folder / WEIGHTS) as beside:
            save_file(weights, beside)
        if self.calibration is not None:
            self.calibration.write(folder, self.hierarchy)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, calibrated: bool = True) -> Model:
        """A model from a local directory (a run is one) or from the Hugging Face hub by its id, ready to predict.

        Args:
            source: the directory, or the id.
            calibrated: whether to read its calibration, where there is one.

        Raises:
            RunError: when there is no such directory or repository, or it is incomplete.
        """
        folder = _find(source)
        config = read_config(folder)["model"]
        hierarchy = Hierarchy.read(folder / TREE)
        backbone = create_backbone(config["backbone"], pretrained=False, in_features=config["in_features"])
        method = create_method(config["method"], config["in_features"], hierarchy, **config["options"])
        preprocess = Preprocess.from_dict(config["preprocess"]) if config["preprocess"] else None
        model = cls(backbone, method, options=config["options"], preprocess=preprocess)
        try:
            model.load_state_dict(load_file(folder / WEIGHTS))
        except (SafetensorError, RuntimeError) as error:
            raise RunError(f"{folder / WEIGHTS}: these weights do not belong to this configuration ({error})") from error
        model.calibration = Calibration.read(folder) if calibrated else None
        return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a run's config.yaml."""
    try:
        config = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder}: no {CONFIG}; it is not a run directory") from None
    except yaml.YAMLError as error:
        raise RunError(f"{folder / CONFIG}: not YAML that can be read ({error})") from None
    if not isinstance(config, dict) or "model" not in config:
        raise RunError(f"{folder / CONFIG}: no 'model' section; it is not a torchlht run")
    return config


def _find(source: str | Path) -> Path:
    """A complete local directory, downloaded from the hub if need be."""
    folder = Path(source)
    if not folder.is_dir():
        folder = _download(str(source))
    missing = [name for name in (CONFIG, TREE, WEIGHTS) if not (folder / name).is_file()]
    if missing and (folder / "checkpoint").is_dir():
        raise RunError(f"{folder}: this run has not finished; continue it with lht train --resume {folder}")
    if missing:
        raise RunError(f"{folder}: not a whole run, {' and '.join(missing)} missing")
    return folder


def _download(name: str) -> Path:
    if name.count("/") != 1 or name.startswith((".", "/", "~")) or not Path(name).parent.name.isidentifier():
        raise RunError(f"{name}: no such run directory")
    prefer_cache_when_offline()
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, TREE, WEIGHTS, CALIBRATION]))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise RunError(f"{name}: no such run directory, and not to be had from the hub ({type(error).__name__})") from error


load = Model.from_pretrained
