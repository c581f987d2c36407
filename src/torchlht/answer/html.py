"""Answers in notebooks: the picture, and a bar per level or class."""

from __future__ import annotations

import base64
import io
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from torchlht.data.pictures import is_image, open_image

if TYPE_CHECKING:
    from torchlht.answer.named import Candidate, Named
    from torchlht.answer.several import Labels

SIDE = 160  # of a picture, in pixels
BAR = "display:inline-block;height:0.7em;vertical-align:baseline;background:#2a6f97;margin-right:0.4em"


def answer_html(named: Named) -> str:
    """One answer: what it was asked about, and each level with a bar as long as its probability."""
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(level.level)}</td><td style="text-align:left">{escape(level.text)}</td>'
        f'<td style="text-align:left;min-width:9em">{bar(level.probability)}</td>'
        f'<td style="text-align:left;opacity:0.7">{others(level.candidates[1:3])}</td></tr>'
        for level in named.levels
    )
    unlike = f"<div>{escape(named.unlike)}</div>" if named.unlike else ""
    return beside(named.source, f"<table>{rows}</table>{unlike}")


def labels_html(labels: Labels) -> str:
    """A set of classes: what it was asked about, and each class with a bar; those of the answer are bold."""
    rows = "".join(
        f'<tr><td style="text-align:left">{escape(labels.levels.get(name, ""))}</td>'
        f'<td style="text-align:left">{f"<b>{escape(name)}</b>" if name in labels.deepest else escape(name)}</td>'
        f'<td style="text-align:left;min-width:9em">{bar(probability)}</td></tr>'
        for name, probability in labels.probabilities.items()
    )
    table = f"<table>{rows}</table>" if rows else f"<div>{escape(str(labels))}</div>"
    return beside(labels.source, table)


def beside(source: str, shown: str) -> str:
    """What is said about a sample, beside its picture."""
    said = f"<div><div>{escape(source)}</div>{shown}</div>"
    return f'<div style="display:flex;gap:1em;align-items:flex-start">{thumbnail(source)}{said}</div>'


def bar(probability: float) -> str:
    """A probability as a bar and a number."""
    return f'<span style="white-space:nowrap"><span style="{BAR};width:{5 * probability:.2f}em"></span>{probability:.0%}</span>'


def others(candidates: tuple[Candidate, ...]) -> str:
    """The next most probable classes."""
    return escape(", ".join(f"{one.text} {one.probability:.0%}" for one in candidates))


def thumbnail(source: str) -> str:
    """The picture, small, inside the page; nothing for features, or when the file is gone."""
    path = Path(source)
    if not (is_image(path) and path.is_file()):
        return ""
    picture = open_image(path)
    picture.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    picture.save(data, "JPEG", quality=80)
    return f'<img alt="" src="data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}">'
