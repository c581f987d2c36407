"""Sections about answers: confusions, hard classes, the worst mistakes; whether probabilities come true, how deep to answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchlht.answer.calibration import RiskCurve
from torchlht.data.pictures import open_image
from torchlht.errors import ConfigError
from torchlht.measure.operating import operating_curve, operating_point
from torchlht.show.figures.attributes import what_is_shared
from torchlht.show.figures.confusion import ClassRow, class_rows, confusion_figure, worst_mistakes
from torchlht.show.figures.probabilities import (
    LevelReliability,
    Point,
    operating_figure,
    reliability,
    reliability_figure,
    share_figure,
)
from torchlht.show.look import Ints
from torchlht.show.sections.parts import (
    Cell,
    Content,
    Drawn,
    Picture,
    Subject,
    Table,
    draw,
    drawable,
    jpeg,
    listed,
    name_of,
    percent,
)
from torchlht.show.seen import Seen

HARDEST, EASIEST = 15, 5
THUMBNAIL = (220, 160)
UNCALIBRATED = "Calibrated probabilities: this run has no calibration; make one with lht calibrate RUN."


# ---- confusions ----------------------------------------------------------------------------------------------------


def confusion_section(subject: Subject) -> Content | str:
    """Matrices at the second finest and the finest level, next to those of the first run to compare with, if any."""
    levels, missing = drawable(subject.tree, [1, 0] if len(subject.tree) > 1 else [0])
    figures = []
    for k in levels:
        matrices = {one.name: confusion_counts(one, k) for one in subject.runs[:2] if one.known[:, k].any()}
        if subject.ours.name in matrices:
            figures.append(_confusion(subject, matrices, k))
        else:
            missing.append(f"No sample has a label of {subject.tree.levels[k]}.")
    return Content(figures=figures, missing=missing) if figures else " ".join(missing)


def _confusion(subject: Subject, matrices: dict[str, Ints], k: int) -> Drawn:
    name = subject.tree.levels[k]
    alt = f"Confusion matrices at {name} for {' and '.join(matrices)}, classes in the order of the tree"
    return draw(f"confusion-{k}", alt, lambda: confusion_figure(matrices, subject.tree, k))


def confusion_counts(seen: Seen, level: int) -> Ints:
    """(C, C) counts at a level: row = the true class, column = the answer."""
    known, size = seen.known[:, level], seen.tree.sizes[level]
    places = seen.labels[known, level] * size + seen.chosen[known, level]
    return np.bincount(places, minlength=size * size).reshape(size, size)


# ---- classes -------------------------------------------------------------------------------------------------------


def classes_section(subject: Subject) -> Content | str:
    """The classes that are recognised worst, and best."""
    ours, finest = subject.ours, subject.tree.levels[0]
    rows = class_rows(ours.real[:, 0], ours.chosen[:, 0], ours.tree)
    if not rows:
        return f"No sample has a label of {finest}."
    hardest = rows[:HARDEST]
    easiest = sorted(rows[len(hardest) :], key=lambda row: (-row.recall, -row.samples, row.label))[:EASIEST]
    whole = (
        f"The {len(hardest)} hardest of {len(rows):,} classes of {finest}"
        if len(rows) > HARDEST
        else f"All {len(rows)} classes of {finest}, the hardest first"
    )
    tables = [_class_table(subject, some) for some in (hardest, easiest) if some]
    return Content({"whole": whole, "tables": tables})


def _class_table(subject: Subject, rows: list[ClassRow]) -> Table:
    tree, parent = subject.tree, len(subject.tree) > 1
    beside = {
        one.name: {row.label: row.recall for row in class_rows(one.real[:, 0], one.chosen[:, 0], one.tree)}
        for one in subject.alike()[1:2]
    }
    head = [*tree.levels[: 1 + parent], "taken most often for", "relation", "recall, %"]
    cells: list[list[str | Cell]] = [
        [
            name_of(tree, 0, row.label),
            *([name_of(tree, 1, int(tree.parents[0][row.label]))] if parent else []),
            "nothing else" if row.rival is None else f"{name_of(tree, 0, row.rival)} ({row.taken} of {row.samples})",
            _relation(subject, row),
            Cell(percent(row.recall, 0), share=row.recall),
            *(percent(recalls.get(row.label), 0) for recalls in beside.values()),
            f"{row.samples:,}",
        ]
        for row in rows
    ]
    return Table([*head, *(f"{name}, %" for name in beside), "samples"], cells, words=3 + parent)


def _relation(subject: Subject, row: ClassRow) -> Cell:
    """How closely the rival is related."""
    if row.rival is None or len(subject.tree) == 1:
        return Cell("–", "soft")
    return Cell(what_is_shared(subject.tree, row.height), "wrong" if row.height > 1 else "")


# ---- mistakes ------------------------------------------------------------------------------------------------------


def mistakes_section(subject: Subject) -> Content | str:
    """The surest of the answers that are farthest off: with pictures, or in a table if there are none."""
    ours = subject.ours
    if subject.images < 1:
        return "None was asked for (--images 0)."
    found = worst_mistakes(ours.labels[:, 0], ours.chosen[:, 0], ours.confidence[:, 0], ours.tree, subject.images).tolist()
    if not found:
        return f"No wrong answer at {ours.tree.levels[0]}, or no label to tell."
    data: dict[str, object] = {"finest": ours.tree.levels[0], "calibrated": ours.calibrated, "table": None}
    if ours.samples.images is not None:
        return Content(data | {"cards": [_card(ours, i) for i in found]})
    rows = [
        [ours.samples.keys[i], *_names(ours, i), _apart(ours, i), percent(ours.confidence[i, 0]), percent(ours.truth[i])]
        for i in found
    ]
    data["table"] = Table(["sample", "said", "true", "apart", "probability, %", "of the truth, %"], rows, words=4)
    return Content(data, missing=("Pictures of the worst mistakes: the run is on features.",))


def _names(ours: Seen, i: int) -> tuple[str, str]:
    """What was said of a sample, and what it is."""
    return name_of(ours.tree, 0, int(ours.chosen[i, 0])), name_of(ours.tree, 0, int(ours.labels[i, 0]))


def _card(ours: Seen, i: int) -> dict[str, object]:
    """One mistake with its picture."""
    assert ours.samples.images is not None
    image = open_image(ours.samples.images[i])
    image.thumbnail(THUMBNAIL)
    said, true = _names(ours, i)
    return {
        "picture": Picture(jpeg(image, 82), image.width, image.height, f"{true}, taken for {said}"),
        "said": said,
        "true": true,
        "sure": percent(ours.confidence[i, 0], 0),
        "truth": percent(ours.truth[i], 0),
        "apart": _apart(ours, i),
    }


def _apart(ours: Seen, i: int) -> str:
    """How far the answer is from the truth in the tree, in words, and what the sample is unlike."""
    strange = [] if ours.unlike is None else [k for k in ours.tree.top_down if ours.unlike[i, k]]
    return f"{_between(ours, i)}; unlike any {ours.tree.levels[strange[0]]} it knows" if strange else _between(ours, i)


def _between(ours: Seen, i: int) -> str:
    """How far the answer is from the truth in the tree, in words."""
    tree, said, true = ours.tree, int(ours.chosen[i, 0]), int(ours.labels[i, 0])
    if len(tree) == 1:
        return "another class"
    height = int(tree.lca_height(np.array(said), np.array(true)))
    if height < len(tree):
        return what_is_shared(tree, height)
    top = len(tree) - 1
    here, there = (name_of(tree, top, int(tree.ancestors(top)[label])) for label in (said, true))
    return f"{what_is_shared(tree, height)}: {here}, not {there}"


CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)
RISKS = (0.10, 0.05, 0.01)
SHARES_SHOWN = 3  # runs whose areas are shown side by side


def reliability_section(subject: Subject) -> Content | str:
    """A reliability diagram per level."""
    ours = subject.ours
    levels = [found for k in ours.tree.top_down if (found := _level(ours, k)) is not None]
    if not levels:
        return "No sample has a label, so nothing can be checked."
    alt = f"Reliability diagrams. {'; '.join(level.title() for level in levels)}"
    figure = draw("reliability", alt, lambda: reliability_figure(levels))
    return Content(figures=[figure], missing=[] if ours.calibrated else [UNCALIBRATED])


def _level(ours: Seen, k: int) -> LevelReliability | None:
    """One level's bins, before and after calibration; None if no label is known."""
    known = ours.known[:, k]
    if not known.any():
        return None
    right = ours.right[known, k]
    after = reliability(ours.confidence[known, k], right) if ours.calibrated else None
    return LevelReliability(ours.tree.levels[k], reliability(ours.raw[known, k], right), after)


# ---- how deep to answer --------------------------------------------------------------------------------------------


def operating_section(subject: Subject) -> Content | str:
    """The operating curve, the level of answers by threshold, and the usual points in numbers."""
    runs = [one for one in subject.runs if one.known[:, 0].any()]
    if subject.ours not in runs:
        return f"No sample has a label of {subject.tree.levels[0]}, so answers cannot be judged."
    curves = {one.name: operating_curve(one.decisions, one.tree) for one in runs}
    found = {one.name: points_of(one) for one in runs}
    points = {name: of_run for name, (of_run, _) in found.items()}
    shown = dict(list(curves.items())[:SHARES_SHOWN])
    alt = f"Share of samples answered at each level against the threshold, for {', '.join(shown)}"
    figures = [
        draw("operating", _curve_alt(points[subject.ours.name]), lambda: operating_figure(curves, points)),
        draw("answered", alt, lambda: share_figure(shown, subject.tree.levels)),
    ]
    data = {
        "levels": subject.tree.levels,
        "calibrated": subject.ours.calibrated,
        "tables": {one.name: _points_table(one, points[one.name]) for one in runs},
    }
    calibration, refused = subject.ours.model.calibration, found[subject.ours.name][1]
    curve = calibration.risks[subject.ours.model.rule] if calibration else None
    return Content(data, figures, unpromised(curve, refused))


def points_of(seen: Seen) -> tuple[list[Point], list[float]]:
    """The usual operating points of a run, and the risks that cannot be promised."""
    decisions, tree, calibration = seen.decisions, seen.tree, seen.model.calibration
    found = [Point(f"confidence {c:g}", f"{c:g}", False, 1 - c, operating_point(decisions, tree, c)) for c in CONFIDENCES]
    refused: list[float] = []
    for risk in RISKS if calibration is not None else ():
        assert calibration is not None
        try:
            threshold = calibration.threshold(risk, seen.model.rule)
        except ConfigError:  # too few samples for this risk
            refused.append(risk)
        else:
            at = operating_point(decisions, tree, threshold)
            found.append(Point(f"risk {100 * risk:g} %", f"{100 * risk:g} %", True, risk, at))
    return found, refused


def unpromised(curve: RiskCurve | None, refused: Sequence[float]) -> list[str]:
    """A sentence about risks that a calibration cannot promise, if there are any; all of them without one."""
    if curve is None:
        return ["No share of wrong answers is promised: the run has no calibration."]
    if not refused:
        return []
    lowest = curve.least_said()
    least = "nothing can be promised" if lowest is None else f"{100 * lowest:g} % is the least that can be promised"
    shares = listed([f"{100 * risk:g} %" for risk in refused])
    return [f"The promise of at most {shares} wrong answers: from {curve.samples:,} validation samples {least}."]


def _curve_alt(points: list[Point]) -> str:
    """The curve in words."""
    told = [
        f"{one.name}: {percent(1 - one.found['error'])} % right, {percent(one.found['information'])} % of the information"
        for one in points
        if one.found["error"] is not None
    ]
    return "Share of right answers against the information that right answers give. " + "; ".join(told)


def _points_table(seen: Seen, points: list[Point]) -> Table:
    """A row per operating point, in percent. Only calibrated probabilities come with promises."""
    promised = seen.calibrated
    at = [f"at {seen.tree.levels[k]}" for k in seen.tree.top_down]
    after = ["nothing", "wrong answers", *(["promised at most", ""] if promised else []), "depth", "information"]
    return Table(["asked for", "threshold", *at, *after], [_row(point, promised) for point in points])


def _row(point: Point, promised: bool) -> list[str | Cell]:
    """One operating point."""
    found = point.found
    shares = [percent(level["answered"]) for level in found["levels"]]
    wrong: list[str | Cell] = [percent(1 - found["answered"]), percent(found["error"])]
    wrong += [f"{100 * point.promise:g}", _kept(point)] if promised else []
    return [point.name, f"{found['threshold']:.3f}", *shares, *wrong, percent(found["depth"]), percent(found["information"])]


def _kept(point: Point) -> Cell:
    """Whether the error stayed under the promise."""
    error = point.found["error"]
    if error is None:
        return Cell("nothing answered", "soft")
    return Cell("kept", "right") if error <= point.promise else Cell("exceeded", "wrong")
