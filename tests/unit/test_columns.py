"""Labels as people hold them in Python: lists, arrays and data frames of names, with blanks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchlht.data.columns import as_values, labels_in, read_columns, tree_of_columns, two_signs
from torchlht.data.distinct import distinct
from torchlht.errors import DataError
from torchlht.hierarchy.tree import Hierarchy
from trees import quick

ROWS = [["Gulls", "Ivory Gull"], ["Gulls", ""], ["Auks", "Puffin"], ["Gulls", "Herring Gull"], ["", "Puffin"], ["", ""]]
PATHS = [["Auks", "Puffin"], ["Gulls", "Herring Gull"], ["Gulls", "Ivory Gull"]]
NUMBERS = [[2, 1], [-1, 1], [0, 0], [1, 1], [0, 0], [-1, -1]]  # fine first


def read(y: Any, **how: Any) -> tuple[Hierarchy, list[list[int]]]:
    columns = read_columns(y, **how)
    tree = tree_of_columns(columns)
    return tree, labels_in(tree, columns).tolist()


def blanked(blank: Any) -> list[list[Any]]:
    return [[name or blank for name in row] for row in ROWS]


FORMS = {
    "lists": ROWS,
    "tuples": tuple(map(tuple, ROWS)),
    "texts": np.array(ROWS),
    "objects": np.array(blanked(None), dtype=object),
    "None": blanked(None),
    "nan": blanked(float("nan")),
    "minus one": blanked(-1),
    "NA": blanked(pd.NA),
    "spaces": blanked("  "),
    "masks": np.ma.array(blanked("Puffin"), mask=[[not name for name in row] for row in ROWS]),
    "frame": pd.DataFrame(blanked(None)),
    "categories": pd.DataFrame(ROWS).astype("category"),
    "rows in an array": np.array([np.array(row, dtype=object) for row in ROWS] + [None], dtype=object)[:-1],
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_names_in_every_form_are_the_same(form: str) -> None:
    tree, labels = read(FORMS[form])
    assert [list(names) for names in tree.classes] == [["Puffin", "Herring Gull", "Ivory Gull"], ["Auks", "Gulls"]]
    assert labels == NUMBERS


def test_more_names_can_mean_unknown_in_any_case() -> None:
    assert read(blanked("N/A"), unknown=["n/a "])[1] == NUMBERS


def test_columns_of_a_frame_name_the_levels_and_find_them() -> None:
    frame = pd.DataFrame(ROWS, columns=["family", "species"])
    tree = read(frame)[0]
    assert tree.levels == ("species", "family")
    turned = read_columns(frame[["species", "family"]])
    assert labels_in(tree, turned).tolist() == NUMBERS
    assert labels_in(tree, read_columns(frame[["family"]]))[:, 1].tolist() == [1, 1, 0, 1, -1, -1]


def test_a_branch_that_ends_early_is_known_down_to_its_end() -> None:
    tree, labels = read([["Bird"], ["Reptile", "Snake"], ["Mammal", "Wolf", "Dog"], ["Mammal"], ["Mammal", "Cat"]])
    assert tree.sizes == (4, 4, 3)
    assert [tree.classes[0][i] for i in np.array(labels)[[0, 1, 2, 4], 0]] == [
        "Bird (no level3)", "Snake (no level3)", "Dog", "Cat (no level3)",
    ]  # fmt: skip
    assert labels[3][:2] == [-1, -1]  # mammals have finer classes


@pytest.mark.parametrize(
    ("y", "values"),
    [
        ([10, 2, -1, 2], np.array([2, 10])),
        (np.array([10, 2, 2], dtype=np.int8), np.array([2, 10], dtype=np.int8)),
        ([10.0, float("nan"), 2.0], np.array([2.0, 10.0])),
        ([True, False, True], np.array([False, True])),
        (["b", "a", None], np.array(["a", "b"])),
        (pd.Series([7, pd.NA, 30], dtype="Int64"), np.array([7, 30])),
    ],
)
def test_labels_come_back_as_they_were(y: Any, values: np.ndarray) -> None:
    columns = read_columns(y)
    tree = tree_of_columns(columns)
    found = as_values(tree.classes[0], columns.columns[0].dtype)
    assert found.dtype.kind == values.dtype.kind
    assert found.tolist() == values.tolist()
    again = [values[i].item() if i >= 0 else None for i in labels_in(tree, columns)[:, 0]]
    assert again == [None if value is pd.NA or value != value or value == -1 else value for value in list(y)]


def test_one_name_each_is_a_class_of_any_level_of_a_tree() -> None:
    tree = read(PATHS)[0]
    assert labels_in(tree, read_columns(["Ivory Gull", "Gulls", "", "Puffin"])).tolist() == [[2, 1], [-1, 1], [-1, -1], [0, 0]]


def test_minus_one_and_one_are_two_classes() -> None:
    assert two_signs([-1, 1, 1])
    assert two_signs(np.array([-1.0, 1.0]))
    assert not any(map(two_signs, ([-1, 0, 1], [1, 1], ["-1", "1"], ROWS, [[-1, 1]], [["a"], ["b", "c"]])))
    assert read([-1, 1], signs=True)[1] == [[0], [1]]


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([["Gulls", "Puffin"], ["Auks", "Puffin"], ["Auks", "Auk"]], "'Puffin' is under 'Gulls' here but under 'Auks' on"),
        ([["", "Puffin"], ["Auks", "Auk"]], "y: row 0: no row tells the level1 of the level2 'Puffin'"),
        ([[["a", "b"], ["a", "c"]]], "y row 0: has several paths; each sample has one row of names"),
        ([["a", {}]], "y row 0: {} is no name"),
        (np.array([1.0, 0.5]), "y row 1: 0.5 is continuous; labels are names or whole numbers"),
        (np.array([1.0, np.inf]), "y row 1: inf is continuous"),
        ("Puffin", "y is str (): pass a row of names coarse → fine for each sample, or one name each"),
        (np.zeros((2, 2, 2)), "y is ndarray (2, 2, 2)"),
        (np.zeros((2, 65)), "y has 65 columns; the most that is read is 64, one per level"),
        ([["a", ""], ["b", ""]], "y: no label of the level level2; leave the column out, or label some samples"),
        ([None, None], "y: no label of the level class"),
    ],
)  # fmt: skip
def test_what_is_no_label_is_refused_with_its_row(y: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)):
        read(y)


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([["Gulls", "Puffin"]], "y row 0: level2 'Puffin' is labelled level1 'Gulls', but the tree puts it under 'Auks'"),
        ([["Auks", ""], ["Auks", "Pufin"]], "y row 1: level2 has no class 'Pufin': did you mean Puffin?"),
        ([["a", "b", "c"]], "y has 3 columns, but the tree has the levels level1, level2"),
        (["Pufin"], "y row 0: level2 has no class 'Pufin'"),
    ],
)
def test_what_contradicts_a_tree_is_refused_with_its_row(y: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=re.escape(sentence)):
        labels_in(read(PATHS)[0], read_columns(y))


def test_level_names_must_fit() -> None:
    with pytest.raises(DataError, match=re.escape("y has 2 columns, but 3 levels are named (a, b, c)")):
        tree_of_columns(read_columns(ROWS), ["a", "b", "c"])


# ---- distinct samples ----------------------------------------------------------------------------------------------


@quick
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=30), st.randoms())
def test_weights_are_copies_and_order_does_not_matter(rows: list[tuple[int, int, int]], random: Any) -> None:
    """Against a plain count of equal rows."""
    rows = [*rows, (9, 9, 1)]
    x, y = np.array([[a, 1.5] for a, _, _ in rows], dtype=np.float32), np.array([[b] for _, b, _ in rows])
    weights = np.array([float(w) for _, _, w in rows])
    count: dict[tuple[int, int], float] = {}
    for a, b, w in rows:
        count[a, b] = count.get((a, b), 0.0) + w
    copies = np.repeat(np.arange(len(rows)), weights.astype(int))
    random.shuffle(copies)
    seen = []
    for one in (distinct(x, y, weights), distinct(x[copies], y[copies])):
        x_of, y_of = (x, y) if not seen else (x[copies], y[copies])
        found = one.weights if one.weights is not None else np.ones(len(one.rows))
        seen.append([(x_of[i, 0], y_of[i, 0], w) for i, w in zip(one.rows, found, strict=True)])
    assert seen[0] == seen[1]
    assert {(a, b): w for a, b, w in seen[0]} == {key: w for key, w in count.items() if w}


def test_weights_that_are_no_numbers_of_copies_have_a_mean_of_one() -> None:
    found = distinct(np.eye(3, dtype=np.float32), np.zeros((3, 1), dtype=np.int64), np.array([0.2, 0.4, 0.6]))
    assert found.weights is not None
    np.testing.assert_allclose(sorted(found.weights), [0.5, 1.0, 1.5])
    large = distinct(np.eye(2, dtype=np.float32), np.zeros((2, 1), dtype=np.int64), np.array([1.7e308, 0.5]))
    assert large.weights is not None
    np.testing.assert_allclose(sorted(large.weights), [0, 2], atol=1e-12)
    assert distinct(np.eye(3, dtype=np.float32), np.zeros((3, 1), dtype=np.int64)).weights is None


@pytest.mark.parametrize("wrong", [[1, -1], [1, np.nan], [1, np.inf], [0, 0], [1e9, 1e9], [1.7e308, 1.7e308]])
def test_weights_that_make_no_sense_are_refused(wrong: list[float]) -> None:
    with pytest.raises(DataError, match="sample_weight"):
        distinct(np.eye(2, dtype=np.float32), np.zeros((2, 1), dtype=np.int64), np.array(wrong, dtype=float))
