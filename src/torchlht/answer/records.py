"""The plain files of a run, checked against schemas: config.yaml, split.json, metrics.json, calibration.json.

What is unknown in them is ignored, as other versions may have written it. What is missing or of another type is refused with a
sentence that names the file and the field.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeVar

import msgspec
from msgspec import Meta

from torchlht.doors import fit, read_json, read_yaml
from torchlht.errors import ConfigError, RunError
from torchlht.files import read_csv
from torchlht.vocabulary import Pooling

CONFIG, TREE, WEIGHTS = "config.yaml", "hierarchy.json", "model.safetensors"
FEATURES = 2**17
"""Widest features of a model."""

Position = Annotated[int, Meta(ge=0, lt=2**40)]
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
Temperature = Annotated[float, Meta(gt=0, le=1e6)]


class ModelRecord(msgspec.Struct):
    """The parts of a model."""

    backbone: str
    in_features: Annotated[int, Meta(ge=1, le=FEATURES)]
    method: str
    options: dict[str, Any]
    preprocess: dict[str, Any] | None = None
    mirror: bool = False
    pooling: Pooling = "mean"


class ConfigRecord(msgspec.Struct):
    """config.yaml."""

    model: ModelRecord
    train: dict[str, Any] | None = None
    launch: str | None = None


class SplitRecord(msgspec.Struct):
    """split.json."""

    kept: list[Position]
    train: list[Position]
    val: list[Position]
    test: list[Position]


class LevelRecord(msgspec.Struct):
    """A level in metrics.json."""

    name: str
    accuracy: Number | None


class SelectionRecord(msgspec.Struct):
    """The epoch that was kept."""

    rule: str
    epoch: Position
    epochs: Position


class MetricsRecord(msgspec.Struct):
    """metrics.json."""

    selection: SelectionRecord | None = None
    levels: list[LevelRecord] = []
    validation: dict[str, Number | None] = {}
    train_seconds: Number | None = None
    diverged: str | None = None


class CurveRecord(msgspec.Struct):
    """The risks of one rule."""

    samples: Position
    weighted: list[Number]
    most: Number | None
    strict: list[Number]
    answered: list[Number]


class CalibratedLevel(msgspec.Struct):
    """A level in calibration.json."""

    name: str
    temperature: Temperature
    samples: Position
    kind: Literal["softmax", "sigmoid"] | None = None


class CalibrationRecord(msgspec.Struct):
    """calibration.json."""

    levels: list[CalibratedLevel]
    risk: dict[str, CurveRecord]
    source: str
    kind: Literal["softmax", "sigmoid"] | None = None

    def __post_init__(self) -> None:
        if self.kind is None and any(level.kind is None for level in self.levels):
            raise ValueError("a level has no 'kind'")


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a run's config.yaml."""
    path = folder / CONFIG
    try:
        config = read_yaml(path, dict[str, Any], RunError)
    except FileNotFoundError:
        raise RunError(f"{folder}: no {CONFIG}; it is not a run directory") from None
    if "model" not in config:
        raise RunError(f"{path}: no 'model' section; it is not a torchlht run")
    fit(config, ConfigRecord, str(path), RunError)
    return config


def read_metrics(run: Path) -> dict[str, Any]:
    """The metrics of a finished run."""
    try:
        metrics = read_json(run / "metrics.json", dict[str, Any], RunError)
    except FileNotFoundError:
        raise RunError(f"{run}: no metrics.json; the run has not finished (lht train --resume {run})") from None
    fit(metrics, MetricsRecord, str(run / "metrics.json"), RunError)
    return metrics


def read_split(run: Path) -> dict[str, Any]:
    """Which samples a run trained on, validated on and tested on, and whose fine labels it kept."""
    try:
        record = read_json(run / "split.json", dict[str, Any], RunError)
    except FileNotFoundError:
        raise RunError(f"{run}: no split.json; it is not a run of lht train") from None
    fit(record, SplitRecord, str(run / "split.json"), RunError)
    return record


def read_history(run: Path) -> list[dict[str, float]]:
    """The rows of a run's history.csv; none if it has no such file."""
    path = run / "history.csv"
    try:
        return [{name: float(value) for name, value in row.items() if value} for row in read_csv(path)]
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise RunError(f"{path}: is damaged ({error}); remove it") from None


class Kept(Protocol):
    """A group of options that can be read from plain values."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The options."""
        ...


O = TypeVar("O", bound=Kept)  # noqa: E741


def read_options(run: Path, kind: type[O]) -> O:
    """The options that a run was started with. Raises RunError when config.yaml has none, or has wrong ones."""
    train = read_config(run).get("train")
    if not train:
        raise RunError(f"{run / CONFIG}: no 'train' section, so nothing tells which data this run is about")
    try:
        return kind.from_dict(train)
    except ConfigError as error:
        raise RunError(f"{run / CONFIG}: {error.message}") from None
