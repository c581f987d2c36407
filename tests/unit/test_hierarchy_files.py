"""The files a tree of classes is read from, and every fault of each with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchlht.errors import DataError, HierarchyError
from torchlht.hierarchy.tree import Hierarchy

LEVELS = ("order", "family", "species")
BIRDS = Hierarchy.from_paths(
    [
        ("Charadriiformes", "Laridae", "Ivory Gull"),
        ("Charadriiformes", "Laridae", "Herring Gull"),
        ("Charadriiformes", "Alcidae", "Horned Puffin"),
        ("Gaviiformes", "Gaviidae", "Common Loon"),
    ],
    LEVELS,
)
CSV = """order,family,species
Charadriiformes,Laridae,Ivory Gull
Charadriiformes,Laridae,Herring Gull
Charadriiformes,Alcidae,Horned Puffin
Gaviiformes,Gaviidae,Common Loon
"""
EDGES = """name,parent,level
Charadriiformes,,order
Gaviiformes,,order
Laridae,Charadriiformes,family
Alcidae,Charadriiformes,family
Gaviidae,Gaviiformes,family
Ivory Gull,Laridae,species
Herring Gull,Laridae,species
Horned Puffin,Alcidae,species
Common Loon,Gaviidae,species
"""
NESTED = {
    "Charadriiformes": {"Laridae": ["Ivory Gull", "Herring Gull"], "Alcidae": ["Horned Puffin"]},
    "Gaviiformes": {"Gaviidae": ["Common Loon"]},
}
YAML = """Charadriiformes:
  Laridae:
    - Ivory Gull
    - Herring Gull
  Alcidae: [Horned Puffin]
Gaviiformes: {Gaviidae: Common Loon}
"""


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def faults_of(path: Path, levels: tuple[str, ...] | None = None) -> list[str]:
    with pytest.raises(HierarchyError) as caught:
        Hierarchy.read(path, levels=levels)
    assert str(path) in str(caught.value), "the message names the file"
    return [str(fault) for fault in caught.value.faults]


def paths_of(tree: Hierarchy) -> dict[str, tuple[str, ...]]:
    """Each finest class's names, coarse → fine."""
    return {
        name: tuple(tree.classes[k][tree.path(leaf)[k]] for k in tree.top_down) for leaf, name in enumerate(tree.classes[0])
    }


# ---- each reader ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("birds.csv", CSV),
        ("birds.CSV", CSV),
        ("birds.tsv", CSV.replace(",", "\t")),
        ("birds.txt", CSV.replace(",", "\t")),
        ("semicolon.csv", CSV.replace(",", ";")),
        ("bom.csv", "\ufeff" + CSV),
        ("crlf.csv", CSV.replace("\n", "\r\n")),
        ("spaces.csv", CSV.replace(",", " , ")),
        ("blank_lines.csv", CSV.replace("\n", "\n\n") + ",,\n"),
        ("quoted.csv", CSV.replace("Ivory Gull", '"Ivory Gull"')),
        ("no_newline.csv", CSV.rstrip()),
    ],
)
def test_a_table_with_one_column_per_level(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8"))
    assert Hierarchy.read(tmp_path / name) == BIRDS


def test_a_cell_may_hold_the_delimiter_when_quoted(tmp_path: Path) -> None:
    tree = Hierarchy.read(put(tmp_path, "a.csv", 'family,species\nLaridae,"Gull, ivory"\nLaridae,Tern\n'))
    assert tree.classes[0] == ("Gull, ivory", "Tern")


def test_a_table_of_one_column_is_one_level(tmp_path: Path) -> None:
    tree = Hierarchy.read(put(tmp_path, "a.csv", "species\nTern\nGull\n"))
    assert (tree.levels, tree.classes) == (("species",), (("Tern", "Gull"),))


def test_levels_order_the_columns(tmp_path: Path) -> None:
    rows = [line.split(",") for line in CSV.splitlines()]
    path = put(tmp_path, "fine_first.csv", "\n".join(",".join(row[::-1]) for row in rows))
    assert Hierarchy.read(path, levels=LEVELS) == BIRDS


def test_levels_choose_among_the_columns(tmp_path: Path) -> None:
    path = put(tmp_path, "birds.csv", CSV)
    tree = Hierarchy.read(path, levels=("order", "species"))
    assert tree.levels == ("species", "order")
    assert tree.classes == (BIRDS.classes[0], BIRDS.classes[2])
    assert tree.parents[0].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("child", ["name", "child", "class", "taxon"])
def test_a_table_of_names_and_parents_with_levels(tmp_path: Path, child: str) -> None:
    tree = Hierarchy.read(put(tmp_path, "edges.csv", EDGES.replace("name", child, 1)))
    assert tree.levels == BIRDS.levels
    assert paths_of(tree) == paths_of(BIRDS)


def test_a_table_of_names_and_parents_without_levels(tmp_path: Path) -> None:
    text = "\n".join(line.rpartition(",")[0] for line in EDGES.splitlines())
    path = put(tmp_path, "edges.csv", text)
    assert Hierarchy.read(path).levels == ("level3", "level2", "level1")
    assert paths_of(Hierarchy.read(path)) == paths_of(BIRDS)
    assert Hierarchy.read(path, levels=LEVELS).levels == BIRDS.levels


def test_a_parent_that_has_no_row_of_its_own_is_a_top_class(tmp_path: Path) -> None:
    tree = Hierarchy.read(put(tmp_path, "edges.csv", "name,parent\nx,A\ny,A\nz,B\n"))
    assert paths_of(tree) == {"x": ("A", "x"), "y": ("A", "y"), "z": ("B", "z")}


def test_rows_of_names_and_parents_may_stand_in_any_order(tmp_path: Path) -> None:
    head, *rows = EDGES.splitlines()
    tree = Hierarchy.read(put(tmp_path, "edges.csv", "\n".join([head, *sorted(rows)])))
    assert tree.levels == BIRDS.levels
    assert paths_of(tree) == paths_of(BIRDS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", json.dumps(NESTED)),
        ("tabs.json", json.dumps(NESTED, indent="\t")),
        ("bom.json", "\ufeff" + json.dumps(NESTED)),
        ("null_leaves.json", json.dumps({o: {f: dict.fromkeys(s) for f, s in fs.items()} for o, fs in NESTED.items()})),
        ("empty_leaves.json", json.dumps({o: {f: {x: {} for x in s} for f, s in fs.items()} for o, fs in NESTED.items()})),
        ("a.yaml", YAML),
        ("a.yml", YAML),
        (
            "lists.yaml",
            "- Charadriiformes:\n  - Laridae: [Ivory Gull, Herring Gull]\n  - Alcidae: [Horned Puffin]\n"
            "- Gaviiformes:\n  - Gaviidae: [Common Loon]\n",
        ),
    ],
)
def test_nested_json_and_yaml(tmp_path: Path, name: str, text: str) -> None:
    path = put(tmp_path, name, text)
    assert Hierarchy.read(path, levels=LEVELS) == BIRDS
    assert Hierarchy.read(path).levels == ("level3", "level2", "level1")


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_levels_and_tree_in_one_document(tmp_path: Path, name: str) -> None:
    text = json.dumps({"levels": LEVELS, "tree": NESTED})
    assert Hierarchy.read(put(tmp_path, name, text)) == BIRDS


def test_levels_asked_for_win_over_those_in_the_document(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", json.dumps({"levels": LEVELS, "tree": NESTED}))
    assert Hierarchy.read(path, levels=("a", "b", "c")).levels == ("c", "b", "a")


def test_names_that_look_like_other_values_stay_names(tmp_path: Path) -> None:
    tree = Hierarchy.read(put(tmp_path, "a.yaml", "2010: [true, 1.50, 0x1F, 2024-01-01]\n"))
    assert tree.classes == (("true", "1.50", "0x1F", "2024-01-01"), ("2010",))


def test_escaped_unicode_in_json_is_read_as_its_characters(tmp_path: Path) -> None:
    path = put(tmp_path, "a.json", json.dumps({"Möwe 🐦": ["日本", "x"]}, ensure_ascii=True))
    tree = Hierarchy.read(path)
    assert tree.classes == (("日本", "x"), ("Möwe 🐦",))
    tree.write(tmp_path / "hierarchy.json")
    assert Hierarchy.read(tmp_path / "hierarchy.json") == tree


def test_a_tree_of_folders(tmp_path: Path) -> None:
    for path in paths_of(BIRDS).values():
        tmp_path.joinpath(*path).mkdir(parents=True)
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "Gaviiformes" / "notes.txt").write_text("a file is not a class")
    tree = Hierarchy.read(tmp_path, levels=LEVELS)
    assert tree.levels == BIRDS.levels
    assert paths_of(tree) == paths_of(BIRDS)
    assert tree.classes[2] == ("Charadriiformes", "Gaviiformes"), "sorted by name"


def test_our_own_file_is_read_by_name_or_from_its_folder(tmp_path: Path) -> None:
    BIRDS.write(tmp_path / "hierarchy.json")
    (tmp_path / "checkpoint").mkdir()
    assert Hierarchy.read(tmp_path / "hierarchy.json") == BIRDS
    assert Hierarchy.read(tmp_path) == BIRDS
    assert Hierarchy.read(str(tmp_path)) == BIRDS


# ---- ragged branches -----------------------------------------------------------------------------------------------

RAGGED = {
    "Ivory Gull": ("Charadriiformes", "Laridae", "Ivory Gull"),
    "Horned Puffin": ("Charadriiformes", "Charadriiformes (no family)", "Horned Puffin"),
    "Razorbill": ("Charadriiformes", "Charadriiformes (no family)", "Razorbill"),
    "Gaviidae (no species)": ("Gaviiformes", "Gaviidae", "Gaviidae (no species)"),
}


def test_a_blank_in_the_middle_of_a_table_becomes_one_pass_through_node_shared_by_siblings(tmp_path: Path) -> None:
    text = "order,family,species\nC,Laridae,Ivory Gull\nC,,Horned Puffin\nC,,Razorbill\nG,,Loon\n"
    tree = Hierarchy.read(put(tmp_path, "a.csv", text))
    assert paths_of(tree) == {
        "Ivory Gull": ("C", "Laridae", "Ivory Gull"),
        "Horned Puffin": ("C", "C (no family)", "Horned Puffin"),
        "Razorbill": ("C", "C (no family)", "Razorbill"),
        "Loon": ("G", "G (no family)", "Loon"),
    }
    assert tree.sizes == (4, 3, 2)


def test_ragged_names_and_parents_with_levels(tmp_path: Path) -> None:
    text = """name,parent,level
Charadriiformes,,order
Laridae,Charadriiformes,family
Ivory Gull,Laridae,species
Horned Puffin,Charadriiformes,species
Razorbill,Charadriiformes,species
Gaviiformes,,order
Gaviidae,Gaviiformes,family
"""
    assert paths_of(Hierarchy.read(put(tmp_path, "a.csv", text))) == RAGGED


def test_ragged_nested_documents_end_in_pass_through_leaves(tmp_path: Path) -> None:
    text = "C:\n  Laridae: [Ivory Gull, Tern]\nGaviiformes:\n  Gaviidae:\n"
    tree = Hierarchy.read(put(tmp_path, "a.yaml", text), levels=LEVELS)
    assert paths_of(tree)["Gaviidae (no species)"] == ("Gaviiformes", "Gaviidae", "Gaviidae (no species)")
    assert tree.sizes == (3, 2, 2)


def test_ragged_folders_end_in_pass_through_leaves(tmp_path: Path) -> None:
    (tmp_path / "C" / "Laridae" / "Ivory Gull").mkdir(parents=True)
    (tmp_path / "G" / "Gaviidae").mkdir(parents=True)
    tree = Hierarchy.read(tmp_path, levels=LEVELS)
    assert set(tree.classes[0]) == {"Ivory Gull", "Gaviidae (no species)"}


def test_a_branch_two_levels_short_still_reaches_the_bottom(tmp_path: Path) -> None:
    tree = Hierarchy.read(put(tmp_path, "a.yaml", "C:\n  Laridae: [Ivory Gull]\nG:\n"), levels=LEVELS)
    order, family, species = next(path for path in paths_of(tree).values() if path[0] == "G")
    assert (order, family) == ("G", "G (no family)")
    assert species.startswith("G ")
    assert "no species" in species


def test_a_pass_through_node_never_takes_the_name_of_a_real_class(tmp_path: Path) -> None:
    text = "C:\n  Laridae: [Ivory Gull, 'Gaviidae (no species)']\nG:\n  Gaviidae:\n"
    tree = Hierarchy.read(put(tmp_path, "a.yaml", text), levels=LEVELS)
    assert tree.sizes == (3, 2, 2)
    assert paths_of(tree)["Gaviidae (no species)"] == ("C", "Laridae", "Gaviidae (no species)")


# ---- faults, each with its place -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        pytest.param(
            "order,family,species\nO,A,x\nP,A,y\nP,B,z\n",
            ["line 3: family 'A' is under 'P' here but under 'O' on line 2"],
            id="two parents in the middle",
        ),
        pytest.param("family,species\nA,x\nA,y\nA,x\n", ["line 4: 'x' appears twice (also line 2)"], id="duplicate"),
        pytest.param("family,species\nA,x\n,y\n", ["line 3: family is empty"], id="empty coarsest"),
        pytest.param("family,species\nA,x\nA,\n", ["line 3: species is empty"], id="empty finest"),
        pytest.param(
            "family,species\nA,x\nA\nA,y,z\n",
            ["line 3: 1 cells, but the header names 2", "line 4: 3 cells, but the header names 2"],
            id="cells",
        ),
        pytest.param("family,,species\nA,1,x\nA,2,y\n", ["line 1: column 2 has no name"], id="column without a name"),
        pytest.param("family,species\n", ["holds no classes"], id="header only"),
        pytest.param("name,parent\na,b\nb,c\nd,\nc,a\n", ["line 2: cycle: a → b → c → a"], id="cycle"),
        pytest.param("name,parent\na,a\nb,\n", ["line 2: cycle: a → a"], id="its own parent"),
        pytest.param(
            "name,parent\nb,a\na,b\nd,c\nc,d\n", ["line 2: cycle: b → a → b", "line 4: cycle: d → c → d"], id="two cycles"
        ),
        pytest.param(
            "name,parent\nA,\nB,\nx,A\nx,B\n",
            ["line 5: 'x' has two parents, 'A' and 'B' (also line 4)"],
            id="two parents by name",
        ),
        pytest.param(
            "name,parent\nx,A\nx,B\nx,C\ny,A\ny,B\nz,A\nz,B\n",
            [
                "line 3: 'x' has two parents, 'A' and 'B' (also line 2)",
                "line 6: 'y' has two parents, 'A' and 'B' (also line 5), and another class has several, too; this needs a tree",
            ],
            id="a graph",
        ),
        pytest.param(
            "name,parent\nA,\nx,\nx,A\ny,A\ny,\n",
            ["line 4: 'x' is under 'A' and at the top (also line 3)", "line 6: 'y' is under 'A' and at the top (also line 5)"],
            id="at the top, too",
        ),
        pytest.param("name,parent\nA,\nx,A\nx,A\n", ["line 4: 'x' appears twice (also line 3)"], id="edge twice"),
        pytest.param("name,parent\nA,\nx,A\n,A\n", ["line 4: name is empty"], id="edge without a name"),
        pytest.param("name,parent,colour\nA,,red\nx,A,blue\n", ["line 1: unknown column 'colour'"], id="unknown column"),
        pytest.param(
            "name,parent,level\nA,,family\nx,A,species\ny,A,\n",
            ["'y' has no level: give every class a row with its level"],
            id="class without a level",
        ),
    ],
)
def test_each_fault_of_a_table_is_told_with_its_line(tmp_path: Path, text: str, faults: list[str]) -> None:
    assert faults_of(put(tmp_path, "a.csv", text)) == faults


def test_a_column_that_appears_twice_is_told(tmp_path: Path) -> None:
    faults = faults_of(put(tmp_path, "a.csv", "family,species,family\nA,x,A\nA,y,A\n"))
    assert "line 1: column 'family' appears twice" in faults


def test_a_finest_class_with_two_parents_is_told_with_both_lines(tmp_path: Path) -> None:
    faults = faults_of(put(tmp_path, "a.csv", "family,species\nA,x\nA,w\nB,x\nB,y\n"))
    assert "line 4: species 'x' is under 'B' here but under 'A' on line 2" in faults


def test_columns_that_run_fine_to_coarse_are_told_once_not_row_by_row(tmp_path: Path) -> None:
    rows = "".join(f"species {i},family {i // 5}\n" for i in range(20))
    (fault,) = faults_of(put(tmp_path, "a.csv", "species,family\n" + rows))
    assert "level 'family' is finer than 'species' but narrower (4 classes against 20)" in fault
    assert "coarse → fine" in fault
    assert "--levels" in fault


def test_a_level_asked_for_that_has_no_column_is_told(tmp_path: Path) -> None:
    faults = faults_of(put(tmp_path, "birds.csv", CSV), levels=("order", "genus", "species"))
    assert "line 1: no column 'genus'" in faults


def test_levels_of_a_name_and_parent_table_that_run_in_a_circle_are_told(tmp_path: Path) -> None:
    text = "name,parent,level\nA,,order\na,A,family\nB,,family\nb,B,order\n"
    (fault,) = faults_of(put(tmp_path, "a.csv", text))
    assert "levels are in a cycle" in fault
    assert "order" in fault
    assert "family" in fault


def test_five_different_faults_are_all_listed_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = """order,family,species,
O,A,x,
O,B,w,
P,C,v,
P,A,z,
O,A,x,
O,B,,
O,B,u
"""
    faults = faults_of(put(tmp_path, "a.csv", text))
    assert faults == [
        "line 1: column 4 has no name",
        "line 5: family 'A' is under 'P' here but under 'O' on line 2",
        "line 6: 'x' appears twice (also line 2)",
        "line 7: species is empty",
        "line 8: 3 cells, but the header names 4",
    ]


def test_lines_are_sorted_as_numbers(tmp_path: Path) -> None:
    rows = [f"A,{i}" for i in range(12)]
    rows[0] = ",0"
    faults = faults_of(put(tmp_path, "a.csv", "\n".join(["family,species", *rows, "A,5", "A,6"])))
    assert [fault.split(":")[0] for fault in faults] == ["line 2", "line 14", "line 15"]


@pytest.mark.parametrize("text", [" , \na,b\n", " \na\n", ";;\n"])
def test_a_header_without_any_name_is_told(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, "a.csv", text)
    with pytest.raises((DataError, HierarchyError), match="no name"):
        Hierarchy.read(path)


@pytest.mark.parametrize("rows", [2, 9000])
def test_a_quote_that_is_never_closed_is_told_not_swallowed(tmp_path: Path, rows: int) -> None:
    text = 'family,species\nA,"x\n' + "".join(f"A,species number {i}\n" for i in range(rows))
    path = put(tmp_path, "a.csv", text)
    with pytest.raises((DataError, HierarchyError), match=r"a\.csv"):
        Hierarchy.read(path)


def test_a_line_is_what_an_editor_calls_a_line(tmp_path: Path) -> None:
    path = put(tmp_path, "a.csv", "family,species\nA,x\x0by\nA,z\n")
    assert Hierarchy.read(path).classes[0] == ("x\x0by", "z")


@pytest.mark.parametrize(
    ("name", "text", "faults"),
    [
        ("a.yaml", "A: &loop\n  B: *loop\n", ["line 2: aliases are not read; write the value again"]),
        ("a.yaml", "A:\n  - x\n  - y\n  - x\n", ["line 4: 'x' appears twice (also line 2)"]),
        ("a.yaml", "A: [x]\nB: [y]\nA: [z]\n", ["line 3: 'A' appears twice (also line 1)"]),
        ("a.yaml", "A: [x, y]\nB:\n- z\n- x\n", ["line 4: level2 'x' is under 'B' here but under 'A' on line 1"]),
        ("a.json", '{"A": ["x", "y"],\n "B": ["z", "x"]}', ["line 2: level2 'x' is under 'B' here but under 'A' on line 1"]),
        ("a.json", '{"A": ["x",\n "" ]}', ["line 2: empty name under 'A'"]),
        ("a.json", '{"A": ["x"],\n "  ": ["y"]}', ["line 2: empty name at the top"]),
        ("a.json", "{}", ["holds no classes"]),
        ("a.yaml", "# nothing here\n", ["holds no classes"]),
        ("a.json", '{"levels": ["a"], "tree": {"A": ["x"]}}', ["the tree is 2 levels deep but 1 levels are named (a)"]),
        ("a.json", '{"levels": ["a", "a"], "tree": {"A": ["x"]}}', ["level name 'a' appears twice"]),
    ],
)
def test_each_fault_of_a_nested_document_is_told_with_its_line(tmp_path: Path, name: str, text: str, faults: list[str]) -> None:
    assert faults_of(put(tmp_path, name, text)) == faults


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.json", '{"A": ["x",\n "y"\n "z"]}', 3),
        ("a.json", '{"A": ["x",\n "y"\n', 3),
        ("a.yaml", "A:\n  - x\n - y\n", 3),
        ("a.yaml", "A: [x]\nB: *nowhere\n", 2),
    ],
)
def test_broken_json_and_yaml_are_told_with_their_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    (fault,) = faults_of(put(tmp_path, name, text))
    assert fault.startswith(f"line {line}: ")


@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_nothing_where_a_name_should_be_is_an_empty_name(tmp_path: Path, name: str) -> None:
    assert faults_of(put(tmp_path, name, '{"A": ["x",\n null]}')) == ["line 2: empty name under 'A'"]


def test_levels_that_are_not_a_list_are_told(tmp_path: Path) -> None:
    (fault,) = faults_of(put(tmp_path, "a.yaml", "levels: species\ntree: [x, y]\n"))
    assert "levels" in fault


def test_a_control_character_is_told_in_one_line(tmp_path: Path) -> None:
    (fault,) = faults_of(put(tmp_path, "a.yaml", "A: [x\x01]\n"))
    assert "\n" not in fault


def test_a_link_that_leads_back_up_is_a_cycle(tmp_path: Path) -> None:
    (tmp_path / "A" / "B").mkdir(parents=True)
    (tmp_path / "A" / "B" / "again").symlink_to(tmp_path / "A", target_is_directory=True)
    assert faults_of(tmp_path) == ["A/B/again: cycle: a link back to 'A'"]


def test_a_link_sideways_is_not_a_cycle(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tree" / "A" / "x").mkdir(parents=True)
    (tmp_path / "tree" / "A" / "y").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    assert Hierarchy.read(tmp_path / "tree").classes == (("x", "y"), ("A",))


def test_the_same_folder_name_under_two_folders_is_two_parents(tmp_path: Path) -> None:
    for path in ("A/x", "B/x", "B/y"):
        (tmp_path / path).mkdir(parents=True)
    assert faults_of(tmp_path) == ["B/x: level2 'x' is under 'B' here but under 'A' on A/x"]


def test_an_empty_folder_holds_no_classes(tmp_path: Path) -> None:
    assert faults_of(tmp_path) == ["holds no classes"]


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "torchlht-hierarchy-1"}',
        '{"format": "torchlht-hierarchy-1", "levels": [{}]}',
        '{"format": "torchlht-hierarchy-1", "levels": 3}',
    ],
)
def test_half_of_our_own_file_is_told(tmp_path: Path, text: str) -> None:
    (fault,) = faults_of(put(tmp_path, "hierarchy.json", text))
    assert "not a complete hierarchy.json" in fault


def test_our_own_file_with_faults_lists_them_all(tmp_path: Path) -> None:
    content = BIRDS.to_dict()
    content["levels"][0]["parents"][0] = 9
    content["levels"][1]["classes"][0] = "Alcidae"
    path = put(tmp_path, "hierarchy.json", json.dumps(content))
    faults = faults_of(path)
    assert "family: 'Alcidae' appears twice" in faults
    assert "species: the parent of 'Ivory Gull' is 9, outside 0…2" in faults


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".yaml"])
def test_a_file_that_is_not_utf8_is_told(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes("A: Möwe,x".encode("latin-1"))
    with pytest.raises((DataError, HierarchyError), match=r"(?i)utf-8"):
        Hierarchy.read(path)


def test_a_table_that_is_not_utf8_is_told_with_its_byte_and_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("family,species\nA,Möwe\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a.csv line 2: is not UTF-8 \(byte 0xf6\); save it as UTF-8"):
        Hierarchy.read(tmp_path / "a.csv")


def test_an_unknown_suffix_is_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"\.csv, \.tsv, \.json, \.yaml or a folder, not '\.xlsx'"):
        Hierarchy.read(put(tmp_path, "a.xlsx", CSV))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.csv: no such file or folder"):
        Hierarchy.read(tmp_path / "nothing.csv")


def test_an_empty_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.csv: empty; a table starts with a line of column names"):
        Hierarchy.read(put(tmp_path, "a.csv", ""))
