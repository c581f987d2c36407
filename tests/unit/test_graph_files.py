"""Graphs from files: rows, references, ontologies, several files; and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from torchlht.cli import main
from torchlht.errors import DataError, HierarchyError, LHTError
from torchlht.hierarchy.graph import Graph
from torchlht.hierarchy.linked import has_several_parents
from torchlht.hierarchy.tree import Hierarchy

BAT = {"bat": {"mammal", "flyer"}, "gull": {"flyer"}, "mammal": set(), "flyer": set()}
SKOS = "http://www.w3.org/2004/02/skos/core#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
FILES = {
    "rows.csv": "name,parent\nbat,mammal\nbat,flyer\ngull,flyer\n",
    "levels.csv": "group,kind\nmammal,bat\nflyer,bat\nflyer,gull\n",
    "references.yaml": "parents:\n  bat: [mammal, flyer]\n  gull: flyer\n  mammal:\n",
    "references.json": '{"parents": {"bat": ["mammal", "flyer"], "gull": "flyer"}}',
    "nested.json": '{"graph": {"mammal": ["bat"], "flyer": ["bat", "gull"]}}',
    "terms.obo": "[Term]\nid: X:1\nname: mammal\n\n[Term]\nid: X:2\nname: flyer\n\n"
    '[Term]\nid: X:3\nname: bat\nis_a: X:1 ! mammal\nrelationship: part_of X:2 {source="x"}\n\n'
    "[Term]\nid: X:4\nname: gull\nis_a: X:2\n\n[Term]\nid: X:5\nname: dodo\nis_obsolete: true\n"
    "\n[Typedef]\nid: part_of\n",
    "concepts.ttl": f"@prefix skos: <{SKOS}> . @prefix e: <http://e.org/> . # a comment\n"
    'e:bat a skos:Concept ; skos:prefLabel "Fledermaus"@de , "bat"@en ;\n  skos:broader e:mammal , <http://e.org/flyer> .\n'
    'e:flyer skos:narrower e:gull ; skos:prefLabel """flyer""" .\n',
    "concepts.rdf": f'<?xml version="1.0"?><r:RDF xmlns:r="{RDF}" xmlns:s="{SKOS}"><s:Concept r:about="http://e.org/x1">'
    '<s:prefLabel xml:lang="de">Fledermaus</s:prefLabel><s:prefLabel xml:lang="en">bat</s:prefLabel>'
    '<s:broader r:resource="http://e.org/mammal"/><s:broader><s:Concept r:about="http://e.org/f"><s:prefLabel>flyer</s:prefLabel>'
    '<s:narrower r:resource="http://e.org/gull"/></s:Concept></s:broader></s:Concept></r:RDF>',
}


def parents(graph: Graph) -> dict[str, set[str]]:
    return {name: {graph.names[p] for p in above} for name, above in zip(graph.names, graph.parents, strict=True)}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_every_form_gives_the_same_graph(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, FILES)
    found = Graph.read(tmp_path / name)
    assert parents(found) == BAT
    found.write(tmp_path / "graph.json")
    assert Graph.read(tmp_path / "graph.json") == found == Graph.read(tmp_path)
    assert Graph.read(tmp_path / "graph.json").also == found.also
    assert has_several_parents(tmp_path)  # as a run directory
    (tmp_path / "half.json").write_text('{"format": "torchlht-graph-1", "names": ["a"]}')
    with pytest.raises(LHTError, match=r"not a complete graph\.json"):
        has_several_parents(tmp_path / "half.json")
    if name == "levels.csv":  # such a table is one of a tree, unless it is read as a graph
        return
    assert has_several_parents(tmp_path / name)
    main(["hierarchy", "check", str(tmp_path / name)])
    assert "no problems; 4 nodes, 3 edges, 2 levels, 1 with several parents" in capsys.readouterr().out
    main(["hierarchy", "show", str(tmp_path / name)])
    assert capsys.readouterr().out.count("one of 2 places") == 2
    with pytest.raises(HierarchyError, match="two parents"):
        Hierarchy.read(tmp_path / name)


def test_one_graph_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        {"a.csv": "name,parent\nbat,mammal\n", "b.csv": "name,parent\nbat,flyer\n", "c.yaml": "parents: {gull: flyer}\n"},
    )
    assert parents(Graph.read("a.csv,b.csv,c.yaml")) == BAT
    assert not has_several_parents(Path("a.csv,c.yaml"))
    with pytest.raises(DataError, match=r"nope\.csv: no such file"):
        Graph.read("a.csv,nope.csv")


def test_a_tree_given_like_a_graph_is_a_hierarchy(tmp_path: Path) -> None:
    rows = "name,parent\nx,A\ny,A\nz,B\n"
    write(tmp_path, {"tree.csv": rows, "tree.yaml": "parents:\n  x: A\n  y: A\n  z: B\n"})
    write(
        tmp_path,
        {
            "tree.obo": "".join(
                f"[Term]\nid: {n}\n" + (f"is_a: {p}\n" if p else "") + "\n" for n, p in ("A ", "B ", "xA", "yA", "zB")
            )
        },
    )
    plain = Hierarchy.read(tmp_path / "tree.csv", ["family", "species"])
    for name in ("tree.yaml", "tree.obo"):
        assert not has_several_parents(tmp_path / name)
        read = Hierarchy.read(tmp_path / name, ["family", "species"])
        assert {frozenset(p) for p in zip(read.classes[0], np_names(read), strict=True)} == {
            frozenset(p) for p in zip(plain.classes[0], np_names(plain), strict=True)
        }


def np_names(tree: Hierarchy) -> list[str]:
    return [tree.classes[1][p] for p in tree.parents[0]]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            {"a.csv": "name,parent\na,b\n", "b.csv": "name,parent\nx,\nb,c\n", "c.csv": "name,parent\nc,a\n"},
            ["its own ancestor", "a.csv line 2", "b.csv line 3", "c.csv line 2"],
        ),
        ({"a.csv": "name,parent\na,b\nb,a\n"}, ["its own grandparent", "line 2", "line 3"]),
        ({"a.csv": "name,parent\na,a\n"}, ["'a' is its own parent (line 2)"]),
        ({"a.csv": "name,parent\n,b\n"}, ["line 2: name is empty"]),
        ({"a.csv": "name,parent\n"}, ["holds no classes"]),
        ({"a.csv": "id,name,parent\n1,x,3\n2,x,4\n"}, ["line 1: unknown column 'id'"]),
        ({"a.csv": "name,parent\na,x\na,y\n,x\nz\n"}, ["line 4: name is empty", "line 5: 1 cells"]),
        ({"a.json": '{"parents": {"a": ["b"],\n"c": [null, "b"]}}'}, ["line 2: 'c' must have a name"]),
        (
            {
                "a.json": '{"format": "torchlht-graph-1", "names": ["a", "b"], "parents": [[-1], []]}',
                "b.csv": "name,parent\nb,c\n",
            },
            ["a.json: a: a parent is outside 0…1"],
        ),
        ({"a.yaml": "parents: [a, b]\n"}, ["line 1: parents must be names with their parents"]),
        ({"a.yaml": "parents:\n  a: [[b]]\n"}, ["line 2: 'a' must have a name"]),
        ({"a.obo": "[Term]\nid: X:1\nis_a: X:9\n"}, ["line 3: 'X:1' is under 'X:9', which no [Term] describes"]),
        ({"a.obo": "[Term]\nid: X:1\nis_a: X:9\n\n[Term]\nid: X:9\nis_obsolete: true\n"}, ["or only an obsolete one"]),
        ({"a.obo": "[Term]\nname: x\n"}, ["line 2: a [Term] without an id"]),
        ({"a.obo": "[Term]\nid: X:1\n\n[Term]\nid: X:1\n"}, ["line 5: the id 'X:1' appears twice"]),
        ({"a.ttl": "e:a e:b e:c .\n"}, ["line 1: this statement cannot be read: the prefix 'e' is not declared"]),
        ({"a.ttl": "<a> <b> [ ] .\n"}, ["blank nodes and lists are not read"]),
        ({"a.ttl": "\n<a> <b>\n"}, ["line 2: this statement cannot be read: it ends too early"]),
        ({"a.rdf": "<a>\n<b></a>"}, ["line 2: not well-formed XML"]),
        ({"a.rdf": '<!DOCTYPE a [<!ENTITY b "c">]><a/>'}, ["declares entities"]),
        ({"a.xyz": "?"}, ["are read from .csv"]),
    ],
)
def test_faults_are_named(tmp_path: Path, files: dict[str, str], said: list[str]) -> None:
    write(tmp_path, files)
    with pytest.raises(LHTError) as error:
        Graph.read(",".join(str(tmp_path / name) for name in files))
    assert all(one in str(error.value) for one in said), error.value


def test_a_faulty_table_of_a_graph_is_not_told_that_it_is_no_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, {"a.csv": "name,parent\na,x\na,y\n,x\nz\n"})
    with pytest.raises(SystemExit):
        main(["hierarchy", "check", str(tmp_path / "a.csv")])
    said = capsys.readouterr()
    assert "2 problems" in said.out + said.err
    assert "two parents" not in said.out + said.err


def test_where_a_tree_is_needed_a_graph_is_refused_in_one_sentence(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": "parents:\n  a: [x, y]\n  b: [x, y, z]\n"})
    with pytest.raises(HierarchyError) as error:
        Hierarchy.read(tmp_path / "a.yaml")
    told = "'a' has two parents, 'x' (line 2) and 'y' (line 2); 'b' has 3 parents, 'x' (line 3) and 'y' (line 3)"
    assert str(error.value).endswith(f"{told}; this needs a tree")
    Graph.from_edges([(p, c) for p in "xy" for c in "abcd"]).write(tmp_path / "graph.json")
    with pytest.raises(HierarchyError) as error:
        Hierarchy.read(tmp_path / "graph.json")
    told = (
        "'a' has two parents, 'x' and 'y'; 'b' has two parents, 'x' and 'y', and 2 others have several, too; this needs a tree"
    )
    assert str(error.value).endswith(told)


def test_a_long_circle_is_cut_and_a_deep_graph_is_drawn_as_deep_as_a_tree_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = "name,parent\n" + "".join(f"n{i + 1},n{i}\n" for i in range(2000))
    write(tmp_path, {"round.csv": f"{rows}n0,n2000\nn1,m\n", "deep.csv": f"{rows}n9,m\n"})
    with pytest.raises(HierarchyError) as error:
        Graph.read(tmp_path / "round.csv")
    assert len(str(error.value)) < 500
    main(["hierarchy", "show", str(tmp_path / "deep.csv")])
    assert capsys.readouterr().out.count("one of 2 places") == 2


def test_a_label_that_fits_two_nodes_of_one_name(tmp_path: Path) -> None:
    write(tmp_path, {"a.obo": "[Term]\nid: X:1\nname: wing\n\n[Term]\nid: X:2\nname: wing\nis_a: X:1\n"})
    graph = Graph.read(tmp_path / "a.obo")
    assert set(graph.names) == {"wing (X:1)", "wing (X:2)"}
    assert graph.names[graph.index("X:2")] == "wing (X:2)"
    with pytest.raises(DataError, match=r"'wing' fits 2 classes, 'wing \(X:1\)' and 'wing \(X:2\)'"):
        graph.index("wing")


WINGS = "[Term]\nid: X:1\nname: wing\n\n[Term]\nid: X:2\nname: wing\n\n[Term]\nid: X:3\nname: bird\n"


def test_rows_beside_an_ontology_name_its_classes_by_name_or_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        {"a.obo": WINGS, "b.csv": "name,parent\nX:1,X:3\ntip,X:1\nbeak,bird\n", "c.csv": "name,parent\nbird,\ntip,wing\n"},
    )
    found = parents(Graph.read("b.csv,a.obo"))
    assert found == {"bird": set(), "wing (X:1)": {"bird"}, "wing (X:2)": set(), "tip": {"wing (X:1)"}, "beak": {"bird"}}
    with pytest.raises(HierarchyError, match=r"c\.csv: line 3: 'wing' fits 2 classes, 'wing \(X:1\)' and 'wing \(X:2\)'"):
        Graph.read("c.csv,a.obo")


def test_former_ids_stand_for_the_class_that_has_them_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path,
        {
            "a.obo": "[Term]\nid: X:1\nname: wing\nalt_id: X:8\nalt_id: X:9\n\n[Term]\nid: X:2\nname: fin\nalt_id: X:9\n",
            "b.obo": "[Term]\nid: X:3\nname: tip\nis_a: X:8 ! wing\nis_a: X:2\n",
            "c.csv": "name,parent\nfeather,X:8\n",
        },
    )
    graph = Graph.read("a.obo,b.obo,c.csv")
    assert parents(graph) == {"wing": set(), "fin": set(), "tip": {"wing", "fin"}, "feather": {"wing"}}
    assert graph.names[graph.index("X:8")] == "wing"
    with pytest.raises(DataError, match="'X:9' fits 2 classes, 'wing' and 'fin'"):
        graph.index("X:9")


def test_names_of_ontologies_are_read_as_their_formats_write_them(tmp_path: Path) -> None:
    skos = "@prefix skos: <http://www.w3.org/2004/02/skos/core#> .\n"
    write(
        tmp_path,
        {
            "a.obo": "[Term]\nid: X:1\nname: 1\\,2\\: a \\{b\\}\\tc\n",
            "a.ttl": skos + "<#bat> skos:broader _:any .\n",
        },
    )
    assert Graph.read(tmp_path / "a.obo").names == ("1,2: a {b} c",)
    assert parents(Graph.read(tmp_path / "a.ttl")) == {"bat": {"_:any"}, "_:any": set()}


class Directed:
    """What networkx.DiGraph has of what is read."""

    def __init__(self, edges: Sequence[tuple[Any, ...]], names: dict[str, str], directed: bool = True) -> None:
        self.edges, self._names, self._directed = edges, names, directed
        self.nodes = _Nodes({node: {"name": names[node]} if node in names else {} for edge in edges for node in edge[:2]})

    def is_directed(self) -> bool:
        return self._directed


class _Nodes(dict[str, dict[str, str]]):
    def __call__(self, data: bool) -> Any:
        return self.items()


def test_networkx_either_way_round() -> None:
    down = Directed([("mammal", "b"), ("flyer", "b"), ("flyer", "gull")], {"b": "bat"})
    assert parents(Graph.from_networkx(down)) == BAT
    up = Directed([(b, a) for a, b in down.edges], {"b": "bat"})
    found = Graph.from_networkx(up, up=True)
    assert parents(found) == BAT
    assert found.index("b") == found.index("bat")
    keyed = [("b", "mammal", "is_a"), ("b", "flyer", "part_of"), ("gull", "flyer", "is_a"), ("b", "gull", "regulates")]
    obo = Directed(keyed, {"b": "bat"})
    assert parents(Graph.from_networkx(obo, up=True)) == BAT
    assert parents(Graph.from_networkx(obo, up=True, kinds=["is_a"]))["bat"] == {"mammal"}
    assert parents(Graph.from_networkx(Directed([("a", "b", 0), ("a", "b", 1)], {}))) == {"a": set(), "b": {"a"}}
    with pytest.raises(DataError, match=r"no edge has one of the keys \['nope'\] \(keys: \['is_a', 'part_of', 'regulates'\]\)"):
        Graph.from_networkx(obo, kinds=["nope"])
    with pytest.raises(DataError, match="list is no graph of networkx"):
        Graph.from_networkx(keyed)
    with pytest.raises(HierarchyError, match="its own grandparent"):
        Graph.from_networkx(Directed([("a", "b"), ("b", "a")], {}))
    with pytest.raises(DataError, match="no directions"):
        Graph.from_networkx(Directed([("a", "b")], {}, directed=False))
    with pytest.raises(DataError, match="1 and '1' are two nodes, but both read '1'"):
        Graph.from_networkx(Directed([(1, "x"), ("1", "y")], {}))
    with pytest.raises(DataError, match="has an empty name"):
        Graph.from_networkx(Directed([("", "y")], {}))
