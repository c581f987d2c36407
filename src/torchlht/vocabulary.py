"""The words that options are given in, in one place that is quick to import: `lht --help` should not wait for torch."""

from __future__ import annotations

from typing import Literal

Features = Literal["shared", "split"]
Reduction = Literal["per_level_mean", "per_sample"]
Confusion = Literal["entropy", "kl"]
Form = Literal["auto", "plain", "tiled", "truncated"]
TransitionName = Literal["low_rank", "full", "static", "fixed"]
Rounding = Literal["nominal", "lht", "hrn"]
Augment = Literal["standard", "paper", "none"]
OnError = Literal["refuse", "skip"]
Select = Literal["last", "best"]
Split = Literal["test", "val", "train", "all"]
Rule = Literal["own", "argmax", "backtrack", "top_down", "path", "crm"]
SoftCoarse = Literal["off", "mean", "marginal"]
SemiName = Literal["none", "propagate", "posterior", "both"]
Perturb = Literal["none", "rewired", "stale", "renamed", "stale_prior"]
Activation = Literal["sigmoid", "softmax"]
Stream = Literal["auto", "always", "never"]
