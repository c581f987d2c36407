"""`lht export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from torchlht import console
from torchlht.answer.finding import SUFFIXES
from torchlht.commands.base import RunPlace, StrictArgs, command
from torchlht.data.options import Word
from torchlht.doors import OpenShare, WholeShare

if TYPE_CHECKING:
    from torchlht.answer.exported.write import Written


@dataclass(frozen=True)
class ExportArgs(StrictArgs):
    """Export a run to one file that works without torchlht."""

    run: Annotated[RunPlace, Word("RUN")]
    """A finished run directory, or a model on the hub."""
    to: Literal["onnx", "torch"] | None = None
    """`onnx`: for onnxruntime and other programs that read ONNX; `torch`: a torch.export program (.pt2). By default what --out
    ends in, else `onnx`."""
    out: Path | None = None
    """The file to write; RUN.onnx or RUN.pt2 next to the run by default."""
    confidence: WholeShare | None = None
    """Store this threshold in the file: answers are rolled up to the deepest class whose probability reaches it."""
    risk: OpenShare | None = None
    """Store the threshold for this share of wrong answers in the file; see `lht predict --help`."""


@command("export", "with a trained model")
def run_export(args: ExportArgs) -> None:
    """Export a run to one file, ONNX or torch.export, with everything it needs."""
    from torchlht.answer.exported.write import export

    out = args.out or beside(args.run, SUFFIXES[args.to or "onnx"])
    written = export(args.run, out, to=args.to, confidence=args.confidence, risk=args.risk, strict=args.strict)
    console.say(summary(written))
    inputs = "FILE.npz" if written.metadata["preprocess"] is None else "PICTURE…"
    console.say(f"next: lht predict {written.path} {inputs}")


def beside(run: str, suffix: str) -> Path:
    """The default file of an export: runs/birds.onnx for runs/birds, the current folder for a model on the hub."""
    folder = Path(run)
    if not folder.is_dir():
        return Path(folder.name + suffix)
    named = folder if folder.name not in ("", "..") else folder.resolve()
    return named.with_name(named.name + suffix)


def summary(written: Written) -> str:
    """One line about the exported file."""
    from torchlht.hierarchy.tree import Hierarchy

    threshold = written.metadata["threshold"]
    parts = [
        f"{written.path}",
        f"{written.path.stat().st_size / 1e6:.1f} MB",
        Hierarchy.from_dict(written.metadata["hierarchy"]).describe(),
        f"probabilities agree with the run to {written.difference:.0e}",
        "calibrated" if written.metadata["calibration"] else "not calibrated",
        f"threshold {threshold['value']:.3g} ({threshold['promise']})" if threshold else "no threshold",
    ]
    return " · ".join(parts)
