"""Makes everything else in this folder: artefacts of one version, and what that version answered.

    python tests/golden/make.py [FOLDER]

Run it with the version whose artefacts are to be kept; FOLDER, this one by default, is emptied of what an earlier run made.
Tests do not need it: `tests/integration/test_golden.py` reads what lies here, so that any later version is held to this one.

birds.npz  pictures/  hierarchy.json      made-up data of three levels
runs/                                     a finished run of every method, and of options that change what is written
cut/  whole/                              unfinished runs, and what they have to end as
compare/  lowshot/                        results; in compare/, the runs of the last seed are left out, so that it can go on
lht.onnx  lht.pt2  shards/                exported files, packed pictures
expected/                                 commands and what they printed

Only the command line is used. Whole paths are replaced by relative ones: commands are run where the data lies.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout, suppress
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from torchlht import list_methods
from torchlht.cli import main

HERE = Path(__file__).resolve().parent
LEVELS = ("order", "family", "species")
PATHS = [
    ("Auks", "Puffins", "Horned Puffin"),
    ("Auks", "Puffins", "Tufted Puffin"),
    ("Auks", "Guillemots", "Black Guillemot"),
    ("Gulls", "Kittiwakes", "Red-legged Kittiwake"),
    ("Gulls", "Kittiwakes", "Black-legged Kittiwake"),
    ("Gulls", "Terns", "Arctic Tern"),
]
QUICK = ["--batch-size", "16", "--no-track", "--quiet", "--accelerator", "cpu", "--workers", "0"]
SMALL = ["--width", "8"]
HALF = ["--mask", "0.5", "--epochs", "4"]
VAL = ["--val", "0.3"]  # which makes a run calibrated
CALIBRATED = ("lht", "hrn", "soft-labels", "c-hmcnn", "hiclass", "logistic")
WIDTHS = {name: [] for name in ("hiclass", "logistic", "kt", "sgm")}
WIDTHS |= {"hmcn": ["width=9", "hidden=9"], "hrn": ["width=9", "embedding=9"]}
COMPARE = ["compare", "birds.npz", "--methods", "flat:width=8,lht:width=8", "--mask", "0.5", "--seeds", "3", "--epochs", "2"]
COMPARE += ["--jobs", "1", "--out", "compare"]
LOWSHOT = ["lowshot", "birds.npz", "--methods", "nn,ppa,lht:width=8", "--target", "3", "--groups", "2", "--shots", "1,2"]
LOWSHOT += ["--draws", "2", "--top", "1", "--epochs", "2", "--batch-size", "16", "--ppa-steps", "20", "--out", "lowshot"]
RUNS = {
    "truncated": ["birds.npz", "--form", "truncated", "--columns", "3", *SMALL, *HALF],
    "paper": ["birds.npz", "--preset", "paper", "--epochs", "3", "--width", "9", "--mask", "0.9", "--val", "0.3"],
    "semi": ["birds.npz", "--semi", "both", "--ema", "0.9", *SMALL, *HALF, *VAL],
    "rules": ["birds.npz", "--rules", "crm", "top_down", "--select", "best", "--option", "width=8", *HALF, *VAL],
    "linear": ["birds.npz", "--backbone", "linear", "--method", "marginal", *SMALL, *HALF],
    "pictures": ["pictures/pictures.csv", "--backbone", "small", "--image-size", "16", *SMALL, "--epochs", "2"],
}
CUT = {  # options, and after how many checkpoints the run is interrupted
    "epochs": (["--select", "best", "--val", "0.3", "--mask", "0.5", "--epochs", "5", *SMALL], 2),
    "steps": (["--checkpoint-every", "2", "--semi", "both", "--mask", "0.5", "--epochs", "4", *SMALL], 4),
}


# ---- data ----------------------------------------------------------------------------------------------------------


def write_embeddings(file: Path) -> None:
    """Features of 6 species, 20 training and 8 test samples each; neighbours in the tree are alike, and some are mistaken."""
    rng = np.random.default_rng(0)
    families, orders = sorted({path[1] for path in PATHS}), sorted({path[0] for path in PATHS})
    table = np.array([[i, families.index(f), orders.index(o)] for i, (o, f, _) in enumerate(PATHS)])
    species = np.repeat(np.arange(6), 28)
    centres = rng.normal(size=(6, 8)) + rng.normal(size=(4, 8))[table[:, 1]] + rng.normal(size=(2, 8))[table[:, 2]]
    np.savez_compressed(
        file,
        x=(centres[species] + rng.normal(size=(len(species), 8))).astype(np.float32),
        y=table[species],
        train=np.arange(len(species)) % 28 < 20,
        levels=np.array(LEVELS[::-1]),
        classes_species=np.array([path[2] for path in PATHS]),
        classes_family=np.array(families),
        classes_order=np.array(orders),
    )


def write_pictures(folder: Path) -> None:
    """Two small pictures of each species and a table of them: one to learn from, where some species are blank, one to test."""
    rng, lines = np.random.default_rng(1), ["path,order,family,species,split"]
    folder.mkdir()
    for i, path in enumerate(PATHS):
        for split in ("train", "test"):
            colour = np.array([40 * i, 255 - 40 * i, (90 * i) % 255])
            noisy = np.clip(colour + rng.normal(0, 20, (12, 14, 3)), 0, 255).astype(np.uint8)
            name = f"{path[2].replace(' ', '-')}-{split}.png"
            Image.fromarray(noisy).save(folder / name)
            shown = (*path[:2], "" if i == 2 and split == "train" else path[2])
            lines.append(",".join([name, *shown, split]))
    (folder / "pictures.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- artefacts -----------------------------------------------------------------------------------------------------


def cut_short(words: list[str], checkpoints: int) -> None:
    """Run a command until so many checkpoints have been written, and history.csv besides if it is written then."""
    replace, written = Path.replace, []

    def counting(self: Path, target: Path) -> Path:
        if len(written) == checkpoints and Path(target).name != "history.csv":
            raise KeyboardInterrupt
        written.extend([1] if Path(target).name == "last.safetensors" else [])
        return replace(self, target)

    Path.replace = counting  # type: ignore[method-assign]
    with suppress(SystemExit):
        main(words)
    Path.replace = replace  # type: ignore[method-assign]
    assert len(written) == checkpoints, "it ended, or failed, before it was interrupted"


def write_runs() -> None:
    for name in list_methods():
        words = ["--option", *WIDTHS.get(name, ["width=9"]), *HALF, *(VAL if name in CALIBRATED else [])]
        main(["train", "birds.npz", "--method", name, *words, *QUICK, "--out", f"runs/{name}"])
    for name, words in RUNS.items():
        main(["train", *words, *QUICK, "--out", f"runs/{name}"])
    for name, (words, checkpoints) in CUT.items():
        main(["train", "birds.npz", *words, *QUICK, "--out", f"whole/{name}"])
        cut_short(["train", "birds.npz", *words, *QUICK, "--out", f"cut/{name}"], checkpoints)


def write_results() -> None:
    main(COMPARE)
    for run in Path("compare/runs").glob("*-s2"):
        shutil.rmtree(run)
    main(LOWSHOT)


def write_files() -> None:
    shutil.copy("runs/lht/hierarchy.json", "hierarchy.json")
    main(["export", "runs/lht", "--risk", "0.4", "--out", "lht.onnx"])
    main(["export", "runs/lht", "--to", "torch", "--confidence", "0.7", "--out", "lht.pt2"])
    main(["data", "pack", "pictures/pictures.csv", "--per-shard", "5", "--out", "shards"])


# ---- answers -------------------------------------------------------------------------------------------------------


def commands() -> dict[str, list[str]]:
    """Commands whose output is kept, by the name it is kept under."""
    few, shown = ["--limit", "12"], ["--format", "json", "--top", "2"]
    found = {f"evaluate-{name}": ["evaluate", f"runs/{name}", "--json"] for name in ("lht", "hrn", "pictures")}
    for name in ("lht", "hrn", "soft-labels", "hiclass", "logistic"):
        found[f"predict-{name}"] = ["predict", f"runs/{name}", "birds.npz", *few, *shown]
    return found | {
        "evaluate-answers": ["evaluate", "runs/lht", "--json", "--confidence", "0.5,0.9", "--risk", "0.4", "--rule", "path"],
        "evaluate-other-data": ["evaluate", "runs/lht", "birds.npz", "--split", "all", "--json"],
        "evaluate-shards": ["evaluate", "runs/pictures", "shards", "--json"],
        "predict-confidence": ["predict", "runs/lht", "birds.npz", *few, *shown, "--confidence", "0.8"],
        "predict-risk": ["predict", "runs/lht", "birds.npz", *few, *shown, "--risk", "0.4"],
        "predict-only": ["predict", "runs/lht", "birds.npz", *few, *shown, "--only", "Puffins,Arctic Tern", "--rule", "crm"],
        "predict-csv": ["predict", "runs/lht", "birds.npz", *few, "--format", "csv", "--confidence", "0.8"],
        "predict-onnx": ["predict", "lht.onnx", "birds.npz", *few, *shown],
        "predict-torch": ["predict", "lht.pt2", "birds.npz", *few, *shown],
        "predict-pictures": ["predict", "runs/pictures", "pictures", *shown],
        "predict-shards": ["predict", "runs/pictures", "shards", "--format", "json"],
        "calibrate-lht": ["calibrate", "runs/lht", "--json"],
        "hierarchy": ["hierarchy", "show", "hierarchy.json"],
    }


def write_expected() -> None:
    Path("expected").mkdir()
    for name, words in commands().items():
        said = io.StringIO()
        with redirect_stdout(said):
            main(words)
        text = said.getvalue()
        output = json.loads(text) if "--json" in words or "json" in words else text
        kept = json.dumps({"command": words, "output": output}, ensure_ascii=False, indent=None) + "\n"
        Path("expected", f"{name}.json").write_text(kept, encoding="utf-8")


# ---- all of it -----------------------------------------------------------------------------------------------------


def forget_the_place(root: Path) -> None:
    """Replace whole paths by relative ones in text files; complain of any that is left."""
    for file in (path for path in root.rglob("*") if path.is_file()):
        if file.suffix == ".png" and file.parent.name != "pictures":
            file.unlink()  # figures: large, and nobody reads them back
            continue
        content = file.read_bytes()
        if file.suffix in (".yaml", ".json", ".csv", ".md"):
            content = content.replace(f"{root}/".encode(), b"")
            file.write_bytes(content)
        assert str(root).encode() not in content, f"{file}: knows where it was made"


def make(folder: Path) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        os.environ["LHT_CACHE"] = f"{place}/cache"
        root = Path(place).resolve() / "golden"
        root.mkdir()
        os.chdir(root)
        write_embeddings(Path("birds.npz"))
        write_pictures(Path("pictures"))
        write_runs()
        write_results()
        write_files()
        write_expected()
        forget_the_place(root)
        for made in root.iterdir():
            old = folder / made.name
            shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
            shutil.move(made, old)
        os.chdir(folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE)
