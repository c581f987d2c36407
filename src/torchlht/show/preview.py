"""A contact sheet: a few pictures of every class, in the order of the tree, to spot mistakes in the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from torchlht.data.pictures import Picture, open_image
from torchlht.data.samples import Samples
from torchlht.files import replacing
from torchlht.hierarchy.tree import Hierarchy

TILE, GAP, MARGIN, LABEL = 72, 4, 24, 18
INK, FAINT, PAPER = (30, 34, 40), (120, 128, 138), (250, 249, 246)
MARK = ("Software", "lht data preview")
MAX_CLASSES = 400  # a sheet of more classes is too large to look at


def contact_sheet(samples: Samples, out: Path, *, per_class: int = 6, skip: set[str] | None = None) -> None:
    """Write a PNG with `per_class` pictures of each finest class, grouped under their coarser classes."""
    tree = samples.hierarchy
    leaves = _leaves_in_order(tree)[:MAX_CLASSES]
    columns = max(1, min(4, len(leaves) // 6))
    blocks = _columns(leaves, columns)
    width = MARGIN + columns * (per_class * (TILE + GAP) + MARGIN)
    height = max(sum(_block_height(tree, leaf, previous) for previous, leaf in column) for column in blocks) + 2 * MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for c, column in enumerate(blocks):
        left, top = MARGIN + c * (per_class * (TILE + GAP) + MARGIN), MARGIN
        for previous, leaf in column:
            top = _headings(pen, tree, leaf, previous, left, top)
            for i, picture in enumerate(_pictures(samples, leaf, per_class, skip or set())):
                sheet.paste(ImageOps.fit(open_image(picture), (TILE, TILE)), (left + i * (TILE + GAP), top))
            top += TILE + GAP
    about = PngInfo()
    about.add_text(*MARK)
    with replacing(out) as beside:
        sheet.save(beside, format="PNG", pnginfo=about)


def is_contact_sheet(path: Path) -> bool:
    """Whether `contact_sheet` wrote this file."""
    try:
        with Image.open(path, formats=("PNG",)) as image:
            return image.info.get(MARK[0]) == MARK[1]
    except (OSError, ValueError, SyntaxError):
        return False


def _leaves_in_order(tree: Hierarchy) -> list[int]:
    """Finest classes, ordered so that siblings are adjacent."""
    keys = [tree.ancestors(k) for k in range(len(tree))]
    return [int(i) for i in np.lexsort(keys)]


def _columns(leaves: list[int], columns: int) -> list[list[tuple[int | None, int]]]:
    """Leaves dealt into columns of about equal height, each with the leaf above it."""
    size = -(-len(leaves) // columns)
    parts = [leaves[i : i + size] for i in range(0, len(leaves), size)]
    return [list(zip([None, *part[:-1]], part, strict=True)) for part in parts]


def _new_levels(tree: Hierarchy, leaf: int, previous: int | None) -> list[int]:
    """Coarser levels whose class differs from the leaf above, coarse → fine: these get a heading."""
    above = [int(tree.ancestors(k)[leaf]) for k in range(len(tree))]
    coarser = [k for k in tree.top_down if k > 0 and not (tree.stand_ins[k][above[k]] and tree.ends[k][above[k]])]
    return [k for k in coarser if previous is None or tree.ancestors(k)[leaf] != tree.ancestors(k)[previous]]


def _block_height(tree: Hierarchy, leaf: int, previous: int | None) -> int:
    return (len(_new_levels(tree, leaf, previous)) + 1) * LABEL + TILE + GAP


def _headings(pen: ImageDraw.ImageDraw, tree: Hierarchy, leaf: int, previous: int | None, left: int, top: int) -> int:
    for k in _new_levels(tree, leaf, previous):
        name = tree.text(k, int(tree.ancestors(k)[leaf]))  # a branch that skips the level: "Gulls (order)"
        size = 15 if k == len(tree) - 1 else 13
        pen.text((left, top), name, fill=INK, font=ImageFont.load_default(size))
        top += LABEL
    pen.text((left, top), tree.names[0][leaf] or "the branch ends here", fill=FAINT, font=ImageFont.load_default(12))
    return top + LABEL


def _pictures(samples: Samples, leaf: int, count: int, skip: set[str]) -> list[Picture]:
    """The first readable pictures of a class."""
    assert samples.images is not None
    pictures = [samples.images[i] for i in np.flatnonzero(samples.labels[:, 0] == leaf)]
    return [picture for picture in pictures if str(picture) not in skip][:count]
