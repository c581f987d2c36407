"""`lht reproduce hmc`: the fifteen sets of hierarchical multi-label classification, with C-HMCNN as published and our best.

Published figures and settings: Giunchiglia and Lukasiewicz, NeurIPS 2020: train and valid parts together, three layers, dropout
0.7, Adam with weight decay 1e-5, batches of 4, mean of 10 seeds.
"""

from __future__ import annotations

import shutil
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path
from statistics import mean
from typing import Any

from torchlht import console
from torchlht.answer.records import read_metrics
from torchlht.errors import DataError
from torchlht.files import csv_text, replacing, write_text
from torchlht.lab.options import CompareArgs, ReproduceArgs
from torchlht.learn.options import TrainArgs
from torchlht.learn.several import train_several


@dataclass(frozen=True)
class Published:
    """A set: the published AU(PRC), and the width, learning rate and epochs that it was reached with."""

    name: str
    auprc: float
    width: int
    lr: float
    epochs: int


# fmt: off
SETS = (
    Published("cellcycle_FUN", 0.255, 500, 1e-4, 106),
    Published("derisi_FUN", 0.195, 500, 1e-4, 67),
    Published("gasch1_FUN", 0.286, 1000, 1e-4, 42),
    Published("gasch2_FUN", 0.258, 500, 1e-4, 123),
    Published("seq_FUN", 0.292, 2000, 1e-4, 13),
    Published("spo_FUN", 0.215, 250, 1e-4, 115),
    Published("cellcycle_GO", 0.413, 1000, 1e-4, 62),
    Published("derisi_GO", 0.370, 500, 1e-4, 91),
    Published("eisen_GO", 0.455, 500, 1e-4, 123),
    Published("gasch1_GO", 0.436, 500, 1e-4, 122),
    Published("seq_GO", 0.446, 9000, 1e-4, 45),
    Published("spo_GO", 0.382, 500, 1e-4, 103),
    Published("Diatoms", 0.758, 2000, 1e-5, 474),
    Published("Enron_corr", 0.756, 1000, 1e-5, 133),
    Published("ImCLEF07A", 0.956, 1000, 1e-5, 592),
)
# fmt: on
TRAINING = ("train", "trainvalid")
QUICK = {"batch": 16, "lr": 4.0, "width": 1000}
"""At small scale: samples per step, the factor of the learning rate that goes with it, and the widest network."""
COLUMNS = ("set", "arm", "mask", "seed", "auprc", "f1_micro", "f1_macro", "seconds")


def reproduce_hmc(args: ReproduceArgs) -> Path:
    """Train what is not trained yet, and write results.csv and table.md; returns their directory.

    Raises:
        DataError: when `root` is missing, or holds none of the sets.
    """
    if args.root is None:
        raise DataError("hmc needs its ARFF files: pass the folder or the .zip that holds them with `root`")
    out = args.out or Path("runs") / f"hmc-{args.scale}"
    root = unpacked(args.root, out / "sets")
    files = {one: find_set(root, one.name) for one in SETS}
    if not any(files.values()):
        raise DataError(f"{args.root}: holds none of the sets, such as {SETS[0].name}.train.arff")
    for part, one, file, arm, mask, seed in planned(args, files):
        folder = out / "runs" / f"{part}-{one.name}-s{seed}"
        if not (folder / "metrics.json").is_file():
            console.note(f"{one.name}: {arm}, seed {seed}, {mask:.0%} hidden", quiet=False)
            train_several(options_of(args, one, file, arm, mask, seed, folder))
            for heavy in ("model.safetensors", "graph.json"):
                (folder / heavy).unlink(missing_ok=True)  # fifteen sets would take gigabytes
        write_tables(args, out, files)
    return write_tables(args, out, files)


def unpacked(root: Path, folder: Path) -> Path:
    """The folder that holds the sets; those of a .zip are unpacked once, into `folder`. Raises DataError if they cannot be."""
    if root.suffix.lower() != ".zip" or not root.is_file():
        return root
    try:
        with zipfile.ZipFile(root) as archive:
            for one in archive.infolist():
                file = folder / Path(one.filename).name
                if file.suffix.lower() == ".arff" and not file.is_file():
                    with archive.open(one) as packed, replacing(file) as beside, beside.open("wb") as written:
                        shutil.copyfileobj(packed, written)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, LZMAError, zlib.error) as error:
        raise DataError(f"{root}: cannot be unpacked ({error}); unpack it, and pass the folder") from None
    return folder


def find_set(root: Path, name: str) -> Path | None:
    """The training part of a set anywhere in a folder, or None."""
    for file in sorted(root.rglob("*.arff")):
        if file.stem.lower() in {f"{name}{mark}{part}".lower() for mark in "._" for part in TRAINING}:
            return file
    return None


Job = tuple[str, Published, Path, str, float, int]


def planned(args: ReproduceArgs, files: dict[Published, Path | None]) -> Iterator[Job]:
    """Every run, arms side by side; parts are named published-0, ours-0, published-50, ours-50, each with -SET after it."""
    seeds = CompareArgs("", Path(), seeds=args.seeds or 1).seed_list()
    for seed in seeds:
        for mask in (0.0, 0.5):
            for one, file in files.items():
                for arm in ("published", "ours"):
                    part = f"{arm}-{mask * 100:.0f}"
                    asked = not args.part_names() or any(f"{part}-{one.name}".startswith(word) for word in args.part_names())
                    if file is not None and asked:
                        yield part, one, file, arm, mask, seed


def options_of(args: ReproduceArgs, one: Published, file: Path, arm: str, mask: float, seed: int, folder: Path) -> TrainArgs:
    """The options of one run."""
    resume = folder if (folder / "config.yaml").is_file() else None
    common: dict[str, Any] = {"data": str(file), "out": folder, "mask": mask, "mask_seed": seed, "seed": seed, "quiet": True}
    if arm == "ours":
        return TrainArgs(**common, resume=resume, method="lht", epochs=args.epochs)
    quick = args.scale == "small"
    width = min(one.width, int(QUICK["width"])) if quick else one.width
    return TrainArgs(
        **common,
        resume=resume,
        method="c-hmcnn",
        val=0.0,
        option=(f"width={width}", "dropout=0.7"),
        batch_size=int(QUICK["batch"]) if quick else 4,
        lr=one.lr * QUICK["lr"] if quick else one.lr,
        weight_decay=1e-5,
        epochs=args.epochs or one.epochs,
    )


# ---- tables --------------------------------------------------------------------------------------------------------


def results(args: ReproduceArgs, out: Path, files: dict[Published, Path | None]) -> list[dict[str, Any]]:
    """A row for every finished run."""
    rows = []
    for part, one, _, arm, mask, seed in planned(args, files):
        folder = out / "runs" / f"{part}-{one.name}-s{seed}"
        if (folder / "metrics.json").is_file():
            found = read_metrics(folder)
            values = {name: round(found[name], 4) for name in ("auprc", "f1_micro", "f1_macro")}
            seconds = round(found["train_seconds"], 1)
            rows.append({"set": one.name, "arm": arm, "mask": mask, "seed": seed, **values, "seconds": seconds})
    return rows


def write_tables(args: ReproduceArgs, out: Path, files: dict[Published, Path | None]) -> Path:
    """Write results.csv and table.md; returns the directory."""
    rows = results(args, out, files)
    write_text(out / "results.csv", csv_text([COLUMNS, *([row[name] for name in COLUMNS] for row in rows)]))
    write_text(out / "table.md", document(args, rows))
    return out


def document(args: ReproduceArgs, rows: Sequence[dict[str, Any]]) -> str:
    """table.md: published, c-hmcnn here, ours, and both with half of the most specific labels hidden."""
    header = ("set", "published", "c-hmcnn", "difference", "lht", "c-hmcnn, 50 % hidden", "lht, 50 % hidden")
    lines = ["# AU(PRC) on fifteen sets", "", f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for one in SETS:
        cells = [average(rows, one.name, arm, mask) for mask in (0.0, 0.5) for arm in ("published", "ours")]
        difference = "–" if cells[0] is None else f"{cells[0] - one.auprc:+.3f}"
        texts = ["–" if cell is None else f"{cell:.3f}" for cell in cells]
        lines.append(f"| {one.name} | {one.auprc:.3f} | {texts[0]} | {difference} | {' | '.join(texts[1:])} |")
    seeds = len({row["seed"] for row in rows})
    return "\n".join([*lines, "", *sentences(rows), f"Scale {args.scale}; seeds: {seeds}. Published: the mean of ten.", ""])


def average(rows: Sequence[dict[str, Any]], name: str, arm: str, mask: float) -> float | None:
    """The mean AU(PRC) of a set over seeds, or None if it has not been run."""
    found = [row["auprc"] for row in rows if (row["set"], row["arm"], row["mask"]) == (name, arm, mask)]
    return mean(found) if found else None


def sentences(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What the table says."""
    near = [average(rows, one.name, "published", 0.0) for one in SETS]
    done = [(found, one.auprc) for found, one in zip(near, SETS, strict=True) if found is not None]
    close = sum(abs(found - published) <= 0.01 for found, published in done)
    yield f"c-hmcnn is within 0.01 of the published figure on {close} of {len(done)} sets."
    for mask, what in ((0.0, "with all labels"), (0.5, "with half of the most specific labels hidden")):
        pairs = [(average(rows, one.name, "ours", mask), average(rows, one.name, "published", mask)) for one in SETS]
        both = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
        if both:
            ahead = sum(gap > 0 for gap in both)
            yield f"lht minus c-hmcnn {what}: {mean(both):+.4f} on average, ahead on {ahead} of {len(both)} sets."
