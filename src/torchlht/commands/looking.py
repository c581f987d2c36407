"""`lht hierarchy show`, `lht hierarchy check`, `lht data preview`: looking before training, without waiting for torch."""

from __future__ import annotations

from pathlib import Path

from torchlht import show
from torchlht.args import HierarchyArgs, PreviewArgs
from torchlht.data import read_data
from torchlht.data.images import find_problems
from torchlht.data.preview import contact_sheet
from torchlht.errors import HierarchyError
from torchlht.hierarchy import Hierarchy


def read_hierarchy(args: HierarchyArgs) -> Hierarchy:
    """The tree these options name."""
    return Hierarchy.read(args.file, args.levels.split(",") if args.levels else None)


def run_hierarchy_show(args: HierarchyArgs) -> None:
    """Draw a tree of classes with counts."""
    show.say(show.draw_tree(read_hierarchy(args), args.file.name, args.depth))


def run_hierarchy_check(args: HierarchyArgs) -> None:
    """List every fault of a tree of classes."""
    try:
        tree = read_hierarchy(args)
    except HierarchyError as error:
        show.notes.print(show.faults_text(error.source, error.faults), soft_wrap=True)
        raise SystemExit(2) from None
    show.say(f"{args.file}: no problems; {tree.describe()}")


def run_preview(args: PreviewArgs) -> None:
    """Count what is in a dataset and draw a contact sheet by class."""
    tree = Hierarchy.read(args.hierarchy) if args.hierarchy else None
    samples = read_data(args.data, hierarchy=tree, levels=args.levels.split(",") if args.levels else None)
    show.say(f"{args.data}   {show.samples_summary(samples)}")
    if samples.images is None:
        show.say("features only: no pictures to show")
        return
    problems = find_problems(samples.images)
    for problem in problems[:10]:
        show.say(f"unreadable: {problem.path} ({problem.reason})")
    if problems:
        show.say(f"{show.plural(len(problems), 'unreadable picture')}; train with --on-error skip to go on without")
    out = args.out or Path(f"preview-{samples.name}.png")
    contact_sheet(samples, out, per_class=args.per_class, skip={problem.path for problem in problems})
    show.say(f"contact sheet: {out}")
