"""Accuracy against the number of examples, with a band for the interval of each method."""

from __future__ import annotations

from pathlib import Path

from torchlht.files import replacing
from torchlht.lab.comparison.plot import FAINT, INK, _style
from torchlht.lab.lowshot.results import LowshotResults


def draw_accuracy(results: LowshotResults, path: Path) -> None:
    """Write a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK}):
        figure, panel = pyplot.subplots(figsize=(5.2, 4.0))
        for i, method in enumerate(reversed(results.methods)):
            figures = [results.figure(method, k) for k in results.shots]
            means, halves = [f.mean for f in figures], [f.half for f in figures]
            (line,) = panel.plot(results.shots, means, label=method, markersize=4, linewidth=1.2, **_style(i))
            low, high = ([m + sign * h for m, h in zip(means, halves, strict=True)] for sign in (-1, 1))
            panel.fill_between(results.shots, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        panel.set_xticks(results.shots)
        panel.set_xlabel("examples of each new class")
        panel.set_ylabel(f"top-{results.top} accuracy, %  (band: 95 % interval)")
        panel.grid(axis="y", color=FAINT, linewidth=0.6)
        panel.set_axisbelow(True)
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, title="best first")
        with replacing(path) as beside:
            figure.savefig(beside, dpi=150, format="png", bbox_inches="tight")
        pyplot.close(figure)
