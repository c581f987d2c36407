"""FGVC-Aircraft, as its archive unpacks, and the same with a perturbed tree:

fgvc-aircraft-2013b/data/images/1025794.jpg
fgvc-aircraft-2013b/data/images_variant_trainval.txt        1025794 707-320
fgvc-aircraft-2013b/data/images_family_trainval.txt         1025794 Boeing 707
fgvc-aircraft-2013b/data/images_manufacturer_trainval.txt   1025794 Boeing
fgvc-aircraft-2013b/data/variants.txt, families.txt, manufacturers.txt

The paper says maker, family and model, and trains on trainval.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import (
    Archive,
    Labelled,
    Request,
    find_base,
    place,
    read_lines,
    read_pairs,
    require,
    same_keys,
)
from torchlht.lab.perturbing import rename_level, rewire

LEVELS = ("maker", "family", "model")
KINDS = ("manufacturer", "family", "variant")  # their names in the archive
LISTS = ("manufacturers.txt", "families.txt", "variants.txt")
PARTS = {"trainval": "train", "test": "test"}
SHARE = 0.4  # of the families that are renamed, or of the models that are moved


def read_aircraft(root: Path, request: Request) -> Archive:
    """Read the aircraft under `root`: the folder that holds fgvc-aircraft-2013b, that folder itself, or its data folder."""
    base = find_base(root, ("fgvc-aircraft-2013b/data", "data", "."), (*LISTS, "images"))
    files = [f"images_{kind}_{part}.txt" for part in PARTS for kind in KINDS]
    require(base, files=(*LISTS, *files), folders=("images",))
    families: dict[str, str] = {}
    makers: dict[str, str] = {}
    found = []
    for part, split in PARTS.items():
        tables = {str(base / f"images_{kind}_{part}.txt"): read_pairs(base / f"images_{kind}_{part}.txt") for kind in KINDS}
        same_keys(tables)
        maker, family, model = tables.values()
        for i, name in model.items():
            place(families, "model", name, family[i], f"{base / f'images_family_{part}.txt'} picture {i}")
            place(makers, "family", family[i], maker[i], f"{base / f'images_manufacturer_{part}.txt'} picture {i}")
            found.append((str(base / "images" / f"{i}.jpg"), name, split))
    order = _check_lists(base, (set(makers.values()), set(makers), set(families)))
    tree = Hierarchy.from_paths([(makers[families[name]], families[name], name) for name in order], LEVELS)
    return Archive(tree, [Labelled(path, tree.index(0, name), split) for path, name, split in found])


def _check_lists(base: Path, seen: Sequence[set[str]]) -> list[str]:
    """The models in their official order. Raises DataError if pictures and lists do not have the same names."""
    for file, names in zip(LISTS, seen, strict=True):
        listed = {line.strip() for line in read_lines(base / file) if line.strip()}
        if unlisted := sorted(names - listed):
            raise DataError(f"{base / file}: {unlisted[0]!r} is not listed, but pictures have this label")
        if unused := sorted(listed - names):
            raise DataError(f"{base / file}: {unused[0]!r} is listed, but no picture has this label")
    return [line.strip() for line in read_lines(base / "variants.txt") if line.strip()]


def read_perturbed(root: Path, request: Request) -> Archive:
    """The aircraft with another tree. Pictures keep their models, so labels of families follow the tree.

    `renamed` permutes the names of 40 % of the families, which changes nothing but names. `stale_prior`, the released
    construction, does the same and gives the old tree as a prior, which then contradicts the labels. `rewired` moves 40 % of
    the models to other families, as in the paper's text.
    """
    archive = read_aircraft(root, request)
    if request.mode == "rewired":
        return dataclasses.replace(archive, tree=rewire(archive.tree, SHARE, request.seed))
    tree, _ = rename_level(archive.tree, SHARE, request.seed)
    return dataclasses.replace(archive, tree=tree, prior=archive.tree if request.mode == "stale_prior" else None)
