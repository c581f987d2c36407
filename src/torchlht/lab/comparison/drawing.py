"""accuracy.png of a comparison: against the share of hidden labels, a panel per level; with one mask, a dot per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from torchlht.files import replacing
from torchlht.lab.comparison.results import Comparison

MARKERS = "osD^vP"
INK, FAINT = "#333333", "#dddddd"


def draw_accuracy(results: Comparison, path: Path) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    methods = ranked(results)
    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK}):
        draw = _lines if len(results.masks) > 1 else _dots
        figure = draw(pyplot, results, methods)
        with replacing(path) as beside:
            figure.savefig(beside, dpi=150, format="png", bbox_inches="tight")
        pyplot.close(figure)


def ranked(results: Comparison) -> list[str]:
    """Methods under their own rule of answering, the best at the finest level under the strongest mask first."""
    present = results.at(max(results.masks))
    others = {m for mask in results.masks for m in results.at(mask)} - set(present)
    return [*reversed(present), *sorted(others)]


def _style(i: int) -> dict[str, Any]:
    """Six colours, distinct also without red and green, times four line styles and six markers."""
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
    return {"color": colours[i % 6], "marker": MARKERS[(i // 6 + i) % 6], "linestyle": ("-", "--", ":", "-.")[i // 6 % 4]}


def _summary(results: Comparison, method: str, mask: float, level: str) -> tuple[float, float] | None:
    one = results.board.level
    values = [one.scale * v for v in results.get(method, mask, one.name, level)]
    return (mean(values), stdev(values) if len(values) > 1 else 0.0) if values else None


def _lines(pyplot: Any, results: Comparison, methods: Sequence[str]) -> Any:
    size = (3.6 * len(results.levels) + 1.6, max(4.2, 0.23 * len(methods) + 0.8))
    figure, panels = pyplot.subplots(1, len(results.levels), figsize=size, squeeze=False)
    masks = sorted(results.masks)
    gap = (masks[-1] - masks[0]) * 100
    for panel, level in zip(panels[0], results.levels, strict=True):
        for i, method in enumerate(methods):
            points = [(100 * m, *s) for m in masks if (s := _summary(results, method, m, level))]
            if points:
                shift = (i / max(len(methods) - 1, 1) - 0.5) * 0.02 * gap  # so that equal points do not overlap
                x, y, error = zip(*points, strict=True)
                panel.errorbar(
                    [v + shift for v in x], y, error, label=method, capsize=2, markersize=4, linewidth=1, **_style(i)
                )
        panel.set_title(f"{level}{results.samples(level)}", loc="left", color=INK)
        panel.set_xlabel("fine labels hidden, %")
        panel.set_xticks([100 * m for m in masks])
        panel.grid(axis="y", color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
    panels[0][0].set_ylabel(f"{results.board.level.axis(' on test samples')}  (± std over seeds)")
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="best at right first")
    figure.tight_layout()
    return figure


def _dots(pyplot: Any, results: Comparison, methods: Sequence[str]) -> Any:
    height = 1.2 + 0.26 * len(methods)
    figure, panels = pyplot.subplots(1, len(results.levels), figsize=(2.6 * len(results.levels) + 1.6, height), squeeze=False)
    mask = results.masks[0]
    for panel, level in zip(panels[0], results.levels, strict=True):
        for i, method in enumerate(methods):
            if found := _summary(results, method, mask, level):
                panel.errorbar(found[0], -i, xerr=found[1], capsize=2, markersize=4, color="#0072b2", marker="o")
        panel.set_title(f"{level}{results.samples(level)}", loc="left", color=INK)
        panel.set_yticks([-i for i in range(len(methods))], list(methods) if level == results.levels[0] else [])
        panel.set_xlabel(results.board.level.axis())
        panel.grid(color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
    figure.suptitle(f"{mask:.0%} of fine labels hidden, ± std over seeds", x=0.01, ha="left", fontsize=9)
    figure.tight_layout()
    return figure
