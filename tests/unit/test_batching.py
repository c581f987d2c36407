"""Requests that are computed together: each gets its own answer, whoever comes, leaves or fails beside it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlht.data.preparing import Preprocess
from torchlht.heads.prediction import Prediction
from torchlht.serve.batching import Batcher, Job
from torchlht.serve.counting import Counts


class Echo:
    """A model whose answer is the first byte of a picture; it can be held up, and fails where it meets a 255."""

    preprocess = Preprocess(8, 8, mean=(0, 0, 0), std=(1 / 255, 1 / 255, 1 / 255))

    def __init__(self, shift: float = 0.0) -> None:
        self.shift, self.batches, self.free = shift, [], threading.Event()
        self.free.set()

    def look(self, x: Tensor) -> Prediction:
        self.free.wait(5)
        self.batches.append(len(x))
        if (x[:, 0, 0, 0] == 255).any():
            raise RuntimeError("cannot")
        return Prediction((x[:, 0, 0, :1] + self.shift,), distance=x[:, 0, 0, 0])


def picture(value: int) -> Tensor:
    return torch.full((3, 8, 8), value, dtype=torch.uint8)


def run(body: Any, **how: Any) -> Any:
    async def inside() -> Any:
        batcher = Batcher(**{"most": 8, "latency": 10.0, **how})
        task = asyncio.create_task(batcher.run())
        try:
            return await asyncio.wait_for(body(batcher), 20)
        finally:
            task.cancel()

    return asyncio.run(inside())


def test_what_waits_is_computed_together_and_everyone_gets_their_own() -> None:
    model, rng = Echo(), np.random.default_rng(0)
    asked = [[int(v) for v in rng.integers(0, 255, rng.integers(1, 4))] for _ in range(60)]

    async def body(batcher: Batcher) -> list[Prediction]:
        return await asyncio.gather(*(batcher.ask(model, [picture(v) for v in one]) for one in asked))

    found = run(body)
    for one, said in zip(asked, found, strict=True):
        assert said.log_probs[0][:, 0].tolist() == one
        assert said.distance.tolist() == one
    assert max(model.batches) <= 8
    assert len(model.batches) < 30


def test_one_alone_does_not_wait_and_a_large_request_goes_by_itself() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> None:
        await batcher.ask(model, [picture(1)])
        await batcher.ask(model, [picture(1)] * 20)

    run(body)
    assert model.batches == [1, 20]


def test_models_are_not_mixed_when_a_new_one_comes() -> None:
    old, new = Echo(), Echo(0.5)

    async def body(batcher: Batcher) -> list[Prediction]:
        return await asyncio.gather(*(batcher.ask((old, new)[i % 2], [picture(i)]) for i in range(20)))

    assert [said.log_probs[0].item() for said in run(body)] == [i + 0.5 * (i % 2) for i in range(20)]


def test_who_leaves_is_not_computed_and_a_fault_is_told_to_its_batch_alone() -> None:
    model = Echo()

    async def body(batcher: Batcher) -> list[Any]:
        model.free.clear()
        first = asyncio.create_task(batcher.ask(model, [picture(1)]))
        await asyncio.sleep(0.05)
        left = [asyncio.create_task(batcher.ask(model, [picture(2)])) for _ in range(5)]
        stays = asyncio.create_task(batcher.ask(model, [picture(3)]))
        await asyncio.sleep(0.05)
        for one in left:
            one.cancel()
        await asyncio.sleep(0)
        model.free.set()
        bad = asyncio.create_task(batcher.ask(model, [picture(255)] * 8))
        after = asyncio.create_task(batcher.ask(model, [picture(4)] * 8))
        return await asyncio.gather(first, stays, bad, after, return_exceptions=True)

    first, stays, bad, after = run(body)
    assert [said.log_probs[0][0, 0].item() for said in (first, stays, after)] == [1, 3, 4]
    assert isinstance(bad, RuntimeError)
    assert sum(model.batches) == 1 + 1 + 8 + 8


def test_a_batch_is_as_large_as_the_latency_allows() -> None:
    async def body() -> None:
        batcher, model = Batcher(32, 1.0), Echo()
        batcher.jobs.extend(Job(model, [picture(0)]) for _ in range(40))  # type: ignore[arg-type]
        batcher.note(10, 1.0)  # a tenth of a second each
        assert len(batcher.next_batch()) == 10
        batcher.note(1, 60.0)
        assert len(batcher.next_batch()) == 1

    asyncio.run(body())


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
