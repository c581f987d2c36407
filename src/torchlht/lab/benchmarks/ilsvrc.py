"""ImageNet for few-shot tests: the 1000 classes of ILSVRC 2012 to learn from, and the 360 of ILSVRC 2010 that are not in it.

ILSVRC2012/train/n01440764/*.JPEG, or ILSVRC/Data/CLS-LOC/train/n01440764/*.JPEG as Kaggle packs it
ILSVRC2010/train/n00004475/*.JPEG
LOC_synset_mapping.txt, synset_words.txt, words.txt      n01440764 tench, Tinca tinca

The first pictures of each class, by name, are used: 200 of a class to learn from, 150 of a target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from torchlht.data.pictures import is_image
from torchlht.errors import DataError
from torchlht.hierarchy.reading import subfolders
from torchlht.hierarchy.tree import Hierarchy
from torchlht.lab.benchmarks.archive import Archive, Labelled, Request, find_base, read_pairs

SOURCES = ("ILSVRC2012/train", "ILSVRC/Data/CLS-LOC/train")
TARGETS = ("ILSVRC2010/train",)
NAME_FILES = ("LOC_synset_mapping.txt", "synset_words.txt", "words.txt")
PER_SOURCE, PER_TARGET = 200, 150


def read_ilsvrc(root: Path, request: Request) -> Archive:
    """The classes to learn from and the targets under `root`."""
    base = find_base(root, (".",), ())
    sources, targets = (next((base / name for name in names if (base / name).is_dir()), None) for names in (SOURCES, TARGETS))
    name_files = _name_files(base, [folder for folder in (sources, targets) if folder])
    missing = [f"{' or '.join(names)}/" for folder, names in ((sources, SOURCES), (targets, TARGETS)) if folder is None]
    missing += [] if name_files else [f"a file of class names ({', '.join(NAME_FILES)})"]
    if missing or sources is None or targets is None:
        raise DataError(f"{base}: missing {', '.join(missing)}")
    known = {folder.name for folder in subfolders(sources)}
    folders = [*subfolders(sources), *(folder for folder in subfolders(targets) if folder.name not in known)]
    names = _class_names([folder.name for folder in folders], name_files)
    tree = Hierarchy(levels=("class",), classes=[names], parents=[])
    pictures = [
        Labelled(str(folder / name), leaf, "train")
        for leaf, folder in enumerate(folders)
        for name in _first(folder, PER_SOURCE if folder.parent == sources else PER_TARGET)
    ]
    return Archive(tree, pictures, targets=tuple(names[len(known) :]))


def _name_files(base: Path, trains: Sequence[Path]) -> list[Path]:
    """Every file of class names in the root, and between it and the folders of training pictures."""
    folders = [base]
    for train in trains:
        folders += [train, *(above for above in train.parents if above.is_relative_to(base) and above != base)]
    return [folder / name for folder in dict.fromkeys(folders) for name in NAME_FILES if (folder / name).is_file()]


def _class_names(wnids: Sequence[str], files: Sequence[Path]) -> list[str]:
    """A name for each class: its first synonym, with its WordNet number if another class has the same."""
    synonyms: dict[str, str] = {}
    for file in files:
        synonyms = read_pairs(file) | synonyms
    if unnamed := [wnid for wnid in wnids if wnid not in synonyms]:
        listed = ", ".join(str(file) for file in files)
        more = f" (and {len(unnamed) - 1} more)" if len(unnamed) > 1 else ""
        raise DataError(f"{listed}: no name for class {unnamed[0]}{more}; words.txt of WordNet names all")
    first = {wnid: synonyms[wnid].split(",")[0].strip() for wnid in wnids}
    count = Counter(first.values())
    return [name if count[name] == 1 else f"{name} [{wnid}]" for wnid, name in first.items()]


def _first(folder: Path, count: int) -> list[str]:
    """The names of the first pictures of a folder."""
    return sorted(file.name for file in folder.iterdir() if is_image(file))[:count]
