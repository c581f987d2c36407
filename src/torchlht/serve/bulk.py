"""Answers for the rows of a table that an engine keeps: Ray Data (`examples/batch`), or whatever hands out columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlht.answer.named import wanted
from torchlht.answer.plain import as_dict
from torchlht.data.pictures import BytesPicture, Picture, Problem, picture_at
from torchlht.errors import ConfigError
from torchlht.serve.served import read_model

ROWS = 64  # at a time, as lht predict takes them: the last digits of a probability depend on it


@dataclass(frozen=True, slots=True)
class RowPicture(Picture):
    """A picture of a table, called by its row."""

    row: int
    picture: Picture

    @property
    def file(self) -> Path | None:  # type: ignore[override]
        """The file that holds it, if there is one."""
        return self.picture.file

    def __str__(self) -> str:
        return str(self.row)

    def read(self) -> bytes:
        """Its bytes."""
        return self.picture.read()


class Answerer:
    """Answers about some rows of a table, as `lht predict` would.

        >>> answerer = Answerer("birds.onnx", confidence=0.9)
        >>> answerer({"picture": ["s3://bucket/beach.jpg"]})["label"]
        ['Laridae']

    An engine makes one in each of its workers and calls it with columns. Rows must come `ROWS` at a time and in their order for
    answers that equal those of `lht predict` to the last digit.

    Args:
        model: an exported file, or a run directory. Each computes on one thread.
        column: the column with pictures: paths, addresses that fsspec opens, or contents of picture files as bytes.
        name: the column with names of pictures; by default the paths, or the numbers of the rows.
        confidence, risk, strict, only, exclude, top, rule: options of `lht predict`.
    """

    def __init__(
        self,
        model: str,
        column: str = "picture",
        name: str | None = None,
        *,
        confidence: float | None = None,
        risk: float | None = None,
        strict: bool = False,
        only: Sequence[str] = (),
        exclude: Sequence[str] = (),
        top: int = 1,
        rule: str | None = None,
    ) -> None:
        self.model, self.column, self.name = read_model(model), column, name
        self.how: dict[str, Any] = {"top": top, "rule": rule, "only": only, "exclude": exclude}
        restricted = bool(only or exclude)
        asked = wanted(confidence, risk, rule or self.model.rule, self.model.calibration, restricted=restricted, strict=strict)
        self.wanted = self.model.wanted if asked.promise is None and not restricted else asked

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, list[Any]]:
        """For each row `file`, `label`, `level`, `probability`, `json`, the object that `lht predict --format json` prints; or
        `error`, which says why the picture cannot be read.

        Raises:
            ConfigError: when the table has no such column.
        """
        given = list(self.taken(rows, self.column))
        names = (
            [str(one) for one in self.taken(rows, self.name)] if self.name else [name_of(i, one) for i, one in enumerate(given)]
        )
        pictures = [RowPicture(i, picture_of(one)) for i, one in enumerate(given)]
        unreadable: list[Problem] = []
        answers = self.model.predict(pictures, batch_size=ROWS, unreadable=unreadable, **self.how)
        found: list[dict[str, Any]] = [{"file": name, **dict.fromkeys(COLUMNS)} for name in names]
        for problem in unreadable:
            found[int(problem.path)]["error"] = problem.reason
        for answer in answers:
            row = int(answer.source)
            content = {**as_dict(answer, self.wanted), "file": names[row]}
            found[row] |= {key: content["answer"][key] for key in ("label", "level", "probability")}
            found[row]["json"] = json.dumps(content, ensure_ascii=False)
        return {key: [row[key] for row in found] for key in ("file", *COLUMNS)}

    def taken(self, rows: Mapping[str, Any], column: str) -> Any:
        """A column. Raises ConfigError when there is none of that name."""
        if column not in rows:
            raise ConfigError(f"the table has no column {column!r}; it has {', '.join(map(str, rows))}")
        return rows[column]


COLUMNS = ("label", "level", "probability", "json", "error")


def name_of(row: int, given: Any) -> str:
    """What a picture is called where nobody has given it a name."""
    return f"row {row}" if isinstance(given, bytes) else str(picture_of(given))


def picture_of(given: Any) -> Picture:
    """The picture of a row: its content, or where it is."""
    return BytesPicture(given) if isinstance(given, bytes) else picture_at(str(given))
