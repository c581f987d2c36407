"""How long one waits for the first answer, as ratios to what other programs import at least.

    python benchmarks/startup.py [--rounds 7] [--tyro DIR]

Each line is a process of its own, and its rival is another. They take turns, and medians are compared. Times are those that a
process spends on a CPU, as other programs disturb these least. Every process has run once before: files are compiled.

- `rich, tyro`: what a command line made with tyro imports before it reads an option. tyro is no dependency of torchlht: install
  it into a folder of its own, `uv pip install --target DIR tyro`, and pass that.
- `torch, timm, torchvision + pass`: importing what a picture needs, and one pass of the same backbone over a picture. Building
  the network, reading its weights, the tree and the picture come on top: they are what `lht` has to add.
- `torch`: what training and predicting on features cannot do without.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from PIL import Image

from torchlht import Hierarchy, Model, create_method
from torchlht.answer.backbones import create_backbone

LHT = "from torchlht.cli import main; main()"
BACKBONE = "resnet50"
TYRO, PICTURES, TORCH = "import rich, tyro", "import torch, timm, torchvision", "import torch"
PASS = f"""
import time, torch, timm, torchvision
network, x = timm.create_model("{BACKBONE}", num_classes=0).eval(), torch.zeros(1, 3, 224, 224)
with torch.inference_mode():
    started = time.process_time()
    network(x)
    print(time.process_time() - started)
"""
FIT = """
import numpy as np
from torchlht.sklearn import HierarchicalClassifier

x = np.random.default_rng(0).normal(size=(60, 8)).astype("float32")
names = [("AB"[i % 4 // 2], "abcd"[i % 4]) for i in range(60)]
HierarchicalClassifier("lht").fit(x, names).predict(x)
"""


class Line(NamedTuple):
    """A process, its rival, and how many times the rival's time it may take, if that was promised."""

    name: str
    code: str
    words: tuple[str, ...]
    rival: str
    most: float | None


LINES = (
    Line("lht --help", LHT, ("--help",), TYRO, 2.0),
    Line("lht train nosuch", LHT, ("train", "nosuch"), TYRO, 2.0),
    Line("lht train --mask 2", LHT, ("train", "--mask", "2"), TYRO, 2.0),
    Line("lht train . --method nope", LHT, ("train", ".", "--method", "nope"), TYRO, None),
    Line("lht predict nosuch x.jpg", LHT, ("predict", "nosuch", "x.jpg"), TYRO, None),
    Line(f"lht predict RUN one.jpg ({BACKBONE})", LHT, ("predict", "run", "one.jpg"), PICTURES, 1.5),
    Line("lht predict RUN one.jpg (small)", LHT, ("predict", "small", "one.jpg"), PICTURES, None),
    Line("import torchlht.answer.model", "import torchlht.answer.model", (), TORCH, None),
    Line("import torchlht.learn.training", "import torchlht.learn.training", (), TORCH, None),
    Line("import, fit and predict in scikit-learn's words", FIT, (), TORCH, None),
)


def make_runs(folder: Path) -> None:
    """A run with a large backbone, one with a small one, both untrained, and a picture."""
    tree = Hierarchy.from_paths([(f"family {i // 5}", f"species {i}") for i in range(200)], ["family", "species"])
    for name, backbone in (("run", create_backbone(BACKBONE, pretrained=False)), ("small", create_backbone("small"))):
        Model(backbone, create_method("lht", backbone.num_features, tree), options={}).save_pretrained(folder / name)
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "one.jpg")


def seconds(code: str, words: tuple[str, ...], folder: Path, tyro: Path | None) -> float:
    """The time that a process spends on a CPU."""
    unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")  # compiled files are kept, as in any installation
    env = {name: value for name, value in os.environ.items() if name not in unset} | {"OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), *([str(tyro)] if tyro else [])])
    out = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, "-c", code, *words], cwd=folder, env=env, stdout=out, stderr=out) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 2):  # 2 is how lht refuses
        raise SystemExit(f"{code.strip().splitlines()[-1]} {' '.join(words)}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime


def pass_seconds(folder: Path) -> float:
    """The time of the first pass of the backbone over a picture."""
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return float(subprocess.run([sys.executable, "-c", PASS], cwd=folder, env=env, capture_output=True, check=True).stdout)


def main() -> None:
    """Measure, and print the table of startup.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tyro", type=Path, help="where tyro is installed, if not here")
    asked = parser.parse_args()
    rivals = list(dict.fromkeys(line.rival for line in LINES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder)
        found: dict[str, list[float]] = {}
        for turn in range(asked.rounds + 1):
            for key, code, words in [*((line.name, line.code, line.words) for line in LINES), *((r, r, ()) for r in rivals)]:
                used = seconds(code, words, folder, asked.tyro)
                if turn:  # the first one compiles and fills caches
                    found.setdefault(key, []).append(used)
        middle = {key: median(values) for key, values in found.items()}
        middle[PICTURES] += median(pass_seconds(folder) for _ in range(3))
    print("| process | CPU seconds | rival | its seconds | ratio | promised |\n|---|---:|---|---:|---:|---:|")
    for line in LINES:
        rival = line.rival.removeprefix("import ") + (" + pass" if line.rival == PICTURES else "")
        ratio, most = middle[line.name] / middle[line.rival], "" if line.most is None else f"{line.most:g}"
        print(f"| `{line.name}` | {middle[line.name]:.2f} | {rival} | {middle[line.rival]:.2f} | {ratio:.2f} | {most} |")


if __name__ == "__main__":
    main()
