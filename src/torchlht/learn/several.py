"""Training with several labels per sample: read → choose on validation samples → fit on all → measure → keep.

On features, those of a frozen backbone included, and without `epochs`, the number of epochs, the share of the smoother and the
thresholds are chosen on validation samples; then the network is trained again on training and validation samples. With
`epochs`, or when a backbone learns, too, it is trained once, on the training samples; validation samples give the thresholds.
Every random choice depends on the seed and the epoch alone.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray

from torchlht import console
from torchlht.answer.backbones import Backbone
from torchlht.answer.facets import GraphCalibration, fit_calibration, sure
from torchlht.answer.finding import GRAPH
from torchlht.answer.model import Checkpoint, Run, load_checkpoint, save_checkpoint
from torchlht.answer.records import read_config, read_metrics
from torchlht.answer.several import GraphModel
from torchlht.data.batches import ImageSet, load
from torchlht.data.graphed import hide_leaves, is_exclusive, is_on_graph, read_on_graph
from torchlht.data.preparing import Preprocess
from torchlht.data.samples import Mask, check_pictures
from torchlht.data.several import Asked, Several, hide, hold_out, read_several
from torchlht.errors import ConfigError, DataError, DivergedError, RunError, as_flag
from torchlht.files import claimed
from torchlht.heads.graphs.exclusive import create_network
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.smoother import Smoother
from torchlht.hierarchy.graph import Graph, Labels
from torchlht.learn.alone import Alone
from torchlht.learn.building import make_backbone
from torchlht.learn.following.follow import followed
from torchlht.learn.options import HERE, TrainArgs
from torchlht.measure.evaluation import frozen_features
from torchlht.measure.several import average_precision, fit_thresholds, measure, measure_leaves, measure_sure, samplewise
from torchlht.vocabulary import Augment

Ints = NDArray[np.int64]
USED = (
    "data", "out", "method", "option", "seed", "epochs", "batch_size", "lr", "weight_decay", "mask", "mask_seed", "val",
    "test_share", "test", "resume", "quiet", "track", "track_to", "accelerator", "workers", "devices", "on_error", "several",
    "backbone", "pretrained", "freeze", "pooling", "image_size", "augment", "backbone_lr",
)  # fmt: skip
OF_TREE = ("hierarchy", "levels", "unknown")
READING = {".arff": (), ".npz": ("hierarchy",)}  # what else is used to read a kind of data with several labels per sample
EPOCHS, LEAF_EPOCHS = 30, 20  # for a backbone that learns; for features with one label per sample
BATCH, LEAF_BATCH = 64, 128
MOST, PATIENCE = 60, 6  # epochs to try at most, and without a better one
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the smoother
SECONDS = 30.0  # between checkpoints
TEST_SEED = "test_seed"  # in config.yaml


@dataclass(frozen=True)
class Choice:
    """What validation samples decided: epochs, the share of the smoother, and the thresholds of levels."""

    epochs: int
    share: float
    thresholds: NDArray[np.float32]
    auprc: float | None


def trains_several(args: TrainArgs) -> bool:
    """Whether these options are about data with several labels per sample, new or to be resumed."""
    if args.resume is not None:
        return (args.resume / GRAPH).is_file()
    return is_on_graph(args.data, args, args.several)


def check_several(args: TrainArgs) -> GraphArgs:
    """The options of the network. Raises ConfigError for an option that has no meaning here."""
    usual, exclusive = TrainArgs(), is_exclusive(args.data, args, args.several)
    what = "classes with several parents" if exclusive else "several labels per sample"
    used = (*USED, *(OF_TREE if exclusive else READING.get(Path(args.data).suffix.lower(), OF_TREE)))
    for field in dataclasses.fields(TrainArgs):
        if field.name not in used and getattr(args, field.name) != getattr(usual, field.name):
            raise ConfigError(f"`{field.name}` has no meaning for {what}; leave it out")
    return GraphArgs.from_pairs(args.method, args.option, exclusive=exclusive)


def train_several(args: TrainArgs) -> Path:
    """Train on data with several labels per sample; returns the run directory, as `lht train` does."""
    if args.resume is not None:
        kept = TrainArgs.from_dict(read_config(args.resume)["train"])
        args = dataclasses.replace(kept, out=args.resume, quiet=args.quiet)
    own = check_several(args)
    args = args.lasting()
    out = args.out or Path("runs") / f"{Path(args.data).stem}-{args.method}-s{args.seed}"
    with claimed(out):
        return _train_there(args, own, Run(out))


def _train_there(args: TrainArgs, own: GraphArgs, run: Run) -> Path:
    refuse_others(args, run)
    begun = run.config.is_file()
    seed_of_test = test_seed(run.path, args) if begun else 0
    data = prepare(args, Graph.read(run.path) if begun else None, seed_of_test)
    sight = sight_of(args, data)
    learns = data.images is not None and not args.freeze
    seen = f"{sight.backbone.name}, {'trained' if learns else 'frozen'} · " if data.images else ""
    console.note(f"data    {data.describe()}\nmethod  {seen}{own.method}\nrun     {run.path}", quiet=args.quiet)
    if data.images and args.freeze:
        data = with_features(args, data, sight)
    if learns and own.shortcut:
        raise ConfigError("`shortcut` is fitted to features that do not change; add `freeze`, or leave it out")
    own = dataclasses.replace(own, shortcut=0.0) if learns else own
    started = time.monotonic()
    extra: dict[str, Any] = {"train": dataclasses.replace(args, out=run.path, resume=None).to_dict(), TEST_SEED: seed_of_test}
    if not begun:
        begin(data, own, data.index("train"), args.seed, sight).save(run.path, extra)
    chosen = choose_on_validation(args, own, data) if args.epochs is None and not learns and not data.exclusive else None
    rows = data.index("train") if chosen is None else data.index("train", "val")
    own = dataclasses.replace(own, shortcut=own.share() if chosen is None else chosen.share)
    model = begin(data, own, rows, args.seed, sight)
    epochs = args.epochs or (chosen.epochs if chosen else EPOCHS if learns else LEAF_EPOCHS)
    with followed(Alone(), args, run, args.to_dict()) as follow:
        history = fit(args, model, data, rows, epochs, run, tell=follow.epoch)
        settle(model, data, rows, chosen)
        model.save(run.path, extra)
        run.write_history(history)
        metrics = said_of_training(args, model, history, chosen, rows) | {"train_seconds": time.monotonic() - started}
        if args.test and len(data.index("test")):
            metrics |= on_test(model, data, run)
        follow.result(metrics)
    run.write_metrics(metrics)
    return run.path


def settle(model: GraphModel, data: Several, rows: Ints, chosen: Choice | None) -> None:
    """Add to a trained network the smoother, the thresholds and, if validation samples are left for it, calibration."""
    add_smoother(model, data, rows)
    thresholds = chosen.thresholds if chosen else thresholds_of(model, data)
    model.thresholds.copy_(torch.from_numpy(thresholds))
    if chosen is None and len(data.index("val")):
        calibrate_model(model, data, data.index("val"), "validation samples")


def said_of_training(
    args: TrainArgs, model: GraphModel, history: Sequence[dict[str, float]], chosen: Choice | None, rows: Ints
) -> dict[str, Any]:
    """What metrics.json says of the training itself."""
    rule = "best on validation samples, then trained on all" if chosen else "last"
    metrics: dict[str, Any] = {"selection": {"rule": rule, "epoch": len(history), "epochs": len(history)}}
    steps = math.ceil(len(rows) / batch_size(args, model))
    metrics["seconds_per_step"] = sum(row.get("seconds", 0.0) for row in history) / len(history) / steps
    metrics["parameters"] = sum(one.numel() for one in model.network.parameters())
    return metrics | ({"validation": {"auprc": chosen.auprc, "shortcut": chosen.share}} if chosen else {})


def on_test(model: GraphModel, data: Several, run: Run) -> dict[str, Any]:
    """What is measured on test samples; the run keeps what each of them adds."""
    test = data.index("test")
    scores, labels = scores_of(model, data, test), data.labels[test]
    metrics = measured(model, labels, scores)
    said = model.chosen(scores)
    samplewise(labels, scores, said, data.graph, data.judged, exclusive=data.exclusive).write(run.path)
    return metrics


def warm(args: TrainArgs, data: Several) -> None:
    """Compute a frozen backbone's features once, before many runs train on them."""
    if data.images and args.freeze:
        with_features(args, data, sight_of(args, data))


def sight_of(args: TrainArgs, data: Several) -> Sight:
    """The backbone that the options ask for."""
    torch.manual_seed(args.seed)
    sight = Sight(*make_backbone(args, data))
    if data.images and args.pooling == "both":
        sight.backbone.add_peaks()
    return sight


def refuse_others(args: TrainArgs, run: Run) -> None:
    """Raise RunError if the directory holds something else than an unfinished run with the same options."""
    if run.metrics.is_file() or not run.config.is_file():
        run.claim()
        return
    kept = TrainArgs.from_dict(read_config(run.path)["train"]).lasting().to_dict()
    free = ("out", "resume", "quiet", "track", "track_to", *HERE)
    if others := [as_flag(name) for name, value in args.to_dict().items() if name not in free and value != kept[name]]:
        said = f"holds an unfinished run with other options ({', '.join(others)})"
        raise RunError(f"{run.path}: {said}; continue it with lht train --resume {run.path}, or choose another `out`")


def test_seed(run: Path, args: TrainArgs) -> int:
    """What draws the test samples of a run's data that has none. For features, earlier versions drew others with each seed."""
    return int(read_config(run).get(TEST_SEED, args.seed))


def prepare(args: TrainArgs, graph: Graph | None = None, seed_of_test: int = 0) -> Several:
    """Read the data, set test and validation samples aside if it has none, hide labels. Test samples are always the same."""
    data = readable(read_on_graph(args.data, args, args.several, graph), args.on_error)
    if not len(data.index("train")):
        raise DataError(f"{args.data}: no training samples")
    if not (data.labels[data.index("train")] >= 0)[:, data.judged].any():
        raise DataError(f"{args.data}: no training sample has a label")
    if not len(data.index("test")):
        data = hold_out(data, args.test_share, seed_of_test if data.images is None else 0, "test")
    if args.val == 0:
        data = dataclasses.replace(data, split=np.where(data.split == "val", "train", data.split))
    elif not len(data.index("val")) and not (data.exclusive and args.val is None):
        data = hold_out(data, 0.2 if args.val is None else args.val, args.seed, "val")
    chooses = not data.exclusive and (data.images is None or args.freeze)
    if args.epochs is None and chooses and not len(data.index("val")):
        raise DataError(f"{args.data}: no validation samples to choose the number of epochs on; pass `epochs`, or `val`")
    seed = args.seed if args.mask_seed is None else args.mask_seed
    data = hide_leaves(data, Mask(args.mask, seed=seed)) if data.exclusive else hide(data, args.mask, seed)
    for part, name in (("train", "training"), ("val", "validation")):
        rows = data.index(part)
        if len(rows) and not (data.labels[rows][:, data.judged] >= 0).any():
            raise DataError(f"{args.data}: no {name} sample has a label that tells one class from others")
    return data


def readable(data: Several, on_error: str) -> Several:
    """The data without pictures that cannot be read, or all of it. Raises DataError if there are any, unless it is "skip"."""
    if data.images is None:
        return data
    keep, problems = check_pictures(data.images, Path(data.source).name, on_error)
    return data.select(keep) if problems else data


class Sight(NamedTuple):
    """What turns pictures into features, and how pictures are prepared for it; None for features."""

    backbone: Backbone
    preprocess: Preprocess | None


def with_features(args: TrainArgs, data: Several, sight: Sight) -> Several:
    """The data with what a frozen backbone makes of its pictures: from the cache, or computed and kept there."""
    assert sight.preprocess is not None
    sight.backbone.requires_grad_(False)
    workers, device = args.workers if args.workers is not None else (os.cpu_count() or 1), torch.device("cpu")
    with console.counting(f"{sight.backbone.name}, frozen · features", len(data), quiet=args.quiet) as count:
        found = frozen_features(data, sight.backbone, sight.preprocess, device=device, workers=workers, progress=count)
    return dataclasses.replace(data, features=found)


def begin(data: Several, own: GraphArgs, rows: Ints, seed: int, sight: Sight | None = None) -> GraphModel:
    """A model before training. It knows the spread of these samples' features, unless a backbone learns to make them."""
    torch.manual_seed(seed)
    backbone, spec = sight or (None, None)
    width = backbone.num_features if backbone and data.images else data.features_of(rows).shape[1]
    network = create_network(width, data.graph, own)
    if own.method == "lht" and not own.exclusive:
        network.start_at(torch.from_numpy(data.graph.ends(data.labels[rows]).mean(0)).float())
    model = GraphModel(network, data.judged, backbone=backbone, preprocess=spec, levels=data.levels, columns=data.columns)
    if data.features is not None:
        model.learn_scale(data.features_of(rows))
    return model


def pictures_of(model: GraphModel, data: Several, rows: Ints, augment: Augment = "none") -> ImageSet:
    """Some pictures as the model's backbone wants them; their labels are their positions."""
    assert data.images is not None
    assert model.preprocess is not None
    return ImageSet([data.images[i] for i in rows], torch.arange(len(rows)).unsqueeze(1), model.preprocess, augment=augment)


def scores_of(model: GraphModel, data: Several, rows: Ints) -> NDArray[np.float32]:
    """The model's probabilities for some samples, (N, nodes)."""
    if data.features is not None:
        return model.probabilities(data.features_of(rows))
    return model.look_at(pictures_of(model, data, rows))[1]


def batch_size(args: TrainArgs, model: GraphModel) -> int:
    """Samples per step."""
    return args.batch_size or (LEAF_BATCH if model.exclusive else BATCH)


def shown(
    args: TrainArgs, model: GraphModel, x: torch.Tensor | ImageSet, epoch: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The positions of the samples of each step of an epoch, and their standardised features."""
    parts = torch.split(torch.randperm(len(x)), batch_size(args, model))
    if isinstance(x, torch.Tensor):
        yield from ((part, x[part]) for part in parts)
        return
    x.set_epoch(args.seed, epoch)
    loaded = load(x, [part.tolist() for part in parts], args.workers if args.workers is not None else (os.cpu_count() or 1))
    for part, (pictures, _) in zip(parts, loaded, strict=True):
        yield part, model.seen(pictures)


def optimizer_of(args: TrainArgs, model: GraphModel, *, pictures: bool) -> torch.optim.Optimizer:
    """Adam for a network on features; AdamW for one that learns with its backbone, which is slower if it is pretrained."""
    lr, decay = args.lr or 1e-3, args.weight_decay
    if not pictures:
        return torch.optim.Adam(model.network.parameters(), lr=lr, weight_decay=1e-5 if decay is None else decay, fused=True)
    usual = lr * (0.1 if model.backbone.pretrained else 1.0)
    slow = {"params": model.backbone.parameters(), "lr": usual if args.backbone_lr is None else args.backbone_lr}
    groups = [{"params": model.network.parameters(), "lr": lr}, slow]
    return torch.optim.AdamW(groups, weight_decay=0.05 if decay is None else decay)


def taught(data: Several, rows: Ints) -> torch.Tensor:
    """Labels of samples, unknown for classes that are not taught."""
    return torch.from_numpy(np.where(data.judged, data.labels[rows], np.int8(-1)))


def fit(
    args: TrainArgs,
    model: GraphModel,
    data: Several,
    rows: Ints,
    epochs: int,
    run: Run | None = None,
    watch: Callable[[int], bool] | None = None,
    tell: Callable[[dict[str, float]], object] | None = None,
) -> list[dict[str, float]]:
    """Train the network in place; returns the loss of each epoch.

    Args:
        args: the recipe.
        model: what to train.
        data: the samples.
        rows: those to train on.
        epochs: how often.
        run: where checkpoints go, or None for none.
        watch: called after each epoch; training ends when it returns True.
        tell: told the figures of each epoch.
    """
    network, y, pictures = model.network, taught(data, rows), data.features is None
    x = pictures_of(model, data, rows, args.augment) if pictures else model.standardise(data.features_of(rows))
    learner = model if pictures else network
    optimizer = optimizer_of(args, model, pictures=pictures)
    first = [group["lr"] for group in optimizer.param_groups]
    history: list[dict[str, float]] = []
    if run and run.last.is_file():
        history = load_checkpoint(run.last, learner, optimizer).history
    saved = time.monotonic()
    for epoch in range(len(history), epochs):
        torch.manual_seed(args.seed * 1_000_003 + epoch)
        learner.train()
        network.reached(epoch / epochs)
        total, began = 0.0, time.monotonic()
        for group, lr in zip(optimizer.param_groups, first, strict=True):  # along a cosine to zero, or as it is
            group["lr"] = lr * (1 + np.cos(np.pi * epoch / epochs)) / 2 if pictures or data.exclusive else lr
        for part, features in shown(args, model, x, epoch):
            optimizer.zero_grad(set_to_none=True)
            loss = network.loss(network(features), y[part])
            loss.backward()  # type: ignore[no-untyped-call]
            if pictures and args.clip:
                torch.nn.utils.clip_grad_norm_(learner.parameters(), args.clip)
            optimizer.step()
            total += loss.item() * len(part)
        if not np.isfinite(total):
            raise DivergedError(f"the loss became {total} in epoch {epoch + 1}; use a smaller `lr`")
        history.append({"epoch": epoch + 1, "loss": total / len(x), "seconds": time.monotonic() - began})
        if tell is not None:
            tell(history[-1])
        if run and time.monotonic() - saved > SECONDS and epoch + 1 < epochs:
            save_checkpoint(run.last, learner, optimizer, Checkpoint(history))
            saved = time.monotonic()
            console.note(f"epoch {epoch + 1} of {epochs}, loss {total / len(x):.4f}", quiet=args.quiet)
        if watch is not None and watch(epoch + 1):
            break
    learner.eval()
    return history


def add_smoother(model: GraphModel, data: Several, rows: Ints) -> None:
    """Fit the smoother to these samples, if it has a share in the answers."""
    if model.network.args.share() > 0:
        x, y = model.standardise(data.features_of(rows)), taught(data, rows)
        given = np.ones(data.labels[rows].shape, dtype=bool)
        for parent, child in data.graph.edges.T:
            given[:, child] &= data.labels[rows][:, parent] == 1
        model.smoother = Smoother.fit(x, y, torch.from_numpy(given))


def choose_on_validation(args: TrainArgs, own: GraphArgs, data: Several) -> Choice:
    """Train on the training samples alone, and see after which epoch validation samples are answered best."""
    rows, held = data.index("train"), data.index("val")
    labels = np.where(data.judged, data.labels[held], np.int8(-1))
    shares = SHARES if own.shortcut is None and own.method == "lht" else (own.share(),)
    model = begin(data, dataclasses.replace(own, shortcut=max(shares)), rows, args.seed)
    add_smoother(model, data, rows)
    x = model.standardise(data.features_of(held))
    smooth = None if model.smoother is None else model.network.coherent(model.smoother(x)).numpy()
    best, tops, rising = Choice(1, shares[0], np.empty(0, dtype=np.float32), None), dict.fromkeys(shares, -1.0), 1

    def watch(epoch: int) -> bool:
        nonlocal best, rising
        model.network.eval()
        with torch.no_grad():
            p = torch.cat([model.network.log_probs(model.network(part)).exp() for part in torch.split(x, 256)]).numpy()
        for share in shares:
            scores = (p if smooth is None else (1 - share) * p + share * smooth).astype(np.float32, copy=False)
            found = average_precision(labels, scores)
            if found is not None and (best.auprc is None or found > best.auprc):
                best = Choice(epoch, share, fit_thresholds(labels, scores, data.graph, data.judged), found)
            if found is not None and found > tops[share]:  # the network may still learn while the smoother alone is best
                tops[share], rising = found, epoch
        return epoch - rising >= PATIENCE

    fit(args, model, data, rows, MOST, watch=watch)
    if best.auprc is None:
        raise DataError(f"{args.data}: validation samples have no known label; pass `epochs`")
    return best


def thresholds_of(model: GraphModel, data: Several) -> NDArray[np.float32]:
    """The best threshold of each level on validation samples; 0.5 if there are none."""
    held = data.index("val")
    if not len(held):
        return np.full(len(model.thresholds), 0.5, dtype=np.float32)
    return fit_thresholds(data.labels[held], scores_of(model, data, held), data.graph, data.judged)


def measured(model: GraphModel, labels: Labels, scores: NDArray[np.float32]) -> dict[str, Any]:
    """All metrics of a model's probabilities."""
    judged = model.judged.numpy()
    if model.exclusive:
        return measure_leaves(labels, scores, model.graph, judged)
    return measure(labels, scores, model.thresholds.numpy(), model.graph, judged, model.levels)


def calibrate_model(model: GraphModel, data: Several, rows: Ints, source: str) -> None:
    """Fit a model's temperature and risks to samples that it was not trained on."""
    scores = torch.from_numpy(scores_of(model, data, rows))
    log_p = scores.clamp(min=torch.finfo(torch.float32).tiny).log()
    model.calibration = fit_calibration(model.network, log_p, data.labels[rows], data.judged, source=source)


def calibrate_several(
    run: str | Path, data: str | Path | None = None, split: str | None = None, *, on_error: str = "refuse"
) -> GraphCalibration:
    """Calibrate a run on a graph on its validation samples, or on other data, and keep that in its directory.

    Raises:
        RunError: when it was trained on its validation samples, too.
        DataError: when there are no such samples, or nothing is known about them.
    """
    model = GraphModel.load(run)
    if data is None and split in (None, "val") and "validation" in read_metrics(Path(run)):
        why = "this run was trained on its validation samples, too"
        raise RunError(f"{run}: {why}; pass DATA with labelled samples, or train with `epochs` and `val`")
    samples, rows = samples_of(model, run, data, split or "val", on_error)
    calibrate_model(model, samples, rows, "validation samples" if data is None else Path(data).name)
    assert model.calibration is not None
    model.calibration.write(Path(run))
    return model.calibration


def samples_of(
    model: GraphModel, run: str | Path, data: str | Path | None, split: str, on_error: str = "refuse"
) -> tuple[Several, Ints]:
    """A part of a run's own data, or of other data, or all of that if it has no such part."""
    args = TrainArgs.from_dict(read_config(Path(run)).get("train") or {})
    if data is None:
        samples = prepare(args, model.graph, test_seed(Path(run), args))
        if samples.images and args.freeze:
            samples = with_features(args, samples, Sight(model.backbone, model.preprocess))
    elif model.exclusive:
        samples = readable(read_on_graph(str(data), args, args.several, model.graph), on_error)
    else:
        asked = dataclasses.replace(Asked.by(args, several=True), of_model=(model.graph, model.levels))
        samples = readable(read_several(data, asked), on_error)
    samples = samples.with_columns(model.columns)
    rows = np.arange(len(samples)) if split == "all" else samples.index(split)
    rows = np.arange(len(samples)) if data is not None and not len(rows) else rows
    if samples.graph != model.graph:
        raise DataError(f"{samples.source}: its classes are not those of {run}")
    if (samples.images is None) != (model.preprocess is None):
        raise DataError(f"{samples.source}: wrong data; this run takes {'features' if samples.images else 'pictures'}")
    if not len(rows):
        raise DataError(f"{samples.source}: has no {split} samples")
    return samples, rows


def evaluate_several(
    run: str | Path,
    data: str | Path | None = None,
    split: str = "test",
    *,
    confidences: Sequence[float] = (),
    risks: Sequence[float] = (),
    strict: bool = False,
    on_error: str = "refuse",
) -> dict[str, Any]:
    """Measure a run on a part of its own data, or on all samples of other data; also answers with thresholds."""
    model = GraphModel.load(run)
    samples, rows = samples_of(model, run, data, split, on_error)
    scores = scores_of(model, samples, rows)
    found = measured(model, samples.labels[rows], scores)
    asked = [sure(c, None, None) for c in confidences] + [sure(None, r, model.calibration, strict=strict) for r in risks]
    if asked:
        scores = model.calibrated(scores)
        said = [(one, model.chosen(scores, one)) for one in asked]
        found["answers"] = [
            msgspec.structs.asdict(one) | measure_sure(samples.labels[rows], chosen, model.graph, samples.judged)
            for one, chosen in said
        ]
    return found
