"""Wrong labels planted among real ones: how well `lht audit` and cleanlab find them. See audit.md.

python benchmarks/audit.py labels birds.npz --draws 0 1 2 3 4 --out benchmarks/results/audit-labels.csv
python benchmarks/audit.py bound birds.npz --draws 100 101 102
python benchmarks/audit.py tree birds.npz
python benchmarks/audit.py train birds.npz --draws 0 1 2
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from torchlht import Mask, Samples, read_data
from torchlht.lab.perturbing import Perturbation
from torchlht.learn.alone import Alone
from torchlht.learn.audit.auditing import list_labels
from torchlht.learn.audit.discriminant import Opinions, choose_parts, form_opinions, learn
from torchlht.learn.audit.placing import misplaced
from torchlht.learn.audit.wrong import Doubts, class_log_probs, count_wrong, find_doubts


def plant(samples: Samples, share: float, seed: int) -> tuple[Samples, np.ndarray]:
    """Samples with a share of wrong labels, and the kind of each: 0 right, 1 sibling, 2 anywhere, 3 another family.

    Of the samples with a species, half get that of a sibling, half any other; of those with a family only, another family.
    """
    tree, labels, kind = samples.hierarchy, samples.labels.copy(), np.zeros(len(samples), dtype=int)
    parents, random = tree.parents[0], np.random.default_rng([seed, 77])
    fine = np.flatnonzero(labels[:, 0] >= 0)
    for n, i in enumerate(random.permutation(fine)[: round(share * len(fine))].tolist()):
        own = labels[i, 0]
        siblings = np.flatnonzero((parents == parents[own]) & (np.arange(len(parents)) != own))
        near = n % 2 == 0 and len(siblings) > 0
        wrong = int(random.choice(siblings)) if near else int((own + random.integers(1, len(parents))) % len(parents))
        labels[i], kind[i] = tree.path(wrong), 1 if near else 2
    coarse = np.flatnonzero((samples.labels[:, 0] < 0) & (samples.labels[:, 1] >= 0))
    for i in random.permutation(coarse)[: round(share * len(coarse))].tolist():
        wrong = int((labels[i, 1] + random.integers(1, tree.sizes[1])) % tree.sizes[1])
        labels[i, 1:], kind[i] = [tree.ancestors(k, of=1)[wrong] for k in range(1, len(tree))], 3
    return dataclasses.replace(samples, labels=labels), kind


def logistic(samples: Samples) -> list[tuple[np.ndarray, np.ndarray]]:
    """What cleanlab is usually given: out-of-fold probabilities of a logistic regression, for species and for families."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    found = []
    for k in (0, 1):
        rows = np.flatnonzero(samples.labels[:, k] >= 0)
        _, own = np.unique(samples.labels[rows, k], return_inverse=True)
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=60, C=0.01))
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        found.append((own, cross_val_predict(model, samples.features[rows], own, cv=folds, method="predict_proba")))
    return found


def trained(samples: Samples, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Our own probabilities: those of `marginal`, trained quickly, out of five folds."""
    from torchlht.answer.asking import ask_all
    from torchlht.data.batches import FeatureSet
    from torchlht.learn.memory import given_samples
    from torchlht.learn.memory import learn as fit
    from torchlht.learn.options import TrainArgs

    x, y, fold = samples.features, samples.labels, choose_parts(samples, 5, seed)
    probs = [np.zeros((len(samples), size)) for size in samples.hierarchy.sizes]
    for part in range(5):
        seen, held = fold != part, fold == part
        torch.manual_seed(10 * seed + part)
        given = given_samples(x[seen], y[seen], samples.hierarchy)
        model, _, _ = fit(TrainArgs("x", method="marginal", quiet=True), given, Alone(torch.device("cpu")), quick=True)
        said, _ = ask_all(model, FeatureSet(torch.from_numpy(x[held]), torch.from_numpy(y[held])))
        for k, level in enumerate(probs):
            level[held] = said.probs(k).numpy()
    return of_known(samples, probs)


def of_known(samples: Samples, probs: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    known = [samples.labels[:, k] >= 0 for k in (0, 1)]
    return [(samples.labels[known[k], k], probs[k][known[k]] / probs[k][known[k]].sum(1, keepdims=True)) for k in (0, 1)]


def said_by(opinions: Opinions, doubts: Doubts) -> list[np.ndarray]:
    """The audit's own probabilities of species and of families."""
    sharp, tree = torch.tensor(doubts.slips.sharpness), opinions.tree
    fine = np.zeros((len(opinions.x), tree.sizes[0]))
    for at, scores in opinions.chunks():
        fine[at] = class_log_probs(scores, tree, sharp).exp().numpy()
    return [fine, fine @ tree.matrix(0).T]


def cleanlab_scores(samples: Samples, levels: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
    """Each of cleanlab's scores, by species where it is known and by family elsewhere; low is suspicious."""
    from cleanlab.rank import get_label_quality_scores

    found, fine = {}, samples.labels[:, 0] >= 0
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        for adjust in (False, True) if method != "confidence_weighted_entropy" else (False,):
            scores = [get_label_quality_scores(*level, method=method, adjust_pred_probs=adjust) for level in levels]
            pooled = scores[1].copy()
            pooled[fine] = scores[0]
            found[method + ("+adjusted" if adjust else "")] = pooled
    return found


def one_draw(whole: Samples, hidden: float, share: float, draw: int, rivals: bool) -> list[tuple[object, ...]]:
    from sklearn.metrics import average_precision_score as precision

    warnings.filterwarnings("ignore")
    masked, _ = Mask(hidden, seed=draw).apply(whole)
    samples, kind = plant(masked, share, draw)
    wrong, truth = kind > 0, (samples.labels >= 0) & (samples.labels != whole.labels)
    started = time.time()
    opinions = form_opinions(samples, seed=draw)
    doubts = find_doubts(opinions, samples.labels)
    counts = count_wrong(opinions, samples.labels, doubts)
    seconds = time.time() - started
    chosen, levels = list_labels(doubts, counts, 0.5)
    hits = wrong[chosen]
    coarsest = np.where(truth.any(1), truth.shape[1] - 1 - truth[:, ::-1].argmax(1), -1)
    where, swaps = (hidden, share, draw), (kind < 2) & (samples.labels[:, 0] >= 0)
    rows: list[tuple[object, ...]] = [
        (*where, "ours", "average precision", precision(wrong, doubts.deepest())),
        (*where, "ours", "siblings", precision(kind[swaps] == 1, doubts.deepest()[swaps])),
        (*where, "ours", "siblings listed", np.isin(np.flatnonzero(kind == 1), chosen).mean()),
        (*where, "ours", "wrong listed", np.isin(np.flatnonzero(wrong), chosen).mean()),
        (*where, "ours", "list length", len(chosen)),
        (*where, "ours", "list precision", hits.mean()),
        (*where, "ours", "level named right", (levels[hits] == coarsest[chosen][hits]).mean()),
        (*where, "ours", "seconds", seconds),
    ]
    for count in counts:
        planted, name = int(truth[:, count.level].sum()), whole.hierarchy.levels[count.level]
        for what, value in (("planted", planted), ("estimate", count.wrong), ("low", count.low), ("high", count.high)):
            rows.append((*where, "ours", f"{name} {what}", value))
    fed = {"the audit's opinions": of_known(samples, said_by(opinions, doubts))}
    if rivals:
        fed |= {"logistic regression": logistic(samples), "marginal": trained(samples, draw)}
    for name, probs in fed.items():
        rows += [
            (*where, f"cleanlab on {name}", f"AP {m}", precision(wrong, -s)) for m, s in cleanlab_scores(samples, probs).items()
        ]
    return rows


def labels_main(args: argparse.Namespace) -> None:
    whole = read_data(args.data)
    whole = whole.select(whole.index("train"))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("hidden", "share", "draw", "who", "what", "value"))
        for draw in args.draws:
            for hidden in (0.0, 0.5, 0.9):
                for share in (0.05, 0.1):
                    for row in one_draw(whole, hidden, share, draw, draw in args.rivals):
                        table.writerow((*row[:-1], f"{row[-1]:.4f}"))
                    file.flush()


def bound_main(args: argparse.Namespace) -> None:
    """How far ranking could get: by judges who learned from labels without faults, and from all species without faults."""
    from sklearn.metrics import average_precision_score as precision

    warnings.filterwarnings("ignore")
    whole = read_data(args.data)
    whole = whole.select(whole.index("train"))
    for draw in args.draws:
        for hidden in (0.0, 0.5, 0.9):
            for share in (0.05, 0.1):
                masked, _ = Mask(hidden, seed=draw).apply(whole)
                samples, kind = plant(masked, share, draw)
                found = []
                for taught in (samples, masked, whole):
                    opinions = form_opinions(taught, seed=draw)
                    doubts = find_doubts(opinions, samples.labels)
                    fed = of_known(samples, said_by(opinions, doubts))
                    found.append(precision(kind > 0, doubts.deepest()))
                    found.append(max(precision(kind > 0, -s) for s in cleanlab_scores(samples, fed).values()))
                fed = trained(samples, draw)
                found.append(max(precision(kind > 0, -s) for s in cleanlab_scores(samples, fed).values()))
                print(draw, hidden, share, *(f"{value:.3f}" for value in found), flush=True)


def tree_main(args: argparse.Namespace) -> None:
    from torchlht.learn.audit.discriminant import WIDEST, components
    from torchlht.learn.semi.propagation import even

    whole = read_data(args.data)
    whole = whole.select(whole.index("train"))
    x = components(even(torch.from_numpy(whole.features)), WIDEST)
    for draw in args.draws:
        faulty = Perturbation("rewired", 0.1, 0.0, draw).perturb_tree(whole)
        moved = {
            c
            for c, a, b in zip(whole.hierarchy.classes[0], whole.hierarchy.parents[0], faulty.hierarchy.parents[0], strict=True)
            if a != b
        }
        masked, _ = Mask(0.9, seed=draw).apply(faulty)
        first = [one.label for one in misplaced(learn(x, masked.labels, masked.hierarchy), masked.hierarchy)][:20]
        print(f"draw {draw}: {len(moved)} moved, {len(moved & set(first))} of them among the first 20")


def train_main(args: argparse.Namespace) -> None:
    """Accuracy on test samples after training on wrong species labels (no label is hidden), without and with `--audit auto`."""
    import tempfile

    import torchlht

    whole = read_data(args.data)
    train, tree = whole.index("train"), whole.hierarchy
    names = {f"classes_{level}": np.array(classes) for level, classes in zip(tree.levels, tree.classes, strict=True)}
    for draw in args.draws:
        for share in (0.2, 0.0):
            labels = whole.labels.copy()
            labels[train] = plant(whole.select(train), share, draw)[0].labels
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "faulty.npz"
                np.savez(file, x=whole.features, y=labels, train=whole.split == "train", levels=np.array(tree.levels), **names)
                for audit in (None, "auto"):
                    run = torchlht.train(
                        str(file), out=Path(folder) / f"run-{audit}", seed=draw, audit=audit, quiet=True, workers=0, track=False
                    )
                    found = "  ".join(f"{level} {100 * run.accuracy[level]:.1f}" for level in reversed(tree.levels))
                    print(f"draw {draw}, {share:.0%} wrong species, audit {audit}: {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("labels", "bound", "tree", "train"))
    parser.add_argument("data")
    parser.add_argument("--draws", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument(
        "--rivals", type=int, nargs="*", default=[0, 1, 2, 3, 4], help="draws on which cleanlab's usual food is cooked, too"
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/audit-labels.csv"))
    args = parser.parse_args()
    {"labels": labels_main, "bound": bound_main, "tree": tree_main, "train": train_main}[args.what](args)


if __name__ == "__main__":
    main()
