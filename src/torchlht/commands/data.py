"""`lht data preview`, `lht data pack` and `lht data prepare`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from torchlht import console
from torchlht.commands.base import command
from torchlht.data.options import DataPlace, OnErrorArgs, Options, SeveralArgs, TreeArgs, Word
from torchlht.doors import Count, Many, Seed
from torchlht.errors import ConfigError
from torchlht.files import refuse_replacing
from torchlht.show import terminal

if TYPE_CHECKING:
    from torchlht.data.samples import Samples
    from torchlht.lab.benchmarks.prepare import Prepared


@dataclass(frozen=True)
class PreviewArgs(SeveralArgs, TreeArgs):
    """Look at a dataset before training."""

    data: Annotated[DataPlace, Word("DATA")]
    """A folder of pictures, a .csv/.tsv table, shards, an .npz of features, `demo`, a prepared benchmark such as `cub`, or what
    other tools wrote: parquet, Hugging Face datasets, COCO, Darwin Core, Label Studio."""
    out: Path | None = None
    """The contact sheet to write; preview-DATA.png in the current folder by default."""
    per_class: Many = 6
    """Number of pictures per class."""


@command("data preview", "before training")
def run_preview(args: PreviewArgs) -> None:
    """Count the samples of a dataset and draw a contact sheet by class."""
    from torchlht.data.doubts import doubts
    from torchlht.data.graphed import is_on_graph

    if is_on_graph(args.data, args, args.several):
        from torchlht.commands.several import preview_several

        return preview_several(args)
    samples = read_samples(args, args.data, bars=args.several is False)
    console.say(f"{args.data}   {terminal.samples_summary(samples)}")
    for sentence in doubts(samples):
        console.say(f"look: {sentence}")
    if samples.images is None:
        console.say("features only: no pictures to show")
        return
    draw_sheet(samples, args)


def draw_sheet(samples: Samples, args: PreviewArgs) -> None:
    """Look for pictures that cannot be read, draw a contact sheet of the others, and say what comes next."""
    from torchlht.data.pictures import find_problems
    from torchlht.data.samples import refuse_inside
    from torchlht.show.preview import contact_sheet, is_contact_sheet

    assert samples.images is not None
    out = args.out or Path(f"preview-{samples.name}.png")
    refuse_inside(out, args.data)
    refuse_replacing(out, "a contact sheet of lht data preview", is_contact_sheet)
    problems = find_problems(samples.images)
    for problem in problems[:10]:
        console.say(f"unreadable: {problem.path} ({problem.reason})")
    if problems:
        console.say(f"{console.plural(len(problems), 'unreadable picture')}; train with --on-error skip to leave them out")
    contact_sheet(samples, out, per_class=args.per_class, skip={problem.path for problem in problems})
    console.say(f"contact sheet: {out}")
    same = {
        "hierarchy": args.hierarchy,
        "levels": args.levels,
        "unknown": args.unknown,
        "on-error": "skip" if problems else None,
    }
    words = [word for name, value in same.items() if value is not None for word in (f"--{name}", str(value))]
    words += [] if args.several is None else ["--several" if args.several else "--no-several"]
    console.say(f"next: {shlex.join(['lht', 'train', args.data, *words])}")


def read_samples(args: TreeArgs, data: str, *, bars: bool = False) -> Samples:
    """The samples of a dataset, with the tree that the options name; `bars` as in `read_data`."""
    from torchlht.data.samples import read_data
    from torchlht.hierarchy.tree import Hierarchy

    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    return read_data(data, hierarchy=tree, levels=args.level_names(), unknown=args.unknown_names(), bars=bars)


@dataclass(frozen=True)
class PackArgs(OnErrorArgs, TreeArgs):
    """Pack pictures into tar files."""

    data: Annotated[DataPlace, Word("DATA")]
    """What to pack: a folder of pictures, a .csv/.tsv table, shards, `demo`, or a prepared benchmark such as `cub`."""
    out: Path
    """Folder to write, which must not exist yet: shards-000000.tar, …, index.json and hierarchy.json. `lht train` reads it,
    and so do WebDataset readers."""
    size: str | None = None
    """Largest size of a shard, such as 100MB (the default) or 1GB."""
    per_shard: Count | None = None
    """Number of samples per shard, instead of --size."""
    seed: Seed = 0
    """Seed for shuffling the samples."""

    def _check(self) -> None:
        if self.size is not None and self.per_shard is not None:
            raise ConfigError("`size` and `per_shard` both set the size of a shard: pass one of them")


@command("data pack", "before training")
def run_pack(args: PackArgs) -> None:
    """Pack many pictures into tar files (shards) that are fast to read in sequence."""
    from torchlht.data.packing import pack, parse_size
    from torchlht.data.samples import check_images, refuse_inside

    size = None if args.per_shard else parse_size(args.size or "100MB")
    samples = read_samples(args, args.data)
    refuse_inside(args.out, args.data)
    samples, problems = check_images(samples, args.on_error)
    shards = pack(samples, args.out, size=size, per_shard=args.per_shard, seed=args.seed)
    left_out = f"; left out {console.plural(len(problems), 'unreadable picture')}" if problems else ""
    total = sum(shard.stat().st_size for shard in shards)
    console.say(f"{args.data}   {terminal.samples_summary(samples)}")
    console.say(f"written to {args.out}: {console.plural(len(shards), 'shard')}, {total / 1e6:,.1f} MB{left_out}")
    console.say(f"next: lht train {shlex.quote(str(args.out))}")


@dataclass(frozen=True)
class PrepareArgs(Options):
    """Prepare a benchmark from its official archive."""

    name: Annotated[str, Word("NAME")]
    """cub, aircraft, aircraft-perturbed, cars, isic2018, ilsvrc-lowshot, cifar100, fashion-mnist or inat2021; `list` shows
    what each holds and where to get it."""
    root: Path | None = None
    """The unpacked archive, or the folder that holds it. Nothing in it is copied or changed."""
    out: Path | None = None
    """Folder for the table and the tree; by default one in the cache, where `lht train NAME` finds them."""
    tree: Literal["default", "published"] = "default"
    """cub: `published` keeps the error in the tree that the published numbers were measured with."""
    mode: Literal["stale_prior", "renamed", "rewired"] | None = None
    """aircraft-perturbed: permute the names of families, with the old tree as a prior or without; or move models."""
    seed: Seed = 0
    """Seed for the split of isic2018 and for what aircraft-perturbed changes."""


@command("data prepare", "before training")
def run_prepare(args: PrepareArgs) -> None:
    """Check a benchmark's official archive and prepare it for training.

    Writes its table and tree. With `list`, prints the benchmarks.
    """
    from torchlht.lab.benchmarks.prepare import find_benchmark, prepare

    if args.name == "list":
        console.say(benchmarks_text())
        return
    benchmark = find_benchmark(args.name)
    if args.root is None:
        raise ConfigError(f"lht data prepare {args.name} needs --root DIR; get {benchmark.title} from {benchmark.where}")
    done = prepare(args.name, args.root, args.out, tree=args.tree, mode=args.mode, seed=args.seed)
    splits = " · ".join(f"{split} {done.splits[split]:,}" for split in ("train", "val", "test") if split in done.splits)
    console.say(f"{benchmark.title}: {console.plural(sum(done.splits.values()), 'picture')} ({splits})")
    console.say(done.tree.describe())
    console.say(f"written to {done.table.parent}: {', '.join(path.name for path in done.written)}")
    console.say(f"next: {next_step(args, done)}")


def next_step(args: PrepareArgs, done: Prepared) -> str:
    """The command that uses what was prepared; outside the cache, the data is named by its files."""
    from torchlht.lab.benchmarks.prepare import PRIOR, TARGETS, TREE

    files = {path.name: shlex.quote(str(path)) for path in done.written}
    words = ["lht train", args.name if args.out is None else f"{files[done.table.name]} --hierarchy {files[TREE]}"]
    if TARGETS in files:
        data = args.name if args.out is None else files[done.table.name]
        words = ["lht lowshot", data, "--targets", files[TARGETS], "--out", f"runs/{args.name}"]
    if PRIOR in files:
        words += ["--prior", files[PRIOR]]
    return " ".join(words)


def benchmarks_text() -> str:
    """Every benchmark: its levels, how many pictures it has, and where to get it."""
    from torchlht.lab.benchmarks.prepare import BENCHMARKS

    width = max(map(len, BENCHMARKS))
    return "\n".join(
        f"{name:<{width}}  {benchmark.describe()}   ({benchmark.describe_splits()})\n"
        f"{'':<{width}}  {benchmark.title}, from {benchmark.where}"
        for name, benchmark in BENCHMARKS.items()
    )
