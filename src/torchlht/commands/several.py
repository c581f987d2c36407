"""`lht predict` for models that give several labels per sample."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from torchlht import console
from torchlht.errors import DataError
from torchlht.files import csv_text

if TYPE_CHECKING:
    from torchlht.answer.several import GraphModel, Labels


def predict_several(run: str, inputs: Sequence[str], form: str, limit: int | None) -> None:
    """Predict the samples in .arff or .npz files, and print the answers as a table, as CSV or as JSON."""
    from torchlht.answer.several import GraphModel

    if not inputs:
        raise DataError("nothing to predict: lht predict RUN FILE…, with .arff files, or .npz files with an array 'x'")
    model = GraphModel.load(run)
    found = [one for name in inputs for one in predict_file(model, Path(name), limit)]
    if form == "json":
        rows = [{"file": one.source, "answer": list(one.deepest), "probabilities": one.probabilities} for one in found]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    elif form == "csv":
        print(csv_text([("file", "class", "probability", "deepest"), *rows_of(found)]), end="")
    else:
        print_several(found)


def predict_file(model: GraphModel, path: Path, limit: int | None) -> list[Labels]:
    """The answers to the samples of one file."""
    if path.suffix.lower() == ".arff":
        from torchlht.data.arff import read_arff

        x = read_arff(path).features[:limit]
    else:
        from torchlht.data.sources.embeddings import read_features

        x = read_features(path)[:limit]
    return model.predict(x, [f"{path.name} row {i + 1}" for i in range(len(x))])


def rows_of(found: Sequence[Labels]) -> Iterator[tuple[str, str, float, bool]]:
    """One row per sample and class."""
    for one in found:
        for name, probability in one.probabilities.items():
            yield one.source, name, probability, name in one.deepest


def print_several(found: Sequence[Labels]) -> None:
    """One row per sample: the most specific classes that are sure enough, each with its probability."""
    table = Table("sample", "classes")
    for one in found:
        said = [f"{name} {one.probabilities[name]:.0%}" for name in one.deepest]
        table.add_row(one.source, " · ".join(said) or "none is sure enough")
    console.out.print(table)
