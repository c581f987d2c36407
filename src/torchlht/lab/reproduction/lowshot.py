"""The low-shot table of the paper, by `lht lowshot`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlht.lab.lowshot.running import lowshot
from torchlht.lab.options import LowshotArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import FROZEN, Arm, Experiment
from torchlht.lab.reproduction.paper import Cell, paper_figures
from torchlht.lab.reproduction.tables import Figure

ARMS = tuple(Arm(name.lower(), name) for name in ("NN", "SGM", "PPA", "LSD", "KT", "LHT"))


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
        for arm in ARMS:
            place = Cell(experiment.table, f"K={shots}", "target", arm.paper, "top-5")
            values = tuple((results.values[arm.method, shots].mean(axis=0) / 100).tolist())
            figures.append(Figure(f"K={shots}", "target", "top-5", arm, values, paper_figures()[place] if official else None))
    return figures
