"""Figures that pages state are those of the result files in `benchmarks/results`, and a wrong one would be noticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.md")])


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    yield __import__("checked")
    for name in ("checked", "figures"):
        sys.modules.pop(name, None)


def test_every_figure_with_a_comment_is_that_of_its_result_file(checked) -> None:
    found = [checked.check(page) for page in PAGES]
    assert [fault for _, faults in found for fault in faults] == []
    assert sum(count for count, _ in found) > 2000


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("| 90% | lht | 42.7 ± 0.3 |", "| 90% | lht | 42.8 ± 0.3 |"),
        ("| 90% | lht | 42.7 ± 0.3 |", "| 90% | lht | 42.7 ± 0.4 |"),
        ("| 90% | lht | **42.7** |", "| 90% | nobody | 42.7 |"),
    ],
)
def test_a_wrong_figure_of_a_table_is_noticed(checked, tmp_path: Path, right: str, wrong: str) -> None:
    page, table = (
        tmp_path / "page.md",
        "<!-- figures: compare-cub.csv -->\n| masked | method | species (n = 5,794) |\n|---|---|---|\n",
    )
    page.write_text(table + right + "\n")
    assert checked.check(page) == (1, [])
    page.write_text(table + wrong + "\n")
    assert len(checked.check(page)[1]) == 1


def test_a_wrong_figure_in_a_sentence_is_noticed(checked, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    comment = "<!-- figures: compare-cub.csv; mask=0.9; level=species: marginal, marginal - flat -->"
    page.write_text(f"Another 9.0.\n\n- It is 42.9 right,\n  9.0 ahead.\n  {comment}\n")
    assert checked.check(page) == (2, [])
    page.write_text(f"Another 9.0.\n\n- It is 42.9 right,\n  8.1 ahead.\n  {comment}\n")
    assert len(checked.check(page)[1]) == 1


def test_a_table_in_which_nothing_was_looked_up_is_a_fault(checked, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- figures: compare-cub.csv -->\n| method | colour |\n|---|---|\n| lht | 3 |\n")
    assert len(checked.check(page)[1]) == 1


def test_every_result_file_is_linked_from_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    files = [path.name for path in ROOT.glob("benchmarks/results/*.csv")]
    assert files
    assert [name for name in files if f"results/{name})" not in text] == []
