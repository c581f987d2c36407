"""A prior that yields: parents by labels, the transition that follows them, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from torchlht import ConfigError, Hierarchy, create_method
from torchlht.answer.card import card
from torchlht.answer.model import Model
from torchlht.errors import RunError
from torchlht.heads.method import Method
from torchlht.heads.methods.lht import LHTHead
from torchlht.heads.transition.yielding import AHEAD, counted_parents, moves
from torchlht.learn.alone import Alone
from torchlht.learn.memory import given_samples, learn
from torchlht.learn.options import TrainArgs
from torchlht.show.sections.overview import cautions
from torchlht.show.sections.parts import Subject
from torchlht.show.seen import Seen

TREE = Hierarchy.from_parents([[0, 0, 1, 1, 2], [0, 0, 1]], levels=["species", "family", "order"])
MOVED = torch.tensor([[1, 2, 1], [1, 2, 1], [0, 0, 0], [2, 0, 0], [3, 0, 0], [3, 1, 0], [3, 0, 0], [-1, 1, 0], [4, -1, 1]])


def head(**options: object) -> LHTHead:
    torch.manual_seed(0)
    found = create_method("lht", 6, TREE, width=9, **options)
    assert isinstance(found, LHTHead)
    return found


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**16))
def test_parents_are_counted(children: int, rows: int, samples: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    fine, coarse = rng.integers(-1, children, samples), rng.integers(-1, rows, samples)
    own = rng.integers(0, rows, children)
    found = counted_parents(fine, coarse, own)
    for c in range(children):
        count = [int(((fine == c) & (coarse == p)).sum()) for p in range(rows)]
        best = max(range(rows), key=lambda p: (count[p], -p))
        assert found[c] == (best if count[best] >= count[own[c]] + AHEAD else own[c])


def test_one_label_or_scattered_ones_move_nothing() -> None:
    own = np.array([0, 1])
    assert counted_parents(np.array([0]), np.array([1]), own).tolist() == [0, 1]
    fine, coarse = np.zeros(20, dtype=np.int64), np.array([0] * 8 + [1, 2, 3, 4] * 3)
    assert counted_parents(fine, coarse, own).tolist() == [0, 1]  # 12 of 20 are wrong, and no other parent has more than 3
    assert counted_parents(np.array([0, 0]), np.array([1, 1]), own).tolist() == [1, 1]


def test_the_transition_follows_and_columns_sum_to_one() -> None:
    plain, moved = head(), head()
    (said,) = moved.heed(MOVED)
    assert said.startswith("labels contradict the tree about 1 of 5 classes at the level species, such as 1: 2;")
    x = torch.randn(4, 6)
    for form in ("plain", "tiled", "truncated"):
        moved.steps[0].form = form
        matrix = moved.eval()(x).transition(0)
        with torch.no_grad(), patch("torch.compiler.is_exporting", lambda: True):
            exported = moved(x).log_probs
        for a, b in zip(moved(x).log_probs, exported, strict=True):
            torch.testing.assert_close(a, b)
        torch.testing.assert_close(matrix.sum(dim=1), torch.ones(4, 5))
        assert (matrix.argmax(dim=1) == torch.tensor([0, 2, 1, 1, 2])).all()
    assert (plain.eval()(x).transition(0).argmax(dim=1) == torch.tensor([0, 0, 1, 1, 2])).all()
    assert moved.hierarchy == TREE  # the tree of answers is the user's
    moved.steps[0].held = True
    moved.train()
    assert (moved.steps[0](torch.randn(2, 9)).log_matrix()[0].argmax(dim=0) == torch.tensor([0, 2, 1, 1, 2])).all()


def test_it_is_the_plain_formula_with_another_tree() -> None:
    moved = head().double().eval()
    moved.heed(MOVED)
    torch.manual_seed(0)
    true = Hierarchy.from_parents([[0, 2, 1, 1, 2], [0, 0, 1]], levels=TREE.levels)
    other = create_method("lht", 6, true, width=9).double().eval()
    x, labels = torch.randn(7, 6, dtype=torch.float64), torch.tensor([[1, 2, 1]] * 7)
    for a, b in zip(moved(x).log_probs, other(x).log_probs, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(moved.loss(moved(x), labels), other.loss(other(x), labels))  # the drift is from that tree, too
    step, u = moved.steps[0], moved.neck(x)[1]
    left, right = step.left(u).view(7, 5, 2), step.right(u).view(7, 3, 2)
    for n in range(7):
        a = torch.stack([(right[n, i] * left[n]).sum(dim=1) for i in range(3)])
        for j, parent in enumerate([0, 2, 1, 1, 2]):
            a[parent, j] += step.gamma
        torch.testing.assert_close(moved(x).transition(0)[n], torch.softmax(a, dim=0))


def test_without_contradictions_nothing_changes() -> None:
    plain, heeding = head(), head()
    agreeing = torch.tensor([[0, 0, 0], [0, 0, 0], [2, 1, 0], [-1, 2, 1], [4, 2, 1]])
    assert heeding.heed(agreeing) == []
    assert list(heeding.state_dict()) == list(plain.state_dict())
    x = torch.randn(3, 6)
    for a, b in zip(plain.eval()(x).log_probs, heeding.eval()(x).log_probs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("name", "options"),
    [("lht-paper", {}), ("lht", {"gamma": 1.0}), ("lht-full", {}), ("lht", {"yields": False}), ("flat", {})],
)
def test_a_weak_prior_is_left_as_it_is(name: str, options: dict[str, object]) -> None:
    method: Method = create_method(name, 6, TREE, **options)
    assert method.heed(MOVED) == []
    with pytest.raises(ConfigError, match="can yield"):
        create_method("lht", 6, TREE, transition="static", yields=True)


def test_what_has_moved_is_named_up_to_a_number() -> None:
    assert moves(TREE, 0, TREE.parents[0]) == ""
    assert "labels: 1: 2, not 0; and 2 more. Answers" in moves(TREE, 0, np.array([0, 2, 1, 0, 0]), most=1)


def test_no_name_of_what_stands_in_is_told() -> None:
    paths = [("Birds", "Gulls", "a"), ("Birds", "Gulls", "b"), ("Birds", None, "c"), ("Birds", None, "d")]
    tree = Hierarchy.from_paths(paths, ("order", "family", "species"))
    method = create_method("lht", 6, tree, width=9)
    said = [*method.heed(torch.tensor([[0, 1, 0]] * 2 + [[2, 0, 0]] * 2)), *method.yielded()]
    assert "such as a: Birds (order);" in said[0]
    assert "labels: a: Birds (order), not Gulls; c: Gulls, not Birds (order). Answers" in said[1]


def test_a_moved_prior_is_kept_with_the_weights(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.array([[1, 2, 1], [0, 0, 0], [2, 1, 0], [3, 1, 0], [4, 2, 1]])[np.arange(60) % 5]
    x = (rng.normal(size=(60, 6)) + 3 * np.eye(6)[labels[:, 0]]).astype(np.float32)
    args = TrainArgs(test_share=0.0, test=False, track=False, quiet=True, epochs=2, option=("width=8",))
    torch.manual_seed(0)
    model, _, _ = learn(args, given_samples(x, labels, TREE), Alone())
    assert model.options["yields"] is True
    model.save_pretrained(tmp_path / "run")
    again = Model.from_pretrained(tmp_path / "run")
    said, told = model.method(torch.from_numpy(x)), again.method(torch.from_numpy(x))
    assert all(torch.equal(a, b) for a, b in zip(said.log_probs, told.log_probs, strict=True))
    assert told.transition(0).argmax(dim=1)[0].tolist()[1] == 2
    (sentence,) = again.method.yielded()
    assert "about 1 of 5 classes at the level species, and the transition follows the labels: 1: 2, not 0. Answers" in sentence
    assert sentence in card(tmp_path / "run", "birds")
    seen = SimpleNamespace(split="test", args=args, calibrated=False, model=again)
    assert cautions(Subject((cast(Seen, seen),), 0)) == [sentence]  # in the report
    wrong = dict(model.state_dict())
    for bad in (torch.tensor([0, 9, 1, 1, 2]), torch.tensor([0, 1])):
        wrong["method.steps.0.moved"] = bad
        save_file(wrong, tmp_path / "run" / "model.safetensors")
        with pytest.raises(RunError, match="do not belong"):
            Model.from_pretrained(tmp_path / "run")
