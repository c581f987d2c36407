"""Sections about answers: what is taken for what, hard classes, the worst mistakes."""

from __future__ import annotations

import numpy as np

from torchlht.data.images import open_image
from torchlht.show.figures.attributes import what_is_shared
from torchlht.show.figures.confusion import ClassRow, class_rows, confusion_figure, worst_mistakes
from torchlht.show.look import Ints
from torchlht.show.markup import (
    Drawn,
    Html,
    Place,
    Section,
    absent,
    bar,
    data_uri,
    draw,
    joined,
    jpeg,
    left_out,
    paragraph,
    percent,
    row,
    table,
    tag,
)
from torchlht.show.sections.subject import Subject, drawable, name_of
from torchlht.show.seen import Seen

HARDEST, EASIEST = 15, 5
THUMBNAIL = (220, 160)


# ---- confusions ----------------------------------------------------------------------------------------------------


def confusion_section(subject: Subject) -> Section:
    """Matrices at the second finest and the finest level, the first run beside ours where there is one."""
    place = Place("confusion", "What is taken for what", "Confusion")
    levels, missing = drawable(subject.tree, [1, 0] if len(subject.tree) > 1 else [0])
    figures = []
    for k in levels:
        matrices = {one.name: confusion_counts(one, k) for one in subject.runs[:2] if one.known[:, k].any()}
        if subject.ours.name not in matrices:
            missing.append(f"No sample has a label of {subject.tree.levels[k]}.")
            continue
        figures.append(_confusion(subject, matrices, k))
    if not figures:
        return absent(place, " ".join(missing))
    intro = paragraph(
        "Rows are true classes, columns answers, both in the order of the tree; a row is in shares of its samples. On the "
        "diagonal answers are right. Squares along it are confusions among relatives; what lies outside them is far off."
    )
    body = joined([intro, *map(left_out, missing), row(*(one.shown() for one in figures))])
    return Section(place, body, tuple(figures), tuple(missing))


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


def classes_section(subject: Subject) -> Section:
    """The classes that are recognised least, and most."""
    place = Place("classes", "Hard and easy classes", "Classes")
    ours, finest = subject.ours, subject.tree.levels[0]
    rows = class_rows(ours.labels[:, 0], ours.chosen[:, 0], ours.tree)
    if not rows:
        return absent(place, f"No sample has a label of {finest}.")
    hardest = rows[:HARDEST]
    easiest = sorted(rows[len(hardest) :], key=lambda row: (-row.recall, -row.samples, row.label))[:EASIEST]
    whole = (
        f"The {len(hardest)} hardest of {len(rows):,} classes of {finest}"
        if len(rows) > HARDEST
        else f"All {len(rows)} classes of {finest}, the hardest first"
    )
    parts: list[object] = [
        paragraph(f"{whole}: how many of their samples are recognised, and what they are taken for most often."),
        _class_table(subject, hardest),
    ]
    if easiest:
        parts += [tag("h3", "The easiest"), _class_table(subject, easiest)]
    return Section(place, joined(parts))


def _class_table(subject: Subject, rows: list[ClassRow]) -> Html:
    others = subject.alike()[1:2]
    parent = [subject.tree.levels[1]] if len(subject.tree) > 1 else []
    beside = {
        one.name: {row.label: row.recall for row in class_rows(one.labels[:, 0], one.chosen[:, 0], one.tree)} for one in others
    }
    head = [
        subject.tree.levels[0],
        *parent,
        "taken most often for",
        "relation",
        "recall, %",
        *(f"{name}, %" for name in beside),
        "samples",
    ]
    cells = [
        [
            name_of(subject.tree, 0, row.label),
            *([name_of(subject.tree, 1, int(subject.tree.parents[0][row.label]))] if parent else []),
            _rival(subject, row),
            _relation(subject, row),
            bar(row.recall, percent(row.recall, 0)),
            *(percent(recalls.get(row.label), 0) for recalls in beside.values()),
            f"{row.samples:,}",
        ]
        for row in rows
    ]
    return table(head, cells, words=3 + len(parent))


def _rival(subject: Subject, row: ClassRow) -> str:
    return "nothing else" if row.rival is None else f"{name_of(subject.tree, 0, row.rival)} ({row.taken} of {row.samples})"


def _relation(subject: Subject, row: ClassRow) -> Html:
    """Whether the rival is a relative."""
    if row.rival is None or len(subject.tree) == 1:
        return tag("td", "–", class_="soft")
    return tag("td", what_is_shared(subject.tree, row.height), class_="wrong" if row.height > 1 else None)


# ---- mistakes ------------------------------------------------------------------------------------------------------


def mistakes_section(subject: Subject) -> Section:
    """The surest of the answers that are farthest off."""
    place = Place("mistakes", "The worst mistakes", "Mistakes")
    ours = subject.ours
    if subject.images < 1:
        return absent(place, "None was asked for (--images 0).")
    found = worst_mistakes(ours.labels[:, 0], ours.chosen[:, 0], ours.confidence[:, 0], ours.tree, subject.images).tolist()
    if not found:
        return absent(place, f"No wrong answer at {ours.tree.levels[0]}, or no label to tell.")
    intro = paragraph(
        f"Wrong answers at {ours.tree.levels[0]} that are farthest from the truth in the tree, the most confident first "
        f"({'calibrated' if ours.calibrated else 'uncalibrated'} probabilities)."
    )
    if ours.samples.images is None:
        body, missing = _mistake_table(ours, found), ("Pictures of the worst mistakes: the run is on features.",)
        return Section(place, joined([intro, body]), missing=missing)
    cards = tag("ul", *(_card(ours, i) for i in found), class_="cards")
    return Section(place, joined([intro, cards]))


def _mistake_table(ours: Seen, found: list[int]) -> Html:
    tree = ours.tree
    head = ["sample", "said", "true", "apart", "probability, %", "of the truth, %"]
    rows = [
        [
            ours.samples.keys[i],
            name_of(tree, 0, int(ours.chosen[i, 0])),
            name_of(tree, 0, int(ours.labels[i, 0])),
            _apart(ours, i),
            percent(ours.confidence[i, 0]),
            percent(ours.truth[i]),
        ]
        for i in found
    ]
    return table(head, rows, words=4)


def _card(ours: Seen, i: int) -> Html:
    """One mistake with its picture."""
    tree, said, true = ours.tree, int(ours.chosen[i, 0]), int(ours.labels[i, 0])
    assert ours.samples.images is not None
    picture = open_image(ours.samples.images[i])
    picture.thumbnail(THUMBNAIL)
    names = name_of(tree, 0, said), name_of(tree, 0, true)
    image = tag(
        "img",
        src=data_uri(jpeg(picture, 82), "image/jpeg"),
        alt=f"{names[1]}, taken for {names[0]}",
        width=picture.width,
        height=picture.height,
    )
    words = tag(
        "dl",
        tag("dt", "said"), tag("dd", names[0], f" {percent(ours.confidence[i, 0], 0)}\u00a0%", class_="wrong"),
        tag("dt", "true"), tag("dd", names[1], f" {percent(ours.truth[i], 0)}\u00a0%"),
        tag("dt", "apart"), tag("dd", _apart(ours, i)),
    )  # fmt: skip
    return tag("li", image, tag("div", words))


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
