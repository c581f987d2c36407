"""Sections about answers: confusions, hard classes, the worst mistakes."""

from __future__ import annotations

import numpy as np

from torchlht.data.pictures import open_image
from torchlht.show.figures.attributes import what_is_shared
from torchlht.show.figures.confusion import ClassRow, class_rows, confusion_figure, worst_mistakes
from torchlht.show.look import Ints
from torchlht.show.sections.parts import Cell, Content, Drawn, Picture, Subject, Table, draw, drawable, jpeg, name_of, percent
from torchlht.show.seen import Seen

HARDEST, EASIEST = 15, 5
THUMBNAIL = (220, 160)


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
    rows = class_rows(ours.labels[:, 0], ours.chosen[:, 0], ours.tree)
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
        one.name: {row.label: row.recall for row in class_rows(one.labels[:, 0], one.chosen[:, 0], one.tree)}
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
