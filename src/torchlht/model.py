"""`Model`: a trained backbone and method with all that is needed to use them: tree, names, preprocessing. Plain files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from torchlht.answer import decide
from torchlht.backbones import Backbone, create_backbone, prefer_cache_when_offline
from torchlht.data.transforms import Preprocess, centre_crop, decode, normalise
from torchlht.errors import DataError, RunError
from torchlht.files import replacing, write_yaml
from torchlht.hierarchy import Hierarchy
from torchlht.methods import Method, create_method
from torchlht.prediction import Prediction
from torchlht.vocabulary import Rule

CONFIG, TREE, WEIGHTS = "config.yaml", "hierarchy.json", "model.safetensors"


@dataclass(frozen=True)
class Candidate:
    """A class and its probability."""

    label: str
    probability: float


@dataclass(frozen=True)
class LevelAnswer:
    """What is said at one level: the answer first, then the most probable others."""

    level: str
    candidates: tuple[Candidate, ...]

    @property
    def label(self) -> str:
        """The answer, most often the most probable class."""
        return self.candidates[0].label

    @property
    def probability(self) -> float:
        """Its probability."""
        return self.candidates[0].probability


@dataclass(frozen=True)
class Named:
    """A prediction for one sample in names, levels coarse → fine.

        >>> named = model.predict("beach.jpg")[0]
        >>> named["family"].label, named["family"].probability
        ('Laridae', 0.94)

    Attributes:
        source: the picture's path, or the row of the features.
        levels: one answer per level, coarse → fine.
        consistent: whether the answers lie on one path of the tree.
    """

    source: str
    levels: tuple[LevelAnswer, ...]
    consistent: bool

    def __getitem__(self, level: str) -> LevelAnswer:
        for answer in self.levels:
            if answer.level == level:
                return answer
        raise KeyError(f"no level {level!r} (levels: {', '.join(answer.level for answer in self.levels)})")

    def __str__(self) -> str:
        return " › ".join(f"{answer.label} {answer.probability:.0%}" for answer in self.levels)


class Model(nn.Module):
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

    # ---- predicting ------------------------------------------------------------------------------------------------

    def predict(
        self,
        inputs: str | Path | Image.Image | Tensor | NDArray[Any] | Sequence[str | Path | Image.Image],
        *,
        top: int = 5,
        rule: Rule = "own",
        batch_size: int = 64,
    ) -> list[Named]:
        """Named labels with probabilities at every level.

        Args:
            inputs: one picture (path or PIL) or several; or, for a model on features, an (N, d) array.
            top: how many candidates per level.
            rule: how answers are chosen; see `torchlht.answer`.
            batch_size: how many samples at a time.
        """
        names, batches = self._batches(inputs, batch_size)
        found: list[Named] = []
        was_training = self.training
        self.eval()
        device = next((p.device for p in self.parameters()), torch.device("cpu"))
        with torch.inference_mode():
            for x in batches:
                prediction = decide(self(x.to(device)), self.hierarchy, rule)
                found += self.name_all(prediction, names[len(found) : len(found) + len(x)], top)
        self.train(was_training)
        return found

    def name_all(self, prediction: Prediction, sources: Sequence[str], top: int) -> list[Named]:
        """Turn the tensors of a batch into names."""
        tree = self.hierarchy
        chosen = prediction.chosen().cpu().numpy()
        tables = []
        for k, log_p in enumerate(prediction.log_probs):
            answer_first = log_p.scatter(1, prediction.chosen()[:, k : k + 1], torch.inf)
            best = answer_first.topk(min(top, log_p.shape[1]), dim=1).indices
            tables.append((log_p.gather(1, best).exp().tolist(), best.tolist()))
        found = []
        for i, source in enumerate(sources):
            levels = tuple(
                LevelAnswer(
                    tree.levels[k],
                    tuple(Candidate(tree.classes[k][c], p) for p, c in zip(tables[k][0][i], tables[k][1][i], strict=True)),
                )
                for k in tree.top_down
            )
            consistent = all(up[chosen[i, k]] == chosen[i, k + 1] for k, up in enumerate(tree.parents))
            found.append(Named(source, levels, bool(consistent)))
        return found

    def _batches(self, inputs: Any, batch_size: int) -> tuple[list[str], Iterator[Tensor]]:
        if isinstance(inputs, Tensor | np.ndarray):
            if self.preprocess is not None:
                raise DataError("this model takes pictures: pass paths or PIL images, not an array of features")
            x = torch.as_tensor(inputs, dtype=torch.float32)
            width = self.method.in_features
            if x.dim() != 2 or x.shape[1] != width:
                raise DataError(f"features are {tuple(x.shape)}; this model takes (samples, {width})")
            return [f"row {i}" for i in range(len(x))], iter(torch.split(x, batch_size))
        if self.preprocess is None:
            raise DataError("this model takes features: pass an (N, d) array (on the command line, an .npz with 'x')")
        several = [inputs] if isinstance(inputs, str | Path | Image.Image) else list(inputs)
        names = [f"image {i}" if isinstance(one, Image.Image) else str(one) for i, one in enumerate(several)]
        return names, self._image_batches(several, self.preprocess, batch_size)

    def _image_batches(self, images: Sequence[Any], spec: Preprocess, batch_size: int) -> Iterator[Tensor]:
        for start in range(0, len(images), batch_size):
            part = images[start : start + batch_size]
            yield normalise(torch.stack([centre_crop(decode(one, spec), spec) for one in part]), spec)

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

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Model:
        """A model from a local directory (a run is one) or from the Hugging Face hub by its id, ready to predict.

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
        return Path(snapshot_download(name, allow_patterns=[CONFIG, TREE, WEIGHTS]))
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        raise RunError(f"{name}: no such run directory, and not to be had from the hub ({type(error).__name__})") from error


load = Model.from_pretrained
