"""`lht compare` with several labels per sample, and with one in a graph: what a sample adds to a figure, and the whole way."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

import torchlht
from dags import BIRDS, write_genes
from torchlht.answer.several import GraphModel
from torchlht.cli import main
from torchlht.data.graphed import read_graphed
from torchlht.data.several import hold_out, read_several
from torchlht.errors import ConfigError, DataError
from torchlht.hierarchy.graph import Graph
from torchlht.lab.comparison.contenders import find_graph_contenders
from torchlht.lab.comparison.results import read_results
from torchlht.learn.options import TrainArgs
from torchlht.learn.several import prepare, samples_of
from torchlht.measure.samplewise import Samplewise, area_values
from torchlht.measure.several import average_precision, f1_values, samplewise


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_what_a_sample_adds_to_the_area_is_its_derivative(seed: int) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(-1, 2, (12, 5)).astype(np.int8)
    labels[0, 0] = 1
    scores = generator.integers(0, 6, (12, 5)).astype(np.float32) / 6  # with ties
    found = area_values(labels, scores)
    assert found is not None
    assert found.mean() == pytest.approx(average_precision(labels, scores))
    known, weights = labels >= 0, np.repeat(np.ones((12, 1)), 5, axis=1)
    for i in range(12):
        areas = []
        for step in (1e-5, -1e-5):
            weights[i] = 1 + step
            areas.append(average_precision_score(labels[known] == 1, scores[known], sample_weight=weights[known]))
        weights[i] = 1
        slope = (areas[0] - areas[1]) / 2e-5
        assert found[i] == pytest.approx(found.mean() + 12 * slope, abs=1e-5)
    assert area_values(np.zeros((2, 2), np.int8), np.ones((2, 2), np.float32)) is None


def test_what_a_sample_adds_to_f1_is_its_derivative() -> None:
    generator = np.random.default_rng(0)
    labels, chosen = generator.integers(-1, 2, (9, 4)).astype(np.int8), generator.random((9, 4)) < 0.5
    found = f1_values(labels, chosen)["f1_micro"]
    there, said = (labels == 1).astype(float), (chosen & (labels >= 0)).astype(float)

    def f1(weights: np.ndarray) -> float:
        return float(2 * (weights * (there * said).sum(1)).sum() / (weights * (there + said).sum(1)).sum())

    for i in range(9):
        slope = (f1(np.ones(9) + 1e-6 * np.eye(9)[i]) - f1(np.ones(9))) / 1e-6
        assert found[i] == pytest.approx(f1(np.ones(9)) + 9 * slope, abs=1e-4)


def compared(folder: Path, *more: str, methods: str = "flat,c-hmcnn,lht", seeds: str = "2") -> None:
    how = ["--mask", "0", "--seeds", seeds, "--jobs", "1", "--epochs", "2", "--option", "width=8", "--batch-size", "16"]
    main(["compare", str(folder / "genes.train.arff"), "--out", str(folder / "c"), "--methods", methods, *how, *more])


def test_methods_are_compared_over_seeds_and_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_genes(tmp_path)
    compared(tmp_path)
    said = capsys.readouterr().out
    assert "AU(PRC)" in said
    assert "from 2 seeds and 24 test samples" in said
    results = read_results(tmp_path / "c")
    assert results.levels == ["level2", "level3"]  # the first level is the root alone, which is not judged
    run = tmp_path / "c" / "runs" / "lht-R0-s1"
    metrics = json.loads((run / "metrics.json").read_text())
    assert results.by_seed("lht", 0.0, "auprc")[1] == pytest.approx(metrics["auprc"], abs=1e-6)
    precision = metrics["graph_levels"][0]["average_precision"]
    assert results.by_seed("lht", 0.0, "average_precision", "level2")[1] == pytest.approx(precision, abs=1e-6)
    kept = Samplewise.read(run)
    assert kept is not None
    assert {name: one.mean() for name, one in kept.figures.items()} == pytest.approx(
        {name: metrics[name] for name in ("auprc", "f1_micro", "f1_macro")}
    )
    table = (tmp_path / "c" / "table.md").read_text()
    assert "## Sets of classes" in table
    assert (tmp_path / "c" / "accuracy.png").is_file()
    (run / "metrics.json").unlink()  # as if it had been interrupted
    compared(tmp_path, "--resume", seeds="3")
    assert "from 3 seeds and 24 test samples" in capsys.readouterr().out
    assert json.loads((run / "metrics.json").read_text())["auprc"] == metrics["auprc"]


def test_a_comparison_names_what_takes_no_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_genes(tmp_path)
    for arguments, words in (
        (["--tune"], "--tune needs a tree and one label per sample"),
        (["--methods", "flat,marginal"], "method marginal does not learn several labels per sample"),
        (["--methods", "lht:semi=both"], "--semi has no meaning for several labels per sample"),
        (["--methods", "lht:widht=3"], "has no option 'widht'"),
        (["--methods", "hr*"], "none of them learns here; use c-hmcnn, flat, lht"),
    ):
        with pytest.raises(SystemExit) as left:
            compared(tmp_path, *arguments)
        assert left.value.code == 2
        said = " ".join(capsys.readouterr().err.split())
        assert words in said
        assert not (tmp_path / "c").exists()
    compared(tmp_path, methods="fl*,m*", seeds="1")
    assert "left out: marginal, multihead (name one to see why)" in " ".join(capsys.readouterr().err.split())


def test_without_a_test_part_seeds_share_their_test_samples(tmp_path: Path) -> None:
    """Otherwise methods could not be compared sample by sample. Runs of before keep the samples that they had."""
    file = write_genes(tmp_path)
    (tmp_path / "genes.test.arff").unlink()
    args = TrainArgs(str(file), epochs=1, option=("width=8",), quiet=True)
    one, two = (prepare(dataclasses.replace(args, seed=seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one.index("test"), two.index("test"))
    run = torchlht.train(str(file), out=tmp_path / "run", seed=1, epochs=1, width=8, quiet=True).path
    config = yaml.safe_load((run / "config.yaml").read_text())
    del config["test_seed"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    _, rows = samples_of(GraphModel.load(run), run, None, "test")
    everything = read_several(file)
    assert set(rows) == set(hold_out(everything, 0.2, 1, "test").index("test")) != set(one.index("test"))


def test_samples_count_in_leaves_right_below_a_class_that_is_above_all_leaves() -> None:
    graph = Graph.from_edges([("bird", "gull"), ("bird", "auk"), ("swimmer", "auk")])
    labels = graph.close(np.eye(4, dtype=np.int8)[[graph.index(name) for name in ("gull", "auk", "auk")]])
    said = graph.close(np.eye(4, dtype=np.int8)[[graph.index(name) for name in ("gull", "auk", "gull")]]) == 1
    judged = np.array([name != "bird" for name in graph.names])
    kept = samplewise(labels, np.ones((3, 4), np.float32), said & judged, graph, judged, exclusive=True)
    np.testing.assert_array_equal(kept.figures["leaf_accuracy"], [1, 1, 0])


def test_lht_is_left_out_where_edges_skip_a_level_unless_it_is_named(tmp_path: Path) -> None:
    graph = Graph.from_edges([("bird", "gull"), ("bird", "diver"), ("diver", "auk"), ("bird", "auk")])
    np.savez(tmp_path / "birds.npz", x=np.eye(3, dtype=np.float32), y=np.array(["gull", "auk", "auk"]))
    data = read_graphed(tmp_path / "birds.npz", graph)
    for words, usual in ((["all"], False), (["flat", "lht"], True)):
        found, left_out = find_graph_contenders(words, data, usual=usual)
        assert "lht" not in [contender.method for contender in found]
        assert "lht" in left_out
    with pytest.raises(ConfigError, match="does not join adjacent levels"):
        find_graph_contenders(["flat", "lht:width=9"], data)


def test_one_label_per_sample_in_a_graph_is_compared_by_right_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator = np.random.default_rng(0)
    leaves = [BIRDS.names[leaf] for leaf in BIRDS.leaves]
    rows = generator.integers(0, len(leaves), 120)
    x = generator.normal(size=(120, 5)) + 2 * np.eye(5)[rows]
    np.savez(tmp_path / "birds.npz", x=x, y=np.array(leaves)[rows][:, None], train=np.arange(120) < 80)
    BIRDS.write(tmp_path / "graph.json")
    how = ["--hierarchy", str(tmp_path / "graph.json"), "--mask", "0,0.5", "--seeds", "2", "--jobs", "1", "--epochs", "2"]
    main(["compare", str(tmp_path / "birds.npz"), "--out", str(tmp_path / "c"), *how, "--option", "width=8"])
    said = " ".join(capsys.readouterr().out.split())
    assert "50% masked, leaf right:" in said
    assert "from 2 seeds and 40 test samples" in said
    results = read_results(tmp_path / "c")
    assert results.methods == ["flat", "multihead", "marginal", "lht"]
    assert results.masks == [0.0, 0.5]
    metrics = json.loads((tmp_path / "c" / "runs" / "lht-R50-s0" / "metrics.json").read_text())
    assert results.by_seed("lht", 0.5, "leaf_accuracy")[0] == pytest.approx(metrics["leaf_accuracy"], abs=1e-6)
    assert results.samples("level1") == " (n = 40)"


def test_data_without_labels_or_with_one_class_teaches_nothing(tmp_path: Path) -> None:
    x = np.eye(6, dtype=np.float32)
    np.savez(tmp_path / "one.npz", x=x, nodes=["gull"], y=np.ones((6, 1), int))
    np.savez(tmp_path / "none.npz", x=x, nodes=["gull", "auk"], y=np.full((6, 2), -1))
    np.savez(tmp_path / "leaf.npz", x=x, y=np.array(["auk"] * 6))
    (tmp_path / "dag.csv").write_text("name,parent\nauk,bird\nauk,diver\n")
    with pytest.raises(DataError, match="only one class, 'gull'"):
        prepare(TrainArgs(str(tmp_path / "one.npz")))
    with pytest.raises(DataError, match="no training sample has a label"):
        prepare(TrainArgs(str(tmp_path / "none.npz")))
    with pytest.raises(DataError, match="only one leaf, 'auk'"):
        prepare(TrainArgs(str(tmp_path / "leaf.npz"), hierarchy=tmp_path / "dag.csv"))
