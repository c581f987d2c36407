"""Trees found and repaired on real birds: agreement with families, and moved species among the first proposals.

    python benchmarks/trees.py cub_lite0.npz

Species are moved, and examples drawn, by seeds 200 to 204; the weight of names was chosen on seeds 100 to 103 (repair)
and on three draws of `find` that are not reported.
"""

from __future__ import annotations

import sys

import numpy as np

from torchlht.data.samples import Samples, read_data
from torchlht.lab.perturbing import rewire
from torchlht.learn.audit.placing import class_cosines, misplaced
from torchlht.learn.growing import NAMED, cut, distances, judge_of, labelled, names_help, rand_index, same_word


def drawn(samples: Samples, each: int, seed: int) -> Samples:
    """So many training samples of each species."""
    generator = np.random.default_rng([77, seed])
    fine = samples.labels[:, 0]
    rows = [generator.permutation(np.flatnonzero(fine == c))[:each] for c in range(samples.hierarchy.sizes[0])]
    return samples.select(np.sort(np.concatenate(rows)))


def main() -> None:
    """Print both tables."""
    samples = read_data(sys.argv[1])
    samples = samples.select(samples.index("train"))
    tree = samples.hierarchy
    alike, families = same_word(tree.classes[0]), tree.parents[0]
    for each in (3, 30):
        rows: dict[str, list[float]] = {}
        for seed in range(200, 205):
            x, fine = labelled(drawn(samples, each, seed))
            far = distances(x, fine, tree.sizes[0])
            rows.setdefault("find, looks", []).append(rand_index(cut(far, [tree.sizes[1]])[0], families))
            named = far + NAMED * (1 - alike) if names_help(far, alike) else far
            rows.setdefault("find, looks and names", []).append(rand_index(cut(named, [tree.sizes[1]])[0], families))
            stale, judge = rewire(tree, 0.1, seed), judge_of(x, fine, tree.sizes[0])
            moved = {tree.classes[0][i] for i in np.flatnonzero(stale.parents[0] != families)}
            for what, weight in (("repair, looks", 0.0), ("repair, looks and names", NAMED)):
                first = misplaced(judge, stale, class_cosines(judge) + weight * alike)[:20]
                rows.setdefault(f"{what} (of {len(moved)})", []).append(sum(one.label in moved for one in first))
        for name, values in sorted(rows.items()):
            print(f"{each} examples · {name}: {np.mean(values):.3f}  {np.round(values, 3).tolist()}")


if __name__ == "__main__":
    main()
