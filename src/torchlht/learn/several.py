"""Training with several labels per sample: read → choose on validation samples → fit on all → measure → keep.

Without `epochs`, the number of epochs, the share of the smoother and the thresholds are chosen on validation samples; then the
network is trained again on training and validation samples. With `epochs`, it is trained once, on the training samples.
Every random choice depends on the seed and the epoch alone.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht import console
from torchlht.answer.model import Checkpoint, Run, load_checkpoint, save_checkpoint
from torchlht.answer.records import read_config
from torchlht.answer.several import GraphModel
from torchlht.data.samples import lasting_name
from torchlht.data.several import Several, hide, hold_out, is_several, read_several
from torchlht.errors import ConfigError, DataError, DivergedError, RunError, as_flag
from torchlht.files import claimed
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.smoother import Smoother
from torchlht.learn.options import HERE, TrainArgs
from torchlht.measure.several import average_precision, fit_thresholds, measure

Ints = NDArray[np.int64]
USED = (
    "data", "out", "method", "option", "seed", "epochs", "batch_size", "lr", "weight_decay", "mask", "mask_seed", "val",
    "test_share", "test", "resume", "quiet", "track", "accelerator", "workers", "devices", "on_error",
)  # fmt: skip
MOST, PATIENCE = 60, 6  # epochs to try at most, and without a better one
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the smoother
SECONDS = 30.0  # between checkpoints


@dataclass(frozen=True)
class Choice:
    """What validation samples decided: epochs, the share of the smoother, and the thresholds of levels."""

    epochs: int
    share: float
    thresholds: NDArray[np.float32]
    auprc: float | None


def trains_several(args: TrainArgs) -> bool:
    """Whether these options are about data with several labels per sample, new or to be resumed."""
    if args.resume is not None and (args.resume / "config.yaml").is_file():
        return is_several(str((read_config(args.resume).get("train") or {}).get("data", "")))
    return is_several(args.data)


def check_several(args: TrainArgs) -> GraphArgs:
    """The options of the network. Raises ConfigError for an option that has no meaning here."""
    usual = TrainArgs()
    for field in dataclasses.fields(TrainArgs):
        if field.name not in USED and getattr(args, field.name) != getattr(usual, field.name):
            raise ConfigError(f"`{field.name}` has no meaning for several labels per sample; leave it out")
    return GraphArgs.from_pairs(args.method, args.option)


def train_several(args: TrainArgs) -> Path:
    """Train on data with several labels per sample; returns the run directory, as `lht train` does."""
    if args.resume is not None:
        kept = TrainArgs.from_dict(read_config(args.resume)["train"])
        args = dataclasses.replace(kept, out=args.resume, quiet=args.quiet)
    own = check_several(args)
    args = dataclasses.replace(args, data=lasting_name(args.data))
    out = args.out or Path("runs") / f"{Path(args.data).stem}-{args.method}-s{args.seed}"
    with claimed(out):
        return _train_there(args, own, Run(out))


def _train_there(args: TrainArgs, own: GraphArgs, run: Run) -> Path:
    refuse_others(args, run)
    data = prepare(args)
    console.note(f"data    {data.describe()}\nmethod  {own.method}\nrun     {run.path}", quiet=args.quiet)
    started = time.monotonic()
    extra: dict[str, Any] = {"train": dataclasses.replace(args, out=run.path, resume=None).to_dict()}
    if not run.config.is_file():
        begin(data, own, data.index("train"), args.seed).save(run.path, extra)
    chosen = choose_on_validation(args, own, data) if args.epochs is None else None
    rows = data.index("train") if chosen is None else data.index("train", "val")
    own = dataclasses.replace(own, shortcut=own.share() if chosen is None else chosen.share)
    model = begin(data, own, rows, args.seed)
    epochs = args.epochs or (chosen.epochs if chosen else 1)
    history = fit(args, model, data, rows, epochs, run)
    add_smoother(model, data, rows)
    thresholds = chosen.thresholds if chosen else thresholds_of(model, data)
    model.thresholds.copy_(torch.from_numpy(thresholds))
    model.save(run.path, extra)
    run.write_history(history)
    rule = "best on validation samples, then trained on all" if chosen else "last"
    selection: dict[str, Any] = {"rule": rule, "epoch": epochs, "epochs": epochs}
    metrics: dict[str, Any] = {"selection": selection, "train_seconds": time.monotonic() - started}
    if chosen:
        metrics["validation"] = {"auprc": chosen.auprc, "shortcut": chosen.share}
    test = data.index("test")
    if args.test and len(test):
        metrics |= measured(model, data, test)
    run.write_metrics(metrics)
    return run.path


def refuse_others(args: TrainArgs, run: Run) -> None:
    """Raise RunError if the directory holds something else than an unfinished run with the same options."""
    if run.metrics.is_file() or not run.config.is_file():
        run.claim()
        return
    kept = TrainArgs.from_dict(read_config(run.path)["train"]).to_dict()
    free = ("out", "resume", "quiet", "track", *HERE)
    if others := [as_flag(name) for name, value in args.to_dict().items() if name not in free and value != kept[name]]:
        said = f"holds an unfinished run with other options ({', '.join(others)})"
        raise RunError(f"{run.path}: {said}; continue it with lht train --resume {run.path}, or choose another `out`")


def prepare(args: TrainArgs) -> Several:
    """Read the data, set test and validation samples aside if it has none, hide labels."""
    data = read_several(args.data)
    if not len(data.index("train")):
        raise DataError(f"{args.data}: no training samples")
    if not len(data.index("test")):
        data = hold_out(data, args.test_share, args.seed, "test")
    if args.val == 0:
        data = dataclasses.replace(data, split=np.where(data.split == "val", "train", data.split))
    elif not len(data.index("val")):
        data = hold_out(data, 0.2 if args.val is None else args.val, args.seed, "val")
    if args.epochs is None and not len(data.index("val")):
        raise DataError(f"{args.data}: no validation samples to choose the number of epochs on; pass `epochs`, or `val`")
    return hide(data, args.mask, args.seed if args.mask_seed is None else args.mask_seed)


def begin(data: Several, own: GraphArgs, rows: Ints, seed: int) -> GraphModel:
    """A model before training, which knows the spread of these samples' features."""
    torch.manual_seed(seed)
    network = GraphNetwork(data.features.shape[1], data.graph, own)
    if own.method == "lht":
        network.start_at(torch.from_numpy(data.graph.ends(data.labels[rows]).mean(0)).float())
    model = GraphModel(network, data.judged)
    model.learn_scale(data.features[rows])
    return model


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
    """
    network, x, y = model.network, model.standardise(data.features[rows]), taught(data, rows)
    size = args.batch_size or 64
    decay = 1e-5 if args.weight_decay is None else args.weight_decay
    optimizer = torch.optim.Adam(network.parameters(), lr=args.lr or 1e-3, weight_decay=decay, fused=True)
    history: list[dict[str, float]] = []
    if run and run.last.is_file():
        history = load_checkpoint(run.last, network, optimizer).history
    saved = time.monotonic()
    for epoch in range(len(history), epochs):
        torch.manual_seed(args.seed * 1_000_003 + epoch)
        network.train()
        total = 0.0
        for part in torch.split(torch.randperm(len(x)), size):
            optimizer.zero_grad(set_to_none=True)
            loss = network.loss(network(x[part]), y[part])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.item() * len(part)
        if not np.isfinite(total):
            raise DivergedError(f"the loss became {total} in epoch {epoch + 1}; use a smaller `lr`")
        history.append({"epoch": epoch + 1, "loss": total / len(x)})
        if run and time.monotonic() - saved > SECONDS and epoch + 1 < epochs:
            save_checkpoint(run.last, network, optimizer, Checkpoint(history))
            saved = time.monotonic()
            console.note(f"epoch {epoch + 1} of {epochs}, loss {total / len(x):.4f}", quiet=args.quiet)
        if watch is not None and watch(epoch + 1):
            break
    network.eval()
    return history


def add_smoother(model: GraphModel, data: Several, rows: Ints) -> None:
    """Fit the smoother to these samples, if it has a share in the answers."""
    if model.network.args.share() > 0:
        x, y = model.standardise(data.features[rows]), taught(data, rows)
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
    x = model.standardise(data.features[held])
    smooth = None if model.smoother is None else model.network.coherent(model.smoother(x)).numpy()
    best = Choice(1, shares[0], np.empty(0, dtype=np.float32), None)

    def watch(epoch: int) -> bool:
        nonlocal best
        model.network.eval()
        with torch.no_grad():
            p = torch.cat([model.network.log_probs(model.network(part)).exp() for part in torch.split(x, 256)]).numpy()
        for share in shares:
            scores = (p if smooth is None else (1 - share) * p + share * smooth).astype(np.float32, copy=False)
            found = average_precision(labels, scores)
            if found is not None and (best.auprc is None or found > best.auprc):
                best = Choice(epoch, share, fit_thresholds(labels, scores, data.graph, data.judged), found)
        return epoch - best.epochs >= PATIENCE

    fit(args, model, data, rows, MOST, watch=watch)
    if best.auprc is None:
        raise DataError(f"{args.data}: validation samples have no known label; pass `epochs`")
    return best


def thresholds_of(model: GraphModel, data: Several) -> NDArray[np.float32]:
    """The best threshold of each level on validation samples; 0.5 if there are none."""
    held = data.index("val")
    if not len(held):
        return np.full(len(model.thresholds), 0.5, dtype=np.float32)
    return fit_thresholds(data.labels[held], model.probabilities(data.features[held]), data.graph, data.judged)


def measured(model: GraphModel, data: Several, rows: Ints) -> dict[str, Any]:
    """All metrics of a model on some samples."""
    scores = model.probabilities(data.features[rows])
    return measure(data.labels[rows], scores, model.thresholds.numpy(), data.graph, data.judged)


def evaluate_several(run: str | Path, data: str | Path | None = None, split: str = "test") -> dict[str, Any]:
    """Measure a run on a part of its own data, or on all samples of other data."""
    model = GraphModel.load(run)
    if data is None:
        samples = prepare(TrainArgs.from_dict(read_config(Path(run)).get("train") or {}))
        rows = samples.index(split)
    else:
        samples = read_several(data)
        rows = samples.index(split) if len(samples.index(split)) else np.arange(len(samples))
    if samples.graph != model.graph:
        raise DataError(f"{samples.source}: its classes are not those of {run}")
    if not len(rows):
        raise DataError(f"{samples.source}: has no {split} samples")
    return measured(model, samples, rows)
