"""`lht export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from torchlht import console
from torchlht.answer.finding import GRAPH, SUFFIXES
from torchlht.commands.base import RunPlace, StrictArgs, command, listed
from torchlht.data.options import Word
from torchlht.doors import OpenShare, WholeShare
from torchlht.errors import ConfigError
from torchlht.files import write_text

if TYPE_CHECKING:
    from torchlht.answer.exported.write import Written


@dataclass(frozen=True)
class ExportArgs(StrictArgs):
    """Export a run to one file that works without torchlht."""

    run: Annotated[RunPlace, Word("RUN")]
    """A finished run directory, or a model on the hub."""
    to: Literal["onnx", "torch", "web"] | None = None
    """`onnx`: for onnxruntime and other programs that read ONNX; `torch`: a torch.export program (.pt2); `web`: a page that
    classifies pictures by itself (.html). By default what --out ends in, else `onnx`."""
    out: Path | None = None
    """The file to write; RUN.onnx, RUN.pt2 or RUN.html next to the run by default."""
    confidence: WholeShare | None = None
    """Store this threshold in the file: answers are rolled up to the deepest class whose probability reaches it."""
    risk: OpenShare | None = None
    """Store the threshold for this share of wrong answers in the file; see `lht predict --help`."""
    weights: Literal["float32", "float16", "int8"] | None = None
    """web: how weights are stored; `float16` by default. What that changes is measured, and written into the page."""
    only: str | None = None
    """web: the page starts with only these classes: names at any level, separated by commas, or @FILE."""
    exclude: str | None = None
    """web: the page starts without these classes."""
    runtime: Path | None = None
    """web: the npm package onnxruntime-web, as a folder or what `npm pack` wrote; by default looked for in node_modules and in
    npm's cache."""

    def _check(self) -> None:
        for name in ("weights", "only", "exclude", "runtime"):
            if getattr(self, name) is not None and self.kind() != "web":
                raise ConfigError(f"`{name}` is for `to=web`")

    def kind(self) -> Literal["onnx", "torch", "web"]:
        """The format to write."""
        ends = {end: kind for kind, end in ENDS.items()}
        return self.to or ends.get(self.out.suffix.lower() if self.out else "", "onnx")


ENDS: dict[Literal["onnx", "torch", "web"], str] = {"onnx": SUFFIXES["onnx"], "torch": SUFFIXES["torch"], "web": ".html"}


@command("export", "with a trained model")
def run_export(args: ExportArgs) -> None:
    """Export a run to one file with everything it needs: ONNX, torch.export, or a web page; and a model card beside it."""
    from torchlht.answer.card import card_beside

    out = args.out or beside(args.run, ENDS[args.kind()])
    place, told = card_beside(args.run, out)
    if (Path(args.run) / GRAPH).is_file():
        run_graph(args, out)
    elif args.kind() == "web":
        run_web(args, out)
    else:
        run_tree(args, out)
    write_text(place, told)


def run_tree(args: ExportArgs, out: Path) -> None:
    """Export a run on a tree to ONNX or torch.export."""
    from torchlht.answer.exported.write import export

    assert args.to != "web"
    written = export(args.run, out, to=args.to, confidence=args.confidence, risk=args.risk, strict=args.strict)
    console.say(summary(written))
    inputs = "FILE.npz" if written.metadata["preprocess"] is None else "PICTURE…"
    console.say(f"next: lht predict {written.path} {inputs}")


def run_graph(args: ExportArgs, out: Path) -> None:
    """Export a run whose classes may have several parents."""
    if args.kind() != "onnx":
        raise ConfigError(
            f"`to={args.kind()}` needs classes with one parent each, and one label per sample; export this run with `to=onnx`"
        )
    from torchlht.answer.exported.graphs import export_graph

    found = export_graph(args.run, out, confidence=args.confidence, risk=args.risk, strict=args.strict)
    model = found.model
    parts = [
        f"{found.path.stat().st_size / 1e6:.1f} MB",
        model.graph.describe(),
        f"probabilities agree with the run to {found.difference:.0e}",
        "calibrated" if model.calibration else "not calibrated",
        f"threshold {model.sure.threshold:.3g} ({model.sure.promise})" if model.sure.promise else "no threshold",
    ]
    console.say(" · ".join([str(found.path), *parts]))
    inputs = "FILE.npz" if found.model.preprocess is None else "PICTURE…"
    console.say(f"next: lht predict {found.path} {inputs}")


def run_web(args: ExportArgs, out: Path) -> None:
    """Write a page, and tell what is in it."""
    from torchlht.serve.page import export_page

    page = export_page(
        args.run,
        out,
        weights=args.weights or "float16",
        confidence=args.confidence,
        risk=args.risk,
        strict=args.strict,
        only=listed(args.only),
        exclude=listed(args.exclude),
        runtime=args.runtime,
    )
    console.say(f"{page.path} · {page.path.stat().st_size / 1e6:.1f} MB · {described(page.metadata)}")
    console.say(f"{page.change}")
    console.say(f"ONNX Runtime Web {page.runtime[0]} from {page.runtime[1]} is inside, with its licence")
    console.say(f"next: open {page.path} in a browser; it needs no network")


def beside(run: str, suffix: str) -> Path:
    """The default file of an export: runs/birds.onnx for runs/birds, the current folder for a model on the hub."""
    folder = Path(run)
    if not folder.is_dir():
        return Path(folder.name + suffix)
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(named.name + suffix)


def summary(written: Written) -> str:
    """One line about the exported file."""
    agree = f"probabilities agree with the run to {written.difference:.0e}"
    return f"{written.path} · {written.path.stat().st_size / 1e6:.1f} MB · {described(written.metadata, agree)}"


def described(metadata: dict[str, Any], *more: str) -> str:
    """What an exported file answers about, and how."""
    from torchlht.hierarchy.tree import Hierarchy

    threshold = metadata["threshold"]
    parts = [
        Hierarchy.from_dict(metadata["hierarchy"]).describe(),
        *more,
        "calibrated" if metadata["calibration"] else "not calibrated",
        f"threshold {threshold['value']:.3g} ({threshold['promise']})" if threshold else "no threshold",
    ]
    return " · ".join(parts)
