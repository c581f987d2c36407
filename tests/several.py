"""Runs jobs in one or several processes, for tests: everything is imported once, and processes are forked from that.

python several.py JOBS.json, a list of {"world": 2, "do": NAME, …}: see the functions below. In `world` processes a job has
the environment that torchrun would give it.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors import safe_open
from torch.nn.parallel import DistributedDataParallel

import torchlht.commands.predict
import torchlht.learn.fitting
from torchlht import TrainArgs, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.cli import main
from torchlht.data.batches import FeatureSet
from torchlht.heads.method import BatchNorm, Estimator, create_method, find_method, list_methods, method_options
from torchlht.learn.fitting import cut
from torchlht.learn.steps import Step
from torchlht.measure.evaluation import measure
from torchlht.measure.outcomes import Recorder
from trees import normal, random_hierarchy, random_labels

TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))
SETTINGS = {"quiet": True, "track": False, "option": {"width": 24}, "accelerator": "cpu", "mask": 0.5, "workers": 0}
OPTIONS = {
    "hmcn": {"hidden": 10},
    "hrn": {"embedding": 10},
    "lht": {"confusion_weight": 0.3},
    "lht-simplified": {"confusion_weight": 0.3},
}


def run_train(job: dict[str, Any]) -> None:
    """Train with `args`, or go on with `resume`; with `die_after` the process kills itself after so many checkpoints."""
    if count := job.get("die_after"):
        save = torchlht.learn.fitting.save_checkpoint

        def save_and_die(*args: Any) -> None:
            nonlocal count
            save(*args)
            count -= 1
            if not count:
                os.kill(os.getpid(), signal.SIGKILL)

        torchlht.learn.fitting.save_checkpoint = save_and_die
    if "resume" in job:
        train(TrainArgs(resume=Path(job["resume"]), quiet=True, accelerator="cpu"))
    else:
        args = {**SETTINGS, **job["args"]}
        train(TrainArgs(args.pop("data"), Path(args.pop("out")), **args))


def run_lht(job: dict[str, Any]) -> None:
    """The command line with `arguments`; what is printed goes to `out`, with the number of the process after it.

    Predicting, it takes `block` samples at a time.
    """
    rank = os.environ.get("RANK", "0")
    torchlht.commands.predict.BATCH = job["block"]
    with Path(f"{job['out']}.{rank}").open("w") as file, contextlib.redirect_stdout(file):
        main(job["arguments"])


def run_steps(job: dict[str, Any]) -> None:
    """Loss and gradients of every method on the same batch, in `parts`, with several numbers of samples; to `out`.

    With `fixed_norm`, BatchNorm is by running statistics, which do not depend on parts.
    """
    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if world > 1:
        dist.init_process_group("gloo")
    if job.get("fixed_norm"):
        BatchNorm.forward = BatchNorm._running
    found: dict[str, Any] = {}
    for name in job["methods"]:
        for size in job["sizes"]:
            found |= {f"{name}/{size}/{key}": value for key, value in one_step(name, size, job["parts"], rank, world).items()}
    if rank == 0:
        torch.save(found, job["out"])


def one_step(name: str, size: int, parts: int, rank: int, world: int) -> dict[str, Any]:
    rng = np.random.default_rng(size)
    x, labels = normal(rng, size, 6) + 10, random_labels(TREE, rng, size)
    index, value = torch.from_numpy(rng.integers(0, 9, (size, 3))), torch.from_numpy(rng.random((size, 3)))
    target = index, value, torch.from_numpy(rng.random(size))
    torch.manual_seed(0)
    small = {"width": 12} if "width" in method_options(name) else {}
    method = create_method(name, 6, TREE, **{**small, **OPTIONS.get(name, {})}).double()
    model = Model(create_backbone("none", in_features=6), method, options={})
    step = Step(method, model, smoothing=0.1)
    wrapped = DistributedDataParallel(step) if world > 1 else step
    shares = [rows for _, rows in cut(list(range(size)), parts, rank, world)]
    at = [tuple(part[rows] for part in target) for rows in shares]
    if len(shares) > 1:
        step.count_ahead([(labels[rows], one) for rows, one in zip(shares, at, strict=True)])
    total = torch.zeros((), dtype=torch.float64)
    for i, (rows, one) in enumerate(zip(shares, at, strict=True), start=1):
        later = wrapped.no_sync() if world > 1 and i < len(shares) else contextlib.nullcontext()
        with later:
            loss, _ = wrapped(x[rows], labels[rows], one)
            loss.backward()
        total += loss.detach()
    if world > 1:
        dist.all_reduce(total)
    gradients = {f"grad.{n}": p.grad for n, p in method.named_parameters() if p.grad is not None}
    buffers = {f"buffer.{n}": b for n, b in method.named_buffers() if "running" in n}
    return {"loss": total / world, **gradients, **buffers}


def run_measure(job: dict[str, Any]) -> None:
    """Metrics of a network on `sizes` samples; to `out`."""
    rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    if world > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    method, found = create_method("lht", 6, TREE, width=12), {}
    for size in job["sizes"]:
        rng = np.random.default_rng(size)
        data = FeatureSet(normal(rng, size, 6).float(), random_labels(TREE, rng, size))
        record, more = Recorder(["crm"]), {"more_rules": ("crm",), "rank": rank, "world": world, "batch_size": 4}
        found[size] = measure(method, data, TREE, record=record, **more)
        found[size]["answers"] = kept.chosen.tolist() if (kept := record.outcomes()) else None
    if rank == 0:
        Path(job["out"]).write_text(json.dumps(found))


def run_state(job: dict[str, Any]) -> None:
    """How far the last checkpoint of `run` is inside an epoch; to `out`."""
    with safe_open(Path(job["run"]) / "checkpoint" / "last.safetensors", "pt") as file:
        Path(job["out"]).write_text(json.dumps(json.loads(file.metadata()["state"])["inside"]))


JOBS = {"state": run_state, "train": run_train, "lht": run_lht, "steps": run_steps, "measure": run_measure}
BY_STEPS = [name for name in list_methods() if not issubclass(find_method(name).cls, Estimator)]


def start(job: dict[str, Any], rank: int, port: int) -> None:
    """One process of a job."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if job["world"] > 1:
        world = str(job["world"])
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GROUP_RANK": "0", "ROLE_RANK": str(rank)}
        os.environ |= {"TORCHELASTIC_RUN_ID": job.get("id", "none"), "TORCHELASTIC_USE_AGENT_STORE": "False"}
    JOBS[job["do"]](job)


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def run(job: dict[str, Any]) -> None:
    """All processes of a job; one that is to die may."""
    port = free_port()
    fork = multiprocessing.get_context("fork")
    running = [fork.Process(target=start, args=(job, rank, port)) for rank in range(job["world"])]
    for process in running:
        process.start()
    for process in running:
        process.join(60)
        if process.is_alive():
            process.kill()
        assert job.get("die_after") or process.exitcode == 0, f"{job}: exit code {process.exitcode}"


if __name__ == "__main__":
    for one in json.loads(Path(sys.argv[1]).read_text()):
        run(one)
