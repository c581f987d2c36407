"""Sections about probabilities: whether they are right, and how deep to answer."""

from __future__ import annotations

from torchlht.errors import ConfigError
from torchlht.measure.operating import operating_curve, operating_point
from torchlht.show.figures.probabilities import (
    LevelReliability,
    Point,
    operating_figure,
    reliability,
    reliability_figure,
    share_figure,
)
from torchlht.show.sections.parts import Cell, Content, Subject, Table, draw, listed, percent
from torchlht.show.seen import Seen

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
    missing = "Calibrated probabilities: this run has no calibration; make one with lht calibrate RUN."
    return Content(figures=[figure], missing=[] if ours.calibrated else [missing])


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
    return Content(data, figures, _unpromised(subject.ours, found[subject.ours.name][1]))


def points_of(seen: Seen) -> tuple[list[Point], list[float]]:
    """The usual operating points of a run, and the risks that cannot be promised."""
    decisions, tree, calibration = seen.decisions, seen.tree, seen.model.calibration
    found = [Point(f"confidence {c:g}", f"{c:g}", False, 1 - c, operating_point(decisions, tree, c)) for c in CONFIDENCES]
    refused: list[float] = []
    for risk in RISKS if calibration is not None else ():
        assert calibration is not None
        try:
            threshold = calibration.threshold(risk)
        except ConfigError:  # too few samples for this risk
            refused.append(risk)
        else:
            at = operating_point(decisions, tree, threshold)
            found.append(Point(f"risk {100 * risk:g} %", f"{100 * risk:g} %", True, risk, at))
    return found, refused


def _unpromised(ours: Seen, refused: list[float]) -> list[str]:
    """A sentence about risks that cannot be promised, if there are any."""
    if ours.model.calibration is None:
        return ["No share of wrong answers is promised: the run has no calibration."]
    if not refused:
        return []
    curve = ours.model.calibration.risks["own"]
    lowest = curve.lowest_risk()
    least = "nothing can" if lowest is None else f"{100 * lowest:.2g} % is the least that can"
    shares = listed([f"{100 * risk:g}" for risk in refused])
    return [f"At most {shares} % wrong answers cannot be promised from {curve.samples:,} validation samples; {least} be."]


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
