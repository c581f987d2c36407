"""How good a trained model is: on the data it was trained on, or on any other data with the same classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchlht.answer.calibration import Calibration
from torchlht.answer.model import Model, read_config
from torchlht.answer.named import wanted
from torchlht.answer.runs import read_split
from torchlht.data.batches import FeatureSet, SampleSet, load, sample_set
from torchlht.data.images import check_images
from torchlht.data.reading import read_data
from torchlht.data.samples import Samples, hold_out_test, with_split
from torchlht.errors import DataError, RunError
from torchlht.heads.prediction import Prediction
from torchlht.heads.rules import decide
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.perturbing import with_prior
from torchlht.learn.options import TrainArgs
from torchlht.measure.features import cache_path
from torchlht.measure.metrics import CalibrationErrors, HierarchyMetrics
from torchlht.measure.operating import Decisions, operating_point
from torchlht.vocabulary import Rule


def measure(
    network: torch.nn.Module,
    data: SampleSet,
    hierarchy: Hierarchy,
    *,
    rule: Rule = "own",
    more_rules: Sequence[Rule] = (),
    device: torch.device,
    batch_size: int = 256,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """All metrics of a network that maps batches to `Prediction`s. With several processes each takes its own batches.

    Args:
        network: what to measure.
        data: on what.
        hierarchy: the tree of classes.
        rule: how answers are chosen.
        more_rules: rules to measure as well; their metrics are under "rules".
        device: where to compute.
        batch_size: samples at a time.
        workers: processes that decode pictures.
        rank: number of this process.
        world: how many processes there are.
        calibration: of the network's probabilities; what is left of the calibration error is then measured, too.
    """
    was_training = network.training
    network.eval()
    metrics = {name: HierarchyMetrics(hierarchy).to(device) for name in (rule, *more_rules)}
    left = CalibrationErrors(hierarchy).to(device) if calibration else None
    everywhere = [list(range(i, min(i + batch_size, len(data)))) for i in range(0, len(data), batch_size)]
    mine = everywhere[rank::world]  # whole batches, so that each is computed as one process would
    batches = mine or everywhere[:1]  # not to be counted, but metrics are put together by processes that have seen something
    with torch.no_grad():  # not inference_mode: what is counted is gathered from all processes afterwards
        for x, labels in load(data, batches, workers):
            counting = len(labels) if mine else 0
            labels = labels[:counting]
            prediction: Prediction = network(x[:counting].to(device))
            for name, counted in metrics.items():
                counted.update(decide(prediction, hierarchy, name), labels.to(device))
            if left is not None and calibration is not None:
                left.update(decide(calibration.apply(prediction), hierarchy, rule), labels.to(device))
    network.train(was_training)
    found = metrics[rule].compute()
    if left is not None:
        for level, error in zip(found["levels"], left.compute(), strict=True):
            level["ece_calibrated"] = error
    if more_rules:
        found["rules"] = {name: metrics[name].compute() for name in more_rules}
    return found


def evaluate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str = "test",
    rule: Rule = "own",
    confidences: Sequence[float] = (),
    risks: Sequence[float] = (),
    strict: bool = False,
    on_error: str = "refuse",
    workers: int = 0,
) -> dict[str, Any]:
    """The metrics of a run.

    Args:
        run: a run directory, or a model on the hub.
        data: what to evaluate on, with the run's classes; the run's own data by default.
        split: "test", "val", "train" or "all" of it. Data without a test part is used whole when it is not the run's own.
        rule: how answers are chosen; see `torchlht.answer`.
        confidences: what answers rolled up to these probabilities are worth goes under "answers".
        risks: likewise for these shares of wrong answers.
        strict: risks: count validation answers that no label can check as wrong.
        on_error: "refuse" or "skip" pictures that cannot be read.
        workers: processes that decode pictures.
    """
    model = Model.from_pretrained(run)
    asked = [wanted(one, None, rule, model.calibration) for one in confidences]
    asked += [wanted(None, one, rule, model.calibration, strict=strict) for one in risks]
    inputs = run_set(Path(run), model, data, split, on_error)
    network = part_for(model, inputs)
    device = torch.device("cpu")
    found = measure(network, inputs, model.hierarchy, rule=rule, device=device, workers=workers, calibration=model.calibration)
    if asked:
        decisions = decide_all(model, inputs, rule=rule, workers=workers)
        found["answers"] = [
            {"promise": one.promise, **operating_point(decisions, model.hierarchy, one.threshold)} for one in asked
        ]
    return found


def collect(
    network: nn.Module, data: SampleSet, *, device: torch.device | None = None, workers: int = 0
) -> tuple[Prediction, Tensor]:
    """What a network says of all samples at once, and their labels."""
    parts = list(predictions(network, data, device=device, workers=workers))
    return join([p for p, _ in parts]), torch.cat([labels for _, labels in parts])


def join(parts: Sequence[Prediction]) -> Prediction:
    """Predictions of several batches as one, without transitions."""
    levels = tuple(torch.cat([p.log_probs[k].cpu() for p in parts]) for k in range(len(parts[0].log_probs)))
    choices = [p.choice.cpu() for p in parts if p.choice is not None]
    return Prediction(levels, choice=torch.cat(choices) if choices else None)


def decide_all(model: Model, data: SampleSet, *, rule: Rule = "own", workers: int = 0) -> Decisions:
    """What a model answers for every sample, calibrated where it is, without the probabilities of all classes."""
    network = part_for(model, data)
    return Decisions.join(
        [Decisions.of(model.decided(p, rule), labels) for p, labels in predictions(network, data, workers=workers)]
    )


def predictions(
    network: nn.Module, data: SampleSet, *, device: torch.device | None = None, batch_size: int = 256, workers: int = 0
) -> Iterator[tuple[Prediction, Tensor]]:
    """What a network says of all samples, batch by batch, with their labels."""
    was_training = network.training
    network.eval()
    batches = [list(range(i, min(i + batch_size, len(data)))) for i in range(0, len(data), batch_size)]
    for x, labels in load(data, batches, workers):
        with torch.no_grad():
            yield network(x.to(device)), labels
    network.train(was_training)


# ---- a run's own samples -------------------------------------------------------------------------------------------


def run_set(run: Path, model: Model, data: str | Path | None, split: str, on_error: str = "refuse") -> SampleSet:
    """A part of a run's own data, or of other data with its classes, as the model takes it.

    Data without such a part is used whole when it is not the run's own. Where the run's backbone was frozen and its features
    are still kept, these are given, and go into the model's method alone; see `part_for`.
    """
    samples, _ = check_images(run_samples(run, model, data), on_error)
    if data is None and split == "val":
        samples = with_own_validation(samples, run)
    whole = split == "all" or (data is not None and split in ("test", "val") and not (samples.split == split).any())
    keep = np.arange(len(samples)) if whole else samples.index(split)
    if not len(keep):
        more = "; train with `val=0.1`" if split == "val" else ""
        raise DataError(f"{samples.name}: no samples in its {split} part; pass `split` train, val, test or all{more}")
    takes_images = model.preprocess is not None
    if takes_images != (samples.images is not None):
        wanted_kind = "pictures" if takes_images else "features (.npz)"
        raise DataError(f"{samples.name}: this run takes {wanted_kind}")
    features = kept_features(samples, model) if takes_images and data is None else None
    chosen = samples.select(keep)
    x = chosen.features if features is None else features[keep]
    return sample_set(x, chosen.images, chosen.labels, model.preprocess)


def with_own_validation(samples: Samples, run: Path) -> Samples:
    """The samples with those marked that a run set aside for validation, and with only the labels it could see."""
    args = TrainArgs.from_dict(read_config(run)["train"])
    record = read_split(run)
    if len(samples) != sum(len(record[name]) for name in ("train", "val", "test")):
        raise RunError(f"{run}: its data has changed since; the samples it was validated on are not known any more")
    masked, _ = args.make_mask().apply(samples)
    masked = args.make_perturbation().perturb_labels(masked)
    return with_split(masked, np.array(record["val"], dtype=np.int64), "val")


def kept_features(samples: Samples, model: Model) -> NDArray[np.float32] | None:
    """(N, d) features of a frozen backbone, if they are in the cache."""
    assert model.preprocess is not None
    path = cache_path(samples, model.backbone, model.preprocess)
    return np.load(path, allow_pickle=False) if path.is_file() else None


def part_for(model: Model, data: SampleSet) -> nn.Module:
    """The part of a model that samples go into: the method alone where they are features of a backbone for pictures."""
    return model.method if isinstance(data, FeatureSet) and model.preprocess is not None else model


def run_samples(run: Path, model: Model, data: str | Path | None) -> Samples:
    """The samples a run is measured on, with all their labels: other data, or its own as it was trained on."""
    if data is not None:
        return read_data(data, hierarchy=model.hierarchy)
    args = TrainArgs.from_dict(read_config(run)["train"])
    own = args.perturb == "none" and args.prior is None  # else read as it was before that
    samples = read_as_trained(args, model.hierarchy if own else None)
    return args.make_perturbation().perturb_tree(hold_out_test(samples, args.test_share))


def read_as_trained(args: TrainArgs, tree: Hierarchy | None = None) -> Samples:
    """The data that options name, with the tree that methods are given: the labels' own unless there is a prior.

    Args:
        args: the options.
        tree: the tree to read it with; the one that the options name, or else the data's own, by default.
    """
    if tree is None and args.hierarchy:
        tree = Hierarchy.read(args.hierarchy, args.level_names())
    samples = read_data(args.data, hierarchy=tree, levels=args.level_names())
    return with_prior(samples, Hierarchy.read(args.prior)) if args.prior else samples
