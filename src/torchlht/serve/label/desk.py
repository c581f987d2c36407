"""The desk: journal, state and model together, without any network. What the page asks for, as plain values."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from torchlht.data.samples import Samples
from torchlht.errors import ConfigError, LHTError
from torchlht.serve.label.costs import Asking, spent
from torchlht.serve.label.journal import WHATS, Answer, Entry, Journal, NewClass, Redo, Trained, Undo, What, now
from torchlht.serve.label.learner import Counted, Failed, Job, Learner, Message, Questions, Ready
from torchlht.serve.label.queues import QUEUES, Wanted, order_of
from torchlht.serve.label.state import UNTOUCHED, State
from torchlht.serve.label.thoughts import Thought, Thoughts, asked_blind

EXAMPLES, SHOWN = 4, 6
"""Pictures of a class beside a sample, and classes that have some."""
PAUSE = 120.0
"""Seconds: longer than this nobody looks at one sample."""


class Conflict(LHTError):
    """Raised when somebody has answered meanwhile; `samples` are the ones."""

    def __init__(self, samples: list[int]) -> None:
        super().__init__("somebody has answered meanwhile")
        self.samples = samples


class Doubt(NamedTuple):
    """What `lht audit` says about a sample: the class it suggests, or -1, how probable it is, and why."""

    node: int
    share: float
    reason: str


class Given(NamedTuple):
    """An answer as the page gives it.

    Attributes:
        samples: for each, its number and the version that the person saw.
        what: see `Answer`.
        node: the class, for `label` and `only`.
        by: who.
        shown: whether suggestions were on the screen.
        seconds: how long it took.
    """

    samples: Sequence[tuple[int, int]]
    what: What
    node: int | None
    by: str
    shown: bool = False
    seconds: float = 0.0


@dataclass(eq=False)
class Desk:
    """Everything one server works on.

    Attributes:
        samples: the data.
        state: the labels.
        journal: where answers go.
        doubts: what an audit says, by number of the sample.
        blind_share: share of the samples whose suggestion is not shown.
        confidence: how probable a suggestion must be.
        train_every: train by itself after so many answers; 0 for never.
        asking: how questions are chosen, and what answers cost.
        synonyms: other names of classes, by node.
        learner: the process that learns, or None.
    """

    samples: Samples
    state: State
    journal: Journal
    doubts: Mapping[int, Doubt] = field(default_factory=dict)
    blind_share: float = 0.1
    confidence: float = 0.5
    train_every: int = 0
    asking: Asking = field(default_factory=Asking)
    synonyms: Mapping[int, Sequence[str]] = field(default_factory=dict)
    learner: Learner | None = None
    asked: dict[int, tuple[int, str]] = field(default_factory=dict)
    """What to ask next, best first: by sample, the level from the coarsest that is enough, and why."""
    thoughts: Thoughts | None = None
    counted: Counted | None = None
    fault: str = ""
    training: bool = False
    ready: bool = False
    asking_number: int = 0
    """How often questions were chosen."""
    since: int = 0
    """Answers since the last training."""
    examples: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blind = asked_blind(self.state.keys, self.blind_share, self.asking.seed)
        self._prices = self.asking.prices(self.samples.hierarchy)
        self._answers_at_training = 0
        for i in np.flatnonzero(self.state.node >= 0).tolist():
            self._exemplify(i)

    # ---- changes ---------------------------------------------------------------------------------------------------

    def write(self, entry: Entry) -> int:
        """Write an event, then apply it; returns its number."""
        self.journal.append(entry)
        self.state.apply(entry)
        return len(self.state.entries) - 1

    def answer(self, given: Given) -> int:
        """Write an answer; returns the number of its event.

        Raises:
            Conflict: when a sample has another version than the person saw; nothing is written then.
            ConfigError: when it makes no sense.
        """
        numbers = [self.check(i) for i, _ in given.samples]
        if not numbers or len(set(numbers)) != len(numbers):
            raise ConfigError("an answer is about one sample, or about several different ones")
        path: list[str] = []
        if given.what in ("label", "only"):
            path = self.state.taxonomy.path(self.check_node(given.node))
        if late := [i for i, version in given.samples if self.state.version[i] != version]:
            raise Conflict(late)
        suggested = [self._suggested_path(i) for i in numbers]
        entry = Answer(
            at=now(),
            by=given.by,
            samples=[self.state.keys[i] for i in numbers],
            seen=[version for _, version in given.samples],
            what=given.what,
            path=path,
            suggested=suggested if any(suggested) else [],
            shown=[bool(given.shown and one and not self.blind[i]) for i, one in zip(numbers, suggested, strict=True)],
            asked=self._asked_levels(numbers),
            seconds=round(min(max(given.seconds, 0.0), PAUSE), 2),
        )
        number = self.write(entry)
        for i in numbers:
            self._exemplify(i)
        self.since += 1
        if self.train_every and self.since >= self.train_every and self.ready and not self.training:
            self.train()
        return number

    def _suggested_path(self, i: int) -> list[str]:
        node = -1 if self.thoughts is None else int(self.thoughts.suggested[i])
        return self.state.taxonomy.path(node) if node >= 0 else []

    def _asked_levels(self, numbers: Sequence[int]) -> list[str]:
        """The level that is asked for, for each sample; empty if there is none for any."""
        levels = self.state.taxonomy.levels
        found = [levels[self.asked[i][0]] if i in self.asked else "" for i in numbers]
        return found if any(found) else []

    def add_class(self, parent: int, name: str, by: str) -> int:
        """Add a class under a node, or at the coarsest level for -1; returns its node."""
        if parent != -1:
            self.check_node(parent)
        path = self.state.taxonomy.check_new(parent, name)
        self.write(NewClass(at=now(), by=by, path=path))
        found = self.state.taxonomy.find(len(path) - 1, name)
        assert found is not None
        return found

    def undo(self, by: str) -> int:
        """Undo a person's last event that counts; returns its number."""
        of = self.state.undoable(by)
        self.write(Undo(at=now(), by=by, of=of))
        return of

    def redo(self, by: str) -> int:
        """Redo what the person undid last; returns its number."""
        of = self.state.redoable(by)
        self.write(Redo(at=now(), by=by, of=of))
        return of

    def check(self, i: int) -> int:
        """A sample's number. Raises ConfigError if there is no such sample."""
        if not 0 <= i < len(self.state):
            raise ConfigError(f"no sample {i}: there are {len(self.state):,}")
        return i

    def check_node(self, node: int | None) -> int:
        """A node that counts. Raises ConfigError if there is none."""
        if node is None or not 0 <= node < len(self.state.taxonomy) or node in self.state.taxonomy.gone:
            raise ConfigError("no such class: load the page again")
        return node

    def _exemplify(self, i: int) -> None:
        """Keep a sample as an example of its class."""
        node = int(self.state.node[i])
        if node >= 0:
            known = self.examples.setdefault(node, [])
            if i not in known:
                known.append(i)
                del known[: -8 * EXAMPLES]

    # ---- learning --------------------------------------------------------------------------------------------------

    def train(self) -> None:
        """Ask the learner for a training. Raises ConfigError if it cannot learn now."""
        if self.learner is None or not self.ready:
            raise ConfigError(self.fault or "features are not ready yet; labelling goes on meanwhile")
        if self.training:
            raise ConfigError("a training is running already")
        self.training, self.since, self.fault = True, 0, ""
        self._answers_at_training = len(self.state.counted())
        self._hand_over(train=True)

    def _hand_over(self, train: bool) -> None:
        assert self.learner is not None
        tree = self.state.taxonomy.hierarchy()
        self.learner.ask(Job(self.state.labels(tree), tree.to_dict(), self.state.done(), train))

    def hear(self, message: Message) -> None:
        """Take in what the learner says."""
        if isinstance(message, Counted):
            self.counted = message
        elif isinstance(message, Failed):
            self.training, self.fault, self.ready = False, message.reason, self.ready and not message.finally_
        elif isinstance(message, Ready):
            self.ready, self.counted = True, None
            self._think(message.view)
            self._hand_over(train=False)
        else:
            self._ask(message.questions)
            if message.view is not None:  # a training
                self.training = False
                self._think(message.view)
                self._note(message.view)

    def _think(self, view: Any) -> None:
        if view is not None:
            self.thoughts = Thoughts(view, self.state.taxonomy, self.confidence)

    def _ask(self, questions: Questions) -> None:
        rows, levels = questions.rows.tolist(), questions.levels.tolist()
        self.asked = {i: (level, why) for i, level, why in zip(rows, levels, questions.why, strict=True)}
        self.asking_number += 1

    def _note(self, view: Any) -> None:
        levels = zip(view.tree.levels, view.accuracy, strict=False)
        self.write(
            Trained(
                at=now(),
                answers=self._answers_at_training,
                labelled=view.labelled,
                accuracy={level: round(share, 6) for level, share in levels if share == share},
                checked=view.checked,
                source=view.source,
                seconds=round(view.seconds, 2),
            )
        )

    # ---- questions -------------------------------------------------------------------------------------------------

    def start(self) -> dict[str, Any]:
        """What the page needs first."""
        pictures = self.samples.images is not None
        queues = [{"name": name, "title": one.title, "takes": one.takes} for name, one in QUEUES.items()]
        return {
            "data": self.samples.name,
            "samples": len(self.state),
            "pictures": pictures,
            "levels": self.state.taxonomy.levels,
            "queues": [one for one in queues if one["name"] != "audit" or self.doubts],
            "strangers": self.state.strangers,
            "blind": self.blind_share,
            "train_every": self.train_every,
            **self.progress(),
        }

    def tree(self, since: int = 0) -> dict[str, Any]:
        """Classes from a number on: name, level and parent of each, how often each is a label, and which do not count."""
        taxonomy = self.state.taxonomy
        often = np.bincount(self.state.node[self.state.node >= 0], minlength=len(taxonomy))
        hidden = [i for i in range(since, len(taxonomy)) if i in taxonomy.gone or taxonomy.stands_in(i)]
        nodes = taxonomy.nodes[since:]
        return {
            "since": since,
            "names": ["" if taxonomy.stands_in(since + i) else node.name for i, node in enumerate(nodes)],
            "levels": [node.level for node in nodes],
            "parents": [node.parent for node in nodes],
            "often": often[since:].tolist(),
            "hidden": hidden,
            "synonyms": [[node, name] for node, names in self.synonyms.items() if node >= since for name in names],
            "gone": sorted(taxonomy.gone),
        }

    def queue(self, name: str, wanted: Wanted, at: int, count: int) -> dict[str, Any]:
        """A part of a queue."""
        order = order_of(self, name, wanted)
        return {"total": len(order), "at": at, "samples": [self.brief(i) for i in order[at : at + count].tolist()]}

    def brief(self, i: int) -> dict[str, Any]:
        """A sample in a few words."""
        mark = int(self.state.mark[i])
        found: dict[str, Any] = {
            "i": i,
            "key": self.state.keys[i],
            "node": int(self.state.node[i]),
            "what": None if mark == UNTOUCHED else WHATS[mark],
            "version": int(self.state.version[i]),
            "blind": bool(self.blind[i]),
        }
        if i in self.asked:
            found["asked"] = list(self.asked[i])
        if self.thoughts is not None and not self.blind[i] and self.thoughts.suggested[i] >= 0:
            found["suggested"] = [int(self.thoughts.suggested[i]), round(self.thoughts.share(i), 4)]
        return found

    def detail(self, i: int) -> dict[str, Any]:
        """Everything about a sample: what the model thinks at every level, examples, who said what before."""
        self.check(i)
        levels: list[list[Thought]] = []
        path: list[Thought] = []
        if self.thoughts is not None and not self.blind[i]:
            levels, path = self.thoughts.levels(i), self.thoughts.path(i)
        doubt = self.doubts.get(i)
        candidates = [one.node for one in (levels[-1] if levels else [])]
        if doubt is not None and doubt.node >= 0:
            candidates.insert(0, doubt.node)
        if self.state.node[i] >= 0:
            candidates.insert(0, int(self.state.node[i]))
        return {
            **self.brief(i),
            "given": int(self.state.given[i]),
            "thinks": [[[one.node, round(one.share, 4)] for one in level] for level in levels],
            "path": [[one.node, round(one.share, 4)] for one in path],
            "calibrated": bool(self.thoughts is not None and self.thoughts.view.calibrated),
            "examples": self.examples_for(i, candidates),
            "history": [self.told(number, answer, counts) for number, answer, counts in self.state.history(i)],
            "doubt": None if doubt is None else {"node": doubt.node, "share": doubt.share, "reason": doubt.reason},
        }

    def examples_for(self, i: int, nodes: Sequence[int]) -> list[list[Any]]:
        """For some classes, each once, samples that are labelled with them now."""
        found = []
        for node in list(dict.fromkeys(nodes))[:SHOWN]:
            own = [j for j in reversed(self.examples.get(node, [])) if j != i and self.state.node[j] == node][:EXAMPLES]
            if own:
                found.append([node, own])
        return found

    def told(self, number: int, answer: Answer, counts: bool) -> dict[str, Any]:
        """An answer as the page shows it."""
        return {"number": number, "at": answer.at, "by": answer.by, "what": answer.what, "path": answer.path, "counts": counts}

    def changes(self, since: int) -> dict[str, Any]:
        """Samples that events after a number are about, and whether there are new classes."""
        entries = range(max(since + 1, 1), len(self.state.entries))
        touched = sorted({i for number in entries for i in self.state.samples_of(number)})
        kinds = [self.state.entries[number] for number in entries]
        classes = any(isinstance(one, NewClass | Undo | Redo) for one in kinds)
        return {"samples": [self.brief(i) for i in touched[:500]], "classes": classes, **self.progress()}

    def progress(self) -> dict[str, Any]:
        """How far it is: labels per depth, answers, what they cost, how often people agree, trainings, and what runs."""
        levels, answers = self.state.levels(), [answer for _, answer in self.state.counted()]
        seconds = [answer.seconds for answer in answers if answer.seconds > 0]
        marks = np.bincount(self.state.mark + 1, minlength=len(WHATS) + 1).tolist()
        return {
            "number": len(self.state.entries) - 1,
            "depths": np.bincount(levels + 1, minlength=len(self.state.taxonomy.levels) + 1).tolist(),
            "marks": dict(zip(("untouched", *WHATS), marks, strict=True)),
            "answers": len(answers),
            "answered": sum(len(answer.samples) for answer in answers),
            "seconds": round(sum(seconds), 1),
            "cost": round(spent(answers, self.state.taxonomy.levels, self._prices), 4) if self.asking.cost else None,
            "median": round(statistics.median(seconds), 1) if seconds else None,
            "agreement": agreement(answers),
            "trainings": [
                {"answers": t.answers, "labelled": t.labelled, "accuracy": t.accuracy, "checked": t.checked, "source": t.source}
                for t in self.state.trainings()
            ],
            "learning": {
                "ready": self.ready,
                "training": self.training,
                "model": self.thoughts is not None,
                "features": None if self.counted is None else list(self.counted),
                "fault": self.fault,
                "since": self.since,
                "asked": self.asking_number,
            },
        }


def agreement(answers: Sequence[Answer]) -> dict[str, list[int]]:
    """How often labels lie on the path of what was suggested: of those who saw it, and of those who did not; (right, of)."""
    found = {"shown": [0, 0], "blind": [0, 0]}
    for answer in answers:
        if answer.what not in ("label", "only"):
            continue
        for suggested, shown in zip(answer.suggested, answer.shown, strict=False):
            if suggested:
                counts = found["shown" if shown else "blind"]
                depth = min(len(suggested), len(answer.path))
                counts[0] += suggested[:depth] == answer.path[:depth]
                counts[1] += 1
    return found
