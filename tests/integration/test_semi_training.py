"""Training where samples without a finest label take part: what is written, repeatable, refused; and faults made on purpose."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import torchlht
from torchlht import TrainArgs, train
from torchlht.answer.model import Run
from torchlht.cli import main
from torchlht.errors import DataError
from torchlht.heads.method import method_options
from torchlht.lab.comparison.grid import compare
from torchlht.lab.options import CompareArgs
from torchlht.learn import building, fitting

KINDS = ["propagate", "posterior", "both"]
SPECIES, TRAIN, TEST = 8, 20, 8


def write(folder: Path, *, width: int = 8, noise: float = 0.5, seed: int = 0) -> Path:
    """Features of 8 species in 4 families in 2 orders, 20 training and 8 test samples each."""
    rng = np.random.default_rng(seed)
    species = np.repeat(np.arange(SPECIES), TRAIN + TEST)
    x = rng.normal(size=(SPECIES, width))[species] + noise * rng.normal(size=(len(species), width))
    is_train = np.tile(np.arange(TRAIN + TEST) < TRAIN, SPECIES)
    labels = np.stack([species, species // 2, species // 4], axis=1)
    return save(folder / "birds.npz", x=x.astype(np.float32), y=labels, train=is_train)


def save(file: Path, **arrays: np.ndarray) -> Path:
    np.savez(file, levels=np.array(["species", "family", "order"]), **arrays)
    return file


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    return write(tmp_path)


def quick(data: Path, out: Path, **options: Any) -> TrainArgs:
    settings = {"epochs": 3, "batch_size": 32, "mask": 0.8, "quiet": True, "track": False, "accelerator": "cpu", **options}
    names = {"width": 24, **settings}.keys() & method_options(options.get("method", "lht"), common=True)
    option = {name: {"width": 24, **settings}[name] for name in sorted(names)}
    return TrainArgs(str(data), out, option=option, **{name: settings[name] for name in settings if name not in option})


def read(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return found


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


class KilledError(BaseException):
    """Stands for kill -9: nobody catches it."""


def train_until_killed(args: TrainArgs, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, and stop dead as soon as so many epochs are kept."""
    keep = fitting.keep_epoch

    def keep_and_die(now: fitting.Fitting, run: Run) -> None:
        keep(now, run)
        if len(now.history) == after:
            raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(fitting, "keep_epoch", keep_and_die)
        with pytest.raises(KilledError):
            train(args)


# ---- what is written -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("semi", "levels"), [("propagate", 1), ("posterior", 1), ("both", 1), ("both", 2)])
def test_a_run_says_how_good_propagated_labels_were_and_evaluates_to_its_own_metrics(
    birds: Path, tmp_path: Path, semi: str, levels: int
) -> None:
    run = train(quick(birds, tmp_path / "run", semi=semi, mask_levels=levels))
    metrics = read(run)
    assert metrics["levels"][-1]["samples"] == SPECIES * TEST
    assert metrics["levels"][-1]["accuracy"] > 0.25, "twice what guessing gives"
    assert torchlht.evaluate(run)["levels"] == metrics["levels"]
    assert ("propagated" in metrics) == (semi != "posterior")
    if semi != "posterior":
        assert metrics["propagated"]["checked"] == SPECIES, "one of the four labels that each class has left"
        assert 0.5 < metrics["propagated"]["right"] <= 1


@pytest.mark.parametrize("method", torchlht.list_methods())
def test_every_method_learns_with_targets(birds: Path, tmp_path: Path, method: str) -> None:
    for package in ("sklearn", "hiclass") if method in ("logistic", "hiclass") else ():
        pytest.importorskip(package)
    run = train(quick(birds, tmp_path / "run", method=method, semi="both", epochs=2))
    metrics = read(run)
    assert metrics["levels"][-1]["accuracy"] > 0.25, "twice what guessing gives"
    assert metrics["propagated"]["checked"] > 0
    assert torchlht.evaluate(run)["levels"] == metrics["levels"]


def test_targets_and_an_epoch_chosen_on_validation_samples_go_together(birds: Path, tmp_path: Path) -> None:
    run = train(quick(birds, tmp_path / "run", semi="both", select="best", val=0.2, epochs=4, ema=0.9))
    rows = list(csv.DictReader((run / "history.csv").read_text().splitlines()))
    scores = [float(row["val_mean"]) for row in rows]
    metrics = read(run)
    assert metrics["selection"]["rule"] == "best"
    assert metrics["selection"]["epoch"] == scores.index(max(scores)) + 1
    assert metrics["validation"]["val_mean"] == max(scores)
    split = json.loads((run / "split.json").read_text())
    assert split["val"]
    assert not set(split["val"]) & set(split["train"])


# ---- who takes part ------------------------------------------------------------------------------------------------


def test_no_test_sample_takes_part(birds: Path, tmp_path: Path) -> None:
    """Other features and labels in the test rows, and the model is the same to the bit."""
    arrays = dict(np.load(birds))
    del arrays["levels"]
    rng, test = np.random.default_rng(1), ~arrays["train"]
    arrays["x"][test] = 5 * rng.normal(size=arrays["x"][test].shape)
    arrays["y"][test] = rng.permutation(arrays["y"][test])
    other = save(tmp_path / "other.npz", **arrays)
    a, b = (train(quick(data, tmp_path / f"run-{data.stem}", semi="both", ema=0.9)) for data in (birds, other))
    assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
    assert read(a)["levels"] != read(b)["levels"]


def test_where_nothing_is_unknown_targets_change_nothing(birds: Path, tmp_path: Path) -> None:
    a, b = (train(quick(birds, tmp_path / semi, semi=semi, mask=0.0)) for semi in ("none", "both"))
    assert same(weights(a), weights(b))


def test_with_targets_features_are_dropped_unless_something_else_is_said(birds: Path, tmp_path: Path) -> None:
    cases = [({"semi": "both"}, building.SEMI_DROPOUT), ({"semi": "both", "input_dropout": 0.1}, 0.1), ({}, None)]
    for i, (options, dropped) in enumerate(cases):
        run = train(quick(birds, tmp_path / f"run{i}", epochs=1, **options))
        config = yaml.safe_load((run / "config.yaml").read_text())
        assert config["model"]["options"].get("input_dropout") == dropped


def test_targets_change_what_is_learned_and_each_kind_in_its_own_way(birds: Path, tmp_path: Path) -> None:
    found = [weights(train(quick(birds, tmp_path / semi, semi=semi, input_dropout=0.0))) for semi in ("none", *KINDS)]
    heads = {tuple(state["method.classifier.weight"].flatten().tolist()) for state in found}
    assert len(heads) == 4


@pytest.mark.parametrize("method", ["lht", "flat", "logistic"])
def test_samples_without_any_label_take_part_too(birds: Path, tmp_path: Path, method: str) -> None:
    arrays = dict(np.load(birds))
    del arrays["levels"]
    arrays["y"][np.flatnonzero(arrays["train"])[::4]] = -1
    data = save(tmp_path / "fewer.npz", **arrays)
    run = train(quick(data, tmp_path / "run", method=method, semi="both", epochs=6))
    assert read(run)["levels"][-1]["accuracy"] > 0.5


def test_flat_learns_from_samples_without_a_fine_label(tmp_path: Path) -> None:
    """Two labels a class among 64 features are not enough; with the neighbours' they are."""
    data = write(tmp_path, width=64, noise=2.0)
    options = {"method": "flat", "mask": 0.9, "epochs": 8, "input_dropout": 0.0}
    scores: dict[str, list[float]] = {"none": [], "both": []}
    for semi, found in scores.items():
        for seed in (0, 1):
            run = train(quick(data, tmp_path / f"{semi}{seed}", semi=semi, seed=seed, **options))
            found.append(read(run)["levels"][-1]["accuracy"])
    assert np.mean(scores["both"]) > np.mean(scores["none"]) + 0.15


def test_targets_without_a_single_finest_label_are_refused_before_anything_is_written(birds: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="semi=both needs samples with a label at the finest level; there are none"):
        train(quick(birds, tmp_path / "run", semi="both", mask=1.0, mask_minimum=0))
    assert not (tmp_path / "run").exists()


# ---- repeatable ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 3])
def test_a_run_killed_after_an_epoch_resumes_to_the_same_weights_to_the_bit(
    birds: Path, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything that has a state of its own: targets, averaged weights, random draws."""
    options = {"semi": "both", "ema": 0.9, "input_dropout": 0.3, "mixup": 0.4, "label_smoothing": 0.1, "epochs": 4}
    whole = train(quick(birds, tmp_path / "whole", **options))
    train_until_killed(quick(birds, tmp_path / "cut", **options), after, monkeypatch)
    assert not (tmp_path / "cut" / "metrics.json").exists()
    cut = train(TrainArgs(resume=tmp_path / "cut", quiet=True, accelerator="cpu"))
    assert same(weights(whole), weights(cut))
    assert read(whole)["levels"] == read(cut)["levels"]
    assert read(whole)["propagated"] == read(cut)["propagated"]
    assert len((cut / "history.csv").read_text().splitlines()) == 5


def test_pictures_take_part_too_and_a_killed_run_looks_at_them_as_it_would_have(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"mask": 0.5, "backbone": "small", "workers": 0, "batch_size": 16}
    whole, without = (train(quick(pictures, tmp_path / semi, semi=semi, **options)) for semi in ("both", "none"))
    train_until_killed(quick(pictures, tmp_path / "cut", semi="both", **options), 2, monkeypatch)
    cut = train(TrainArgs(resume=tmp_path / "cut", quiet=True, accelerator="cpu", workers=0))
    assert same(weights(whole), weights(cut))
    assert not same(weights(whole), weights(without))
    assert torchlht.evaluate(whole)["levels"] == read(whole)["levels"]


def test_with_ema_the_average_is_kept_of_weights_that_are_trained_as_without(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, averaged = (train(quick(birds, tmp_path / f"ema{ema}", ema=ema)) for ema in (0.0, 0.9))
    train_until_killed(quick(birds, tmp_path / "cut", ema=0.9), 3, monkeypatch)
    state = load_file(tmp_path / "cut" / "checkpoint" / "last.safetensors")
    for name, value in weights(averaged).items():
        assert torch.equal(state[f"more.averaged.{name}"], value)
        assert torch.equal(state[f"network.{name}"], weights(plain)[name])
    assert not same(weights(plain), weights(averaged))
    assert torchlht.evaluate(averaged)["levels"] == read(averaged)["levels"]


def test_every_kind_of_regularisation_changes_what_is_learned(birds: Path, tmp_path: Path) -> None:
    kinds = [{}, {"input_dropout": 0.3}, {"mixup": 0.4}, {"label_smoothing": 0.2}]
    runs = [train(quick(birds, tmp_path / f"run{i}", epochs=1, **options)) for i, options in enumerate(kinds)]
    assert len({tuple(weights(run)["method.classifier.weight"].flatten().tolist()) for run in runs}) == 4
    assert all(torchlht.evaluate(run)["levels"] == read(run)["levels"] for run in runs)


# ---- faults made on purpose ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["lht", "marginal"])
@pytest.mark.parametrize(
    "fault", [{"perturb": "stale", "perturb_share": 0.4}, {"perturb": "rewired", "perturb_share": 0.4}, {"label_noise": 0.3}]
)
def test_runs_on_faulty_trees_and_labels_evaluate_to_their_own_metrics(
    birds: Path, tmp_path: Path, method: str, fault: dict[str, Any]
) -> None:
    run = train(quick(birds, tmp_path / "run", method=method, semi="both", epochs=2, **fault))
    assert torchlht.evaluate(run)["levels"] == read(run)["levels"]
    tree, right = torchlht.load(run).hierarchy, torchlht.read_data(birds).hierarchy
    assert (tree == right) == ("label_noise" in fault)
    assert read(run)["levels"][-1]["accuracy"] > 0.25, "twice what guessing gives"


@pytest.mark.parametrize("kind", ["renamed", "stale_prior"])
def test_runs_with_exchanged_names_evaluate_to_their_own_metrics(birds: Path, tmp_path: Path, kind: str) -> None:
    run = train(quick(birds, tmp_path / "run", perturb=kind, perturb_share=1.0, epochs=2))
    assert torchlht.evaluate(run)["levels"] == read(run)["levels"]


def test_a_renamed_tree_changes_nothing_but_names(birds: Path, tmp_path: Path) -> None:
    """T = S has nothing that depends on a family's number, so all is the same; with learned transitions, up to seed noise."""
    for method, tolerance in (("marginal", 1e-6), ("lht", 0.1)):
        options = {"method": method, "epochs": 8}
        plain = read(train(quick(birds, tmp_path / f"{method}-plain", **options)))
        renamed = read(train(quick(birds, tmp_path / f"{method}-renamed", perturb="renamed", perturb_share=1.0, **options)))
        for a, b in zip(plain["levels"], renamed["levels"], strict=True):
            assert a["accuracy"] == pytest.approx(b["accuracy"], abs=tolerance)


def test_names_that_a_stale_prior_gets_wrong_cost_a_fixed_transition_its_families(birds: Path, tmp_path: Path) -> None:
    options = {"method": "marginal", "epochs": 8, "mask": 0.0}
    right = read(train(quick(birds, tmp_path / "right", **options)))["levels"][1]["accuracy"]
    wrong = read(train(quick(birds, tmp_path / "wrong", perturb="stale_prior", perturb_share=1.0, **options)))["levels"][1]
    assert wrong["accuracy"] < right - 0.3


def test_a_prior_from_a_file_is_what_methods_are_given_and_labels_stay(birds: Path, tmp_path: Path) -> None:
    tree = torchlht.read_data(birds).hierarchy
    other = torchlht.Hierarchy(levels=tree.levels, classes=tree.classes, parents=[np.roll(tree.parents[0], 2), tree.parents[1]])
    other.write(tmp_path / "prior.json")
    run = train(quick(birds, tmp_path / "run", prior=tmp_path / "prior.json", mask=0.0, epochs=8))
    assert torchlht.load(run).hierarchy == other
    assert torchlht.evaluate(run)["levels"] == read(run)["levels"]
    assert read(run)["levels"][-1]["accuracy"] > 0.5, "the finest level does not need the tree"


# ---- comparisons and the command line ------------------------------------------------------------------------------


def test_contenders_may_differ_in_how_they_are_trained(birds: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    labels = ["multihead", "lht:semi=both:epochs=3"]
    compare(CompareArgs(str(birds), out, methods=",".join(labels), mask="0.8", seeds=1, jobs=1, epochs=2))
    table = (out / "table.md").read_text()
    assert all(f"| {label} |" in table for label in labels)
    assert {row["method"] for row in csv.DictReader((out / "results.csv").read_text().splitlines())} == set(labels)
    configs = [yaml.safe_load(path.read_text())["train"] for path in sorted(out.glob("runs/*/config.yaml"))]
    assert [(c["method"], c["semi"], c["epochs"]) for c in configs] == [("lht", "both", 3), ("multihead", "none", 2)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--ema", "1.5"], "--ema is 1.5: it must be a decay from 0 to below 1"),
        (["--input-dropout", "1.0"], "--input-dropout is 1.0: it must be a share from 0 to below 1"),
        (["--label-noise", "2"], "--label-noise is 2.0: it must be a share from 0 to 1"),
        (["--perturb-share", "-1"], "--perturb-share is -1.0: it must be a share"),
        (["--semi", "both", "--mask", "1", "--mask-minimum", "0"], "--semi both needs samples with a label"),
        (["--input-dropout", "0.5", "--method", "logistic"], "method logistic has no option 'input_dropout'"),
    ],
)
def test_a_mistake_gets_one_sentence_and_leaves_nothing(
    birds: Path, tmp_path: Path, capsys, monkeypatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["train", str(birds), *arguments])
    said = capsys.readouterr()
    assert stop.value.code == 2
    assert told in said.err
    assert said.err.startswith("lht: ")
    assert said.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [birds]


def test_a_kind_of_targets_that_does_not_exist_exits_with_2(birds: Path, capsys) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", str(birds), "--semi", "sideways"])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert "--semi" in said
    assert "sideways" in said
