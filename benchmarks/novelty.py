"""How well a run tells what it was not trained on: whole families and orders are left out of training, AUROC per level.

    python benchmarks/novelty.py cub_lite0.npz --choices 5 --epochs 8 --out runs/novelty

At family level everything left out is new. At order level only samples of the orders left out are: one of a family left out is
known there, since its order has other families. New samples are all samples of what was left out. Of the known test samples one
half is taken for validation samples, as references; the other half is measured. "ours" is what `lht predict` shows; "ours,
distance" what it shows for a run without validation samples, which is fitted to training samples alone.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score
from torch import Tensor

from torchlht import TrainArgs, train
from torchlht.answer.asking import ask_all
from torchlht.answer.model import Model
from torchlht.answer.novelty import ALARMS, Novelty, doubts, fit_novelty, leaves_of
from torchlht.answer.records import read_config
from torchlht.data.batches import FeatureSet
from torchlht.heads.prediction import Prediction
from torchlht.heads.transition.core import sum_children
from torchlht.learn.training import prepare

ORDERS, FAMILIES = 3, 6  # left out in each choice
METHODS, MASKS = ("lht", "multihead"), (0.0, 0.9)
NEIGHBOUR = 10
Bools = NDArray[np.bool_]


class Choice(NamedTuple):
    """What is left out: samples of whole orders, and of families whose order stays."""

    number: int
    orders: Bools
    families: Bools

    @property
    def known(self) -> Bools:
        """The rest."""
        return ~self.orders & ~self.families


def choose(y: NDArray[Any], number: int) -> Choice:
    """A random choice: three orders, not the largest; six families of the other orders, which keep at least one each."""
    rng = np.random.default_rng(number)
    above = dict(y[:, 1:].tolist())  # the order of each family
    largest = int(np.bincount(y[:, 2]).argmax())
    orders = rng.choice([order for order in sorted(set(above.values())) if order != largest], ORDERS, replace=False).tolist()
    out: list[int] = []
    for family in rng.permutation([family for family in sorted(above) if above[family] not in orders]).tolist():
        left = [one for one in above if above[one] == above[family] and one not in out]
        if len(left) > 1 and len(out) < FAMILIES:
            out.append(family)
    return Choice(number, np.isin(y[:, 2], orders), np.isin(y[:, 1], out))


def known_part(data: dict[str, NDArray[Any]], choice: Choice, out: Path) -> Path:
    """The data without what is left out, as an .npz of its own."""
    file = out / f"known-{choice.number}.npz"
    if not file.is_file():
        kept = {name: data[name][choice.known] for name in ("x", "train")} | {"levels": data["levels"]}
        columns = [np.unique(column, return_inverse=True) for column in data["y"][choice.known].T]
        for level, (here, _) in zip(data["levels"], columns, strict=True):
            kept[f"classes_{level}"] = data[f"classes_{level}"][here]
        out.mkdir(parents=True, exist_ok=True)
        np.savez(file, y=np.stack([column for _, column in columns], axis=1), **kept)
    return file


def run_of(file: Path, method: str, mask: float, args: argparse.Namespace) -> Path:
    """A run on the known part, trained now if it is not there yet."""
    run: Path = args.out / f"{file.stem}-{method}-{mask:g}"
    if not (run / "metrics.json").is_file():
        more = {"epochs": args.epochs, "quiet": True, "track": False, "accelerator": "cpu"}
        train(TrainArgs(str(file), run, method=method, mask=mask, **more))
    return run


def logits_of(model: Model, x: Tensor) -> list[Tensor]:
    """(N, C_k) logits per level, fine first; where only the finest has some, those of children summed in log space."""
    with torch.no_grad():
        parts = model.method.neck(x)
        if hasattr(model.method, "heads"):
            return [head(part) for head, part in zip(model.method.heads, parts, strict=True)]
        found = [model.method.classifier(parts[0])]
        for k, parents in enumerate(model.hierarchy.parents):
            found.append(sum_children(found[-1], torch.from_numpy(parents.copy()), model.hierarchy.sizes[k + 1]))
    return found


def nearest(x: Tensor, trained: Tensor) -> Tensor:
    """(N,) minus the cosine with the tenth nearest training sample."""
    unit, against = F.normalize(x, dim=1), F.normalize(trained, dim=1).T
    return torch.cat([-(part @ against).topk(NEIGHBOUR, dim=1).values[:, -1] for part in unit.split(500)])


def scores_of(run: Path, x: Tensor, held: Bools, neighbours: Tensor) -> tuple[dict[str, list[Tensor]], Tensor]:
    """Per way a score per level, fine first, higher for what is new; and (N, K) what `lht predict` shows."""
    model = Model.from_pretrained(run)
    samples = prepare(TrainArgs.from_dict(read_config(run)["train"])).samples
    index, levels = samples.index("train"), len(model.hierarchy)
    assert samples.features is not None
    features, labels = torch.from_numpy(samples.features[index]), torch.from_numpy(samples.labels[index])
    seen, _ = ask_all(model, FeatureSet(features, labels))
    leaves = leaves_of(seen, labels, model.hierarchy)
    said, _ = ask_all(model, FeatureSet(x, torch.full((len(x), levels), -1)))
    rows = torch.from_numpy(held)
    known = Prediction(tuple(log_p[rows] for log_p in said.log_probs))
    ours = fit_novelty(features, leaves, levels, [(x[rows], known)])
    assert ours is not None
    assert ours.space is not None
    logits = logits_of(model, x)
    return {
        "ours": levels_of(ours, said, x),
        "ours, distance": [ours.space.distance(x)] * levels,
        "MSP": [-log_p.amax(dim=1) for log_p in said.log_probs],
        "maximum logit": [-z.amax(dim=1) for z in logits],
        "energy": [-z.logsumexp(dim=1) for z in logits],
        "kNN distance": [neighbours] * levels,
    }, ours.as_far(ours.seen(said, x))


def levels_of(novelty: Novelty, said: Prediction, x: Tensor) -> list[Tensor]:
    """The score of every level."""
    seen = novelty.seen(said, x)
    assert seen.distance is not None
    return [a * seen.distance + b * h for (a, b), h in zip(novelty.weights, doubts(seen), strict=True)]


def auroc(score: Tensor, known: Bools, new: Bools) -> float:
    """In percent: how often a new sample has the higher score."""
    return 100 * float(roc_auc_score(new[known | new], score.numpy()[known | new]))


def main() -> None:
    """Train, score, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--choices", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the number of the first choice")
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/novelty"))
    args = parser.parse_args()
    with np.load(args.data) as file:
        data = dict(file)
    x, rows, flags = torch.from_numpy(data["x"].astype(np.float32)), [], []
    for number in range(args.first, args.first + args.choices):
        choice = choose(data["y"], number)
        test = choice.known & ~data["train"]
        held = test & (np.random.default_rng(number).random(len(test)) < 0.5)
        known, new = test & ~held, ~choice.known
        part = known_part(data, choice, args.out)
        neighbours = nearest(x, x[torch.from_numpy(choice.known & data["train"])])
        for method in METHODS:
            for mask in MASKS:
                found, far = scores_of(run_of(part, method, mask, args), x, held, neighbours)
                print(method, mask, {way: round(auroc(one[1], known, new), 1) for way, one in found.items()}, flush=True)
                where = {"choice": number, "method": method, "mask": mask}
                for way, (_, family, order) in found.items():
                    at = {"family": auroc(family, known, new), "order": auroc(order, known | choice.families, choice.orders)}
                    rows.append({**where, "score": way, **at})
                for who, some in {"known": known, "new family": choice.families, "new order": choice.orders}.items():
                    shares = 100 * (far[torch.from_numpy(some)] < ALARMS).double().mean(dim=0)
                    flags.append({**where, "samples": who, "family": shares[1].item(), "order": shares[2].item()})
    for name, found in {"auroc": rows, "flagged": flags}.items():
        with (args.out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: round(v, 2) if isinstance(v, float) else v for key, v in row.items()} for row in found)
    print(table(rows, "score"), table(flags, "samples"), sep="\n\n")


def table(rows: list[dict[str, Any]], key: str) -> str:
    """Mean ± standard deviation over choices, in Markdown: a row per score or kind of sample."""
    cells = [(method, mask) for method in METHODS for mask in MASKS]
    heads = [f"{method}, {100 * mask:g} % hidden: family / order" for method, mask in cells]
    lines = [f"| {key} | {' | '.join(heads)} |", "|---" * (len(cells) + 1) + "|"]
    for name in dict.fromkeys(row[key] for row in rows):
        told = []
        for method, mask in cells:
            some = [row for row in rows if (row[key], row["method"], row["mask"]) == (name, method, mask)]
            both = [np.array([row[level] for row in some]) for level in ("family", "order")]
            told.append(" / ".join(f"{one.mean():.1f} ± {one.std():.1f}" for one in both))
        lines.append(f"| {name} | {' | '.join(told)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
