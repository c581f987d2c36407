"""Ten thousand classes, the same time for every method: what does each know at every rank?

    python benchmarks/ten_thousand.py FOLDER [--seconds even=300,uneven=140] [--seeds 2] [--methods lht,multihead]
                                              [--cores 0,1] [--sets even,uneven]

Two made-up sets (`large.py`), 90 % of species labels hidden. The time is that of one epoch of `lht` without its start from
class means and with γ₀ = 6, as it was before it had them; measured, or given in seconds for each set. A method gets as many
epochs as fit, at least one, with a schedule over exactly these; hiclass, which has no epochs, is stopped when the time is up.
Time is the processor's, of one thread pinned to one core, from reading the data to the last step, without the test: so it
hardly depends on what else the machine does. Runs that the folder holds already are not made again.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from large import EVEN, UNEVEN, make, make_uneven

SETS = {"even": (make, EVEN), "uneven": (make_uneven, UNEVEN)}
BEFORE = "lht:start=random:gamma=6"
AT_ONCE = ("hiclass",)


def one_run(folder: Path, data: str, method: str, *, seed: int, epochs: int, limit: float) -> None:
    """In a process of its own: train, write how long it took, and measure."""
    import torch

    import torchlht
    from torchlht.measure.evaluation import evaluate

    torch.set_num_threads(1)
    name, *options = method.split(":")
    common: dict[str, Any] = {"mask": 0.9, "seed": seed, "test": False, "track": False, "quiet": True}
    args = torchlht.TrainArgs(data, folder / "run", method=name, option=tuple(options), epochs=epochs, **common)
    started = time.process_time()
    if limit:
        resource.setrlimit(resource.RLIMIT_CPU, (round(started + limit), resource.RLIM_INFINITY))
    run = torchlht.train(args)
    seconds = time.process_time() - started
    resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    levels = {level["name"]: 100 * level["accuracy"] for level in evaluate(run)["levels"]}
    beside = folder / "result.part"
    beside.write_text(json.dumps({"seconds": seconds, "epochs": epochs, "accuracy": levels}))
    beside.rename(folder / "result.json")


class Bench:
    """Runs in a folder, each in a process pinned to a core of its own."""

    def __init__(self, folder: Path, cores: list[int]) -> None:
        self.folder, self.free = folder, queue.SimpleQueue[int]()
        for core in cores:
            self.free.put(core)

    def data(self, name: str) -> Path:
        place = self.folder / f"{name}.npz"
        if not place.is_file():
            maker, sizes = SETS[name]
            beside = self.folder / f"{name}.part.npz"
            np.savez(beside, **maker(tuple(map(int, sizes.split("/"))), 50_000, 256))
            beside.rename(place)
        return place

    def run(self, data: str, method: str, seed: int, epochs: int, limit: float = 0.0) -> dict[str, Any] | None:
        """What `one_run` wrote; None if the time was up before it had finished."""
        place = self.folder / f"{data}-{method.replace(':', '-')}-e{epochs}-s{seed}"
        if not (place / "result.json").is_file():
            place.mkdir(parents=True, exist_ok=True)
            core = self.free.get()
            call = ["--one", str(self.data(data)), method, "--seed", str(seed), "--epochs", str(epochs), "--limit", str(limit)]
            command = ["taskset", "-c", str(core), sys.executable, __file__, str(place), *call]
            try:
                done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
            finally:
                self.free.put(core)
            if limit and done.returncode == -signal.SIGXCPU:
                (place / "result.json").write_text("null")
            else:
                done.check_returncode()
        found: dict[str, Any] | None = json.loads((place / "result.json").read_text())
        return found

    def timed(self, data: str, method: str, seed: int, budget: float) -> dict[str, Any] | None:
        """A run of as many epochs as fit."""
        if method.partition(":")[0] in AT_ONCE:
            stopped = seed > 0 and self.run(data, method, 0, 1, budget) is None
            return None if stopped else self.run(data, method, seed, 1, budget)
        once = self.run(data, method, 0, 1)
        assert once is not None
        return self.run(data, method, seed, max(1, int(budget / once["seconds"])))


def table(data: str, budget: float, found: dict[str, list[dict[str, Any] | None]]) -> str:
    ranks = next(list(run["accuracy"]) for runs in found.values() for run in runs if run)
    lines = [
        f"{data}, {budget:.0f} s",
        "",
        f"| method | epochs | seconds | {' | '.join(ranks)} |",
        "|---" * (3 + len(ranks)) + "|",
    ]
    for method, runs in found.items():
        done = [run for run in runs if run]
        if len(done) < len(runs):
            lines.append(f"| {method} | – | more than {budget:.0f} |" + " – |" * len(ranks))
            continue
        values = [" / ".join(f"{run['accuracy'][rank]:.1f}" for run in done) for rank in ranks]
        seconds = statistics.mean(run["seconds"] for run in done)
        lines.append(f"| {method} | {done[0]['epochs']} | {seconds:.0f} | {' | '.join(values)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", default="")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", default="lht,multihead,marginal,marginal:start=means,hiclass")
    parser.add_argument("--cores", default="0")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one_run(args.folder, *args.one, seed=args.seed, epochs=args.epochs, limit=args.limit)
    args.folder.mkdir(parents=True, exist_ok=True)
    cores = [int(core) for core in args.cores.split(",")]
    bench, methods = Bench(args.folder, cores), args.methods.split(",")
    given = {name: float(value) for name, value in (part.split("=") for part in args.seconds.split(",") if part)}
    for data in args.sets.split(","):
        bench.data(data)
        budget = given.get(data) or (bench.run(data, BEFORE, 0, 1) or {})["seconds"]
        with ThreadPoolExecutor(len(cores)) as pool:
            first = {method: pool.submit(bench.timed, data, method, 0, budget) for method in methods}
            rest = {method: [first[method].result()] for method in methods}
            more = {m: [pool.submit(bench.timed, data, m, seed, budget) for seed in range(1, args.seeds)] for m in methods}
            found = {method: rest[method] + [run.result() for run in more[method]] for method in methods}
        print(table(data, budget, found), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
