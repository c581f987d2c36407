"""A model card: what a model was trained on, what it can tell apart, how good it is and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlht.answer.records import TREE, read_config, read_metrics
from torchlht.hierarchy.tree import Hierarchy

FRONT = """---
library_name: torchlht
tags:
- hierarchical-classification
- label-hierarchy-transition
pipeline_tag: image-classification
---
"""
LIMITS = """It knows the classes above and no others; samples that are unlike all of them are said to be so where the run
learned that. Probabilities are calibrated only if `calibration.json` is here, for samples like those it was calibrated on.
The figures are of one run on one test set."""
LEFT_OUT = ("out", "resume", "quiet", "track", "track_to", "accelerator", "devices", "workers", "config")
"""Options that say nothing about the model, or something about the machine."""


def card(run: Path, name: str) -> str:
    """The model card of a run in Markdown, with `name` as its id on the hub."""
    config, metrics = read_config(run), read_metrics(run)
    tree = Hierarchy.read(run / TREE)
    parts = [
        f"# {name}",
        f"Hierarchical classification with [torchlht] {config.get('torchlht', '')}: `{config['model']['method']}` on "
        f"`{config['model']['backbone'] or 'features'}`. It answers at every level, as deep as it is sure.",
        "```python\n" + usage(name) + "\n```",
        f"## Tree\n\n{tree.describe()}",
        f"## Measured on test samples\n\n{figures(metrics)}",
        f"## Trained with\n\n```yaml\n{options(config.get('train') or {})}\n```",
        f"## Limits\n\n{LIMITS}",
    ]
    return FRONT + "\n" + "\n\n".join(parts) + "\n"


def usage(name: str) -> str:
    """How to load it."""
    return f'import torchlht\n\ntorchlht.load("{name}").predict("picture.jpg")[0].answer(confidence=0.9)'


def figures(metrics: dict[str, Any]) -> str:
    """A table of accuracies, coarse → fine."""
    if not metrics.get("levels"):
        return "Nothing was measured."
    shares = ["–" if one["accuracy"] is None else f"{100 * one['accuracy']:.1f}" for one in metrics["levels"]]
    rows = [f"| {one['name']} | {s} | {one['samples']:,} |" for one, s in zip(metrics["levels"], shares, strict=True)]
    return "\n".join(["| level | accuracy, % | samples |", "|---|---|---|", *rows])


def options(given: dict[str, Any]) -> str:
    """What was chosen, without paths: data is named, not located."""
    chosen = {name: value for name, value in given.items() if name not in LEFT_OUT and value not in (None, False, [], "")}
    if "data" in chosen:
        chosen["data"] = Path(str(chosen["data"])).name
    return "\n".join(f"{name}: {value}" for name, value in chosen.items())
