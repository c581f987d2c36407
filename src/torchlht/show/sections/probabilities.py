"""Sections about probabilities: whether they come true, and how deep to answer."""

from __future__ import annotations

from torchlht.measure.operating import operating_curve
from torchlht.show.figures.probabilities import (
    LevelReliability,
    Point,
    operating_figure,
    points_of,
    reliability,
    reliability_figure,
    share_figure,
)
from torchlht.show.markup import (
    Html,
    Place,
    Section,
    absent,
    details,
    draw,
    joined,
    left_out,
    paragraph,
    percent,
    row,
    table,
    tag,
)
from torchlht.show.sections.subject import Subject, listed
from torchlht.show.seen import Seen

SHARES_SHOWN = 3  # runs whose areas stand side by side


def reliability_section(subject: Subject) -> Section:
    """A diagram per level."""
    place = Place("reliability", "Do its probabilities come true?", "Reliability")
    ours = subject.ours
    levels = [found for k in ours.tree.top_down if (found := _level(ours, k)) is not None]
    if not levels:
        return absent(place, "No sample has a label, so nothing can be checked.")
    alt = f"Reliability diagrams. {'; '.join(level.title() for level in levels)}"
    figure = draw("reliability", alt, lambda: reliability_figure(levels))
    intro = paragraph(
        "Answers are sorted by their probability into 15 bins. On the diagonal, of the answers given with 80 % eight in ten "
        "are right; below it the model is too sure of itself, above it not sure enough. Bins with few answers jump."
    )
    missing = (
        () if ours.calibrated else ("Calibrated probabilities: this run has no calibration; lht calibrate RUN makes one.",)
    )
    more = [] if ours.calibrated else [left_out("This run has no calibration, so only the probabilities as trained are shown.")]
    return Section(place, joined([intro, *more, figure.shown()]), (figure,), missing)


def _level(ours: Seen, k: int) -> LevelReliability | None:
    """One level's bins, before and after calibration; None where no label is known."""
    known = ours.known[:, k]
    if not known.any():
        return None
    right = ours.right[known, k]
    after = reliability(ours.confidence[known, k], right) if ours.calibrated else None
    return LevelReliability(ours.tree.levels[k], reliability(ours.raw[known, k], right), after)


# ---- how deep to answer --------------------------------------------------------------------------------------------


def operating_section(subject: Subject) -> Section:
    """The curve, where answers stop, and the usual points in numbers."""
    place = Place("operating", "How deep can it answer, and how surely?", "Operating points")
    runs = [one for one in subject.runs if one.known[:, 0].any()]
    if subject.ours not in runs:
        return absent(place, f"No sample has a label of {subject.tree.levels[0]}, so answers cannot be judged.")
    curves = {one.name: operating_curve(one.decisions, one.tree) for one in runs}
    found = {one.name: points_of(one) for one in runs}
    points = {name: of_run for name, (of_run, _) in found.items()}
    curve = draw("operating", _curve_alt(points[subject.ours.name]), lambda: operating_figure(curves, points))
    shown = dict(list(curves.items())[:SHARES_SHOWN])
    alt = f"Share of samples answered at each level against the threshold, for {', '.join(shown)}"
    shares = draw("answered", alt, lambda: share_figure(shown, subject.tree.levels))
    tables = [_points_table(subject.ours, points[subject.ours.name])]
    tables += [details(f"The same for {one.name}", _points_table(one, points[one.name])) for one in runs[1:]]
    body = [
        _intro(subject),
        row(curve.shown(_note(subject)), shares.shown()),
        tag("h3", "In numbers"),
        *tables,
        *_promises(subject.ours),
    ]
    missing = _unpromised(subject.ours, found[subject.ours.name][1])
    return Section(place, joined([*body, *map(left_out, missing)]), (curve, shares), tuple(missing))


def _promises(ours: Seen) -> list[Html]:
    """What a promise is worth."""
    if not ours.calibrated:
        return []
    return [
        paragraph(
            "Shares in percent. A promise holds on average over draws of validation samples, for samples that come from where "
            "they came from: on a single set of samples it can be exceeded a little.",
            kind="soft",
        )
    ]


def _unpromised(ours: Seen, refused: list[float]) -> list[str]:
    """A sentence about risks that cannot be promised, if there are such."""
    if ours.model.calibration is None:
        return ["No share of wrong answers is promised: the run has no calibration."]
    if not refused:
        return []
    curve = ours.model.calibration.risks["own"]
    lowest = curve.lowest_risk()
    least = "nothing can" if lowest is None else f"{100 * lowest:.2g} % is the least that can"
    shares = listed([f"{100 * risk:g}" for risk in refused])
    return [f"At most {shares} % wrong answers cannot be promised from {curve.samples:,} validation samples; {least} be."]


def _intro(subject: Subject) -> Html:
    """What a threshold does."""
    tree = subject.tree
    if len(tree) == 1:
        return paragraph("With a threshold on its probability, an answer is given only where it is sure enough.")
    return paragraph(
        f"With a threshold on its probability, an answer is rolled up: an unsure {tree.levels[0]} becomes its "
        f"{tree.levels[1]}, and so on; where not even the {tree.levels[-1]} is sure enough, nothing is answered. "
        "A higher threshold makes answers safer and says less."
    )


def _note(subject: Subject) -> str:
    """How to read the curve."""
    names = "Each line runs from answering everything (right) to answering little (left); higher and further right is better."
    sure = "" if subject.ours.calibrated else " Without a calibration, a threshold of 0.9 does not stand for nine in ten."
    return names + sure


def _curve_alt(points: list[Point]) -> str:
    """The curve in words."""
    told = [
        f"{one.name}: {percent(1 - one.found['error'])} % right, {percent(one.found['information'])} % of the information"
        for one in points
        if one.found["error"] is not None
    ]
    return "Share of right answers against the information in them. " + "; ".join(told)


def _points_table(seen: Seen, points: list[Point]) -> Html:
    """A row per operating point, in percent. Only calibrated probabilities promise anything."""
    promised = seen.calibrated
    at = [f"at {seen.tree.levels[k]}" for k in seen.tree.top_down]
    after = ["nothing", "wrong answers", *(["promised at most", ""] if promised else []), "depth", "information"]
    return table(["asked for", "threshold", *at, *after], [_row(point, promised) for point in points])


def _row(point: Point, promised: bool) -> list[object]:
    """One operating point."""
    found = point.found
    shares = [percent(level["answered"]) for level in found["levels"]]
    wrong = [percent(1 - found["answered"]), percent(found["error"])]
    wrong += [f"{100 * point.promise:g}", _kept(point)] if promised else []
    return [point.name, f"{found['threshold']:.3f}", *shares, *wrong, percent(found["depth"]), percent(found["information"])]


def _kept(point: Point) -> Html:
    """Whether the error stayed under the promise."""
    error = point.found["error"]
    if error is None:
        return tag("td", "nothing answered", class_="soft")
    kept = error <= point.promise
    return tag("td", "kept" if kept else "exceeded", class_="right" if kept else "wrong")
