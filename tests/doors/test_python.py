"""Calls from Python with what does not fit: one sentence of ours, never a fault from the depths, and never a wrong result."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchlht
from torchlht import Hierarchy, HierarchyMetrics, LHTError, LHTHead, Mask, Model, create_method, decide, list_methods
from torchlht.answer.backbones import create_backbone
from torchlht.heads.method import Estimator, find_method

TREE = Hierarchy.from_parents([[0, 0, 1, 1]])
HEAD = LHTHead(3, TREE)
X = torch.zeros(4, 3)
SAID = HEAD(X)
Y = torch.zeros(4, 2, dtype=torch.long)
nan = math.nan


class Thing:
    def __repr__(self) -> str:
        return "thing"


def model() -> Model:
    return Model(create_backbone("none"), create_method("lht", 3, TREE), options={})


def tree(parents: Any, **names: Any) -> Callable[[], Any]:
    return lambda: Hierarchy.from_parents(parents, **names)


def each(function: Callable[..., Any], *values: Any) -> dict[str, Callable[[], Any]]:
    """One call for each value."""
    return {f"{function.__name__} {value!r}"[:60]: lambda value=value: function(value) for value in values}


NO_PLACE: tuple[Any, ...] = (None, 3, 1.5, b"x", [1], {}, Thing(), "a\0b")
CALLS: dict[str, Callable[[], Any]] = {
    **{f"parents {p!r}"[:60]: tree(p) for p in [
        None, [], 3, "x", ["ab"], {"a": 1}, [None], [[0, 0, 5]], [[-1, 0]], [[0.5, 0]], [[nan, 0]], [[0, 0], [0, 0, 0]],
        np.zeros((2, 2)), [[10**12, 0]], [[[0]]], [[True, False]],
    ]},
    **{f"levels {n!r}": tree([[0, 0, 1, 1]], levels=n) for n in [["a"], ["a", "a"], [None, "b"], "ab", [1, 2], 3]},
    **{f"classes {c!r}"[:60]: tree([[0, 0, 1, 1]], classes=c) for c in [
        3, "ab", [["a"]], [["a", "a", "b", "c"], ["x", "y"]], [["a", "b", "c"], ["x", "y"]], [[1, 2, 3, 4], [5, 6]],
        [["a", "b", "c", None], ["x", "y"]],
    ]},
    **{f"paths {p!r}": lambda p=p: Hierarchy.from_paths(p, ["f", "s"]) for p in [[("a",)], [("a", "b"), ("c", "b")], [(1, 2)]]},
    **{f"fill {y!r}"[:60]: lambda y=y: TREE.fill(y) for y in [
        None, np.zeros((3, 3), int), np.array([[9, 0]]), np.array([[-5, 0]]), np.array([[0.5, 0]]), [[0, 1]],
    ]},
    **each(Hierarchy.read, *NO_PLACE), **each(torchlht.load, *NO_PLACE), **each(torchlht.evaluate, *NO_PLACE),
    **each(torchlht.report, *NO_PLACE), **each(torchlht.calibrate, *NO_PLACE), **each(torchlht.read_data, *NO_PLACE),
    **each(torchlht.train, None, 3, b"x", [1], Thing(), "a\0b", "", "nowhere.npz"),
    **{f"export {run!r}": lambda run=run: torchlht.export(run, "x.onnx") for run in (None, 3, "nowhere")},
    **each(torchlht.compare, None, "x", 3),
    **{f"method {a!r}"[:60]: lambda a=a: create_method(*a) for a in [
        ("lht", 0, TREE), ("lht", -1, TREE), ("lht", "x", TREE), ("lht", None, TREE), ("lht", 2.5, TREE), ("lht", 10**12, TREE),
        ("lht", 3, None), ("lht", 3, "tree.csv"), (None, 3, TREE), ("foo", 3, TREE), (3, 3, TREE),
    ]},
    **{f"option {o!r}": lambda o=o: create_method("lht", 3, TREE, **o) for o in [
        {"gamma": "x"}, {"rank": None}, {"gamma": nan}, {"rank": 0}, {"rank": 1.5}, {"rank": 10**9}, {"foo": 1},
        {"transition": "x"}, {"transition": None}, {"bias": "no"}, {"input_dropout": 2}, {"cosine": "x"}, {"width": -1},
    ]},
    **{f"features {x!r}"[:60]: lambda x=x: HEAD(x) for x in [
        torch.zeros(4, 5), torch.zeros(3), torch.zeros(4, 3, 2), X.long(), np.zeros((4, 3)), None, "x",
    ]},
    **{f"{n} loss {y!r}"[:60]: lambda n=n, y=y: create_method(n, 3, TREE).loss(create_method(n, 3, TREE)(X), y)
       for n in list_methods() if not issubclass(find_method(n).cls, Estimator)
       for y in [Y - 2, Y + 9, Y.float(), Y[:1], Y[:, 0], None]},
    **{f"update {y!r}"[:60]: lambda y=y: HierarchyMetrics(TREE).update(SAID, y) for y in [Y - 2, Y + 9, Y[:3], None]},
    **each(HierarchyMetrics, None, "x"),
    **{f"rule {r!r}": lambda r=r: decide(SAID, TREE, r) for r in ["foo", "", None, 3]},
    **{f"mask {m!r}": lambda m=m: Mask(*m) for m in [
        (-1,), (2,), (nan,), ("x",), (None,), (0.5, 0), (0.5, None), (0.5, 1, "foo"), (0.5, 1, "nominal", -1),
        (0.5, 1, "nominal", 1, -1),
    ]},
    **{f"predict {x!r}"[:60]: lambda x=x: model().predict(x) for x in [
        None, 3, Thing(), "nowhere.jpg", [1, 2], np.zeros((2, 5), np.float32), np.zeros(3, np.float32), [[1.0, 2.0, 3.0]],
    ]},
    **{f"predict {how!r}": lambda how=how: model().predict(X, **how) for how in [
        {"top": 0}, {"top": -1}, {"top": "x"}, {"rule": "foo"}, {"rule": 3}, {"only": ["foo"]},
        {"exclude": ["0", "1", "2", "3"]}, {"batch_size": 0},
    ]},
    **{f"answer {how!r}": lambda how=how: model().predict(X)[0].answer(**how) for how in [
        {"confidence": 2}, {"confidence": -1}, {"confidence": nan}, {"confidence": "x"}, {"risk": 2},
        {"confidence": 0.5, "risk": 0.5},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_does_not_fit_is_refused_in_one_sentence(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LHTError) as refused:
        CALLS[name]()
    assert str(refused.value).strip()
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_of_an_argument_is_pythons_own_mistake() -> None:
    with pytest.raises(TypeError, match=r"load|from_pretrained"):
        torchlht.load("x", colour="red")  # type: ignore[call-arg]
