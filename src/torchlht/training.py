"""Training, top to bottom: prepare → build → fit → validate → keep. Lightning Fabric does devices, precision and processes.

Every random choice depends on the seed and the epoch alone, so a run that is killed and resumed ends with the same weights,
bit for bit, as one that is not (on a CPU, with the same number of threads).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from lightning_utilities.core.imports import RequirementCache
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from torchlht import show
from torchlht.answer import fit_calibration
from torchlht.args import TrainArgs
from torchlht.backbones import create_backbone
from torchlht.data import Samples, lasting_name, short_name
from torchlht.data.images import check_images, write_problems
from torchlht.data.loading import FeatureSet, SampleSet, load, sample_set, set_batches
from torchlht.data.samples import Ints, draw_fold, draw_share, hold_out_test, with_split
from torchlht.data.transforms import Preprocess, paper_preprocess
from torchlht.errors import ConfigError, DataError, DivergedError, RunError
from torchlht.evaluation import collect, measure, read_as_trained
from torchlht.features import cache_path, frozen_features
from torchlht.files import replacing, write_json
from torchlht.hierarchy import Hierarchy
from torchlht.methods import (
    COMMON_OPTIONS,
    Estimator,
    create_method,
    find_method,
    method_options,
    parse_options,
    regularise,
)
from torchlht.model import Model, read_config
from torchlht.runs import History, Run, load_checkpoint, save_checkpoint
from torchlht.semi import Semi
from torchlht.steps import Averaged, Step, begin_epoch
from torchlht.vocabulary import Rule

SEMI_DROPOUT = 0.5  # of fixed features, under --semi: better on every dataset tried; it hurts a backbone that is trained
TEACHER = 0.99  # decay of the averaged weights that --semi posterior asks, where --ema does not say


def train(args: TrainArgs) -> Path:
    """Train, evaluate on the test samples and keep everything in a run directory, whose path is returned.

    >>> run = train(TrainArgs("birds.csv", method="lht", backbone="resnet50", out=Path("runs/birds")))

    Raises:
        LHTError: for whatever is wrong with the options or the data, before anything is written.
    """
    fabric = make_fabric(args)
    args, run, resuming = open_run(args)
    prepared = prepare(args)
    torch.manual_seed(args.seed)
    model = build(args, prepared.samples)
    samples = len(prepared.samples.index("train"))
    args = args.with_recipe(features=args.freeze or model.preprocess is None, samples=samples)
    taught = taught_samples(args, prepared.samples, model)
    semi = make_semi(args, prepared.samples, model, taught)
    if not resuming:
        fabric.barrier()
        if fabric.is_global_zero:
            start_run(run, args, prepared, model)
    elif not run.split.is_file() or not same_split(run, prepared):
        raise RunError(f"{run.path}: the data has changed since this run was started; train again under another --out")
    fabric.barrier()
    sets = make_sets(fabric, args, prepared.samples, model, taught)
    history = fit(fabric, args, run, model, sets, semi)
    finish(fabric, args, run, model, sets, history)
    return run.path


# ---- prepare -------------------------------------------------------------------------------------------------------


def make_fabric(args: TrainArgs) -> Fabric:
    """Devices and precision: from the options, or from torchrun or `fabric run` when they started this process."""
    if os.environ.get("LT_CLI_USED"):
        return Fabric()  # `fabric run` has launched the processes and says the rest through the environment
    local = int(os.environ.get("LOCAL_WORLD_SIZE", args.devices))
    nodes = int(os.environ.get("WORLD_SIZE", local)) // local
    strategy = "ddp" if local * nodes > 1 else "auto"
    try:
        fabric = Fabric(
            accelerator=args.accelerator, devices=local, num_nodes=nodes, precision=args.precision, strategy=strategy
        )
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"--accelerator {args.accelerator} cannot be used here: {error}") from error
    fabric.launch()
    return fabric


def open_run(args: TrainArgs) -> tuple[TrainArgs, Run, bool]:
    """The run to write, and the options to use: those it was started with, when resuming."""
    if args.resume is None:
        if not args.data:
            raise ConfigError("no data: lht train DATA, where DATA is a folder, a .csv, an .npz or demo")
        find_method(args.method)
        out = args.out or Path("runs") / f"{short_name(args.data) or 'data'}-{args.method}-s{args.seed}"
        run = Run(out)
        run.claim()
        return dataclasses.replace(args, data=lasting_name(args.data), out=out), run, False
    run = Run(args.resume)
    if not run.path.is_dir():
        raise RunError(f"{run.path}: no such run directory")
    config = read_config(run.path)
    if run.metrics.is_file():
        raise RunError(f"{run.path}: this run has finished; there is nothing to resume")
    kept = TrainArgs.from_dict(config["train"])
    here = dataclasses.replace(kept, quiet=args.quiet, workers=args.workers, accelerator=args.accelerator, devices=args.devices)
    return here, run, True


@dataclass(frozen=True)
class Prepared:
    """Data ready to be trained on: split and masked, with what was left out."""

    samples: Samples
    kept: Ints
    problems: list[Any]


def prepare(args: TrainArgs) -> Prepared:
    """Read the data, look at every picture, set test samples aside, mask, set validation samples aside: in this order."""
    samples, problems = check_images(read_as_trained(args), args.on_error)
    if args.stream == "always":
        args.streams(samples.images or ())  # refuses what cannot be
    samples = hold_out_test(samples, args.test_share)
    if not len(samples.index("train")):
        raise DataError(f"{args.data}: no training samples")
    samples = args.make_perturbation().perturb_tree(samples)
    samples, kept = args.make_mask().apply(samples)
    samples = args.make_perturbation().perturb_labels(samples)
    share = args.val if args.val is not None else (0.1 if args.select == "best" and not len(samples.index("val")) else 0.0)
    held = np.empty(0, dtype=np.int64)
    if fold := args.fold_numbers():
        held = draw_fold(samples, samples.index("train"), *fold, seed=args.seed)
    elif share:
        held = draw_share(samples, samples.index("train"), share, seed=args.seed, purpose="val")
    if len(held):
        samples = with_split(samples, held, "val")
        kept = np.setdiff1d(kept, held)
    if args.select == "best" and not len(samples.index("val")):
        raise DataError(f"{args.data}: too few samples to set any aside for validation; use --select last or a larger --val")
    return Prepared(samples, kept, problems)


def split_record(args: TrainArgs, prepared: Prepared) -> dict[str, Any]:
    """The content of split.json: positions of samples in the data, in its own order."""
    samples = prepared.samples
    mask = dataclasses.asdict(args.make_mask())
    return {
        "mask": mask,
        "kept": prepared.kept.tolist(),
        **{name: samples.index(name).tolist() for name in ("train", "val", "test")},
    }


def same_split(run: Run, prepared: Prepared) -> bool:
    """Whether the data still gives the samples and masks the run was started with."""
    record = json.loads(run.split.read_text())
    return bool(
        record["kept"] == prepared.kept.tolist()
        and all(record[name] == prepared.samples.index(name).tolist() for name in ("train", "val", "test"))
    )


# ---- build ---------------------------------------------------------------------------------------------------------


def build(args: TrainArgs, samples: Samples) -> Model:
    """Backbone and method, as the options and the data have it."""
    in_features = 0 if samples.features is None else samples.features.shape[1]
    backbone = create_backbone(backbone_name(args, samples), pretrained=args.pretrained, in_features=in_features)
    if samples.features is not None:
        width, spec = in_features, None
    else:
        width, spec = backbone.num_features, backbone.preprocess
        assert spec is not None
        if args.augment == "paper":
            spec = paper_preprocess(args.image_size or spec.size)
        elif args.image_size:
            spec = spec.resized(args.image_size)
    options = args.method_options()
    own = parse_options(args.method, args.option)
    if args.preset != "default":  # a preset speaks to every method; each takes what concerns it
        options = {name: value for name, value in options.items() if name in method_options(args.method, common=True)}
    options |= own
    method = create_method(args.method, width, samples.hierarchy, **options)
    fixed, unknown = backbone.name == "none" or args.freeze, (samples.labels[samples.index("train"), 0] < 0).any()
    if args.semi != "none" and fixed and unknown and "input_dropout" not in options and method.can_drop:
        options["input_dropout"] = SEMI_DROPOUT
        regularise(method, **{name: options[name] for name in options if name in COMMON_OPTIONS})
    if isinstance(method, Estimator) and samples.features is None and not args.freeze:
        raise ConfigError(f"--method {args.method} learns from features: add --freeze, or pass an .npz of features")
    return Model(backbone, method, options=options, preprocess=spec)


def backbone_name(args: TrainArgs, samples: Samples) -> str:
    """What `auto` stands for, and whether the choice fits the data."""
    if samples.features is not None:
        if args.backbone not in ("auto", "none", "linear") and args.preset == "default":
            raise ConfigError(f"--backbone {args.backbone} needs pictures; {args.data} holds features already")
        if args.freeze:
            raise ConfigError(f"--freeze is for pictures; {args.data} holds features already")
        return "linear" if args.backbone == "linear" else "none"
    if args.backbone in ("none", "linear"):
        raise ConfigError(f"--backbone {args.backbone} is for features; {args.data} holds pictures")
    if args.backbone == "auto":
        return "small" if args.data == "demo" else "resnet18"
    return args.backbone


def start_run(run: Run, args: TrainArgs, prepared: Prepared, model: Model) -> None:
    """Make the run directory and write what is known before training."""
    model.write_config(run.path, extra={"train": args.to_dict()})
    write_json(run.split, split_record(args, prepared), indent=None)
    if prepared.problems:
        write_problems(run.path / "problems.csv", prepared.problems)


@dataclass(frozen=True)
class Sets:
    """What the network is fed: the part of the model that trains, and the samples of each split."""

    network: nn.Module
    train: SampleSet
    val: SampleSet | None
    test: SampleSet
    workers: int


def taught_samples(args: TrainArgs, samples: Samples, model: Model) -> Ints:
    """The training samples the method learns from, as many as there are training samples at all.

    A method that learns from some of them only sees these more often, so that every method gets the same number of steps; one
    that is fitted at once sees each of them once.
    """
    index = samples.index("train")
    if args.semi != "none":
        return index  # what a sample's labels do not teach, its target does
    learns = model.method.learns_from(torch.from_numpy(samples.labels[index])).numpy()
    if not learns.any():
        raise DataError(f"{args.data}: no training sample has a label that {args.method} can learn from")
    return index[learns] if isinstance(model.method, Estimator) else np.resize(index[learns], len(index))


def make_semi(args: TrainArgs, samples: Samples, model: Model, taught: Ints) -> Semi | None:
    """Targets for unknown labels, when they are asked for."""
    if args.semi == "none":
        return None
    labels = samples.labels[taught]
    if not (labels[:, 0] >= 0).any():
        raise DataError(f"{args.data}: --semi {args.semi} needs some samples with a label at the finest level; there is none")
    assert args.epochs is not None
    ready = model.preprocess is None or args.freeze or model.backbone.pretrained
    return Semi(args.semi, labels, samples.hierarchy, epochs=args.epochs, ready=ready)


def make_sets(fabric: Fabric, args: TrainArgs, samples: Samples, model: Model, taught: Ints) -> Sets:
    """Sets of batches. A frozen backbone is run once, here, and only the method trains after that."""
    workers = args.workers if args.workers is not None else (os.cpu_count() or 1)
    features, network = samples.features, model if not args.freeze else model.method
    if args.freeze:
        features = compute_features(fabric, args, samples, model, workers)

    def part(index: Ints, *, training: bool = False) -> SampleSet:
        images = [samples.images[i] for i in index] if samples.images else None
        x = features[index] if features is not None else None
        streamed = training and features is None and args.streams(images or ())
        augment = training and args.augment != "none"
        return sample_set(x, images, samples.labels[index], model.preprocess, augment=augment, streamed=streamed)

    val = samples.index("val")
    return Sets(
        network=network,
        train=part(taught, training=True),
        val=part(val) if len(val) else None,
        test=part(samples.index("test")),
        workers=workers,
    )


def compute_features(fabric: Fabric, args: TrainArgs, samples: Samples, model: Model, workers: int) -> np.ndarray[Any, Any]:
    """Features of all samples from the frozen backbone; other processes wait for the first and read what it kept."""
    spec: Preprocess | None = model.preprocess
    assert spec is not None
    quiet = args.quiet or not fabric.is_global_zero
    what = f"{model.backbone.name}, frozen · features"
    with fabric.rank_zero_first():
        if cache_path(samples, model.backbone, spec).is_file():
            show.note(f"{what} of {len(samples):,} pictures from the cache", quiet=quiet)
        with show.counting(what, len(samples), quiet=quiet) as count:
            features = frozen_features(samples, model.backbone, spec, device=fabric.device, workers=workers, progress=count)
    model.backbone.requires_grad_(False)
    return features


def warm_features(args: TrainArgs, samples: Samples) -> None:
    """Compute a frozen backbone's features now, if they are not kept yet, so that several runs find them."""
    fabric = make_fabric(args)
    torch.manual_seed(args.seed)
    model = build(dataclasses.replace(args, method="flat", option=()), samples)
    compute_features(fabric, args, samples, model, args.workers if args.workers is not None else (os.cpu_count() or 1))


# ---- fit -----------------------------------------------------------------------------------------------------------


def make_optimizer(args: TrainArgs, model: Model) -> Optimizer:
    """Two learning rates: the method's, and the backbone's, which is a tenth of it when the backbone is pretrained."""
    assert args.lr is not None
    assert args.weight_decay is not None
    slow = args.lr * (0.1 if model.backbone.pretrained else 1.0) if args.backbone_lr is None else args.backbone_lr
    groups = [{"params": list(model.method.parameters()), "lr": args.lr, "start_lr": args.lr}]
    backbone = [p for p in model.backbone.parameters() if p.requires_grad]
    if backbone:
        groups.append({"params": backbone, "lr": slow, "start_lr": slow})
    if args.optimizer == "adamw":
        return AdamW(groups, weight_decay=args.weight_decay)
    return SGD(groups, momentum=0.9, weight_decay=args.weight_decay)


def fit(fabric: Fabric, args: TrainArgs, run: Run, model: Model, sets: Sets, semi: Semi | None) -> History:
    """All epochs, with a checkpoint after each; starts where the last checkpoint ended."""
    if isinstance(model.method, Estimator):
        return fit_at_once(fabric, args, run, model, sets, semi)
    optimizer = make_optimizer(args, model)
    done, history = 0, History()
    step = Step(sets.network, model, mixup=args.mixup, smoothing=args.label_smoothing, shares=semi.shares if semi else ())
    step, optimizer = fabric.setup(step, optimizer)
    averaged = Averaged(sets.network, args.ema or TEACHER) if args.ema or (semi and semi.needs_teacher) else None
    kept = averaged.network if averaged and args.ema else sets.network
    assert args.epochs is not None
    steps = len(batches_of(args, sets, epoch=0))
    if run.last.is_file():
        done, history, more = load_checkpoint(run.last, sets.network, optimizer)
        if averaged:
            averaged.restore(more, done * steps)
        if semi:
            semi.restore({name.removeprefix("semi."): value for name, value in more.items() if name.startswith("semi.")})
    logger = make_logger(fabric, args, run)
    quiet = args.quiet or not fabric.is_global_zero
    with show.EpochView(args.epochs, steps, start=done, quiet=quiet) as view:
        for epoch in range(done, args.epochs):
            started = time.monotonic()
            found = {}
            if semi:
                asked = averaged.network if averaged else sets.network
                found = begin_epoch(
                    semi, asked, sets.train, seed=args.seed, epoch=epoch, device=fabric.device, workers=sets.workers
                )
                if found:
                    view.say(propagated_text(semi, found))
            before = time.monotonic() - started
            row = train_epoch(fabric, args, model, sets, step, optimizer, epoch, view, semi, averaged) | found
            row["seconds"] += before
            if sets.val is not None:
                row |= validate(fabric, model, kept, sets, sets.val)
            history.append(row)
            if fabric.is_global_zero:
                more = averaged.state() if averaged else {}
                more |= {f"semi.{name}": value for name, value in semi.state().items()} if semi else {}
                keep_epoch(args, run, sets.network, kept, optimizer, history, more)
            if logger:
                logger.log_metrics({name: value for name, value in row.items() if name != "epoch"}, step=epoch + 1)
            view.epoch(epoch + 1, epoch_text(model.hierarchy, row))
            fabric.barrier()
    if kept is not sets.network:
        sets.network.load_state_dict(kept.state_dict())
    return history


def fit_at_once(fabric: Fabric, args: TrainArgs, run: Run, model: Model, sets: Sets, semi: Semi | None) -> History:
    """What stands in for epochs with a method that sees all samples at once; its history has one row.

    Unknown labels are filled in with the likeliest classes of their targets, and from the model's own it learns a second time.
    """
    assert isinstance(model.method, Estimator)
    assert isinstance(sets.train, FeatureSet)
    started, row = time.monotonic(), {"epoch": 1.0}
    x, labels = sets.train.x, sets.train.labels
    turns = [0, max(semi.rounds) + 1] if semi and semi.needed and semi.needs_teacher else [0]  # its features stay the same
    for epoch in turns:
        if semi:
            with torch.no_grad():
                row |= semi.begin(epoch, lambda: x, lambda: [(np.arange(len(x)), model.method(x).log_probs[0], None)])
        seen = torch.from_numpy(semi.fill()) if semi and semi.targets else labels
        learns = model.method.learns_from(seen)
        model.method.fit(x[learns], seen[learns], seed=args.seed)
    row["seconds"] = time.monotonic() - started
    if sets.val is not None:
        row |= validate(fabric, model, sets.network, sets, sets.val)
    if fabric.is_global_zero:
        run.write_history([row])
    return [row]


def batches_of(args: TrainArgs, sets: Sets, epoch: int) -> list[list[int]]:
    """The batches of an epoch, over all processes."""
    assert args.batch_size is not None
    return set_batches(sets.train, args.batch_size, seed=args.seed, epoch=epoch, drop_last=args.drop_last)


def train_epoch(
    fabric: Fabric,
    args: TrainArgs,
    model: Model,
    sets: Sets,
    step: nn.Module,
    optimizer: Optimizer,
    epoch: int,
    view: show.EpochView,
    semi: Semi | None,
    averaged: Averaged | None,
) -> dict[str, float]:
    """One pass over the training samples; gives its row of the history."""
    torch.manual_seed(np.random.SeedSequence([args.seed, epoch]).generate_state(1)[0].item())
    sets.train.set_epoch(args.seed, epoch)
    assert args.epochs is not None
    factor = (1 + math.cos(math.pi * epoch / args.epochs)) / 2
    for group in optimizer.param_groups:
        group["lr"] = group["start_lr"] * factor
    step.train()
    batches = batches_of(args, sets, epoch)
    mine = [batch[fabric.global_rank :: fabric.world_size] for batch in batches if len(batch) >= fabric.world_size]
    total, hits, started = torch.zeros((), device=fabric.device), torch.zeros(len(model.hierarchy), 2), time.monotonic()
    hits = hits.to(fabric.device)
    for rows, (x, labels) in zip(mine, load(sets.train, mine, sets.workers), strict=True):
        target = semi.targets.at(torch.tensor(rows)).to(fabric.device) if semi and semi.targets else None
        parts = (target.index, target.value, target.weight) if target else None
        loss, found = step(x.to(fabric.device), labels.to(fabric.device), parts)
        optimizer.zero_grad()
        fabric.backward(loss)
        if args.clip:
            fabric.clip_gradients(step, optimizer, max_norm=args.clip)
        optimizer.step()
        if averaged:
            averaged.update(sets.network)
        total += loss.detach()
        hits += found
        view.step(epoch + 1)
    loss_sum, hits = fabric.all_reduce((total, hits), reduce_op="sum")
    seconds = time.monotonic() - started
    mean_loss = (loss_sum / (len(mine) * fabric.world_size)).item()
    if not math.isfinite(mean_loss):
        raise DivergedError(f"the loss is {mean_loss} in epoch {epoch + 1}: training diverged; try a lower --lr than {args.lr}")
    accuracy = (hits[:, 0] / hits[:, 1].clamp(min=1)).tolist()
    levels = {f"train_{model.hierarchy.levels[k]}": accuracy[k] for k in model.hierarchy.top_down}
    seen = sum(len(batch) for batch in batches)
    return {
        "epoch": epoch + 1,
        "lr": optimizer.param_groups[0]["lr"],
        "loss": mean_loss,
        **levels,
        **model.method.scalars(),
        "images_per_second": seen / seconds,
        "seconds": seconds,
    }


def measure_on(
    fabric: Fabric, model: Model, network: nn.Module, sets: Sets, data: SampleSet, more_rules: Sequence[Rule] = ()
) -> dict[str, Any]:
    """All metrics on a set; with several processes each sample is seen by one of them."""
    return measure(
        network,
        data,
        model.hierarchy,
        more_rules=more_rules,
        device=fabric.device,
        workers=sets.workers,
        rank=fabric.global_rank,
        world=fabric.world_size,
        calibration=model.calibration,
    )


def validate(fabric: Fabric, model: Model, network: nn.Module, sets: Sets, data: SampleSet) -> dict[str, float]:
    """Accuracy on the validation samples, per level and on average."""
    metrics = measure_on(fabric, model, network, sets, data)
    levels = {f"val_{level['name']}": level["accuracy"] for level in metrics["levels"] if level["accuracy"] is not None}
    return {**levels, "val_mean": metrics["mean_accuracy"]}


def keep_epoch(
    args: TrainArgs,
    run: Run,
    network: nn.Module,
    kept: nn.Module,
    optimizer: Optimizer,
    history: History,
    more: dict[str, Tensor],
) -> None:
    """Checkpoint and history, the best weights first: a kill in between repeats the epoch and writes the same again.

    Args:
        args: the options.
        run: where to.
        network: what is trained.
        kept: what is kept of it in the end: itself, or its average.
        optimizer: its optimizer.
        history: the epochs so far.
        more: other tensors that training needs to go on.
    """
    if args.select == "best" and best_epoch(history) == len(history):
        with replacing(run.best) as beside:
            save_file({n: v.detach().cpu().contiguous() for n, v in kept.state_dict().items()}, beside)
    save_checkpoint(run.last, network, optimizer, len(history), history, more)
    run.write_history(history)


def best_epoch(history: History) -> int:
    """The epoch with the highest mean validation accuracy, the earliest of equals; counted from 1."""
    return 1 + max(range(len(history)), key=lambda i: (history[i]["val_mean"], -i))


def make_logger(fabric: Fabric, args: TrainArgs, run: Run) -> TensorBoardLogger | None:
    """TensorBoard events, when it is installed and wanted."""
    if not args.track or not fabric.is_global_zero or not RequirementCache("tensorboard"):
        return None
    return TensorBoardLogger(run.path, name="tensorboard", version="")


def epoch_text(tree: Hierarchy, row: dict[str, float]) -> str:
    """An epoch in a line: loss, accuracy per level (on validation samples where there are any), speed."""
    part = "val" if "val_mean" in row else "train"
    levels = [f"{tree.levels[k]} {show.percent(row.get(f'{part}_{tree.levels[k]}'))}" for k in tree.top_down]
    return f"loss {row['loss']:.3f}  {part}: {'  '.join(levels)}  {row['images_per_second']:,.0f} img/s"


def propagated_text(semi: Semi, found: dict[str, float]) -> str:
    """What was found out about propagated labels, in a line."""
    count = int((semi.labels[:, 0] < 0).sum())
    return (
        f"{count:,} samples without a finest label take part with what their neighbours are"
        f" · {show.percent(found['propagated_right'])} right on {found['propagated_checked']:.0f} labels set aside"
    )


# ---- keep ----------------------------------------------------------------------------------------------------------


def finish(fabric: Fabric, args: TrainArgs, run: Run, model: Model, sets: Sets, history: History) -> None:
    """Choose the epoch, measure it on the test samples, and write the model and its metrics."""
    at_once, chosen = isinstance(model.method, Estimator), len(history)
    if args.select == "best" and not at_once:
        chosen = best_epoch(history)
        sets.network.load_state_dict(load_file(run.best))
    if sets.val is not None:
        seen = collect(sets.network, sets.val, device=fabric.device, workers=sets.workers)
        model.calibration = fit_calibration(*seen, model.hierarchy, source="val part of its own data")
    metrics = measure_on(fabric, model, sets.network, sets, sets.test, more_rules=args.rules) if args.test else {}
    metrics["selection"] = {"rule": "at once" if at_once else args.select, "epoch": chosen, "epochs": len(history)}
    if sets.val is not None:
        metrics["validation"] = {n: v for n, v in history[chosen - 1].items() if n.startswith("val_")}
    for row in history:
        if "propagated_right" in row:
            metrics["propagated"] = {"right": row["propagated_right"], "checked": int(row["propagated_checked"])}
    metrics["train_seconds"] = sum(row["seconds"] for row in history)
    steps = 0 if at_once else len(history) * len(batches_of(args, sets, epoch=0))
    metrics["seconds_per_step"] = metrics["train_seconds"] / steps if steps else None
    metrics["parameters"] = model.method.parameter_count()
    if fabric.is_global_zero:
        model.save_pretrained(run.path, extra={"train": args.to_dict()})
        run.write_metrics(metrics)
    fabric.barrier()
