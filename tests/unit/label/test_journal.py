"""The journal of lht label: any prefix is a valid state, torn lines are ignored, damage is noticed, one writer at a time."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlht.data.samples import Samples
from torchlht.errors import ConfigError, DataError, RunError
from torchlht.hierarchy.tree import Hierarchy
from torchlht.serve.label.desk import Conflict, Desk, Given
from torchlht.serve.label.journal import FILE, WHATS, Answer, Begin, Entry, Journal, opened, parse, read_journal
from torchlht.serve.label.reading import replayed
from torchlht.serve.label.state import State

TREE = Hierarchy.from_paths(
    [("Gulls", "Ivory Gull"), ("Gulls", "Herring Gull"), ("Auks", "Puffin"), ("Auks", "Razorbill")],
    levels=("family", "species"),
)
BEGIN = Begin(at="now", format=1, data="birds", levels=["family", "species"])


def birds(count: int = 6) -> Samples:
    labels = np.full((count, 2), -1)
    labels[0] = [0, TREE.parents[0][0]]
    labels[1, 1] = 1
    x = np.zeros((count, 3), np.float32)
    return Samples("birds", TREE, tuple(map(str, range(count))), labels, np.full(count, "train"), features=x)


def desk_at(folder: Path, journal: Journal, entries: list[Entry]) -> Desk:
    return Desk(birds(), replayed(birds(), entries), journal, blind_share=0.0)


def same(a: State, b: State) -> bool:
    return (
        all((getattr(a, name) == getattr(b, name)).all() for name in ("node", "mark", "version"))
        and a.taxonomy.nodes == b.taxonomy.nodes
        and a.taxonomy.gone == b.taxonomy.gone
    )


def answer(desk: Desk, samples: list[int], what: str = "label", node: int | None = 2, by: str = "ann") -> int:
    return desk.answer(Given([(i, int(desk.state.version[i])) for i in samples], what, node, by))  # type: ignore[arg-type]


class Model:
    """A naive state: after every event, the label of every sample, from a list of all events."""

    def __init__(self) -> None:
        self.events: list[tuple[int, list[int], str, int, str]] = []  # number, samples, what, node, by
        self.undone: list[int] = []

    def label(self, i: int, given: int) -> tuple[int, int]:
        for number, samples, what, node, _ in reversed(self.events):
            if number not in self.undone and i in samples:
                mark = WHATS.index(what)  # type: ignore[arg-type]
                return (node if what in ("label", "only") else given if what == "cant_tell" else -1), mark
        return given, -1


actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("answer"),
            st.sampled_from(["ann", "ben"]),
            st.sets(st.integers(0, 5), min_size=1),
            st.sampled_from(WHATS),
            st.integers(0, 5),
        ),
        st.tuples(st.just("undo"), st.sampled_from(["ann", "ben"])),
        st.tuples(st.just("redo"), st.sampled_from(["ann", "ben"])),
        st.tuples(
            st.just("class"), st.sampled_from(["ann", "ben"]), st.integers(-1, 3), st.sampled_from(["x", "y", "<b>z</b>"])
        ),
    ),
    max_size=14,
)


@settings(max_examples=30, deadline=None)
@given(actions=actions, cut=st.integers(0, 2**31))
def test_any_prefix_is_a_valid_state_and_the_state_is_what_a_naive_one_is(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[object, ...]], cut: int
) -> None:
    folder, naive, states = tmp_path_factory.mktemp("j"), Model(), []
    with opened(folder, BEGIN) as (journal, entries):
        desk = desk_at(folder, journal, entries)
        states.append((folder / FILE).stat().st_size)
        for kind, by, *rest in actions:
            try:
                if kind == "answer":
                    samples, what, node = sorted(rest[0]), rest[1], rest[2]
                    number = answer(desk, samples, str(what), node if what in ("label", "only") else None, str(by))
                    naive.events.append((number, samples, what, node, by))  # type: ignore[arg-type]
                elif kind == "class":
                    desk.add_class(rest[0], rest[1], str(by))  # type: ignore[arg-type]
                elif kind == "undo":
                    naive.undone.append(desk.undo(str(by)))
                else:
                    naive.undone.remove(desk.redo(str(by)))
            except ConfigError:
                continue  # nothing to undo, or such a class is there: nothing may have been written
            finally:
                if (folder / FILE).stat().st_size != states[-1]:
                    states.append((folder / FILE).stat().st_size)
        for i in range(6):
            assert (desk.state.node[i], desk.state.mark[i]) == naive.label(i, int(desk.state.given[i]))
        whole = (folder / FILE).read_bytes()
        assert same(replayed(birds(), read_journal(folder / FILE).entries), desk.state)
        if kept := desk.state.taxonomy.hierarchy():
            assert (desk.state.labels(kept) >= -1).all()
    at = cut % (len(whole) + 1)
    read = parse(whole[:at], "cut")
    assert read.size == max((size for size in states if size <= at), default=0)
    assert read.size + read.torn == at
    if read.entries:
        replayed(birds(), read.entries)
        (folder / FILE).write_bytes(whole[:at])
        with opened(folder, BEGIN) as (journal, entries):  # the next writer goes on from there
            desk = desk_at(folder, journal, entries)
            answer(desk, [0])
        assert len(read_journal(folder / FILE).entries) == len(read.entries) + 1


def test_damage_in_the_middle_is_noticed_and_a_torn_end_is_not_a_fault(tmp_path: Path) -> None:
    with opened(tmp_path, BEGIN) as (journal, entries):
        desk = desk_at(tmp_path, journal, entries)
        for i in range(3):
            answer(desk, [i])
    whole = (tmp_path / FILE).read_bytes()
    lines = whole.splitlines(keepends=True)
    for broken in (whole.replace(b'"1"', b'"4"', 1), b"".join([*lines[:1], *lines[2:]])):
        (tmp_path / FILE).write_bytes(broken)
        with pytest.raises(DataError, match=r"line \d: is damaged"):
            read_journal(tmp_path / FILE)
    for torn in (whole[:-1], whole[:-20], whole + b"\0" * 40, whole + b"half a line"):
        (tmp_path / FILE).write_bytes(torn)
        assert len(read_journal(tmp_path / FILE).entries) >= 3


def test_one_writer_and_the_same_levels(tmp_path: Path) -> None:
    with (
        opened(tmp_path, BEGIN),
        pytest.raises(RunError, match="another lht label is open on this data"),
        opened(tmp_path, BEGIN),
    ):
        pass
    other = Begin(format=1, data="birds", levels=["order", "species"])
    with pytest.raises(DataError, match="is about the levels family, species"), opened(tmp_path, other):
        pass


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, BEGIN) as (journal, entries):
        desk = desk_at(tmp_path, journal, entries)
        answer(desk, [0])
        before = (tmp_path / FILE).read_bytes()

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "", str(tmp_path / FILE))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError):
                answer(desk, [1])
        assert (tmp_path / FILE).read_bytes() == before
        assert desk.state.version[1] == 0
        answer(desk, [1])
        assert len(read_journal(tmp_path / FILE).entries) == 3


def test_two_people_who_answer_the_same_sample_meet(tmp_path: Path) -> None:
    with opened(tmp_path, BEGIN) as (journal, entries):
        desk = desk_at(tmp_path, journal, entries)
        desk.answer(Given([(3, 0)], "label", 2, "ann"))
        with pytest.raises(Conflict) as met:
            desk.answer(Given([(2, 0), (3, 0)], "label", 3, "ben"))
        assert met.value.samples == [3]
        assert desk.state.version[2] == 0  # all or nothing
        desk.answer(Given([(3, int(desk.state.version[3]))], "label", 3, "ben"))
        desk.undo("ann")  # hers no longer counts, his still does
        assert desk.state.node[3] == 3


def test_a_class_in_use_is_not_taken_back_and_answers_about_lost_samples_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path, BEGIN) as (journal, entries):
        desk = desk_at(tmp_path, journal, entries)
        node = desk.add_class(0, "Sabine's Gull", "ann")
        answer(desk, [4], node=node, by="ben")
        with pytest.raises(ConfigError, match="in use by 1 samples"):
            desk.undo("ann")
        with pytest.raises(ConfigError, match="is there already"):
            desk.add_class(1, "Sabine's Gull", "ben")
        with pytest.raises(ConfigError, match="the finest level"):
            desk.add_class(node, "x", "ben")
        desk.undo("ben")
        desk.undo("ann")
        assert node in desk.state.taxonomy.gone
        with pytest.raises(ConfigError, match="no such class"):
            answer(desk, [4], node=node)
        answer(desk, [5])
    fewer = replayed(birds(4), read_journal(tmp_path / FILE).entries)
    assert fewer.strangers == 3
    assert isinstance(read_journal(tmp_path / FILE).entries[-1], Answer)
