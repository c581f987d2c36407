"""The picture of the README: what a run says about test pictures of the drawn birds.

python docs/figures.py runs/birds docs/result.jpg
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

import torchlht

RIGHT, WRONG, PAPER = "#2f7d4f", "#b4472f", "#faf9f6"


def main(run: Path, out: Path, count: int = 10) -> None:
    """Draw `count` test pictures with the answers of a run, right ones green."""
    model, samples = torchlht.load(run), torchlht.read_data("demo")
    tree = samples.hierarchy
    chosen = np.random.default_rng(7).choice(samples.index("test"), count, replace=False)
    answers = model.predict([samples.images[i] for i in chosen])
    figure, axes = plt.subplots(2, count // 2, figsize=(2.5 * count / 2, 6.6), facecolor=PAPER)
    for axis, i, answer in zip(axes.flat, chosen, answers, strict=True):
        axis.imshow(samples.images[i].open().resize((256, 256), Image.Resampling.LANCZOS))
        axis.set_axis_off()
        for line, (k, level) in enumerate(zip(tree.top_down, answer.levels, strict=True)):
            right = level.label == tree.classes[k][samples.labels[i, k]]
            text = f"{level.label}  {level.probability:.0%}"
            axis.text(0, -0.04 - 0.1 * line, text, transform=axis.transAxes, fontsize=9.5,
                      color=RIGHT if right else WRONG, va="top")  # fmt: skip
        truth = tree.classes[0][samples.labels[i, 0]]
        axis.set_title(truth, fontsize=9, loc="left", color="#555")
    figure.subplots_adjust(left=0.02, right=0.98, top=0.94, bottom=0.14, wspace=0.12, hspace=0.5)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
