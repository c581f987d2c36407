"""The parts of training: learning rates, the samples a method learns from, the epoch that is kept, a run's own samples."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file
from tensorboard.backend.event_processing import event_accumulator
from torch import Tensor, nn
from torch._dynamo.exc import TorchDynamoException
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchlht import TrainArgs, evaluate, load, train
from torchlht.answer.backbones import create_backbone
from torchlht.answer.model import Model
from torchlht.answer.records import read_config
from torchlht.data.preparing import paper_preprocess
from torchlht.data.samples import Samples
from torchlht.errors import ConfigError, DataError, DivergedError, RunError
from torchlht.heads.method import Estimator, create_method, list_methods
from torchlht.learn import launching, training
from torchlht.learn.alone import Alone
from torchlht.learn.building import backbone_name, build, make_semi, taught_samples
from torchlht.learn.fitting import best_epoch, make_optimizer
from torchlht.learn.options import SETTLED
from torchlht.learn.semi.propagation import with_ancestors
from torchlht.learn.training import open_run, origin, own_options, prepare
from torchlht.measure.evaluation import as_measured, run_inputs
from trees import quick, random_hierarchy, random_labels

TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))
SETTINGS: dict[str, Any] = {"quiet": True, "track": False, "option": ("width=16",), "accelerator": "cpu", "workers": 0}


def options(data: Path | str = "data", out: Path | None = None, **more: Any) -> TrainArgs:
    return TrainArgs(str(data), out, **{**SETTINGS, **more})


@contextmanager
def watching(look: Callable[[Optimizer], Any], register: Any = register_optimizer_step_pre_hook) -> Iterator[list[Any]]:
    """What `look` sees of the optimizer before every step of training, whoever calls it; or after, by the other hook."""
    seen: list[Any] = []
    handle = register(lambda optimizer, *_: seen.append(look(optimizer)))
    try:
        yield seen
    finally:
        handle.remove()


# ---- learning rates ------------------------------------------------------------------------------------------------


def tiny_model(*, pretrained: bool, trainable: bool = True) -> Model:
    backbone = create_backbone("small", pretrained=False)
    backbone.pretrained = pretrained
    backbone.requires_grad_(trainable)
    return Model(backbone, create_method("flat", backbone.num_features, TREE), options={}, preprocess=backbone.preprocess)


def group_of(optimizer: Optimizer, part: nn.Module) -> dict[str, Any]:
    """The group that holds exactly the parameters of a part of the model."""
    wanted = {id(p) for p in part.parameters()}
    (found,) = (group for group in optimizer.param_groups if {id(p) for p in group["params"]} == wanted)
    return found


@pytest.mark.parametrize(
    ("pretrained", "asked", "expected"),
    [(True, None, 0.03), (False, None, 0.3), (True, 0.2, 0.2), (False, 0.2, 0.2), (True, 0.0, 0.0)],
)
def test_a_pretrained_backbone_learns_at_a_tenth_of_the_rate_unless_one_is_asked_for(
    pretrained: bool, asked: float | None, expected: float
) -> None:
    model = tiny_model(pretrained=pretrained)
    args = options(lr=0.3, backbone_lr=asked, weight_decay=0.01, optimizer="sgd")
    optimizer = make_optimizer(args.recipe(features=False, samples=100, pretrained=pretrained), model)
    assert group_of(optimizer, model.method)["lr"] == 0.3
    assert group_of(optimizer, model.backbone)["lr"] == pytest.approx(expected)


def test_a_frozen_backbone_is_not_given_to_the_optimizer() -> None:
    model = tiny_model(pretrained=True, trainable=False)
    optimizer = make_optimizer(options(lr=0.3, optimizer="sgd").recipe(features=False, samples=100), model)
    assert len(optimizer.param_groups) == 1
    group_of(optimizer, model.method)


@pytest.mark.parametrize(("name", "kind"), [("sgd", SGD), ("adamw", AdamW)])
def test_the_optimizer_is_the_one_that_was_asked_for_and_decays_every_weight(name: Any, kind: type[Optimizer]) -> None:
    model = tiny_model(pretrained=True)
    optimizer = make_optimizer(options(lr=0.3, weight_decay=0.07, optimizer=name).recipe(features=False, samples=100), model)
    assert isinstance(optimizer, kind)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.07, 0.07]
    assert all(group.get("momentum", 0.9) == 0.9 for group in optimizer.param_groups)


def test_all_rates_fall_along_a_cosine_from_epoch_to_epoch(embeddings: Path, tmp_path: Path) -> None:
    """Method and backbone alike: half a cosine from the whole rate towards zero, the same within an epoch."""
    epochs, steps = 5, 3
    args = options(embeddings, tmp_path / "run", backbone="linear", lr=0.2, epochs=epochs, batch_size=40)
    with watching(lambda optimizer: [group["lr"] for group in optimizer.param_groups]) as rates:
        train(args)
    cosine = [(1 + math.cos(math.pi * epoch / epochs)) / 2 for epoch in range(epochs) for _ in range(steps)]
    expected = np.array([[0.2 * c, 0.02 * c] for c in cosine])  # `linear` counts as pretrained
    np.testing.assert_allclose(rates, expected, rtol=1e-12)
    lines = (tmp_path / "run" / "history.csv").read_text().splitlines()
    column = lines[0].split(",").index("lr")
    assert [float(line.split(",")[column]) for line in lines[1:]] == pytest.approx(expected[::steps, 0])


# ---- the samples a method learns from ------------------------------------------------------------------------------


def some_samples(seed: int, count: int = 60, missing: float = 0.5) -> Samples:
    """Labels with gaps, of training and test samples in turns of three."""
    rng = np.random.default_rng(seed)
    split = np.where(np.arange(count) % 3 > 0, "train", "test")
    labels = random_labels(TREE, rng, count, missing).numpy()
    x = rng.normal(size=(count, 6)).astype(np.float32)
    return Samples("some", TREE, tuple(map(str, range(count))), labels, split, features=x)


@pytest.mark.parametrize("name", list_methods())
def test_every_method_gets_as_many_samples_and_each_it_can_learn_from_as_often(name: str) -> None:
    """One that is fitted at once is given each of them once."""
    samples, args = some_samples(1), options(method=name, option=())
    model = build(args, samples)
    taught = taught_samples(args, samples, model)
    learns = model.method.learns_from(torch.from_numpy(samples.labels)).numpy()
    expected = [i for i in range(len(samples)) if samples.split[i] == "train" and learns[i]]
    times = np.bincount(taught, minlength=len(samples))
    assert np.flatnonzero(times).tolist() == expected
    if isinstance(model.method, Estimator):
        assert len(taught) == len(expected)
    else:
        assert len(taught) == (samples.split == "train").sum() == 40
        assert times[expected].max() - times[expected].min() <= 1


def test_with_targets_for_unknown_labels_every_training_sample_takes_part_once() -> None:
    samples, args = some_samples(0), options(method="flat", semi="propagate")
    assert taught_samples(args, samples, build(args, samples)).tolist() == samples.index("train").tolist()


def test_no_sample_to_learn_from_is_told() -> None:
    samples, args = some_samples(0), options(method="flat")
    model = build(args, samples)
    samples.labels[:, 0] = -1
    with pytest.raises(DataError, match="no training sample has a label that flat can learn from"):
        taught_samples(args, samples, model)


def test_methods_that_learn_from_few_samples_take_as_many_steps_as_those_that_learn_from_all(
    embeddings: Path, tmp_path: Path
) -> None:
    """Of 120 training samples, 12 or so keep a fine label, which is all `flat` learns from."""
    taken = {}
    for method in ("flat", "multihead"):
        with watching(lambda _: None) as steps:
            train(options(embeddings, tmp_path / method, method=method, mask=0.9, epochs=2, batch_size=16))
        taken[method] = len(steps)
    assert taken == {"flat": 2 * 8, "multihead": 2 * 8}


# ---- the epoch that is kept ----------------------------------------------------------------------------------------


@quick
@given(scores=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=8))
def test_the_best_epoch_is_the_earliest_of_the_highest_scores(scores: list[float]) -> None:
    best = best_epoch([{"val_mean": score} for score in scores])
    assert scores[best - 1] == max(scores)
    assert all(score < scores[best - 1] for score in scores[: best - 1])


@pytest.fixture
def selected(embeddings: Path, tmp_path: Path) -> Callable[[str], tuple[Path, list[list[Tensor]]]]:
    """Trains five epochs on samples that are all right long before; gives the run and the method's weights by epoch."""
    with np.load(embeddings) as file:
        arrays = dict(file)
    arrays["x"][:, :6] += 20 * np.eye(6, dtype=np.float32)[arrays["y"][:, 0]]
    np.savez(embeddings, **arrays)

    def go(select: str) -> tuple[Path, list[list[Tensor]]]:
        args = options(embeddings, tmp_path / select, select=select, val=0.2, lr=0.1, epochs=5, batch_size=24)
        with watching(
            lambda optimizer: [p.detach().clone() for p in optimizer.param_groups[0]["params"]],
            register_optimizer_step_post_hook,
        ) as weights:
            train(args)
        assert len(weights) == 5 * 4
        return tmp_path / select, weights[3::4]

    return go


def test_the_weights_of_the_best_epoch_are_kept(selected: Callable[[str], tuple[Path, list[list[Tensor]]]]) -> None:
    """To the bit; and what was measured is them, too."""
    run, weights = selected("best")
    metrics = json.loads((run / "metrics.json").read_text())
    epoch = metrics["selection"]["epoch"]
    assert epoch < 5, "the best epoch is the last, which shows nothing"
    kept = list(load(run).method.parameters())
    assert all(torch.equal(a, b) for a, b in zip(kept, weights[epoch - 1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(kept, weights[-1], strict=True))
    assert evaluate(run)["levels"] == metrics["levels"]
    assert evaluate(run, split="val")["mean_accuracy"] == metrics["validation"]["val_mean"]


def test_the_weights_of_the_last_epoch_are_kept_when_that_is_asked_for(
    selected: Callable[[str], tuple[Path, list[list[Tensor]]]],
) -> None:
    run, weights = selected("last")
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["selection"] == {"rule": "last", "epoch": 5, "epochs": 5}
    assert all(torch.equal(a, b) for a, b in zip(load(run).method.parameters(), weights[-1], strict=True))


# ---- what is made of the options -----------------------------------------------------------------------------------


def picture_samples() -> Samples:
    """Pictures that nobody looks at."""
    samples = some_samples(0)
    return dataclasses.replace(samples, features=None, images=tuple(Path(f"{key}.png") for key in samples.keys))


@pytest.mark.parametrize(
    ("backbone", "more", "of_features", "of_pictures"),
    [
        ("auto", {}, "none", "resnet18"),
        ("auto", {"data": "demo"}, "none", "small"),
        ("none", {}, "none", "backbone=none is for features; data holds pictures"),
        ("linear", {}, "linear", "backbone=linear is for features; data holds pictures"),
        ("small", {}, "backbone=small needs pictures; data holds features already", "small"),
        ("resnet50", {"preset": "paper"}, "none", "resnet50"),
        ("auto", {"freeze": True}, "freeze is for pictures; data holds features already", "resnet18"),
        ("auto", {"compile": True}, "compile is for the backbone of pictures; data holds features", "resnet18"),
    ],
)
def test_the_backbone_is_what_suits_the_data_or_what_does_not_is_told(
    backbone: str, more: dict[str, Any], of_features: str, of_pictures: str
) -> None:
    for samples, expected in ((some_samples(0), of_features), (picture_samples(), of_pictures)):
        args = options(backbone=backbone, **more) if "data" not in more else options(more["data"], backbone=backbone)
        if "; data holds " in expected:
            with pytest.raises(ConfigError, match=expected):
                backbone_name(args, samples)
        else:
            assert backbone_name(args, samples) == expected


def test_pictures_are_prepared_as_the_options_say() -> None:
    own = create_backbone("small", pretrained=False).preprocess
    assert own is not None
    made = {
        name: build(options(backbone="small", **more), picture_samples()).preprocess
        for name, more in (("own", {}), ("smaller", {"image_size": 24}), ("paper", {"image_size": 24, "augment": "paper"}))
    }
    assert made == {"own": own, "smaller": own.resized(24), "paper": paper_preprocess(24)}
    assert build(options(), some_samples(0)).preprocess is None


@pytest.mark.parametrize(
    ("more", "pretrained", "first"), [({}, False, 3), ({}, True, 0), ({"freeze": True}, False, 0), ({"freeze": True}, True, 0)]
)
def test_targets_wait_until_features_mean_something(more: dict[str, Any], pretrained: bool, first: int) -> None:
    """Those of a network that is trained from scratch do not in the first third of the epochs."""
    samples, args = picture_samples(), options(backbone="small", semi="both", epochs=9, **more)
    model = build(args, samples)
    model.backbone.pretrained = pretrained
    semi = make_semi(args, args.recipe(features=False, samples=100), samples, model, samples.index("train"))
    assert semi is not None
    assert semi.rounds[0] == first


def test_targets_of_features_do_not_wait_and_without_semi_there_are_none() -> None:
    samples, args = some_samples(0), options(semi="both", epochs=9)
    recipe = args.recipe(features=True, samples=100)
    semi = make_semi(args, recipe, samples, build(args, samples), samples.index("train"))
    assert semi is not None
    assert semi.rounds[0] == 0
    assert np.array_equal(semi.labels[:, 1:] >= 0, with_ancestors(samples.labels[samples.index("train")], TREE)[:, 1:] >= 0)
    assert make_semi(options(), recipe, samples, build(args, samples), samples.index("train")) is None


def test_a_tenth_is_set_aside_where_the_best_epoch_is_wanted_and_nothing_else_is_said(embeddings: Path) -> None:
    kept = prepare(options(embeddings)).samples
    assert len(kept.index("val")) == 0
    best = prepare(options(embeddings, select="best", mask=0.5))
    assert len(best.samples.index("val")) == 12
    assert not set(best.kept) & set(best.samples.index("val"))
    assert len(prepare(options(embeddings, select="best", val=0.3)).samples.index("val")) == 36
    again = prepare(options(embeddings, val=0.1, mask=0.5)).samples
    assert again.index("val").tolist() == best.samples.index("val").tolist()


def test_too_few_samples_for_validation_are_told(embeddings: Path) -> None:
    with np.load(embeddings) as file:
        arrays = dict(file)
    arrays["train"] = np.arange(180) % 30 == 0  # one of each species
    np.savez(embeddings, **arrays)
    with pytest.raises(DataError, match="too few samples to set any aside for validation; use select=last"):
        prepare(options(embeddings, select="best"))


def test_what_cannot_be_compiled_is_told_before_anything_is_written(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise TorchDynamoException("no compiler found")

    monkeypatch.setattr(torch, "compile", lambda _: fails)
    with pytest.raises(ConfigError, match=r"compile: .* \(no compiler found\); train without it"):
        train(options(pictures, tmp_path / "run", backbone="small", image_size=24, compile=True))
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_the_options_it_was_started_with_and_the_launch_if_there_is_one() -> None:
    args = options(seed=3)
    recipe = args.recipe(features=True, samples=100)
    kept = origin(args, recipe, None)
    assert kept == {"train": args.to_dict() | {name: kept["train"][name] for name in SETTLED}}
    assert (kept["train"]["epochs"], kept["train"]["lr"]) == (recipe.epochs, recipe.lr), "filled in"
    assert origin(args, recipe, "job 1") == {**kept, "launch": "job 1"}


# ---- stopping and going on -----------------------------------------------------------------------------------------


class Stopped(BaseException):
    """What ends a run from outside, as Ctrl-C does."""


def train_until(args: TrainArgs, steps: int) -> None:
    """Train, and stop after so many steps."""
    left = iter(range(steps - 1))

    def look(_: Optimizer) -> None:
        if next(left, None) is None:
            raise Stopped

    with pytest.raises(Stopped), watching(look, register_optimizer_step_post_hook):
        train(args)


def history_of(run: Path) -> list[dict[str, float]]:
    """Rows of the history, without what depends on the clock."""
    with (run / "history.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [{name: value for name, value in row.items() if name not in ("seconds", "images_per_second")} for row in rows]


NOISY = {"option": ("width=16", "input_dropout=0.3"), "mixup": 0.4, "ema": 0.9, "semi": "both", "val": 0.1, "select": "best"}


@pytest.mark.parametrize("more", [{}, NOISY, {"accumulate": 3}], ids=["plain", "noisy", "parts"])
def test_a_run_stopped_inside_an_epoch_goes_on_as_if_it_had_not_been(
    embeddings: Path, tmp_path: Path, more: dict[str, Any]
) -> None:
    """Weights to the bit, and every row of the history. Epochs have 7 or 8 steps; every second one is kept."""
    args = options(embeddings, tmp_path / "whole", mask=0.5, epochs=3, batch_size=17, checkpoint_every=2, **more)
    whole = train(args)
    train_until(dataclasses.replace(args, out=tmp_path / "cut"), 13)
    assert not (tmp_path / "cut" / "metrics.json").exists()
    with watching(lambda _: None) as steps:
        cut = train(TrainArgs(resume=tmp_path / "cut", quiet=True, accelerator="cpu", workers=0))
    assert 0 < len(steps) < 3 * 8 - 13 + 3, "some steps were taken again, and no more than since the last checkpoint"
    ours, theirs = (load_file(run / "model.safetensors") for run in (cut, whole))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert history_of(cut) == history_of(whole)
    metrics = [json.loads((run / "metrics.json").read_text()) for run in (cut, whole)]
    assert metrics[0]["levels"] == metrics[1]["levels"]
    assert metrics[0]["selection"] == metrics[1]["selection"]


def test_a_run_goes_on_with_its_own_options_and_with_those_of_the_machine_as_they_are_now(
    embeddings: Path, tmp_path: Path
) -> None:
    train_until(options(embeddings, tmp_path / "run", epochs=3, seed=5, lr=0.2), 1)
    now = TrainArgs(resume=tmp_path / "run", lr=0.7, epochs=1, quiet=False, workers=3, accelerator="auto", devices=2)
    args, run, resuming = open_run(now)
    assert (run.path, resuming) == (tmp_path / "run", True)
    assert (args.lr, args.epochs, args.seed) == (0.2, 3, 5)
    assert (args.quiet, args.workers, args.accelerator, args.devices) == (False, 3, "auto", 2)


def test_a_run_does_not_go_on_where_its_data_have_changed(embeddings: Path, tmp_path: Path) -> None:
    train_until(options(embeddings, tmp_path / "run", epochs=3, mask=0.5), 1)
    with np.load(embeddings) as file:
        arrays = dict(file)
    moved = np.where(np.arange(180)[:, None] < 15, arrays["y"][30], arrays["y"])  # half a species is another
    for changed in ({"train": arrays["train"][::-1]}, {"y": moved}):
        np.savez(embeddings, **{**arrays, **changed})
        with pytest.raises(RunError, match="the data has changed since this run was started"):
            train(TrainArgs(resume=tmp_path / "run", quiet=True, accelerator="cpu"))
    np.savez(embeddings, **arrays)
    assert train(TrainArgs(resume=tmp_path / "run", quiet=True, accelerator="cpu")) == tmp_path / "run"


@pytest.mark.parametrize(("data", "name"), [("here/birds.npz", "birds-lht-s3"), ("/", "data-lht-s3")])
def test_a_run_that_is_not_told_where_to_go_is_named_after_data_method_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _, run, resuming = open_run(TrainArgs(data, method="lht", seed=3))
    assert (run.path, resuming) == (Path("runs") / name, False)


# ---- what a run tells ----------------------------------------------------------------------------------------------


def test_times_and_counts_of_a_run_agree_with_each_other(embeddings: Path, tmp_path: Path) -> None:
    run = train(options(embeddings, tmp_path / "run", epochs=2, batch_size=40))
    with (run / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    metrics = json.loads((run / "metrics.json").read_text())
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert metrics["train_seconds"] == pytest.approx(sum(float(row["seconds"]) for row in rows))
    assert metrics["seconds_per_step"] == pytest.approx(metrics["train_seconds"] / 6)
    for row in rows:
        assert 120 / float(row["seconds"]) <= float(row["images_per_second"]) < 1e7


def test_alone_and_under_fabric_training_ends_with_the_same_weights(
    embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    for name, machine in {"alone": lambda *_: Alone(), "fabric": launching.make_fabric}.items():
        monkeypatch.setattr(training, "find_machine", machine)
        args = options(embeddings, tmp_path / name, epochs=2, semi="both", mask=0.5, val=0.2)
        kept.append(load_file(training.train(args) / "model.safetensors"))
    alone, under = kept
    assert alone.keys() == under.keys()
    assert all(torch.equal(alone[name], under[name]) for name in alone)


def test_the_history_of_a_run_is_what_tensorboard_shows(embeddings: Path, tmp_path: Path) -> None:
    run = train(options(embeddings, tmp_path / "run", epochs=2, track=True))
    found = event_accumulator.EventAccumulator(str(run / "tensorboard")).Reload()
    rows = history_of(run)
    assert set(found.Tags()["scalars"]) == {*rows[0], "seconds", "images_per_second"} - {"epoch"}
    for name in ("loss", "lr", "train_species"):
        events = found.Scalars(name)
        assert [event.step for event in events] == [1, 2]
        assert [event.value for event in events] == pytest.approx([row[name] for row in rows], rel=1e-6)


# ---- a run's own samples -------------------------------------------------------------------------------------------


@pytest.fixture
def masked_run(embeddings: Path, tmp_path: Path) -> TrainArgs:
    """A run on masked labels with validation samples."""
    args = options(embeddings, tmp_path / "run", mask=0.5, val=0.3, epochs=1, batch_size=64)
    train(args)
    return args


def test_each_part_of_a_runs_data_holds_its_samples(masked_run: TrainArgs) -> None:
    """Those it was tested on, those it did not test on (validation samples among them), and all."""
    args = masked_run
    with np.load(args.data) as file:
        x, labels, train_part = file["x"], file["y"], file["train"]
    parts = {"test": ~train_part, "train": train_part, "all": np.ones(len(x), dtype=bool)}
    assert args.out is not None
    for name, rows in parts.items():
        found = run_inputs(args.out, name).data
        np.testing.assert_array_equal(found.x, x[rows])
        np.testing.assert_array_equal(found.labels, labels[rows])


def test_validation_samples_are_those_set_aside_with_the_labels_that_training_saw(masked_run: TrainArgs) -> None:
    args = masked_run
    assert args.out is not None
    rows = json.loads((args.out / "split.json").read_text())["val"]
    found = run_inputs(args.out, "val").data
    with np.load(args.data) as file:
        np.testing.assert_array_equal(found.x, file["x"][rows])
        hidden, truth = (found.labels < 0).numpy(), file["y"][rows]
    np.testing.assert_array_equal(found.labels.numpy()[~hidden], truth[~hidden])
    assert hidden[:, 0].any()
    assert not hidden[:, 1:].any()
    np.testing.assert_array_equal(found.labels, prepare(args).samples.labels[rows])


def test_other_data_without_such_a_part_is_used_whole(masked_run: TrainArgs, tmp_path: Path) -> None:
    args = masked_run
    assert args.out is not None
    with np.load(args.data) as file:
        arrays = dict(file)
    arrays["train"][:] = True
    np.savez(tmp_path / "other.npz", **arrays)
    for name in ("test", "val", "train", "all"):
        assert len(run_inputs(args.out, name, data=tmp_path / "other.npz").data) == 180
    assert len(run_inputs(args.out, "test", data=args.data).data) == 60
    assert len(run_inputs(args.out, "val", data=args.data).data) == 180


def test_a_part_without_samples_and_samples_of_another_kind_are_told(
    embeddings: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train(options(embeddings, tmp_path / "run", epochs=1))
    model = load(run)
    with pytest.raises(DataError, match=r"no samples in its val part; .* train with val=0\.1"):
        run_inputs(run, "val")
    with pytest.raises(DataError, match=r"this run takes features \(\.npz\)"):
        run_inputs(run, "all", data=pictures)
    model.preprocess = tiny_model(pretrained=False).preprocess
    monkeypatch.setattr(Model, "from_pretrained", lambda *_, **__: model)
    with pytest.raises(DataError, match="this run takes pictures"):
        run_inputs(run, "all", data=embeddings)


@pytest.mark.parametrize("clip", [0.0, 5.0])
def test_training_that_diverges_says_so_and_keeps_no_weights(clip: float, tmp_path: Path) -> None:
    """Gradients that are not finite, in the last step too, where the loss does not show it any more."""
    y = np.array([[0, 0], [1, 0], [2, 1], [3, 1]] * 5)
    np.savez(
        tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32), y=y, train=np.arange(20) > 4
    )
    weights = ("width=16", "confusion_weight=1e30")
    with pytest.raises(DivergedError, match="in epoch 1: training diverged; try a lower lr than"):
        train(options(tmp_path / "a.npz", tmp_path / "run", option=weights, epochs=1, clip=clip, lr=1e20))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_run_records_options_that_came_later_and_an_older_one_is_trained_on_as_it_was(
    embeddings: Path, tmp_path: Path
) -> None:
    run = train(options(embeddings, tmp_path / "run", epochs=1))
    config = read_config(run)
    assert config["model"]["options"]["prior_weight"] == 10
    assert own_options(config).option == TrainArgs.from_dict(config["train"]).option
    del config["model"]["options"]["prior_weight"]
    assert "prior_weight=0.0" in own_options(config).option


def test_a_run_that_skipped_pictures_is_measured_on_the_test_samples_it_set_aside(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LHT_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for i in range(60):
        picture = tmp_path / "birds" / "AB"[i % 2] / "wxyz"[i % 4] / f"{i}.png"
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(picture)
        if i % 12 == 5:
            picture.write_bytes(picture.read_bytes()[:40])
    args = options(tmp_path / "birds", on_error="skip")
    trained = prepare(args).samples
    measured = as_measured(args, trained.hierarchy)
    tested = [[samples.keys[i] for i in samples.index("test")] for samples in (trained, measured)]
    assert tested[0] == tested[1]
    assert len(tested[0]) == 11
