"""Many requests, one network: what waits while a batch is computed makes up the next one.

A request that comes alone is answered at once. Nobody waits for others to come, so a server with one client is as fast as one
without batches. A batch is at most as large as fits into the latency, judged by the batches before.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchlht.answer.model import Predictor
from torchlht.data.preparing import normalise
from torchlht.heads.prediction import Prediction

SMOOTH = 0.2  # share of the last batch in the estimate of how long a picture takes


@dataclass(eq=False)
class Job:
    """Pictures of one request that wait for the network."""

    model: Predictor
    pictures: Sequence[Tensor]
    said: asyncio.Future[Prediction] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Runs networks on batches of what is asked, as many batches at a time as there are lanes.

    Args:
        most: most pictures in a batch, unless a request alone has more.
        latency: most seconds that a batch may take.
        lanes: batches at a time, each on one thread: on a CPU that is faster than several threads for one batch.
        counted: called with the size of each batch and its seconds.
    """

    def __init__(
        self,
        most: int,
        latency: float,
        lanes: int = 1,
        counted: Callable[[int, float], None] = lambda size, seconds: None,
    ) -> None:
        self.most, self.latency, self.lanes, self.counted = most, latency, lanes, counted
        self.jobs: deque[Job] = deque()
        self.there = asyncio.Event()
        self.each = 0.0  # seconds that a picture takes
        self.threads = ThreadPoolExecutor(lanes, thread_name_prefix="network")

    async def ask(self, model: Predictor, pictures: Sequence[Tensor]) -> Prediction:
        """What a model says about prepared pictures, uint8 (3, size, size)."""
        job = Job(model, pictures)
        self.jobs.append(job)
        self.there.set()
        return await job.said

    async def run(self) -> None:
        """Work, for as long as the server lives."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.lanes):
                group.create_task(self.lane())

    async def lane(self) -> None:
        """Compute one batch after the other."""
        loop = asyncio.get_running_loop()
        while True:
            await self.there.wait()
            batch = self.next_batch()
            if not batch:
                self.there.clear()
                continue
            began = time.perf_counter()
            try:
                found = await loop.run_in_executor(self.threads, look, batch)
            except Exception as error:  # a fault of one batch is told to its requests; the next ones go on
                for job in batch:
                    if not job.said.done():
                        job.said.set_exception(error)
                continue
            self.note(sum(len(job.pictures) for job in batch), time.perf_counter() - began)
            for job, said in zip(batch, found, strict=True):
                if not job.said.done():  # its client may be gone
                    job.said.set_result(said)

    def next_batch(self) -> list[Job]:
        """The jobs for one model that waited longest and fit together; those whose client is gone are dropped."""
        room = min(self.most, max(1, int(self.latency / self.each))) if self.each else self.most
        found: list[Job] = []
        while self.jobs:
            job = self.jobs[0]
            if job.said.done():
                self.jobs.popleft()
                continue
            if found and (job.model is not found[0].model or len(job.pictures) > room):
                break
            found.append(self.jobs.popleft())
            room -= len(job.pictures)
        return found

    def note(self, size: int, seconds: float) -> None:
        """Learn from a batch how long the next may take."""
        self.each = seconds / size if not self.each else (1 - SMOOTH) * self.each + SMOOTH * seconds / size
        self.counted(size, seconds)


def look(batch: Sequence[Job]) -> list[Prediction]:
    """What the model says about all pictures of a batch, for each job."""
    model, counts = batch[0].model, [len(job.pictures) for job in batch]
    assert model.preprocess is not None
    x = normalise(torch.stack([picture for job in batch for picture in job.pictures]), model.preprocess)
    said, found, start = model.look(x), [], 0
    for count in counts:
        found.append(part_of(said, start, start + count))
        start += count
    return found


def part_of(said: Prediction, start: int, stop: int) -> Prediction:
    """The prediction for some of the samples."""

    def rows(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[start:stop]

    return dataclasses.replace(
        said,
        log_probs=tuple(log_p[start:stop] for log_p in said.log_probs),
        transitions=(),
        choice=rows(said.choice),
        scores=rows(said.scores),
        distance=rows(said.distance),
    )
