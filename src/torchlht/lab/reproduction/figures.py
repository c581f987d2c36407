"""The pictures of the paper, drawn from the runs of an experiment. Each function gives what a document says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev

from matplotlib.figure import Figure

from torchlht.data.batches import load
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import find_base
from torchlht.lab.comparison.results import Comparison, read_results
from torchlht.lab.reproduction.work import Reproduction
from torchlht.measure.evaluation import run_inputs
from torchlht.show.figures.attributes import attribute_figure, cosine_similarity, read_class_attributes, similarity_test
from torchlht.show.figures.confusion import confusion_figure, confusion_matrix
from torchlht.show.figures.curves import gamma_figure
from torchlht.show.figures.gradcam import gradcam_figure
from torchlht.show.figures.transitions import transition_figure, transition_panels
from torchlht.show.look import look, panels, save_figure

SHOWN = 4  # pictures in a figure of examples


def draw_sweep(work: Reproduction) -> list[str]:
    """Accuracy at the finest level against the option that is swept."""
    [part] = work.experiment.parts
    figure = sweep_figure(read_results(work.out / part.name), [arm.method for arm in part.arms_at(work.args.scale)])
    return [saved(figure, work.out / "sweep.png")]


def sweep_figure(results: Comparison, labels: Sequence[str]) -> Figure:
    """A line per family of contenders that differ in their last option, its values in the order they are listed in."""
    families: dict[str, list[str]] = {}
    for label in labels:
        families.setdefault(label.rpartition(":")[0], []).append(label)
    ticks = list(dict.fromkeys(label.rpartition("=")[2] for label in labels))
    option = labels[0].rpartition(":")[2].partition("=")[0]
    with look() as now:
        figure, [[axes]] = panels(1, 1, (4.6, 2.8), margin=(0.8, 0.7, 2.4, 0.5))
        for i, (name, members) in enumerate(families.items()):
            points = [(label, results.get(label, results.masks[0], "accuracy")) for label in members]
            seen = [(ticks.index(label.rpartition("=")[2]), [100 * x for x in values]) for label, values in points if values]
            axes.errorbar(
                [x + 0.04 * i for x, _ in seen],  # beside each other where they are equal
                [mean(values) for _, values in seen],
                [stdev(values) if len(values) > 1 else 0 for _, values in seen],
                label=name,
                color=now.colours[i],
                marker="osD"[i],
                capsize=2,
                markersize=4,
                linewidth=1,
            )
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_xlabel(option)
        axes.set_ylabel(f"{results.levels[-1]}, % of test samples")
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        axes.set_title(f"{results.masks[0]:.0%} of fine labels hidden, ± std over seeds")
    return figure


def draw_confusion(work: Reproduction) -> list[str]:
    """Confusion matrices of the first seed, side by side."""
    [part] = work.experiment.parts
    matrices, tree = {}, None
    for arm in part.arms_at(work.args.scale):
        model, _, data = run_inputs(first_run(work, arm.method))
        matrices[arm.method], tree = confusion_matrix(model, data), model.hierarchy
    assert tree is not None
    return [saved(confusion_figure(matrices, tree), work.out / "confusion.png")]


def draw_transitions(work: Reproduction) -> list[str]:
    """S² beside T² of LHT as published and as it is by default: of single images, over a class, over all."""
    written = []
    for arm in work.experiment.parts[0].arms_at(work.args.scale):
        model, _, data = run_inputs(first_run(work, arm.method))
        images = spaced(len(data), 2)
        titled = transition_panels(model, data, images=images, classes=[int(data.labels[images[0], 0])])
        figure = transition_figure(model.hierarchy, titled, title=arm.method)
        written.append(saved(figure, work.out / f"transitions-{arm.method.partition(':')[0]}.png"))
    return written


def draw_grad_cam(work: Reproduction) -> list[str]:
    """What each level's answer rests on, for a few test pictures."""
    written = []
    for arm in work.experiment.parts[0].arms_at(work.args.scale):
        model, _, data = run_inputs(first_run(work, arm.method), pictures=True)
        chosen = spaced(len(data), SHOWN)
        x, labels = next(load(data, [chosen], workers=0))
        figure = gradcam_figure(model, x, labels=labels, title=f"Grad-CAM of the answer at each level, {arm.method}")
        written.append(saved(figure, work.out / f"grad-cam-{arm.method.partition(':')[0]}.png"))
    return written


def draw_gamma(work: Reproduction) -> list[str]:
    """γ over the epochs, every seed."""
    [part] = work.experiment.parts
    written = []
    for arm in part.arms_at(work.args.scale):
        runs = [work.run(part, arm, seed) for seed in work.comparison(part).seed_list()]
        name = f"gamma-{arm.method.partition(':')[0]}.png"
        written.append(saved(gamma_figure(runs, title=arm.method), work.out / name))
    return written


def draw_attributes(work: Reproduction) -> list[str]:
    """Similarity of species by their attributes, in the order of the tree, and how it follows the tree."""
    assert work.args.root is not None
    tree = Hierarchy.read(Path(work.data).with_name("hierarchy.json"))
    archive = find_base(work.args.root, ("CUB_200_2011", "."), ("classes.txt",))
    similarity = cosine_similarity(read_class_attributes(archive, tree), tree)
    groups = similarity_test(similarity, tree)
    lines = [
        f"- {g.name}: {g.pairs:,} pairs, mean cosine {g.mean:.3f}; shuffled {g.chance[1]:.3f}, p = {g.p:.1g}" for g in groups
    ]
    return [saved(attribute_figure(similarity, tree, groups), work.out / "attributes.png"), "\n".join(lines)]


def saved(figure: Figure, path: Path) -> str:
    """Write a picture; gives how a document beside it shows it."""
    return f"![{path.stem}]({save_figure(figure, path).name})"


def first_run(work: Reproduction, method: str) -> Path:
    """The run of a method with the first seed, in the first part."""
    part = work.experiment.parts[0]
    [arm] = [arm for arm in part.arms if arm.method == method]
    return work.run(part, arm, work.comparison(part).seed_list()[0])


def spaced(n: int, count: int) -> list[int]:
    """So many positions out of n, evenly spaced, none at the ends."""
    count = min(count, n)
    return [(2 * i + 1) * n // (2 * count) for i in range(count)]


DRAWINGS: dict[str, Callable[[Reproduction], list[str]]] = {
    "sweep": draw_sweep,
    "confusion": draw_confusion,
    "transitions": draw_transitions,
    "grad_cam": draw_grad_cam,
    "gamma": draw_gamma,
    "attributes": draw_attributes,
}
