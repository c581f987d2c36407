"""One label per sample in a graph: heads against enumeration over leaves, plain loops and trees; answers, risks and runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_graph import BATS, graphs, naive_ancestors

import torchlht
from dags import BIRDS, write_birds
from torchlht.answer.calibration import GRID
from torchlht.answer.facets import LEAST, likeliest, set_risks, sure_classes
from torchlht.answer.several import GraphModel
from torchlht.data.graphed import hide_leaves, known_from, labels_of, read_graphed
from torchlht.data.samples import Mask
from torchlht.errors import ConfigError, DataError
from torchlht.heads.graphs.exclusive import create_network
from torchlht.heads.graphs.network import GraphNetwork
from torchlht.heads.graphs.options import GraphArgs
from torchlht.heads.graphs.walk import Walk
from torchlht.heads.prediction import masked_cross_entropy
from torchlht.heads.transition.core import sum_children
from torchlht.hierarchy import linked
from torchlht.hierarchy.graph import Graph
from torchlht.measure.several import measure_leaves, measure_sure

METHODS = ("marginal", "lht", "multihead", "flat", "c-hmcnn")


def network(graph: Graph, method: str, **options: float) -> GraphNetwork:
    torch.manual_seed(0)
    args = GraphArgs(method=method, exclusive=True, width=8, layers=2, dropout=0.0, **options)  # type: ignore[arg-type]
    return create_network(3, graph, args).eval()


def leaves_under(graph: Graph, node: int) -> list[int]:
    return [i for i, leaf in enumerate(graph.leaves.tolist()) if node in naive_ancestors(graph, leaf)]


def known(graph: Graph, seed: int, count: int = 6) -> tuple[torch.Tensor, np.ndarray]:
    """Labels of samples that are known down to some node, and which leaves are possible."""
    generator = np.random.default_rng(seed)
    nodes = generator.integers(0, len(graph), count)
    possible = np.zeros((count, len(graph.leaves)), dtype=bool)
    for row, node in zip(possible, nodes, strict=True):
        row[leaves_under(graph, int(node))] = True
    return torch.from_numpy(np.stack([known_from(graph, row) for row in possible])), possible


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_probabilities_are_those_of_the_leaves_below_each_counted_once(graph: Graph, seed: int) -> None:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(4, 3))).float()
    for method in ("marginal", "flat", "multihead", *(("lht",) if graph.ranks is not None else ())):
        net = network(graph, method, members=2)
        z = net(x)
        leaf = torch.softmax(z[..., : len(graph.leaves)].double(), 2).mean(0)
        plain = torch.stack([leaf[:, leaves_under(graph, node)].sum(1) for node in range(len(graph))], 1)
        if method == "multihead":
            own = plain.clone()
            inner = [node for node in range(len(graph)) if node not in graph.leaves]
            own[:, inner] = torch.sigmoid(z[..., len(graph.leaves) :].double()).mean(0)
            below = [[b for b in range(len(graph)) if node in naive_ancestors(graph, b)] for node in range(len(graph))]
            plain = torch.stack([own[:, some].amax(1) for some in below], 1)
        found = net.log_probs(z)
        torch.testing.assert_close(found.exp().double(), plain, atol=1e-6, rtol=1e-4)
        if method != "multihead":  # calibrated ones, too
            warm = torch.softmax(found[:, graph.leaves].double() / 0.3, 1)
            plain = torch.stack([warm[:, leaves_under(graph, node)].sum(1) for node in range(len(graph))], 1)
            torch.testing.assert_close(net.rescaled(found, 0.3).exp().double(), plain, atol=1e-6, rtol=1e-4)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_labels_say_what_all_possible_leaves_say(graph: Graph, seed: int) -> None:
    y, possible = known(graph, seed)
    for row, own in zip(y.tolist(), possible, strict=True):
        for node, said in enumerate(row):
            inside = [i in leaves_under(graph, node) for i in np.flatnonzero(own)]
            assert said == (1 if all(inside) else -1 if any(inside) else 0)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1))
def test_losses_are_those_of_plain_loops(graph: Graph, seed: int) -> None:
    y, _ = known(graph, seed)
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(y), 3))).float()
    for method in ("marginal", "flat"):
        net = network(graph, method)
        z = net(x)
        leaf = torch.log_softmax(z[0].double(), 1)
        terms = []
        for level in range(int(graph.levels.max()) + 1) if method == "marginal" else [None]:
            own = []
            for n, row in enumerate(y.tolist()):
                there = [node for node, said in enumerate(row) if said == 1]
                if level is None:
                    own += [-leaf[n, i] for i, node in enumerate(graph.leaves) if node in there]
                elif any(graph.levels[node] == level for node in there):
                    right = set(range(len(graph.leaves)))
                    for node in there:
                        right &= set(leaves_under(graph, node)) if graph.levels[node] <= level else right
                    own.append(-torch.logsumexp(leaf[n, sorted(right)], 0))
            terms.append(torch.stack(own).mean() if own else torch.zeros((), dtype=torch.float64))
        torch.testing.assert_close(net.loss(z, y).double(), torch.stack(terms).mean(), atol=1e-5, rtol=1e-4)


def test_on_a_tree_marginal_is_the_trees_and_lht_that_holds_on_to_it_as_well() -> None:
    """No class here has a single child: what is known of that follows from its parent in a graph."""
    edges = [
        ("O", "A"),
        ("O", "B"),
        ("P", "C"),
        ("P", "D"),
        *((up, own) for up, own in zip("AABBCCDD", "abcdefgh", strict=True)),
    ]
    tree = Graph.from_edges(edges)
    names = [list("abcdefgh"), list("ABCD"), ["O", "P"]]
    at = [[tree.index(name) for name in level] for level in names]
    given_labels = torch.tensor([[0, 0, 0], [-1, 0, 0], [-1, -1, 1], [5, 2, 1], [-1, 1, 0]])
    labels = torch.from_numpy(
        labels_of(tree, [(names[k := next(k for k in range(3) if row[k] >= 0)][row[k]],) for row in given_labels.tolist()], str)
    )
    for method, options in (("marginal", {}), ("lht", {"gamma": 60.0, "prior_weight": 0.0})):
        net = network(tree, method, **options)
        z = net(torch.randn(5, 3))
        if method == "lht":
            z = torch.cat([z[..., :8], z[..., 8:] * 0], 2)
        order = [tree.leaves.tolist().index(node) for node in at[0]]
        fine = torch.log_softmax(z[0, :, order], 1)
        family = sum_children(fine, torch.tensor([0, 0, 1, 1, 2, 2, 3, 3]), 4)
        expected = masked_cross_entropy([fine, family, sum_children(family, torch.tensor([0, 0, 1, 1]), 2)], given_labels)
        torch.testing.assert_close(net.loss(z, labels), expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_walk_is_that_of_float64_loops(seed: int) -> None:
    """Columns of T sum to one; S has several ones per column; tops name themselves."""
    generator, walk = np.random.default_rng(seed), Walk(BIRDS, 2, 3.0)
    numbers = torch.from_numpy(generator.normal(size=(2, walk.outputs))).float()
    log_q, at = torch.log_softmax(torch.from_numpy(generator.normal(size=(2, len(BIRDS.leaves)))).float(), 1), 0
    q = log_q.double().exp().numpy()
    assert [len(layer) for layer in walk.layers] == [5, 5, 4]  # species; families and bills; orders, and bills that stay
    for k, (step, below, above) in enumerate(
        zip(walk.transitions(numbers, [torch.tensor(3.0)] * 2), walk.layers, walk.layers[1:], strict=False)
    ):
        rows, columns = len(above), len(below)
        left = numbers[:, at : at + 2 * columns].view(2, columns, 2).double().numpy()
        right = numbers[:, at + 2 * columns : at + 2 * (rows + columns)].view(2, rows, 2).double().numpy()
        at += 2 * (rows + columns)
        s, fixed = np.zeros((rows, columns)), np.zeros((rows, columns))
        for j, node in enumerate(below.tolist()):
            for parent in BIRDS.parents[node] or (node,):
                s[above.tolist().index(parent), j] = 1
        assert s.sum(0).tolist() == [[2] * 5, [1] * 5][k]
        t = np.exp(right @ left.transpose(0, 2, 1) + 3 * s)
        t /= t.sum(1, keepdims=True)
        fixed = np.exp(3 * s) / np.exp(3 * s).sum(0)
        torch.testing.assert_close(step.log_matrix().exp().double().numpy(), t, atol=1e-6, rtol=1e-4)
        np.testing.assert_allclose(step.log_matrix().exp().sum(1), 1, atol=1e-5)
        drift = (fixed * (np.log(fixed) - np.log(t))).sum(1).mean()
        assert float(walk.drift(step, 3.0)) == pytest.approx(drift, abs=1e-4)
        log_q, q = step.propagate(log_q), np.einsum("bij,bj->bi", t, q)
        np.testing.assert_allclose(log_q.exp(), q, atol=1e-5)


@pytest.mark.parametrize("gamma", [60.0, 100.0, 1000.0, -1000.0])
def test_a_very_strong_prior_neither_overflows_nor_drifts(gamma: float) -> None:
    net, (y, _) = network(BIRDS, "lht", gamma=gamma), known(BIRDS, 4)
    walk, z = net.walk, (30 * net(torch.randn(len(y), 3))).detach().requires_grad_()
    assert isinstance(walk, Walk)
    for share in (0.0, 1.0):
        net.reached(share)
        loss = net.loss(z, y)
        loss.backward()  # type: ignore[no-untyped-call]
        assert torch.isfinite(loss)
        assert all(torch.isfinite(p.grad).all() for p in (z, *net.parameters()) if p.grad is not None)
    for step in walk.transitions(torch.zeros(2, walk.outputs), [torch.tensor(gamma)] * 2):
        assert float(walk.drift(step, gamma)) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_differences(method: str) -> None:
    net, (y, _) = network(BIRDS, method), known(BIRDS, 4)
    z = net(torch.randn(len(y), 3)).detach().requires_grad_()
    (slope,) = torch.autograd.grad(net.loss(z, y), z)
    assert torch.isfinite(slope).all()
    for n, a in ((0, 0), (1, 2), (2, 3), (5, 1)):
        step = torch.zeros_like(z)
        step[0, n, a] = 1e-2
        with torch.no_grad():
            rise = (net.loss(z + step, y) - net.loss(z - step, y)) / 2e-2
        assert slope[0, n, a] == pytest.approx(rise.item(), abs=2e-3)


def test_lht_refuses_a_graph_whose_ways_up_differ_in_length() -> None:
    uneven = Graph.from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    assert uneven.ranks is None
    with pytest.raises(ConfigError, match=r"the edge from 'b' to 'c' does not join adjacent levels: use marginal"):
        network(uneven, "lht")
    network(uneven, "marginal")
    with pytest.raises(ConfigError, match="method hxe does not learn here: it needs a tree"):
        GraphArgs(method="hxe", exclusive=True)


@settings(max_examples=25, deadline=None)
@given(graphs(), st.integers(0, 2**32 - 1), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_answers_with_a_threshold_are_closed_agree_and_shrink(graph: Graph, seed: int, low: float, high: float) -> None:
    z = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 4, len(graph.leaves))) * 2).float()
    scores = network(graph, "marginal").log_probs(z).exp().numpy()
    some, few = (sure_classes(scores, graph, t, exclusive=True) for t in sorted((low, high)))
    assert (few <= some).all()
    for row in some:
        nodes = np.flatnonzero(row)
        assert all(set(graph.parents[node]) <= set(nodes) for node in nodes)
        assert not len(nodes) or set.intersection(*(set(leaves_under(graph, int(node))) for node in nodes))
    best = likeliest(scores, graph)
    for row, own in zip(best, scores, strict=True):
        assert set(np.flatnonzero(row)) == naive_ancestors(graph, int(graph.leaves[own[graph.leaves].argmax()]))


def test_risks_count_wrong_and_unchecked_answers() -> None:
    scores = network(BIRDS, "marginal").log_probs(torch.randn(1, 40, 5) * 3).exp().numpy()
    y, judged = known(BIRDS, 2, 40)[0].numpy(), np.ones(len(BIRDS), dtype=bool)
    found = set_risks(scores, y, BIRDS, judged, exclusive=True)
    whole = (y >= 0).all(1)
    wrong, strict = np.zeros((len(GRID), 40), dtype=bool), np.zeros((len(GRID), 40), dtype=bool)
    for i, threshold in enumerate(GRID):
        said = sure_classes(scores, BIRDS, float(threshold), exclusive=True)
        wrong[i], strict[i] = (said & (y == 0)).any(1) & whole, (said & (y != 1)).any(1)
        assert found.answered[i] == said.any(1).sum()
    for i in (1, 100, 200, 280):
        assert found.weighted[i] == pytest.approx(wrong[i:].any(0).sum() / whole.mean())
        assert found.strict[i] == strict[i:].any(0).sum()
    assert found.most == pytest.approx(1 / whole.mean())
    measured = measure_sure(y, sure_classes(scores, BIRDS, 0.5, exclusive=True), BIRDS, judged)
    assert 0 < (measured["answered"] or 0) <= 1


def test_metrics_by_level_are_exact_sets() -> None:
    y = np.stack([known_from(BIRDS, BIRDS.leaves == BIRDS.index(leaf)) for leaf in "abc"])
    scores = np.full((3, len(BIRDS)), 0.1, dtype=np.float32)
    for row, leaf in zip(scores, ("a", "a", "c"), strict=True):
        row[BIRDS.ancestors(BIRDS.index(leaf))] = 0.9
    found = measure_leaves(y, scores, BIRDS, np.ones(len(BIRDS), dtype=bool))
    assert found["leaf_accuracy"] == pytest.approx(2 / 3)
    assert [round(level["accuracy"], 3) for level in found["graph_levels"]] == [0.667, 1.0, 0.667]


# ---- data ------------------------------------------------------------------------------------------------------------


def test_folders_and_tables_name_classes_at_any_height(tmp_path: Path) -> None:
    for place in ("birds/O/A/a", "birds/hook", "birds/hook/c"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "1.png").write_bytes(b"not looked at")
    found = read_graphed(tmp_path / "birds", BIRDS)
    said = {key: {BIRDS.names[i] for i in np.flatnonzero(row == 1)} for key, row in zip(found.keys, found.labels, strict=True)}
    assert said == {"O/A/a/1.png": {"O", "A", "a", "hook"}, "hook/1.png": {"hook"}, "hook/c/1.png": {"hook", "c", "B", "O"}}
    table = tmp_path / "birds.csv"
    table.write_text("path,family,bill,split,note\n1.png,B,hook,train,x\n2.png,,cone,test,y\n3.png,?,,train,z\n")
    found = read_graphed(table, BIRDS, unknown=["?"])
    assert found.labels[0, BIRDS.index("c")] == 1  # the only one of its family
    assert found.labels[1, BIRDS.index("b")] == 1
    assert (found.labels[2] == -1).all()
    assert found.split.tolist() == ["train", "test", "train"]
    table.write_text("path,family,bill\n1.png,C,cone\n")
    with pytest.raises(DataError, match=r"line 2: no class lies below both 'C' and 'cone'"):
        read_graphed(table, BIRDS)
    table.write_text("path,family\n1.png,A\n2.png,Z\n")
    with pytest.raises(DataError, match="line 3: there is no class 'Z'"):
        read_graphed(table, BIRDS)


def test_hiding_keeps_what_follows_from_the_parents(tmp_path: Path) -> None:
    data = read_graphed(write_birds(tmp_path)[0], BIRDS)
    hidden = hide_leaves(data, Mask(0.5, seed=1))
    changed = (hidden.labels != data.labels).any(1)
    assert 0 < changed.sum() < len(data)
    assert (data.split[changed] == "train").all()
    for row in np.flatnonzero(changed):
        leaf = next(int(node) for node in BIRDS.leaves if data.labels[row, node] == 1)
        assert all(hidden.labels[row, p] == 1 for p in BIRDS.parents[leaf])
    np.testing.assert_array_equal(hide_leaves(data, Mask(0.5, seed=1)).labels, hidden.labels)


# ---- train, answer, calibrate, export, report --------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_and_is_the_same_again(tmp_path: Path, method: str) -> None:
    data, graph = write_birds(tmp_path)
    how = {"hierarchy": graph, "method": method, "width": 24, "epochs": 25, "lr": 0.01, "batch_size": 16, "quiet": True}
    run = torchlht.train(str(data), out=tmp_path / "a", **how)
    assert run.metrics["leaf_accuracy"] > (0.5 if method == "c-hmcnn" else 0.8)
    again = torchlht.train(str(data), out=tmp_path / "b", **how)
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    found = GraphModel.load(run.path).probabilities(x)
    np.testing.assert_array_equal(GraphModel.load(again.path).probabilities(x), found)
    for parent, child in BIRDS.edges.T:
        graph_of = GraphModel.load(run.path).graph
        a, b = graph_of.index(BIRDS.names[parent]), graph_of.index(BIRDS.names[child])
        assert (found[:, b] <= found[:, a] + 1e-6).all()


def test_a_graph_is_read_to_decide_and_to_learn_not_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, graph = write_birds(tmp_path)
    read, asked = [], linked.read_table
    monkeypatch.setattr(linked, "read_table", lambda file: read.append(file) or asked(file))
    torchlht.train(str(data), hierarchy=graph, method="marginal", epochs=1, quiet=True, out=tmp_path / "run")
    assert len(read) <= 2


def test_samples_of_which_nothing_is_known_are_refused_before_training_and_none_are_answered(tmp_path: Path) -> None:
    data, graph = write_birds(tmp_path)
    found = dict(np.load(data))
    how = {"hierarchy": graph, "epochs": 1, "quiet": True, "track": False}
    for method in METHODS:
        run = torchlht.train(str(data), out=tmp_path / method, method=method, **how)
        assert run.predict(found["x"][:0]) == []
    np.savez(tmp_path / "blank.npz", **(found | {"y": np.full_like(found["y"], "")}))
    with pytest.raises(DataError, match="no training sample has a label"):
        torchlht.train(str(tmp_path / "blank.npz"), out=tmp_path / "none", **how)
    assert not (tmp_path / "none").exists()


def test_bats_have_no_label_of_their_own() -> None:
    """A sample of which nothing is known teaches nothing, and does no harm."""
    y = torch.full((2, len(BATS)), -1, dtype=torch.int8)
    for method in METHODS:
        net = network(BATS, method, **({"prior_weight": 0.0} if method == "lht" else {}))
        z = net(torch.randn(2, 3)).detach().requires_grad_()
        net.loss(z, y).backward()
        assert z.grad is not None
        torch.testing.assert_close(z.grad, torch.zeros_like(z))
    assert pytest.approx(1 / (1 + math.exp(5))) == LEAST
