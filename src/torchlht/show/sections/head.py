"""The head of the page: what run this is, and in plain words how good."""

from __future__ import annotations

from datetime import datetime

from torchlht.answer.runs import Run
from torchlht.console import plural
from torchlht.show.markup import Html, paragraph, percent, tag
from torchlht.show.sections.metrics import level_errors
from torchlht.show.sections.subject import Subject, hidden_labels, listed, same_samples, samples_text, selection
from torchlht.show.seen import Seen


def header(subject: Subject) -> Html:
    """Name, summary, cautions, and how the run was made."""
    ours = subject.ours
    beside = f", beside {listed([one.name for one in subject.runs[1:]])}" if len(subject.runs) > 1 else ""
    facts = [tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(ours).items()]
    return tag(
        "header",
        paragraph("torchlht report", kind="kicker"),
        tag("h1", f"{ours.name}{beside}"),
        paragraph(summary(subject), kind="lead"),
        *(paragraph(sentence) for sentence in cautions(subject)),
        tag("dl", *facts, class_="facts"),
    )


def summary(subject: Subject) -> str:
    """Accuracy per level, agreement, and how far to trust probabilities: in words."""
    ours = subject.ours
    levels = [level for level in ours.metrics["levels"] if level["accuracy"] is not None]
    if not levels:
        return f"None of the {samples_text(ours)} has a label: nothing can be measured."
    parts = listed([f"the right {level['name']} in {percent(level['accuracy'])} %" for level in levels])
    text = f"On {samples_text(ours)}, {ours.name} names {parts} of the cases."
    if len(ours.tree) > 1:
        apart = percent(ours.metrics["inconsistency"])
        text += f" For {apart} % of them its answers at different levels contradict each other."
    return f"{text} {_calibration(ours)}"


def _calibration(ours: Seen) -> str:
    """Whether probabilities can be taken at their word."""
    calibration, finest = ours.model.calibration, ours.tree.levels[0]
    if calibration is None:
        return "Its probabilities are not calibrated: 90 % is a score, not nine times out of ten."
    before, after = level_errors(ours, 0)
    changed = "" if before is None else f"; at {finest} the calibration error went from {percent(before)} to {percent(after)} %"
    source = f" on the {calibration.source}" if calibration.source else ""
    return f"Its probabilities were calibrated{source}{changed}."


def cautions(subject: Subject) -> list[str]:
    """What must be known before any figure is believed."""
    ours, found = subject.ours, []
    if ours.split in ("train", "all"):
        found.append("It was trained on these samples or on some: the figures say how well it remembers, not how good it is.")
    if ours.split == "val" and ours.args.select == "best":
        found.append("The epoch was chosen on these samples, so the figures flatter the run a little.")
    if ours.split in ("val", "all") and ours.calibrated:
        found.append("Its calibration was fitted to validation samples, and these are among the samples here.")
    found += [_against(one, ours) for one in subject.runs[1:]]
    if len(subject.runs) > 1:
        found.append(
            "This is one run each: whether a difference is more than the noise of seeds is what lht compare finds out."
        )
    return found


def _against(other: Seen, ours: Seen) -> str:
    """How a run beside ours differs, level by level."""
    if not same_samples(other, ours):
        measured = f"{other.name} was measured on other samples than {ours.name} ({samples_text(other)})"
        return f"{measured}: figures beside each other are not to be compared."
    pairs = zip(ours.metrics["levels"], other.metrics["levels"], strict=True)
    gains = [f"{a['name']} {100 * (a['accuracy'] - b['accuracy']):+.1f}" for a, b in pairs if a["accuracy"] is not None]
    return f"Against {other.name} ({other.model.method.name}), {ours.name} is at {', '.join(gains)} points."


# ---- how it was made -----------------------------------------------------------------------------------------------


def _facts(ours: Seen) -> dict[str, object]:
    """What was trained, on what, and how."""
    args = ours.args
    found: dict[str, object] = {
        "method": _method(ours),
        "backbone": _backbone(ours),
        "data": tag("code", args.data),
        "tree": ours.tree.describe(),
        "labels hidden in training": hidden_labels(ours),
        "training": _training(ours),
        "kept": selection(ours),
        "seed": args.seed,
        "measured on": samples_text(ours),
        "finished": f"{datetime.fromtimestamp(Run(ours.run).metrics.stat().st_mtime):%Y-%m-%d %H:%M}",
        "run": tag("code", ours.run),
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
    """What turned pictures into features."""
    if ours.model.preprocess is None:
        return "none: the data are features"
    return f"{ours.model.backbone.name} ({'frozen' if ours.args.freeze else 'trained along'})"


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
