"""Following a run: what boards are told, and which there are. Quick to import; a board is imported when a run asks for it.

A board has the interface of Lightning Fabric's loggers, so any of these is one, such as `lightning_fabric.loggers.CSVLogger`.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchlht import console
from torchlht.errors import ConfigError, MissingExtraError, first_line, suggestion
from torchlht.plugins import plugins

if TYPE_CHECKING:
    from torchlht.answer.model import Run
    from torchlht.learn.alone import Machine
    from torchlht.learn.options import TrainArgs


class Board(Protocol):
    """What training calls of Fabric's `Logger`."""

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        """Take the options of the run."""
        ...

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        """Take the figures of an epoch."""
        ...

    def finalize(self, status: str) -> None:
        """Close; the run has ended with success, or it failed or was aborted."""
        ...


class Kind(NamedTuple):
    """A kind of board: the package and the extra it needs, and what makes one for a run directory."""

    package: str
    extra: str
    make: Callable[[Path], Board]


def _tensorboard(folder: Path) -> Board:
    from torchlht.learn.following.to_tensorboard import TensorBoard

    return TensorBoard(folder)


def _mlflow(folder: Path) -> Board:
    from torchlht.learn.following.to_mlflow import MLflowLogger

    return MLflowLogger(folder)


def _wandb(folder: Path) -> Board:
    from torchlht.learn.following.to_wandb import WandbLogger

    return WandbLogger(folder)


BOARDS = {
    "tensorboard": Kind("tensorboard", "track", _tensorboard),
    "mlflow": Kind("mlflow", "mlflow", _mlflow),
    "wandb": Kind("wandb", "wandb", _wandb),
}
USUAL = "tensorboard"
OVERALL = ("mean_accuracy", "full_path_accuracy", "leaf_accuracy", "auprc", "f1_micro", "f1_macro")
"""Figures of all levels together; the last four are of graphs."""


def check_board(name: str) -> None:
    """Raise ConfigError for a board that nobody knows, MissingExtraError if its package is not installed."""
    others = plugins("torchlht.boards") if name not in BOARDS else {}
    if name not in BOARDS and name not in others:
        raise ConfigError(f"unknown `track_to` {name!r}: {suggestion(name, [*BOARDS, *others])}")
    if name in BOARDS and importlib.util.find_spec(BOARDS[name].package) is None:
        raise MissingExtraError(f"--track-to {name}", extra=BOARDS[name].extra)


def make_boards(args: TrainArgs, folder: Path) -> dict[str, Board]:
    """The boards that the options name, for a run in this folder; by default TensorBoard, if it is installed."""
    there = importlib.util.find_spec(BOARDS[USUAL].package) is not None
    names = args.track_to or ((USUAL,) if there else ())
    return {name: _made(name, folder) for name in names} if args.track else {}


def _made(name: str, folder: Path) -> Board:
    check_board(name)
    make: Callable[[Path], Board] = BOARDS[name].make if name in BOARDS else plugins("torchlht.boards")[name]
    try:
        return make(folder)
    except Exception as error:  # packages for boards raise nearly anything when their server does not answer
        what = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(f"`track_to`: {name} cannot be reached ({what}); check its settings, or leave it out") from error


class Follow:
    """The boards of a run. One that fails is left out, with a note: training goes on, and history.csv has every figure."""

    def __init__(self, boards: dict[str, Board]) -> None:
        self.boards = boards

    def start(self, options: dict[str, Any]) -> None:
        """Tell the options."""
        given = {name: value for name, value in options.items() if value not in (None, "", [])}

        def say(board: Board) -> None:
            with suppress(NotImplementedError):  # some of Fabric's loggers take none
                board.log_hyperparams(given)

        self._tell(say)

    def epoch(self, row: dict[str, float]) -> None:
        """Tell a row of the history."""
        self._tell(lambda board: board.log_metrics({name: row[name] for name in row if name != "epoch"}, int(row["epoch"])))

    def result(self, metrics: dict[str, Any]) -> None:
        """Tell what was measured on test samples, to boards that compare runs."""
        found = {f"test_{level['name']}": level["accuracy"] for level in metrics.get("levels", [])}
        found |= {f"test_{name}": metrics[name] for name in OVERALL if name in metrics}
        known = {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
        if known:
            self._tell(lambda board: getattr(board, "log_result", len)(known))

    def end(self, status: str) -> None:
        """Close the boards."""
        self._tell(lambda board: board.finalize(status))

    def _tell(self, say: Callable[[Any], object]) -> None:
        for name, board in list(self.boards.items()):
            try:
                say(board)
            except Exception as error:
                del self.boards[name]
                left = "training goes on without it, and history.csv has every figure"
                console.note(f"{name}: {type(error).__name__}: {first_line(error)}; {left}", quiet=False)


@contextmanager
def followed(machine: Machine, args: TrainArgs, run: Run, options: dict[str, Any]) -> Iterator[Follow]:
    """Context: the first process tells the boards how a run goes, and how it ends."""
    follow = Follow(make_boards(args, run.path) if machine.is_global_zero else {})
    follow.start(options)
    try:
        yield follow
    except BaseException as error:
        follow.end("aborted" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    follow.end("success")
