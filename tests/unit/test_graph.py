"""Graphs of classes with several parents: closure, labels, circles, and ARFF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlht.data.arff import read_arff
from torchlht.data.several import beside, hide, hold_out, level_names, read_several
from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.graph import Graph
from torchlht.hierarchy.tree import Hierarchy

BATS = Graph.from_edges([("mammal", "bat"), ("flyer", "bat"), ("flyer", "gull"), ("gull", "herring gull"), ("mammal", "cow")])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs without circles: a node's parents come before it."""
    count = draw(st.integers(1, 12))
    parents = [draw(st.lists(st.integers(0, i - 1), unique=True, max_size=3)) if i else [] for i in range(count)]
    return Graph([f"n{i}" for i in range(count)], parents)


def naive_ancestors(graph: Graph, node: int) -> set[int]:
    return {node}.union(*(naive_ancestors(graph, parent) for parent in graph.parents[node]))


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_closure_levels_and_steps_are_those_of_a_walk(graph: Graph) -> None:
    pairs = {(a, node) for node in range(len(graph)) for a in naive_ancestors(graph, node)}
    assert set(map(tuple, graph.closure.T.tolist())) == pairs
    assert graph.closure.shape[1] == len(pairs)
    for node, above in enumerate(graph.parents):
        assert graph.levels[node] == max((graph.levels[p] + 1 for p in above), default=0)
    done = set(graph.leaves.tolist())
    for step in graph.steps:  # children before their parents
        assert set(step[1].tolist()) <= done
        done |= set(step[0].tolist())
    assert done == set(range(len(graph)))


@settings(max_examples=40, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_labels_imply_all_ancestors_and_ends_are_the_deepest(graph: Graph, seed: int) -> None:
    given_labels = (np.random.default_rng(seed).random((3, len(graph))) < 0.3).astype(np.int8)
    closed = graph.close(given_labels)
    for row, labels in zip(closed, given_labels, strict=True):
        assert set(np.flatnonzero(row)) == set().union(*(naive_ancestors(graph, int(node)) for node in np.flatnonzero(labels)))
    again = graph.close(graph.ends(closed).astype(np.int8))
    np.testing.assert_array_equal(again, closed)


def test_below_an_open_node_all_is_unknown_unless_it_is_known() -> None:
    labels = BATS.close(np.array([[BATS.names[i] == "cow" for i in range(len(BATS))]], dtype=np.int8))
    labels[:, BATS.index("flyer")] = 1
    opened = np.array([[name == "flyer" for name in BATS.names]])
    said = dict(zip(BATS.names, BATS.open_below(labels, opened)[0].tolist(), strict=True))
    assert said == {"mammal": 1, "bat": -1, "flyer": 1, "gull": -1, "herring gull": -1, "cow": 1}


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([("a", "b"), ("b", "a")], "its own grandparent: "),
        ([("a", "a")], "'a' is its own parent (edge 1)"),
        ([("a", "b"), ("b", "c"), ("c", "a"), ("a", "d")], "its own ancestor: "),
    ],
)
def test_a_circle_is_spelt_out(edges: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(HierarchyError) as error:
        Graph.from_edges(edges)
    assert said in str(error.value)
    for parent, _ in edges[:2]:
        assert parent in str(error.value)


def test_faults_of_arrays_are_named() -> None:
    for pair in ((1, 2), ("a", "b", "c")):
        with pytest.raises(DataError, match=r"edge 2 is \(.*\); an edge is a pair of names"):
            Graph.from_edges([("a", "b"), pair])  # type: ignore[list-item]
    for names, parents, said in (
        ([], [], "0 nodes"),
        (["a", "a"], [[], []], "'a' appears twice"),
        (["a", " "], [[], []], "empty name"),
        (["a"], [[3]], "outside"),
        (["a"], [[], []], "1 names but parents of 2"),
    ):
        with pytest.raises(HierarchyError, match=said):
            Graph(names, parents)
    with pytest.raises(DataError, match="did you mean gull"):
        BATS.index("gul")


def test_a_graph_is_written_and_read(tmp_path: Path) -> None:
    BATS.write(tmp_path / "graph.json")
    assert Graph.read(tmp_path / "graph.json") == BATS
    assert "2 with several" not in BATS.describe()
    assert "1 with several parents" in BATS.describe()


# ---- ARFF ------------------------------------------------------------------------------------------------------------

HEADER = "@RELATION x\n% a remark\n@ATTRIBUTE a numeric\n@ATTRIBUTE b {u,v}\n@ATTRIBUTE class hierarchical {}\n@DATA\n"
TREE = "1,1/1,1/1/1,1/2,2"
EDGES = "root/A,root/B,A/a,B/a,B/b,a/deep"


def write(path: Path, classes: str, *rows: str) -> Path:
    path.write_text(HEADER.replace("{}", classes) + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_paths_and_missing_values_are_read(tmp_path: Path) -> None:
    found = read_arff(write(tmp_path / "x.arff", TREE, "0.5,v,1/1/1@2", "?,?,1/2", "1,u,1/1/?", "2,u,?"))
    assert found.columns == ("a", "b=u", "b=v")
    assert found.graph.names == ("1", "1/1", "1/1/1", "1/2", "2")
    np.testing.assert_array_equal(found.features[:2], [[0.5, 0, 1], [np.nan] * 3])
    assert found.labels.tolist() == [[1, 1, 1, 0, 1], [1, 0, 0, 1, 0], [1, 1, -1, 0, 0], [-1] * 5]
    assert found.judged.all()


def test_edges_are_read_and_what_is_right_under_root_is_not_judged(tmp_path: Path) -> None:
    found = read_arff(write(tmp_path / "x.arff", EDGES, "1,u,deep@b"))
    graph = found.graph
    assert {graph.names[p] for p in graph.parents[graph.index("a")]} == {"A", "B"}
    assert found.labels.tolist() == [[1] * 5]
    assert len(graph) == 5
    assert {name for name, judged in zip(graph.names, found.judged, strict=True) if not judged} == {"A", "B"}


@pytest.mark.parametrize(
    ("classes", "row", "said"),
    [
        (TREE, "1,u", "line 7: 2 values for 3 attributes"),
        (TREE, "x,u,1", "line 7: a is 'x', not a number"),
        (TREE, "1,w,1", "line 7: b is 'w'"),
        (TREE, "1,u,1/1/9", "line 7: there is no class '1/1/9': did you mean 1/1/1"),
        ("root/a,a/b,b/a", "1,u,a", "its own grandparent"),
        (TREE, "", "no samples"),
    ],
)
def test_faults_of_a_file_are_named(tmp_path: Path, classes: str, row: str, said: str) -> None:
    path = write(tmp_path / "x.arff", classes, row)
    with pytest.raises((DataError, HierarchyError)) as error:
        read_arff(path)
    assert said in str(error.value)
    assert "x.arff" in str(error.value)


def test_a_file_without_a_hierarchical_class_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.arff").write_text("@ATTRIBUTE a numeric\n@DATA\n1\n")
    with pytest.raises(DataError, match="hierarchical"):
        read_arff(tmp_path / "x.arff")
    (tmp_path / "y.arff").write_text("@ATTRIBUTE a string\n@DATA\nz\n")
    with pytest.raises(DataError, match="attribute 'a' is 'string'"):
        read_arff(tmp_path / "y.arff")


def test_parts_beside_a_file_are_read_with_it(tmp_path: Path) -> None:
    for part, rows in (("train", 3), ("valid", 2), ("test", 1)):
        write(tmp_path / f"x.{part}.arff", TREE, *["1,u,1"] * rows)
    data = read_several(tmp_path / "x.train.arff")
    assert [len(data.index(name)) for name in ("train", "val", "test")] == [3, 2, 1]
    assert beside(write(tmp_path / "y.arff", TREE, "1,u,1")) == {"train": tmp_path / "y.arff"}
    other = (
        (tmp_path / "x.test.arff")
        .read_text()
        .replace("@ATTRIBUTE a numeric\n@ATTRIBUTE b {u,v}", "@ATTRIBUTE b {v,u}\n@ATTRIBUTE a numeric")
    )
    (tmp_path / "x.test.arff").write_text(other.replace("1,u,1", "u,1,1"))
    np.testing.assert_array_equal(read_several(tmp_path / "x.train.arff").features, data.features)
    write(tmp_path / "x.test.arff", "1,2", "1,u,1")
    with pytest.raises(DataError, match="not those of"):
        read_several(tmp_path / "x.train.arff")


def test_hiding_cuts_labels_back_to_their_parents(tmp_path: Path) -> None:
    rows = [f"{i},u,{('1/1/1@2', '1/2', '2')[i % 3]}" for i in range(60)]
    data = hold_out(read_several(write(tmp_path / "x.arff", TREE, *rows)), 0.25, 0, "test")
    hidden = hide(data, 0.5, 3)
    test, train = data.index("test"), data.index("train")
    np.testing.assert_array_equal(hidden.labels[test], data.labels[test])
    np.testing.assert_array_equal(hide(data, 0.5, 3).labels, hidden.labels)
    candidates = data.graph.ends(data.labels)[train][:, [1, 2, 3]].sum()  # top nodes stay known
    lost = (data.labels[train] == 1) & (hidden.labels[train] != 1)
    assert lost.sum() == round(candidates / 2)
    assert (hidden.labels[train][lost] == -1).all()
    assert (hidden.labels[:, [0, 4]] == data.labels[:, [0, 4]]).all()


def test_a_graph_of_a_tree_has_its_classes_without_those_that_stand_for_missing_ones() -> None:
    paths = [("A", "a", "1"), ("A", "b", None), ("B", None, "2"), ("C", "C", "3")]
    tree = Hierarchy.from_paths(paths, ("order", "family", "species"))
    graph = Graph.from_tree(tree)
    above = {name: [graph.names[p] for p in graph.parents[i]] for i, name in enumerate(graph.names)}
    assert above == {
        "A": [], "B": [], "order/C": [], "a": ["A"], "b": ["A"], "family/C": ["order/C"],
        "1": ["a"], "2": ["B"], "3": ["family/C"],
    }  # fmt: skip
    assert level_names(tree) == ()  # species 2 lies as deep as a family
    assert level_names(Hierarchy.from_paths(paths[:2], ("order", "family", "species"))) == ("order", "family", "species")
    labels = graph.open_below(np.zeros((1, 9), np.int8), np.zeros((1, 9), bool))
    labels[0, [graph.index("A"), graph.index("a")]], labels[0, graph.index("1")] = 1, -1
    assert [graph.names[i] for i in np.flatnonzero(graph.open_ends(labels)[0])] == ["a"]


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_leaves_are_counted_each_once(graph: Graph) -> None:
    np.testing.assert_array_equal(graph.leaf_counts, graph.leaves_below.sum(0))
