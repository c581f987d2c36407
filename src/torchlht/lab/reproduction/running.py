"""Running an experiment: find its data, train its parts, put the figures beside the paper's, draw its pictures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlht.errors import ConfigError, DataError
from torchlht.files import write_text
from torchlht.lab.benchmarks.prepare import prepare_benchmark, prepared_table
from torchlht.lab.comparison.grid import compare
from torchlht.lab.comparison.results import read_results
from torchlht.lab.lowshot.running import lowshot
from torchlht.lab.options import LowshotArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import FROZEN, Arm, Experiment, Part, find_experiment
from torchlht.lab.reproduction.figures import DRAWINGS
from torchlht.lab.reproduction.tables import Cell, Figure, document, paper_figures, part_figures, write_figures
from torchlht.lab.reproduction.work import Reproduction
from torchlht.measure.evaluation import run_inputs
from torchlht.show.figures.confusion import class_recalls, confusion_matrix

LOWSHOT = tuple(Arm(name.lower(), name) for name in ("NN", "SGM", "PPA", "LSD", "KT", "LHT"))


def reproduce(args: ReproduceArgs) -> Path:
    """Run a table or figure of the paper again; gives the directory with table.md, table.csv, the pictures and the runs.

    >>> reproduce(ReproduceArgs("cub-main", root=Path("CUB_200_2011")))

    Raises:
        LHTError: for an unknown name, or data that is missing or wrong, before anything is trained.
    """
    experiment = find_experiment(args.name)
    out = args.out or Path("runs") / f"{args.name}-{args.scale}"
    work = Reproduction(experiment, args, out, find_data(experiment, args, out))
    if experiment.data == "ilsvrc-lowshot":
        figures = reproduce_lowshot(work.experiment, args, out, work.data)
    else:
        figures = [figure for part in experiment.parts for figure in run_part(work, part)]
    pictures = DRAWINGS[experiment.draw](work) if experiment.draw else []
    write_results(work, figures, pictures)
    return out


def find_data(experiment: Experiment, args: ReproduceArgs, out: Path) -> str:
    """What to train on: the archive under --root made ready, or what --root names, or what was prepared by name.

    Raises:
        ConfigError: for features where pictures are needed.
        DataError: when there is nothing, or for whatever is wrong with the archive.
    """
    if args.root is None:
        return str(prepared_table(experiment.data))
    if not args.root.exists():
        raise DataError(f"{args.root}: no such file or folder; `root` is the {experiment.data} archive, a table, or an .npz")
    if args.root.is_file() and experiment.pictures and args.root.suffix == ".npz":
        raise ConfigError(f"{experiment.name} needs pictures: pass the {experiment.data} archive with `root`, not features")
    if args.root.is_file():
        return str(args.root)
    tree = "published" if experiment.data == "cub" else "default"
    return str(prepare_benchmark(experiment.data, args.root, out / "data", tree=tree))


def run_part(work: Reproduction, part: Part) -> list[Figure]:
    """Train what is not trained yet and read it off."""
    options = work.comparison(part)
    compare(options)
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
    """What `lht lowshot` is told: at full scale ResNet-50 is trained, at small scale a layer on a frozen network's features."""
    options: dict[str, Any] = {"backbone": "resnet50", "image_size": 224}
    if args.scale == "small":
        options = {} if data.endswith(".npz") else {"backbone": args.backbone or FROZEN, "freeze": True}
    if args.epochs:
        options["epochs"] = args.epochs
    if (targets := Path(data).with_name("targets.txt")).is_file():
        options["target"] = str(targets)
    seeds = int(args.seeds) if args.seeds is not None else 1
    return LowshotArgs(data, out / "lowshot", seeds=seeds, resume=args.resume and (out / "lowshot").exists(), **options)


def reproduce_lowshot(experiment: Experiment, args: ReproduceArgs, out: Path, data: str) -> list[Figure]:
    """Run it, and put it beside the paper's figures where the classes are the paper's."""
    options = lowshot_options(args, out, data)
    results = lowshot(options)
    official = not options.target.isdecimal()
    figures = []
    for shots in results.shots:
        for arm in LOWSHOT:
            place = Cell(experiment.table, f"K={shots}", "target", arm.paper, "top-5")
            values = tuple((results.values[arm.method, shots].mean(axis=0) / 100).tolist())
            figures.append(Figure(f"K={shots}", "target", "top-5", arm, values, paper_figures()[place] if official else None))
    return figures


def write_results(work: Reproduction, figures: Sequence[Figure], pictures: Sequence[str]) -> None:
    """table.csv and table.md."""
    if figures:
        write_figures(work.out / "table.csv", work.experiment, figures)
    text = document(work.experiment, figures, how=work.how(), command=work.command(), pictures=pictures)
    write_text(work.out / "table.md", text)
