"""Options: presets, what is left open, and the round trip through config.yaml."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from torchlht.cli import all_commands, find_command, parse, usage
from torchlht.data.options import DataArgs
from torchlht.data.preparing import Preprocess, paper_preprocess
from torchlht.errors import ConfigError, LHTError
from torchlht.heads.method import method_options, parse_options
from torchlht.learn.options import TrainArgs, preset, preset_options


def test_the_paper_preset_is_the_published_configuration() -> None:
    args = parse("train", ["birds.csv", "--preset", "paper", "--mask", "0.5"])
    assert preset_options("paper", 0.5) == {
        "features": "split",
        "gamma": 1.0,
        "confusion": "entropy",
        "confusion_weight": 0.1,
        "start": "random",
    }
    assert method_options("lht")["rank"] == 2
    assert (args.backbone, args.epochs, args.batch_size, args.lr, args.optimizer) == ("resnet50", 200, 8, 2e-3, "sgd")
    assert (args.weight_decay, args.drop_last, args.clip, args.image_size, args.augment) == (5e-4, True, 0.0, 448, "paper")
    assert args.data == "birds.csv"
    assert args == TrainArgs("birds.csv", mask=0.5, **preset("paper"))
    assert paper_preprocess(448) == Preprocess(448, 550, (0.5,) * 3, (0.5,) * 3, "bilinear", stretch=True, padding=8)


@pytest.mark.parametrize("command", [["train", "x"], ["compare", "x", "--out", "y"]])
def test_flags_override_the_paper_preset_even_with_a_default(command: list[str]) -> None:
    name, *words = command
    args = parse(name, [*words, "--preset=paper", "--epochs", "30", "--clip", "5.0", "--confusion-weight", "2", "--gamma", "6"])
    assert (args.epochs, args.clip, args.batch_size) == (30, 5.0, 8)
    assert args.option == ("confusion_weight=2", "gamma=6")
    assert preset_options("paper", 0.9)["confusion_weight"] == 0.01


def test_what_is_left_open_depends_on_what_is_trained() -> None:
    on_features, on_pictures = (TrainArgs("x").recipe(features=flag, samples=5994) for flag in (True, False))
    assert (on_features.optimizer, on_features.lr, on_features.batch_size, on_features.weight_decay) == ("sgd", 0.05, 128, 5e-4)
    assert (on_pictures.optimizer, on_pictures.lr, on_pictures.batch_size, on_pictures.weight_decay) == (
        "adamw",
        1e-3,
        64,
        0.05,
    )
    assert (on_features.epochs, on_pictures.epochs) == (11, 30)  # 47 steps an epoch
    epochs = [TrainArgs("x").recipe(features=True, samples=n).epochs for n in (20, 1000, 10**6)]
    assert epochs == [100, 64, 10]
    chosen = TrainArgs("x", lr=0.3, batch_size=7, weight_decay=0.0).recipe(features=True, samples=5994)
    assert (chosen.lr, chosen.batch_size, chosen.weight_decay) == (0.3, 7, 0.0)
    slow = [TrainArgs("x").recipe(features=False, samples=9, pretrained=flag).backbone_lr for flag in (True, False)]
    assert slow == [pytest.approx(1e-4), 1e-3]


def test_config_yaml_has_what_was_filled_in_and_a_resumed_run_does_the_same() -> None:
    args = TrainArgs("x", epochs=3)
    recipe = args.recipe(features=True, samples=100)
    kept = args.settled(recipe)
    assert (kept["lr"], kept["optimizer"], kept["backbone_lr"], kept["epochs"]) == (0.05, "sgd", None, 3)
    again = TrainArgs.from_dict(yaml.safe_load(yaml.safe_dump(kept)))
    assert again.recipe(features=False, samples=7) == recipe


def test_options_survive_config_yaml() -> None:
    words = ["x.csv", "--out", "runs/a", "--hierarchy", "t.csv", "--mask", "0.9", "--levels", "a,b", "--bias", "False"]
    words += ["--option", "rank=3", "bias=false", "--rules", "crm", "path", "--no-test"]
    args = parse("train", words)
    assert args.option == ("bias=False", "rank=3", "bias=false")
    assert args.rules == ("crm", "path")
    assert TrainArgs.from_dict(yaml.safe_load(yaml.safe_dump(args.to_dict()))) == args
    assert DataArgs.from_dict(args.to_dict()) == DataArgs("x.csv", mask=0.9, levels="a,b", hierarchy=Path("t.csv"))


def test_config_yaml_of_an_earlier_version_keeps_its_method_options() -> None:
    old = {"data": "x", "gamma": 3.0, "bias": False, "width": None, "tail": 1e-5, "option": ["rank=3"], "rules": []}
    found = TrainArgs.from_dict(old)
    assert found.option == ("gamma=3.0", "bias=False", "tail=1e-05", "rank=3")
    assert parse_options("lht", found.option) == {"gamma": 3.0, "bias": False, "tail": 1e-5, "rank": 3}
    paper = {"data": "x", "mask": 0.9, "preset": "paper", "gamma": 1.0, "features": "split", "confusion_weight": 0.01}
    assert TrainArgs.from_dict(paper).option == ()  # the preset says so anyway, to methods that have them
    assert TrainArgs.from_dict(paper | {"confusion_weight": 0.1}).option == ("confusion_weight=0.1",)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--bias", "False", "--gamma", "0"], ("bias=False", "gamma=0")),
        (["--no-bias", "--confusion-weight=0.01"], ("bias=false", "confusion_weight=0.01")),
        (["--cosine", "--input_dropout", "0.3"], ("cosine=true", "input_dropout=0.3")),
        (["--method", "hxe", "--alpha", "0.3"], ("alpha=0.3",)),
        (["--tail", "none", "--gamma", "-1"], ("tail=none", "gamma=-1")),
        ([], ()),
    ],
)
def test_every_option_of_a_method_has_a_flag(words: list[str], option: tuple[str, ...]) -> None:
    assert parse("train", ["x", *words]).option == option


def test_options_of_a_method_may_be_a_mapping() -> None:
    assert TrainArgs("x", option={"gamma": 1.0, "tail": None}).option == ("gamma=1.0", "tail=None")


def test_a_flag_without_its_value_is_told() -> None:
    with pytest.raises(ConfigError, match="--gamma needs a value: NUMBER"):
        parse("train", ["x", "--gamma"])


def test_help_shows_the_options_of_the_method_that_is_asked_for(capsys) -> None:
    with pytest.raises(SystemExit):
        parse("train", ["--method", "hmcn", "--help"])
    said = capsys.readouterr().out
    assert "options of hmcn:\n  --violation-weight NUMBER\n      λ of the penalty. (default: 0.1)" in said
    assert "--activation sigmoid|softmax" in said
    assert "--cosine, --no-cosine" in said


def test_compare_takes_the_options_of_a_run() -> None:
    words = ["--augment", "none", "--precision", "bf16-mixed", "--optimizer", "sgd", "--workers", "2", "--weight-decay", "1e-4"]
    args = parse("compare", ["x", "--out", "y", *words, "--input-dropout", "0.3"])
    run = args.training(mask=0.5, seed=3)
    assert (run.augment, run.precision, run.optimizer, run.workers, run.weight_decay) == ("none", "bf16-mixed", "sgd", 2, 1e-4)
    assert (run.data, run.mask, run.seed, run.option) == ("x", 0.5, 3, ("input_dropout=0.3",))


def explained(group: type) -> set[str]:
    """The fields of a class that have a text under them."""
    (body,) = [node.body for node in ast.parse(inspect.getsource(group)).body if isinstance(node, ast.ClassDef)]
    fields = [a for a, b in pairwise(body) if isinstance(a, ast.AnnAssign) and isinstance(b, ast.Expr)]
    return {field.target.id for field in fields if isinstance(field.target, ast.Name)}


@pytest.mark.parametrize("name", all_commands())
def test_an_option_is_declared_and_explained_once(name: str) -> None:
    options = all_commands()[name].options
    for field in dataclasses.fields(options):
        owners = [group for group in options.__mro__ if field.name in vars(group).get("__annotations__", {})]
        assert len(owners) == 1 or (name, field.name) in {("lowshot", "backbone"), ("lowshot", "freeze")}
        assert field.name in explained(owners[0]), field.name


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
def test_options_that_make_no_sense_are_named_in_python_and_as_flags(options: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        TrainArgs("x", **options)
    assert told in error.value.in_flags
    field = next(iter(options))
    assert str(error.value).startswith((f"{field} is ", f"{field}={options[field]} "))


def test_presets_are_known_by_name_and_default_is_plain() -> None:
    assert preset("default") == preset_options("default", 0.9) == {}


def test_commands_are_found_by_one_word_or_two() -> None:
    assert find_command(["hierarchy", "check", "a.csv"]) == ("hierarchy check", ["a.csv"])
    assert find_command(["train", "demo"]) == ("train", ["demo"])
    assert "lht data preview" in usage()
    with pytest.raises(LHTError, match="lht data preview"):
        find_command(["data"])


@pytest.mark.parametrize("fold", ["0/5", "6/5", "2", "a/b", "1/1", "-1/5"])
def test_folds_that_are_none_are_refused(fold: str) -> None:
    with pytest.raises(ConfigError, match="such as 2/5"):
        TrainArgs("x", fold=fold)
    assert TrainArgs("x", fold="2/5").fold_numbers() == (1, 5)
    with pytest.raises(ConfigError, match="pass one of them"):
        TrainArgs("x", fold="2/5", val=0.1)
