"""From options and samples to what trains: the model, the samples it learns from, and targets for unknown labels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchlht.answer.backbones import Backbone, create_backbone
from torchlht.answer.model import Model
from torchlht.data.preparing import Preprocess, paper_preprocess
from torchlht.data.samples import Ints, Samples
from torchlht.data.several import Several
from torchlht.errors import ConfigError, DataError
from torchlht.heads.method import COMMON_OPTIONS, Estimator, create_method, options_of, parse_options, regularise
from torchlht.learn.options import Recipe, TrainArgs, preset_options

if TYPE_CHECKING:
    from torchlht.learn.semi.schedule import Semi

DRAWN = {"demo": None, "demo-pairs": 112}  # datasets for the small backbone, and the size of pictures if not its own
SEMI_DROPOUT = 0.5  # for fixed features under --semi: better on every dataset tried; worse for a backbone that trains


def build(args: TrainArgs, samples: Samples) -> Model:
    """The model that the options and the data describe: backbone and method."""
    backbone, spec = make_backbone(args, samples)
    width = samples.features.shape[1] if samples.features is not None else backbone.num_features
    options = {name: value for name, value in preset_options(args.preset, args.mask).items() if name in options_of(args.method)}
    options |= parse_options(args.method, args.option)
    trains = samples.features is None and not args.freeze
    if "maps" in options_of(args.method) and "maps" not in options:
        options["maps"] = trains and backbone.has_map()
    method = create_method(args.method, width, samples.hierarchy, **options)
    if method.on_maps and args.looks > 1:
        raise ConfigError(
            f"`looks` is for the mean of features; `method={args.method}` reads maps: pass `looks=1`, or `mirror`"
        )
    if args.pooling == "both" and not method.on_maps:  # convolutions of a method read the map itself
        backbone.add_peaks()
        method = create_method(args.method, backbone.num_features, samples.hierarchy, **options)
    if method.on_maps and not trains:
        raise ConfigError(f"`method={args.method}` with these options reads maps: train it on pictures, without `freeze`")
    options |= {name: getattr(method, name) for name in method.before}
    fixed, unknown = backbone.name == "none" or args.freeze, (samples.labels[samples.index("train"), 0] < 0).any()
    if args.semi != "none" and fixed and unknown and "input_dropout" not in options and method.can_drop:
        options["input_dropout"] = SEMI_DROPOUT
        regularise(method, **{name: options[name] for name in options if name in COMMON_OPTIONS})
    if isinstance(method, Estimator) and samples.features is None and not args.freeze:
        raise ConfigError(f"`method={args.method}` trains on features only: add `freeze`, or pass an .npz of features")
    if isinstance(method, Estimator) and (args.views or 1) > 1:
        raise ConfigError(f"`method={args.method}` is fitted at once and sees one view of each picture: pass `views=1`")
    if args.shortcut and not method.can_shorten:
        raise ConfigError(f"`shortcut` is for lht and its variants, marginal included; leave it at 0 for {args.method}")
    if args.guess and not method.can_shorten:
        raise ConfigError(f"`guess` is for lht and its variants, marginal included; leave it out for {args.method}")
    return Model(backbone, method, options=options, preprocess=spec)


def make_backbone(args: TrainArgs, samples: Samples | Several) -> tuple[Backbone, Preprocess | None]:
    """The backbone that the options and the data describe, and how pictures are prepared for it; None for features."""
    in_features = 0 if samples.features is None else samples.features.shape[1]
    backbone = create_backbone(backbone_name(args, samples), pretrained=args.pretrained, in_features=in_features)
    if samples.features is not None:
        return backbone, None
    spec = backbone.preprocess
    assert spec is not None
    size = args.image_size or (DRAWN.get(args.data) if args.backbone == "auto" else None)
    if args.augment == "paper":
        spec = paper_preprocess(args.image_size or spec.size)
    elif size:
        spec = spec.resized(size)
    spec = dataclasses.replace(spec, looks=args.looks)
    if args.freeze_stages:
        backbone.freeze(args.freeze_stages, spec.size)
    backbone.mirrored = args.mirror
    backbone.norm_frozen = bool(args.freeze_stages) if args.freeze_norm is None else args.freeze_norm
    return backbone, spec


def backbone_name(args: TrainArgs, samples: Samples | Several) -> str:
    """The name of the backbone, with `auto` resolved. Raises ConfigError if it does not fit the data."""
    if samples.features is not None:
        if args.backbone not in ("auto", "none", "linear") and args.preset == "default":
            raise ConfigError(f"`backbone={args.backbone}` needs pictures; {args.data} holds features already")
        usual = {"freeze": False, "freeze_stages": 0, "mirror": False, "pooling": "mean", "looks": 1}
        if given := [name for name, value in usual.items() if getattr(args, name) != value]:
            raise ConfigError(f"`{given[0]}` is for pictures; {args.data} holds features already")
        if args.compile:
            raise ConfigError(f"`compile` is for the backbone of pictures; {args.data} holds features already")
        return "linear" if args.backbone == "linear" else "none"
    if args.backbone in ("none", "linear"):
        raise ConfigError(f"`backbone={args.backbone}` is for features; {args.data} holds pictures")
    if args.backbone == "auto":
        return "small" if args.data in DRAWN else "resnet18"
    return args.backbone


def taught_samples(args: TrainArgs, samples: Samples, model: Model) -> Ints:
    """Positions of the samples the method learns from, as many as there are training samples.

    A method that learns from some of them only sees these more often, so that every method gets the same number of steps. One
    that is fitted at once sees each of them once.
    """
    index = samples.index("train")
    if args.semi != "none":
        return index  # samples without a useful label have a target
    learns = model.method.learns_from(torch.from_numpy(samples.labels[index])).numpy()
    if not learns.any():
        raise DataError(f"{args.data}: no training sample has a label that {args.method} can learn from")
    return index[learns] if isinstance(model.method, Estimator) else np.resize(index[learns], len(index))


def make_semi(args: TrainArgs, recipe: Recipe, samples: Samples, model: Model, taught: Ints) -> Semi | None:
    """Targets for unknown labels, or None without `semi`."""
    if args.semi == "none":
        return None
    from torchlht.learn.semi.schedule import Semi  # it needs scipy

    labels = samples.labels[taught]
    if not (labels[:, 0] >= 0).any():
        raise DataError(f"{args.data}: `semi={args.semi}` needs samples with a label at the finest level; there are none")
    ready = model.preprocess is None or args.freeze or model.backbone.pretrained
    return Semi(args.semi, labels, samples.hierarchy, epochs=recipe.epochs, ready=ready)
