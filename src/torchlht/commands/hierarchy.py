"""`lht hierarchy show`, `check`, `find`, `repair`, `diff` and `graft`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from torchlht import console
from torchlht.commands.base import AcceleratorArgs, command
from torchlht.data.options import DataPlace, OnErrorArgs, Options, TreeArgs, TreePlace, Word
from torchlht.doors import Breadth, Count, NotNegative, Seed, Workers
from torchlht.errors import ConfigError, Fault, HierarchyError
from torchlht.show import terminal

if TYPE_CHECKING:
    from torchlht.data.samples import Samples
    from torchlht.hierarchy.graph import Graph
    from torchlht.hierarchy.tree import Hierarchy


@dataclass(frozen=True)
class HierarchyArgs(Options):
    """A tree of classes."""

    file: Annotated[TreePlace, Word("FILE")]
    """A .csv, .json or .yaml file, an ontology (.obo, .ttl, .rdf), a folder tree, or a run directory; several files of classes
    with several parents are separated by commas."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species."""


@dataclass(frozen=True)
class ShowArgs(HierarchyArgs):
    """A tree of classes to draw."""

    depth: Count | None = None
    """How many levels to draw; all by default."""


def read_hierarchy(args: HierarchyArgs) -> Hierarchy | Graph:
    """The tree these options name, or the graph, if some classes have several parents."""
    from torchlht.hierarchy.graph import Graph
    from torchlht.hierarchy.linked import has_several_parents
    from torchlht.hierarchy.tree import Hierarchy

    if has_several_parents(args.file):
        return Graph.read(args.file)
    return Hierarchy.read(args.file, args.levels.split(",") if args.levels else None)


def read_tree(path: Path, levels: Sequence[str] | None = None) -> Hierarchy:
    """A tree. Of a graph, the refusal also says what takes one."""
    from torchlht.hierarchy.linked import has_several_parents
    from torchlht.hierarchy.tree import Hierarchy

    try:
        return Hierarchy.read(path, levels)
    except HierarchyError as error:
        if not has_several_parents(path):
            raise
        what = Fault("", "this takes trees; lht hierarchy show and check, and lht train, take graphs, too")
        raise HierarchyError(error.source, [*error.faults, what]) from None


@command("hierarchy show", "before training")
def run_hierarchy_show(args: ShowArgs) -> None:
    """Draw a tree or graph of classes with counts."""
    from torchlht.hierarchy.graph import Graph

    found = read_hierarchy(args)
    if isinstance(found, Graph):
        console.say(terminal.draw_graph(found, args.file.name, args.depth))
    else:
        console.say(terminal.draw_tree(found, args.file.name, args.depth))


@command("hierarchy check", "before training")
def run_hierarchy_check(args: HierarchyArgs) -> None:
    """List every problem in a tree or graph of classes."""
    try:
        tree = read_hierarchy(args)
    except HierarchyError as error:
        console.notes.print(terminal.faults_text(error.source, error.faults), soft_wrap=True)
        raise SystemExit(2) from None
    console.say(f"{args.file}: no problems; {tree.describe()}")


# ---- found, repaired, compared -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LookArgs(OnErrorArgs, AcceleratorArgs):
    """The samples, and how they are looked at."""

    finest: str | None = None
    """The level of DATA with the finest classes, such as species, if it has columns that are no levels. No other is read."""
    backbone: str = "efficientnet_lite0"
    """The pretrained network that turns pictures into features; its weights need the extra `offline`, those of timm the hub."""
    workers: Workers | None = None
    """How many processes decode pictures; the number of cores by default."""
    quiet: bool = False
    """Show no progress, only the result."""


def taken(data: str, args: LookArgs, tree: Path | None = None, unknown: Sequence[str] = ()) -> Samples:
    """The training samples of some data. A tree, from a file, is needed only if the data has none."""
    from torchlht.data.pictures import as_place
    from torchlht.data.samples import check_images, read_data
    from torchlht.data.sources.embeddings import finest_alone
    from torchlht.hierarchy.tree import Hierarchy

    read_with = Hierarchy.read(tree) if tree else finest_alone(as_place(data))
    levels = [args.finest] if args.finest else None
    try:
        read = read_data(data, hierarchy=read_with, levels=levels, unknown=unknown)
    except HierarchyError as error:
        if args.finest:
            raise
        what = Fault("", "if some columns are no levels, `finest` names the one with the finest classes")
        raise HierarchyError(error.source, [*error.faults, what]) from None
    samples, _ = check_images(read, args.on_error)
    return samples.select(samples.index("train"))


def seen(samples: Samples, args: LookArgs) -> Samples:
    """The same, pictures as features."""
    import dataclasses

    from torchlht.show.audited import picture_features

    if samples.images is None:
        return samples
    found = picture_features(samples, args.backbone, args.accelerator, args.workers, quiet=args.quiet)
    return dataclasses.replace(samples, features=found)


@dataclass(frozen=True)
class FindArgs(LookArgs):
    """Find a tree."""

    data: Annotated[DataPlace, Word("DATA")]
    """Pictures or features with finest labels: a folder, a table, an .npz, `demo`. Coarser labels are not looked at."""
    _: KW_ONLY
    levels: Breadth = 2
    """How many levels the tree has, with the finest."""
    groups: str | None = None
    """How many groups each level above the finest has, fine first, such as 38,13; by default what separates best."""
    names: bool = True
    """Let names help, where classes whose names end in the same word look alike."""
    out: Path = Path("tree.json")
    """The file to write: .json, or a table, .csv."""
    seed: Seed = 0
    """Seed for drawing samples again, which shows how stable the groups are."""

    def _check(self) -> None:
        if not 2 <= self.levels <= 8:
            raise ConfigError(f"`levels` is {self.levels}: it must be from 2 to 8")
        counts = self.counts()
        if counts and len(counts) != self.levels - 1:
            above = console.plural(self.levels - 1, "number")
            raise ConfigError(f"`groups` is {self.groups}: pass {above}, fine first, or other `levels`")

    def counts(self) -> list[int] | None:
        """`groups` as numbers."""
        if self.groups is None:
            return None
        if not all(word.strip().isdecimal() for word in self.groups.split(",")):
            raise ConfigError(f"`groups` is {self.groups!r}: pass whole numbers, separated by commas")
        return [int(word) for word in self.groups.split(",")]


@command("hierarchy find", "before training")
def run_hierarchy_find(args: FindArgs) -> None:
    """Build a tree over the finest classes, from their looks and names."""
    from torchlht.learn.growing import find_tree

    refuse_other(args.out)
    found = find_tree(
        seen(taken(args.data, args), args), levels=args.levels, groups=args.counts(), names=args.names, seed=args.seed
    )
    found.tree.write(args.out)
    console.say(terminal.draw_tree(found.tree, args.out.name, None if found.tree.sizes[0] <= 60 else args.levels - 1))
    finest, unerring = found.tree.levels[0], found.right[-1] == 1
    for i, (stable, inside, chance) in enumerate(zip(found.stable, found.inside, found.chance, strict=True)):
        level = found.tree.levels[found.tree.top_down[i]]
        shaky = "" if stable >= SHAKY else ", which is little: do not rely on single groups"
        worth = "" if unerring else f"{inside:.0%} of mistakes stay inside a group ({chance:.0%} would by chance); "
        right = f"{found.right[i]:.0%} of samples get the right group"
        console.say(f"{level}: agreement {stable:.2f} with groups of samples drawn again{shaky}; {worth}{right}")
    console.say(
        f"{finest}: {found.right[-1]:.0%} of samples get the right one; each half of the samples is judged by the other"
    )
    if found.unseen:
        place = "with what is called alike, or in a group of their own" if found.named else "in a group of their own"
        console.say(f"without labelled samples: {len(found.unseen):,}, such as {found.unseen[0]}; {place}")
    console.say(f"names {'helped' if found.named else 'played no part'} · saved in {args.out}")


SHAKY = 0.5  # agreement below which groups are nearer to chance than to the same ones again


TREES = (".json", ".yaml", ".yml", ".csv")  # what a tree is written as; JSON is YAML, too


def refuse_other(out: Path, *read: Path) -> None:
    """Refuse a file that no tree is written as, and to replace one that is not a tree of ours, or is read."""
    from torchlht.files import refuse_replacing
    from torchlht.hierarchy.reading import FORMAT, MARKED, TREE

    if out.resolve() in [(tree / TREE if tree.is_dir() else tree).resolve() for tree in read]:
        raise ConfigError(f"{out}: is a tree that is read, so it is not replaced; choose another `out`")

    def ours(path: Path) -> bool:
        return any(name.encode() in path.read_bytes()[:100] for name in (FORMAT, MARKED))

    refuse_replacing(out, "a tree that we wrote", ours)
    if out.suffix.lower() not in TREES:
        raise ConfigError(f"{out}: a tree is written as {', '.join(TREES[:-1])} or {TREES[-1]}; choose such an `out`")


@dataclass(frozen=True)
class RepairArgs(LookArgs, TreeArgs):
    """Repair a tree."""

    file: Annotated[TreePlace, Word("TREE")]
    """The tree to judge: a .csv, .json or .yaml file."""
    data: Annotated[DataPlace, Word("DATA")]
    """Pictures or features with finest labels of the same names."""
    _: KW_ONLY
    sure: NotNegative = 1.0
    """Log-odds from which on a move is made in the new tree."""
    top: Count = 20
    """How many proposals of each kind to show."""
    out: Path | None = None
    """The new tree, .json or .csv; TREE-repaired.json beside it by default."""


def beside(tree: Path) -> Path:
    """The place of a repaired tree: TREE-repaired.json beside TREE, or beside the first of its files."""
    from torchlht.hierarchy.linked import files_of

    first = tree if tree.exists() else files_of(tree)[0]
    place = first if first.name not in ("", "..") else first.resolve()
    return place.with_name(f"{place.name if place.is_dir() else place.stem}-repaired.json")


@command("hierarchy repair", "before training")
def run_hierarchy_repair(args: RepairArgs) -> None:
    """Propose moves, splits, merges and spelling fixes in a tree, with evidence, and write the new tree beside it."""
    from torchlht.learn.mending import moved, propose, under

    out = args.out or beside(args.file)
    refuse_other(out, args.file)
    tree = read_tree(args.file, args.level_names())
    samples = under(taken(args.data, args, args.hierarchy, args.unknown_names()), tree)  # names first: features take minutes
    remarks = propose(seen(samples, args), tree)
    for kind in dict.fromkeys(remark.kind for remark in remarks):
        for remark in [one for one in remarks if one.kind == kind][: args.top]:
            odds = f" (log-odds {remark.score:.1f})" if kind == "misplaced" else ""
            console.say(f"{kind} · {remark.label}: {remark.reason}{odds}")
    new, made = moved(tree, remarks, args.sure)
    new.write(out)
    if not remarks:
        console.say(f"no proposals; {out} is the same tree")
        return
    count, levels = console.plural(len(remarks), "proposal"), f" --levels {args.levels}" if args.levels else ""
    console.say(f"{count}, {len(made)} of them made in {out}; lht hierarchy diff {args.file} {out}{levels}")


@dataclass(frozen=True)
class TwoTreesArgs(Options):
    """Two trees."""

    first: Annotated[TreePlace, Word("A")]
    """A tree: a .csv, .json or .yaml file, a folder tree, or a run directory."""
    second: Annotated[TreePlace, Word("B")]
    """Another one, with the same levels."""
    levels: str | None = None
    """Level names coarse → fine, such as order,family,species, for both."""

    def both(self) -> tuple[Hierarchy, Hierarchy]:
        """The two trees."""
        names = self.levels.split(",") if self.levels else None
        return read_tree(self.first, names), read_tree(self.second, names)


@dataclass(frozen=True)
class DiffArgs(TwoTreesArgs):
    """Compare two trees."""

    _: KW_ONLY
    json: bool = False
    """Print the differences as JSON: a list of kind, level, name, was and now."""


@dataclass(frozen=True)
class GraftArgs(TwoTreesArgs):
    """Graft one tree onto another."""

    _: KW_ONLY
    out: Path = Path("tree.json")
    """The file to write: .json, or a table, .csv."""


@command("hierarchy diff", "before training")
def run_hierarchy_diff(args: DiffArgs) -> None:
    """List what differs between two trees."""
    from torchlht.hierarchy.comparing import differences

    found = differences(*args.both())
    if args.json:
        print(json.dumps([one._asdict() for one in found], indent=1))
        return
    for one in found:
        console.say(str(one))
    console.say(f"{console.plural(len(found), 'difference')}" if found else "no differences")


@command("hierarchy graft", "before training")
def run_hierarchy_graft(args: GraftArgs) -> None:
    """Add the classes of tree B that tree A lacks; where they disagree, A is right."""
    from torchlht.hierarchy.comparing import graft

    refuse_other(args.out, args.first, args.second)
    tree, disagree = graft(*args.both())
    tree.write(args.out)
    for one in disagree:
        if one.kind == "renamed":
            console.say(f"{one.level} {one.name}: keeps its name; B calls it {one.now}")
        else:
            console.say(f"{one.level} {one.name}: stays under {one.was}, where A has it; B has it under {one.now}")
    console.say(f"{tree.describe()} · saved in {args.out}")
