"""ISIC 2018, task 3 (HAM10000), as its archives unpack:

ISIC2018_Task3_Training_Input/ISIC_0024306.jpg
ISIC2018_Task3_Training_GroundTruth/ISIC2018_Task3_Training_GroundTruth.csv   image,MEL,NV,BCC,AKIEC,BKL,DF,VASC
ISIC2018_Task3_Training_LesionGroupings.csv                                   image,lesion_id,diagnosis_confirm_type

There is no official split: 70/10/20 are drawn for each diagnosis. A lesion has up to six pictures, which look
alike; all of them go to the same part, or the test would reward memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torchlht.data.samples import hashed
from torchlht.errors import DataError
from torchlht.hierarchy.reading import read_table
from torchlht.lab.benchmarks.archive import Archive, Labelled, Request, find_base, require, same_keys, shipped_tree

INPUT = "ISIC2018_Task3_Training_Input"
TRUTH = "ISIC2018_Task3_Training_GroundTruth"
GROUPS = "ISIC2018_Task3_Training_LesionGroupings.csv"
SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}


def read_isic(root: Path, request: Request) -> Archive:
    """The skin lesions under `root`."""
    base = find_base(root, (".",), ())
    groups = next((f"{folder}{GROUPS}" for folder in (f"{TRUTH}/", "") if (base / f"{folder}{GROUPS}").is_file()), GROUPS)
    truth = f"{TRUTH}/{TRUTH}.csv"
    require(base, files=(truth, groups), folders=(INPUT,))
    tree = shipped_tree("isic2018")
    diagnoses = _diagnoses(base / truth, tree.classes[0])
    lesions = {image: cells["lesion_id"] for image, cells in _columns(base / groups, ("lesion_id",)).items()}
    same_keys({str(base / truth): diagnoses, str(base / groups): lesions})
    splits = split_lesions(diagnoses, lesions, request.seed)
    return Archive(
        tree,
        [
            Labelled(str(base / INPUT / f"{image}.jpg"), tree.index(0, diagnosis), splits[lesions[image]])
            for image, diagnosis in sorted(diagnoses.items())
        ],
    )


def _columns(file: Path, wanted: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """These columns of a table, picture by picture."""
    table = read_table(file)
    if table.faults:
        raise DataError(f"{file} {table.faults[0]}")
    if missing := [name for name in ("image", *wanted) if name not in table.columns]:
        raise DataError(f"{file}: no column {', '.join(missing)} (columns: {', '.join(table.columns)})")
    place = {name: table.columns.index(name) for name in ("image", *wanted)}
    return {cells[place["image"]]: {name: cells[place[name]] for name in wanted} for _, cells in table.rows}


def _diagnoses(file: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The diagnosis of each picture: the one column that is 1."""
    found = {}
    for image, cells in _columns(file, names).items():
        marked = [name for name in names if cells[name] in ("1", "1.0")]
        if len(marked) != 1:
            raise DataError(f"{file} picture {image}: {len(marked)} diagnoses are 1; exactly one must be")
        found[image] = marked[0]
    return found


def split_lesions(diagnoses: Mapping[str, str], lesions: Mapping[str, str], seed: int) -> dict[str, str]:
    """The split of every lesion. It depends on the lesions' names and the seed alone."""
    sizes: dict[str, dict[str, int]] = {}
    for image, diagnosis in diagnoses.items():
        of = sizes.setdefault(diagnosis, {})
        of[lesions[image]] = of.get(lesions[image], 0) + 1
    splits: dict[str, str] = {}
    for diagnosis, of in sizes.items():
        if twice := sorted(splits.keys() & of.keys()):
            raise DataError(f"lesion {twice[0]} has two diagnoses, {diagnosis} and another")
        splits |= _deal(of, seed)
    return splits


def _deal(sizes: Mapping[str, int], seed: int) -> dict[str, str]:
    """The split of each lesion of a diagnosis: in the order of a hash, each goes to the part that lacks most pictures."""
    wanting = {split: share * sum(sizes.values()) for split, share in SHARES.items()}
    splits = {}
    for lesion in sorted(sizes, key=lambda one: (hashed(seed, "isic2018", one), one)):
        splits[lesion] = max(wanting, key=wanting.__getitem__)
        wanting[splits[lesion]] -= sizes[lesion]
    return splits
