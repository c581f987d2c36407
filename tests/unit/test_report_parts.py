"""The report's pure parts: bins and counts against loops, text that is safe, and pages that parse."""

from __future__ import annotations

import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from matplotlib.figure import Figure
from PIL import Image

from torchlht.hierarchy.tree import Hierarchy
from torchlht.measure.metrics import CalibrationError
from torchlht.measure.operating import Decisions, operating_curve
from torchlht.show.figures.confusion import class_rows, examples, straying_class, worst_mistakes
from torchlht.show.figures.curves import learning_figure, read_history
from torchlht.show.figures.probabilities import (
    LevelReliability,
    operating_figure,
    reliability,
    reliability_figure,
    share_figure,
)
from torchlht.show.look import DARK, LIGHT, figure_png, look, theme
from torchlht.show.page import SECTIONS, TEMPLATES, Section, page
from torchlht.show.sections.parts import LARGEST, Cell, Content, Picture, Table, draw, drawable, few_colours, listed, percent
from torchlht.show.seen import distinct_names
from trees import hierarchies, paths, quick, random_hierarchy, seeds

TREE = random_hierarchy(np.random.default_rng(0), (9, 5, 3))
HEAD = {"name": "run", "beside": [], "summary": "", "cautions": [], "facts": {}}
NASTY = "<b>Laridae & \"co\"</b><script>alert('x')</script>"


class Reader(HTMLParser):
    """Reads a page: every element closed in order, all attributes, and what is text."""

    VOID = ("img", "meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.code: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, text: str) -> None:
        (self.code if self.open and self.open[-1] in ("style", "script") else self.text).append(text)

    def all(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attributes for found, attributes in self.seen if found == name]


def answers(seed: int, n: int = 60, tree: Hierarchy = TREE) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, answers of which half are right, and confidences: (n, K) each."""
    rng = np.random.default_rng(seed)
    labels, other = paths(tree, rng, n).numpy(), paths(tree, rng, n).numpy()
    chosen = np.where(rng.random((n, 1)) < 0.5, labels, other)
    return labels, chosen, np.sort(rng.random((n, len(tree))), axis=1)


# ---- reliability ---------------------------------------------------------------------------------------------------


@quick
@given(seeds, st.integers(1, 80), st.integers(1, 20))
def test_reliability_bins_are_those_of_a_loop(seed, n, bins):
    rng = np.random.default_rng(seed)
    confidence = np.where(rng.random(n) < 0.2, rng.integers(0, bins + 1, n) / bins, rng.random(n))  # edges, too
    right = rng.random(n) < confidence
    found = reliability(confidence, right, bins)
    error = 0.0
    for i in range(bins):
        inside = [j for j in range(n) if min(max(int(np.ceil(confidence[j] * bins)), 1), bins) - 1 == i]
        assert found.count[i] == len(inside)
        if not inside:
            assert np.isnan(found.confidence[i])
            assert np.isnan(found.accuracy[i])
            continue
        mean, share = sum(confidence[j] for j in inside) / len(inside), sum(right[j] for j in inside) / len(inside)
        assert found.confidence[i] == pytest.approx(mean)
        assert found.accuracy[i] == pytest.approx(share)
        error += len(inside) / n * abs(mean - share)
    assert found.error == pytest.approx(error)


def test_the_error_is_that_of_the_metrics():
    rng = np.random.default_rng(1)
    confidence = rng.random(500)
    right = rng.random(500) < 0.6
    metric = CalibrationError()
    metric.update(torch.from_numpy(confidence), torch.from_numpy(right))
    assert reliability(confidence, right).error == pytest.approx(metric.compute().item())
    assert np.isnan(reliability(np.zeros(0), np.zeros(0, dtype=bool)).error)


@pytest.mark.parametrize(("count", "calibrated"), [(1, False), (3, True), (4, False)])
def test_a_reliability_panel_says_its_error_before_and_after(count, calibrated):
    confidence = np.linspace(0.05, 1, 50)
    before = reliability(confidence, np.arange(50) % 2 == 0)
    after = reliability(confidence / 2, np.arange(50) % 2 == 0) if calibrated else None
    figure = reliability_figure([LevelReliability(f"level {i}", before, after) for i in range(count)])
    titles = [title for axes in figure.axes if (title := axes.get_title(loc="left"))]
    expected = f"ECE {100 * before.error:.1f}" + (f" → {100 * after.error:.1f}" if after else "")
    assert titles == [f"level {i}  ·  {expected} %" for i in range(count)]
    assert figure_png(figure)[:4] == b"\x89PNG"


# ---- operating curves and learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_areas_of_levels_fill_the_panel_and_curves_stay_inside(depth):
    tree = Hierarchy(levels=TREE.levels[:depth], classes=TREE.classes[:depth], parents=TREE.parents[: depth - 1])
    labels, chosen, confidence = answers(3, 40, tree)
    curve = operating_curve(Decisions(*map(torch.from_numpy, (chosen, confidence, labels))), tree)
    figure = share_figure({"a": curve, "b": curve}, tree.levels)
    tops = np.max([[path.vertices[:, 1].max() for path in area.get_paths()] for area in figure.axes[0].collections])
    assert tops == pytest.approx(1)
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["nothing", *tree.levels[::-1]]
    figure = operating_figure({"a": curve}, {"a": []})
    low, high = figure.axes[0].get_ylim()
    drawn = figure.axes[0].lines[0].get_ydata()
    assert ((drawn >= low) & (drawn <= high)).all()


def test_a_history_is_read_as_far_as_it_goes(tmp_path):
    assert read_history(tmp_path, ["order"]) is None
    (tmp_path / "history.csv").write_text("epoch,loss,train_order,val_order,gamma_order\n1,2.5,0.5,,6.1\n2,1.5,0.75,0.7,6.2\n")
    found = read_history(tmp_path, ["order", "species"])
    assert found.loss == [2.5, 1.5]
    assert found.train == {"order": [0.5, 0.75]}
    assert np.isnan(found.val["order"][0])
    assert found.gamma == {"order": [6.1, 6.2]}
    assert len(learning_figure(found).axes) == 3
    (tmp_path / "history.csv").write_text("epoch,seconds\n1,3\n")
    assert read_history(tmp_path, ["order"]) is None


# ---- classes and mistakes ------------------------------------------------------------------------------------------


@quick
@given(hierarchies(), seeds, st.integers(1, 40))
def test_hard_classes_are_counted_as_a_loop_counts_them(tree, seed, n):
    labels, chosen, _ = (one[:, 0] for one in answers(seed, n, tree))
    labels = np.where(np.random.default_rng(seed).random(n) < 0.2, -1, labels)
    rows = class_rows(labels, chosen, tree)
    assert [row.recall for row in rows] == sorted(row.recall for row in rows)
    assert {row.label for row in rows} == set(labels[labels >= 0].tolist())
    for row in rows:
        mine = chosen[labels == row.label].tolist()
        wrong = [said for said in mine if said != row.label]
        assert (row.samples, row.right) == (len(mine), len(mine) - len(wrong))
        assert row.taken == max((wrong.count(said) for said in wrong), default=0)
        assert row.rival is None if not wrong else wrong.count(row.rival) == row.taken
        assert row.height == (tree.lca_height(np.array(row.label), np.array(row.rival)) if wrong else 0)


@quick
@given(seeds, st.integers(0, 8))
def test_the_worst_mistakes_are_the_farthest_and_then_the_surest(seed, count):
    labels, chosen, confidence = (one[:, 0] for one in answers(seed))
    found = worst_mistakes(labels, chosen, confidence, TREE, count).tolist()
    wrong = [i for i in range(len(labels)) if labels[i] != chosen[i]]
    key = {i: (-int(TREE.lca_height(chosen[i], labels[i])), -confidence[i]) for i in wrong}
    assert found == sorted(wrong, key=key.get)[:count]


def test_examples_are_right_and_wrong_in_turn_and_of_different_orders():
    labels, chosen, confidence = answers(5)
    found = examples(labels, chosen, confidence[:, 0], 6)
    right = [labels[i, 0] == chosen[i, 0] for i in found]
    assert right == [True, False] * 3
    assert len(set(found)) == 6
    assert len({labels[i, 2] for i in found}) == 3
    assert len(examples(labels, labels, confidence[:, 0], 100)) == 60  # nothing wrong: all that there is
    assert examples(np.full_like(labels, -1), chosen, confidence[:, 0], 4) == []


def test_the_straying_class_leaves_its_parent_most_often():
    labels, chosen, _ = answers(6)
    label, sample = straying_class(labels, chosen, TREE, 0)
    outside = {c: int(((labels[:, 0] == c) & (chosen[:, 1] != labels[:, 1])).sum()) for c in range(9)}
    assert outside[label] == max(outside.values())
    assert labels[sample, 0] == label
    assert chosen[sample, 1] != labels[sample, 1]
    assert straying_class(labels, labels, TREE, 0) is not None
    assert straying_class(np.full_like(labels, -1), chosen, TREE, 0) is None


# ---- text and pages ------------------------------------------------------------------------------------------------


PARTS = TEMPLATES.get_template("parts.html").module


def test_whatever_a_class_is_called_it_is_text_on_the_page():
    for made in (
        PARTS.left_out([NASTY]),
        PARTS.image(Picture("data:,", 1, 1, NASTY, "on-light")),
        PARTS.image(Picture(f"data:,{NASTY}", 1, 1, "")),
        *(PARTS.table(Table([NASTY, "n"], [[cell, "1"]])) for cell in (NASTY, Cell(NASTY), Cell(NASTY, span=1))),
        PARTS.table(Table(["n", "m"], [["1", Cell(NASTY, share=0.5)]])),
        page(HEAD | {"summary": NASTY}, [Section("two", NASTY, NASTY, NASTY)]),
        page(HEAD | {"facts": {"data": NASTY}}, []),
    ):
        found = Reader(made)
        assert "b" not in {name for name, _ in found.seen}
        assert not any("alert" in text for text in found.code)
        values = [value for _, attributes in found.seen for value in attributes.values() if value]
        assert NASTY in "".join(found.text) or any(value.endswith(NASTY) for value in values)


def test_a_table_keeps_words_and_numbers_apart_also_where_a_cell_spans_rows():
    rows = [[Cell("order", span=2), "a", "1", Cell("2", share=0.25)], ["b", "3", Cell("kept", "right")]]
    found = Reader(PARTS.table(Table(["level", "run", "x", "y"], rows, words=2, ours=[1])))
    assert [one.get("class") for one in found.all("th")] == [None, None, "number", "number", None]
    assert [one.get("class") for one in found.all("td")] == [None, "number", "number barred", None, "number", "right"]
    assert [one.get("class") for one in found.all("tr")] == [None, None, "ours"]
    assert found.all("th")[-1]["rowspan"] == "2"
    assert found.all("span")[0]["style"] == "width:25.0%"


def test_every_section_has_its_part_of_the_template_and_nothing_undefined_is_passed_over():
    written = TEMPLATES.get_template("sections.html").module
    assert all(callable(getattr(written, key.replace("-", "_"))) for key, *_ in SECTIONS)
    with pytest.raises(UndefinedError, match="samples"):
        page(HEAD, [Section("metrics", "Metrics", "Metrics", Content())])


def test_numbers_that_are_not_there_are_dashes():
    assert (percent(None), percent(float("nan")), percent(0.1234), percent(1, 0)) == ("–", "–", "12.3", "100")
    assert (listed(["a"]), listed(["a", "b", "c"])) == ("a", "a, b and c")


def plot() -> Figure:
    """A small figure with a gradient in the theme's colours."""
    figure = Figure(figsize=(1.5, 1), facecolor=theme().paper)
    figure.add_axes((0.2, 0.2, 0.6, 0.6)).imshow(np.arange(400).reshape(20, 20), cmap=theme().shares)
    return figure


def test_a_figure_is_drawn_on_light_and_on_dark_paper_and_nothing_stays_behind():
    drawn = draw("plot", "a plot", plot)
    corners = [Image.open(io.BytesIO(png)).convert("RGB").getpixel((0, 0)) for png in (drawn.light, drawn.dark)]
    assert ["#{:02x}{:02x}{:02x}".format(*corner) for corner in corners] == [LIGHT.paper, DARK.paper]
    assert theme() is LIGHT
    with look(DARK):
        with look() as inner:
            assert inner is DARK
        with look(LIGHT):
            assert theme() is LIGHT
        assert theme() is DARK


def test_few_colours_are_nearly_the_same_picture():
    with look():
        png = figure_png(plot())
    before, after = (np.asarray(Image.open(io.BytesIO(one)).convert("RGB")).astype(int) for one in (png, few_colours(png)))
    assert before.shape == after.shape
    assert np.abs(before - after).max() <= 8
    assert (after[(before == 255).all(axis=2)] == 255).all()  # paper stays paper
    assert len(Image.open(io.BytesIO(few_colours(png))).getcolors(256)) <= 256


def test_a_page_parses_and_needs_nothing_from_elsewhere():
    photo = draw("photo", "photographs", plot, photographs=True)
    figure = draw("plot", NASTY, plot)
    sections = [
        Section("confusion", "First", "1", Content(figures=[figure, photo], missing=[NASTY])),
        Section("two", "Second", "2", "It does not apply."),
    ]
    text = page(HEAD | {"name": NASTY, "beside": ["a", "b", "c"]}, sections)
    found = Reader(text)
    sources = [attributes["src"] for attributes in found.all("img")]
    assert [source.partition(";")[0] for source in sources] == ["data:image/png"] * 2 + ["data:image/jpeg"] * 2
    assert [image["class"] for image in found.all("img")] == ["on-light", "on-dark"] * 2
    assert all(image["alt"] for image in found.all("img"))
    assert {link["href"] for link in found.all("a")} == {"#confusion"}, "a section without content is left out"
    assert [one["id"] for one in found.all("section")] == ["confusion"]
    assert f"{NASTY}, beside a, b and c" in found.text
    assert "2: It does not apply." in found.text
    assert not found.all("link")
    assert not re.search(r"""(?:https?:)?//\w|url\(|@import""", re.sub(r"data:image[^\"]*", "", text))


def test_levels_too_large_to_draw_are_replaced_by_the_next_coarser():
    above = np.arange(LARGEST + 1) // 3
    tree = Hierarchy.from_parents([above, np.zeros(above.max() + 1, dtype=int)], levels=["species", "family", "order"])
    assert drawable(tree, [1, 0]) == (
        [1],
        ["2,001 classes of species are too many to draw; family is shown instead."],
    )
    assert drawable(TREE, [1, 0]) == ([1, 0], [])
    wide = Hierarchy(levels=["species"], classes=[[str(i) for i in range(LARGEST + 1)]], parents=[])
    assert drawable(wide, [0]) == ([], ["2,001 classes of species are too many to draw."])


def test_runs_are_called_by_as_much_of_their_path_as_tells_them_apart():
    assert distinct_names([Path("/a/lht"), Path("/a/flat")]) == ["lht", "flat"]
    assert distinct_names([Path("/a/lht"), Path("/b/lht"), Path("/b/flat")]) == ["a/lht", "b/lht", "b/flat"]
