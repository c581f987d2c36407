"""Queues: what to look at, and in which order. Each is a function of the desk and of what the page asks for.

@queue("unlabelled", "without a label")
def unlabelled(desk: Desk, wanted: Wanted) -> Ints: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchlht.data.samples import Ints
from torchlht.errors import ConfigError, suggestion
from torchlht.serve.label.state import UNTOUCHED

if TYPE_CHECKING:
    from torchlht.serve.label.desk import Desk


class Wanted(NamedTuple):
    """What a page asks a queue for: a class, a folder, or a part of a name."""

    node: int = -1
    text: str = ""


class Queue(NamedTuple):
    """A queue: what it is called on the page, what gives it, and whether it takes a class or a text."""

    title: str
    order: Callable[[Desk, Wanted], Ints]
    takes: str


QUEUES: dict[str, Queue] = {}
Order = Callable[["Desk", Wanted], Ints]


def queue(name: str, title: str, takes: str = "") -> Callable[[Order], Order]:
    """Decorator: register a queue. `takes` is what the page must ask for with it: "", "node" or "text"."""

    def enter(function: Order) -> Order:
        QUEUES[name] = Queue(title, function, takes)
        return function

    return enter


def order_of(desk: Desk, name: str, wanted: Wanted) -> Ints:
    """Numbers of samples in the order of a queue. Raises ConfigError if there is no such queue."""
    if name not in QUEUES:
        raise ConfigError(f"no queue {name!r}: {suggestion(name, QUEUES)}")
    return QUEUES[name].order(desk, wanted)


@queue("next", "most worth asking")
def most_worth(desk: Desk, wanted: Wanted) -> Ints:
    """The questions of `lht next` that are not answered, then all other samples that are not done, in the order of the data."""
    asked = np.array(list(desk.asked), dtype=np.int64)
    enough = np.array([level for level, _ in desk.asked.values()], dtype=np.int64)
    left, rest = ~desk.state.done(), np.ones(len(desk.state), dtype=bool)
    rest[asked] = False
    return np.concatenate([asked[left[asked] & (desk.state.levels()[asked] < enough)], np.flatnonzero(left & rest)])


@queue("audit", "doubtful labels")
def doubtful(desk: Desk, wanted: Wanted) -> Ints:
    """What `lht audit` doubts and nobody has answered."""
    found = np.array(list(desk.doubts), dtype=np.int64)
    return np.asarray(found[desk.state.mark[found] == UNTOUCHED])


@queue("unlabelled", "without a label")
def unlabelled(desk: Desk, wanted: Wanted) -> Ints:
    """Samples without any label or answer, in the order of the data."""
    return np.flatnonzero((desk.state.node < 0) & (desk.state.mark == UNTOUCHED))


@queue("open", "not labelled to the end")
def not_done(desk: Desk, wanted: Wanted) -> Ints:
    """Samples that could be labelled deeper, in the order of the data."""
    return np.flatnonzero(~desk.state.done())


@queue("class", "a class", "node")
def of_class(desk: Desk, wanted: Wanted) -> Ints:
    """Samples with a label in a class, or without one and suggested to be in it."""
    if not 0 <= wanted.node < len(desk.state.taxonomy):
        raise ConfigError("choose a class first")
    inside = desk.state.under(wanted.node)
    now = desk.state.node
    if desk.thoughts is not None:
        now = np.where((now < 0) & ~desk.blind & (desk.state.mark == UNTOUCHED), desk.thoughts.suggested, now)
    return np.flatnonzero(np.isin(now, inside))


@queue("named", "a folder or name", "text")
def named(desk: Desk, wanted: Wanted) -> Ints:
    """Samples whose name holds a text."""
    text = wanted.text.casefold()
    return np.array([i for i, key in enumerate(desk.state.keys) if text in key.casefold()], dtype=np.int64)


@queue("answered", "answered here, latest first")
def answered(desk: Desk, wanted: Wanted) -> Ints:
    """Samples that somebody has answered."""
    found = np.flatnonzero(desk.state.mark != UNTOUCHED)
    return np.asarray(found[np.argsort(-desk.state.version[found], kind="stable")])


@queue("disagree", "label and model disagree")
def disagreeing(desk: Desk, wanted: Wanted) -> Ints:
    """Samples whose label the model finds improbable, the surest first. Those it must not show are left out."""
    if desk.thoughts is None:
        return np.empty(0, dtype=np.int64)
    lineages, level = desk.state.taxonomy.lineages(), desk.state.levels()
    rows = np.flatnonzero((level >= 0) & (desk.thoughts.suggested >= 0) & ~desk.blind)
    said = lineages[desk.thoughts.suggested[rows], level[rows]]
    rows = rows[(said >= 0) & (said != desk.state.node[rows])]
    return np.asarray(rows[np.argsort(-desk.thoughts.view.sure[rows, -1], kind="stable")])


@queue("all", "everything, in the order of the data")
def everything(desk: Desk, wanted: Wanted) -> Ints:
    """All samples."""
    return np.arange(len(desk.state))
