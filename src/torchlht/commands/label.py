"""`lht label` and `lht label export`."""

from __future__ import annotations

import contextlib
import getpass
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from torchlht import console
from torchlht.commands.base import RunPlace, command
from torchlht.data.options import DataPlace, TreeArgs, Word
from torchlht.doors import Many, Port, Seed, Share, WholeShare, read_text
from torchlht.errors import ConfigError
from torchlht.learn.questions.options import StrategyName, WorthArgs

if TYPE_CHECKING:
    from torchlht.serve.label.desk import Desk
    from torchlht.serve.label.reading import Source

PASSWORD = "LHT_LABEL_PASSWORD"
MEANS = (
    "Whoever has it sees all pictures and can change labels. What is sent is not encrypted: use this only in a network that "
    "you trust, or through a tunnel (ssh -L)"
)
LEAST = 8  # characters of a password


@dataclass(frozen=True)
class LabelledArgs(TreeArgs):
    """What is labelled."""

    data: Annotated[DataPlace, Word("DATA")]
    """A folder of pictures, a table, an .npz of features, `demo`, …: all that `lht train` reads. It is not changed."""
    journal: Path | None = None
    """The folder of the journal, where every answer goes; DATA.labels next to the data by default."""
    unlabelled: bool = False
    """DATA is pictures without labels: its folders are no classes. Needs --hierarchy."""

    def source(self) -> Source:
        """These options for the server."""
        from torchlht.serve.label.reading import Source

        levels = self.level_names()
        return Source(
            self.data,
            self.hierarchy,
            tuple(levels) if levels else None,
            tuple(self.unknown_names()),
            self.unlabelled,
            self.journal,
        )


@dataclass(frozen=True)
class LabelArgs(WorthArgs, LabelledArgs):
    """Look at labels, correct them and add some, on a page in the browser."""

    run: RunPlace | None = None
    """A run whose suggestions are shown from the start, and whose network makes the features."""
    audit: Path | None = None
    """A folder that `lht audit` wrote: its doubts become a queue."""
    strategy: StrategyName | None = None
    """How questions are chosen, see `lht next`; by default `ours` with --cost, which weighs levels, else `typical`."""
    synonyms: Path | None = None
    """A table name,synonym of other names by which classes are found."""
    backbone: str = "auto"
    """The network that makes features of pictures; `auto` is efficientnet_lite0 if it is installed, else resnet18."""
    learn: bool = True
    """Learn while you label."""
    train_every: Many = 20
    """Train after so many answers; 0 trains only when you say so."""
    confidence: WholeShare = 0.5
    """The page suggests the deepest class whose probability reaches this."""
    blind: Share = 0.1
    """Share of the samples that are asked about without a suggestion, to measure how often people merely agree."""
    host: str = "127.0.0.1"
    """The address to listen at. Any other than this machine's own asks for a password: see docs/label.md."""
    port: Port = 0
    """The port; 0 takes a free one."""
    password_file: Path | None = None
    """A file with the password for --host; else LHT_LABEL_PASSWORD in the environment, else you are asked."""
    browser: bool = True
    """Open the page in the browser."""
    seed: Seed = 0
    """Seed for random choices."""


@command("label", "before training")
def run_label(args: LabelArgs) -> None:
    """Label pictures and correct labels on a page in the browser, which learns as you label."""
    from torchlht.serve.label.addresses import is_local
    from torchlht.serve.label.costs import Asking
    from torchlht.serve.label.serving import Wishes, open_browser, serve

    password = None if is_local(args.host) else find_password(args)
    asking = Asking(args.costs(), args.doubts(), args.target, args.strategy, args.seed)
    wishes = Wishes(
        args.run, args.backbone, args.audit, args.blind, args.confidence, args.train_every, asking, args.synonyms, args.learn
    )
    source = args.source()

    def ready(address: str, desk: Desk) -> None:
        console.say(f"{args.data}   {console.plural(len(desk.state), 'sample')}, {len(desk.state.counted()):,} answers so far")
        console.say(f"answers go to {desk.journal.path}")
        if password is not None:
            port = address.rpartition(":")[2].partition("/")[0]
            console.say(f"others can reach this at port {port} of this machine, with the password that you gave. {MEANS}")
        console.say(f"open {address}")
        console.say("end with Ctrl+C")
        if args.browser:
            open_browser(address)

    with contextlib.suppress(KeyboardInterrupt):  # none comes where a shell has started it in the background
        serve(source, wishes, host=args.host, port=args.port, password=password, person=whoami(), ready=ready)
    console.say(f"every answer is saved; next: {shlex.join(['lht', 'label', 'export', args.data, '--out', 'labelled.csv'])}")


def whoami() -> str:
    """The name of who started it; empty if the system does not know."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def find_password(args: LabelArgs) -> str:
    """The password for others. Raises ConfigError if there is none, or it is too short."""
    if args.password_file is not None:
        found = read_text(args.password_file, 1000).strip()
    elif PASSWORD in os.environ:
        found = os.environ[PASSWORD]
    else:
        console.say(f"--host {args.host} lets others in: choose a password for them")
        try:
            found = getpass.getpass("password: ")
        except (EOFError, OSError):
            raise ConfigError(f"`host` needs a password: set {PASSWORD}, or pass `password_file=FILE`") from None
    if len(found) < LEAST:
        raise ConfigError(f"the password has {len(found)} characters; it needs at least {LEAST}")
    return found


@dataclass(frozen=True)
class LabelExportArgs(LabelledArgs):
    """Write labels to a file."""

    out: Path | None = None
    """The file to write; DATA-labelled.csv or .json in the current folder by default."""
    to: Literal["csv", "darwin-core", "label-studio", "npz"] | None = None
    """`csv`: what `lht train` reads; `darwin-core`: a table with its terms; `label-studio`: tasks as JSON; `npz`: features with
    their labels. By default what --out ends in, else what fits the data."""


@command("label export", "before training")
def run_label_export(args: LabelExportArgs) -> None:
    """Write the labels of `lht label` to a file: a table for training, Darwin Core, or Label Studio."""
    from torchlht.serve.label.exporting import export_labels

    written = export_labels(args.source(), args.out, args.to)
    for sentence in written.notes:
        console.say(sentence)
    console.say(f"written to {written.path}: {console.plural(written.samples, 'sample')}, {written.changed:,} by answers")
    console.say(f"next: {shlex.join(['lht', 'train', str(written.path)])}")
