"""The state: what the data says, and every event of the journal applied to it, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from torchlht.data.samples import Bools, Ints, Samples, deepest_known
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.serve.label.journal import WHATS, Answer, Begin, Entry, NewClass, Redo, Trained, Undo, What
from torchlht.serve.label.taxonomy import Taxonomy

UNTOUCHED = -1  # the mark of a sample that has no answer; others are places in WHATS
NO_LABEL: tuple[What, ...] = ("not_in_tree", "wrong_picture")
"""Answers that take a given label away."""


@dataclass(eq=False)
class Person:
    """What a person can take back, and bring back: numbers of events, the last one last."""

    done: list[int] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)


class State:
    """Labels of all samples, by number.

    Attributes:
        keys: a name per sample; unique.
        taxonomy: the classes.
        given: (N,) the class in the data, or -1.
        node: (N,) the class that counts now, or -1.
        mark: (N,) the place in WHATS of the answer that counts, or `UNTOUCHED`.
        version: (N,) the number of the last event about a sample; 0 without one.
        entries: the journal.
        strangers: how many answers are about samples that the data does not have any more.
    """

    def __init__(self, samples: Samples) -> None:
        self.keys = unique(samples.keys)
        self.taxonomy = Taxonomy(samples.hierarchy)
        self.given = self._given(samples.labels, samples.hierarchy)
        self.node, self.split = self.given.copy(), samples.split
        self.mark = np.full(len(self.keys), UNTOUCHED, dtype=np.int8)
        self.version = np.zeros(len(self.keys), dtype=np.int64)
        self.entries: list[Entry] = []
        self.strangers = 0
        self._number = {key: i for i, key in enumerate(self.keys)}
        self._answers: dict[int, list[int]] = {}  # numbers of the events about a sample
        self._nodes: dict[int, int] = {}  # the class that an event names or adds
        self._undone: set[int] = set()
        self._people: dict[str, Person] = {}

    def __len__(self) -> int:
        return len(self.keys)

    def _given(self, labels: Ints, tree: Hierarchy) -> Ints:
        numbers, found = self.taxonomy.numbers(tree), np.full(len(labels), -1, dtype=np.int64)
        finest = deepest_known(labels)
        for k in range(len(tree)):
            rows = np.flatnonzero(finest == k)
            found[rows] = numbers[k][labels[rows, k]]
        real = np.array([self.taxonomy.real(i) for i in range(len(self.taxonomy))] + [-1], dtype=np.int64)
        return np.asarray(real[found])

    # ---- events ----------------------------------------------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """One more event. Raises DataError if it makes no sense after the others."""
        number = len(self.entries)
        self._check(number, entry)
        self.entries.append(entry)
        if isinstance(entry, Answer):
            self._answer(number, entry)
        elif isinstance(entry, NewClass):
            self._nodes[number] = self.taxonomy.at(entry.path)
            self._remember(number, entry)
        elif isinstance(entry, Undo):
            self._undo(number, entry)
        elif isinstance(entry, Redo):
            self._redo(number, entry)

    def _check(self, number: int, entry: Entry) -> None:
        person, fault = self._people.get(entry.by, Person()), ""
        if (number == 0) != isinstance(entry, Begin):
            fault = "only the first one begins it"
        elif isinstance(entry, Answer | NewClass) and len(entry.path) > len(self.taxonomy.levels):
            fault = "a class below the finest level"
        elif isinstance(entry, NewClass) or (isinstance(entry, Answer) and entry.what in ("label", "only")):
            fault = "" if entry.path else "a label without a class"
        elif isinstance(entry, Undo) and entry.of not in person.done:
            fault = f"event {entry.of} cannot be undone"
        elif isinstance(entry, Redo) and entry.of not in person.undone:
            fault = f"event {entry.of} cannot be redone"
        if fault:
            raise DataError(f"event {number} of the journal: {fault}")

    def _answer(self, number: int, entry: Answer) -> None:
        self._nodes[number] = self.taxonomy.at(entry.path) if entry.path else -1
        for i in self._known(entry.samples):
            self._answers.setdefault(i, []).append(number)
            self._settle(i, number)
        self._remember(number, entry)

    def _remember(self, number: int, entry: Entry) -> None:
        person = self._people.setdefault(entry.by, Person())
        person.done.append(number)
        person.undone.clear()

    def _undo(self, number: int, entry: Undo) -> None:
        person = self._people[entry.by]
        person.done.remove(entry.of)
        person.undone.append(entry.of)
        self._undone.add(entry.of)
        self._turn(number, entry.of, self.taxonomy.take_back)

    def _redo(self, number: int, entry: Redo) -> None:
        person = self._people[entry.by]
        person.undone.remove(entry.of)
        person.done.append(entry.of)
        self._undone.discard(entry.of)
        self._turn(number, entry.of, self.taxonomy.bring_back)

    def _turn(self, number: int, of: int, turn: Callable[[int], None]) -> None:
        """What an event that was undone or redone is about, in its new state."""
        entry = self.entries[of]
        if isinstance(entry, NewClass):
            turn(self._nodes[of])
        elif isinstance(entry, Answer):
            for i in self._known(entry.samples):
                self._settle(i, number)

    def _settle(self, i: int, number: int) -> None:
        """Set a sample to its last answer that counts."""
        self.version[i] = number
        last = next((n for n in reversed(self._answers.get(i, ())) if n not in self._undone), None)
        if last is None:
            self.node[i], self.mark[i] = self.given[i], UNTOUCHED
            return
        entry = self.entries[last]
        assert isinstance(entry, Answer)
        self.mark[i] = WHATS.index(entry.what)
        labelled = entry.what in ("label", "only")
        self.node[i] = self._nodes[last] if labelled else -1 if entry.what in NO_LABEL else self.given[i]

    def _known(self, keys: Sequence[str]) -> list[int]:
        """The numbers of samples that are still there."""
        found = [self._number[key] for key in keys if key in self._number]
        self.strangers += len(keys) - len(found)
        return found

    # ---- what could be done next -----------------------------------------------------------------------------------

    def undoable(self, by: str) -> int:
        """The number of the event that a person would undo. Raises ConfigError if there is none, or it is still needed."""
        done = self._people.get(by, Person()).done
        if not done:
            raise ConfigError("nothing to undo")
        if isinstance(entry := self.entries[done[-1]], NewClass):
            node = self._nodes[done[-1]]
            users = int(np.isin(self.node, self.under(node)).sum())
            if users or self.taxonomy.children(node):
                raise ConfigError(f"{entry.path[-1]} is in use by {users} samples; label these otherwise first")
        return done[-1]

    def redoable(self, by: str) -> int:
        """The number of the event that a person would redo. Raises ConfigError if there is none, or it is not possible now."""
        undone = self._people.get(by, Person()).undone
        if not undone:
            raise ConfigError("nothing to redo")
        if isinstance(entry := self.entries[undone[-1]], NewClass):
            if self.taxonomy.find(len(entry.path) - 1, entry.path[-1]) is not None:
                raise ConfigError(f"{entry.path[-1]} was added again meanwhile")
        elif isinstance(entry, Answer) and entry.path and self.taxonomy.find(len(entry.path) - 1, entry.path[-1]) is None:
            raise ConfigError(f"{entry.path[-1]} was taken back meanwhile")
        return undone[-1]

    # ---- questions -------------------------------------------------------------------------------------------------

    def under(self, node: int) -> Ints:
        """A class and all classes below it."""
        lineages = self.taxonomy.lineages()[:-1]
        return np.flatnonzero(lineages[:, self.taxonomy.nodes[node].level] == node)

    def history(self, i: int) -> list[tuple[int, Answer, bool]]:
        """The answers about a sample: number, answer, and whether it counts."""
        found = [(n, self.entries[n], n not in self._undone) for n in self._answers.get(i, ())]
        return [(n, entry, counts) for n, entry, counts in found if isinstance(entry, Answer)]

    def counted(self) -> list[tuple[int, Answer]]:
        """All answers that count, with their numbers."""
        return [(n, e) for n, e in enumerate(self.entries) if isinstance(e, Answer) and n not in self._undone]

    def samples_of(self, number: int) -> list[int]:
        """The samples that an event is about."""
        entry = self.entries[number]
        if isinstance(entry, Undo | Redo):
            return self.samples_of(entry.of)
        return [self._number[key] for key in entry.samples if key in self._number] if isinstance(entry, Answer) else []

    def trainings(self) -> list[Trained]:
        """All trainings."""
        return [entry for entry in self.entries if isinstance(entry, Trained)]

    def levels(self) -> Ints:
        """(N,) the level of each sample's class from the coarsest, -1 without one."""
        own = np.array([node.level for node in self.taxonomy.nodes] + [-1], dtype=np.int64)
        return np.asarray(own[self.node])

    def done(self) -> Bools:
        """(N,) whether there is nothing left to ask: a finest label, or an answer that says that there is no more to say."""
        final = [WHATS.index(what) for what in WHATS if what != "label"]
        return np.asarray(self.taxonomy.ends()[self.node] | np.isin(self.mark, final))

    def labels(self, tree: Hierarchy) -> Ints:
        """(N, K) labels that count as numbers of a tree's classes, fine first, -1 where unknown."""
        found = np.full((len(self), len(tree)), -1, dtype=np.int64)
        lineages = self.taxonomy.lineages()
        for k, nodes in enumerate(self.taxonomy.numbers(tree)):
            number = np.full(len(self.taxonomy) + 1, -1, dtype=np.int64)
            number[nodes[nodes >= 0]] = np.flatnonzero(nodes >= 0)
            found[:, k] = number[lineages[self.node, len(tree) - 1 - k]]
        return tree.complete(found)

    def left_out(self) -> Bools:
        """(N,) samples that are no part of the collection, by the answers."""
        return np.asarray(np.isin(self.mark, [WHATS.index(what) for what in NO_LABEL]))


def unique(keys: Sequence[str]) -> tuple[str, ...]:
    """Keys with `#2`, `#3`, … behind those that were there before."""
    seen: dict[str, int] = {}
    found = []
    for key in keys:
        seen[key] = seen.get(key, 0) + 1
        found.append(key if seen[key] == 1 else f"{key}#{seen[key]}")
    return tuple(found)
