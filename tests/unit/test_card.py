"""The model card: what a run was trained with and how good it is, as a person and as `lht train --config` read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import torchlht
from torchlht.answer.card import LISTED, again, card, enumerated, options
from torchlht.hierarchy.graph import Graph

GOLDEN = Path(__file__).parents[1] / "golden"


def lines_of(text: str) -> str:
    """The YAML of a card."""
    found = re.search(r"```yaml\n(.*)```", text, re.DOTALL)
    assert found
    return found[1]


def test_its_lines_train_the_same_run_again(embeddings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"weight_decay": 0.0, "clip": 0.0, "val": 0.2, "gamma": 0, "audit": None}  # not the defaults
    run = torchlht.train(embeddings, epochs=1, quiet=True, out=tmp_path / "run", **chosen)
    text = card(run.path, "birds")
    assert str(tmp_path) not in text
    assert "It learned from 96 samples; 24 were set aside" in text
    assert "Probabilities are calibrated" in text
    assert "- order: Auks, Gulls\n" in text
    assert 'predict("features.npz")' in text
    monkeypatch.chdir(tmp_path)
    Path("again.yaml").write_text(lines_of(text))
    again = torchlht.train(config="again.yaml", out=tmp_path / "again")
    first, second = (load_file(one.path / "model.safetensors") for one in (run, again))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_model_of_data_in_memory_promises_no_second_run() -> None:
    assert again({"data": "birds", "seed": 1}).startswith("With these lines in a file")
    assert again({"data": "", "seed": 1}).startswith("Its data was in memory. The options were:\n\n```yaml\nseed: 1\n")


def test_options_are_yaml_and_name_no_place(tmp_path: Path) -> None:
    given = {
        "data": "/home/me/birds",
        "hierarchy": "/home/me/a.csv,b.obo",
        "audit": "/home/me/audit",
        "unknown": "?",
        "levels": "a: b,c",
        "pretrained": False,
        "mask": 0.0,
        "out": "/home/me/run",
        "prior": None,
    }
    found = yaml.safe_load(options(given))
    places = {"data": "birds", "hierarchy": "a.csv,b.obo", "audit": "audit"}
    assert found == places | {"unknown": "?", "levels": "a: b,c", "pretrained": False, "mask": 0.0}


def test_figures_go_with_the_weights_that_were_measured(embeddings: Path, tmp_path: Path) -> None:
    run = torchlht.train(embeddings, epochs=1, quiet=True, out=tmp_path / "run")
    model = torchlht.load(run.path)
    model.save_pretrained(tmp_path / "kept")
    same = (tmp_path / "kept" / "README.md").read_text()
    assert f"| species | {100 * run.accuracy['species']:.1f} |" in same
    assert "data: birds.npz" in same
    assert "Probabilities are not calibrated" in same
    with torch.no_grad():
        next(model.method.parameters()).add_(1)
    model.save_pretrained(tmp_path / "changed")
    other = (tmp_path / "changed" / "README.md").read_text()
    assert "Nothing was measured." in other
    assert "Not recorded here." in other


def test_a_graph_lists_its_finest_classes_and_says_how_it_answers(tmp_path: Path) -> None:
    Graph.from_edges([("top", "a"), ("top", "b|c")]).write(tmp_path / "graph.json")
    model = "model: {backbone: none, in_features: 3, method: lht, options: {exclusive: %s}}\n"
    (tmp_path / "config.yaml").write_text(model % "true")
    told = card(tmp_path, "x", "use")
    assert "- finest: a, b\\|c\n" in told
    assert "`lht` on 3 features. It answers with one class at every level" in told
    (tmp_path / "config.yaml").write_text(model % "false")
    assert "It answers with a set of classes." in card(tmp_path, "x", "use")


@pytest.mark.parametrize("run", sorted(GOLDEN.glob("runs/*")), ids=lambda run: run.name)
def test_runs_of_before_have_a_card(run: Path) -> None:
    text = card(run, run.name)
    assert "## Limits" in text
    assert yaml.safe_load(lines_of(text))["data"]
    assert ("picture.jpg" in text) is (run.name == "pictures")


def test_of_many_classes_the_first_are_listed() -> None:
    assert enumerated([str(i) for i in range(1240)]).endswith(f", {LISTED - 1} and 1,200 more")
