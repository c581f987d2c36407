"""A model card: what a model was trained on, what it can tell apart, how good it is and how to use it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from torchlht.answer.calibration import FILE as CALIBRATION
from torchlht.answer.finding import GRAPH, find_run
from torchlht.answer.novelty import FILE as NOVELTY
from torchlht.answer.records import TREE, WEIGHTS, read_config, read_metrics, read_split
from torchlht.files import refuse_replacing, yaml_text
from torchlht.heads.transition.yielding import moves
from torchlht.hierarchy.graph import Graph
from torchlht.hierarchy.tree import Hierarchy

BEGINNING = "---\nlibrary_name: torchlht\n"
"""How every card begins."""
LISTED = 40
"""Classes of a level that a card lists."""
LEFT_OUT = ("out", "resume", "quiet", "track", "track_to", "accelerator", "devices", "workers", "config")
"""Options that say nothing about the model, or something about the machine."""
PLACES = ("data", "hierarchy", "prior", "audit")
"""Options that say where something lies."""


def card(run: Path, name: str, use: str | None = None, *, trained: Path | None = None) -> str:
    """The model card of a run in Markdown.

    Args:
        run: its directory.
        name: what it is called: its id on the hub, or a file.
        use: how it is used, in Markdown; by default how Python loads it.
        trained: the run whose figures and options are told; by default `run`.
    """
    config, origin = read_config(run), trained or run
    metrics = read_metrics(origin) if (origin / "metrics.json").is_file() else {}
    classes = Graph.read(run / GRAPH) if (run / GRAPH).is_file() else Hierarchy.read(run / TREE)
    parts = [
        f"# {name}",
        about(config, several=isinstance(classes, Graph) and not config["model"]["options"].get("exclusive")),
        use or "```python\n" + usage(name, takes_pictures(config)) + "\n```",
        f"## Classes\n\n{classes.describe()}\n\n{listed(classes)}",
        f"## Measured on test samples\n\n{figures(metrics)}",
        f"## Trained with\n\n{samples_of(origin)}{again(read_config(origin).get('train') or {})}",
        f"## Limits\n\n{limits(run)}{yielded(run, classes)}",
    ]
    kind = "image-classification" if takes_pictures(config) else "tabular-classification"
    tags = f"tags:\n- hierarchical-classification\n- label-hierarchy-transition\npipeline_tag: {kind}\n---\n"
    return f"{BEGINNING}{tags}\n" + "\n\n".join(parts) + "\n"


def card_beside(run: str | Path, file: Path) -> tuple[Path, str]:
    """The card of a run for a file that is exported from it: its place, beside the file, and its text.

    Raises:
        ConfigError: when something else is in its place.
        RunError: when there is no such run.
    """
    place, folder = file.with_name(f"{file.name}.md"), find_run(run)
    refuse_replacing(place, "a model card that we wrote", lambda path: path.read_bytes().startswith(BEGINNING.encode()))
    inputs = "picture.jpg" if takes_pictures(read_config(folder)) else "features.npz"
    opened = "Open it in a browser." if file.suffix == ".html" else f"```bash\nlht predict {file.name} {inputs}\n```"
    return place, card(folder, file.name, opened)


def takes_pictures(config: dict[str, Any]) -> bool:
    """Whether inputs are pictures, not features."""
    return bool(config["model"].get("preprocess"))


def about(config: dict[str, Any], *, several: bool) -> str:
    """What it is, and how it answers: with several classes, or with one at every level."""
    model, library = config["model"], f"torchlht {config.get('torchlht', '')}".strip()  # graphs did not always name it
    inputs = f"pictures, by `{model['backbone']}`" if takes_pictures(config) else f"{model['in_features']:,} features"
    answers = "a set of classes" if several else "one class at every level, as deep as it is sure"
    return f"Hierarchical classification with {library}: `{model['method']}` on {inputs}. It answers with {answers}."


def usage(name: str, pictures: bool = True) -> str:
    """How to load it."""
    inputs = "picture.jpg" if pictures else "features.npz"
    return f'import torchlht\n\ntorchlht.load("{name}").predict("{inputs}")[0].answer(confidence=0.9)'


def listed(classes: Hierarchy | Graph) -> str:
    """The names of classes, level by level, coarse → fine; of a graph, those that nothing is under."""
    if isinstance(classes, Graph):
        rows = [("finest", [classes.names[j] for j in classes.leaves])]
    else:
        rows = [(classes.levels[k], [name for name in classes.names[k] if name is not None]) for k in classes.top_down]
    return "\n".join(f"- {shown(level)}: {enumerated(names)}" for level, names in rows)


def enumerated(names: Sequence[str]) -> str:
    """The first names of many."""
    more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
    return ", ".join(map(shown, names[:LISTED])) + more


def shown(name: str) -> str:
    """A name as Markdown shows it, also in a table."""
    return re.sub(r"([\\`*<>|\[\]])", r"\\\1", name)


def samples_of(run: Path) -> str:
    """How many samples it learned from; nothing where the run does not say."""
    split = read_split(run) if (run / "split.json").is_file() else {"train": []}
    if not split["train"]:
        return ""
    return f"It learned from {len(split['train']):,} samples; {len(split['val']):,} were set aside to validate it.\n\n"


def figures(metrics: dict[str, Any]) -> str:
    """A table of accuracies, coarse → fine; of a run on a graph, of average precision."""
    if metrics.get("graph_levels"):
        precision = ((one["name"], one["average_precision"], one["classes"]) for one in metrics["graph_levels"])
        lines = (f"| {shown(name)} | {percent(p)} | {count:,} |" for name, p, count in precision)
        leaf = f"\n\nThe finest class is right for {percent(metrics['leaf_accuracy'])} %." if "leaf_accuracy" in metrics else ""
        return "\n".join(["| level | average precision, % | classes |", "|---|---|---|", *lines]) + leaf
    if not metrics.get("levels"):
        return "Nothing was measured."
    rows = [f"| {shown(one['name'])} | {percent(one['accuracy'])} | {one['samples']:,} |" for one in metrics["levels"]]
    return "\n".join(["| level | accuracy, % | samples |", "|---|---|---|", *rows])


def percent(share: float | None) -> str:
    """A share in percent; a dash if it could not be measured."""
    return "–" if share is None else f"{100 * share:.1f}"


def limits(run: Path) -> str:
    """What one should not expect of it."""
    calibrated = (
        "calibrated, for samples like those it was calibrated on" if (run / CALIBRATION).is_file() else "not calibrated"
    )
    unlike = " It says which samples are unlike all it learned from." if (run / NOVELTY).is_file() else ""
    figures = "The figures are of one run on one test set."
    return f"It knows these classes and no others.{unlike} Probabilities are {calibrated}. {figures}"


def yielded(run: Path, classes: Hierarchy | Graph) -> str:
    """Where its transition follows labels instead of the tree, a paragraph for each level; nothing where it does not."""
    if isinstance(classes, Graph) or not (run / WEIGHTS).is_file():
        return ""
    with safe_open(run / WEIGHTS, "np") as file:
        moved = {name: re.fullmatch(r"method\.steps\.(\d+)\.moved", name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        said = [moves(classes, int(found[1]), file.get_tensor(name)) for name, found in moved.items() if found]
    return "".join(f"\n\n{shown(sentence)}" for sentence in said if sentence)


def again(given: dict[str, Any]) -> str:
    """How to train it again; where its data was only in memory, what it was trained with."""
    if not given:
        return "Not recorded here."
    named = "With these lines in a file, and the data at hand, `lht train --config FILE` trains it again"
    told = named if given.get("data") else "Its data was in memory. The options were"
    return f"{told}:\n\n```yaml\n{options(given)}```"


def options(given: dict[str, Any]) -> str:
    """What was chosen, as lines of YAML, without paths: data is named, not located."""
    chosen = {name: value for name, value in given.items() if name not in LEFT_OUT and value not in (None, [], "")}
    chosen |= {name: ",".join(map(last_part, str(chosen[name]).split(","))) for name in PLACES if name in chosen}
    return yaml_text(chosen)


def last_part(place: str) -> str:
    """The name of a file or folder without where it lies."""
    return Path(place).absolute().name
