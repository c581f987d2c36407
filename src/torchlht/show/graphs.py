"""Sections of the page about a run whose classes may have several parents; `page` puts them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchlht.answer.facets import Sure, likeliest, sure
from torchlht.answer.records import read_config, read_metrics
from torchlht.answer.several import GraphModel
from torchlht.console import plural
from torchlht.data.pictures import open_image
from torchlht.data.several import Several
from torchlht.errors import ConfigError
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.learn.options import TrainArgs
from torchlht.learn.several import measured, samples_of, scores_of
from torchlht.measure.several import average_precision, measure_sure
from torchlht.show.figures.curves import learning_figure, read_history
from torchlht.show.figures.probabilities import LevelReliability, reliability, reliability_figure
from torchlht.show.look import plain
from torchlht.show.sections.answers import EASIEST, HARDEST, THUMBNAIL, UNCALIBRATED, unpromised
from torchlht.show.sections.overview import WHERE
from torchlht.show.sections.parts import PARTS, Cell, Content, Picture, Table, draw, jpeg, number, percent

CONFIDENCES, RISKS = (0.5, 0.8, 0.9, 0.95, 0.99), (0.01, 0.05, 0.1)
PAIRS = 12  # confusions that are shown
Row = list[str | Cell]


@dataclass(frozen=True)
class GraphSeen:
    """A run, some samples, and what it says about them.

    Attributes:
        run: its directory.
        model: the model.
        samples: the data.
        rows: positions of the samples that are reported on.
        split: which part they are.
        raw: (n, nodes) probabilities as trained.
        scores: (n, nodes) calibrated probabilities.
        metrics: what was measured on these samples.
    """

    run: Path
    model: GraphModel
    samples: Several
    rows: NDArray[np.int64]
    split: str
    raw: NDArray[np.float32]
    scores: NDArray[np.float32]
    metrics: dict[str, Any]

    @classmethod
    def of(cls, run: Path, split: str) -> GraphSeen:
        """Ask a run about a part of its own data."""
        model = GraphModel.load(run)
        samples, rows = samples_of(model, run, None, split)
        raw = scores_of(model, samples, rows)
        return cls(run, model, samples, rows, split, raw, model.calibrated(raw), measured(model, samples.labels[rows], raw))

    @property
    def graph(self) -> Graph:
        """The classes."""
        return self.model.graph

    @property
    def labels(self) -> Labels:
        """(n, nodes) what is known."""
        return self.samples.labels[self.rows]

    @property
    def said(self) -> NDArray[np.bool_]:
        """(n, nodes) the answers without a threshold."""
        return self.model.chosen(self.raw)

    def noun(self) -> str:
        """How many samples of which part."""
        return plural(len(self.rows), f"{PARTS[self.split]}{'sample' if self.samples.images is None else 'picture'}")

    def level(self, depth: int) -> str:
        """The name of a level, counted from the top."""
        return self.model.levels[depth] if self.model.levels else f"level{depth + 1}"

    def name(self, node: int) -> str:
        """A class for people."""
        return plain(self.graph.names[node])


# ---- the head of the page --------------------------------------------------------------------------------------------


def header(seen: GraphSeen) -> dict[str, object]:
    """Name, summary, cautions, and facts about the run."""
    args = TrainArgs.from_dict(read_config(seen.run).get("train") or {})
    chosen = read_metrics(seen.run).get("selection", {})
    facts = {
        "method": seen.model.network.args.method,
        "data": args.data,
        "classes": seen.graph.describe(),
        "labels": "one leaf per sample" if seen.model.exclusive else "several labels per sample",
        "labels hidden in training": f"{100 * args.mask:g} %" if args.mask else "none",
        "training": f"{plural(chosen['epochs'], 'epoch')} ({chosen['rule']})" if "epochs" in chosen else "not recorded",
        "seed": args.seed,
        "measured on": seen.noun(),
        "run": seen.run,
    }
    cautions = ["It was trained on some of these samples: the figures show how well it remembers."] * (
        seen.split in ("train", "all")
    )
    return {"name": seen.run.name, "beside": [], "summary": summary(seen), "cautions": cautions, "facts": facts}


def summary(seen: GraphSeen) -> str:
    """The run in words."""
    found, calibration = seen.metrics, seen.model.calibration
    right = f"the right leaf is named in {percent(found['leaf_accuracy'])} %, " if seen.model.exclusive else ""
    sentence = (
        f"Its probabilities were calibrated on {plural(calibration.samples, 'sample')}."
        if calibration
        else "Its probabilities are not calibrated: 90 % is a score, not nine times out of ten."
    )
    f1 = f"hierarchical F1 is {percent(found['f1_micro'])} % and AU(PRC) over all classes {number(found['auprc'], 3)}"
    return f"On {seen.noun()}, {right}{f1}. {sentence}"


# ---- sections --------------------------------------------------------------------------------------------------------


def metrics_section(seen: GraphSeen) -> Content:
    """The table of metrics by level, and over all classes."""
    exclusive, rows = seen.model.exclusive, list[list[str]]()
    for level in seen.metrics["graph_levels"]:
        cells = [percent(level["accuracy" if exclusive else "exact"]), number(level["average_precision"], 3)]
        cells += [percent(level["f1_micro"]), percent(level["f1_macro"])]
        cells += [] if exclusive else [percent(level["threshold"])]
        rows.append([level["name"], *cells, f"{level['classes']:,}"])
    right, more = ("accuracy", []) if exclusive else ("set right", ["threshold"])
    head = ["level", right, "average precision", "F1 micro", "F1 macro", *more, "classes"]
    whole = [seen.run.name, *([percent(seen.metrics["leaf_accuracy"])] if exclusive else [])]
    whole += [number(seen.metrics["auprc"], 3), percent(seen.metrics["f1_micro"]), percent(seen.metrics["f1_macro"])]
    overall = Table(["run", *(["leaf right"] if exclusive else []), "AU(PRC)", "F1 micro", "F1 macro"], [whole])
    meanings = [
        "Levels count from the top, by the longest way down to a class.",
        f"{right.capitalize()}: the share of samples for which exactly those classes of the level that are there were named.",
        "F1: answers and labels count with all their ancestors; micro over everything, macro over samples.",
        "AU(PRC): the area under one precision-recall curve over all samples and classes.",
    ]
    return Content(
        {"samples": seen.noun(), "levels": Table(head, rows), "path": overall, "over": "Over all classes", "meanings": meanings}
    )


def learning_section(seen: GraphSeen) -> Content | str:
    """The loss of each epoch."""
    history = read_history(seen.run, ())
    if history is None:
        return "There is no history of this run."
    return Content(figures=[draw("learning", "Loss of each epoch", lambda: learning_figure(history))])


def reliability_section(seen: GraphSeen) -> Content | str:
    """Whether probabilities of answered classes come true, level by level."""
    panels, known = [], seen.said & (seen.labels >= 0)
    for level in range(int(seen.graph.levels.max()) + 1):
        at = known & (seen.graph.levels == level)
        if at.any():
            right = seen.labels[at] == 1
            after = reliability(seen.scores[at], right) if seen.model.calibration else None
            panels.append(LevelReliability(seen.level(level), reliability(seen.raw[at], right), after))
    if not panels:
        return "No answer can be checked: nothing is known about these samples."
    missing = () if seen.model.calibration else (UNCALIBRATED,)
    return Content(figures=[draw("reliability", "Reliability by level", lambda: reliability_figure(panels))], missing=missing)


def operating_section(seen: GraphSeen) -> Content:
    """What answers with a threshold are worth."""
    asked, refused, calibration = [sure(c, None, None) for c in CONFIDENCES], list[float](), seen.model.calibration
    for risk in RISKS if calibration else ():
        try:
            asked.append(sure(None, risk, calibration))
        except ConfigError:  # too few samples for this risk
            refused.append(risk)
    missing = unpromised(calibration.risk if calibration else None, refused)
    head = ["asked for", "p ≥", "answered", "down to a leaf", "wrong", "unchecked", "classes"]
    return Content({"points": Table(head, [_point(seen, one) for one in asked])}, missing=missing)


def _point(seen: GraphSeen, asked: Sure) -> Row:
    found = measure_sure(seen.labels, seen.model.chosen(seen.scores, asked), seen.graph, seen.samples.judged)
    shares = [percent(found[name]) for name in ("answered", "leaf", "wrong", "unchecked")]
    return [str(asked.promise), number(asked.threshold, 3), *shares, number(found["classes"], 1)]


def classes_section(seen: GraphSeen) -> Content | str:
    """The classes that are recognised worst, and best."""
    rows = [row for node in np.flatnonzero(seen.samples.judged).tolist() if (row := _class_row(seen, node))]
    if not rows:
        return "No sample has a known class."
    rows.sort(key=lambda row: (row[0], row[1]))
    head = ["class", "under", "level", "recall, %", "precision, %", "average precision", "samples"]
    parts = [rows[:HARDEST], rows[len(rows[:HARDEST]) :][-EASIEST:][::-1]]
    tables = [Table(head, [row[2] for row in part], words=3) for part in parts if part]
    return Content({"count": f"{len(rows):,}", "hardest": min(HARDEST, len(rows)), "tables": tables})


def _class_row(seen: GraphSeen, node: int) -> tuple[float, str, Row] | None:
    """Recall, name and cells of a class; None if no sample is known to have it."""
    known = seen.labels[:, node] >= 0
    there, said = seen.labels[known, node] == 1, seen.said[known, node]
    if not there.any():
        return None
    recall = float(said[there].mean())
    precision = float(there[said].mean()) if said.any() else None
    area = average_precision(seen.labels[:, [node]], seen.scores[:, [node]])
    above = ", ".join(seen.name(p) for p in seen.graph.parents[node]) or "–"
    first: Row = [seen.name(node), above, seen.level(int(seen.graph.levels[node]))]
    cells: Row = [Cell(percent(recall, 0), share=recall), percent(precision, 0), number(area), f"{int(there.sum()):,}"]
    return recall, seen.name(node), [*first, *cells]


def confusion_section(seen: GraphSeen) -> Content | str:
    """The leaves that are most often taken for another."""
    if not seen.model.exclusive:
        return ""
    true, said, _ = _leaves(seen)
    pairs, counts = np.unique(np.stack([true, said])[:, true != said], axis=1, return_counts=True)
    if not len(counts):
        return "No leaf is taken for another, or no label tells."
    total = np.bincount(true, minlength=len(seen.graph))
    rows: list[Row] = []
    for i in np.argsort(-counts, kind="stable")[:PAIRS]:
        a, b = (int(node) for node in pairs[:, i])
        rows.append([seen.name(a), seen.name(b), _shared(seen, a, b), f"{counts[i]} of {total[a]}"])
    return Content({"table": Table(["true", "taken for", "both are", "samples"], rows, words=3)})


def _leaves(seen: GraphSeen) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For samples with a known leaf: that leaf, the one answered, and their positions."""
    leaves, at = seen.graph.leaves, np.flatnonzero((seen.labels[:, seen.graph.leaves] == 1).any(1))
    true = leaves[(seen.labels[at][:, leaves] == 1).argmax(1)]
    return true, leaves[seen.raw[at][:, leaves].argmax(1)], at


def _shared(seen: GraphSeen, a: int, b: int) -> str | Cell:
    """The deepest classes that two leaves share."""
    both = np.zeros((1, len(seen.graph)), dtype=np.int8)
    both[0, np.intersect1d(seen.graph.ancestors(a), seen.graph.ancestors(b))] = 1
    deepest = np.flatnonzero(seen.graph.ends(both)[0] & seen.samples.judged)
    return ", ".join(seen.name(node) for node in deepest.tolist()) or Cell("nothing in common", "wrong")


def mistakes_section(seen: GraphSeen, images: int) -> Content | str:
    """The surest wrong leaves that share least with the truth, with pictures if there are any."""
    if not seen.model.exclusive:
        return ""
    true, said, at = _leaves(seen)
    apart = (seen.graph.leaves_below[np.searchsorted(seen.graph.leaves, true)] & likeliest(seen.raw[at], seen.graph)).sum(1)
    sureness = seen.scores[at, said]
    wrong = [i for i in np.lexsort((-sureness, apart)).tolist() if true[i] != said[i]][:images]
    if not wrong:
        return "No wrong leaf, or no label to tell."
    data: dict[str, object] = {"finest": "the leaves", "calibrated": seen.model.calibration is not None, "table": None}
    if seen.samples.images is not None:
        return Content(data | {"cards": [_card(seen, *(int(v[i]) for v in (at, said, true))) for i in wrong]})
    head = ["sample", "said", "true", "both are", "probability, %", "of the truth, %"]
    rows: list[Row] = [
        [
            seen.samples.keys[seen.rows[at[i]]],
            *(seen.name(int(leaf[i])) for leaf in (said, true)),
            _shared(seen, int(true[i]), int(said[i])),
            *(percent(float(seen.scores[at[i], leaf[i]])) for leaf in (said, true)),
        ]
        for i in wrong
    ]
    return Content(
        data | {"table": Table(head, rows, words=4)}, missing=("Pictures of the worst mistakes: the run is on features.",)
    )


def _card(seen: GraphSeen, at: int, said: int, true: int) -> dict[str, object]:
    """One mistake with its picture."""
    assert seen.samples.images is not None
    image = open_image(seen.samples.images[seen.rows[at]])
    image.thumbnail(THUMBNAIL)
    shared = _shared(seen, true, said)
    return {
        "picture": Picture(jpeg(image), *image.size, f"{seen.name(true)}, taken for {seen.name(said)}"),
        "said": seen.name(said),
        "sure": percent(float(seen.scores[at, said]), 0),
        "true": seen.name(true),
        "truth": percent(float(seen.scores[at, true]), 0),
        "apart": shared.text if isinstance(shared, Cell) else f"both are {shared}",
    }


def reading_section(seen: GraphSeen) -> Content:
    """How to read the page."""
    return Content({"samples": seen.noun(), "where": WHERE[seen.split], "exclusive": seen.model.exclusive})


def sections_of(seen: GraphSeen, images: int) -> Sequence[tuple[str, str, str, Content | str]]:
    """Key, title, short name and content of each section."""
    return (
        ("metrics", "How good it is, level by level", "Metrics", metrics_section(seen)),
        ("graph-learning", "How it learned", "Learning", learning_section(seen)),
        ("reliability", "Do its probabilities come true?", "Reliability", reliability_section(seen)),
        ("graph-operating", "How deep can it answer, and how surely?", "Operating points", operating_section(seen)),
        ("graph-confusion", "What is taken for what", "Confusion", confusion_section(seen)),
        ("graph-classes", "Hard and easy classes", "Classes", classes_section(seen)),
        ("mistakes", "The worst mistakes", "Mistakes", mistakes_section(seen, images)),
        ("graph-reading", "How to read this page", "Reading", reading_section(seen)),
    )
