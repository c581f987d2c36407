"""Many requests, one network: what waits while a batch is computed makes up the next one.

A request that comes alone is answered at once. Nobody waits for others to come, so a server with one client is as fast as one
without batches. A batch is at most as large as fits into the latency, judged by the batches before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from torchlht.serve.answering import Found, Question, answer

SMOOTH = 0.2  # share of the last batch in the estimate of how long a picture takes


@dataclass(eq=False)
class Job:
    """A question that waits, and its answer to come."""

    question: Question
    said: asyncio.Future[Found] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Answers questions in batches, as many batches at a time as there are lanes.

    A lane is a thread that decodes pictures, runs the network on them and names what it says. On a CPU that is faster than
    several threads for each of these steps: a batch is handed over once, and nothing waits for the others.

    Args:
        most: most pictures in a batch.
        latency: most seconds that a batch may take.
        lanes: batches at a time.
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
        self.threads = ThreadPoolExecutor(lanes, thread_name_prefix="lane")

    async def ask(self, questions: Sequence[Question]) -> list[Found]:
        """The answers to questions, in their order; a DataError for a picture that cannot be read."""
        jobs = [Job(question) for question in questions]
        self.jobs.extend(jobs)
        self.there.set()
        return await asyncio.gather(*(job.said for job in jobs))

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
                found = await loop.run_in_executor(self.threads, answer, [job.question for job in batch])
            except Exception as error:  # a fault of one batch is told to its requests; the next ones go on
                for job in batch:
                    tell(job, job.said.set_exception, error)
                continue
            self.note(len(batch), time.perf_counter() - began)
            for job, one in zip(batch, found, strict=True):
                tell(job, job.said.set_result, one)

    def next_batch(self) -> list[Job]:
        """The jobs for one model that waited longest and fit together; those whose client is gone are dropped."""
        room = min(self.most, max(1, int(self.latency / self.each))) if self.each else self.most
        found: list[Job] = []
        while self.jobs and len(found) < room:
            job = self.jobs[0]
            if found and job.question.model is not found[0].question.model:
                break
            self.jobs.popleft()
            if not job.said.done():
                found.append(job)
        return found

    def note(self, size: int, seconds: float) -> None:
        """Learn from a batch how long the next may take."""
        self.each = seconds / size if not self.each else (1 - SMOOTH) * self.each + SMOOTH * seconds / size
        self.counted(size, seconds)


def tell(job: Job, how: Callable[[Any], None], what: Any) -> None:
    """Give a job its result, unless its client is gone."""
    if not job.said.done():
        how(what)
