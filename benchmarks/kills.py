"""Kill -9 at random moments: every command is resumed or repeated to the same result, and nothing is left behind.

    python benchmarks/kills.py --kills 50 > benchmarks/kills.md

Each trial runs a command on tiny data in a process of its own, kills it after a random share of the time that it takes, runs
what a user would run next, and compares the files with those of a run that nobody disturbed: bit for bit, but for times.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from torchlht import files
from torchlht.answer.exported.read import read_exported
from torchlht.answer.exported.write import export  # noqa: F401  imported before forking, as all that is slow
from torchlht.cli import main
from torchlht.lab.comparison.grid import compare  # noqa: F401
from torchlht.learn.training import train  # noqa: F401
from torchlht.show.page import report  # noqa: F401

WORKERS = ["--workers", "2"]  # written into config.yaml, so the same when resuming
TIMES = ("seconds", "images_per_second", "train_seconds", "seconds_per_step")


@dataclass(frozen=True)
class Command:
    """A command to kill: its words, those to go on with, and what it has written, by name, without times."""

    name: str
    words: Callable[[Path], list[str]]
    next_words: Callable[[Path], list[str]]
    written: Callable[[Path], dict[str, Any]]


# ---- the commands ----------------------------------------------------------------------------------------------------


def commands(place: Path) -> list[Command]:
    """The commands, on data that is made at `place`."""
    features, pictures = make_features(place / "d.npz"), make_pictures(place / "pictures")
    done = place / "done"
    quietly(["train", str(features), "--out", str(done), "--epochs", "3", "--val", "0.2"])
    quietly(["train", str(pictures), "--out", str(place / "seen"), "--epochs", "1", "--backbone", "small", "--workers", "0"])
    by_steps = ["--epochs", "12", "--checkpoint-every", "2", "--val", "0.2", "--select", "best", "--ema", "0.9", *WORKERS]
    many = ["--methods", "flat,lht", "--mask", "0.5", "--seeds", "2", "--epochs", "5", "--jobs", "1"]
    small = ["--backbone", "small", "--epochs", "2", *WORKERS, "--checkpoint-every", "1", "--batch-size", "8"]
    views = [*small, "--freeze-stages", "2", "--views", "3", "--augment", "strong", "--mask", "0.5", "--semi", "both"]
    return [
        Command("train on features", lambda out: ["train", str(features), "--out", str(out), *by_steps], resumed, run_files),
        Command("train on pictures", lambda out: ["train", str(pictures), "--out", str(out), *small], resumed, run_files),
        Command("train on views", lambda out: ["train", str(pictures), "--out", str(out), *views], resumed, run_files),
        again("compare", lambda out: ["compare", str(features), "--out", str(out), *many], comparison_files, "compare.yaml"),
        again("data pack", lambda out: ["data", "pack", str(pictures), "--out", str(out), "--per-shard", "7"], all_files),
        again("export to torch", lambda out: ["export", str(done), "--out", f"{out}.pt2"], exported_file),
        again("export to ONNX", lambda out: ["export", str(done), "--out", f"{out}.onnx"], exported_file),
        again("report", lambda out: ["report", str(done), "--out", str(out)], names_of_files),
    ]


def again(
    name: str, words: Callable[[Path], list[str]], written: Callable[[Path], dict[str, Any]], settings: str = ""
) -> Command:
    """A command that is simply repeated; with --resume if its settings are there."""
    return Command(
        name, words, lambda out: [*words(out), *(["--resume"] if settings and (out / settings).is_file() else [])], written
    )


def resumed(out: Path) -> list[str]:
    """How to go on with a training; empty if it has to be started again, or has finished."""
    if (out / "metrics.json").is_file():
        return []
    return ["train", "--resume", str(out), *WORKERS] if (out / "config.yaml").is_file() else ["again"]


def make_features(path: Path) -> Path:
    """Features of 240 samples in 6 classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 240)
    x = (rng.normal(size=(6, 8))[y] * 2 + rng.normal(size=(240, 8))).astype(np.float32)
    np.savez(path, x=x, y=np.stack([y, y // 2, y // 4], 1), train=np.arange(240) < 180)
    return path


def make_pictures(folder: Path) -> Path:
    """Forty pictures in two families of two species."""
    rng = np.random.default_rng(0)
    for i in range(40):
        species = folder / f"family{i % 2}" / f"species{i % 4}"
        species.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(species / f"{i:02d}.png")
    return folder


# ---- what was written ------------------------------------------------------------------------------------------------


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(value: Any) -> Any:
    """JSON without the figures that a clock gave."""
    if isinstance(value, dict):
        return {name: without_times(one) for name, one in value.items() if name not in TIMES}
    return [without_times(one) for one in value] if isinstance(value, list) else value


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return [without_times(row) for row in csv.DictReader(file)]


def all_files(out: Path) -> dict[str, Any]:
    return {str(path.relative_to(out)): digest(path) for path in sorted(out.rglob("*")) if path.is_file()}


def names_of_files(out: Path) -> dict[str, Any]:
    return dict.fromkeys(all_files(out))


def run_files(out: Path) -> dict[str, Any]:
    """A run: weights and split as they are, tables without times; TensorBoard's events have times in their names."""
    found = {name: one for name, one in all_files(out).items() if not name.startswith("tensorboard")}
    found["metrics.json"] = without_times(json.loads((out / "metrics.json").read_text()))
    found["history.csv"] = table(out / "history.csv")
    return found | {"config.yaml": (out / "config.yaml").read_text().replace(str(out), "OUT")}


def comparison_files(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"results.csv": table(out / "results.csv")}
    for run in sorted((out / "runs").iterdir()):
        found |= {f"{run.name}/{name}": one for name, one in run_files(run).items() if name != "config.yaml"}
    return found | dict.fromkeys(path.name for path in out.iterdir())


def exported_file(out: Path) -> dict[str, Any]:
    """What it answers: its bytes hold an id that torch draws."""
    [path] = list(out.parent.glob(f"{out.name}.*"))
    model = read_exported(path)
    said = model.look(torch.linspace(-1, 1, 3 * model.in_features).reshape(3, -1)).log_probs
    return {"metadata": model.metadata, "answers": [level.tolist() for level in said]}


def leftovers(folder: Path) -> list[str]:
    """Temporary files and locks."""
    return [str(one.relative_to(folder)) for one in folder.rglob(".*") if one.name == files.LOCK or one.name.endswith(".part")]


# ---- running and killing ---------------------------------------------------------------------------------------------


def start(words: list[str], log: Path) -> int:
    """Run a command in a process of its own, a copy of this one, in its own group; returns its id."""
    if pid := os.fork():
        return pid
    code = 99
    try:
        os.setsid()
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                main(words)
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
    finally:
        os._exit(code)


def quietly(words: list[str]) -> float:
    """Run a command to its end; returns the seconds it took."""
    with tempfile.NamedTemporaryFile() as log:
        began, pid = time.monotonic(), start(words, Path(log.name))
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status):
            raise SystemExit(f"{' '.join(words)}:\n{Path(log.name).read_text()}")
        return time.monotonic() - began


def kill_after(words: list[str], seconds: float, log: Path) -> bool:
    """Kill a command, not its helpers, after so many seconds; whether it was still running."""
    pid, end = start(words, log), time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@dataclass
class Outcome:
    """What became of the kills of one command."""

    kills: int = 0
    resumed: int = 0
    repeated: int = 0
    finished: int = 0
    faults: int = 0


def new_place(place: Path) -> Path:
    """A directory for one trial, with a cache of its own, so that what fills it is killed too; returns where to write."""
    place.mkdir()
    os.environ["LHT_CACHE"] = str(place / "cache")
    return place / "out"


def trial(command: Command, place: Path, share: float, seconds: float, expected: dict[str, Any], told: Outcome) -> str:
    """Kill once, go on, compare; returns the fault, or nothing."""
    shutil.rmtree(place, ignore_errors=True)
    out = new_place(place)
    log = place.with_suffix(".log")
    killed = kill_after(command.words(out), share * seconds, log)
    told.kills += killed
    words = command.next_words(out)
    if words == ["again"]:
        words = command.words(out)
    if not killed:
        return ""  # it had ended: not a kill
    told.finished += not words
    told.resumed += bool(words) and any("resume" in word for word in words)
    told.repeated += bool(words) and not any("resume" in word for word in words)
    if words:
        pid = start(words, log)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        taken = code == 2 and "exists and is not empty" in log.read_text() and command.name == "data pack"
        if code and not taken:
            return f"exit {code}: {log.read_text()[-300:]}"
    if not words:  # killed after the last file, while it removed its checkpoint: nobody reads that any more
        shutil.rmtree(out / "checkpoint", ignore_errors=True)
    if command.written(out) != expected:
        return "other files than without a kill"
    return f"left behind: {leftovers(place)}" if leftovers(place) else ""


def kill_all(count: int, seed: int, place: Path, only: str = "") -> Iterator[tuple[str, float, Outcome, list[str]]]:
    """Kill all commands by turns, `count` times together."""
    chance = random.Random(seed)
    known = [one for one in commands(place) if only in one.name]
    shares = [count // len(known) + (i < count % len(known)) for i in range(len(known))]
    for command, turns in zip(known, shares, strict=True):
        told, faults = Outcome(), []
        out = new_place(place / "whole")
        seconds = quietly(command.words(out))
        expected = command.written(out)
        shutil.rmtree(place / "whole")
        while told.kills < turns:
            moment = chance.random()
            fault = trial(command, place / "trial", moment, seconds, expected, told)
            if fault:
                told.faults += 1
                faults.append(f"{command.name}, killed at {moment:.0%}: {fault}")
        yield command.name, seconds, told, faults


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill commands at random moments, and see whether anything is lost.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands with this in their names")
    asked = parser.parse_args()
    os.environ.pop("TORCHELASTIC_RUN_ID", None)
    torch.set_num_threads(1)
    print("# Killed at random moments\n")
    print(f"`python benchmarks/kills.py --kills {asked.kills} --seed {asked.seed}`: kill -9 after a random share of the time")
    print("that a command takes on tiny data; then what a user would run next. Afterwards every file equals that of a run that")
    print("nobody disturbed, bit for bit but for times, and no temporary file and no lock is left.\n")
    print("| command | seconds | kills | resumed | repeated | had finished | faults |\n|---|---|---|---|---|---|---|")
    said: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        os.environ["LHT_CACHE"] = f"{work}/cache"
        for name, seconds, told, faults in kill_all(asked.kills, asked.seed, Path(work), asked.only):
            figures = (f"{seconds:.1f}", told.kills, told.resumed, told.repeated, told.finished, told.faults)
            print(f"| {name} | {' | '.join(map(str, figures))} |", flush=True)
            said += faults
    print("\n" + ("\n".join(f"- {fault}" for fault in said) or "No fault."))
    raise SystemExit(bool(said))
