"""Typed figures against the result files: what a comment beside them names is looked up, so that they cannot go stale.

The comments stand in Markdown, where nobody sees them. Before a table, rows and columns say what each cell is:

    <!-- figures: rollup.csv; method=lht; asked for=promise; order=answered_order -->

and at the end of a paragraph or of an entry of a list, figures are named in the order in which they are said:

    <!-- figures: compare-cub-90.csv; level=species: marginal, marginal - flat -->

`column=value` chooses rows of the file; `heading=column` says which column a heading of the table means. A heading may also
be a level, or with `across=column` another column's value; its figures are accuracies, or those of `measure=column`. Behind the
colon, a word is a value of whichever column has it, or the name of a column of figures. A cell with a † is not looked up.
"""

from __future__ import annotations

import functools
import re
import shlex
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from figures import rows_of

COMMENT = re.compile(r"<!-- figures: (?P<words>.*?) -->(?P<table>\n+(?:[ \t]*\|[^\n]*\n?)+)?", re.DOTALL)
NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?")
FIGURE = re.compile(r"\**[-+−]?\d[^†]*$")
SAME = {"masked": "mask", "hidden": "mask", "macc": "mean_accuracy"}


@functools.cache
def same(text: str, value: str) -> bool:
    """Whether a cell names a value of a column: 90% is 0.9, and 1,200 is 1200."""
    said = text.replace("`", "").replace("*", "").strip().removeprefix("--")
    if share := re.fullmatch(r"(\d+) ?%", said):
        return re.fullmatch(r"[\d.]+", value) is not None and float(value) == int(share[1]) / 100
    return value in (said, re.sub(r"(?<=\d),(?=\d{3})", "", said))


@dataclass
class Comment:
    """What a comment says: a file, what chooses its rows, and what headings or figures mean."""

    file: str
    chosen: dict[str, str] = field(default_factory=dict)
    headings: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, words: str) -> Comment:
        """The parts of the comment."""
        choice, _, said = words.partition(": ")
        file, *pairs = (part.strip() for part in choice.split(";"))
        comment = cls(file, said=[one.strip() for one in said.split(",")] if said else [])
        for left, right in (pair.split("=", 1) for pair in pairs):
            (comment.chosen if left in rows_of(file)[0] else comment.headings)[left] = right
        return comment

    def values(self, chosen: dict[str, str], measure: str) -> list[float]:
        """The figures of the rows that are meant, one per seed. Behind a comma in a cell there may be an explanation."""
        rows = rows_of(self.file)
        for key, text in chosen.items():
            rows = [row for row in rows if same(text, row[key])] or [row for row in rows if same(text.split(", ")[0], row[key])]
        one = {row.get("seed", str(n)): row for n, row in reversed([*enumerate(rows)])}
        return [float(row[measure]) for row in one.values() if row[measure]]

    def column(self, heading: str) -> str:
        """The column of the file that a heading of a table means, or the level that it names."""
        plain = re.sub(r" (%|\(.*\))$", "", heading.strip().replace("`", ""))
        return self.headings.get(plain, SAME.get(plain.lower(), plain))


def matches(text: str, values: list[float]) -> bool:
    """Whether a figure, with or without its spread, is what the values say, as a share or in percent."""
    found = NUMBER.findall(text)
    return any(_written(text, found, [scale * value for value in values]) for scale in (1, 100))


def _written(text: str, found: list[str], values: list[float]) -> bool:
    half = 0.5001 * 10.0 ** -len(found[0].partition(".")[2])
    said = [float(one.replace(",", "").replace("−", "-")) for one in found]
    right = abs(said[0] - statistics.mean(values)) <= half
    return right and ("±" not in text or (len(values) > 1 and abs(said[1] - statistics.stdev(values)) <= half))


# ---- tables ------------------------------------------------------------------------------------------------------------


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table_faults(comment: Comment, lines: list[str]) -> tuple[int, list[str]]:
    """How many figures of a table were looked up, and those that the file does not have."""
    columns = [comment.column(heading) for heading in cells(lines[0])]
    across, measure = comment.headings.get("across", "level"), comment.headings.get("measure", "accuracy")
    known, values = rows_of(comment.file)[0].keys(), {row.get(across, "") for row in rows_of(comment.file)}
    keys = [n for n, name in enumerate(columns) if name in known and not _is_measure(comment.file, name)]
    looked_up = [n for n, name in enumerate(columns) if n not in keys and (name in known or name in values)]
    count, faults = 0, []
    for line in lines[2:]:
        row = cells(line)
        chosen = comment.chosen | {columns[n]: row[n] for n in keys}
        for n, name in [(n, columns[n]) for n in looked_up if FIGURE.match(row[n])]:
            meant = comment.values(chosen | {across: name}, measure) if name in values else comment.values(chosen, name)
            count += 1
            if not meant or not matches(row[n], meant):
                faults.append(f"{comment.file} has {_brief(meant)} for {row[n]!r} under {name} in: {line}")
    return count, faults


def _is_measure(file: str, column: str) -> bool:
    words = {"mask", "seed", "shots", "draw", "cost", "answers", "spent", "samples"}
    return column not in words and all(re.fullmatch(r"-?[\d.]+(e-?\d+)?|", row[column]) for row in rows_of(file))


def _brief(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} (of {len(values)})" if values else "nothing"


# ---- prose -------------------------------------------------------------------------------------------------------------


def term(comment: Comment, words: str) -> float:
    """The mean that a few words name."""
    chosen, measure, rows = dict(comment.chosen), "accuracy", rows_of(comment.file)
    for word in shlex.split(words):
        if word in rows[0]:
            measure = word
            continue
        [column] = [name for name in rows[0] if any(row[name] == word for row in rows) and name != "seed"][:1] or [""]
        if not column:
            raise ValueError(f"{comment.file} knows no {word!r}")
        chosen[column] = word
    found = comment.values(chosen, measure)
    if not found:
        raise ValueError(f"{comment.file} has nothing for {words!r}")
    return statistics.mean(found)


def prose_faults(comment: Comment, text: str) -> tuple[int, list[str]]:
    """How many figures of a paragraph were looked up, and those that it does not say."""
    faults, place = [], 0
    for said in comment.said:
        terms = [term(comment, words) for words in said.split(" - ")]
        value = abs(terms[0] - sum(terms[1:]))
        wanted = {f"{scale * value:.{digits}f}" for scale in (1, 100) for digits in (0, 1, 2)} - {"0"}
        found = next((one for one in re.finditer(r"(?<![\w.])\d+(?:\.\d+)?", text[place:]) if one[0] in wanted), None)
        if found is None:
            faults.append(f"{comment.file} has {value:.4f} for {said!r}, which is not said here: …{text[-160:]}")
        else:
            place += found.end()
    return len(comment.said), faults


def check(page: Path) -> tuple[int, list[str]]:
    """How many typed figures of a page were looked up in their result files, and what is wrong with them."""
    text = page.read_text(encoding="utf-8")
    count, faults = 0, []
    for found in COMMENT.finditer(text):
        comment = Comment.read(found["words"])
        if comment.said:
            before = re.split(r"\n\s*\n|\n(?=\s*(?:- |\|))", text[: found.start()])[-1]
            number, wrong = prose_faults(comment, re.sub(r"<!--.*?-->", "", before, flags=re.DOTALL))
        else:
            number, wrong = table_faults(comment, found["table"].strip().splitlines())
            wrong += [] if number else [f"nothing was looked up for {found['words']!r}"]
        count += number
        faults += [f"{page.name}: {one}" for one in wrong]
    return count, faults
