"""The process that learns, seen from the page's server: it is asked, and answers when it is ready."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlht.data.samples import Bools, Ints
from torchlht.hierarchy.tree import Hierarchy

if TYPE_CHECKING:
    from torchlht.serve.label.costs import Asking
    from torchlht.serve.label.learning import Material


@dataclass(frozen=True)
class Setup:
    """What the process needs to find the same samples by itself.

    Attributes:
        read: gives the samples; can be sent to another process.
        backbone: the network for pictures, or `auto`.
        run: a run directory, or None.
        asking: how questions are chosen.
    """

    read: Callable[[], Any]
    backbone: str
    run: str | None
    asking: Asking


class Counted(NamedTuple):
    """How many pictures of how many have features."""

    done: int
    total: int


class Ready(NamedTuple):
    """Features are there; `view` is what a trained run thinks, or None."""

    view: Any


class Questions(NamedTuple):
    """What to ask next, best first: numbers of samples, for each the level from the coarsest that is enough, and why."""

    rows: Ints
    levels: Ints
    why: tuple[str, ...]


class Job(NamedTuple):
    """What it is asked: the labels that count, their tree as a dict, which samples are done, and whether to train."""

    labels: Ints
    tree: dict[str, Any]
    done: Bools
    train: bool


class Looked(NamedTuple):
    """What it thinks after a job, or None if that was no training, and what to ask next."""

    view: Any
    questions: Questions


class Failed(NamedTuple):
    """Why it could not do what it was asked; `finally_` if it can do nothing any more."""

    reason: str
    finally_: bool


Message = Counted | Ready | Looked | Failed


class Learner:
    """A process that computes features, then waits for labels to learn from.

    Args:
        setup: what it needs.
        tell: is called with every message, from another thread.
    """

    def __init__(self, setup: Setup, tell: Callable[[Message], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, setup), daemon=True)
        self._process.start()
        theirs.close()
        self._tell = tell
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, job: Job) -> None:
        """Ask for questions, or for a training and questions; a message tells when it is done."""
        self._pipe.send(job)

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(timeout=5)

    def _listen(self) -> None:
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                self._tell(Failed("the process that learns has ended; start lht label again to go on learning", True))
                return
            self._tell(message)


def work(pipe: Connection, setup: Setup) -> None:
    """The process: it ends with its server, whose end of the pipe is then closed."""
    import torch

    from torchlht.errors import LHTError, first_line
    from torchlht.serve.label.learning import gather, look, mind_of

    if hasattr(os, "nice"):
        os.nice(10)  # the page comes first
    torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))
    try:
        samples = setup.read()
        material = gather(samples, setup.backbone, setup.run, lambda done, total: pipe.send(Counted(done, total)))
        run = material.model
        pipe.send(Ready(look(material, mind_of(run), run.calibration, None, len(samples)) if run else None))
    except (LHTError, OSError, MemoryError, RuntimeError) as error:
        pipe.send(Failed(first_line(error), True))
        return
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(work_on(material, job, setup.asking))
        except (LHTError, MemoryError, RuntimeError) as error:
            pipe.send(Failed(first_line(error), False))


def work_on(material: Material, job: Job, asking: Asking) -> Looked:
    """Do a job."""
    from torchlht.serve.label.asking import next_questions
    from torchlht.serve.label.learning import train_view

    tree, view, opinion = Hierarchy.from_dict(job.tree), None, None
    if job.train:
        view, opinion = train_view(material, job.labels, tree, seed=asking.seed)
    return Looked(view, next_questions(material, job.labels, job.done, tree, asking, opinion))
