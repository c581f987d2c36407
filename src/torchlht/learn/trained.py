"""`train` for Python, and `Trained`: a finished run with its results and its model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from torchlht.answer.finding import GRAPH
from torchlht.answer.model import Inputs, Model
from torchlht.answer.records import read_metrics
from torchlht.answer.several import GraphModel, Labels, load
from torchlht.answer.table import Answers
from torchlht.data.options import TreeArgs
from torchlht.data.several import Asked, is_several
from torchlht.doors import entrance
from torchlht.errors import ConfigError, suggestion
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.method import options_of
from torchlht.hierarchy.linked import has_several_parents
from torchlht.learn import training
from torchlht.learn.options import TrainArgs, configured, merged, preset
from torchlht.measure.several import AUPRC


@dataclass(frozen=True, repr=False, eq=False)
class Trained(os.PathLike[str]):
    """A finished run.

        >>> run = torchlht.train("birds.csv", backbone="efficientnet_lite0", freeze=True)
        >>> run
        Trained('runs/birds-lht-s0': order 98.2, family 88.6, species 51.6)
        >>> run.predict("beach.jpg")[0].names
        {'order': 'Charadriiformes', 'family': 'Laridae', 'species': 'Ivory Gull'}

    Attributes:
        path: its run directory. The run itself can be used wherever a path can.
    """

    path: Path

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """Everything that was measured on the test samples, as metrics.json holds it."""
        return read_metrics(self.path)

    @property
    def accuracy(self) -> dict[str, float | None]:
        """The accuracy on the test samples at each level, coarse → fine; empty with several labels, or when nothing was tested.

        None at a level that no test sample has a label of.
        """
        levels = self.metrics.get("levels") or self.metrics.get("graph_levels", ())
        return {level["name"]: level["accuracy"] for level in levels if "accuracy" in level}

    @cached_property
    def model(self) -> Model | GraphModel:
        """The trained model."""
        return load(self.path)

    def predict(self, inputs: Inputs, **how: Any) -> Answers | list[Labels]:
        """See `Model.predict`; of several labels per sample, `GraphModel.predict`."""
        return self.model.predict(inputs, **how)

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value}" for name, value in self._figures().items())
        return f"Trained({str(self.path)!r}: {figures or 'not tested'})"

    def _figures(self) -> dict[str, str]:
        """Its accuracies, or, with several labels per sample, the area under the precision-recall curve."""
        area = {} if self.accuracy or "auprc" not in self.metrics else {AUPRC.heading: self.metrics["auprc"]}
        return {name: _percent(value) for name, value in (self.accuracy | area).items()}

    def _repr_html_(self) -> str:
        """Its figures as a table, for notebooks."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self._figures())
        cells = "".join(f"<td>{value}</td>" for value in self._figures().values())
        return f"<table><tr><th>run</th>{head}</tr><tr><td>{escape(str(self.path))}</td>{cells}</tr></table>"

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, os.PathLike) and Path(other) == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def __getattr__(self, name: str) -> Any:
        """What a path can do: `train` once returned only the path."""
        if name.startswith("_") or name == "path":
            raise AttributeError(name)
        return getattr(self.path, name)


def _percent(value: float | None) -> str:
    """A share in percent; a dash if it is not known."""
    return "–" if value is None else f"{100 * value:.1f}"


@entrance
def train(data: str | Path | TrainArgs = "", **options: Any) -> Trained:
    """Train, measure on the test samples and save everything in a run directory.

    >>> run = train("birds.csv", method="lht", backbone="resnet50", gamma=1, out="runs/birds")

    Args:
        data: a folder, a table, an .npz or anything else that `lht train` takes; or all options as a `TrainArgs`.
        options: the options of `lht train` (dashes are underscores), and those of the method.

    Raises:
        LHTError: if the options or the data are wrong, before anything is written.
    """
    if isinstance(data, TrainArgs):
        return Trained(training.train(dataclasses.replace(data, **options)))
    return Trained(training.train(train_args(str(data), options)))


def as_pairs(given: Any) -> list[str]:
    """Options of a method, which may be a dict, as NAME=VALUE."""
    return [f"{name}={value}" for name, value in given.items()] if isinstance(given, dict) else list(given)


def asked_of(options: dict[str, Any]) -> Asked:
    """How data is to be read, by keywords."""
    levels, hierarchy = options.get("levels"), options.get("hierarchy")
    names = levels if isinstance(levels, str) or not levels else ",".join(levels)
    tree = TreeArgs(hierarchy=Path(hierarchy) if hierarchy else None, levels=names, unknown=options.get("unknown"))
    return Asked.by(tree, options.get("several"))


def options_of_method(data: str, options: dict[str, Any]) -> Iterable[str]:
    """The names of the options of the method that is asked for, on this data."""
    if options.get("resume") and (Path(options["resume"]) / GRAPH).is_file():
        return [field.name for field in dataclasses.fields(GraphArgs)]
    if is_several(data, asked_of(options)):
        return GraphArgs.known(exclusive=False)
    if options.get("hierarchy") and has_several_parents(Path(options["hierarchy"])):
        return GraphArgs.known(exclusive=True)
    return options_of(options.get("method", "lht"))


def train_args(data: str, options: dict[str, Any]) -> TrainArgs:
    """Keywords as options of a run; those that belong to the method become `option`."""
    if config := options.get("config"):
        others = {name: value for name, value in options.items() if name != "config"}
        options = merged(configured(config), others | {"option": as_pairs(options.get("option", ()))})
        data = data or options.get("data", "")
        del options["data"]
    known = {field.name for field in dataclasses.fields(TrainArgs)}
    of_method = options_of_method(data, options)
    if unknown := [name for name in options if name not in known and name not in of_method]:
        raise ConfigError(f"`{unknown[0]}` is no option: {suggestion(unknown[0], [*sorted(known), *of_method])}")
    own = {name: value for name, value in options.items() if name in known}
    pairs = dict(pair.partition("=")[::2] for pair in as_pairs(own.pop("option", ())))
    pairs = {**pairs, **{name: value for name, value in options.items() if name not in known}}
    if not isinstance(own.get("levels") or "", str):
        own["levels"] = ",".join(own["levels"])
    return TrainArgs.from_dict(
        {"data": data, "option": [f"{n}={v}" for n, v in pairs.items()], **preset(own.get("preset", "default")), **own}
    )
