"""Data, trees and results in the terminal: tables and sentences that stay readable when piped to a file."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from torchlht.console import percent, plural
from torchlht.errors import Fault

if TYPE_CHECKING:
    from torchlht.data.samples import Samples
    from torchlht.hierarchy.graph import Graph
    from torchlht.hierarchy.tree import Hierarchy

# ---- data and trees ------------------------------------------------------------------------------------------------


def samples_summary(samples: Samples) -> str:
    """Levels, sizes, and how far the samples are labelled: two lines."""
    tree = samples.hierarchy
    known = (samples.labels >= 0).sum(axis=0)
    deepest = [int(known[0]), *(int(b - a) for a, b in pairwise(known))]
    early = int(known[0] - (tree.only_real(samples.labels)[:, 0] >= 0).sum())
    parts = [f"{tree.levels[k]} {n:,}" for k, n in enumerate([deepest[0] - early, *deepest[1:]]) if n]
    parts += [f"where the branch ends {early:,}"] if early else []
    if rest := len(samples) - int(known[-1]):
        parts.append(f"nothing {rest:,}")
    noun = "picture" if samples.images is not None else "sample"
    splits = " · ".join(f"{name} {len(samples.index(name)):,}" for name in ("train", "val", "test") if len(samples.index(name)))
    total = f"{plural(len(samples), noun)}, {plural(len(tree), 'level')}: {tree.describe()}"
    return f"{total}\nlabelled down to {' · '.join(parts)}   ({splits})"


def draw_tree(tree: Hierarchy, title: str, depth: int | None = None) -> Tree:
    """The tree with the number of finest classes under each node."""
    root = Tree(Text.assemble((title, "bold"), f"  {tree.describe()}"))
    children: list[dict[int, list[int]]] = []
    for parents in tree.parents:
        groups: dict[int, list[int]] = {}
        for child, parent in enumerate(parents.tolist()):
            groups.setdefault(parent, []).append(child)
        children.append(groups)
    leaves = [[0] * size for size in tree.sizes]
    for level in range(len(tree)):
        for leaf_ancestor in tree.ancestors(level)[~tree.stand_ins[0]].tolist():
            leaves[level][leaf_ancestor] += 1

    def grow(node: Tree, level: int, index: int, left: int) -> None:
        name = tree.names[level][index]
        below = "ends here" if tree.ends[level][index] else leaves[level][index] or ""
        count = f"  {below}" if level and below else ""
        branch = node if name is None else node.add(Text.assemble(name, (count, "dim")))
        if level and left > 1:
            for child in children[level - 1][index]:
                grow(branch, level - 1, child, left - 1)

    for top in range(tree.sizes[-1]):
        grow(root, len(tree) - 1, top, depth or len(tree))
    return root


def draw_graph(graph: Graph, title: str, depth: int | None = None) -> Tree:
    """A graph with leaves under each class counted, as deep as a tree may be. What is below several parents is there once."""
    from torchlht.hierarchy.paths import LEVELS

    root = Tree(Text.assemble((title, "bold"), f"  {graph.describe()}"))
    leaves = graph.leaf_counts
    done: set[int] = set()

    def grow(node: Tree, own: int, left: int) -> None:
        children = graph.children[own]
        again = bool(children) and (own in done or (left == 1 and depth is None))
        others = f"  one of {len(graph.parents[own])} places" if len(graph.parents[own]) > 1 else ""
        count = f"  {leaves[own]}" if children else ""
        branch = node.add(Text.assemble(graph.names[own], (count + others + ("  …" if again else ""), "dim")))
        if left == 1 or again:
            return
        done.add(own)
        for child in children:
            grow(branch, child, left - 1)

    for top in graph.tops.tolist():
        grow(root, top, min(depth or LEVELS, LEVELS))
    return root


def faults_text(source: str, faults: list[Fault]) -> str:
    """Every fault on its own line."""
    width = max(len(fault.where) for fault in faults)
    lines = [f"  {fault.where:<{width}}  {fault.what}" if width else f"  {fault.what}" for fault in faults]
    return "\n".join([f"{source}: {plural(len(faults), 'problem')}", *lines])


# ---- results -------------------------------------------------------------------------------------------------------


def metrics_table(metrics: dict[str, Any]) -> Table:
    """The metrics of each level, coarse → fine."""
    from torchlht.measure.metrics import specs  # takes seconds, which printing a tree does not need

    table, shown = Table("level", title_justify="left"), specs("level", "terminal")
    for name in (*(spec.headed("terminal") for spec in shown), "classes", "samples"):
        table.add_column(name, justify="right")
    for level in metrics["levels"]:
        figures = (spec.text(spec.of(level)) for spec in shown)
        table.add_row(level["name"], *figures, str(level["classes"]), f"{level['samples']:,}")
    return table


def answers_table(points: list[dict[str, Any]]) -> Table:
    """Rolled-up answers: how deep they are and how many are wrong, one row per threshold."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("asked for", no_wrap=True)
    levels = [level["name"] for level in points[0]["levels"]]
    for name in ("p ≥", *levels, "none", "wrong", "depth", "info"):
        table.add_column(name, justify="right")
    for point in points:
        shares = [percent(level["answered"]) for level in point["levels"]]
        rest = [percent(1 - point["answered"]), *(percent(point[n]) for n in ("error", "depth", "information"))]
        table.add_row(point["promise"], f"{point['threshold']:.3f}", *shares, *rest)
    return table


def metrics_sentence(metrics: dict[str, Any]) -> str:
    """The figures that belong to no single level."""
    from torchlht.measure.metrics import specs

    found = " · ".join(f"{spec.headed('terminal')} {spec.text(spec.of(metrics))}" for spec in specs("run", "terminal"))
    return f"{found}\n{consistent_sentence(metrics['consistent'])}" if "consistent" in metrics else found


def consistent_sentence(shown: dict[str, Any]) -> str:
    """The figures of the answers that people are shown: accuracy per level and of the whole path."""
    levels = " · ".join(f"{level['name']} {percent(level['accuracy'])}" for level in shown["levels"])
    whole = percent(shown["full_path_accuracy"])
    return f"answers of lht predict, on one path of the tree ({shown['rule']}): {levels} · whole path right {whole}"


def several_table(metrics: dict[str, Any]) -> Table:
    """The metrics of each level of a graph, coarse → fine."""
    table, exclusive = Table("level"), "leaf_accuracy" in metrics
    own = ("set right", "threshold")
    names = (*["accuracy"] * exclusive, "average precision", "F1 micro", "F1 macro", *(() if exclusive else own), "classes")
    for name in names:
        table.add_column(name, justify="right")
    for level in metrics["graph_levels"]:
        precision = level["average_precision"]
        shares = ["–" if precision is None else f"{precision:.3f}", f"{level['f1_micro']:.3f}", f"{level['f1_macro']:.3f}"]
        first = [percent(level["accuracy"])] if exclusive else []
        right = level.get("exact")
        last = [] if exclusive else ["–" if right is None else percent(right), f"{level['threshold']:.2f}"]
        table.add_row(level["name"], *first, *shares, *last, f"{level['classes']:,}")
    return table


def sure_table(points: list[dict[str, Any]]) -> Table:
    """Answers of a graph with a threshold, one row each."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("asked for", no_wrap=True)
    for name in ("p ≥", "answered", "down to a leaf", "wrong", "unchecked", "classes"):
        table.add_column(name, justify="right")
    for point in points:
        shares = [percent(point[name]) for name in ("answered", "leaf", "wrong", "unchecked")]
        classes = "–" if point["classes"] is None else f"{point['classes']:.1f}"
        table.add_row(point["promise"], f"{point['threshold']:.3f}", *shares, classes)
    return table


def several_sentence(metrics: dict[str, Any]) -> str:
    """The metrics over all classes, in one line."""
    area = "–" if metrics["auprc"] is None else f"{metrics['auprc']:.3f}"
    right = f"leaf right {percent(metrics['leaf_accuracy'])} · " if "leaf_accuracy" in metrics else ""
    f1 = f"hierarchical F1 {metrics['f1_micro']:.3f} micro, {metrics['f1_macro']:.3f} macro"
    return f"{right}AU(PRC) over all classes {area} · {f1} · {plural(metrics['samples'], 'sample')}"
