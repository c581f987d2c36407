"""What notebooks show: a tree that folds, answers with bars and pictures, runs and comparisons as tables."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from torchlht import Graph, Hierarchy
from torchlht.answer.exported.write import Written
from torchlht.answer.named import Candidate, LevelAnswer, Named
from torchlht.answer.several import Labels
from torchlht.answer.table import Answers
from torchlht.hierarchy.branches import MOST
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


def test_a_graph_folds_and_shows_a_class_under_each_of_its_parents() -> None:
    shown = Graph.from_edges([("a", "x & y"), ("b", "x & y"), ("b", "z")])._repr_html_()
    assert shown.count("<li>x &amp; y</li>") == 2
    assert "<summary>a (1)</summary>" in shown
    assert "<summary>b (2)</summary>" in shown


def test_a_graph_of_very_many_ways_or_of_great_depth_is_cut() -> None:
    ladder = [(f"{side}{i}", f"{other}{i + 1}") for i in range(30) for side in "ab" for other in "ab"]  # 2^30 ways down
    assert Graph.from_edges(ladder)._repr_html_().count("<li>") < 2 * MOST
    chain = Graph.from_edges([(str(i), str(i + 1)) for i in range(2000)])
    assert "<li>…</li>" in chain._repr_html_()


def test_a_set_of_classes_has_its_picture_and_bars_and_a_short_repr(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20), "red").save(tmp_path / "pond.png")
    levels = {"Gulls": "order", "<i>": "species"}
    found = Labels(str(tmp_path / "pond.png"), {"Gulls": 0.8, "<i>": 0.5}, ("<i>",), levels)
    shown = found._repr_html_()
    assert 'src="data:image/jpeg;base64,' in shown
    assert "<b>&lt;i&gt;</b>" in shown
    assert re.search(r"order</td>.*Gulls</td>.*width:4\.00em\"></span>80%", shown)
    assert repr(found) == f"Labels({str(tmp_path / 'pond.png')!r}: <i> (species, 50%))"
    assert "none is sure enough" in Labels("row 0", {}, ())._repr_html_()


def test_what_was_exported_is_one_line() -> None:
    assert repr(Written(Path("birds.onnx"), {"much": ["of", "it"]}, 3e-7)) == "Written('birds.onnx', difference 3e-07)"
