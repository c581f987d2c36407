"""What the paper reports, cell by cell: `paper.csv`, restated as facts.

Every figure of its tables by table, setting, level, method and metric, in percent. `HRN (reported)` and `FGoN (reported)` are
those papers' own numbers as this one quotes them. Cars' finest level, which the paper calls maker, is `model`. Gains are
always computed from these, never quoted: the paper's text misquotes some.
"""

from __future__ import annotations

import csv
import functools
from importlib.resources import files
from typing import NamedTuple


class Cell(NamedTuple):
    """Where a figure stands in the paper."""

    table: str
    setting: str
    level: str
    method: str
    metric: str


@functools.cache
def paper_figures() -> dict[Cell, float]:
    """Every figure by its place."""
    text = files("torchlht.lab.reproduction").joinpath("paper.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {Cell(*(row[name] for name in Cell._fields)): float(row["value"]) for row in rows}
