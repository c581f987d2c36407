"""The end of the page: what was measured on what, and what not to conclude."""

from __future__ import annotations

from torchlht.console import plural
from torchlht.show.markup import Place, Section, tag
from torchlht.show.sections.subject import Subject, hidden_labels, samples_text, selection
from torchlht.show.seen import Seen

WHERE = {
    "test": "the test part of the run's data, which neither training nor the choice of an epoch has seen",
    "val": "the samples the run set aside for validation, with the labels it could see there",
    "train": "the samples the run was trained on, with all their labels",
    "all": "all samples of the run's data, those it was trained on included",
}


def reading_section(subject: Subject) -> Section:
    """Samples, selection, probabilities, noise."""
    ours = subject.ours
    items = [
        f"Measured on {samples_text(ours)}: {WHERE[ours.split]}.{_hidden(ours)}",
        f"Kept was {selection(ours)}. Nothing is ever chosen on test samples.",
        "Answers are the method's own, mostly the most probable class of each level by itself; so levels can disagree.",
        _calibration(ours),
        "Figures that draw classes have them in the order of the tree: those of one parent stand together.",
        _noise(len(ours.samples)),
        "One run says nothing about the noise of seeds and masks: lht compare does.",
    ]
    place = Place("reading", "How to read this page", "Reading")
    return Section(place, tag("ul", *(tag("li", item) for item in items)))


def _hidden(ours: Seen) -> str:
    """That labels were hidden in training, and are not here."""
    if not ours.args.mask or ours.split == "val":
        return ""
    return f" In training, {hidden_labels(ours)} labels were hidden; here all of them count."


def _calibration(ours: Seen) -> str:
    """Where calibrated probabilities come from, or why there are none."""
    calibration, tree = ours.model.calibration, ours.tree
    if calibration is None:
        return (
            "There is no calibration, so probabilities are as trained and no share of wrong answers can be promised: "
            "train with --val 0.1, or run lht calibrate on labelled samples."
        )
    fitted = [f"{tree.levels[k]} {calibration.temperatures[k]:.2f} ({calibration.samples[k]:,} labels)" for k in tree.top_down]
    return (
        f"Probabilities were calibrated on the {calibration.source or 'validation samples'}; temperatures: {', '.join(fitted)}."
    )


def _noise(n: int) -> str:
    """How well shares of so many samples are known: the widest normal interval."""
    whole, few = (100 * 1.96 * 0.5 / max(count, 1) ** 0.5 for count in (n, 12))
    return (
        f"Of {plural(n, 'sample')}, a share near 50 % is known to ± {whole:.1f} points (95 % interval); "
        f"of a class with a dozen samples, to ± {few:.0f}."
    )
