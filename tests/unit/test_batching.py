"""Requests that are computed together: each gets its own answer, whoever comes, leaves or fails beside it."""

from __future__ import annotations

import asyncio
import io
import threading
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from torchlht.answer.named import Wanted
from torchlht.data.preparing import Preprocess
from torchlht.errors import DataError
from torchlht.heads.prediction import Prediction
from torchlht.serve import answering
from torchlht.serve.answering import Manner, Question
from torchlht.serve.batching import Batcher, Job
from torchlht.serve.counting import Counts

MANNER = Manner(Wanted())


class Echo:
    """A model whose answer is the first byte of a picture; it can be held up, and fails where it meets a 255."""

    preprocess = Preprocess(8, 8, mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255))

    def __init__(self, shift: float = 0.0) -> None:
        self.shift, self.batches, self.free = shift, [], threading.Event()
        self.named_together: list[int] = []
        self.free.set()

    def look(self, x: Tensor) -> Prediction:
        self.free.wait(5)
        self.batches.append(len(x))
        if (x[:, 0, 0, 0] == 255).any():
            raise RuntimeError("cannot")
        return Prediction((x[:, 0, 0, :1] + self.shift,), distance=x[:, 0, 0, 0])

    def named(self, said: Prediction, names: list[str], top: int, rule: str | None, restriction: Any) -> list[Any]:
        assert said.distance is not None
        self.named_together.append(len(names))
        values = zip(names, said.log_probs[0][:, 0].tolist(), said.distance.tolist(), strict=True)
        return [(*one, top, rule) for one in values]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `Echo` says is not put into words."""
    monkeypatch.setattr(answering, "as_dict", lambda named, wanted: named)


def picture(value: int) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(written, "PNG")
    return written.getvalue()


def ask(model: Any, value: int, manner: Manner = MANNER) -> Question:
    return Question(model, f"{value}.png", picture(value), manner)


def run(body: Any, **how: Any) -> Any:
    async def inside() -> Any:
        batcher = Batcher(**{"most": 8, "latency": 10.0, **how})
        task = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(body(batcher), 20)
        finally:
            task.cancel()

    return asyncio.run(inside())


@pytest.mark.parametrize("lanes", [1, 3])
def test_what_waits_is_computed_together_and_everyone_gets_their_own(lanes: int) -> None:
    model, rng = Echo(), np.random.default_rng(0)
    asked = [[int(v) for v in rng.integers(0, 255, rng.integers(1, 20))] for _ in range(20)]

    async def body(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(*(batcher.ask([ask(model, v) for v in one]) for one in asked))

    found = run(body, lanes=lanes)
    for one, said in zip(asked, found, strict=True):
        assert said == [(f"{v}.png", v, v, 1, None) for v in one]
    assert max(model.batches) == 8
    assert sum(model.batches) == sum(map(len, asked))
    assert len(model.batches) < sum(map(len, asked)) / 4


def test_one_alone_does_not_wait_and_a_large_request_is_divided() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> None:
        await batcher.ask([ask(model, 1)])
        await batcher.ask([ask(model, 1)] * 20)

    run(body)
    assert model.batches == [1, 8, 8, 4]


def test_models_are_not_mixed_when_a_new_one_comes() -> None:
    old, new = Echo(), Echo(0.5)

    async def body(batcher: Batcher) -> list[Any]:
        return await asyncio.gather(*(batcher.ask([ask((old, new)[i % 2], i)]) for i in range(20)))

    assert [said[0][1] for said in run(body)] == [i + 0.5 * (i % 2) for i in range(20)]


def test_each_is_named_as_asked_and_neighbours_alike_are_named_together() -> None:
    model, other = Echo(), Manner(Wanted(), top=3, rule="argmax")
    manners = [MANNER, MANNER, Manner(Wanted()), other, MANNER]
    found = answering.answer([ask(model, i, manner) for i, manner in enumerate(manners)])
    assert [(one[0], one[3:]) for one in found] == [(f"{i}.png", (manner.top, manner.rule)) for i, manner in enumerate(manners)]  # type: ignore[index]
    assert model.named_together == [3, 1, 1]


def test_a_picture_that_cannot_be_read_changes_nothing_for_those_beside_it() -> None:
    model = Echo()
    bad = Question(model, "bad.png", b"no picture", MANNER)  # type: ignore[arg-type]
    first, second, third = answering.answer([ask(model, 1), bad, ask(model, 2)])
    assert (first[1], third[1]) == (1, 2)  # type: ignore[index]
    assert isinstance(second, DataError)
    assert str(second) == "not a readable picture"
    assert [str(one) for one in answering.answer([bad])] == ["not a readable picture"]
    assert model.batches == [2]


def test_who_leaves_is_not_computed_and_a_fault_is_told_to_its_batch_alone() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> list[Any]:
        model.free.clear()
        first = asyncio.create_task(batcher.ask([ask(model, 1)]))
        await asyncio.sleep(0.05)
        left = [asyncio.create_task(batcher.ask([ask(model, 2)])) for _ in range(5)]
        stays = asyncio.create_task(batcher.ask([ask(model, 3)] * 8))
        await asyncio.sleep(0.05)
        for one in left:
            one.cancel()
        await asyncio.sleep(0)
        model.free.set()
        bad = asyncio.create_task(batcher.ask([ask(model, 255)] * 8))
        after = asyncio.create_task(batcher.ask([ask(model, 4)] * 8))
        return await asyncio.gather(first, stays, bad, after, return_exceptions=True)

    first, stays, bad, after = run(body)
    assert [said[0][1] for said in (first, stays, after)] == [1, 3, 4]
    assert isinstance(bad, RuntimeError)
    assert sum(model.batches) == 1 + 8 + 8 + 8


def test_a_batch_is_as_large_as_the_latency_allows() -> None:
    async def body() -> None:
        batcher, model = Batcher(32, 1.0), Echo()
        batcher.jobs.extend(Job(ask(model, 0)) for _ in range(40))
        batcher.note(10, 1.0)  # a tenth of a second each
        assert len(batcher.next_batch()) == 10
        batcher.note(1, 60.0)
        assert len(batcher.next_batch()) == 1

    asyncio.run(body())


def test_several_looks_are_taken_as_predict_takes_them() -> None:
    spec = Preprocess(8, 10, looks=3)
    found = answering.prepared("a.png", picture(7), spec, 2**20)
    assert found.shape == (3, 3, 8, 8)
    assert torch.equal(found[0], answering.prepared("a.png", picture(7), Preprocess(8, 10), 2**20))


# ---- counts ----------------------------------------------------------------------------------------------------------


def test_counts_of_all_processes_are_added_up(tmp_path: Any) -> None:
    ours, theirs = Counts(str(tmp_path)), Counts(str(tmp_path))
    ours.request(200, 0.03)
    ours.batch(4, 0.5)
    theirs.request(503, 20.0)
    theirs.set("torchlht_waiting", 7)
    theirs.write()
    (file,) = tmp_path.glob("*.json")
    file.rename(tmp_path / "99999999.json")  # of a process that is gone
    text = ours.text()
    assert 'torchlht_requests_total{status="200"} 1\n' in text
    assert 'torchlht_requests_total{status="503"} 1\n' in text
    assert 'torchlht_request_seconds_bucket{le="0.025"} 0\n' in text
    assert 'torchlht_request_seconds_bucket{le="0.05"} 1\n' in text
    assert 'torchlht_request_seconds_bucket{le="+Inf"} 2\n' in text
    assert "torchlht_request_seconds_sum 20.03\n" in text
    assert "torchlht_batch_pictures_total 4\n" in text
    assert "torchlht_workers 2\n" in text
    assert "torchlht_waiting 0\n" in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
