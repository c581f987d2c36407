"""A table with the terms of Darwin Core: `associatedMedia` names the picture, and order, family, … are its classes.

occurrenceID,associatedMedia,order,family,species,scientificName,taxonRank,identifiedBy
1,a.jpg,Charadriiformes,Laridae,Pagophila eburnea,Pagophila eburnea,species,Ann
2,b.jpg,Charadriiformes,Laridae,,Laridae,family,Ben
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path

import numpy as np

from torchlht.data.pictures import as_url, picture_at
from torchlht.data.samples import SPLIT_NAMES, Samples, Source, label_of, tree_of
from torchlht.data.sources.table import stable_keys
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.paths import Row
from torchlht.hierarchy.reading import Table, read_table
from torchlht.hierarchy.tree import Hierarchy

MEDIA, SCIENTIFIC, RANK, PARTITION = "associatedMedia", "scientificName", "taxonRank", "datasetPartition"
RANKS = ("domain", "kingdom", "phylum", "class", "order", "superfamily", "family", "subfamily", "tribe", "genus", "species")
"""Columns that are levels, coarse → fine."""
# fmt: off
TERMS = frozenset((
    "occurrenceID", "basisOfRecord", "associatedMedia", "scientificName", "taxonRank", "identifiedBy", "dateIdentified",
    "identificationRemarks", "identificationVerificationStatus", "datasetPartition", "datasetName", "institutionCode",
    "collectionCode", "catalogNumber", "recordedBy", "eventDate", "country", "countryCode", "locality", "decimalLatitude",
    "decimalLongitude", "license", "rightsHolder", "vernacularName", "taxonID", "acceptedScientificName",
    "verbatimScientificName", "specificEpithet", "infraspecificEpithet", "scientificNameAuthorship",
))
# fmt: on
"""Columns that are none."""
HEADER = 2**16
"""Bytes in which the line of column names must end."""


def is_darwin_core(place: Path) -> bool:
    """Whether a table has the columns of Darwin Core that matter here."""
    if place.suffix.lower() not in (".csv", ".tsv", ".txt") or not place.is_file():
        return False
    with place.open("rb") as file:
        line = file.readline(HEADER).decode("utf-8", "replace").lstrip("\ufeff")
    names = {cell.strip().strip('"') for cell in line.replace("\t", ",").replace(";", ",").split(",")}
    return {MEDIA, SCIENTIFIC} <= names


def read_darwin_core(
    path: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None, unknown: Set[str] = frozenset()
) -> Samples:
    """Read such a table; the tree comes from its rows unless one is given. `unknown` names are blanks."""
    table = read_table(path)
    if table.faults:
        raise HierarchyError(str(path), table.faults)
    if not table.rows:
        raise DataError(f"{path}: it has a header but no rows")
    names, blank = level_columns(table, path, hierarchy, levels), {"", *unknown}
    rows = [Row(f"line {line}", _classes(table, cells, names, blank)) for line, cells in table.rows]
    files = [cells[table.columns.index(MEDIA)] for _, cells in table.rows]
    where = [f"{path} {row.where}" for row in rows]
    for place, file in zip(where, files, strict=True):
        if not file or "|" in file or as_url(file):
            raise DataError(f"{place}: {MEDIA} is {file!r}; it must name one file on this computer")
    tree = hierarchy or tree_of(rows, names, path)
    labels = np.array([label_of(tree, names, row.names, place) for row, place in zip(rows, where, strict=True)])
    return Samples(
        path.stem,
        tree,
        stable_keys(files),
        tree.fill(labels, where=where.__getitem__),
        np.array([_split(table, cells, place) for (_, cells), place in zip(table.rows, where, strict=True)]),
        images=tuple(picture_at(path.parent / file) for file in files),
    )


def level_columns(table: Table, path: Path, hierarchy: Hierarchy | None, levels: Sequence[str] | None) -> list[str]:
    """The columns that hold classes, coarse → fine: those asked for, the ranks that are there, or what is no term."""
    others = [name for name in table.columns if name not in TERMS]
    if hierarchy is not None:
        wanted = [hierarchy.levels[k] for k in hierarchy.top_down if hierarchy.levels[k] in table.columns]
    elif levels:
        wanted = list(levels)
    else:
        ranks = [rank for rank in RANKS if rank in table.columns]
        wanted = ranks if len(ranks) == len(others) or len(ranks) > 1 else others
        wanted = [name for name in wanted if any(cells[table.columns.index(name)] for _, cells in table.rows)]
    if not wanted or any(name not in table.columns for name in wanted):
        raise DataError(f"{path}: which columns are levels? Name them, coarse → fine: `levels=order,family,species`")
    return wanted


def _classes(table: Table, cells: Sequence[str], names: Sequence[str], blank: Set[str]) -> tuple[str | None, ...]:
    """A row's classes, coarse → fine. The scientific name fills the level of its rank if that is blank."""
    found = {name: cells[table.columns.index(name)] for name in names}
    if RANK in table.columns:
        rank = cells[table.columns.index(RANK)].casefold()
        level = next((name for name in names if name.casefold() == rank), None)
        if level is not None and not found[level]:
            found[level] = cells[table.columns.index(SCIENTIFIC)]
    return tuple(None if value.casefold() in blank else value for value in found.values())


def _split(table: Table, cells: Sequence[str], where: str) -> str:
    value = cells[table.columns.index(PARTITION)].lower() if PARTITION in table.columns else ""
    if value and value not in SPLIT_NAMES:
        raise DataError(f"{where}: {PARTITION} is {value!r}; it must be train, val or test")
    return SPLIT_NAMES[value or "train"]


SOURCE = Source("darwin-core", "a Darwin Core table", is_darwin_core, read_darwin_core, order=20, read_without=read_darwin_core)
