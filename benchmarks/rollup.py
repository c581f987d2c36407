"""What rolled-up answers are worth: shares answered at each level and errors against what was promised, over seeds.

    python benchmarks/rollup.py DATA --mask 0.9 --val 0.2 --seeds 5 --out runs/rollup

Trains lht (and lht with --semi both) once per seed, unless the runs are there already; calibrates on validation samples that
keep only the labels the mask left them, or with --folds 5 on the training samples by turns; measures on the test samples. Then
checks the guarantee of --risk where it speaks: over many draws of validation samples, here out of the test samples of the first
run, masked anew each time.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchlht
from torchlht import TrainArgs, train
from torchlht.answer.asking import ask_all
from torchlht.answer.calibration import fit_calibration
from torchlht.answer.model import Model
from torchlht.answer.named import wanted
from torchlht.errors import ConfigError
from torchlht.heads.prediction import Prediction
from torchlht.learn.training import calibrate, cross_calibrate
from torchlht.measure.evaluation import evaluate, run_inputs
from torchlht.measure.operating import Decisions, operating_point

CONFIDENCES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
RISKS = (0.01, 0.05, 0.1)
METHODS: dict[str, dict[str, Any]] = {"lht": {}, "lht:semi=both": {"semi": "both"}}


def runs_of(args: argparse.Namespace, name: str) -> list[Path]:
    """A run per seed, trained now where it is not there yet."""
    found = []
    for seed in range(args.seeds):
        out = args.out / f"{name.replace(':', '-').replace('=', '-')}-s{seed}"
        if not (out / "metrics.json").is_file():
            val = None if args.folds else args.val
            train(TrainArgs(args.data, out, mask=args.mask, val=val, seed=seed, quiet=True, track=False, **METHODS[name]))
        if args.folds:
            cross_calibrate(out, args.folds)
        else:
            calibrate(out)
        found.append(out)
    return found


def measured(runs: list[Path]) -> list[dict[str, Any]]:
    """Metrics of each run with an operating point per promise; those that cannot be made are left out."""
    found = []
    for run in runs:
        model = Model.from_pretrained(run)
        assert model.calibration is not None
        risks = [r for r in RISKS if _can(model, r, strict=False)]
        metrics = evaluate(run, confidences=CONFIDENCES, risks=risks)
        strict = [r for r in RISKS if _can(model, r, strict=True)]
        metrics["answers"] += evaluate(run, risks=strict, strict=True)["answers"] if strict else []
        found.append(metrics)
    return found


def _can(model: Model, risk: float, *, strict: bool) -> bool:
    try:
        wanted(None, risk, "own", model.calibration, strict=strict)
    except ConfigError:
        return False
    return True


def mean_std(values: list[float]) -> str:
    """Mean ± standard deviation in percent."""
    numbers = 100 * np.array(values)
    return f"{numbers.mean():.1f} ± {numbers.std(ddof=1):.1f}" if len(numbers) > 1 else f"{numbers.mean():.1f}"


def rollup_table(found: list[dict[str, Any]]) -> str:
    """A row per promise, over the seeds that could make it."""
    levels = [level["name"] for level in found[0]["levels"]]
    head = [
        "asked for",
        *(f"{name} %" for name in levels),
        "no answer %",
        "wrong of answers %",
        "information %",
        "threshold",
        "seeds",
    ]
    rows = [head, ["---"] * len(head)]
    promises = dict.fromkeys(point["promise"] for metrics in found for point in metrics["answers"])
    for promise in promises:
        points = [point for metrics in found for point in metrics["answers"] if point["promise"] == promise]
        shares = [mean_std([point["levels"][k]["answered"] for point in points]) for k in range(len(levels))]
        none, wrong = mean_std([1 - point["answered"] for point in points]), mean_std([point["error"] or 0 for point in points])
        info, at = mean_std([point["information"] for point in points]), f"{np.mean([p['threshold'] for p in points]):.3f}"
        rows.append([promise, *shares, none, wrong, info, at, str(len(points))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def calibration_table(found: list[dict[str, Any]]) -> str:
    """Accuracy and calibration error per level, before and after."""
    rows = [["level", "accuracy %", "ECE before %", "ECE after %"], ["---"] * 4]
    for k, level in enumerate(found[0]["levels"]):
        names = ("accuracy", "ece", "ece_calibrated")
        rows.append([level["name"], *(mean_std([metrics["levels"][k][n] for metrics in found]) for n in names)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def guarantee_table(run: Path, *, draws: int, size: int, fine: float) -> str:
    """Over many draws of validation samples out of the test samples: the mean share of wrong answers on the others."""
    model, _, data = run_inputs(run, "test")
    prediction, labels = ask_all(model, data)
    levels = prediction.log_probs
    rng = np.random.default_rng(0)
    wrong: dict[tuple[float, bool], list[float]] = {}
    error: dict[tuple[float, bool], list[float]] = {}
    refused: dict[tuple[float, bool], int] = {}
    for _ in range(draws):
        order = torch.from_numpy(rng.permutation(len(labels)))
        val, rest = order[:size], order[size:]
        seen = labels[val].clone()
        seen[torch.from_numpy(rng.random(size) >= fine), 0] = -1
        calibration = fit_calibration(Prediction(tuple(p[val] for p in levels)), seen, model.hierarchy)
        decisions = Decisions.of(calibration.apply(Prediction(tuple(p[rest] for p in levels))), labels[rest])
        for risk in RISKS:
            for strict in (False, True):
                key = (risk, strict)
                try:
                    threshold = calibration.threshold(risk, strict=strict)
                except ConfigError:
                    refused[key] = refused.get(key, 0) + 1
                    continue
                point = operating_point(decisions, model.hierarchy, threshold)
                wrong.setdefault(key, []).append(point["wrong"])
                error.setdefault(key, []).append(point["error"] or 0)
    rows = [
        ["promise", "counting", "draws", "refused", "wrong of samples %", "wrong of answers %", "5th…95th percentile"],
        ["---"] * 7,
    ]
    for (risk, strict), values in sorted(error.items()):
        mean, se = 100 * np.mean(values), 100 * np.std(values) / np.sqrt(len(values))
        low, high = 100 * np.quantile(values, [0.05, 0.95])
        row = [f"{risk:.0%}", "strict" if strict else "weighted", str(len(values)), str(refused.get((risk, strict), 0))]
        rows.append([*row, f"{100 * np.mean(wrong[risk, strict]):.2f}", f"{mean:.2f} ± {se:.2f}", f"{low:.1f}…{high:.1f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def write_csv(path: Path, found: dict[str, list[dict[str, Any]]]) -> None:
    """Every operating point of every run."""
    names = (
        "promise",
        "threshold",
        "samples",
        "answered",
        "error",
        "wrong",
        "depth",
        "information",
        "hierarchical_f1",
        "severity",
    )
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        levels = [level["name"] for level in next(iter(found.values()))[0]["levels"]]
        writer.writerow(["method", "seed", *names, *(f"answered_{n}" for n in levels), *(f"error_{n}" for n in levels)])
        for method, runs in found.items():
            for seed, metrics in enumerate(runs):
                for point in metrics["answers"]:
                    shares = [level[n] for n in ("answered", "error") for level in point["levels"]]
                    row = [point[n] for n in names[1:]] + shares
                    writer.writerow([method, seed, point["promise"], *("" if v is None else f"{v:.5g}" for v in row)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--mask", type=float, default=0.9)
    parser.add_argument("--val", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for name in METHODS:
        runs = runs_of(args, name)
        found[name] = measured(runs)
        print(f"## {name}\n\n{calibration_table(found[name])}\n\n{rollup_table(found[name])}\n", flush=True)
        size = round(args.val * len(torchlht.read_data(args.data).index("train")))
        if not args.folds:
            print(f"{guarantee_table(runs[0], draws=args.draws, size=size, fine=1 - args.mask)}\n", flush=True)
    write_csv(args.out / "rollup.csv", found)


if __name__ == "__main__":
    main()
