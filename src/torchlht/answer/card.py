"""A model card: what a model was trained on, what it can tell apart, how good it is and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlht.answer.finding import GRAPH, find_run
from torchlht.answer.records import TREE, read_config, read_metrics
from torchlht.files import refuse_replacing
from torchlht.hierarchy.graph import Graph
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


def card(run: Path, name: str, use: str | None = None) -> str:
    """The model card of a run in Markdown.

    Args:
        run: its directory.
        name: what it is called: its id on the hub, or a file.
        use: how it is used, in Markdown; by default how Python loads it.
    """
    config, metrics = read_config(run), read_metrics(run) if (run / "metrics.json").is_file() else {}
    classes = Graph.read(run / GRAPH) if (run / GRAPH).is_file() else Hierarchy.read(run / TREE)
    given = options(config.get("train") or {})
    trained = f"With these lines in a file, `lht train --config FILE` trains it again:\n\n```yaml\n{given}\n```"
    library = f"torchlht {config.get('torchlht', '')}".strip()  # runs on graphs did not always name the version
    parts = [
        f"# {name}",
        f"Hierarchical classification with {library}: `{config['model']['method']}` on "
        f"`{config['model']['backbone'] or 'features'}`. It answers at every level, as deep as it is sure.",
        use or "```python\n" + usage(name) + "\n```",
        f"## Tree\n\n{classes.describe()}",
        f"## Measured on test samples\n\n{figures(metrics)}",
        f"## Trained with\n\n{trained if given else 'Not recorded here.'}",
        f"## Limits\n\n{LIMITS}",
    ]
    return FRONT + "\n" + "\n\n".join(parts) + "\n"


def card_beside(run: str | Path, file: Path) -> tuple[Path, str]:
    """The card of a run for a file that is exported from it: its place, beside the file, and its text.

    Raises:
        ConfigError: when something else is in its place.
        RunError: when there is no such run.
    """
    place = file.with_name(f"{file.name}.md")
    refuse_replacing(place, "a model card that we wrote", lambda path: path.read_bytes().startswith(FRONT.encode()))
    opened = "Open it in a browser." if file.suffix == ".html" else f"```bash\nlht predict {file.name} picture.jpg\n```"
    return place, card(find_run(run), file.name, opened)


def usage(name: str) -> str:
    """How to load it."""
    return f'import torchlht\n\ntorchlht.load("{name}").predict("picture.jpg")[0].answer(confidence=0.9)'


def figures(metrics: dict[str, Any]) -> str:
    """A table of accuracies, coarse → fine; of a run on a graph, of average precision."""
    if metrics.get("graph_levels"):
        precision = ((one["name"], one["average_precision"], one["classes"]) for one in metrics["graph_levels"])
        lines = (f"| {name} | {'–' if p is None else f'{100 * p:.1f}'} | {count:,} |" for name, p, count in precision)
        return "\n".join(["| level | average precision, % | classes |", "|---|---|---|", *lines])
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
