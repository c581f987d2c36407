"""The steps of training: epochs, checkpoints, validation. Several processes do the same as one.

Without a run nothing is written: that is how the scikit-learn estimator trains.

Every random choice depends on the seed and the epoch; a checkpoint inside an epoch keeps the state of the generators, too.
A batch is cut into parts (`--accumulate`), and each part into the shares of processes; a share may be empty.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlht import console
from torchlht.answer.backbones import share_statistics
from torchlht.answer.model import Checkpoint, History, Model, Run, load_checkpoint, save_checkpoint
from torchlht.data.batches import FeatureSet, SampleSet, load, set_batches
from torchlht.errors import DivergedError, RunError, first_line
from torchlht.files import replacing
from torchlht.heads.guessing import Opinion
from torchlht.heads.method import Estimator
from torchlht.hierarchy.tree import Hierarchy
from torchlht.learn.alone import Machine
from torchlht.learn.narrow import Narrow, narrow_for
from torchlht.learn.optimizers import SGD, AdamW
from torchlht.learn.options import Recipe
from torchlht.learn.steps import Averaged, Step, Target, begin_epoch
from torchlht.measure.evaluation import measure
from torchlht.processes import of_all

if TYPE_CHECKING:
    from torchlht.learn.following.follow import Follow
    from torchlht.learn.semi.schedule import Semi
    from torchlht.measure.outcomes import Recorder

TEACHER = 0.99  # decay of the averaged weights used by --semi posterior when --ema is not given


@dataclass(frozen=True)
class Sets:
    """The part of the model that trains, and the samples of each split."""

    network: nn.Module
    train: SampleSet
    val: SampleSet | None
    test: SampleSet
    workers: int


@dataclass
class Progress:
    """How far an epoch is, and the sums for its row of the history.

    Attributes:
        steps: taken so far.
        loss: sum of their losses on this process's share.
        hits: (K, 2) known labels predicted correctly, and all known labels, on this process's share.
        seconds: elapsed so far.
        found: other entries of the row.
        generators: states of the random generators to continue with, by name.
    """

    loss: Tensor
    hits: Tensor
    steps: int = 0
    seconds: float = 0.0
    found: dict[str, float] = field(default_factory=dict)
    generators: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Fitting:
    """The state of training, and everything a step needs.

    Attributes:
        objective: network and loss.
        step: the same, as the machine has set it up.
        averaged: the averaged weights, if any.
        narrow: the directions in which the first layer is trained, if not in all.
        history: a row per finished epoch.
        progress: progress of the current epoch.
    """

    machine: Machine
    recipe: Recipe
    run: Run | None
    model: Model
    sets: Sets
    semi: Semi | None
    objective: Step
    step: Any
    optimizer: Optimizer
    averaged: Averaged | None
    narrow: Narrow | None = None
    history: History = field(default_factory=list)
    progress: Progress | None = None

    @property
    def kept(self) -> nn.Module:
        """The network to save in the end: the trained one, or its average."""
        return self.averaged.network if self.averaged and self.recipe.ema else self.sets.network

    @property
    def teacher(self) -> nn.Module:
        """The network that gives targets for unknown labels."""
        return self.averaged.network if self.averaged else self.sets.network

    def batches(self, epoch: int) -> list[list[int]]:
        """The batches of an epoch, for all processes together."""
        return batches_of(self.recipe, self.sets, epoch)


def make_optimizer(recipe: Recipe, model: Model) -> Optimizer:
    """The optimizer, with separate learning rates for method and backbone."""
    groups = [{"params": list(model.method.parameters()), "lr": recipe.lr, "start_lr": recipe.lr}]
    backbone = [p for p in model.backbone.parameters() if p.requires_grad]
    if backbone:
        groups.append({"params": backbone, "lr": recipe.backbone_lr, "start_lr": recipe.backbone_lr})
    if recipe.optimizer == "adamw":
        return AdamW(groups, weight_decay=recipe.weight_decay)
    return SGD(groups, momentum=0.9, weight_decay=recipe.weight_decay)


def batches_of(recipe: Recipe, sets: Sets, epoch: int) -> list[list[int]]:
    """The batches of an epoch, for all processes together."""
    return set_batches(sets.train, recipe.batch_size, seed=recipe.seed, epoch=epoch, drop_last=recipe.drop_last)


# ---- all epochs ----------------------------------------------------------------------------------------------------


def fit(
    machine: Machine,
    recipe: Recipe,
    run: Run | None,
    model: Model,
    sets: Sets,
    semi: Semi | None,
    follow: Follow | None = None,
) -> History:
    """Run all epochs; with a run, write a checkpoint after each, and start from the last one."""
    if isinstance(model.method, Estimator):
        return fit_at_once(machine, recipe, run, model, sets, semi)
    narrow = narrow_for(sets.network, sets.train, recipe.components)
    if narrow:
        val = sets.val and narrow.coordinates(sets.val)
        sets = dataclasses.replace(sets, train=narrow.coordinates(sets.train), val=val)
        narrow.enter(sets.network)
    now = set_up(machine, recipe, run, model, sets, semi)
    now.narrow = narrow
    if run is not None and run.last.is_file():
        go_on(now, run)
    quiet = recipe.quiet or not machine.is_global_zero
    with console.EpochView(recipe.epochs, len(now.batches(0)), start=len(now.history), quiet=quiet) as view:
        for epoch in range(len(now.history), recipe.epochs):
            row = train_epoch(now, epoch, view)
            if sets.val is not None:
                row |= validate(machine, model, now.kept, sets, sets.val)
            now.history.append(row)
            now.progress = None
            if run is not None:
                keep_epoch(now, run)
            if follow:
                follow.epoch(row)
            view.epoch(epoch + 1, epoch_text(model.hierarchy, row))
            machine.barrier()
    model.method.reached(1.0)
    if now.kept is not sets.network:
        sets.network.load_state_dict(now.kept.state_dict())
    if narrow:
        narrow.leave(sets.network)
    return now.history


def ask_for_opinion(recipe: Recipe, model: Model, data: SampleSet) -> Opinion | None:
    """Before training: what the linear discriminant makes of the samples, if there is to be a shortcut, or guesses."""
    wanted = (recipe.shortcut or recipe.guess) and model.method.can_shorten
    return Opinion.of(data, model.hierarchy) if wanted and isinstance(data, FeatureSet) else None


def with_guesses(recipe: Recipe, sets: Sets, opinion: Opinion | None) -> Sets:
    """The same sets, with guesses among the labels to learn from, if there are to be any."""
    data = sets.train
    if opinion is None or not recipe.guess or not isinstance(data, FeatureSet):
        return sets
    return dataclasses.replace(sets, train=data.labelled(opinion.labels))


def shorten(recipe: Recipe, model: Model, data: SampleSet, opinion: Opinion | None) -> None:
    """After training, let the method add its shortcut from the features that enter it, if there is to be one."""
    if not recipe.shortcut or opinion is None or not isinstance(data, FeatureSet):
        return
    with torch.no_grad():
        if model.backbone.name == "linear":  # other features enter the method than those of the opinion
            x = model.backbone(data.x.to(next(model.parameters()).device)).cpu()
            opinion = Opinion.of(FeatureSet(x, data.labels, data.weights), model.hierarchy)
        model.method.end(opinion, recipe.shortcut)


def set_up(machine: Machine, recipe: Recipe, run: Run | None, model: Model, sets: Sets, semi: Semi | None) -> Fitting:
    """Set up network, optimizer and averages before the first step."""
    if machine.world_size > 1 and machine.device.type == "cuda":
        share_statistics(model.backbone)
    shares = semi.shares if semi else ()
    objective = Step(sets.network, model, mixup=recipe.mixup, smoothing=recipe.label_smoothing, shares=shares)
    step, optimizer = machine.setup(objective, make_optimizer(recipe, model))
    averaged = Averaged(sets.network, recipe.ema or TEACHER) if recipe.ema or (semi and semi.needs_teacher) else None
    if recipe.compile:
        model.backbone.compile()  # in place: names of weights do not change
    return Fitting(machine, recipe, run, model, sets, semi, objective, step, optimizer, averaged)


def fit_at_once(machine: Machine, recipe: Recipe, run: Run | None, model: Model, sets: Sets, semi: Semi | None) -> History:
    """Fit a method that takes all samples at once, without epochs; its history has one row.

    Unknown labels are replaced by the likeliest classes of their targets. Targets from the model itself need a second fit.
    """
    assert isinstance(model.method, Estimator)
    assert isinstance(sets.train, FeatureSet)
    started, row = time.monotonic(), {"epoch": 1.0}
    x, labels = sets.train.x, sets.train.labels
    drawn = range(len(x)) if sets.train.weights is None else (i for batch in batches_of(recipe, sets, 0) for i in batch)
    shown = torch.tensor(list(drawn))
    turns = [0, max(semi.rounds) + 1] if semi and semi.needed and semi.needs_teacher else [0]  # its features do not change
    for epoch in turns:
        if semi:
            with torch.no_grad():
                row |= semi.begin(epoch, lambda: x, lambda: [(np.arange(len(x)), model.method(x).log_probs[0], None)])
        seen = torch.from_numpy(semi.fill()) if semi and semi.targets else labels
        rows = shown[model.method.learns_from(seen[shown])]
        model.method.fit(x[rows], seen[rows], seed=recipe.seed)
    row["seconds"] = time.monotonic() - started
    if sets.val is not None:
        row |= validate(machine, model, sets.network, sets, sets.val)
    if run is not None and machine.is_global_zero:
        run.write_history([row])
    return [row]


# ---- an epoch ------------------------------------------------------------------------------------------------------


def train_epoch(now: Fitting, epoch: int, view: console.EpochView) -> dict[str, float]:
    """Train for one epoch, or for the rest of one; returns its row of the history."""
    machine, recipe = now.machine, now.recipe
    started = time.monotonic()
    progress = now.progress = now.progress or begin(now, epoch, view)
    slow_down(now, epoch / recipe.epochs)
    now.sets.train.set_epoch(recipe.seed, epoch)
    now.step.train()
    batches = now.batches(epoch)
    steps = [cut(batch, recipe.accumulate, machine.global_rank, machine.world_size) for batch in batches[progress.steps :]]
    seed_epoch(now, epoch)
    stream = load(now.sets.train, [rows or part[:1] for shares in steps for part, rows in shares], now.sets.workers)
    restore_generators(machine, progress.generators)  # after the loader has drawn from them
    before, begun, left = progress.seconds, time.monotonic(), batches[progress.steps :]
    for i, shares in enumerate(steps, start=progress.steps + 1):
        if recipe.schedule == "step":
            share = (epoch + (i - 1) / len(batches)) / recipe.epochs
            slow_down(now, share)
            now.model.method.reached(share)
        take_step(now, progress, [rows for _, rows in shares], stream)
        view.step(epoch + 1)
        if now.run and recipe.checkpoint_every and i % recipe.checkpoint_every == 0 and i < len(batches):
            progress.seconds = before + time.monotonic() - started
            keep_step(now, now.run)
    loss, hits = machine.all_reduce((progress.loss, progress.hits), reduce_op="sum")
    mean_loss = (loss / (len(batches) * machine.world_size)).item()
    check_finite("the loss", loss, now)
    check_finite("the sum of the weights", torch.stack([p.detach().sum() for p in now.sets.network.parameters()]).sum(), now)
    tree, accuracy = now.model.hierarchy, (hits[:, 0] / hits[:, 1].clamp(min=1)).tolist()
    ended = time.monotonic()
    return {
        "epoch": epoch + 1,
        "lr": now.optimizer.param_groups[0]["lr"],
        "loss": mean_loss,
        **{f"train_{tree.levels[k]}": accuracy[k] for k in tree.top_down},
        **now.model.method.scalars(),
        "images_per_second": sum(map(len, left)) / (ended - begun),
        "seconds": before + ended - started,
        **progress.found,
    }


def slow_down(now: Fitting, share: float) -> None:
    """Set the learning rates after this share of training: they fall along a cosine."""
    for group in now.optimizer.param_groups:
        group["lr"] = group["start_lr"] * (1 + math.cos(math.pi * share)) / 2


def check_finite(name: str, value: Tensor | None, now: Fitting) -> None:
    """Raise DivergedError if a figure of the current epoch is NaN or infinite."""
    if value is not None and not math.isfinite(number := value.item()):
        epoch = len(now.history) + 1
        raise DivergedError(f"{name} is {number} in epoch {epoch}: training diverged; try a lower `lr` than {now.recipe.lr}")


def begin(now: Fitting, epoch: int, view: console.EpochView) -> Progress:
    """Start an epoch: make the targets for unknown labels, and return empty sums. Before the first, let the method begin."""
    device, semi = now.machine.device, now.semi
    if epoch == 0 and isinstance(now.sets.train, FeatureSet):
        now.model.method.begin(now.sets.train.x, now.sets.train.labels)
    progress = Progress(torch.zeros((), device=device), torch.zeros(len(now.model.hierarchy), 2, device=device))
    if semi:
        progress.found = begin_epoch(
            semi, now.teacher, now.sets.train, seed=now.recipe.seed, epoch=epoch, workers=now.sets.workers
        )
        if progress.found:
            view.say(propagated_text(semi, progress.found))
    return progress


def seed_epoch(now: Fitting, epoch: int) -> None:
    """Seed the generators for an epoch. The first process draws what a single one would, the others draw other numbers."""
    rank = now.machine.global_rank
    moment = [now.recipe.seed, epoch, *([1 + rank] if rank else [])]
    torch.manual_seed(np.random.SeedSequence(moment).generate_state(1)[0].item())


def cut(batch: list[int], parts: int, rank: int, world: int) -> list[tuple[list[int], list[int]]]:
    """The non-empty parts of a batch, each with this process's share of it, which may be empty."""
    found = [batch[i::parts] for i in range(min(parts, len(batch)))]
    return [(part, part[rank::world]) for part in found]


def take_step(now: Fitting, progress: Progress, shares: Sequence[list[int]], stream: Any) -> None:
    """Take one step of the optimizer, with one forward pass per share; `stream` yields their samples."""
    machine, device = now.machine, now.machine.device
    now.optimizer.zero_grad()
    targets = [targets_at(now, rows) for rows in shares]
    if len(shares) > 1:
        labels = [now.sets.train.labels[rows].to(device) for rows in shares]
        now.objective.count_ahead(list(zip(labels, targets, strict=True)))
    for i, (rows, target) in enumerate(zip(shares, targets, strict=True), start=1):
        x, y = (part[: len(rows)].to(device) for part in next(stream))
        with machine.no_backward_sync(now.step, enabled=i < len(shares)):
            loss, hits = now.step(x, y, target)
            machine.backward(loss)
        progress.loss += loss.detach()
        progress.hits += hits
    now.objective.tally = None
    for weight in now.model.method.idle():
        weight.grad = None
    if now.recipe.clip:
        norm = machine.clip_gradients(now.step, now.optimizer, max_norm=now.recipe.clip, error_if_nonfinite=False)
        if not scales_loss(machine):  # a scaler skips such a step, and scales less
            check_finite("the gradient", norm, now)
    now.optimizer.step()
    if now.averaged:
        now.averaged.update(now.sets.network)
    progress.steps += 1


def scales_loss(machine: Machine) -> bool:
    """Whether losses are scaled, as float16 needs it."""
    strategy = getattr(machine, "strategy", None)
    return strategy is not None and getattr(strategy.precision, "scaler", None) is not None


def targets_at(now: Fitting, rows: list[int]) -> Target | None:
    """Index, value and weight of the targets of some samples; None without targets."""
    if not now.semi or not now.semi.targets:
        return None
    found = now.semi.targets.at(torch.tensor(rows, dtype=torch.int64)).to(now.machine.device)
    return found.index, found.value, found.weight


# ---- validation ----------------------------------------------------------------------------------------------------


def measure_on(
    machine: Machine,
    model: Model,
    network: nn.Module,
    sets: Sets,
    data: SampleSet,
    more_rules: Sequence[str] = (),
    record: Recorder | None = None,
    shown: str | None = None,
) -> dict[str, Any]:
    """All metrics on a set; `more_rules` and `shown` as in `measure`. Several processes share its samples."""
    return measure(
        network,
        data,
        model.hierarchy,
        more_rules=more_rules,
        shown=shown,
        workers=sets.workers,
        rank=machine.global_rank,
        world=machine.world_size,
        calibration=model.calibration,
        record=record,
    )


def validate(machine: Machine, model: Model, network: nn.Module, sets: Sets, data: SampleSet) -> dict[str, float]:
    """Accuracy on the validation samples, per level and averaged over levels."""
    metrics = measure_on(machine, model, network, sets, data)
    levels = {f"val_{level['name']}": level["accuracy"] for level in metrics["levels"] if level["accuracy"] is not None}
    return {**levels, "val_mean": metrics["mean_accuracy"]}


def best_epoch(history: History) -> int:
    """The epoch with the highest mean validation accuracy, the earliest of equals; counted from 1."""
    return 1 + max(range(len(history)), key=lambda i: (history[i]["val_mean"], -i))


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def keep_epoch(now: Fitting, run: Run) -> None:
    """Write checkpoint and history, the best weights first: a run killed in between repeats the epoch with the same result."""
    if not now.machine.is_global_zero:
        return
    if now.recipe.best and best_epoch(now.history) == len(now.history):
        with replacing(run.best) as beside:
            kept = now.narrow.left(now.kept) if now.narrow else now.kept
            save_file({n: v.detach().cpu().contiguous() for n, v in kept.state_dict().items()}, beside)
    save_checkpoint(run.last, now.sets.network, now.optimizer, Checkpoint(now.history, more=more_state(now)))
    run.write_history(now.history)


def keep_step(now: Fitting, run: Run) -> None:
    """Write a checkpoint inside an epoch. Sums are over all processes, so any number of processes can resume."""
    progress = now.progress
    assert progress is not None
    loss, hits = now.machine.all_reduce((progress.loss.clone(), progress.hits.clone()), reduce_op="sum")  # works in place
    more = {"progress.loss": loss / now.machine.world_size, "progress.hits": hits, **generator_states(now.machine)}
    if now.machine.is_global_zero:
        more |= more_state(now)
        inside = {"steps": progress.steps, "seconds": progress.seconds, "found": progress.found}
        save_checkpoint(run.last, now.sets.network, now.optimizer, Checkpoint(now.history, inside, more))


def more_state(now: Fitting) -> dict[str, Tensor]:
    """Averages and targets, as stored in a checkpoint."""
    averaged = now.averaged.state() if now.averaged else {}
    targets = now.semi.state(inside=now.progress is not None) if now.semi else {}
    return averaged | {f"semi.{name}": value for name, value in targets.items()}


def go_on(now: Fitting, run: Run) -> None:
    """Restore the last checkpoint. Raises RunError if it is damaged, or of another run."""
    try:
        restore(now, run)
    except (SafetensorError, RunError, LookupError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(
            f"{run.last}: this checkpoint is damaged, or of another run ({first_line(error)}); "
            f"remove the folder {run.last.parent} to resume from the beginning"
        ) from error


def restore(now: Fitting, run: Run) -> None:
    """Restore the last checkpoint, written by any number of processes."""
    found = load_checkpoint(run.last, now.sets.network, now.optimizer)
    now.history, more = found.history, found.more
    steps = found.inside["steps"] if found.inside else 0
    if now.averaged:
        now.averaged.restore(more, len(found.history) * len(now.batches(0)) + steps)
    if now.semi:
        now.semi.restore({name.removeprefix("semi."): value for name, value in more.items() if name.startswith("semi.")})
    if found.inside:
        loss, hits = (more[f"progress.{name}"].to(now.machine.device) for name in ("loss", "hits"))
        generators = {name: value for name, value in more.items() if name.startswith("generator.")}
        hits = hits if now.machine.is_global_zero else torch.zeros_like(hits)  # hits are summed over processes, losses averaged
        now.progress = Progress(loss, hits, **found.inside, generators=generators)


def generator_states(machine: Machine) -> dict[str, Tensor]:
    """The states of all processes' random generators."""
    own = {"cpu": torch.get_rng_state()}
    if machine.device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(machine.device)
    return {
        f"generator.{kind}.{rank}": state
        for kind, value in own.items()
        for rank, state in enumerate(of_all(value, machine.device))
    }


def restore_generators(machine: Machine, states: dict[str, Tensor]) -> None:
    """Restore this process's generators. A process without a stored state keeps its own."""
    if (state := states.get(f"generator.cpu.{machine.global_rank}")) is not None:
        torch.set_rng_state(state)
    if (state := states.get(f"generator.cuda.{machine.global_rank}")) is not None and machine.device.type == "cuda":
        torch.cuda.set_rng_state(state, machine.device)


# ---- what is shown --------------------------------------------------------------------------------------------------


def epoch_text(tree: Hierarchy, row: dict[str, float]) -> str:
    """One line about an epoch: loss, accuracy per level (on validation samples, if any), samples a second."""
    part = "val" if "val_mean" in row else "train"
    levels = [f"{tree.levels[k]} {console.percent(row.get(f'{part}_{tree.levels[k]}'))}" for k in tree.top_down]
    return f"loss {row['loss']:.3f}  {part}: {'  '.join(levels)}  {row['images_per_second']:,.0f}/s"


def propagated_text(semi: Semi, found: dict[str, float]) -> str:
    """One line about propagated labels: how many, and how often they are right."""
    count = int((semi.labels[:, 0] < 0).sum())
    return (
        f"{count:,} samples without a finest label take part with what their neighbours are"
        f" · {console.percent(found['propagated_right'])} right on {found['propagated_checked']:.0f} labels set aside"
    )
