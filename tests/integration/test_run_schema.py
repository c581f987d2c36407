"""The files of a run are what `docs/run.schema.json` says."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from torchlht.cli import main
from torchlht.hierarchy.tree import Hierarchy

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "run.schema.json").read_text(encoding="utf-8"))


def test_the_files_of_a_run_fit_their_schemas(embeddings: Path, tmp_path: Path) -> None:
    main(["train", str(embeddings), "--epochs", "1", "--val", "0.2", "--quiet", "--out", str(tmp_path / "run")])
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for name in ("hierarchy", "split", "metrics", "calibration"):
        check(tmp_path / "run" / f"{name}.json", name)


def check(file: Path, name: str) -> None:
    """That a file is what the schema says, and that it would not be without one of its keys."""
    found = json.loads(file.read_text(encoding="utf-8"))
    checked = jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]})
    checked.validate(found)
    for key in SCHEMA["$defs"][name]["required"]:
        with pytest.raises(jsonschema.ValidationError):
            checked.validate({one: value for one, value in found.items() if one != key})


def test_so_do_those_of_a_tree_whose_branches_end_early(tmp_path: Path) -> None:
    tree = Hierarchy.from_paths([("Gulls", "Ivory Gull"), ("Loons", None)], ("family", "species"))
    (tmp_path / "hierarchy.json").write_text(json.dumps(tree.to_dict()), encoding="utf-8")
    check(tmp_path / "hierarchy.json", "hierarchy")


@pytest.mark.parametrize("several", [True, False])
def test_so_do_files_and_answers_of_a_run_on_a_graph(several: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = np.arange(60) % 3
    x = np.eye(3, dtype=np.float32)[kind] + np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32) / 4
    graph = tmp_path / "graph.csv"
    graph.write_text("name,parent\nbat,mammal\nbat,flyer\ngull,flyer\ncow,mammal\n")
    nodes, edges = np.array(["mammal", "flyer", "bat", "gull", "cow"]), np.array([[0, 2], [1, 2], [1, 3], [0, 4]])
    y = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [1, 0, 0, 0, 1]])[kind]
    held = {"y": y, "nodes": nodes, "edges": edges} if several else {"y": nodes[kind + 2]}
    np.savez(tmp_path / "x.npz", x=x, **held)
    run, tree = str(tmp_path / "run"), [] if several else ["--hierarchy", str(graph)]
    main(["train", str(tmp_path / "x.npz"), *tree, "--epochs", "1", "--val", "0.2", "--width", "8", "--quiet", "--out", run])
    for file, name in (("graph", "graph"), ("metrics", "graph_metrics"), ("calibration", "graph_calibration")):
        check(tmp_path / "run" / f"{file}.json", name)
    answers = json.loads((DOCS / "predict-graph.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(answers)
    for asked in ([], ["--confidence", "0.9"]):
        capsys.readouterr()
        main(["predict", run, str(tmp_path / "x.npz"), "--format", "json", *asked])
        jsonschema.Draft202012Validator(answers).validate(json.loads(capsys.readouterr().out))
