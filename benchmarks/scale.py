"""What the transition costs: time and peak memory of a training step of the head, against a multi-head and the textbook form.

    make bench        or        python benchmarks/scale.py [--trees CUB,1000,iNat] [--rounds 20] [--growth]

One thread. For time, all forms of a tree take turns in one process, and medians are compared; for memory, each has a process
of its own, so that its peak is its own. "Textbook" is the published formula in plain autograd: T = softmax(Q Lᵀ + γ S)
with a dense S, p = T p, log p. Memory is the peak of a step, less weights, their gradients and the inputs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchlht
from torchlht.heads.method import Neck
from torchlht.heads.prediction import Prediction

TREES = {
    "CUB": (200, 38, 13),
    "1000": (1000, 100, 10),
    "iNat": (10000, 4884, 1103, 273, 51, 13, 3),
}
BATCHES = {"CUB": (8, 32, 128), "1000": (8, 128), "iNat": (8, 64)}
HEADS = ("multihead", "textbook", "plain", "tiled", "truncated", "auto")
FITTING = ("multihead", "tiled", "truncated", "auto")  # where a matrix per sample is too much: 36 GB for iNat and 64 samples
WIDTH = 1280


class Textbook(torchlht.Method):
    """LHT as the formula has it, for comparison only."""

    def __init__(self, in_features: int, hierarchy: torchlht.Hierarchy) -> None:
        super().__init__(in_features, hierarchy)
        self.neck = Neck(in_features, len(hierarchy))
        self.classifier = nn.Linear(self.neck.width, hierarchy.sizes[0])
        self.left = nn.ModuleList(nn.Linear(self.neck.width, 2 * n) for n in hierarchy.sizes[:-1])
        self.right = nn.ModuleList(nn.Linear(self.neck.width, 2 * n) for n in hierarchy.sizes[1:])
        self.gamma = nn.Parameter(torch.full((len(hierarchy) - 1,), 6.0))
        for k in range(len(hierarchy) - 1):
            self.register_buffer(f"s{k}", torch.from_numpy(hierarchy.matrix(k)).float(), persistent=False)

    def forward(self, features: Tensor) -> Prediction:
        fine, *coarser = self.neck(features)
        p = torch.softmax(self.classifier(fine), dim=1)
        found = [p.log()]
        for k, u in enumerate(coarser):
            left, right = (layer(u).view(len(u), -1, 2) for layer in (self.left[k], self.right[k]))
            t = torch.softmax(right @ left.mT + self.gamma[k] * self.get_buffer(f"s{k}"), dim=1)
            p = (t @ p.unsqueeze(2)).squeeze(2)
            found.append(p.log())
        return Prediction(tuple(found))


def tree(sizes: tuple[int, ...]) -> torchlht.Hierarchy:
    parents = [np.arange(below) * above // below for below, above in pairwise(sizes)]
    return torchlht.Hierarchy.from_parents(parents)


def make(head: str, sizes: tuple[int, ...], batch: int) -> tuple[Any, Tensor, Tensor]:
    torch.manual_seed(0)
    classes = tree(sizes)
    if head == "textbook":
        module: Any = Textbook(WIDTH, classes)
    elif head == "multihead":
        module = torchlht.create_method("multihead", WIDTH, classes)
    else:
        module = torchlht.create_method("lht", WIDTH, classes, form=head)
    leaves = torch.randint(sizes[0], (batch,))
    labels = torch.stack([torch.from_numpy(classes.ancestors(k))[leaves] for k in range(len(sizes))], dim=1)
    return module, torch.randn(batch, WIDTH), labels


def step(module: Any, x: Tensor, y: Tensor) -> None:
    module.zero_grad()
    module.loss(module(x), y).backward()


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status: peak memory is measured on Linux only")


def time_steps(heads: list[str], name: str, batch: int, rounds: int) -> dict[str, float]:
    """Median seconds of a step, of forms that take turns of a few steps each."""
    made = {head: make(head, sizes_of(name), batch) for head in heads}
    times: dict[str, list[float]] = {head: [] for head in heads}
    for several in made.values():
        step(*several)
    for _ in range(rounds):
        for head, several in made.items():
            for _ in range(5 if rounds > 5 else 1):
                started = time.perf_counter()
                step(*several)
                times[head].append(time.perf_counter() - started)
    return {head: statistics.median(found) for head, found in times.items()}


def peak_of_step(head: str, name: str, batch: int) -> float:
    """Megabytes that a step takes besides weights, gradients and inputs; only in a process of its own."""
    module, x, y = make(head, sizes_of(name), batch)
    step(module, x[:2], y[:2])  # what libraries allocate once
    module.zero_grad()
    gradients = sum(parameter.nbytes for parameter in module.parameters())
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
    before = peak_bytes()
    step(module, x, y)
    step(module, x, y)
    return max(0, peak_bytes() - before - gradients) / 2**20


def sizes_of(name: str) -> tuple[int, ...]:
    return TREES.get(name) or tuple(int(n) for n in name.split("/"))


def run(*words: str) -> Any:
    """One of the two above, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--one", *words], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", default="CUB,1000,iNat")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.one:
        heads, name, batch, *rounds = args.one
        answer: Any = (
            time_steps(heads.split(","), name, int(batch), int(rounds[0])) if rounds else peak_of_step(heads, name, int(batch))
        )
        print(json.dumps(answer))
        return
    print("| tree | batch | head | time, × textbook | time, × multihead | ms per step | MB per sample | MB in all |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.trees.split(","):
        for batch in BATCHES[name]:
            large = name == "iNat"
            heads = FITTING if large and batch > 8 else HEADS
            seconds = run(",".join(heads), name, str(batch), str(3 if large else args.rounds))
            for head in heads:
                memory = run(head, name, str(batch))
                ratios = [
                    f"{seconds[head] / seconds[other]:.3g}" if other in seconds else "–" for other in ("textbook", "multihead")
                ]
                row = [*ratios, f"{1000 * seconds[head]:.1f}", f"{memory / batch:.2f}", f"{memory:.0f}"]
                print(f"| {'/'.join(map(str, TREES[name]))} | {batch} | {head} | {' | '.join(row)} |", flush=True)
    if args.growth:
        print("\n| classes | ms per step, multihead | tiled | truncated |\n|---|---|---|---|")
        for n in (1000, 2000, 4000, 8000, 16000):
            name = f"{n}/{n // 4}/{n // 40}"
            seconds = run("multihead,tiled,truncated", name, "8", "5")
            print(f"| {name} | " + " | ".join(f"{1000 * one:.1f}" for one in seconds.values()) + " |", flush=True)


if __name__ == "__main__":
    main()
