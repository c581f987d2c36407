"""`demo-pairs`: montages of two drawn birds of different species, with both labels, made on the spot.

Two quarters of a picture show a bird, the others only scenery. Of half of the training pictures the second bird is known only
to its family: the table says `Herring Gull|` where it says `Gulls|Gulls`. A quarter of the pairs are of one family.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from torchlht.files import cache_dir
from torchlht.lab.birds import FAMILIES, SPECIES
from torchlht.lab.demo import draw_bird, draw_scenery, write_drawn

RELATED = 0.25  # share of the pairs that are of one family
COARSE = 0.5  # share of the training pictures whose second bird is known only to its family
PLACES = {family.name: family.place for family in FAMILIES}


def draw_pair(first: int, second: int, rng: np.random.Generator, size: int = 64) -> Image.Image:
    """Draw two birds (indices of `SPECIES`) in two quarters of a picture, scenery in the others; depends on `rng` alone."""
    picture = Image.new("RGB", (2 * size, 2 * size))
    quarters = rng.permutation(4).tolist()
    tiles = [draw_bird(species, rng, size) for species in (first, second)]
    tiles += [draw_scenery(PLACES[SPECIES[species][1]], rng, size) for species in (first, second)]
    for quarter, tile in zip(quarters, tiles, strict=True):
        picture.paste(tile, (quarter % 2 * size, quarter // 2 * size))
    return picture


def choose_pair(first: int, rng: np.random.Generator) -> int:
    """Another species to go with this one: of its family in `RELATED` of the cases, else of any other."""
    family = SPECIES[first][1]
    related = rng.random() < RELATED
    choice = [i for i, names in enumerate(SPECIES) if i != first and (names[1] == family) is related]
    return int(rng.choice(choice))


def demo_pairs() -> Path:
    """The table of the pairs, drawn on first use."""
    return write_pairs(cache_dir() / "demo-pairs-0")


def write_pairs(root: Path, *, seed: int = 0, train: int = 1920, test: int = 480, size: int = 64) -> Path:
    """Write pictures of pairs and their table under `root`, as `write_demo` does; returns the table's path."""

    def draw(fresh: Path) -> list[tuple[str, ...]]:
        return [row for part, count in enumerate((train, test)) for row in _write_part(fresh, part, seed, count, size)]

    return write_drawn(root, "pairs.csv", draw)


def _write_part(root: Path, part: int, seed: int, count: int, size: int) -> list[tuple[str, ...]]:
    """Draw and save the training or the test pictures; returns their rows of the table."""
    split = ("train", "test")[part]
    folder = Path("images") / split
    (root / folder).mkdir(parents=True)
    rows: list[tuple[str, ...]] = []
    for i in range(count):
        rng = np.random.default_rng([seed, 1, part, i])
        first = i % len(SPECIES)
        second = choose_pair(first, rng)
        path = folder / f"{i:04d}.png"
        draw_pair(first, second, rng, size).save(root / path, compress_level=2)
        names = [f"{a}|{b}" for a, b in zip(SPECIES[first], SPECIES[second], strict=True)]
        if split == "train" and rng.random() < COARSE:
            names[-1] = f"{SPECIES[first][-1]}|"
        rows.append((path.as_posix(), *names, split))
    return rows
