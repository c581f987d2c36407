"""What a head costs: time and memory of a training step, as ratios against a multi-head in the same run.

make bench
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise

import torch

import torchlht

TREES = {"CUB 200/38/13": (200, 38, 13), "1000/100/10": (1000, 100, 10)}
HEADS = {
    "multihead": ("multihead", {}),
    **{name: (name, {}) for name in torchlht.list_methods() if name not in ("multihead", "hiclass", "logistic")},
    "lht + entropy": ("lht", {"confusion_weight": 0.01}),
}
BATCHES = (8, 128)


def tree(sizes: tuple[int, ...]) -> torchlht.Hierarchy:
    parents = [[j * above // below for j in range(below)] for below, above in pairwise(sizes)]
    return torchlht.Hierarchy.from_parents(parents)


def make(head: str, sizes: tuple[int, ...], batch: int):
    name, options = HEADS[head]
    torch.manual_seed(0)
    module = torchlht.create_method(name, 1280, tree(sizes), **options)
    x, y = torch.randn(batch, 1280), torch.stack([torch.randint(size, (batch,)) for size in sizes], dim=1)
    return module, x, y


def step(module: torchlht.Method, x: torch.Tensor, y: torch.Tensor) -> None:
    module.zero_grad()
    module.loss(module(x), y).backward()


def seconds(sizes: tuple[int, ...], batch: int, rounds: int = 15) -> dict[str, float]:
    """Median time of a step per head, interleaved so that a noisy moment hits all alike."""
    made = {head: make(head, sizes, batch) for head in HEADS}
    times: dict[str, list[float]] = {head: [] for head in HEADS}
    for round_ in range(rounds + 2):
        for head, parts in made.items():
            start = time.perf_counter()
            step(*parts)
            if round_ >= 2:
                times[head].append(time.perf_counter() - start)
    return {head: statistics.median(found) for head, found in times.items()}


def kept_megabytes(head: str, sizes: tuple[int, ...], batch: int) -> float:
    """What a step keeps for its backward pass, beyond the parameters."""
    module, x, y = make(head, sizes, batch)
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = module.loss(module(x), y)
    loss.backward()
    return sum(kept.values()) / 2**20


def main() -> None:
    torch.set_num_threads(1)
    print("| tree | batch | method | parameters, M | time, × multihead | kept for backward, MB |\n|---|---|---|---|---|---|")
    for label, sizes in TREES.items():
        for batch in BATCHES:
            found = seconds(sizes, batch)
            for head in HEADS:
                ratio = found[head] / found["multihead"]
                size = make(head, sizes, batch)[0].parameter_count() / 1e6
                kept = kept_megabytes(head, sizes, batch)
                print(f"| {label} | {batch} | {head} | {size:.2f} | {ratio:.2f} | {kept:.1f} |", flush=True)


if __name__ == "__main__":
    main()
