"""What people see in the terminal: tables, progress, the next step. Readable when piped to a file, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from torchlht.data.samples import Samples
from torchlht.errors import Fault
from torchlht.hierarchy import Hierarchy

# No markup: a class may be called [anything].
out = Console(highlight=False, markup=False)
notes = Console(stderr=True, highlight=False, markup=False)


def say(what: RenderableType) -> None:
    """Print a result. Sentences are not broken into lines: the terminal does that, and a file should not have it done."""
    out.print(what, soft_wrap=isinstance(what, str))


def percent(value: float | None) -> str:
    """A fraction as people read it: 0.941 → "94.1"; a dash where there is nothing."""
    return "–" if value is None else f"{100 * value:.1f}"


def plural(n: int, noun: str) -> str:
    """5,994 pictures; 1 picture."""
    endings = {"y": "ies", "s": "s"}
    many = noun if noun.endswith("s") else noun[:-1] + endings["y"] if noun.endswith("y") else noun + "s"
    return f"{n:,} {noun if n == 1 else many}"


# ---- data and trees ------------------------------------------------------------------------------------------------


def samples_summary(samples: Samples) -> str:
    """Levels, sizes, and how far the samples are labelled: two lines."""
    tree = samples.hierarchy
    known = (samples.labels >= 0).sum(axis=0)
    deepest = [int(known[0]), *(int(b - a) for a, b in pairwise(known))]
    parts = [f"{tree.levels[k]} {n:,}" for k, n in enumerate(deepest) if n]
    if rest := len(samples) - int(known[-1]):
        parts.append(f"nothing {rest:,}")
    noun = "picture" if samples.images is not None else "sample"
    splits = " · ".join(f"{name} {len(samples.index(name)):,}" for name in ("train", "val", "test") if len(samples.index(name)))
    total = f"{plural(len(samples), noun)}, {len(tree)} levels: {tree.describe()}"
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
        for leaf_ancestor in tree.ancestors(level).tolist():
            leaves[level][leaf_ancestor] += 1

    def grow(node: Tree, level: int, index: int, left: int) -> None:
        count = f"  {leaves[level][index]}" if level else ""
        branch = node.add(Text.assemble(tree.classes[level][index], (count, "dim")))
        if level and left > 1:
            for child in children[level - 1][index]:
                grow(branch, level - 1, child, left - 1)

    for top in range(tree.sizes[-1]):
        grow(root, len(tree) - 1, top, depth or len(tree))
    return root


def faults_text(source: str, faults: list[Fault]) -> str:
    """Every fault on its own line."""
    width = max(len(fault.where) for fault in faults)
    lines = [f"  {fault.where:<{width}}  {fault.what}" if width else f"  {fault.what}" for fault in faults]
    return "\n".join([f"{source}: {plural(len(faults), 'problem')}", *lines])


# ---- results -------------------------------------------------------------------------------------------------------


def metrics_table(metrics: dict[str, Any]) -> Table:
    """Accuracy and friends per level, coarse → fine, and along the path."""
    table = Table("level", title_justify="left")
    for name in ("accuracy", "mean class recall", "macro F1", "AUC", "classes", "samples"):
        table.add_column(name, justify="right")
    for level in metrics["levels"]:
        figures = [percent(level[name]) for name in ("accuracy", "mean_class_recall", "macro_f1", "macro_auc")]
        table.add_row(level["name"], *figures, str(level["classes"]), f"{level['samples']:,}")
    return table


def answers_table(points: list[dict[str, Any]]) -> Table:
    """Rolled-up answers: how deep they go and how many are wrong, a row per threshold."""
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
    severity = metrics["mistake_severity"]
    severity = "–" if severity is None else f"{severity:.2f}"
    return (
        f"mean over levels {percent(metrics['mean_accuracy'])} · whole path right {percent(metrics['full_path_accuracy'])} · "
        f"levels disagree {percent(metrics['inconsistency'])} · mistake severity {severity}"
    )


# ---- progress ------------------------------------------------------------------------------------------------------


class EpochView:
    """Progress over epochs: a live bar in a terminal, a line per epoch in a file, nothing when quiet."""

    def __init__(self, epochs: int, steps: int, *, start: int, quiet: bool) -> None:
        self.epochs, self.steps, self.live = epochs, steps, notes.is_terminal and not quiet
        self.lines = not quiet and not self.live
        columns = (
            TextColumn("epoch {task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(24),
            TextColumn("{task.description}"),
        )
        self.bar = Progress(*columns, TimeRemainingColumn(), console=notes, disable=not self.live, transient=True)
        self.task = self.bar.add_task("", total=epochs * steps, completed=start * steps, epoch=start + 1, epochs=epochs)
        self.text = ""

    def step(self, epoch: int) -> None:
        """One batch more."""
        self.bar.update(self.task, advance=1, epoch=epoch)

    def say(self, text: str) -> None:
        """Something worth a line of its own."""
        if self.lines or self.live:
            notes.print(text, soft_wrap=True)

    def epoch(self, epoch: int, text: str) -> None:
        """An epoch is over; `text` says how it went."""
        self.bar.update(self.task, description=text, epoch=min(epoch + 1, self.epochs))
        if self.lines:
            notes.print(f"epoch {epoch}/{self.epochs}  {text}", soft_wrap=True)

    def __enter__(self) -> EpochView:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


class GridView:
    """Progress over many runs: a live bar with the time left in a terminal, a line per run in a file."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.skipped, self.started = total, 0, 0, time.monotonic()
        self.live = notes.is_terminal
        columns = (TextColumn("{task.completed:.0f}/{task.total:.0f} runs"), BarColumn(24), TextColumn("{task.description}"))
        self.bar = Progress(*columns, console=notes, disable=not self.live, transient=True)
        self.task = self.bar.add_task("", total=total)

    def skip(self, n: int) -> None:
        """So many were finished already."""
        if n:
            self.skipped += n
            self.bar.update(self.task, advance=n)
            notes.print(f"{plural(n, 'run')} finished before", soft_wrap=True)

    def finished(self, text: str) -> None:
        """One more is finished; `text` says how it went."""
        self.done += 1
        left = (time.monotonic() - self.started) / self.done * (self.total - self.skipped - self.done)
        soon = f"{left / 60:.0f} min left" if left >= 90 else f"{left:.0f} s left"
        self.bar.update(self.task, advance=1, description=soon)
        notes.print(f"{self.skipped + self.done}/{self.total}  {text}" + ("" if self.live else f"   {soon}"), soft_wrap=True)

    def __enter__(self) -> GridView:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def note(text: str, *, quiet: bool) -> None:
    """A remark on stderr, unless quiet."""
    if not quiet:
        notes.print(text, soft_wrap=True)


@contextmanager
def counting(what: str, total: int, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar for one long count; gives a function (done, total). In a file, a line for every tenth."""
    live = notes.is_terminal and not quiet
    columns = (TextColumn(what), BarColumn(24), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"), TimeElapsedColumn())
    started, tenth = time.monotonic(), 0
    with Progress(*columns, console=notes, disable=not live, transient=True) as bar:
        task = bar.add_task("", total=total)

        def count(done: int, _: int) -> None:
            nonlocal tenth
            bar.update(task, completed=done)
            if not live and 10 * done // total > tenth:
                tenth = 10 * done // total
                note(f"{what} {done:,}/{total:,} in {time.monotonic() - started:.0f} s", quiet=quiet)

        yield count
