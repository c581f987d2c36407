"""`lht audit` and `lht audit apply`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from torchlht import console
from torchlht.commands.base import AcceleratorArgs, command
from torchlht.data.options import DataPlace, OnErrorArgs, Options, TreeArgs, Word
from torchlht.doors import Seed, WholeShare, Workers


@dataclass(frozen=True)
class AuditArgs(OnErrorArgs, TreeArgs, AcceleratorArgs):
    """Find wrong labels, twins, and faults of the tree."""

    data: Annotated[DataPlace, Word("DATA")]
    """A folder of pictures, a .csv/.tsv table, an .npz of features, shards, `demo`, or a prepared benchmark such as `cub`."""
    _: KW_ONLY
    out: Path = Path("audit")
    """Folder to write: labels.csv, twins.csv, tree.csv, audit.json and audit.html."""
    precision: WholeShare = 0.5
    """End the list of labels where less than this share of it is expected to be wrong."""
    all: bool = False
    """List every known label with its probability of being wrong."""
    backbone: str = "efficientnet_lite0"
    """The pretrained network that turns pictures into features; its weights need the extra `offline`, those of timm the hub."""
    twins: bool = True
    """Look for duplicate samples."""
    seed: Seed = 0
    """Seed for cutting the data into the parts that are judged in turn."""
    workers: Workers | None = None
    """How many processes decode pictures; the number of cores by default."""
    quiet: bool = False
    """Show no progress, only the result."""


@command("audit", "before training")
def run_audit(args: AuditArgs) -> None:
    """Find labels that are probably wrong, duplicate samples, and classes that do not fit the tree."""
    from torchlht.show.audited import NAME, audit

    found = audit(
        args.data,
        out=args.out,
        precision=args.precision,
        everything=args.all,
        hierarchy=args.hierarchy,
        levels=args.level_names(),
        unknown=None if args.unknown is None else args.unknown_names(),
        backbone=args.backbone,
        on_error=args.on_error,
        twins=args.twins,
        seed=args.seed,
        workers=args.workers,
        device=args.accelerator,
        quiet=args.quiet,
    )
    levels = found.samples.hierarchy.levels
    for count in reversed(found.counts):
        shown = f"about {count.wrong:,.0f} of {count.known:,} labels are wrong ({count.low:,.0f} to {count.high:,.0f})"
        console.say(f"{levels[count.level]}: {shown}")
    for row in found.rows[:5]:
        to = f" → {row.suggested}" if row.suggested else ""
        console.say(f"  {100 * row.probability:.0f} %  {row.sample}  {row.given}{to}")
    counts = (len(found.rows), "label"), (len(found.twins), "pair"), (len(found.remarks), "remark")
    listed, pairs, remarks = (console.plural(*one) for one in counts)
    console.say(f"{listed}, {pairs} of twins and {remarks} on the tree")
    console.say(
        f"{args.out / NAME} · {found.seconds:.0f} s · next: look at it, edit labels.csv, then lht audit apply {args.out}"
    )


@dataclass(frozen=True)
class ApplyArgs(Options):
    """Write corrected data."""

    audit: Annotated[Path, Word("DIR")]
    """A folder that lht audit has written. Rows may have been removed from its labels.csv, or their suggestions changed."""
    _: KW_ONLY
    out: Path | None = None
    """The corrected copy: an .npz for features, a .csv for pictures; `corrected` in DIR by default."""
    least: WholeShare = 0.5
    """Leave labels alone that are wrong with a smaller probability."""


@command("audit apply", "before training")
def run_apply(args: ApplyArgs) -> None:
    """Write a copy of the data with labels corrected as labels.csv says, and a journal of the changes."""
    from torchlht.learn.audit.applying import apply_audit

    made = apply_audit(args.audit, args.out, least=args.least)
    console.say(f"{made.data}   {made.changed:,} of {console.plural(made.listed, 'row')} applied · journal: {made.journal}")
    console.say(f"next: lht train {made.data}")
