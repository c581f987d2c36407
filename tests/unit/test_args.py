"""Options: presets, what is left open, and the round trip through config.yaml."""

from __future__ import annotations

import pytest
import yaml

from torchlht.cli import find_command, parse, usage
from torchlht.data.batches import Preprocess, paper_preprocess
from torchlht.errors import ConfigError, LHTError
from torchlht.learn.options import TrainArgs, preset


def test_the_paper_preset_is_the_published_configuration() -> None:
    args = parse("train", ["birds.csv", "--preset", "paper", "--mask", "0.5"])
    assert (args.features, args.gamma, args.rank or 2, args.confusion, args.confusion_weight) == (
        "split",
        1.0,
        2,
        "entropy",
        0.1,
    )
    assert (args.backbone, args.epochs, args.batch_size, args.lr, args.optimizer) == ("resnet50", 200, 8, 2e-3, "sgd")
    assert (args.weight_decay, args.drop_last, args.clip, args.image_size, args.augment) == (5e-4, True, 0.0, 448, "paper")
    assert args.data == "birds.csv"
    assert paper_preprocess(448) == Preprocess(448, 550, (0.5,) * 3, (0.5,) * 3, "bilinear", stretch=True, padding=8)


def test_the_paper_preset_lowers_lambda_where_ninety_percent_are_masked_and_flags_override_it() -> None:
    assert parse("train", ["x", "--preset=paper", "--mask", "0.9"]).confusion_weight == 0.01
    args = parse(
        "train", ["x", "--preset", "paper", "--mask", "0.9", "--epochs", "30", "--confusion-weight", "2", "--gamma", "6"]
    )
    assert (args.epochs, args.confusion_weight, args.gamma, args.features) == (30, 2.0, 6.0, "split")


def test_what_is_left_open_depends_on_what_is_trained() -> None:
    on_features, on_pictures = (TrainArgs("x").with_recipe(features=flag, samples=5994) for flag in (True, False))
    assert (on_features.optimizer, on_features.lr, on_features.batch_size, on_features.weight_decay) == ("sgd", 0.05, 128, 5e-4)
    assert (on_pictures.optimizer, on_pictures.lr, on_pictures.batch_size, on_pictures.weight_decay) == (
        "adamw",
        1e-3,
        64,
        0.05,
    )
    assert (on_features.epochs, on_pictures.epochs) == (11, 30)  # 47 steps an epoch
    epochs = [TrainArgs("x").with_recipe(features=True, samples=n).epochs for n in (20, 1000, 10**6)]
    assert epochs == [100, 64, 10]
    chosen = TrainArgs("x", lr=0.3, batch_size=7, weight_decay=0.0).with_recipe(features=True, samples=5994)
    assert (chosen.lr, chosen.batch_size, chosen.weight_decay) == (0.3, 7, 0.0)


def test_options_survive_config_yaml() -> None:
    words = ["x.csv", "--out", "runs/a", "--hierarchy", "t.csv", "--mask", "0.9", "--levels", "a,b", "--bias", "False"]
    words += ["--option", "rank=3", "bias=false", "--rules", "crm", "path", "--no-test"]
    args = parse("train", words)
    assert args.option == ("rank=3", "bias=false")
    assert args.rules == ("crm", "path")
    assert TrainArgs.from_dict(yaml.safe_load(yaml.safe_dump(args.to_dict()))) == args


def test_only_the_methods_options_that_were_given_reach_the_method() -> None:
    assert TrainArgs("x").method_options() == {}
    assert parse("train", ["x", "--bias", "False", "--gamma", "0"]).method_options() == {"bias": False, "gamma": 0.0}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"epochs": 0}, "--epochs is 0"),
        ({"batch_size": 0}, "--batch-size is 0"),
        ({"lr": 0.0}, "--lr is 0.0"),
        ({"test_share": 1.0}, "--test-share is 1.0"),
        ({"val": 1.2}, "--val is 1.2"),
        ({"select": "best", "val": 0.0}, "--select best needs validation samples"),
        ({"devices": 0}, "--devices is 0"),
        ({"accumulate": 0}, "--accumulate is 0"),
        ({"checkpoint_every": 0}, "--checkpoint-every is 0"),
        ({"mask": -1.0}, "--mask is -1.0"),
        ({"mask_levels": 0}, "--mask-levels is 0"),
    ],
)
def test_options_that_make_no_sense_name_their_flag(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TrainArgs("x", **options)


def test_presets_are_known_by_name_and_default_is_plain() -> None:
    assert preset("default") == TrainArgs()


def test_commands_are_found_by_one_word_or_two() -> None:
    assert find_command(["hierarchy", "check", "a.csv"]) == ("hierarchy check", ["a.csv"])
    assert find_command(["train", "demo"]) == ("train", ["demo"])
    assert "lht data preview" in usage()
    with pytest.raises(LHTError, match="lht data preview"):
        find_command(["data"])


@pytest.mark.parametrize("fold", ["0/5", "6/5", "2", "a/b", "1/1", "-1/5"])
def test_folds_that_are_none_are_refused(fold: str) -> None:
    with pytest.raises(ConfigError, match="as in 2/5"):
        TrainArgs("x", fold=fold)
    assert TrainArgs("x", fold="2/5").fold_numbers() == (1, 5)
    with pytest.raises(ConfigError, match="pass one of them"):
        TrainArgs("x", fold="2/5", val=0.1)
