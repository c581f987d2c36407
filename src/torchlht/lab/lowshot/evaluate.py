"""Features of the new classes' samples under each method, and how well they tell these apart.

| method | features | rule |
|---|---|---|
| `nn` | the pretrained backbone's, or those the data holds | cosine with the mean of the examples |
| `ppa`, `lsd` | the same | their own, see `ppa` and `lsd` |
| any other | the backbone's after training with that method on the source classes, pooled, before any neck | as `nn` |
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from torchlht.answer.model import CONFIG, Model, Run
from torchlht.data.samples import Samples
from torchlht.errors import ConfigError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.comparison.contenders import Contender, check, check_everyones
from torchlht.lab.lowshot import ppa
from torchlht.lab.lowshot.lsd import Diffusion, by_diffusion, choose_steps
from torchlht.lab.lowshot.protocol import Protocol, ranks
from torchlht.lab.lowshot.prototypes import Floats, Scorer, by_cosine, hit_rate
from torchlht.lab.lowshot.results import Row
from torchlht.lab.options import LowshotArgs
from torchlht.learn.launching import make_fabric
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import build, compute_features, train

UNTRAINED = ("nn", "ppa", "lsd")
FIXED = ("nn", "lsd")  # nothing random in them but the draws


def check_methods(args: LowshotArgs, tree: Hierarchy) -> None:
    """Raise ConfigError for a method that is unknown, or that trains no backbone."""
    contenders = [Contender.parse(word, args.option) for word in args.method_list() if word not in UNTRAINED]
    check_everyones(args.option, contenders)
    for contender in contenders:
        check(contender, tree, features=True)
        if contender.at_once:
            raise ConfigError(
                f"`methods={contender.label}`: it is fitted at once on fixed features, and trains none; leave it out"
            )


@dataclass(frozen=True)
class Work:
    """A measurement under way: what was asked for, who learns from what, and the data to train on.

    Attributes:
        args: the options.
        protocol: source and target samples.
        data: the file of the source samples.
        backbone: its name; `linear` on features.
    """

    args: LowshotArgs
    protocol: Protocol
    data: Path
    backbone: str

    def training(self, word: str, seed: int) -> TrainArgs:
        """The options of one training."""
        args, contender = self.args, Contender.parse(word, self.args.option)
        return TrainArgs(
            str(self.data),
            args.out / "runs" / f"{word.replace(':', '-').replace('/', '-')}-s{seed}",
            method=contender.method,
            option=contender.option,
            backbone=self.backbone,
            pretrained=args.pretrained,
            image_size=args.image_size if self.protocol.source.images else None,
            optimizer="sgd",
            batch_size=args.batch_size,
            lr=args.lr,
            backbone_lr=args.backbone_lr,
            test_share=0.0,
            test=False,
            seed=seed,
            quiet=self.protocol.source.images is None,  # on features it takes seconds
            track=False,
            **{"epochs": args.epochs, "weight_decay": args.weight_decay, **contender.training_options()},
        )

    def measure(self, word: str) -> Iterator[Row]:
        """Every seed, draw and number of shots of one method."""
        for seed in range(1 if word in FIXED else self.args.seeds):
            yield from self.count(word, seed, self.scorer(word, seed))

    def scorer(self, word: str, seed: int) -> Scorer:
        """How a method scores, trained first where it needs to be."""
        classes = self.protocol.classes
        if word == "ppa":
            return ppa.by_predicted_weights(self.predictor(seed), self.given_target, classes)
        if word == "lsd":
            return self.diffusion()
        return by_cosine(self.given_target if word == "nn" else self.trained_features(word, seed), classes)

    def count(self, word: str, seed: int, score: Scorer) -> Iterator[Row]:
        """Ask everything that is not an example, in every draw."""
        args, classes = self.args, self.protocol.classes
        for number in range(args.draws):
            rank = ranks(self.protocol.target.keys, classes, seed=args.seed, number=number)
            for shots in args.shot_list():
                scores, right = score(rank < shots), classes[rank >= shots]
                yield Row(word, seed, number, shots, hit_rate(scores, right, 1), hit_rate(scores, right, args.top))

    @cached_property
    def given_source(self) -> Floats:
        """Features of the source samples before any training."""
        return pretrained_features(self.training("flat", 0), self.protocol.source)

    @cached_property
    def given_target(self) -> Floats:
        """Likewise, of the target samples."""
        return pretrained_features(self.training("flat", 0), self.protocol.target)

    def trained_features(self, word: str, seed: int) -> Floats:
        """Features of the target samples from a backbone that was trained on the source ones."""
        options = self.training(word, seed)
        assert options.out is not None
        train_once(options)
        return backbone_features(Model.from_pretrained(options.out), options, self.protocol.target)

    def predictor(self, seed: int) -> ppa.Predictor:
        """ppa's network, trained or as it was kept."""
        path, features = self.args.out / "runs" / f"ppa-s{seed}.safetensors", self.given_source
        if not path.is_file():
            classes = self.protocol.source.labels[:, 0]
            ppa.keep(ppa.train_predictor(features, classes, steps=self.args.ppa_steps, seed=seed), path)
        return ppa.kept(path, features.shape[1])

    def diffusion(self) -> Scorer:
        """lsd's graph, and how often to repeat."""
        args, protocol = self.args, self.protocol
        new, shots = len(protocol.names), args.shot_list()
        steps = choose_steps(self.given_source, protocol.source, shots=shots, new=new, top=args.top, seed=args.seed)
        return by_diffusion(Diffusion(self.given_source, self.given_target, protocol.classes), steps)


def train_once(args: TrainArgs) -> None:
    """Train, from the last checkpoint if there is one; not at all when it is done."""
    assert args.out is not None
    run = Run(args.out)
    if run.metrics.is_file():
        return
    started = (run.path / CONFIG).is_file() and run.split.is_file()
    if not started:
        shutil.rmtree(run.path, ignore_errors=True)  # killed before it began
    train(TrainArgs(resume=run.path, quiet=args.quiet) if started else args)


# ---- features ------------------------------------------------------------------------------------------------------


def pretrained_features(args: TrainArgs, samples: Samples) -> Floats:
    """(n, d) those that the data holds, or the backbone's before any training."""
    if samples.features is not None:
        return samples.features
    torch.manual_seed(args.seed)
    return backbone_features(build(dataclasses.replace(args, method="flat", option=()), samples), args, samples)


@torch.inference_mode()
def backbone_features(model: Model, args: TrainArgs, samples: Samples) -> Floats:
    """(n, d) pooled features from the backbone of a model, before any neck."""
    fabric = make_fabric(args.accelerator, args.devices, args.precision)
    if samples.features is None:
        features: Floats = compute_features(fabric, args, samples, model, os.cpu_count() or 1)
        return features
    backbone = model.backbone.eval().to(fabric.device)
    parts = torch.split(torch.from_numpy(samples.features), 4096)
    found: Floats = torch.cat([backbone(part.to(fabric.device)).cpu() for part in parts]).numpy()
    return found
