"""`lht calibrate`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from torchlht import console
from torchlht.answer.finding import GRAPH
from torchlht.commands.base import AskingArgs, RunPlace, command
from torchlht.data.options import DataPlace, OnErrorArgs, Word
from torchlht.doors import Count
from torchlht.errors import ConfigError
from torchlht.vocabulary import Split

if TYPE_CHECKING:
    from torchlht.answer.calibration import Calibration
    from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class CalibrateArgs(AskingArgs, OnErrorArgs):
    """Calibrate a run's probabilities."""

    run: Annotated[RunPlace, Word("RUN")]
    """A run directory; calibration.json is written into it."""
    data: Annotated[DataPlace | None, Word("DATA")] = None
    """Labelled samples that the run was not trained on; its own validation samples by default."""
    split: Split | None = None
    """Which part of the data; val by default, or everything if the data has no validation part."""
    folds: Count | None = None
    """Without validation samples: train this many more times, each time without one part of the training samples, and
    calibrate on the parts left out."""
    json: bool = False
    """Print the calibration as JSON."""


@command("calibrate", "with a trained model")
def run_calibrate(args: CalibrateArgs) -> None:
    """Calibrate a run on validation samples: 90 % should mean right nine times out of ten."""
    if (Path(args.run) / GRAPH).is_file():
        return calibrate_graph(args)
    from torchlht.answer.calibration import FILE
    from torchlht.answer.model import Model
    from torchlht.answer.records import TREE
    from torchlht.hierarchy.tree import Hierarchy
    from torchlht.learn.training import calibrate, cross_calibrate

    if args.folds is not None and (args.data or args.split):
        raise ConfigError("`folds` is for the run's own training samples: pass it without DATA and `split`")
    if args.folds is not None:
        found = cross_calibrate(args.run, args.folds, quiet=args.json)
    else:
        found = calibrate(
            args.run, args.data, split=args.split, on_error=args.on_error, workers=args.workers, device=args.accelerator
        )
    tree = Hierarchy.read(Path(args.run) / TREE)
    if args.json:
        print(json.dumps(found.to_dict(tree), indent=1))
        return
    console.say(calibration_text(found, tree, Model.from_pretrained(args.run).rule))
    console.say(f"saved in {Path(args.run) / FILE} · next: lht predict {args.run} FILE… --confidence 0.9")


def calibrate_graph(args: CalibrateArgs) -> None:
    """Calibrate a run whose classes may have several parents."""
    from torchlht.learn.several import calibrate_several

    if args.folds is not None:
        raise ConfigError("`folds` is for classes with one parent each; pass DATA, or train with `val`")
    found = calibrate_several(args.run, args.data, args.split, on_error=args.on_error)
    if args.json:
        print(json.dumps(found.to_dict(), indent=1))
        return
    lowest = found.risk.least_said()
    risk = f"the least --risk that can be promised is {lowest:g}" if lowest else "no --risk can be promised"
    console.say(f"temperature {found.temperature:.2f}, from {console.plural(found.samples, 'sample')}; {risk}")
    console.say(f"saved in {args.run} · next: lht predict {args.run} FILE… --confidence 0.9")


def calibration_text(found: Calibration, tree: Hierarchy, rule: str) -> str:
    """Text for the terminal: temperatures, and the least risk that can be promised for answers by a rule."""
    from torchlht.answer.calibration import FEW

    few = {k: "" if found.samples[k] >= FEW else " (too few labels)" for k in tree.top_down}
    temperatures = "  ".join(f"{tree.levels[k]} {found.temperatures[k]:.2f}{few[k]}" for k in tree.top_down)
    labels = " · ".join(f"{tree.levels[k]} {found.samples[k]:,}" for k in tree.top_down)
    lowest = found.risks[rule].least_said()
    risk = f"the least --risk that can be promised is {lowest:g}" if lowest else "no --risk can be promised"
    return f"temperatures: {temperatures}\nfitted to labels of the {found.source}: {labels}; {risk}"
