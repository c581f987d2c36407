"""Trees found and repaired on real birds: agreement with families, and moved species among the first proposals.

    python benchmarks/trees.py cub_lite0.npz                # agreement, moves
    python benchmarks/trees.py cub_lite0.npz splits         # families and species put together
    python benchmarks/trees.py cub_lite0.npz worth          # what a found tree is worth to answers, and to mistakes

Species are moved, and examples drawn, by seeds 200 to 204; the weight of names was chosen on seeds 100 to 103 (repair)
and on three draws of `find` that are not reported.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from torchlht import Hierarchy, TrainArgs
from torchlht.answer.asking import ask_all
from torchlht.answer.calibration import fit_calibration
from torchlht.data.batches import FeatureSet
from torchlht.data.samples import Samples, read_data
from torchlht.heads.prediction import answer_by
from torchlht.lab.perturbing import rewire
from torchlht.learn.alone import Alone
from torchlht.learn.audit.placing import class_cosines, misplaced
from torchlht.learn.growing import NAMED, cut, distances, judge_of, labelled, names_help, profiles, rand_index, same_word
from torchlht.learn.memory import given_samples, learn
from torchlht.learn.mending import under
from torchlht.learn.splitting import split_classes, split_parents
from torchlht.measure.operating import Decisions, operating_curve, operating_point

RULE = "path"  # how people are answered


def drawn(samples: Samples, each: int, seed: int) -> Samples:
    """So many training samples of each species."""
    generator = np.random.default_rng([77, seed])
    fine = samples.labels[:, 0]
    rows = [generator.permutation(np.flatnonzero(fine == c))[:each] for c in range(samples.hierarchy.sizes[0])]
    return samples.select(np.sort(np.concatenate(rows)))


def two_levels(species: list[str], parents: np.ndarray) -> Hierarchy:
    """A tree of species and numbered groups."""
    groups = np.unique(parents, return_inverse=True)[1]
    names = [f"group {i}" for i in range(groups.max() + 1)]
    return Hierarchy(levels=("species", "group"), classes=[species, names], parents=[groups])


def agreement(samples: Samples) -> None:
    """Print how far found groups are families, and how many moved species are proposed first."""
    samples = samples.select(samples.index("train"))
    tree = samples.hierarchy
    alike, families = same_word(tree.classes[0]), tree.parents[0]
    for each in (3, 30):
        rows: dict[str, list[float]] = {}
        for seed in range(200, 205):
            x, fine = labelled(drawn(samples, each, seed))
            far = distances(x, fine, tree.sizes[0])
            looks = profiles(far)
            rows.setdefault("find, looks", []).append(rand_index(cut(looks, [tree.sizes[1]])[0], families))
            named = looks + NAMED * (1 - alike) * names_help(far, alike)
            rows.setdefault("find, looks and names", []).append(rand_index(cut(named, [tree.sizes[1]])[0], families))
            stale, judge = rewire(tree, 0.1, seed), judge_of(x, fine, tree.sizes[0])
            moved = {tree.classes[0][i] for i in np.flatnonzero(stale.parents[0] != families)}
            for what, weight in (("repair, looks", 0.0), ("repair, looks and names", NAMED)):
                first = misplaced(judge, stale, class_cosines(judge) + weight * alike)[:20]
                rows.setdefault(f"{what} (of {len(moved)})", []).append(sum(one.label in moved for one in first))
        for name, values in sorted(rows.items()):
            print(f"{each} examples · {name}: {np.mean(values):.3f}  {np.round(values, 3).tolist()}")


def splits(samples: Samples) -> None:
    """Print what is proposed of five pairs of families put together, and of ten pairs of species called by one name."""
    samples = samples.select(samples.index("train"))
    tree, families = samples.hierarchy, samples.hierarchy.parents[0]
    x, fine = labelled(samples)
    judge = judge_of(x, fine, tree.sizes[0])
    none = [len(split_parents(x, fine, judge, tree)), len(split_classes(x, fine, judge, tree, samples.keys))]
    print(f"the tree as it is: {none[0]} parents and {none[1]} species proposed")
    several = np.flatnonzero(np.bincount(families) >= 2)
    for seed in range(200, 205):
        generator = np.random.default_rng([78, seed])
        place = np.arange(tree.sizes[1])
        pairs = generator.permutation(several)[:10].reshape(5, 2)
        place[pairs[:, 1]] = pairs[:, 0]
        lumped = two_levels(list(tree.classes[0]), place[families])
        joined = {int(lumped.parents[0][np.flatnonzero(families == a)[0]]) for a in pairs[:, 0]}
        named = [lumped.index(1, one.label) for one in split_parents(x, fine, judge, lumped)]
        hits = len(joined & set(named))
        print(f"seed {seed}: of 5 pairs of families {hits} proposed, and {len(named) - hits} other parents")
        for what in ("any", "of one family"):
            pairs = species_pairs(generator, families, what == "of one family")
            other = fine.copy()
            for a, b in pairs:
                other[other == b] = a
            named = [one.label for one in split_classes(x, other, judge_of(x, other, tree.sizes[0]), tree, samples.keys)]
            hits = len({tree.classes[0][a] for a, _ in pairs} & set(named))
            print(f"seed {seed}: of 10 pairs of species, {what}: {hits} proposed, and {len(named) - hits} other species")


def species_pairs(generator: np.random.Generator, families: np.ndarray, siblings: bool) -> list[tuple[int, int]]:
    """Ten pairs of species, no species in two of them."""
    found, free = [], list(generator.permutation(len(families)))
    while len(found) < 10:
        a = free.pop()
        for b in free:
            if not siblings or families[a] == families[b]:
                found.append((int(a), int(b)))
                free.remove(b)
                break
    return found


def worth(samples: Samples) -> None:
    """Print what trees are worth: `marginal` trained on so many examples per species, with each tree in turn.

    A third of the test samples calibrates, and sets the threshold for 5 % of wrong answers; the others are measured.
    """
    train, test = samples.select(samples.index("train")), samples.select(samples.index("test"))
    real, names = samples.hierarchy, list(samples.hierarchy.classes[0])
    for each in (3, 30):
        rows: dict[str, list[list[float]]] = {}
        for seed in range(200, 205):
            given = drawn(train, each, seed)
            x, fine = labelled(given)
            far = profiles(distances(x, fine, real.sizes[0]))
            groups = {"real families": real.parents[0], "found, looks": cut(far, [real.sizes[1]])[0]}
            groups["found"] = cut(far + NAMED * (1 - same_word(names)), [real.sizes[1]])[0]
            groups["random"] = np.random.default_rng(seed).permutation(real.parents[0])
            trees = {name: two_levels(names, own) for name, own in groups.items()}
            trees["none"] = Hierarchy(levels=("species",), classes=[names], parents=[])
            for name, tree in trees.items():
                rows.setdefault(name, []).append(answers(under(given, tree), under(test, tree), real, seed))
        print(f"{each} examples: accuracy, severity | at 0.9: species, groups, error, information | at 5 % wrong: the same")
        for name, values in rows.items():
            mean, spread = np.mean(values, axis=0), np.std(values, axis=0, ddof=1)
            print(f"  {name}: " + "  ".join(f"{a:.3f} ± {b:.3f}" for a, b in zip(mean, spread, strict=True)), flush=True)


def answers(given: Samples, test: Samples, real: Hierarchy, seed: int) -> list[float]:
    """Species accuracy, mistakes' severity in the real tree, and operating points at 0.9 and at 5 % of wrong answers."""
    assert given.features is not None
    assert test.features is not None
    torch.manual_seed(seed)
    taught = given_samples(given.features, given.labels, given.hierarchy)
    model, _, _ = learn(
        TrainArgs("x", method="marginal", seed=seed, quiet=True), taught, Alone(torch.device("cpu")), quick=True
    )
    held = np.random.default_rng([79, seed]).permutation(len(test)) % 3 == 0
    parts = [FeatureSet(torch.from_numpy(test.features[rows]), torch.from_numpy(test.labels[rows])) for rows in (held, ~held)]
    own, own_labels = ask_all(model, parts[0])
    calibration = fit_calibration(own, own_labels, test.hierarchy)
    said, labels = ask_all(model, parts[1])
    tree = test.hierarchy
    decisions = Decisions.of(answer_by(calibration.apply(said), tree, RULE), labels)
    chosen, truth = decisions.chosen[:, 0].numpy(), labels[:, 0].numpy()
    wrong = chosen != truth
    found = [float((~wrong).mean()), float(real.lca_height(chosen[wrong], truth[wrong]).mean())]
    curve = operating_curve(Decisions.of(answer_by(calibration.apply(own), tree, RULE), own_labels), tree)
    too_many = np.flatnonzero(np.nan_to_num(curve.error, nan=0.0) > 0.05)
    for threshold in (0.9, curve.threshold[max(too_many, default=-1) + 1]):
        point = operating_point(decisions, tree, float(threshold))
        levels = {level["name"]: level["answered"] for level in point["levels"]}
        found += [levels["species"], levels.get("group", 0.0), point["error"] or 0.0, point["information"]]
    return found


def main() -> None:
    """Print the tables asked for."""
    what = sys.argv[2] if len(sys.argv) > 2 else "agreement"
    {"agreement": agreement, "splits": splits, "worth": worth}[what](read_data(sys.argv[1]))


if __name__ == "__main__":
    main()
