"""`lht hierarchy show` and `check`, `lht data preview`, `pack`, `prepare`: what comes before training, without torch."""

from __future__ import annotations

import shlex
from pathlib import Path

from torchlht import console
from torchlht.commands.look_options import HierarchyArgs, PackArgs, PrepareArgs, PreviewArgs
from torchlht.data.packing import pack, parse_size
from torchlht.data.pictures import find_problems
from torchlht.data.reading import read_data
from torchlht.data.samples import check_images
from torchlht.errors import ConfigError, HierarchyError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.prepare import BENCHMARKS, PRIOR, TARGETS, TREE, Prepared, find_benchmark, prepare
from torchlht.show import terminal
from torchlht.show.preview import contact_sheet


def read_hierarchy(args: HierarchyArgs) -> Hierarchy:
    """The tree these options name."""
    return Hierarchy.read(args.file, args.levels.split(",") if args.levels else None)


def run_hierarchy_show(args: HierarchyArgs) -> None:
    """Draw a tree of classes with counts."""
    console.say(terminal.draw_tree(read_hierarchy(args), args.file.name, args.depth))


def run_hierarchy_check(args: HierarchyArgs) -> None:
    """List every fault of a tree of classes."""
    try:
        tree = read_hierarchy(args)
    except HierarchyError as error:
        console.notes.print(terminal.faults_text(error.source, error.faults), soft_wrap=True)
        raise SystemExit(2) from None
    console.say(f"{args.file}: no problems; {tree.describe()}")


def run_preview(args: PreviewArgs) -> None:
    """Count what is in a dataset and draw a contact sheet by class."""
    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    samples = read_data(args.data, hierarchy=tree, levels=args.levels.split(",") if args.levels else None)
    console.say(f"{args.data}   {terminal.samples_summary(samples)}")
    if samples.images is None:
        console.say("features only: no pictures to show")
        return
    problems = find_problems(samples.images)
    for problem in problems[:10]:
        console.say(f"unreadable: {problem.path} ({problem.reason})")
    if problems:
        console.say(f"{console.plural(len(problems), 'unreadable picture')}; train with --on-error skip to go on without")
    out = args.out or Path(f"preview-{samples.name}.png")
    contact_sheet(samples, out, per_class=args.per_class, skip={problem.path for problem in problems})
    console.say(f"contact sheet: {out}")


def run_pack(args: PackArgs) -> None:
    """Write pictures into tar shards."""
    size = None if args.per_shard else parse_size(args.size or "100MB")
    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    samples = read_data(args.data, hierarchy=tree, levels=args.levels.split(",") if args.levels else None)
    samples, problems = check_images(samples, args.on_error)
    shards = pack(samples, args.out, size=size, per_shard=args.per_shard, seed=args.seed)
    left_out = f"; left out {console.plural(len(problems), 'unreadable picture')}" if problems else ""
    total = sum(shard.stat().st_size for shard in shards)
    console.say(f"{args.data}   {terminal.samples_summary(samples)}")
    console.say(f"written to {args.out}: {console.plural(len(shards), 'shard')}, {total / 1e6:,.1f} MB{left_out}")
    console.say(f"next: lht train {shlex.quote(str(args.out))}")


def run_prepare(args: PrepareArgs) -> None:
    """Check a benchmark's official archive and write its table and tree, or list the benchmarks."""
    if args.name == "list":
        console.say(benchmarks_text())
        return
    benchmark = find_benchmark(args.name)
    if args.root is None:
        raise ConfigError(f"lht data prepare {args.name} needs --root DIR; {benchmark.title} is had from {benchmark.where}")
    done = prepare(args.name, args.root, args.out, tree=args.tree, mode=args.mode, seed=args.seed)
    splits = " · ".join(f"{split} {done.splits[split]:,}" for split in ("train", "val", "test") if split in done.splits)
    console.say(f"{benchmark.title}: {console.plural(sum(done.splits.values()), 'picture')} ({splits})")
    console.say(done.tree.describe())
    console.say(f"written to {done.table.parent}: {', '.join(path.name for path in done.written)}")
    console.say(f"next: {next_step(args, done)}")


def next_step(args: PrepareArgs, done: Prepared) -> str:
    """The command that uses what was prepared; one that was not written to the cache is named by its files."""
    files = {path.name: shlex.quote(str(path)) for path in done.written}
    words = ["lht train", args.name if args.out is None else f"{files[done.table.name]} --hierarchy {files[TREE]}"]
    if TARGETS in files:
        data = args.name if args.out is None else files[done.table.name]
        words = ["lht lowshot", data, "--targets", files[TARGETS], "--out", f"runs/{args.name}"]
    if PRIOR in files:
        words += ["--prior", files[PRIOR]]
    return " ".join(words)


def benchmarks_text() -> str:
    """Every benchmark: its levels, how many pictures it has, and where it is had from."""
    width = max(map(len, BENCHMARKS))
    return "\n".join(
        f"{name:<{width}}  {benchmark.describe()}   ({benchmark.describe_splits()})\n"
        f"{'':<{width}}  {benchmark.title}, from {benchmark.where}"
        for name, benchmark in BENCHMARKS.items()
    )
