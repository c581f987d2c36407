"""`Answers`: the answers to several samples, as a list that people can read."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any, SupportsIndex, overload

from torchlht.answer.html import bar
from torchlht.answer.named import Named
from torchlht.errors import LHTError

SHOWN = 10  # rows that a repr shows
HEAD, LEFT = (f'<{tag} style="text-align:left">' for tag in ("th", "td"))  # Jupyter has numbers in mind


class Answers(list[Named]):
    """A list of `Named`, one per sample, in the order of the inputs.

    >>> answers = model.predict("beach/")
    >>> answers[0].names
    {'order': 'Charadriiformes', 'family': 'Laridae', 'species': 'Ivory Gull'}
    >>> answers.to_frame().groupby("family").size()
    """

    @overload
    def __getitem__(self, at: SupportsIndex) -> Named: ...
    @overload
    def __getitem__(self, at: slice) -> Answers: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Named | Answers:
        return Answers(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)

    def rows(
        self, *, confidence: float | None = None, risk: float | None = None, strict: bool = False
    ) -> list[dict[str, str | float | bool | None]]:
        """A dict per sample: file, then the class of every level and its probability, coarse → fine.

        Where branches of the tree may end early, a class is None where there is none, and `ends_at` is the level at which the
        branch ends, None if that is the finest.

        With `confidence` or `risk`, also the deepest answer that is sure enough; see `Named.answer`.
        """
        rolled = confidence is not None or risk is not None
        found = []
        for named in self:
            row: dict[str, str | float | bool | None] = {"file": named.source}
            if rolled:
                answer = named.answer(confidence=confidence, risk=risk, strict=strict)
                row |= {"answer": answer.label, "answer_level": answer.level, "answer_probability": answer.probability}
            for level in named.levels:
                row |= {level.level: level.label, f"{level.level}_probability": level.probability}
            row |= {"ends_at": named.ends_at} if named.ragged else {}
            row["consistent"] = named.consistent
            if named.levels[0].as_far is not None:
                row |= {f"{level.level}_as_far": level.as_far for level in named.levels} | {"unlike": named.unlike}
            found.append(row)
        return found

    def to_frame(self, *, confidence: float | None = None, risk: float | None = None, strict: bool = False) -> Any:
        """`rows` as a pandas DataFrame. Raises LHTError without pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise LHTError("to_frame() needs pandas: pip install pandas; rows() gives the same as a list of dicts") from None
        return pandas.DataFrame(self.rows(confidence=confidence, risk=risk, strict=strict))

    def __repr__(self) -> str:
        if not self:
            return "Answers: none"
        levels = " › ".join(level.level for level in self[0].levels)
        lines = [f"{len(self):,} answers: {levels}", *(f"  {named.source}: {named}" for named in self[:SHOWN])]
        return "\n".join([*lines, f"  … and {len(self) - SHOWN:,} more"] if len(self) > SHOWN else lines)

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        head = "".join(f"{HEAD}{escape(level.level)}</th>" for level in self[0].levels) if self else ""
        cells = (
            "".join(f"{LEFT}{escape(level.text)}<br>{bar(level.probability)}</td>" for level in named.levels)
            for named in self[:SHOWN]
        )
        body = "".join(f"<tr>{LEFT}{escape(named.source)}</td>{row}</tr>" for named, row in zip(self, cells, strict=False))
        rest = f"<p>… and {len(self) - SHOWN:,} more</p>" if len(self) > SHOWN else ""
        return f"<table><tr>{HEAD}file</th>{head}</tr>{body}</table>{rest}"
