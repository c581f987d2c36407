"""The table of metrics: every level of every run, and the figures along the path."""

from __future__ import annotations

from torchlht.show.figures.probabilities import reliability
from torchlht.show.markup import Html, Place, Section, details, joined, number, paragraph, percent, table, tag
from torchlht.show.sections.subject import Subject, samples_text
from torchlht.show.seen import Seen

MEANINGS = (
    "Accuracy: the share of samples that is answered rightly. Mean class recall: the same class by class, then averaged, so "
    "that rare classes count as much as common ones.",
    "Macro F1: precision and recall of each class in one number, averaged over classes. AUC: how well scores rank the samples "
    "of a class above all others; 50 is chance.",
    "Calibration error: how far probabilities are from what comes true, averaged over answers; left of the arrow as trained, "
    "right of it calibrated.",
    "Levels disagree: the answers do not lie on one path of the tree. Mistake severity: by how many levels wrong finest "
    "answers are off, 1 being a sibling; it falls when easy mistakes are added, so read it beside the accuracy.",
    "Hierarchical F1: how far the answered classes with all their ancestors are the true ones.",
)


def level_errors(seen: Seen, level: int) -> tuple[float | None, float | None]:
    """The calibration error of a level as trained, and calibrated where it is; None where nothing is known."""
    known, right = seen.known[:, level], seen.right[:, level]
    if not known.any():
        return None, None
    before, after = (reliability(one[known, level], right[known]).error for one in (seen.raw, seen.confidence))
    return before, after if seen.calibrated else None


def metrics_section(subject: Subject) -> Section:
    """Levels coarse → fine, and within each the runs."""
    several, runs = len(subject.runs) > 1, len(subject.runs)
    rows: list[list[object]] = []
    for i, k in enumerate(subject.tree.top_down):
        for n, seen in enumerate(subject.runs):
            level = [] if n else [tag("th", subject.tree.levels[k], scope="rowgroup", rowspan=runs)]
            name = [tag("td", seen.name)] if several else []
            rows.append([*level, *name, *_cells(seen, i, k)])
    head = ["level", *(["run"] if several else []), "accuracy", "mean class recall", "macro F1", "AUC"]
    head += ["calibration error (ECE)", "classes", "samples"]
    intro = f"In percent, on {samples_text(subject.ours)}, levels from coarse to fine. "
    body = [
        paragraph(f"{intro} Samples whose label is unknown at a level do not count there."),
        table(head, rows, words=2 if several else 1, ours=range(0, len(rows), runs) if several else ()),
        tag("h3", "Along the path from coarse to fine"),
        _path_table(subject),
        details("What these mean", tag("ul", *(tag("li", meaning) for meaning in MEANINGS))),
    ]
    return Section(Place("metrics", "How good it is, level by level", "Metrics"), joined(body))


def _cells(seen: Seen, i: int, k: int) -> list[Html]:
    """A level of a run: the i-th on screen, k in the code."""
    level, (before, after) = seen.metrics["levels"][i], level_errors(seen, k)
    shares = [percent(level[name]) for name in ("accuracy", "mean_class_recall", "macro_f1", "macro_auc")]
    error = percent(before) if after is None else f"{percent(before)} → {percent(after)}"
    return [tag("td", text, class_="number") for text in (*shares, error, f"{level['classes']:,}", f"{level['samples']:,}")]


def _path_table(subject: Subject) -> Html:
    """The figures that belong to no single level."""
    head = ["run", "mean accuracy", "whole path right", "levels disagree", "mistake severity", "hierarchical F1"]
    rows = [
        [
            seen.name,
            *(percent(seen.metrics[name]) for name in ("mean_accuracy", "full_path_accuracy", "inconsistency")),
            number(seen.metrics["mistake_severity"]),
            percent(seen.metrics["hierarchical_f1"]),
        ]
        for seen in subject.runs
    ]
    return table(head, rows, ours=[0] if len(subject.runs) > 1 else ())
