"""What a run is about to do, in a few lines, before it starts."""

from __future__ import annotations

from pathlib import Path

import torch

from torchlht import console
from torchlht.answer.model import Model
from torchlht.data.samples import SPLITS, Samples
from torchlht.heads.method import Estimator
from torchlht.learn.options import Recipe


def header(
    samples: Samples,
    left_out: int,
    model: Model,
    recipe: Recipe,
    device: torch.device,
    out: Path,
    *,
    frozen: str = "",
) -> str:
    """Data, levels, labels, model and device: a line each.

    Args:
        samples: split and masked.
        left_out: how many pictures cannot be read.
        model: the model that is trained.
        recipe: how.
        device: where.
        out: the run directory.
        frozen: what `frozen_text` says about the backbone.
    """
    tree, train = samples.hierarchy, samples.labels[samples.index("train")]
    noun = "sample" if samples.images is None else "picture"
    parts = [f"{name} {n:,}" for name in SPLITS if (n := len(samples.index(name)))]
    unreadable = [f"{left_out:,} unreadable left out"] if left_out else []
    known = (train >= 0).sum(axis=0)
    labelled = " · ".join(f"{tree.levels[k]} {known[k]:,}" for k in tree.top_down)
    lines = {
        "data": " · ".join([f"{samples.name}: {console.plural(len(samples), noun)}", *parts, *unreadable]),
        "levels": tree.describe(),
        "labels": f"of {len(train):,} training samples: {labelled}",
        "model": f"{model.method.name} on {_backbone(model, frozen, recipe.views)} · {_length(model, recipe, len(train))}",
        "device": f"{device} · writes {out}",
    }
    return "\n".join(f"{name:<7} {text}" for name, text in lines.items())


def frozen_text(freeze: bool, stages: int) -> str:
    """Which part of a backbone is frozen; empty if none is."""
    return "frozen" if freeze else f"first {console.plural(stages, 'stage')} frozen" if stages else ""


def _backbone(model: Model, frozen: str, views: int) -> str:
    if model.preprocess is None:
        return f"features of width {model.in_features}" + (
            ", through a linear layer" if model.backbone.name == "linear" else ""
        )
    start = "pretrained" if model.backbone.pretrained else "from scratch"
    seen = f"{model.preprocess.size} px" + (f", {views} views" if views > 1 else "")
    return ", ".join(part for part in (model.backbone.name, start, frozen, seen) if part)


def _length(model: Model, recipe: Recipe, samples: int) -> str:
    if isinstance(model.method, Estimator):
        return "fitted at once"
    steps = samples // recipe.batch_size if recipe.drop_last else -(-samples // recipe.batch_size)
    return f"{console.plural(recipe.epochs, 'epoch')} of {console.plural(steps, 'step')}"
