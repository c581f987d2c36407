"""How good a trained model is: on the data it was trained on, or on any other data with the same classes.

A frozen backbone's features are computed once and cached on disk, by (backbone, weights, preprocessing, content of pictures).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from torchlht import console
from torchlht.answer.asking import ask, device_of, find_device, in_batches, over, usual_batch
from torchlht.answer.backbones import Backbone
from torchlht.answer.calibration import Calibration
from torchlht.answer.model import Model
from torchlht.answer.named import wanted
from torchlht.answer.records import read_config, read_options, read_split
from torchlht.data.batches import ImageSet, SampleSet, sample_set, set_batches, worth_streaming
from torchlht.data.options import DataArgs, TreeArgs
from torchlht.data.pictures import as_place
from torchlht.data.preparing import Preprocess
from torchlht.data.samples import Samples, check_images, hold_out_test, read_data, source_of, with_prior, with_split
from torchlht.data.several import Several
from torchlht.doors import entrance, sentence
from torchlht.errors import DataError, RunError
from torchlht.files import cache_dir, replacing
from torchlht.heads.prediction import answer_by, decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import CalibrationErrors, HierarchyMetrics, only_real
from torchlht.measure.operating import Decisions, operating_point
from torchlht.measure.outcomes import Recorder

Progress = Callable[[int, int], None]
Told = TypeVar("Told", bound=DataArgs)


def cache_path(samples: Samples | Several, backbone: Backbone, spec: Preprocess) -> Path:
    """The file for these features in the cache, which may not exist yet."""
    parts = [backbone.key(), json.dumps(spec.to_dict(), sort_keys=True), samples.fingerprint()]
    return cache_dir() / "features" / f"{backbone.name}-{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:24]}.npy"


def frozen_features(
    samples: Samples | Several,
    backbone: Backbone,
    spec: Preprocess,
    *,
    device: torch.device,
    workers: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(N, d) features of every picture: read from the cache, or computed and stored there."""
    path = cache_path(samples, backbone, spec)
    kept = read_kept(path, (len(samples), backbone.num_features))
    if kept is not None:
        return kept
    assert samples.images is not None
    data = ImageSet(samples.images, torch.zeros(len(samples), 1), spec, streamed=worth_streaming(samples.images))
    data.in_memory = False  # each picture is read once
    order = set_batches(data, 16, seed=0, epoch=0) if data.streamed else None
    features = features_of(backbone.to(device), data, batches=order, workers=workers, progress=progress)
    try:
        with replacing(path) as beside, beside.open("wb") as file:
            np.save(file, features, allow_pickle=False)
    except OSError as fault:
        console.note(f"features are not kept for the next time: {sentence(fault)}", quiet=False)
    return features


def read_kept(path: Path, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """Features from the cache; None when they are not there or the file is damaged, and have to be computed."""
    try:
        kept = np.load(path, mmap_mode="r", allow_pickle=False)  # so that a damaged header cannot ask for memory
    except (OSError, ValueError, EOFError, SyntaxError):
        return None
    right = isinstance(kept, np.ndarray) and kept.shape == shape and kept.dtype == np.float32 and np.isfinite(kept).all()
    return np.array(kept) if right else None


def features_of(
    backbone: Backbone,
    data: SampleSet,
    *,
    batches: Sequence[Sequence[int]] | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(N, d) features of samples, or maps (N, d, h, w), computed on the backbone's device."""
    batch_size = 16 if device_of(backbone).type == "cpu" else 128  # twice as fast as 64 on a CPU, where large arrays are slow
    features, done = np.empty((len(data), 0), dtype=np.float32), 0
    for rows, found, _ in over(backbone, data, backbone, batches=batches, batch_size=batch_size, workers=workers):
        features = features if done else np.empty((len(data), *found.shape[1:]), dtype=np.float32)
        features[rows] = found.float().cpu().numpy()
        done += len(rows)
        if progress:
            progress(done, len(data))
    return features


# ---- metrics ---------------------------------------------------------------------------------------------------------


def measure(
    network: torch.nn.Module,
    data: SampleSet,
    hierarchy: Hierarchy,
    *,
    rule: str = "own",
    more_rules: Sequence[str] = (),
    shown: str | None = None,
    batch_size: int | None = None,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    calibration: Calibration | None = None,
    record: Recorder | None = None,
) -> dict[str, Any]:
    """All metrics of a network that maps batches to `Prediction`s. Several processes share the batches.

    Args:
        network: the network to measure.
        data: the samples to measure it on.
        hierarchy: the tree of classes.
        rule: how answers are chosen.
        more_rules: other rules to measure; their metrics are under "rules".
        shown: the rule by which people are answered; what they are shown, calibrated probabilities included, is measured, too,
            under "consistent".
        batch_size: samples at a time; see `usual_batch`.
        workers: how many processes decode pictures.
        rank: number of this process.
        world: how many processes there are.
        calibration: if given, the calibration error after it is measured, too.
        record: if given, it collects the answers.
    """
    metrics = {name: HierarchyMetrics(hierarchy).to(device_of(network)) for name in (rule, *more_rules)}
    left = CalibrationErrors(hierarchy).to(device_of(network)) if calibration else None
    people = HierarchyMetrics(hierarchy).to(device_of(network)) if shown else None
    everywhere = in_batches(range(len(data)), batch_size or usual_batch(network, data))
    mine = everywhere[rank::world]  # whole batches, so that results equal those of one process
    batches = mine or everywhere[:1]  # not counted, but metrics can only be merged by processes that have seen a batch
    for rows, (prediction, labels) in zip(batches, ask(network, data, batches=batches, workers=workers), strict=True):
        if not mine:
            rows, prediction, labels = [], prediction.first(0), labels[:0]
        decided = {name: decide(prediction, hierarchy, name) for name in metrics}
        for name, counted in metrics.items():
            counted.update(decided[name], labels)
        if record is not None:
            said = [only_real(decided[name].chosen(), hierarchy) for name in (rule, *record.rules)]
            record.update(rows, only_real(labels, hierarchy), said)
        sure = calibration.apply(prediction) if calibration else prediction
        if left is not None:
            left.update(decide(sure, hierarchy, rule), labels)
        if people is not None and shown is not None:
            people.update(answer_by(sure, hierarchy, shown), labels)
    found = metrics[rule].compute()
    if left is not None:
        for level, error in zip(found["levels"], left.compute(), strict=True):
            level["ece_calibrated"] = error
    if more_rules:
        found["rules"] = {name: metrics[name].compute() for name in more_rules}
    if people is not None:
        found["consistent"] = {"rule": shown, **people.compute()}
    return found


@entrance
def evaluate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str = "test",
    rule: str | None = None,
    confidences: Sequence[float] = (),
    risks: Sequence[float] = (),
    strict: bool = False,
    on_error: str = "refuse",
    workers: int = 0,
    device: torch.device | str = "cpu",
) -> dict[str, Any]:
    """Measure a run on its test samples, or on other data; returns what metrics.json holds.

    Args:
        run: a run directory, or a model on the hub.
        data: the data to evaluate on, with the run's classes; its own by default.
        split: "test", "val", "train" or "all" of it. Other data without a test part is used entirely.
        rule: how answers are chosen; see `torchlht.heads.prediction`. By default the method's own way is measured, and under
            "consistent" what people are shown; "answers" are of the latter.
        confidences: measure answers rolled up to these probabilities, under "answers".
        risks: the same for these shares of wrong answers.
        strict: for `risks`, count validation answers that no label can check as wrong.
        on_error: "refuse" or "skip" unreadable pictures.
        workers: how many processes decode pictures.
        device: where to compute: cpu, cuda, mps, or auto.
    """
    inputs = run_inputs(run, split, data=data, on_error=on_error)
    model = inputs.model.to(find_device(device))
    asked = [wanted(one, None, rule or model.rule, model.calibration) for one in confidences]
    asked += [wanted(None, one, rule or model.rule, model.calibration, strict=strict) for one in risks]
    found = measure(
        model,
        inputs.data,
        model.hierarchy,
        rule=rule or "own",
        shown=None if rule else model.rule,
        workers=workers,
        calibration=model.calibration,
    )
    if asked:
        said = ask(model, inputs.data, workers=workers)
        decisions = Decisions.join([Decisions.of(model.decided(p, rule), labels) for p, labels in said])
        found["answers"] = [
            {"promise": one.promise, **operating_point(decisions, model.hierarchy, one.threshold)} for one in asked
        ]
    return found


# ---- a run's samples -----------------------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """A run's model, and samples in the form it takes.

    Attributes:
        model: the model.
        samples: the samples with their labels.
        data: their features if there are any, else their pictures.
    """

    model: Model
    samples: Samples
    data: SampleSet


def run_inputs(
    run: str | Path,
    split: str = "test",
    *,
    data: str | Path | None = None,
    on_error: str | None = None,
    pictures: bool = False,
    calibrated: bool = True,
) -> Inputs:
    """The model of a run, and a part of its own data or of other data with its classes.

    If the run's backbone was frozen and its features are cached, they are returned; they go directly to the model's method.

    Args:
        run: a finished run directory, or, with other data, a model on the hub.
        split: "train", "val", "test" or "all"; or "seen", the training samples with the labels the run could see. Other data
            without this part is used entirely.
        data: other data; the run's own by default.
        on_error: "refuse" or "skip" unreadable pictures; as in training by default.
        pictures: return pictures even if features are cached, for Grad-CAM.
        calibrated: whether to read the model's calibration.

    Raises:
        DataError: when there are no such samples, or the model takes another kind.
    """
    model = Model.from_pretrained(run, calibrated=calibrated)
    if data is None:
        args = with_data(Path(run), read_options(Path(run), DataArgs))
        frozen = model.preprocess is not None and read_config(Path(run))["train"].get("freeze") is True
        samples = as_measured(args, model.hierarchy)
    else:
        args, frozen, samples = None, False, read_data(data, hierarchy=model.hierarchy, unknown=unknown_of(Path(run), data))
    samples, _ = check_images(samples, "skip" if args and args.on_error == "skip" else on_error or "refuse")
    if args and split in ("val", "seen"):
        samples = with_own_validation(samples, Path(run), args)
    split = "train" if split == "seen" else split
    whole = split == "all" or (args is None and split in ("test", "val") and not (samples.split == split).any())
    keep = np.arange(len(samples)) if whole else samples.index(split)
    if not len(keep):
        more = "; train with `val=0.1`" if split == "val" else ""
        raise DataError(f"{samples.name}: no samples in its {split} part; pass `split` train, val, test or all{more}")
    takes_images = model.preprocess is not None
    if takes_images != (samples.images is not None):
        raise DataError(f"{samples.name}: wrong data; this run takes {'pictures' if takes_images else 'features (.npz)'}")
    if samples.features is not None and (width := samples.features.shape[1]) != model.in_features:
        raise DataError(f"{samples.name}: its features are {width} wide; this run takes {model.in_features}")
    kept = kept_features(samples, model) if frozen and not pictures else None
    chosen = samples.select(keep)
    x = chosen.features if kept is None else kept[keep]
    return Inputs(model, chosen, sample_set(x, chosen.images, chosen.labels, model.preprocess))


def with_data(run: Path, args: Told) -> Told:
    """A run's options, if they say what its data is. Raises RunError if it was fitted in Python, to arrays."""
    if not args.data:
        raise RunError(f"{run}: was fitted in Python and does not know its data; lht evaluate {run} DATA measures it on some")
    return args


def with_own_validation(samples: Samples, run: Path, args: DataArgs) -> Samples:
    """The samples with a run's validation samples marked, and with only the labels it could see."""
    record = read_split(run)
    parts = [record[name] for name in ("train", "val", "test")]
    if len(samples) != sum(map(len, parts)) or any(i >= len(samples) for part in parts for i in part):
        raise RunError(f"{run}: its data has changed since training, so its validation samples are unknown; pass other data")
    masked, _ = args.make_mask().apply(samples)
    faults = args.make_faults()
    masked = faults.perturb_labels(masked) if faults else masked
    return with_split(masked, np.array(record["val"], dtype=np.int64), "val")


def kept_features(samples: Samples, model: Model) -> NDArray[np.float32] | None:
    """(N, d) features of a frozen backbone, if they are in the cache."""
    assert model.preprocess is not None
    return read_kept(cache_path(samples, model.backbone, model.preprocess), (len(samples), model.backbone.num_features))


def as_measured(args: DataArgs, tree: Hierarchy) -> Samples:
    """A run's own data with all its labels, without pictures that it skipped, test samples marked."""
    own = args.perturb == "none" and args.prior is None  # else read the data's own tree
    samples = read_as_trained(args, tree if own else None)
    if args.on_error == "skip":  # before test samples are set aside, as in training: else they would be others
        samples, _ = check_images(samples, "skip")
    samples, faults = hold_out_test(samples, args.test_share), args.make_faults()
    return faults.perturb_tree(samples) if faults else samples


def unknown_of(run: Path, data: str | Path) -> list[str]:
    """The names that mean unknown to a run, if the data can be read without them."""
    reader = source_of(as_place(data))
    if not run.is_dir() or reader is None or reader.read_without is None:
        return []
    return TreeArgs.from_dict(read_config(run).get("train") or {}).unknown_names()


def read_as_trained(args: DataArgs, tree: Hierarchy | None = None) -> Samples:
    """The data that the options name, with the tree that methods get: that of the labels unless there is a prior.

    Args:
        args: the options.
        tree: the tree to read it with; by default the one in the options, or else the data's own.
    """
    if tree is None and args.hierarchy:
        tree = Hierarchy.read(args.hierarchy, args.level_names())
    samples = read_data(args.data, hierarchy=tree, levels=args.level_names(), unknown=args.unknown_names())
    return with_prior(samples, Hierarchy.read(args.prior)) if args.prior else samples
