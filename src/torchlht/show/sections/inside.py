"""Sections about what happens inside: learning, transitions, what is looked at, and what attributes say about the tree."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from torchlht.data.batches import members
from torchlht.errors import LHTError
from torchlht.show.figures.attributes import (
    CUB_FILE,
    attribute_figure,
    cosine_similarity,
    read_class_attributes,
    similarity_test,
)
from torchlht.show.figures.confusion import examples, straying_class
from torchlht.show.figures.curves import learning_figure, read_history
from torchlht.show.figures.gradcam import WAYS, Through, as_batch, class_maps, overlay_figure
from torchlht.show.figures.transitions import mean_transitions, on_tree, superscript, transition_figure, transition_panels
from torchlht.show.look import Floats
from torchlht.show.sections.parts import Content, Drawn, Subject, draw, drawable, name_of
from torchlht.show.seen import Seen

MOST_ENTRIES = 2**31  # of transition matrices that are averaged: some ten seconds

# ---- learning ------------------------------------------------------------------------------------------------------


def learning_section(subject: Subject) -> Content | str:
    """Loss, accuracy and γ over the epochs."""
    ours = subject.ours
    history = read_history(ours.run, [ours.tree.levels[k] for k in ours.tree.top_down])
    if history is None:
        return f"There is no history of epochs; {ours.model.method.name} was fitted at once."
    figure = draw(
        "learning", f"Loss and accuracy per level over {len(history.epochs)} epochs", lambda: learning_figure(history)
    )
    missing = []
    if not history.val:
        missing.append(
            "No samples were set aside for validation (--val), so accuracies are those on training samples and say little."
        )
    if not history.gamma:
        missing.append("There is no γ, the weight of the tree in a learned low-rank transition: this run has none.")
    return Content(figures=[figure], missing=missing)


# ---- transitions ---------------------------------------------------------------------------------------------------


def transitions_section(subject: Subject) -> Content | str:
    """S next to the learned T, for every step of the tree, coarse first."""
    ours, tree = subject.ours, subject.tree
    if len(tree) == 1:
        return "The tree has a single level, so there are no transitions."
    if not ours.transitions:
        return f"Method {ours.model.method.name} has no transitions from fine to coarse."
    steps, missing = drawable(tree, list(range(len(tree) - 2, -1, -1)))
    figures = []
    for level, panels in _panels(ours, [step for step in steps if step < len(tree) - 1]).items():
        symbol = superscript(level + 2)
        if all(on_tree(tree, level, one) > 1 - 1e-9 for one in panels.values()):
            missing.append(
                f"T{symbol} from {tree.levels[level]} to {tree.levels[level + 1]} is the tree itself: nothing is learned there."
            )
        else:
            figures.append(_transition(subject, level, panels))
    return Content(figures=figures, missing=missing) if figures else " ".join(missing)


def _panels(ours: Seen, levels: list[int]) -> dict[int, dict[str, Floats]]:
    """Transitions by level: of one sample, of its class, and of all samples, or as many as time allows."""
    tree, n = ours.tree, len(ours.data)
    if not levels:
        return {}
    most = max(1, MOST_ENTRIES // sum(tree.sizes[level] * tree.sizes[level + 1] for level in levels))
    some = np.linspace(0, n - 1, min(n, most)).astype(np.int64).tolist()
    over = f"all {n:,} samples" if n <= most else f"{most:,} of {n:,} samples, evenly chosen"
    means = mean_transitions(ours.model, ours.data, levels, samples=some)
    found = {}
    for level, mean in zip(levels, means, strict=True):
        chosen = straying_class(ours.labels, ours.chosen, tree, level)
        images, classes = ([], []) if chosen is None else ([chosen[1]], [chosen[0]])
        classes = [label for label in classes if len(members(ours.data, level, label)) <= most]
        found[level] = transition_panels(ours.model, ours.data, level, images=images, classes=classes, whole=False)
        found[level][f"T{superscript(level + 2)}, mean over {over}"] = mean
    return found


def _transition(subject: Subject, level: int, panels: dict[str, Floats]) -> Drawn:
    tree = subject.tree
    alt = f"Transition matrices from {tree.levels[level]} to {tree.levels[level + 1]}: the tree, and {'; '.join(panels)}"
    return draw(f"transition-{level}", alt, lambda: transition_figure(tree, panels, level, scale="log"))


# ---- Grad-CAM ------------------------------------------------------------------------------------------------------


def gradcam_section(subject: Subject) -> Content | str:
    """Where each level looks, for right and wrong answers, and along which path."""
    ours = subject.ours
    if ours.model.preprocess is None or ours.samples.images is None:
        return "The run is on features, so there are no pictures."
    if subject.images < 1:
        return "No picture was asked for (--images 0)."
    at = examples(ours.labels, ours.chosen, ours.confidence[:, 0], subject.images)
    if not at:
        return f"No sample has a label of {ours.tree.levels[0]}."
    try:
        figures = _gradcam_figures(ours, at)
    except LHTError as error:
        return f"{error}."
    missing = []
    if len(figures) == 1 and len(ours.tree) > 1:
        missing = [f"The gradient has only one path: method {ours.model.method.name} has no learned transition."]
    return Content({"coarsest": ours.tree.levels[-1], "ways": WAYS}, figures, missing)


def _gradcam_figures(ours: Seen, at: list[int]) -> list[Drawn]:
    """One figure per path of the gradient."""
    assert ours.samples.images is not None
    x = as_batch(ours.model, [ours.samples.images[i] for i in at])
    labels, sure = torch.from_numpy(ours.labels[at]), torch.from_numpy(ours.confidence[at])
    chosen = torch.from_numpy(ours.chosen[at])
    ways: tuple[Through, ...] = get_args(Through) if ours.transitions and len(ours.tree) > 1 else ("both",)
    figures: list[Drawn] = []
    for way in ways:
        maps = dataclasses.replace(class_maps(ours.model, x, classes=chosen, through=way), probabilities=sure)
        if way == "T" and not any(bool(one.abs().max() > 0) for one in maps.maps[1:]):
            break
        names = ", ".join(name_of(ours.tree, 0, int(label)) for label in ours.labels[at, 0])
        alt = f"Grad-CAM {WAYS[way]} at every level on {len(at)} pictures: {names}"
        make = partial(overlay_figure, ours.model, x, maps, labels=labels, through=way, title="Grad-CAM")
        figures.append(draw(f"grad-cam-{way}", alt, make, photographs=True))
    return figures


# ---- attributes ----------------------------------------------------------------------------------------------------


def attributes_section(subject: Subject) -> Content | str:
    """Whether classes that look alike are close in the tree."""
    tree = subject.tree
    where = subject.attributes or found_attributes(subject.ours)
    if where is None:
        return ""  # most data has none
    if drawable(tree, [0])[0] != [0]:
        return drawable(tree, [0])[1][0]
    if tree.sizes[0] < 2 or len(tree) == 1:
        return "The tree has a single level, so classes cannot be close or far."
    try:
        similarity = cosine_similarity(read_class_attributes(where, tree), tree)
    except LHTError as error:
        if subject.attributes is not None:
            raise
        return f"{error}."
    groups = similarity_test(similarity, tree)
    figure = draw(
        "attributes",
        f"Cosines between attributes of {tree.sizes[0]} classes, in the order of the tree",
        lambda: attribute_figure(similarity, tree, groups),
    )
    return Content({"where": where}, [figure])


def found_attributes(ours: Seen) -> Path | None:
    """The folder above the pictures that holds attributes, as CUB's archive does; None if there is none."""
    file = ours.samples.images[0].file if ours.samples.images else None
    return next((folder for folder in (file.absolute().parents[:5] if file else ()) if (folder / CUB_FILE).is_file()), None)
