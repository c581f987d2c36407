"""The head of the page, a summary in plain words, the table of metrics, and how to read the page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np

from torchlht.answer.model import Run
from torchlht.answer.novelty import ALARMS
from torchlht.console import plural
from torchlht.learn.header import frozen_text
from torchlht.measure.metrics import specs
from torchlht.measure.verdict import half_widths
from torchlht.show.figures.probabilities import reliability
from torchlht.show.sections.parts import (
    Cell,
    Content,
    Subject,
    Table,
    listed,
    percent,
    same_samples,
    samples_text,
)
from torchlht.show.seen import Seen

ANSWERED = "accuracy as answered"
WHERE = {
    "test": "the test part of the run's data, which neither training nor the choice of an epoch has seen",
    "val": "the samples the run set aside for validation, with the labels it could see there",
    "train": "the samples the run was trained on, with all their labels",
    "all": "all samples of the run's data, those it was trained on included",
}


# ---- the head of the page ------------------------------------------------------------------------------------------


def header(subject: Subject) -> dict[str, object]:
    """Name, summary, cautions, and facts about the run."""
    return {
        "name": subject.ours.name,
        "beside": [one.name for one in subject.runs[1:]],
        "summary": summary(subject),
        "cautions": cautions(subject),
        "facts": _facts(subject.ours),
    }


def summary(subject: Subject) -> str:
    """A summary in words: accuracy per level, agreement, and how far to trust probabilities."""
    ours = subject.ours
    levels = [level for level in ours.metrics["consistent"]["levels"] if level["accuracy"] is not None]
    if not levels:
        return f"None of the {samples_text(ours)} has a label: nothing can be measured."
    whole = all(level["samples"] == len(ours.samples) for level in levels)
    counts = ["" if whole else f" of {level['samples']:,}" for level in levels]
    shares = [f"the right {one['name']} in {percent(one['accuracy'])} %{n}" for one, n in zip(levels, counts, strict=True)]
    text = f"On {samples_text(ours)}, {ours.name} names {listed(shares)} {'of the cases' if whole else 'that have the label'}."
    if len(ours.tree) > 1:
        apart = percent(ours.metrics["inconsistency"])
        text += (
            f" All levels lie on one path of the tree; each by itself, the method's levels contradict each other in {apart} %."
        )
    return f"{text} {_unlike(ours)}{_calibration(ours)}"


def _unlike(ours: Seen) -> str:
    """A sentence on how many samples are unlike what the run was trained on, and a blank; nothing if it cannot tell."""
    if ours.unlike is None:
        return ""
    parts = listed([f"any {ours.tree.levels[k]} in {percent(float(ours.unlike[:, k].mean()))} %" for k in ours.tree.top_down])
    return f"It finds the sample unlike {parts} of the cases; of known samples {100 * ALARMS:g} % are called so by mistake. "


def _calibration(ours: Seen) -> str:
    """A sentence on whether probabilities can be trusted."""
    calibration, finest = ours.model.calibration, ours.tree.levels[0]
    if calibration is None:
        return "Its probabilities are not calibrated: 90 % is a score, not nine times out of ten."
    before, after = level_errors(ours, 0)
    changed = "" if before is None else f"; at {finest} the calibration error went from {percent(before)} to {percent(after)} %"
    source = f" on the {calibration.source}" if calibration.source else ""
    return f"Its probabilities were calibrated{source}{changed}."


def cautions(subject: Subject) -> list[str]:
    """Warnings to read before the figures."""
    ours, found = subject.ours, []
    if ours.split in ("train", "all"):
        found.append("It was trained on some of these samples: the figures show how well it remembers, not how good it is.")
    if ours.split == "val" and ours.args.select == "best":
        found.append("The epoch was chosen on these samples, so the figures are slightly too good.")
    if ours.split in ("val", "all") and ours.calibrated:
        found.append("Its calibration was fitted to validation samples, and these are among the samples here.")
    found += ours.model.method.yielded()
    found += filter(None, (_against(one, ours) for one in subject.runs[1:]))
    if len(subject.runs) > 1:
        found.append("This is one run each: use lht compare to find out whether a difference exceeds the noise of seeds.")
    return found


def _against(other: Seen, ours: Seen) -> str:
    """How another run differs from ours, level by level."""
    if not same_samples(other, ours):
        measured = f"{other.name} was measured on other samples than {ours.name} ({samples_text(other)})"
        return f"{measured}: their figures cannot be compared."
    pairs = zip(ours.metrics["consistent"]["levels"], other.metrics["consistent"]["levels"], strict=True)
    gains = []
    for k, (a, b) in zip(ours.tree.top_down, pairs, strict=True):
        if a["samples"] > 1:
            right = np.stack([one.right[one.known[:, k], k] for one in (ours, other)])
            half = half_widths(right[:, None].astype(np.float64))[0, 1]
            gains.append(f"{a['name']} {100 * (a['accuracy'] - b['accuracy']):+.1f} ± {100 * half:.1f} (n = {a['samples']:,})")
    found = f"Against {other.name} ({other.model.method.name}), {ours.name} is at {', '.join(gains)} points"
    return f"{found}; ± is a 95 % interval that counts which samples there are, not the noise of seeds." if gains else ""


def _facts(ours: Seen) -> dict[str, object]:
    """Facts about the run: what was trained, on what, and how."""
    args = ours.args
    found: dict[str, object] = {
        "method": _method(ours),
        "backbone": _backbone(ours),
        "data": args.data,
        "tree": ours.tree.describe(),
        "labels hidden in training": _hidden(ours) or "none",
        "training": _training(ours),
        "kept": _selection(ours),
        "seed": args.seed,
        "measured on": samples_text(ours),
        "labels known there": " · ".join(f"{level['name']} {level['samples']:,}" for level in ours.metrics["levels"]),
        "finished": f"{datetime.fromtimestamp(Run(ours.run).metrics.stat().st_mtime):%Y-%m-%d %H:%M}",
        "run": ours.run,
    }
    if args.semi != "none":
        found["samples without a finest label"] = f"take part: --semi {args.semi}"
    if args.perturb != "none" or args.prior or args.label_noise:
        tree = f"tree {args.perturb} {args.perturb_share:g}, prior {args.prior or 'none'}"
        found["faults on purpose"] = f"{tree}, label noise {args.label_noise:g}"
    return found


def _method(ours: Seen) -> str:
    """The method with the options that were set."""
    options = ", ".join(f"{name}={value}" for name, value in ours.model.options.items())
    return f"{ours.model.method.name} ({options})" if options else str(ours.model.method.name)


def _backbone(ours: Seen) -> str:
    """The backbone, and whether it was trained."""
    if ours.model.preprocess is None:
        return "none: the data are features"
    return f"{ours.model.backbone.name} ({frozen_text(ours.args.freeze, ours.args.freeze_stages) or 'trained along'})"


def _hidden(ours: Seen) -> str:
    """Which labels training did not see: 90 % of species; empty if it saw all of them."""
    if not ours.args.mask:
        return ""
    return f"{100 * ours.args.mask:g} % of {listed(list(ours.tree.levels[: ours.args.mask_levels][::-1]))}"


def _training(ours: Seen) -> str:
    """Epochs, batches, optimizer and learning rate, as far as they are recorded."""
    args = ours.args
    parts = [
        plural(args.epochs, "epoch") if args.epochs else "",
        f"batches of {args.batch_size}" if args.batch_size else "",
        args.optimizer or "",
        f"learning rate {args.lr:g}" if args.lr else "",
    ]
    return ", ".join(part for part in parts if part) or "not recorded"


def _selection(ours: Seen) -> str:
    """Which epoch was kept, and by which rule."""
    chosen = ours.record.get("selection", {})
    rule = "the best epoch on validation samples" if ours.args.select == "best" else "the last epoch"
    return f"{rule}, {chosen['epoch']} of {chosen['epochs']}" if {"epoch", "epochs"} <= chosen.keys() else rule


# ---- metrics -------------------------------------------------------------------------------------------------------


def metrics_section(subject: Subject) -> Content:
    """The table of metrics: levels coarse → fine, and the runs within each level."""
    several, runs = len(subject.runs) > 1, len(subject.runs)
    rows: list[list[str | Cell]] = []
    for i, k in enumerate(subject.tree.top_down):
        for n, seen in enumerate(subject.runs):
            level = [] if n else [Cell(subject.tree.levels[k], span=runs)]
            name = [seen.name] if several else []
            rows.append([*level, *name, *_cells(seen, i, k)])
    figures = [spec.headed("report") for spec in specs("level", "report")]
    head = ["level", *(["run"] if several else []), *figures, ANSWERED, "classes", "samples"]
    levels = Table(head, rows, words=2 if several else 1, ours=range(0, len(rows), runs) if several else ())
    return Content(
        {"samples": samples_text(subject.ours), "levels": levels, "path": _path_table(subject), "meanings": list(_meanings())}
    )


def _meanings() -> Iterator[str]:
    """Every metric on the page with its meaning."""
    for spec in (*specs("level", "report"), *specs("run", "report")):
        heading, meaning = spec.headed("report"), spec.meaning
        more = " Left of the arrow as trained, right of it calibrated." if spec.name == "ece" else ""
        yield f"{heading[0].upper()}{heading[1:]}: {meaning[0].lower()}{meaning[1:]}{more}"
    yield (
        f"{ANSWERED[0].upper()}{ANSWERED[1:]}: of the answers that people are shown, which lie on one path of the tree; "
        "figures beside it are of the method's own answers."
    )


def _cells(seen: Seen, i: int, k: int) -> Iterator[str]:
    """The cells of one level of a run: the i-th on screen, k in the code."""
    level, (before, after) = seen.metrics["levels"][i], level_errors(seen, k)
    for spec in specs("level", "report"):
        shown = spec.text(before if spec.name == "ece" else spec.of(level))
        yield shown if spec.name != "ece" or after is None else f"{shown} → {spec.text(after)}"
    answered = seen.metrics["consistent"]["levels"][i]["accuracy"]
    yield from (percent(answered), f"{level['classes']:,}", f"{level['samples']:,}")


def level_errors(seen: Seen, level: int) -> tuple[float | None, float | None]:
    """The calibration error of a level before and after calibration; None if unknown."""
    known, right = seen.known[:, level], seen.right[:, level]
    if not known.any():
        return None, None
    before, after = (reliability(one[known, level], right[known]).error for one in (seen.raw, seen.confidence))
    return before, after if seen.calibrated else None


def _path_table(subject: Subject) -> Table:
    """The figures that belong to no single level."""
    shown = specs("run", "report")
    head = ["run", *(spec.headed("report") for spec in shown)]
    both = [pair for one in subject.runs for pair in ((one.name, one.metrics), (f"{one.name}, as answered", _answered(one)))]
    rows = [[name, *(spec.text(spec.of(metrics)) for spec in shown)] for name, metrics in both]
    return Table(head, rows, ours=[0, 1] if len(subject.runs) > 1 else ())


def _answered(seen: Seen) -> dict[str, Any]:
    """The metrics of what people are shown."""
    found: dict[str, Any] = seen.metrics["consistent"]
    return found


# ---- how to read it ------------------------------------------------------------------------------------------------


def reading_section(subject: Subject) -> Content:
    """How to read the page: samples, selection, probabilities, noise."""
    ours, calibration = subject.ours, subject.ours.model.calibration
    n = len(ours.samples)
    return Content(
        {
            "samples": samples_text(ours),
            "where": WHERE[ours.split],
            "hidden": "" if ours.split == "val" else _hidden(ours),
            "kept": _selection(ours),
            "calibration": calibration,
            "levels": ours.tree.levels,
            "top_down": ours.tree.top_down,
            "count": plural(n, "sample"),
            "whole": f"{50 * 1.96 / max(n, 1) ** 0.5:.1f}",  # the widest normal interval
            "few": f"{50 * 1.96 / 12**0.5:.0f}",
        }
    )
