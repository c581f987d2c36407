"""The process that learns, seen from the page's server: it is asked, and answers when it is ready."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from torchlht.data.samples import Ints
from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class Setup:
    """What the process needs to find the same samples by itself.

    Attributes:
        read: gives the samples; can be sent to another process.
        backbone: the network for pictures, or `auto`.
        run: a run directory, or None.
        seed: for what is left to chance.
    """

    read: Callable[[], Any]
    backbone: str
    run: str | None
    seed: int


class Counted(NamedTuple):
    """How many pictures of how many have features."""

    done: int
    total: int


class Looked(NamedTuple):
    """What it thinks now; `view` is None as long as there is no model. `order` is what to ask next."""

    view: Any
    order: Ints


class Failed(NamedTuple):
    """Why it could not do what it was asked; `finally_` if it can do nothing any more."""

    reason: str
    finally_: bool


class Learner:
    """A process that computes features, then waits for labels to learn from.

    Args:
        setup: what it needs.
        tell: is called with every message, from another thread.
    """

    def __init__(self, setup: Setup, tell: Callable[[Counted | Looked | Failed], None]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, setup), daemon=True)
        self._process.start()
        theirs.close()
        self._tell = tell
        threading.Thread(target=self._listen, daemon=True).start()

    def train(self, labels: Ints, tree: Hierarchy) -> None:
        """Ask for a training; a message tells when it is done."""
        self._pipe.send((labels, tree.to_dict()))

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
    from torchlht.serve.label.asking import next_order
    from torchlht.serve.label.learning import gather, look, train_view

    if hasattr(os, "nice"):
        os.nice(10)  # the page comes first
    torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))
    try:
        samples = setup.read()
        material = gather(samples, setup.backbone, setup.run, lambda done, total: pipe.send(Counted(done, total)))
        view = look(material, material.model, material.model.calibration, None, len(samples)) if material.model else None
        pipe.send(Looked(view, next_order(material, view)))
    except (LHTError, OSError, MemoryError, RuntimeError) as error:
        pipe.send(Failed(first_line(error), True))
        return
    while True:
        try:
            labels, tree = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            view = train_view(material, labels, Hierarchy.from_dict(tree), seed=setup.seed)
            pipe.send(Looked(view, next_order(material, view)))
        except (LHTError, MemoryError, RuntimeError) as error:
            pipe.send(Failed(first_line(error), False))
