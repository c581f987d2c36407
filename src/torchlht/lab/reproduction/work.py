"""An experiment under way: what its runs are told, where they are, and how a document names them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlht.lab.comparison.contenders import run_name
from torchlht.lab.options import CompareArgs, ReproduceArgs
from torchlht.lab.reproduction.experiments import FROZEN, Arm, Experiment, Part
from torchlht.learn.options import preset


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
