"""`torchlht.audit`: doubt the labels of a dataset, and write what was found, with a page that shows pictures side by side."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlht import console
from torchlht.answer.asking import find_device
from torchlht.answer.backbones import create_backbone
from torchlht.data.doubts import refuse_placeholders
from torchlht.data.pictures import open_image
from torchlht.data.samples import Ints, Samples, check_images, lasting_name, read_data, refuse_inside
from torchlht.doors import entrance
from torchlht.errors import ConfigError
from torchlht.files import content, write_text
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.audit.auditing import Audit, examine, path_text, record_of, write_audit
from torchlht.learn.audit.kept import RECORD
from torchlht.measure.evaluation import frozen_features
from torchlht.show.look import plain
from torchlht.show.page import TEMPLATES
from torchlht.show.sections.parts import Picture, jpeg, number

NAME = "audit.html"
SHOWN, EXAMPLES, SIDE = 40, 3, 150  # rows with pictures, examples of each class, and the side of a picture in pixels


@entrance
def audit(
    data: str | Path,
    *,
    out: str | Path | None = None,
    precision: float = 0.5,
    everything: bool = False,
    hierarchy: str | Path | None = None,
    levels: Sequence[str] | None = None,
    unknown: Sequence[str] | None = None,
    backbone: str = "efficientnet_lite0",
    on_error: str = "refuse",
    twins: bool = True,
    seed: int = 0,
    workers: int | None = None,
    device: str = "cpu",
    quiet: bool = True,
) -> Audit:
    """Find labels of a dataset that are probably wrong, twins, and classes that do not fit the tree.

    >>> audit("birds.csv", out="doubts").rows[0].suggested
    'Herring Gull'

    Args:
        data: a folder, a table, an .npz of features, shards, or a known name.
        out: the folder to write; None writes nothing.
        precision: the list of labels is cut where fewer than this share are to be expected wrong.
        everything: list every known label.
        hierarchy: a file of the tree to read the data with.
        levels: level names, coarse → fine.
        unknown: names that mean that a label is missing.
        backbone: the pretrained network that turns pictures into features.
        on_error: "refuse" or "skip" unreadable pictures.
        twins: whether to look for twins.
        seed: chooses the parts that are judged by turns.
        workers: how many processes decode pictures; the number of cores by default.
        device: where the backbone runs.
        quiet: show no progress.

    Raises:
        LHTError: when there is nothing to compare, or `out` holds something else.
    """
    started = time.monotonic()
    if not 0 < precision <= 1:
        raise ConfigError(f"`precision` is {precision}: it must be above 0 and at most 1")
    folder = None if out is None else _claimed(Path(out), data)
    tree = Hierarchy.read(hierarchy, levels) if hierarchy is not None else None
    samples = read_data(data, hierarchy=tree, levels=levels, unknown=unknown or ())
    if unknown is None:
        refuse_placeholders(samples)
    original = samples
    samples, _ = check_images(samples, on_error)
    if samples.images is not None:
        samples = dataclasses.replace(samples, features=picture_features(samples, backbone, device, workers, quiet=quiet))
    with console.counting("compared with others", len(samples), quiet=quiet or samples.images is None) as count:
        found = examine(samples, precision=precision, everything=everything, seed=seed, twins=twins, progress=count)
    found = dataclasses.replace(found, seconds=time.monotonic() - started)
    if folder is not None:
        write_audit(found, folder, record_of(found, original, lasting_name(str(data)), **_how(hierarchy, levels, unknown)))
        write_text(folder / NAME, audit_page(found, str(data)))
    return found


def _claimed(folder: Path, data: str | Path) -> Path:
    """A folder for an audit of some data. Raises ConfigError if it lies inside of them, or holds something else."""
    refuse_inside(folder, data)
    if folder.is_dir() and content(folder) and not (folder / RECORD).is_file():
        raise ConfigError(f"{folder}: is not empty and holds no audit; choose another `out`")
    return folder


def _how(hierarchy: str | Path | None, levels: Sequence[str] | None, unknown: Sequence[str] | None) -> dict[str, Any]:
    """How the data was read, as the record keeps it."""
    place = None if hierarchy is None else str(Path(hierarchy).resolve())
    return {"hierarchy": place, "levels": None if levels is None else list(levels), "unknown": list(unknown or ())}


def picture_features(samples: Samples, name: str, device: str, workers: int | None, *, quiet: bool) -> Any:
    """(N, d) features of pictures from a frozen, pretrained backbone; kept in the cache."""
    network = create_backbone(name, pretrained=True)
    spec = network.preprocess
    if spec is None:
        raise ConfigError(f"`backbone={name}` takes no pictures; pass efficientnet_lite0 or a timm model")
    threads = os.cpu_count() or 1 if workers is None else workers
    with console.counting(f"{name}, frozen · features", len(samples), quiet=quiet) as count:
        return frozen_features(samples, network.eval(), spec, device=find_device(device), workers=threads, progress=count)


# ---- the page ----------------------------------------------------------------------------------------------------------


def audit_page(found: Audit, data: str) -> str:
    """One self-contained HTML page."""
    samples = found.samples
    with torch.no_grad():
        cards = [_card(found, n) for n in range(min(SHOWN, len(found.rows)))]
    pairs = [_pair(samples, [twin.first, twin.second], why) for twin, why in found.twins[:SHOWN]]
    noun = "picture" if samples.images is not None else "sample"
    made = f"torchlht {importlib.metadata.version('torchlht')} on {datetime.now():%Y-%m-%d %H:%M}"
    return TEMPLATES.get_template("audit.html").render(
        data=data,
        samples=console.plural(len(samples), noun),
        tree=samples.hierarchy.describe(),
        counts=_count_rows(found),
        cards=cards,
        listed=len(found.rows),
        pairs=pairs,
        twins=len(found.twins),
        remarks=[(r, number(r.score, 1)) for r in found.remarks[:SHOWN]],
        remarked=len(found.remarks),
        seconds=f"{found.seconds:.0f}",
        made=made,
    )


def _pair(samples: Samples, both: list[int], why: str) -> dict[str, Any]:
    """A pair of twins."""
    names, labels = [samples.keys[i] for i in both], [path_text(samples, i) for i in both]
    return {"pictures": _pictures(samples, both), "names": names, "labels": labels, "why": why}


def _count_rows(found: Audit) -> list[tuple[str, str, str, str]]:
    """Level, known labels, how many are wrong, and the interval; coarse → fine."""
    levels = found.samples.hierarchy.levels
    return [
        (levels[c.level], f"{c.known:,}", f"{c.wrong:,.0f}", f"{c.low:,.0f} to {c.high:,.0f}") for c in reversed(found.counts)
    ]


def _card(found: Audit, n: int) -> dict[str, Any]:
    """A doubted label: the sample, examples of the given class, and of what is suggested."""
    samples, row, i = found.samples, found.rows[n], int(found.positions[n])
    tree = samples.hierarchy
    level = tree.levels.index(row.level)
    given = _examples(found, level, int(samples.labels[i, level]), i)
    other: list[int] = []
    if row.suggested:
        at = tree.levels.index(row.suggested_level)
        other = _examples(found, at, tree.index(at, row.suggested), i)
    return {
        "row": row,
        "given": plain(row.given),
        "suggested": plain(row.suggested),
        "percent": f"{100 * row.probability:.0f}",
        "own": _pictures(samples, [i]),
        "given_examples": _pictures(samples, given),
        "suggested_examples": _pictures(samples, other),
        "near": [samples.keys[j] for j in found.neighbours[n].tolist()[:EXAMPLES]],
    }


def _examples(found: Audit, level: int, label: int, but: int) -> list[int]:
    """Samples of a class that are hardly doubted; the finest labelled first."""
    labels: Ints = found.samples.labels
    rows = np.flatnonzero((labels[:, level] == label) & (np.arange(len(labels)) != but))
    doubt = found.doubts.deepest()[rows]
    chosen: list[int] = rows[np.argsort(doubt, kind="stable")[:EXAMPLES]].tolist()
    return chosen


def _pictures(samples: Samples, rows: Sequence[int]) -> list[Picture]:
    """Small pictures of some samples; none of features."""
    if samples.images is None:
        return []
    found = []
    for i in rows:
        image = open_image(samples.images[i])
        image.thumbnail((SIDE, SIDE))
        found.append(Picture(jpeg(image, quality=80), *image.size, samples.keys[i]))
    return found
