"""What notebooks show: a tree that folds, answers with bars and pictures, runs and comparisons as tables."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from torchlht import Hierarchy
from torchlht.answer.named import Candidate, LevelAnswer, Named
from torchlht.answer.table import Answers
from torchlht.lab.comparison.results import Comparison


def named(source: str, label: str = "Gulls") -> Named:
    family = LevelAnswer("family", (Candidate(label, 0.75), Candidate("Auks", 0.2)))
    return Named(source, (family,), consistent=True)


def test_a_tree_folds_and_counts_what_is_below() -> None:
    shown = Hierarchy.from_paths([("A & B", "s"), ("A & B", "t"), ("C", "u")], ["family", "species"])._repr_html_()
    assert "<summary>A &amp; B (2)</summary>" in shown
    assert shown.count("<details>") == 3


def test_an_answer_has_its_picture_and_a_bar_as_long_as_its_probability(tmp_path: Path) -> None:
    Image.new("RGB", (400, 200), "red").save(tmp_path / "beach.png")
    shown = named(str(tmp_path / "beach.png"))._repr_html_()
    assert 'src="data:image/jpeg;base64,' in shown
    assert re.search(r"width:3\.75em\"></span>75%", shown)
    assert "Auks 20%" in shown


def test_names_are_text_and_features_have_no_picture() -> None:
    shown = named("row 3", "<script>")._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "<img" not in shown
    assert "&lt;script&gt;" in Answers([named("row 3", "<script>")])._repr_html_()


def test_a_comparison_is_its_table_of_accuracies() -> None:
    values = {("lht", 0.9, "species", column): {0: 0.4, 1: 0.5} for column in ("accuracy", "mean_accuracy")}
    found = Comparison(["lht"], [0.9], ["species"], [0, 1], values)
    assert "<td>90%</td><td>lht</td><td>45.0 ± 7.1</td>" in found._repr_html_()
    assert repr(found) == "Comparison(lht; 90% masked; 2 seeds)"
