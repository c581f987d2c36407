"""The words that options accept, in one file that is fast to import: `lht --help` should not wait for torch."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from torchlht.doors import fitting
from torchlht.errors import ConfigError

Features = Literal["shared", "split"]
Reduction = Literal["per_level_mean", "per_sample"]
Confusion = Literal["entropy", "kl"]
Form = Literal["auto", "plain", "tiled", "truncated"]
Start = Literal["auto", "random", "means"]
TransitionName = Literal["low_rank", "full", "static", "fixed"]
Rounding = Literal["nominal", "lht", "hrn"]
Augment = Literal["standard", "strong", "paper", "none"]
OnError = Literal["refuse", "skip"]
Select = Literal["last", "best"]
Schedule = Literal["epoch", "step"]
Split = Literal["test", "val", "train", "all"]
SoftCoarse = Literal["off", "mean", "marginal"]
SemiName = Literal["none", "propagate", "posterior", "both", "deep", "fixmatch", "taxon"]
Perturb = Literal["none", "rewired", "stale", "renamed", "stale_prior"]
Pool = Literal["mean", "max"]
Pooling = Literal["mean", "both"]
Activation = Literal["sigmoid", "softmax"]
Stream = Literal["auto", "always", "never"]
OptimizerName = Literal["sgd", "adamw"]
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
PresetName = Literal["default", "paper"]


def kind_of(hint: Any) -> tuple[Any, bool]:
    """The type of a hint, bool, int, float, str or a Literal, and whether it allows None."""
    if get_origin(hint) is Literal or type(None) not in get_args(hint):
        return hint, False
    return next(kind for kind in get_args(hint) if kind is not type(None)), True


def parse_value(name: str, of: str, text: str, hint: Any) -> Any:
    """Parse the value of option `name` of `of` by its type hint; `none` if the hint allows it. Raises ConfigError."""
    kind, optional = kind_of(hint)
    if optional and text.lower() == "none":
        return None
    if get_origin(kind) is Literal:
        return fitting(name, text, kind)
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise ConfigError(f"option {name} of {of} is {text!r}: it takes {wanted}{' or none' * optional}") from None
