"""Training, top to bottom: prepare → build → fit → keep. Lightning Fabric handles several processes, GPUs and precisions.

Every random choice depends on the seed and the epoch alone, so a run that is killed and resumed ends with the same weights,
bit for bit, as one that is not (on a CPU, with the same number of threads and processes).
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from torchlht import console
from torchlht.answer.asking import ask_all, find_device, join, over
from torchlht.answer.calibration import Calibration, fit_calibration
from torchlht.answer.finding import check_folder
from torchlht.answer.model import History, Model, Run
from torchlht.answer.novelty import Novelty, fit_novelty, leaves_of
from torchlht.answer.records import read_config, read_options, read_split
from torchlht.data.batches import FeatureSet, SampleSet, sample_set
from torchlht.data.doubts import doubts, refuse_placeholders
from torchlht.data.named import is_known
from torchlht.data.pictures import write_problems
from torchlht.data.preparing import Preprocess
from torchlht.data.samples import (
    Ints,
    Samples,
    check_images,
    choose_fold,
    choose_share,
    hold_out_test,
    short_name,
    with_split,
)
from torchlht.doors import entrance
from torchlht.errors import ConfigError, DataError, RunError, as_flag
from torchlht.files import claimed, write_json
from torchlht.heads.guessing import Opinion
from torchlht.heads.method import Estimator, find_method, older_options
from torchlht.heads.prediction import Prediction
from torchlht.learn.alone import Machine
from torchlht.learn.building import build, make_semi, taught_samples
from torchlht.learn.fitting import (
    Sets,
    ask_for_opinion,
    batches_of,
    best_epoch,
    fit,
    measure_on,
    shorten,
    validate,
    with_guesses,
)
from torchlht.learn.following.follow import check_board, followed
from torchlht.learn.header import frozen_text, header
from torchlht.learn.launching import check_compiler, find_machine, keep_memory, launch_id
from torchlht.learn.options import BEFORE, HERE, SETTLED, Recipe, TrainArgs, pairs
from torchlht.learn.views import as_trained, with_views
from torchlht.measure.evaluation import cache_path, frozen_features, kept_features, read_as_trained, run_inputs, with_data
from torchlht.measure.outcomes import Recorder


def train(args: TrainArgs) -> Path:
    """Train, evaluate on the test samples and save everything in a run directory; returns its path.

    >>> run = train(TrainArgs("birds.csv", method="lht", backbone="resnet50", out=Path("runs/birds")))

    Raises:
        LHTError: if the options or the data are wrong, before anything is written.
    """
    from torchlht.learn.several import train_several, trains_several

    if trains_several(args):
        return train_several(args)
    for name in args.track_to:
        check_board(name)
    machine = find_machine(args.accelerator, args.devices, args.precision)
    with claim_of_all(machine, place(args)):
        return train_there(machine, args)


def train_there(machine: Machine, args: TrainArgs) -> Path:
    """Train in a folder that these processes have claimed."""
    launch = launch_id(machine)
    args, run, resuming = open_run(args, launch)
    if run.metrics.is_file():
        return run.path  # torchrun has restarted it after it finished
    prepared = prepare(args)
    torch.manual_seed(args.seed)
    model = build(args, prepared.samples)
    if args.audit:
        prepared = doubting(machine, args, prepared, model)
    if args.compile:
        check_compiler(machine.device)
    features, samples = args.freeze or model.preprocess is None, len(prepared.samples.index("train"))
    width, classes, pretrained = model.method.in_features, model.hierarchy.sizes[0], model.backbone.pretrained
    recipe = args.recipe(features=features, samples=samples, width=width, classes=classes, pretrained=pretrained)
    taught = taught_samples(args, prepared.samples, model)
    semi = make_semi(args, recipe, prepared.samples, model, taught)
    frozen = frozen_text(args.freeze, args.freeze_stages)
    said = header(prepared.samples, len(prepared.problems), model, recipe, machine.device, run.path, frozen=frozen)
    heeded = model.method.heed(torch.from_numpy(prepared.samples.labels[prepared.samples.index("train")]))
    said = "\n".join([said, *(f"look    {sentence}" for sentence in [*prepared.doubts, *heeded])])
    console.note(said, quiet=args.quiet or not machine.is_global_zero)
    if not resuming:
        machine.barrier()
        if machine.is_global_zero:
            start_run(run, origin(args, recipe, launch), args, prepared, model)
    elif not run.split.is_file() or not same_split(run, prepared):
        raise RunError(f"{run.path}: the data has changed since this run was started; train again with another `out`")
    machine.barrier()
    if model.preprocess is not None and machine.device.type == "cpu":
        keep_memory()
    sets = make_sets(machine, args, prepared.samples, model, taught)
    opinion = ask_for_opinion(recipe, model, sets.train)
    shown = with_views(machine, args, recipe.views, prepared.samples, model, taught, sets)
    with model.backbone.entering(args.freeze_stages), followed(machine, args, run, args.settled(recipe)) as follow:
        history = fit(machine, recipe, run, model, with_guesses(recipe, shown, opinion), semi, follow)
        metrics = finish(machine, args, recipe, run, model, shown, history, opinion)
        follow.result(metrics)
        if machine.is_global_zero and args.test:
            seen, known = (seen_samples(args, prepared.samples, model, shown, split) for split in ("train", "val"))
            model.novelty = None if seen is None else learn_novelty(model, seen, known, sets.workers)
    if machine.is_global_zero:
        model.save(run.path, extra=origin(args, recipe, launch))
        run.write_metrics(metrics)
    machine.barrier()
    return run.path


# ---- prepare -------------------------------------------------------------------------------------------------------


def place(args: TrainArgs) -> Path:
    """The run directory that the options name."""
    if args.resume is not None:
        check_folder(args.resume)
        return args.resume
    if not args.data:
        raise ConfigError("no data: lht train DATA, where DATA is a folder, a .csv, an .npz or demo")
    return args.out or Path("runs") / f"{short_name(args.data) or 'data'}-{args.method}-s{args.seed}"


@contextmanager
def claim_of_all(machine: Machine, folder: Path) -> Iterator[None]:
    """Context: the first process claims the folder for all of them; if it cannot, none goes on."""
    with ExitStack() as stack:
        refused: str | None = None
        if machine.is_global_zero:
            try:
                stack.enter_context(claimed(folder))
            except RunError as error:
                refused = error.message
        refused = machine.broadcast(refused)
        if refused is not None:
            raise RunError(refused)
        yield


def open_run(args: TrainArgs, launch: str | None = None) -> tuple[TrainArgs, Run, bool]:
    """The run to write, and the options to use: those it was started with, when resuming.

    Args:
        args: the options.
        launch: see `launch_id`: a run that the same torchrun started before is resumed automatically.
    """
    if args.resume is not None:
        return *resumed(args, Run(args.resume)), True
    find_method(args.method)
    out = place(args)
    run = Run(out)
    args = dataclasses.replace(args.lasting(), out=out)
    if launch is None and run.config.is_file() and not run.metrics.is_file():
        return open_unfinished(args, run)
    if launch is None or not run.config.is_file() or read_config(out).get("launch") != launch:
        run.claim()
        return args, run, False
    if run.metrics.is_file() or not run.split.is_file():  # it has finished, or had hardly begun
        return args, run, False
    return *resumed(args, run), True


def open_unfinished(args: TrainArgs, run: Run) -> tuple[TrainArgs, Run, bool]:
    """What the same command as before does: it goes on. With other options it starts anew, unless there is work to lose."""
    others = changed_options(args, TrainArgs.from_dict(read_config(run.path)["train"]).lasting())
    if not others and run.split.is_file():
        console.note(f"{run.path}: goes on with the run that was interrupted there", quiet=args.quiet)
        return *resumed(args, run), True
    if run.last.is_file():
        raise RunError(
            f"{run.path}: holds an unfinished run with other options ({', '.join(others)}); continue it with "
            f"lht train --resume {run.path}, remove it, or choose another `out`"
        )
    run.clear()
    return args, run, False


def changed_options(args: TrainArgs, kept: TrainArgs) -> list[str]:
    """The options, as flags, that differ from those a run was started with; those of the machine and the screen may."""
    mine, theirs = args.to_dict(), kept.to_dict()
    free = {*HERE, "quiet", "track", "track_to", "out", "resume", *(name for name in SETTLED if mine[name] is None)}
    return [as_flag(name) for name in mine if name not in free and mine[name] != theirs[name]]


def resumed(args: TrainArgs, run: Run) -> tuple[TrainArgs, Run]:
    """An unfinished run and its own options, with the options of the machine taken from `args`."""
    if run.metrics.is_file():
        raise RunError(f"{run.path}: this run has finished; there is nothing to resume")
    kept = own_options(read_config(run.path), read_options(run.path, TrainArgs))
    here = {name: getattr(args, name) for name in HERE}
    return dataclasses.replace(kept, quiet=args.quiet, track_to=args.track_to or kept.track_to, **here), run


def own_options(config: dict[str, Any], args: TrainArgs | None = None) -> TrainArgs:
    """The options a run was started with, from its config; those of its method that came later are what they were before."""
    args = args or TrainArgs.from_dict(config["train"])
    args = dataclasses.replace(args, **{name: value for name, value in BEFORE.items() if name not in config["train"]})
    return dataclasses.replace(args, option=(*later_options(config), *args.option))


def later_options(config: dict[str, Any]) -> list[str]:
    """Options of its method that came after a run was made, with what they were then, as NAME=VALUE."""
    return pairs(older_options(config["model"]["method"], config["model"]["options"]))


def origin(args: TrainArgs, recipe: Recipe, launch: str | None) -> dict[str, Any]:
    """What config.yaml records about how a run was started."""
    return {"train": args.settled(recipe), **({"launch": launch} if launch else {})}


@dataclass(frozen=True)
class Prepared:
    """Data ready for training, split and masked; the pictures left out, and what looks wrong with it."""

    samples: Samples
    kept: Ints
    problems: list[Any]
    doubts: list[str] = field(default_factory=list)


def prepare(args: TrainArgs) -> Prepared:
    """Read the data, check every picture, set test samples aside, mask, set validation samples aside: in this order."""
    samples = read_as_trained(args)
    if args.unknown is None:
        refuse_placeholders(samples)
    samples, problems = check_images(samples, args.on_error)
    if args.stream == "always":
        args.streams(samples.images or ())  # raises if streaming is impossible
    doubtful = doubts(samples)
    samples = hold_out_test(samples, args.test_share)
    if not len(samples.index("train")):
        raise DataError(f"{args.data}: no training samples")
    faults = args.make_faults()
    samples = faults.perturb_tree(samples) if faults else samples
    samples, kept = args.make_mask().apply(samples)
    samples = faults.perturb_labels(samples) if faults else samples
    share = args.val if args.val is not None else (0.1 if args.select == "best" and not len(samples.index("val")) else 0.0)
    held = np.empty(0, dtype=np.int64)
    if fold := args.fold_numbers():
        held = choose_fold(samples, samples.index("train"), *fold, seed=args.seed)
    elif share:
        held = choose_share(samples, samples.index("train"), share, seed=args.seed, purpose="val")
    if len(held):
        samples = with_split(samples, held, "val")
        kept = np.setdiff1d(kept, held)
    if args.select == "best" and not len(samples.index("val")):
        raise DataError(f"{args.data}: too few samples to set any aside for validation; use `select=last` or a larger `val`")
    return Prepared(samples, kept, problems, doubtful)


def doubting(machine: Machine, args: TrainArgs, prepared: Prepared, model: Model) -> Prepared:
    """The data with other labels where they are probably wrong; every process finds the same."""
    from torchlht.learn.audit.believing import believed, judge_labels, judged_before

    samples = prepared.samples
    if args.audit == "auto":
        x = samples.features
        if x is None and not (args.freeze or model.backbone.pretrained):
            raise ConfigError("`audit=auto` compares features: take a pretrained backbone, or pass what lht audit has written")
        x = compute_features(machine, args, samples, model, args.workers or 0) if x is None else x
        model.backbone.requires_grad_(not args.freeze)
        judged = judge_labels(samples, x, seed=args.seed)
    else:
        judged = judged_before(samples, Path(str(args.audit)))
    samples, other, fewer = believed(samples, judged)
    said = f"audit   labels of {other + fewer:,} training samples are probably wrong: {other:,} get others, {fewer:,} lose some"
    console.note(said, quiet=args.quiet or not machine.is_global_zero)
    return dataclasses.replace(prepared, samples=samples)


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
    """Whether the data still has the samples and masks the run was started with."""
    record = read_split(run.path)
    return bool(
        record["kept"] == prepared.kept.tolist()
        and all(record[name] == prepared.samples.index(name).tolist() for name in ("train", "val", "test"))
    )


# ---- begin ---------------------------------------------------------------------------------------------------------


def start_run(run: Run, made: dict[str, Any], args: TrainArgs, prepared: Prepared, model: Model) -> None:
    """Create the run directory and write what is known before training; `made` is what `origin` returns."""
    write_json(run.split, split_record(args, prepared), indent=None)
    if prepared.problems:
        write_problems(run.path / "problems.csv", prepared.problems)
    model.write_config(run.path, extra=made)  # last: with it, the run can be resumed


def make_sets(machine: Machine, args: TrainArgs, samples: Samples, model: Model, taught: Ints) -> Sets:
    """The sets of samples to train on and measure with. A frozen backbone runs once, here; then only the method trains."""
    workers = args.workers if args.workers is not None else (os.cpu_count() or 1)
    features, network = samples.features, model if not args.freeze else model.method
    if args.freeze:
        features = compute_features(machine, args, samples, model, workers)

    def part(index: Ints, *, training: bool = False) -> SampleSet:
        images = [samples.images[i] for i in index] if samples.images else None
        x = features[index] if features is not None else None
        streamed = training and features is None and args.streams(images or ())
        augment = args.augment if training else "none"
        return sample_set(x, images, samples.labels[index], model.preprocess, augment=augment, streamed=streamed)

    val = samples.index("val")
    return Sets(
        network=network,
        train=part(taught, training=True),
        val=part(val) if len(val) else None,
        test=part(samples.index("test")),
        workers=workers,
    )


def compute_features(machine: Machine, args: TrainArgs, samples: Samples, model: Model, workers: int) -> np.ndarray[Any, Any]:
    """Features of all samples from the frozen backbone; other processes wait for the first and read its file."""
    spec: Preprocess | None = model.preprocess
    assert spec is not None
    quiet = args.quiet or not machine.is_global_zero
    what = f"{model.backbone.name}, frozen · features"
    with machine.rank_zero_first():
        if cache_path(samples, model.backbone, spec).is_file():
            console.note(f"{what} of {len(samples):,} pictures from the cache", quiet=quiet)
        with console.counting(what, len(samples), quiet=quiet) as count:
            features = frozen_features(samples, model.backbone, spec, device=machine.device, workers=workers, progress=count)
    model.backbone.requires_grad_(False)
    return features


def warm_features(args: TrainArgs, samples: Samples) -> None:
    """Compute what a frozen backbone gives now, if it is not in the cache yet, so that several runs can use it."""
    machine, taught = find_machine(args.accelerator, args.devices, args.precision), samples.index("train")
    torch.manual_seed(args.seed)
    model = build(dataclasses.replace(args, method="flat", option=()), samples)
    views = args.recipe(features=args.freeze, samples=len(taught)).views
    with_views(machine, args, views, samples, model, taught, make_sets(machine, args, samples, model, taught))


# ---- keep ----------------------------------------------------------------------------------------------------------


def finish(
    machine: Machine,
    args: TrainArgs,
    recipe: Recipe,
    run: Run,
    model: Model,
    sets: Sets,
    history: History,
    opinion: Opinion | None,
) -> dict[str, Any]:
    """Choose the epoch and measure it on the test samples; returns its metrics."""
    at_once, chosen = isinstance(model.method, Estimator), len(history)
    if args.select == "best" and not at_once:
        chosen = best_epoch(history)
        sets.network.load_state_dict(load_file(run.best))
    shorten(recipe, model, sets.train, opinion)
    if sets.val is not None:
        seen = ask_all(sets.network, sets.val, workers=sets.workers)
        model.calibration = fit_calibration(*seen, model.hierarchy, source="val part of its own data")
    metrics: dict[str, Any] = {}
    if args.test:
        record = Recorder(args.rules)
        metrics = measure_on(machine, model, sets.network, sets, sets.test, args.rules, record, model.rule)
        outcomes = record.outcomes()  # of all processes
        if outcomes is not None and machine.is_global_zero:
            outcomes.write(run.path)
    metrics["selection"] = {"rule": "at once" if at_once else args.select, "epoch": chosen, "epochs": len(history)}
    if sets.val is not None:
        row = validate(machine, model, sets.network, sets, sets.val) if recipe.shortcut else history[chosen - 1]
        metrics["validation"] = {n: v for n, v in row.items() if n.startswith("val_")}
    for row in history:
        if "propagated_right" in row:
            metrics["propagated"] = {"right": row["propagated_right"], "checked": int(row["propagated_checked"])}
    metrics["train_seconds"] = sum(row["seconds"] for row in history)
    steps = 0 if at_once else len(history) * len(batches_of(recipe, sets, epoch=0))
    metrics["seconds_per_step"] = metrics["train_seconds"] / steps if steps else None
    metrics["parameters"] = model.method.parameter_count()
    return metrics


# ---- what is unlike anything it was trained on -------------------------------------------------------------------------

MOST_SEEN = 20_000  # training samples that are looked at


def learn_novelty(model: Model, seen: SampleSet, known: SampleSet | None, workers: int = 0) -> Novelty | None:
    """What tells how unlike training samples a sample is; None if there are too few.

    Args:
        model: the trained model.
        seen: its training samples, with the labels it could see.
        known: labelled or not, samples that it was not trained on.
        workers: how many processes decode pictures.
    """
    step = -(-len(seen) // MOST_SEEN)
    found = [
        (features, leaves_of(said, labels, model.hierarchy))
        for features, said, labels in _looked_at(model, seen, workers, range(0, len(seen), step))
    ]
    others = [] if known is None else [(one, said) for one, said, _ in _looked_at(model, known, workers, range(len(known)))]
    features, leaves = (torch.cat(parts) for parts in zip(*found, strict=True))
    return fit_novelty(features, leaves, len(model.hierarchy), others)


def _looked_at(
    model: Model, data: SampleSet, workers: int, samples: Sequence[int]
) -> Iterator[tuple[torch.Tensor, Prediction, torch.Tensor]]:
    """Features that the method takes, its predictions for them, and labels, batch by batch."""
    ready = isinstance(data, FeatureSet) and model.preprocess is not None

    def look(x: torch.Tensor) -> tuple[torch.Tensor, Prediction]:
        features = x if ready else model.backbone(x)
        return model.method.pool(features).float().cpu(), model.method(features)

    for _, (features, said), labels in over(model.method if ready else model, data, look, samples=samples, workers=workers):
        yield features, said, labels


def seen_samples(args: TrainArgs, samples: Samples, model: Model, sets: Sets, split: str) -> SampleSet | None:
    """A part of the samples to learn novelty from: as answers see them or, if first stages are frozen, by as many views."""
    if args.freeze_stages:
        return as_trained(args, samples, sets, split)
    return own_samples(samples, model, split, frozen=args.freeze)


def own_samples(samples: Samples, model: Model, split: str, *, frozen: bool) -> SampleSet | None:
    """A part of the samples in the form the model takes, features of a frozen backbone if they are there; None without any."""
    index = samples.index(split)
    features = kept_features(samples, model) if frozen else samples.features
    images = [samples.images[i] for i in index] if samples.images else None
    x = None if features is None else features[index]
    return sample_set(x, images, samples.labels[index], model.preprocess) if len(index) else None


# ---- calibrate: on validation samples, on other data, or on a run's own training samples by turns --------------------


@entrance
def calibrate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str | None = None,
    on_error: str = "refuse",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> Calibration:
    """Calibrate a run on a tree, and save that in the run: see `learn.runs.calibrate`."""
    folder = Path(run)
    if data is None and split is None and not read_split(folder)["val"]:
        raise RunError(
            f"{folder}: no samples were set aside to calibrate on; run lht calibrate {folder} --folds 5, which trains five "
            f"times more, or lht calibrate {folder} DATA with labelled samples it has not seen, or train with `val=0.2` again"
        )
    inputs = run_inputs(folder, split or "val", data=data, on_error=on_error, calibrated=False)
    model = inputs.model.to(find_device(device))
    name = f"{split or 'val'} part of {'its own data' if data is None else Path(data).name}"
    found = fit_calibration(*ask_all(model, inputs.data, workers=workers), model.hierarchy, source=name)
    found.write(folder, model.hierarchy)
    relearn_novelty(folder, model, inputs.data if data is not None or split not in ("train", "all") else None, workers)
    return found


def relearn_novelty(run: Path, model: Model, known: SampleSet | None, workers: int = 0) -> None:
    """Write what tells unlike samples again, if the run's own training data is still there."""
    source = str(read_config(run)["train"]["data"])
    if source and (is_known(source) or Path(source).exists()):
        novelty = learn_novelty(model, run_inputs(run, "seen", calibrated=False).data, known, workers)
        if novelty is not None:
            novelty.write(run)


def cross_calibrate(run: str | Path, folds: int, *, quiet: bool = False) -> Calibration:
    """Fit a run's calibration to all of its training samples, each judged by a model that has not seen it, and save it.

    The run is trained again `folds` times with the same options, each time without one part. No label is lost to validation.
    The guarantee of risk control does not hold for the run itself: the models that are judged are not the one that answers.
    They have seen fewer samples, which usually makes promises cautious.

    Args:
        run: a run directory that set no validation samples aside.
        folds: number of parts, at least 2.
        quiet: show no progress.
    """
    folder = Path(run)
    args = with_data(folder, own_options(read_config(folder), read_options(folder, TrainArgs)))
    if folds < 2:
        raise ConfigError(f"`folds` is {folds}: it must be at least 2")
    if args.val or args.fold or args.select == "best":
        raise ConfigError(f"{folder}: this run has its own validation samples; run lht calibrate {folder} without `folds`")
    tree = Model.from_pretrained(folder, calibrated=False).hierarchy
    found, labels = [], []
    with tempfile.TemporaryDirectory() as place, console.counting("folds trained", folds, quiet=quiet) as count:
        for i in range(folds):
            out, fold = Path(place) / str(i), f"{i + 1}/{folds}"
            turn = dataclasses.replace(args, out=out, fold=fold, test=False, quiet=True, track=False)
            part = train(turn)
            inputs = run_inputs(part, "val", calibrated=False)
            prediction, truth = ask_all(inputs.model, inputs.data)
            found.append(prediction)
            labels.append(truth)
            count(i + 1, folds)
    calibration = fit_calibration(join(found), torch.cat(labels), tree, source=f"{folds} folds of its own training data")
    calibration.write(folder, tree)
    relearn_novelty(folder, Model.from_pretrained(folder, calibrated=False), None)
    return calibration
