"""The options of commands that use a trained run: `lht evaluate`, `predict`, `calibrate`, `report`, `export`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from torchlht.errors import ConfigError
from torchlht.vocabulary import OnError, Rule, Split


@dataclass(frozen=True)
class EvaluateArgs:
    """Measure a trained model."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run directory, or a model on the hub."""
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """What to measure it on; the run's own data by default."""
    split: Split = "test"
    """Which part of the data."""
    rule: Rule = "own"
    """How answers are chosen: the method's `own` way (mostly argmax); `argmax` per level; `backtrack` from the finest;
    `top_down`; best `path`; `crm`, the least expected distance in the tree."""
    confidence: str | None = None
    """Also measure answers rolled up to the deepest class with these calibrated probabilities: 0.5,0.9,0.99."""
    risk: str | None = None
    """Also measure answers rolled up so far that at most these shares of them are wrong: 0.01,0.05."""
    strict: bool = False
    """--risk: count validation answers that no label can check as wrong, instead of taking labels to be missing at random."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    workers: int = 0
    """Processes that decode pictures."""
    json: bool = False
    """Print all metrics as JSON."""

    def confidences(self) -> list[float]:
        """`confidence` as numbers."""
        return _shares("confidence", self.confidence)

    def risks(self) -> list[float]:
        """`risk` as numbers."""
        return _shares("risk", self.risk)


@dataclass(frozen=True)
class PredictArgs:
    """Predict classes at every level."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run directory, a model on the hub, or what `lht export --to onnx` wrote."""
    inputs: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="FILE…")] = field(default_factory=list)
    """Pictures, folders, patterns; a table, shards or `demo` (their test pictures); for a model on features, .npz files with
    `x`."""
    format: Literal["table", "csv", "json"] = "table"
    """How to print the answers."""
    confidence: float | None = None
    """Answer with the deepest class whose probability reaches this, such as 0.9."""
    risk: float | None = None
    """Answer as deep as possible while at most this share of answers is wrong, such as 0.05: the threshold comes from
    validation samples, see `lht calibrate`."""
    strict: bool = False
    """--risk: count validation answers that no label can check as wrong, instead of taking labels to be missing at random."""
    only: str | None = None
    """Only these classes are possible: names of any level, separated by commas, or @FILE with a name on each line."""
    exclude: str | None = None
    """These classes are impossible; likewise."""
    top: int = 1
    """Candidates per level."""
    rule: Rule = "own"
    """How answers are chosen: the method's `own` way (mostly argmax); `argmax` per level; `backtrack` from the finest;
    `top_down`; best `path`; `crm`, the least expected distance in the tree."""
    limit: int | None = None
    """Only the first so many."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""

    def __post_init__(self) -> None:
        if self.top < 1:
            raise ConfigError(f"`top` is {self.top}: at least 1")

    def only_names(self) -> list[str]:
        """`only` as a list."""
        return _names(self.only)

    def excluded_names(self) -> list[str]:
        """`exclude` as a list."""
        return _names(self.exclude)


@dataclass(frozen=True)
class CalibrateArgs:
    """Fit a run's probabilities to what comes true."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run directory; calibration.json is written into it."""
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """Labelled samples that it was not trained on; the run's own validation samples by default."""
    split: Split | None = None
    """Which part of the data; val by default, and all of data that has no validation part."""
    folds: int | None = None
    """Without validation samples: train again so many times, each time without one part of the training samples, and learn
    from what is said of that."""
    on_error: OnError = "refuse"
    """What to do about pictures that cannot be read."""
    workers: int = 0
    """Processes that decode pictures."""
    json: bool = False
    """Print what was found as JSON."""


@dataclass(frozen=True)
class ReportArgs:
    """A page about a run."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run directory."""
    compare: tuple[str, ...] = ()
    """Other runs on the same tree to stand beside it, such as a baseline."""
    out: Path | None = None
    """Folder for report.html and the pictures; RUN/report by default."""
    split: Split = "test"
    """The samples it is about."""
    images: int = 6
    """How many pictures Grad-CAM looks at, and worst mistakes are shown."""
    attributes: Path | None = None
    """Attributes of the finest classes, a line of numbers each, or the folder CUB_200_2011; found by itself beside a prepared
    CUB."""
    workers: int = 0
    """Processes that decode pictures."""


@dataclass(frozen=True)
class ExportArgs:
    """A run as one file that runs elsewhere."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run directory, or a model on the hub."""
    to: Literal["onnx", "torch"] = "onnx"
    """`onnx`: for onnxruntime and everything else that reads ONNX; `torch`: a torch.export program (.pt2)."""
    out: Path | None = None
    """The file to write; RUN.onnx or RUN.pt2 beside the run by default."""
    confidence: float | None = None
    """Keep this threshold in the file: answers are then rolled up to the deepest class whose probability reaches it."""
    risk: float | None = None
    """Keep the threshold for this share of wrong answers in the file; see `lht predict --help`."""
    strict: bool = False
    """--risk: count validation answers that no label can check as wrong, instead of taking labels to be missing at random."""


def _shares(name: str, text: str | None) -> list[float]:
    try:
        values = [float(value) for value in (text or "").split(",") if value.strip()]
    except ValueError:
        raise ConfigError(f"`{name}` is {text!r}: numbers from 0 to 1, separated by commas") from None
    if not all(0 <= value <= 1 for value in values):
        raise ConfigError(f"`{name}` is {text!r}: numbers from 0 to 1, separated by commas")
    return values


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]
