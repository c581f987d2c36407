"""Running an experiment: find its data, train its parts, compare with the paper's figures, draw its pictures."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from torchlht.data.batches import load
from torchlht.errors import ConfigError, DataError
from torchlht.files import write_text
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import find_base
from torchlht.lab.benchmarks.prepare import prepare_benchmark, prepared_table
from torchlht.lab.comparison.contenders import run_name
from torchlht.lab.comparison.grid import SETTINGS, compare
from torchlht.lab.comparison.results import Comparison, read_results, verdicts
from torchlht.lab.lowshot.running import lowshot
from torchlht.lab.options import CompareArgs, LowshotArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import FROZEN, MEDIUM, Arm, Experiment, Part, find_experiment
from torchlht.lab.reproduction.subset import write_subset
from torchlht.lab.reproduction.tables import Cell, PaperFigure, document, paper_figures, part_figures, write_figures
from torchlht.learn.options import preset
from torchlht.measure.evaluation import run_inputs
from torchlht.show.figures.attributes import attribute_figure, cosine_similarity, read_class_attributes, similarity_test
from torchlht.show.figures.confusion import class_recalls, confusion_figure, confusion_matrix
from torchlht.show.figures.curves import gamma_figure
from torchlht.show.figures.gradcam import gradcam_figure
from torchlht.show.figures.transitions import transition_figure, transition_panels
from torchlht.show.look import look, panels, save_figure


@dataclass(frozen=True)
class Reproduction:
    """An experiment in progress.

    Attributes:
        experiment: the experiment.
        args: the options.
        out: its directory.
        data: the data to train on, as `lht train` takes it.
    """

    experiment: Experiment
    args: ReproduceArgs
    out: Path
    data: str

    @property
    def features(self) -> bool:
        """Whether the data are features."""
        return self.data.endswith(".npz")

    def seeds(self, part: Part) -> int | str:
        """The seeds of a part, as `lht compare` takes them."""
        return self.args.seeds if self.args.seeds is not None else part.seeds or self.experiment.seeds

    def wanted(self, part: Part) -> bool:
        """Whether a part is to be run."""
        return self.args.parts is None or part.name.startswith(tuple(self.args.part_names()))

    def table(self, part: Part) -> str:
        """The data of a part: all, or the table of a subset, which `run_part` writes."""
        return self.data if part.siblings is None else str(self.out / "data" / "subset.csv")

    def comparison(self, part: Part) -> CompareArgs:
        """The options of `lht compare` for a part."""
        return CompareArgs(
            self.table(part),
            self.out / part.name,
            methods=",".join(arm.method for arm in part.arms_at(self.args.scale)),
            mask=",".join(f"{mask:g}" for mask in part.masks),
            seeds=self.seeds(part),
            jobs=self.args.jobs,
            resume=self.args.resume and (self.out / part.name).exists(),
            **self.common(part),
        )

    def common(self, part: Part) -> dict[str, Any]:
        """The options of every run of a part."""
        options: dict[str, Any] = {"mask_rounding": "lht", **part.common}
        if self.args.scale == "full":
            options = preset("paper") | {"mask_seed": 10} | options
        elif self.args.scale == "medium":
            options |= {"backbone": self.args.backbone or FROZEN, **MEDIUM}
        else:
            options |= part.small
            if not self.features:
                options |= {"freeze": True, "backbone": self.args.backbone or options.get("backbone", FROZEN)}
        return options | ({"epochs": self.args.epochs} if self.args.epochs else {})

    def run(self, part: Part, arm: Arm, seed: int, mask: float | None = None) -> Path:
        """The run directory of an arm."""
        return self.out / part.name / "runs" / run_name(arm.method, part.masks[0] if mask is None else mask, seed)

    def how(self) -> str:
        """One sentence about the scale and the data."""
        data = f"the features of {Path(self.data).name}" if self.features else Path(self.data).name
        if not self.experiment.parts and not self.experiment.table:
            return f"Drawn from {data} and the archive it was prepared from; nothing is trained."
        if self.args.scale == "full":
            return f"Scale full: the paper's recipe (ResNet-50, 448 px, 200 epochs, the paper's masks) on {data}."
        if self.args.scale == "medium":
            return self.how_medium(data)
        frozen = data if self.features else f"features of a frozen {self.args.backbone or FROZEN} of {data}"
        long = f" for {self.args.epochs} epochs" if self.args.epochs else ""
        return (
            f"Scale small: the paper's protocol (split, masks, seeds, methods) on {frozen}, heads trained with this software's "
            f"defaults{long}. Not the paper's recipe: orders and differences can be compared, levels cannot."
        )

    def how_medium(self, data: str) -> str:
        """One paragraph about medium scale: what trains, with what, and on which classes."""
        options = MEDIUM | ({"epochs": self.args.epochs} if self.args.epochs else {})
        named = ", ".join(f"{name} {' '.join(value) if name == 'option' else value}" for name, value in options.items())
        subsets = {part.siblings for part in self.experiment.parts if part.siblings}
        rule = "".join(f" The subset is all classes whose parent has {a} to {b} of them." for a, b in subsets)
        network = self.args.backbone or FROZEN
        return (
            f"Scale medium: the paper's protocol (split, masks, seeds) on {data}, with a pretrained {network} whose last "
            f"stages train; the same options for every method ({named}).{rule} Not the paper's recipe: orders and "
            "differences can be compared, levels cannot. The paper's figures are of all classes, beside the subset, too."
        )

    def command(self) -> str:
        """The command that produced it, without the path of the archive."""
        root = [] if self.args.root is None else ["--root", self.args.root.name]
        given = {
            "--parts": self.args.parts,
            "--seeds": self.args.seeds,
            "--epochs": self.args.epochs,
            "--backbone": self.args.backbone,
        }
        words = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
        return shlex.join(["lht", "reproduce", self.experiment.name, *root, "--scale", self.args.scale, *words])


SHOWN = 4  # pictures in a figure of examples


def draw_sweep(work: Reproduction) -> list[str]:
    """Draw accuracy at the finest level against the swept option."""
    [part] = work.experiment.parts
    figure = sweep_figure(read_results(work.out / part.name), [arm.method for arm in part.arms_at(work.args.scale)])
    return [saved(figure, work.out / "sweep.png")]


def sweep_figure(results: Comparison, labels: Sequence[str]) -> Figure:
    """One line per group of contenders that differ only in their last option, with its values in the given order."""
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
                [x + 0.04 * i for x, _ in seen],  # side by side if they are equal
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
        axes.set_ylabel(f"{results.levels[-1]}, % of test samples{results.samples(results.levels[-1])}")
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
    """Draw S² next to T² of LHT as published and by default: for single images, a class, and all samples."""
    written = []
    for arm in work.experiment.parts[0].arms_at(work.args.scale):
        model, _, data = run_inputs(first_run(work, arm.method))
        images = spaced(len(data), 2)
        titled = transition_panels(model, data, images=images, classes=[int(data.labels[images[0], 0])])
        figure = transition_figure(model.hierarchy, titled, title=arm.method)
        written.append(saved(figure, work.out / f"transitions-{arm.method.partition(':')[0]}.png"))
    return written


def draw_grad_cam(work: Reproduction) -> list[str]:
    """Draw Grad-CAM at each level, for a few test pictures."""
    written = []
    for arm in work.experiment.parts[0].arms_at(work.args.scale):
        model, _, data = run_inputs(first_run(work, arm.method), pictures=True)
        chosen = spaced(len(data), SHOWN)
        x, labels = next(load(data, [chosen], workers=0))
        figure = gradcam_figure(model, x, labels=labels, title=f"Grad-CAM of the answer at each level, {arm.method}")
        written.append(saved(figure, work.out / f"grad-cam-{arm.method.partition(':')[0]}.png"))
    return written


def draw_gamma(work: Reproduction) -> list[str]:
    """Draw γ over the epochs, for every seed."""
    [part] = work.experiment.parts
    written = []
    for arm in part.arms_at(work.args.scale):
        runs = [work.run(part, arm, seed) for seed in work.comparison(part).seed_list()]
        name = f"gamma-{arm.method.partition(':')[0]}.png"
        written.append(saved(gamma_figure(runs, title=arm.method), work.out / name))
    return written


def draw_attributes(work: Reproduction) -> list[str]:
    """Draw the similarity of species by their attributes in the order of the tree, and test how it follows the tree."""
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
    """Write a picture; returns its Markdown link."""
    return f"![{path.stem}]({save_figure(figure, path).name})"


def first_run(work: Reproduction, method: str) -> Path:
    """The run of a method with the first seed, in the first part."""
    part = work.experiment.parts[0]
    [arm] = [arm for arm in part.arms if arm.method == method]
    return work.run(part, arm, work.comparison(part).seed_list()[0])


def spaced(n: int, count: int) -> list[int]:
    """`count` positions out of n, evenly spaced, none at the ends."""
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


LOWSHOT = tuple(Arm(name.lower(), name) for name in ("NN", "SGM", "PPA", "LSD", "KT", "LHT"))


def reproduce(args: ReproduceArgs) -> Path:
    """Reproduce a table or figure of the paper; returns the directory with table.md, table.csv, the pictures and the runs.

    >>> reproduce(ReproduceArgs("cub-main", root=Path("CUB_200_2011")))

    Raises:
        LHTError: when the name is unknown, or the data is missing or wrong, before training.
    """
    experiment = find_experiment(args.name).at(args.scale)
    check_parts(experiment, args)
    out = args.out or Path("runs") / f"{args.name}-{args.scale}"
    work = Reproduction(experiment, args, out, find_data(experiment, args, out))
    if experiment.data == "ilsvrc-lowshot":
        figures = reproduce_lowshot(work.experiment, args, out, work.data)
    else:
        for part in filter(work.wanted, experiment.parts):
            run_part(work, part)
        figures = [figure for part in experiment.parts if finished(work, part) for figure in figures_of(work, part)]
    pictures = DRAWINGS[experiment.draw](work) if experiment.draw else []
    write_results(work, figures, pictures)
    return out


def check_parts(experiment: Experiment, args: ReproduceArgs) -> None:
    """Raise ConfigError if it has no parts of the names that are asked for."""
    names = [part.name for part in experiment.parts]
    for word in args.part_names():
        if not any(name.startswith(word) for name in names):
            raise ConfigError(f"`parts={args.parts}`: {experiment.name} has {', '.join(names) or 'no parts'} at this scale")


def find_data(experiment: Experiment, args: ReproduceArgs, out: Path) -> str:
    """The data to train on: prepared from the archive at --root, named by --root, or prepared earlier by name.

    Raises:
        ConfigError: when pictures are needed and features are given.
        DataError: when there is no data, or the archive is wrong.
    """
    if args.root is None:
        return str(prepared_table(experiment.data))
    if not args.root.exists():
        raise DataError(f"{args.root}: no such file or folder; `root` is the {experiment.data} archive, a table, or an .npz")
    if args.root.is_file() and (experiment.pictures or args.scale == "medium") and args.root.suffix == ".npz":
        raise ConfigError(f"{experiment.name} needs pictures: pass the {experiment.data} archive with `root`, not features")
    if args.root.is_file():
        return str(args.root)
    tree = "published" if experiment.data == "cub" else "default"
    return str(prepare_benchmark(experiment.data, args.root, out / "data", tree=tree))


def run_part(work: Reproduction, part: Part) -> None:
    """Train what is not trained yet."""
    if part.siblings is not None:
        write_subset(work.data, Path(work.table(part)), *part.siblings)
    compare(work.comparison(part))


def finished(work: Reproduction, part: Part) -> bool:
    """Whether a part has results with these options: it was run now, or before."""
    options = work.comparison(part)
    done = (options.out / "results.csv").is_file() and (options.out / SETTINGS).is_file()
    return done and options.continues(options.kept_settings(options.out / SETTINGS))


def figures_of(work: Reproduction, part: Part) -> list[PaperFigure]:
    """The figures of a finished part."""
    options = work.comparison(part)
    shown = dataclasses.replace(part, arms=part.arms_at(work.args.scale))
    recalls = {}
    if any(measure.where == "classes" for measure in work.experiment.measures):
        for mask in part.masks:
            for arm in shown.arms:
                runs = [work.run(part, arm, seed, mask) for seed in options.seed_list()]
                recalls[arm.method, mask] = recall_by_class(runs)
    return list(part_figures(work.experiment, shown, read_results(options.out), recalls))


def recall_by_class(runs: Sequence[Path]) -> dict[str, tuple[float, ...]]:
    """Recall of each finest class on a run's test samples, one value per run."""
    found: dict[str, tuple[float, ...]] = {}
    for run in runs:
        model, _, data = run_inputs(run)
        recalls = class_recalls(confusion_matrix(model, data))
        for name, recall in zip(model.hierarchy.classes[0], recalls.tolist(), strict=True):
            found[name] = (*found.get(name, ()), recall)
    return found


def lowshot_options(args: ReproduceArgs, out: Path, data: str) -> LowshotArgs:
    """The options of `lht lowshot`: train ResNet-50 at full scale, a layer on a frozen network's features at small scale."""
    options: dict[str, Any] = {"backbone": "resnet50", "image_size": 224}
    if args.scale == "small":
        options = {} if data.endswith(".npz") else {"backbone": args.backbone or FROZEN, "freeze": True}
    if args.epochs:
        options["epochs"] = args.epochs
    if (targets := Path(data).with_name("targets.txt")).is_file():
        options["target"] = str(targets)
    seeds = int(args.seeds) if args.seeds is not None else 1
    return LowshotArgs(data, out / "lowshot", seeds=seeds, resume=args.resume and (out / "lowshot").exists(), **options)


def reproduce_lowshot(experiment: Experiment, args: ReproduceArgs, out: Path, data: str) -> list[PaperFigure]:
    """Run low-shot learning; compare with the paper's figures if the classes are the paper's."""
    options = lowshot_options(args, out, data)
    results = lowshot(options)
    official = not options.target.isdecimal()
    figures = []
    for shots in results.shots:
        for arm in LOWSHOT:
            place = Cell(experiment.table, f"K={shots}", "target", arm.paper, "top-5")
            values = tuple((results.values[arm.method, shots].mean(axis=0) / 100).tolist())
            figures.append(
                PaperFigure(f"K={shots}", "target", "top-5", arm, values, paper_figures()[place] if official else None)
            )
    return figures


def judged_lines(work: Reproduction) -> list[str]:
    """Which differences exceed noise, in each part that has finished."""
    done = [part for part in work.experiment.parts if finished(work, part)]
    return [f"{part.name}: {one.text()}" for part in done for one in verdicts(read_results(work.out / part.name))]


def write_results(work: Reproduction, figures: Sequence[PaperFigure], pictures: Sequence[str]) -> None:
    """Write table.csv and table.md."""
    if figures:
        write_figures(work.out / "table.csv", work.experiment, figures)
    judged = judged_lines(work) if work.args.scale == "medium" else []
    text = document(work.experiment, figures, how=work.how(), command=work.command(), pictures=pictures, judged=judged)
    write_text(work.out / "table.md", text)
