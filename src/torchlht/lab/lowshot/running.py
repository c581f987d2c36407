"""`lowshot`: all of it, top to bottom, in one directory; what was trained is kept, and kept results can be gone on with."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from torchlht import console
from torchlht.data.reading import read_data
from torchlht.data.samples import Samples, check_images
from torchlht.errors import ConfigError
from torchlht.files import write_text, write_yaml
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.lowshot.evaluate import UNTRAINED, Work, check_methods, pretrained_features
from torchlht.lab.lowshot.plot import draw_accuracy
from torchlht.lab.lowshot.protocol import Protocol, make_protocol, write_source
from torchlht.lab.lowshot.results import LowshotResults, Row, collect, document, summary, write_rows
from torchlht.lab.options import LowshotArgs
from torchlht.learn.options import TrainArgs
from torchlht.learn.training import backbone_name

SETTINGS = "lowshot.yaml"


def lowshot(args: LowshotArgs) -> LowshotResults:
    """Train on some classes, tell others from a few examples each, and write lowshot.csv, table.md and accuracy.png.

    >>> lowshot(LowshotArgs("birds.npz", Path("runs/lowshot"), target="50", methods="nn,lht"))

    Raises:
        LHTError: for whatever is wrong with the options or the data, before anything is written.
    """
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
    """The data, without pictures that cannot be read."""
    hierarchy = Hierarchy.read(args.hierarchy, args.level_names()) if args.hierarchy else None
    samples, _ = check_images(read_data(args.data, hierarchy=hierarchy, levels=args.level_names()), args.on_error)
    if samples.images is None and args.freeze:
        raise ConfigError(f"`freeze` is for pictures; {args.data} holds features already")
    return samples


def frozen(args: LowshotArgs, protocol: Protocol, backbone: str) -> Protocol:
    """The same with features of the backbone, as it is, in place of pictures."""
    options = TrainArgs(args.data, backbone=backbone, pretrained=args.pretrained, image_size=args.image_size, freeze=True)

    def features(samples: Samples) -> Samples:
        return dataclasses.replace(samples, images=None, features=pretrained_features(options, samples))

    return dataclasses.replace(protocol, source=features(protocol.source), target=features(protocol.target))


def announced(work: Work, word: str) -> list[Row]:
    """Measure a method, and say how it went."""
    started = time.monotonic()
    rows = list(work.measure(word))
    most = max(work.args.shot_list())
    figure = summary(collect(rows, work.args.top).values[word, most])
    seconds = time.monotonic() - started
    console.note(f"{word}: top-{work.args.top} {figure} from {console.plural(most, 'example')}  ({seconds:.0f} s)", quiet=False)
    return rows


def caption(args: LowshotArgs, protocol: Protocol) -> str:
    """How it was measured, in sentences."""
    tree = {"names": f"groups of similar names ({args.cluster} classes clustered)", "data": "the data's own"}[args.tree]
    interval = "over draws" if args.seeds == 1 else "over draws and seeds, both taken as random (crossed analysis of variance)"
    sentences = [
        f"Top-{args.top} accuracy in percent, best last: {protocol.describe()}.",
        f"Tree: {tree}. Test samples of the classes learned from are not used.",
        f"Examples drawn {console.plural(args.draws, 'time')}, the same for all methods and nested over shots;",
        "every other sample of the new classes is asked.",
    ]
    trained = [word for word in args.method_list() if word not in UNTRAINED]
    sentences += [trained_text(args, trained)] if trained else []
    sentences += [f"ppa: {console.plural(args.ppa_steps, 'step')}, as many seeds."] if "ppa" in args.method_list() else []
    sentences.append(f"± is the half-width of a 95 % t-interval {interval}; it does not cover the choice of classes.")
    return " ".join(sentences)


def trained_text(args: LowshotArgs, words: Sequence[str]) -> str:
    """How some methods were trained, in a sentence."""
    seeds, epochs = console.plural(args.seeds, "seed"), console.plural(args.epochs or 0, "epoch")
    slow = "a tenth of it if pretrained" if args.backbone_lr is None else f"{args.backbone_lr:g}"
    batches = f"{epochs} of SGD in batches of {args.batch_size}"
    return f"{', '.join(words)}: {seeds}, {batches}, learning rate {args.lr:g}, of the backbone {slow}."
