"""Grad-CAM over pictures: a row per picture, its levels side by side."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from torchlht.answer.model import Model
from torchlht.show.figures.gradcam import ClassMaps, Pictures, Through, as_batch, class_maps, presentable, spec_of, visible
from torchlht.show.look import Floats, caption, inches, panels, plain
from torchlht.show.theme import look, theme

WAYS = {"both": "through p¹ and T", "T": "through T alone", "p1": "through p¹ alone"}


def gradcam_figure(
    model: Model,
    images: Pictures,
    *,
    labels: Tensor | None = None,
    through: Through = "both",
    title: str = "Grad-CAM of the answer at each level",
) -> Figure:
    """A row per picture: the picture, then the levels coarse → fine, each with its map over it and what was answered.

    Args:
        model: a model with a backbone for pictures.
        images: see `class_maps`.
        labels: (B, K) true classes, fine first, -1 where unknown: answers are coloured, and the truth is under the picture.
        through: see `class_maps`.
        title: a line above the figure; the way of the gradient is added.
    """
    x = as_batch(model, images)
    return overlay_figure(model, x, class_maps(model, x, through=through), labels=labels, through=through, title=title)


def overlay_figure(
    model: Model, x: Tensor, found: ClassMaps, *, labels: Tensor | None = None, through: Through = "both", title: str = ""
) -> Figure:
    """`gradcam_figure` of maps that are there already.

    Args:
        model: what they are of.
        x: (B, 3, size, size) the pictures, normalised.
        found: the maps of these.
        labels: see `gradcam_figure`.
        through: the way that the gradient took.
        title: a line above the figure; the way of the gradient is added.
    """
    tree = model.hierarchy
    maps = [presentable(one, (x.shape[2], x.shape[3])).cpu().numpy() for one in found.maps]
    pictures = visible(x, spec_of(model)).numpy()
    with look():
        figure, grid = panels(len(x), len(tree) + 1, (1.5, 1.5), gap=(0.28, 0.42), margin=(0.2, 0.5, 0.9, 0.8))
        for i, line in enumerate(grid):
            line[0].imshow(pictures[i])
            _under(line[0], *_truth(model, labels, i))
            for axes, k in zip(line[1:], tree.top_down, strict=True):
                axes.imshow(washed(pictures[i], maps[k][i]))
                label = int(found.classes[i, k])
                _under(axes, tree.classes[k][label], f"{found.probabilities[i, k]:.0%}", _verdict(labels, i, k, label))
        for axes, name in zip(grid[0], ["picture", *(tree.levels[k] for k in tree.top_down)], strict=True):
            axes.set_title(name)
        if through == "T":
            grid[0][-1].set_title(f"{tree.levels[0]}: no T on the way")
        for axes in figure.axes:
            axes.set_axis_off()
        way = f", {WAYS[through]}" if len(tree) > 1 else ""
        caption(grid[0][0], f"{title}{way}  ·  each map on its own scale")
    return figure


def washed(picture: Floats, heat: Floats) -> Floats:
    """(size, size, 3): a picture in grey with a map from 0 to 1 over it."""
    dark, bright = theme().wash
    grey = dark + (bright - dark) * picture.mean(axis=2, keepdims=True)
    cover = 0.8 * heat[:, :, None]
    mixed: Floats = (1 - cover) * grey + cover * theme().heat(heat)[:, :, :3]
    return mixed


def _truth(model: Model, labels: Tensor | None, i: int) -> tuple[str, str, str]:
    """The deepest known class of a picture."""
    tree = model.hierarchy
    for k in range(len(tree)) if labels is not None else ():
        assert labels is not None
        if (label := int(labels[i, k])) >= 0:
            return tree.classes[k][label], "", theme().ink
    return "", "", theme().ink


def _verdict(labels: Tensor | None, i: int, level: int, said: int) -> str:
    """The colour of an answer: right, wrong, or nothing known."""
    if labels is None or int(labels[i, level]) < 0:
        return theme().ink
    return theme().right if int(labels[i, level]) == said else theme().wrong


def _under(axes: Axes, name: str, share: str, colour: str) -> None:
    """A name below a picture, in two lines where it is long, and a probability."""
    text = f"{plain(name)}  {share}" if share else plain(name)
    if len(text) > 24 and " " in text:
        middle = min((i for i, letter in enumerate(text) if letter == " "), key=lambda i: abs(i - len(text) / 2))
        text = f"{text[:middle].rstrip()}\n{text[middle + 1 :].lstrip()}"
    axes.text(0, -4 / (72 * inches(axes, "y")), text, transform=axes.transAxes, va="top", fontsize=8, color=colour)
