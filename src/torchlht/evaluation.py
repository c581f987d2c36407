"""How good a trained model is: on the data it was trained on, or on any other data with the same classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlht.answer import decide
from torchlht.args import TrainArgs
from torchlht.data import Samples, read_data
from torchlht.data.images import check_images
from torchlht.data.loading import SampleSet, load, sample_set
from torchlht.data.perturbing import with_prior
from torchlht.data.samples import hold_out_test
from torchlht.errors import DataError
from torchlht.hierarchy import Hierarchy
from torchlht.metrics import HierarchyMetrics
from torchlht.model import Model, read_config
from torchlht.prediction import Prediction
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
) -> dict[str, Any]:
    """All metrics of a network that maps batches to `Prediction`s. With several processes each takes its own samples once.

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
    """
    was_training = network.training
    network.eval()
    metrics = {name: HierarchyMetrics(hierarchy).to(device) for name in (rule, *more_rules)}
    mine = np.arange(rank, len(data), world).tolist()
    batches = [mine[i : i + batch_size] for i in range(0, len(mine), batch_size)]
    if 0 < len(data) < world:
        raise DataError(f"{len(data)} samples to measure on are fewer than the {world} processes; use fewer processes")
    with torch.no_grad():  # not inference_mode: what is counted is gathered from all processes afterwards
        for x, labels in load(data, batches, workers):
            prediction: Prediction = network(x.to(device))
            for name, counted in metrics.items():
                counted.update(decide(prediction, hierarchy, name), labels.to(device))
    network.train(was_training)
    found = metrics[rule].compute()
    if more_rules:
        found["rules"] = {name: metrics[name].compute() for name in more_rules}
    return found


def evaluate(
    run: str | Path,
    data: str | Path | None = None,
    *,
    split: str = "test",
    rule: Rule = "own",
    on_error: str = "refuse",
    workers: int = 0,
) -> dict[str, Any]:
    """The metrics of a run.

    Args:
        run: a run directory, or a model on the hub.
        data: what to evaluate on, with the run's classes; the run's own data by default.
        split: "test", "val", "train" or "all" of it. Data without a test part is used whole when it is not the run's own.
        rule: how answers are chosen; see `torchlht.answer`.
        on_error: "refuse" or "skip" pictures that cannot be read.
        workers: processes that decode pictures.
    """
    model = Model.from_pretrained(run)
    samples = run_samples(Path(run), model, data)
    samples, _ = check_images(samples, on_error)
    whole = split == "all" or (data is not None and split == "test" and not (samples.split == "test").any())
    chosen = samples if whole else samples.select(samples.index(split))
    if not len(chosen):
        raise DataError(f"{samples.name}: no samples in its {split} part; pass --split train, val, test or all")
    takes_images = model.preprocess is not None
    if takes_images != (chosen.images is not None):
        wanted = "pictures" if takes_images else "features (.npz)"
        raise DataError(f"{samples.name}: this run takes {wanted}")
    inputs = sample_set(chosen.features, chosen.images, chosen.labels, model.preprocess)
    return measure(model, inputs, model.hierarchy, rule=rule, device=torch.device("cpu"), workers=workers)


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
