"""`lowshot`: the whole experiment in one directory; trained models are kept, and an interrupted experiment can be resumed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from torchlht import console
from torchlht.answer.model import Model, Run
from torchlht.answer.records import CONFIG
from torchlht.data.samples import Samples, check_images, read_data
from torchlht.errors import ConfigError
from torchlht.files import claimed, write_text, write_yaml
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.comparison.contenders import Contender, check, check_everyones
from torchlht.lab.lowshot.protocol import Protocol, make_protocol, ranks, write_source
from torchlht.lab.lowshot.results import LowshotResults, Row, collect, document, draw_accuracy, summary, write_rows
from torchlht.lab.lowshot.scoring import (
    Diffusion,
    Floats,
    Scorer,
    WeightPredictor,
    by_cosine,
    by_diffusion,
    by_predicted_weights,
    choose_steps,
    hit_rate,
    keep_predictor,
    kept_predictor,
    train_predictor,
)
from torchlht.lab.options import LowshotArgs
from torchlht.learn.building import backbone_name, build
from torchlht.learn.launching import find_machine
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import compute_features, train

UNTRAINED = ("nn", "ppa", "lsd")
FIXED = ("nn", "lsd")  # random only in the draws


def check_methods(args: LowshotArgs, tree: Hierarchy) -> None:
    """Raise ConfigError if a method is unknown or does not train a backbone."""
    contenders = [Contender.parse(word, args.option) for word in args.method_list() if word not in UNTRAINED]
    check_everyones(args.option, contenders)
    for contender in contenders:
        check(contender, tree, features=True)
        if contender.at_once:
            raise ConfigError(
                f"`methods={contender.label}`: it is fitted at once to fixed features and trains none; leave it out"
            )


@dataclass(frozen=True)
class Work:
    """An experiment in progress: options, samples, and the data to train on.

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
        """Measure one method for every seed, draw and number of shots."""
        for seed in range(1 if word in FIXED else self.args.seeds):
            yield from self.count(word, seed, self.scorer(word, seed))

    def scorer(self, word: str, seed: int) -> Scorer:
        """The scorer of a method, trained first if needed."""
        classes = self.protocol.classes
        if word == "ppa":
            return by_predicted_weights(self.predictor(seed), self.given_target, classes)
        if word == "lsd":
            return self.diffusion()
        return by_cosine(self.given_target if word == "nn" else self.trained_features(word, seed), classes)

    def count(self, word: str, seed: int, score: Scorer) -> Iterator[Row]:
        """Test on every sample that is not an example, in every draw."""
        args, classes = self.args, self.protocol.classes
        for number in range(args.draws):
            rank = ranks(self.protocol.target.keys, classes, seed=args.seed, number=number)
            for shots in args.shot_list():
                scores, right = score(rank < shots), classes[rank >= shots]
                yield Row(word, seed, number, shots, hit_rate(scores, right, 1), hit_rate(scores, right, args.top))

    @cached_property
    def given_source(self) -> Floats:
        """Features of the source samples before training."""
        return pretrained_features(self.training("flat", 0), self.protocol.source)

    @cached_property
    def given_target(self) -> Floats:
        """Features of the target samples before training."""
        return pretrained_features(self.training("flat", 0), self.protocol.target)

    def trained_features(self, word: str, seed: int) -> Floats:
        """Features of the target samples from a backbone trained on the source samples."""
        options = self.training(word, seed)
        assert options.out is not None
        train_once(options)
        return backbone_features(Model.from_pretrained(options.out), options, self.protocol.target)

    def predictor(self, seed: int) -> WeightPredictor:
        """ppa's network, trained now or read from its file."""
        path, features = self.args.out / "runs" / f"ppa-s{seed}.safetensors", self.given_source
        if not path.is_file():
            classes = self.protocol.source.labels[:, 0]
            keep_predictor(train_predictor(features, classes, steps=self.args.ppa_steps, seed=seed), path)
        return kept_predictor(path, features.shape[1])

    def diffusion(self) -> Scorer:
        """lsd's scorer: its graph, and the number of steps."""
        args, protocol = self.args, self.protocol
        new, shots = len(protocol.names), args.shot_list()
        steps = choose_steps(self.given_source, protocol.source, shots=shots, new=new, top=args.top, seed=args.seed)
        return by_diffusion(Diffusion(self.given_source, self.given_target, protocol.classes), steps)


def train_once(args: TrainArgs) -> None:
    """Train, from the last checkpoint if there is one; do nothing if the run has finished."""
    assert args.out is not None
    run = Run(args.out)
    if run.metrics.is_file():
        return
    started = (run.path / CONFIG).is_file() and run.split.is_file()
    if not started:
        shutil.rmtree(run.path, ignore_errors=True)  # killed before it started
    train(TrainArgs(resume=run.path, quiet=args.quiet) if started else args)


# ---- features ------------------------------------------------------------------------------------------------------


def pretrained_features(args: TrainArgs, samples: Samples) -> Floats:
    """(n, d) the features in the data, or those of the untrained backbone."""
    if samples.features is not None:
        return samples.features
    torch.manual_seed(args.seed)
    return backbone_features(build(dataclasses.replace(args, method="flat", option=()), samples), args, samples)


@torch.inference_mode()
def backbone_features(model: Model, args: TrainArgs, samples: Samples) -> Floats:
    """(n, d) pooled features from the backbone of a model, before any neck."""
    machine = find_machine(args.accelerator, args.devices, args.precision)
    if samples.features is None:
        features: Floats = compute_features(machine, args, samples, model, os.cpu_count() or 1)
        return features
    backbone = model.backbone.eval().to(machine.device)
    parts = torch.split(torch.from_numpy(samples.features), 4096)
    found: Floats = torch.cat([backbone(part.to(machine.device)).cpu() for part in parts]).numpy()
    return found


SETTINGS = "lowshot.yaml"


def lowshot(args: LowshotArgs) -> LowshotResults:
    """Train on some classes, recognise others from a few examples each, and write lowshot.csv, table.md and accuracy.png.

    >>> lowshot(LowshotArgs("birds.npz", Path("runs/lowshot"), target="50", methods="nn,lht"))

    Raises:
        LHTError: if the options or the data are wrong, before anything is written.
    """
    with claimed(args.out):
        return lowshot_there(args)


def lowshot_there(args: LowshotArgs) -> LowshotResults:
    """Measure in a folder that this process has claimed."""
    args.claim(SETTINGS, "a measurement")
    samples = read_samples(args)
    protocol = make_protocol(args, samples)
    check_methods(args, protocol.source.hierarchy)
    backbone = backbone_name(TrainArgs(args.data, backbone=args.backbone), samples)
    write_yaml(args.out / SETTINGS, args.settings())
    protocol.grouping.write(args.out / "hierarchy.json")
    if args.freeze:
        protocol = frozen(args, protocol, backbone)
    data = write_source(protocol.source, args.out / "data")
    args = args.with_recipe(features=protocol.source.images is None)
    work = Work(args, protocol, data, "linear" if protocol.source.images is None else backbone)
    console.note(protocol.describe(), quiet=False)
    rows = [row for word in args.method_list() for row in announced(work, word)]
    results = collect(rows, args.top, caption(args, protocol))
    write_rows(args.out / "lowshot.csv", rows, args.top)
    write_text(args.out / "table.md", document(results))
    draw_accuracy(results, args.out / "accuracy.png")
    return results


def read_samples(args: LowshotArgs) -> Samples:
    """The data, without unreadable pictures if these are skipped."""
    hierarchy = Hierarchy.read(args.hierarchy, args.level_names()) if args.hierarchy else None
    whole = read_data(args.data, hierarchy=hierarchy, levels=args.level_names(), unknown=args.unknown_names())
    samples, _ = check_images(whole, args.on_error)
    if samples.images is None and args.freeze:
        raise ConfigError(f"`freeze` is for pictures; {args.data} holds features already")
    return samples


def frozen(args: LowshotArgs, protocol: Protocol, backbone: str) -> Protocol:
    """The same protocol with features of the frozen backbone instead of pictures."""
    options = TrainArgs(args.data, backbone=backbone, pretrained=args.pretrained, image_size=args.image_size, freeze=True)

    def features(samples: Samples) -> Samples:
        return dataclasses.replace(samples, images=None, features=pretrained_features(options, samples))

    return dataclasses.replace(protocol, source=features(protocol.source), target=features(protocol.target))


def announced(work: Work, word: str) -> list[Row]:
    """Measure a method, and print its result."""
    started = time.monotonic()
    rows = list(work.measure(word))
    most = max(work.args.shot_list())
    figure = summary(collect(rows, work.args.top).values[word, most])
    seconds = time.monotonic() - started
    console.note(f"{word}: top-{work.args.top} {figure} from {console.plural(most, 'example')}  ({seconds:.0f} s)", quiet=False)
    return rows


def caption(args: LowshotArgs, protocol: Protocol) -> str:
    """Sentences on how it was measured."""
    tree = {"names": f"groups of similar names ({args.cluster} classes clustered)", "data": "the data's own"}[args.tree]
    interval = "over draws" if args.seeds == 1 else "over draws and seeds, both taken as random (crossed analysis of variance)"
    sentences = [
        f"Top-{args.top} accuracy in percent, best last: {protocol.describe()}.",
        f"Tree: {tree}. Test samples of the classes learned from are not used.",
        f"Examples drawn {console.plural(args.draws, 'time')}, the same for all methods and nested over shots;",
        "every other sample of the new classes is a test sample.",
    ]
    trained = [word for word in args.method_list() if word not in UNTRAINED]
    sentences += [trained_text(args, trained)] if trained else []
    sentences += [f"ppa: {console.plural(args.ppa_steps, 'step')}, as many seeds."] if "ppa" in args.method_list() else []
    sentences.append(
        f"± is the half-width of a 95 % t-interval {interval}; it covers neither the choice of classes nor of their samples."
    )
    return " ".join(sentences)


def trained_text(args: LowshotArgs, words: Sequence[str]) -> str:
    """One sentence on how some methods were trained."""
    seeds, epochs = console.plural(args.seeds, "seed"), console.plural(args.epochs or 0, "epoch")
    slow = "a tenth of it if pretrained" if args.backbone_lr is None else f"{args.backbone_lr:g}"
    batches = f"{epochs} of SGD in batches of {args.batch_size}"
    return f"{', '.join(words)}: {seeds}, {batches}, learning rate {args.lr:g}, of the backbone {slow}."
