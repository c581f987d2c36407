"""Running an experiment: find its data, train its parts, put the figures beside the paper's, draw its pictures."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlht.errors import ConfigError, DataError
from torchlht.files import write_text
from torchlht.lab.benchmarks.prepare import prepare_benchmark, prepared_table
from torchlht.lab.comparison.contenders import run_name
from torchlht.lab.comparison.grid import compare
from torchlht.lab.comparison.results import read_results
from torchlht.lab.options import CompareArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import FROZEN, Arm, Experiment, Part, find_experiment
from torchlht.lab.reproduction.figures import DRAWINGS
from torchlht.lab.reproduction.lowshot import reproduce_lowshot
from torchlht.lab.reproduction.tables import Figure, document, part_figures, write_figures
from torchlht.learn.options import preset
from torchlht.show.figures.confusion import class_recalls, confusion_matrix
from torchlht.show.inputs import run_inputs


@dataclass(frozen=True)
class Reproduction:
    """An experiment under way.

    Attributes:
        experiment: which.
        args: the options.
        out: where everything goes.
        data: what is trained on, as `lht train` takes it.
    """

    experiment: Experiment
    args: ReproduceArgs
    out: Path
    data: str

    @property
    def features(self) -> bool:
        """Whether the data are features already."""
        return self.data.endswith(".npz")

    def seeds(self) -> int | str:
        """The seeds, as `lht compare` takes them."""
        return self.args.seeds if self.args.seeds is not None else self.experiment.seeds

    def comparison(self, part: Part) -> CompareArgs:
        """A part as `lht compare` would be told."""
        return CompareArgs(
            self.data,
            self.out / part.name,
            methods=",".join(arm.method for arm in part.arms_at(self.args.scale)),
            mask=",".join(f"{mask:g}" for mask in part.masks),
            seeds=self.seeds(),
            jobs=self.args.jobs,
            resume=self.args.resume and (self.out / part.name).exists(),
            **self.common(part),
        )

    def common(self, part: Part) -> dict[str, Any]:
        """The options of every run of a part."""
        options: dict[str, Any] = {"mask_rounding": "lht", **part.common}
        if self.args.scale == "full":
            options = preset("paper") | {"mask_seed": 10} | options
        else:
            options |= part.small
            if not self.features:
                options |= {"freeze": True, "backbone": self.args.backbone or options.get("backbone", FROZEN)}
        return options | ({"epochs": self.args.epochs} if self.args.epochs else {})

    def run(self, part: Part, arm: Arm, seed: int, mask: float | None = None) -> Path:
        """The run directory of an arm."""
        return self.out / part.name / "runs" / run_name(arm.method, part.masks[0] if mask is None else mask, seed)

    def how(self) -> str:
        """The scale and the data in a sentence."""
        data = f"the features of {Path(self.data).name}" if self.features else Path(self.data).name
        if not self.experiment.parts and not self.experiment.table:
            return f"Drawn from {data} and the archive it was prepared from; nothing is trained."
        if self.args.scale == "full":
            return f"Scale full: the paper's recipe (ResNet-50, 448 px, 200 epochs, the paper's masks) on {data}."
        frozen = data if self.features else f"features of a frozen {self.args.backbone or FROZEN} of {data}"
        long = f" for {self.args.epochs} epochs" if self.args.epochs else ""
        return (
            f"Scale small: the paper's protocol (split, masks, seeds, methods) on {frozen}, heads trained with this software's "
            f"defaults{long}. Not the paper's recipe: orders and differences can be compared, levels cannot."
        )

    def command(self) -> str:
        """What produced it, with the archive's own path left out."""
        root = [] if self.args.root is None else ["--root", self.args.root.name]
        given = {"--seeds": self.args.seeds, "--epochs": self.args.epochs, "--backbone": self.args.backbone}
        words = [str(word) for flag, value in given.items() if value is not None for word in (flag, value)]
        return shlex.join(["lht", "reproduce", self.experiment.name, *root, "--scale", self.args.scale, *words])


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
        model, data = run_inputs(run)
        recalls = class_recalls(confusion_matrix(model, data))
        for name, recall in zip(model.hierarchy.classes[0], recalls.tolist(), strict=True):
            found[name] = (*found.get(name, ()), recall)
    return found


def write_results(work: Reproduction, figures: Sequence[Figure], pictures: Sequence[str]) -> None:
    """table.csv and table.md."""
    if figures:
        write_figures(work.out / "table.csv", work.experiment, figures)
    text = document(work.experiment, figures, how=work.how(), command=work.command(), pictures=pictures)
    write_text(work.out / "table.md", text)
