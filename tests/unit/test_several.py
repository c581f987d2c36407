"""Several labels per sample: networks, smoother and metrics against plain references; train, predict and evaluate."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from test_graph import BATS, graphs, naive_ancestors

import torchlht
from dags import write_genes
from torchlht.answer.model import Model
from torchlht.answer.several import GraphModel, Labels, choose
from torchlht.cli import main
from torchlht.commands.several import rows_of
from torchlht.data.arff import Arff, read_arff
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.smoother import Smoother, choose_kernel
from torchlht.hierarchy.graph import Graph
from torchlht.measure.several import average_precision, best_threshold, exact, f1_scores, measure


def network(graph: Graph, method: str, **options: int) -> GraphNetwork:
    torch.manual_seed(0)
    return GraphNetwork(3, graph, GraphArgs(method=method, width=4, **options)).eval()


def below(graph: Graph, node: int) -> list[int]:
    return [b for b in range(len(graph)) if node in naive_ancestors(graph, b)]


def drawn(graph: Graph, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-odds and closed labels of four samples."""
    generator = np.random.default_rng(seed)
    labels = graph.close((generator.random((4, len(graph))) < 0.2).astype(np.int8))
    return torch.from_numpy(generator.normal(size=(4, len(graph)))).float(), torch.from_numpy(labels)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_probabilities_are_those_of_enumeration_over_descendants(graph: Graph, seed: int) -> None:
    z, _ = drawn(graph, seed)
    h = torch.sigmoid(z.double())
    largest = torch.stack([h[:, below(graph, a)].amax(1) for a in range(len(graph))], 1)
    product = torch.stack([1 - (1 - h[:, below(graph, a)]).prod(1) for a in range(len(graph))], 1)
    for method, expected in (("c-hmcnn", largest), ("flat", largest), ("lht", product)):
        found = network(graph, method).log_probs(z[None]).exp().double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        for parent, child in graph.edges.T:
            assert (found[:, child] <= found[:, parent] + 1e-6).all()


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_losses_are_those_of_plain_loops(graph: Graph, seed: int) -> None:
    z, y = drawn(graph, seed)
    y = torch.where((torch.from_numpy(np.random.default_rng(seed).random(y.shape)) < 0.2) & (y == 0), -1, y).to(torch.int8)
    h = torch.sigmoid(z.double())
    for method in ("c-hmcnn", "flat", "lht"):
        terms = []
        for n, a in np.argwhere(y.numpy() >= 0):
            family = below(graph, a)
            if method == "flat":
                p = h[n, a]
            elif method == "lht":
                p = 1 - (1 - h[n, family]).prod()
            else:
                p = max(h[n, b] for b in family if y[n, a] != 1 or y[n, b] == 1)
            terms.append(-torch.log(p) if y[n, a] == 1 else -torch.log(1 - p))
        expected = torch.stack(terms).mean() if terms else torch.zeros((), dtype=torch.float64)
        torch.testing.assert_close(network(graph, method).loss(z[None], y).double(), expected, atol=1e-4, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.lists(st.floats(width=32, allow_nan=False), min_size=4, max_size=4), st.integers(0, 2**32 - 1))
def test_the_largest_below_is_found_for_any_numbers(graph: Graph, values: list[float], seed: int) -> None:
    z, y = drawn(graph, seed)
    z[:, seed % len(graph)] = torch.tensor(values)  # zeros of both signs, the smallest and largest numbers, infinities
    z[:, -1] = z[:, 0]  # and ties
    for there in (None, y == 1):
        found = z.gather(1, network(graph, "c-hmcnn").largest(z, there))
        for n, a in np.ndindex(*z.shape):
            seen = [b for b in below(graph, a) if there is None or not there[n, a] or there[n, b]]
            assert found[n, a] == z[n, seen].max()


@pytest.mark.parametrize("method", ["c-hmcnn", "flat", "lht"])
def test_gradients_are_those_of_differences(method: str) -> None:
    z, y = drawn(BATS, 1)
    net = network(BATS, method)
    z.requires_grad_()
    (slope,) = torch.autograd.grad(net.loss(z[None], y), z)
    for n, a in ((0, 0), (1, 2), (2, 5), (3, 3)):
        step = torch.zeros_like(z)
        step[n, a] = 1e-2
        with torch.no_grad():
            rise = (net.loss((z + step)[None], y) - net.loss((z - step)[None], y)) / 2e-2
        assert slope[n, a] == pytest.approx(rise.item(), abs=2e-3)


def test_with_lht_an_unknown_child_learns_from_its_parent_and_with_flat_it_does_not() -> None:
    y = torch.full((1, len(BATS)), -1, dtype=torch.int8)
    y[0, BATS.index("flyer")] = 1
    for method, learns in (("lht", True), ("flat", False)):
        z = torch.zeros(1, 1, len(BATS), requires_grad=True)
        network(BATS, method).loss(z, y).backward()
        assert z.grad is not None
        assert bool(z.grad[0, 0, BATS.index("herring gull")] < 0) is learns


@pytest.mark.parametrize("method", ["c-hmcnn", "flat", "lht"])
def test_a_class_that_is_there_learns_however_improbable_it_is(method: str) -> None:
    y = torch.full((1, len(BATS)), -1, dtype=torch.int8)
    y[0, BATS.index("herring gull")] = 1
    z = torch.full((1, 1, len(BATS)), -40.0, requires_grad=True)
    loss = network(BATS, method).loss(z, y)
    loss.backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    assert loss.item() == pytest.approx(40, abs=1e-3)
    assert z.grad[0, 0, BATS.index("herring gull")].item() == pytest.approx(-1, abs=1e-3)


def test_members_are_averaged_and_differ() -> None:
    net = network(BATS, "lht", members=3)
    x = torch.randn(5, 3)
    z = net(x)
    each = torch.stack([net.log_probs(one[None]).exp() for one in z])
    torch.testing.assert_close(net.log_probs(z).exp(), each.mean(0))
    assert (each[0] - each[1]).abs().max() > 1e-4


def test_average_precision_is_scikit_learns_and_leaves_unknown_labels_out() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, (40, 6)).astype(np.int8)
    scores = generator.integers(0, 8, (40, 6)).astype(np.float32) / 8  # with ties
    assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels.ravel(), scores.ravel()))
    unknown = labels.copy()
    unknown[::3] = -1
    known = np.arange(40) % 3 != 0
    assert average_precision(unknown, scores) == pytest.approx(average_precision(labels[known], scores[known]))
    assert average_precision(np.zeros((2, 2), dtype=np.int8), np.ones((2, 2), dtype=np.float32)) is None


def test_the_best_threshold_has_the_best_f1() -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 2, (30, 2)).astype(np.int8)
    scores = (0.3 * labels + generator.random((30, 2))).astype(np.float32)
    found = f1_scores(labels, scores >= best_threshold(labels, scores))["f1_micro"]
    assert found == pytest.approx(max(f1_scores(labels, scores >= t)["f1_micro"] for t in np.unique(scores)))


def test_f1_counts_ancestors_over_everything_and_over_samples() -> None:
    labels = np.array([[1, 1, 0], [1, 0, 1], [0, 0, 0]], dtype=np.int8)
    chosen = np.array([[1, 1, 1], [1, 0, 0], [0, 0, 0]], dtype=bool)
    found = f1_scores(labels, chosen)
    assert found["f1_micro"] == pytest.approx(2 * 3 / (4 + 4))
    assert found["f1_macro"] == pytest.approx((4 / 5 + 2 / 3 + 1) / 3)


def test_a_set_is_right_only_as_a_whole_and_where_all_is_known() -> None:
    labels = np.array([[1, 1, 0], [1, 0, 1], [0, -1, 0]], dtype=np.int8)
    assert exact(labels, np.array([[1, 1, 0], [1, 0, 0], [1, 1, 1]], dtype=bool)) == pytest.approx(1 / 2)
    assert exact(labels[2:], np.ones((1, 3), dtype=bool)) is None
    scores = np.array([[0.9, 0.8, 0.1], [0.9, 0.1, 0.8]], dtype=np.float32)
    graph = Graph.from_edges([("bird", "gull"), ("bird", "auk")])
    found = measure(labels[:2], scores, np.full(2, 0.5, np.float32), graph, np.ones(3, bool), ("class", "family"))
    assert [(level["name"], level["exact"]) for level in found["graph_levels"]] == [("class", 1.0), ("family", 1.0)]


def test_a_class_is_chosen_only_with_all_its_parents() -> None:
    scores = np.full((1, len(BATS)), 0.9, dtype=np.float32)
    scores[0, BATS.index("mammal")] = 0.2
    chosen = choose(scores, np.full(3, 0.5, dtype=np.float32), BATS)[0]
    assert {BATS.names[i] for i in np.flatnonzero(chosen)} == {"flyer", "gull", "herring gull"}


def test_the_smoother_is_kernel_ridge_regression_and_leaves_samples_out() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(30, 2), (torch.rand(30, 4) < 0.4).to(torch.int8)
    made = Smoother.fit(x, y, torch.ones(30, 4, dtype=torch.bool))
    squared = torch.cdist(x, x).square()
    width, ridge = choose_kernel(squared, squared.median(), y.float(), y >= 0)
    kernel, mean = torch.exp(-squared / (width * squared.median())).double(), y.double().mean(0)
    plain = mean + kernel @ torch.linalg.solve(kernel + ridge * torch.eye(30), y - mean)
    torch.testing.assert_close(made(x).double(), plain.clamp(0, 1), atol=1e-4, rtol=1e-4)
    errors = {}
    for w in (0.25, 0.5, 1.0, 2.0):
        k = torch.exp(-squared / (w * squared.median())).double()
        for r in (0.3, 1.0, 3.0, 10.0, 30.0):
            total = 0.0
            for i in range(30):
                rest = [j for j in range(30) if j != i]
                own = k[i, rest] @ torch.linalg.solve(k[rest][:, rest] + r * torch.eye(29), (y - mean)[rest])
                total += float((own - (y - mean)[i]).square().sum())
            errors[w, r] = total
    assert min(errors, key=lambda key: errors[key]) == (width, ridge)


# ---- train, predict, evaluate -----------------------------------------------------------------------------------------


def test_train_predict_and_evaluate_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, run = write_genes(tmp_path), tmp_path / "run"
    main(["train", str(file), "--out", str(run), "--width", "32", "--option", "dropout=0.1", "--batch-size", "16", "--quiet"])
    said = capsys.readouterr().out
    assert "AU(PRC)" in said
    assert "lht evaluate" in said
    names = {"config.yaml", "graph.json", "model.safetensors", "metrics.json", "outcomes.npz", "history.csv", "tensorboard"}
    assert {path.name for path in run.iterdir()} == names
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["auprc"] > 0.9
    assert metrics["f1_micro"] > 0.8
    assert "validation" in metrics
    main(["evaluate", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["auprc"] == pytest.approx(metrics["auprc"])
    main(["predict", str(run), str(tmp_path / "genes.test.arff"), "--format", "json", "--limit", "2"])
    first, second = json.loads(capsys.readouterr().out)
    assert set(first["answer"]) == {"a", "b"}
    assert "deep" in second["answer"]
    main(["predict", str(run), str(tmp_path / "genes.test.arff"), "--format", "csv", "--limit", "1"])
    assert capsys.readouterr().out.startswith("file,class,probability,deepest\n")
    main(["predict", str(run), str(tmp_path / "genes.test.arff"), "--format", "csv", "--limit", "1", "--confidence", "1"])
    assert capsys.readouterr().out == "file,class,probability,deepest\ngenes.test.arff row 1,,,\n"  # nothing is that sure
    main(["predict", str(run), str(tmp_path / "genes.test.arff"), "--limit", "1"])
    assert "genes.test.arff row 1" in capsys.readouterr().out


ARFF = "@ATTRIBUTE f numeric\n@ATTRIBUTE kind {a,'b,c'}\n@ATTRIBUTE class hierarchical "


def arff(folder: Path, row: str, classes: str = "1,1/1,1/2,2") -> Arff:
    """A file of one sample."""
    (folder / "x.arff").write_text(f"{ARFF}{classes}\n@DATA\n  % a comment\n{row}\n")
    return read_arff(folder / "x.arff")


def test_values_of_arff_files_may_stand_in_quotes_and_classes_between_blanks(tmp_path: Path) -> None:
    read = arff(tmp_path, """ 0.5 , 'b,c' , "1/1 @ 2" """)
    np.testing.assert_array_equal(read.features, np.array([[0.5, 0, 1]], np.float32))
    assert [name for name, one in zip(read.graph.names, read.labels[0], strict=True) if one == 1] == ["1", "1/1", "2"]
    sparse = arff(tmp_path, "{1 'b,c', 2 1/1@2}")
    np.testing.assert_array_equal(sparse.features, np.array([[0, 0, 1]], np.float32))
    np.testing.assert_array_equal(sparse.labels, read.labels)
    np.testing.assert_array_equal(arff(tmp_path, "{0 2,2 1}").features, np.array([[2, 1, 0]], np.float32))
    assert arff(tmp_path, "1,a,1/1", "1/1,1/2,2/1").graph.names == ("1", "1/1", "1/2", "2", "2/1")  # edges have a root


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{f 1.5, 2 1/1}", "a sparse row is written {0 1.5,2 class}"),
        ("{0 1.5, 2 1/1", "a sparse row is written {0 1.5,2 class}"),
        ("{0 1.5, 3 1/1}", "position 3, but there are 3 attributes"),
        ("{0 1.5}", "a class without a name"),
        ("1e300,a,1", "f is '1e300'; a value is a finite number"),
        ("nan,a,1", "f is 'nan'; a value is a finite number"),
        ("1,a,1@", "a class without a name; write . where nothing is known"),
        ("1,a,", "a class without a name"),
        ("1,b,1", "kind is 'b', which its attribute does not list"),
    ],
)
def test_faulty_rows_of_arff_files_are_named(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(DataError, match=rf"x\.arff line 6: {said}"):
        arff(tmp_path, row)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@ATTRIBUTE kind {a,b,a}", "attribute 'kind' lists 'a' twice"),
        ("@ATTRIBUTE kind", "an attribute is written @ATTRIBUTE name numeric"),
        ("@ATTRIBUTE c hierarchical 1\n@ATTRIBUTE d hierarchical 2", "the hierarchical attribute must be the last one"),
    ],
)
def test_faulty_attributes_are_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "x.arff").write_text(f"@ATTRIBUTE f numeric\n{line}\n@ATTRIBUTE class hierarchical 1\n@DATA\n1,a,1\n")
    with pytest.raises(DataError, match=rf"x\.arff line [23]: {said}"):
        read_arff(tmp_path / "x.arff")


def test_values_may_follow_a_name_and_a_remark_the_values(tmp_path: Path) -> None:
    (tmp_path / "x.arff").write_text("@ATTRIBUTE kind{a,b} % two\n@ATTRIBUTE class hierarchical 1,2\n@DATA\nb,1\n")
    assert read_arff(tmp_path / "x.arff").columns == ("kind=a", "kind=b")


def test_a_run_in_python_is_the_same_again_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_genes(tmp_path)
    how = {"method": "c-hmcnn", "width": 8, "epochs": 4, "batch_size": 16, "quiet": True}
    one = torchlht.train(str(file), out=tmp_path / "a", **how)
    expected = GraphModel.load(one.path).probabilities(np.zeros((1, 4), dtype=np.float32))
    monkeypatch.setattr("torchlht.learn.several.SECONDS", 0.0)  # a checkpoint after every epoch
    stopped = 0

    def note(text: str, quiet: bool) -> None:
        nonlocal stopped
        stopped += text.startswith("epoch 2")
        if stopped == 1 and text.startswith("epoch 2"):
            raise KeyboardInterrupt

    monkeypatch.setattr("torchlht.console.note", note)
    with pytest.raises(KeyboardInterrupt):
        torchlht.train(str(file), out=tmp_path / "b", **how)
    with pytest.raises(RunError, match="other options"):
        torchlht.train(str(file), out=tmp_path / "b", **how | {"seed": 1})
    again = torchlht.train(resume=tmp_path / "b")
    with pytest.raises(RunError, match="finished"):
        torchlht.train(str(file), out=tmp_path / "b", **how)
    np.testing.assert_array_equal(GraphModel.load(again.path).probabilities(np.zeros((1, 4), dtype=np.float32)), expected)
    assert again.metrics["auprc"] == one.metrics["auprc"]
    assert not (tmp_path / "b" / "checkpoint").exists()


def test_what_has_no_meaning_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(write_genes(tmp_path))
    for words, said in (
        (["--method", "marginal"], "use lht, c-hmcnn or flat"),
        (["--method", "hrn"], "use lht, c-hmcnn or flat"),
        (["--semi", "both"], "--semi has no meaning"),
        (["--levels", "a,b"], "--levels has no meaning"),
        (["--option", "nope=1"], "has no option 'nope'"),
        (["--option", "members=0"], "from 1 to 64"),
        (["--option", "dropout=x"], "takes a number"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(["train", file, "--out", str(tmp_path / "no"), *words])
        assert stop.value.code == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
    with pytest.raises(ConfigError, match="no option"):
        torchlht.train(file, gamma=1, out=tmp_path / "no")


def test_other_doors_say_how_to_open_such_a_run(tmp_path: Path) -> None:
    run = torchlht.train(str(write_genes(tmp_path)), out=tmp_path / "a", method="flat", width=8, epochs=1, quiet=True)
    with pytest.raises(RunError, match="several labels per sample"):
        Model.from_pretrained(run.path)
    assert isinstance(torchlht.load(run.path), GraphModel)
    (run.path / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"model\.safetensors missing"):
        GraphModel.load(run.path)


def test_features_that_are_none_are_named_in_python_too(tmp_path: Path) -> None:
    file = write_genes(tmp_path)
    model = torchlht.load(torchlht.train(str(file), out=tmp_path / "a", method="flat", width=8, epochs=1, quiet=True))
    assert isinstance(model, GraphModel)
    x = np.zeros((3, 4))
    for wrong, said in (
        (np.where(np.arange(12).reshape(3, 4) == 6, np.inf, x), "features of row 1 hold infinity"),
        (np.where(np.arange(12).reshape(3, 4) == 6, 1e300, x), "features of row 1 hold infinity"),
        (np.full((3, 4), "a"), "features are <U.*; this model takes numbers"),
        (x[0], r"features are \(4,\); this model takes \(samples, 4\)"),
        (str(tmp_path / "none.npz"), "none.npz: no such file"),
    ):
        with pytest.raises(DataError, match=said):
            model.predict(wrong)
    assert len(model.predict(x * np.nan)) == 3  # missing
    write_genes(tmp_path, names=("f1", "f0", "f3", "f2"))
    test = read_arff(tmp_path / "genes.test.arff")
    in_file = model.predict(tmp_path / "genes.test.arff")
    in_order = model.predict(test.features[:, [1, 0, 3, 2]])
    assert [one.probabilities for one in in_file] == [one.probabilities for one in in_order]


def test_python_measures_calibrates_and_exports_such_runs(tmp_path: Path) -> None:
    file = write_genes(tmp_path)
    run = torchlht.train(str(file), out=tmp_path / "a", method="flat", width=8, epochs=1, quiet=True)
    assert repr(run) == f"Trained({str(run.path)!r}: AU(PRC) {100 * run.metrics['auprc']:.1f})"
    assert run.accuracy == {}
    found = torchlht.evaluate(run, confidences=[0.5])
    assert found["auprc"] == pytest.approx(run.metrics["auprc"])
    assert found["answers"][0]["promise"] == "confidence 0.5"
    assert re.fullmatch(
        r"GraphCalibration\(temperature [0-9.]+; from [0-9]+ samples\)", repr(torchlht.calibrate(run, file, split="all"))
    )
    assert torchlht.export(run, tmp_path / "a.onnx").difference < 1e-5
    with pytest.raises(ConfigError, match="rule is for one label at each level"):
        torchlht.evaluate(run, rule="crm")
    (one,) = torchlht.load(run).predict(np.zeros((1, 4), np.float32), confidence=0.01)
    assert set(one.probabilities) == {"a", "b", "c", "deep"}
    assert one.promise == "confidence 0.01"
    with pytest.raises(DataError, match="names has 2 names for 1 samples"):
        torchlht.load(run).predict(np.zeros((1, 4), np.float32), ["a", "b"])
    with pytest.raises(ConfigError, match="it must be a probability from 0 to 1"):
        run.predict(np.zeros((1, 4), np.float32), confidence=1.5)
    with pytest.raises(ConfigError, match="pass one of them"):
        run.predict(np.zeros((1, 4), np.float32), confidence=0.01, risk=0.1)
    with pytest.raises(ConfigError, match="needs classes with one parent each"):
        torchlht.export(run, tmp_path / "a.pt2", to="torch")


def test_rows_of_csv_have_as_many_cells_with_an_answer_as_without() -> None:
    answers = [Labels("a", {"gull": 0.9}, ("gull",), {"gull": "species"}), Labels("b", {}, ())]
    assert list(rows_of(answers, blanks=4)) == [("a", "gull", "species", 0.9, True), ("b", "", "", "", "")]


def test_of_many_samples_some_are_kept_evenly_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlht.heads.graphs.smoother.MOST", 10)
    x, y = torch.randn(30, 2), torch.ones(30, 3, dtype=torch.int8)
    made = Smoother.fit(x, y, y == 1)
    assert len(made.samples) == 10
    torch.testing.assert_close(made.samples[[0, -1]], x[[0, 29]])


def test_the_report_of_a_run_calls_levels_by_their_names(tmp_path: Path) -> None:
    x, kind = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32), np.arange(40) % 3
    arrays = {"nodes": ["A", "B", "a", "b", "c"], "edges": [[0, 2], [0, 3], [1, 4]], "levels": ["species", "family"]}
    y = np.array([[1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 1]])[kind]
    np.savez(tmp_path / "x.npz", x=x, y=y, train=kind < 2, **{name: np.array(value) for name, value in arrays.items()})
    run = torchlht.train(str(tmp_path / "x.npz"), out=tmp_path / "a", epochs=1, width=8, quiet=True).path
    page = torchlht.report(run).path.read_text()
    assert "set right" in page
    assert "On 13 test samples, hierarchical F1 is" in page
    assert "family" in page
    assert "level1" not in page
    assert "All classes that some sample is known to have" in page
    assert "The promise of at most 1 %, 5 % and 10 % wrong answers: from" in page
