"""`Hierarchy`: what it is made from, what it answers, and that it comes back from a file as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlht.errors import DataError, Fault, HierarchyError, summarise
from torchlht.hierarchy.tree import Hierarchy

BIRDS = [
    ("Charadriiformes", "Laridae", "Ivory Gull"),
    ("Charadriiformes", "Laridae", "Herring Gull"),
    ("Charadriiformes", "Alcidae", "Horned Puffin"),
    ("Gaviiformes", "Gaviidae", "Common Loon"),
]
LEVELS = ("order", "family", "species")


@pytest.fixture
def birds() -> Hierarchy:
    return Hierarchy.from_paths(BIRDS, LEVELS)


@st.composite
def trees(draw: st.DrawFn, max_depth: int = 4) -> Hierarchy:
    """Random complete trees of 1 to `max_depth` levels with shuffled parents."""
    sizes = [draw(st.integers(1, 4))]
    parents: list[list[int]] = []
    for _ in range(draw(st.integers(0, max_depth - 1))):
        extra = draw(st.lists(st.integers(0, sizes[0] - 1), max_size=4))
        above = draw(st.permutations([*range(sizes[0]), *extra]))
        parents.insert(0, list(above))
        sizes.insert(0, len(above))
    classes = [[f"{n}-{i}" for i in range(n)] for n in sizes]
    return Hierarchy.from_parents(parents, classes=classes)


def walk(tree: Hierarchy, leaf: int) -> list[int]:
    """The path to the top, one step at a time."""
    path = [leaf]
    for parents in tree.parents:
        path.append(int(parents[path[-1]]))
    return path


# ---- making one ----------------------------------------------------------------------------------------------------


def test_from_paths_stores_fine_first_and_numbers_classes_as_they_appear(birds: Hierarchy) -> None:
    assert birds.levels == ("species", "family", "order")
    assert birds.classes[0] == ("Ivory Gull", "Herring Gull", "Horned Puffin", "Common Loon")
    assert birds.classes[1] == ("Laridae", "Alcidae", "Gaviidae")
    assert birds.classes[2] == ("Charadriiformes", "Gaviiformes")
    assert [p.tolist() for p in birds.parents] == [[0, 0, 1, 2], [0, 0, 1]]
    assert birds.sizes == (4, 3, 2)
    assert len(birds) == 3


def test_from_parents_names_classes_by_number_and_levels_from_the_top() -> None:
    tree = Hierarchy.from_parents([[0, 0, 1, 2], [0, 1, 1]])
    assert tree.levels == ("level3", "level2", "level1")
    assert tree.classes == (("0", "1", "2", "3"), ("0", "1", "2"), ("0", "1"))


def test_from_parents_takes_arrays_and_names() -> None:
    tree = Hierarchy.from_parents([np.array([0, 1, 1])], levels=["species", "family"], classes=[["a", "b", "c"], ["A", "B"]])
    assert tree == Hierarchy.from_paths([("A", "a"), ("B", "b"), ("B", "c")], ("family", "species"))


def test_one_level_is_a_hierarchy() -> None:
    made = Hierarchy.from_parents([], classes=[["a", "b"]])
    assert made == Hierarchy.from_paths([("a",), ("b",)], ["level1"])
    assert (len(made), made.sizes, made.levels, made.parents) == (1, (2,), ("level1",), ())
    assert made.path(1) == (1,)
    assert made.lca_height(np.array([0, 0]), np.array([0, 1])).tolist() == [0, 1]
    assert made.fill(np.array([[1], [-1]])).tolist() == [[1], [-1]]


def test_from_parents_without_parents_or_classes_is_refused() -> None:
    with pytest.raises(HierarchyError, match="no levels"):
        Hierarchy.from_parents([])


def test_parents_cannot_be_changed_afterwards(birds: Hierarchy) -> None:
    with pytest.raises(ValueError, match="read-only"):
        birds.parents[0][0] = 1


def test_the_same_name_may_stand_at_different_levels() -> None:
    tree = Hierarchy.from_paths([("Gull", "Gull"), ("Gull", "Tern"), ("Auk", "Auk")], ("family", "species"))
    assert tree.classes == (("Gull", "Tern", "Auk"), ("Gull", "Auk"))
    assert (tree.index(0, "Auk"), tree.index(1, "Auk")) == (2, 1)


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ([("A", "x"), ("B", "x"), ("B", "y")], "path 2: species 'x' is under 'B' here but under 'A' on path 1"),
        ([("A", "x"), (None, "y")], "path 2: no row tells the family of the species 'y'"),
    ],
)
def test_from_paths_names_the_path_that_is_wrong(paths: list[tuple[str | None, ...]], told: str) -> None:
    with pytest.raises(HierarchyError) as caught:
        Hierarchy.from_paths(paths, ("family", "species"))
    assert [str(fault) for fault in caught.value.faults] == [told]
    assert told in str(caught.value)


def test_a_row_that_skips_a_level_must_agree_with_the_others() -> None:
    with pytest.raises(HierarchyError, match="path 2: species 'x' is under order 'P' here but under 'O' elsewhere"):
        Hierarchy.from_paths([("O", "F", "x"), ("P", None, "x"), ("P", "G", "y"), ("O", "H", "z")], LEVELS)


def test_a_gap_is_closed_by_what_another_path_knows() -> None:
    tree = Hierarchy.from_paths([("O", None, "x"), ("O", "F", "x"), (None, "F", "y"), ("P", "G", "z")], LEVELS)
    assert tree.classes == (("x", "y", "z"), ("F", "G"), ("O", "P"))


def test_from_paths_refuses_a_path_longer_than_the_levels() -> None:
    with pytest.raises(HierarchyError, match="path 2"):
        Hierarchy.from_paths([("A", "x"), ("A", "y", "z")], ("family", "species"))


def test_bridges_of_classes_with_the_same_name_at_different_levels_stay_apart() -> None:
    tree = Hierarchy.from_paths(
        [("A", None, None, "x"), ("R", "A", None, "y"), ("R", "A", "g", "z")], ("order", "family", "genus", "species")
    )
    up = {name: [tree.classes[k][i] for k, i in enumerate(tree.path(j))] for j, name in enumerate(tree.classes[0])}
    assert up["y"][2:] == ["A", "R"], "y was given in family A of order R"
    assert up["x"][3] == "A", "x was given in order A"
    assert up["z"] == ["z", "g", "A", "R"]


@pytest.mark.parametrize(
    ("levels", "classes", "parents"),
    [
        (["a"], [["x"], ["y"]], [[0]]),
        (["a", "b"], [["x"], ["y"]], []),
        (["a", "b"], [["x"], ["y"]], [[0], [0]]),
        ([], [], []),
    ],
)
def test_counts_that_do_not_fit_are_one_fault(levels: list[str], classes: list[list[str]], parents: list[list[int]]) -> None:
    with pytest.raises(HierarchyError, match="K names, K lists and K - 1 parent arrays") as caught:
        Hierarchy(levels=levels, classes=classes, parents=parents)
    assert len(caught.value.faults) == 1


def test_every_structural_fault_is_listed_at_once() -> None:
    with pytest.raises(HierarchyError) as caught:
        Hierarchy(
            levels=["fine", "middle", "coarse", "fine"],
            classes=[["a", "b", "a", " "], ["m", "n", "o"], ["p", "q", "r", "s"], ["t"]],
            parents=[[0, 0, 7, -1], [0, 1, 2], [0, 0, 0]],
            source="made up",
        )
    assert caught.value.source == "made up"
    assert sorted(str(fault) for fault in caught.value.faults) == sorted(
        [
            "level name 'fine' appears twice",
            "fine: 'a' appears twice",
            "fine: class 3 has an empty name",
            "fine: the parent of 'a' is 7, outside 0…2",
            "fine: the parent of ' ' is -1, outside 0…2",
            "middle: 'n' has no fine under it",
            "middle: 'o' has no fine under it",
            "level 'middle' is finer than 'coarse' but narrower (3 classes against 4): "
            "levels run coarse → fine; --levels names them in that order",
            "coarse: 's' has no middle under it",
            "coarse: 4 classes but 3 parents: every coarse has exactly one fine",
        ]
    )


def test_a_long_list_of_faults_is_summed_up_with_the_way_to_see_all() -> None:
    faults = [Fault(f"line {i}", "wrong") for i in range(2, 7)]
    told = summarise("birds.csv", faults)
    assert "5 problems" in told
    assert "line 2: wrong; line 3: wrong; line 4: wrong" in told
    assert "line 5" not in told
    assert "lht hierarchy check birds.csv" in told
    assert summarise("birds.csv", faults[:2]) == "birds.csv: line 2: wrong; line 3: wrong"


# ---- asking --------------------------------------------------------------------------------------------------------


def test_index_finds_by_name_and_suggests_the_nearest(birds: Hierarchy) -> None:
    assert [birds.index(0, name) for name in birds.classes[0]] == [0, 1, 2, 3]
    with pytest.raises(DataError, match="species has no class 'Ivory Gul': did you mean Ivory Gull") as caught:
        birds.index(0, "Ivory Gul")
    assert "Common Loon" in str(caught.value), "the known ones are listed"


def test_index_looks_only_at_its_level(birds: Hierarchy) -> None:
    with pytest.raises(DataError, match="family has no class 'Ivory Gull'"):
        birds.index(1, "Ivory Gull")


@given(trees())
@settings(max_examples=25, deadline=None)
def test_ancestors_path_and_edges_agree_with_a_walk(tree: Hierarchy) -> None:
    for leaf in range(tree.sizes[0]):
        assert list(tree.path(leaf)) == walk(tree, leaf)
    for of in range(len(tree)):
        assert tree.ancestors(of, of).tolist() == list(range(tree.sizes[of]))
    for level in range(len(tree)):
        assert tree.ancestors(level).tolist() == [walk(tree, leaf)[level] for leaf in range(tree.sizes[0])]
        for middle in range(level + 1):
            assert tree.ancestors(level).tolist() == tree.ancestors(level, middle)[tree.ancestors(middle)].tolist()
    for k, parents in enumerate(tree.parents):
        child, parent = tree.edges(k)
        assert child.tolist() == list(range(tree.sizes[k]))
        assert parent.tolist() == parents.tolist()


@given(trees())
@settings(max_examples=25, deadline=None)
def test_matrix_has_its_one_in_every_column_at_the_parent(tree: Hierarchy) -> None:
    for k, parents in enumerate(tree.parents):
        matrix = tree.matrix(k)
        assert matrix.shape == (tree.sizes[k + 1], tree.sizes[k])
        assert (matrix.sum(axis=0) == 1).all()
        assert matrix.argmax(axis=0).tolist() == parents.tolist()
        assert (matrix.sum(axis=1) >= 1).all(), "no class is without children"


@given(trees())
@settings(max_examples=25, deadline=None)
def test_lca_height_is_the_number_of_steps_until_two_walks_meet(tree: Hierarchy) -> None:
    n = tree.sizes[0]
    a, b = (np.repeat(np.arange(n), n), np.tile(np.arange(n), n))

    def naive(i: int, j: int) -> int:
        pairs = zip(walk(tree, i), walk(tree, j), strict=True)
        return next((height for height, (x, y) in enumerate(pairs) if x == y), len(tree))

    expected = [naive(int(i), int(j)) for i, j in zip(a, b, strict=True)]
    assert tree.lca_height(a, b).tolist() == expected
    assert tree.lca_height(b, a).tolist() == expected


def test_lca_height_reads_0_equal_1_siblings_k_nothing_shared(birds: Hierarchy) -> None:
    assert birds.lca_height(np.array([0, 0, 0, 0]), np.array([0, 1, 2, 3])).tolist() == [0, 1, 2, 3]
    assert birds.lca_height(np.array([[0], [3]]), np.array([0, 3])).tolist() == [[0, 3], [3, 0]], "broadcasts"


@pytest.mark.parametrize(
    ("given_labels", "filled"),
    [
        ([2, -1, -1], [2, 1, 0]),
        ([3, -1, 1], [3, 2, 1]),
        ([-1, 2, -1], [-1, 2, 1]),
        ([-1, -1, 1], [-1, -1, 1]),
        ([-1, -1, -1], [-1, -1, -1]),
        ([0, 0, 0], [0, 0, 0]),
    ],
)
def test_fill_adds_the_ancestors_and_nothing_finer(birds: Hierarchy, given_labels: list[int], filled: list[int]) -> None:
    labels = np.array([given_labels])
    assert birds.fill(labels).tolist() == [filled]
    assert labels.tolist() == [given_labels], "what came in is left alone"


def test_fill_of_no_rows_is_no_rows(birds: Hierarchy) -> None:
    assert birds.fill(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)


@given(trees(), st.data())
@settings(max_examples=25, deadline=None)
def test_fill_restores_every_hidden_ancestor(tree: Hierarchy, data: st.DataObject) -> None:
    leaves = data.draw(st.lists(st.integers(0, tree.sizes[0] - 1), min_size=1, max_size=8))
    whole = np.array([walk(tree, leaf) for leaf in leaves])
    hide = np.array(
        data.draw(
            st.lists(
                st.lists(st.booleans(), min_size=len(tree), max_size=len(tree)), min_size=len(leaves), max_size=len(leaves)
            )
        )
    )
    known = np.where(hide, -1, whole)
    below_first = np.logical_or.accumulate(known >= 0, axis=1)
    assert tree.fill(known).tolist() == np.where(below_first, whole, -1).tolist()


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([0, 1, -1], "species 'Ivory Gull' is labelled family 'Alcidae', but the tree puts it under 'Laridae'"),
        ([-1, 2, 0], "family 'Gaviidae' is labelled order 'Charadriiformes', but the tree puts it under 'Gaviiformes'"),
        ([3, -1, 0], "family 'Gaviidae' is labelled order 'Charadriiformes', but the tree puts it under 'Gaviiformes'"),
    ],
)
def test_fill_refuses_a_contradiction_with_its_row(birds: Hierarchy, row: list[int], told: str) -> None:
    with pytest.raises(DataError) as caught:
        birds.fill(np.array([[0, 0, 0], row]))
    assert str(caught.value).startswith("row 1: ")
    assert told in str(caught.value)
    with pytest.raises(DataError, match=r"^birds.csv line 3: "):
        birds.fill(np.array([[0, 0, 0], row]), where=lambda i: f"birds.csv line {i + 2}")


def test_fill_counts_the_rows_that_are_wrong_in_the_same_way(birds: Hierarchy) -> None:
    with pytest.raises(DataError, match=r"^row 0: .* \(and 2 more rows like it\)"):
        birds.fill(np.array([[0, 1, -1], [1, 2, -1], [2, 1, 0], [3, 0, -1]]))


def test_top_down_and_describe_and_repr_read_coarse_to_fine(birds: Hierarchy) -> None:
    assert list(birds.top_down) == [2, 1, 0]
    assert birds.describe() == "order 2 › family 3 › species 4"
    assert repr(birds) == "Hierarchy(order 2 › family 3 › species 4)"


def test_equality_sees_levels_names_and_parents(birds: Hierarchy) -> None:
    def variant(levels: Sequence[str] = birds.levels, classes=birds.classes, parents=birds.parents) -> Hierarchy:  # type: ignore[no-untyped-def]
        return Hierarchy(levels=levels, classes=classes, parents=parents)

    assert variant() == birds
    assert hash(variant()) == hash(birds)
    assert variant(levels=("kind", "family", "order")) != birds
    assert variant(classes=(("a", "b", "c", "d"), *birds.classes[1:])) != birds
    assert variant(parents=([0, 1, 1, 2], [0, 0, 1])) != birds
    assert birds != "birds"


# ---- keeping -------------------------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=1, max_size=6).filter(str.strip)


@given(trees(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_written_hierarchy_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, tree: Hierarchy, data: st.DataObject
) -> None:
    classes = [data.draw(st.lists(NAMES, min_size=n, max_size=n, unique=True)) for n in tree.sizes]
    levels = data.draw(st.lists(NAMES, min_size=len(tree), max_size=len(tree), unique=True))
    named = Hierarchy(levels=levels, classes=classes, parents=tree.parents)
    path = tmp_path_factory.mktemp("tree") / "hierarchy.json"
    named.write(path)
    back = Hierarchy.read(path)
    assert back == named
    assert back.classes == named.classes
    assert [p.dtype for p in back.parents] == [p.dtype for p in named.parents]


@pytest.mark.parametrize(
    "name", ["日本のカモメ", "Möwe 🐦", "true", "null", "1.0", "a: b", '"', "\\", "a\tb", " a ", "a\nb", "#x"]
)
def test_awkward_names_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    tree = Hierarchy.from_paths([(name, name), (name, "other"), ("Auk", "Auk")], (name, "fine"))
    tree.write(tmp_path / "hierarchy.json")
    assert Hierarchy.read(tmp_path / "hierarchy.json") == tree


@pytest.mark.parametrize("name", ["a\x7fb", "a\x90b", "a\ufeffb", "a\ufffe"])
def test_names_with_unprintable_characters_come_back_as_they_were(tmp_path: Path, name: str) -> None:
    tree = Hierarchy.from_paths([("A", name), ("B", "other")], ("coarse", "fine"))
    tree.write(tmp_path / "hierarchy.json")
    assert Hierarchy.read(tmp_path / "hierarchy.json") == tree


def test_the_file_is_plain_json_that_says_what_it_is(birds: Hierarchy, tmp_path: Path) -> None:
    birds.write(tmp_path / "hierarchy.json")
    content = json.loads((tmp_path / "hierarchy.json").read_text(encoding="utf-8"))
    assert content == birds.to_dict()
    assert content["format"] == "torchlht-hierarchy-1"
    assert [level["name"] for level in content["levels"]] == ["species", "family", "order"]
    assert content["levels"][0]["parents"] == [0, 0, 1, 2]
    assert content["levels"][-1]["parents"] is None
